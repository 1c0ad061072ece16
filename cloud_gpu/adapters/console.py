"""What a session shows: a job's output as it comes, and words for the person who waits.

A reader that is gone (a closed terminal, `| head`) never stops the lease: the rest goes nowhere.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable
from typing import TextIO


def say_on_stderr(text: str) -> None:
    """A line on stderr."""
    _show(sys.stderr, f"cloud-gpu: {text}\n")


def text_decoder() -> codecs.IncrementalDecoder:
    """A character may come in two pieces."""
    return codecs.getincrementaldecoder("utf-8")(errors="replace")


class Console:
    """Shows what a job prints, and tells the person who waits."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._decoders = {name: text_decoder() for name in ("stdout", "stderr")}

    def echo(self, stream: str, chunk: bytes) -> None:
        """Output of a job, to the stream of the same name."""
        target = sys.stdout if stream == "stdout" else sys.stderr
        _show(target, self._decoders[stream].decode(chunk))

    def progress(self, text: str) -> None:
        """Tell the person who waits."""
        self._say(text)


def _show(target: TextIO, text: str) -> None:
    try:
        target.write(text)
        target.flush()
    except OSError:
        # What was buffered would fail again at the exit: from now on all of it goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target.fileno())
        os.close(nowhere)
