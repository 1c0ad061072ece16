"""Two results into match, mismatch or incomparable, with a score: pure, versioned, never raising.

Outcome, exit code and the outputs' paths must be equal; what a file may differ in is the
comparator's rule, by the file's kind. Identical bytes need no look inside; larger files than a
comparator reads, and whatever breaks it, are incomparable: never a reason to slash. A result
that cannot be read where its reference can is another result.
"""

from __future__ import annotations

import io
import json
import math
import unicodedata
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final

from cloud_gpu.protocol.audit import Compared, VerdictResult
from cloud_gpu.protocol.job import FileRef, ResultContent
from verifier.parsing import Unreadable, parse_json
from verifier.tensors import SUFFIXES, distance, read_tensors

FILE_BYTES_MAX: Final = 256 * 2**20
"""A larger file is equal by its digest or incomparable."""

SCORE_ONE: Final = 1_000_000
"""A score at the edge of what is tolerated."""

SCORE_MAX: Final = 2**48

NONE: Final = "none"
"""The buyer accepts by hand: no audit."""

_RELATIVE: Final = 1e-6

Contents = Mapping[str, bytes]
"""Files by sha256."""


def is_audited(comparator: str) -> bool:
    """Whether results of this class can be compared here at all."""
    return comparator in _VERSIONS


def wanted(comparator: str, found: ResultContent, reference: ResultContent) -> tuple[str, ...]:
    """Files (sha256) whose bytes `compare` will read: those that differ and could still match."""
    looked_at: list[str] = []
    for a, b in _differing(found, reference):
        if _rule(comparator, a.path) is not None and max(a.size, b.size) <= FILE_BYTES_MAX:
            looked_at += [a.sha256, b.sha256]
    return tuple(dict.fromkeys(looked_at))


def compare(
    comparator: str, found: ResultContent, reference: ResultContent, contents: Contents
) -> Compared:
    """How `found` compares with `reference` under a job's comparator; the score is of `found`.

    `contents` holds what `wanted` named; a file that is missing there is incomparable.
    """
    version = _VERSIONS.get(comparator)
    if version is None:
        return _compared(reference, VerdictResult.INCOMPARABLE, math.inf, f"{comparator[:40]}/0")
    if (found.outcome, found.exit_code) != (reference.outcome, reference.exit_code) or sorted(
        file.path for file in found.outputs
    ) != sorted(file.path for file in reference.outputs):
        return _compared(reference, VerdictResult.MISMATCH, math.inf, version)
    try:
        worst = max(
            (_off(comparator, a, b, contents) for a, b in _differing(found, reference)),
            default=0.0,
        )
    except Unreadable:
        return _compared(reference, VerdictResult.INCOMPARABLE, math.inf, version)
    except Exception:  # a comparator that breaks must not convict; the file may be a stranger's
        return _compared(reference, VerdictResult.INCOMPARABLE, math.inf, version)
    verdict = VerdictResult.MATCH if worst <= 1.0 else VerdictResult.MISMATCH
    return _compared(reference, verdict, worst, version)


def _compared(other: ResultContent, verdict: VerdictResult, off: float, version: str) -> Compared:
    score = SCORE_MAX if off * SCORE_ONE >= SCORE_MAX else int(off * SCORE_ONE)
    return Compared(other=other, verdict=verdict, score=score, version=version)


def _differing(found: ResultContent, reference: ResultContent) -> list[tuple[FileRef, FileRef]]:
    """Pairs of files of one path whose bytes differ."""
    there = {file.path: file for file in reference.outputs}
    pairs = [(file, there[file.path]) for file in found.outputs if file.path in there]
    return [(a, b) for a, b in pairs if a.sha256 != b.sha256]


_Rule = Callable[[str, bytes, bytes], float]
"""(path, found, reference) -> distance in tolerances."""


def _off(comparator: str, a: FileRef, b: FileRef, contents: Contents) -> float:
    rule = _rule(comparator, a.path)
    if rule is None:
        return math.inf
    if a.sha256 not in contents or b.sha256 not in contents:
        raise Unreadable(f"{a.path[:80]}: the bytes are not here")
    return rule(a.path, contents[a.sha256], contents[b.sha256])


def _rule(comparator: str, path: str) -> _Rule | None:
    """How files of this name may differ; None: not at all."""
    name = path.lower()
    if comparator == "tensor" and name.endswith(SUFFIXES):
        return _tensors_off
    if comparator in ("json", "tensor") and name.endswith(".json"):
        return _json_off
    if name.endswith((".json", ".npz", ".zip")):
        return _canonical_off
    return None


# bytes: another spelling of the same content is the same content.


def _canonical_off(path: str, found: bytes, reference: bytes) -> float:
    needed = _canonical(path, reference)
    try:
        return 0.0 if _canonical(path, found) == needed else math.inf
    except Unreadable:
        return math.inf


def _canonical(path: str, content: bytes) -> object:
    if path.lower().endswith(".json"):
        return json.dumps(parse_json(content), sort_keys=True)
    members: dict[str, str] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > FILE_BYTES_MAX:
                raise Unreadable("members larger than a comparator reads")
            for member in archive.infolist():
                if member.filename in members:
                    raise Unreadable("one name twice")
                with archive.open(member) as opened:
                    body = opened.read(member.file_size + 1)
                members[member.filename] = sha256(body).hexdigest()
    except zipfile.BadZipFile as error:
        raise Unreadable(f"not an archive: {error}") from error
    return members


# json: the same structure, numbers by tolerance, text by its normal form.


def _json_off(path: str, found: bytes, reference: bytes) -> float:  # noqa: ARG001
    needed = parse_json(reference)
    try:
        return _tree_off(parse_json(found), needed)
    except Unreadable:
        return math.inf


def _tree_off(a: Any, b: Any) -> float:
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return math.inf
        return max((_tree_off(a[name], b[name]) for name in b), default=0.0)
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return math.inf
        return max((_tree_off(x, y) for x, y in zip(a, b, strict=True)), default=0.0)
    if isinstance(a, str) and isinstance(b, str):
        same = unicodedata.normalize("NFC", a) == unicodedata.normalize("NFC", b)
        return 0.0 if same else math.inf
    if isinstance(a, float) and isinstance(b, float | int) and not isinstance(b, bool):
        return _number_off(a, float(b))
    if isinstance(b, float) and isinstance(a, int) and not isinstance(a, bool):
        return _number_off(float(a), b)
    return 0.0 if type(a) is type(b) and a == b else math.inf


def _number_off(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)) or b == 0.0:
        return math.inf
    return abs(a - b) / abs(b) / _RELATIVE


# tensor


def _tensors_off(path: str, found: bytes, reference: bytes) -> float:
    name = path.lower()
    b = read_tensors(name, reference, FILE_BYTES_MAX)
    try:
        a = read_tensors(name, found, FILE_BYTES_MAX)
    except Unreadable:
        return math.inf
    if a.keys() != b.keys():
        return math.inf
    return max((distance(a[key], b[key]) for key in b), default=0.0)


_VERSIONS: Final = {"bytes": "bytes/1", "json": "json/1", "tensor": "tensor/1"}
