"""The API over a real store, on trio: statuses, problem documents, bounds, metrics."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import ListAsk, ReportBid, ReportLease
from cloud_gpu.protocol.errors import Rejection, RejectReason, StorageFailed
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import Cancellation, SignedAdvert, SignedBid, Terms
from cloud_gpu.protocol.receipts import SignedReceipt, check_receipt
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.units import BasisPoints, TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from market.api.bodies import BODY_BYTES_MAX
from market.api.errors import status_of
from market.health import health_of
from market.standing import SILENCE_MS_MAX
from market.store.inbox import SqlInbox
from tests.support.market_api import DEPLOYMENT, Api, Endless
from tests.unit.market.builders import (
    DOMAIN,
    FEE,
    MARKET_KEY,
    NOW,
    NOW_S,
    RULES,
    Desk,
    advert,
    key,
    machine,
    opened,
    order,
    price,
)


async def test_a_bid_gets_a_signed_receipt_and_the_same_one_again(api: Api) -> None:
    bid = order("bob")
    first = await api.place(bid)
    receipt = from_json(first.content, SignedReceipt)
    assert first.status_code == 201
    assert (receipt.body.order, receipt.body.inbox) == (bid.bid.payload.id, 1)
    assert receipt.body.received_at == NOW
    assert check_receipt(receipt, DOMAIN, market=MARKET_KEY.address, at=NOW_S) is None
    again = await api.place(bid)
    assert (again.status_code, again.content) == (200, first.content)
    assert len(api.arrivals) == 2


async def test_a_bid_sent_again_after_its_end_still_gets_its_receipt(api: Api) -> None:
    bid = order("bob", start_by=NOW_S + 5)
    first = await api.place(bid)
    api.clock.at += 6_000
    again = await api.place(bid)
    assert (again.status_code, again.content) == (200, first.content)
    late = await api.place(order("bob", nonce=1, start_by=NOW_S + 5))
    assert (await api.problem(late)).reason is RejectReason.EXPIRED


async def test_a_bid_sent_again_after_the_fee_rose_still_gets_its_receipt(api: Api) -> None:
    first = await api.place(order("bob"))
    api.standing = msgspec.structs.replace(api.standing, fee=BasisPoints(FEE.value + 1))
    again = await api.place(order("bob"))
    assert (again.status_code, again.content) == (200, first.content)
    late = await api.place(order("bob", nonce=1))
    assert (await api.problem(late)).reason is RejectReason.FEE_ABOVE_LIMIT


@pytest.mark.parametrize(
    ("signed", "reason", "status"),
    [
        (order("bob", signer="mallory"), RejectReason.KEY_NOT_AUTHORISED, 403),
        (order("bob", product=9), RejectReason.UNKNOWN_PRODUCT, 422),
        (order("bob", count=3), RejectReason.FLAGS_DIFFER, 422),
        (order("bob", matcher=Address(b"\x01" * 20)), RejectReason.WRONG_MATCHER, 422),
        (order("bob", terms=Digest(bytes(32))), RejectReason.TERMS_DIGEST_DIFFERS, 422),
        (
            order("bob", wanting=Terms(cuda_min="1" * 9_000)),
            RejectReason.TOO_LARGE,
            413,
        ),
    ],
    ids=lambda value: value.value if isinstance(value, RejectReason) else "",
)
async def test_a_bid_that_is_refused_is_not_kept_and_the_answer_says_what_to_do(
    api: Api, signed: SignedBid, reason: RejectReason, status: int
) -> None:
    answer = await api.place(signed)
    told = await api.problem(answer)
    assert (told.reason, told.status) == (reason, status)
    assert told.type == f"urn:cloud-gpu:reject:{reason}"
    assert told.field
    assert told.next
    assert api.inbox.after(0, 10) == []


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (b"", "Input data was truncated"),
        (b"[1]", "Expected `object`"),
        (b'{"bid":1,"terms":{}}', "$.bid"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 20_000, "Expected `object`"),
    ],
    ids=["empty", "list", "wrong field", "bytes", "deep"],
)
async def test_a_body_that_is_no_bid_is_refused_with_the_place_of_the_error(
    api: Api, body: bytes, hint: str
) -> None:
    told = await api.problem(await api.client.post("/v1/bids", content=body))
    assert (told.status, told.reason) == (400, RejectReason.MALFORMED)
    assert hint in told.found


async def test_unknown_fields_are_refused_and_named(api: Api) -> None:
    body = to_json(order("bob"))[:-1] + b',"extra":1}'
    told = await api.problem(await api.client.post("/v1/bids", content=body))
    assert "extra" in told.found


async def test_a_body_above_the_limit_is_refused_before_it_is_held(api: Api) -> None:
    answer = await api.client.post("/v1/bids", content=b"x" * (BODY_BYTES_MAX + 1))
    assert (await api.problem(answer)).reason is RejectReason.TOO_LARGE
    request = httpx.Request("POST", "http://market/v1/bids", stream=Endless())
    told = await api.problem(await api.client.send(request))
    assert (told.status, told.reason) == (413, RejectReason.TOO_LARGE)


async def test_a_kept_bid_is_pending_until_the_matchmaker_says_more(api: Api) -> None:
    bid = order("bob")
    await api.place(bid)
    path = f"/v1/bids/{bid.bid.payload.id}"
    report = from_json((await api.client.get(path)).content, BidReport)
    assert report == BidReport(bid=bid.bid.payload.id, state=BidState.PENDING)
    why = Rejection(reason=RejectReason.NO_MATCH, field="bid.duration")
    told = BidReport(bid=bid.bid.payload.id, state=BidState.PENDING, rejection=why)
    api.view.write([ReportBid(report=told)])
    assert from_json((await api.client.get(path)).content, BidReport) == told


async def test_asking_for_what_is_not_there_is_404_and_for_nonsense_400(api: Api) -> None:
    unknown = await api.problem(await api.client.get(f"/v1/bids/0x{'00' * 32}"))
    assert (unknown.status, unknown.reason) == (404, RejectReason.UNKNOWN_ORDER)
    nonsense = await api.problem(await api.client.get("/v1/bids/0x1234"))
    assert (nonsense.status, nonsense.field) == (400, "bid")
    no_path = await api.problem(await api.client.get("/v2/bids"))
    assert (no_path.status, no_path.reason) == (404, RejectReason.MALFORMED)
    wrong_method = await api.problem(await api.client.delete("/v1/bids"))
    assert wrong_method.status == 405
    limit = await api.problem(await api.client.get("/v1/asks", params={"limit": 0}))
    assert (limit.status, limit.field) == (400, "query.limit")


async def test_a_cancellation_by_the_buyer_is_kept_and_by_others_refused(api: Api) -> None:
    bid = order("bob")
    await api.place(bid)
    body = Cancellation(bid=bid.bid.payload.id)
    path = f"/v1/bids/{bid.bid.payload.id}/cancellation"
    stranger = state(body, DOMAIN, key("dan"), nonce=1, expiry=NOW_S + 60)
    told = await api.problem(await api.client.post(path, content=to_json(stranger)))
    assert told.reason is RejectReason.KEY_NOT_AUTHORISED
    own = state(body, DOMAIN, key("bob"), nonce=1, expiry=NOW_S + 60)
    for _ in range(2):
        answer = await api.client.post(path, content=to_json(own))
        assert answer.status_code == 202
    assert [event.inbox for event in api.inbox.after(1, 10)] == [2]
    elsewhere = f"/v1/bids/0x{'11' * 32}/cancellation"
    told = await api.problem(await api.client.post(elsewhere, content=to_json(own)))
    assert told.status == 400


async def test_the_market_says_who_it_is_and_what_is_on_offer(api: Api) -> None:
    facts = (await api.client.get("/v1/market")).json()
    assert facts == {
        "matcher": str(MARKET_KEY.address),
        "market_id": 1,
        "fee_bps": 100,
        "round_ms": RULES.round_ms,
        "block_s": RULES.block_s,
        "chain_id": 31337,
        "lease_book": str(DOMAIN.verifying_contract),
        "token": str(DEPLOYMENT.token),
        "peer": "peer-market",
        "addresses": ["/ip4/127.0.0.1/tcp/1/p2p/peer-market"],
    }
    offered = advert("ada")
    api.view.write([ListAsk(ask=offered.body.ask.payload.id, advert=offered)])
    answer = await api.client.get("/v1/asks", params={"gpu": "A100", "limit": 5})
    assert from_json(answer.content, list[SignedAdvert]) == [offered]
    assert (await api.client.get("/v1/asks", params={"gpu": "H100"})).json() == []
    (told,) = (await api.client.get("/v1/products")).json()
    assert (told["id"], told["gpu_class"]) == (1, "A100-SXM4-80GB")


async def test_leases_are_listed_by_buyer_and_state(api: Api) -> None:
    event = opened(order("bob").bid.payload, machine("ada"), price(1))
    report = LeaseReport(
        terms=event.terms, bid=event.bid, state=LeaseState.FUNDED, paid=TokenAmount(0)
    )
    api.view.write([ReportLease(report=report)])
    query = {"buyer": str(key("bob").address), "state": "funded"}
    answer = await api.client.get("/v1/leases", params=query)
    assert from_json(answer.content, list[LeaseReport]) == [report]
    assert (await api.client.get("/v1/leases", params={"state": "closed"})).json() == []
    wrong = await api.client.get("/v1/leases", params={"buyer": "bob"})
    assert (await api.problem(wrong)).field == "buyer"


async def test_health_is_503_with_the_problems_in_words(api: Api) -> None:
    assert (await api.client.get("/healthz")).status_code == 200
    status = Desk().market.status()
    late = NOW + RULES.silence_ms + 2_000
    unwell = health_of(status, rules=RULES, now=late, peers=0, inbox_read=5_000, events_waiting=0)
    api.standing = msgspec.structs.replace(api.standing, health=unwell)
    answer = await api.client.get("/healthz")
    assert answer.status_code == 503
    assert [text.split(":")[0] for text in answer.json()["problems"]] == ["chain", "matchmaker"]


async def test_health_is_503_when_the_matchmaker_was_silent_for_too_long(api: Api) -> None:
    api.clock.at = NOW + SILENCE_MS_MAX
    assert (await api.client.get("/healthz")).status_code == 200
    api.clock.at += 1_000
    answer = await api.client.get("/healthz")
    assert answer.status_code == 503
    (problem,) = answer.json()["problems"]
    assert problem == "matchmaker: silent for 11 s; orders are kept, none is matched"


async def test_metrics_count_requests_and_read_the_gauges(api: Api) -> None:
    await api.place(order("bob", signer="mallory"))
    text = (await api.client.get("/metrics")).text
    asked = 'cloud_gpu_market_requests_total{method="POST",route="/v1/bids",status="403"} 1.0'
    assert asked in text
    assert "cloud_gpu_market_peers 1.0" in text


async def test_an_order_that_the_disk_refuses_is_not_acknowledged(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageFailed("database or disk is full")

    monkeypatch.setattr(SqlInbox, "keep", full)
    told = await api.problem(await api.place(order("bob")))
    assert (told.status, told.reason) == (503, RejectReason.MARKET_STOPPING)
    assert not api.arrivals


async def test_the_openapi_document_describes_every_body_by_its_own_type(api: Api) -> None:
    document = (await api.client.get("/openapi.json")).json()
    schemas = document["components"]["schemas"]
    assert schemas["Bid"]["additionalProperties"] is False
    body = document["paths"]["/v1/bids"]["post"]["requestBody"]
    reference = body["content"]["application/json"]["schema"]["$ref"]
    assert reference.rpartition("/")[2] in schemas
    named = set(schemas["Bid"]["properties"])
    assert named == set(order("bob").bid.payload.__struct_fields__)


def test_every_reason_has_a_status_that_says_whose_fault_it_is() -> None:
    assert {status_of(reason) // 100 for reason in RejectReason} == {4, 5}
