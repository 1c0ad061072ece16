"""Whatever a node alters in what it shows is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.audit import Evidence, Sibling
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.units import GpuSeconds
from tests.unit.verifier.builders import (
    BUYER,
    DEPLOYMENT,
    SESSION,
    T0,
    Batch,
    Work,
    block,
    digest,
    key,
    node_key,
    opened,
    result_of,
    spec_of,
    world_events,
)
from verifier.evidence import check_evidence, check_outline
from verifier.ledger import BatchOnChain, Ledger

WORKS = tuple(Work(number=i + 1, used=10 + 7 * i, image=f"image-{i}") for i in range(5))


def on_chain(batch: Batch) -> tuple[Ledger, BatchOnChain]:
    ledger = Ledger()
    for event in (*world_events("honest"), opened(batch.lease), batch.committed(), block(60)):
        ledger.apply(event)
    return ledger, ledger.batches[batch.lease, 0]


def check(batch: Batch, evidence: Evidence, i: int = 2) -> Rejection | None:
    ledger, committed = on_chain(batch)
    buyer = ledger.buyer_of(batch.lease)
    assert buyer is not None
    return check_evidence(
        evidence,
        committed,
        i,
        deployment=DEPLOYMENT,
        buyer=buyer,
        keys=ledger,
        outline=batch.outline,
    )


def test_honest_evidence_of_every_leaf_passes() -> None:
    batch = Batch("honest", WORKS)
    for i in range(len(WORKS)):
        assert check(batch, batch.evidence(i), i) is None


def test_a_session_key_may_have_asked_for_the_job() -> None:
    batch = Batch("honest", WORKS)
    batch.specs[2] = spec_of(batch.lease, WORKS[2], SESSION)
    assert check(batch, batch.evidence(2)) is None


def _leaf(**change: object) -> Callable[[Evidence], Evidence]:
    return lambda evidence: replace(evidence, leaf=replace(evidence.leaf, **change))


@pytest.mark.parametrize(
    ("alter", "field"),
    [
        (_leaf(salt=digest("other")), "proof"),
        (_leaf(job=digest("other")), "proof"),
        (_leaf(result=digest("other")), "proof"),
        (_leaf(weight=1), "proof"),
        (_leaf(i=3), "leaf"),
        (_leaf(batch_no=1), "leaf"),
        (lambda evidence: replace(evidence, proof=evidence.proof[:-1]), "proof"),
        (lambda evidence: replace(evidence, proof=(*evidence.proof, evidence.proof[0])), "proof"),
        (
            lambda evidence: replace(
                evidence, proof=(Sibling(hash=digest("x"), weight=9), *evidence.proof[1:])
            ),
            "proof",
        ),
    ],
)
def test_an_altered_leaf_or_proof_does_not_lead_to_the_root(
    alter: Callable[[Evidence], Evidence], field: str
) -> None:
    batch = Batch("honest", WORKS)
    rejection = check(batch, alter(batch.evidence(2)))
    assert rejection is not None
    assert rejection.field == field


def test_another_job_than_the_committed_one_is_refused() -> None:
    batch = Batch("honest", WORKS)
    evidence = replace(batch.evidence(2), spec=batch.specs[1])
    rejection = check(batch, evidence)
    assert rejection is not None
    assert rejection.field == "leaf.job"


def test_another_result_than_the_committed_one_is_refused() -> None:
    batch = Batch("honest", WORKS)
    other = result_of(batch.specs[2], Work(number=3, outputs=()), node_key("honest"))
    rejection = check(batch, replace(batch.evidence(2), result=other))
    assert rejection is not None
    assert rejection.field == "leaf.result"


@pytest.mark.parametrize(
    ("signer", "reason"),
    [(key("stranger"), RejectReason.KEY_NOT_AUTHORISED), (BUYER, RejectReason.KEY_NOT_AUTHORISED)],
)
def test_a_result_that_the_node_did_not_sign_is_refused(
    signer: LocalKey, reason: RejectReason
) -> None:
    batch = Batch("honest", WORKS)
    result = result_of(batch.specs[2], WORKS[2], signer)
    rejection = check(batch, replace(batch.evidence(2), result=result))
    assert rejection is not None
    assert rejection.reason is reason


def test_a_job_that_no_buyer_signed_is_refused() -> None:
    batch = Batch("honest", WORKS)
    evidence = replace(batch.evidence(2), spec=spec_of(batch.lease, WORKS[2], key("stranger")))
    rejection = check(batch, evidence)
    assert rejection is not None
    assert rejection.reason is RejectReason.KEY_NOT_AUTHORISED


def test_a_weight_that_the_signed_use_does_not_give_is_a_false_statement() -> None:
    """The node outlines less use for a segment than its own result says."""
    batch = Batch("honest", WORKS)
    ledger, committed = on_chain(batch)
    segments = list(batch.outline.segments)
    segments[2] = replace(segments[2], used=GpuSeconds(1))
    rejection = check_evidence(
        batch.evidence(2),
        committed,
        2,
        deployment=DEPLOYMENT,
        buyer=BUYER.address,
        keys=ledger,
        outline=replace(batch.outline, segments=tuple(segments)),
    )
    assert rejection is not None
    assert rejection.field == "outline.used"


def test_an_image_that_the_job_does_not_name_is_a_false_statement() -> None:
    batch = Batch("honest", WORKS)
    ledger, committed = on_chain(batch)
    segments = list(batch.outline.segments)
    segments[2] = replace(segments[2], image="familiar")
    rejection = check_evidence(
        batch.evidence(2),
        committed,
        2,
        deployment=DEPLOYMENT,
        buyer=BUYER.address,
        keys=ledger,
        outline=replace(batch.outline, segments=tuple(segments)),
    )
    assert rejection is not None
    assert rejection.field == "outline.image"


def test_an_outline_must_have_the_committed_root() -> None:
    batch = Batch("honest", WORKS)
    _, committed = on_chain(batch)
    assert check_outline(batch.outline, committed) is None
    segments = batch.outline.segments
    for altered in (
        replace(batch.outline, batch_no=1),
        replace(batch.outline, segments=segments[:-1]),
        replace(batch.outline, segments=()),
        replace(batch.outline, segments=(segments[1], segments[0], *segments[2:])),
        replace(
            batch.outline, segments=(replace(segments[0], used=GpuSeconds(500)), *segments[1:])
        ),
        replace(batch.outline, segments=(replace(segments[0], leaf=digest("x")), *segments[1:])),
    ):
        assert check_outline(altered, committed) is not None


def test_a_key_that_expired_since_signed_validly_then() -> None:
    """The session key's delegation ends an hour after T0; the audit may come a day later."""
    batch = Batch("honest", [Work(used=10)])
    batch.specs[0] = spec_of(batch.lease, batch.works[0], SESSION)
    batch.results[0] = result_of(batch.specs[0], batch.works[0], node_key("honest"), at=T0 + 90)
    ledger, committed = on_chain(batch)
    ledger.apply(block(86_400))
    assert (
        check_evidence(
            batch.evidence(0),
            committed,
            0,
            deployment=DEPLOYMENT,
            buyer=BUYER.address,
            keys=ledger,
        )
        is None
    )
