"""Lane C by hand: at the door, in a batch, on its way to the chain, and back."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.chain_events import (
    BidsCancelled,
    CashChanged,
    ChainReorganised,
    EntrySkipped,
    TransactionFailed,
)
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import BidWithdrawn
from cloud_gpu.protocol.future_reports import LastTrade, Level, OrderFill
from cloud_gpu.protocol.futures import Series
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from market.matchmaker import Matchmaker
from tests.unit.market.builders import NOW_S, TOKEN, advert, key, order, price
from tests.unit.market.futures_builders import (
    DAY_S,
    FUTURES_RULES,
    SERIES,
    FuturesDesk,
    future,
    openings,
    pairs,
)


@pytest.fixture
def desk() -> FuturesDesk:
    return FuturesDesk()


def test_a_buy_and_a_sell_open_at_one_price(desk: FuturesDesk) -> None:
    buy, sell = future("bob", buys=True, at="1.20"), future("ada", buys=False, at="1.00")
    desk.order(buy, sell)
    assert desk.future(buy).state is BidState.PENDING
    effects = desk.end_batch()
    (call,) = openings(effects)
    assert (call.series, call.price) == (SERIES, price("1.10"))
    assert pairs(effects) == [(buy.payload.id, sell.payload.id, 1)]
    how = desk.future(buy).explanation
    assert how is not None
    assert how.price.endswith("it leaves least over, and then is in the middle.")
    desk.mine(desk.opened(call.pairs[0], call.price))
    for each in (buy, sell):
        report = desk.future(each)
        fill = OrderFill(contract=1, units=1, per_hour=TokenAmount(call.price.value))
        assert (report.state, report.contracts, report.filled) == (BidState.OPENED, (fill,), 1)
    assert desk.contract(1).contract.long == key("bob").address


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"matcher": Address(b"\x07" * 20)}, RejectReason.WRONG_MATCHER),
        ({"window_start": SERIES.window_start + 1}, RejectReason.WRONG_PRODUCT),
        ({"window_seconds": 2 * 3_600}, RejectReason.WRONG_PRODUCT),
        ({"window_start": NOW_S // DAY_S * DAY_S + DAY_S}, RejectReason.EXPIRED),
        ({"window_start": SERIES.window_start + 400 * DAY_S}, RejectReason.DURATION_OUTSIDE_LIMITS),
        ({"start_by": NOW_S}, RejectReason.EXPIRED),
        ({"start_by": NOW_S + 2 * DAY_S}, RejectReason.DURATION_OUTSIDE_LIMITS),
        ({"product": 9}, RejectReason.UNKNOWN_PRODUCT),
        ({"units": 65}, RejectReason.WRONG_COUNT),
        ({"units": 4}, RejectReason.WRONG_COUNT),
        ({"at": 100_000_000}, RejectReason.CAP_OUT_OF_RANGE),
        ({"at": 3_000}, RejectReason.CASH_TOO_LOW),
        ({"signer": "eve"}, RejectReason.KEY_NOT_AUTHORISED),
    ],
)
def test_what_the_door_refuses(
    desk: FuturesDesk, changes: dict[str, object], reason: RejectReason
) -> None:
    assert desk.refusal(future("bob", buys=True, **changes)) is reason  # type: ignore[arg-type]


def test_a_nonce_serves_one_order(desk: FuturesDesk) -> None:
    desk.order(future("bob", buys=True))
    assert desk.refusal(future("bob", buys=True, at="1.01")) is RejectReason.NONCE_USED
    desk.submit(order("dan", nonce=3))
    assert desk.refusal(future("dan", buys=True, nonce=3)) is RejectReason.NONCE_USED
    desk.mine(BidsCancelled(account=key("ada").address, nonce=5, below=True))
    assert desk.refusal(future("ada", buys=False, nonce=4)) is RejectReason.NONCE_USED


def test_a_trader_never_meets_itself(desk: FuturesDesk) -> None:
    desk.order(future("ada", buys=False, at="1.00"))
    meeting = future("ada", buys=True, at="1.00", nonce=1)
    assert desk.refusal(meeting) is RejectReason.SELF_DEALING
    below = future("ada", buys=True, at="0.99", nonce=2)
    desk.order(below)
    assert desk.future(below).state is BidState.PENDING


def test_who_quotes_both_sides_alone_is_not_told_to_meet_itself(desk: FuturesDesk) -> None:
    buy = future("ada", buys=True, at="0.90", nonce=1)
    desk.order(buy, future("ada", buys=False, at="1.00", nonce=2))
    desk.end_batch()
    how = desk.future(buy).explanation
    assert how is not None
    assert how.change == ""
    rejection = desk.future(buy).rejection
    assert rejection is not None
    assert rejection.next == "Wait for an order of the other side."


def test_the_position_limit_counts_contracts_and_orders_of_overlapping_windows(
    desk: FuturesDesk,
) -> None:
    """Six machines, half of them: three a side."""
    desk.trade(
        future("bob", buys=True, units=2, start_by=NOW_S + 3_599),
        future("ada", buys=False, units=2),
    )
    hours = Series(product=1, window_start=SERIES.window_start, window_seconds=3_600)
    desk.order(future("bob", buys=True, nonce=1, of=hours))
    assert desk.refusal(future("bob", buys=True, nonce=2, of=hours)) is RejectReason.WRONG_COUNT
    week_start = SERIES.window_start // (7 * DAY_S) * 7 * DAY_S
    week = Series(product=1, window_start=week_start + 7 * DAY_S, window_seconds=7 * DAY_S)
    other = future("bob", buys=True, nonce=3, of=week, units=3, at="0.10")
    desk.order(other)
    assert desk.future(other).state is BidState.PENDING
    short = future("bob", buys=False, nonce=4, units=3, at="2.00")
    desk.order(short)
    assert desk.future(short).state is BidState.PENDING


def test_an_account_without_money_for_the_margin_leaves_the_batch_to_others(
    desk: FuturesDesk,
) -> None:
    rich, poor = future("dan", buys=True, at="1.10"), future("bob", buys=True, at="1.20")
    sell = future("ada", buys=False, at="1.00")
    desk.order(rich, poor, sell)
    desk.mine(
        CashChanged(account=key("bob").address, amount=TokenAmount(999 * TOKEN), increase=False)
    )
    assert pairs(desk.end_batch()) == [(rich.payload.id, sell.payload.id, 1)]
    rejection = desk.future(poor).rejection
    assert rejection is not None
    assert rejection.reason is RejectReason.CASH_TOO_LOW


def test_cash_of_openings_on_their_way_is_not_spent_twice(desk: FuturesDesk) -> None:
    """Three machines for a day at 50 an hour: margins of 540 and 900, of 1,000 each."""
    next_day = Series(product=1, window_start=SERIES.window_start + DAY_S, window_seconds=DAY_S)
    second = future("bob", buys=True, at=50, units=3, nonce=1, of=next_day)
    buy, sell = future("bob", buys=True, at=50, units=3), future("ada", buys=False, at=50, units=3)
    desk.order(buy, sell)
    (call,) = openings(desk.end_batch())
    assert desk.refusal(second) is RejectReason.CASH_TOO_LOW
    desk.mine(TransactionFailed(call=call, error="x"))
    again = future("bob", buys=True, at=50, units=3, nonce=2, of=next_day)
    desk.order(again)
    assert desk.future(again).state is BidState.PENDING


def test_what_the_chain_skips_waits_again_and_what_it_skips_five_times_is_refused(
    desk: FuturesDesk,
) -> None:
    buy, sell = future("bob", buys=True), future("ada", buys=False)
    desk.order(buy, sell)
    why = Rejection(reason=RejectReason.CASH_TOO_LOW, field="bid.buyer")
    for attempt in range(1, 6):
        (call,) = openings(desk.end_batch())
        assert desk.future(buy).state is BidState.MATCHED
        desk.mine(EntrySkipped(call=call, position=0, rejection=why))
        expected = BidState.REJECTED if attempt == 5 else BidState.PENDING
        assert desk.future(buy).state is desk.future(sell).state is expected
        assert desk.future(buy).rejection == why
    assert not desk.market._floor.futures.locking()


def test_a_reverted_call_and_a_silent_chain_give_everything_back(desk: FuturesDesk) -> None:
    buy, sell = future("bob", buys=True), future("ada", buys=False)
    desk.order(buy, sell)
    (call,) = openings(desk.end_batch())
    desk.mine(TransactionFailed(call=call, error="Futures_TooLate"))
    report = desk.future(buy)
    assert report.state is BidState.PENDING
    assert report.rejection is not None
    assert "Futures_TooLate" in report.rejection.found
    assert openings(desk.end_batch())
    desk.pass_time(30_000)
    desk.mine()
    desk.pass_time(30_000)
    assert desk.future(sell).state is BidState.PENDING


def test_orders_end_with_their_time_and_with_the_series(desk: FuturesDesk) -> None:
    soon = Series(product=1, window_start=NOW_S // DAY_S * DAY_S + 2 * DAY_S, window_seconds=DAY_S)
    left_s = soon.deadline(FUTURES_RULES.futures) - NOW_S
    brief = future("bob", buys=True, start_by=NOW_S + 100)
    late = future("dan", buys=True, of=soon, start_by=NOW_S + DAY_S)
    desk.order(brief, late)
    desk.pass_time(102_000)
    assert desk.future(brief).state is BidState.EXPIRED
    assert desk.future(late).state is BidState.PENDING
    desk.pass_time((left_s - 100) * 1000)
    assert desk.future(late).state is BidState.EXPIRED


def test_a_withdrawn_order_is_gone_unless_it_is_on_its_way(desk: FuturesDesk) -> None:
    buy, sell = future("bob", buys=True), future("ada", buys=False)
    desk.order(buy, sell)
    desk.tell(BidWithdrawn(bid=sell.payload.id, inbox=9))
    assert desk.future(sell).state is BidState.CANCELLED
    again = future("ada", buys=False, nonce=1)
    desk.order(again)
    (call,) = openings(desk.end_batch())
    desk.tell(BidWithdrawn(bid=buy.payload.id, inbox=10))
    assert desk.future(buy).state is BidState.MATCHED
    desk.mine(TransactionFailed(call=call, error="x"))
    assert desk.future(buy).state is BidState.CANCELLED
    assert desk.future(again).state is BidState.PENDING


def test_a_voided_nonce_ends_an_order(desk: FuturesDesk) -> None:
    buy = future("bob", buys=True)
    desk.order(buy)
    desk.mine(BidsCancelled(account=key("bob").address, nonce=0, below=False))
    assert desk.future(buy).state is BidState.CANCELLED


def test_a_nonce_on_its_way_into_a_contract_opens_no_lease(desk: FuturesDesk) -> None:
    desk.order(future("bob", buys=True), future("ada", buys=False))
    (call,) = openings(desk.end_batch())
    wanted = order("bob", nonce=0)
    desk.hear(advert("ada"))
    desk.submit(wanted)
    desk.end_round()
    assert desk.report(wanted).state is BidState.PENDING
    desk.mine(desk.opened(call.pairs[0], call.price))
    assert desk.report(wanted).state is BidState.CANCELLED


def test_depth_is_of_the_last_batch_and_the_last_price_of_the_chain(desk: FuturesDesk) -> None:
    desk.order(future("bob", buys=True, at="0.90", units=2), future("dan", buys=True, at="0.80"))
    desk.end_batch()
    shown = desk.series()
    assert shown.buys == (Level(price=price("0.90"), units=2), Level(price=price("0.80"), units=1))
    assert (shown.sells, shown.last) == ((), None)
    desk.order(future("ada", buys=False, at="0.90"))
    assert desk.series() == shown, "nothing of a batch that is open"
    (call,) = openings(desk.end_batch())
    desk.mine(desk.opened(call.pairs[0], call.price))
    desk.end_batch()
    last = LastTrade(price=price("0.90"), units=1, at=desk.now // 1000)
    assert desk.series().last is not None
    assert desk.series().last.price == last.price  # type: ignore[union-attr]
    left, below = (Level(price=price(each), units=1) for each in ("0.90", "0.80"))
    assert desk.series().buys == (left, below)


def test_a_reorganisation_puts_an_opening_back_on_its_way(desk: FuturesDesk) -> None:
    buy, sell = future("bob", buys=True), future("ada", buys=False)
    desk.order(buy, sell)
    (call,) = openings(desk.end_batch())
    before = desk.block
    opened = desk.opened(call.pairs[0], call.price)
    desk.mine(opened)
    desk.tell(ChainReorganised(block=before))
    assert desk.future(buy).state is BidState.MATCHED
    assert desk.contract(1).contract.state == "undone"
    desk.block = before
    desk.mine(opened)
    assert desk.future(sell).state is BidState.OPENED
    assert desk.contract(1).contract.state == "open"


def test_the_same_log_gives_the_same_state(desk: FuturesDesk) -> None:
    desk.trade(future("bob", buys=True), future("ada", buys=False))
    desk.order(future("dan", buys=True, at="0.50"), future("eve", buys=False, at="0.70"))
    desk.end_batch()
    again = Matchmaker(FUTURES_RULES)
    effects = [effect for event, now in desk.log for effect in again.handle(event, now)]
    assert effects == desk.effects
    assert again.state_hash() == desk.market.state_hash()
    assert again.restated() == desk.market.restated()
