"""A gang's buyers: each takes its own lease of one bid, and only the first talks to the market."""

from __future__ import annotations

import pytest

from cloud_gpu.bidding import make_bids
from cloud_gpu.buyer import Buyer, Phase
from cloud_gpu.protocol import chain_events as chain
from cloud_gpu.protocol.effects import SubmitBid, Tell
from cloud_gpu.protocol.events import LeaseWanted
from cloud_gpu.protocol.lease import LeaseKey, LeaseTerms
from cloud_gpu.protocol.notices import LeaseFunded, LeaseNotOpened
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.testing.world import BUYER
from tests.unit.buyer.builders import (
    MARKET,
    OWN,
    PRODUCT,
    RHYTHM,
    T0,
    Bench,
    purse,
    request,
)

ORDERS = make_bids(
    request(count=6, min_count=4, scope="any"),
    [(PRODUCT, 6), (PRODUCT, 4)],
    MARKET,
    purse(),
    nonce=3,
    at=T0,
)
"""Three machines of two GPUs, or two."""


class Gang(Bench):
    """One member's bench."""

    def __init__(self, member: int) -> None:
        super().__init__()
        self.orders = ORDERS
        self.bid = ORDERS[0].bid.payload.id
        self.buyer = Buyer(purse=purse(), peer=OWN, rhythm=RHYTHM)
        self.give(LeaseWanted(bids=ORDERS, slice_gpus=(2, 2), member=member))


def opened(place: int, order: int = 0) -> chain.LeaseOpened:
    """The chain's word on one lease of a bid; 2 GPUs at the limit for its duration."""
    bid = ORDERS[order].bid.payload
    terms = LeaseTerms(
        key=LeaseKey(provider=Address(bytes([place + 1]) * 20), index=place, seq=1),
        buyer=BUYER.address,
        cap=TokenAmount(bid.max_price_per_hour.value * 2 * bid.duration // 3_600),
        duration=bid.duration,
        start_deadline=T0 + 60,
        market_id=1,
        opened_at=T0,
    )
    return chain.LeaseOpened(terms=terms, bid=bid.id, at=T0, transaction=Digest(bytes(32)))


def funded(bench: Bench) -> list[LeaseFunded]:
    told = [effect.notice for effect in bench.effects if isinstance(effect, Tell)]
    return [notice for notice in told if isinstance(notice, LeaseFunded)]


def phase(bench: Bench) -> Phase:
    return bench.buyer.phase


def test_only_the_first_submits_the_bids() -> None:
    first, second = Gang(0), Gang(1)
    assert [e.order for e in first.effects if isinstance(e, SubmitBid)] == list(ORDERS)
    assert second.effects == []
    assert second.buyer.deadline is not None
    assert second.buyer.deadline > second.now, "it looks again later, not at once"


@pytest.mark.parametrize("member", range(3))
def test_each_takes_the_lease_of_its_place(member: int) -> None:
    bench = Gang(member)
    seen: list[LeaseFunded] = []
    for place in range(3):
        bench.give(opened(place))
        seen += funded(bench)
    (found,) = seen
    assert (found.lease.index, found.gpus) == (member, 2)
    assert found.price == ORDERS[0].bid.payload.max_price_per_hour


def test_whoever_is_not_needed_by_the_smaller_alternative_ends() -> None:
    bench = Gang(2)
    bench.give(opened(0, order=1))
    (told,) = [effect.notice for effect in bench.effects if isinstance(effect, Tell)]
    assert isinstance(told, LeaseNotOpened)
    assert (told.kind, bench.buyer.phase) == ("fewer", Phase.OVER)


def test_a_reorganisation_counts_the_places_anew() -> None:
    bench = Gang(1)
    bench.give(chain.ChainAdvanced(block=200, at=T0))
    bench.give(opened(0), opened(1), chain.ChainAdvanced(block=201, at=T0 + 1))
    assert phase(bench) is Phase.HOLDING
    bench.give(chain.ChainReorganised(block=200))
    assert phase(bench) is Phase.PLACING
    bench.give(opened(5))
    assert phase(bench) is Phase.PLACING
    bench.give(opened(6))
    assert [each.lease.index for each in funded(bench)] == [6]
