"""The one JSON form of protocol values: strict when read, canonical (RFC 8785) when written.

Digests of documents, the journal, gossip and direct messages all go through here, so that the
same value is the same bytes on every machine. Unknown fields are refused, never skipped.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar, overload

import msgspec
import rfc8785

from cloud_gpu.protocol.units import Quantity
from cloud_gpu.protocol.values import FixedBytes

ValueT = TypeVar("ValueT")

_EXACT_MAX: Final = 2**53 - 1


def _to_builtin(value: Any) -> Any:
    if isinstance(value, FixedBytes):
        return str(value)
    if isinstance(value, Quantity):
        return value.value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _from_builtin(kind: type[Any], found: Any) -> Any:
    if issubclass(kind, FixedBytes):
        if not isinstance(found, str):
            raise ValueError(f"{kind.__name__} is written as a 0x string, found {found!r}"[:160])
        return kind.parse(found)
    if issubclass(kind, Quantity):
        return kind(found)
    raise ValueError(f"{kind.__name__} cannot be read from JSON")


_DIGITS: Final = bytes.maketrans(b"0123456789[,", b"0000000000::")
_LONG_NUMBER: Final = b":" + 16 * b"0"


def _may_be_inexact(octets: bytes) -> bool:
    """Whether there may be an integer that RFC 8785 cannot write exactly; also within a string.

    Takes a tenth of the time of a regular expression.
    """
    return _LONG_NUMBER in octets.translate(_DIGITS, b" \t\r\n-")


def _refuse_inexact(found: Any) -> None:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            _refuse_inexact(each)
    elif isinstance(found, int) and abs(found) > _EXACT_MAX:
        raise ValueError(f"a whole number beyond 2^53 - 1 cannot be written exactly: {found}")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_to_builtin, order="sorted")
_SHAPES: Final = bytes.maketrans(b"0123456789-[,", b"00000000000::")
_FLOAT: Final = re.compile(rb":0+[.eE]")


def _is_whole(written: bytes) -> bool:
    """Whether no float stands there, nor an integer that RFC 8785 cannot write exactly."""
    shape = written.translate(_SHAPES)
    return _LONG_NUMBER not in shape and _FLOAT.search(shape) is None


def to_json(value: object) -> bytes:
    """The canonical JSON of a value (RFC 8785): same value, same bytes, on every machine.

    Raises ValueError for what has no canonical form: a whole number beyond 2^53 - 1.
    """
    written = _ENCODER.encode(value)
    is_plain = (
        written.isascii()
        and written[:1] in b'{["tf'
        and b"null" not in written  # a float that is no number is written so
        and _is_whole(written)
    )
    if is_plain:  # RFC 8785 wants no more than sorted names
        return written
    return rfc8785.dumps(msgspec.to_builtins(value, enc_hook=_to_builtin))


@overload
def from_json(raw: bytes | str, kind: type[ValueT]) -> ValueT: ...
@overload
def from_json(raw: bytes | str, kind: object) -> Any: ...
def from_json(raw: bytes | str, kind: Any) -> Any:
    """Parse strictly. Raises `ValueError` whose text names the field and the rule it breaks.

    What it returns can be written by `to_json`: no peer can send a value that has no digest.
    """
    octets = raw.encode() if isinstance(raw, str) else raw
    try:
        if _may_be_inexact(octets):
            _refuse_inexact(msgspec.json.decode(octets))
        return msgspec.json.decode(raw, type=kind, dec_hook=_from_builtin)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    except (RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"not a JSON document: {type(error).__name__}") from error


def to_builtins(value: object) -> Any:
    """The value as dicts, lists, strings and ints, ready for any JSON writer."""
    return msgspec.to_builtins(value, enc_hook=_to_builtin)


@overload
def from_builtins(found: object, kind: type[ValueT]) -> ValueT: ...
@overload
def from_builtins(found: object, kind: object) -> Any: ...
def from_builtins(found: object, kind: Any) -> Any:
    """The inverse of `to_builtins`; raises `ValueError` naming the field."""
    try:
        return msgspec.convert(found, kind, dec_hook=_from_builtin)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error
