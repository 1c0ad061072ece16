"""A verified lease's parties on a real chain: what they sign, and the calls that they make."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloud_gpu.protocol.audit import (
    Opening,
    Results,
    Verdict,
    VerdictResult,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    AuditCall,
    CommitBatch,
    ConvictSegment,
    Draw,
    Ending,
    FinaliseBatches,
    RevealPreimages,
)
from cloud_gpu.protocol.chain_events import (
    BatchCommitted,
    BatchDrawn,
    LeaseClosed,
    LeaseOpened,
    LeaseStarted,
    SegmentAccused,
    TransactionFailed,
)
from cloud_gpu.protocol.deployment import AuditPlan, AuditWindows, VerifierAccount
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobResult, JobSpec
from cloud_gpu.protocol.lease import LeaseFlags, LeaseKey, Windows
from cloud_gpu.protocol.signing import Signed, Statement, sign, state
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds
from cloud_gpu.protocol.values import Address, Digest, keccak256
from node.commitments import Batch
from tests.support.anvil import Deployed, deployed_on, key, running_anvil
from tests.support.trading import Trading, trading_on
from tests.support.watching import Watch, watched
from verifier.draw import Preimages

WINDOWS = AuditWindows(commit=60, challenge=10, hard_cap=200, late_slash=30, answer=15)
AUDIT = BasisPoints(700)
FIRST, SECOND = key("first verifier"), key("second verifier")
PAID = 60_000
"""A minute at 1,000 base units a second."""


def chain_of(verifier: LocalKey) -> Preimages:
    return Preimages(keccak256(verifier.address.raw), 8)


@pytest.fixture(scope="module")
def verified_once() -> Iterator[Deployed]:
    verifiers = tuple(
        VerifierAccount(
            signer=each.address, anchor=chain_of(each).anchor, audits=key("audits").address
        )
        for each in (FIRST, SECOND)
    )
    plan = AuditPlan(verifiers=(verifiers[0], verifiers[1]), windows=WINDOWS)
    with running_anvil() as anvil:
        yield deployed_on(anvil, Windows(start=60, claim=120, retire=600), audits=plan)


@pytest.fixture
def verified(verified_once: Deployed) -> Iterator[Deployed]:
    snapshot = verified_once.anvil.snapshot()
    yield verified_once
    verified_once.anvil.revert(snapshot)


def opening_of(batch: Batch, i: int) -> Opening:
    (opening,) = batch.outline.openings([i])
    return opening


def ending(
    lease: LeaseKey, results: Signed[Results] | None, openings: tuple[Opening, ...] = ()
) -> FinaliseBatches:
    one = Ending(lease=lease, batch_no=0, results=results, openings=openings)
    return FinaliseBatches(endings=(one,))


@dataclass
class Audits:
    """A verified lease's parties, each with an outbox, and the lease's batch."""

    trading: Trading
    market: Watch
    node: Watch
    first: Watch
    second: Watch

    @property
    def deployed(self) -> Deployed:
        return self.trading.deployed

    async def closed(self, seq: int = 1) -> LeaseKey:
        """A lease that was opened, begun and closed at `PAID`."""
        t = self.trading
        await self.market.chain.submit(t.opening((t.ask(seq), t.bid(nonce=seq - 1))))
        opened = await self.node.wait_for(LeaseOpened, lambda e: e.terms.key.seq == seq)
        assert opened.terms.is_verified
        lease = opened.terms.key
        await self.node.chain.submit(t.beginning(lease, self.deployed.anvil.time()))
        await self.node.wait_for(LeaseStarted, lambda e: e.lease == lease)
        self.deployed.anvil.pass_time(61)
        await self.market.chain.submit(t.closing(lease, PAID, early=True))
        await self.node.wait_for(LeaseClosed, lambda e: e.lease == lease)
        return lease

    def batch(self, lease: LeaseKey, segments: int = 3) -> Batch:
        pairs = [self._pair(lease, i + 1) for i in range(segments)]
        return Batch(lease, 0, pairs, keccak256(b"salts"), self.deployed.deployment)

    def _pair(
        self, lease: LeaseKey, number: int
    ) -> tuple[Statement[JobSpec], Statement[JobResult]]:
        domain, at = self.deployed.deployment.domain, self.trading.since
        body = JobSpec(lease=lease, number=number, command=("true",), runtime_s_max=30)
        spec = state(body, domain, self.trading.session, nonce=number, expiry=at + 600)
        file = FileRef(path="stdout", sha256="0" * 64, size=0)
        result = JobResult(
            lease=lease,
            job=body.id,
            outcome=JobOutcome.EXITED,
            exit_code=0,
            stdout=file,
            stderr=file,
            started_at=at * 1000,
            ended_at=(at + 10 * number) * 1000,
            used=GpuSeconds(10 * number),
        )
        return spec, state(result, domain, self.trading.node, nonce=number, expiry=at + 10**6)

    async def committed(self, segments: int = 3, seq: int = 1) -> tuple[Batch, BatchCommitted]:
        batch = self.batch(await self.closed(seq), segments)
        signed = sign(batch.commit, self.deployed.deployment.verification_domain, self.trading.node)
        await self.node.chain.submit(CommitBatch(commit=signed))
        told = await self.first.wait_for(BatchCommitted, lambda e: e.lease == batch.lease)
        return batch, told

    async def drawn(self, segments: int = 3) -> Batch:
        batch, _ = await self.committed(segments)
        self.deployed.anvil.mine(2)
        await self.first.chain.submit(self.reveal(batch))
        await self.first.wait_for(BatchDrawn)
        return batch

    def reveal(self, batch: Batch, preimage: Digest | None = None) -> RevealPreimages:
        found = preimage or chain_of(FIRST).at(0)
        assert found is not None
        draw = Draw(lease=batch.lease, batch_no=0, preimage=found)
        return RevealPreimages(draws=(draw,))

    def convicting(self, batch: Batch, i: int) -> ConvictSegment:
        return ConvictSegment(lease=batch.lease, batch_no=0, opening=opening_of(batch, i))

    def verdict(
        self, batch: Batch, i: int, signer: LocalKey, result: VerdictResult
    ) -> Signed[Verdict]:
        lease, deployment = batch.lease, self.deployed.deployment
        verdict = Verdict(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=0,
            i=i,
            leaf=batch.outline.segments[i].leaf,
            result_digest=keccak256(b"something else"),
            result=result,
        )
        return sign(verdict, deployment.verification_domain, signer)

    async def accused(self, batch: Batch, i: int) -> SegmentAccused:
        evidence = batch.evidence(i)
        assert evidence is not None
        words = [self.verdict(batch, i, v, VerdictResult.MISMATCH) for v in (FIRST, SECOND)]
        call = AccuseSegment(
            leaf=evidence.leaf, proof=evidence.proof, first=words[0], second=words[1]
        )
        await self.first.chain.submit(call)
        return await self.second.wait_for(SegmentAccused, lambda e: e.i == i)

    def results(
        self, batch: Batch, incomparable: set[int], signer: LocalKey = FIRST
    ) -> FinaliseBatches:
        lease = batch.lease
        body = Results(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=0,
            incomparable=sum(1 << i for i in incomparable),
        )
        signed = sign(body, self.deployed.deployment.verification_domain, signer)
        return ending(batch.lease, signed, batch.outline.openings(incomparable))

    async def failure(self, watch: Watch, call: AuditCall) -> str:
        await watch.chain.submit(call)
        failed = await watch.wait_for(TransactionFailed, lambda e: e.call == call)
        return failed.error

    async def cash(self, owner: Address) -> int:
        return (await self.node.chain.account(owner)).cash.value


@pytest.fixture
async def audits(verified: Deployed, tmp_path: Path) -> AsyncIterator[Audits]:
    trading = trading_on(verified, flags=LeaseFlags.VERIFIED, audit_bps=AUDIT)
    for each in (FIRST, SECOND):
        verified.anvil.give_native(each.address)
    owners = {
        "market": trading.matcher, "node": trading.node, "first": FIRST, "second": SECOND
    }  # fmt: skip
    async with AsyncExitStack() as stack:
        watches = {
            name: await stack.enter_async_context(watched(verified, owner, tmp_path / name))
            for name, owner in owners.items()
        }
        yield Audits(trading, **watches)
