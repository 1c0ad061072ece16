"""What a session shows, to readers who stay and readers who go."""

import os
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest

from cloud_gpu.adapters.console import Console, say_on_stderr


@pytest.fixture
def unread() -> Iterator[TextIO]:
    """A stream whose reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        yield stream


def test_a_character_in_two_pieces_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(say_on_stderr)
    for piece in ("é".encode()[:1], "é".encode()[1:]):
        console.echo("stdout", piece)
    console.progress("and words")
    assert capsys.readouterr() == ("é", "cloud-gpu: and words\n")


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_reader_that_is_gone_is_no_error_now_or_at_the_end(
    name: str, unread: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, name, unread)
    console = Console(say_on_stderr)
    for _ in range(3):
        console.echo(name, b"much\n")
    console.progress("words")
    unread.flush()
