"""Rate limits at the door: by client address before anything is read, by account once it signed.

Each process counts for itself: N workers let N times as much through, at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.ports import Clock
from cloud_gpu.protocol.values import Address
from market.api.errors import Refused, problem
from market.rate_limits import Network, RateLimit, TokenBuckets, bucket_of, client_address

UNLIMITED: Final = RateLimit(name="none", per_s=0, burst=0)
_FREE: Final = frozenset(("/healthz", "/metrics"))
"""Whoever runs the market asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limiting:
    """The buckets of one process."""

    clock: Clock
    account: RateLimit = UNLIMITED
    """Of orders, by whoever signed them."""
    address: RateLimit = UNLIMITED
    """Of requests; each order of many counts as one."""
    trusted: Sequence[Network] = ()
    """Proxies whose `X-Forwarded-For` is believed."""
    is_loopback_limited: bool = False
    _accounts: TokenBuckets = field(init=False)
    _addresses: TokenBuckets = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_accounts", TokenBuckets(self.account))
        object.__setattr__(self, "_addresses", TokenBuckets(self.address))

    def refused_account(self, account: Address, count: int = 1) -> Refused | None:
        """Why orders that this account signed are not taken now."""
        wait_ms = self._accounts.take(account, count, self.clock.now())
        return _too_many(self.account, str(account), wait_ms) if wait_ms else None

    def spend_account(self, account: Address) -> None:
        """One order. Raises Refused."""
        if (refused := self.refused_account(account)) is not None:
            raise refused

    def refused_address(self, scope: Scope, count: int = 1) -> Refused | None:
        """Why a client's request is not looked at now."""
        peer = (scope.get("client") or ("", 0))[0]
        headers = scope["headers"] if self.trusted else ()
        forwarded = b",".join(value for name, value in headers if name == b"x-forwarded-for")
        address = client_address(peer, forwarded.decode("latin-1"), tuple(self.trusted))
        bucket = bucket_of(address)
        if bucket is None and not self.is_loopback_limited:
            return None
        wait_ms = self._addresses.take(bucket, count, self.clock.now())
        return _too_many(self.address, address, wait_ms) if wait_ms else None


class Limited:
    """ASGI middleware: answers 429 to an address that asks too often."""

    def __init__(self, app: ASGIApp, limiting: Limiting) -> None:
        self._app, self._limiting = app, limiting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["path"] not in _FREE:
            refused = self._limiting.refused_address(scope)
            if refused is not None:
                await problem(refused.rejection, refused.status, refused.headers)(
                    scope, receive, send
                )
                return
        await self._app(scope, receive, send)


def _too_many(limit: RateLimit, whose: str, wait_ms: int) -> Refused:
    wait_s = -(-wait_ms // 1_000)
    return Refused(
        Rejection(
            reason=RejectReason.RATE_LIMITED,
            field=limit.name,
            found=f"more from {whose[:64]}",
            needed=f"at most {limit.per_s} a second, {limit.burst} at once",
            next=f"Try again in {wait_s} s.",
        ),
        headers={"Retry-After": str(wait_s)},
    )
