"""Published auctions of random markets: whoever reads them clears them again, beside lane A."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_gpu.protocol.calls import OpenBatch, OpenGang, pairs_of
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import MarketEffect, Transact
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import BidWithdrawn
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.rounds import Lane, PublishedRound
from tests.property import test_market_lane_a as lane_a
from tests.property import test_market_lane_b as lane_b
from tests.property.test_market_published import History
from tests.support.published import audited, journal_of, published
from tests.unit.market.builders import Desk, joined, opened, product, provider, skip
from tests.unit.market.test_block_auctions import BLOCKS, WINDOW_S


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Some auctions, with rounds of lane A between them; the two lanes' bids share nonces."""
    desk = Desk(BLOCKS)
    desk.mine(product(2))
    for name in lane_b.PROVIDERS:
        desk.mine(*provider(name, lane_b.MACHINES, products=(1, 2)))
    desk.mine(*joined("bob", 9), *joined("dan", 30), *joined("sue", 30))
    for _ in range(draw(st.integers(1, 3))):
        desk.hear(*draw(lane_b.adverts()))
        sealed: list[SignedBid] = draw(lane_b.orders())
        desk.submit(*sealed)
        if draw(st.booleans()):
            desk.submit(*draw(lane_a.orders())[:3])
            answer(desk, desk.end_round(), draw)
        if draw(st.booleans()):
            desk.inbox += 1
            desk.tell(BidWithdrawn(bid=sealed[0].bid.payload.id, inbox=desk.inbox))
        desk.mine()
        answer(desk, desk.pass_time(WINDOW_S * 1_000), draw)
    desk.mine()
    desk.pass_time(WINDOW_S * 1_000)
    return History(published(journal_of(desk, BLOCKS)))


def answer(desk: Desk, effects: list[MarketEffect], draw: st.DrawFn) -> None:
    """Openings open, are refused, or are not heard of."""
    calls = [each.call for each in effects if isinstance(each, Transact)]
    for call in calls:
        said = draw(st.sampled_from(("opened", "refused", "silence")))
        if isinstance(call, OpenBatch) and said == "refused":
            skip(desk, RejectReason.STALE_SEQUENCE, "ask.seq")
        elif isinstance(call, OpenBatch | OpenGang) and said == "opened":
            for match in pairs_of(call):
                ask, bid = match.ask.payload, match.bid.payload
                machine = MachineKey(provider=ask.provider, index=ask.index)
                desk.mine(opened(bid, machine, call.price, at_s=desk.now // 1000, gpus=1))


@given(histories())
@settings(max_examples=25)
def test_an_honest_auction_is_cleared_again_by_a_stranger(rounds: History) -> None:
    found, auditor = audited(from_json(to_json(each), PublishedRound) for each in rounds)
    assert found is None, str(found)
    assert auditor.audited.rounds == len(rounds)
    assert any(each.header.body.facts.lane is Lane.BLOCK for each in rounds) or not rounds
