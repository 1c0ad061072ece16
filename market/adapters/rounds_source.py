"""Published rounds from where they lie: a market's API, a folder or a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx

from cloud_gpu.protocol.errors import OutsideWorldError, SettingsInvalid

_TIMEOUT_S = 30.0
_NOT_FOUND = 404


def read_rounds(source: str) -> Iterator[bytes]:
    """`PublishedRound`s as JSON, in order.

    `source`: the URL of an API; a file with a round a line; a folder of such files, in order of
    their names. Raises OutsideWorldError when it cannot be read, SettingsInvalid when it is none.
    """
    if source.startswith(("http://", "https://")):
        yield from _over_http(source.rstrip("/"))
        return
    path = Path(source)
    try:
        if path.is_dir():
            for each in sorted(path.iterdir()):
                yield from _lines(each)
        elif path.is_file():
            yield from _lines(path)
        else:
            raise SettingsInvalid(
                f"source: {source} is neither a URL (http://...) nor a file or folder with"
                " published rounds"
            )
    except OSError as error:
        raise OutsideWorldError(f"source: {source} cannot be read: {error.strerror}") from error


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from (line for line in file if line.strip())


def _over_http(url: str) -> Iterator[bytes]:
    number = 0
    try:
        with httpx.Client(timeout=_TIMEOUT_S) as client:
            while True:
                number += 1
                answer = client.get(f"{url}/v1/rounds/{number}")
                if answer.status_code == _NOT_FOUND:
                    return
                yield answer.raise_for_status().content
    except httpx.HTTPError as error:
        raise OutsideWorldError(f"source: {url} did not give round {number}: {error}") from error
