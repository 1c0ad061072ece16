"""`--explain`: which limit keeps how many off, the change that would do, and why a price."""

import asyncio
import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.future_reports import FutureReport
from cloud_gpu.protocol.match import BidReport, BidState, Explanation, Obstruction
from cloud_gpu.protocol.values import Digest
from tests.unit.cli.worlds import Captured, PretendWorld, called

ORDER = Digest(b"\x05" * 32)
LEFT = Explanation(
    asks=7,
    obstructions=(
        Obstruction(field="terms.regions", asks=5, alone=2),
        Obstruction(field="bid.max_price_per_hour", asks=4, alone=1),
    ),
    taken=1,
    change="Raise the price limit to 1.60.",
)
WHY = Rejection(reason=RejectReason.NO_MATCH, field="bid.count", found="2", needed="9")
FILLED = Explanation(asks=1, price="The provider is paid what it asks, 1.20.")


class World(PretendWorld):
    """A market that explained an order so."""

    def __init__(self, how: Explanation | None) -> None:
        super().__init__()
        self.how = how

    def ask(self, settings: Any, work: Any, say: Any, within_s: Any) -> Any:
        async def report(bid: Digest) -> BidReport:
            return BidReport(bid=bid, state=BidState.PENDING, rejection=WHY, explanation=self.how)

        return asyncio.run(work(SimpleNamespace(report=report)))

    def trader(self, settings: Any, within_s: float) -> Any:
        def report(order: Digest) -> FutureReport:
            return FutureReport(
                order=order, state=BidState.PENDING, rejection=WHY, explanation=self.how
            )

        return nullcontext(SimpleNamespace(market=SimpleNamespace(report=report)))


@pytest.mark.parametrize(
    ("noun", "others"), [("bid", "asks"), ("future", "orders of the other side")]
)
def test_what_keeps_an_order_off_is_a_table_and_a_change(
    noun: str, others: str, capsys: Captured
) -> None:
    assert called(World(LEFT), noun, "show", str(ORDER), "--explain") == ExitCode.DONE
    told = capsys.readouterr()
    lines = [line.split() for line in told.out.splitlines() if line.strip()]
    assert f"of 7 {others}" in told.out
    assert ["terms.regions", "5", "2"] in lines
    assert ["went", "to", "those", "before", "it", "1"] in lines
    assert "Raise the price limit to 1.60." in told.err


@pytest.mark.parametrize("noun", ["bid", "future"])
def test_why_a_price_is_a_sentence_and_json_has_all_of_it(noun: str, capsys: Captured) -> None:
    assert called(World(FILLED), noun, "show", str(ORDER), "--explain", "--json") == ExitCode.DONE
    told = capsys.readouterr()
    assert json.loads(told.out)["explanation"]["price"] == FILLED.price
    assert FILLED.price in told.err


@pytest.mark.parametrize("noun", ["bid", "future"])
def test_where_no_single_change_would_do_the_whole_reason_is_told(
    noun: str, capsys: Captured
) -> None:
    assert called(World(replace(LEFT, change="")), noun, "show", str(ORDER), "--explain") == 0
    assert str(WHY) in capsys.readouterr().err


@pytest.mark.parametrize("noun", ["bid", "future"])
def test_what_was_not_explained_yet_is_said(noun: str, capsys: Captured) -> None:
    assert called(World(None), noun, "show", str(ORDER), "--explain") == ExitCode.DONE
    told = capsys.readouterr()
    assert "pending" in told.out
    assert "explained this" in told.err
    assert called(World(LEFT), noun, "show", str(ORDER)) == ExitCode.DONE
    assert "terms.regions" not in capsys.readouterr().out
