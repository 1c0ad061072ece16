"""A network in memory: messages arrive a little later, unless a test says that they get lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import PeerUnreachable, RequestRefused
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import FileRef
from cloud_gpu.protocol.messages import Message
from cloud_gpu.testing.pretend_node import PretendNode

LATENCY_S = 0.01


class MemoryNetwork:
    """Nodes and buyers' peers, by name."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._nodes: dict[PeerId, PretendNode] = {}
        self._wires: dict[PeerId, MemoryWire] = {}
        self.is_lost: Callable[[PeerId, PeerId, Message], bool] = lambda _from, _to, _message: False
        """(from, to, message) -> whether this one is lost on the way."""
        self.is_twice: Callable[[PeerId, PeerId, Message], bool] = lambda _from, _to, _message: (
            False
        )
        """(from, to, message) -> whether this one arrives twice."""

    def add_node(self, node: PretendNode) -> None:
        """A node is there from now on."""
        self._nodes[node.peer] = node

    def wire(self, peer: PeerId, store: ArtifactStore) -> MemoryWire:
        """A buyer's peer."""
        self._wires[peer] = MemoryWire(self, peer, store)
        return self._wires[peer]

    def node(self, peer: PeerId) -> PretendNode:
        """A node. Raises `PeerUnreachable` when there is none that answers."""
        node = self._nodes.get(peer)
        if node is None or node.faults.silent:
            raise PeerUnreachable(f"{peer} does not answer")
        return node

    def from_node(self, node: PeerId, peer: PeerId, message: Message) -> None:
        """A node says something."""
        if (wire := self._wires.get(peer)) is not None:
            self.carry(node, peer, message, wire.heard_from)

    def carry(
        self,
        origin: PeerId,
        target: PeerId,
        message: Message,
        deliver: Callable[[PeerId, Message], None],
    ) -> None:
        """Bring a message over, as bytes; it may get lost, or come twice."""
        if self.is_lost(origin, target, message):
            return
        raw = to_json(message)
        for _ in range(2 if self.is_twice(origin, target, message) else 1):
            self.later(LATENCY_S, lambda: deliver(origin, from_json(raw, Message)))

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Do something in so many seconds."""

        async def wait() -> None:
            await trio.sleep(delay_s)
            work()

        self._nursery.start_soon(wait)


class MemoryWire:
    """The `Wire` of a pretend world."""

    def __init__(self, network: MemoryNetwork, peer: PeerId, store: ArtifactStore) -> None:
        self._network, self._peer, self._store = network, peer, store
        self._heard: Callable[[PeerId, Message], None] | None = None
        self.pushed: list[str] = []
        """Digests that were sent, in order; a file that is not sent again is here once."""

    @property
    def peer(self) -> PeerId:
        """See `Wire`."""
        return self._peer

    def listen(self, heard: Callable[[PeerId, Message], None]) -> None:
        """See `Wire`."""
        self._heard = heard

    def heard_from(self, peer: PeerId, message: Message) -> None:
        """A message arrived."""
        if self._heard is not None:
            self._heard(peer, message)

    async def send(self, peer: PeerId, addresses: Sequence[str], message: Message) -> None:  # noqa: ARG002
        """See `Wire`."""
        node = self._network.node(peer)
        await trio.sleep(LATENCY_S)
        self._network.carry(self._peer, peer, message, node.on_message)

    async def push(self, peer: PeerId, addresses: Sequence[str], sha256: str) -> None:  # noqa: ARG002
        """See `Wire`."""
        node = self._network.node(peer)
        await trio.sleep(LATENCY_S)
        node.files[sha256] = await trio.Path(self._store.path_of(sha256)).read_bytes()
        self.pushed.append(sha256)

    async def fetch(self, peer: PeerId, addresses: Sequence[str], file: FileRef) -> Path:  # noqa: ARG002
        """See `Wire`."""
        node = self._network.node(peer)
        await trio.sleep(LATENCY_S)
        if file.sha256 not in node.files:
            raise RequestRefused(f"there is no artefact {file.sha256} here")
        return self._store.path_of(self._store.put_bytes(node.files[file.sha256]))
