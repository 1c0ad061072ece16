"""The trio thread behind the SDK: plain threads and asyncio loops call into it, and can cancel.

libp2p runs on trio only, a user's program on whatever it likes. One thread a process, started at
the first call and stopped when the interpreter ends. Context variables go along with each call.
trio is imported by the first call, too: most commands of a command line never make one.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, Generic, ParamSpec, TypeVar

from cloud_gpu.protocol.errors import OutsideWorldError

if TYPE_CHECKING:
    import trio

P = ParamSpec("P")
T = TypeVar("T")

_START_S: Final = 10.0
_STOP_S: Final = 5.0
_UNWIND_S: Final = 20.0
"""How long a cancelled call may take to put its things in order."""


class PortalClosed(OutsideWorldError):
    """The process is ending, or the trio thread died: no call can be made any more."""


class _Call(Generic[T]):
    """One call on its way through the trio thread."""

    def __init__(self, work: Callable[[], Awaitable[T]]) -> None:
        import trio

        self._work = work
        self._scope = trio.CancelScope()
        self.future: Future[T] = Future()
        self.is_launched = False

    async def run(self) -> None:
        import trio

        try:
            with self._scope:
                self.future.set_result(await self._work())
        except trio.Cancelled:
            self.future.set_exception(PortalClosed("the SDK's thread was stopped"))
            raise
        except BaseException as error:
            self.future.set_exception(_plain(error))
        if not self.future.done():
            self.future.set_exception(CancelledError())

    def cancel(self) -> None:
        """From the trio thread."""
        self._scope.cancel()


class Portal:
    """The way into one trio thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None

    def call(self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in the trio thread and wait. Ctrl-C here cancels it there, then raises."""
        call = _Call(lambda: work(*args, **kwargs))
        try:
            self._launch(call)
            return call.future.result()
        except KeyboardInterrupt:
            if call.is_launched:  # it may run already, though launching did not return
                self._soon(call.cancel)
                # It ends without a word, or is left to the end of the process.
                with contextlib.suppress(CancelledError, TimeoutError):
                    call.future.exception(timeout=_UNWIND_S)
            raise

    async def call_from_asyncio(
        self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` in the trio thread; cancelling the awaiting task cancels it there."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        call = self._begin(work, *args, **kwargs)

        def told(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended.set)

        call.future.add_done_callback(told)
        try:
            await ended.wait()
        except asyncio.CancelledError:
            self._soon(call.cancel)
            await ended.wait()  # what was begun there is put in order first
            raise
        return call.future.result()

    def hold(self, manager: AbstractAsyncContextManager[T]) -> Held[T]:
        """Enter a context manager in the trio thread, to be left by `Held.leave`."""
        return Held(self, manager)

    def stop(self) -> None:
        """Cancel everything and end the thread."""
        thread, nursery = self._thread, self._nursery
        if thread is None or not thread.is_alive() or self._pid != os.getpid():
            return
        if nursery is not None:
            self._soon(nursery.cancel_scope.cancel)
        thread.join(_STOP_S)

    def _begin(
        self, work: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> _Call[T]:
        call = _Call(lambda: work(*args, **kwargs))
        self._launch(call)
        return call

    def _launch(self, call: _Call[T]) -> None:
        self._start()
        context = contextvars.copy_context()
        nursery = self._nursery
        assert nursery is not None

        def spawn() -> None:
            try:
                context.run(nursery.start_soon, call.run)
            except RuntimeError as error:  # the nursery closed in between
                call.future.set_exception(PortalClosed(str(error)))

        call.is_launched = True
        self._soon(spawn)

    def _soon(self, work: Callable[[], object]) -> None:
        import trio

        assert self._token is not None
        try:
            self._token.run_sync_soon(work)
        except trio.RunFinishedError as error:
            raise PortalClosed("the SDK's thread has ended; start the program again") from error

    def _start(self) -> None:
        with self._lock:
            alive = self._thread is not None and self._thread.is_alive()
            if alive and self._pid == os.getpid():
                return
            ready = threading.Event()
            self._pid = os.getpid()  # a forked child has no such thread: it starts its own
            self._thread = threading.Thread(
                target=self._run, args=(ready,), name="cloud-gpu", daemon=True
            )
            self._thread.start()
            if not ready.wait(_START_S) or self._token is None:
                raise PortalClosed("the SDK's thread did not start")
            atexit.register(self.stop)

    def _run(self, ready: threading.Event) -> None:
        import trio

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                self._token = trio.lowlevel.current_trio_token()
                self._nursery = nursery
                ready.set()
                await trio.sleep_forever()

        try:
            trio.run(main)
        finally:
            ready.set()


class Held(Generic[T]):
    """A context manager that is entered in the trio thread."""

    def __init__(self, portal: Portal, manager: AbstractAsyncContextManager[T]) -> None:
        self._portal, self._manager = portal, manager
        self._left: trio.Event | None = None
        self._entered: Future[T] = Future()
        self._call: _Call[None] | None = None

    def enter(self) -> T:
        """Enter it and wait; raises what entering raises."""
        self._call = self._portal._begin(self._hold)
        try:
            return self._entered.result()
        except KeyboardInterrupt:
            self._portal._soon(self._call.cancel)
            raise

    async def enter_from_asyncio(self) -> T:
        """As `enter`, from an asyncio loop."""
        self._call = self._portal._begin(self._hold)
        try:
            return await asyncio.wrap_future(self._entered)
        except asyncio.CancelledError:
            self._portal._soon(self._call.cancel)
            raise

    def leave(self) -> None:
        """Leave it and wait; raises what leaving raises."""
        self._portal._soon(self._leave)
        if self._call is not None:
            self._call.future.result(timeout=_UNWIND_S)

    async def leave_from_asyncio(self) -> None:
        """As `leave`, from an asyncio loop."""
        self._portal._soon(self._leave)
        if self._call is not None:
            await asyncio.wait_for(asyncio.wrap_future(self._call.future), _UNWIND_S)

    def _leave(self) -> None:
        if self._left is not None:
            self._left.set()

    async def _hold(self) -> None:
        import trio

        self._left = trio.Event()
        try:
            async with self._manager as value:
                if not self._entered.cancelled():
                    self._entered.set_result(value)
                await self._left.wait()
        except BaseException as error:
            if not self._entered.done():
                self._entered.set_exception(_plain(error))
                if not isinstance(error, trio.Cancelled):
                    return
            raise


def _plain(error: BaseException) -> BaseException:
    """The one error in a group of one: what a caller can catch by its name."""
    import trio

    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return CancelledError() if isinstance(error, trio.Cancelled) else error


PORTAL: Final = Portal()
"""The one of this process."""
