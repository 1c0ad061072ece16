"""The trio thread: calls from plain threads and from asyncio, their errors and their ends."""

import asyncio
import contextlib
import contextvars
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import trio

from cloud_gpu.adapters.portal import Portal, PortalClosed
from tests.support.person import hear_interrupts

word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="none")


@pytest.fixture
def portal() -> Iterator[Portal]:
    made = Portal()
    yield made
    made.stop()


async def double(number: int, *, by: int = 2) -> int:
    await trio.lowlevel.checkpoint()
    return number * by


async def fail() -> None:
    raise ValueError("as it was raised")


def test_a_call_returns_what_the_work_returns(portal: Portal) -> None:
    assert portal.call(double, 4) == 8
    assert portal.call(double, 4, by=5) == 20


def test_a_call_raises_what_the_work_raises(portal: Portal) -> None:
    with pytest.raises(ValueError, match="as it was raised"):
        portal.call(fail)


def test_an_error_out_of_a_nursery_comes_by_its_own_name(portal: Portal) -> None:
    async def grouped() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)

    with pytest.raises(ValueError, match="as it was raised"):
        portal.call(grouped)


def test_calls_come_from_many_threads_at_once(portal: Portal) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(portal.call(double, n))) for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [2 * n for n in range(20)]


def test_context_goes_along(portal: Portal) -> None:
    async def read() -> str:
        return word.get()

    word.set("mine")
    assert portal.call(read) == "mine"


def test_a_stopped_portal_ends_what_runs_and_starts_again_when_it_is_called() -> None:
    portal = Portal()
    ended: list[type[BaseException]] = []

    def wait() -> None:
        try:
            portal.call(trio.sleep_forever)
        except BaseException as error:
            ended.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    portal.call(double, 1)
    portal.stop()
    thread.join(5)
    assert ended == [PortalClosed]
    assert portal.call(double, 2) == 4
    portal.stop()


def test_asyncio_awaits_it(portal: Portal) -> None:
    async def main() -> list[int]:
        return await asyncio.gather(*(portal.call_from_asyncio(double, n) for n in range(5)))

    assert asyncio.run(main()) == [0, 2, 4, 6, 8]


def test_cancelling_in_asyncio_cancels_in_trio_and_waits_for_its_end(portal: Portal) -> None:
    story: list[str] = []

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.05)
            story.append("trio put things in order")

    async def main() -> None:
        task = asyncio.create_task(portal.call_from_asyncio(work))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        story.append("asyncio went on")

    asyncio.run(main())
    assert story == ["trio put things in order", "asyncio went on"]


def test_errors_reach_asyncio(portal: Portal) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="as it was raised"):
            await portal.call_from_asyncio(fail)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def managed(story: list[str], error: Exception | None = None) -> AsyncIterator[str]:
    if error is not None:
        raise error
    story.append("entered")
    try:
        yield "value"
    finally:
        story.append("left")


def test_a_context_is_held_open_between_calls(portal: Portal) -> None:
    story: list[str] = []
    held = portal.hold(managed(story))
    assert held.enter() == "value"
    assert portal.call(double, 3) == 6
    assert story == ["entered"]
    held.leave()
    assert story == ["entered", "left"]


def test_a_context_that_cannot_be_entered_raises_its_error(portal: Portal) -> None:
    with pytest.raises(ValueError, match="locked"):
        portal.hold(managed([], ValueError("locked"))).enter()


PROGRAM = """
import sys, time, trio
from cloud_gpu.adapters.portal import PORTAL
async def work():
    print("begun", flush=True)
    try:
        await trio.sleep_forever()
    finally:
        print("ended", flush=True)
{end}
"""


def test_ctrl_c_cancels_the_call_and_is_raised_where_it_was_waited() -> None:
    program = PROGRAM.format(
        end="try: PORTAL.call(work)\nexcept KeyboardInterrupt: print('raised', flush=True)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    began = time.monotonic()
    child.send_signal(2)
    out, _ = child.communicate(timeout=20)
    assert out == "ended\nraised\n"
    assert child.returncode == 0
    assert time.monotonic() - began < 15


def test_a_program_that_ends_in_the_middle_ends_quickly_and_cleanly() -> None:
    end = (
        "import threading\n"
        "threading.Thread(target=lambda: PORTAL.call(work), daemon=True).start()\n"
        "time.sleep(0.5)\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end=end)], capture_output=True, text=True, timeout=20
    )
    assert done.stdout == "begun\nended\n"
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 15
