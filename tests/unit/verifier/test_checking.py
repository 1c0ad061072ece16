"""An audit checked again by somebody who trusts no verifier."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.audit import Results
from cloud_gpu.protocol.audit_messages import AuditRecord
from cloud_gpu.protocol.chain_events import ChainEvent, SegmentConvicted
from cloud_gpu.protocol.signing import Signed, sign
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from tests.unit.verifier.builders import (
    DEPLOYMENT,
    FIRST,
    SECOND,
    T0,
    Batch,
    Work,
    block,
    digest,
    key,
    opened,
    verdict_of,
    world_events,
)
from verifier.checking import check_record
from verifier.draw import Stakes, Trust, drawn
from verifier.ledger import Ledger

BATCH = Batch("accused", [Work(number=i + 1, used=10 + i) for i in range(6)])


def ledger_of(*events: ChainEvent) -> Ledger:
    ledger = Ledger()
    before = (*world_events("accused"), opened(BATCH.lease), BATCH.committed(), BATCH.drawn())
    for event in (*before, *events, block(70)):
        ledger.apply(event)
    return ledger


def results(incomparable: int, signer: str = "first verifier") -> Signed[Results]:
    lease = BATCH.lease
    body = Results(
        provider=lease.provider,
        index=lease.index,
        seq=lease.seq,
        batch_no=0,
        incomparable=incomparable,
    )
    return sign(body, DEPLOYMENT.verification_domain, key(signer))


def honest() -> AuditRecord:
    committed = BATCH.committed()
    chosen = drawn(
        digest("seed"),
        BATCH.outline,
        Stakes(value=committed.value, locked=committed.locked),
        Trust(passed=ZERO_TOKENS),
    )
    return AuditRecord(
        lease=BATCH.lease,
        batch_no=0,
        root=BATCH.tree.root,
        seed=digest("seed"),
        passed=ZERO_TOKENS,
        known_images=(),
        outline=BATCH.outline,
        drawn=chosen,
        evidence=tuple(BATCH.evidence(i) for i in chosen),
        results=results(0),
    )


def bad(record: AuditRecord, *events: ChainEvent) -> list[str]:
    return [c.what for c in check_record(record, ledger_of(*events), DEPLOYMENT) if not c.ok]


def test_an_honest_record_holds() -> None:
    record = honest()
    assert 0 < len(record.drawn) < 6
    assert bad(record) == []


def not_drawn() -> int:
    return next(i for i in range(6) if i not in honest().drawn)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"root": digest("x")}, ["root"]),
        ({"seed": digest("x")}, ["seed"]),
        ({"passed": TokenAmount(5)}, ["trust"]),
        ({"outline": None}, ["outline"]),
        ({"outline": Batch("accused", [Work()]).outline}, ["outline"]),
        ({"batch_no": 1}, ["batch"]),
        ({"results": results(0, "stranger")}, ["results"]),
        ({"results": results(1 << not_drawn())}, ["results"]),
        ({"results": results(1 << 50)}, ["results"]),
        ({"verdicts": (verdict_of(BATCH, 0, key("stranger")),)}, ["verdict 0"]),
    ],
)
def test_each_altered_part_is_named(change: dict[str, object], named: list[str]) -> None:
    found = bad(replace(honest(), **change))
    assert found[: len(named)] == named


def test_a_draw_that_leaves_one_out_or_adds_one_is_named() -> None:
    record = honest()
    assert "draw" in bad(replace(record, drawn=record.drawn[1:]))
    more = tuple(sorted({*record.drawn, not_drawn()}))
    assert bad(replace(record, drawn=more)) == ["draw"]


def test_forged_evidence_is_named() -> None:
    record = honest()
    first = record.evidence[0]
    forged = replace(first, leaf=replace(first.leaf, salt=digest("x")))
    i = first.leaf.i
    assert bad(replace(record, evidence=(forged, *record.evidence[1:]))) == [f"evidence {i}"]


def test_a_conviction_needs_two_equal_verdicts_in_the_record() -> None:
    i = honest().drawn[0]
    convicted = SegmentConvicted(
        lease=BATCH.lease,
        batch_no=0,
        i=i,
        refund=ZERO_TOKENS,
        fine=ZERO_TOKENS,
        bounty=ZERO_TOKENS,
        at=T0 + 70,
    )
    both = (verdict_of(BATCH, i, FIRST), verdict_of(BATCH, i, SECOND))
    assert bad(replace(honest(), verdicts=both), convicted) == []
    assert bad(replace(honest(), verdicts=both[:1]), convicted) == [f"conviction {i}"]
    assert bad(replace(honest(), verdicts=(both[0], both[0])), convicted) == [f"conviction {i}"]
