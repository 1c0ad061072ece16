"""A verified lease on a real chain: held, committed, drawn, accused, and ended in every way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloud_gpu.protocol.adapters.deployer import AuditPlan, VerifierAccount, created_at
from cloud_gpu.protocol.adapters.evm_rpc import octets
from cloud_gpu.protocol.audit import (
    BatchState,
    Results,
    Verdict,
    VerdictResult,
    batch_key,
    seed_of,
)
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    AuditCall,
    CommitBatch,
    ContestSegment,
    ConvictSegment,
    FallbackSeed,
    FinaliseBatch,
    ReturnHeld,
    RevealPreimage,
)
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    HeldReturned,
    LeaseClosed,
    LeaseOpened,
    LeaseStarted,
    SegmentAccused,
    SegmentConvicted,
    TransactionFailed,
)
from cloud_gpu.protocol.deployment import AuditWindows
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobResult, JobSpec
from cloud_gpu.protocol.lease import LeaseFlags, LeaseKey, Windows
from cloud_gpu.protocol.signing import Signed, Statement, sign, state
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, TokenAmount, share_down
from cloud_gpu.protocol.values import Address, Digest, keccak256
from node.commitments import Batch
from tests.support.anvil import Deployed, deployed_on, key, running_anvil
from tests.support.trading import FEE, Trading, trading_on
from tests.support.watching import Watch, watched
from verifier.draw import Preimages
from verifier.evidence import check_evidence, check_outline
from verifier.ledger import BatchOnChain, Ledger

WINDOWS = AuditWindows(commit=60, challenge=10, hard_cap=200, late_slash=30)
AUDIT = BasisPoints(700)
FIRST, SECOND = key("first verifier"), key("second verifier")
PAID = 60_000
"""A minute at 1,000 base units a second."""


def chain_of(verifier: LocalKey) -> Preimages:
    return Preimages(keccak256(verifier.address.raw), 8)


@pytest.fixture(scope="module")
def _verified_once() -> Iterator[Deployed]:
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
def verified(_verified_once: Deployed) -> Iterator[Deployed]:
    snapshot = _verified_once.anvil.snapshot()
    yield _verified_once
    _verified_once.anvil.revert(snapshot)


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

    def reveal(self, batch: Batch, preimage: Digest | None = None) -> RevealPreimage:
        found = preimage or chain_of(FIRST).at(0)
        assert found is not None
        return RevealPreimage(lease=batch.lease, batch_no=0, preimage=found)

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
    ) -> FinaliseBatch:
        lease = batch.lease
        body = Results(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            batch_no=0,
            incomparable=sum(1 << i for i in incomparable),
        )
        return FinaliseBatch(
            lease=lease,
            batch_no=0,
            results=sign(body, self.deployed.deployment.verification_domain, signer),
            openings=batch.outline.openings(incomparable),
        )

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


def test_the_second_contract_lies_where_the_first_one_names_it(verified: Deployed) -> None:
    deployment = verified.deployment
    assert deployment.verification == created_at(key("deployer").address, 2)
    assert deployment.verifiers == (FIRST.address, SECOND.address)
    assert deployment.audit == WINDOWS
    assert deployment.contracts == (deployment.lease_book, deployment.verification)


async def test_pay_is_held_committed_drawn_and_paid_when_all_matched(audits: Audits) -> None:
    t = audits.trading
    before = await audits.cash(t.provider.address), await audits.cash(t.buyer.address)
    batch, told = await audits.committed()
    assert await audits.cash(t.provider.address) == before[0]  # held
    assert (told.root, told.n, told.value) == (batch.outline.root, 3, TokenAmount(PAID))
    assert told.locked.value == 1_000_000  # 7 times the value, in whole bond units

    preimage = chain_of(FIRST).at(0)
    assert preimage is not None
    audits.deployed.anvil.mine(2)
    await audits.first.chain.submit(audits.reveal(batch))
    drawn = await audits.second.wait_for(BatchDrawn)
    block = audits.deployed.anvil.rpc.call("eth_getBlockByNumber", hex(told.block + 1), False)
    key_of_batch = batch_key(batch.lease, 0)
    assert drawn.seed == seed_of(Digest(octets(block["hash"])), preimage, told.root, key_of_batch)

    await audits.first.chain.submit(audits.results(batch, set()))
    ended = await audits.node.wait_for(BatchFinalised)
    fee, share = share_down(TokenAmount(PAID), FEE), share_down(TokenAmount(PAID), AUDIT)
    assert ended.state is BatchState.FINAL
    assert (ended.provider.value, ended.market) == (PAID - fee.value, fee)
    assert (ended.audits, ended.buyer.value, ended.burnt.value) == (share, 0, 0)
    assert await audits.cash(t.provider.address) == before[0] + PAID - fee.value
    assert await audits.cash(t.buyer.address) == before[1] - PAID - share.value
    assert await audits.cash(key("audits").address) == share.value


async def test_what_the_node_shows_is_what_a_verifier_checks(audits: Audits) -> None:
    batch = await audits.drawn()
    ledger = Ledger()
    for event in audits.first.events:
        ledger.apply(event)
    on_chain: BatchOnChain = ledger.batches[batch.lease, 0]
    buyer = ledger.buyer_of(batch.lease)
    assert buyer == audits.trading.buyer.address
    assert check_outline(batch.outline, on_chain) is None
    for i in range(3):
        evidence = batch.evidence(i)
        assert evidence is not None
        rejection = check_evidence(
            evidence,
            on_chain,
            i,
            deployment=audits.deployed.deployment,
            buyer=buyer,
            keys=ledger,
            outline=batch.outline,
        )
        assert rejection is None


async def test_two_verdicts_accuse_and_after_the_window_convict(audits: Audits) -> None:
    batch = await audits.drawn()
    accused = await audits.accused(batch, 1)
    convict = ConvictSegment(lease=batch.lease, batch_no=0, i=1)
    await audits.second.chain.submit(convict)  # too early: it waits for the chain's clock
    audits.deployed.anvil.pass_time(WINDOWS.challenge + 1)
    told = await audits.node.wait_for(SegmentConvicted)
    price = PAID * batch.outline.weights[1] // 10**6
    assert told.at > accused.until
    assert (told.i, told.refund.value) == (1, price)
    assert told.fine.value == min(20 * price, 1_000_000)
    machine = await audits.node.chain.machine(audits.trading.machine)
    assert machine.bond.value == 49_000_000

    await audits.first.chain.submit(audits.results(batch, set()))
    ended = await audits.node.wait_for(BatchFinalised)
    assert ended.state is BatchState.PARTIAL
    assert ended.provider.value + ended.market.value == PAID - price


async def test_a_verifier_that_knows_better_clears_an_accusation(audits: Audits) -> None:
    batch = await audits.drawn()
    await audits.accused(batch, 2)
    verdict = audits.verdict(batch, 2, SECOND, VerdictResult.MATCH)
    await audits.second.chain.submit(ContestSegment(verdict=verdict))
    told = await audits.node.wait_for(AccusationContested)
    assert (told.lease, told.batch_no, told.i) == (batch.lease, 0, 2)


async def test_incomparable_segments_are_shown_and_not_paid(audits: Audits) -> None:
    batch = await audits.drawn()
    await audits.first.chain.submit(audits.results(batch, {0, 2}))
    ended = await audits.node.wait_for(BatchFinalised)
    weights = batch.outline.weights
    lost = PAID * (weights[0] + weights[2]) // 10**6
    assert ended.state is BatchState.PARTIAL
    assert ended.provider.value + ended.market.value == PAID - lost
    assert not audits.node.all(SegmentConvicted)


async def test_of_a_silent_nodes_batch_nothing_is_paid_and_nothing_is_shown(
    audits: Audits,
) -> None:
    batch = await audits.drawn()
    whole = audits.results(batch, {0, 1, 2})
    call = FinaliseBatch(lease=batch.lease, batch_no=0, results=whole.results)
    await audits.first.chain.submit(call)
    ended = await audits.node.wait_for(BatchFinalised)
    assert (ended.provider.value, ended.audits.value) == (0, 0)
    assert ended.buyer.value == PAID + share_down(TokenAmount(PAID), AUDIT).value


async def test_without_verifiers_the_chain_draws_and_the_hard_cap_pays(audits: Audits) -> None:
    batch, _ = await audits.committed()
    audits.deployed.anvil.mine(257)
    await audits.node.chain.submit(FallbackSeed(lease=batch.lease, batch_no=0))
    await audits.node.wait_for(BatchDrawn)
    audits.deployed.anvil.pass_time(WINDOWS.hard_cap + 1)
    await audits.node.chain.submit(FinaliseBatch(lease=batch.lease, batch_no=0, results=None))
    ended = await audits.first.wait_for(BatchFinalised)
    assert ended.state is BatchState.FINAL_UNVERIFIED
    assert ended.provider.value + ended.market.value == PAID
    assert ended.audits.value == 0


async def test_pay_that_nobody_commits_to_returns_to_the_buyer(audits: Audits) -> None:
    before = await audits.cash(audits.trading.buyer.address)
    lease = await audits.closed()
    audits.deployed.anvil.pass_time(WINDOWS.commit + 2)
    await audits.second.chain.submit(ReturnHeld(lease=lease))
    told = await audits.node.wait_for(HeldReturned)
    assert told.amount.value == PAID + share_down(TokenAmount(PAID), AUDIT).value
    assert await audits.cash(audits.trading.buyer.address) == before


async def test_refusals_come_back_with_their_names(audits: Audits) -> None:
    batch, _ = await audits.committed()
    audits.deployed.anvil.mine(2)
    wrong = audits.reveal(batch, keccak256(b"no preimage"))
    assert "Verification_BadPreimage" in await audits.failure(audits.first, wrong)
    early = audits.results(batch, set())
    assert "Verification_WrongState" in await audits.failure(audits.first, early)
    await audits.first.chain.submit(audits.reveal(batch))
    await audits.first.wait_for(BatchDrawn)
    hidden = audits.results(batch, {1})
    hidden = FinaliseBatch(lease=hidden.lease, batch_no=0, results=hidden.results)
    assert "Verification_NotShown(i=1)" in await audits.failure(audits.first, hidden)
    others = audits.results(batch, set(), SECOND)
    assert "Verification_NotVerifier" in await audits.failure(audits.second, others)
