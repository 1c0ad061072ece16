"""Ending signals do what Ctrl-C does: what a command holds is put in order before it goes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Ending:
    """Which signal ended a command, if one did."""

    signal: signal.Signals | None = None


@contextmanager
def ended_by_signals() -> Iterator[Ending]:
    """Inside, the first ending signal raises KeyboardInterrupt; after it only Ctrl-C does.

    A signal that this process was started to ignore (nohup) stays ignored. In other threads than
    the main one nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield Ending()
        return
    ending = Ending()

    def end(number: int, _frame: FrameType | None) -> None:
        for each in heard:  # a terminal that closes, or a service manager, may say it twice
            signal.signal(each, signal.SIG_IGN)
        if signal.SIGINT in heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        ending.signal = signal.Signals(number)
        raise KeyboardInterrupt

    heard = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, end) for each in heard}
    try:
        yield ending
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
