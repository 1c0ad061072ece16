"""Cancellations of orders, bids and futures alike: read, checked, on disk."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request

from cloud_gpu.protocol.orders import SignedCancellation
from cloud_gpu.protocol.units import unix_seconds
from cloud_gpu.protocol.values import Address, Digest
from market.api.bodies import read_body
from market.api.errors import Refused, malformed
from market.api.front import front_of
from market.doors.intake import check_cancellation


async def keep_cancellation(
    request: Request, key: Digest, owner_of: Callable[[Digest], Address | None]
) -> bool:
    """Whether there is such an order; `owner_of` says whose it is. Raises Refused."""
    front = front_of(request)
    cancellation = await read_body(request, SignedCancellation)
    if cancellation.body.bid != key:
        raise malformed("body.body.bid", str(cancellation.body.bid), f"{key}, as in the path")
    owner = await front.in_thread(owner_of, key)
    if owner is None:
        return False
    now = front.clock.now()
    refused = check_cancellation(cancellation, buyer=owner, rules=front.rules, at=unix_seconds(now))
    if refused is not None:
        raise Refused(refused)
    front.limiting.spend_account(owner)
    await front.in_thread(front.inbox.keep_cancellation, cancellation, now)
    front.arrived()
    return True
