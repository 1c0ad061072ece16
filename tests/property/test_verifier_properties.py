"""Trees, proofs and draws of any batch: honest ones hold, altered ones never do."""

from __future__ import annotations

import io

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from cloud_gpu.protocol.audit import (
    SEGMENTS_MAX,
    WEIGHT_ONE,
    BatchOutline,
    SegmentOutline,
    Sibling,
    SumTree,
    VerdictResult,
    draw_point,
    prove,
    segment_at,
    weights,
)
from cloud_gpu.protocol.job import FileRef, JobOutcome, ResultContent
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import GpuSeconds, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, keccak256
from verifier.comparison import compare, wanted
from verifier.draw import Stakes, Trust, audits_in_tenths, drawn
from verifier.parsing import Unreadable
from verifier.tensors import read_tensors

LEASE = LeaseKey(provider=Address(bytes(20)), index=0, seq=1)
USES = st.lists(st.integers(0, 10**7), min_size=1, max_size=SEGMENTS_MAX)
SEEDS = st.integers(0, 2**64).map(lambda number: keccak256(number.to_bytes(9, "big")))


def outline_of(used: list[int], images: int = 1) -> BatchOutline:
    return BatchOutline(
        lease=LEASE,
        batch_no=0,
        segments=tuple(
            SegmentOutline(
                leaf=keccak256(f"leaf {i}".encode()),
                used=GpuSeconds(each),
                image=f"image {i % images}",
            )
            for i, each in enumerate(used)
        ),
    )


def tree_of(outline: BatchOutline) -> tuple[SumTree, list[Sibling]]:
    pairs = zip(outline.segments, outline.weights, strict=True)
    leaves = [Sibling(hash=segment.leaf, weight=weight) for segment, weight in pairs]
    return SumTree(leaves), leaves


@given(USES)
def test_weights_share_the_whole_by_use(used: list[int]) -> None:
    shares = weights([max(1, each) for each in used])
    assert sum(shares) == WEIGHT_ONE
    assert min(shares) >= 1
    total = sum(max(1, each) for each in used)
    for each, share in zip(used, shares, strict=True):
        assert abs(share - WEIGHT_ONE * max(1, each) / total) <= len(used) + 1


@given(USES, st.data())
def test_every_leaf_is_proved_at_its_own_interval(used: list[int], data: st.DataObject) -> None:
    tree, leaves = tree_of(outline_of(used))
    i = data.draw(st.integers(0, len(used) - 1))
    start = prove(tree.root, tree.n, i, leaves[i], tree.proof(i))
    assert start == sum(leaf.weight for leaf in leaves[:i])
    assert segment_at(start, [leaf.weight for leaf in leaves]) == i
    assert segment_at(start + leaves[i].weight - 1, [leaf.weight for leaf in leaves]) == i


@given(USES, st.data())
def test_no_altered_field_is_proved(used: list[int], data: st.DataObject) -> None:
    tree, leaves = tree_of(outline_of(used))
    n, i = tree.n, data.draw(st.integers(0, tree.n - 1))
    leaf, proof, root = leaves[i], list(tree.proof(i)), tree.root
    what = data.draw(st.sampled_from(["hash", "weight", "i", "n", "root", "step", "cut", "longer"]))
    if what == "hash":
        leaf = replace(leaf, hash=keccak256(leaf.hash.raw))
    elif what == "weight":
        other = data.draw(st.integers(0, WEIGHT_ONE))
        assume(other != leaf.weight)
        leaf = replace(leaf, weight=other)
    elif what == "i":
        other = data.draw(st.integers(-1, SEGMENTS_MAX))
        assume(other != i)
        i = other
    elif what == "n":
        other = data.draw(st.integers(0, SEGMENTS_MAX + 1))
        assume(other != n)
        n = other
    elif what == "root":
        root = keccak256(root.raw)
    elif what == "longer":
        proof.append(Sibling(hash=root, weight=data.draw(st.integers(0, WEIGHT_ONE))))
    else:
        assume(proof)
        place = data.draw(st.integers(0, len(proof) - 1))
        if what == "cut":
            del proof[place]
        elif data.draw(st.booleans()):
            proof[place] = replace(proof[place], hash=keccak256(proof[place].hash.raw))
        else:
            weight = data.draw(st.integers(0, WEIGHT_ONE))
            assume(weight != proof[place].weight)
            proof[place] = replace(proof[place], weight=weight)
    assert prove(root, n, i, leaf, proof) is None


@given(USES, SEEDS, st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 5), st.data())
def test_a_draw_is_what_the_rules_say(
    used: list[int], seed: Digest, passed: int, value: int, images: int, data: st.DataObject
) -> None:
    outline, n = outline_of(used, images), len(used)
    stakes = Stakes(value=TokenAmount(value), locked=TokenAmount(value * max(1, -(-20 // n))))
    known = frozenset(data.draw(st.sets(st.sampled_from([f"image {i}" for i in range(5)]))))
    trust = Trust(passed=TokenAmount(passed), images=known)
    chosen = drawn(seed, outline, stakes, trust)
    assert list(chosen) == sorted(set(chosen))
    assert all(0 <= i < n for i in chosen)
    assert chosen == drawn(seed, outline, stakes, trust)
    tenths = audits_in_tenths(n, stakes.value, trust.passed)
    assert len(chosen) >= min(n, tenths // 10)
    audited = {outline.segments[i].image for i in chosen}
    assert {segment.image for segment in outline.segments} <= audited | known
    if n >= 20:
        heavy = {i for i, weight in enumerate(outline.weights) if weight > WEIGHT_ONE // 20}
        assert heavy <= set(chosen)
    more = Trust(passed=TokenAmount(passed), images=known, on_probation=True)
    assert drawn(seed, outline, stakes, more) == tuple(range(n))


@given(SEEDS)
def test_points_cover_the_whole(seed: Digest) -> None:
    points = [draw_point(seed, j) for j in range(64)]
    assert all(0 <= point < WEIGHT_ONE for point in points)
    assert len(set(points)) > 60


# Bytes from strangers.


@given(st.sampled_from(["w.npy", "w.npz", "w.safetensors"]), st.binary(max_size=400))
def test_tensor_files_are_read_or_refused(name: str, content: bytes) -> None:
    for prefix in (b"", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x02\x00", (20).to_bytes(8, "little")):
        try:
            read_tensors(name, prefix + content, 10**6)
        except Unreadable:
            continue


@given(st.data())
def test_one_flipped_byte_of_an_array_is_read_or_refused(data: st.DataObject) -> None:
    out = io.BytesIO()
    np.savez(out, w=np.arange(12.0).reshape(3, 4))
    content = bytearray(out.getvalue())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        read_tensors("w.npz", bytes(content), 10**6)
    except Unreadable:
        return


@given(
    st.sampled_from(["bytes", "json", "tensor", "none", "?"]),
    st.dictionaries(
        st.sampled_from(["a.json", "b.npy", "c.npz", "d.safetensors", "e.bin"]),
        st.tuples(st.binary(max_size=60), st.binary(max_size=60)),
        min_size=1,
    ),
)
def test_comparators_always_answer(comparator: str, files: dict[str, tuple[bytes, bytes]]) -> None:
    contents: dict[str, bytes] = {}

    def result(side: int) -> ResultContent:
        outputs = []
        for path, bodies in files.items():
            digest = keccak256(bodies[side]).raw.hex()
            contents[digest] = bodies[side]
            outputs.append(FileRef(path=path, sha256=digest, size=len(bodies[side])))
        return ResultContent(outcome=JobOutcome.EXITED, exit_code=0, outputs=tuple(outputs))

    found, reference = result(0), result(1)
    assert set(wanted(comparator, found, reference)) <= set(contents)
    compared = compare(comparator, found, reference, contents)
    assert 0 <= compared.score < 2**53
    if comparator in ("bytes", "json", "tensor"):
        same = compare(comparator, found, found, {})
        assert (same.verdict, same.score) == (VerdictResult.MATCH, 0)
