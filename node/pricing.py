"""A machine's profile and its owner's policy into the ask for its next lease.

One ask is for one `seq`: over-selling is impossible. It lives for minutes and is signed again.
"""

from __future__ import annotations

from msgspec.structs import replace

from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import Ask, AskFlags
from cloud_gpu.protocol.units import BasisPoints, Instant, Price, unix_seconds
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Value


class Policy(Value, frozen=True, kw_only=True):
    """What the provider asks for one machine."""

    price: Price
    min_duration: int
    max_duration: int
    """Seconds."""
    matcher: Address
    max_fee: BasisPoints
    life_s: int
    """How long a signed ask can be opened."""
    flags: int = 0
    firm_price: Price | None = None
    """Of an interruptible machine, when it is let for good; None: it never is."""
    group_buy: Address = ZERO_ADDRESS
    """The contract of group buys, where they may have the machine too; zero: they may not."""

    @property
    def is_interruptible(self) -> bool:
        """Whether its leases may be ended after notice."""
        return bool(self.flags & AskFlags.INTERRUPTIBLE)

    @property
    def firm(self) -> Policy | None:
        """The same without notice, at its own price; None: there is none."""
        if not self.is_interruptible or self.firm_price is None:
            return None
        return replace(self, flags=self.flags & ~AskFlags.INTERRUPTIBLE, price=self.firm_price)

    @property
    def matchers(self) -> tuple[Address, ...]:
        """Who may open its asks. Nobody pledges for a machine that can be taken away."""
        serves_groups = not self.group_buy.is_zero and not self.is_interruptible
        return (self.matcher, self.group_buy) if serves_groups else (self.matcher,)

    def __post_init__(self) -> None:
        if self.life_s < 2:
            raise ValueError(f"ask_life_s is at least 2, found {self.life_s}")


def ask_for(
    machine: MachineKey, seq: int, product: int, policy: Policy, matcher: Address, now: Instant
) -> Ask:
    """The ask for a machine's lease number `seq`; of one to each matcher, the first one opens."""
    return Ask(
        provider=machine.provider,
        index=machine.index,
        seq=seq,
        product=product,
        min_price_per_hour=policy.price,
        min_duration=policy.min_duration,
        max_duration=policy.max_duration,
        start_by=unix_seconds(now) + policy.life_s,
        matcher=matcher,
        max_fee_bps=policy.max_fee,
        flags=policy.flags,
    )


def ending_before(policy: Policy, at: int, now: Instant, clearance_s: int) -> Policy | None:
    """The policy for leases that are closed by a time, Unix seconds; None: none can be.

    `clearance_s` is what passes at most from an opening to the start, and from the end to closing.
    """
    left = at - unix_seconds(now) - policy.life_s - clearance_s
    if left < policy.min_duration:
        return None
    return replace(policy, max_duration=min(left, policy.max_duration))


def is_stale(ask: Ask, now: Instant, policy: Policy) -> bool:
    """Whether an ask has so little life left that it should be signed again."""
    return ask.start_by - unix_seconds(now) < policy.life_s // 2
