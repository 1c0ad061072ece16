"""Checks somebody's audit of a batch again, from the chain's events and the published record.

It trusts no verifier: root, draw, proofs, signatures and verdicts are recomputed; what was re-run
is a verifier's word, and says by whom.
"""

from __future__ import annotations

from collections.abc import Iterator

from cloud_gpu.protocol.audit import VerdictResult
from cloud_gpu.protocol.audit_messages import AuditRecord
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.signing import Verified, verify
from cloud_gpu.protocol.values import Value
from verifier.draw import Stakes, Trust, drawn
from verifier.evidence import check_evidence, check_outline
from verifier.ledger import BatchOnChain, Ledger
from verifier.referee import check_verdict


class Check(Value, frozen=True, kw_only=True):
    """One thing that was recomputed."""

    what: str
    ok: bool
    detail: str


def check_record(record: AuditRecord, ledger: Ledger, deployment: Deployment) -> tuple[Check, ...]:
    """Everything that can be recomputed of a record, in the order of the protocol."""
    batch = ledger.batches.get((record.lease, record.batch_no))
    if batch is None:
        name = f"{record.lease}#{record.batch_no}"
        return (Check(what="batch", ok=False, detail=f"{name} was never committed"),)
    return (
        Check(what="batch", ok=True, detail=f"{batch}: {batch.n} segments, {batch.state}"),
        *_draw(record, batch),
        *_evidence(record, batch, ledger, deployment),
        *_verdicts(record, batch, deployment),
        *_results(record, batch, deployment),
    )


def _draw(record: AuditRecord, batch: BatchOnChain) -> Iterator[Check]:
    yield _same("root", record.root, batch.root)
    yield _same("seed", record.seed, batch.seed)
    yield _same("trust", record.passed.value, batch.passed.value)
    if record.outline is None or batch.seed is None:
        yield Check(what="outline", ok=False, detail="the record has none")
        return
    rejection = check_outline(record.outline, batch)
    yield Check(what="outline", ok=rejection is None, detail=str(rejection or "has the root"))
    if rejection is not None:
        return
    stakes = Stakes(value=batch.value, locked=batch.locked)
    trust = Trust(
        passed=batch.passed,
        on_probation=batch.on_probation,
        images=frozenset(record.known_images),
    )
    chosen = drawn(batch.seed, record.outline, stakes, trust)
    yield _same("draw", list(record.drawn), list(chosen))


def _evidence(
    record: AuditRecord, batch: BatchOnChain, ledger: Ledger, deployment: Deployment
) -> Iterator[Check]:
    buyer, outline = ledger.buyer_of(batch.lease), record.outline
    if outline is not None and check_outline(outline, batch) is not None:
        outline = None  # said above; the evidence has a proof of its own
    for evidence in record.evidence:
        i, what = evidence.leaf.i, f"evidence {evidence.leaf.i}"
        if buyer is None or i not in record.drawn:
            yield Check(what=what, ok=False, detail="of no drawn segment of a known lease")
            continue
        rejection = check_evidence(
            evidence,
            batch,
            i,
            deployment=deployment,
            buyer=buyer,
            keys=ledger,
            outline=outline,
        )
        yield Check(what=what, ok=rejection is None, detail=str(rejection or "proved and signed"))
    shown = {evidence.leaf.i for evidence in record.evidence}
    for i in sorted(set(record.drawn) - shown):
        yield Check(what=f"evidence {i}", ok=True, detail="the node has not shown any")


def _verdicts(record: AuditRecord, batch: BatchOnChain, deployment: Deployment) -> Iterator[Check]:
    mismatches: dict[int, set[tuple[str, str]]] = {}
    for signed in record.verdicts:
        found = check_verdict(signed, deployment, batch.committed_at)
        said = signed.payload
        detail = str(found)
        if isinstance(found, Verified):
            detail = f"{said.result.name.lower()} by {found.signer}"
            if said.result is VerdictResult.MISMATCH:
                words = str(said.struct_hash())
                mismatches.setdefault(said.i, set()).add((words, str(found.signer)))
        yield Check(what=f"verdict {said.i}", ok=isinstance(found, Verified), detail=detail)
    for i in sorted(batch.convicted):
        pairs = mismatches.get(i, set())
        is_agreed = len({words for words, _ in pairs}) == 1 and len(pairs) == 2
        detail = "two equal verdicts" if is_agreed else "without two equal verdicts here"
        yield Check(what=f"conviction {i}", ok=is_agreed, detail=detail)


def _results(record: AuditRecord, batch: BatchOnChain, deployment: Deployment) -> Iterator[Check]:
    if record.results is None:
        yield Check(what="results", ok=True, detail="none signed")
        return
    signers = [
        account
        for account in deployment.verifiers
        if isinstance(
            verify(
                record.results,
                deployment.verification_domain,
                account=account,
                keys=NoDelegates(),
                at=batch.committed_at,
            ),
            Verified,
        )
    ]
    bits = record.results.payload.incomparable
    bad = [i for i in range(batch.n) if bits >> i & 1]
    is_drawn = set(bad) <= set(record.drawn) and bits >> batch.n == 0
    detail = f"by {signers[0] if signers else 'nobody known'}; inconclusive: {bad or 'none'}"
    yield Check(what="results", ok=bool(signers) and is_drawn, detail=detail)


def _same(what: str, found: object, needed: object) -> Check:
    is_same = found == needed
    detail = str(found) if is_same else f"found {found}, needed {needed}"
    return Check(what=what, ok=is_same, detail=detail)
