"""Who takes part in a simulated season: keys, products, machines and money, by seed alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from cloud_gpu.protocol.deployment import AuditWindows, Deployment
from cloud_gpu.protocol.hardware import Gpu, GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.identity import KeyRole, LocalKey, NodeBinding, PeerId
from cloud_gpu.protocol.job import FileRef, JobSpec
from cloud_gpu.protocol.lease import MachineKey, Windows
from cloud_gpu.protocol.orders import AskFlags
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.product import Product, ProductFlags
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from cloud_gpu.protocol.values import Address, keccak256
from cloud_gpu.testing import simulated_audits
from cloud_gpu.testing.simulated_book import SimulatedBook
from node.announcing import Announcements
from node.pricing import Policy
from node.provider import Provider
from verifier.draw import Preimages

T0 = 1_800_000_000
"""Unix seconds at which every season begins."""

TOKEN = 1_000_000


def key(name: str) -> LocalKey:
    """One key per name."""
    return LocalKey(keccak256(name.encode()).raw)


MARKET = key("market")
VERIFIERS = (key("verifier-0"), key("verifier-1"))
PREIMAGES = {signer.address: Preimages(keccak256(signer.secret), 100) for signer in VERIFIERS}
"""Draws of each verifier: far more than a season has batches."""

DEPLOYMENT = Deployment(
    chain_id=31337,
    lease_book=Address(b"\x0b" * 20),
    token=Address(b"\x0c" * 20),
    first_block=0,
    windows=Windows(start=20, claim=30, retire=60, no_show=10),
    bond_unit=TokenAmount(TOKEN),
    verification=Address(b"\x0d" * 20),
    verifiers=(VERIFIERS[0].address, VERIFIERS[1].address),
    audit=AuditWindows(commit=30, challenge=8, hard_cap=60, late_slash=60, answer=10),
    voucher_interval_s=4,
    heartbeat_s=1,
)
VIEW = MarketView(
    matcher=MARKET.address,
    market_id=1,
    fee_bps=BasisPoints(100),
    round_ms=300,
    chain_id=DEPLOYMENT.chain_id,
    lease_book=DEPLOYMENT.lease_book,
    token=DEPLOYMENT.token,
    peer=PeerId("market-peer"),
    addresses=(),
)
"""What the market says of itself."""

GPU_CLASS = GpuClass("A100-SXM4-80GB")
PRODUCT = Product(
    id=1,
    gpu_class=GPU_CLASS,
    slice_gpus=2,
    region_group="",
    min_bond=BasisPoints(5_000),
    notice=10,
    penalty=BasisPoints(1_000),
    flags=int(ProductFlags.VERIFIED),
)


@dataclass(frozen=True, slots=True)
class Seat:
    """One provider: its wallet, its node's key and peer, its machines, and how it works."""

    name: str
    wallet: LocalKey
    node: LocalKey
    machines: int
    wrong: float = 0.0
    """Share of its runs that return something else than the job gives."""

    @property
    def peer(self) -> PeerId:
        """Its node's peer."""
        return PeerId(f"{self.name}-peer")

    def machine(self, index: int) -> MachineKey:
        """One of its machines."""
        return MachineKey(provider=self.wallet.address, index=index)

    def provider(self) -> Provider:
        """The party, newly started."""
        binding = NodeBinding(
            provider=self.wallet.address, node_key=self.node.address, peer=self.peer
        )
        expiry = T0 + 10**6
        return Provider(
            deployment=DEPLOYMENT,
            key=self.node,
            peer=self.peer,
            announcements=Announcements(
                binding=state(binding, DEPLOYMENT.domain, self.wallet, nonce=1, expiry=expiry),
                addresses=(f"/ip4/127.0.0.1/tcp/1/p2p/{self.peer}",),
                policies={index: self._policy(index) for index in range(self.machines)},
                futures=DEPLOYMENT.futures,
                interval_s=6,
                clearance_s=DEPLOYMENT.windows.start + DEPLOYMENT.windows.claim,
                domain=DEPLOYMENT.domain,
                key=self.node,
            ),
        )

    def _policy(self, index: int) -> Policy:
        return Policy(
            price=Price(1_000_000 + 50_000 * index),
            min_duration=5,
            max_duration=3_600,
            matcher=MARKET.address,
            max_fee=BasisPoints(500),
            life_s=60,
            flags=int(AskFlags.VERIFIED),
        )

    def run(self, spec: JobSpec, rng: random.Random) -> FileRef:
        """What a job returns on its machines."""
        if rng.random() < self.wrong:
            return _file(f"{self.name} pretends {spec.command}")
        return truth(spec)


def truth(spec: JobSpec) -> FileRef:
    """What a job returns when it is run."""
    return _file(f"the answer to {spec.command}")


def _file(text: str) -> FileRef:
    content = text.encode()
    return FileRef(path="out/a.txt", sha256=sha256(content).hexdigest(), size=len(content))


@dataclass(frozen=True, slots=True)
class Cast:
    """Who takes part in one season."""

    seats: list[Seat]
    buyers: list[str]
    verified: float
    """Share of the leases whose results are audited; 0: there are no verifiers either."""
    gang: int = 1
    """Machines that each buyer wants, a lease of each."""


def drawn(rng: random.Random, apart: random.Random) -> Cast:
    """Half of the seasons are audited, which takes three owners at least; half of the others have
    gangs. `apart` draws those: what `rng` gives is what it gave before there were any.
    """
    buyers = rng.randint(1, 4)
    if rng.random() < 0.5:
        gang = apart.choice([1, 1, 2, 3])
        return cast_of([0.0] * rng.randint(1, 3), buyers, machines=rng.randint(1, 2), gang=gang)
    count = rng.randint(3, 5)
    liars = rng.choice([0, 1, 1, count // 2])
    wrong = [rng.choice([0.4, 1.0]) if number < liars else 0.0 for number in range(count)]
    return cast_of(wrong, buyers, verified=rng.choice([0.5, 1.0]))


def cast_of(
    wrong: Sequence[float],
    buyers: int,
    *,
    machines: int = 1,
    verified: float = 0.0,
    gang: int = 1,
) -> Cast:
    """One provider for each share of wrong results."""
    seats = [
        Seat(name, key(name), key(f"{name}-node"), machines, share)
        for name, share in zip(_names("provider", len(wrong)), wrong, strict=True)
    ]
    return Cast(seats, _names("buyer", buyers), verified, gang)


def _names(what: str, count: int) -> list[str]:
    return [f"{what}-{number}" for number in range(count)]


def profile() -> HardwareProfile:
    """What every machine here is."""
    return HardwareProfile(
        gpu_class=GPU_CLASS,
        gpus=(Gpu(model="A100", memory_mib=81_920),) * PRODUCT.slice_gpus,
        cpu_model="EPYC",
        cpu_architecture="x86_64",
        cpu_cores=16,
        memory_mib=65_536,
        disk_mib=10_000,
        region="FR/EU",
        isolation=Isolation.CONTAINER,
        simulated=True,
    )


def genesis(providers: list[Seat], buyers: list[LocalKey]) -> SimulatedBook:
    """The book before the season: everybody registered, machines bonded, one market."""
    book = SimulatedBook(deployment=DEPLOYMENT, now=T0)
    book.register(MARKET.address, 0)
    book.register_market(MARKET.address, BasisPoints(100))
    book.register_product(PRODUCT)
    audits = key("audits").address
    book.register(audits, 0)
    book.audits.seats = tuple(
        simulated_audits.Seat(signer=verifier, anchor=PREIMAGES[verifier].anchor, audits=audits)
        for verifier in DEPLOYMENT.verifiers
    )
    for seat in providers:
        book.register(seat.wallet.address, 1_000 * TOKEN)
        book.delegate(seat.wallet.address, seat.node.address, KeyRole.NODE, T0 + 10**6)
        for index in range(seat.machines):
            book.add_machine(seat.machine(index), 100 * TOKEN, PRODUCT.id)
    for buyer in buyers:
        book.register(buyer.address, 500 * TOKEN)
    return book
