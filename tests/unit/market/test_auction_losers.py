"""What the losers of a block auction are told: why, what each limit costs, what would have won."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.auctions import LossReason
from cloud_gpu.protocol.match import BidState
from tests.unit.market.builders import Desk, advert, joined, price
from tests.unit.market.test_block_auctions import block, close, desk, here

__all__ = ["desk"]


def test_every_loser_is_told_what_each_limit_costs_it(desk: Desk) -> None:
    desk.hear(advert("ada", at="1.00"), advert("eve", at="9.00"))
    won, outbid = block("bob", "2.00", 18_000), block("dan", "2.00", nonce=1)
    poor, picky = block("dan", "101.00", nonce=2), here("dan", "1.00", "US", nonce=3)
    desk.submit(won, outbid, poor, picky)
    close(desk)
    told = {}
    for bid in (outbid, poor, picky):
        how = desk.report(bid).explanation
        assert how is not None
        told[bid.bid.payload.nonce] = how
    assert {(each.field, each.asks) for each in told[1].obstructions} == {
        ("bid.max_price_per_hour", 1)
    }
    assert told[1].change == "Raise the price limit to 10.001."
    assert told[2].change.startswith("Deposit ")
    assert {(each.field, each.asks) for each in told[3].obstructions} == {
        ("bid.max_price_per_hour", 1),
        ("terms.regions", 2),
    }
    assert told[3].change == "", "the machine that only its region keeps off is somebody else's"


def test_the_limit_that_a_loser_is_told_would_have_won(desk: Desk) -> None:
    desk.hear(advert("ada", at="1.00"))
    desk.submit(block("bob", "1.20", 18_000), block("dan", "6.001", 3_600))
    told = close(desk)
    assert [loss.why for loss in told.losses] == [LossReason.PRICE]
    assert len(told.classes[0].fills) == 1


def test_a_short_block_above_the_price_is_told_that_it_was_rejected_paradoxically(
    desk: Desk,
) -> None:
    desk.hear(advert("ada", at="1.00"))
    long, short = block("bob", "1.20", 18_000), block("dan", "2.00", 3_600)
    desk.submit(long, short)
    told = close(desk)
    assert desk.report(long).state is BidState.MATCHED
    assert desk.report(long).price == price("1.20")
    assert told.count(LossReason.PARADOXICAL) == 1
    report = desk.report(short)
    assert report.state is BidState.PENDING
    assert report.rejection is not None
    assert f"paradoxically rejected in auction {told.window}" in report.rejection.found
    assert report.rejection.next.endswith("Or wait for the next auction.")
    how = report.explanation
    assert how is not None
    assert how.change == "Raise the price limit to 6.001."


@pytest.mark.parametrize(
    ("limit", "duration"),
    [("200000000", 60), ("281474976.71", 3_600)],
    ids=["a short block", "the highest limit"],
)
def test_who_could_outbid_by_no_limit_is_told_of_none(
    desk: Desk, limit: str, duration: int
) -> None:
    desk.mine(*joined("bob", 10**9))
    desk.hear(advert("ada", at="1.00"))
    won, lost = block("bob", limit), block("dan", "2.00", duration)
    desk.submit(won, lost)
    close(desk)
    assert desk.report(won).state is BidState.MATCHED
    how = desk.report(lost).explanation
    assert how is not None
    assert how.change == ""


def test_a_limit_that_others_of_the_same_buyer_leave_no_cash_for_says_what_is_missing(
    desk: Desk,
) -> None:
    desk.hear(advert("ada"), advert("eve"))
    first, second = block(limit="60.00"), block(limit="50.00", nonce=1)
    desk.submit(first, second)
    assert [loss.why for loss in close(desk).losses] == [LossReason.CASH]
    rejection = desk.report(second).rejection
    assert rejection is not None
    assert rejection.found == "40.00 tokens free in the vault"
    assert rejection.next.startswith("Deposit 10.00 tokens")


def test_of_many_blocks_that_nothing_fits_none_is_told_that_its_limit_is_too_low(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("market.lanes.block_auctions.EXPLAINED_BIDS_MAX", 1)
    desk.hear(advert("ada"))
    picky = [here("bob", "1.50", "US", nonce=nonce) for nonce in range(3)]
    desk.submit(*picky)
    close(desk)
    fields = []
    for each in picky:
        rejection = desk.report(each).rejection
        assert rejection is not None
        fields.append(rejection.field)
    assert sorted(fields) == ["bid.product", "bid.product", "terms.regions"]
