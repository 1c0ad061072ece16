"""Reads arrays out of result files, and says how far two are apart in terms of what is tolerated.

Formats: .npy, .npz, .safetensors; nothing is ever unpickled. A distance is a norm over the whole
array, not a count of last digits: two legal orders of summation differ by millions of those in
one entry and by 3e-7 in the norm. Source: design of value-at-risk batch audits, §6.
"""

from __future__ import annotations

import io
import math
import zipfile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from verifier.parsing import Unreadable, parse_json

ARRAYS_MAX: Final = 10_000
SUFFIXES: Final = (".npy", ".npz", ".safetensors")

_TOLERANCE: Final = {
    "float64": 1e-11,
    "complex128": 1e-11,
    "float32": 5e-6,
    "complex64": 5e-6,
    "float16": 5e-3,
    "bfloat16": 3e-2,
}
"""Before calibration, by what the array is stored as."""

_PEAK_TIMES: Final = 50
"""One entry may be off by so many tolerances of the array's root mean square."""

_SAFETENSORS: Final = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "<i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1", "BOOL": "|b1",
}  # fmt: skip


class Tensor:
    """An array, and the number format it was stored in."""

    __slots__ = ("kind", "values")

    def __init__(self, values: NDArray[Any], kind: str) -> None:
        self.values, self.kind = values, kind


def read_tensors(name: str, content: bytes, bytes_max: int) -> dict[str, Tensor]:
    """The arrays of one file by name. Raises `Unreadable`; holds at most `bytes_max` bytes."""
    try:
        if name.endswith(".npy"):
            return {"": _read_npy(content, bytes_max)}
        if name.endswith(".npz"):
            return _read_npz(content, bytes_max)
        return _read_safetensors(content)
    except Unreadable:
        raise
    except Exception as error:  # numpy and zipfile raise a dozen kinds for bytes from strangers
        raise Unreadable(f"{name[:80]}: {type(error).__name__}: {error}"[:300]) from error


def _read_npy(content: bytes, bytes_max: int) -> Tensor:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(file)
    if dtype.hasobject:
        raise Unreadable("an array of Python objects")
    if math.prod(shape) * dtype.itemsize > bytes_max:
        raise Unreadable(f"an array of more than {bytes_max} bytes")
    values = np.load(io.BytesIO(content), allow_pickle=False)
    return Tensor(values, str(values.dtype))


def _read_npz(content: bytes, bytes_max: int) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if len(members) > ARRAYS_MAX or sum(member.file_size for member in members) > bytes_max:
            raise Unreadable(f"more than {ARRAYS_MAX} arrays or {bytes_max} bytes")
        for member in members:
            with archive.open(member) as opened:
                body = opened.read(member.file_size + 1)
            found[member.filename] = _read_npy(body, bytes_max)
    if len(found) != len(members):
        raise Unreadable("one name twice")
    return found


def _read_safetensors(content: bytes) -> dict[str, Tensor]:
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 + length:
        raise Unreadable("a header that is longer than the file")
    header = parse_json(content[8 : 8 + length])
    header.pop("__metadata__", None)
    if len(header) > ARRAYS_MAX:
        raise Unreadable(f"more than {ARRAYS_MAX} arrays")
    return {name: _one_of(entry, content[8 + length :]) for name, entry in header.items()}


def _one_of(entry: dict[str, Any], body: bytes) -> Tensor:
    start, end = entry["data_offsets"]
    shape = tuple(int(side) for side in entry["shape"])
    raw = body[start:end]
    if entry["dtype"] == "BF16":
        halves = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
        return Tensor(halves.view(np.float32).reshape(shape), "bfloat16")
    if entry["dtype"] not in _SAFETENSORS:
        raise Unreadable(f"number format {str(entry['dtype'])[:20]!r}")
    values = np.frombuffer(raw, _SAFETENSORS[entry["dtype"]]).reshape(shape)
    return Tensor(values, str(values.dtype))


def distance(found: Tensor, reference: Tensor) -> float:
    """How far `found` is off, in tolerances: at most 1 is a match; infinite when it cannot be.

    ||a - b|| / ||b|| <= tau and max|a - b| <= 50 tau rms(b), by the reference's norm, which who
    is audited cannot choose. Whole numbers, flags and text are equal or not.
    """
    a, b = found.values, reference.values
    if a.shape != b.shape or found.kind != reference.kind:
        return math.inf
    tolerance = _TOLERANCE.get(found.kind)
    if tolerance is None:
        return 0.0 if np.array_equal(a, b) else math.inf
    is_complex = found.kind.startswith("complex")
    a, b = (
        a.astype(np.complex128 if is_complex else np.float64),
        b.astype(np.complex128 if is_complex else np.float64),
    )
    finite = np.isfinite(b)
    if (
        not np.array_equal(a[~finite], b[~finite], equal_nan=True)
        or not np.isfinite(a[finite]).all()
    ):
        return math.inf
    return _norm_wise(a[finite], b[finite], tolerance)


def _norm_wise(a: NDArray[Any], b: NDArray[Any], tolerance: float) -> float:
    if a.size == 0 or np.array_equal(a, b):
        return 0.0
    # Scaled first: squares of numbers near the end of the range would overflow.
    scale = float(max(np.abs(b).max(), np.abs(a).max()))
    off, b = np.abs(a / scale - b / scale), b / scale
    size = float(np.linalg.norm(b))
    if size == 0.0:
        return math.inf
    whole = float(np.linalg.norm(off)) / size / tolerance
    peak = float(off.max()) / (size / math.sqrt(b.size)) / (_PEAK_TIMES * tolerance)
    return max(whole, peak)
