"""Verification in Python: calls as calldata, logs as chain events."""

from __future__ import annotations

from typing import Any, Final, assert_never

from cloud_gpu.protocol import chain_events as events
from cloud_gpu.protocol.adapters.evm_abi import verification
from cloud_gpu.protocol.audit import BatchState, Commit, Leaf, Results, Verdict
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    FallbackSeed,
    FinaliseBatch,
    RevealPreimage,
)
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest

VerificationCall = (
    CommitBatch
    | RevealPreimage
    | FallbackSeed
    | AccuseSegment
    | ContestSegment
    | ConvictSegment
    | FinaliseBatch
)
"""Calls of this contract; `ReturnHeld` is LeaseBook's."""

BATCH_STATES: Final = (
    None,
    BatchState.COMMITTED,
    BatchState.DRAWN,
    BatchState.ACCUSED,
    BatchState.FINAL,
    BatchState.PARTIAL,
    BatchState.FINAL_UNVERIFIED,
    BatchState.SLASHED,
)
"""By their number in Audits.sol; None: there is no such batch."""


def audit_calldata(call: VerificationCall) -> bytes:
    """The bytes that make Verification do it."""
    encode = verification().encode
    match call:
        case CommitBatch(commit=commit):
            return encode("commitBatch", _commit(commit.payload), commit.signature)
        case RevealPreimage():
            return encode("reveal", *_batch(call.lease, call.batch_no), call.preimage)
        case FallbackSeed():
            return encode("fallbackSeed", *_batch(call.lease, call.batch_no))
        case AccuseSegment(first=first, second=second):
            proof = [(step.hash, step.weight) for step in call.proof]
            verdict, signatures = _verdict(first.payload), (first.signature, second.signature)
            return encode("accuse", _leaf(call.leaf), proof, verdict, *signatures)
        case ContestSegment(verdict=signed):
            return encode("contest", _verdict(signed.payload), signed.signature)
        case ConvictSegment():
            return encode("convict", *_batch(call.lease, call.batch_no), call.i)
        case FinaliseBatch():
            return encode("finalize", *_ending(call))
        case _:
            assert_never(call)


def _batch(lease: LeaseKey, batch_no: int) -> tuple[Any, ...]:
    return lease.provider, lease.index, lease.seq, batch_no


def _commit(commit: Commit) -> tuple[Any, ...]:
    place = (commit.provider, commit.index, commit.seq, commit.batch_no)
    return (*place, commit.root, commit.n)


def _verdict(said: Verdict) -> tuple[Any, ...]:
    place = (said.provider, said.index, said.seq, said.batch_no, said.i)
    return (*place, said.leaf, said.result_digest, int(said.result))


def _leaf(leaf: Leaf) -> tuple[Any, ...]:
    place = (*_batch(leaf.lease, leaf.batch_no), leaf.i, leaf.weight)
    return (*place, leaf.job, leaf.result, leaf.salt)


def _ending(call: FinaliseBatch) -> tuple[Any, ...]:
    lease = call.lease
    said = Results(
        provider=lease.provider,
        index=lease.index,
        seq=lease.seq,
        batch_no=call.batch_no,
        incomparable=0,
    )
    if call.results is not None:
        said = call.results.payload
    openings = [
        (opened.i, opened.leaf, opened.weight, [(step.hash, step.weight) for step in opened.proof])
        for opened in call.openings
    ]
    results = (said.provider, said.index, said.seq, said.batch_no, said.incomparable)
    return results, openings, call.results.signature if call.results is not None else b""


def audit_event(name: str, a: dict[str, Any], block: int, at: int) -> events.ChainEvent | None:
    """The event of one of Verification's logs; `at` is its block's time, Unix seconds."""
    machine = MachineKey.from_word(a["machineKey"])
    lease = LeaseKey(provider=machine.provider, index=machine.index, seq=a["seq"])
    batch_no: int = a["batchNo"]
    match name:
        case "BatchCommitted":
            return events.BatchCommitted(
                lease=lease,
                batch_no=batch_no,
                root=Digest(a["root"]),
                n=a["n"],
                value=TokenAmount(a["value"]),
                locked=TokenAmount(a["locked"]),
                at=at,
                block=block,
            )
        case "BatchDrawn":
            return events.BatchDrawn(lease=lease, batch_no=batch_no, seed=Digest(a["seed"]), at=at)
        case "SegmentAccused":
            return events.SegmentAccused(
                lease=lease, batch_no=batch_no, i=a["i"], until=a["until"], at=at
            )
        case "AccusationContested":
            return events.AccusationContested(lease=lease, batch_no=batch_no, i=a["i"], at=at)
        case "SegmentConvicted":
            return events.SegmentConvicted(
                lease=lease,
                batch_no=batch_no,
                i=a["i"],
                refund=TokenAmount(a["refund"]),
                fine=TokenAmount(a["fine"]),
                at=at,
            )
        case "BatchFinalised":
            return _finalised(lease, batch_no, a, at)
        case _:
            return None


def _finalised(lease: LeaseKey, batch_no: int, a: dict[str, Any], at: int) -> events.BatchFinalised:
    state = BATCH_STATES[a["state"]]
    assert state is not None, f"a batch that ended is in no state: {a}"
    return events.BatchFinalised(
        lease=lease,
        batch_no=batch_no,
        state=state,
        provider=TokenAmount(a["provider"]),
        market=TokenAmount(a["market"]),
        audits=TokenAmount(a["audits"]),
        buyer=TokenAmount(a["buyer"]),
        burnt=TokenAmount(a["burnt"]),
        at=at,
    )
