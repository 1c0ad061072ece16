"""The contracts' ABI in Python: calls encoded, answers, errors and logs decoded, by name.

Read from the package data that the contracts' build exports. Custom errors keep their Solidity
names, with their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

import msgspec
from eth_abi.abi import decode as abi_decode
from eth_abi.abi import encode as abi_encode
from eth_abi.exceptions import DecodingError

from cloud_gpu.protocol.adapters.evm_skips import SkipCode
from cloud_gpu.protocol.errors import ChainUnavailable, SettingsInvalid
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseEndReason, MachineStatus
from cloud_gpu.protocol.values import Address, keccak256

_ENUMS: Final[Mapping[str, type[IntEnum]]] = MappingProxyType(
    {
        "enum Status": MachineStatus,
        "enum CloseReason": LeaseEndReason,
        "enum Role": KeyRole,
        "enum SkipCode": SkipCode,
    }
)


class Revert(msgspec.Struct, frozen=True):
    """A decoded revert: the custom error's name and its arguments by name."""

    name: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        inside = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.name}({inside})" if inside else self.name


class Code(msgspec.Struct, frozen=True):
    """What lies at an address after a creation: a stretch of the creation code."""

    start: int
    size: int
    immutables: tuple[tuple[int, int], ...]
    """Where in it (start, size) the constructor writes values that never change."""


class Interface:
    """One contract's functions, events, errors and code."""

    def __init__(
        self, name: str, abi: Sequence[Mapping[str, Any]], bytecode: bytes, code: Code
    ) -> None:
        self.name, self.bytecode, self.code = name, bytecode, code
        self._functions: dict[str, tuple[bytes, list[str], list[str]]] = {}
        self._events: dict[bytes, Mapping[str, Any]] = {}
        self._errors: dict[bytes, Mapping[str, Any]] = {}
        self._constructor: list[str] = []
        for entry in abi:
            kind = entry["type"]
            if kind == "constructor":
                self._constructor = [_type(field) for field in entry["inputs"]]
            elif kind == "function":
                self._functions[entry["name"]] = (
                    _signature_hash(entry)[:4],
                    [_type(field) for field in entry["inputs"]],
                    [_type(field) for field in entry["outputs"]],
                )
            elif kind == "event":
                self._events[_signature_hash(entry)] = entry
            elif kind == "error":
                self._errors[_signature_hash(entry)[:4]] = entry

    def encode(self, function: str, *arguments: Any) -> bytes:
        """Calldata. Raises eth_abi's EncodingError for an argument that does not fit."""
        selector, inputs, _ = self._functions[function]
        return selector + abi_encode(inputs, [plain(argument) for argument in arguments])

    def decode(self, function: str, returned: bytes) -> tuple[Any, ...]:
        """What a function returned. Raises ChainUnavailable where the bytes do not fit."""
        try:
            return _decoded(self._functions[function][2], returned)
        except DecodingError as error:
            raise ChainUnavailable(
                f"{self.name}.{function} returned {len(returned)} bytes that do not decode:"
                " is the deployment's address right, and is this its chain?"
            ) from error

    def function_of(self, calldata: bytes) -> str | None:
        """The name of the function that calldata is for."""
        for name, (selector, _, _) in self._functions.items():
            if calldata[:4] == selector:
                return name
        return None

    def arguments_of(self, function: str, calldata: bytes) -> tuple[Any, ...]:
        """What a call of this function was given. Raises eth_abi's DecodingError."""
        return _decoded(self._functions[function][1], calldata[4:])

    def deployment(self, *arguments: Any) -> bytes:
        """Init code. Raises SettingsInvalid while the package holds no bytecode."""
        if not self.bytecode:
            raise SettingsInvalid(
                f"contracts/{self.name}.json holds no bytecode: run `make contracts`"
            )
        return self.bytecode + abi_encode(self._constructor, [plain(a) for a in arguments])

    def topic(self, event: str) -> bytes:
        """The first topic of an event's logs."""
        for topic, entry in self._events.items():
            if entry["name"] == event:
                return topic
        raise KeyError(event)

    def log(self, topics: Sequence[bytes], payload: bytes) -> tuple[str, dict[str, Any]] | None:
        """A log's event name and arguments; None for one that this ABI does not know."""
        entry = self._events.get(topics[0]) if topics else None
        if entry is None:
            return None
        indexed = [field for field in entry["inputs"] if field["indexed"]]
        others = [field for field in entry["inputs"] if not field["indexed"]]
        found = {
            field["name"]: _decoded([_type(field)], topic)[0]
            for field, topic in zip(indexed, topics[1:], strict=True)
        }
        values = _decoded([_type(field) for field in others], payload)
        found.update({field["name"]: value for field, value in zip(others, values, strict=True)})
        return entry["name"], found

    def error(self, returned: bytes) -> Revert | None:
        """The custom error in what a call returned; None for one that this ABI does not know."""
        entry = self._errors.get(returned[:4])
        if entry is None:
            return None
        fields = entry["inputs"]
        try:
            values = _decoded([_type(field) for field in fields], returned[4:])
        except DecodingError:
            return None
        return Revert(
            entry["name"],
            {field["name"]: _named(field, v) for field, v in zip(fields, values, strict=True)},
        )


def _type(field: Mapping[str, Any]) -> str:
    """A parameter's canonical type; a struct is its parts in brackets."""
    kind: str = field["type"]
    if not kind.startswith("tuple"):
        return kind
    return f"({','.join(_type(part) for part in field['components'])}){kind[5:]}"


def _signature_hash(entry: Mapping[str, Any]) -> bytes:
    text = f"{entry['name']}({','.join(_type(field) for field in entry['inputs'])})"
    return keccak256(text.encode()).raw


def _named(field: Mapping[str, Any], value: Any) -> Any:
    kind = _ENUMS.get(field.get("internalType", ""))
    if kind is not None:
        return kind(value).name if value in list(kind) else value
    if isinstance(value, bytes):  # error fields name things in left-aligned ASCII
        stripped = value.rstrip(b"\0")
        return stripped.decode() if stripped.isascii() else "0x" + value.hex()
    return value


def _decoded(kinds: Sequence[str], encoded: bytes) -> tuple[Any, ...]:
    """Values with our addresses; eth_abi's are text. Raises eth_abi's DecodingError."""
    values = abi_decode(kinds, encoded)
    return tuple(_own(value) for value in values) if any("address" in k for k in kinds) else values


def _own(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_own(part) for part in value)
    is_address = isinstance(value, str) and len(value) == 42 and value.startswith("0x")
    return Address(bytes.fromhex(value[2:])) if is_address else value


def plain(value: Any) -> Any:
    """Protocol values and rows as eth_abi takes them."""
    if isinstance(value, msgspec.Struct):
        return [plain(getattr(value, name)) for name in value.__struct_fields__]
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    raw = getattr(value, "raw", None)
    if raw is not None:
        return raw
    return getattr(value, "value", value) if not isinstance(value, int | bytes | str) else value


@cache
def interface(contract: str) -> Interface:
    """The package data of a contract, by its name in Solidity."""
    folder = resources.files("cloud_gpu.protocol") / "contracts"
    held = msgspec.json.decode((folder / f"{contract}.json").read_bytes())
    bytecode = bytes.fromhex(held["bytecode"].removeprefix("0x"))
    code = msgspec.convert(held["code"], Code)
    return Interface(contract, held["abi"], bytecode, code)


def lease_book() -> Interface:
    """LeaseBook's interface."""
    return interface("LeaseBook")


def verification() -> Interface:
    """Verification's interface."""
    return interface("Verification")


def futures() -> Interface:
    """Futures' interface."""
    return interface("Futures")


def group_buy() -> Interface:
    """GroupBuy's interface."""
    return interface("GroupBuy")


def payment_token() -> Interface:
    """The devnet token's interface; the ERC-20 part fits any payment token."""
    return interface("PaymentToken")


def decode_revert(returned: bytes | None, message: str = "") -> Revert:
    """The error behind a revert, from our ABIs, `Error(string)` or `Panic(uint256)`."""
    returned = returned or b""
    for known in (lease_book(), verification(), futures(), group_buy(), payment_token()):
        found = known.error(returned)
        if found is not None:
            return found
    try:
        if returned[:4] == bytes.fromhex("08c379a0"):
            return Revert("Error", {"text": abi_decode(["string"], returned[4:])[0]})
        if returned[:4] == bytes.fromhex("4e487b71"):
            return Revert("Panic", {"code": abi_decode(["uint256"], returned[4:])[0]})
    except DecodingError:
        pass  # falls through to the raw bytes, which lose nothing
    return Revert(
        "Reverted", {"returned": "0x" + returned.hex()} if returned else {"text": message}
    )
