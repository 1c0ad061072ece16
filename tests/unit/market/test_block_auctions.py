"""Block auctions through the matchmaker: sealed till they clear, one price, losers told why."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.auctions import AuctionReport, LossReason
from cloud_gpu.protocol.calls import OpenGang
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import ReportAuction, ReportBid, Transact
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import BidFlags, SignedBid, Terms
from market.matchmaker import Matchmaker
from tests.unit.market.builders import (
    NOW_S,
    RULES,
    SEALED,
    Desk,
    advert,
    batches,
    joined,
    machine,
    opened,
    order,
    price,
    profile,
    provider,
    skip,
)

WINDOW_S = 60
BLOCKS = replace(RULES, block_s=WINDOW_S)


@pytest.fixture
def desk() -> Desk:
    desk = Desk(BLOCKS)
    desk.mine(*provider("ada", 2), *provider("eve", 2), *joined("bob", 100), *joined("dan", 100))
    return desk


def block(
    buyer: str = "bob",
    limit: str = "1.50",
    duration: int = 3_600,
    wanting: Terms = SEALED,
    nonce: int = 0,
    count: int = 1,
    start_by: int = NOW_S + 300,
    flags: int = 0,
) -> SignedBid:
    return order(
        buyer,
        limit=limit,
        duration=duration,
        wanting=wanting,
        nonce=nonce,
        count=count,
        start_by=start_by,
        flags=flags,
    )


def close(desk: Desk) -> AuctionReport:
    """Let the next auction close; a block is mined before, so that the chain is heard."""
    desk.mine()
    effects = desk.pass_time(WINDOW_S * 1_000)
    (told,) = [each.report for each in effects if isinstance(each, ReportAuction)]
    return told


def test_a_block_bid_waits_for_the_close_and_nothing_tells_of_it(desk: Desk) -> None:
    desk.hear(advert("ada"))
    wanted = block()
    effects = desk.submit(wanted) + desk.pass_time(WINDOW_S * 1_000 - 1)
    assert batches(effects) == []
    assert [type(each) for each in effects] == [ReportBid]  # for who knows its id
    assert str(wanted.bid.payload.max_price_per_hour.value) not in str(to_json(effects[0]))
    assert desk.report(wanted).state is BidState.PENDING
    assert desk.report(wanted).rejection is None
    effects = desk.pass_time(1)
    assert len(batches(effects)) == 1
    assert desk.report(wanted).state is BidState.MATCHED


def test_all_pay_one_price_between_the_dearest_ask_and_the_cheapest_limit(desk: Desk) -> None:
    desk.hear(advert("ada", at="1.00"), advert("eve", at="1.20"))
    first, second = block("bob", "1.50"), block("dan", "2.00")
    desk.submit(first, second)
    told = close(desk)
    assert [one.price for one in told.classes] == [price("1.20")]
    (batch,) = batches(desk.effects)
    assert (batch.price, len(batch.matches)) == (price("1.20"), 2)
    report = desk.report(first)
    assert report.price == price("1.20")
    assert report.explanation is not None
    assert "All matches of this product" in report.explanation.price
    assert told.surplus.value == (500_000 + 800_000)
    assert (told.window, told.bids, told.asks) == (NOW_S + WINDOW_S, 2, 2)


def here(buyer: str, limit: str, *regions: str, nonce: int = 0, count: int = 1) -> SignedBid:
    wanting = replace(SEALED, regions=regions)
    return block(buyer, limit, wanting=wanting, nonce=nonce, count=count)


def test_where_no_price_suits_all_each_region_that_bids_tell_apart_has_its_own(desk: Desk) -> None:
    near, far = profile(region="FR/EU"), profile(region="US")
    desk.hear(
        advert("ada", 0, at="1.00", hardware=near),
        advert("ada", 1, at="1.05", hardware=profile(region="DE/EU")),
        advert("eve", at="1.60", hardware=far),
    )
    cheap, dear = here("bob", "1.20", "EU"), here("dan", "1.80", "US")
    third, lost = here("dan", "1.15", "EU", nonce=1), here("dan", "1.10", "EU", nonce=2)
    desk.submit(cheap, dear, third, lost)
    told = close(desk)
    assert [(one.regions, one.price) for one in told.classes] == [
        (("DE/EU", "FR/EU"), price("1.10")),
        (("US",), price("1.60")),
    ]
    assert (desk.report(cheap).price, desk.report(dear).price) == (price("1.10"), price("1.60"))
    how = desk.report(dear).explanation
    assert how is not None
    assert how.price.startswith("All matches of this product in US in auction")


def test_a_gang_in_two_regions_binds_them_to_one_price_or_none(desk: Desk) -> None:
    desk.hear(
        advert("ada", 0, at="1.00"),
        advert("ada", 1, at="1.10"),
        advert("eve", 0, at="1.05", hardware=profile(region="US")),
        advert("eve", 1, at="1.60", hardware=profile(region="US")),
    )
    desk.submit(
        here("bob", "1.20", "EU"),
        here("dan", "1.80", "US"),
        here("dan", "3.00", nonce=1, count=2),
    )
    (one,) = close(desk).classes
    assert (one.regions, one.price, len(one.fills)) == ((), None, 3)


def test_who_is_left_out_raises_the_price_to_its_limit(desk: Desk) -> None:
    desk.hear(advert("ada", at="1.00"))
    won, lost = block("bob", "2.00"), block("dan", "1.50")
    desk.submit(won, lost)
    told = close(desk)
    assert [one.price for one in told.classes] == [price("1.50")]
    assert [(loss.bid, loss.why) for loss in told.losses] == [
        (lost.bid.payload.id, LossReason.PRICE)
    ]
    why = desk.report(lost).rejection
    assert why is not None
    assert (why.reason, why.found) == (RejectReason.NO_MATCH, "1.50")
    assert why.needed == f"above 1.50, paid in auction {NOW_S + WINDOW_S}"
    how = desk.report(lost).explanation
    assert how is not None
    assert (how.asks, how.taken, how.change) == (1, 1, "Raise the price limit to 2.001.")
    assert why.next == "Raise the price limit to 2.001. Or wait for the next auction."


def test_a_lost_bid_waits_for_the_next_auction_until_its_start_window_ends(desk: Desk) -> None:
    wanted = block(start_by=NOW_S + 2 * WINDOW_S + 5)
    desk.submit(wanted)
    assert [loss.why for loss in close(desk).losses] == [LossReason.INFEASIBLE]
    rejection = desk.report(wanted).rejection
    assert rejection is not None
    assert rejection.found == "no free machine of product 1 (A100-SXM4-80GB)"
    desk.hear(advert("ada"))
    assert close(desk).losses == ()
    assert desk.report(wanted).state is BidState.MATCHED

    late = block("dan", start_by=NOW_S + 2 * WINDOW_S + 5)
    desk.submit(late)
    desk.mine()
    desk.pass_time(6_000)
    assert desk.report(late).state is BidState.EXPIRED


def test_a_start_window_keeps_a_bid_out_of_earlier_auctions(desk: Desk) -> None:
    desk.hear(advert("ada"))
    later = block(wanting=replace(SEALED, start_from=NOW_S + 65))
    desk.submit(later)
    desk.mine()
    effects = desk.pass_time(WINDOW_S * 1_000)
    assert not any(isinstance(each, ReportAuction) for each in effects)
    close(desk)
    assert desk.report(later).state is BidState.MATCHED


def test_lane_a_and_lane_b_keep_out_of_each_other(desk: Desk) -> None:
    desk.hear(advert("ada"))
    sealed, open_ = block("bob", "9.00"), order("dan", limit="1.00")
    desk.submit(sealed, open_)
    desk.end_round()
    assert desk.report(open_).state is BidState.MATCHED
    assert [loss.why for loss in close(desk).losses] == [LossReason.INFEASIBLE]


def test_a_failed_opening_frees_the_machine_and_the_bid_comes_again(desk: Desk) -> None:
    desk.hear(advert("ada", at="1.00"), advert("eve", at="1.10"))
    wanted = block()
    desk.submit(wanted)
    close(desk)
    skip(desk, RejectReason.MACHINE_NOT_FREE, "ask.index")
    assert desk.report(wanted).state is BidState.PENDING
    told = close(desk)
    assert [fill.price for one in told.classes for fill in one.fills] == [price("1.10")]
    bid = wanted.bid.payload
    desk.mine(opened(bid, machine("eve"), price("1.10"), at_s=desk.now // 1000))
    assert desk.report(wanted).state is BidState.OPENED


def test_an_alternative_is_passed_over_and_one_that_opened_ends_it(desk: Desk) -> None:
    desk.hear(advert("ada"), advert("eve"))
    hour, ten = block(duration=3_600), block(duration=18_000)
    desk.submit(hour, ten)
    told = close(desk)
    assert [loss.why for loss in told.losses] == [LossReason.ALTERNATIVE]
    assert desk.report(ten).state is BidState.MATCHED
    rejection = desk.report(hour).rejection
    assert rejection is not None
    assert (rejection.field, rejection.found[:25]) == ("bid.nonce", "another bid of its nonce,")
    desk.mine(opened(ten.bid.payload, machine("ada"), price("1.00"), at_s=desk.now // 1000))
    assert desk.report(hour).state is BidState.CANCELLED


def test_what_an_alternative_leaves_goes_to_the_next_also_when_all_was_served_for_the_last_time(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("market.clearing.block.AGAIN_MAX", 1)
    desk.hear(advert("ada"), advert("eve"))
    alternatives = [block(limit="2.00"), block(limit="1.90")]
    cheaper = block("dan", limit="1.10")
    desk.submit(*alternatives, cheaper)
    close(desk)
    assert desk.report(cheaper).state is BidState.MATCHED


def test_cash_must_cover_the_limit(desk: Desk) -> None:
    desk.hear(advert("ada"))
    poor = block(limit="101.00")
    desk.submit(poor)
    assert [loss.why for loss in close(desk).losses] == [LossReason.CASH]
    rejection = desk.report(poor).rejection
    assert rejection is not None
    assert rejection.reason is RejectReason.CASH_TOO_LOW


def test_a_gang_opens_at_one_price_in_one_call(desk: Desk) -> None:
    desk.hear(advert("ada", 0, at="1.00"), advert("ada", 1, at="1.20"))
    gang = block(count=2)
    desk.submit(gang)
    close(desk)
    (call,) = [e.call for e in desk.effects if isinstance(e, Transact)]
    assert isinstance(call, OpenGang)
    assert (call.price, len(call.asks)) == (price("1.20"), 2)


def test_one_round_means_one_auction(desk: Desk) -> None:
    now = block(wanting=replace(SEALED, one_round=True))
    desk.submit(now)
    close(desk)
    assert desk.report(now).state is BidState.EXPIRED


@pytest.mark.parametrize(
    ("duration", "flags", "field"),
    [
        (WINDOW_S + 1, 0, "bid.duration"),
        (WINDOW_S * 337, 0, "bid.duration"),
        (WINDOW_S, int(BidFlags.PAY_AS_ASK), "bid.flags"),
    ],
)
def test_the_door_refuses_what_is_no_block(
    desk: Desk, duration: int, flags: int, field: str
) -> None:
    wrong = block(duration=duration, flags=flags)
    desk.submit(wrong)
    report = desk.report(wrong)
    assert report.state is BidState.REJECTED
    assert report.rejection is not None
    assert report.rejection.field == field


def test_no_auction_while_the_chain_is_silent() -> None:
    desk = Desk(replace(BLOCKS, silence_ms=30_000))
    desk.mine(*provider("ada"), *joined("bob", 100))
    desk.hear(advert("ada"))
    wanted = block()
    desk.submit(wanted)
    effects = desk.pass_time(WINDOW_S * 1_000)
    assert not any(isinstance(each, ReportAuction) for each in effects)
    desk.mine()
    desk.pass_time(WINDOW_S * 1_000 - 1)
    desk.mine()
    assert desk.report(wanted).state is BidState.PENDING
    desk.pass_time(1)
    assert desk.report(wanted).state is BidState.MATCHED


def test_a_replay_gives_the_same_effects_and_state(desk: Desk) -> None:
    desk.hear(advert("ada", at="1.00"), advert("ada", 1, at="1.10"), advert("eve", at="1.20"))
    desk.submit(block("bob", "1.50"), block("dan", "2.00", 18_000), block("dan", "1.30", nonce=1))
    close(desk)
    again = Matchmaker(BLOCKS)
    effects = [each for event, now in desk.log for each in again.handle(event, now)]
    assert [to_json(each) for each in effects] == [to_json(each) for each in desk.effects]
    assert again.state_hash() == desk.market.state_hash()
    told = [each for each in desk.market.restated() if isinstance(each, ReportAuction)]
    assert told == [each for each in desk.effects if isinstance(each, ReportAuction)]


def test_the_state_covers_sealed_bids_and_auctions(desk: Desk) -> None:
    hashes = {desk.market.state_hash()}
    desk.submit(block())
    hashes.add(desk.market.state_hash())
    close(desk)
    hashes.add(desk.market.state_hash())
    assert len(hashes) == 3
    assert desk.market.status().waiting == 1
