"""Verification in Python: calls as calldata, logs as chain events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

from cloud_gpu.protocol import chain_events as events
from cloud_gpu.protocol.adapters.bindings import verification as bound
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.audit import BatchState, Commit, Leaf, Sibling, Verdict
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
from cloud_gpu.protocol.values import Address, Digest

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


def audit_call(call: VerificationCall) -> Call[None]:
    """The function of Verification that does it."""
    match call:
        case CommitBatch(commit=commit):
            return bound.commit_batch(_commit(commit.payload), commit.signature.raw)
        case RevealPreimage():
            return bound.reveal(*_batch(call.lease, call.batch_no), call.preimage.raw)
        case FallbackSeed():
            return bound.fallback_seed(*_batch(call.lease, call.batch_no))
        case AccuseSegment(first=first, second=second):
            signatures = (first.signature.raw, second.signature.raw)
            verdict = _verdict(first.payload)
            return bound.accuse(_leaf(call.leaf), _proof(call.proof), verdict, *signatures)
        case ContestSegment(verdict=signed):
            return bound.contest(_verdict(signed.payload), signed.signature.raw)
        case ConvictSegment():
            return bound.convict(*_batch(call.lease, call.batch_no), call.i)
        case FinaliseBatch():
            return _ending(call)
        case _:
            assert_never(call)


def _batch(lease: LeaseKey, batch_no: int) -> tuple[Address, int, int, int]:
    return lease.provider, lease.index, lease.seq, batch_no


def _commit(commit: Commit) -> bound.Commit:
    place = (commit.provider, commit.index, commit.seq, commit.batch_no)
    return bound.Commit(*place, commit.root.raw, commit.n)


def _verdict(said: Verdict) -> bound.Verdict:
    place = (said.provider, said.index, said.seq, said.batch_no, said.i)
    return bound.Verdict(*place, said.leaf.raw, said.result_digest.raw, said.result)


def _leaf(leaf: Leaf) -> bound.Leaf:
    place = (*_batch(leaf.lease, leaf.batch_no), leaf.i, leaf.weight)
    return bound.Leaf(*place, leaf.job.raw, leaf.result.raw, leaf.salt.raw)


def _proof(steps: Sequence[Sibling]) -> tuple[bound.Sibling, ...]:
    return tuple(bound.Sibling(step.hash.raw, step.weight) for step in steps)


def _ending(call: FinaliseBatch) -> Call[None]:
    incomparable, signature = 0, b""
    if call.results is not None:
        incomparable = call.results.payload.incomparable
        signature = call.results.signature.raw
    openings = tuple(
        bound.Opening(opened.i, opened.leaf.raw, opened.weight, _proof(opened.proof))
        for opened in call.openings
    )
    results = bound.Results(*_batch(call.lease, call.batch_no), incomparable)
    return bound.finalize(results, openings, signature)


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
