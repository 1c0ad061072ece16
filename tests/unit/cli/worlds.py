"""A pretend outside world for the command tree."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest

from cloud_gpu.cli.app import run
from cloud_gpu.protocol.errors import (
    CloudGpuError,
)
from cloud_gpu.protocol.ports import AccountView
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from cloud_gpu.settings import Settings


class PretendWallet:
    """Ten tokens in the wallet, two in the vault."""

    address = Address(b"\x01" * 20)

    def __init__(self) -> None:
        self.tokens, self.cash, self.id = 10_000_000, 2_000_000, 0

    def account(self) -> AccountView:
        return AccountView(id=self.id, cash=TokenAmount(self.cash), nonce_base=0, nonce_bits=0)

    def token_balance(self) -> TokenAmount:
        return TokenAmount(self.tokens)

    def native_balance(self) -> int:
        return 10**18

    def register_account(self) -> int:
        self.id = 7
        return 7

    def deposit(self, amount: TokenAmount) -> None:
        self.tokens -= amount.value
        self.cash += amount.value

    def withdraw(self, amount: TokenAmount) -> None:
        self.tokens += amount.value
        self.cash -= amount.value


class PretendWorld:
    """An outside world that holds a wallet, and fails where it is told to."""

    def __init__(self, failing: CloudGpuError | Exception | None = None) -> None:
        self.held = PretendWallet()
        self.failing = failing
        self.flags: Mapping[str, str | None] = {}
        self.waits: list[float | None] = []

    def settings(self, flags: Mapping[str, str | None]) -> Settings:
        self.flags = flags
        return Settings(max_price="1.00", context="test", market="http://127.0.0.1:1")

    def wallet(self, settings: Settings, within_s: float) -> Any:
        self.waits.append(within_s)
        if self.failing is not None:
            raise self.failing
        return nullcontext(self.held)

    def ask(self, settings: Settings, work: Any, say: Any, within_s: float | None) -> Any:
        self.waits.append(within_s)
        raise self.failing or AssertionError("nobody to ask")

    def address(self, settings: Settings) -> str:
        return str(self.held.address)

    def remembered(self, kind: str) -> list[dict[str, Any]]:
        return []  # nothing was handed in from here

    def chain_found(self, settings: Settings) -> str:
        return "LeaseBook 0x0 on chain 1"


def called(world: PretendWorld, *arguments: str) -> int:
    return run(world, arguments)  # type: ignore[arg-type]


Captured = pytest.CaptureFixture[str]
