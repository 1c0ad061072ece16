"""A bid is told and remembered once the market has it, and where that is not known."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.protocol.errors import (
    CloudGpuError,
    MarketUnavailable,
    Rejected,
    Rejection,
    RejectReason,
)
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.settings import Settings
from tests.unit.cli.test_bid_body import order
from tests.unit.cli.worlds import Captured, PretendWorld, called

REFUSED = Rejected(Rejection(reason=RejectReason.RATE_LIMITED, field="bid", found="a", next="b"))
PLACE = ("bid", "place", "--gpu", "A100", "--yes", "--json")


class PretendClient:
    """Signs two bids; what becomes of each is what the test says."""

    def __init__(self, *answers: CloudGpuError | None) -> None:
        self.answers = list(answers)
        self.orders = (order(1), order(2))

    async def sign(self, request: Any, progress: Any) -> tuple[SignedBid, ...]:
        return self.orders

    async def submit(self, order: SignedBid) -> None:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


class World(PretendWorld):
    def __init__(self, *answers: CloudGpuError | None) -> None:
        super().__init__()
        self.client = PretendClient(*answers)
        self.noted: list[str] = []

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


def test_a_bid_whose_answer_was_lost_is_told_as_such_and_remembered(capsys: Captured) -> None:
    world = World(MarketUnavailable("no answer"))
    assert called(world, *PLACE) == ExitCode.UNAVAILABLE
    said = capsys.readouterr().err
    assert f"cloud-gpu bid show {world.ids[0]}" in said
    assert world.ids[1] not in said
    assert world.noted == world.ids[:1]
