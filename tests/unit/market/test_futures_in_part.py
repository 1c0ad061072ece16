"""Lane C by hand: orders that are filled in part, pro rata, and what becomes of the rest."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.chain_events import (
    BidsCancelled,
    CashChanged,
    ChainReorganised,
    EntrySkipped,
    TransactionFailed,
)
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.future_events import FutureOrderClosed
from cloud_gpu.protocol.futures import FutureOrder, Series
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import keccak256
from tests.unit.market.builders import NOW_S, TOKEN, key
from tests.unit.market.futures_builders import SERIES, FuturesDesk, future, openings, pairs


@pytest.fixture
def desk() -> FuturesDesk:
    return FuturesDesk()


def partly(desk: FuturesDesk) -> tuple[Signed[FutureOrder], Signed[FutureOrder]]:
    """Three wanted, two offered and sold: the buy has one left."""
    buy, sell = future("bob", buys=True, units=3), future("ada", buys=False, units=2)
    desk.trade(buy, sell)
    return buy, sell


def test_what_is_left_of_an_order_opens_another_contract_in_a_later_batch(
    desk: FuturesDesk,
) -> None:
    buy, sell = partly(desk)
    assert desk.future(sell).state is BidState.OPENED
    report = desk.future(buy)
    assert (report.state, report.filled, report.units) == (BidState.PENDING, 2, 0)
    later = future("eve", buys=False)
    desk.order(later)
    (call,) = openings(desk.end_batch())
    (pair,) = call.pairs
    assert (pair.buy, pair.units) == (buy, 1)
    desk.mine(desk.opened(pair, call.price))
    report = desk.future(buy)
    assert (report.state, report.filled) == (BidState.OPENED, 3)
    assert [(each.contract, each.units) for each in report.contracts] == [(1, 2), (2, 1)]


def test_one_batch_shares_pro_rata_and_one_order_opens_several_contracts(
    desk: FuturesDesk,
) -> None:
    """Three units for two longs of two: 1.5 each, and the tie key gives one the odd half."""
    buys = future("bob", buys=True, units=2), future("dan", buys=True, units=2)
    sell = future("ada", buys=False, units=3)
    desk.order(*buys, sell)
    (call,) = openings(desk.end_batch())
    assert sorted(pair.units for pair in call.pairs) == [1, 2]
    assert {pair.sell.payload.id for pair in call.pairs} == {sell.payload.id}
    first, second = call.pairs
    desk.mine(desk.opened(first, call.price))
    report = desk.future(sell)
    assert (report.state, report.filled, report.units) == (BidState.MATCHED, 2, 1)
    why = Rejection(reason=RejectReason.CASH_TOO_LOW, field="bid.buyer")
    desk.mine(EntrySkipped(call=call, position=1, rejection=why))
    report = desk.future(sell)
    assert (report.state, report.filled, report.units) == (BidState.PENDING, 2, 0)
    assert report.rejection == why
    assert desk.future(second.buy).state is BidState.PENDING
    assert desk.future(first.buy).state is BidState.OPENED


def test_an_older_batch_is_served_before_a_newer_one(desk: FuturesDesk) -> None:
    old, new = future("bob", buys=True, units=2), future("dan", buys=True, units=2)
    desk.order(old)
    desk.end_batch()
    desk.order(new, future("ada", buys=False, units=3))
    found = {buy: units for buy, _, units in pairs(desk.end_batch())}
    assert found == {old.payload.id: 2, new.payload.id: 1}


def test_many_failures_of_one_batch_count_once(desk: FuturesDesk) -> None:
    buys = [future("bob", buys=True, nonce=n) for n in range(3)]
    sell = future("ada", buys=False, units=3)
    desk.order(*buys, sell)
    for attempt in range(1, 6):
        (call,) = openings(desk.end_batch())
        assert len(call.pairs) == 3
        desk.mine(TransactionFailed(call=call, error="x"))
        expected = BidState.REJECTED if attempt == 5 else BidState.PENDING
        assert desk.future(sell).state is expected


def test_each_contract_locks_a_margin_of_its_own(desk: FuturesDesk) -> None:
    """Of 0.001 an hour: margins are the floor, one token a contract."""
    hours = Series(product=1, window_start=SERIES.window_start, window_seconds=3_600)
    sell = future("ada", buys=False, units=2, at="0.001", of=hours)
    buys = [future(name, buys=True, at="0.001", of=hours) for name in ("bob", "dan")]
    desk.order(*buys, sell)
    spent = TokenAmount(1_000 * TOKEN - 1_500_000)
    desk.mine(CashChanged(account=key("ada").address, amount=spent, increase=False))
    assert not pairs(desk.end_batch())
    rejection = desk.future(sell).rejection
    assert rejection is not None
    assert rejection.needed.startswith("2.00 tokens")


def test_an_order_in_part_goes_on_without_its_nonce_until_it_is_closed_or_passed(
    desk: FuturesDesk,
) -> None:
    bob = key("bob").address
    buy, _ = partly(desk)
    assert desk.refusal(future("bob", buys=True, at="1.01")) is RejectReason.NONCE_USED
    desk.mine(BidsCancelled(account=bob, nonce=0, below=True))
    assert desk.future(buy).state is BidState.PENDING
    desk.mine(FutureOrderClosed(order=buy.payload.id, trader=key("dan").address, at=NOW_S))
    assert desk.future(buy).state is BidState.PENDING, "another cannot close it"
    desk.mine(FutureOrderClosed(order=buy.payload.id, trader=bob, at=NOW_S))
    report = desk.future(buy)
    assert (report.state, report.filled) == (BidState.CANCELLED, 2)
    assert report.rejection is not None
    assert report.rejection.reason is RejectReason.ORDER_CLOSED


def test_cancelling_below_ends_what_is_left_of_an_order(desk: FuturesDesk) -> None:
    buy, _ = partly(desk)
    desk.mine(BidsCancelled(account=key("bob").address, nonce=1, below=True))
    report = desk.future(buy)
    assert (report.state, report.filled) == (BidState.CANCELLED, 2)


def test_an_order_closed_before_it_is_handed_in_is_refused(desk: FuturesDesk) -> None:
    buy = future("bob", buys=True)
    desk.mine(FutureOrderClosed(order=buy.payload.id, trader=key("bob").address, at=NOW_S))
    assert desk.refusal(buy) is RejectReason.ORDER_CLOSED


def test_a_closing_is_forgotten_when_no_order_outlived_it_and_a_reorganisation_puts_it_back(
    desk: FuturesDesk,
) -> None:
    table = desk.market._floor.ledger.futures._closed
    bob, kept_s = key("bob").address, limits.ORDER_LIFE_S_MAX + 2 * 24 * 3_600
    buy = future("bob", buys=True)
    made_up = [keccak256(b"%d" % number) for number in range(50)]
    desk.mine(*(FutureOrderClosed(order=each, trader=bob, at=NOW_S) for each in made_up))
    closed_s = desk.now // 1000 + 3_600
    desk.now = closed_s * 1000
    desk.mine(
        FutureOrderClosed(order=buy.payload.id, trader=bob, at=closed_s),
        FutureOrderClosed(order=made_up[0], trader=bob, at=closed_s),  # keeps nothing longer
    )
    desk.now = (NOW_S + kept_s) * 1000
    desk.mine()
    assert len(table) == 51
    desk.now += 1000
    desk.mine()
    assert list(table) == [(buy.payload.id, bob)]
    desk.tell(ChainReorganised(block=desk.block - 1))
    assert len(table) == 51
    desk.block -= 1
    desk.mine()
    assert (buy.payload.id, bob) in table
    desk.now = (closed_s + kept_s + 1) * 1000
    desk.mine()
    assert not table


def test_what_is_left_of_an_order_counts_to_the_position_limit(desk: FuturesDesk) -> None:
    """Three a side: two in a contract and one that waits leave no room."""
    partly(desk)
    assert desk.refusal(future("bob", buys=True, nonce=1)) is RejectReason.WRONG_COUNT


def test_a_reorganisation_takes_one_of_two_contracts_back(desk: FuturesDesk) -> None:
    buy, _ = partly(desk)
    desk.order(future("eve", buys=False))
    (call,) = openings(desk.end_batch())
    before = desk.block
    opened = desk.opened(call.pairs[0], call.price)
    desk.mine(opened)
    assert desk.future(buy).state is BidState.OPENED
    desk.tell(ChainReorganised(block=before))
    report = desk.future(buy)
    assert (report.state, report.filled, report.units) == (BidState.MATCHED, 2, 1)
    desk.block = before
    desk.mine(EntrySkipped(call=call, position=0, rejection=Rejection(reason=RejectReason.EXPIRED)))
    report = desk.future(buy)
    assert (report.state, report.filled, report.units) == (BidState.PENDING, 2, 0)


def test_a_contract_that_was_given_up_and_opens_late_is_counted(desk: FuturesDesk) -> None:
    buy, sell = future("bob", buys=True, units=3), future("ada", buys=False, units=2)
    desk.order(buy, sell)
    (call,) = openings(desk.end_batch())
    desk.pass_time(30_000)
    desk.mine()
    desk.pass_time(30_000)
    assert desk.future(buy).state is BidState.PENDING
    desk.mine(desk.opened(call.pairs[0], call.price))
    assert (desk.future(buy).state, desk.future(buy).filled) == (BidState.PENDING, 2)
    assert desk.future(sell).state is BidState.OPENED
