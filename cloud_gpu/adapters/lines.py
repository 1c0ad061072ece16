"""Runs Buyers: each party's effects go to the chain, the market and the node; what they say, back.

How messages and files reach a node is a `Wire`'s business: libp2p's (`node_stream`), or memory's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Hashable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, Protocol, assert_never

import structlog
import trio

from cloud_gpu.adapters.chain_feed import ChainFeed
from cloud_gpu.buyer import Buyer
from cloud_gpu.protocol import limits
from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.adapters.runner import Runner
from cloud_gpu.protocol.effects import (
    AskAboutBid,
    BuyerEffect,
    Connect,
    PushInputs,
    Send,
    SubmitBid,
    Tell,
    Transact,
)
from cloud_gpu.protocol.errors import (
    ArtifactRejected,
    ChainUnavailable,
    MarketUnavailable,
    OutsideWorldError,
    Rejected,
)
from cloud_gpu.protocol.events import (
    BidAcknowledged,
    BidRefused,
    BidReported,
    BuyerEvent,
    InputsNotPushed,
    InputsPushed,
    MarketSilent,
    MessageReceived,
    SendFailed,
)
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import FileRef, JobSpec
from cloud_gpu.protocol.messages import Message
from cloud_gpu.protocol.notices import AnyNotice
from cloud_gpu.protocol.ports import Clock, MarketApi
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest
from cloud_gpu.spending import Tab

_REPEAT_MS: Final = 800
"""A message queued behind its own repeat for less than that is dropped."""

_LOOK_MS: Final = 2_000


class Wire(Protocol):
    """Messages and files between this peer and nodes."""

    @property
    def peer(self) -> PeerId: ...

    def listen(self, heard: Callable[[PeerId, Message], None]) -> None:
        """Who is told what peers send."""

    async def send(self, peer: PeerId, addresses: Sequence[str], message: Message) -> None:
        """Hand a message over. Raises `OutsideWorldError`."""

    async def push(self, peer: PeerId, addresses: Sequence[str], sha256: str) -> None:
        """Bring a file of the store to a peer. Raises `OutsideWorldError`."""

    async def fetch(self, peer: PeerId, addresses: Sequence[str], file: FileRef) -> Path:
        """Bring a file of a peer into the store; where it is. Raises `OutsideWorldError`."""


class BuyerLines:
    """The Buyers of this process. See `client.Lines`."""

    def __init__(
        self,
        *,
        nursery: trio.Nursery,
        wire: Wire,
        store: ArtifactStore,
        feed: ChainFeed,
        market: MarketApi,
        clock: Clock,
    ) -> None:
        self._nursery, self.wire, self.store = nursery, wire, store
        self.feed, self.market, self.clock = feed, market, clock
        self._open: list[BuyerLine] = []
        wire.listen(self._heard)

    @property
    def peer(self) -> PeerId:
        """Our own peer."""
        return self.wire.peer

    async def start(self, buyer: Buyer, tell: Callable[[AnyNotice], None]) -> BuyerLine:
        """Run a Buyer until its line is closed."""
        line = BuyerLine(self, buyer, tell)
        self._open.append(line)
        self._nursery.start_soon(self._run, line)
        return line

    async def finish(self, work: Callable[[], Awaitable[None]], within_s: float) -> None:
        """Do something in at most so long, even for a caller who was cancelled."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + within_s):
            await work()

    async def _run(self, line: BuyerLine) -> None:
        try:
            await line.run()
        finally:
            self._open.remove(line)

    def _heard(self, peer: PeerId, message: Message) -> None:
        for line in self._open:
            line.post(MessageReceived(peer=peer, message=message))


class BuyerLine:
    """One running Buyer. See `leased.Line`."""

    def __init__(self, lines: BuyerLines, buyer: Buyer, tell: Callable[[AnyNotice], None]) -> None:
        self._lines, self._buyer, self._tell = lines, buyer, tell
        self._runner: Runner[BuyerEvent, BuyerEffect] = Runner(
            buyer, self._perform, lines.clock, name="buyer", lane=_lane
        )
        self._scope = trio.CancelScope()
        self._told = trio.Event()
        self._addresses: dict[PeerId, tuple[str, ...]] = {}
        self._pushed: set[tuple[PeerId, str]] = set()
        self._sent: dict[Hashable, tuple[Message, Instant]] = {}
        self._look_again_at: Instant = 0
        self._failure: BaseException | None = None
        self._log = structlog.get_logger(part="buyer")

    async def run(self) -> None:
        """Until closed."""
        unlisten = self._lines.feed.listen(self.post)
        try:
            with self._scope:
                await self._runner.run()
        except Exception as error:
            # Our own mistake: whoever waits for this lease is told, other leases go on.
            self._log.exception("buyer_failed")
            self._failure = error
        finally:
            unlisten()
            self._wake()

    # What the façade calls.

    def post(self, event: BuyerEvent) -> None:
        """Tell the party a fact."""
        self._runner.post(event)

    def now(self) -> Instant:
        """Unix milliseconds."""
        return self._lines.clock.now()

    @property
    def tab(self) -> Tab | None:
        """The lease's vouchers, once its meter runs."""
        return self._buyer.tab

    async def changed(self, within_s: float | None = None) -> bool:
        """See `leased.Line`."""
        if self._failure is not None:
            raise self._failure
        if (lost := self._lines.feed.failure) is not None:
            raise ChainUnavailable(str(lost)) from lost
        told = self._told
        with trio.move_on_after(1.0 if within_s is None else min(within_s, 1.0)):
            await told.wait()
        return told.is_set()

    async def take(self, local: Path, remote: str) -> tuple[FileRef, ...]:
        """See `leased.Line`."""
        return await trio.to_thread.run_sync(_taken, self._lines.store, local, remote)

    async def deliver(self, node: PeerId, file: FileRef, local: Path) -> None:
        """See `leased.Line`."""
        found = await self._fetched(node, file)
        await trio.to_thread.run_sync(_written, found, file, local)

    async def read(self, node: PeerId, file: FileRef) -> bytes:
        """See `leased.Line`."""
        found = await self._fetched(node, file)
        return await trio.to_thread.run_sync(found.read_bytes)

    async def close(self) -> None:
        """End the party; what it has asked of the chain is sent nevertheless."""
        self._scope.cancel()

    # What the party wants.

    async def _perform(self, effect: BuyerEffect) -> None:
        match effect:
            case Tell():
                self._tell(effect.notice)
                self._wake()
            case Transact():
                await self._lines.feed.submit(effect.call)
            case Connect():
                self._addresses[effect.peer] = effect.addresses
            case Send():
                await self._send(effect)
            case SubmitBid():
                await self._submit(effect)
            case AskAboutBid():
                await self._ask_about(effect.bid)
            case PushInputs():
                await self._push(effect.peer, effect.spec)
            case _:
                assert_never(effect)

    async def _send(self, effect: Send) -> None:
        lane = _lane(effect)
        before = self._sent.get(lane)
        if before and before[0] == effect.message and self.now() - before[1] < _REPEAT_MS:
            return
        addresses = self._addresses.get(effect.peer, ())
        try:
            await self._lines.wire.send(effect.peer, addresses, effect.message)
        except OutsideWorldError as error:
            failed = SendFailed(peer=effect.peer, message=effect.message, detail=str(error))
            self.post(failed)
            await self._look_for(effect.peer)
        finally:
            self._sent[lane] = (effect.message, self.now())

    async def _look_for(self, peer: PeerId) -> None:
        """A node that restarted may listen elsewhere: its newer asks say where."""
        if self.now() < self._look_again_at:
            return
        self._look_again_at = self.now() + _LOOK_MS
        try:
            adverts = await self._lines.market.asks()
        except (MarketUnavailable, Rejected) as error:
            self._log.info("node_not_looked_for", error=str(error))
            return
        for advert in adverts:
            if advert.body.peer == peer:
                self._addresses[peer] = advert.body.addresses
                return

    async def _submit(self, effect: SubmitBid) -> None:
        try:
            receipt = await self._lines.market.place(effect.order)
        except Rejected as refused:
            bid = effect.order.bid.payload.id
            self.post(BidRefused(bid=bid, rejection=refused.rejection))
        except MarketUnavailable as error:
            self.post(MarketSilent(detail=str(error)))
        else:
            self.post(BidAcknowledged(receipt=receipt))

    async def _ask_about(self, bid: Digest) -> None:
        try:
            report = await self._lines.market.report(bid)
        except Rejected as refused:
            self.post(BidRefused(bid=bid, rejection=refused.rejection))
        except MarketUnavailable as error:
            self.post(MarketSilent(detail=str(error)))
        else:
            self.post(BidReported(report=report))

    async def _push(self, peer: PeerId, spec: JobSpec) -> None:
        addresses = self._addresses.get(peer, ())
        try:
            for sha256 in dict.fromkeys(file.sha256 for file in spec.inputs):
                # What is not in our store, the node made itself.
                if (peer, sha256) not in self._pushed and self._lines.store.has(sha256):
                    await self._lines.wire.push(peer, addresses, sha256)
                    self._pushed.add((peer, sha256))
        except OutsideWorldError as error:
            self._pushed.clear()
            self.post(InputsNotPushed(job=spec.id, detail=str(error)))
        else:
            self.post(InputsPushed(job=spec.id))

    async def _fetched(self, node: PeerId, file: FileRef) -> Path:
        if self._lines.store.has(file.sha256):
            return self._lines.store.path_of(file.sha256)
        path = await self._lines.wire.fetch(node, self._addresses.get(node, ()), file)
        if path.stat().st_size != file.size:
            raise ArtifactRejected(
                f"{file.path}: found {path.stat().st_size} bytes, the node signed {file.size}"
            )
        return path

    def _wake(self) -> None:
        self._told.set()
        self._told = trio.Event()


def _lane(effect: BuyerEffect) -> Hashable:
    match effect:
        case Send():
            job = getattr(effect.message, "job", None)
            return "Send", effect.peer, type(effect.message).__name__, job
        case SubmitBid():  # a market that does not answer must not hold up the bids at others
            return "SubmitBid", effect.order.bid.payload.id
        case AskAboutBid():
            return "AskAboutBid", effect.bid
        case _:
            return type(effect).__name__


def _taken(store: ArtifactStore, local: Path, remote: str) -> tuple[FileRef, ...]:
    if local.is_file():
        return (_stored(store, local, remote),)
    if not local.is_dir():
        raise FileNotFoundError(f"{local}: there is no such file or folder")
    found = [
        Path(folder) / name
        for folder, _, names in os.walk(local)
        for name in names
        if (Path(folder) / name).is_file()
    ]
    if len(found) > limits.JOB_FILES_MAX:
        raise ValueError(
            f"{local}: found {len(found)} files, needed at most {limits.JOB_FILES_MAX}. Pack small"
            " files into one archive."
        )
    return tuple(
        _stored(store, path, str(PurePosixPath(remote) / path.relative_to(local).as_posix()))
        for path in sorted(found)
    )


def _stored(store: ArtifactStore, path: Path, remote: str) -> FileRef:
    sha256 = store.put_file(path)
    return FileRef(
        path=remote,
        sha256=sha256,
        size=store.path_of(sha256).stat().st_size,
        executable=os.access(path, os.X_OK),
    )


def _written(found: Path, file: FileRef, local: Path) -> None:
    local.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(found, local)
    local.chmod(0o755 if file.executable else 0o644)
