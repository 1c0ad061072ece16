"""A provider with its buyer and chain for tests: facts are short to write, signatures are real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cloud_gpu.protocol.chain_events import (
    ChainAdvanced,
    LeaseClosed,
    LeaseOpened,
    LeaseStarted,
    LeaseStopped,
    MachineAdded,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import PrepareContainer, ProviderEffect, Send, Transact
from cloud_gpu.protocol.events import (
    ContainerReady,
    DeadlinePassed,
    JobExited,
    MachineProbed,
    MessageReceived,
    NodeStarted,
    ProviderEvent,
)
from cloud_gpu.protocol.hardware import Gpu, GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.identity import LocalKey, NodeBinding, PeerId
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobSpec
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms, MachineKey, Windows
from cloud_gpu.protocol.messages import (
    AcceptGiven,
    Access,
    JobSubmitted,
    Message,
    OpenSession,
    RuntimeReport,
    VoucherGiven,
)
from cloud_gpu.protocol.signing import sign, state
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, keccak256
from cloud_gpu.protocol.voucher import Accept, Voucher, amount_due
from node.announcing import Announcements
from node.notices import NO_THRESHOLD
from node.pricing import Policy
from node.provider import Provider

T0 = 1_800_000_000
"""Unix seconds at which every story begins."""

INTERVAL = 60
DURATION = 3_600
CAP = TokenAmount(3_600_000)
"""1,000 base units a second, so that amounts read as seconds."""

START = 900
CLAIM = 7_200
NODE_PEER = PeerId("node-peer")
BUYER_PEER = PeerId("buyer-peer")
EMPTY = FileRef(path="stdout", sha256="0" * 64, size=0)

EffectT = TypeVar("EffectT")
MessageT = TypeVar("MessageT")
CallT = TypeVar("CallT")


def key(name: str) -> LocalKey:
    return LocalKey(keccak256(name.encode()).raw)


WALLET, NODE, BUYER = key("wallet"), key("node"), key("buyer")
DEPLOYMENT = Deployment(
    chain_id=31337,
    lease_book=Address(b"\x0b" * 20),
    token=Address(b"\x0c" * 20),
    futures=Address(b"\x0d" * 20),
    first_block=1,
    windows=Windows(start=START, claim=CLAIM, retire=864_000),
    bond_unit=TokenAmount(1_000_000),
    voucher_interval_s=INTERVAL,
)
DOMAIN = DEPLOYMENT.domain
MACHINE = MachineKey(provider=WALLET.address, index=0)
LEASE = LeaseKey(provider=WALLET.address, index=0, seq=1)
PROFILE = HardwareProfile(
    gpu_class=GpuClass("A100-SXM4-80GB"),
    gpus=(Gpu(model="A100", memory_mib=81_920), Gpu(model="A100", memory_mib=81_920)),
    cpu_model="EPYC",
    cpu_architecture="x86_64",
    cpu_cores=16,
    memory_mib=65_536,
    disk_mib=1_000,
    region="FR/EU",
    isolation=Isolation.CONTAINER,
    simulated=True,
)
POLICY = Policy(
    price=Price(1_200_000),
    min_duration=60,
    max_duration=86_400,
    matcher=key("market").address,
    max_fee=BasisPoints(500),
    life_s=300,
)


def report(lease: LeaseKey = LEASE) -> RuntimeReport:
    return RuntimeReport(
        lease=lease,
        profile=PROFILE,
        runtime="runc",
        isolation=Isolation.CONTAINER,
        image="sha256:" + "1" * 64,
        fingerprint="f",
    )


def terms(lease: LeaseKey = LEASE, opened_at: int = T0, flags: int = 0) -> LeaseTerms:
    return LeaseTerms(
        key=lease,
        buyer=BUYER.address,
        cap=CAP,
        duration=DURATION,
        start_deadline=opened_at + START,
        market_id=1,
        opened_at=opened_at,
        flags=flags,
    )


def spec(number: int = 1, **changes: object) -> JobSpec:
    fields = {"lease": LEASE, "number": number, "command": ("true",), "runtime_s_max": 60}
    return JobSpec(**(fields | changes))  # type: ignore[arg-type]


class Story:
    """One provider, told facts at a clock that only the test moves."""

    def __init__(self, provider: Provider | None = None) -> None:
        self.provider = provider or make_provider()
        self.now = T0 * 1000
        self.block = 10
        self.flags = 0
        """Of leases that open."""
        self.effects: list[ProviderEffect] = []
        """What the last step answered."""
        self.journal: list[tuple[ProviderEvent, int]] = []

    @property
    def at(self) -> int:
        return self.now // 1000

    def tell(self, *events: ProviderEvent) -> list[ProviderEffect]:
        """Hand in facts, now."""
        self.effects = []
        for event in events:
            if self.provider.must_survive(event):
                self.journal.append((event, self.now))
            self.effects += self.provider.handle(event, self.now)
        return self.effects

    def wait(self, seconds: float) -> list[ProviderEffect]:
        """Let time pass, waking the provider whenever it asked to be woken."""
        end, found = self.now + int(seconds * 1000), []
        while (deadline := self.provider.deadline) is not None and deadline <= end:
            assert deadline > self.now, "a deadline that does not move would spin for ever"
            self.now = deadline
            found += self.tell(DeadlinePassed())
        self.now = end
        self.effects = found
        return found

    def say(self, message: Message, peer: PeerId = BUYER_PEER) -> list[ProviderEffect]:
        return self.tell(MessageReceived(peer=peer, message=message))

    def mine(self, *events: ProviderEvent) -> list[ProviderEffect]:
        """Chain events of one block."""
        self.block += 1
        return self.tell(*events, ChainAdvanced(block=self.block, at=self.at))

    def found(self, kind: type[EffectT]) -> list[EffectT]:
        """The last step's effects of one kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def said(self, kind: type[MessageT]) -> list[MessageT]:
        """The last step's messages of one kind."""
        return [send.message for send in self.found(Send) if isinstance(send.message, kind)]

    def calls(self, kind: type[CallT]) -> list[CallT]:
        """The last step's chain calls of one kind."""
        return [
            transact.call for transact in self.found(Transact) if isinstance(transact.call, kind)
        ]

    # Where stories begin.

    def start(self) -> Story:
        """Started, the machine on chain and healthy."""
        self.tell(NodeStarted(at=0))
        self.mine(MachineAdded(machine=MACHINE, product=1, bond=TokenAmount(50_000_000)))
        self.tell(MachineProbed(machine=MACHINE, profile=PROFILE, healthy=True))
        return self

    def open(self, lease: LeaseKey = LEASE) -> Story:
        """Funded."""
        opened = terms(lease, self.at, self.flags)
        self.mine(LeaseOpened(terms=opened, bid=digest("bid"), at=self.at, transaction=digest("t")))
        return self

    def prepare(self) -> Story:
        """Funded, the container ready, the buyer's session open."""
        self.start().open()
        assert self.found(PrepareContainer)
        self.tell(ContainerReady(lease=LEASE, report=report()))
        self.say(open_session(self.at))
        return self

    def accept(self) -> Story:
        """Accepted with the first voucher; `begin` is on its way."""
        self.prepare()
        self.say(voucher(1))
        self.say(accept(self.at))
        return self

    def begin(self) -> Story:
        """Active, paid one interval ahead."""
        self.accept()
        self.mine(LeaseStarted(lease=LEASE, started_at=T0, at=self.at))
        return self

    def stop(self) -> None:
        ceiling = amount_due(CAP, DURATION, self.at - T0, 0)
        self.mine(LeaseStopped(lease=LEASE, ceiling=ceiling, at=self.at))

    def close(self, reason: LeaseEndReason = LeaseEndReason.END_OF_TIME) -> None:
        self.mine(LeaseClosed(lease=LEASE, reason=reason, paid=TokenAmount(0), at=self.at))


def make_provider(
    policy: Policy | Mapping[int, Policy] = POLICY, threshold: BasisPoints = NO_THRESHOLD
) -> Provider:
    body = NodeBinding(provider=WALLET.address, node_key=NODE.address, peer=NODE_PEER)
    announcements = Announcements(
        binding=state(body, DOMAIN, WALLET, nonce=1, expiry=T0 + 10**7),
        addresses=("/ip4/127.0.0.1/tcp/4001/p2p/node-peer",),
        policies={0: policy} if isinstance(policy, Policy) else policy,
        futures=DEPLOYMENT.futures,
        interval_s=30,
        clearance_s=60,
        domain=DOMAIN,
        key=NODE,
        threshold=threshold,
    )
    return Provider(deployment=DEPLOYMENT, key=NODE, peer=NODE_PEER, announcements=announcements)


def digest(word: str) -> Digest:
    return keccak256(word.encode())


def open_session(
    at: int, signer: LocalKey = BUYER, peer: PeerId = BUYER_PEER, node: PeerId = NODE_PEER
) -> OpenSession:
    access = Access(lease=LEASE, node=node, buyer_peer=peer)
    return OpenSession(access=state(access, DOMAIN, signer, nonce=1, expiry=at + 600))


def accept(started_at: int, signer: LocalKey = BUYER) -> AcceptGiven:
    word = Accept(provider=LEASE.provider, index=0, seq=1, started_at=started_at)
    return AcceptGiven(accept=sign(word, DOMAIN, signer))


def voucher(intervals: int, signer: LocalKey = BUYER) -> VoucherGiven:
    """A voucher that pays so many intervals from the start."""
    return voucher_of(amount_due(CAP, DURATION, intervals * INTERVAL, 0), signer)


def voucher_of(amount: TokenAmount, signer: LocalKey = BUYER) -> VoucherGiven:
    word = Voucher(provider=LEASE.provider, index=0, seq=1, amount=amount)
    return VoucherGiven(voucher=sign(word, DOMAIN, signer))


def submit(job: JobSpec, at: int, signer: LocalKey = BUYER) -> JobSubmitted:
    return JobSubmitted(spec=state(job, DOMAIN, signer, nonce=job.number, expiry=at + 600))


def exited(job: JobSpec, started_at: int, ended_at: int, **changes: object) -> JobExited:
    fields: dict[str, object] = {
        "lease": job.lease,
        "job": job.id,
        "outcome": JobOutcome.EXITED,
        "exit_code": 0,
        "detail": "",
        "outputs": (),
        "stdout": EMPTY,
        "stderr": EMPTY,
        "log_cut": False,
        "started_at": started_at,
        "ended_at": ended_at,
    }
    return JobExited(**(fields | changes))  # type: ignore[arg-type]


def restarted(story: Story) -> Story:
    """The same node after kill -9: a new provider from what its journal kept."""
    again = Story()
    again.now, again.block, again.journal = story.now, story.block, list(story.journal)
    for event, at in story.journal:
        again.provider.handle(event, at)
    return again


def kinds(effects: Sequence[ProviderEffect]) -> list[str]:
    """Effects by name, messages and calls by theirs."""
    names = []
    for effect in effects:
        inner: object = effect
        if isinstance(effect, Send):
            inner = effect.message
        elif isinstance(effect, Transact):
            inner = effect.call
        names.append(type(inner).__name__)
    return names
