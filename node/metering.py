"""Seconds into money owed: what a job used, how far a voucher pays, which interval was missed.

Pure arithmetic. A voucher pays up to an instant of the lease; from then on every whole interval
that passes unpaid is a missed one. The rules (pause after 1, end after 3) are the lease's.
"""

from __future__ import annotations

from typing import Final

from cloud_gpu.protocol.units import GpuSeconds, Instant, TokenAmount, instant

PAUSE_AFTER_MISSED: Final = 1
END_AFTER_MISSED: Final = 3


def gpu_seconds(gpus: int, started_at: Instant, ended_at: Instant) -> GpuSeconds:
    """What a run used: GPUs times begun seconds; a clock that stepped back gives 0."""
    return GpuSeconds(gpus * max(0, -(-(ended_at - started_at) // 1000)))


def paid_seconds(amount: TokenAmount, cap: TokenAmount, duration: int) -> int:
    """How many seconds of the lease a voucher pays: the most whose accrued pay is within it."""
    if amount >= cap:
        return duration
    return min(duration, ((amount.value + 1) * duration - 1) // cap.value)


def missed_intervals(paid_s: int, started_at: int, interval_s: int, now: Instant) -> int:
    """Whole intervals that passed since the voucher's money ran out; `started_at` Unix seconds."""
    unpaid_ms = now - instant(started_at + paid_s)
    return max(0, unpaid_ms // (1000 * interval_s))


def missed_at(paid_s: int, started_at: int, interval_s: int, missed: int) -> Instant:
    """When this many intervals will have been missed, unless a voucher comes."""
    return instant(started_at + paid_s + missed * interval_s)
