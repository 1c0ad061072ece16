"""Many bids in a request, and many requests at once: one commit, one answer each."""

from __future__ import annotations

import msgspec
import pytest
import trio

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import RejectReason, StorageFailed
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.receipts import SignedReceipt, check_receipt
from market.api.bodies import BODY_BYTES_MAX, BULK_BYTES_MAX
from market.api.schemas import Placed
from market.ports import SoundOrder
from market.rate_limits import BULK_ORDERS_MAX
from market.store.inbox import SqlInbox
from tests.support.market_api import Api
from tests.unit.market.builders import DOMAIN, MARKET_KEY, NOW, order


async def bulk(api: Api, *orders: SignedBid | bytes) -> list[Placed]:
    parts = [each if isinstance(each, bytes) else to_json(each) for each in orders]
    answer = await api.client.post("/v1/bids:bulk", content=b"[" + b",".join(parts) + b"]")
    assert answer.status_code == 200, answer.text
    return from_json(answer.content, list[Placed])


async def test_each_of_many_is_answered_as_if_it_came_alone(api: Api) -> None:
    sound, forged = order("bob", nonce=1), order("bob", nonce=2, signer="mallory")
    late = order("bob", nonce=3)
    await api.place(late)
    answers = await bulk(api, sound, forged, b'{"bid":1}', sound, late, order("eve"))
    assert [each.status for each in answers] == [201, 403, 400, 200, 200, 201]
    places = [each.receipt.body.inbox if each.receipt else 0 for each in answers]
    assert places == [2, 0, 0, 2, 1, 3]
    told = [each.problem.reason if each.problem else None for each in answers]
    assert told[1:3] == [RejectReason.KEY_NOT_AUTHORISED, RejectReason.MALFORMED]
    assert answers[2].problem is not None
    assert answers[2].problem.field == "body[2]"
    alone = await api.place(sound)
    assert answers[0].receipt is not None
    assert from_json(alone.content, SignedReceipt).body == answers[0].receipt.body
    assert len(api.inbox.after(0, 100)) == 3
    assert len(api.arrivals) == 3


async def test_no_order_of_many_is_longer_than_one_alone_may_be(api: Api) -> None:
    padded = to_json(order("bob"))[:-1] + b" " * BODY_BYTES_MAX + b"}"
    padded_told, told = await bulk(api, padded, order("eve"))
    assert (padded_told.status, told.status) == (413, 201)
    assert padded_told.problem is not None
    assert padded_told.problem.field == "body[0]"
    assert len(api.inbox.after(0, 100)) == 1


async def test_one_that_was_taken_in_time_keeps_its_receipt_after_its_end(api: Api) -> None:
    old = order("bob")
    first = (await bulk(api, old))[0]
    api.clock.at = old.bid.payload.start_by * 1000 + 1
    answers = await bulk(api, old, order("bob", nonce=5))
    assert [each.status for each in answers] == [200, 422]
    assert answers[0].receipt == first.receipt


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"{}", 400, RejectReason.MALFORMED),
        (b"[", 400, RejectReason.MALFORMED),
        (b"[" * 100_000, 400, RejectReason.MALFORMED),
        (b"[" + b",".join([b"1"] * (BULK_ORDERS_MAX + 1)) + b"]", 413, RejectReason.TOO_LARGE),
        (b" " * (BULK_BYTES_MAX + 1), 413, RejectReason.TOO_LARGE),
    ],
    ids=["object", "cut", "deep", "many", "large"],
)
async def test_what_is_no_list_of_bids_is_refused_as_a_whole(
    api: Api, body: bytes, status: int, reason: RejectReason
) -> None:
    told = await api.problem(await api.client.post("/v1/bids:bulk", content=body))
    assert (told.status, told.reason, told.field) == (status, reason, "body")


async def test_only_a_list_may_be_longer_than_one_order(api: Api) -> None:
    long = b" " * (BODY_BYTES_MAX + 1)
    assert (await api.client.post("/v1/bids", content=long)).status_code == 413
    assert (await api.client.post("/v1/bids:bulk", content=b"[]" + long)).json() == []


async def test_an_idempotency_key_may_only_be_the_bids_own_id(api: Api) -> None:
    bid = order("bob")
    wanted = str(bid.bid.payload.id)
    wrong = await api.client.post(
        "/v1/bids", content=to_json(bid), headers={"Idempotency-Key": "mine"}
    )
    told = await api.problem(wrong)
    assert (told.status, told.field) == (400, "Idempotency-Key")
    assert wanted in told.needed
    for status in (201, 200):
        answer = await api.client.post(
            "/v1/bids", content=to_json(bid), headers={"Idempotency-Key": wanted}
        )
        assert answer.status_code == status


async def test_requests_that_arrive_together_share_commits(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    keep = SqlInbox.keep

    def counted(inbox: SqlInbox, bids: list[SoundOrder], received_at: int) -> object:
        commits.append(len(bids))
        return keep(inbox, bids, received_at)

    monkeypatch.setattr(SqlInbox, "keep", counted)
    orders = [order("bob", nonce=n) for n in range(40)]
    receipts: dict[int, SignedReceipt] = {}

    async def place(number: int) -> None:
        answer = await api.place(orders[number])
        assert answer.status_code == 201
        receipts[number] = from_json(answer.content, SignedReceipt)

    async with trio.open_nursery() as nursery:
        for number in range(len(orders)):
            nursery.start_soon(place, number)
    assert sum(commits) == len(orders)
    assert len(commits) < len(orders) / 2
    assert len({receipt.root.signature for receipt in receipts.values()}) == len(commits)
    kept = {each.inbox: each for each in api.inbox.after(0, 100)}
    for number, receipt in receipts.items():
        assert check_receipt(receipt, DOMAIN, market=MARKET_KEY.address, at=NOW // 1000) is None
        event = kept[receipt.body.inbox]
        assert receipt.body.order == orders[number].bid.payload.id
        assert msgspec.structs.astuple(event)[0] == orders[number]


async def test_a_disk_that_fails_once_refuses_those_who_waited_and_nobody_after_them(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, calls = SqlInbox.keep, []

    def fails_first(inbox: SqlInbox, bids: list[SoundOrder], received_at: int) -> object:
        calls.append(len(bids))
        if len(calls) == 1:
            raise StorageFailed("database or disk is full")
        return keep(inbox, bids, received_at)

    monkeypatch.setattr(SqlInbox, "keep", fails_first)
    found: list[int] = []

    async def place(nonce: int) -> None:
        found.append((await api.place(order("bob", nonce=nonce))).status_code)

    async with trio.open_nursery() as nursery:
        for nonce in range(12):
            nursery.start_soon(place, nonce)
    assert found.count(503) == calls[0]
    assert found.count(201) == 12 - calls[0] == len(api.inbox.after(0, 100))
    assert (await api.place(order("eve"))).status_code == 201


async def test_who_leaves_while_the_disk_is_busy_blocks_nobody(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.move_on_after(0.01):
        async with trio.open_nursery() as nursery:
            for nonce in range(12):
                nursery.start_soon(api.place, order("bob", nonce=nonce))
    with trio.fail_after(60):
        answer = await api.place(order("eve"))
    assert answer.status_code == 201
    assert from_json(answer.content, SignedReceipt).body.received_at == NOW
