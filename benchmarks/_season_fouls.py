"""Foul moves of a season: what somebody would gain, were the contracts to allow it."""

from __future__ import annotations

from benchmarks._parties import CAP
from benchmarks._season import Broken, Season
from benchmarks._season_moves import Move
from cloud_gpu.protocol.adapters.bindings import lease_book
from cloud_gpu.protocol.calls import (
    ExpireLease,
    RefundUnstarted,
    ReleaseLease,
    SettleBatch,
    StopLease,
)
from cloud_gpu.protocol.lease import LeaseEndReason, MachineKey, MachineStatus
from cloud_gpu.protocol.values import ZERO_ADDRESS

_ACTIVE = MachineStatus.ACTIVE


def overdraw(s: Season) -> None:
    """More than one's cash."""
    who = s.stranger().wallet
    cash = s.chain.ask(lease_book.account_of(who.address)).cash
    s.foul(who, lease_book.withdraw(cash + 1))


def stop_another_lease(s: Season) -> None:
    """Of another buyer."""
    if (rented := s.one_in(_ACTIVE)) is not None:
        s.foul(s.stranger(rented.buyer).wallet, StopLease(lease=rented.key))


def release_another_lease(s: Season) -> None:
    """Of another provider: the penalty would be its."""
    if (rented := s.one_in()) is not None:
        reason = LeaseEndReason.RELEASED
        call = ReleaseLease(lease=rented.key, voucher=None, reason=reason)
        s.foul(s.stranger(rented.machine.provider).wallet, call)


def end_too_early(s: Season) -> None:
    """Before the deadline, or the claim, has passed."""
    if (rented := s.one_in()) is None:
        return
    lease = s.chain.ask(lease_book.lease_of(rented.key.provider, rented.key.index, rented.key.seq))
    now = s.chain.time()
    if rented.status is MachineStatus.FUNDED:
        if now + 60 < lease.start:
            s.foul(s.stranger().wallet, RefundUnstarted(lease=rented.key))
    elif now + 60 < lease.start + lease.duration + s.chain.deployment.windows.claim:
        s.foul(s.stranger().wallet, ExpireLease(lease=rented.key))


def begin_for_the_buyer(s: Season) -> None:
    """With an Accept that somebody else signed."""
    if (rented := s.one_in(MachineStatus.FUNDED)) is not None:
        other = s.stranger(rented.buyer)
        call = s.market.beginning(rented.machine, other, rented.key)
        s.foul(rented.machine.provider.daily, call)


def act_as_a_module(s: Season) -> None:
    """What only modules may."""
    machine = s.dice.choice(s.machines)
    key = MachineKey(provider=machine.provider.wallet.address, index=machine.index).word.raw
    calls = (
        lease_book.slash_bond(key, lease_book.Slash(1, 0, 1, 1, 0, 0, ZERO_ADDRESS, bar=True)),
        lease_book.take_held(key, 1, 0, machine.provider.wallet.address, 1),
    )
    s.foul(s.stranger().wallet, s.dice.choice(calls))


def take_a_bond(s: Season) -> None:
    """A machine's, without waiting, or another's."""
    machine = s.dice.choice(s.machines)
    found = s.machine(machine)
    early = found.status != MachineStatus.RETIRING or s.chain.time() + 60 < found.retire_at
    if early:
        s.foul(machine.provider.wallet, lease_book.finish_retire(machine.index))


def sign_a_voucher_for_another(s: Season) -> None:
    """An entry that must be skipped: nobody is paid."""
    if (rented := s.one_in(_ACTIVE, MachineStatus.STOPPED)) is None:
        return
    view = lease_book.lease_of(rented.key.provider, rented.key.index, rented.key.seq)
    before = s.chain.ask(view).paid
    voucher = s.market.voucher(s.stranger(rented.buyer), rented.key, CAP)
    s.chain.send(s.stranger().wallet, SettleBatch(vouchers=(voucher,)))
    after = s.chain.ask(view).paid
    if after != before:
        raise Broken(f"a stranger's voucher paid {after - before}")
    s.fouls += 1


FOUL: tuple[tuple[Move, int], ...] = (
    (overdraw, 2),
    (stop_another_lease, 2),
    (release_another_lease, 2),
    (end_too_early, 3),
    (begin_for_the_buyer, 2),
    (act_as_a_module, 2),
    (take_a_bond, 2),
    (sign_a_voucher_for_another, 3),
)
