"""The moves of a season: honest ones, which the contracts may refuse, and foul ones."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks._parties import CAP, DURATION, Party
from benchmarks._season import Rented, Season
from cloud_gpu.protocol.adapters.bindings import lease_book, payment_token
from cloud_gpu.protocol.adapters.evm_packing import packed_starts
from cloud_gpu.protocol.calls import (
    CancelOne,
    CloseBatch,
    Closing,
    ExpireLease,
    PostReady,
    RefundUnstarted,
    ReleaseLease,
    SettleBatch,
    StopLease,
)
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseFlags, MachineStatus
from cloud_gpu.protocol.units import BasisPoints

Move = Callable[[Season], None]
_FUNDED, _ACTIVE, _STOPPED = MachineStatus.FUNDED, MachineStatus.ACTIVE, MachineStatus.STOPPED
_REASONS = (LeaseEndReason.RELEASED, LeaseEndReason.NO_VOUCHERS, LeaseEndReason.HEALTH)
_OPENED_TOGETHER = 5
_PAUSES_S = (1, 1, 30, 30, 300, 300, 300, 900, 900, 1_800, 3_600, 10_000, 90_000)


def pass_time(s: Season) -> None:
    """From seconds to, seldom, days."""
    s.chain.pass_time(s.dice.choice(_PAUSES_S))
    s.done += 1


def open_some(s: Season) -> None:
    """The matcher opens a batch; some of its machines are not free."""
    machines = s.dice.sample(s.machines, s.dice.randint(1, _OPENED_TOGETHER))
    if s.dice.random() < 0.5:
        machines.sort(key=lambda machine: machine.provider.wallet.address.raw)
    orders, facts = [], []
    buyer: Party | None = None
    for machine in machines:
        verified = s.dice.random() < 0.6
        flags = int(LeaseFlags.VERIFIED) if verified else 0
        # A row of one buyer's entries touches its account once.
        if buyer is None or s.dice.random() < 0.5:
            buyer = s.dice.choice(s.buyers)
        ask = s.market.ask(machine, flags=int(LeaseFlags.VERIFIED))
        bid = s.market.bid(
            buyer,
            s.nonce(buyer),
            duration=s.dice.choice((60, 600, DURATION)),
            flags=flags,
            audit_bps=BasisPoints(s.dice.choice((0, 700, 12_000)) if verified else 0),
        )
        orders.append((ask, bid))
        facts.append((machine, buyer, ask.payload.seq, verified))
    if s.attempt(s.market.matcher, s.market.opening(orders)):
        for machine, buyer, seq, verified in facts:
            s.opened(machine, buyer, seq, verified=verified)


def post_ready(s: Season) -> None:
    """So that what does not begin is the buyer's fault."""
    rented = s.one_in(_FUNDED)
    if rented is not None:
        ready = s.market.beginning(rented.machine, rented.buyer, rented.key).ready
        assert ready is not None, "a Ready is signed for every beginning"
        s.attempt(rented.machine.provider.daily, PostReady(ready=ready))


def begin(s: Season) -> None:
    """A lease starts; where its deadline has passed, it ends."""
    rented = s.one_in(_FUNDED)
    if rented is None:
        return
    key = rented.key
    if s.chain.time() > s.chain.ask(lease_book.lease_of(key.provider, key.index, key.seq)).start:
        s.attempt(s.stranger().wallet, RefundUnstarted(lease=key))
    else:
        call = s.market.beginning(rented.machine, rented.buyer, key)
        s.attempt(rented.machine.provider.daily, call)
    s.refresh(rented)


def settle(s: Season) -> None:
    """Vouchers may be signed ahead of the clock, and may be older ones."""
    rented = s.one_in(_ACTIVE, _STOPPED)
    if rented is not None:
        amount = s.dice.randint(0, CAP)
        rented.promised = max(rented.promised, amount)
        voucher = s.market.voucher(rented.buyer, rented.key, amount)
        s.attempt(s.stranger().wallet, SettleBatch(vouchers=(voucher,)))


def begin_together(s: Season) -> None:
    """All that wait for one provider, in one call; some have waited too long."""
    first = s.one_in(_FUNDED)
    if first is None:
        return
    provider = first.machine.provider
    waiting = [r for r in s.live if r.status is _FUNDED and r.machine.provider is provider]
    accepts = [s.market.accept(rented.buyer, rented.key) for rented in waiting]
    call = lease_book.begin_packed(provider.wallet.address, packed_starts(accepts))
    s.attempt(provider.daily, call)
    for rented in waiting:
        s.refresh(rented)


def close(s: Season) -> None:
    """Some pairs agree, before the end or after it; in one call."""
    running = [rented for rented in s.live if rented.status in (_ACTIVE, _STOPPED)]
    if not running:
        return
    chosen = s.dice.sample(running, s.dice.randint(1, min(4, len(running))))
    if s.dice.random() < 0.5:
        chosen.sort(key=lambda rented: rented.buyer.wallet.address.raw)
    closings = tuple(_closing(s, rented) for rented in chosen)
    s.attempt(s.market.matcher, CloseBatch(closings=closings))
    for rented in chosen:
        s.refresh(rented)


def _closing(s: Season, rented: Rented) -> Closing:
    amount = s.dice.randint(0, CAP)
    buyer_final = s.market.final(rented.buyer.daily, rented.key, amount)
    return Closing(
        voucher=s.market.voucher(rented.buyer, rented.key, amount),
        final=s.market.final(rented.machine.provider.daily, rented.key, amount),
        buyer_final=buyer_final if s.dice.random() < 0.5 else None,
    )


def stop(s: Season) -> None:
    """The buyer has enough."""
    rented = s.one_in(_ACTIVE)
    if rented is not None:
        s.attempt(rented.buyer.wallet, StopLease(lease=rented.key))
        s.refresh(rented)


def release(s: Season) -> None:
    """The provider gives up, with a voucher or without."""
    rented = s.one_in()
    if rented is None:
        return
    voucher = s.market.voucher(rented.buyer, rented.key, s.dice.randint(0, CAP))
    call = ReleaseLease(
        lease=rented.key,
        voucher=voucher if s.dice.random() < 0.7 else None,
        reason=s.dice.choice(_REASONS),
    )
    s.attempt(rented.machine.provider.wallet, call)
    s.refresh(rented)


def give_notice(s: Season) -> None:
    """The provider will leave."""
    rented = s.one_in(_ACTIVE)
    if rented is not None:
        key = rented.key
        call = lease_book.give_notice(key.provider, key.index, key.seq)
        s.attempt(rented.machine.provider.daily, call)


def end_unstarted(s: Season) -> None:
    """Anybody, past the deadline."""
    rented = s.one_in(_FUNDED)
    if rented is not None:
        s.attempt(s.stranger().wallet, RefundUnstarted(lease=rented.key))
        s.refresh(rented)


def expire(s: Season) -> None:
    """Anybody, past the claim."""
    rented = s.one_in(_ACTIVE, _STOPPED)
    if rented is not None:
        s.attempt(s.stranger().wallet, ExpireLease(lease=rented.key))
        s.refresh(rented)


def move_cash(s: Season) -> None:
    """Into the vault for somebody, or out of it."""
    who, amount = s.dice.choice((*s.providers, *s.buyers)).wallet, s.dice.randint(1, 50_000_000)
    if s.dice.random() < 0.5:
        s.attempt(who, lease_book.withdraw(amount))
        return
    book = s.chain.deployment.lease_book
    s.attempt(who, payment_token.mint(who.address, amount))
    s.attempt(who, payment_token.approve(book, amount))
    s.attempt(who, lease_book.deposit(s.stranger().wallet.address, amount))


def tend_machine(s: Season) -> None:
    """Bonds, pauses, retirement and return of a machine."""
    machine = s.dice.choice(s.machines)
    index, owner = machine.index, machine.provider.wallet
    found = s.machine(machine)
    calls = [
        lease_book.add_bond(index, s.dice.randint(1, 20)),
        lease_book.pause(index),
        lease_book.unpause(index),
        lease_book.unpause(index),
        lease_book.cancel_asks(index, min(found.next_seq + s.dice.randint(0, 2), 2**24 - 1)),
    ]
    if s.dice.random() < 0.1:
        calls = [lease_book.retire(index)]
    if found.status == MachineStatus.RETIRING:
        calls = [lease_book.finish_retire(index)]
    if found.status == MachineStatus.NONE:
        calls = [lease_book.add_machine(index, s.dice.randint(20, 100), s.market.product)]
    s.attempt(owner, s.dice.choice(calls))


def cancel_bids(s: Season) -> None:
    """One nonce, or all below one."""
    buyer = s.dice.choice(s.buyers)
    if s.dice.random() < 0.7:
        s.attempt(buyer.wallet, CancelOne(nonce=s.nonce(buyer)))
    else:
        s.attempt(buyer.wallet, lease_book.cancel_below(s.nonces.get(buyer, 0) + 1))
        s.nonce(buyer)


HONEST: tuple[tuple[Move, int], ...] = (
    (pass_time, 12),
    (open_some, 16),
    (post_ready, 4),
    (begin, 24),
    (begin_together, 8),
    (settle, 14),
    (close, 6),
    (stop, 4),
    (release, 4),
    (give_notice, 2),
    (end_unstarted, 3),
    (expire, 3),
    (move_cash, 4),
    (tend_machine, 6),
    (cancel_bids, 1),
)
"""Moves, and how often each comes."""
