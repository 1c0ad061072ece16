"""A devnet in a test's own folder, and the settings of the buyer on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloud_gpu.adapters.devnet import Devnet, Plan, launched
from cloud_gpu.protocol.adapters.evm_rpc import Rpc
from cloud_gpu.protocol.lease import LeaseKey, MachineStatus
from cloud_gpu.settings import Settings


class Renting:
    """A running devnet with its buyer."""

    def __init__(self, devnet: Devnet) -> None:
        self.devnet = devnet
        found = devnet.state()
        self.settings = Settings(
            market=found.market,
            rpc=found.rpc,
            deployment=found.deployment,
            keystore=found.keystore,
            password_file=found.password_file,
            max_price=found.max_price,
        )
        self.said: list[str] = []

    @property
    def environment(self) -> dict[str, str]:
        """The same settings for another process."""
        names = ("market", "rpc", "deployment", "keystore", "password_file", "max_price")
        return {f"CLOUD_GPU_{n.upper()}": getattr(self.settings, n) for n in names}

    def cash(self) -> int:
        """The buyer's vault, base units."""
        with Rpc(self.settings.rpc) as rpc:
            from cloud_gpu.protocol.adapters import evm_views

            prepared = self.devnet.prepared
            account = prepared.buyer.key.address
            return evm_views.account(rpc, prepared.deployment, account).cash.value

    def status(self, lease: LeaseKey) -> MachineStatus:
        """Where the machine of a lease is."""
        with Rpc(self.settings.rpc) as rpc:
            from cloud_gpu.protocol.adapters import evm_views

            return evm_views.machine(rpc, self.devnet.prepared.deployment, lease.machine).status


@contextmanager
def renting(folder: Path, nodes: int = 2) -> Iterator[Renting]:
    """Start it; everything is gone afterwards."""
    plan = Plan(folder=folder, nodes=nodes, runtime="process")  # runtimes have their own suite
    with launched(plan, lambda _: None) as devnet:
        yield Renting(devnet)
