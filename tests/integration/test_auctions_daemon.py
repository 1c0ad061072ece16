"""A block auction of the daemon on a real chain: sealed bids become leases at one price."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cloud_gpu.protocol.auctions import AuctionReport, LossReason
from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import SignedBid, Terms
from cloud_gpu.protocol.signing import sign
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import keccak256
from tests.support.anvil import deployed_on, running_anvil
from tests.support.market_daemon import (
    market_command,
    market_config,
    order_of,
    provider_peer,
    start_market,
)
from tests.support.trading import PRICE, Trading, trading_on

MACHINES = 3
CLEARED = Price(PRICE.value + 300_000)
"""What the bid that is left out would have paid."""


@pytest.fixture
def trading() -> Iterator[Trading]:
    with running_anvil() as anvil:
        found = trading_on(deployed_on(anvil), MACHINES)
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield found


def block(trading: Trading, nonce: int, limit: int, count: int = 1) -> SignedBid:
    terms = Terms(block=True, salt=keccak256(b"salt"))
    bid = msgspec.structs.replace(
        order_of(trading, nonce, limit=limit).bid.payload, count=count, terms=terms.digest
    )
    signed = sign(bid, trading.deployed.deployment.domain, trading.buyer)
    return SignedBid(bid=signed, terms=terms)


async def test_sealed_bids_open_at_one_price_and_a_replay_proves_the_auction(
    trading: Trading, tmp_path: Path
) -> None:
    config = market_config(trading, tmp_path / "market", block_window="20s")
    market = start_market(config)
    try:
        single, gang = block(trading, 0, PRICE.value + 400_000), block(trading, 1, 9_000_000, 2)
        left_out = block(trading, 2, CLEARED.value)
        async with provider_peer(trading, market) as peer:
            for index in range(MACHINES):
                await peer.announce(peer.advert(index))
            await market.asks(MACHINES)
            for order in (single, gang, left_out):
                assert market.place(order).status_code == 201
            reports = [
                await market.report_in(order.bid.payload.id, BidState.OPENED, within_s=60)
                for order in (single, gang)
            ]
        assert [report.price for report in reports] == [CLEARED, CLEARED]
        leases = market.get("/v1/leases?state=funded").json()
        cap = CLEARED.value * single.bid.payload.duration // 3_600
        assert [lease["terms"]["cap"] for lease in leases] == [cap] * MACHINES
        told = from_json(market.get("/v1/auctions").content, list[AuctionReport])
        sums = [(len(one.fills), one.price) for each in told for one in each.classes]
        assert sums == [(2, CLEARED)]
        why = {loss.bid: loss.why for each in told for loss in each.losses}
        assert why[left_out.bid.payload.id] in (LossReason.PRICE, LossReason.INFEASIBLE)
        market.kill()
        market = start_market(config)
        assert market.report(gang.bid.payload.id) == reports[1]
        verified = market_command("replay", "--json", "--verify", market.url)
        assert verified.returncode == 0, verified
        assert json.loads(verified.stdout)["matches"] == MACHINES
        replayed = market_command("replay", "--json", "--config", str(config))
        assert replayed.returncode == 0, replayed
        *matches, end = map(json.loads, replayed.stdout.splitlines())
        assert {match["price"] for match in matches} == {CLEARED.value}
        assert end["matches"] == MACHINES
    finally:
        market.kill()
