"""The market's API over HTTP, with answers by hand: refusals, outages, nonsense."""

from collections.abc import AsyncIterator, Callable

import anyio
import httpx
import pytest

from cloud_gpu.adapters import market_http
from cloud_gpu.adapters.market_group_buys import MarketGroupBuys
from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.protocol.codec import to_builtins, to_json
from cloud_gpu.protocol.errors import MarketUnavailable, Rejected, RejectReason
from cloud_gpu.protocol.match import BidReport, BidState
from tests.unit.buyer.builders import MARKET, Bench, advert

Answer = Callable[[httpx.Request], httpx.Response]
BENCH = Bench()
ORDER = BENCH.orders[0]


def market(answer: Answer) -> HttpMarket:
    return HttpMarket("http://market.test/", transport=httpx.MockTransport(answer))


async def test_a_bid_is_posted_as_canonical_json_and_its_receipt_read() -> None:
    seen: list[httpx.Request] = []
    receipt = BENCH.receipt().receipt

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(201, content=to_json(receipt))

    async with market(answer) as api:
        assert await api.place(ORDER) == receipt
    (request,) = seen
    assert (request.method, str(request.url)) == ("POST", "http://market.test/v1/bids")
    assert request.content == to_json(ORDER)
    assert request.headers["content-type"] == "application/json"


async def test_what_is_read_becomes_values() -> None:
    report = BidReport(bid=BENCH.bid, state=BidState.PENDING)

    def answer(request: httpx.Request) -> httpx.Response:
        found = {
            "/v1/market": MARKET,
            "/v1/asks": [advert()],
            "/v1/products": [],
            f"/v1/bids/{BENCH.bid}": report,
        }[request.url.path]
        return httpx.Response(200, content=to_json(found))

    async with market(answer) as api:
        assert await api.describe() == MARKET
        assert await api.asks() == (advert(),)
        assert await api.products() == ()
        assert await api.report(BENCH.bid) == report


def test_group_buys_and_their_notices_are_read_to_the_last_page() -> None:
    asked: list[tuple[str, str]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        after = request.url.params.get("after", "")
        asked.append((request.url.path, after))
        headers = {} if after == "7" else {"Link": '<?after=7>; rel="next"'}
        return httpx.Response(200, content=b"[]", headers=headers)

    groups = MarketGroupBuys(market(answer))
    assert groups.campaigns(None, None) == ()
    assert groups.notices(MARKET.matcher, 3) == ()
    listed, noticed = "/v1/group-buys", "/v1/notices"
    assert asked == [(listed, ""), (listed, "7"), (noticed, "3"), (noticed, "7")]


async def test_a_refusal_is_raised_with_everything_that_was_said() -> None:
    problem = {
        "type": "about:blank",
        "title": "Refused",
        "status": 422,
        "detail": "no",
        "reason": "cash-too-low",
        "field": "bid.buyer",
        "found": "1",
        "needed": "2",
        "next": "Deposit.",
        "new-in-version-9": True,
    }
    async with market(lambda _: httpx.Response(422, json=problem)) as api:
        with pytest.raises(Rejected) as caught:
            await api.place(ORDER)
    rejection = caught.value.rejection
    assert rejection.reason is RejectReason.CASH_TOO_LOW
    assert (rejection.field, rejection.found, rejection.needed) == ("bid.buyer", "1", "2")


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500, text="Internal Server Error"),
        httpx.Response(502, json={"reason": "no-such-reason"}),
        httpx.Response(404, text="<html>nginx</html>"),
        httpx.Response(200, json={"bid": "0x12"}),
        httpx.Response(200, text="<html>a captive portal</html>"),
        httpx.Response(200, json=[{**to_builtins(MARKET), "extra": 1}]),
    ],
)
async def test_anything_else_is_an_outage_that_names_the_url(answer: httpx.Response) -> None:
    async with market(lambda _: answer) as api:
        with pytest.raises(MarketUnavailable, match=r"http://market\.test"):
            await api.report(BENCH.bid)


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow"), httpx.ReadError("")]
)
async def test_a_market_that_is_not_there_is_said_with_what_to_do(error: Exception) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    async with market(answer) as api:
        with pytest.raises(MarketUnavailable, match="doctor") as caught:
            await api.asks()
    assert "http://market.test" in str(caught.value)


async def test_an_answer_that_drips_for_ever_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dripping(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for _ in range(200):
                await anyio.sleep(0.05)
                yield b" "

    async def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=Dripping())

    monkeypatch.setattr(market_http, "_WHOLE_S", 0.2)
    async with HttpMarket("http://market.test", transport=httpx.MockTransport(answer)) as api:
        with pytest.raises(MarketUnavailable, match="did not answer in"):
            await api.describe()
