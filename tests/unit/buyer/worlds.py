"""Tests in a pretend marketplace whose time is virtual."""

import functools
from collections.abc import Awaitable, Callable
from inspect import Parameter, Signature
from typing import Any

import trio
from trio.testing import MockClock

from cloud_gpu.client import Client
from cloud_gpu.leased import Lease
from cloud_gpu.testing import Said, World, pretend_world
from cloud_gpu.testing.world import BUYER
from tests.unit.buyer.builders import request

COMMANDS = {
    "echo hi": Said(stdout="hi\n"),
    "make": Said(stdout="made\n", files={"out/a.txt": b"A", "out/b/c.bin": b"\x00\x01"}),
    "false": Said(stderr="no\n", code=1),
    "sleep 100": Said(takes_s=100),
    "sleep 5": Said(takes_s=5),
}


def in_world(**words: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Run a test in a pretend world whose time is virtual.

    `threads_s` is what worker threads are waited for before time jumps, where files are read.
    """

    patience = words.pop("threads_s", 0.0)
    commands = words.pop("commands", COMMANDS)

    def wrapped(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        async def main(fixtures: dict[str, Any]) -> None:
            async with pretend_world(commands, **words) as world:
                await test(world, **fixtures)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            trio.run(main, fixtures, clock=MockClock(autojump_threshold=patience))

        del run.__wrapped__  # pytest looks for fixtures there
        fixtures = test.__annotations__.keys() - {"return", "world"}
        run.__signature__ = _signature(fixtures)  # type: ignore[attr-defined]
        return run

    return wrapped


def _signature(names: set[str]) -> Any:
    return Signature([Parameter(name, Parameter.KEYWORD_ONLY) for name in sorted(names)])


shown: list[tuple[str, bytes]] = []
said: list[str] = []


async def opened(
    world: World, client: Client | None = None, within_s: float | None = None, **words: Any
) -> Lease:
    shown.clear()
    said.clear()
    return await (client or world.client()).open(
        request(**words),
        echo=lambda *what: shown.append(what),
        progress=said.append,
        within_s=within_s,
    )


def cash(world: World) -> int:
    return world.chain.chain.book.accounts[BUYER.address].cash


def conserved(world: World) -> bool:
    book = world.chain.chain.book
    return book.owed == book.deposited
