"""Block auctions as a person sees them: their prices, and why a bid got nothing."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.protocol.auctions import (
    AuctionClass,
    AuctionFill,
    AuctionLoss,
    AuctionReport,
    LossReason,
)
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.units import Price, TokenAmount
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from tests.unit.cli.worlds import Captured, PretendWorld, called

WINDOW = 1_800_000_000
WON, LOST = Digest(b"\x01" * 32), Digest(b"\x02" * 32)
REPORT = AuctionReport(
    window=WINDOW,
    block_s=3_600,
    seed=ZERO_DIGEST,
    bids=2,
    asks=3,
    surplus=TokenAmount(500_000),
    classes=(
        AuctionClass(
            product=1,
            gpu_class=GpuClass("A100-SXM4-80GB"),
            regions=("DE/EU", "FR/EU"),
            price=Price(1_200_000),
            fills=(AuctionFill(bid=WON, asks=(ZERO_DIGEST,), price=Price(1_200_000)),),
        ),
        AuctionClass(
            product=1,
            gpu_class=GpuClass("A100-SXM4-80GB"),
            regions=("US",),
            price=None,
            fills=(),
        ),
    ),
    losses=(AuctionLoss(bid=LOST, why=LossReason.PARADOXICAL),),
)


class World(PretendWorld):
    def __init__(self, *reports: AuctionReport) -> None:
        super().__init__()
        self.reports = reports
        self.asked: list[int | None] = []

    async def auctions(self, window: int | None = None) -> Sequence[AuctionReport]:
        self.asked.append(window)
        return self.reports

    def ask(self, settings: Any, work: Any, say: Any, within_s: Any) -> Any:
        return asyncio.run(work(self))


def test_auctions_are_listed_with_their_prices_and_losses(capsys: Captured) -> None:
    assert called(World(REPORT), "auction", "ls") == ExitCode.DONE
    shown = capsys.readouterr().out
    for words in ("2027-01-15T08:00Z", "1 paradoxical", "DE/EU, FR/EU: 1.20", "US: its own"):
        assert words in shown
    assert called(World(), "auction", "ls") == ExitCode.DONE
    assert "No block auction has cleared here yet." in capsys.readouterr().err


def test_an_auction_is_shown_bid_by_bid(capsys: Captured) -> None:
    world = World(REPORT)
    assert called(world, "auction", "show", "2027-01-15T08:00Z", "--json") == ExitCode.DONE
    told = json.loads(capsys.readouterr().out)
    assert world.asked == [WINDOW]
    assert called(world, "auction", "show", "--json") == ExitCode.DONE
    assert json.loads(capsys.readouterr().out) == told
    assert called(World(), "auction", "show") == ExitCode.NO_SUCH_THING
    assert [(row["bid"], row["why"]) for row in told["bids"]] == [
        (str(WON), ""),
        (str(LOST), "paradoxical"),
    ]
    assert called(world, "auction", "show", str(LOST)) == ExitCode.USAGE
    assert "WINDOW" in capsys.readouterr().err
