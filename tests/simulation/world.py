"""A seeded, hostile world: the only caller of the parties besides the production runner.

One heap of (time, order, what). Everything random is drawn from the seed, so a seed and a commit
give the same log byte for byte. After each event the checkers look at every party and at the book.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence

from cloud_gpu.bidding import LeaseRequest, make_bids, ways_for
from cloud_gpu.buyer import Phase
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.effects import (
    AskAboutBid,
    BuyerEffect,
    MarketEffect,
    ProviderEffect,
    Publish,
    PublishRecord,
    PublishVerifier,
    PushInputs,
    Replay,
    ReportBid,
    Send,
    SendAudit,
    SubmitBid,
    Tell,
    Transact,
    VerifierEffect,
)
from cloud_gpu.protocol.events import (
    AuditMessageReceived,
    BidSubmitted,
    CloseWanted,
    DeadlinePassed,
    InputsPushed,
    JobWanted,
    LeaseWanted,
    MessageReceived,
)
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from cloud_gpu.protocol.messages import VoucherGiven
from cloud_gpu.protocol.orders import Scope
from cloud_gpu.protocol.units import Price
from cloud_gpu.testing.simulated_audits import HeldRow
from cloud_gpu.testing.simulated_chain import SimulatedChain
from tests.simulation import faults as weather
from tests.simulation import scene
from tests.simulation.actors import Actor, BuyerActor, MarketActor, NodeActor, VerifierActor
from tests.simulation.auditors import Auditors
from tests.simulation.checkers import Checkers
from tests.simulation.faults import Faults
from tests.simulation.network import Network
from tests.simulation.rooms import Rooms
from tests.simulation.scene import PRODUCT, T0, VERIFIERS

BLOCK_MS, POLL_MS = 1_000, 200


class World:
    """One season."""

    def __init__(
        self, seed: int, faults: Faults | None = None, cast: scene.Cast | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.faults = weather.drawn(self.rng) if faults is None else faults
        apart = random.Random(f"gangs of {seed}")
        self.cast = scene.drawn(self.rng, apart) if cast is None else cast
        self.now, self.calm_at = T0 * 1000, 0
        self.fair_from = self.now if self.faults == weather.NONE else 0
        """Since when nothing fails; 0: not yet. Milliseconds."""
        self.log: list[str] = [f"seed {seed} {self.faults}", str(self.cast)]
        self.nodes = [NodeActor(seat) for seat in self.cast.seats]
        self.market = MarketActor()
        audits = VERIFIERS if self.cast.verified else ()
        self.verifiers = [VerifierActor(f"verifier-{i}", v) for i, v in enumerate(audits)]
        leads = [self._buyer(name) for name in self.cast.buyers]
        self.buyers = [member for lead in leads for member in lead.members]
        wallets = [lead.wallet for lead in leads]
        self.chain = SimulatedChain(scene.genesis(self.cast.seats, wallets))
        self.network, self.rooms, self.auditors = Network(self), Rooms(self), Auditors(self)
        self.checkers = Checkers(self)
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._wakes: dict[str, int] = {}
        self._begin()

    def _buyer(self, name: str) -> BuyerActor:
        jobs, duration = self.rng.randint(0, 3), self.rng.choice([8, 20, 40])
        of = scene.key(name), jobs, duration, self.cast.verified
        lead = BuyerActor(name, *of)
        for number in range(1, self.cast.gang):
            BuyerActor(f"{name}+{number}", *of, lead)
        return lead

    @property
    def actors(self) -> list[Actor]:
        """Everybody."""
        return [*self.nodes, self.market, *self.verifiers, *self.buyers]

    def run(self, seconds: int) -> list[str]:
        """Let time pass; the log so far."""
        end = self.now + seconds * 1000
        while self._heap and self._heap[0][0] <= end:
            self.now, _, step = heapq.heappop(self._heap)
            step()
        self.now = end
        return self.log

    def clear_up(self) -> None:
        """No more faults; who crashed starts again, who vanished does not."""
        self.faults = weather.NONE
        self.fair_from = self.fair_from or self.now
        self.note("no more faults")
        for actor in self.actors:
            if not actor.is_up and not isinstance(actor, BuyerActor):
                self._restart(actor)

    def calm(self) -> None:
        """No more new leases: what is open must come to its end."""
        self.calm_at = self.now
        self.note("no more leases")

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left on chain that would have to end."""
        book = self.chain.book
        return not (self.held or any(row.locked for row in book.machines.values())) and all(
            machine.status is MachineStatus.FREE or self.is_deserted(key)
            for key, machine in book.machines.items()
        )

    @property
    def held(self) -> list[HeldRow]:
        """Held pay, but of leases that both their parties have left."""
        return [
            row
            for (provider, index, _), row in self.chain.book.audits.held.items()
            if row.ended_at or not self.is_deserted(MachineKey(provider=provider, index=index))
        ]

    def is_deserted(self, key: MachineKey) -> bool:
        """Whether provider and buyer of its lease both vanished: nobody misses what it locks."""
        lease = self.chain.book.machines[key].lease
        gone = {buyer.account for buyer in self.buyers if buyer.has_vanished}
        providers = {n.seat.wallet.address for n in self.nodes if n.has_vanished}
        return key.provider in providers and lease is not None and lease.buyer in gone

    # Time.

    def at(self, delay_ms: int, step: Callable[[], None]) -> None:
        """Do something later."""
        self._order += 1
        heapq.heappush(self._heap, (self.now + delay_ms, self._order, step))

    def note(self, text: str) -> None:
        """A line of the log."""
        self.log.append(f"{self.now - T0 * 1000} {text}")

    def _begin(self) -> None:
        self.deliver(self.market, self.market.first_event())
        for node in self.nodes:
            self._restart(node)
        self.at(BLOCK_MS, self._mine)
        self.at(1_000, self._fate)
        for actor in self.actors:
            self._look_at_chain(actor)
        for buyer in [buyer for buyer in self.buyers if buyer.lead is buyer]:
            self.at(self.rng.randint(2_000, 8_000), lambda b=buyer: self._want(b))  # type: ignore[misc]
        for going, chance in (
            (self.nodes, self.faults.node_vanishes),
            (self.verifiers, self.faults.verifier_vanishes),
        ):
            if going and self.rng.random() < chance:
                actor = self.rng.choice([*going])
                self.at(self.rng.randint(5_000, 44_000), lambda a=actor: self._vanish(a))  # type: ignore[misc]

    def _mine(self) -> None:
        self.chain.mine(self.now // 1000, lambda: self.rng.random() < self.faults.late)
        if self.rng.random() < self.faults.reorganise:
            depth = self.rng.randint(1, 3)
            self.chain.reorganise(depth, self.rng)
            self.note(f"reorganised {depth}")
        head = self.chain.head
        self.note(f"block {head.number} {str(head.hash)[:10]} {len(head.transactions)}")
        self.checkers.after_block()
        for actor in self.actors:
            self._look_at_chain(actor)
        self.at(BLOCK_MS, self._mine)

    def _look_at_chain(self, actor: Actor) -> None:
        def look() -> None:
            if actor.is_up:
                for event in self.chain.news_for(actor.follower):
                    self.deliver(actor, event)

        self.at(self.rng.randint(1, POLL_MS), look)

    # Fate.

    def _fate(self) -> None:
        for actor in self.actors:
            if isinstance(actor, NodeActor):
                chance = self.faults.crash_node
            elif isinstance(actor, MarketActor):
                chance = self.faults.crash_market
            elif isinstance(actor, VerifierActor):
                chance = self.faults.crash_verifier
            else:
                continue
            if actor.is_up and self.rng.random() < chance:
                actor.is_up, actor.epoch = False, actor.epoch + 1
                self.note(f"crash {actor.name}")
                self.at(
                    self.rng.randint(500, 15_000),
                    lambda a=actor: self._restart(a),  # type: ignore[misc]
                )
        self.at(1_000, self._fate)

    def _vanish(self, actor: Actor) -> None:
        actor.is_up, actor.has_vanished, actor.epoch = False, True, actor.epoch + 1
        self.note(f"{actor.name} vanishes")

    def _restart(self, actor: NodeActor | MarketActor | VerifierActor) -> None:
        if actor.has_vanished or (actor.is_up and actor.epoch):
            return
        self.note(f"start {actor.name}")
        chain_at = self.chain.head.at
        if isinstance(actor, NodeActor):
            for event in actor.start(self.now, chain_at):
                self.deliver(actor, event)
            return
        if isinstance(actor, VerifierActor):
            actor.start(chain_at)
            self.network.catch_up(actor)
            return
        for effect in actor.start():
            self._perform(actor, effect)
        self.deliver(actor, actor.first_event())
        for place in range(actor.party.status().inbox, len(actor.inbox)):
            self.deliver(actor, BidSubmitted(order=actor.inbox[place], inbox=place + 1))

    # Parties.

    def deliver(self, actor: Actor, event: object) -> None:
        """Tell a party something, and carry out what it answers."""
        if not actor.is_up:
            return
        effects: Sequence[object] = actor.handle(event, self.now)  # type: ignore[arg-type]
        if not isinstance(event, DeadlinePassed):
            self.note(f"{actor.name} {_name(event)} {len(effects)}")
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
                self.deliver(actor, DeadlinePassed())

        self.at(max(0, deadline - self.now), wake)

    def _perform(self, actor: Actor, effect: object) -> None:
        if isinstance(effect, Transact):
            self._submit(actor, effect.call)
        elif isinstance(actor, NodeActor):
            self._perform_node(actor, effect)  # type: ignore[arg-type]
        elif isinstance(actor, MarketActor):
            self._perform_market(actor, effect)  # type: ignore[arg-type]
        elif isinstance(actor, VerifierActor):
            self._perform_verifier(actor, effect)  # type: ignore[arg-type]
        else:
            self._perform_buyer(actor, effect)  # type: ignore[arg-type]

    def _submit(self, actor: Actor, call: ChainCall) -> None:
        self.note(f"{actor.name} submits {type(call).__name__}")
        self.chain.submit(actor.account, call)

    def _perform_node(self, node: NodeActor, effect: ProviderEffect) -> None:
        match effect:
            case Send():
                self.network.send(node, effect)
            case SendAudit():
                self.network.send_audit(node, effect)
            case Publish(advert=advert):
                self.network.advertise(advert)
            case _:
                self.rooms.perform(node, effect)

    def _perform_market(self, market: MarketActor, effect: MarketEffect) -> None:
        if isinstance(effect, ReportBid):
            market.reports[effect.report.bid] = effect.report

    def _perform_verifier(self, verifier: VerifierActor, effect: VerifierEffect) -> None:
        match effect:
            case SendAudit():
                self.network.send_audit(verifier, effect)
            case PublishVerifier(notice=notice):
                self.network.notify(verifier, notice)
            case PublishRecord(record=record):
                verifier.records[record.lease, record.batch_no] = record
            case Replay():
                self.auditors.perform(verifier, effect)
            case _:
                pass

    def _perform_buyer(self, buyer: BuyerActor, effect: BuyerEffect) -> None:
        match effect:
            case Send():
                if isinstance(effect.message, VoucherGiven):
                    self.checkers.voucher(buyer, effect.message.voucher)
                self.network.send(buyer, effect)
            case SubmitBid():
                self.network.submit_bid(buyer, effect)
            case AskAboutBid():
                self.network.report_bid(buyer, effect)
            case PushInputs(spec=spec):
                self.network.later(buyer, self.network.delay(), InputsPushed(job=spec.id))
            case Tell(notice=notice):
                self.note(f"{buyer.name} hears {type(notice).__name__}")
                buyer.hear(
                    notice,
                    lambda spec: self.network.later(buyer, 5, JobWanted(spec=spec)),
                    lambda: self.network.later(buyer, 5, CloseWanted()),
                )
                if buyer.is_all_over and not self.calm_at:
                    # Of a gang later than a cancellation can be taken back: nobody would look then.
                    earliest = 500 if len(buyer.members) == 1 else 4_500
                    self.at(self.rng.randint(earliest, 6_000), lambda: self._want(buyer.lead))
            case _:
                pass

    def _want(self, buyer: BuyerActor) -> None:
        """A buyer wants its next lease, or never wants anything again."""
        if buyer.has_vanished or self.calm_at:
            return
        if any(each.party.phase not in (Phase.IDLE, Phase.OVER) for each in buyer.members):
            return
        if buyer.is_all_over:
            for member in buyer.members:
                member.renew()
        gpus = PRODUCT.slice_gpus * len(buyer.members)
        request = LeaseRequest(
            gpu_type="A100",
            count=gpus,
            min_count=PRODUCT.slice_gpus if self._is_easy(buyer) else 0,
            scope=Scope.ANY if len(buyer.members) > 1 else None,
            max_price=Price(1_100_000),
            duration=buyer.duration,
            start_timeout=20,
            verified=self.rng.random() < buyer.verified,
        )
        bids = make_bids(
            request,
            ways_for(request, [PRODUCT]),
            scene.VIEW,
            buyer.purse,
            nonce=buyer.nonce,
            at=self.now // 1000,
        )
        stubborn = self.rng.random() < self.faults.stubborn
        if self.rng.random() < self.faults.vanish:
            after = self.rng.randint(1_000, 25_000)
            for member in buyer.members:
                self.at(after, lambda m=member: self._vanish(m))  # type: ignore[misc]
        slices = (PRODUCT.slice_gpus,) * len(bids)
        self.checkers.wanted(bids)
        for number, member in enumerate(buyer.members):
            member.is_stubborn = stubborn
            self.deliver(member, LeaseWanted(bids=bids, slice_gpus=slices, member=number))
        if len(buyer.members) > 1 and self.rng.random() < self.faults.stubborn:
            # It changes its mind: the cancellation and the gang's opening are on their way at once.
            self.network.later(buyer, self.rng.randint(300, 3_000), CloseWanted())

    def _is_easy(self, buyer: BuyerActor) -> bool:
        """Whether fewer machines will do, too."""
        return len(buyer.members) > 1 and self.rng.random() < 0.5


def _name(event: object) -> str:
    inside = event.message if isinstance(event, MessageReceived | AuditMessageReceived) else event
    return type(inside).__name__
