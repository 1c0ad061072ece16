"""A seeded, hostile world: the only caller of the parties besides the production runner.

One heap of (time, order, what). Everything random is drawn from the seed, so a seed and a commit
give the same log byte for byte. After each event the checkers look at every party and at the book.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence

from cloud_gpu.bidding import LeaseRequest, make_bids
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.effects import (
    AskAboutBid,
    BuyerEffect,
    Connect,
    KillJob,
    MarketEffect,
    PauseContainer,
    PrepareContainer,
    ProbeMachine,
    ProviderEffect,
    Publish,
    PushInputs,
    RemoveContainer,
    ReportBid,
    ResumeContainer,
    Send,
    StartJob,
    SubmitBid,
    Tell,
    Transact,
)
from cloud_gpu.protocol.events import (
    AskHeard,
    BidReported,
    BidSubmitted,
    CloseWanted,
    ContainerFailed,
    ContainerReady,
    DeadlinePassed,
    InputsPushed,
    JobExited,
    JobStarted,
    JobWanted,
    LeaseWanted,
    MachineProbed,
    MarketSilent,
    MessageReceived,
    SendFailed,
)
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import JobOutcome, JobSpec
from cloud_gpu.protocol.messages import Message, VoucherGiven
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.units import BasisPoints, Price
from cloud_gpu.testing.simulated_chain import SimulatedChain
from tests.simulation import faults as weather
from tests.simulation.actors import EMPTY, Actor, BuyerActor, MarketActor, NodeActor
from tests.simulation.checkers import Checkers
from tests.simulation.faults import Faults
from tests.simulation.scene import DEPLOYMENT, MARKET, PRODUCT, T0, genesis, key, profile, seats

BLOCK_MS, POLL_MS = 1_000, 200


class World:
    """One season."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.rng = random.Random(seed)
        self.faults = weather.drawn(self.rng) if faults is None else faults
        self.now, self.is_calm = T0 * 1000, False
        self.log: list[str] = [f"seed {seed} {self.faults}"]
        taken = seats(self.rng.randint(1, 3), self.rng.randint(1, 2))
        names = [f"buyer-{number}" for number in range(self.rng.randint(1, 4))]
        self.nodes = [NodeActor(seat) for seat in taken]
        self.market = MarketActor()
        self.buyers = [
            BuyerActor(name, key(name), self.rng.randint(1, 3), self.rng.choice([8, 20, 40]))
            for name in names
        ]
        self.chain = SimulatedChain(genesis(taken, [buyer.wallet for buyer in self.buyers]))
        self.checkers = Checkers(self)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._wakes: dict[str, int] = {}
        self._begin()

    @property
    def actors(self) -> list[Actor]:
        """Everybody."""
        return [*self.nodes, self.market, *self.buyers]

    def run(self, seconds: int) -> list[str]:
        """Let time pass; the log so far."""
        end = self.now + seconds * 1000
        while self._heap and self._heap[0][0] <= end:
            self.now, _, step = heapq.heappop(self._heap)
            step()
        self.now = end
        return self.log

    def calm(self) -> None:
        """No more faults, and no more new leases: what is open must come to its end."""
        self.faults, self.is_calm = weather.NONE, True
        self._note("calm")
        for actor in self.actors:
            if not actor.is_up and not isinstance(actor, BuyerActor):
                self._restart(actor)

    # Time.

    def at(self, delay_ms: int, step: Callable[[], None]) -> None:
        """Do something later."""
        self._order += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._order, step))

    def _begin(self) -> None:
        self._deliver(self.market, self.market.first_event())
        for node in self.nodes:
            self._restart(node)
        self.at(BLOCK_MS, self._mine)
        self.at(1_000, self._fate)
        for actor in self.actors:
            self.at(self.rng.randint(1, POLL_MS), lambda a=actor: self._poll(a))  # type: ignore[misc]
        for buyer in self.buyers:
            self.at(self.rng.randint(2_000, 8_000), lambda b=buyer: self._want(b))  # type: ignore[misc]

    def _mine(self) -> None:
        self.chain.mine(self.now // 1000, lambda: self.rng.random() < self.faults.late)
        if self.rng.random() < self.faults.reorganise:
            depth = self.rng.randint(1, 3)
            self.chain.reorganise(depth, self.rng)
            self._note(f"reorganised {depth}")
        head = self.chain.head
        self._note(f"block {head.number} {str(head.hash)[:10]} {len(head.transactions)}")
        self.checkers.after_block()
        self.at(BLOCK_MS, self._mine)

    def _fate(self) -> None:
        for actor in self.actors:
            if isinstance(actor, NodeActor):
                chance = self.faults.crash_node
            elif isinstance(actor, MarketActor):
                chance = self.faults.crash_market
            else:
                continue
            if actor.is_up and self.rng.random() < chance:
                actor.is_up, actor.epoch = False, actor.epoch + 1
                self._note(f"crash {actor.name}")
                self.at(
                    self.rng.randint(500, 15_000),
                    lambda a=actor: self._restart(a),  # type: ignore[misc]
                )
        self.at(1_000, self._fate)

    def _restart(self, actor: NodeActor | MarketActor) -> None:
        if actor.is_up and actor.epoch:
            return
        self._note(f"start {actor.name}")
        if isinstance(actor, NodeActor):
            for event in actor.start(self.now, self.chain.head.at):
                self._deliver(actor, event)
            return
        for effect in actor.start():
            self._perform(actor, effect)
        self._deliver(actor, actor.first_event())
        for place in range(actor.party.status().inbox, len(actor.inbox)):
            self._deliver(actor, BidSubmitted(order=actor.inbox[place], inbox=place + 1))

    def _poll(self, actor: Actor) -> None:
        if actor.is_up:
            for event in self.chain.news_for(actor.follower):
                self._deliver(actor, event)
        self.at(POLL_MS, lambda: self._poll(actor))

    # Parties.

    def _deliver(self, actor: Actor, event: object) -> None:
        if not actor.is_up:
            return
        effects: Sequence[object] = actor.handle(event, self.now)  # type: ignore[arg-type]
        if not isinstance(event, DeadlinePassed):
            self._note(f"{actor.name} {type(event).__name__} {len(effects)}")
        self.checkers.after_event(actor, effects)
        for effect in effects:
            self._perform(actor, effect)
        self._plan(actor)

    def _plan(self, actor: Actor) -> None:
        deadline = actor.party.deadline
        if deadline is None or self._wakes.get(actor.name) == deadline:
            return
        self._wakes[actor.name] = deadline
        epoch = actor.epoch

        def wake() -> None:
            if self._wakes.get(actor.name) == deadline:
                del self._wakes[actor.name]
            due = actor.party.deadline
            if actor.is_up and actor.epoch == epoch and due is not None and due <= self.now:
                self._deliver(actor, DeadlinePassed())

        self.at(max(0, deadline - self.now), wake)

    def _perform(self, actor: Actor, effect: object) -> None:
        if isinstance(effect, Transact):
            self._submit(actor, effect.call)
        elif isinstance(actor, NodeActor):
            self._perform_node(actor, effect)  # type: ignore[arg-type]
        elif isinstance(actor, MarketActor):
            self._perform_market(actor, effect)  # type: ignore[arg-type]
        else:
            self._perform_buyer(actor, effect)  # type: ignore[arg-type]

    def _submit(self, actor: Actor, call: ChainCall) -> None:
        self._note(f"{actor.name} submits {type(call).__name__}")
        self.chain.submit(actor.account, call)

    # The network.

    def _delay(self) -> int:
        return self.rng.randint(2, self.faults.delay_ms)

    def _message(self, sender: NodeActor | BuyerActor, effect: Send) -> None:
        told = SendFailed(peer=effect.peer, message=effect.message, detail="lost")
        target = self._peer(effect.peer)
        if target is None or not target.is_up or self.rng.random() < self.faults.loss:
            if target is None or not target.is_up or self.rng.random() < 0.5:
                self._later(sender, self._delay(), told)
            return
        for _ in range(1 + (self.rng.random() < self.faults.repeat)):
            self._later(target, self._delay(), self._received(sender.peer, effect.message))

    def _received(self, peer: PeerId, message: Message) -> MessageReceived:
        return MessageReceived(peer=peer, message=message)

    def _peer(self, peer: PeerId) -> NodeActor | BuyerActor | None:
        peers: list[NodeActor | BuyerActor] = [*self.nodes, *self.buyers]
        return next((actor for actor in peers if actor.peer == peer), None)

    def _later(self, actor: Actor, delay_ms: int, event: object) -> None:
        """Tell an actor later, unless its process is another one by then."""
        epoch = actor.epoch

        def tell() -> None:
            if actor.epoch == epoch:
                self._deliver(actor, event)

        self.at(delay_ms, tell)

    # The node's machine room.

    def _perform_node(self, node: NodeActor, effect: ProviderEffect) -> None:
        room = node.room
        match effect:
            case Send():
                self._message(node, effect)
            case Publish(advert=advert):
                if self.market.is_up and self.rng.random() >= self.faults.loss:
                    self._later(self.market, self._delay(), AskHeard(advert=advert))
            case ProbeMachine(index=index):
                probed = MachineProbed(
                    machine=node.seat.machine(index), profile=profile(), healthy=True
                )
                self._later(node, 5, probed)
            case PrepareContainer(lease=lease):
                if self.rng.random() < self.faults.bad_container:
                    self._later(node, 300, ContainerFailed(lease=lease, detail="no space"))
                    return
                room.prepared.add(lease)
                self._later(node, 300, ContainerReady(lease=lease, report=room.report(lease)))
            case StartJob(spec=spec):
                self._start_job(node, spec)
            case KillJob(lease=_, job=job):
                if job in room.running:
                    self._end_job(node, room.running[job], JobOutcome.KILLED)
            case PauseContainer(lease=lease):
                room.paused.add(lease)
            case ResumeContainer(lease=lease):
                room.paused.discard(lease)
            case RemoveContainer(lease=lease):
                room.prepared.discard(lease)
                room.paused.discard(lease)
                room.running = {k: s for k, s in room.running.items() if s.lease != lease}
            case _:
                pass

    def _start_job(self, node: NodeActor, spec: JobSpec) -> None:
        if spec.id in node.room.running or spec.lease not in node.room.prepared:
            return
        node.room.running[spec.id] = spec
        self._later(node, 1, JobStarted(lease=spec.lease, job=spec.id))
        self.at(int(spec.command[1]), lambda: self._end_job(node, spec, JobOutcome.EXITED))

    def _end_job(self, node: NodeActor, spec: JobSpec, outcome: JobOutcome) -> None:
        if spec.id not in node.room.running:
            return
        if spec.lease in node.room.paused and outcome is JobOutcome.EXITED:
            self.at(500, lambda: self._end_job(node, spec, outcome))
            return
        if not node.is_up:  # the supervisor of the job outlives the daemon and reports later
            self.at(1_000, lambda: self._end_job(node, spec, outcome))
            return
        del node.room.running[spec.id]
        exited = JobExited(
            lease=spec.lease,
            job=spec.id,
            outcome=outcome,
            exit_code=0,
            detail="",
            outputs=(),
            stdout=EMPTY,
            stderr=EMPTY,
            log_cut=False,
            started_at=self.now - int(spec.command[1]),
            ended_at=self.now,
        )
        self._deliver(node, exited)

    # The market's API.

    def _perform_market(self, market: MarketActor, effect: MarketEffect) -> None:
        if isinstance(effect, ReportBid):
            market.reports[effect.report.bid] = effect.report

    def _perform_buyer(self, buyer: BuyerActor, effect: BuyerEffect) -> None:
        match effect:
            case Send():
                if isinstance(effect.message, VoucherGiven):
                    self.checkers.voucher(buyer, effect.message.voucher)
                self._message(buyer, effect)
            case SubmitBid(order=order):
                if not self.market.is_up or self.rng.random() < self.faults.loss:
                    self._later(buyer, self._delay(), MarketSilent(detail="no answer"))
                    return
                place = self.market.take_in(order)
                if place is not None:
                    submitted = BidSubmitted(order=order, inbox=place)
                    self._later(self.market, self._delay(), submitted)
            case AskAboutBid(bid=bid):
                report = self.market.reports.get(bid)
                if not self.market.is_up or report is None:
                    self._later(buyer, self._delay(), MarketSilent(detail="no answer"))
                    return
                self._later(buyer, self._delay(), BidReported(report=report))
            case PushInputs(spec=spec):
                self._later(buyer, self._delay(), InputsPushed(job=spec.id))
            case Tell(notice=notice):
                self._note(f"{buyer.name} hears {type(notice).__name__}")
                buyer.hear(
                    notice,
                    lambda spec: self._later(buyer, 5, JobWanted(spec=spec)),
                    lambda: self._later(buyer, 5, CloseWanted()),
                )
                if buyer.is_over and not self.is_calm:
                    self.at(self.rng.randint(500, 6_000), lambda: self._want(buyer))
            case Connect() | Transact():
                pass

    def _want(self, buyer: BuyerActor) -> None:
        """A buyer wants its next lease, or never wants anything again."""
        if buyer.has_vanished or self.is_calm:
            return
        if buyer.is_over:
            buyer.renew()
        request = LeaseRequest(
            gpu_type="A100",
            count=PRODUCT.slice_gpus,
            max_price=Price(1_100_000),
            duration=buyer.duration,
            start_timeout=30,
        )
        view = MarketView(
            matcher=MARKET.address, market_id=1, fee_bps=BasisPoints(100),
            round_ms=300, chain_id=DEPLOYMENT.chain_id, lease_book=DEPLOYMENT.lease_book,
            token=DEPLOYMENT.token, peer=PeerId("market-peer"), addresses=(),
        )  # fmt: skip
        bids = make_bids(
            request, [PRODUCT], view, buyer.purse, nonce=buyer.nonce, at=self.now // 1000
        )
        buyer.is_stubborn = self.rng.random() < self.faults.stubborn
        if self.rng.random() < self.faults.vanish:
            self.at(self.rng.randint(1_000, 25_000), lambda: self._vanish(buyer))
        self._deliver(buyer, LeaseWanted(bids=bids))

    def _vanish(self, buyer: BuyerActor) -> None:
        buyer.is_up, buyer.has_vanished, buyer.epoch = False, True, buyer.epoch + 1
        self._note(f"{buyer.name} vanishes")

    def _note(self, text: str) -> None:
        self.log.append(f"{self.now - T0 * 1000} {text}")
