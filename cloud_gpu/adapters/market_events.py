"""A market's event stream, read for as long as somebody listens, over as many connections."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import anyio
import httpx
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from httpx_sse import EventSource, ServerSentEvent, SSEError

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import CloudGpuError, MarketUnavailable
from cloud_gpu.protocol.news import BODIES, Cut, Interest, News, Topic

PATH: Final = "/v1/events"
_CONNECT_S: Final = 10.0
_SILENCE_S: Final = 60.0
"""A stream's heart beats every 15 s."""
_RECONNECT_S, _RECONNECT_S_MAX, _RECONNECTIONS_MAX = 0.2, 10.0, 6


class Events:
    """An async iterator. Raises `Rejected`, `MarketUnavailable`."""

    def __init__(self, received: MemoryObjectReceiveStream[News | Cut]) -> None:
        self._received = received
        self.failure: CloudGpuError | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> News | Cut:
        try:
            return await self._received.receive()
        except anyio.EndOfStream:
            raise self.failure or StopAsyncIteration from None


class EventFeed:
    """One wish to hear, at one market."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        interest: Interest,
        after: int | None,
        failure: Callable[[httpx.Response], Exception],
    ) -> None:
        """`failure` says what an answer that is no stream means."""
        self._http, self._interest, self._after = http, interest, after
        self._failure = failure

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Events]:
        """Events, as long as this is open.

        Read in a task of its own: only a cancelled task ends every layer of a response in order.
        """
        sending, received = anyio.create_memory_object_stream[News | Cut](0)
        events, failure = Events(received), None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, sending, events)
            try:
                with received:
                    yield events
            except Exception as error:  # raised again outside, where no group wraps it
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _listen(self, sending: MemoryObjectSendStream[News | Cut], events: Events) -> None:
        failures = 0
        with sending:
            while events.failure is None:
                before = self._after
                try:
                    await self._hear(sending, events)
                    failures = 0
                except (httpx.TransportError, SSEError) as error:
                    failures = failures + 1 if self._after == before else 1
                    if failures > _RECONNECTIONS_MAX:
                        events.failure = MarketUnavailable(
                            f"the market at {self._http.base_url} does not keep up its stream of"
                            f" events: {str(error) or type(error).__name__}. Check that it runs"
                        )
                if events.failure is None:
                    await anyio.sleep(min(_RECONNECT_S * 2**failures, _RECONNECT_S_MAX))

    async def _hear(self, sending: MemoryObjectSendStream[News | Cut], events: Events) -> None:
        """One connection, to its end."""
        headers = _headers(self._interest)
        if self._after is not None:
            headers["last-event-id"] = str(self._after)
        timeout = httpx.Timeout(_CONNECT_S, read=_SILENCE_S)
        asked = self._http.stream(
            "GET", PATH, params=_query(self._interest), headers=headers, timeout=timeout
        )
        async with asked as answer:
            if not answer.is_success:
                await answer.aread()
                found = self._failure(answer)
                if not isinstance(found, CloudGpuError):
                    raise found
                events.failure = found
                return
            async for event in EventSource(answer).aiter_sse():
                if event.event == "cut" or events.failure is not None:
                    continue  # the end is near
                try:
                    told = _read(event)
                except ValueError as error:
                    events.failure = MarketUnavailable(
                        f"the market at {self._http.base_url} sent an event that cannot be read:"
                        f" {error}. Another version of it may be running"
                    )
                    return
                if isinstance(told, News):
                    self._after = told.number
                await sending.send(told)


def _query(interest: Interest) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = [("topic", topic.value) for topic in interest.topics]
    found += [] if interest.product is None else [("product", interest.product)]
    return found + ([] if interest.account is None else [("account", str(interest.account))])


def _headers(interest: Interest) -> dict[str, str]:
    found = {"accept": "text/event-stream"}
    if interest.wish is not None:
        signed = urlsafe_b64encode(to_json(interest.wish)).decode()
        found["authorization"] = f"CloudGpu {signed}"
    return found


def _read(event: ServerSentEvent) -> News | Cut:
    if event.event == "gap":
        return from_json(event.data, Cut)
    topic = Topic(event.event)
    body: Any = from_json(event.data, BODIES[topic])
    return News(number=int(event.id), topic=topic, body=body)
