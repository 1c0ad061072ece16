"""One wallet at two markets' APIs: each takes the bids that name it, and answers for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.adapters.several_markets import SeveralMarkets
from cloud_gpu.protocol.effects import ListAsk
from cloud_gpu.protocol.errors import MarketUnavailable, Rejected, RejectReason
from cloud_gpu.protocol.events import BidSubmitted
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import Cancellation
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.values import Digest
from market.store.database import Database
from tests.support.market_api import Api, api_on
from tests.unit.market.builders import DOMAIN, MARKET_KEY, NOW_S, RULES, advert, key, order

MATCHERS = (MARKET_KEY.address, key("another market").address)


@pytest.fixture
def apis(tmp_path: Path) -> Iterator[list[Api]]:
    found, databases = list[Api](), list[Database]()
    for place, matcher in enumerate(MATCHERS):
        rules = replace(RULES, matcher=matcher)
        database = Database(f"sqlite:///{tmp_path / f'market{place}.sqlite3'}")
        database.create(rules.owner)
        databases.append(database)
        found.append(api_on(database, rules, {}))
        found[-1].view.write([_listed("ada" if place else "eve", f"1.{place}")])
    yield found
    for database in databases:
        database.close()


def _listed(provider: str, at: str) -> ListAsk:
    signed = advert(provider, at=at)
    return ListAsk(ask=signed.body.ask.payload.id, advert=signed)


@pytest.fixture
async def markets(apis: list[Api]) -> AsyncIterator[SeveralMarkets]:
    async with AsyncExitStack() as stack:
        yield SeveralMarkets(
            [
                await stack.enter_async_context(
                    HttpMarket("http://market", transport=httpx.ASGITransport(api.app))
                )
                for api in apis
            ]
        )


async def test_a_bid_goes_to_the_market_that_it_names(
    apis: list[Api], markets: SeveralMarkets
) -> None:
    bids = [order("bob", matcher=matcher) for matcher in MATCHERS]
    for bid in reversed(bids):
        assert (await markets.place(bid)).body.order == bid.bid.payload.id
    for api, bid in zip(apis, bids, strict=True):
        (taken,) = api.inbox.after(0, 10)
        assert isinstance(taken, BidSubmitted)
        assert taken.order == bid
        assert (await markets.report(bid.bid.payload.id)).state is BidState.PENDING
    nobodys = order("bob", matcher=key("nobody").address)
    with pytest.raises(MarketUnavailable, match="none of the markets is the matcher"):
        await markets.place(nobodys)


async def test_a_bid_is_withdrawn_where_it_is(apis: list[Api], markets: SeveralMarkets) -> None:
    bid = order("bob", matcher=MATCHERS[1])
    await markets.place(bid)
    wish = state(
        Cancellation(bid=bid.bid.payload.id), DOMAIN, key("bob"), nonce=1, expiry=NOW_S + 60
    )
    await markets.cancel(wish)
    assert len(apis[1].inbox.after(0, 10)) == 2
    assert apis[0].inbox.after(0, 10) == []
    with pytest.raises(Rejected) as refused:
        await markets.report(Digest(b"\x07" * 32))
    assert refused.value.rejection.reason is RejectReason.UNKNOWN_ORDER


async def test_asks_are_those_of_all_cheapest_first(markets: SeveralMarkets) -> None:
    prices = [ad.body.ask.payload.min_price_per_hour.value for ad in await markets.asks()]
    assert prices == [1_000_000, 1_100_000]
    assert await markets.leases(key("bob").address) == ()
