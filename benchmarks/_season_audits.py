"""Moves of verified leases, and the way out that everybody can take at the end of a season."""

from __future__ import annotations

from benchmarks._audited import CHALLENGE_S, VERIFIERS, CommittedBatch
from benchmarks._season import Season
from benchmarks._season_moves import Move
from cloud_gpu.protocol.adapters.bindings import lease_book, payment_token, verification
from cloud_gpu.protocol.adapters.evm_audits import BATCH_STATES
from cloud_gpu.protocol.audit import BatchState, VerdictResult
from cloud_gpu.protocol.calls import (
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    Ending,
    ExpireLease,
    FallbackSeed,
    FinaliseBatches,
    RefundUnstarted,
    ReturnHeld,
    RevealPreimages,
)
from cloud_gpu.protocol.lease import MachineStatus
from cloud_gpu.protocol.signing import sign

_OVER = (BatchState.FINAL, BatchState.PARTIAL, BatchState.FINAL_UNVERIFIED, BatchState.SLASHED)


def state_of(s: Season, batch: CommittedBatch) -> tuple[BatchState | None, verification.Batch]:
    """A batch as the contract has it."""
    lease = batch.lease
    row = s.chain.ask(verification.batch_of(lease.provider, lease.index, lease.seq, 0))
    return BATCH_STATES[row.state], row


def commit(s: Season) -> None:
    """What an ended verified lease holds."""
    if not s.ended:
        return
    rented = s.dice.choice(s.ended)
    batch = CommittedBatch(s.chain, rented.key, s.dice.randint(1, 12))
    signed = sign(
        batch.commit(), s.chain.deployment.verification_domain, rented.machine.provider.daily
    )
    if s.attempt(rented.machine.provider.daily, CommitBatch(commit=signed)):
        s.ended.remove(rented)
        s.batches.append(batch)


def audit(s: Season) -> None:
    """Draw, accuse, contest, convict or end a batch, whatever comes next, and not always so."""
    if not s.batches:
        return
    batch = s.dice.choice(s.batches)
    state, row = state_of(s, batch)
    verifier = VERIFIERS[row.number % 2]
    if state is BatchState.COMMITTED:
        if s.dice.random() < 0.1:
            call = FallbackSeed(lease=batch.lease, batch_no=0)
            s.attempt(s.stranger().wallet, call)
        else:
            s.chain.mine(2)
            s.attempt(verifier, RevealPreimages(draws=(batch.draw(row.number),)))
    elif state is BatchState.DRAWN:
        if s.dice.random() < 0.3:
            s.attempt(VERIFIERS[0], batch.accusation(s.dice.randrange(batch.n)))
        else:
            s.attempt(verifier, FinaliseBatches(endings=(batch.ending(row.number % 2),)))
    elif state is BatchState.ACCUSED:
        i = row.accused.bit_length() - 1
        if s.dice.random() < 0.3:
            said = batch.verdict(i, VerdictResult.MATCH, VERIFIERS[1])
            s.attempt(VERIFIERS[1], ContestSegment(verdict=said, opening=batch.opening(i)))
        else:
            s.chain.pass_time(CHALLENGE_S + 1)
            convict = ConvictSegment(lease=batch.lease, batch_no=0, opening=batch.opening(i))
            s.attempt(s.stranger().wallet, convict)
    elif state is BatchState.FINAL_UNVERIFIED and s.dice.random() < 0.2:
        s.attempt(VERIFIERS[0], batch.accusation(s.dice.randrange(batch.n)))
    elif state in _OVER:
        s.batches.remove(batch)


def end_by_time(s: Season) -> None:
    """Batches past the hard cap, and held pay that nobody committed to."""
    if s.batches:
        lease = s.dice.choice(s.batches).lease
        ending = Ending(lease=lease, batch_no=0, results=None)
        call = FinaliseBatches(endings=(ending,))
        s.attempt(s.stranger().wallet, call)
    if s.ended:
        rented = s.dice.choice(s.ended)
        if s.attempt(s.stranger().wallet, ReturnHeld(lease=rented.key)):
            s.ended.remove(rented)


AUDITS_MOVES: tuple[tuple[Move, int], ...] = ((commit, 8), (audit, 12), (end_by_time, 3))


def everybody_exits(s: Season) -> None:
    """By moves that anybody may make; then machines retire and accounts empty themselves."""
    anybody, windows = s.stranger().wallet, s.chain.deployment.windows
    s.chain.pass_time(2 * windows.start + windows.claim + 86_400)
    for rented in list(s.live):
        started = rented.status is not MachineStatus.FUNDED
        end = ExpireLease if started else RefundUnstarted
        s.attempt(anybody, end(lease=rented.key))
        s.refresh(rented)
    assert not s.live, f"no way out for {s.live}"
    _end_audits(s)
    for rented in s.ended:
        s.attempt(anybody, ReturnHeld(lease=rented.key))
    for machine in s.machines:
        if s.machine(machine).status not in (MachineStatus.NONE, MachineStatus.RETIRING):
            s.attempt(machine.provider.wallet, lease_book.retire(machine.index))
    s.chain.pass_time(windows.retire + 1)
    for machine in s.machines:
        if s.machine(machine).status != MachineStatus.NONE:
            s.chain.send(machine.provider.wallet, lease_book.finish_retire(machine.index))
    for number in range(1, s.chain.ask(lease_book.counts()).accounts + 1):
        owner = s.chain.owner(s.chain.ask(lease_book.address_of(number)))
        if cash := s.chain.ask(lease_book.account_of(owner.address)).cash:
            s.chain.send(owner, lease_book.withdraw(cash))


def _end_audits(s: Season) -> None:
    audit_windows = s.chain.deployment.audit
    assert audit_windows is not None, "a season has verified leases"
    s.chain.pass_time(audit_windows.commit + audit_windows.hard_cap)
    for batch in s.batches:
        _state, row = state_of(s, batch)
        for i in range(batch.n):
            if row.accused >> i & 1:
                call = ConvictSegment(lease=batch.lease, batch_no=0, opening=batch.opening(i))
                s.attempt(s.stranger().wallet, call)
        if state_of(s, batch)[0] not in _OVER:
            over = Ending(lease=batch.lease, batch_no=0, results=None)
            s.chain.send(s.stranger().wallet, FinaliseBatches(endings=(over,)))


def owed(s: Season) -> int:
    """Everything that the book owes by its own account: its token balance must be that (I1)."""
    ask, unit = s.chain.ask, s.chain.deployment.bond_unit.value
    numbers = range(1, ask(lease_book.counts()).accounts + 1)
    owners = [ask(lease_book.address_of(number)) for number in numbers]
    total = sum(ask(lease_book.account_of(owner)).cash for owner in owners)
    total += sum(s.machine(machine).bond * unit for machine in s.machines)
    for rented in s.live:
        row = ask(lease_book.lease_of(rented.key.provider, rented.key.index, rented.key.seq))
        total += row.cap - row.paid
    for rented in (*s.live, *s.ended):
        if rented.verified:
            key = rented.key
            held = ask(lease_book.held_of(key.provider, key.index, key.seq))
            total += held.amount + held.audit
    return total + ask(lease_book.batched())


def balance(s: Season) -> int:
    """The book's tokens."""
    return s.chain.ask(payment_token.balance_of(s.chain.deployment.lease_book))
