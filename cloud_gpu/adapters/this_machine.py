"""The command line's outside world on this machine: devnets, wallets, chains, contexts on disk.

`main` adds what only it may compose: settings, clients and sessions. Heavy imports happen where
they are used, so that a command pays for what it needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from cloud_gpu.protocol.errors import SettingsInvalid, StorageFailed
from cloud_gpu.settings import Settings

if TYPE_CHECKING:
    from cloud_gpu.adapters.contracts_desk import ContractsDesk
    from cloud_gpu.adapters.demo_devnet import DemoDevnet
    from cloud_gpu.adapters.devnet_state import DevnetState
    from cloud_gpu.adapters.kept_leases import KeptLeases
    from cloud_gpu.protocol.adapters.wallet import Wallet

Say = Callable[[str], None]


class KeptDevnet:
    """The devnet that a person keeps in the background; its data is below the user's own."""

    def __init__(self) -> None:
        self._folder = platformdirs.user_data_path("cloud-gpu") / "devnet"

    def status(self) -> DevnetState | None:
        """None: it does not run."""
        from cloud_gpu.adapters import devnet_keeper

        return devnet_keeper.status(self._folder)

    def up(self, nodes: int, runtime: str, say: Say, within_s: float) -> tuple[DevnetState, bool]:
        """See `devnet_keeper.up`."""
        from cloud_gpu.adapters import devnet_keeper

        return devnet_keeper.up(self._folder, nodes, runtime, say, within_s)

    def keep(
        self, nodes: int, runtime: str, say: Say, ready: Callable[[DevnetState], None]
    ) -> None:
        """See `devnet_keeper.keep`."""
        from cloud_gpu.adapters import devnet_keeper

        devnet_keeper.keep(self._folder, nodes, runtime, say, ready)

    def down(self, say: Say) -> bool:
        """See `devnet_keeper.down`."""
        from cloud_gpu.adapters import devnet_keeper

        return devnet_keeper.down(self._folder, say)


class ThisMachine:
    """See `cloud_gpu.cli.outside.Outside`; sessions, clients and settings are `main`'s."""

    def leases(self) -> KeptLeases:
        """The person's own, below the data folder."""
        from cloud_gpu.adapters.kept_leases import KeptLeases

        return KeptLeases(platformdirs.user_data_path("cloud-gpu") / "leases")

    def devnet(self) -> KeptDevnet:
        """The person's own."""
        return KeptDevnet()

    def fresh_devnet(
        self, *, nodes: int, faults: Mapping[int, str], keep: str | None, say: Say
    ) -> AbstractContextManager[DemoDevnet]:
        """A devnet of its own; ended, whatever happens."""
        from cloud_gpu.adapters.demo_devnet import demo_devnet

        return demo_devnet(nodes=nodes, faults=faults, keep=keep, say=say)

    def require_contexts(self) -> None:
        """Find out whether contexts can be written. Raises SettingsInvalid."""
        trial = contexts_folder() / f".{os.getpid()}.trial"
        with _writing(trial):
            trial.write_text("a context will be written here\n")
            trial.unlink()

    def use_context(self, name: str, values: Mapping[str, str]) -> str:
        """Write a context's file; returns its path. Raises SettingsInvalid."""
        import tomli_w

        path = context_file(name)
        scratch = path.with_suffix(f".{os.getpid()}.new")
        with _writing(path):
            scratch.write_text(tomli_w.dumps(dict(values)))
            scratch.replace(path)
        return str(path)

    def forget_context(self, name: str) -> None:
        """Remove a context's file, if it is there."""
        context_file(name).unlink(missing_ok=True)

    def remember(self, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Note what was handed in from this machine. Raises StorageFailed."""
        path = _noted_file(kind)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:  # one write: lines of two commands do not mix
                file.write("".join(json.dumps(dict(row)) + "\n" for row in rows))
        except OSError as error:
            raise StorageFailed(
                f"{path}: cannot be written ({error.strerror or error}); the {kind} stand, but"
                " the command that lists them will not"
            ) from error

    def remembered(self, kind: str) -> list[dict[str, Any]]:
        """Those noted, oldest first; a line that was cut short is skipped."""
        found = []
        try:
            lines = _noted_file(kind).read_text().splitlines()
        except FileNotFoundError:
            return []
        for line in lines:
            with suppress(ValueError):
                found.append(json.loads(line))
        return found

    def address(self, settings: Settings) -> str:
        """The wallet's. Raises SettingsInvalid."""
        from cloud_gpu.protocol.adapters.keystore import load_key

        files = Path(settings.need("keystore")), Path(settings.need("password_file"))
        return str(load_key(*files).address)

    def chain_found(self, settings: Settings) -> str:
        """What answers at `rpc`. Raises ChainUnavailable, SettingsInvalid."""
        from cloud_gpu.protocol.adapters import evm_views
        from cloud_gpu.protocol.adapters.deployment_files import read_deployment
        from cloud_gpu.protocol.adapters.evm_rpc import Rpc

        deployment = read_deployment(Path(settings.need("deployment")))
        with Rpc(settings.need("rpc")) as rpc:
            evm_views.check(rpc, deployment)
        return f"LeaseBook {deployment.lease_book} on chain {deployment.chain_id}"

    def contracts(self, settings: Settings) -> ContractsDesk:
        """Deploying and verifying; nothing is opened before it is asked."""
        from cloud_gpu.adapters.contracts_desk import ContractsDesk

        return ContractsDesk(settings)

    def wallet(self, settings: Settings, within_s: float) -> AbstractContextManager[Wallet]:
        """The account's own calls. Raises SettingsInvalid, ChainUnavailable."""
        from cloud_gpu.protocol.adapters.deployment_files import read_deployment
        from cloud_gpu.protocol.adapters.keystore import load_key
        from cloud_gpu.protocol.adapters.wallet import Wallet

        key = load_key(Path(settings.need("keystore")), Path(settings.need("password_file")))
        deployment = read_deployment(Path(settings.need("deployment")))
        return Wallet(settings.need("rpc"), deployment, key, timeout_s=within_s)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Inside, a context's file is written. Raises SettingsInvalid with the path and the fix."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise SettingsInvalid(
            f"context {path}: cannot be written ({error.strerror or error}); its folder must"
            " belong to this user and its disk have room"
        ) from error


def _noted_file(kind: str) -> Path:
    return platformdirs.user_data_path("cloud-gpu") / f"{kind}.jsonl"


def context_file(name: str) -> Path:
    """Where a context of this name lies."""
    return contexts_folder() / f"{name}.toml"


def contexts_folder() -> Path:
    """Where a person's contexts lie."""
    return platformdirs.user_config_path("cloud-gpu") / "contexts"
