"""What strangers can learn of a sealed bid before its auction: that it is there, by its id."""

from __future__ import annotations

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import PublishRound
from cloud_gpu.protocol.orders import Terms
from cloud_gpu.protocol.ties import subject_of_bid
from cloud_gpu.protocol.values import keccak256
from tests.unit.market.builders import Desk, advert, key, order, price
from tests.unit.market.test_block_auctions import WINDOW_S, block, desk

__all__ = ["desk"]


def test_rounds_of_lane_a_that_are_published_meanwhile_do_not_tell_of_it(desk: Desk) -> None:
    desk.hear(advert("ada"), advert("eve"))
    secret = "1.237"
    effects = desk.submit(block("bob", secret), order("dan", limit="1.00"))
    effects += desk.pass_time(WINDOW_S * 1_000 - 1)
    assert any(isinstance(each, PublishRound) for each in effects)
    for each in effects:
        assert str(price(secret).value).encode() not in to_json(each)


def test_nobody_learns_whose_a_sealed_bid_is_by_trying_accounts_and_nonces(desk: Desk) -> None:
    desk.hear(advert("ada"), advert("eve"))
    sealed, plain = block("bob"), order("dan", limit="1.00", nonce=1)
    effects = desk.submit(sealed, plain) + desk.pass_time(WINDOW_S * 1_000 - 1)
    entered = {
        subject
        for each in effects
        if isinstance(each, PublishRound)
        for batch in each.body.batches
        for subject in batch.entered
    }
    assert subject_of_bid(plain.bid.payload, plain.terms) in entered
    assert subject_of_bid(sealed.bid.payload, sealed.terms) in entered
    assert subject_of_bid(sealed.bid.payload, Terms()) not in entered
    bare = keccak256(key("bob").address.raw + bytes(4))
    assert bare == subject_of_bid(sealed.bid.payload, Terms())
