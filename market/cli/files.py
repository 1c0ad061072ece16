"""Signed statements and proofs in files, as options name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.receipts import SignedReceipt
from cloud_gpu.protocol.rounds import SignedHeader
from cloud_gpu.protocol.values import Address

AnyMarket = Annotated[
    str,
    typer.Option(
        "--market",
        metavar="0x…",
        help="The market's address, if you know it; else the first round's word is taken.",
        show_default=False,
    ),
]
ReceiptFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--receipt",
        metavar="FILE",
        help="A receipt, or a list of them, as JSON; repeatable.",
        show_default=False,
    ),
]
HeaderFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--header",
        metavar="FILE",
        help="A signed header (or a list) that you kept: it must still be there; repeatable.",
        show_default=False,
    ),
]

ValueT = TypeVar("ValueT")


def receipts_in(paths: Sequence[Path] | None) -> list[SignedReceipt]:
    """What --receipt names. Raises SettingsInvalid."""
    return [each for path in paths or () for each in _one_or_many(path, SignedReceipt, "--receipt")]


def headers_in(paths: Sequence[Path] | None) -> list[SignedHeader]:
    """What --header names. Raises SettingsInvalid."""
    return [each for path in paths or () for each in _one_or_many(path, SignedHeader, "--header")]


def address_in(text: str, option: str) -> Address:
    """Raises SettingsInvalid."""
    try:
        return Address.parse(text)
    except ValueError as error:
        raise SettingsInvalid(f"{option}: {error}") from error


def read_file(path: Path, kind: type[ValueT], option: str) -> ValueT:
    """A value as JSON. Raises SettingsInvalid."""
    return _parsed(_octets(path, option), kind, path, option)


def _one_or_many(path: Path, kind: type[ValueT], option: str) -> list[ValueT]:
    raw = _octets(path, option)
    if raw.lstrip()[:1] == b"[":
        found: list[ValueT] = _parsed(raw, list[kind], path, option)  # type: ignore[valid-type]
        return found
    return [_parsed(raw, kind, path, option)]


def _octets(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsInvalid(f"{option}: {path} cannot be read ({error.strerror})") from error


def _parsed(raw: bytes, kind: type[ValueT], path: Path, option: str) -> ValueT:
    try:
        return from_json(raw, kind)
    except ValueError as error:
        raise SettingsInvalid(f"{option}: {path}: {error}") from error
