"""What each call does to a `SimulatedBook`: a batch skips bad entries, a single call reverts."""

from __future__ import annotations

from cloud_gpu.protocol.calls import (
    Begin,
    CancelOne,
    ChainCall,
    CloseBatch,
    Closing,
    ExpireLease,
    FutureCall,
    GiveNotice,
    GroupCall,
    OpenBatch,
    OpenGang,
    PostReady,
    RefundUnstarted,
    ReleaseLease,
    SettleBatch,
    StopLease,
)
from cloud_gpu.protocol.chain_events import (
    BidsCancelled,
    EntrySkipped,
    LeaseReady,
    LeaseSettled,
    LeaseStarted,
    LeaseStopped,
    NoticeGiven,
)
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseFlags, LeaseKey, MachineStatus
from cloud_gpu.protocol.settlement import no_show_amount, payable, release_penalty
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from cloud_gpu.protocol.voucher import Accept, Ready, Voucher
from cloud_gpu.testing.simulated_book import (
    RUNNING,
    LeaseRow,
    MachineRow,
    Revert,
    SimulatedBook,
)
from cloud_gpu.testing.simulated_openings import Step, open_gang, opening
from cloud_gpu.testing.simulated_verification import carry_out_audit

_NAMED = (LeaseEndReason.RELEASED, LeaseEndReason.NO_VOUCHERS, LeaseEndReason.HEALTH)


def carry_out(book: SimulatedBook, sender: Address, call: ChainCall) -> None:
    """Apply one call of `sender`. Raises `Revert`, with the book as it was."""
    match call:
        case OpenBatch():
            _batch(book, call, [opening(book, sender, call, entry) for entry in call.matches])
        case OpenGang():
            open_gang(book, sender, call)
        case SettleBatch():
            _batch(book, call, [_settling(book, voucher) for voucher in call.vouchers])
        case CloseBatch():
            _batch(book, call, [_closing(book, entry) for entry in call.closings])
        case PostReady():
            _post_ready(book, call.ready)
        case Begin():
            _begin(book, sender, call)
        case StopLease():
            _stop(book, sender, call.lease)
        case GiveNotice():
            _give_notice(book, sender, call.lease)
        case ReleaseLease():
            _release(book, sender, call)
        case RefundUnstarted():
            _refund_unstarted(book, call.lease)
        case ExpireLease():
            _expire(book, call.lease)
        case CancelOne():
            _cancel(book, sender, call.nonce)
        case _ if isinstance(call, FutureCall | GroupCall):
            raise Revert("NoSuchModule")  # a pretended chain has leases alone
        case _:
            carry_out_audit(book, sender, call)


def _batch(book: SimulatedBook, call: ChainCall, steps: list[Step]) -> None:
    for position, step in enumerate(steps):
        reason = step()
        if reason is not None:
            rejection = Rejection(reason=reason, field=f"entry {position}")
            book.log.append(EntrySkipped(call=call, position=position, rejection=rejection))


def _post_ready(book: SimulatedBook, ready: Signed[Ready]) -> None:
    key = ready.payload.lease
    _, lease = book.lease_in(key, MachineStatus.FUNDED)
    if book.now > lease.start:
        raise Revert("LeaseBook_TooLate")
    if lease.is_ready:
        raise Revert("LeaseBook_WrongStatus")
    _require_ready(book, ready)
    lease.is_ready = True
    book.log.append(LeaseReady(lease=key, at=book.now))


def _require_ready(book: SimulatedBook, ready: Signed[Ready]) -> None:
    provider = ready.payload.provider
    if not book.is_signed_by(ready.payload, ready.signature, provider, KeyRole.NODE, book.now):
        raise Revert("LeaseBook_BadSignature")


def _begin(book: SimulatedBook, sender: Address, call: Begin) -> None:
    """By anybody with the Ready; or by the provider without, where a bad entry is left out."""
    accept, ready = call.accept.payload, call.ready
    if ready is not None:
        if accept.lease != ready.payload.lease:
            raise Revert("LeaseBook_WrongLease")
        _require_ready(book, ready)
    elif not book.speaks_for(accept.provider, sender, KeyRole.NODE, book.now):
        raise Revert("LeaseBook_NotOwner")
    refused = _start(book, call.accept)
    if refused is None:
        return
    if ready is not None:
        raise Revert(f"LeaseBook_{refused}")
    rejection = Rejection(reason=RejectReason.WRONG_STATE, field="entry 0", found=refused)
    book.log.append(EntrySkipped(call=call, position=0, rejection=rejection))


def _start(book: SimulatedBook, signed: Signed[Accept]) -> str | None:
    accept = signed.payload
    machine = book.machines.get(accept.lease.machine)
    lease = machine.lease if machine else None
    funded = machine is not None and machine.status is MachineStatus.FUNDED
    if machine is None or lease is None or not funded or machine.seq != accept.seq:
        return "WrongStatus"
    if book.now > lease.start:
        return "TooLate"
    if not lease.start - book.deployment.windows.start <= accept.started_at <= book.now:
        return "StartOutOfRange"
    told = (accept, signed.signature, lease.buyer, KeyRole.SESSION, accept.started_at)
    if not book.is_signed_by(*told):
        return "BadSignature"
    lease.start, machine.status = accept.started_at, MachineStatus.ACTIVE
    book.log.append(LeaseStarted(lease=accept.lease, started_at=accept.started_at, at=book.now))
    return None


def _paid_after(book: SimulatedBook, lease: LeaseRow, amount: TokenAmount) -> int:
    ceiling = TokenAmount(book.ceiling(lease))
    return lease.paid + payable(amount, ceiling, TokenAmount(lease.paid)).value


def _settling(book: SimulatedBook, signed: Signed[Voucher]) -> Step:
    return lambda: _settle(book, signed)


def _settle(book: SimulatedBook, signed: Signed[Voucher]) -> RejectReason | None:
    voucher = signed.payload
    try:
        _, lease = book.lease_in(voucher.lease, *RUNNING)
    except Revert:
        return RejectReason.WRONG_STATE
    paid = _paid_after(book, lease, voucher.amount)
    if paid == lease.paid:
        return RejectReason.WRONG_STATE
    signature = (voucher, signed.signature, lease.buyer, KeyRole.SESSION, lease.start)
    if not book.is_signed_by(*signature):
        return RejectReason.BAD_SIGNATURE
    book.pay(voucher.lease, lease, paid)
    book.log.append(LeaseSettled(lease=voucher.lease, paid=TokenAmount(paid), at=book.now))
    return None


def _closing(book: SimulatedBook, entry: Closing) -> Step:
    return lambda: _close(book, entry)


def _close(book: SimulatedBook, entry: Closing) -> RejectReason | None:
    voucher, final = entry.voucher.payload, entry.final.payload
    try:
        machine, lease = book.lease_in(voucher.lease, *RUNNING)
    except Revert:
        return RejectReason.WRONG_STATE
    paid = _paid_after(book, lease, voucher.amount)
    stopped = machine.status is MachineStatus.STOPPED
    early = not stopped and book.now < lease.end

    def by_buyer(payload: Voucher, signed: Signed[Voucher]) -> bool:
        signature = (payload, signed.signature, lease.buyer, KeyRole.SESSION, lease.start)
        return book.is_signed_by(*signature)

    agreed = not early and entry.buyer_final is None and by_buyer(voucher, entry.voucher)
    if not agreed and entry.buyer_final is not None:
        own = entry.buyer_final
        agreed = (own.payload.lease, own.payload.amount) == (voucher.lease, voucher.amount)
        agreed = agreed and book.is_signed_by(
            own.payload, own.signature, lease.buyer, KeyRole.SESSION, lease.start
        )
    if not agreed:
        return RejectReason.WRONG_STATE if early else RejectReason.BAD_SIGNATURE
    same = (final.lease, final.amount) == (voucher.lease, voucher.amount)
    signed_final = same and book.is_signed_by(
        final, entry.final.signature, voucher.provider, KeyRole.NODE, book.now
    )
    if paid != lease.cap and not signed_final:
        return RejectReason.BAD_SIGNATURE
    book.pay(voucher.lease, lease, paid)
    over = LeaseEndReason.STOPPED if stopped or early else LeaseEndReason.END_OF_TIME
    book.free(voucher.lease, paid, over)
    return None


def _stop(book: SimulatedBook, sender: Address, key: LeaseKey) -> None:
    machine, lease = book.lease_in(key, MachineStatus.ACTIVE)
    if sender != lease.buyer:
        raise Revert("LeaseBook_NotOwner")
    used, ceiling = book.now - lease.start, lease.cap
    machine.status = MachineStatus.STOPPED
    if used < lease.duration:
        ceiling = book.ceiling(lease)
        book.accounts[sender].cash += lease.cap - ceiling
        lease.cap, lease.duration = ceiling, used
    book.log.append(LeaseStopped(lease=key, ceiling=TokenAmount(ceiling), at=book.now))


def _give_notice(book: SimulatedBook, sender: Address, key: LeaseKey) -> None:
    machine, lease = book.lease_in(key, MachineStatus.ACTIVE)
    if not book.speaks_for(key.provider, sender, KeyRole.NODE, book.now):
        raise Revert("LeaseBook_NotOwner")
    if lease.notice_at:
        raise Revert("LeaseBook_NoticeGiven")
    lease.notice_at = book.now
    releasable_at = book.now + book.products[machine.product].notice
    book.log.append(NoticeGiven(lease=key, releasable_at=releasable_at, at=book.now))


def _has_notice_run(book: SimulatedBook, machine: MachineRow, lease: LeaseRow) -> bool:
    if not (lease.flags & LeaseFlags.INTERRUPTIBLE and lease.notice_at):
        return False
    return book.now >= lease.notice_at + book.products[machine.product].notice


def _release(book: SimulatedBook, sender: Address, call: ReleaseLease) -> None:
    key = call.lease
    if call.reason not in _NAMED:
        raise Revert("LeaseBook_BadReason")
    machine, lease = book.lease_in(key, MachineStatus.FUNDED, *RUNNING)
    if sender != key.provider:
        is_free = machine.status is MachineStatus.ACTIVE and _has_notice_run(book, machine, lease)
        if not is_free or not book.speaks_for(key.provider, sender, KeyRole.NODE, book.now):
            raise Revert("LeaseBook_NotOwner")
    if machine.status is MachineStatus.FUNDED:
        book.penalise(key, _no_show(book, lease))
        book.free(key, 0, LeaseEndReason.RELEASED_UNSTARTED)
        return
    paid = lease.paid
    if call.voucher is not None and call.voucher.payload.amount.value > paid:
        voucher = call.voucher
        signature = (voucher.payload, voucher.signature, lease.buyer, KeyRole.SESSION, lease.start)
        if voucher.payload.lease != key or not book.is_signed_by(*signature):
            raise Revert("LeaseBook_BadSignature")
        paid = _paid_after(book, lease, voucher.payload.amount)
        book.pay(key, lease, paid)
    reason = call.reason
    if machine.status is MachineStatus.STOPPED:
        reason = LeaseEndReason.STOPPED
    elif book.now >= lease.end:
        reason = LeaseEndReason.END_OF_TIME
    elif _has_notice_run(book, machine, lease):
        reason = LeaseEndReason.NOTICE
    else:
        rest = TokenAmount(lease.cap - paid)
        book.penalise(key, release_penalty(rest, book.products[machine.product].penalty).value)
    book.free(key, paid, reason)


def _no_show(book: SimulatedBook, lease: LeaseRow) -> int:
    window = book.deployment.windows.no_show
    return no_show_amount(TokenAmount(lease.cap), lease.duration, window).value


def _refund_unstarted(book: SimulatedBook, key: LeaseKey) -> None:
    _, lease = book.lease_in(key, MachineStatus.FUNDED)
    if book.now <= lease.start:
        raise Revert("LeaseBook_TooEarly")
    amount = _no_show(book, lease)
    if lease.is_ready:
        book.accounts[key.provider].cash += amount
        book.free(key, amount, LeaseEndReason.BUYER_NO_SHOW)
    else:
        book.penalise(key, amount)
        book.free(key, 0, LeaseEndReason.PROVIDER_NO_SHOW)


def _expire(book: SimulatedBook, key: LeaseKey) -> None:
    _, lease = book.lease_in(key, *RUNNING)
    if book.now <= lease.end + book.deployment.windows.claim:
        raise Revert("LeaseBook_TooEarly")
    book.free(key, lease.paid, LeaseEndReason.EXPIRED)


def _cancel(book: SimulatedBook, sender: Address, nonce: int) -> None:
    account = book.accounts.get(sender)
    if account is None or not account.use(nonce):
        raise Revert("LeaseBook_NonceUnusable")
    book.log.append(BidsCancelled(account=sender, nonce=nonce, below=False))
