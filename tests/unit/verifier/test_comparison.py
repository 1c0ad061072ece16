"""Comparators: what is the same, what is not, and what nobody can say. None of them raises."""

from __future__ import annotations

import io
import json
import pickle
import warnings
import zipfile
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cloud_gpu.protocol.audit import Compared, VerdictResult
from cloud_gpu.protocol.job import JobOutcome, ResultContent
from tests.unit.verifier.builders import content_of, file
from verifier import comparison
from verifier.comparison import SCORE_ONE, compare, is_audited, wanted
from verifier.parsing import Unreadable
from verifier.tensors import read_tensors

MATCH, MISMATCH, INCOMPARABLE = (
    VerdictResult.MATCH,
    VerdictResult.MISMATCH,
    VerdictResult.INCOMPARABLE,
)


def held(comparator: str, found: dict[str, bytes], reference: dict[str, bytes]) -> Compared:
    """Compare two sets of files, giving the comparator just what it asks for."""
    a = content_of(*(file(path, body) for path, body in found.items()))
    b = content_of(*(file(path, body) for path, body in reference.items()))
    bodies = {
        file("x", body).sha256: body for files in (found, reference) for body in files.values()
    }
    needed = wanted(comparator, a, b)
    return compare(comparator, a, b, {sha256: bodies[sha256] for sha256 in needed})


def npy(values: NDArray[Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def npz(**arrays: NDArray[Any]) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def safetensors(dtype: str, shape: list[int], raw: bytes) -> bytes:
    header = {"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(raw)]}}
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + raw


def archive(*members: tuple[str, bytes], year: int = 1980) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as opened:
        for name, body in members:
            with warnings.catch_warnings(action="ignore"):  # of one name twice
                opened.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), body)
    return out.getvalue()


# All classes.


@pytest.mark.parametrize("comparator", ["bytes", "json", "tensor"])
def test_identical_files_match_and_nothing_is_read(comparator: str) -> None:
    files = {"out/a.txt": b"1", "out/b.json": b"{", "out/c.npy": b"junk"}
    a = content_of(*(file(path, body) for path, body in files.items()))
    assert wanted(comparator, a, a) == ()
    compared = compare(comparator, a, a, {})
    assert (compared.verdict, compared.score) == (MATCH, 0)


@pytest.mark.parametrize("comparator", ["bytes", "json", "tensor"])
def test_the_order_of_outputs_says_nothing(comparator: str) -> None:
    a, b = file("a", b"1"), file("b", b"2")
    assert compare(comparator, content_of(a, b), content_of(b, a), {}).verdict is MATCH
    assert content_of(a, b).digest == content_of(b, a).digest


@pytest.mark.parametrize("comparator", ["bytes", "json", "tensor"])
@pytest.mark.parametrize(
    "other",
    [
        ResultContent(outcome=JobOutcome.EXITED, exit_code=1, outputs=(file("a", b"1"),)),
        ResultContent(outcome=JobOutcome.TIMED_OUT, exit_code=0, outputs=(file("a", b"1"),)),
        ResultContent(outcome=JobOutcome.EXITED, exit_code=0, outputs=(file("b", b"1"),)),
        ResultContent(outcome=JobOutcome.EXITED, exit_code=0, outputs=()),
        ResultContent(
            outcome=JobOutcome.EXITED, exit_code=0, outputs=(file("a", b"1"), file("b", b"1"))
        ),
    ],
)
def test_another_ending_or_another_set_of_files_is_a_mismatch(
    comparator: str, other: ResultContent
) -> None:
    assert compare(comparator, other, content_of(file("a", b"1")), {}).verdict is MISMATCH


@pytest.mark.parametrize("comparator", ["none", "image", "", "text-llm"])
def test_a_class_without_comparator_is_not_audited(comparator: str) -> None:
    assert not is_audited(comparator)
    assert held(comparator, {"a": b"1"}, {"a": b"2"}).verdict is INCOMPARABLE


def test_files_that_are_not_at_hand_are_incomparable() -> None:
    a, b = content_of(file("a.json", b"1")), content_of(file("a.json", b"2"))
    assert compare("json", a, b, {}).verdict is INCOMPARABLE


def test_a_file_above_the_limit_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "FILE_BYTES_MAX", 3)
    assert held("json", {"a.json": b"1.000"}, {"a.json": b"1.0000"}).verdict is INCOMPARABLE


def test_a_comparator_that_breaks_is_incomparable(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> float:
        raise MemoryError

    monkeypatch.setattr(comparison, "_json_off", broken)
    assert held("json", {"a.json": b"1"}, {"a.json": b"2"}).verdict is INCOMPARABLE


# bytes


def test_bytes_sees_one_flipped_bit() -> None:
    assert held("bytes", {"a.bin": b"\x00"}, {"a.bin": b"\x01"}).verdict is MISMATCH


def test_bytes_reads_through_spelling() -> None:
    assert held("bytes", {"a.json": b'{"b":1,"a":2}'}, {"a.json": b'{"a": 2, "b": 1}'}).score == 0
    same = (("x", b"1"), ("y", b"2"))
    assert (
        held("bytes", {"a.zip": archive(*same)}, {"a.zip": archive(*same, year=2020)}).verdict
        is MATCH
    )
    other = archive(("x", b"1"), ("y", b"3"))
    assert held("bytes", {"a.zip": archive(*same)}, {"a.zip": other}).verdict is MISMATCH


def test_bytes_has_no_tolerance_for_numbers() -> None:
    assert held("bytes", {"a.json": b"[1.0]"}, {"a.json": b"[1.0000001]"}).verdict is MISMATCH


def test_garbage_where_the_rerun_gave_json_is_another_result() -> None:
    for comparator in ("bytes", "json"):
        assert held(comparator, {"a.json": b"{{{"}, {"a.json": b"{}"}).verdict is MISMATCH
        assert held(comparator, {"a.json": b"{}"}, {"a.json": b"{{{"}).verdict is INCOMPARABLE


# json


@pytest.mark.parametrize(
    ("found", "reference", "verdict"),
    [
        ('{"loss": 0.5000001}', '{"loss": 0.5}', MATCH),
        ('{"loss": 0.50001}', '{"loss": 0.5}', MISMATCH),
        ('{"loss": 1}', '{"loss": 1.0}', MATCH),
        ('{"step": 1000000001}', '{"step": 1000000000}', MISMATCH),  # whole numbers are exact
        ("[1, 2]", "[1, 2, 3]", MISMATCH),
        ("[1, 2]", "[2, 1]", MISMATCH),
        ('{"a": 1}', '{"b": 1}', MISMATCH),
        ('{"a": null}', '{"a": 0}', MISMATCH),
        ('{"a": true}', '{"a": 1}', MISMATCH),
        ('{"a": true}', '{"a": 1.0}', MISMATCH),
        ('{"a": "e\\u0301"}', '{"a": "\\u00e9"}', MATCH),
        ("[NaN]", "[NaN]  ", MATCH),
        ("[NaN]", "[1.0]", MISMATCH),
        ("[0.0]", "[1e-300]", MISMATCH),
        ('{"a": 1, "a": 2}', '{"a": 2}', MISMATCH),
        ("1" * 5_000, "1", MISMATCH),
    ],
)
def test_json(found: str, reference: str, verdict: VerdictResult) -> None:
    compared = held("json", {"a.json": found.encode()}, {"a.json": reference.encode()})
    assert compared.verdict is verdict
    assert (compared.score <= SCORE_ONE) == (verdict is MATCH)
    assert compared.version == "json/1"


def test_json_nested_without_end_is_incomparable() -> None:
    deep = b"[" * 300 + b"]" * 300
    assert held("json", {"a.json": deep}, {"a.json": deep + b" "}).verdict is INCOMPARABLE
    endless = b"[" * 10_000_000
    assert held("json", {"a.json": b"1"}, {"a.json": endless}).verdict is INCOMPARABLE
    assert held("bytes", {"a.json": b"1"}, {"a.json": endless}).verdict is INCOMPARABLE


def test_brackets_in_text_are_no_nesting() -> None:
    text = json.dumps({"a": "[" * 1_000, "b": '\\"[[['})
    assert held("json", {"a.json": text.encode()}, {"a.json": text.encode() + b" "}).score == 0


# tensor


def noisy(values: NDArray[Any], relative: float) -> NDArray[Any]:
    rng = np.random.default_rng(1)
    size = np.linalg.norm(values.astype(np.float64)) / np.sqrt(values.size)
    noise = rng.standard_normal(values.shape) * size * relative
    shifted: NDArray[Any] = (values.astype(np.float64) + noise).astype(values.dtype)
    return shifted


NORMAL = np.random.default_rng(7).standard_normal((64, 64))


@pytest.mark.parametrize(
    ("dtype", "honest", "wrong"),
    [("float64", 1e-12, 1e-9), ("float32", 1e-6, 1e-3), ("float16", 1e-3, 5e-2)],
)
def test_noise_within_the_format_matches_and_a_cheaper_precision_does_not(
    dtype: str, honest: float, wrong: float
) -> None:
    reference = NORMAL.astype(dtype)
    near, far = noisy(reference, honest), noisy(reference, wrong)
    assert held("tensor", {"w.npy": npy(near)}, {"w.npy": npy(reference)}).verdict is MATCH
    compared = held("tensor", {"w.npy": npy(far)}, {"w.npy": npy(reference)})
    assert compared.verdict is MISMATCH
    assert compared.score > SCORE_ONE


def test_another_order_of_summation_matches() -> None:
    a = np.random.default_rng(3).standard_normal((512, 512)).astype(np.float32)
    b = np.random.default_rng(4).standard_normal((512, 512)).astype(np.float32)
    one, other = a @ b, (a[:, ::-1].copy() @ b[::-1].copy())
    assert not np.array_equal(one, other)
    assert held("tensor", {"w.npy": npy(one)}, {"w.npy": npy(other)}).verdict is MATCH


def test_one_wrong_entry_among_many_is_seen_by_the_peak() -> None:
    reference = np.random.default_rng(5).standard_normal(1_000_000).astype(np.float32)
    wrong = reference.copy()
    wrong[17] += 1e-3  # 1e-6 of the norm, far above 50 tolerances of one entry
    assert held("tensor", {"w.npy": npy(wrong)}, {"w.npy": npy(reference)}).verdict is MISMATCH


def test_a_huge_committed_array_does_not_buy_tolerance() -> None:
    reference = NORMAL.astype(np.float32)
    huge = np.full_like(reference, 1e30)
    assert held("tensor", {"w.npy": npy(huge)}, {"w.npy": npy(reference)}).verdict is MISMATCH


def test_numbers_near_the_end_of_the_range_do_not_overflow() -> None:
    reference = np.array([1e308, -1e308, 5e307])
    near = reference * (1 + 1e-14)
    assert held("tensor", {"w.npy": npy(near)}, {"w.npy": npy(reference)}).verdict is MATCH


@pytest.mark.parametrize(
    ("found", "reference", "verdict"),
    [
        (np.zeros(3), np.zeros(3) * -1, MATCH),
        (np.full(3, 1e-30), np.zeros(3), MISMATCH),
        (np.array([1.0, np.nan]), np.array([1.0 + 1e-13, np.nan]), MATCH),
        (np.array([1.0, np.nan]), np.array([1.0, 2.0]), MISMATCH),
        (np.array([1.0, np.inf]), np.array([1.0, -np.inf]), MISMATCH),
        (np.array([1.0, 2.0]), np.array([1.0, np.inf]), MISMATCH),
        (np.arange(3), np.arange(3) + 1, MISMATCH),
        (np.zeros((2, 3)), np.zeros((3, 2)), MISMATCH),
        (np.zeros(3, np.float32), np.zeros(3), MISMATCH),
        (np.zeros(0), np.zeros((0, 1)), MISMATCH),
        (np.array(["a"]), np.array(["b"]), MISMATCH),
        (np.array([1 + 1j]), np.array([1 + 1.0000000000001j]), MATCH),
        (np.array([True]), np.array([False]), MISMATCH),
    ],
)
def test_tensor(found: NDArray[Any], reference: NDArray[Any], verdict: VerdictResult) -> None:
    assert held("tensor", {"w.npy": npy(found)}, {"w.npy": npy(reference)}).verdict is verdict


def test_npz_compares_member_by_member() -> None:
    w, b = NORMAL.astype(np.float32), np.arange(4)
    reference = {"w.npz": npz(w=w, b=b)}
    assert held("tensor", {"w.npz": npz(w=noisy(w, 1e-6), b=b)}, reference).verdict is MATCH
    assert held("tensor", {"w.npz": npz(w=w, b=b + 1)}, reference).verdict is MISMATCH
    assert held("tensor", {"w.npz": npz(w=w)}, reference).verdict is MISMATCH
    assert held("tensor", {"w.npz": npz(w=w, c=b)}, reference).verdict is MISMATCH


def test_safetensors_of_bfloat16() -> None:
    values = np.random.default_rng(2).standard_normal(256).astype(np.float32)
    halves = (values.view(np.uint32) >> 16).astype("<u2")
    near = halves.copy()
    near[:128] += 1  # one step of bfloat16 is at most 0.8 %
    reference = {"w.safetensors": safetensors("BF16", [16, 16], halves.tobytes())}
    found = {"w.safetensors": safetensors("BF16", [16, 16], near.tobytes())}
    assert held("tensor", found, reference).verdict is MATCH
    half = {"w.safetensors": safetensors("BF16", [16, 16], (halves + 40).astype("<u2").tobytes())}
    assert held("tensor", half, reference).verdict is MISMATCH


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.npy", b""),
        ("w.npy", b"\x93NUMPY\x01\x00"),
        ("w.npy", b"\x93NUMPY\x09\x00" + b"\x00" * 100),
        ("w.npz", b"PK\x03\x04"),
        ("w.npz", archive(("a.npy", b"junk"))),
        ("w.npz", archive(("a.npy", npy(np.zeros(1))), ("a.npy", npy(np.ones(1))))),
        ("w.safetensors", b"\xff" * 8),
        ("w.safetensors", (5).to_bytes(8, "little") + b"[1,2]"),
        ("w.safetensors", (10**6).to_bytes(8, "little") + b"[" * 10**6),
        ("w.safetensors", safetensors("F32", [3], b"\x00" * 4)),
        ("w.safetensors", safetensors("F99", [1], b"\x00" * 4)),
        ("w.safetensors", safetensors("F32", [-1, 5], b"\x00" * 4)),
    ],
)
def test_what_cannot_be_read_says_so(name: str, content: bytes) -> None:
    with pytest.raises(Unreadable):
        read_tensors(name, content, 10**6)


def test_nothing_is_unpickled() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("it was unpickled",))

    out = io.BytesIO()
    np.save(out, np.array([Bomb()], dtype=object), allow_pickle=True)
    for content in (out.getvalue(), pickle.dumps(Bomb())):
        with pytest.raises(Unreadable):
            read_tensors("w.npy", content, 10**6)
    bomb = archive(("a.npy", out.getvalue()))
    with pytest.raises(Unreadable):
        read_tensors("w.npz", bomb, 10**6)


def test_a_header_that_claims_more_than_it_may_is_refused_before_any_is_allocated() -> None:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        out, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    )
    with pytest.raises(Unreadable, match="more than"):
        read_tensors("w.npy", out.getvalue(), 10**6)


def test_an_archive_that_unpacks_to_more_than_it_may_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("a.npy", npy(np.zeros(1_000_000)))
    assert len(out.getvalue()) < 100_000
    with pytest.raises(Unreadable, match="more than"):
        read_tensors("w.npz", out.getvalue(), 10**6)


def test_unreadable_tensors_follow_the_reference() -> None:
    good = npy(np.zeros(3))
    assert held("tensor", {"w.npy": b"junk"}, {"w.npy": good}).verdict is MISMATCH
    assert held("tensor", {"w.npy": good}, {"w.npy": b"junk"}).verdict is INCOMPARABLE
