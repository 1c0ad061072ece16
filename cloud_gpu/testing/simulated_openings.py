"""Whether two orders make a lease in a `SimulatedBook`, and the lease: LeaseBook's Openings."""

from __future__ import annotations

from collections.abc import Callable

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.calls import MatchedOrders, OpenBatch, OpenGang, OpeningCall
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseFlags, MachineStatus
from cloud_gpu.protocol.orders import Ask, Bid, BidFlags
from cloud_gpu.protocol.settlement import bond_needed
from cloud_gpu.protocol.units import GpuSeconds, Price, cost_down, share_down
from cloud_gpu.protocol.values import Address
from cloud_gpu.testing.simulated_book import Revert, SimulatedBook

Step = Callable[[], RejectReason | None]


class EntryRefused(Revert):
    """One machine of a gang could not be leased, so none was."""

    def __init__(self, position: int, rejection: Rejection) -> None:
        super().__init__(f"LeaseBook_EntryRefused(index={position})")
        self.position, self.rejection = position, rejection


def opening(book: SimulatedBook, sender: Address, call: OpenBatch, entry: MatchedOrders) -> Step:
    """One entry of a batch."""
    return lambda: _open(book, sender, call, entry)


def open_gang(book: SimulatedBook, sender: Address, call: OpenGang) -> None:
    """All of a bid's leases; raises `EntryRefused` at the first that cannot be."""
    for position, ask in enumerate(call.asks):
        entry = MatchedOrders(ask=ask, bid=call.bid)
        reason = _open(book, sender, call, entry, machines=len(call.asks), place=position)
        if reason is not None:
            field = f"entry {position}"
            raise EntryRefused(position, Rejection(reason=reason, field=field))


def _open(
    book: SimulatedBook,
    sender: Address,
    call: OpeningCall,
    entry: MatchedOrders,
    *,
    machines: int = 1,
    place: int = 0,
) -> RejectReason | None:
    """One lease; `place` among the bid's machines, the first of which uses its nonce."""
    ask, bid = entry.ask.payload, entry.bid.payload
    rules = book.products.get(call.product)
    if rules is None:
        return RejectReason.UNKNOWN_PRODUCT
    lane = _lane(book, sender, call, entry)
    if isinstance(lane, RejectReason):
        return lane
    price, market_id = lane
    reason = _terms(book, call, entry, price, machines)
    if reason is not None:
        return reason
    key = ask.lease
    machine = book.machines.get(key.machine)
    if machine is None or machine.status is not MachineStatus.FREE:
        return RejectReason.MACHINE_NOT_FREE
    if machine.product != call.product:
        return RejectReason.WRONG_PRODUCT
    if ask.seq != machine.seq + 1:
        return RejectReason.STALE_SEQUENCE
    cap = cost_down(price, GpuSeconds(rules.slice_gpus * bid.duration))
    if not 0 < cap.value <= limits.LEASE_CAP_MAX:
        return RejectReason.CAP_OUT_OF_RANGE
    if machine.free_bond < bond_needed(cap, rules.min_bond).value:
        return RejectReason.BOND_TOO_LOW
    account = book.accounts.get(bid.buyer)
    audit = share_down(cap, bid.audit_bps)
    if account is None or account.cash < cap.value:
        return RejectReason.CASH_TOO_LOW
    if place == 0 and not account.peek(bid.nonce):
        return RejectReason.NONCE_USED
    if not book.is_signed_by(ask, entry.ask.signature, ask.provider, KeyRole.NODE, book.now):
        return RejectReason.BAD_SIGNATURE
    if not book.is_signed_by(bid, entry.bid.signature, bid.buyer, KeyRole.NODE, 2**40):
        return RejectReason.BAD_SIGNATURE
    is_verified = bool(bid.flags & BidFlags.VERIFIED)
    if is_verified and book.audits.slot(key) is not None:
        return RejectReason.MACHINE_NOT_FREE
    if is_verified and ask.provider in book.audits.barred:
        return RejectReason.PROVIDER_BARRED
    if account.cash < cap.value + audit.value:
        return RejectReason.CASH_TOO_LOW
    if place == 0:
        account.use(bid.nonce)
    flags = (ask.flags & LeaseFlags.INTERRUPTIBLE) | (bid.flags & LeaseFlags.VERIFIED)
    book.fund(key, bid.buyer, cap.value, market_id, bid.duration, bid.id, flags)
    if is_verified:
        book.hold(key, bid.buyer, market_id, bid.audit_bps)
    return None


def _lane(
    book: SimulatedBook, sender: Address, call: OpeningCall, entry: MatchedOrders
) -> tuple[Price, int] | RejectReason:
    ask, bid = entry.ask.payload, entry.bid.payload
    if sender == ask.matcher == bid.matcher:
        fee = book.markets[call.market_id][1].value if call.market_id else 0
        if fee > min(ask.max_fee_bps.value, bid.max_fee_bps.value):
            return RejectReason.FEE_ABOVE_LIMIT
        as_ask = bid.flags & BidFlags.PAY_AS_ASK or not call.price
        return (ask.min_price_per_hour if as_ask else call.price), call.market_id
    if sender == bid.buyer and book.now >= bid.open_from:
        return ask.min_price_per_hour, 0
    return RejectReason.WRONG_MATCHER


def _terms(
    book: SimulatedBook, call: OpeningCall, entry: MatchedOrders, price: Price, machines: int
) -> RejectReason | None:
    ask, bid = entry.ask.payload, entry.bid.payload
    rules = book.products[call.product]
    for broken, reason in (
        (not ask.product == bid.product == call.product, RejectReason.WRONG_PRODUCT),
        (bid.count != rules.slice_gpus * machines, RejectReason.WRONG_COUNT),
        (not bid.provider.is_zero and bid.provider != ask.provider, RejectReason.WRONG_PROVIDER),
        (ask.provider == bid.buyer, RejectReason.SELF_DEALING),
        (
            not ask.min_price_per_hour <= price <= bid.max_price_per_hour,
            RejectReason.PRICE_OUTSIDE_LIMITS,
        ),
        (
            not ask.min_duration <= bid.duration <= ask.max_duration,
            RejectReason.DURATION_OUTSIDE_LIMITS,
        ),
        (book.now > min(ask.start_by, bid.start_by), RejectReason.EXPIRED),
        (not _may_be_verified(book, call.product, ask, bid), RejectReason.FLAGS_DIFFER),
        (
            ask.flags & LeaseFlags.INTERRUPTIBLE & ~(bid.flags & rules.flags),
            RejectReason.FLAGS_DIFFER,
        ),
    ):
        if broken:
            return reason
    return None


def _may_be_verified(book: SimulatedBook, product: int, ask: Ask, bid: Bid) -> bool:
    """A verified bid takes an ask, a product and a deployment that are so too."""
    if not bid.flags & BidFlags.VERIFIED:
        return not bid.audit_bps
    both = ask.flags & book.products[product].flags & BidFlags.VERIFIED
    return bool(both) and not book.deployment.verification.is_zero
