"""The arithmetic of an ending: who gets what of a lease's escrow. Equal to SettlementLib.sol.

Payments floor, penalties round up, and every function conserves: what goes in comes out. Held to
the same vectors as Solidity (tests/vectors/settlement.json).
"""

from __future__ import annotations

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.units import BasisPoints, TokenAmount, share_down, share_up
from cloud_gpu.protocol.values import Value


class Split(Value, frozen=True, kw_only=True):
    """How one payment out of escrow is divided."""

    provider: TokenAmount
    market: TokenAmount
    buyer: TokenAmount

    @property
    def total(self) -> TokenAmount:
        """What left the escrow."""
        return self.provider + self.market + self.buyer


def accrued(cap: TokenAmount, elapsed: int, duration: int) -> TokenAmount:
    """The ceiling of pay: floor(cap * min(elapsed, duration) / duration); times in seconds."""
    if elapsed < 0:
        return TokenAmount(0)
    if elapsed >= duration:  # also of a lease that was stopped in the second it began
        return cap
    return TokenAmount(cap.value * elapsed // duration)


def payable(voucher: TokenAmount, ceiling: TokenAmount, paid: TokenAmount) -> TokenAmount:
    """What a voucher pays now: min(voucher, ceiling) - paid, never below 0, never skipped."""
    return TokenAmount(max(0, min(voucher.value, ceiling.value) - paid.value))


def settle(
    cap: TokenAmount,
    paid: TokenAmount,
    voucher: TokenAmount,
    ceiling: TokenAmount,
    fee: BasisPoints,
    *,
    close: bool,
) -> Split:
    """Divide a payment; with `close` the unpaid rest returns to the buyer."""
    delta = payable(voucher, ceiling, paid)
    market = share_down(delta, fee)
    rest = cap - paid - delta if close else TokenAmount(0)
    return Split(provider=delta - market, market=market, buyer=rest)


def no_show_amount(cap: TokenAmount, duration: int, window: int = limits.NO_SHOW_S) -> TokenAmount:
    """What a side that failed to show up owes: min(cap, `window` s of price), rounded up."""
    return TokenAmount(min(cap.value, -(-cap.value * window // duration)))


def release_penalty(rest: TokenAmount, penalty: BasisPoints) -> TokenAmount:
    """What a provider owes who gives a running lease up: a share of the rest, rounded up."""
    return share_up(rest, penalty)


def bond_needed(cap: TokenAmount, min_bond: BasisPoints) -> TokenAmount:
    """The free bond a machine must have to take a lease of this cap, rounded up."""
    return share_up(cap, min_bond)
