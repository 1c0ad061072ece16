"""Two equal verdicts of two verifiers convict; nothing else does."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.audit import Verdict, VerdictResult
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.signing import Signed, Verified
from tests.unit.verifier.builders import (
    DEPLOYMENT,
    FIRST,
    SECOND,
    T0,
    Batch,
    Work,
    content_of,
    file,
    key,
    verdict_of,
)
from verifier.referee import Ruling, check_verdict, rule

BATCH = Batch("provider", [Work(), Work(number=2)])


def checked(signed: Signed[Verdict]) -> Verified[Verdict]:
    found = check_verdict(signed, DEPLOYMENT, T0)
    assert isinstance(found, Verified)
    return found


def test_two_equal_mismatches_are_a_fault() -> None:
    first, second = verdict_of(BATCH, 0, FIRST), verdict_of(BATCH, 0, SECOND)
    assert rule(checked(first), checked(second)) is Ruling.FAULT


def test_one_verifier_alone_convicts_nobody() -> None:
    first = verdict_of(BATCH, 0, FIRST)
    assert rule(checked(first), checked(first)) is Ruling.INCONCLUSIVE


@pytest.mark.parametrize(
    "second",
    [
        verdict_of(BATCH, 1, SECOND),
        verdict_of(BATCH, 0, SECOND, VerdictResult.MATCH),
        verdict_of(BATCH, 0, SECOND, VerdictResult.INCOMPARABLE),
        verdict_of(BATCH, 0, SECOND, replayed=content_of(file("a", b"else"))),
        verdict_of(Batch("provider", [Work(), Work(number=2)], seq=2), 0, SECOND),
    ],
)
def test_verdicts_that_differ_are_inconclusive(second: Signed[Verdict]) -> None:
    first = verdict_of(BATCH, 0, FIRST)
    assert rule(checked(first), checked(second)) is Ruling.INCONCLUSIVE


def test_two_equal_matches_are_no_fault() -> None:
    one, other = (verdict_of(BATCH, 0, signer, VerdictResult.MATCH) for signer in (FIRST, SECOND))
    assert rule(checked(one), checked(other)) is Ruling.HONEST


def test_two_that_cannot_tell_convict_nobody() -> None:
    one, other = (
        verdict_of(BATCH, 0, signer, VerdictResult.INCOMPARABLE) for signer in (FIRST, SECOND)
    )
    assert rule(checked(one), checked(other)) is Ruling.INCONCLUSIVE


def test_a_strangers_verdict_is_none() -> None:
    assert isinstance(
        check_verdict(verdict_of(BATCH, 0, key("stranger")), DEPLOYMENT, T0), Rejection
    )
