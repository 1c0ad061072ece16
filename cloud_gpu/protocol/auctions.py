"""What a block auction of lane B decided, as its market publishes it once it has cleared.

Until then nothing says what sealed bids want. The report names every bid that took part by its id;
what each wanted stands in the published round of lane B, from which the report follows.
"""

from __future__ import annotations

from enum import StrEnum

from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import Digest, Value


class LossReason(StrEnum):
    """Why a bid got nothing in an auction."""

    PRICE = "price"
    """Its limit is not above what was paid for machines that fit it."""
    PARADOXICAL = "paradoxical"
    """Its limit is above that, and others' blocks were worth more: price alone does not say why."""
    INFEASIBLE = "infeasible"
    """No free machine fits it within its limit, or not as many as it needs together."""
    CASH = "cash"
    """Its buyer's vault does not cover its limit, beside what its other bids took."""
    ALTERNATIVE = "alternative"
    """Another bid of its nonce was served."""


class AuctionFill(Value, frozen=True, kw_only=True):
    """One match; its opening is on the way to the chain."""

    bid: Digest
    asks: tuple[Digest, ...]
    price: Price
    """Paid for each GPU-hour to each of the providers."""


class AuctionLoss(Value, frozen=True, kw_only=True):
    """One bid that got nothing."""

    bid: Digest
    why: LossReason


class AuctionClass(Value, frozen=True, kw_only=True):
    """Matches of one product that pay one price in one auction."""

    product: int
    gpu_class: GpuClass
    regions: tuple[str, ...]
    """Where their machines are, of a product that has no one price everywhere; else empty."""
    price: Price | None
    """Of all these matches; None: none lies within their limits, so each pays its ask and a
    share."""
    fills: tuple[AuctionFill, ...]


class AuctionReport(Value, frozen=True, kw_only=True):
    """One auction."""

    window: int
    """When it closed and its window begins, Unix seconds: its name."""
    block_s: int
    """How long its window is; leases last one or several."""
    seed: Digest
    """Of the search: keccak256 of the newest entry seed, the window, and the ids of all orders."""
    bids: int
    asks: int
    """How many took part."""
    surplus: TokenAmount
    """Limits less asks, of all matches."""
    classes: tuple[AuctionClass, ...]
    """Those that traded, by product and regions."""
    losses: tuple[AuctionLoss, ...]
    """By id."""

    def count(self, why: LossReason) -> int:
        """Bids that got nothing for one reason."""
        return sum(1 for loss in self.losses if loss.why is why)
