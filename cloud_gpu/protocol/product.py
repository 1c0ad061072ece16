"""A product: what is sold, by class, slice size and rules. One book each; append-only on chain."""

from __future__ import annotations

from enum import IntFlag

from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.units import BasisPoints
from cloud_gpu.protocol.values import Value


class ProductFlags(IntFlag):
    """What a product allows or asks for; bit values are the contract's."""

    INTERRUPTIBLE = 1
    VERIFIED = 2
    CHALLENGE = 4


class Product(Value, frozen=True, kw_only=True):
    """One row of the contract's table."""

    id: int
    gpu_class: GpuClass
    slice_gpus: int
    """GPUs of one machine."""
    region_group: str
    """Empty: anywhere."""
    min_bond: BasisPoints
    """Free bond that a lease needs, as a share of its cap."""
    notice: int
    """Seconds."""
    penalty: BasisPoints
    flags: int
