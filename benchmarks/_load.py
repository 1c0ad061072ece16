"""One process that sends requests as fast as they are answered, over a few open connections.

Raw HTTP/1.1 on asyncio streams: a client library would take more of the two cores than the
server. Reads a job as JSON lines of files on its command line; prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

_CUT = (ConnectionError, asyncio.IncompleteReadError, OSError)


@dataclass
class Seen:
    """What one run saw."""

    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=list)
    """Status and body of each answer, when asked for."""
    cut: int = 0
    """Requests that a closed connection left without an answer."""


class Load:
    """Bodies that several connections share."""

    def __init__(self, host: str, port: int, path: str, bodies: list[bytes]) -> None:
        self._host, self._port, self._path = host, port, path
        self._bodies, self._next = bodies, 0
        self.seen = Seen()

    async def run(self, connections: int) -> Seen:
        began = time.perf_counter()
        await asyncio.gather(*(self._send() for _ in range(connections)))
        self.seen.seconds = time.perf_counter() - began
        return self.seen

    async def _send(self) -> None:
        """One connection after the other, until no body is left."""
        while self._next < len(self._bodies):
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
            except _CUT:
                await asyncio.sleep(0.05)
                continue
            try:
                await self._talk(reader, writer)
            except _CUT:
                self.seen.cut += 1
            finally:
                writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self._next < len(self._bodies):
            body = self._bodies[self._next]
            self._next += 1
            began = time.perf_counter()
            head = f"POST {self._path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
            writer.write(head.encode() + b"\r\n\r\n" + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in answer.split(b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            content = await reader.readexactly(length)
            self.seen.latencies_ms.append((time.perf_counter() - began) * 1000)
            self.seen.answers.append((int(answer[9:12]), content.decode()))


def main() -> None:
    """Host, port, path, connections, file of bodies (one a line)."""
    host, port, path, connections, file = sys.argv[1:]
    bodies = Path(file).read_bytes().split(b"\n")
    seen = asyncio.run(Load(host, int(port), path, bodies).run(int(connections)))
    print(json.dumps(vars(seen)))


if __name__ == "__main__":
    main()
