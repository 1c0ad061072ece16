"""Verification in Python: calls as calldata, logs as chain events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

from cloud_gpu.protocol import chain_events as events
from cloud_gpu.protocol.adapters.bindings import verification as bound
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.audit import BatchState, Commit, Leaf, Opening, Sibling, Verdict
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    ChallengeLeaf,
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    ConvictSilence,
    Ending,
    FallbackSeed,
    FinaliseBatches,
    OpenLeaf,
    RevealPreimages,
)
from cloud_gpu.protocol.lease import LeaseKey, MachineKey
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest

VerificationCall = (
    CommitBatch
    | RevealPreimages
    | FallbackSeed
    | AccuseSegment
    | ContestSegment
    | ConvictSegment
    | ChallengeLeaf
    | OpenLeaf
    | ConvictSilence
    | FinaliseBatches
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
        case RevealPreimages(draws=draws):
            names = tuple(bound.BatchId(*_batch(draw.lease, draw.batch_no)) for draw in draws)
            return bound.reveal(names, tuple(draw.preimage.raw for draw in draws))
        case FallbackSeed():
            return bound.fallback_seed(*_batch(call.lease, call.batch_no))
        case AccuseSegment(first=first, second=second):
            signatures = (first.signature.raw, second.signature.raw)
            verdict = _verdict(first.payload)
            return bound.accuse(_leaf(call.leaf), _proof(call.proof), verdict, *signatures)
        case ContestSegment(verdict=signed):
            verdict, opening = _verdict(signed.payload), _opening(call.opening)
            return bound.contest(verdict, signed.signature.raw, opening)
        case ConvictSegment():
            return bound.convict(*_batch(call.lease, call.batch_no), _opening(call.opening))
        case ChallengeLeaf():
            return bound.challenge(*_batch(call.lease, call.batch_no), call.j, call.m)
        case OpenLeaf():
            return bound.open_leaf(call.j, _leaf(call.leaf), _proof(call.proof))
        case ConvictSilence():
            return bound.convict_silent(*_batch(call.lease, call.batch_no), call.j)
        case FinaliseBatches(endings=endings):
            return bound.finalize(tuple(_ending(ending) for ending in endings))
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


def _opening(opened: Opening) -> bound.Opening:
    return bound.Opening(opened.i, opened.leaf.raw, opened.weight, _proof(opened.proof))


def _ending(ending: Ending) -> bound.Ending:
    incomparable, signature = 0, b""
    if ending.results is not None:
        incomparable = ending.results.payload.incomparable
        signature = ending.results.signature.raw
    openings = tuple(_opening(opened) for opened in ending.openings)
    results = bound.Results(*_batch(ending.lease, ending.batch_no), incomparable)
    return bound.Ending(results, openings, signature)


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
            opening = _shown(bound.Opening.of(a["opening"]))
            return events.SegmentAccused(
                lease=lease, batch_no=batch_no, until=a["until"], opening=opening, at=at
            )
        case "AccusationContested":
            refund = TokenAmount(a["refund"])
            return events.AccusationContested(
                lease=lease, batch_no=batch_no, i=a["i"], refund=refund, at=at
            )
        case "SegmentConvicted":
            return events.SegmentConvicted(
                lease=lease,
                batch_no=batch_no,
                i=a["i"],
                refund=TokenAmount(a["refund"]),
                fine=TokenAmount(a["fine"]),
                bounty=TokenAmount(a["bounty"]),
                at=at,
            )
        case "BatchFinalised":
            return _finalised(lease, batch_no, a, at)
        case _:
            return _of_a_point(name, lease, batch_no, a, at)


def _shown(row: bound.Opening) -> Opening:
    proof = tuple(Sibling(hash=Digest(step.hash), weight=step.weight) for step in row.proof)
    return Opening(i=row.i, leaf=Digest(row.leaf), weight=row.weight, proof=proof)


def _of_a_point(
    name: str, lease: LeaseKey, batch_no: int, a: dict[str, Any], at: int
) -> events.ChainEvent | None:
    match name:
        case "LeafChallenged":
            return events.LeafChallenged(
                lease=lease, batch_no=batch_no, j=a["j"], m=a["m"], until=a["until"], at=at
            )
        case "LeafOpened":
            return events.LeafOpened(
                lease=lease,
                batch_no=batch_no,
                j=a["j"],
                i=a["i"],
                job=Digest(a["job"]),
                result=Digest(a["result"]),
                salt=Digest(a["salt"]),
                at=at,
            )
        case "SilenceConvicted":
            return events.SilenceConvicted(
                lease=lease,
                batch_no=batch_no,
                j=a["j"],
                refund=TokenAmount(a["refund"]),
                fine=TokenAmount(a["fine"]),
                at=at,
            )
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
