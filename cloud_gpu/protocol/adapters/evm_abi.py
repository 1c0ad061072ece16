"""The contracts' ABI in Python: calls encoded, answers, errors and logs decoded, by name.

Read from the package data that the contracts' build exports. Custom errors keep their Solidity
names, with their numbers. Here too: what a skipped batch entry means, in `RejectReason`s.
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

from cloud_gpu.protocol.errors import ChainUnavailable, Rejection, RejectReason, SettingsInvalid
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseEndReason, MachineStatus
from cloud_gpu.protocol.values import Address, keccak256


class SkipCode(IntEnum):
    """Why LeaseBook left one entry of a batch out, in the order of Lifecycle.sol."""

    NONE = 0
    WRONG_PRODUCT = 1
    WRONG_COUNT = 2
    WRONG_MATCHER = 3
    WRONG_PROVIDER = 4
    SELF_DEALING = 5
    PRICE_OUTSIDE_LIMITS = 6
    DURATION_OUTSIDE_LIMITS = 7
    EXPIRED = 8
    FEE_ABOVE_LIMIT = 9
    FLAGS_DIFFER = 10
    VERIFIED_CLOSED = 11
    MACHINE_NOT_FREE = 12
    STALE_SEQUENCE = 13
    CAP_OUT_OF_RANGE = 14
    BOND_TOO_LOW = 15
    CASH_TOO_LOW = 16
    NONCE_USED = 17
    BAD_ASK_SIGNATURE = 18
    BAD_BID_SIGNATURE = 19
    WRONG_STATE = 20
    NOTHING_DUE = 21
    BAD_VOUCHER_SIGNATURE = 22
    BAD_FINAL_SIGNATURE = 23
    STILL_RUNNING = 24
    HELD_NOT_CLEARED = 25


_SKIPS: Final[Mapping[SkipCode, tuple[RejectReason, str, str]]] = MappingProxyType(
    {
        SkipCode.WRONG_PRODUCT: (
            RejectReason.WRONG_PRODUCT,
            "product",
            "one product in both orders, the machine's and the batch's",
        ),
        SkipCode.WRONG_COUNT: (
            RejectReason.WRONG_COUNT,
            "bid.count",
            "the GPUs of one machine of the product",
        ),
        SkipCode.WRONG_MATCHER: (
            RejectReason.WRONG_MATCHER,
            "matcher",
            "the caller as matcher of both orders",
        ),
        SkipCode.WRONG_PROVIDER: (
            RejectReason.WRONG_PROVIDER,
            "bid.provider",
            "the ask's provider, or any",
        ),
        SkipCode.SELF_DEALING: (
            RejectReason.SELF_DEALING,
            "ask.provider",
            "a provider other than the buyer",
        ),
        SkipCode.PRICE_OUTSIDE_LIMITS: (
            RejectReason.PRICE_OUTSIDE_LIMITS,
            "price",
            "a price within both limits",
        ),
        SkipCode.DURATION_OUTSIDE_LIMITS: (
            RejectReason.DURATION_OUTSIDE_LIMITS,
            "bid.duration",
            "a duration within the ask's",
        ),
        SkipCode.EXPIRED: (RejectReason.EXPIRED, "start_by", "orders that are still valid"),
        SkipCode.FEE_ABOVE_LIMIT: (
            RejectReason.FEE_ABOVE_LIMIT,
            "max_fee_bps",
            "the market's fee within both orders' limits",
        ),
        SkipCode.FLAGS_DIFFER: (RejectReason.FLAGS_DIFFER, "flags", "flags that agree"),
        SkipCode.VERIFIED_CLOSED: (
            RejectReason.FLAGS_DIFFER,
            "flags",
            "no verified lease: this deployment opens none now",
        ),
        SkipCode.MACHINE_NOT_FREE: (
            RejectReason.MACHINE_NOT_FREE,
            "ask.index",
            "a machine that is free",
        ),
        SkipCode.STALE_SEQUENCE: (
            RejectReason.STALE_SEQUENCE,
            "ask.seq",
            "the machine's next lease number",
        ),
        SkipCode.CAP_OUT_OF_RANGE: (
            RejectReason.CAP_OUT_OF_RANGE,
            "bid.duration",
            "a cost of 1 to 2^48-1 base units",
        ),
        SkipCode.BOND_TOO_LOW: (
            RejectReason.BOND_TOO_LOW,
            "ask.index",
            "a free bond that covers the product's share of the cap",
        ),
        SkipCode.CASH_TOO_LOW: (
            RejectReason.CASH_TOO_LOW,
            "bid.buyer",
            "cash in the vault that covers the cap",
        ),
        SkipCode.NONCE_USED: (RejectReason.NONCE_USED, "bid.nonce", "a nonce not used before"),
        SkipCode.BAD_ASK_SIGNATURE: (
            RejectReason.BAD_SIGNATURE,
            "ask.signature",
            "the signature of the provider or its node key",
        ),
        SkipCode.BAD_BID_SIGNATURE: (
            RejectReason.BAD_SIGNATURE,
            "bid.signature",
            "the signature of the buyer",
        ),
        SkipCode.WRONG_STATE: (
            RejectReason.WRONG_STATE,
            "voucher.seq",
            "the machine's newest lease, active or stopped",
        ),
        SkipCode.NOTHING_DUE: (
            RejectReason.DUPLICATE,
            "voucher.amount",
            "more than what was paid already, and accrued",
        ),
        SkipCode.BAD_VOUCHER_SIGNATURE: (
            RejectReason.BAD_SIGNATURE,
            "voucher.signature",
            "the signature of the buyer or its session key",
        ),
        SkipCode.BAD_FINAL_SIGNATURE: (
            RejectReason.BAD_SIGNATURE,
            "final.signature",
            "the signature of the provider or its node key",
        ),
        SkipCode.STILL_RUNNING: (
            RejectReason.WRONG_STATE,
            "buyer_final",
            "the lease's end, or the buyer's own Final to end it early",
        ),
        SkipCode.HELD_NOT_CLEARED: (
            RejectReason.MACHINE_NOT_FREE,
            "ask.seq",
            "a machine whose fourth last verified lease was audited to its end",
        ),
    }
)
"""One row a code: reason, the field concerned, what the contract needed."""


def rejection_of(code: int) -> Rejection:
    """What a skipped entry is told; an unknown code is a newer contract's, and says so."""
    try:
        known = SkipCode(code)
        reason, field, needed = _SKIPS[known]
    except (ValueError, KeyError):
        return Rejection(reason=RejectReason.MALFORMED, found=f"skip code {code} of LeaseBook")
    found = known.name.lower().replace("_", " ")
    return Rejection(reason=reason, field=field, found=found, needed=needed)


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


class Interface:
    """One contract's functions, events and errors."""

    def __init__(self, name: str, abi: Sequence[Mapping[str, Any]], bytecode: bytes) -> None:
        self.name, self.bytecode = name, bytecode
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
            return tuple(abi_decode(self._functions[function][2], returned))
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
            field["name"]: abi_decode([_type(field)], topic)[0]
            for field, topic in zip(indexed, topics[1:], strict=True)
        }
        values = abi_decode([_type(field) for field in others], payload)
        found.update({field["name"]: value for field, value in zip(others, values, strict=True)})
        return entry["name"], found

    def error(self, returned: bytes) -> Revert | None:
        """The custom error in what a call returned; None for one that this ABI does not know."""
        entry = self._errors.get(returned[:4])
        if entry is None:
            return None
        fields = entry["inputs"]
        try:
            values = abi_decode([_type(field) for field in fields], returned[4:])
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
    return Address(bytes.fromhex(value[2:])) if field["type"] == "address" else value


def plain(value: Any) -> Any:
    """Protocol values as eth_abi takes them."""
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    raw = getattr(value, "raw", None)
    if raw is not None:
        return raw
    return getattr(value, "value", value) if not isinstance(value, int | bytes | str) else value


@cache
def interface(contract: str) -> Interface:
    """The package data of a contract: `LeaseBook`, `Verification` or `PaymentToken`."""
    folder = resources.files("cloud_gpu.protocol") / "contracts"
    held = msgspec.json.decode((folder / f"{contract}.json").read_bytes())
    return Interface(contract, held["abi"], bytes.fromhex(held["bytecode"].removeprefix("0x")))


def lease_book() -> Interface:
    """LeaseBook's interface."""
    return interface("LeaseBook")


def verification() -> Interface:
    """Verification's interface."""
    return interface("Verification")


def payment_token() -> Interface:
    """The devnet token's interface; the ERC-20 part fits any payment token."""
    return interface("PaymentToken")


def decode_revert(returned: bytes | None, message: str = "") -> Revert:
    """The error behind a revert, from our ABIs, `Error(string)` or `Panic(uint256)`."""
    returned = returned or b""
    for known in (lease_book(), verification(), payment_token()):
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
