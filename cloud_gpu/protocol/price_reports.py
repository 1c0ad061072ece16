"""What a market publishes about prices: the index of a GPU class, the forward curve of a product.

Information only: no payment, margin or limit reads it.
"""

from __future__ import annotations

from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, TokenAmount
from cloud_gpu.protocol.values import Value


class IndexPoint(Value, frozen=True, kw_only=True):
    """The index of one class at one moment, and what to judge it by."""

    gpu_class: GpuClass
    at: int
    """Unix seconds; the 24 hours before it count."""
    per_hour: TokenAmount
    """A GPU-hour; finer than a price's tick."""
    is_stale: bool
    """Held, since too few pairs of accounts traded."""
    mean: TokenAmount | None
    """Of all leases by GPU-seconds, uncapped (VWAP); None: there were none."""
    quantity: GpuSeconds
    pairs: int
    concentration: BasisPoints
    """The largest pair's share of the GPU-seconds, before the cap; rounded down."""


class CurvePoint(Value, frozen=True, kw_only=True):
    """One day of the forward curve."""

    day: int
    """Its first second, Unix time."""
    per_hour: TokenAmount
    """A GPU-hour; finer than a price's tick."""
    is_illiquid: bool
    """No series of the day itself cleared: the price follows from longer windows or neighbours."""
