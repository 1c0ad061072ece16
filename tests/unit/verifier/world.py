"""Two verifiers, providers good and bad, a chain and a bad network, in virtual time, by a seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.audit_messages import (
    AuditMessage,
    EvidenceAsked,
    EvidenceGiven,
    OutlineAsked,
    OutlineGiven,
)
from cloud_gpu.protocol.calls import AuditCall, CommitBatch
from cloud_gpu.protocol.chain_events import ChainAdvanced, ChainEvent
from cloud_gpu.protocol.effects import (
    PublishVerifier,
    Replay,
    SendAudit,
    Transact,
    VerifierEffect,
)
from cloud_gpu.protocol.events import (
    AskHeard,
    AuditMessageReceived,
    DeadlinePassed,
    ReplayDone,
    VerifierEvent,
    VerifierHeard,
)
from cloud_gpu.protocol.identity import LocalKey, PeerId
from cloud_gpu.protocol.job import FileRef
from cloud_gpu.protocol.party import Party
from cloud_gpu.protocol.units import ZERO_TOKENS
from cloud_gpu.protocol.values import Address
from tests.unit.verifier.builders import (
    DEPLOYMENT,
    FIRST,
    SECOND,
    T0,
    Batch,
    Work,
    address,
    advert,
    content_of,
    file,
    opened,
    peer_of,
    world_events,
)
from tests.unit.verifier.chain import CHALLENGE, HARD_CAP, Reverted, Verification
from tests.unit.verifier.story import preimages
from verifier.comparison import compare
from verifier.coordinator import Coordinator

VERIFIERS: Final = {"first": FIRST, "second": SECOND}

VerifierParty = Party[VerifierEvent, VerifierEffect]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one provider works."""

    wrong: float = 0.0
    """Share of its runs that return something else, different each time."""
    lie: str = ""
    """Returns this instead, the same each time: what a ring agrees on."""
    fails: float = 0.0
    """Share of the audits that it does not finish."""
    shows: bool = True
    """Answers verifiers."""


def truth(number: int) -> FileRef:
    """What job `number` gives when it is run."""
    return file("out/a.txt", f"the answer to {number}".encode())


class World:
    """Everybody. A block a second; a run is a function of the seed."""

    def __init__(self, seed: int, providers: dict[str, Behaviour], loss: float = 0.1) -> None:
        self.rng = random.Random(seed)
        self.providers, self.loss = providers, loss
        self.names = {address(name): name for name in providers}
        self.chain = Verification(
            {key.address: preimages(key).anchor for key in VERIFIERS.values()}
        )
        self.now = T0 * 1_000
        self.told: list[ChainEvent] = []
        """Every fact of the chain, for who starts later."""
        self.reverted: list[tuple[str, AuditCall, str]] = []
        self.log: list[str] = []
        self.parties: dict[str, VerifierParty] = {
            name: self.coordinator(key) for name, key in VERIFIERS.items()
        }
        self.batches: list[Batch] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._mempool: list[tuple[str, Address, AuditCall, Batch | None]] = []
        self._tell_all(world_events(*providers))
        self.after(0, self._block)
        self.after(0, self._announce)

    def coordinator(self, key: LocalKey, history_until: int = 0) -> Coordinator:
        name = next(name for name, each in VERIFIERS.items() if each is key)
        return Coordinator(
            deployment=DEPLOYMENT,
            key=key,
            peer=peer_of(name),
            addresses=(f"/memory/{name}",),
            preimages=preimages(key),
            history_until=history_until,
        )

    # What the tests tell it to do.

    def works(self, provider: str, jobs: int, seq: int) -> Batch:
        """A provider does some jobs in a lease and commits to what it returned."""
        behaviour = self.providers[provider]
        works = [
            Work(number=i, outputs=(self._run(i, behaviour),), used=self.rng.randrange(5, 60))
            for i in range(1, jobs + 1)
        ]
        batch = Batch(provider, works, seq=seq)
        self.batches.append(batch)
        self._tell_all([opened(batch.lease)])
        call = CommitBatch(commit=batch.commit)
        self._mempool.append((provider, address(provider), call, batch))
        return batch

    def restart(self, name: str) -> None:
        """Kill a verifier and start it again: all it has is the chain."""
        party = self.coordinator(VERIFIERS[name], history_until=self.chain.at)
        self.parties[name] = party
        for event in self.told:
            self.tell(name, event)
        self._heap = [entry for entry in self._heap if not _is_to(entry[2], name)]
        heapq.heapify(self._heap)
        self.after(0, self._announce_once)

    def finish(self) -> World:
        """Until every batch has ended, as it must."""
        end = self.now + (HARD_CAP + CHALLENGE + 120) * 1_000
        while self.now < end and not (self.chain.batches and self.is_over):
            self.run(10)
        assert self.is_over, list(self.chain.batches.values())
        return self

    @property
    def is_over(self) -> bool:
        open_states = (BatchState.COMMITTED, BatchState.DRAWN, BatchState.ACCUSED)
        return all(each.state not in open_states for each in self.chain.batches.values())

    def run(self, seconds: int) -> World:
        """Let time pass."""
        end = self.now + seconds * 1_000
        while self._heap and self._heap[0][0] <= end:
            self.now, _, step = heapq.heappop(self._heap)
            step()
        self.now = end
        return self

    # What came of it.

    def convicted(self, batch: Batch) -> set[int]:
        return self.chain.batches[batch.lease, 0].convicted

    def wrong(self, batch: Batch) -> set[int]:
        """Segments whose committed result is not what running the job gives."""
        return {
            i
            for i, work in enumerate(batch.works)
            if content_of(*work.outputs).digest != content_of(truth(work.number)).digest
        }

    # Time.

    def after(self, delay_ms: int, step: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._count, step))

    def tell(self, name: str, event: VerifierEvent) -> None:
        party = self.parties.get(name)
        if party is None:
            return
        for effect in party.handle(event, self.now):
            self._perform(name, effect)
        if (deadline := party.deadline) is not None:
            self.after(max(1, deadline - self.now), _Wake(self, name, party))

    def _block(self) -> None:
        self.chain.block += 1
        self.chain.events = []
        pending, self._mempool = self._mempool, []
        for name, sender, call, batch in pending:
            try:
                self.chain.call(sender, call, batch.value if batch else ZERO_TOKENS)
            except Reverted as error:
                self.reverted.append((name, call, str(error)))
        self._tell_all(
            [*self.chain.events, ChainAdvanced(block=self.chain.block, at=self.chain.at)]
        )
        self.after(1_000, self._block)

    def _tell_all(self, events: list[ChainEvent]) -> None:
        for event in events:
            self.told.append(event)
            self.log.append(f"{self.now} {event!r}")
            for name in self.parties:
                self.tell(name, event)

    def _announce(self) -> None:
        self._announce_once()
        self.after(15_000, self._announce)

    def _announce_once(self) -> None:
        for provider in self.providers:
            for name in self.parties:
                self.tell(name, AskHeard(advert=advert(provider)))

    # What verifiers do.

    def _perform(self, name: str, effect: VerifierEffect) -> None:
        match effect:
            case Transact(call=call):
                assert isinstance(call, AuditCall), call
                self._mempool.append((name, VERIFIERS[name].address, call, None))
            case SendAudit(peer=peer, message=message):
                self._send(peer_of(name), peer, message)
            case PublishVerifier(notice=notice):
                for other in self.parties:
                    if other != name:
                        self._later(_Tell(self, other, VerifierHeard(notice=notice)))
            case Replay():
                self._replay(name, effect)
            case _:
                pass  # connections and records are the adapters' business

    def _send(self, sender: PeerId, peer: PeerId, message: AuditMessage) -> None:
        for name in self.parties:
            if peer == peer_of(name):
                event = AuditMessageReceived(peer=sender, message=message)
                self._later(_Tell(self, name, event))
        for name, behaviour in self.providers.items():
            if peer == peer_of(name) and behaviour.shows:
                self._later(partial(self._answer, name, sender, message))

    def _answer(self, provider: str, peer: PeerId, message: AuditMessage) -> None:
        for batch in self.batches:
            match message:
                case OutlineAsked(request=request) if request.body.lease == batch.lease:
                    self._send(peer_of(provider), peer, OutlineGiven(outline=batch.outline))
                case EvidenceAsked(request=request) if request.body.lease == batch.lease:
                    evidence = batch.evidence(request.body.i)
                    self._send(peer_of(provider), peer, EvidenceGiven(evidence=evidence))
                case _:
                    pass

    def _later(self, step: Callable[[], None]) -> None:
        """Over the network: late, twice or never."""
        for _ in range(1 + (self.rng.random() < self.loss)):
            if self.rng.random() >= self.loss:
                self.after(self.rng.randrange(5, 900), step)

    def _replay(self, name: str, replay: Replay) -> None:
        """An ordinary job: the cheapest provider that may run it does."""
        leaf, spec = replay.evidence.leaf, replay.evidence.spec.body
        free = [each for each in self.providers if address(each) not in replay.excluded]
        auditor = free[0] if free else None
        behaviour = self.providers[auditor] if auditor else Behaviour(fails=1.0)
        content = None
        if self.rng.random() >= behaviour.fails:
            content = content_of(self._run(spec.number, behaviour))
        others = (replay.evidence.result.body.content, *replay.against) if content else ()
        done = ReplayDone(
            lease=leaf.lease,
            batch_no=leaf.batch_no,
            i=leaf.i,
            auditor=address(auditor) if auditor else None,
            result=content.digest if content else None,
            content=content,
            compared=tuple(compare("bytes", content, other, {}) for other in others if content),
        )
        self.after(self.rng.randrange(2_000, 8_000), _Tell(self, name, done))

    def _run(self, number: int, behaviour: Behaviour) -> FileRef:
        if behaviour.lie:
            return file("out/a.txt", f"{behaviour.lie} {number}".encode())
        if self.rng.random() < behaviour.wrong:
            return file("out/a.txt", self.rng.randbytes(8))
        return truth(number)


@dataclass(frozen=True, slots=True)
class _Tell:
    """A fact on its way to a verifier; lost when that is killed meanwhile."""

    world: World
    name: str
    event: VerifierEvent

    def __call__(self) -> None:
        self.world.tell(self.name, self.event)


@dataclass(frozen=True, slots=True)
class _Wake:
    """A party's deadline, as it was when this was set."""

    world: World
    name: str
    party: VerifierParty

    def __call__(self) -> None:
        deadline = self.party.deadline
        is_running = self.world.parties.get(self.name) is self.party
        if is_running and deadline is not None and deadline <= self.world.now:
            self.world.tell(self.name, DeadlinePassed())


def _is_to(step: Callable[[], None], name: str) -> bool:
    return isinstance(step, _Tell) and step.name == name
