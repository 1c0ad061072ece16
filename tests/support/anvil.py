"""A real chain for tests: one Anvil a worker, LeaseBook deployed once, every test on a snapshot.

`anvil` and `deployed` are fixtures; a test that needs its own chain (reorganisations, restarts)
starts one with `running_anvil`.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cloud_gpu.adapters.toolchain import anvil_url, find_anvil
from cloud_gpu.protocol.adapters.deployer import deploy
from cloud_gpu.protocol.adapters.evm_rpc import Rpc, whole
from cloud_gpu.protocol.adapters.wallet import Wallet
from cloud_gpu.protocol.deployment import Deployment, DeploymentTerms
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, keccak256

WINDOWS = Windows(start=60, claim=120, retire=600, no_show=300)
ETHER = 10**18


@dataclass
class Anvil:
    """A running Anvil; blocks come with transactions unless it was told otherwise."""

    url: str
    process: subprocess.Popen[bytes]
    rpc: Rpc = field(init=False)

    def __post_init__(self) -> None:
        self.rpc = Rpc(self.url)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def mine(self, blocks: int = 1) -> None:
        self.rpc.call("anvil_mine", hex(blocks))

    def automine(self, on: bool) -> None:
        self.rpc.call("evm_setAutomine", on)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Blocks come with transactions, not one a second: for what a test sends one by one."""
        self.automine(True)
        yield
        self.rpc.call("evm_setIntervalMining", 1)

    def pass_time(self, seconds: int) -> None:
        """The chain's clock, not ours."""
        self.rpc.call("evm_increaseTime", seconds)
        self.mine()

    def time(self) -> int:
        return whole(self.rpc.call("eth_getBlockByNumber", "latest", False)["timestamp"])

    def block(self) -> int:
        return whole(self.rpc.call("eth_blockNumber"))

    def snapshot(self) -> str:
        found: str = self.rpc.call("evm_snapshot")
        return found

    def revert(self, snapshot: str) -> None:
        assert self.rpc.call("evm_revert", snapshot) is True

    def reorganise(self, depth: int) -> None:
        """Replace the newest blocks by empty ones; what they held is dropped."""
        self.rpc.call("anvil_reorg", depth, [])

    def give_native(self, address: Address, wei: int = 100 * ETHER) -> None:
        self.rpc.call("anvil_setBalance", str(address), hex(wei))

    def end(self) -> None:
        """A clean end: with --state, Anvil writes its chain down."""
        self.rpc.close()
        self.process.terminate()
        self.process.wait(timeout=60)

    def kill(self) -> None:
        self.rpc.close()
        self.process.kill()
        self.process.wait(timeout=60)


def start_anvil(*options: str, port: int = 0) -> Anvil:
    """Anvil on loopback; the caller ends it."""
    # A pipe that nobody reads would fill up.
    with tempfile.NamedTemporaryFile("wb") as written, Path(written.name).open() as said:
        process = subprocess.Popen(
            [str(find_anvil()), "--host", "127.0.0.1", "--port", str(port), *options],
            stdout=written,
            stderr=subprocess.STDOUT,
        )
        text, give_up_at = "", time.monotonic() + 20
        while process.poll() is None and time.monotonic() < give_up_at:
            text += said.read()
            if (url := anvil_url(text)) is not None:
                return Anvil(url, process)
            time.sleep(0.01)
        process.kill()
        process.wait()
        raise AssertionError(f"anvil did not start:\n{text}{said.read()}")


@contextmanager
def running_anvil(*options: str, port: int = 0) -> Iterator[Anvil]:
    """A chain of one's own."""
    anvil = start_anvil(*options, port=port)
    try:
        yield anvil
    finally:
        if anvil.process.poll() is None:
            anvil.end()


def key(name: str) -> LocalKey:
    """The same key for the same name, in every test."""
    return LocalKey(keccak256(b"cloud-gpu tests: " + name.encode()).raw)


@dataclass(frozen=True)
class Deployed:
    """LeaseBook and its token on a chain that only tests use."""

    anvil: Anvil
    deployment: Deployment

    @property
    def rpc_url(self) -> str:
        return self.anvil.url

    def wallet(self, owner: LocalKey) -> Wallet:
        return Wallet(self.rpc_url, self.deployment, owner, timeout_s=30)

    def key(self, name: str) -> LocalKey:
        """A key that can pay for gas."""
        made = key(name)
        self.anvil.give_native(made.address)
        return made

    def member(self, name: str, tokens: int = 1_000) -> LocalKey:
        """A key with an account and this many tokens in the vault."""
        made = self.key(name)
        with self.wallet(made) as wallet:
            wallet.register_account()
            if tokens:
                amount = TokenAmount(tokens * self.deployment.bond_unit.value)
                wallet.mint(amount)
                wallet.deposit(amount)
        return made


def deployed_on(anvil: Anvil, windows: Windows = WINDOWS, **options: Any) -> Deployed:
    """Deploy on a chain of one's own; `options` as of `DeploymentTerms`."""
    deployer = key("deployer")
    anvil.give_native(deployer.address)
    return Deployed(anvil, deploy(anvil.url, deployer, DeploymentTerms(windows=windows, **options)))


@pytest.fixture(scope="session")
def anvil() -> Iterator[Anvil]:
    """One chain a worker. Tests that use it directly share its state: prefer `deployed`."""
    with running_anvil() as started:
        yield started


@pytest.fixture(scope="session")
def _deployed_once(anvil: Anvil) -> Deployed:
    return deployed_on(anvil)


@pytest.fixture
def deployed(_deployed_once: Deployed) -> Iterator[Deployed]:
    """LeaseBook with nothing in it; what the test does is undone after it."""
    snapshot = _deployed_once.anvil.snapshot()
    yield _deployed_once
    _deployed_once.anvil.automine(True)
    _deployed_once.anvil.revert(snapshot)


def state_file(folder: Path) -> tuple[str, str]:
    """Options of an Anvil that goes on where it ended."""
    return "--state", str(folder / "anvil.json")
