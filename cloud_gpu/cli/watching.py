"""`cloud-gpu watch`: what happens at the market, as it does."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cloud_gpu.cli.failures import UsageWrong
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.client import Client
from cloud_gpu.protocol.codec import to_builtins
from cloud_gpu.protocol.news import Cut, News, Topic


def watch(
    run: Invocation,
    topic: Annotated[
        list[Topic] | None, typer.Option("--topic", help="Of these alone; may be repeated.")
    ] = None,
    product: Annotated[
        int | None, typer.Option("--product", min=1, help="Of this product alone.")
    ] = None,
    own: Annotated[
        bool, typer.Option("--own", help="Of this wallet alone, how its bids fare among it.")
    ] = False,
    after: Annotated[
        int, typer.Option("--after", min=0, help="Go on behind this number; 0: from now on.")
    ] = 0,
    count: Annotated[int, typer.Option("--count", min=0, help="End after so many; 0: never.")] = 0,
) -> None:
    """Print the market's book, trades, rounds, leases and futures as they change, until Ctrl-C."""
    if topic is not None and Topic.BID in topic and not own:
        raise UsageWrong("--topic bid needs --own: a market tells of bids to their buyer alone")

    async def follow(client: Client) -> None:
        told = 0
        stream = client.watch(*(topic or ()), product=product, own=own, after=after)
        async with stream as events:
            async for event in events:
                _tell(run, event)
                told += isinstance(event, News)
                if told == count:
                    return

    run.outside.ask(run.settings(), follow, run.say.progress, run.wait)


def _tell(run: Invocation, event: News | Cut) -> None:
    if isinstance(event, Cut):
        run.say.progress(event.reason)
        return
    body = to_builtins(event.body)
    row = {"number": event.number, "topic": event.topic.value, "body": body}
    run.say.result("event", row, lambda: f"{event.number:>8}  {event.topic:8}  {_words(body)}")


def _words(body: dict[str, Any]) -> str:
    """What it says, without what it leaves open; deeper values as they are."""
    return "  ".join(f"{name}={found}" for name, found in body.items() if found not in (None, ""))
