"""A lease's whole life through typed calls and typed events, on a real chain."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from cloud_gpu.protocol.adapters.evm_calls import calldata
from cloud_gpu.protocol.calls import ExpireLease, OpenGang, RefundUnstarted, ReleaseLease, StopLease
from cloud_gpu.protocol.chain_events import (
    AccountRegistered,
    CashChanged,
    ChainAdvanced,
    DelegationChanged,
    EntrySkipped,
    LeaseClosed,
    LeaseOpened,
    LeaseReady,
    LeaseSettled,
    LeaseStarted,
    LeaseStopped,
    MachineAdded,
    MarketRegistered,
    PenaltyPaid,
    ProductRegistered,
    TransactionFailed,
)
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.identity import KeyRole
from cloud_gpu.protocol.lease import LeaseEndReason, MachineStatus
from cloud_gpu.protocol.orders import BidFlags
from cloud_gpu.protocol.settlement import accrued, no_show_amount, release_penalty
from cloud_gpu.protocol.signing import sign
from cloud_gpu.protocol.units import BasisPoints, TokenAmount, share_down
from market.rules import GANG_MACHINES_MAX
from tests.support.anvil import WINDOWS, Deployed, key
from tests.support.trading import BOND_TOKENS, FEE, PRICE, Trading, trading_on
from tests.support.watching import Watch, watched


@dataclass
class Parties:
    """The three that send by themselves, each with its own outbox."""

    trading: Trading
    market: Watch
    node: Watch
    buyer: Watch

    @property
    def now(self) -> int:
        return self.trading.deployed.anvil.time()

    def pass_time(self, seconds: int) -> None:
        self.trading.deployed.anvil.pass_time(seconds)

    async def opened(self, seq: int = 1, duration: int = 600) -> LeaseOpened:
        """A funded lease."""
        t = self.trading
        await self.market.chain.submit(
            t.opening((t.ask(seq), t.bid(nonce=seq - 1, duration=duration)))
        )
        return await self.node.wait_for(LeaseOpened, lambda e: e.terms.key.seq == seq)

    async def started(self, seq: int = 1, duration: int = 600) -> LeaseStarted:
        """A lease whose meter runs."""
        lease = (await self.opened(seq, duration)).terms.key
        await self.node.chain.submit(self.trading.beginning(lease, self.now))
        return await self.buyer.wait_for(LeaseStarted, lambda e: e.lease == lease)

    async def cash(self, party: str) -> int:
        return (await self.buyer.chain.account(key(party).address)).cash.value


@pytest.fixture
async def parties(deployed: Deployed, tmp_path: Path) -> AsyncIterator[Parties]:
    trading = trading_on(deployed)
    async with AsyncExitStack() as stack:
        watches = [
            await stack.enter_async_context(watched(deployed, owner, tmp_path / name))
            for name, owner in (
                ("market", trading.matcher),
                ("node", trading.node),
                ("buyer", trading.buyer),
            )
        ]
        yield Parties(trading, *watches)


async def test_history_is_told_in_order_then_the_block(parties: Parties) -> None:
    await parties.buyer.wait_for(ChainAdvanced)
    t, told = parties.trading, parties.buyer
    assert [e.account for e in told.all(AccountRegistered)] == [
        t.provider.address,
        t.buyer.address,
        t.matcher.address,
    ]
    assert [e.id for e in told.all(AccountRegistered)] == [1, 2, 3]
    assert all(e.increase and e.amount.value == 1_000_000_000 for e in told.all(CashChanged))
    (product,) = told.all(ProductRegistered)
    assert (product.gpu_class, product.slice_gpus, product.region_group) == (
        "A100-SXM4-80GB",
        1,
        "",
    )
    assert told.all(MachineAdded) == [
        MachineAdded(
            machine=t.machine, product=t.product, bond=TokenAmount(BOND_TOKENS * 1_000_000)
        )
    ]
    (market,) = told.all(MarketRegistered)
    assert (market.account, market.fee) == (t.matcher.address, FEE)
    node, session = told.all(DelegationChanged)
    assert (node.signer, node.delegation.account, node.delegation.role) == (
        t.node.address,
        t.provider.address,
        KeyRole.NODE,
    )
    assert session.delegation.role is KeyRole.SESSION
    assert isinstance(told.events[-1], ChainAdvanced)


async def test_a_lease_opens_begins_is_paid_and_closes_at_its_end(parties: Parties) -> None:
    t, cap = parties.trading, parties.trading.cap()
    opened = await parties.opened()
    terms, lease = opened.terms, opened.terms.key
    assert (lease, terms.buyer, terms.cap, terms.duration) == (
        t.lease(),
        t.buyer.address,
        cap,
        600,
    )
    assert terms.start_deadline == terms.opened_at + WINDOWS.start
    assert (terms.market_id, terms.opened_at) == (t.market_id, opened.at)
    assert opened.bid == t.bid().payload.id

    view = await parties.node.chain.machine(t.machine)
    assert (view.status, view.seq, view.next_seq) == (MachineStatus.FUNDED, 1, 2)
    assert (view.cap, view.buyer_id, view.market_id) == (cap, 2, t.market_id)

    await parties.node.chain.submit(t.posting(lease))
    await parties.buyer.wait_for(LeaseReady)
    begun_at = parties.now
    await parties.node.chain.submit(t.beginning(lease, begun_at))
    assert (await parties.buyer.wait_for(LeaseStarted)).started_at == begun_at

    parties.pass_time(100)
    await parties.node.chain.submit(t.settling(t.voucher(lease, 50_000)))
    assert (await parties.buyer.wait_for(LeaseSettled)).paid.value == 50_000

    parties.pass_time(600)
    await parties.node.chain.submit(t.closing(lease, cap.value, early=False))
    closed = await parties.buyer.wait_for(LeaseClosed)
    assert (closed.reason, closed.paid) == (LeaseEndReason.END_OF_TIME, cap)

    fee = share_down(TokenAmount(50_000), FEE) + share_down(cap - TokenAmount(50_000), FEE)
    assert await parties.cash("matcher") == fee.value
    assert await parties.cash("buyer") == 1_000_000_000 - cap.value
    bond = BOND_TOKENS * 1_000_000
    assert await parties.cash("provider") == 1_000_000_000 - bond + cap.value - fee.value
    assert not parties.node.all(TransactionFailed) + parties.node.all(EntrySkipped)


async def test_the_buyers_final_closes_early_and_its_voucher_does_not(parties: Parties) -> None:
    t = parties.trading
    lease = (await parties.started()).lease
    parties.pass_time(60)
    await parties.buyer.chain.submit(t.closing(lease, 40_000, early=False))
    skipped = await parties.buyer.wait_for(EntrySkipped)
    assert skipped.rejection.reason is RejectReason.WRONG_STATE
    assert skipped.rejection.field == "buyer_final"
    assert (skipped.call, skipped.position) == (t.closing(lease, 40_000, early=False), 0)

    await parties.buyer.chain.submit(t.closing(lease, 40_000, early=True))
    closed = await parties.node.wait_for(LeaseClosed)
    assert (closed.reason, closed.paid.value) == (LeaseEndReason.STOPPED, 40_000)
    assert (await parties.node.chain.machine(t.machine)).status is MachineStatus.FREE


async def test_a_stop_freezes_the_pay_and_expiry_returns_the_rest(parties: Parties) -> None:
    t, cap = parties.trading, parties.trading.cap()
    begun = await parties.started()
    parties.pass_time(100)
    await parties.buyer.chain.submit(StopLease(lease=begun.lease))
    stopped = await parties.node.wait_for(LeaseStopped)
    assert stopped.ceiling == accrued(cap, stopped.at - begun.started_at, 600)
    assert await parties.cash("buyer") == 1_000_000_000 - stopped.ceiling.value

    await parties.node.chain.submit(t.settling(t.voucher(begun.lease, 30_000)))
    await parties.node.wait_for(LeaseSettled)
    # Too early by less than two minutes: the sender waits for the chain's clock by itself.
    parties.pass_time(WINDOWS.claim - 30)
    await parties.buyer.chain.submit(ExpireLease(lease=begun.lease))
    parties.pass_time(60)
    closed = await parties.node.wait_for(LeaseClosed)
    assert (closed.reason, closed.paid.value) == (LeaseEndReason.EXPIRED, 30_000)
    assert await parties.cash("buyer") == 1_000_000_000 - 30_000
    assert not parties.buyer.all(TransactionFailed)


@pytest.mark.parametrize("ready", [True, False], ids=["buyer_absent", "provider_absent"])
async def test_what_never_began_is_refunded_and_the_absent_side_pays(
    parties: Parties, ready: bool
) -> None:
    t, cap = parties.trading, parties.trading.cap()
    lease = (await parties.opened()).terms.key
    if ready:
        await parties.node.chain.submit(t.posting(lease))
        await parties.node.wait_for(LeaseReady)
    parties.pass_time(WINDOWS.start + 1)
    await parties.node.chain.submit(RefundUnstarted(lease=lease))
    closed = await parties.node.wait_for(LeaseClosed)
    owed = no_show_amount(cap, 600, WINDOWS.no_show)
    if ready:
        assert (closed.reason, closed.paid) == (LeaseEndReason.BUYER_NO_SHOW, owed)
        assert not parties.node.all(PenaltyPaid)
        assert await parties.cash("buyer") == 1_000_000_000 - owed.value
    else:
        assert (closed.reason, closed.paid.value) == (LeaseEndReason.PROVIDER_NO_SHOW, 0)
        (penalty,) = parties.node.all(PenaltyPaid)
        assert (penalty.lease, penalty.amount) == (lease, owed)
        assert await parties.cash("buyer") == 1_000_000_000 + owed.value
        bond = (await parties.node.chain.machine(t.machine)).bond
        assert bond.value == (BOND_TOKENS - -(-owed.value // 1_000_000)) * 1_000_000


async def test_a_provider_that_leaves_early_pays_and_has_its_machine_back(
    parties: Parties, tmp_path: Path
) -> None:
    t, cap = parties.trading, parties.trading.cap()
    lease = (await parties.started()).lease
    parties.pass_time(60)
    async with watched(t.deployed, t.provider, tmp_path / "provider") as provider:
        voucher = t.voucher(lease, 20_000)
        release = ReleaseLease(lease=lease, voucher=voucher, reason=LeaseEndReason.HEALTH)
        await provider.chain.submit(release)
        closed = await provider.wait_for(LeaseClosed)
        assert (closed.reason, closed.paid.value) == (LeaseEndReason.HEALTH, 20_000)
        (penalty,) = provider.all(PenaltyPaid)
    assert penalty.amount == release_penalty(cap - TokenAmount(20_000), BasisPoints(1_000))
    assert (await parties.node.chain.machine(t.machine)).status is MachineStatus.FREE


async def test_a_wrong_signature_skips_its_entry_and_the_rest_of_the_batch_opens(
    parties: Parties,
) -> None:
    t = parties.trading
    forged = t.bid(nonce=7, signer=key("stranger"))
    await parties.market.chain.submit(t.opening((t.ask(), forged), (t.ask(), t.bid(nonce=8))))
    opened = await parties.market.wait_for(LeaseOpened)
    assert opened.bid == t.bid(nonce=8).payload.id
    (skipped,) = parties.market.all(EntrySkipped)
    assert skipped.position == 0
    assert skipped.rejection.reason is RejectReason.BAD_SIGNATURE
    assert skipped.rejection.field == "bid.signature"
    await parties.node.wait_for(LeaseOpened)
    assert not parties.node.all(EntrySkipped), "a skipped entry concerns only its sender"


async def test_a_gang_that_one_machine_spoils_opens_nothing_and_says_which(
    parties: Parties,
) -> None:
    t = parties.trading
    plain = t.bid(nonce=9).payload
    both = msgspec.structs.replace(plain, count=2, flags=int(BidFlags.PAY_AS_ASK))
    signed = sign(both, t.deployed.deployment.domain, t.buyer)
    gang = OpenGang(
        product=t.product,
        price=PRICE,
        market_id=t.market_id,
        bid=signed,
        asks=(t.ask(), t.ask(seq=9)),
    )
    await parties.market.chain.submit(gang)
    refused = await parties.market.wait_for(EntrySkipped)
    assert (refused.call, refused.position) == (gang, 1)
    assert refused.rejection.reason is RejectReason.MACHINE_NOT_FREE
    assert (await parties.node.chain.machine(t.machine)).status is MachineStatus.FREE


def test_the_greatest_gang_fits_into_a_transaction(deployed: Deployed) -> None:
    t = trading_on(deployed, GANG_MACHINES_MAX)
    flags = int(BidFlags.PAY_AS_ASK)
    whole = msgspec.structs.replace(t.bid().payload, count=GANG_MACHINES_MAX, flags=flags)
    gang = OpenGang(
        product=t.product,
        price=PRICE,
        market_id=t.market_id,
        bid=sign(whole, deployed.deployment.domain, t.buyer),
        asks=tuple(t.ask(index=index) for index in range(GANG_MACHINES_MAX)),
    )
    data = calldata(gang)
    sent = {"from": str(t.matcher.address), "to": str(deployed.deployment.lease_book)}
    gas = int(deployed.anvil.rpc.call("eth_estimateGas", {**sent, "data": "0x" + data.hex()}), 16)
    assert len(data) < 64 * 1024
    assert gas < 2**22, "a quarter of what one transaction may take (EIP-7825)"


async def test_a_revert_comes_back_with_its_name_and_numbers(parties: Parties) -> None:
    t = parties.trading
    lease = (await parties.opened()).terms.key
    await parties.buyer.chain.submit(StopLease(lease=lease))
    failed = await parties.buyer.wait_for(TransactionFailed)
    assert failed.call == StopLease(lease=lease)
    assert failed.error == "LeaseBook_WrongStatus(found=FUNDED)"
    await parties.buyer.chain.submit(StopLease(lease=t.lease(seq=9)))
    second = await parties.buyer.wait_for(TransactionFailed, lambda e: e.call != failed.call)
    assert second.error == "LeaseBook_WrongLease(found=1)"
