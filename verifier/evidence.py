"""Whether what a node shows of a batch is what it committed to, and what it says of it is so.

Everything is held to the root on chain: leaves to the tree, a job and its result to the leaf,
signatures to the buyer and the provider, weights to the GPU-seconds that the result says. It
returns a `Rejection` in words and never raises for what a node sent.
"""

from __future__ import annotations

from cloud_gpu.protocol.audit import BatchOutline, Evidence, Sibling, prove
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import KeyRing, KeyRole
from cloud_gpu.protocol.signing import verify_statement
from cloud_gpu.protocol.units import unix_seconds
from cloud_gpu.protocol.values import Address
from verifier.ledger import BatchOnChain


def check_outline(outline: BatchOutline, batch: BatchOnChain) -> Rejection | None:
    """None when the outline's leaves and weights are those under the committed root.

    Rejects: MALFORMED.
    """
    if (outline.lease, outline.batch_no) != (batch.lease, batch.batch_no):
        return _wrong("outline.lease", f"{outline.lease}#{outline.batch_no}", f"{batch}")
    if len(outline.segments) != batch.n:
        return _wrong("outline.segments", str(len(outline.segments)), str(batch.n))
    if outline.root != batch.root:
        return _wrong("outline.root", str(outline.root), str(batch.root))
    return None


def check_evidence(
    evidence: Evidence,
    batch: BatchOnChain,
    i: int,
    *,
    deployment: Deployment,
    buyer: Address,
    keys: KeyRing,
    outline: BatchOutline | None = None,
) -> Rejection | None:
    """None when the evidence opens leaf i of the batch and everything in it is signed.

    Rejects: MALFORMED, BAD_SIGNATURE, KEY_NOT_AUTHORISED, EXPIRED.
    """
    leaf = evidence.leaf
    if (leaf.lease, leaf.batch_no, leaf.i) != (batch.lease, batch.batch_no, i):
        return _wrong("leaf", f"{leaf.lease}#{leaf.batch_no}/{leaf.i}", f"{batch}/{i}")
    hashed = leaf.hash(deployment.chain_id, deployment.verification)
    sibling = Sibling(hash=hashed, weight=leaf.weight)
    if prove(batch.root, batch.n, i, sibling, evidence.proof) is None:
        return _wrong("proof", "a path that does not lead to the root", str(batch.root))
    return (
        _bindings(evidence)
        or _signatures(evidence, deployment, buyer, keys)
        or (_stated(evidence, outline, i) if outline is not None else None)
    )


def _bindings(evidence: Evidence) -> Rejection | None:
    """The leaf names this job and this result, both of this lease."""
    leaf, spec, result = evidence.leaf, evidence.spec.body, evidence.result.body
    for what, found, needed in (
        ("leaf.job", leaf.job, spec.id),
        ("leaf.result", leaf.result, result.digest),
        ("result.job", result.job, spec.id),
        ("spec.lease", spec.lease, leaf.lease),
        ("result.lease", result.lease, leaf.lease),
    ):
        if found != needed:
            return _wrong(what, str(found), str(needed))
    return None


def _signatures(
    evidence: Evidence, deployment: Deployment, buyer: Address, keys: KeyRing
) -> Rejection | None:
    """The buyer's side asked for it, and the provider's node answered.

    Each at its own time: a session key may have expired since.
    """
    provider, result = evidence.leaf.lease.provider, evidence.result
    return verify_statement(
        evidence.spec,
        deployment.domain,
        account=buyer,
        keys=keys,
        role=KeyRole.SESSION,
        at=unix_seconds(result.body.started_at),
    ) or verify_statement(
        result,
        deployment.domain,
        account=provider,
        keys=keys,
        role=KeyRole.NODE,
        at=unix_seconds(result.body.ended_at),
    )


def _stated(evidence: Evidence, outline: BatchOutline, i: int) -> Rejection | None:
    """The outline said of this segment what its signed parts say."""
    stated, used = outline.segments[i], evidence.result.body.used
    if stated.used != used:
        return _wrong("outline.used", str(stated.used.value), str(used.value))
    if stated.image != evidence.spec.body.image:
        return _wrong("outline.image", stated.image[:80], evidence.spec.body.image[:80])
    if outline.weights[i] != evidence.leaf.weight:
        return _wrong("leaf.weight", str(evidence.leaf.weight), str(outline.weights[i]))
    return None


def _wrong(field: str, found: str, needed: str) -> Rejection:
    return Rejection(
        reason=RejectReason.MALFORMED,
        field=field,
        found=found[:160],
        needed=needed[:160],
        next="Show what was committed to.",
    )
