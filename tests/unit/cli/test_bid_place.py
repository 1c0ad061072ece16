"""A bid is told and remembered once the market has it, and where that is not known."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cloud_gpu.bidding import WordUnclear
from cloud_gpu.cli import verdicts
from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.protocol.errors import (
    CloudGpuError,
    MarketUnavailable,
    Rejected,
    Rejection,
    RejectReason,
)
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.values import Digest
from cloud_gpu.settings import Settings
from tests.unit.cli.test_bid_body import order
from tests.unit.cli.worlds import Captured, PretendWorld, called

REFUSED = Rejected(Rejection(reason=RejectReason.RATE_LIMITED, field="bid", found="a", next="b"))
PLACE = ("bid", "place", "--gpu", "A100", "--yes", "--json")


class PretendClient:
    """Signs two bids; what becomes of each is what the test says."""

    def __init__(self, *answers: CloudGpuError | None) -> None:
        self.answers = list(answers)
        self.states = [BidState.PENDING, BidState.MATCHED]
        """Of both bids, one look after the other; the last one stays."""
        self.why: Rejection | None = None
        self.orders = (order(1), order(2))

    async def sign(self, request: Any, progress: Any) -> tuple[SignedBid, ...]:
        return self.orders

    async def submit(self, order: SignedBid) -> None:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer

    async def report(self, bid: Digest) -> BidReport:
        if bid == self.orders[0].bid.payload.id and len(self.states) > 1:
            self.states.pop(0)
        return BidReport(bid=bid, state=self.states[0], rejection=self.why)


class World(PretendWorld):
    def __init__(self, *answers: CloudGpuError | None) -> None:
        super().__init__()
        self.client = PretendClient(*answers)
        self.noted: list[str] = []
        self.other_markets = ""

    def settings(self, flags: Mapping[str, str | None]) -> Settings:
        return replace(super().settings(flags), other_markets=self.other_markets)

    def ask(self, settings: Settings, work: Any, say: Any, within_s: Any) -> Any:
        return asyncio.run(work(self.client))

    def remember(self, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
        assert kind == "bids"
        self.noted += [row["bid"] for row in rows]

    @property
    def ids(self) -> list[str]:
        return [str(order.bid.payload.id) for order in self.client.orders]


def test_bids_that_the_market_has_are_told_and_remembered(capsys: Captured) -> None:
    world = World(None, None)
    assert called(world, *PLACE) == ExitCode.DONE
    said = capsys.readouterr()
    assert [row["bid"] for row in json.loads(said.out)["items"]] == world.ids
    assert all(f"bid {bid}\n" in said.err for bid in world.ids)
    assert world.noted == world.ids


def test_a_wish_that_has_too_many_ways_is_the_users_to_narrow(capsys: Captured) -> None:
    world = World()

    async def sign(request: Any, progress: Any) -> tuple[SignedBid, ...]:
        raise WordUnclear("min_count", "found 21 counts and products that will do")

    world.client.sign = sign  # type: ignore[method-assign]
    assert called(world, *PLACE) == ExitCode.USAGE
    told = json.loads(capsys.readouterr().out)
    assert told["found"].startswith("min_count: found 21 counts")
    assert told["reason"] == "usage"


def test_a_bid_that_is_refused_is_not_told(capsys: Captured) -> None:
    world = World(REFUSED)
    assert called(world, *PLACE) == ExitCode.REJECTED
    said = capsys.readouterr()
    assert not any(bid in said.out + said.err for bid in world.ids)
    assert world.noted == []


def test_what_was_accepted_before_a_refusal_is_told_and_remembered(capsys: Captured) -> None:
    world = World(None, REFUSED)
    assert called(world, *PLACE) == ExitCode.REJECTED
    said = capsys.readouterr().err
    assert world.ids[0] in said
    assert world.ids[1] not in said
    assert world.noted == world.ids[:1]


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize("failure", [REFUSED, MarketUnavailable("no answer")])
def test_bids_of_one_market_stand_whatever_another_does(
    failed: int, failure: CloudGpuError, capsys: Captured
) -> None:
    world = World(*(failure if place == failed else None for place in (0, 1)))
    world.client.orders = (order(1), order(1, elsewhere=True))
    assert called(world, *PLACE) == ExitCode.DONE
    said = capsys.readouterr()
    assert "one market less has a bid: " in said.err
    standing = list(world.ids)
    if failure is REFUSED:
        del standing[failed]
    assert world.noted == standing
    assert [row["bid"] for row in json.loads(said.out)["items"]] == standing


def test_a_market_that_falls_silent_hides_no_other_ones_word(capsys: Captured) -> None:
    world = World(None, None)
    heard = world.client.report

    async def report(bid: Digest) -> BidReport:
        if bid == world.client.orders[1].bid.payload.id:
            raise MarketUnavailable("no answer")
        return await heard(bid)

    world.client.report = report  # type: ignore[method-assign]
    assert called(world, *PLACE) == ExitCode.DONE
    assert "Matched; " in capsys.readouterr().err


def test_a_bid_whose_answer_was_lost_is_told_as_such_and_remembered(capsys: Captured) -> None:
    world = World(MarketUnavailable("no answer"))
    assert called(world, *PLACE) == ExitCode.UNAVAILABLE
    said = capsys.readouterr().err
    assert f"cloud-gpu bid show {world.ids[0]}" in said
    assert world.ids[1] not in said
    assert world.noted == world.ids[:1]


def test_a_market_that_takes_a_bid_in_and_refuses_it_later_is_waited_for(capsys: Captured) -> None:
    world = World(None, None)
    world.client.states = [BidState.PENDING, BidState.PENDING, BidState.REJECTED]
    world.client.why = None
    assert called(world, *PLACE) == ExitCode.REJECTED
    told = json.loads(capsys.readouterr().out)
    assert told["found"] == "rejected"
    assert told["next"].startswith("cloud-gpu bid show 0x")
    assert world.noted == world.ids


def test_a_bid_that_nothing_met_in_its_only_round_ends_as_no_match(capsys: Captured) -> None:
    world = World(None, None)
    world.client.states = [BidState.EXPIRED]
    world.client.why = Rejection(reason=RejectReason.NO_MATCH, field="max_price", next="Pay more.")
    assert called(world, *PLACE) == ExitCode.NO_MATCH
    assert json.loads(capsys.readouterr().out)["next"] == "Pay more."


def test_nobody_waits_for_a_word_longer_than_it_may_take(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "VERDICT_S", 0.1)
    world = World(None, None)
    world.client.states = [BidState.PENDING]
    assert called(world, *PLACE) == ExitCode.DONE
    assert "no round has looked at it yet" in capsys.readouterr().err


@pytest.mark.parametrize("silent", [1, 2])
def test_a_list_of_bids_leaves_out_the_word_of_a_market_that_is_down_alone(
    silent: int, capsys: Captured
) -> None:
    world = World()
    world.other_markets = "http://127.0.0.1:2"
    heard = world.client.report

    async def report(bid: Digest) -> BidReport:
        if str(bid) in world.ids[:silent]:
            raise MarketUnavailable("no answer")
        return await heard(bid)

    def remembered(kind: str) -> list[dict[str, Any]]:
        row = {"market": "http://127.0.0.1:1", "count": 1, "gpu_classes": "A100"}
        return [{**row, "bid": bid} for bid in world.ids]

    world.client.report = report  # type: ignore[method-assign]
    world.remembered = remembered  # type: ignore[method-assign]
    code = called(world, "bid", "ls", "--json")
    assert code == (ExitCode.DONE if silent == 1 else ExitCode.UNAVAILABLE)
    told = json.loads(capsys.readouterr().out)
    if silent == 1:
        assert [row["state"] for row in told["items"]] == [
            BidState.PENDING,
            "not told: its market does not answer",
        ]


def test_a_table_of_bids_has_room_for_one_that_nobody_tells_of(capsys: Captured) -> None:
    world = World()
    world.other_markets = "http://127.0.0.1:2"
    row = {"market": "http://127.0.0.1:1", "count": 1, "gpu_classes": "A100"}
    told = iter([None, MarketUnavailable("no answer")])
    heard = world.client.report

    async def report(bid: Digest) -> BidReport:
        if (failure := next(told)) is not None:
            raise failure
        return await heard(bid)

    world.client.report = report  # type: ignore[method-assign]
    world.remembered = lambda kind: [{**row, "bid": bid} for bid in world.ids]  # type: ignore[method-assign]
    assert called(world, "bid", "ls") == ExitCode.DONE
    assert "not told" in capsys.readouterr().out


def test_what_opened_is_named_with_its_lease(capsys: Captured) -> None:
    world = World(None, None)
    lease = LeaseKey.parse("0x" + "11" * 20 + "/3/1")

    async def report(bid: Digest) -> BidReport:
        won = str(bid) == world.ids[1]
        state = BidState.OPENED if won else BidState.CANCELLED
        return BidReport(bid=bid, state=state, leases=(lease,) if won else ())

    world.client.report = report  # type: ignore[method-assign]
    assert called(world, *PLACE[:-1]) == ExitCode.DONE
    told = capsys.readouterr().err
    assert f"Opened: {lease.short}." in told
    assert f"cloud-gpu bid show {world.ids[1][:12]}" in told, "not its alternative that ended"
