"""`cloud-gpu watch`: one line an event, until as many came as were asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.protocol.news import Cleared, Cut, News, Topic
from cloud_gpu.settings import Settings
from tests.unit.cli.worlds import Captured, PretendWorld, called

EVENTS: list[News | Cut] = [
    Cut(reason="events 2 to 3 are not kept any more"),
    News(number=4, topic=Topic.ROUND, body=Cleared(lane="on-demand", number=7)),
    News(number=5, topic=Topic.ROUND, body=Cleared(lane="block", number=8)),
]


class PretendClient:
    """Notes what it was asked for."""

    asked: tuple[Any, ...] = ()

    @asynccontextmanager
    async def watch(self, *topics: Topic, **wanted: Any) -> AsyncIterator[Any]:
        self.asked = topics, wanted

        async def events() -> AsyncIterator[News | Cut]:
            for event in EVENTS:
                yield event

        yield events()


class World(PretendWorld):
    def __init__(self) -> None:
        super().__init__()
        self.client = PretendClient()

    def ask(self, settings: Settings, work: Any, say: Any, within_s: Any) -> Any:
        assert within_s is None, "it ends when its user wants"
        return asyncio.run(work(self.client))


def test_each_event_is_a_line_and_a_gap_is_told(capsys: Captured) -> None:
    world = World()
    arguments = "watch", "--topic", "round", "--after", "1", "--count", "2", "--json"
    assert called(world, *arguments) == ExitCode.DONE
    said = capsys.readouterr()
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert [(row["kind"], row["number"], row["topic"]) for row in rows] == [
        ("event", 4, "round"),
        ("event", 5, "round"),
    ]
    assert rows[0]["body"] == {"lane": "on-demand", "number": 7}
    assert "not kept any more" in said.err
    assert world.client.asked == ((Topic.ROUND,), {"product": None, "own": False, "after": 1})


def test_it_ends_at_the_count_and_reads_well(capsys: Captured) -> None:
    assert called(World(), "watch", "--count", "1") == ExitCode.DONE
    said = capsys.readouterr().out
    assert said.split() == ["4", "round", "lane=on-demand", "number=7"]


def test_bids_of_others_are_nobodys_to_watch(capsys: Captured) -> None:
    assert called(World(), "watch", "--topic", "bid") == ExitCode.USAGE
    assert "--own" in capsys.readouterr().err
