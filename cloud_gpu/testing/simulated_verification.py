"""Verification's calls on a `SimulatedBook`, with the checks and the money of Verification.sol."""

from __future__ import annotations

from typing import Final, TypeVar, assert_never

from cloud_gpu.protocol.audit import (
    SEGMENTS_MAX,
    BatchState,
    Results,
    Sibling,
    VerdictResult,
    batch_key,
    prove,
    seed_of,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    AuditCall,
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    FallbackSeed,
    FinaliseBatch,
    ReturnHeld,
    RevealPreimage,
)
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    HeldReturned,
    SegmentAccused,
    SegmentConvicted,
)
from cloud_gpu.protocol.deployment import AuditWindows
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Signed, TypedData, recover
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest, keccak256
from cloud_gpu.testing.simulated_audits import BatchRow, HeldRow
from cloud_gpu.testing.simulated_book import Revert, SimulatedBook

_FINE_TIMES: Final = 20
_REVEAL_FROM: Final = 2
_REVEAL_UNTIL: Final = 256
_HISTORY: Final = 8_191
"""Blocks whose hashes EIP-2935 keeps."""

DataT = TypeVar("DataT", bound=TypedData)


def carry_out_audit(book: SimulatedBook, call: AuditCall) -> None:
    """Apply one call. Raises `Revert`; then the caller puts the book back as it was."""
    if book.deployment.verification.is_zero:
        raise Revert("LeaseBook_NothingHeld")
    match call:
        case CommitBatch():
            _commit(book, call)
        case RevealPreimage():
            _reveal(book, call)
        case FallbackSeed():
            _fall_back(book, call)
        case AccuseSegment():
            _accuse(book, call)
        case ContestSegment():
            _contest(book, call)
        case ConvictSegment():
            _convict(book, call)
        case FinaliseBatch():
            _finalise(book, call)
        case ReturnHeld():
            _return_held(book, call.lease)
        case _:
            assert_never(call)


def _require(holds: bool, error: str) -> None:
    if not holds:
        raise Revert(error)


def _windows(book: SimulatedBook) -> AuditWindows:
    assert book.deployment.audit is not None, "a deployment with Verification has its windows"
    return book.deployment.audit


def _batch(book: SimulatedBook, lease: LeaseKey, batch_no: int) -> BatchRow:
    row = book.audits.batches.get((lease, batch_no))
    if row is None:
        raise Revert("Verification_WrongState")
    return row


def _signer(book: SimulatedBook, signed: Signed[DataT]) -> Address | None:
    return recover(signed.payload.digest(book.deployment.verification_domain), signed.signature)


def _is_verifier(book: SimulatedBook, signer: Address | None) -> bool:
    return any(signer == seat.signer for seat in book.audits.seats)


# Held pay.


def _return_held(book: SimulatedBook, lease: LeaseKey) -> None:
    row = _held(book, lease)
    _require(row.ended_at != 0, "LeaseBook_WrongStatus")
    _require(book.now > row.ended_at + _windows(book).commit, "LeaseBook_TooEarly")
    amount = row.amount + row.audit
    book.audits.clear(lease)
    book.accounts[row.buyer].cash += amount
    book.log.append(HeldReturned(lease=lease, amount=TokenAmount(amount), at=book.now))


def _held(book: SimulatedBook, lease: LeaseKey) -> HeldRow:
    row = book.audits.of(lease)
    if row is None or row.amount == 0:
        raise Revert("LeaseBook_NothingHeld")
    return row


def _commit(book: SimulatedBook, call: CommitBatch) -> None:
    body, signer = call.commit.payload, _signer(book, call.commit)
    lease = LeaseKey(provider=body.provider, index=body.index, seq=body.seq)
    _require(0 < body.n <= SEGMENTS_MAX and any(body.root.raw), "Verification_BadBatch")
    is_node = signer is not None and (
        signer == lease.provider
        or book.keys.may_sign(lease.provider, signer, KeyRole.NODE, book.now)
    )
    _require(is_node, "Verification_BadCommit")
    key = lease, body.batch_no
    _require(key not in book.audits.batches, "Verification_WrongState")
    row = _held(book, lease)
    _require(body.batch_no == row.next_batch, "LeaseBook_WrongBatch")
    is_late = row.ended_at and book.now > row.ended_at + _windows(book).commit
    _require(not is_late, "LeaseBook_TooLate")
    machine, unit = book.machines[lease.machine], book.deployment.bond_unit.value
    value, audit = row.amount, row.needed
    locked = -(-value * -(-_FINE_TIMES // body.n) // unit) * unit
    _require(machine.free_bond >= locked, "LeaseBook_BondTooLow")
    if row.ended_at:
        book.audits.clear(lease)
    else:
        row.amount, row.audit, row.next_batch = 0, row.audit - audit, row.next_batch + 1
    machine.locked += locked
    book.audits.batches[key] = BatchRow(
        buyer=row.buyer,
        market_id=row.market_id,
        root=body.root,
        n=body.n,
        value=value,
        left=value,
        audit=audit,
        locked=locked,
        number=len(book.audits.batches),
        block=book.audits.block,
        at=book.now,
    )
    book.log.append(
        BatchCommitted(
            lease=lease,
            batch_no=body.batch_no,
            root=body.root,
            n=body.n,
            value=TokenAmount(value),
            locked=TokenAmount(locked),
            at=book.now,
            block=book.audits.block,
        )
    )


# Draws.


def _reveal(book: SimulatedBook, call: RevealPreimage) -> None:
    row = _batch(book, call.lease, call.batch_no)
    _require(row.state is BatchState.COMMITTED, "Verification_WrongState")
    age = book.audits.block - row.block
    _require(_REVEAL_FROM <= age <= _REVEAL_UNTIL, "Verification_WrongBlock")
    block_hash = book.audits.block_hash(row.block + 1)
    if block_hash is None:
        raise Revert("Verification_NoBlockHash")
    _use_preimage(book, row.number, call.preimage)
    key = batch_key(call.lease, call.batch_no)
    _draw(book, call, row, seed_of(block_hash, call.preimage, row.root, key))


def _fall_back(book: SimulatedBook, call: FallbackSeed) -> None:
    row = _batch(book, call.lease, call.batch_no)
    _require(row.state is BatchState.COMMITTED, "Verification_WrongState")
    age = book.audits.block - row.block
    _require(age > _REVEAL_UNTIL, "Verification_WrongBlock")
    block_hash = book.audits.block_hash(row.block + 1)
    if block_hash is None or age - 1 > _HISTORY:
        raise Revert("Verification_NoBlockHash")
    key = batch_key(call.lease, call.batch_no)
    _draw(book, call, row, keccak256(block_hash.raw + row.root.raw + key.raw))


def _use_preimage(book: SimulatedBook, number: int, preimage: Digest) -> None:
    seats, place = book.audits.seats, number // 2 + 1
    which = number % 2
    known, position = book.audits.heads.get(which, (seats[which].anchor, 0))
    if place > position:
        found = _hashed(preimage, place - position) == known
        book.audits.heads[which] = preimage, place
    else:
        found = _hashed(known, position - place) == preimage
    _require(found, "Verification_BadPreimage")


def _hashed(value: Digest, times: int) -> Digest:
    for _ in range(times):
        value = keccak256(value.raw)
    return value


def _draw(
    book: SimulatedBook, call: RevealPreimage | FallbackSeed, row: BatchRow, seed: Digest
) -> None:
    row.state = BatchState.DRAWN
    drawn = BatchDrawn(lease=call.lease, batch_no=call.batch_no, seed=seed, at=book.now)
    book.log.append(drawn)


# Mismatches.


def _accuse(book: SimulatedBook, call: AccuseSegment) -> None:
    leaf, windows = call.leaf, _windows(book)
    row = _batch(book, leaf.lease, leaf.batch_no)
    closes_at = row.at + windows.hard_cap
    if row.state is BatchState.FINAL_UNVERIFIED:
        closes_at += windows.late_slash
    else:
        _require(row.state is BatchState.DRAWN, "Verification_WrongState")
    _require(book.now <= closes_at, "Verification_TooLate")
    hashed = leaf.hash(book.deployment.chain_id, book.deployment.verification)
    start = prove(row.root, row.n, leaf.i, Sibling(hash=hashed, weight=leaf.weight), call.proof)
    _require(start is not None, "Verification_BadProof")
    said = call.first.payload
    place = (said.provider, said.index, said.seq, said.batch_no, said.i, said.leaf)
    lease = leaf.lease
    needed = (lease.provider, lease.index, lease.seq, leaf.batch_no, leaf.i, hashed)
    is_mismatch = said.result is VerdictResult.MISMATCH and place == needed
    _require(is_mismatch, "Verification_BadVerdict")
    signers = {_signer(book, call.first), _signer(book, call.second)}
    are_both = signers == {seat.signer for seat in book.audits.seats}
    _require(are_both and call.second.payload == said, "Verification_NotVerifier")
    is_new = leaf.i not in row.accused and leaf.i not in row.settled
    _require(is_new, "Verification_WrongSegment")
    until = book.now + windows.challenge
    row.accused[leaf.i] = leaf.weight, until
    book.log.append(
        SegmentAccused(lease=lease, batch_no=leaf.batch_no, i=leaf.i, until=until, at=book.now)
    )


def _contest(book: SimulatedBook, call: ContestSegment) -> None:
    said = call.verdict.payload
    lease = LeaseKey(provider=said.provider, index=said.index, seq=said.seq)
    row = _batch(book, lease, said.batch_no)
    _require(said.i in row.accused, "Verification_WrongSegment")
    weight, until = row.accused[said.i]
    _require(book.now <= until, "Verification_TooLate")
    _require(said.result is not VerdictResult.MISMATCH, "Verification_BadVerdict")
    _require(_is_verifier(book, _signer(book, call.verdict)), "Verification_NotVerifier")
    _settle(row, said.i)
    row.contested += weight
    book.log.append(AccusationContested(lease=lease, batch_no=said.batch_no, i=said.i, at=book.now))


def _settle(row: BatchRow, i: int) -> None:
    del row.accused[i]
    row.settled.add(i)


def _convict(book: SimulatedBook, call: ConvictSegment) -> None:
    row = _batch(book, call.lease, call.batch_no)
    _require(call.i in row.accused, "Verification_WrongSegment")
    weight, until = row.accused[call.i]
    _require(book.now > until, "Verification_TooEarly")
    _settle(row, call.i)
    times = book.audits.convictions.get(call.lease, 0) + 1
    book.audits.convictions[call.lease] = times
    price = row.price(weight)
    if row.state is BatchState.FINAL_UNVERIFIED:
        refund, fine = book.slash(call.lease.machine, row.buyer, price, _FINE_TIMES * price)
    else:
        unit = book.deployment.bond_unit.value
        refund, fine = price, min(_FINE_TIMES * price, row.locked)
        freed = -(-fine // unit) * unit
        row.left, row.locked = row.left - refund, row.locked - freed
        row.is_forfeit = row.is_forfeit or times > 1
        book.accounts[row.buyer].cash += refund
        book.machines[call.lease.machine].locked -= freed
        _, fine = book.slash(call.lease.machine, row.buyer, 0, fine)
    book.log.append(
        SegmentConvicted(
            lease=call.lease,
            batch_no=call.batch_no,
            i=call.i,
            refund=TokenAmount(refund),
            fine=TokenAmount(fine),
            at=book.now,
        )
    )


# The end.


def _finalise(book: SimulatedBook, call: FinaliseBatch) -> None:
    row = _batch(book, call.lease, call.batch_no)
    audits = _ending(book, row, call.results)
    if call.results is None:
        lost, is_whole = row.price(row.contested), False
    else:
        body = call.results.payload
        named = LeaseKey(provider=body.provider, index=body.index, seq=body.seq)
        assert (named, body.batch_no) == (call.lease, call.batch_no), "the batch is the results'"
        lost = _lost(row, call)
        is_whole = not (lost or row.settled or body.incomparable)
    state = BatchState.FINAL if is_whole else BatchState.PARTIAL
    if call.results is None and not row.is_forfeit:
        state = BatchState.FINAL_UNVERIFIED
    rest, burnt = row.left - lost, 0
    if row.is_forfeit:
        rest, lost, burnt = 0, 0, row.left
    audit_pay = row.audit * rest // row.value if call.results is not None else 0
    back = lost + row.audit - audit_pay
    fee = book.share(call.lease.provider, row.market_id, rest)
    book.accounts[row.buyer].cash += back
    if audit_pay:
        book.accounts[audits].cash += audit_pay
    book.deposited -= burnt
    book.machines[call.lease.machine].locked -= row.locked
    row.state, row.left, row.audit, row.locked = state, 0, 0, 0
    book.log.append(
        BatchFinalised(
            lease=call.lease,
            batch_no=call.batch_no,
            state=state,
            provider=TokenAmount(rest - fee),
            market=TokenAmount(fee),
            audits=TokenAmount(audit_pay) if audit_pay else ZERO_TOKENS,
            buyer=TokenAmount(back),
            burnt=TokenAmount(burnt),
            at=book.now,
        )
    )


def _ending(book: SimulatedBook, row: BatchRow, results: Signed[Results] | None) -> Address:
    """Whose audits they were; zero: nobody's."""
    hard_cap, shown = _windows(book).hard_cap, row.shown_state
    is_unaudited = shown is BatchState.COMMITTED and results is None
    _require(shown is BatchState.DRAWN or is_unaudited, "Verification_WrongState")
    if results is None:
        _require(book.now >= row.at + hard_cap, "Verification_TooEarly")
        return ZERO_ADDRESS
    signer, seats = _signer(book, results), book.audits.seats
    own, other = seats[row.number % 2], seats[(row.number + 1) % 2]
    if signer == own.signer:
        return own.audits
    is_late = book.now >= row.at + hard_cap // 2
    _require(signer == other.signer and is_late, "Verification_NotVerifier")
    return other.audits


def _lost(row: BatchRow, call: FinaliseBatch) -> int:
    assert call.results is not None
    bits = call.results.payload.incomparable
    _require(not bits >> row.n, "Verification_WrongSegment")
    bad = {i for i in range(row.n) if bits >> i & 1}
    if len(bad | row.settled) == row.n:
        return row.left
    weight, shown = row.contested, iter(call.openings)
    for i in sorted(bad - row.settled):
        opened = next(shown, None)
        if opened is None or opened.i != i:
            raise Revert("Verification_NotShown")
        sibling = Sibling(hash=opened.leaf, weight=opened.weight)
        start = prove(row.root, row.n, i, sibling, opened.proof)
        _require(start is not None, "Verification_BadProof")
        weight += opened.weight
    return row.price(weight)
