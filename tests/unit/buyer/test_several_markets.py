"""One request at two markets: one nonce, each market its own bid, and a lease from one of them."""

import pytest
import trio

from cloud_gpu.bidding import WordUnclear, ways_for
from cloud_gpu.protocol.errors import (
    MarketUnavailable,
    Rejected,
    Rejection,
    RejectReason,
    SettingsInvalid,
)
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from cloud_gpu.settings import Settings, read_settings
from cloud_gpu.testing import World
from cloud_gpu.testing.world import MATCHER
from tests.unit.buyer.builders import request
from tests.unit.buyer.test_bidding import product
from tests.unit.buyer.worlds import conserved, in_world, opened, said

OTHER = LocalKey(b"\x03" * 32)
TWO = [("A100-SXM4-80GB", 2, "1.20"), ("A100-SXM4-80GB", 2, "0.90")]


@in_world(machines=TWO)
async def test_each_market_has_its_own_bid_and_all_share_a_nonce(world: World) -> None:
    client = world.client(world.other_market(OTHER, world.nodes[1:]))
    orders = await client.sign(request(), lambda _: None)
    assert [order.bid.payload.matcher for order in orders] == [MATCHER.address, OTHER.address]
    assert len({order.bid.payload.nonce for order in orders}) == 1
    quote = await client.quote(request())
    assert [view.ask.matcher for view in quote.fitting] == [OTHER.address, MATCHER.address]


@in_world(machines=TWO)
async def test_what_one_market_publishes_of_a_sealed_bid_does_not_tell_of_the_others(
    world: World,
) -> None:
    client = world.client(world.other_market(OTHER, world.nodes[1:]))
    one, other = await client.sign(request(block=True), lambda _: None)
    assert one.terms.salt != other.terms.salt
    assert ZERO_DIGEST not in (one.terms.salt, other.terms.salt)


@in_world(machines=TWO)
async def test_the_market_that_matches_opens_the_lease_and_no_other_does(world: World) -> None:
    other = world.other_market(OTHER, world.nodes[1:])
    world.market.is_idle = True
    lease = await opened(world, world.client(other))
    assert lease.funded.price.value == 900_000
    assert (await lease.run("echo hi")).code == 0
    assert (await lease.close()).settled
    world.market.is_idle = False
    let = [m for m in world.chain.chain.book.machines.values() if m.lease is not None]
    assert let == []
    assert conserved(world)


@in_world(machines=TWO)
async def test_where_both_match_one_opens(world: World) -> None:
    lease = await opened(world, world.client(world.other_market(OTHER, world.nodes[1:])))
    let = [m for m in world.chain.chain.book.machines.values() if m.lease is not None]
    assert len(let) == 1
    assert (await lease.close()).settled
    assert conserved(world)


@in_world(machines=TWO)
async def test_a_market_that_does_not_answer_is_said_and_holds_nothing_up(world: World) -> None:
    other = world.other_market(OTHER, world.nodes[1:])
    other.is_down = True
    lease = await opened(world, world.client(other))
    assert lease.funded.price.value == 1_200_000
    assert any(line.startswith("one market less to bid at: ") for line in said)
    assert (await lease.close()).settled


@in_world(machines=TWO)
async def test_a_bid_that_some_other_process_placed_is_found_and_cancelled(world: World) -> None:
    other = world.other_market(OTHER, world.nodes[1:])
    other.is_idle = True
    placed = await world.client(other).place(request(), lambda _: None)
    bid = placed[1].bid.payload.id
    client = world.client(other)
    assert (await client.report(bid)).state is BidState.PENDING
    await client.cancel(bid)
    assert (await other.report(bid)).state is BidState.CANCELLED
    with pytest.raises(Rejected, match="unknown"):
        await client.report(Digest(b"\x07" * 32))
    world.market.is_down = True
    with pytest.raises(MarketUnavailable):  # it may be there
        await world.client(other).report(Digest(b"\x07" * 32))


@in_world(machines=TWO)
async def test_no_market_says_that_a_bid_at_another_is_dead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.other_market(OTHER, world.nodes[1:])
    client = world.client(other)
    first, second = await client.place(request(), lambda _: None)
    lie = BidReport(bid=first.bid.payload.id, state=BidState.REJECTED)

    async def lies(bid: Digest) -> BidReport:
        return lie

    monkeypatch.setattr(other, "report", lies)
    assert (await client.report(first.bid.payload.id)).state is BidState.MATCHED
    with pytest.raises(MarketUnavailable, match="told of"):
        await client.report(second.bid.payload.id)


@in_world(machines=TWO)
async def test_no_market_is_handed_what_is_for_one_whose_name_it_takes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.other_market(OTHER, world.nodes[1:])
    client = world.client(other)
    first, second = await client.sign(request(), lambda _: None)
    honest = await world.market.describe()

    async def lies() -> MarketView:
        return honest

    monkeypatch.setattr(other, "describe", lies)
    with pytest.raises(MarketUnavailable, match="none of the markets"):
        await client.submit(second)
    await client.submit(first)


@in_world(machines=TWO)
async def test_a_market_that_refuses_to_tell_anything_holds_nothing_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.other_market(OTHER, world.nodes[1:])
    busy = Rejected(Rejection(reason=RejectReason.RATE_LIMITED, field="market"))

    async def refuses(*_: object) -> None:
        raise busy

    for name in ("describe", "asks"):
        monkeypatch.setattr(other, name, refuses)
        lease = await opened(world, world.client(other))
        assert (await lease.close()).settled
    assert any(line.startswith("one market less to bid at: ") for line in said)


@in_world(machines=TWO)
async def test_a_bid_that_one_market_took_is_placed_whatever_the_other_does(world: World) -> None:
    other = world.other_market(OTHER, world.nodes[1:])
    refusal = Rejection(reason=RejectReason.RATE_LIMITED, field="bid")
    world.market.is_idle, other.refuses = True, refusal
    (bid,) = await world.client(other).place(request(), said.append)
    assert bid.bid.payload.matcher == MATCHER.address
    world.market.refuses = refusal
    with pytest.raises(Rejected):
        await world.client(other).place(request(), said.append)


@in_world(machines=TWO)
async def test_a_market_that_never_ends_its_answer_holds_up_no_bid_at_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.other_market(OTHER, world.nodes[1:])
    other.is_idle, world.market.tells_adverts = True, False
    asked = trio.Event()

    async def hangs(*_: object) -> None:
        asked.set()
        await trio.sleep_forever()

    monkeypatch.setattr(other, "report", hangs)

    async def tell_later() -> None:
        await asked.wait()
        world.market.tells_adverts = True
        for order in list(world.market._bids.values()):
            world.market._match(order)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_later)
        lease = await opened(world, world.client(other))
    assert (await lease.close()).settled


def test_markets_times_ways_are_bounded() -> None:
    wanted = request(count=20, min_count=1, scope="any")
    assert len(ways_for(wanted, [product(1, "A100", gpus=1)])) == 20
    with pytest.raises(WordUnclear, match=r"found 20 .* at each of 2 markets, needed 16 at most"):
        ways_for(wanted, [product(1, "A100", gpus=1)], 2)


def test_more_markets_are_urls_with_spaces_between_them() -> None:
    def read(text: str) -> Settings:
        environment = {"CLOUD_GPU_OTHER_MARKETS": text}
        return read_settings(
            flags={}, environment=environment, project=None, context=lambda _: None, contexts=""
        )

    assert read("http://a:1 https://b").other_markets == "http://a:1 https://b"
    with pytest.raises(SettingsInvalid, match=r"other_markets .*: found 'b', needed a URL"):
        read("http://a:1 b")
