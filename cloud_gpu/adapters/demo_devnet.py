"""A devnet for one demo, as the command line sees it: who is who, who dies, what the chain says."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cloud_gpu.accounting import BURN, AuditPayees, BatchKey, Books, GasUse
from cloud_gpu.adapters.chain_reading import ChainReader
from cloud_gpu.adapters.devnet import Devnet, Plan, launched
from cloud_gpu.adapters.processes import ended_by_signals
from cloud_gpu.protocol.adapters.evm_rpc import Rpc
from cloud_gpu.protocol.audit_messages import AuditRecord
from cloud_gpu.protocol.chain_events import ChainEvent
from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.values import Address

Say = Callable[[str], None]


class DemoDevnet:
    """See `cloud_gpu.cli.outside.FreshDevnet`."""

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
        for number, verifier in enumerate(prepared.verifiers):
            named[verifier.audits.key.address] = f"verifier {number}"
        return named | {BURN: "nobody (burnt)"}

    @property
    def buyer(self) -> Address:
        """The buyer's account."""
        return self._devnet.prepared.buyer.key.address

    def provider(self, number: int) -> Address:
        """A provider's account."""
        return self._devnet.prepared.nodes[number].wallet.key.address

    def kill(self, name: str) -> None:
        """A daemon dies without a word: SIGKILL."""
        self._devnet.children[name].kill()

    def start_again(self, name: str) -> None:
        """Start a daemon that died on what it left, and wait until it is ready."""
        self._devnet.start(name)
        self._devnet.started(name)

    def newest_block(self) -> int:
        """Its number."""
        return self._reader.newest_block()

    def books(self, block: int) -> Books:
        """Every balance at a block."""
        return self._reader.books(block)

    def events(self, block: int) -> Sequence[ChainEvent]:
        """All that the contracts logged up to a block."""
        return self._reader.events(block)

    def audit_payees(self, block: int) -> AuditPayees:
        """Who got each batch's audit share, and gets its bounties."""
        return self._reader.audit_payees(block)

    def drawn(self) -> Mapping[BatchKey, tuple[int, ...]]:
        """Which segments of which batch were audited, from the records that verifiers publish."""
        found: dict[BatchKey, tuple[int, ...]] = {}
        for path in sorted(self._devnet.folder.glob("verifier-*-data/records/*.json")):
            record = from_json(path.read_bytes(), AuditRecord)
            found[record.lease, record.batch_no] = record.drawn
        return found

    def gas(self, first: int, last: int) -> Sequence[GasUse]:
        """What calls of the contracts burnt, by function."""
        return self._reader.gas(first, last)


@contextmanager
def demo_devnet(
    *, nodes: int, faults: Mapping[int, str], keep: str | None, say: Say
) -> Iterator[DemoDevnet]:
    """One in a temporary folder, which goes with it, or in the folder `keep`, which stays.

    Raises SettingsInvalid for a folder that is not empty or cannot be made.
    """
    with (
        ended_by_signals(),
        tempfile.TemporaryDirectory(prefix="cloud-gpu-devnet-") as temporary,
        launched(Plan(folder=_folder(keep, temporary), nodes=nodes, faults=faults), say) as devnet,
        Rpc(devnet.rpc_url) as rpc,
    ):
        yield DemoDevnet(devnet, devnet.reader(rpc))


def _folder(keep: str | None, temporary: str) -> Path:
    if keep is None:
        return Path(temporary)
    folder = Path(keep).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SettingsInvalid(f"--keep {folder}: found files in it, needed an empty folder")
    except OSError as error:
        raise SettingsInvalid(
            f"--keep {folder}: cannot be made ({error.strerror or error}); name a folder that this"
            " user may write to"
        ) from error
    return folder
