"""How the API and the matchmaker reach what is durable. Calls block: edges put them in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cloud_gpu.protocol.effects import MarketEffect
from cloud_gpu.protocol.events import BidSubmitted, BidWithdrawn
from cloud_gpu.protocol.lease import LeaseReport, LeaseState
from cloud_gpu.protocol.match import BidReport, SignedReceipt
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid, SignedCancellation
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Address, Digest

SignReceipt = Callable[[Digest, Instant, int], SignedReceipt]
"""Of an order's id, when it was received, and its position in the inbox."""


class Inbox(Protocol):
    """Verified orders, durable before they are acknowledged. All calls raise StorageFailed."""

    def keep_bid(
        self, order: SignedBid, received_at: Instant, sign: SignReceipt
    ) -> tuple[SignedReceipt, bool]:
        """The receipt, and whether the bid is new. The same bid has the same receipt for ever."""

    def receipt(self, bid: Digest) -> SignedReceipt | None:
        """The receipt of a bid that was kept."""

    def keep_cancellation(self, cancellation: SignedCancellation, received_at: Instant) -> int:
        """Its position."""

    def bid(self, bid: Digest) -> SignedBid | None:
        """A bid that was kept."""

    def after(self, position: int, count_max: int) -> Sequence[BidSubmitted | BidWithdrawn]:
        """What lies behind a position, in order."""


class BookView(Protocol):
    """The public tables. All calls raise StorageFailed."""

    def report(self, bid: Digest) -> BidReport | None:
        """What is known of a bid."""

    def asks(self, gpu: str, count_max: int, at: int) -> Sequence[SignedAdvert]:
        """What is on offer at a time (Unix seconds), cheapest first; `gpu` empty: any class."""

    def products(self) -> Sequence[Product]:
        """What can be traded, by number."""

    def leases(
        self,
        *,
        buyer: Address | None,
        provider: Address | None,
        bid: Digest | None,
        state: LeaseState | None,
        count_max: int,
    ) -> Sequence[LeaseReport]:
        """Leases that satisfy every filter given, newest first."""


class BookWriter(Protocol):
    """The matchmaker's side of the public tables."""

    def clear_asks(self) -> None:
        """Forget the list: what is on offer is stated again."""

    def write(self, effects: Sequence[MarketEffect]) -> None:
        """Carry out effects in one transaction, in order. Chain calls are none of its business."""
