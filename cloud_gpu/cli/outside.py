"""What the command line needs of the outside world; `cloud_gpu.main` hands it in.

A command line never imports `main` or an adapter. Everything here blocks: a command does one
thing at a time. Heavy libraries are imported when a method is called, not before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cloud_gpu.accounting import AuditPayees, BatchKey, Books, GasUse
from cloud_gpu.client import Client
from cloud_gpu.group_buyer import GroupBuyer
from cloud_gpu.leased import Lease
from cloud_gpu.outcomes import Bill, Cost, RunResult
from cloud_gpu.protocol.chain_events import ChainEvent
from cloud_gpu.protocol.deployment import Deployment, DeploymentTerms
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.ports import AccountView
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from cloud_gpu.settings import Settings
from cloud_gpu.taking import Given
from cloud_gpu.trader import Trader

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
    @property
    def ended(self) -> Sequence[str]:
        """Names of its processes that should run and do not."""


class DevnetDesk(Protocol):
    """The one devnet that a person may keep running on this machine."""

    def status(self) -> DevnetView | None:
        """None: it does not run."""

    def up(
        self, nodes: int, runtime: str, say: Progress, within_s: float
    ) -> tuple[DevnetView, bool]:
        """Start it in the background unless it runs; True: it was started now."""

    def keep(
        self, nodes: int, runtime: str, say: Progress, ready: Callable[[DevnetView], None]
    ) -> None:
        """Run it here until interrupted."""

    def down(self, say: Progress) -> bool:
        """End it and remove its data; False: it did not run."""


class FreshDevnet(Protocol):
    """A devnet of our own, gone when its context ends."""

    @property
    def view(self) -> DevnetView: ...
    @property
    def names(self) -> Mapping[Address, str]:
        """Account -> who it is: "buyer", "market", "provider 0", "verifier 1"."""

    @property
    def buyer(self) -> Address: ...
    def provider(self, number: int) -> Address: ...
    def kill(self, name: str) -> None:
        """A daemon ("market", "node-0", "verifier-1") dies without a word."""

    def start_again(self, name: str) -> None:
        """Start a daemon that died on what it left, and wait until it is ready."""

    def newest_block(self) -> int: ...
    def books(self, block: int) -> Books: ...
    def events(self, block: int) -> Sequence[ChainEvent]:
        """All that the contracts logged up to a block."""

    def audit_payees(self, block: int) -> AuditPayees:
        """Who got each batch's audit share, and gets its bounties."""

    def drawn(self) -> Mapping[BatchKey, tuple[int, ...]]:
        """Which segments of which batch were audited, as the verifiers published it."""

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


class PlannedStep(Protocol):
    """One contract that a deployment would create."""

    @property
    def contract(self) -> str: ...
    @property
    def nonce(self) -> int: ...
    @property
    def address(self) -> Address: ...
    @property
    def gas_most(self) -> int: ...


class DeploymentPreview(Protocol):
    """What a deployment would do and cost, if it began now."""

    @property
    def chain_id(self) -> int: ...
    @property
    def deployer(self) -> Address: ...
    @property
    def steps(self) -> Sequence[PlannedStep]: ...
    @property
    def fee_most(self) -> int:
        """Wei a gas."""


class ContractsDesk(Protocol):
    """The contracts on the settings' chain."""

    def preview(self, terms: DeploymentTerms) -> DeploymentPreview: ...
    def deploy(
        self, terms: DeploymentTerms, file: Path, say: Progress, within_s: float
    ) -> Deployment:
        """Deploy, or go on with what was interrupted; `file` is written at the end."""

    def verify(self, file: Path) -> Sequence[str]:
        """What was found as the file says. Raises DeploymentDiffers, SettingsInvalid."""


class RunningJob(Protocol):
    """A command that runs in a lease."""

    @property
    def running(self) -> bool: ...
    def logs(self, stream: str = "stdout") -> Iterator[str]:
        """What it prints, piece by piece, until it ended."""

    def wait(self, *, check: bool = False) -> RunResult: ...
    def kill(self) -> None: ...


class OpenSession(Protocol):
    """An open lease, blocking; see `Lease`."""

    @property
    def bill(self) -> Bill | None: ...
    @property
    def lease(self) -> Lease: ...
    def put(self, local: str | Path, remote: str | None = None) -> tuple[str, ...]: ...
    def get(self, remote: str, local: str | Path | None = None) -> tuple[Path, ...]: ...
    def install(self, *requirements: str) -> Any: ...
    def run(
        self,
        command: str | Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        check: bool = True,
        timeout: str | int | None = None,
        stream: bool = True,
    ) -> RunResult: ...
    def popen(
        self, command: str | Sequence[str], env: Mapping[str, str] | None = None
    ) -> RunningJob: ...
    def cost(self) -> Cost: ...


class Keeper(Protocol):
    """A process in the background that opens a lease and keeps it."""

    def exit_code(self) -> int | None:
        """None while it lives."""

    def news(self) -> list[str]:
        """Lines of its progress that were not told yet."""

    def result(self) -> str:
        """Its standard output."""

    def interrupt(self) -> None:
        """Ask it to end its lease and go."""


Answer = Callable[[Mapping[str, Any]], Iterator[Mapping[str, Any]]]


class LeaseDesk(Protocol):
    """Leases that stay open between commands, by the names a person gave them."""

    def names(self) -> list[str]:
        """Of all that are known, ended ones included; oldest first."""

    def free_name(self) -> str: ...
    def record(self, name: str) -> dict[str, Any] | None:
        """What its keeper noted last; None: there is no such lease."""

    def note(self, name: str, record: Mapping[str, Any]) -> None: ...
    def forget(self, name: str) -> None: ...
    def is_kept(self, name: str) -> bool: ...
    def keeping(self, name: str) -> AbstractContextManager[None]:
        """Keep it, alone; an ending signal raises KeyboardInterrupt inside."""

    def start_keeper(self, name: str, arguments: Sequence[str]) -> Keeper:
        """Run `cloud-gpu ARGUMENTS` in the background."""

    def answering(self, name: str, answer: Answer) -> AbstractContextManager[None]:
        """Serve requests about a lease, while the block lasts."""

    def ask(self, name: str, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The keeper's answers, as they come."""


class Outside(Protocol):
    """Everything at once."""

    def settings(self, flags: Mapping[str, str | None]) -> Settings:
        """From flags, environment and files. Raises SettingsInvalid."""

    def use_context(self, name: str, values: Mapping[str, str]) -> str:
        """Write a context; returns its file's path. Raises SettingsInvalid."""

    def require_contexts(self) -> None:
        """Find out whether contexts can be written, before anything is begun that needs one.

        Raises SettingsInvalid.
        """

    def forget_context(self, name: str) -> None:
        """Remove it, if it is there."""

    def address(self, settings: Settings) -> str:
        """The wallet's, from its keystore. Raises SettingsInvalid."""

    def chain_found(self, settings: Settings) -> str:
        """What answers there, in words. Raises ChainUnavailable, SettingsInvalid."""

    def wallet(self, settings: Settings, within_s: float) -> AbstractContextManager[WalletDesk]:
        """Each transaction is waited for in `within_s` seconds; then ChainUnavailable."""

    def contracts(self, settings: Settings) -> ContractsDesk: ...

    def trader(self, settings: Settings, within_s: float) -> AbstractContextManager[Trader]:
        """The wallet's futures; each transaction is waited for in `within_s` seconds."""

    def group_buyer(
        self, settings: Settings, within_s: float
    ) -> AbstractContextManager[GroupBuyer]:
        """The wallet's group buys; likewise."""

    def ask(
        self,
        settings: Settings,
        work: Callable[[Client], Awaitable[AnswerT]],
        say: Progress,
        within_s: float | None,
    ) -> AnswerT:
        """Do something with a client of the settings' market and wallet.

        Raises WaitedTooLong after `within_s` seconds; None: it takes what it takes.
        """

    def session(
        self, settings: Settings, say: Progress, **words: Any
    ) -> AbstractContextManager[OpenSession]:
        """A `Session` of these settings; the words are those of `cloud_gpu.Session`."""

    def given_session(
        self, settings: Settings, say: Progress, lease: LeaseKey | Given, within_s: int | None
    ) -> AbstractContextManager[OpenSession]:
        """A `GivenSession`: takes up a lease that opens without a bid."""

    def remember(self, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Note what was handed in from this machine: "bids", "futures", "pledges"."""

    def remembered(self, kind: str) -> list[dict[str, Any]]:
        """Those noted, oldest first."""

    def leases(self) -> LeaseDesk: ...

    def devnet(self) -> DevnetDesk: ...

    def fresh_devnet(
        self, *, nodes: int, faults: Mapping[int, str], keep: str | None, say: Progress
    ) -> AbstractContextManager[FreshDevnet]:
        """`faults`: what which node does wrong; `keep`: a folder for its data, which stays."""
