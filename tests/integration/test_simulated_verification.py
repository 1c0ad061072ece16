"""The simulated book beside the real contracts: the same calls, the same facts, the same money."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cloud_gpu.protocol.adapters.evm_rpc import octets
from cloud_gpu.protocol.audit import BatchState, VerdictResult, draw_point, segment_at
from cloud_gpu.protocol.calls import (
    AccuseSegment,
    ChainCall,
    ChallengeLeaf,
    CommitBatch,
    ContestSegment,
    ConvictSilence,
    ReturnHeld,
)
from cloud_gpu.protocol.chain_events import (
    AccountRegistered,
    AccusationContested,
    BatchCommitted,
    BatchDrawn,
    BatchFinalised,
    CashChanged,
    ChainEvent,
    DelegationChanged,
    HeldReturned,
    LeafChallenged,
    LeafOpened,
    LeaseClosed,
    LeaseOpened,
    LeaseStarted,
    MachineAdded,
    MarketRegistered,
    ProductRegistered,
    SegmentAccused,
    SegmentConvicted,
    SilenceConvicted,
)
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.signing import sign
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from cloud_gpu.testing.simulated_audits import Seat
from cloud_gpu.testing.simulated_book import SimulatedBook
from cloud_gpu.testing.simulated_calls import carry_out
from node.commitments import Batch
from tests.support.anvil import key
from tests.support.auditing import (
    FIRST,
    PAID,
    SECOND,
    WINDOWS,
    Audits,
    audits,
    chain_of,
    ending,
    opening_of,
    verified,
    verified_once,
)
from tests.support.watching import Watch

__all__ = ["audits", "verified", "verified_once"]

EventT = TypeVar("EventT", bound=ChainEvent)


def book_like(audits: Audits) -> SimulatedBook:
    """A simulated book with the history that the real one told."""
    book = SimulatedBook(audits.deployed.deployment)
    products: dict[int, ProductRegistered] = {}
    cash = {e.account: e.amount.value for e in audits.first.all(CashChanged)}
    for event in list(audits.first.events):
        match event:
            case AccountRegistered(account=account):
                book.register(account, cash.get(account, 0))
            case ProductRegistered(product=number):
                products[number] = event
                book.register_product(event.row)
            case MarketRegistered(account=account, fee=fee):
                book.register_market(account, fee)
            case MachineAdded(machine=machine, bond=bond, product=number):
                book.add_machine(machine, bond.value, number)
            case DelegationChanged(signer=signer, delegation=delegation):
                book.keys.record(signer, delegation)
            case _:
                pass
    book.audits.seats = tuple(
        Seat(signer=v.address, anchor=chain_of(v).anchor, audits=key("audits").address)
        for v in (FIRST, SECOND)
    )
    rpc = audits.deployed.anvil.rpc

    def block_hash(number: int) -> Digest | None:
        found = rpc.call("eth_getBlockByNumber", hex(number), False)
        return Digest(octets(found["hash"])) if found else None

    book.audits.block_hash = block_hash
    return book


@dataclass
class Both:
    """The real contracts and the simulated ones."""

    audits: Audits
    book: SimulatedBook
    seed: Digest = ZERO_DIGEST
    """Of the newest draw."""

    async def does(self, watch: Watch, call: ChainCall, kind: type[EventT], **names: Any) -> EventT:
        """One call on both; the facts that follow are equal."""

        def is_it(event: EventT) -> bool:
            return all(getattr(event, name) == found for name, found in names.items())

        before = len(watch.all(kind))
        await watch.chain.submit(call)
        await watch.until(lambda: len(watch.all(kind)) > before, f"a {kind.__name__}")
        real = watch.all(kind)[before]
        assert is_it(real), (real, names)
        block = self.audits.deployed.anvil.block()
        found = self.audits.deployed.anvil.rpc.call("eth_getBlockByNumber", hex(block), False)
        self.book.now, self.book.audits.block = int(found["timestamp"], 16), block
        self.book.transaction = Digest(octets(found["transactions"][0]))
        carry_out(self.book, watch.chain.address, call)
        assert self.book.log[-1] == real
        assert self.book.owed == self.book.deposited
        await self.agree()
        return real

    async def agree(self) -> None:
        """Every account and the machine hold the same."""
        chain = self.audits.node.chain
        for account in self.book.accounts:
            real, simulated = await chain.account(account), self.book.account_view(account)
            assert real == simulated, account
        machine = self.audits.trading.machine
        assert await chain.machine(machine) == self.book.machine_view(machine)

    async def closed(self, seq: int) -> LeaseKey:
        t, a = self.audits.trading, self.audits
        opening = t.opening((t.ask(seq), t.bid(nonce=seq - 1)))
        lease = (await self.does(a.market, opening, LeaseOpened)).terms.key
        await self.does(a.node, t.beginning(lease, a.deployed.anvil.time()), LeaseStarted)
        a.deployed.anvil.pass_time(61)
        await self.does(a.market, t.closing(lease, PAID, early=True), LeaseClosed)
        return lease

    async def drawn(self, seq: int) -> Batch:
        a = self.audits
        batch = a.batch(await self.closed(seq))
        signed = sign(batch.commit, a.deployed.deployment.verification_domain, a.trading.node)
        committed = await self.does(a.node, CommitBatch(commit=signed), BatchCommitted)
        a.deployed.anvil.mine(2)
        number = self.book.audits.batches[committed.lease, 0].number
        verifier = (FIRST, SECOND)[number % 2]
        preimage = chain_of(verifier).at(number // 2)
        told = await self.does(a.first, a.reveal(batch, preimage), BatchDrawn)
        self.seed = told.seed
        return batch

    async def accused(self, batch: Batch, i: int) -> None:
        evidence = batch.evidence(i)
        assert evidence is not None
        words = [self.audits.verdict(batch, i, v, VerdictResult.MISMATCH) for v in (FIRST, SECOND)]
        call = AccuseSegment(
            leaf=evidence.leaf, proof=evidence.proof, first=words[0], second=words[1]
        )
        await self.does(self.audits.first, call, SegmentAccused, i=i)

    async def convicted(self, batch: Batch, i: int) -> None:
        call = self.audits.convicting(batch, i)
        await self.does(self.audits.second, call, SegmentConvicted, i=i)


async def registered_audits(audits: Audits) -> None:
    """Simulated accounts are registered before they are paid."""
    owner = key("audits")
    with audits.deployed.wallet(owner) as wallet:
        audits.deployed.anvil.give_native(owner.address)
        wallet.register_account()
    await audits.first.wait_for(AccountRegistered, lambda e: e.account == owner.address)


async def test_the_simulated_book_agrees_with_the_contracts(audits: Audits) -> None:
    await audits.first.wait_for(DelegationChanged, lambda e: e.signer == key("session").address)
    await registered_audits(audits)
    both, anvil = Both(audits, book_like(audits)), audits.deployed.anvil
    await both.agree()

    # All matched; the audit share is the verifier's.
    batch = await both.drawn(1)
    await both.does(audits.first, audits.results(batch, set()), BatchFinalised)

    # One contested, one convicted, one incomparable.
    batch = await both.drawn(2)
    for i in (0, 1):
        await both.accused(batch, i)
    verdict = audits.verdict(batch, 0, SECOND, VerdictResult.INCOMPARABLE)
    await both.does(
        audits.second,
        ContestSegment(verdict=verdict, opening=opening_of(batch, verdict.payload.i)),
        AccusationContested,
        i=0,
    )
    anvil.pass_time(WINDOWS.challenge + 1)
    await both.convicted(batch, 1)
    whole = audits.results(batch, {0, 2}, SECOND)
    end = ending(batch.lease, whole.endings[0].results)
    await both.does(audits.second, end, BatchFinalised)

    # Two convicted: the rest is burnt.
    batch = await both.drawn(3)
    for i in (0, 1):
        await both.accused(batch, i)
    anvil.pass_time(WINDOWS.challenge + 1)
    for i in (0, 1):
        await both.convicted(batch, i)
    ended = await both.does(audits.first, audits.results(batch, set()), BatchFinalised)
    assert ended.burnt.value > 0

    # Unverified at the hard cap, convicted afterwards out of the bond.
    batch = await both.drawn(4)
    anvil.pass_time(WINDOWS.hard_cap + 1)
    without = ending(batch.lease, None)
    await both.does(audits.node, without, BatchFinalised)
    await both.accused(batch, 2)
    anvil.pass_time(WINDOWS.challenge + 1)
    await both.convicted(batch, 2)

    # Never committed.
    lease = await both.closed(5)
    anvil.pass_time(WINDOWS.commit + 2)
    await both.does(audits.second, ReturnHeld(lease=lease), HeldReturned)


async def test_they_agree_about_silence_and_fraud(audits: Audits) -> None:
    await audits.first.wait_for(DelegationChanged, lambda e: e.signer == key("session").address)
    other = audits.deployed.member("other buyer")
    await audits.first.wait_for(AccountRegistered, lambda e: e.account == other.address)
    await registered_audits(audits)
    both, anvil = Both(audits, book_like(audits)), audits.deployed.anvil

    # One point is shown, one stays silent; what lies elsewhere is convicted.
    batch = await both.drawn(1)
    points = [segment_at(draw_point(both.seed, j), batch.outline.weights) for j in range(3)]
    for j in (0, 1):
        ask = ChallengeLeaf(lease=batch.lease, batch_no=0, j=j, m=3)
        await both.does(audits.second, ask, LeafChallenged, j=j)
    shown = batch.answer(both.seed, 0)
    await both.does(audits.node, shown, LeafOpened, j=0, i=points[0])
    anvil.pass_time(WINDOWS.answer + 1)
    silence = ConvictSilence(lease=batch.lease, batch_no=0, j=1)
    await both.does(audits.node, silence, SilenceConvicted, j=1)
    i = next(i for i in range(3) if i != points[1])
    await both.accused(batch, i)
    anvil.pass_time(WINDOWS.challenge + 1)
    await both.convicted(batch, i)
    await both.does(audits.first, audits.results(batch, set()), BatchFinalised)

    # Another buyer's segment, too: the bond, the rest, and the provider's name.
    audits.trading = replace(audits.trading, buyer=other, session=other)
    batch = await both.drawn(2)
    await both.accused(batch, 0)
    anvil.pass_time(WINDOWS.challenge + 1)
    convict = audits.convicting(batch, 0)
    ended = await both.does(audits.second, convict, BatchFinalised, state=BatchState.SLASHED)
    assert ended.burnt.value > 0
    assert (await audits.node.chain.machine(audits.trading.machine)).bond.value == 0
