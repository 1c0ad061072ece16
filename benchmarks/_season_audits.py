"""Moves of verified leases: batches committed, drawn, disputed, asked for and ended."""

from __future__ import annotations

from benchmarks._audited import ANSWER_S, CHALLENGE_S, VERIFIERS, CommittedBatch
from benchmarks._chain import Receipt
from benchmarks._season import Season
from benchmarks._season_moves import Move
from cloud_gpu.protocol.adapters.bindings import lease_book, verification
from cloud_gpu.protocol.adapters.evm_audits import BATCH_STATES
from cloud_gpu.protocol.audit import BatchState, VerdictResult
from cloud_gpu.protocol.calls import (
    ChallengeLeaf,
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    ConvictSilence,
    Ending,
    FallbackSeed,
    FinaliseBatches,
    ReturnHeld,
    RevealPreimages,
)
from cloud_gpu.protocol.signing import sign
from cloud_gpu.protocol.values import Digest

_NEWEST = 3
_DRAWN_WITHIN = 256
"""Blocks in which a verifier may draw."""
POINTS = 3
"""Drawn points that are challenged, at most."""
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
    key = rented.key
    held = s.chain.ask(lease_book.held_of(key.provider, key.index, key.seq))
    if not held.amount and not held.audit:
        s.ended.remove(rented)
        return
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
    batch = s.dice.choice(s.batches[-_NEWEST:] if s.dice.random() < 0.7 else s.batches)
    state, row = state_of(s, batch)
    verifier = VERIFIERS[row.number % 2]
    if state is BatchState.COMMITTED:
        s.chain.mine(2)
        if s.dice.random() < 0.1 or s.chain.height() > row.block_number + _DRAWN_WITHIN:
            call = FallbackSeed(lease=batch.lease, batch_no=0)
            _counted(s, "draws of the chain", s.attempt(s.stranger().wallet, call))
        else:
            draws = (batch.draw(row.number),)
            _counted(s, "draws", s.attempt(verifier, RevealPreimages(draws=draws)))
    elif state is BatchState.DRAWN:
        if s.dice.random() < 0.4:
            _challenge(s, batch)
        elif s.dice.random() < _guilt(s, batch):
            accusation = batch.accusation(s.dice.randrange(batch.n))
            _counted(s, "accusations", s.attempt(VERIFIERS[0], accusation))
        else:
            s.attempt(verifier, FinaliseBatches(endings=(batch.ending(row.number % 2),)))
    elif state is BatchState.ACCUSED:
        i = row.accused.bit_length() - 1
        if s.dice.random() < 0.3:
            said = batch.verdict(i, VerdictResult.MATCH, VERIFIERS[1])
            contest = ContestSegment(verdict=said, opening=batch.opening(i))
            _counted(s, "contested", s.attempt(VERIFIERS[1], contest))
        else:
            s.chain.pass_time(CHALLENGE_S + 1)
            convict = ConvictSegment(lease=batch.lease, batch_no=0, opening=batch.opening(i))
            _counted(s, "convicted", s.attempt(s.stranger().wallet, convict))
    elif state is BatchState.FINAL_UNVERIFIED and s.dice.random() < 0.2:
        s.attempt(VERIFIERS[0], batch.accusation(s.dice.randrange(batch.n)))
    elif state in _OVER:
        s.batches.remove(batch)


def _guilt(s: Season, batch: CommittedBatch) -> float:
    """One provider is accused often and soon barred; were all, no verified lease would open."""
    return 0.4 if batch.lease.provider == s.providers[0].wallet.address else 0.04


def _counted(s: Season, fact: str, receipt: Receipt | None) -> None:
    s.facts[fact] += receipt is not None


def drawn(s: Season) -> tuple[CommittedBatch, verification.Batch] | None:
    """One whose leaves can be asked for."""
    for batch in s.dice.sample(s.batches, len(s.batches)):
        state, row = state_of(s, batch)
        if state is BatchState.DRAWN:
            return batch, row
    return None


def challenge(s: Season) -> None:
    """A verifier asks to see a leaf."""
    if (found := drawn(s)) is not None:
        _challenge(s, found[0])


def _challenge(s: Season, batch: CommittedBatch) -> None:
    m = min(batch.n, POINTS)
    call = ChallengeLeaf(lease=batch.lease, batch_no=0, j=s.dice.randrange(m), m=m)
    asked = s.attempt(s.dice.choice(VERIFIERS), call)
    _counted(s, "challenges", asked)
    if asked and s.dice.random() < 0.4:
        _answer(s, batch, state_of(s, batch)[1])


def answer(s: Season) -> None:
    """Somebody shows a leaf that was asked for, or nobody does in time."""
    for batch in s.dice.sample(s.batches, len(s.batches)):
        _, row = state_of(s, batch)
        if row.challenged:
            _answer(s, batch, row)
            return


def _answer(s: Season, batch: CommittedBatch, row: verification.Batch) -> None:
    j = row.challenged.bit_length() - 1
    late = s.chain.time() > row.answer_by
    if not late and s.dice.random() < 0.7:
        shown = batch.shown(j, Digest(row.seed))
        _counted(s, "leaves shown", s.attempt(s.stranger().wallet, shown))
        return
    if not late:
        s.chain.pass_time(ANSWER_S + 1)
    call = ConvictSilence(lease=batch.lease, batch_no=0, j=j)
    _counted(s, "silences", s.attempt(s.stranger().wallet, call))


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


AUDITS_MOVES: tuple[tuple[Move, int], ...] = (
    (commit, 8),
    (audit, 12),
    (challenge, 5),
    (answer, 4),
    (end_by_time, 3),
)


def end_audits(s: Season) -> None:
    """Every batch and all held pay, past all deadlines."""
    audit_windows, anybody = s.chain.deployment.audit, s.stranger().wallet
    assert audit_windows is not None, "a season has verified leases"
    s.chain.pass_time(audit_windows.commit + audit_windows.hard_cap)
    for batch in s.batches:
        _state, row = state_of(s, batch)
        for i in range(batch.n):
            if row.accused >> i & 1:
                opening = batch.opening(i)
                convict = ConvictSegment(lease=batch.lease, batch_no=0, opening=opening)
                s.attempt(anybody, convict)
        for j in range(POINTS):
            if row.challenged >> j & 1:
                s.attempt(anybody, ConvictSilence(lease=batch.lease, batch_no=0, j=j))
        if state_of(s, batch)[0] not in _OVER:
            over = Ending(lease=batch.lease, batch_no=0, results=None)
            s.must(anybody, FinaliseBatches(endings=(over,)))
    for rented in s.ended:
        s.attempt(anybody, ReturnHeld(lease=rented.key))
