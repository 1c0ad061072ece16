"""The market's HTTP API, as a buyer's side asks it. Refusals become values, outages exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit

import anyio
import httpx
import msgspec

from cloud_gpu.adapters.market_events import PATH, EventFeed, Events
from cloud_gpu.protocol.auctions import AuctionReport
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import MarketUnavailable, Rejected, Rejection, RejectReason
from cloud_gpu.protocol.group_reports import GroupLease
from cloud_gpu.protocol.lease import LeaseReport, MachineKey
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.news import Interest
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid, SignedCancellation
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.values import Address, Digest, Value

T = TypeVar("T")

_ASKS_MAX: Final = 1_000
"""What a market answers at once at most."""

_PAGES_MAX: Final = 100
_TIMEOUT_S: Final = 10.0
"""Without a byte."""
_WHOLE_S: Final = 60.0
"""For all of an answer, however steadily it drips."""
_ANSWER_BYTES_MAX: Final = 64 * 2**20


class _Problem(msgspec.Struct, kw_only=True):
    """RFC 9457, with the market's own fields; others are skipped."""

    title: str = ""
    detail: str = ""
    reason: str = ""
    field: str = ""
    found: str = ""
    needed: str = ""
    next: str = ""


class HttpMarket:
    """The port `MarketApi` over HTTP. Use it as an async context manager."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self.url,
            timeout=_TIMEOUT_S,
            transport=transport,
            trust_env=not _is_here(self.url),  # a proxy cannot reach a market on this machine
            verify=urlsplit(self.url).scheme != "http",  # as in `Rpc`
            headers={"accept": "application/json"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop the connections."""
        await self._http.aclose()

    async def describe(self) -> MarketView:
        """What the market says of itself. Raises `MarketUnavailable`."""
        return await self.ask("GET", "/v1/market", MarketView)

    async def products(self) -> Sequence[Product]:
        """What it knows to be for sale."""
        return await self.listed("/v1/products", Product)

    async def asks(self, gpu: str = "") -> Sequence[SignedAdvert]:
        """The book, cheapest first: asks that may be opened now, with their nodes."""
        query = {"limit": str(_ASKS_MAX), **({"gpu": gpu} if gpu else {})}
        return await self.listed("/v1/asks", SignedAdvert, query)

    async def place(self, order: SignedBid) -> SignedReceipt:
        """Hand in a bid; twice is once. Raises `Rejected`, `MarketUnavailable`."""
        return await self.ask("POST", "/v1/bids", SignedReceipt, order)

    async def report(self, bid: Digest) -> BidReport:
        """How far a bid is. Raises `Rejected` (UNKNOWN_ORDER), `MarketUnavailable`."""
        return await self.ask("GET", f"/v1/bids/{bid}", BidReport)

    async def cancel(self, statement: SignedCancellation) -> None:
        """Ask it to forget a bid. Raises `Rejected`, `MarketUnavailable`."""
        await self.send("POST", f"/v1/bids/{statement.body.bid}/cancellation", statement)

    async def leases(self, buyer: Address) -> Sequence[LeaseReport]:
        """A buyer's leases as this market follows them."""
        return await self.listed("/v1/leases", LeaseReport, {"buyer": str(buyer)})

    async def auctions(self, window: int | None = None) -> Sequence[AuctionReport]:
        """See `MarketApi`. Raises `Rejected` (UNKNOWN_ORDER), `MarketUnavailable`."""
        if window is not None:
            return (await self.ask("GET", f"/v1/auctions/{window}", AuctionReport),)
        return await self.ask("GET", "/v1/auctions", tuple[AuctionReport, ...])

    async def promised_node(self, machine: MachineKey) -> SignedAdvert | None:
        """Where the node of a machine is that was promised to a future; None: it was not heard."""
        path = f"/v1/futures/nodes/{machine.provider}/{machine.index}"
        try:
            return await self.ask("GET", path, SignedAdvert)
        except Rejected as refused:
            if refused.rejection.reason is RejectReason.UNKNOWN_ORDER:
                return None
            raise

    async def group_leases(self, campaign: Digest, buyer: Address) -> Sequence[GroupLease]:
        """What a group buy opened for a buyer. Raises `Rejected` (UNKNOWN_ORDER)."""
        path, query = f"/v1/group-buys/{campaign}/leases", {"buyer": str(buyer)}
        return await self.ask("GET", path, tuple[GroupLease, ...], query=query)

    async def listed(
        self, path: str, kind: type[T], query: dict[str, str] | None = None
    ) -> tuple[T, ...]:
        """All pages of a listing, up to a hundred. Raises `Rejected`, `MarketUnavailable`."""
        found: list[T] = []
        for _ in range(_PAGES_MAX):
            answer = await self._answer("GET", path, None, query)
            found += self._read("GET", path, answer.content, tuple[kind, ...])  # type: ignore[valid-type]
            following = answer.links.get("next", {}).get("url", "")
            if not following:
                break
            query = dict(httpx.URL(following).params)
        return tuple(found)

    def watch(
        self, interest: Interest, after: int | None = None
    ) -> AbstractAsyncContextManager[Events]:
        """What happens at the market, as it does: `async with …watch() as events: async for …`.

        `after` is the number that was heard last; None: from now on. Connections that end are made
        again, and what was missed is told; a `Cut` says what cannot be.
        """
        failure = partial(self._failure, "GET", PATH)
        return EventFeed(self._http, interest, after, failure).listening()

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: Value | None = None,
        query: dict[str, str] | None = None,
    ) -> T:
        """One request, its answer read strictly. Raises `Rejected`, `MarketUnavailable`."""
        return self._read(method, path, await self.send(method, path, body, query), kind)

    def _read(self, method: str, path: str, raw: bytes, kind: type[T]) -> T:
        try:
            return from_json(raw, kind)
        except ValueError as error:
            raise MarketUnavailable(
                f"the market at {self.url} answered {method} {path} with something else than"
                f" expected: {error}. Check that `market` is the URL of a cloud-gpu market."
            ) from error

    async def send(
        self,
        method: str,
        path: str,
        body: Value | None = None,
        query: dict[str, str] | None = None,
    ) -> bytes:
        """One request; the body of its answer. Raises `Rejected`, `MarketUnavailable`."""
        return (await self._answer(method, path, body, query)).content

    async def _answer(
        self, method: str, path: str, body: Value | None, query: dict[str, str] | None
    ) -> httpx.Response:
        try:
            with anyio.fail_after(_WHOLE_S):
                answer = await self._http.request(
                    method,
                    path,
                    content=to_json(body) if body is not None else None,
                    headers={"content-type": "application/json"} if body is not None else None,
                    params=query,
                )
        except (httpx.TimeoutException, TimeoutError) as error:
            raise MarketUnavailable(
                f"the market at {self.url} did not answer in {_WHOLE_S:.0f} s, or not for"
                f" {_TIMEOUT_S:.0f} s. {_FIX}"
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise MarketUnavailable(
                f"the market at {self.url} cannot be reached: {str(error) or type(error).__name__}."
                f" {_FIX}"
            ) from error
        if len(answer.content) > _ANSWER_BYTES_MAX:
            raise MarketUnavailable(f"the market at {self.url} answered with too many bytes")
        if answer.is_success:
            return answer
        raise self._failure(method, path, answer)

    def _failure(self, method: str, path: str, answer: httpx.Response) -> Exception:
        try:
            problem = msgspec.json.decode(answer.content, type=_Problem)
            reason = RejectReason(problem.reason)
        except (msgspec.MsgspecError, ValueError):
            return MarketUnavailable(
                f"the market at {self.url} answered {method} {path} with status"
                f" {answer.status_code}: {answer.text[:200]!r}. {_FIX}"
            )
        return Rejected(
            Rejection(
                reason=reason,
                field=problem.field,
                found=problem.found,
                needed=problem.needed,
                next=problem.next or problem.detail,
            )
        )


_FIX: Final = (
    "Check that it runs (`cloud-gpu devnet status`, `cloud-gpu doctor`) and that `market` names it."
)


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
