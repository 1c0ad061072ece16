"""`cloud-gpu repeat`: run other leases' jobs word for word, elsewhere, as standard input asks.

How a verifier has drawn segments re-executed: ordinary leases of its audit account that some
providers may not get, several at once and one after the other by one process. Hidden, since a
person would use `run`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.output import Format, Output

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def repeat(run: Invocation) -> int:
    """Run the jobs that standard input asks for, one JSON object a line, and say what they gave.

    One line is answered for each, on standard output, in the order in which they end. At the end
    of the input what still runs is finished, as long as somebody reads the answers.
    """
    from cloud_gpu.cli.repeating import Repeating  # and with it trio

    settings = run.settings()
    # Unbuffered: a thread that waits for the next line must not hold a lock when the process ends.
    with open(0, "rb", buffering=0, closefd=False) as lines:
        repeating = Repeating(
            settings, lines.readline, Output(Format.JSONL, quiet=run.quiet, color=run.color)
        )
        with _signals_told_to(repeating.end) as ended_by:
            run.outside.ask(settings, repeating.serve, run.say.progress, within_s=None)
    return 128 + ended_by[0] if ended_by else 0


@contextmanager
def _signals_told_to(end: Callable[[], bool]) -> Iterator[list[int]]:
    """Inside, an ending signal calls `end`; what was in its place, where that returns False.

    KeyboardInterrupt would stop the chain and the overlay together with the leases that have to be
    ended through them.
    """
    told: list[int] = []
    before: dict[int, Any] = {}

    def heard(number: int, frame: FrameType | None) -> None:
        if end():
            told.append(number)
        else:
            before[number](number, frame)

    for each in _ENDING:
        if callable(signal.getsignal(each)):
            before[each] = signal.signal(each, heard)
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
