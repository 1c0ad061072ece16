"""What a user gets back: the result of a run, what a lease costs so far, its final bill.

Amounts are base units; the properties that end in `_text` say them in tokens.
"""

from __future__ import annotations

from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.job import FileRef, JobOutcome
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.units import (
    GpuSeconds,
    Price,
    TokenAmount,
    cost_up,
    format_duration,
    format_tokens,
)
from cloud_gpu.protocol.values import Value


class RunResult(Value, frozen=True, kw_only=True):
    """How a command in a lease ended, as its node signed it."""

    code: int
    """Exit code."""
    outcome: JobOutcome
    stdout: str
    stderr: str
    duration_s: float
    outputs: tuple[FileRef, ...]
    """Files that it made or changed; `get` fetches them by their paths."""
    cost: TokenAmount
    """The lease's price for the time it ran, rounded up."""
    detail: str = ""

    @property
    def cost_text(self) -> str:
        """In tokens."""
        return format_tokens(self.cost)

    @property
    def tail(self) -> str:
        """The end of what it said, for an error's text."""
        said = self.stderr.strip() or self.stdout.strip()
        return "\n".join(line for line in [*said.splitlines()[-20:], self.detail] if line)

    def __str__(self) -> str:
        exited = self.outcome is JobOutcome.EXITED
        end = f"exit code {self.code}" if exited else str(self.outcome)
        text = f"{end} after {self.duration_s:.1f} s: {self.cost_text} tokens"
        return f"{text}; {self.detail}" if self.detail else text


class Cost(Value, frozen=True, kw_only=True):
    """What a running lease costs."""

    accrued: TokenAmount
    """So far: what closing now costs."""
    promised: TokenAmount
    """Signed vouchers; at most one interval ahead of what accrued."""
    cap: TokenAmount
    """The most that it can cost."""
    price: Price
    """Per GPU-hour."""
    gpus: int

    @property
    def per_hour(self) -> TokenAmount:
        """Of the whole lease, rounded up."""
        return cost_up(self.price, GpuSeconds(self.gpus * 3600))

    def __str__(self) -> str:
        return (
            f"{format_tokens(self.accrued)} tokens so far, {format_tokens(self.per_hour)} an hour,"
            f" {format_tokens(self.cap)} at most"
        )


class Bill(Value, frozen=True, kw_only=True):
    """How a lease ended and what it cost."""

    lease: LeaseKey
    gpu_class: GpuClass
    gpus: int
    price: Price
    """Per GPU-hour."""
    ran_s: int
    """Seconds from its beginning to its end."""
    paid: TokenAmount
    """To the provider and the market; while `settled` is false, the most it can still become."""
    refund: TokenAmount
    """Back in the vault."""
    reason: LeaseEndReason
    settled: bool
    """False: stopped, and the provider may still claim up to `paid` until its window ends."""
    note: str = ""

    def __str__(self) -> str:
        what = f"{self.gpus}x {self.gpu_class} for {format_duration(self.ran_s)}"
        at = f"at {format_tokens(self.price)} per GPU-hour"
        paid = f"paid {'' if self.settled else 'at most '}{format_tokens(self.paid)}"
        text = f"{what} {at}: {paid}, refunded {format_tokens(self.refund)} ({self.reason.text})"
        return f"{text}; {self.note}" if self.note else text
