"""Balance sheets of a real chain: at every step of a lease, what is held is what is owed."""

import pytest

from cloud_gpu.accounting import Books, LeaseLife, explain, lease_lives, market_accounts
from cloud_gpu.adapters.chain_reading import ChainReader
from cloud_gpu.protocol.adapters.evm_calls import calldata
from cloud_gpu.protocol.adapters.evm_direct import DirectSender
from cloud_gpu.protocol.calls import ChainCall, RefundUnstarted
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import LeaseEndReason
from cloud_gpu.protocol.units import TokenAmount, share_down
from tests.support.anvil import WINDOWS, Deployed
from tests.support.trading import FEE, PRICE, Trading, trading_on


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
    assert {use.step: use.transactions for use in uses} == {"openBatch": 1, "refundUnstarted": 1}
    assert all(21_000 < use.gas < 400_000 for use in uses)
