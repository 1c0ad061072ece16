"""How many segments are drawn, which, and what anybody can recompute of it."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.audit import BatchOutline, SegmentOutline
from cloud_gpu.protocol.units import GpuSeconds, TokenAmount
from cloud_gpu.protocol.values import keccak256
from tests.unit.verifier.builders import digest, lease_of
from verifier.draw import Preimages, Stakes, Trust, audits_in_tenths, drawn

VALUE = TokenAmount(1_000_000)
TRUSTED = Trust(passed=TokenAmount(10**12), images=frozenset({""}))


def outline(*used: int, images: tuple[str, ...] = ()) -> BatchOutline:
    names = images or ("",) * len(used)
    return BatchOutline(
        lease=lease_of("provider"),
        batch_no=0,
        segments=tuple(
            SegmentOutline(leaf=digest(f"leaf {i}"), used=GpuSeconds(each), image=names[i])
            for i, each in enumerate(used)
        ),
    )


def stakes(n: int) -> Stakes:
    return Stakes(value=VALUE, locked=TokenAmount(VALUE.value * max(1, -(-20 // n))))


@pytest.mark.parametrize(
    ("n", "k", "tenths"),
    [
        (1, 0, 1),  # one audit in ten: a x min(1, n/10) with a = n = 1
        (5, 0, 25),
        (10, 0, 100),  # a new provider's batch of ten is audited whole
        (100, 9, 1_000),
        (100, 10, 200),  # ceil(2n/k)
        (100, 40, 50),  # 5 %
        (100, 10**6, 50),
        (20, 10**6, 10),
        (5, 10**6, 5),
    ],
)
def test_audits_follow_the_table(n: int, k: int, tenths: int) -> None:
    passed = TokenAmount(VALUE.value * k // n)
    assert audits_in_tenths(n, VALUE, passed) == tenths


def test_a_trusted_batch_of_a_hundred_has_five_audits() -> None:
    chosen = drawn(digest("seed"), outline(*[30] * 100), stakes(100), TRUSTED)
    assert len(chosen) == 5
    assert list(chosen) == sorted(set(chosen))


def test_the_seed_decides_which() -> None:
    sets = {
        drawn(digest(f"seed {i}"), outline(*[30] * 100), stakes(100), TRUSTED) for i in range(20)
    }
    assert len(sets) == 20


def test_the_fraction_is_drawn_too() -> None:
    counts = [
        len(drawn(digest(f"seed {i}"), outline(*[30] * 5), stakes(5), TRUSTED))
        for i in range(1_000)
    ]
    assert set(counts) == {0, 1}
    assert 430 < sum(counts) < 570  # half, within four standard deviations and a bit


def test_points_follow_weight() -> None:
    heavy = [40, *[20] * 49]
    hits = sum(
        0 in drawn(digest(f"seed {i}"), outline(*heavy), stakes(50), TRUSTED) for i in range(300)
    )
    light = sum(
        7 in drawn(digest(f"seed {i}"), outline(*heavy), stakes(50), TRUSTED) for i in range(300)
    )
    assert hits > 1.4 * light


def test_a_segment_above_5_percent_is_always_audited() -> None:
    used = [*[10] * 19, 60]
    for i in range(20):
        assert 19 in drawn(digest(f"seed {i}"), outline(*used), stakes(20), TRUSTED)


def test_a_segment_whose_fine_the_lock_does_not_cover_is_always_audited() -> None:
    used = [10, 10, 10, 10, 60]  # 60 % x 20 = 12 V, and 4 V are locked
    for i in range(20):
        assert 4 in drawn(digest(f"seed {i}"), outline(*used), stakes(5), TRUSTED)


def test_the_first_of_an_image_is_always_audited() -> None:
    images = ("", "new", "new", *[""] * 27)
    for i in range(20):
        chosen = drawn(digest(f"seed {i}"), outline(*[10] * 30, images=images), stakes(30), TRUSTED)
        assert 1 in chosen
        assert len(chosen) <= 3  # not all of that image


def test_on_probation_everything_is_audited() -> None:
    trust = Trust(passed=TokenAmount(10**12), on_probation=True, images=frozenset({""}))
    assert drawn(digest("seed"), outline(*[10] * 30), stakes(30), trust) == tuple(range(30))


def test_a_segment_of_no_weight_does_not_stall_the_draw() -> None:
    used = [10**9, *[0] * 9]
    trust = Trust(passed=TokenAmount(VALUE.value), images=frozenset({""}))  # k = 10: 2 audits
    assert len(drawn(digest("seed"), outline(*used), stakes(10), trust)) == 2


def test_each_preimage_hashes_to_the_one_before() -> None:
    chain = Preimages(digest("secret"), 5)
    shown = [chain.at(i) for i in range(5)]
    before = chain.anchor
    for preimage in shown:
        assert preimage is not None
        assert keccak256(preimage.raw) == before
        before = preimage
    assert before == digest("secret")
    assert chain.at(5) is None
    assert chain.at(-1) is None
