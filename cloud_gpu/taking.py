"""Taking up a lease that opened without a bid: a future's machine, or a group buy's.

What the lease must be is written down as a bid that nobody signs, so that its node is held to it
like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from cloud_gpu.protocol.errors import Rejected, Rejection, RejectReason
from cloud_gpu.protocol.events import LeaseGiven
from cloud_gpu.protocol.lease import LeaseKey, LeaseReport, LeaseTerms, MachineStatus
from cloud_gpu.protocol.orders import Bid, SignedAdvert, SignedBid, Terms
from cloud_gpu.protocol.ports import AccountView, MachineView, MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds
from cloud_gpu.protocol.values import Address, Digest, Signature, Value
from cloud_gpu.spending import price_of


class Given(Value, frozen=True, kw_only=True):
    """Which of the leases that one thing opens for an account, in the order of their names."""

    opened_by: Digest
    """A campaign's id, or `of_contract`."""
    place: int = 0
    is_of_group: bool = True

    @classmethod
    def of_contract(cls, number: int, place: int = 0) -> Given:
        """Of a contract of futures, by its number."""
        name = Digest(number.to_bytes(32, "big"))
        return cls(opened_by=name, place=place, is_of_group=False)


async def lease_opened(
    given: Given,
    leases: Callable[[], Awaitable[Sequence[LeaseReport]]],
    next_look: Callable[[], Awaitable[None]],
) -> LeaseKey:
    """Wait until it is open, by the market's word; `next_look` ends the wait by raising."""
    while True:
        found = sorted(each.terms.key for each in await leases() if each.bid == given.opened_by)
        if len(found) > given.place:
            return found[given.place]
        await next_look()


_NOT_SIGNED = Signature(bytes(Signature.LENGTH))


def lease_given(
    lease: LeaseKey,
    view: MachineView,
    product: Product,
    adverts: Sequence[SignedAdvert],
    *,
    buyer: Address,
    account: AccountView,
    market: MarketView,
    start_window_s: int,
) -> LeaseGiven:
    """The lease as the chain has it, and where its node is. Raises `Rejected`.

    Its node is found by the machine's own advert: the one by which a group buy opened it, or the
    one by which its node says that it serves a future; else by any of its provider and product.
    """
    if view.seq != lease.seq or view.status is not MachineStatus.FUNDED:
        state = view.status.name.lower()
        found = state if view.seq == lease.seq else f"lease number {view.seq} there, {state}"
        next_ = "One that runs is another process's; one that is over cannot be taken up."
        raise _refused(RejectReason.WRONG_STATE, found, "a funded lease before its start", next_)
    if view.buyer_id != account.id or not account.id:
        found, needed = f"account no. {view.buyer_id}'s", f"one of {buyer}, this wallet"
        raise _refused(RejectReason.NOT_THE_BUYER, found, needed, "Use the wallet that it is for.")
    own = [each for each in adverts if each.body.ask.payload.provider == lease.provider]
    alike = [each for each in own if each.body.ask.payload.product == product.id]
    if not alike:
        found = f"none of {lease.provider}'s product {product.id} at this market"
        next_ = "Try another market that hears this provider, before the lease's start deadline."
        raise _refused(RejectReason.UNKNOWN_MACHINE, found, "an advert, to find its node", next_)
    alike.sort(key=lambda each: each.body.ask.payload.index != lease.index)
    order = _as_bid(lease, view, product, buyer=buyer, matcher=market.matcher)
    terms = LeaseTerms(
        key=lease,
        buyer=buyer,
        cap=view.cap,
        duration=view.duration,
        start_deadline=view.start,
        market_id=view.market_id,
        opened_at=view.start - start_window_s,
    )
    return LeaseGiven(terms=terms, order=order, gpus=product.slice_gpus, advert=alike[0])


def _as_bid(
    lease: LeaseKey, view: MachineView, product: Product, *, buyer: Address, matcher: Address
) -> SignedBid:
    terms = Terms(gpu_classes=(product.gpu_class,))
    bid = Bid(
        buyer=buyer,
        product=product.id,
        count=product.slice_gpus,
        max_price_per_hour=price_of(view.cap, GpuSeconds(product.slice_gpus * view.duration)),
        duration=view.duration,
        start_by=view.start,
        open_from=view.start,
        provider=lease.provider,
        nonce=0,
        matcher=matcher,
        max_fee_bps=BasisPoints(0),
        audit_bps=BasisPoints(0),
        flags=0,
        terms=terms.digest,
    )
    return SignedBid(bid=Signed(payload=bid, signature=_NOT_SIGNED), terms=terms)


def _refused(reason: RejectReason, found: str, needed: str, next_: str) -> Rejected:
    return Rejected(Rejection(reason=reason, field="lease", found=found, needed=needed, next=next_))
