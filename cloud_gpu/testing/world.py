"""A pretend marketplace, whole: chain, market, nodes, and a buyer's client on the real machinery.

Only the outside is pretended: `Buyer`, `Client`, `Session` and the runner are those of production.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio

from cloud_gpu.adapters.chain_feed import ChainFeed
from cloud_gpu.adapters.lines import BuyerLines
from cloud_gpu.adapters.sessions import AsyncioSession, BlockingSession, SharedClients
from cloud_gpu.adapters.several_markets import SeveralMarkets
from cloud_gpu.client import Client
from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.hardware import Gpu, GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.identity import KeyRole, LocalKey, PeerId
from cloud_gpu.protocol.job import JobSpec
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount, parse_price
from cloud_gpu.protocol.values import Address
from cloud_gpu.settings import Settings
from cloud_gpu.spending import Purse
from cloud_gpu.testing.memory_wire import MemoryNetwork
from cloud_gpu.testing.pretend_chain import EPOCH_S, PretendChain, TrioClock
from cloud_gpu.testing.pretend_market import PretendMarket
from cloud_gpu.testing.pretend_node import PretendNode, Said, Script
from cloud_gpu.testing.simulated_book import SimulatedBook

TOKEN: Final = 10**6
BUYER: Final = LocalKey(b"\x01" * 32)
MATCHER: Final = LocalKey(b"\x02" * 32)
FEE: Final = BasisPoints(100)
FILES_BYTES_MAX: Final = 2**30

DEPLOYMENT: Final = Deployment(
    chain_id=31_337,
    lease_book=Address(b"\xb0" * 20),
    token=Address(b"\xb1" * 20),
    first_block=0,
    windows=Windows(start=20, claim=15, retire=30),
    bond_unit=TokenAmount(TOKEN),
    voucher_interval_s=2,
    heartbeat_s=1,
)
"""A devnet's time-outs."""


def profile_of(gpu_class: str, gpus: int, **differs: Any) -> HardwareProfile:
    """A simulated machine of a class; any field may differ."""
    usual: dict[str, Any] = {
        "gpu_class": GpuClass(gpu_class),
        "gpus": (Gpu(model=gpu_class, memory_mib=80 * 1024),) * gpus,
        "cpu_model": "pretend",
        "cpu_architecture": "x86_64",
        "cpu_cores": 8,
        "memory_mib": 65_536,
        "disk_mib": 102_400,
        "region": "FR/EU",
        "isolation": Isolation.PROCESS,
        "simulated": True,
    }
    return HardwareProfile(**{**usual, **differs})


def scripted(commands: Mapping[str, Said] | Script) -> Script:
    """A script from a table of shell lines; what is not in it exits 127, as a shell does."""
    if callable(commands):
        return commands

    def answer(spec: JobSpec, inputs: Mapping[str, bytes]) -> Said:  # noqa: ARG001
        line = spec.command[2] if spec.command[:2] == ("sh", "-c") else shlex.join(spec.command)
        return commands.get(line, Said(stderr=f"sh: 1: {line}: not found\n", code=127))

    return answer


class World:
    """Everything, and the handles by which a test makes things go wrong."""

    def __init__(
        self,
        nursery: trio.Nursery,
        folder: Path,
        script: Script,
        machines: Sequence[tuple[str, int, str]],
        cash: int,
    ) -> None:
        self._nursery = nursery
        self.clock = TrioClock()
        self.network = MemoryNetwork(nursery)
        book = SimulatedBook(DEPLOYMENT, now=EPOCH_S)
        book.register(BUYER.address, cash)
        book.register(MATCHER.address, 0)
        self.nodes: list[PretendNode] = []
        for number, (gpu_class, gpus, price) in enumerate(machines):
            self._add_node(book, number, gpu_class, gpus, parse_price(price), script)
        market_id = book.register_market(MATCHER.address, FEE)
        self.chain = PretendChain(book, self.clock)
        self.market = PretendMarket(
            key=MATCHER,
            market_id=market_id,
            fee=FEE,
            chain=self.chain,
            clock=self.clock,
            nodes=self.nodes,
        )
        self.store = ArtifactStore(folder / "files", FILES_BYTES_MAX)
        self.wire = self.network.wire(PeerId("buyer"), self.store)
        self.feed = ChainFeed(self.chain.port(BUYER.address))
        self._draws = count()

    def other_market(self, key: LocalKey, nodes: Sequence[PretendNode]) -> PretendMarket:
        """One more market on this chain, for which these nodes sign their asks from now on."""
        book = self.chain.chain.book
        book.register(key.address, 0)
        self.market.nodes = [node for node in self.market.nodes if node not in nodes]
        for node in nodes:
            node.matcher = key.address
        return PretendMarket(
            key=key,
            market_id=book.register_market(key.address, FEE),
            fee=FEE,
            chain=self.chain,
            clock=self.clock,
            nodes=nodes,
        )

    def client(self, *others: PretendMarket) -> Client:
        """A buyer's client; at `others`, too."""
        market = SeveralMarkets([self.market, *others]) if others else self.market

        async def start_lines() -> BuyerLines:
            return BuyerLines(
                nursery=self._nursery,
                wire=self.wire,
                store=self.store,
                feed=self.feed,
                market=market,
                clock=self.clock,
            )

        return Client(
            purse=Purse(account=BUYER.address, signer=BUYER, domain=DEPLOYMENT.domain),
            market=market,
            chain=self.feed,
            start_lines=start_lines,
            clock=self.clock,
            deployment=DEPLOYMENT,
            draw=lambda: next(self._draws),
            others=others,
        )

    async def run(self) -> None:
        """Start time."""
        self._nursery.start_soon(self.chain.run)
        self._nursery.start_soon(self.feed.run)
        for node in self.nodes:
            self._nursery.start_soon(self._follow, node)

    async def _follow(self, node: PretendNode) -> None:
        async for event in self.chain.port(node.key.address).events():
            node.on_chain(event)

    def _add_node(
        self,
        book: SimulatedBook,
        number: int,
        gpu_class: str,
        gpus: int,
        price: Price,
        script: Script,
    ) -> None:
        wallet, key = LocalKey(bytes([16 + number]) * 32), LocalKey(bytes([64 + number]) * 32)
        product = next(
            (p for p in book.products.values() if (p.gpu_class, p.slice_gpus) == (gpu_class, gpus)),
            None,
        )
        if product is None:
            product = Product(
                id=len(book.products) + 1,
                gpu_class=GpuClass(gpu_class),
                slice_gpus=gpus,
                region_group="",
                min_bond=BasisPoints(100),
                notice=60,
                penalty=BasisPoints(100),
                flags=0,
            )
            book.register_product(product)
        book.register(wallet.address, 1_000 * TOKEN)
        book.delegate(wallet.address, key.address, KeyRole.NODE, EPOCH_S + 10**8)
        peer = PeerId(f"node-{number}")
        node = PretendNode(
            peer=peer,
            wallet=wallet,
            key=key,
            domain=DEPLOYMENT.domain,
            product=product.id,
            price=price,
            profile=profile_of(gpu_class, gpus),
            matcher=MATCHER.address,
            script=script,
            now=self.clock.now,
            transact=lambda call: self.chain.chain.submit(key.address, call),
            send=lambda to, message: self.network.from_node(peer, to, message),
            later=self.network.later,
        )
        book.add_machine(node.machine, 50 * TOKEN, product.id)
        self.nodes.append(node)
        self.network.add_node(node)


MACHINES: Final = (("A100-SXM4-80GB", 2, "1.20"), ("A100-PCIE-40GB", 1, "0.80"))


@asynccontextmanager
async def pretend_world(
    commands: Mapping[str, Said] | Script = {},  # noqa: B006  # never changed
    *,
    machines: Sequence[tuple[str, int, str]] = MACHINES,
    cash: int = 100 * TOKEN,
) -> AsyncIterator[World]:
    """A world on the running trio loop, whose clock may be `trio.testing.MockClock`.

    `machines` are (class, GPUs, price); `cash` is the buyer's vault in base units.
    """
    with tempfile.TemporaryDirectory(prefix="cloud-gpu-pretend-") as folder:
        async with trio.open_nursery() as nursery:
            world = World(nursery, Path(folder), scripted(commands), machines, cash)
            await world.run()
            yield world
            nursery.cancel_scope.cancel()


class Pretended:
    """A pretend world behind sessions."""

    def __init__(self, clients: SharedClients, settings: Settings) -> None:
        self._settings = settings
        self._blocking: type[BlockingSession] = type(
            "PretendSession", (BlockingSession,), {"clients": clients}
        )
        self._asyncio: type[AsyncioSession] = type(
            "PretendAsyncSession", (AsyncioSession,), {"clients": clients}
        )

    def session(self, gpu_type: str, count: int = 1, **words: Any) -> BlockingSession:
        """A `Session`, with the same words; its settings are the world's."""
        return self._blocking(gpu_type, count, settings=self._settings, **words)

    def async_session(self, gpu_type: str, count: int = 1, **words: Any) -> AsyncioSession:
        """An `AsyncSession`, with the same words."""
        return self._asyncio(gpu_type, count, settings=self._settings, **words)


@contextmanager
def pretend(
    commands: Mapping[str, Said] | Script = {},  # noqa: B006  # never changed
    *,
    machines: Sequence[tuple[str, int, str]] = MACHINES,
    max_price: str = "5.00",
) -> Iterator[Pretended]:
    """Sessions for a test of a program that uses the SDK; time is real, a block takes a second."""

    @asynccontextmanager
    async def open_client(settings: Settings) -> AsyncIterator[Client]:  # noqa: ARG001
        async with pretend_world(commands, machines=machines) as world:
            yield world.client()

    settings = Settings(max_price=max_price)
    yield Pretended(SharedClients(lambda _: settings, open_client), settings)
