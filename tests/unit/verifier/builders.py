"""Keys, a deployment, batches of one provider with everything a node would show of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

from cloud_gpu.protocol.audit import (
    BatchOutline,
    Commit,
    Evidence,
    Leaf,
    SegmentOutline,
    Sibling,
    SumTree,
    Verdict,
    VerdictResult,
    weights,
)
from cloud_gpu.protocol.audit_messages import VerifierNotice
from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    BatchDrawn,
    ChainAdvanced,
    ChainEvent,
    DelegationChanged,
    LeaseOpened,
    MachineAdded,
    ProductRegistered,
)
from cloud_gpu.protocol.deployment import AuditWindows, Deployment
from cloud_gpu.protocol.hardware import Gpu, GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.identity import Delegation, KeyRole, LocalKey, NodeBinding, PeerId
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobResult, JobSpec, ResultContent
from cloud_gpu.protocol.lease import LeaseKey, LeaseTerms, MachineKey, Windows
from cloud_gpu.protocol.orders import Advert, Ask, SignedAdvert
from cloud_gpu.protocol.signing import Signed, Statement, sign, state
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, keccak256

T0 = 1_800_000_000
"""Unix seconds at which the tests begin."""

CLASS = GpuClass("A100-SXM4-80GB")
PRODUCT = 1


def key(name: str) -> LocalKey:
    """The same key for the same name."""
    return LocalKey(keccak256(name.encode()).raw)


def address(name: str) -> Address:
    return key(name).address


def digest(name: str) -> Digest:
    return keccak256(name.encode())


FIRST, SECOND = key("first verifier"), key("second verifier")
BUYER, SESSION = key("buyer"), key("session")

DEPLOYMENT = Deployment(
    chain_id=31337,
    lease_book=address("lease book"),
    token=address("token"),
    first_block=1,
    windows=Windows(start=10, claim=15, retire=60),
    bond_unit=TokenAmount(1_000_000),
    verification=address("verification"),
    verifiers=(FIRST.address, SECOND.address),
    audit=AuditWindows(commit=120, challenge=10, hard_cap=600, late_slash=600, answer=20),
    voucher_interval_s=2,
    heartbeat_s=1,
)


def file(path: str, content: bytes) -> FileRef:
    return FileRef(path=path, sha256=sha256(content).hexdigest(), size=len(content))


def content_of(*files: FileRef, exit_code: int = 0) -> ResultContent:
    return ResultContent(outcome=JobOutcome.EXITED, exit_code=exit_code, outputs=files)


def machine(provider: str, index: int = 0) -> MachineKey:
    return MachineKey(provider=address(provider), index=index)


def lease_of(provider: str, seq: int = 1) -> LeaseKey:
    return LeaseKey(provider=address(provider), index=0, seq=seq)


def node_key(provider: str) -> LocalKey:
    return key(f"node of {provider}")


def peer_of(name: str) -> PeerId:
    return PeerId(f"peer-of-{name}")


@dataclass(frozen=True, slots=True)
class Work:
    """One job that a provider did."""

    number: int = 1
    outputs: tuple[FileRef, ...] = (file("out/a.txt", b"right"),)
    used: int = 30
    image: str = ""
    comparison: str = "bytes"
    outcome: JobOutcome = JobOutcome.EXITED
    runtime_s_max: int = 60


def spec_of(lease: LeaseKey, work: Work, signer: LocalKey = BUYER) -> Statement[JobSpec]:
    body = JobSpec(
        lease=lease,
        number=work.number,
        image=work.image,
        command=("python", "train.py", str(work.number)),
        comparison=work.comparison,
        runtime_s_max=work.runtime_s_max,
    )
    return state(body, DEPLOYMENT.domain, signer, nonce=work.number, expiry=T0 + 600)


def result_of(
    spec: Statement[JobSpec], work: Work, signer: LocalKey, at: int = T0
) -> Statement[JobResult]:
    empty = file("stdout", b"")
    body = JobResult(
        lease=spec.body.lease,
        job=spec.body.id,
        outcome=work.outcome,
        exit_code=0,
        outputs=work.outputs,
        stdout=empty,
        stderr=file("stderr", b""),
        started_at=at * 1000,
        ended_at=(at + work.used) * 1000,
        used=GpuSeconds(work.used),
    )
    return state(body, DEPLOYMENT.domain, signer, nonce=work.number, expiry=T0 + 10**7)


class Batch:
    """A provider's committed batch, and what its node shows of it."""

    def __init__(
        self,
        provider: str,
        works: Sequence[Work],
        *,
        seq: int = 1,
        batch_no: int = 0,
        value: int = 9_000_000,
    ) -> None:
        self.provider, self.lease, self.batch_no = provider, lease_of(provider, seq), batch_no
        self.works = tuple(works)
        signer = node_key(provider)
        self.specs = [spec_of(self.lease, work) for work in works]
        self.results = [
            result_of(spec, work, signer) for spec, work in zip(self.specs, works, strict=True)
        ]
        shares = weights([max(1, work.used) for work in works])
        self.leaves = [
            Leaf(
                lease=self.lease,
                batch_no=batch_no,
                i=i,
                weight=shares[i],
                job=self.specs[i].body.id,
                result=self.results[i].body.digest,
                salt=digest(f"salt {provider} {seq} {i}"),
            )
            for i in range(len(works))
        ]
        self.hashes = [leaf.hash(31337, DEPLOYMENT.verification) for leaf in self.leaves]
        pairs = zip(self.hashes, self.leaves, strict=True)
        self.tree = SumTree([Sibling(hash=each, weight=leaf.weight) for each, leaf in pairs])
        self.value = TokenAmount(value)

    @property
    def n(self) -> int:
        return len(self.works)

    @property
    def outline(self) -> BatchOutline:
        return BatchOutline(
            lease=self.lease,
            batch_no=self.batch_no,
            segments=tuple(
                SegmentOutline(leaf=self.hashes[i], used=GpuSeconds(w.used), image=w.image)
                for i, w in enumerate(self.works)
            ),
        )

    @property
    def commit(self) -> Signed[Commit]:
        body = Commit(
            provider=self.lease.provider,
            index=self.lease.index,
            seq=self.lease.seq,
            batch_no=self.batch_no,
            root=self.tree.root,
            n=self.n,
        )
        return sign(body, DEPLOYMENT.verification_domain, node_key(self.provider))

    def evidence(self, i: int) -> Evidence:
        return Evidence(
            leaf=self.leaves[i],
            proof=self.tree.proof(i),
            spec=self.specs[i],
            result=self.results[i],
        )

    def committed(self, at: int = T0 + 60, block: int = 60) -> BatchCommitted:
        lock = self.value.value * max(1, -(-20 // self.n))
        return BatchCommitted(
            lease=self.lease,
            batch_no=self.batch_no,
            root=self.tree.root,
            n=self.n,
            value=self.value,
            locked=TokenAmount(lock),
            at=at,
            block=block,
        )

    def drawn(self, seed: str = "seed", at: int = T0 + 63) -> BatchDrawn:
        return BatchDrawn(lease=self.lease, batch_no=self.batch_no, seed=digest(seed), at=at)


def verdict_of(
    batch: Batch,
    i: int,
    signer: LocalKey,
    result: VerdictResult = VerdictResult.MISMATCH,
    replayed: ResultContent | None = None,
) -> Signed[Verdict]:
    lease = batch.lease
    body = Verdict(
        provider=lease.provider,
        index=lease.index,
        seq=lease.seq,
        batch_no=batch.batch_no,
        i=i,
        leaf=batch.hashes[i],
        result_digest=(replayed or content_of(file("out/a.txt", b"true"))).digest,
        result=result,
    )
    return sign(body, DEPLOYMENT.verification_domain, signer)


def world_events(*providers: str) -> list[ChainEvent]:
    """A product, a machine and a node key per provider."""
    events: list[ChainEvent] = [
        ProductRegistered(
            product=PRODUCT,
            gpu_class=CLASS,
            slice_gpus=1,
            region_group="",
            min_bond=BasisPoints(1_000),
            notice=60,
            penalty=BasisPoints(500),
            flags=2,
        ),
        DelegationChanged(
            signer=SESSION.address,
            delegation=Delegation(account=BUYER.address, role=KeyRole.SESSION, expiry=T0 + 3_600),
        ),
    ]
    for name in providers:
        events += [
            MachineAdded(machine=machine(name), product=PRODUCT, bond=TokenAmount(10**9)),
            DelegationChanged(
                signer=node_key(name).address,
                delegation=Delegation(account=address(name), role=KeyRole.NODE, expiry=T0 + 10**6),
            ),
        ]
    return events


def opened(lease: LeaseKey, buyer: LocalKey = BUYER, flags: int = 0) -> LeaseOpened:
    terms = LeaseTerms(
        key=lease,
        buyer=buyer.address,
        cap=TokenAmount(10**7),
        duration=600,
        start_deadline=T0 + 10,
        market_id=1,
        opened_at=T0 - 10,
        flags=flags,
    )
    return LeaseOpened(
        terms=terms, bid=digest("bid"), at=T0 - 10, transaction=digest("transaction")
    )


def block(number: int) -> ChainAdvanced:
    """Block n comes n seconds after T0."""
    return ChainAdvanced(block=number, at=T0 + number)


def profile() -> HardwareProfile:
    return HardwareProfile(
        gpu_class=CLASS,
        gpus=(Gpu(model="A100", memory_mib=81_920),),
        cpu_model="pretend",
        cpu_architecture="x86_64",
        cpu_cores=2,
        memory_mib=4_096,
        disk_mib=10_000,
        region="",
        isolation=Isolation.PROCESS,
        simulated=True,
    )


@cache
def advert(provider: str, signer: LocalKey | None = None) -> SignedAdvert:
    node = node_key(provider)
    ask = Ask(
        provider=address(provider),
        index=0,
        seq=2,
        product=PRODUCT,
        min_price_per_hour=Price(1_000_000),
        min_duration=1,
        max_duration=3_600,
        start_by=T0 + 10**6,
        matcher=address("matcher"),
        max_fee_bps=BasisPoints(100),
    )
    binding = state(
        NodeBinding(provider=address(provider), node_key=node.address, peer=peer_of(provider)),
        DEPLOYMENT.domain,
        key(provider),
        nonce=1,
        expiry=T0 + 10**6,
    )
    body = Advert(
        ask=sign(ask, DEPLOYMENT.domain, node),
        profile=profile(),
        peer=peer_of(provider),
        addresses=(f"/memory/{provider}",),
        binding=binding,
    )
    return state(body, DEPLOYMENT.domain, signer or node, nonce=1, expiry=T0 + 10**6)


def notice(verifier: LocalKey, name: str, at: int = T0) -> Statement[VerifierNotice]:
    body = VerifierNotice(
        verifier=verifier.address, peer=peer_of(name), addresses=(f"/memory/{name}",), at=at
    )
    return state(body, DEPLOYMENT.domain, verifier, nonce=at, expiry=T0 + 10**6)
