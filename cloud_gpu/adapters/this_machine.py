"""The command line's outside world on this machine: devnets, wallets, chains, contexts on disk.

`main` adds what only it may compose: settings, clients and sessions. Heavy imports happen where
they are used, so that a command pays for what it needs.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs

from cloud_gpu.protocol.errors import SettingsInvalid, StorageFailed
from cloud_gpu.settings import Settings

if TYPE_CHECKING:
    from cloud_gpu.accounting import Books, GasUse
    from cloud_gpu.adapters.chain_reading import ChainReader
    from cloud_gpu.adapters.devnet import Devnet
    from cloud_gpu.adapters.devnet_state import DevnetState
    from cloud_gpu.adapters.kept_leases import KeptLeases
    from cloud_gpu.protocol.adapters.wallet import Wallet
    from cloud_gpu.protocol.chain_events import ChainEvent
    from cloud_gpu.protocol.values import Address

Say = Callable[[str], None]


class KeptDevnet:
    """The devnet that a person keeps in the background; its data is below the user's own."""

    def __init__(self) -> None:
        self._folder = platformdirs.user_data_path("cloud-gpu") / "devnet"

    def status(self) -> DevnetState | None:
        """None: it does not run."""
        from cloud_gpu.adapters import devnet_keeper

        return devnet_keeper.status(self._folder)

    def up(self, nodes: int, say: Say, within_s: float) -> tuple[DevnetState, bool]:
        """See `devnet_keeper.up`."""
        from cloud_gpu.adapters import devnet_keeper

        return devnet_keeper.up(self._folder, nodes, say, within_s)

    def keep(self, nodes: int, say: Say, ready: Callable[[DevnetState], None]) -> None:
        """See `devnet_keeper.keep`."""
        from cloud_gpu.adapters import devnet_keeper

        devnet_keeper.keep(self._folder, nodes, say, ready)

    def down(self, say: Say) -> bool:
        """See `devnet_keeper.down`."""
        from cloud_gpu.adapters import devnet_keeper

        return devnet_keeper.down(self._folder, say)


class DemoDevnet:
    """A devnet for one demo, as the command line sees it."""

    def __init__(self, devnet: Devnet, reader: ChainReader) -> None:
        self._devnet, self._reader = devnet, reader
        self.view = devnet.state()

    @property
    def names(self) -> Mapping[Address, str]:
        """Account -> who it is."""
        prepared = self._devnet.prepared
        named = {prepared.market.key.address: "market", prepared.buyer.key.address: "buyer"}
        for number, node in enumerate(prepared.nodes):
            named[node.wallet.key.address] = f"provider {number}"
        return named

    def kill_node(self, number: int) -> None:
        """A provider's daemon dies without a word."""
        self._devnet.child(f"node-{number}").kill()

    def newest_block(self) -> int:
        """Its number."""
        return self._reader.newest_block()

    def books(self, block: int) -> Books:
        """Every balance at a block."""
        return self._reader.books(block)

    def events(self, block: int) -> Sequence[ChainEvent]:
        """All that LeaseBook logged up to a block."""
        return self._reader.events(block)

    def gas(self, first: int, last: int) -> Sequence[GasUse]:
        """What calls of LeaseBook burnt, by function."""
        return self._reader.gas(first, last)


class ThisMachine:
    """See `cloud_gpu.cli.outside.Outside`; sessions, clients and settings are `main`'s."""

    def leases(self) -> KeptLeases:
        """The person's own, below the data folder."""
        from cloud_gpu.adapters.kept_leases import KeptLeases

        return KeptLeases(platformdirs.user_data_path("cloud-gpu") / "leases")

    def devnet(self) -> KeptDevnet:
        """The person's own."""
        return KeptDevnet()

    @contextmanager
    def fresh_devnet(self, *, nodes: int, say: Say) -> Iterator[DemoDevnet]:
        """A devnet in a temporary folder; ended, and the folder removed, whatever happens."""
        from cloud_gpu.adapters.devnet import Plan, launched
        from cloud_gpu.adapters.processes import ended_by_signals
        from cloud_gpu.protocol.adapters.evm_rpc import Rpc

        with (
            ended_by_signals(),
            tempfile.TemporaryDirectory(prefix="cloud-gpu-devnet-") as folder,
            launched(Plan(folder=Path(folder), nodes=nodes), say) as devnet,
            Rpc(devnet.rpc_url) as rpc,
        ):
            yield DemoDevnet(devnet, devnet.reader(rpc))

    def use_context(self, name: str, values: Mapping[str, str]) -> str:
        """Write a context's file; returns its path. Raises SettingsInvalid."""
        import tomli_w

        path = context_file(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_suffix(f".{os.getpid()}.new")
            scratch.write_text(tomli_w.dumps(dict(values)))
            scratch.replace(path)
        except OSError as error:
            raise SettingsInvalid(
                f"context {path}: cannot be written ({error.strerror or error}); its folder must"
                " belong to this user and its disk have room"
            ) from error
        return str(path)

    def forget_context(self, name: str) -> None:
        """Remove a context's file, if it is there."""
        context_file(name).unlink(missing_ok=True)

    def remember_bids(self, bids: Sequence[Mapping[str, Any]]) -> None:
        """Note bids that were handed in from this machine. Raises StorageFailed."""
        path = _bids_file()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:  # one write: lines of two commands do not mix
                file.write("".join(json.dumps(dict(bid)) + "\n" for bid in bids))
        except OSError as error:
            raise StorageFailed(
                f"{path}: cannot be written ({error.strerror or error}); the bids stand, but"
                " `cloud-gpu bid ls` will not list them"
            ) from error

    def remembered_bids(self) -> list[dict[str, Any]]:
        """Those noted, oldest first; a line that was cut short is skipped."""
        found = []
        try:
            lines = _bids_file().read_text().splitlines()
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
        from cloud_gpu.protocol.adapters.deployer import read_deployment
        from cloud_gpu.protocol.adapters.evm_rpc import Rpc

        deployment = read_deployment(Path(settings.need("deployment")))
        with Rpc(settings.need("rpc")) as rpc:
            evm_views.check(rpc, deployment)
        return f"LeaseBook {deployment.lease_book} on chain {deployment.chain_id}"

    def wallet(self, settings: Settings, within_s: float) -> AbstractContextManager[Wallet]:
        """The account's own calls. Raises SettingsInvalid, ChainUnavailable."""
        from cloud_gpu.protocol.adapters.deployer import read_deployment
        from cloud_gpu.protocol.adapters.keystore import load_key
        from cloud_gpu.protocol.adapters.wallet import Wallet

        key = load_key(Path(settings.need("keystore")), Path(settings.need("password_file")))
        deployment = read_deployment(Path(settings.need("deployment")))
        return Wallet(settings.need("rpc"), deployment, key, timeout_s=within_s)


def _bids_file() -> Path:
    return platformdirs.user_data_path("cloud-gpu") / "bids.jsonl"


def context_file(name: str) -> Path:
    """Where a context of this name lies."""
    return contexts_folder() / f"{name}.toml"


def contexts_folder() -> Path:
    """Where a person's contexts lie."""
    return platformdirs.user_config_path("cloud-gpu") / "contexts"
