"""Between the parties: messages late, twice, overtaken or lost; gossip; the market's API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cloud_gpu.protocol.audit_messages import SignedVerifierNotice
from cloud_gpu.protocol.effects import AskAboutBid, Send, SendAudit, SubmitBid
from cloud_gpu.protocol.events import (
    AskHeard,
    AuditMessageReceived,
    BidReported,
    BidSubmitted,
    MarketSilent,
    MessageReceived,
    SendFailed,
    VerifierHeard,
)
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.values import Signature
from tests.simulation.actors import Actor, BuyerActor, NodeActor, VerifierActor

if TYPE_CHECKING:
    from tests.simulation.world import World

SILENT = MarketSilent(detail="no answer")
AGAIN_MS = 30_000
"""An advert repeated word for word is passed on so often."""


class Network:
    """What happens to everything that one party tells another."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._passed: dict[tuple[str, int, Signature], int] = {}
        """When an advert was last passed on to a process, by its name and start."""

    def delay(self) -> int:
        """Milliseconds."""
        return self._world.rng.randint(2, self._world.faults.delay_ms)

    def later(self, actor: Actor, delay_ms: int, event: object) -> None:
        """Tell an actor later, unless its process is another one by then."""
        epoch = actor.epoch

        def tell() -> None:
            if actor.epoch == epoch:
                self._world.deliver(actor, event)

        self._world.at(delay_ms, tell)

    def send(self, sender: NodeActor | BuyerActor, effect: Send) -> None:
        """A message about a lease; of a lost one its sender is told half of the time."""
        peers: list[NodeActor | BuyerActor] = [*self._world.nodes, *self._world.buyers]
        target = next((actor for actor in peers if actor.peer == effect.peer), None)
        if target is None or not target.is_up or self._is_lost():
            if target is None or not target.is_up or self._world.rng.random() < 0.5:
                failed = SendFailed(peer=effect.peer, message=effect.message, detail="lost")
                self.later(sender, self.delay(), failed)
            return
        received = MessageReceived(peer=sender.peer, message=effect.message)
        for _ in range(self._copies()):
            self.later(target, self.delay(), received)

    def send_audit(self, sender: NodeActor | VerifierActor, effect: SendAudit) -> None:
        """A message about a batch; nobody is told of a lost one."""
        peers: list[NodeActor | VerifierActor] = [*self._world.nodes, *self._world.verifiers]
        received = AuditMessageReceived(peer=sender.peer, message=effect.message)
        for target in peers:
            if target.peer == effect.peer and not self._is_lost():
                for _ in range(self._copies()):
                    self.later(target, self.delay(), received)

    def _is_lost(self) -> bool:
        return self._world.rng.random() < self._world.faults.loss

    def _copies(self) -> int:
        return 1 + (self._world.rng.random() < self._world.faults.repeat)

    # Gossip.

    def advertise(self, advert: SignedAdvert) -> None:
        """To the market and to verifiers."""
        market, now = self._world.market, self._world.now
        if market.is_up and not self._is_lost():
            self.later(market, self.delay(), AskHeard(advert=advert))
        for verifier in self._world.verifiers:
            name = verifier.name, verifier.epoch, advert.signature
            is_new = now - self._passed.get(name, -AGAIN_MS) >= AGAIN_MS
            if is_new and verifier.is_up and not self._is_lost():
                self._passed[name] = now
                self.later(verifier, self.delay(), AskHeard(advert=advert))

    def notify(self, sender: VerifierActor, notice: SignedVerifierNotice) -> None:
        """To the other verifier, and to a market to which it is news."""
        for other in self._world.verifiers:
            if other is not sender and not self._is_lost():
                self.later(other, self.delay(), VerifierHeard(notice=notice))
        market = self._world.market
        if market.party.examine_notice(notice, self._world.now) and not self._is_lost():
            self.later(market, self.delay(), VerifierHeard(notice=notice))

    def catch_up(self, verifier: VerifierActor) -> None:
        """A verifier that starts asks its peers for the adverts that they hold."""
        for node in self._world.nodes:
            if node.is_up:
                for advert in node.party.adverts:
                    self.later(verifier, self.delay(), AskHeard(advert=advert))

    # The market's API.

    def submit_bid(self, buyer: BuyerActor, effect: SubmitBid) -> None:
        """Durable before it is answered."""
        market = self._world.market
        if not market.is_up or self._is_lost():
            self.later(buyer, self.delay(), SILENT)
            return
        place = market.take_in(effect.order)
        if place is not None:
            submitted = BidSubmitted(order=effect.order, inbox=place)
            self.later(market, self.delay(), submitted)

    def report_bid(self, buyer: BuyerActor, effect: AskAboutBid) -> None:
        """What the market last said about a bid."""
        market = self._world.market
        report = market.reports.get(effect.bid)
        answer = SILENT if not market.is_up or report is None else BidReported(report=report)
        self.later(buyer, self.delay(), answer)

    def can_fetch(self, verifier: VerifierActor, peer: PeerId, files: set[str]) -> bool:
        """Whether a peer is there and gives a verifier these files."""
        for node in self._world.nodes:
            if node.peer == peer:
                return node.is_up and all(node.party.may_fetch(verifier.peer, f) for f in files)
        others: dict[PeerId, Callable[[str], bool]] = {
            other.peer: lambda f, other=other: (
                other.is_up  # type: ignore[misc]
                and other.party.may(verifier.peer, f, "fetch", 0)
            )
            for other in self._world.verifiers
        }
        return peer in others and all(others[peer](f) for f in files)
