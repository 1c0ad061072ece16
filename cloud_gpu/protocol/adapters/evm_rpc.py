"""JSON-RPC to an EVM node, blocking: one HTTP client, calls alone or in one batch.

Callers on a trio loop cross to a worker thread. An error that the node answers is an `RpcError`;
no answer, or one that is no JSON-RPC, is `ChainUnavailable`. Source: execution-apis.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self, TypeAlias
from urllib.parse import urlsplit

import httpx
import msgspec

from cloud_gpu.protocol.errors import ChainUnavailable, OutsideWorldError, SettingsInvalid

Request: TypeAlias = tuple[str, Sequence[Any]]

_HEADERS = {"content-type": "application/json"}

_BATCH_MAX = 100
"""Public nodes refuse longer batches."""


class RpcError(OutsideWorldError):
    """The node answered with an error; `data` holds what a reverted call returned."""

    def __init__(self, method: str, code: int, message: str, data: bytes | None) -> None:
        super().__init__(f"{method}: {message} (code {code})")
        self.method, self.code, self.message, self.data = method, code, message, data

    def says(self, *phrases: str) -> bool:
        """Whether the node's message holds one of these phrases; nodes agree on no codes."""
        lowered = self.message.lower()
        return any(phrase in lowered for phrase in phrases)


class Rpc:
    """One node. Safe to use from several threads."""

    def __init__(self, url: str, *, timeout_s: float = 10.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsInvalid(
                f"rpc: found {url!r}, needed the http(s) address of an EVM node, for example"
                " http://127.0.0.1:8545"
            )
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """Where the node is, without the path and the password that may hold a secret."""
        self._url = url
        self._client = httpx.Client(
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
            trust_env=not _is_loopback(parts.hostname),  # a proxy cannot reach our own devnet
            verify=parts.scheme != "http",  # or certificates are read for nothing, in 50 ms
        )
        self._encode = msgspec.json.Encoder().encode
        self._lock = threading.Lock()
        self._asking, self._is_closed = 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connections; those of calls under way, as soon as the last of these ends."""
        with self._lock:
            self._is_closed = True
        self._close_unused()

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Keeps the client open. Closed under a call, it would leak what that is connecting."""
        with self._lock:
            if self._is_closed:
                raise ChainUnavailable(f"the connection to {self.shown} was closed")
            self._asking += 1
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
            self._close_unused()

    def _close_unused(self) -> None:
        with self._lock:
            is_unused = self._is_closed and not self._asking
        if is_unused:
            self._client.close()

    def call(self, method: str, *params: Any) -> Any:
        """One call's result. Raises ChainUnavailable, RpcError."""
        answer = self._post({"jsonrpc": "2.0", "id": 0, "method": method, "params": params})
        if not isinstance(answer, dict):
            raise ChainUnavailable(f"{self.shown} answered {method} with no JSON-RPC object")
        return _result(method, answer, raising=True)

    def batch(self, requests: Sequence[Request]) -> list[Any]:
        """Results in order; a call's own error stands in its place as an `RpcError`."""
        results: list[Any] = []
        for start in range(0, len(requests), _BATCH_MAX):
            results += self._batch(requests[start : start + _BATCH_MAX])
        return results

    def all(self, requests: Sequence[Request]) -> list[Any]:
        """Like `batch`, but raises the first call's error."""
        results = self.batch(requests)
        for result in results:
            if isinstance(result, RpcError):
                raise result
        return results

    def _batch(self, requests: Sequence[Request]) -> list[Any]:
        answers = self._post(
            [
                {"jsonrpc": "2.0", "id": place, "method": method, "params": params}
                for place, (method, params) in enumerate(requests)
            ]
        )
        if not isinstance(answers, list) or not all(isinstance(a, dict) for a in answers):
            raise ChainUnavailable(f"{self.shown} does not answer batches of JSON-RPC calls")
        by_place = {answer.get("id"): answer for answer in answers}
        if set(by_place) != set(range(len(requests))):
            raise ChainUnavailable(
                f"{self.shown} answered {len(by_place)} of {len(requests)} calls"
            )
        return [
            _result(method, by_place[place], raising=False)
            for place, (method, _) in enumerate(requests)
        ]

    def _post(self, body: object) -> Any:
        try:
            with self._open():
                response = self._sent(self._encode(body))
        except httpx.HTTPError as error:
            raise ChainUnavailable(
                f"no answer from the EVM node at {self.shown}"
                f" ({type(error).__name__}: {error}). Is it running, and is `rpc` its address?"
            ) from error
        if response.status_code != 200:
            raise ChainUnavailable(
                f"the EVM node at {self.shown} answered HTTP {response.status_code}"
            )
        try:
            return msgspec.json.decode(response.content)
        except msgspec.DecodeError as error:
            raise ChainUnavailable(f"{self.shown} answered no JSON: is it an EVM node?") from error

    def _sent(self, body: bytes) -> httpx.Response:
        try:
            return self._client.post(self._url, content=body, headers=_HEADERS)
        except httpx.RemoteProtocolError:
            # The node closed a connection that had been idle, just as we used it. Once more: even
            # a transaction may be sent twice.
            return self._client.post(self._url, content=body, headers=_HEADERS)


def _result(method: str, answer: dict[str, Any], *, raising: bool) -> Any:
    error = answer.get("error")
    if error is None:
        return answer.get("result")
    if not isinstance(error, dict):
        error = {"message": str(error)}
    found = error.get("data")
    if isinstance(found, dict):  # some nodes wrap the returned bytes once more
        found = found.get("data")
    try:
        data = bytes.fromhex(found[2:]) if isinstance(found, str) else None
    except ValueError:
        data = None
    failure = RpcError(method, int(error.get("code", 0)), str(error.get("message", "")), data)
    if raising:
        raise failure
    return failure


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def quantity(value: int) -> str:
    """An integer as JSON-RPC writes it."""
    return hex(value)


def whole(found: Any) -> int:
    """An integer as JSON-RPC writes it, read. Raises ChainUnavailable when it is none."""
    if isinstance(found, str):
        try:
            return int(found, 16)
        except ValueError:
            pass
    raise ChainUnavailable(f"the EVM node answered {found!r} where a number belongs"[:200])


def octets(found: Any) -> bytes:
    """Bytes as JSON-RPC writes them, read. Raises ChainUnavailable when they are none."""
    if isinstance(found, str) and found.startswith("0x"):
        try:
            return bytes.fromhex(found[2:])
        except ValueError:
            pass
    raise ChainUnavailable(f"the EVM node answered {found!r} where bytes belong"[:200])
