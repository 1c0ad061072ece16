"""What a round tells: the nearest change, what each limit costs, and why a match has its price."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.match import BidState, Obstruction
from cloud_gpu.protocol.orders import BidFlags, Scope, Terms
from cloud_gpu.protocol.units import TokenAmount
from market.clearing.explaining import explain, explain_match, short_of_cash
from tests.unit.market.builders import (
    NOW_S,
    Desk,
    advert,
    joined,
    machine,
    order,
    price,
    profile,
    provider,
    resting_ask,
    resting_bid,
)
from tests.unit.market.test_fitting import PLAIN, conditions


def test_the_nearest_change_is_the_one_with_the_fewest_and_smallest_steps() -> None:
    far = resting_ask(advert("ada", 0, at="1.10", hardware=profile(region="US")))
    near = resting_ask(advert("ada", 1, at="1.60"))
    nearest = resting_ask(advert("ada", 2, at="1.55"))
    wanted = resting_bid(order("bob", limit="1.50", wanting=Terms(regions=("FR",))))
    why, _ = explain(wanted, [far, nearest, near], {}, conditions(far, near, nearest))
    assert (why.reason, why.field) == (RejectReason.NO_MATCH, "bid.max_price_per_hour")
    assert why.next == (
        f"Raise the price limit to 1.55: then {machine('ada', 2)} fits, the nearest of 3 free."
    )


def test_two_changes_for_one_machine_are_said_together() -> None:
    offered = resting_ask(advert(at="1.60", max_duration=1_800))
    why, _ = explain(resting_bid(PLAIN), [offered], {}, conditions(offered))
    assert why.next.startswith(
        "Raise the price limit to 1.60 and change the duration to 30m: then "
    )


def test_a_bid_that_lost_to_others_is_told_above_which_limit_it_would_have_won() -> None:
    offered = resting_ask(advert(at="1.00"))
    why, _ = explain(
        resting_bid(PLAIN), [offered], {offered.machine: price("1.80")}, conditions(offered)
    )
    assert why.needed.startswith("above 1.80")
    assert "Raise the price limit to 1.801" in why.next


def test_nothing_on_offer_is_said_as_such() -> None:
    why, _ = explain(resting_bid(PLAIN), [], {}, conditions())
    assert (why.field, why.needed) == ("bid.product", "one")
    assert "A100-SXM4-80GB" in why.found


def test_an_obstacle_that_no_buyer_can_move_gives_no_false_advice() -> None:
    offered = resting_ask(advert(start_by=NOW_S + 1))
    why, _ = explain(resting_bid(PLAIN), [offered], {}, conditions(offered))
    assert why.next.startswith("Wait for another machine")


def test_a_short_vault_is_told_how_much_is_missing() -> None:
    why = short_of_cash(resting_bid(PLAIN), TokenAmount(1_500_000), 400_000)
    assert why.next.startswith("Deposit 1.10 tokens")


def test_every_limit_is_told_with_how_many_asks_it_costs_and_the_cheapest_single_change() -> None:
    asks = [
        resting_ask(advert("ada", 0, at="1.00", hardware=profile(region="US"))),
        resting_ask(advert("ada", 1, at="1.10", hardware=profile(region="US"))),
        resting_ask(advert("ada", 2, at="1.60")),
        resting_ask(advert("ada", 3, at="1.70", hardware=profile(region="US"))),
        resting_ask(advert("ada", 4, at="1.80", start_by=NOW_S + 1)),
    ]
    wanted = resting_bid(order("bob", limit="1.50", wanting=Terms(regions=("EU",))))
    _, how = explain(wanted, asks, {}, conditions(*asks))
    assert how.asks == 5
    assert how.obstructions == (
        Obstruction(field="terms.regions", asks=3, alone=2),
        Obstruction(field="bid.max_price_per_hour", asks=3, alone=1),
        Obstruction(field="ask.start_by", asks=1, alone=0),
    )
    assert how.change == "Raise the price limit to 1.60."
    assert (how.taken, how.price) == (0, "")


def test_where_no_single_change_would_do_none_is_named() -> None:
    offered = resting_ask(advert(at="1.60", max_duration=1_800))
    _, how = explain(resting_bid(PLAIN), [offered], {}, conditions(offered))
    assert how.change == ""
    late = resting_ask(advert(start_by=NOW_S + 1))
    _, how = explain(resting_bid(PLAIN), [late], {}, conditions(late))
    assert how.change == "", "no buyer can move the ask's end"


def test_two_limits_of_the_terms_are_two_and_neither_is_the_single_change() -> None:
    offered = resting_ask(advert(hardware=profile(region="US")))
    terms = Terms(regions=("EU",), gpu_memory_mib_min=90_000)
    _, how = explain(resting_bid(order(wanting=terms)), [offered], {}, conditions(offered))
    assert how.obstructions == (
        Obstruction(field="terms.gpu_memory_mib_min", asks=1, alone=0),
        Obstruction(field="terms.regions", asks=1, alone=0),
    )
    assert how.change == ""


def test_a_gang_is_told_the_change_that_lets_in_enough_machines() -> None:
    asks = [resting_ask(advert("ada", n, at=f"1.{n}", host=f"node{n}")) for n in (1, 2, 6, 7)]
    gang = resting_bid(order(count=2, limit="1.00", flags=int(BidFlags.PAY_AS_ASK)))
    why, how = explain(gang, asks, {}, conditions(*asks))
    assert how.change == why.next == "Raise the price limit to 1.20."
    taken_at = {asks[1].machine: price("2.00")}
    _, how = explain(gang, asks, taken_at, conditions(*asks))
    assert how.change == "Raise the price limit to 1.60."
    most = resting_bid(order(count=5, limit="1.00", flags=int(BidFlags.PAY_AS_ASK)))
    why, how = explain(most, asks, {}, conditions(*asks))
    assert (how.change, why.next[:5]) == ("", "Wait ")


def test_a_gang_too_far_apart_is_told_how_far_it_must_reach() -> None:
    asks = [
        resting_ask(advert("ada", n, host=f"node{n}", hardware=profile(region=region)))
        for n, region in enumerate(("FR/EU", "FR/EU", "US"))
    ]

    def told(count: int, terms: Terms) -> str:
        gang = order(count=count, wanting=terms, flags=int(BidFlags.PAY_AS_ASK))
        why, how = explain(resting_bid(gang), asks, {}, conditions(*asks))
        assert why.field == "bid.count"
        return how.change

    rest = "bid for 1 GPUs, by one more bid of the same nonce."
    assert told(2, Terms(scope=Scope.FABRIC)) == f"Widen the scope to region, or {rest}"
    assert told(3, Terms(scope=Scope.FABRIC)) == f"Widen the scope to any, or {rest}"
    assert told(4, Terms(scope=Scope.FABRIC)) == f"B{rest[1:]}"
    assert told(2, Terms(scope=Scope.NODE, chunk=2)) == "", "no scope puts two on one node"


def test_a_machine_that_others_took_is_no_single_change() -> None:
    gone = resting_ask(advert("ada", 0, at="1.55"))
    left = resting_ask(advert("ada", 1, at="1.65"))
    taken_at = {gone.machine: price("2.00")}
    _, how = explain(resting_bid(PLAIN), [gone, left], taken_at, conditions(gone, left))
    assert how.change == "Raise the price limit to 1.65."


def test_a_short_vault_is_the_change_where_something_fits() -> None:
    offered = resting_ask(advert())
    short = short_of_cash(resting_bid(PLAIN), TokenAmount(1_500_000), 400_000)
    why, how = explain(resting_bid(PLAIN), [offered], {}, conditions(offered), short)
    assert (why, how.change, how.obstructions) == (short, short.next, ())


def test_a_match_is_told_what_it_passed_by() -> None:
    asks = [
        resting_ask(advert("ada", 0, at="1.00", hardware=profile(region="US"))),
        resting_ask(advert("ada", 1, at="1.10")),
        resting_ask(advert("ada", 2, at="1.20")),
    ]
    wanted = resting_bid(order("bob", limit="1.50", wanting=Terms(regions=("EU",))))
    taken_at = {asks[1].machine: price("2.00"), asks[2].machine: price("1.50")}
    how = explain_match(wanted, asks[2:], asks, taken_at, conditions(*asks))
    assert how.price == (
        "The provider is paid what it asks, 1.20 (the limit was 1.50);"
        " of 2 cheaper machines 1 did not fit and 1 went to bids before it."
    )
    assert how.obstructions == (Obstruction(field="terms.regions", asks=1, alone=1),)
    first = explain_match(wanted, asks[:1], asks, taken_at, conditions(*asks))
    assert first.price == "The provider is paid what it asks, 1.00 (the limit was 1.50)."


def test_every_match_has_a_reason_for_its_price_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("market.lanes.rounds.EXPLAINED_BIDS_MAX", 1)
    desk = Desk()
    desk.mine(*provider("ada", 3), *joined("bob", 100))
    desk.hear(*(advert("ada", n, at=f"1.0{n}") for n in range(3)))
    bids = [order("bob", limit="1.50", nonce=n) for n in range(3)]
    desk.submit(*bids)
    desk.end_round()
    told = [desk.report(bid).explanation for bid in bids]
    assert all(how is not None and how.price.startswith("The provider is paid") for how in told)


def test_who_wants_one_round_is_explained_before_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("market.lanes.rounds.EXPLAINED_BIDS_MAX", 1)
    desk = Desk()
    desk.mine(*provider("ada"), *joined("bob", 100))
    desk.hear(advert("ada", 0, at="2.00"))
    waits = order("bob", limit="1.50")
    now = order("bob", limit="1.40", nonce=1, wanting=Terms(one_round=True))
    desk.submit(waits, now)
    desk.end_round()
    assert desk.report(now).state is BidState.EXPIRED
    how = desk.report(now).explanation
    assert how is not None
    assert how.change == "Raise the price limit to 2.00."


def test_a_round_reports_both() -> None:
    desk = Desk()
    desk.mine(*provider("ada"), *joined("bob", 100))
    desk.hear(advert("ada", 0, at="1.00"))
    won, lost = order("bob", limit="1.50"), order("bob", limit="1.40", nonce=1)
    desk.submit(won, lost)
    desk.end_round()
    matched, waiting = desk.report(won).explanation, desk.report(lost).explanation
    assert matched is not None
    assert matched.price == "The provider is paid what it asks, 1.00 (the limit was 1.50)."
    assert waiting is not None
    assert (waiting.asks, waiting.taken, waiting.change) == (
        1,
        1,
        "Raise the price limit to 1.501.",
    )
