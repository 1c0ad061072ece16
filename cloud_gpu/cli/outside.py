"""What the command line needs of the outside world; `cloud_gpu.main` hands it in.

A command line never imports `main` or an adapter. Everything here blocks: a command does one
thing at a time. Heavy libraries are imported when a method is called, not before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cloud_gpu.accounting import Books, GasUse
from cloud_gpu.client import Client
from cloud_gpu.outcomes import Bill, RunResult
from cloud_gpu.protocol.chain_events import ChainEvent
from cloud_gpu.protocol.ports import AccountView
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from cloud_gpu.settings import Settings

AnswerT = TypeVar("AnswerT")

Progress = Callable[[str], None]
"""Tell the person who waits."""


class DevnetView(Protocol):
    """Where a running devnet is; paths absolute."""

    @property
    def folder(self) -> str: ...
    @property
    def nodes(self) -> int: ...
    @property
    def market(self) -> str: ...
    @property
    def rpc(self) -> str: ...
    @property
    def deployment(self) -> str: ...
    @property
    def keystore(self) -> str: ...
    @property
    def password_file(self) -> str: ...
    @property
    def max_price(self) -> str: ...
    @property
    def started_at(self) -> int:
        """Unix milliseconds."""

    @property
    def stand_ins(self) -> Sequence[str]: ...


class DevnetDesk(Protocol):
    """The one devnet that a person may keep running on this machine."""

    def status(self) -> DevnetView | None:
        """None: it does not run."""

    def up(self, nodes: int, say: Progress, within_s: float) -> tuple[DevnetView, bool]:
        """Start it in the background unless it runs; True: it was started now."""

    def keep(self, nodes: int, say: Progress, ready: Callable[[DevnetView], None]) -> None:
        """Run it here until interrupted."""

    def down(self, say: Progress) -> bool:
        """End it and remove its data; False: it did not run."""


class FreshDevnet(Protocol):
    """A devnet of our own, gone when its context ends."""

    @property
    def view(self) -> DevnetView: ...
    @property
    def names(self) -> Mapping[Address, str]:
        """Account -> who it is: "buyer", "market", "provider 0"."""

    def kill_node(self, number: int) -> None:
        """A provider's daemon dies without a word."""

    def newest_block(self) -> int: ...
    def books(self, block: int) -> Books: ...
    def events(self, block: int) -> Sequence[ChainEvent]:
        """All that LeaseBook logged up to a block."""

    def gas(self, first: int, last: int) -> Sequence[GasUse]: ...


class WalletDesk(Protocol):
    """The account's own calls, each waited for."""

    @property
    def address(self) -> Address: ...
    def account(self) -> AccountView: ...
    def token_balance(self) -> TokenAmount: ...
    def native_balance(self) -> int:
        """Wei."""

    def register_account(self) -> int: ...
    def deposit(self, amount: TokenAmount) -> None: ...
    def withdraw(self, amount: TokenAmount) -> None: ...
    def cancel_one(self, nonce: int) -> None:
        """Void the account's bids with this nonce."""


class OpenSession(Protocol):
    """An open lease, blocking; see `Lease`."""

    @property
    def bill(self) -> Bill | None: ...
    def put(self, local: str | Path, remote: str | None = None) -> tuple[str, ...]: ...
    def get(self, remote: str, local: str | Path | None = None) -> tuple[Path, ...]: ...
    def install(self, *requirements: str) -> Any: ...
    def run(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        stream: bool = True,
    ) -> RunResult: ...


class Outside(Protocol):
    """Everything at once."""

    def settings(self, flags: Mapping[str, str | None]) -> Settings:
        """From flags, environment and files. Raises SettingsInvalid."""

    def use_context(self, name: str, values: Mapping[str, str]) -> str:
        """Write a context; returns its file's path. Raises SettingsInvalid."""

    def forget_context(self, name: str) -> None:
        """Remove it, if it is there."""

    def address(self, settings: Settings) -> str:
        """The wallet's, from its keystore. Raises SettingsInvalid."""

    def chain_found(self, settings: Settings) -> str:
        """What answers there, in words. Raises ChainUnavailable, SettingsInvalid."""

    def wallet(self, settings: Settings) -> AbstractContextManager[WalletDesk]: ...

    def ask(
        self, settings: Settings, work: Callable[[Client], Awaitable[AnswerT]], say: Progress
    ) -> AnswerT:
        """Do something with a client of the settings' market and wallet."""

    def session(
        self, settings: Settings, say: Progress, **words: Any
    ) -> AbstractContextManager[OpenSession]:
        """A `Session` of these settings; the words are those of `cloud_gpu.Session`."""

    def remember_bids(self, bids: Sequence[Mapping[str, Any]]) -> None:
        """Note bids that were handed in from this machine."""

    def remembered_bids(self) -> list[dict[str, Any]]:
        """Those noted, oldest first."""

    def devnet(self) -> DevnetDesk: ...

    def fresh_devnet(self, *, nodes: int, say: Progress) -> AbstractContextManager[FreshDevnet]: ...
