"""The event stream: what changed, once each, from any number on; bids to their buyers alone."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest
import trio
from starlette.types import Message

from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import (
    ListAsk,
    MarketEffect,
    ReportBid,
    ReportContract,
    ReportLease,
    ReportSeries,
    UnlistAsk,
)
from cloud_gpu.protocol.errors import Rejected, RejectReason
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.news import (
    BookChange,
    Cut,
    Interest,
    News,
    SignedWatch,
    Topic,
    Trade,
    Watch,
)
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from market.api import newsroom
from market.api.routes import events as routes
from market.api.server import serve_http
from market.store import news as news_store
from tests.support.market_api import Api
from tests.unit.market.builders import (
    DOMAIN,
    MARKET_KEY,
    NOW_S,
    advert,
    key,
    machine,
    opened,
    order,
    price,
)
from tests.unit.market.futures_builders import FuturesDesk, future


@pytest.fixture
async def url(api: Api) -> AsyncIterator[str]:
    """The app on a socket: a stream needs one."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(serve_http, api.app, "127.0.0.1:0"))
        nursery.cancel_scope.cancel()


def listed(signed: SignedAdvert) -> ListAsk:
    return ListAsk(ask=signed.body.ask.payload.id, advert=signed)


def reported(bid: SignedBid, how: BidState, *adverts: SignedAdvert) -> ReportBid:
    key = bid.bid.payload.id
    return ReportBid(report=BidReport(bid=key, state=how, adverts=adverts))


def wish(name: str, *, signer: str | None = None, life_s: int = 60) -> SignedWatch:
    body = Watch(account=key(name).address, market=MARKET_KEY.address)
    return state(body, DOMAIN, key(signer or name), nonce=1, expiry=NOW_S + life_s)


async def heard(
    url: str,
    count: int,
    *topics: Topic,
    after: int | None = 0,
    product: int | None = None,
    account: Address | None = None,
    signed: SignedWatch | None = None,
) -> list[News | Cut]:
    found: list[News | Cut] = []
    async with HttpMarket(url) as market:
        wanted = Interest(topics=topics, product=product, account=account, wish=signed)
        with trio.fail_after(60):
            async with market.watch(wanted, after) as events:
                while len(found) < count:
                    found.append(await anext(events))
    return found


def bodies(found: Sequence[News | Cut]) -> list[object]:
    return [each.body if isinstance(each, News) else each for each in found]


async def test_the_book_is_told_as_it_changes_and_a_repeat_is_no_news(api: Api, url: str) -> None:
    first, second = advert("ada", 0, at="0.90"), advert("eve", 1)
    api.view.write([listed(first), listed(first)])
    api.view.write([listed(first), listed(second)])
    api.view.write([UnlistAsk(ask=first.body.ask.payload.id)] * 2)
    api.view.clear_asks()
    found = await heard(url, 4, Topic.BOOK)
    assert [each.number for each in found if isinstance(each, News)] == [1, 2, 3, 4]
    ask = first.body.ask.payload
    assert bodies(found)[0] == BookChange(
        ask=ask.id, product=1, gpu_class=first.body.profile.gpu_class, price=price("0.90")
    )
    assert bodies(found)[2:] == [BookChange(ask=ask.id, product=1), BookChange(ask=None)]


async def test_a_reader_hears_what_comes_and_goes_on_where_it_was(api: Api, url: str) -> None:
    api.view.write([listed(advert("ada", 0))])
    found: list[News | Cut] = []

    async def read() -> None:
        found.extend(await heard(url, 2, after=None))

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            while not api.app.state.front.newsroom.streams:  # noqa: ASYNC110
                await trio.sleep(0.02)
            api.view.write([listed(advert("ada", 1))])
            await trio.sleep(0.3)
            api.view.write([listed(advert("ada", 2))])
    assert [each.number for each in found if isinstance(each, News)] == [2, 3]
    rest = await heard(url, 1, after=2)
    assert [each.number for each in rest if isinstance(each, News)] == [3]


async def test_futures_are_told_by_series_and_by_contract(api: Api, url: str) -> None:
    desk = FuturesDesk()
    desk.trade(future("bob", buys=True), future("ada", buys=False))
    desk.order(future("dan", buys=True, at="0.50", nonce=7))
    desk.end_batch()
    told = [e for e in desk.effects if isinstance(e, ReportSeries | ReportContract)]
    api.view.write(told)
    api.view.write(told[-1:])  # stated again
    api.view.write([listed(advert("ada"))])
    series = [each.report for each in told if isinstance(each, ReportSeries)]
    contracts = [each.report for each in told if isinstance(each, ReportContract)]
    assert series
    assert contracts
    assert bodies(await heard(url, len(series), Topic.SERIES)) == series
    short = key("ada").address
    assert bodies(await heard(url, len(contracts), Topic.CONTRACT, account=short)) == contracts
    everything = bodies(await heard(url, len(told) + 1))
    assert everything[:-1] == [each.report for each in told]


async def test_filters_let_through_what_was_asked_for(api: Api, url: str) -> None:
    bid = order("bob")
    await api.place(bid)
    lease = opened(bid.bid.payload, machine("ada"), price(1))
    report = LeaseReport(
        terms=lease.terms, bid=lease.bid, state=LeaseState.FUNDED, paid=TokenAmount(0)
    )
    api.view.write(
        [
            listed(advert("ada", 0)),
            listed(advert("eve", 1)),
            reported(bid, BidState.MATCHED, advert("ada", 0)),
            ReportLease(report=report),
        ]
    )
    assert bodies(await heard(url, 1, Topic.LEASE)) == [report]
    assert bodies(await heard(url, 1, account=key("bob").address)) == [report]
    eves = await heard(url, 1, account=key("eve").address)
    assert [each.number for each in eves if isinstance(each, News)] == [2]
    (trade,) = bodies(await heard(url, 1, Topic.TRADE, product=1))
    assert isinstance(trade, Trade)
    assert trade.asks == (advert("ada", 0).body.ask.payload.id,)


async def test_only_its_buyer_hears_how_a_bid_fares_and_nobody_of_one_that_waits(
    api: Api, url: str
) -> None:
    bid, other = order("bob"), order("eve")
    await api.place(bid)
    await api.place(other)
    effects: list[MarketEffect] = [
        reported(bid, BidState.PENDING),
        reported(other, BidState.REJECTED),
        reported(bid, BidState.CANCELLED),
        listed(advert("ada")),
    ]
    api.view.write(effects)
    bob = key("bob").address
    own = await heard(url, 1, account=bob, signed=wish("bob"))
    assert [each.state for each in bodies(own) if isinstance(each, BidReport)] == ["cancelled"]
    everybody = await heard(url, 1)
    assert [each.topic for each in everybody if isinstance(each, News)] == [Topic.BOOK]
    for signed in (None, wish("bob", signer="mallory"), wish("bob", life_s=-1), wish("eve")):
        with pytest.raises(Rejected):
            await heard(url, 1, Topic.BID, account=bob, signed=signed)
    with pytest.raises(Rejected) as refused:
        await heard(url, 1, account=bob, signed=wish("bob", life_s=2 * 24 * 3_600))
    assert refused.value.rejection.field == "Watch.expiry"


async def test_what_is_kept_no_more_is_said(
    api: Api, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news_store, "KEPT_MAX", 2)
    monkeypatch.setattr(news_store, "_PRUNED_EVERY", 5)
    api.view.write([listed(advert("ada", index)) for index in range(5)])
    gap, *rest = await heard(url, 3, after=1)
    assert gap == Cut(reason="events 2 to 3 are not kept any more")
    assert [each.number for each in rest if isinstance(each, News)] == [4, 5]


async def test_who_takes_nothing_is_given_up_and_holds_nobody_up(
    api: Api, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "PATIENCE_S", 0.5)
    monkeypatch.setattr(routes, "HEARTBEAT_S", 0.1)
    room = api.app.state.front.newsroom
    taken: list[Message] = []

    async def receive() -> Message:
        await trio.sleep_forever()
        raise AssertionError

    async def send(message: Message) -> None:
        if len(taken) == 3:  # the socket is full
            await trio.sleep_forever()
        taken.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": "/v1/events",
        "raw_path": b"/v1/events",
        "root_path": "",
        "scheme": "http",
        "query_string": b"",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(api.app, scope, receive, send)
            while not room.streams:  # noqa: ASYNC110
                await trio.sleep(0.02)
            api.view.write([listed(advert("ada", index)) for index in range(3)])
            assert len(await heard(url, 3)) == 3
    assert room.streams == 0
    assert taken[0]["status"] == 200


async def test_who_falls_behind_the_window_is_told_so(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newsroom, "_LOOK_S", 0.01)
    room = newsroom.Newsroom(api.app.state.front.news, api.app.state.front._read_news, window=3)
    room.join(0)
    api.view.write([listed(advert("ada", index)) for index in range(5)])
    with pytest.raises(newsroom.FellBehind):
        await room.after(0)
    assert [row.number for row in await room.after(3)] == [4, 5]


@pytest.mark.parametrize(
    ("query", "headers", "field"),
    [
        ({"topic": "weather"}, {}, "query.topic.0"),
        ({"account": "bob"}, {}, "account"),
        ({"topic": "bid"}, {}, "Authorization"),
        ({}, {"Authorization": "Basic abc"}, "Authorization"),
        ({}, {"Authorization": "CloudGpu %%%"}, "Authorization"),
        ({}, {"Last-Event-ID": "-1"}, "Last-Event-ID"),
        ({}, {"Last-Event-ID": "9" * 5_000}, "Last-Event-ID"),
    ],
)
async def test_what_cannot_be_read_is_refused_before_the_stream(
    api: Api, query: dict[str, str], headers: dict[str, str], field: str
) -> None:
    told = await api.problem(await api.client.get("/v1/events", params=query, headers=headers))
    assert told.field == field
    assert told.status in (400, 403)


async def test_so_many_streams_and_no_more(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "STREAMS_MAX", 0)
    answer = await api.client.get("/v1/events")
    told = await api.problem(answer)
    assert (told.status, told.reason, told.field) == (429, RejectReason.RATE_LIMITED, "streams")
    assert answer.headers["retry-after"] == "60"


async def test_the_stream_is_plain_server_sent_events(api: Api, url: str) -> None:
    api.view.write([listed(advert("ada"))])
    host, _, port = url.removeprefix("http://").partition(":")
    text = b""
    with trio.fail_after(60):
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(b"GET /v1/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 0\r\n\r\n")
            while b"data:" not in text:
                text += await stream.receive_some()
    assert b"content-type: text/event-stream" in text.lower()
    assert b": connected\n\n" in text
    assert b'id: 1\nevent: book\ndata: {"ask":"0x' in text


def test_a_wish_travels_in_a_header() -> None:
    assert len(urlsafe_b64encode(to_json(wish("bob")))) < 1_000
