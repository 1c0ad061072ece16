"""Block auctions over HTTP: nothing of sealed bids before the close, the whole outcome after."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.protocol.auctions import AuctionReport, LossReason
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import MarketEffect, PublishRound, Transact
from cloud_gpu.protocol.errors import Rejected, StorageFailed
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.news import Topic
from cloud_gpu.protocol.orders import Cancellation, SignedBid
from cloud_gpu.protocol.signing import state
from market.audit.replaying import replay_lines
from market.main import show_book
from market.rules import MarketRules, RulesSet
from market.store.journal import FIRST_HEAD
from tests.support.market_api import Api
from tests.unit.market.builders import (
    DOMAIN,
    NOW_S,
    RULES,
    SEALED,
    Desk,
    advert,
    joined,
    key,
    order,
    price,
    provider,
)

pytestmark = pytest.mark.anyio

WINDOW_S = 60
RULES_HERE = replace(RULES, block_s=WINDOW_S)
SECRET = ("1.237", "1.583")
EVERYWHERE = (
    "/v1/auctions",
    "/v1/asks",
    "/v1/market",
    "/v1/rounds",
    "/v1/leases",
    "/v1/index",
    "/healthz",
    "/metrics",
)


@pytest.fixture
def market_rules() -> MarketRules:
    return RULES_HERE


def blocks() -> list[SignedBid]:
    return [
        order(buyer, limit=limit, wanting=SEALED)
        for buyer, limit in zip(("bob", "dan"), SECRET, strict=True)
    ]


def carry_out(api: Api, effects: list[MarketEffect]) -> None:
    api.view.write([each for each in effects if not isinstance(each, Transact | PublishRound)])


def cleared() -> tuple[Desk, int]:
    """A market after its first auction, and how many effects came before the close."""
    desk = Desk(RULES_HERE)
    desk.mine(*provider("ada"), *joined("bob", 100), *joined("dan", 100))
    desk.hear(advert("ada", at="1.00"))
    desk.submit(*blocks())
    before = len(desk.effects)
    desk.pass_time(WINDOW_S * 1_000)
    return desk, before


async def test_sealed_until_it_clears_and_then_a_report(api: Api, database_url: str) -> None:
    desk, before = cleared()
    for wanted in blocks():
        assert (await api.place(wanted)).status_code == 201
    carry_out(api, desk.effects[:before])
    pages = [await api.client.get(path) for path in EVERYWHERE]
    for wanted in blocks():
        path = f"/v1/bids/{wanted.bid.payload.id}"
        pages.append(await api.client.get(path))
        forget = state(
            Cancellation(bid=wanted.bid.payload.id), DOMAIN, key("eve"), nonce=1, expiry=NOW_S + 9
        )
        pages.append(await api.client.post(f"{path}/cancellation", content=to_json(forget)))
        assert pages[-1].status_code == 403
    shown = b"".join(page.content for page in pages)
    for limit, buyer in zip(SECRET, ("bob", "dan"), strict=True):
        assert str(price(limit).value).encode() not in shown
        assert str(key(buyer).address).encode() not in shown
        leases = await api.client.get(f"/v1/leases?buyer={key(buyer).address}")
        assert leases.content == b"[]"
    assert from_json(pages[0].content, list[AuctionReport]) == []
    assert show_book(database_url, 10).waiting == []

    carry_out(api, desk.effects[before:])
    (report,) = from_json((await api.client.get("/v1/auctions")).content, list[AuctionReport])
    assert report.window == NOW_S + WINDOW_S
    assert report.count(LossReason.PRICE) == 1
    assert report.classes[0].price == price(SECRET[0])
    news = api.app.state.front.news.after(0, 100)
    assert Topic.ROUND not in {each.topic for each in news}, "its round tells of it, once"
    again = await api.client.get(f"/v1/auctions/{report.window}")
    assert from_json(again.content, AuctionReport) == report
    async with HttpMarket("http://market", transport=api.client._transport) as market:
        assert await market.auctions() == (report,)
        assert await market.auctions(report.window) == (report,)
        with pytest.raises(Rejected, match="the second at which a block auction closed"):
            await market.auctions(7)
    lost, won = blocks()
    answer = await api.client.get(f"/v1/bids/{lost.bid.payload.id}")
    assert from_json(answer.content, BidReport).state is BidState.PENDING
    answer = await api.client.get(f"/v1/bids/{won.bid.payload.id}")
    assert from_json(answer.content, BidReport).price == price(SECRET[0])


async def test_the_list_goes_back_in_time_and_the_unknown_is_told(api: Api) -> None:
    desk, _ = cleared()
    carry_out(api, desk.effects)
    window = NOW_S + WINDOW_S
    earlier = await api.client.get(f"/v1/auctions?before={window}")
    assert from_json(earlier.content, list[AuctionReport]) == []
    later = await api.client.get(f"/v1/auctions?before={window + 1}&limit=1")
    assert len(from_json(later.content, list[AuctionReport])) == 1
    problem = await api.problem(await api.client.get("/v1/auctions/7"))
    assert (problem.status, problem.field) == (404, "window")
    assert (await api.client.get("/v1/auctions/x")).status_code == 400


async def test_a_replay_proves_the_report(api: Api) -> None:
    desk, _ = cleared()
    carry_out(api, desk.effects)
    journal = [(RulesSet(rules=RULES_HERE), desk.log[0][1]), *desk.log]
    told = api.view.told()
    assert ("auction", str(NOW_S + WINDOW_S)) in told
    assert len(list(replay_lines(lambda: journal, FIRST_HEAD, told))) == 2
    key = ("auction", str(NOW_S + WINDOW_S))
    report = from_json(told[key], AuctionReport)
    told[key] = to_json(replace(report, bids=3))
    with pytest.raises(StorageFailed, match=r"bids: the market told 3, the journal says 2"):
        list(replay_lines(lambda: journal, FIRST_HEAD, told))
