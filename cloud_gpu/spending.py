"""What a buyer has promised: vouchers within a lease's cap, bids within the vault's cash.

Every signature that can cost the buyer money is made here, so that its limits stand in one place:
a voucher never exceeds the cap nor what accrues within one interval, and never falls.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.calls import Closing
from cloud_gpu.protocol.errors import FundsTooSmall
from cloud_gpu.protocol.identity import PeerId, Signer
from cloud_gpu.protocol.job import JobSpec, SignedJobSpec
from cloud_gpu.protocol.lease import LeaseKey, LeaseTerms
from cloud_gpu.protocol.messages import Access
from cloud_gpu.protocol.news import SignedWatch, Watch
from cloud_gpu.protocol.orders import Bid, Cancellation, SignedCancellation
from cloud_gpu.protocol.ports import AccountView
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.signing import Domain, Signed, Statement, sign, state
from cloud_gpu.protocol.units import (
    GpuSeconds,
    Price,
    TokenAmount,
    cost_up,
    format_tokens,
    share_up,
    total,
)
from cloud_gpu.protocol.values import Address
from cloud_gpu.protocol.voucher import Accept, Final, Voucher, amount_due


class Purse:
    """A buyer's account and the key that signs for it."""

    def __init__(self, *, account: Address, signer: Signer, domain: Domain) -> None:
        self.account, self.domain = account, domain
        self._signer = signer

    def bid(self, bid: Bid) -> Signed[Bid]:
        """Sign an order; the account's own key alone may."""
        assert bid.buyer == self.account, f"a bid of {bid.buyer} with the purse of {self.account}"
        return sign(bid, self.domain, self._signer)

    def cancellation(self, cancellation: Cancellation, *, expiry: int) -> SignedCancellation:
        """Ask the market to forget a bid; `expiry` in Unix seconds."""
        return state(cancellation, self.domain, self._signer, nonce=0, expiry=expiry)

    def watch(self, market: Address, *, expiry: int) -> SignedWatch:
        """Ask to hear how this account's bids fare; `expiry` in Unix seconds."""
        body = Watch(account=self.account, market=market)
        return state(body, self.domain, self._signer, nonce=0, expiry=expiry)

    def access(
        self, lease: LeaseKey, *, node: PeerId, own: PeerId, expiry: int
    ) -> Statement[Access]:
        """Let `own`, a peer of ours, use the lease at the node; `expiry` in Unix seconds."""
        body = Access(lease=lease, node=node, buyer_peer=own)
        return state(body, self.domain, self._signer, nonce=lease.seq, expiry=expiry)

    def accept(self, lease: LeaseKey, started_at: int) -> Signed[Accept]:
        """Start the meter at `started_at`, Unix seconds."""
        accept = Accept(
            provider=lease.provider, index=lease.index, seq=lease.seq, started_at=started_at
        )
        return sign(accept, self.domain, self._signer)

    def job(self, spec: JobSpec, *, expiry: int) -> SignedJobSpec:
        """Ask for a job; `expiry` in Unix seconds."""
        return state(spec, self.domain, self._signer, nonce=spec.number, expiry=expiry)

    def voucher(self, lease: LeaseKey, amount: TokenAmount) -> Signed[Voucher]:
        """Owe `amount` in all for the lease. `Tab` decides how much that may be."""
        voucher = Voucher(provider=lease.provider, index=lease.index, seq=lease.seq, amount=amount)
        return sign(voucher, self.domain, self._signer)

    def closing(self, final: Signed[Final]) -> Closing:
        """Agree to end a running lease at the amount that the provider's Final names."""
        return Closing(
            voucher=self.voucher(final.payload.lease, final.payload.amount),
            final=final,
            buyer_final=sign(final.payload, self.domain, self._signer),
        )


class Tab:
    """One lease's vouchers: how much is promised, and when the next one is due."""

    def __init__(self, terms: LeaseTerms, started_at: int, interval_s: int) -> None:
        assert interval_s > 0, interval_s
        self.terms, self.started_at = terms, started_at
        self._interval_s, self._step_s = interval_s, max(1, interval_s // 2)
        self.promised = TokenAmount(0)
        """The newest voucher's amount, base units."""

    @property
    def ends_at(self) -> int:
        """Unix seconds."""
        return self.terms.ends_at(self.started_at)

    def accrued(self, at: int) -> TokenAmount:
        """The ceiling of pay at a time, Unix seconds."""
        return accrued(self.terms.cap, at - self.started_at, self.terms.duration)

    def raise_to_due(self, at: int) -> TokenAmount | None:
        """Promise what accrues by one interval after `at` (Unix seconds), if that is more.

        The amount rises twice an interval: a node whose clock is ahead, or a voucher that is late,
        then finds some of the interval before still paid for.
        """
        due = self._due(at)
        if due <= self.promised:
            return None
        self.promised = due
        assert due <= self.terms.cap, (due, self.terms.cap)
        return due

    def next_due_at(self, at: int) -> int | None:
        """When the next voucher is to be signed, Unix seconds; None: the whole cap is promised."""
        if self.promised >= self.terms.cap:
            return None
        if self.is_due(at):
            return at
        return at - (at - self.started_at) % self._step_s + self._step_s

    def is_due(self, at: int) -> bool:
        """Whether a voucher was not signed in its time: its node was silent, or the chain slow."""
        return self._due(at) > self.promised

    def _due(self, at: int) -> TokenAmount:
        elapsed = max(0, at - self.started_at) // self._step_s * self._step_s
        return amount_due(self.terms.cap, self.terms.duration, elapsed, self._interval_s)


class Promises:
    """What an account's bids that may still open lock up if they do: nonces and caps.

    The alternatives of one lease share a nonce, so only the dearest of them counts.
    """

    def __init__(self) -> None:
        self._live: dict[int, tuple[TokenAmount, int]] = {}

    @property
    def live(self) -> Mapping[int, tuple[TokenAmount, int]]:
        """Nonce -> (escrow it may take, Unix seconds after which it cannot)."""
        return MappingProxyType(self._live)

    def add(self, bids: Sequence[Bid]) -> None:
        """Bids that were handed to a market; they share one nonce."""
        (nonce,) = {bid.nonce for bid in bids}
        dearest = max(escrow_of(bid) for bid in bids)
        self._live[nonce] = (dearest, max(bid.start_by for bid in bids))

    def drop(self, nonce: int) -> None:
        """The nonce was used or cancelled: the chain's cash says the rest."""
        self._live.pop(nonce, None)

    def expire(self, at: int) -> None:
        """Forget bids that can no longer open at `at`, Unix seconds."""
        for nonce in [n for n, (_, start_by) in self._live.items() if start_by < at]:
            del self._live[nonce]

    @property
    def escrow(self) -> TokenAmount:
        """What the live bids may take out of the vault, base units."""
        return total([amount for amount, _ in self._live.values()])

    def free_nonce(self, account: AccountView, draw: int) -> int:
        """See `free_nonce`; a nonce of a live bid of ours is taken."""
        return free_nonce(account, draw, self._live.keys())


def free_nonce(account: AccountView, draw: int, taken: Collection[int]) -> int:
    """A nonce that the chain has not used, and that is not taken.

    `draw`, any number, spreads the choice over the window, so that two processes with one
    wallet seldom take the same. Raises ValueError when all 128 are taken.
    """
    window = range(account.nonce_base, account.nonce_base + limits.NONCE_WINDOW)
    free = [n for n in window if account.nonce_is_free(n) and n not in taken]
    beyond = window.stop
    if not free and not taken:
        return beyond  # the window slides; nothing of ours falls out of it
    if not free:
        raise ValueError(f"all {limits.NONCE_WINDOW} nonces of the account are in use")
    return free[draw % len(free)]


def escrow_of(bid: Bid) -> TokenAmount:
    """The most that a bid may lock: its limit price, and the audit share, rounded up."""
    cap = cost_up(bid.max_price_per_hour, bid.quantity)
    return cap + share_up(cap, bid.audit_bps)


def quote(price: Price, gpus: int, duration_s: int) -> TokenAmount:
    """What a person is told that a lease costs at most, rounded up, base units."""
    return cost_up(price, GpuSeconds(gpus * duration_s))


def price_of(cap: TokenAmount, quantity: GpuSeconds) -> Price:
    """The price that locked `cap`, to the tick above; what a lease cost per GPU-hour."""
    exact = -(-cap.value * 3600 // quantity.value)
    return Price(-(-exact // limits.PRICE_TICK) * limits.PRICE_TICK)


def require_funds(account: AccountView, promises: Promises, bids: Sequence[Bid]) -> None:
    """Raises `FundsTooSmall` when the vault does not cover the escrow of any one of the bids."""
    needed, taken = max(escrow_of(bid) for bid in bids), promises.escrow
    free = account.cash - taken if account.cash >= taken else TokenAmount(0)
    if needed <= free:
        return
    raise FundsTooSmall(
        needed.value,
        free.value,
        f"the vault of {bids[0].buyer} is too small: found {format_tokens(free)} tokens free,"
        f" needed {format_tokens(needed)} for this lease at its limit price."
        f" `cloud-gpu wallet fund {format_tokens(needed - free)}` puts the rest in.",
    )
