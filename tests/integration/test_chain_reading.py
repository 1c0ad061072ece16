"""Balance sheets of a real chain: at every step of a lease, what is held is what is owed."""

from collections.abc import Iterator

import pytest

from cloud_gpu.accounting import (
    BURN,
    Books,
    Change,
    LeaseLife,
    explain,
    lease_lives,
    market_accounts,
)
from cloud_gpu.adapters.chain_reading import ChainReader
from cloud_gpu.protocol.adapters.evm_calls import calldata
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.audit import BatchState, VerdictResult
from cloud_gpu.protocol.calls import (
    ChainCall,
    ContestSegment,
    FinaliseBatches,
    RefundUnstarted,
    ReturnHeld,
)
from cloud_gpu.protocol.chain_events import (
    AccusationContested,
    BatchFinalised,
    HeldReturned,
    LeaseClosed,
    LeaseOpened,
    LeaseSettled,
    LeaseStarted,
    SegmentConvicted,
)
from cloud_gpu.protocol.deployment import AuditPlan, VerifierAccount
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.lease import Windows as LeaseWindows
from cloud_gpu.protocol.units import TokenAmount, share_down
from node.commitments import Batch
from tests.support.anvil import WINDOWS, Deployed, deployed_on, key, running_anvil
from tests.support.auditing import (
    AUDIT,
    FIRST,
    PAID,
    SECOND,
    Audits,
    audits,
    chain_of,
    ending,
    opening_of,
    verified,
)
from tests.support.auditing import WINDOWS as AUDIT_WINDOWS
from tests.support.trading import FEE, PRICE, Trading, trading_on

__all__ = ["audits", "verified"]


class Story:
    """Calls go to the chain one by one; the books are looked at in between."""

    def __init__(self, deployed: Deployed) -> None:
        self.trading: Trading = trading_on(deployed)
        self.anvil = deployed.anvil
        self.reader = ChainReader(deployed.anvil.rpc, deployed.deployment)
        self._to = deployed.deployment.lease_book

    def send(self, key: LocalKey, call: ChainCall) -> None:
        DirectSender(self.anvil.rpc, key).send(self._to, calldata(call))

    def books(self) -> Books:
        found = self.reader.books(self.reader.newest_block())
        assert found.difference == 0
        return found

    def life(self) -> LeaseLife:
        (life,) = lease_lives(self.reader.events(self.reader.newest_block()))
        return life

    def explained(self, before: Books) -> dict[str, tuple[tuple[str, int], ...]]:
        events = self.reader.events(self.reader.newest_block())
        changes = explain(before, self.books(), lease_lives(events), market_accounts(events))
        assert [change.unexplained for change in changes] == [0] * len(changes)
        assert sum(change.difference for change in changes) == 0
        t = self.trading
        names = {t.buyer.address: "buyer", t.provider.address: "provider", t.matcher.address: "m"}
        return {names[change.account]: change.why for change in changes}


@pytest.fixture
def story(deployed: Deployed) -> Story:
    return Story(deployed)


def test_a_paid_lease_is_on_the_sheet_from_open_to_close(story: Story) -> None:
    t, before = story.trading, story.books()
    story.send(t.matcher, t.opening((t.ask(), t.bid())))
    lease = t.lease()
    assert story.books().holdings[t.buyer.address].escrow == t.cap().value
    started_at = story.anvil.time()
    story.send(t.node, t.beginning(lease, started_at))
    story.anvil.pass_time(60)
    story.send(t.node, t.settling(t.voucher(lease, 20_000)))
    assert story.books().holdings[t.buyer.address].escrow == t.cap().value - 20_000
    story.send(t.node, t.closing(lease, 50_000, early=True))

    life = story.life()
    assert (life.gpus, life.price, life.cap, life.started_at) == (1, PRICE, t.cap(), started_at)
    assert (life.paid, life.refund) == (TokenAmount(50_000), t.cap() - TokenAmount(50_000))
    fee = share_down(TokenAmount(20_000), FEE) + share_down(TokenAmount(30_000), FEE)
    assert life.fee == fee
    assert story.explained(before) == {
        "buyer": (("paid for leases", -50_000),),
        "provider": (("earned from leases", 50_000 - fee.value),),
        "m": (("fees", fee.value),),
    }


def test_a_lease_that_never_began_is_refunded_with_the_bonds_compensation(story: Story) -> None:
    t, before = story.trading, story.books()
    story.send(t.matcher, t.opening((t.ask(), t.bid())))
    story.anvil.pass_time(WINDOWS.start + 1)
    story.send(t.buyer, RefundUnstarted(lease=t.lease()))

    life = story.life()
    assert life.reason is LeaseEndReason.PROVIDER_NO_SHOW
    assert (life.started_at, life.refund) == (None, t.cap())
    assert story.explained(before) == {
        "buyer": (("compensated for a lease that failed", life.penalty.value),),
        "provider": (("penalty from the bond", -life.penalty.value),),
        "m": (),
    }
    assert life.penalty > TokenAmount(0)


def test_gas_is_counted_by_function_between_two_blocks(story: Story) -> None:
    t, first = story.trading, story.reader.newest_block() + 1
    story.send(t.matcher, t.opening((t.ask(), t.bid())))
    story.anvil.pass_time(WINDOWS.start + 1)
    story.send(t.buyer, RefundUnstarted(lease=t.lease()))
    uses = story.reader.gas(first, story.reader.newest_block())
    assert {use.step: use.transactions for use in uses} == {"openPacked": 1, "refundUnstarted": 1}
    assert all(21_000 < use.gas < 400_000 for use in uses)


# ------------------------------------------------------------------------------- verified leases

INCOMES = {FIRST: key("first verifier's audits"), SECOND: key("second verifier's audits")}
FEE_OF_PAID = share_down(TokenAmount(PAID), FEE).value
AUDIT_OF_PAID = share_down(TokenAmount(PAID), AUDIT).value


@pytest.fixture(scope="module")
def verified_once() -> Iterator[Deployed]:
    """As the support's, but either verifier has an account of its own, which never registers."""
    first, second = (
        VerifierAccount(signer=v.address, anchor=chain_of(v).anchor, audits=income.address)
        for v, income in INCOMES.items()
    )
    plan = AuditPlan(verifiers=(first, second), windows=AUDIT_WINDOWS)
    with running_anvil() as anvil:
        yield deployed_on(anvil, LeaseWindows(start=60, claim=120, retire=600), audits=plan)


class Sheet:
    """The books of verified leases, looked at after every block."""

    def __init__(self, audits: Audits) -> None:
        self.audits = audits
        self.reader = ChainReader(audits.deployed.anvil.rpc, audits.deployed.deployment)
        self.first = self.block = self.reader.newest_block()
        self.before = self.reader.books(self.first)

    @property
    def books(self) -> Books:
        return self.reader.books(self.block)

    def life(self, lease: LeaseKey) -> LeaseLife:
        (life,) = [x for x in lease_lives(self.reader.events(self.block)) if x.key == lease]
        return life

    def look(self) -> dict[str, dict[str, int]]:
        """Why each party has what it has now; no block since the last look may leave a rest."""
        changes: tuple[Change, ...] = ()
        while self.block < self.reader.newest_block():
            self.block += 1
            books, events = self.books, self.reader.events(self.block)
            assert books.difference == 0, self.block
            lives, payees = lease_lives(events), self.reader.audit_payees(self.block)
            changes = explain(self.before, books, lives, market_accounts(events), payees)
            assert [c for c in changes if c.unexplained] == [], self.block
            assert sum(c.difference for c in changes) == 0, self.block
        t = self.audits.trading
        names = {t.buyer.address: "buyer", t.provider.address: "provider", BURN: "burnt"}
        names |= {t.matcher.address: "market"}
        names |= {INCOMES[FIRST].address: "first", INCOMES[SECOND].address: "second"}
        return {names[c.account]: dict(c.why) for c in changes if c.why}

    async def convicted(self, batch: Batch, i: int) -> SegmentConvicted:
        await self.audits.accused(batch, i)
        self.look()
        self.audits.deployed.anvil.pass_time(AUDIT_WINDOWS.challenge + 1)
        convict = self.audits.convicting(batch, i)
        await self.audits.second.chain.submit(convict)
        lease = batch.lease
        return await self.audits.node.wait_for(
            SegmentConvicted, lambda e: (e.lease, e.i) == (lease, i)
        )

    async def ended(self, call: FinaliseBatches) -> BatchFinalised:
        await self.audits.node.chain.submit(call)
        return await self.audits.node.wait_for(
            BatchFinalised, lambda e: e.lease == call.endings[0].lease
        )


@pytest.fixture
def sheet(audits: Audits) -> Sheet:
    return Sheet(audits)


async def test_held_pay_and_audit_share_are_owed_while_a_verified_lease_runs(sheet: Sheet) -> None:
    audits, t = sheet.audits, sheet.audits.trading
    await audits.market.chain.submit(t.opening((t.ask(), t.bid())))
    lease = (await audits.node.wait_for(LeaseOpened)).terms.key
    sheet.look()
    locked = t.cap().value + share_down(t.cap(), AUDIT).value
    assert sheet.books.holdings[t.buyer.address].escrow == locked
    await audits.node.chain.submit(t.beginning(lease, audits.deployed.anvil.time()))
    await audits.node.wait_for(LeaseStarted)
    audits.deployed.anvil.pass_time(61)
    await audits.market.chain.submit(t.settling(t.voucher(lease, 20_000)))
    await audits.node.wait_for(LeaseSettled)
    assert sheet.look() == {
        "buyer": {"paid for leases": -20_000},
        "provider": {"pay still held": 20_000},
    }
    assert sheet.books.holdings[t.provider.address].held_pay == 20_000
    await audits.market.chain.submit(t.closing(lease, PAID, early=True))
    await audits.node.wait_for(LeaseClosed)
    sheet.look()
    assert sheet.books.holdings[t.buyer.address].escrow == AUDIT_OF_PAID
    assert (sheet.life(lease).held, sheet.life(lease).fee) == (TokenAmount(PAID), TokenAmount(0))


async def test_a_convicted_an_unverified_and_a_returned_lease_leave_no_rest(sheet: Sheet) -> None:
    audits, anvil = sheet.audits, sheet.audits.deployed.anvil
    batch = await audits.drawn()
    sheet.look()
    assert sheet.books.holdings[audits.trading.provider.address].bond_locked == 1_000_000
    convicted = await sheet.convicted(batch, 1)
    price, fine, bounty = convicted.refund.value, convicted.fine.value, convicted.bounty.value
    assert fine > bounty > 0
    assert sheet.look() == {
        "buyer": {"paid for leases": -PAID, "refund for convicted work": price},
        "provider": {"pay still held": PAID - price, "fine": -fine},
        "first": {"bounty": bounty},
        "burnt": {"fines": fine - bounty},
    }
    ended = await sheet.ended(audits.results(batch, {2}))
    sheet.look()
    life = sheet.life(batch.lease)
    (of_batch,) = life.batches
    assert (of_batch.state, of_batch.accused[0].i) == (BatchState.PARTIAL, 1)
    assert life.inconclusive.value == PAID * batch.outline.weights[2] // 10**6
    assert (life.held.value, life.fee, life.audit_share) == (0, ended.market, ended.audits)
    assert life.paid_out == ended.provider + ended.market

    unverified, _ = await audits.committed(seq=2)
    anvil.pass_time(AUDIT_WINDOWS.hard_cap + 1)
    call = ending(unverified.lease, None)
    assert (await sheet.ended(call)).state is BatchState.FINAL_UNVERIFIED
    sheet.look()
    late = await sheet.convicted(unverified, 0)  # out of the bond: the pay is gone

    returned = await audits.closed(seq=3)
    sheet.look()
    anvil.pass_time(AUDIT_WINDOWS.commit + 2)
    await audits.second.chain.submit(ReturnHeld(lease=returned))
    await audits.node.wait_for(HeldReturned)
    assert sheet.life(returned).held.value == PAID
    earned, share = ended.provider.value + PAID - FEE_OF_PAID, ended.audits.value
    assert sheet.look() == {
        "buyer": {
            "paid for leases": -3 * PAID,
            "refund for convicted work": price + late.refund.value,
            "refund for inconclusive audits": life.inconclusive.value,
            "audit share": -share,
            "held pay returned: nothing committed": PAID,
        },
        "provider": {
            "earned from leases": earned,
            "fine": -fine - late.fine.value,
            "refund for convicted work, from the bond": -late.refund.value,
        },
        "market": {"fees": ended.market.value + FEE_OF_PAID},
        "first": {"audit share": share, "bounty": bounty},
        "second": {"bounty": late.bounty.value},
        "burnt": {"fines": fine - bounty + late.fine.value - late.bounty.value},
    }
    assert sheet.life(returned).returned.value == PAID


async def test_what_a_liar_forfeits_is_burnt(sheet: Sheet) -> None:
    batch = await sheet.audits.drawn()
    told = [await sheet.convicted(batch, i) for i in (0, 1)]
    fines, bounties = sum(e.fine.value for e in told), sum(e.bounty.value for e in told)
    ended = await sheet.ended(sheet.audits.results(batch, set()))
    price = PAID * sum(batch.outline.weights[:2]) // 10**6
    assert ended.burnt.value == PAID - price > 0
    assert sheet.look() == {
        "buyer": {"paid for leases": -PAID, "refund for convicted work": price},
        "provider": {"fine": -fines},
        "first": {"bounty": bounties},
        "burnt": {"fines": fines - bounties, "forfeited pay": ended.burnt.value},
    }


async def test_a_verifier_that_steps_in_gets_the_audit_share(sheet: Sheet) -> None:
    audits = sheet.audits
    batch = await audits.drawn()
    await audits.accused(batch, 2)
    verdict = audits.verdict(batch, 2, SECOND, VerdictResult.MATCH)
    await audits.second.chain.submit(
        ContestSegment(verdict=verdict, opening=opening_of(batch, verdict.payload.i))
    )
    await audits.node.wait_for(AccusationContested)
    audits.deployed.anvil.pass_time(AUDIT_WINDOWS.hard_cap // 2)
    ended = await sheet.ended(audits.results(batch, set(), SECOND))
    lost = PAID * batch.outline.weights[2] // 10**6
    assert sheet.look() == {
        "buyer": {
            "paid for leases": -PAID,
            "refund for inconclusive audits": lost,
            "audit share": -ended.audits.value,
        },
        "provider": {"earned from leases": ended.provider.value},
        "market": {"fees": ended.market.value},
        "second": {"audit share": ended.audits.value},
    }
    uses = sheet.reader.gas(sheet.first + 1, sheet.block)
    counted = {(use.contract, use.step): use.transactions for use in uses}
    assert counted == {
        ("LeaseBook", step): 1 for step in ("openPacked", "begin", "closePacked")
    } | {
        ("Verification", step): 1
        for step in ("commitBatch", "reveal", "accuse", "contest", "finalize")
    }
