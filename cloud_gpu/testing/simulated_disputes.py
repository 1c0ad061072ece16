"""Accusations, challenges and convictions on a `SimulatedBook`, as in VerificationFaults.sol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, TypeVar, assert_never

from cloud_gpu.protocol.audit import (
    WEIGHT_ONE,
    BatchState,
    Opening,
    Sibling,
    VerdictResult,
    draw_point,
    prove,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    ChallengeLeaf,
    ContestSegment,
    ConvictSegment,
    ConvictSilence,
    OpenLeaf,
)
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchFinalised,
    LeafChallenged,
    LeafOpened,
    SegmentAccused,
    SegmentConvicted,
    SilenceConvicted,
)
from cloud_gpu.protocol.deployment import AuditWindows
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Signed, TypedData, recover
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.testing.simulated_audits import BatchRow
from cloud_gpu.testing.simulated_book import Revert, SimulatedBook

FINE_TIMES: Final = 20
_BOUNTY_TIMES: Final = 2
_FRAUD_WINDOW_S: Final = 30 * 86_400

DataT = TypeVar("DataT", bound=TypedData)

Dispute: TypeAlias = (
    AccuseSegment | ContestSegment | ConvictSegment | ChallengeLeaf | OpenLeaf | ConvictSilence
)


def carry_out_dispute(book: SimulatedBook, sender: Address, call: Dispute) -> None:
    """Apply one call. Raises `Revert`."""
    match call:
        case AccuseSegment():
            _accuse(book, call)
        case ContestSegment():
            _contest(book, call)
        case ConvictSegment():
            _convict(book, call)
        case ChallengeLeaf():
            _challenge(book, sender, call)
        case OpenLeaf():
            _open_leaf(book, call)
        case ConvictSilence():
            _convict_silence(book, call)
        case _:
            assert_never(call)


# Shared with the other calls.


def require(holds: bool, error: str) -> None:
    """Raises `Revert` with the contract's error unless it holds."""
    if not holds:
        raise Revert(error)


def windows_of(book: SimulatedBook) -> AuditWindows:
    """Verification's time-outs."""
    assert book.deployment.audit is not None, "a deployment with Verification has its windows"
    return book.deployment.audit


def batch_of(book: SimulatedBook, lease: LeaseKey, batch_no: int) -> BatchRow:
    """A batch's row. Raises `Revert` when there is none."""
    row = book.audits.batches.get((lease, batch_no))
    if row is None:
        raise Revert("Verification_WrongState")
    return row


def signer_of(book: SimulatedBook, signed: Signed[DataT]) -> Address | None:
    """Who signed it for Verification."""
    return recover(signed.payload.digest(book.deployment.verification_domain), signed.signature)


def require_proof(
    row: BatchRow, i: int, leaf: Digest, weight: int, proof: Sequence[Sibling]
) -> int:
    """Where the leaf's interval starts. Raises `Revert` when it is not under the root."""
    start = prove(row.root, row.n, i, Sibling(hash=leaf, weight=weight), proof)
    if start is None:
        raise Revert("Verification_BadProof")
    return start


def _is_verifier(book: SimulatedBook, signer: Address | None) -> bool:
    return any(signer == seat.signer for seat in book.audits.seats)


# Two verdicts.


def _accuse(book: SimulatedBook, call: AccuseSegment) -> None:
    leaf, windows = call.leaf, windows_of(book)
    row = batch_of(book, leaf.lease, leaf.batch_no)
    closes_at = row.at + windows.hard_cap
    if row.state is BatchState.FINAL_UNVERIFIED:
        closes_at += windows.late_slash
    else:
        require(row.state is BatchState.DRAWN, "Verification_WrongState")
    require(book.now <= closes_at, "Verification_TooLate")
    hashed = leaf.hash(book.deployment.chain_id, book.deployment.verification)
    start = require_proof(row, leaf.i, hashed, leaf.weight, call.proof)
    said = call.first.payload
    place = (said.provider, said.index, said.seq, said.batch_no, said.i, said.leaf)
    lease = leaf.lease
    needed = (lease.provider, lease.index, lease.seq, leaf.batch_no, leaf.i, hashed)
    is_mismatch = said.result is VerdictResult.MISMATCH and place == needed
    require(is_mismatch, "Verification_BadVerdict")
    signers = {signer_of(book, call.first), signer_of(book, call.second)}
    are_both = signers == {seat.signer for seat in book.audits.seats}
    require(are_both and call.second.payload == said, "Verification_NotVerifier")
    was_silent = any(start <= _point(row, j) < start + leaf.weight for j in row.silent)
    is_new = leaf.i not in row.accused | row.settled and not was_silent
    require(is_new, "Verification_WrongSegment")
    row.accused.add(leaf.i)
    row.until = book.now + windows.challenge
    book.log.append(
        SegmentAccused(
            lease=lease,
            batch_no=leaf.batch_no,
            until=row.until,
            opening=Opening(i=leaf.i, leaf=hashed, weight=leaf.weight, proof=call.proof),
            at=book.now,
        )
    )


def _point(row: BatchRow, j: int) -> int:
    assert row.seed is not None, "asked for of a drawn batch"
    return draw_point(row.seed, j)


def _contest(book: SimulatedBook, call: ContestSegment) -> None:
    said = call.verdict.payload
    lease = LeaseKey(provider=said.provider, index=said.index, seq=said.seq)
    row = batch_of(book, lease, said.batch_no)
    _require_accused(row, call.opening)
    require(book.now <= row.until, "Verification_TooLate")
    is_of_it = (said.i, said.leaf) == (call.opening.i, call.opening.leaf)
    is_other = said.result is not VerdictResult.MISMATCH
    require(is_other and is_of_it, "Verification_BadVerdict")
    require(_is_verifier(book, signer_of(book, call.verdict)), "Verification_NotVerifier")
    _settle(row, said.i)
    refund = row.give_back(call.opening.weight) if row.state is BatchState.DRAWN else 0
    book.accounts[row.buyer].cash += refund
    book.log.append(
        AccusationContested(
            lease=lease,
            batch_no=said.batch_no,
            i=said.i,
            refund=TokenAmount(refund),
            at=book.now,
        )
    )


def _require_accused(row: BatchRow, opening: Opening) -> None:
    is_live = row.state in (BatchState.DRAWN, BatchState.FINAL_UNVERIFIED)
    require(is_live, "Verification_WrongState")
    require(opening.i in row.accused, "Verification_WrongSegment")
    require_proof(row, opening.i, opening.leaf, opening.weight, opening.proof)


def _settle(row: BatchRow, i: int) -> None:
    row.accused.remove(i)
    row.settled.add(i)


def _convict(book: SimulatedBook, call: ConvictSegment) -> None:
    row, opening = batch_of(book, call.lease, call.batch_no), call.opening
    _require_accused(row, opening)
    require(book.now > row.until, "Verification_TooEarly")
    _settle(row, opening.i)
    provider, machine = call.lease.provider, call.lease.machine
    before = book.audits.faults.get(provider)
    book.audits.faults[provider] = row.buyer, book.now
    is_fraud = (
        before is not None and before[0] != row.buyer and book.now <= before[1] + _FRAUD_WINDOW_S
    )
    is_late = row.state is BatchState.FINAL_UNVERIFIED
    if is_late:
        price = row.price(opening.weight)
        from_bond, fine = price, FINE_TIMES * price
    else:
        price = row.give_back(opening.weight)
        from_bond, fine = 0, _fine(book, row, call.lease, price)
    _repeat(book, row, call.lease)
    if is_fraud:
        book.machines[machine].locked -= row.locked
        row.locked, fine = 0, 2**64 - 1
        book.audits.barred.add(provider)
    audits = book.audits.seats[row.number % 2].audits
    taken = book.slash(machine, row.buyer, from_bond, fine, _BOUNTY_TIMES * price, audits)
    book.log.append(
        SegmentConvicted(
            lease=call.lease,
            batch_no=call.batch_no,
            i=opening.i,
            refund=TokenAmount(taken[0] if is_late else price),
            fine=TokenAmount(taken[1]),
            bounty=TokenAmount(taken[2]),
            at=book.now,
        )
    )
    if is_fraud:
        _burn_rest(book, row, call, is_late)


def _burn_rest(book: SimulatedBook, row: BatchRow, call: ConvictSegment, is_late: bool) -> None:
    """Fraud: nothing of the batch is paid, audits of it neither."""
    burnt, back = (0, 0) if is_late else (row.left, row.audit)
    book.accounts[row.buyer].cash += back
    book.deposited -= burnt
    row.state, row.audit = BatchState.SLASHED, 0
    book.log.append(
        BatchFinalised(
            lease=call.lease,
            batch_no=call.batch_no,
            state=BatchState.SLASHED,
            provider=ZERO_TOKENS,
            market=ZERO_TOKENS,
            audits=ZERO_TOKENS,
            buyer=TokenAmount(back),
            burnt=TokenAmount(burnt),
            at=book.now,
        )
    )


def _fine(book: SimulatedBook, row: BatchRow, lease: LeaseKey, price: int) -> int:
    """Twenty prices as far as the lock goes, freed for it; the price goes back at once."""
    unit = book.deployment.bond_unit.value
    fine = min(FINE_TIMES * price, row.locked)
    freed = -(-fine // unit) * unit
    row.locked -= freed
    book.machines[lease.machine].locked -= freed
    book.accounts[row.buyer].cash += price
    return fine


def _repeat(book: SimulatedBook, row: BatchRow, lease: LeaseKey) -> None:
    row.is_forfeit = row.is_forfeit or lease in book.audits.convicted
    book.audits.convicted.add(lease)


# Silence.


def _challenge(book: SimulatedBook, sender: Address, call: ChallengeLeaf) -> None:
    require(_is_verifier(book, sender), "Verification_NotVerifier")
    row, windows = batch_of(book, call.lease, call.batch_no), windows_of(book)
    require(row.state is BatchState.DRAWN, "Verification_WrongState")
    require(book.now <= row.at + windows.hard_cap, "Verification_TooLate")
    fits = 0 <= call.j < call.m <= row.n and row.points in (0, call.m)
    is_new = call.j not in row.open | row.answered | row.silent
    require(fits and is_new, "Verification_WrongPoint")
    row.points, row.answer_by = call.m, book.now + windows.answer
    row.open.add(call.j)
    book.log.append(
        LeafChallenged(
            lease=call.lease,
            batch_no=call.batch_no,
            j=call.j,
            m=call.m,
            until=row.answer_by,
            at=book.now,
        )
    )


def _open_leaf(book: SimulatedBook, call: OpenLeaf) -> None:
    leaf, j = call.leaf, call.j
    row = batch_of(book, leaf.lease, leaf.batch_no)
    require(j in row.open, "Verification_WrongPoint")
    require(book.now <= row.answer_by, "Verification_TooLate")
    hashed = leaf.hash(book.deployment.chain_id, book.deployment.verification)
    start = require_proof(row, leaf.i, hashed, leaf.weight, call.proof)
    require(start <= _point(row, j) < start + leaf.weight, "Verification_WrongPoint")
    row.open.remove(j)
    row.answered.add(j)
    book.log.append(
        LeafOpened(
            lease=leaf.lease,
            batch_no=leaf.batch_no,
            j=j,
            i=leaf.i,
            job=leaf.job,
            result=leaf.result,
            salt=leaf.salt,
            at=book.now,
        )
    )


def _convict_silence(book: SimulatedBook, call: ConvictSilence) -> None:
    row, j = batch_of(book, call.lease, call.batch_no), call.j
    require(row.state is BatchState.DRAWN, "Verification_WrongState")
    require(j in row.open, "Verification_WrongPoint")
    require(book.now > row.answer_by, "Verification_TooEarly")
    row.open.remove(j)
    row.silent.add(j)
    price = row.give_back(WEIGHT_ONE // row.points)
    fine = _fine(book, row, call.lease, price)
    _repeat(book, row, call.lease)
    audits = book.audits.seats[row.number % 2].audits
    _, fine, _ = book.slash(call.lease.machine, row.buyer, 0, fine, 0, audits)
    book.log.append(
        SilenceConvicted(
            lease=call.lease,
            batch_no=call.batch_no,
            j=j,
            refund=TokenAmount(price),
            fine=TokenAmount(fine),
            at=book.now,
        )
    )
