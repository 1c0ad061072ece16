"""Group buys over HTTP: the market's answers from a real store, with the matchmaker run by hand."""

from __future__ import annotations

import httpx
import pytest

from cloud_gpu.protocol.calls import CloseCampaign
from cloud_gpu.protocol.codec import from_json, to_builtins, to_json
from cloud_gpu.protocol.effects import MarketEffect, Transact
from cloud_gpu.protocol.events import CampaignSubmitted, PledgeSubmitted
from cloud_gpu.protocol.group_buy import providers_hash
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignPage,
    CampaignReport,
    CampaignState,
    GroupLease,
    PledgeReport,
    PledgeState,
)
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.values import Digest
from market.audit.replaying import replay_lines
from market.rules import MarketRules, RulesSet
from tests.support.market_api import Api
from tests.unit.market.builders import NOW_S, RULES, advert, key, price
from tests.unit.market.group_builders import (
    COST,
    DEADLINE,
    GROUP_RULES,
    GroupDesk,
    calls,
    campaign,
    group_ask,
    id_of,
    pledge,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def market_rules() -> MarketRules:
    return GROUP_RULES


def carry_out(api: Api, effects: list[MarketEffect]) -> None:
    api.view.write([each for each in effects if not isinstance(each, Transact)])


async def refused(api: Api, path: str, body: bytes, status: int) -> str:
    answer = await api.client.post(path, content=body)
    assert answer.status_code == status, answer.text
    problem = await api.problem(answer)
    assert problem.needed
    assert problem.next
    return problem.field


async def gathered(api: Api) -> tuple[GroupDesk, CloseCampaign]:
    """Three slices of three: two handed in here, one pledged past the market."""
    desk, offer = GroupDesk(), campaign()
    answer = await api.client.post("/v1/group-buys", content=to_json(offer))
    assert answer.status_code == 201, answer.text
    receipt = from_json(answer.content, SignedReceipt)
    assert (receipt.body.order, receipt.body.inbox) == (id_of(offer), 1)
    for buyer in ("bob", "cat"):
        signed = pledge(offer, buyer)
        path = f"/v1/group-buys/{id_of(offer)}/pledges"
        answer = await api.client.post(path, content=to_json(signed))
        assert answer.status_code == 201, answer.text
        shown = await api.client.get(f"{path}/{signed.payload.id}")
        assert from_json(shown.content, PledgeReport).state is PledgeState.WAITING
    taken = api.inbox.after(0, 10)
    assert [type(each) for each in taken] == [CampaignSubmitted, PledgeSubmitted, PledgeSubmitted]
    effects = desk.tell(*taken)
    effects += desk.hear(advert("ada", 3, at="2.50"), *(group_ask(index=n) for n in range(3)))
    effects += desk.lock(offer, "bob") + desk.lock(offer, "cat") + desk.lock(offer, "dan")
    carry_out(api, effects)
    (call,) = [each for each in calls(effects) if isinstance(each, CloseCampaign)]
    return desk, call


async def test_a_campaign_goes_from_the_organiser_to_open_leases(api: Api) -> None:
    desk, call = await gathered(api)
    offer = campaign()
    for sent, status in ((str(id_of(offer)), 200), ("mine", 400)):
        again = await api.client.post(
            "/v1/group-buys", content=to_json(offer), headers={"Idempotency-Key": sent}
        )
        assert again.status_code == status
    answer = await api.client.post(
        f"/v1/group-buys/{id_of(offer)}/pledges",
        content=to_json(pledge(offer, "bob")),
        headers={"Idempotency-Key": "mine"},
    )
    assert (await api.problem(answer)).field == "Idempotency-Key"
    path = f"/v1/group-buys/{id_of(offer)}"
    page = from_json((await api.client.get(path)).content, CampaignPage)
    assert (page.report.state, page.report.missing_slices) == (CampaignState.REACHED, 0)
    assert (page.spot_per_hour, page.of_spot_bps) == (price("2.50"), 8_000)
    assert [each.amount for each in page.pledges] == [COST] * 3
    carry_out(api, desk.mine(*desk.closed(call, "bob", "cat", "dan")))
    shown = await api.client.get(f"{path}/leases?buyer={key('cat').address}")
    (lease,) = from_json(shown.content, list[GroupLease])
    assert (lease.buyer, lease.advert is not None) == (key("cat").address, True)
    listed = await api.client.get("/v1/group-buys?product=1&state=opened")
    assert [each.id for each in from_json(listed.content, list[CampaignReport])] == [id_of(offer)]
    for nothing in ("product=2", "state=failed", "after=1"):
        assert (await api.client.get(f"/v1/group-buys?{nothing}")).json() == []

    told = api.view.told() | api.groups.told()
    entries = [(RulesSet(rules=GROUP_RULES), desk.log[0][1]), *desk.log]
    lines = list(replay_lines(lambda: entries, Digest(bytes(32)), told))
    assert b'"reports":6' in lines[-1], "a campaign, two pledges, three leases, byte for byte"


async def test_notices_come_in_order_with_a_cursor(api: Api) -> None:
    desk, call = await gathered(api)
    carry_out(api, desk.mine(*desk.closed(call, "bob", "cat", "dan")))
    kinds, after = list[str](), 0
    while True:
        query = f"account={key('bob').address}&after={after}&limit=1"
        found = from_json(
            (await api.client.get(f"/v1/notices?{query}")).content, list[CampaignNotice]
        )
        if not found:
            break
        assert found[0].number > after
        kinds, after = [*kinds, found[0].kind.value], found[0].number
    assert kinds == ["pledged", "half", "reached", "leases-opened"]
    carry_out(api, desk.market.restated())
    again = await api.client.get(f"/v1/notices?account={key('bob').address}")
    assert len(from_json(again.content, list[CampaignNotice])) == len(kinds), "told once"
    assert (await api.client.get("/v1/notices?account=bob")).status_code == 400


async def test_campaigns_that_are_not_taken_name_the_field(api: Api) -> None:
    path = "/v1/group-buys"
    for changes, status, field in (
        ({"signer": "eve"}, 403, "CampaignOffer.signature"),
        ({"market_id": 7}, 422, "campaign.market_id"),
        ({"product": 9}, 422, "campaign.product"),
        ({"deadline": NOW_S + 15 * 86_400}, 422, "campaign.deadline"),
        ({"window_start": 0, "deadline": NOW_S}, 422, "campaign.deadline"),
        ({"price_per_hour": price(0)}, 422, "campaign.price_per_hour"),
    ):
        body = to_json(campaign(**changes))
        assert await refused(api, path, body, status) == field
    shape = to_builtins(campaign())
    shape["body"]["campaign"]["goal"] = 101
    assert await refused(api, path, to_json(shape), 400) == "body"
    shape = to_builtins(campaign())
    shape["body"]["providers"] = [str(key("ada").address)]
    answer = await api.client.post(path, content=to_json(shape))
    assert "providers_hash" in (await api.problem(answer)).found
    assert not api.inbox.after(0, 10)
    only = (key("ada").address,)
    listed = campaign(providers=only, providers_hash=providers_hash(only))
    assert (await api.client.post(path, content=to_json(listed))).status_code == 201


async def test_pledges_that_are_not_taken_name_the_field(api: Api) -> None:
    offer = campaign()
    path = f"/v1/group-buys/{id_of(offer)}/pledges"
    unknown = await api.client.post(path, content=to_json(pledge(offer, "bob")))
    assert unknown.status_code == 404
    await api.client.post("/v1/group-buys", content=to_json(offer))
    cheap = pledge(offer, "bob", max_amount=type(COST)(COST.value - 1))
    assert await refused(api, path, to_json(cheap), 422) == "pledge.max_amount"
    forged = pledge(offer, "bob", signer="eve")
    assert await refused(api, path, to_json(forged), 403) == "Pledge.signature"
    other = pledge(campaign(goal=4), "bob")
    assert await refused(api, path, to_json(other), 400) == "pledge.campaign_id"
    taken: httpx.Response = await api.client.post(path, content=to_json(pledge(offer, "bob")))
    assert taken.status_code == 201
    api.clock.at = (DEADLINE + 1) * 1000
    again = await api.client.post(path, content=to_json(pledge(offer, "bob")))
    assert again.status_code == 200, "it was taken in time"
    late = pledge(offer, "cat")
    assert await refused(api, path, to_json(late), 422) == "pledge.campaign_id"
    missing = await api.client.get(f"{path}/{late.payload.id}")
    assert missing.status_code == 404


@pytest.mark.parametrize("market_rules", [RULES])
async def test_a_market_without_the_module_says_so(api: Api) -> None:
    assert await refused(api, "/v1/group-buys", to_json(campaign()), 409) == "campaign"
