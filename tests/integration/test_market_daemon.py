"""The market's daemon on a real chain and overlay: matches, and what kill -9 cannot take."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest
import trio

from cloud_gpu.protocol.adapters.evm_views import machine as machine_view
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import BidFlags, Cancellation, SignedBid
from cloud_gpu.protocol.signing import sign, state
from cloud_gpu.protocol.topics import ASKS_PROTOCOL
from tests.support.anvil import deployed_on, running_anvil
from tests.support.market_daemon import (
    MarketDaemon,
    market_command,
    market_config,
    order_of,
    provider_peer,
    start_market,
)
from tests.support.trading import PRICE, Trading, trading_on

MACHINES = 3


@pytest.fixture
def trading() -> Iterator[Trading]:
    with running_anvil() as anvil:
        found = trading_on(deployed_on(anvil), MACHINES)
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield found


@pytest.fixture
def config(trading: Trading, tmp_path: Path) -> Path:
    return market_config(trading, tmp_path / "market")


@pytest.fixture
def market(config: Path) -> Iterator[MarketDaemon]:
    found = start_market(config)
    yield found
    if found.process.poll() is None:
        found.kill()


def is_funded(trading: Trading, index: int = 0) -> bool:
    deployed = trading.deployed
    key = MachineKey(provider=trading.provider.address, index=index)
    return machine_view(deployed.anvil.rpc, deployed.deployment, key).status is MachineStatus.FUNDED


async def test_a_gossiped_ask_and_a_posted_bid_become_a_funded_lease(
    trading: Trading, market: MarketDaemon
) -> None:
    order = order_of(trading, 0)
    async with provider_peer(trading, market) as peer:
        advert = peer.advert()
        await peer.announce(advert)
        assert await market.asks(1) == [advert]
        assert market.place(order).status_code == 201
        report = await market.report_in(order.bid.payload.id, BidState.OPENED)
        assert (report.price, report.adverts) == (PRICE, (advert,))
        assert report.leases == (trading.lease(),)
        assert is_funded(trading)
        await market.asks(0)
    leases = market.get("/v1/leases?state=funded").json()
    assert [lease["bid"] for lease in leases] == [str(order.bid.payload.id)]
    health = market.get("/healthz")
    assert (health.status_code, health.json()["rounds"]) == (200, 1)
    audit = market_command("replay", "--json", "--verify", market.url)
    assert audit.returncode == 0, audit.stderr
    assert (json.loads(audit.stdout)["rounds"], json.loads(audit.stdout)["matches"]) == (1, 1)
    assert market.end() == 0


async def test_a_gang_opens_whole_in_one_transaction(
    trading: Trading, market: MarketDaemon
) -> None:
    domain, plain = trading.deployed.deployment.domain, order_of(trading, 0)
    flags = int(BidFlags.PAY_AS_ASK)
    too_many, all_three = (
        msgspec.structs.replace(plain.bid.payload, count=count, flags=flags) for count in (4, 3)
    )
    async with provider_peer(trading, market) as peer:
        for index in range(MACHINES):
            await peer.announce(peer.advert(index))
        await market.asks(MACHINES)
        for bid in (too_many, all_three):
            signed = SignedBid(bid=sign(bid, domain, trading.buyer), terms=plain.terms)
            assert market.place(signed).status_code == 201
        report = await market.report_in(all_three.id, BidState.OPENED)
        assert sorted(lease.index for lease in report.leases) == [0, 1, 2]
        assert all(is_funded(trading, index) for index in range(MACHINES))
        await market.report_in(too_many.id, BidState.CANCELLED)
    leases = market.get("/v1/leases?state=funded").json()
    assert [lease["bid"] for lease in leases] == [str(all_three.id)] * MACHINES


async def test_asks_that_a_peer_held_before_are_fetched_from_it(
    trading: Trading, market: MarketDaemon
) -> None:
    async with provider_peer(trading, market) as peer:
        adverts = [peer.advert(index) for index in range(MACHINES)]

        async def listed(_peer: str, _payload: bytes) -> bytes:
            return b"[" + b",".join(map(to_json, adverts)) + b',{"junk":1}]'

        peer.overlay.serve(ASKS_PROTOCOL, listed)
        # The market may have asked before this peer could answer: it asks each connection once.
        await peer.overlay.disconnect(market.addresses[0].rpartition("/")[2])
        found = await market.asks(MACHINES)
        assert {each.body.ask.payload.index for each in found} == {0, 1, 2}
        answer = await peer.overlay.request(market.addresses, ASKS_PROTOCOL, b"list")
        assert len(json.loads(answer)) == MACHINES


async def test_a_bid_nothing_satisfies_says_why_and_can_be_withdrawn(
    trading: Trading, market: MarketDaemon
) -> None:
    cheap = order_of(trading, 0, limit=1_000_000)
    bid = cheap.bid.payload.id
    async with provider_peer(trading, market) as peer:
        await peer.announce(peer.advert())
        await market.asks(1)
        market.place(cheap)
        report = await market.explained(bid)
    assert report.rejection is not None
    assert (report.state, report.rejection.reason) == (BidState.PENDING, RejectReason.NO_MATCH)
    assert report.rejection.needed == "3.60"
    domain = trading.deployed.deployment.domain
    wish = state(Cancellation(bid=bid), domain, trading.buyer, nonce=1, expiry=2**32)
    assert market.post(f"/v1/bids/{bid}/cancellation", to_json(wish)).status_code == 202
    await market.report_in(bid, BidState.CANCELLED)


async def test_nothing_acknowledged_is_lost_when_the_market_is_killed(
    trading: Trading, market: MarketDaemon, config: Path
) -> None:
    orders = [order_of(trading, nonce, limit=1_000_000) for nonce in range(100)]
    acknowledged = acknowledged_until_killed(market, orders, after=40)
    assert 40 <= len(acknowledged) < len(orders)

    again = start_market(config)
    try:
        for order in orders:
            bid = order.bid.payload.id
            if bid in acknowledged:
                assert again.report(bid).state is BidState.PENDING
                answer = again.place(order)
                assert answer.status_code == 200
                # Of the same order, place and time; what it was signed together with may differ.
                assert answer.json()["body"] == json.loads(acknowledged[bid])["body"]
            else:
                assert again.place(order).status_code in (200, 201)
        positions = {again.place(order).json()["body"]["inbox"] for order in orders}
        assert positions == set(range(1, len(orders) + 1))

        better = order_of(trading, 100)
        async with provider_peer(trading, again) as peer:
            await peer.announce(peer.advert())
            again.place(better)
            await again.report_in(better.bid.payload.id, BidState.OPENED)
        assert again.end() == 0
    finally:
        if again.process.poll() is None:
            again.kill()
    replays = [market_command("replay", "--json", "--config", str(config)) for _ in range(2)]
    assert [replay.returncode for replay in replays] == [0, 0]
    assert replays[0].stdout == replays[1].stdout
    *matches, end = map(json.loads, replays[0].stdout.splitlines())
    assert [match["bid"] for match in matches] == [str(better.bid.payload.id)]
    assert end["matches"] == 1


def acknowledged_until_killed(
    market: MarketDaemon, orders: list[SignedBid], after: int
) -> dict[object, bytes]:
    """Receipts by bid; kills the market in the middle of posting."""
    receipts: dict[object, bytes] = {}

    def place(order: SignedBid) -> None:
        answer = market.place(order)
        if answer.status_code == 201:
            receipts[order.bid.payload.id] = answer.content
            if len(receipts) == after:
                market.process.kill()

    with ThreadPoolExecutor(4) as pool:
        futures: list[Future[None]] = [pool.submit(place, order) for order in orders]
    failures = [future.exception() for future in futures if future.exception() is not None]
    assert all(isinstance(failure, httpx.HTTPError) for failure in failures), failures
    market.process.wait(timeout=60)
    return receipts


async def test_an_opening_on_its_way_survives_a_kill(
    trading: Trading, market: MarketDaemon, config: Path
) -> None:
    anvil, order = trading.deployed.anvil, order_of(trading, 0)
    async with provider_peer(trading, market) as peer:
        await peer.announce(peer.advert())
        await market.asks(1)
        anvil.rpc.call("evm_setIntervalMining", 0)
        anvil.automine(False)
        market.place(order)
        await market.report_in(order.bid.payload.id, BidState.MATCHED)
    market.kill()
    anvil.rpc.call("evm_setIntervalMining", 1)
    again = start_market(config)
    try:
        report = await again.report_in(order.bid.payload.id, BidState.OPENED)
        assert report.leases == (trading.lease(),)
        assert is_funded(trading)
    finally:
        again.kill()


async def test_a_market_whose_last_blocks_were_replaced_while_it_was_away_takes_them_back(
    trading: Trading, market: MarketDaemon, config: Path
) -> None:
    anvil, order = trading.deployed.anvil, order_of(trading, 0)
    async with provider_peer(trading, market) as peer:
        await peer.announce(peer.advert())
        market.place(order)
        await market.report_in(order.bid.payload.id, BidState.OPENED)
    market.kill()
    anvil.rpc.call("evm_setIntervalMining", 0)
    opened_in = 0
    while is_funded(trading):  # until the block that opened the lease is gone
        opened_in += 1
        anvil.reorganise(opened_in)
    anvil.rpc.call("evm_setIntervalMining", 1)
    again = start_market(config)
    try:
        # The outbox sends the opening again, and it is mined again.
        report = await again.report_in(order.bid.payload.id, BidState.OPENED, within_s=40)
        with trio.fail_after(30):
            while not is_funded(trading):  # noqa: ASYNC110  another process's doing
                await trio.sleep(0.1)
        assert report.leases == (trading.lease(),)
    finally:
        again.kill()


async def test_anybody_replays_a_real_run_from_the_database_alone(
    trading: Trading, market: MarketDaemon, config: Path, tmp_path: Path
) -> None:
    order = order_of(trading, 0)
    async with provider_peer(trading, market) as peer:
        await peer.announce(peer.advert())
        market.place(order)
        await market.report_in(order.bid.payload.id, BidState.OPENED)
    beside = market_command("replay", "--config", str(config))
    assert (beside.returncode, b"the same, byte for byte" in beside.stdout) == (0, True), beside
    assert market.end() == 0

    copy = tmp_path / "copy.sqlite3"
    shutil.copy(config.parent / "data" / "market.sqlite3", copy)
    elsewhere = "--database", f"sqlite:///{copy}"
    lines = market_command("replay", "--json", *elsewhere).stdout.splitlines()
    match, end = map(json.loads, lines)
    assert match["bid"] == str(order.bid.payload.id)
    assert (end["orders"], end["matches"], end["reports"]) == (2, 1, 2)
    assert end["rounds"] == match["round"], "the bid may have come a round before the ask"
    shown = market_command("replay", *elsewhere)
    assert (shown.returncode, end["head"].encode() in shown.stdout) == (0, True), shown

    with sqlite3.connect(copy) as raw:
        raw.execute("UPDATE journal SET event = event || ' ' WHERE position = 3")
    changed = market_command("replay", *elsewhere)
    assert (changed.returncode, changed.stdout) == (8, b"")
    assert changed.stderr.startswith(b"round 1, journal.head: journal entry 3 does not follow")
    absent = market_command("replay", "--database", f"sqlite:///{tmp_path / 'absent'}")
    assert (absent.returncode, b"there is no file" in absent.stderr) == (3, True)


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"surplus": 1}, 3, "surplus is no setting of a market; there are account_orders_burst, "),
        ({"database": "sqlite:////nowhere/x.sqlite3"}, 8, "/nowhere/x.sqlite3 cannot be locked"),
        ({"rpc": "http://127.0.0.1:9"}, 8, "http://127.0.0.1:9"),
    ],
    ids=["unknown setting", "no database", "no chain"],
)
def test_a_market_that_cannot_start_says_why_in_one_line(
    trading: Trading, tmp_path: Path, changes: dict[str, object], code: int, said: str
) -> None:
    config = market_config(trading, tmp_path / "market", **changes)
    done = market_command("run", "--config", str(config))
    last = done.stderr.decode().strip().splitlines()[-1]
    assert (done.returncode, said in last) == (code, True), done.stderr.decode()


async def test_the_book_is_shown_to_people_and_programs(
    trading: Trading, market: MarketDaemon, config: Path
) -> None:
    order = order_of(trading, 0, limit=1_000_000)
    async with provider_peer(trading, market) as peer:
        await peer.announce(peer.advert())
        await market.asks(1)
        market.place(order)
        await market.explained(order.bid.payload.id)
    shown = market_command("book", "--config", str(config)).stdout.decode()
    assert "3.60" in shown
    assert "A100-SXM4-80GB" in shown
    found = json.loads(market_command("book", "--json", "--config", str(config)).stdout)
    assert [entry["report"]["state"] for entry in found["waiting"]] == ["pending"]
    assert len(found["asks"]) == 1
