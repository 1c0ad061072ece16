"""What the generated bindings are made of: a call with its answer's type, a row of named values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Self, TypeVar, get_args, get_type_hints

import msgspec

from cloud_gpu.protocol.adapters.evm_abi import interface

AnswerT = TypeVar("AnswerT")


class Row(msgspec.Struct, frozen=True):
    """A Solidity struct or event; fields in its order."""

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """From the values that the ABI decodes, rows inside it too."""
        return cls(*(read(value) for read, value in zip(_readers(cls), values, strict=True)))


@cache
def _readers(kind: type[Row]) -> tuple[Callable[[Any], Any], ...]:
    return tuple(_reader(hint) for hint in get_type_hints(kind).values())


def _reader(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, type) and issubclass(hint, Row):
        return hint.of
    inner = [part for part in get_args(hint) if isinstance(part, type) and issubclass(part, Row)]
    if inner:
        return lambda found: tuple(inner[0].of(each) for each in found)
    return lambda found: found


@dataclass(frozen=True, slots=True)
class Call(Generic[AnswerT]):
    """One function of a contract with its arguments."""

    contract: str
    function: str
    arguments: tuple[Any, ...]
    read: Callable[..., AnswerT]

    @property
    def calldata(self) -> bytes:
        """Raises eth_abi's EncodingError for an argument that does not fit."""
        return interface(self.contract).encode(self.function, *self.arguments)

    def answer(self, returned: bytes) -> AnswerT:
        """What the function returned. Raises ChainUnavailable where the bytes do not fit."""
        return self.read(*interface(self.contract).decode(self.function, returned))

    @staticmethod
    def nothing() -> None:
        """Of a function without results."""

    @staticmethod
    def alone(found: Any) -> Any:
        """Of a function with one plain result."""
        return found
