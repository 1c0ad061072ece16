"""The vocabulary under every other file: byte strings of fixed length, and the shape of values.

A value is frozen and checks itself when it is made. This file knows nothing of money, time,
parties or encodings.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Final, Self

import msgspec
from sha3 import keccak_256  # type: ignore[import-untyped]


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen protocol value; subclasses validate in `__post_init__` and raise `ValueError`."""


def within(what: str, value: int, low: int, high: int) -> None:
    """Raises ValueError naming the field, its bounds and what was found."""
    if not low <= value <= high:
        raise ValueError(f"{what} is {low} to {high}, found {value}")


class FixedBytes:
    """Bytes of one fixed length, written as 0x-prefixed lower-case hex."""

    __slots__ = ("raw",)
    LENGTH: ClassVar[int]

    raw: bytes

    def __init__(self, raw: bytes) -> None:
        if len(raw) != self.LENGTH:
            raise ValueError(f"{type(self).__name__} needs {self.LENGTH} bytes, found {len(raw)}")
        _set_raw(self, bytes(raw))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read 0x-prefixed hex of exactly this length; raises ValueError saying what is wrong."""
        digits = 2 * cls.LENGTH
        if not text.startswith("0x") or len(text) != digits + 2:
            raise ValueError(
                f"{cls.__name__} is written as 0x and {digits} hex digits, found {text[:80]!r}"
            )
        try:
            return cls(bytes.fromhex(text[2:]))
        except ValueError as error:
            raise ValueError(f"{cls.__name__} holds a character that is no hex digit") from error

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name}")

    def __str__(self) -> str:
        return "0x" + self.raw.hex()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.raw == self.raw

    def __lt__(self, other: Self) -> bool:
        return self.raw < other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self.raw,)


_set_raw: Final = vars(FixedBytes)["raw"].__set__
"""The slot itself, past `__setattr__`: every hash and every key of a message is made here."""


class Address(FixedBytes):
    """An account on the chain (20 bytes), written with its EIP-55 checksum."""

    LENGTH = 20

    def __str__(self) -> str:
        return _checksummed(self.raw)

    @property
    def is_zero(self) -> bool:
        return not any(self.raw)


@lru_cache(maxsize=4_096)  # markets, providers and the zero address stand in every order
def _checksummed(raw: bytes) -> str:
    digits = raw.hex()
    marks = keccak256(digits.encode()).raw.hex()
    return "0x" + "".join(
        digit.upper() if mark >= "8" else digit for digit, mark in zip(digits, marks, strict=False)
    )


class Digest(FixedBytes):
    """A 32-byte hash."""

    LENGTH = 32


class Signature(FixedBytes):
    """An secp256k1 signature r, s, v (65 bytes, v is 27 or 28)."""

    LENGTH = 65


ZERO_ADDRESS = Address(bytes(20))
ZERO_DIGEST = Digest(bytes(32))


def keccak256(raw: bytes) -> Digest:
    """Keccak-256, the chain's hash."""
    return Digest(keccak_256(raw).digest())
