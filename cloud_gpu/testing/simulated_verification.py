"""Verification's calls on a `SimulatedBook`, with the checks and the money of Verification.sol."""

from __future__ import annotations

from typing import Final, assert_never

from cloud_gpu.protocol.audit import SEGMENTS_MAX, BatchState, Results, batch_key, seed_of
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    AuditCall,
    ChallengeLeaf,
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    ConvictSilence,
    Draw,
    Ending,
    FallbackSeed,
    FinaliseBatches,
    OpenLeaf,
    ReturnHeld,
    RevealPreimages,
)
from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    HeldReturned,
)
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest, keccak256
from cloud_gpu.testing.simulated_audits import BatchRow, HeldRow
from cloud_gpu.testing.simulated_book import Revert, SimulatedBook
from cloud_gpu.testing.simulated_disputes import (
    FINE_TIMES,
    batch_of,
    carry_out_dispute,
    require,
    require_proof,
    signer_of,
    windows_of,
)

_REVEAL_FROM: Final = 2
_REVEAL_UNTIL: Final = 256
_HISTORY: Final = 8_191
"""Blocks whose hashes EIP-2935 keeps."""


def carry_out_audit(book: SimulatedBook, sender: Address, call: AuditCall) -> None:
    """Apply one call. Raises `Revert`; then the caller puts the book back as it was."""
    if book.deployment.verification.is_zero:
        raise Revert("LeaseBook_NothingHeld")
    match call:
        case CommitBatch():
            _commit(book, call)
        case RevealPreimages(draws=draws):
            for draw in draws:
                _reveal(book, draw)
        case FallbackSeed():
            _fall_back(book, call)
        case (
            AccuseSegment()
            | ContestSegment()
            | ConvictSegment()
            | ChallengeLeaf()
            | OpenLeaf()
            | ConvictSilence()
        ):
            carry_out_dispute(book, sender, call)
        case FinaliseBatches(endings=endings):
            for ending in endings:
                _finalise(book, ending)
        case ReturnHeld():
            _return_held(book, call.lease)
        case _:
            assert_never(call)


# Held pay.


def _return_held(book: SimulatedBook, lease: LeaseKey) -> None:
    row = _held(book, lease)
    require(row.ended_at != 0, "LeaseBook_WrongStatus")
    require(book.now > row.ended_at + windows_of(book).commit, "LeaseBook_TooEarly")
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
    body, signer = call.commit.payload, signer_of(book, call.commit)
    lease = LeaseKey(provider=body.provider, index=body.index, seq=body.seq)
    require(0 < body.n <= SEGMENTS_MAX and any(body.root.raw), "Verification_BadBatch")
    is_node = signer is not None and (
        signer == lease.provider
        or book.keys.may_sign(lease.provider, signer, KeyRole.NODE, book.now)
    )
    require(is_node, "LeaseBook_NotOwner")
    require(lease.provider not in book.audits.barred, "LeaseBook_Barred")
    key = lease, body.batch_no
    require(key not in book.audits.batches, "Verification_WrongState")
    row = _held(book, lease)
    require(body.batch_no == row.next_batch, "LeaseBook_WrongBatch")
    is_late = row.ended_at and book.now > row.ended_at + windows_of(book).commit
    require(not is_late, "LeaseBook_TooLate")
    machine, unit = book.machines[lease.machine], book.deployment.bond_unit.value
    value, audit = row.amount, row.needed
    locked = -(-value * -(-FINE_TIMES // body.n) // unit) * unit
    require(machine.free_bond >= locked, "LeaseBook_BondTooLow")
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


def _reveal(book: SimulatedBook, call: Draw) -> None:
    row = batch_of(book, call.lease, call.batch_no)
    if row.state is not BatchState.COMMITTED:
        return  # somebody was faster
    age = book.audits.block - row.block
    require(_REVEAL_FROM <= age <= _REVEAL_UNTIL, "Verification_WrongBlock")
    block_hash = book.audits.block_hash(row.block + 1)
    if block_hash is None:
        raise Revert("Verification_NoBlockHash")
    _use_preimage(book, row.number, call.preimage)
    key = batch_key(call.lease, call.batch_no)
    _draw(book, call, row, seed_of(block_hash, call.preimage, row.root, key))


def _fall_back(book: SimulatedBook, call: FallbackSeed) -> None:
    row = batch_of(book, call.lease, call.batch_no)
    require(row.state is BatchState.COMMITTED, "Verification_WrongState")
    age = book.audits.block - row.block
    require(age > _REVEAL_UNTIL, "Verification_WrongBlock")
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
    require(found, "Verification_BadPreimage")


def _hashed(value: Digest, times: int) -> Digest:
    for _ in range(times):
        value = keccak256(value.raw)
    return value


def _draw(book: SimulatedBook, call: Draw | FallbackSeed, row: BatchRow, seed: Digest) -> None:
    row.state, row.seed = BatchState.DRAWN, seed
    drawn = BatchDrawn(lease=call.lease, batch_no=call.batch_no, seed=seed, at=book.now)
    book.log.append(drawn)


# The end.


def _finalise(book: SimulatedBook, call: Ending) -> None:
    row = batch_of(book, call.lease, call.batch_no)
    if row.has_ended:
        return  # somebody was faster
    audits, is_whole, lost = _ending(book, row, call.results), False, 0
    if call.results is not None:
        body = call.results.payload
        named = LeaseKey(provider=body.provider, index=body.index, seq=body.seq)
        assert (named, body.batch_no) == (call.lease, call.batch_no), "the batch is the results'"
        is_whole = not (row.settled or row.returned or body.incomparable)
        lost = _lost(row, call)
    state = BatchState.FINAL if is_whole else BatchState.PARTIAL
    if call.results is None and not row.is_forfeit:
        state = BatchState.FINAL_UNVERIFIED
    left = row.left
    price = row.give_back(lost)
    rest, burnt = left - price, 0
    if row.is_forfeit:
        rest, burnt = 0, rest
    audit_pay = row.audit * rest // row.value if call.results is not None else 0
    back = price + row.audit - audit_pay
    fee = book.share(call.lease.provider, row.market_id, rest)
    book.accounts[row.buyer].cash += back
    if audit_pay:
        book.accounts[audits].cash += audit_pay
    book.deposited -= burnt
    book.machines[call.lease.machine].locked -= row.locked
    row.state, row.audit, row.locked = state, 0, 0
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
    hard_cap = windows_of(book).hard_cap
    require(not row.accused, "Verification_WrongState")
    require(not row.open, "Verification_Challenged")
    if results is None:
        require(book.now >= row.at + hard_cap, "Verification_TooEarly")
        return ZERO_ADDRESS
    require(row.state is BatchState.DRAWN, "Verification_WrongState")
    signer, seats = signer_of(book, results), book.audits.seats
    own, other = seats[row.number % 2], seats[(row.number + 1) % 2]
    if signer == own.signer:
        return own.audits
    is_late = book.now >= row.at + hard_cap // 2
    require(signer == other.signer and is_late, "Verification_NotVerifier")
    return other.audits


def _lost(row: BatchRow, call: Ending) -> int:
    """The weight of what is incomparable; what is settled went back already."""
    assert call.results is not None
    bits = call.results.payload.incomparable
    require(not bits >> row.n, "Verification_WrongSegment")
    if row.is_forfeit:
        return 0
    bad = {i for i in range(row.n) if bits >> i & 1}
    if len(bad | row.settled) == row.n:
        return 10**6
    weight, shown = 0, iter(call.openings)
    for i in sorted(bad - row.settled):
        opened = next(shown, None)
        if opened is None or opened.i != i:
            raise Revert("Verification_NotShown")
        require_proof(row, i, opened.leaf, opened.weight, opened.proof)
        weight += opened.weight
    return weight
