"""How an operator's command reaches the running daemon: a socket in its data folder, mode 0600."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import trio

from cloud_gpu.protocol.errors import OutsideWorldError

_NAME: Final = "control.sock"
_ANSWER_S: Final = 5.0
_BYTES_MAX: Final = 2**20

_LINE_MAX: Final = 256

Answers = Mapping[str, Callable[[str], Any]]
"""A line's first word → what to do about the rest; the answer is anything that JSON can carry."""


async def serve_control(folder: Path, answers: Answers) -> None:
    """Answer commands until cancelled."""
    with _address(folder) as address:
        _unlink(address)
        listener = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        # Before anybody can connect: the folder is its owner's alone, and so is the socket.
        mask = os.umask(0o177)
        try:
            await listener.bind(address)
        finally:
            os.umask(mask)
        listener.listen()
        try:
            await trio.serve_listeners(_answer_with(answers), [trio.SocketListener(listener)])
        finally:
            _unlink(address)


def _unlink(address: str) -> None:
    Path(address).unlink(missing_ok=True)


def _answer_with(answers: Answers) -> Callable[[trio.SocketStream], Awaitable[None]]:
    async def answer(stream: trio.SocketStream) -> None:
        with trio.move_on_after(_ANSWER_S):
            line = (await stream.receive_some(_LINE_MAX)).decode(errors="replace").strip()
            word, _, rest = line.partition(" ")
            act = answers.get(word)
            found = {"error": f"unknown command {word!r}"} if act is None else act(rest)
            try:
                await stream.send_all(json.dumps(found).encode() + b"\n")
            except trio.BrokenResourceError:
                return  # who asked did not wait for the answer
        await stream.aclose()

    return answer


def ask_daemon(folder: Path, words: str) -> Any:
    """Say a line to the daemon of a data folder; its answer. Raises `OutsideWorldError`."""
    try:
        with _address(folder) as address, socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_ANSWER_S)
            line.connect(address)
            line.sendall(words.encode() + b"\n")
            answer = b""
            while len(answer) < _BYTES_MAX and (piece := line.recv(65_536)):
                answer += piece
            return json.loads(answer)
    except (OSError, ValueError) as error:
        raise OutsideWorldError(
            f"no node answers in {folder}: {error}; start it with `cloud-gpu-node run`"
        ) from error


@contextmanager
def _address(folder: Path) -> Iterator[str]:
    """The socket's path by way of the open folder: of its own it may be longer than 108 bytes."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{_NAME}"
    finally:
        os.close(opened)
