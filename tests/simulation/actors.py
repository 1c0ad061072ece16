"""The parties of a season with what surrounds each: journals, machine rooms, workloads.

A crash forgets a party's memory and keeps its disk, as kill -9 does: the node's journal and its
containers, the market's journal and inbox, a verifier's records and re-executions. A buyer's side
has no disk: it goes for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from cloud_gpu.buyer import Buyer, Phase
from cloud_gpu.protocol.audit_messages import AuditRecord
from cloud_gpu.protocol.effects import BuyerEffect, MarketEffect, ProviderEffect, VerifierEffect
from cloud_gpu.protocol.events import (
    BuyerEvent,
    ContainerReady,
    NodeStarted,
    ProviderEvent,
    VerifierEvent,
)
from cloud_gpu.protocol.identity import LocalKey, PeerId
from cloud_gpu.protocol.job import FileRef, JobSpec, ResultContent
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.match import BidReport
from cloud_gpu.protocol.messages import RuntimeReport
from cloud_gpu.protocol.notices import JobDone, JobRefused, LeaseNotOpened, LeaseOver, LeaseUsable
from cloud_gpu.protocol.orders import SignedBid
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from cloud_gpu.rhythm import Rhythm
from cloud_gpu.spending import Purse
from cloud_gpu.testing.simulated_chain import Follower
from market.matchmaker import Matchmaker
from market.rules import MarketRules, MatchmakerEvent, RulesSet
from node.provider import Provider
from tests.simulation.scene import DEPLOYMENT, MARKET, PREIMAGES, Seat, profile
from verifier.coordinator import Coordinator
from verifier.ledger import BatchId

EMPTY = FileRef(path="stdout", sha256="0" * 64, size=0)


@dataclass(slots=True)
class Room:
    """What a node's runtime holds: it outlives the daemon."""

    prepared: set[LeaseKey] = field(default_factory=set)
    running: dict[Digest, JobSpec] = field(default_factory=dict)
    paused: set[LeaseKey] = field(default_factory=set)

    def report(self, lease: LeaseKey) -> RuntimeReport:
        """What stands for a lease."""
        hardware = profile()
        return RuntimeReport(
            lease=lease,
            profile=hardware,
            runtime="simulated",
            isolation=hardware.isolation,
            image="sha256:" + "1" * 64,
        )


class NodeActor:
    """A provider's daemon."""

    def __init__(self, seat: Seat) -> None:
        self.seat, self.name = seat, seat.name
        self.account = seat.node.address
        self.journal: list[tuple[ProviderEvent, int]] = []
        self.room = Room()
        self.is_up, self.has_vanished = True, False
        self.epoch = 0
        """Counts starts: what was on its way to an earlier one is lost."""
        self.party: Provider = seat.provider()
        self.follower = Follower(self.account)

    @property
    def peer(self) -> PeerId:
        """On the overlay."""
        return self.seat.peer

    def handle(self, event: ProviderEvent, now: int) -> Sequence[ProviderEffect]:
        """As the runner does: the journal first."""
        if self.party.must_survive(event):
            self.journal.append((event, now))
        return self.party.handle(event, now)

    def start(self, now: int, chain_at: int) -> Sequence[ProviderEvent]:
        """A new process on the old disk; what it is told first."""
        self.is_up, self.epoch = True, self.epoch + 1
        self.party, self.follower = self.seat.provider(), Follower(self.account)
        for event, at in self.journal:
            self.party.handle(event, at)
        adopted = [
            ContainerReady(lease=lease, report=self.room.report(lease))
            for lease in sorted(self.room.prepared)
        ]
        return [NodeStarted(at=chain_at), *adopted]


class MarketActor:
    """The market: matchmaker, journal, inbox, and what its API answers."""

    name = "market"

    def __init__(self) -> None:
        self.account = MARKET.address
        self.rules = MarketRules(
            domain=DEPLOYMENT.domain,
            matcher=MARKET.address,
            market_id=1,
            bond_unit=DEPLOYMENT.bond_unit,
            round_ms=300,
            settle_ms=15_000,
            verifiers=DEPLOYMENT.verifiers,
            heartbeat_age_s=30,
        )
        self.journal: list[tuple[MatchmakerEvent, int]] = []
        self.inbox: list[SignedBid] = []
        self.reports: dict[Digest, BidReport] = {}
        self.is_up, self.has_vanished = True, False
        self.epoch = 0
        self.party = Matchmaker(self.rules)
        self.follower = Follower(self.account)

    def handle(self, event: MatchmakerEvent, now: int) -> Sequence[MarketEffect]:
        """As the runner does: the journal first."""
        self.journal.append((event, now))
        return self.party.handle(event, now)

    def take_in(self, order: SignedBid) -> int | None:
        """Make a bid durable; its position, or None when it is there already."""
        if order in self.inbox:
            return None
        self.inbox.append(order)
        return len(self.inbox)

    def replayed(self) -> Matchmaker:
        """What the journal alone makes."""
        party = Matchmaker(self.rules)
        for event, at in self.journal:
            party.handle(event, at)
        return party

    def start(self) -> Sequence[MarketEffect]:
        """A new process on the old disk; the effects that may have been missed."""
        self.is_up, self.epoch = True, self.epoch + 1
        self.party = self.replayed()
        return self.party.restated()

    def first_event(self) -> RulesSet:
        """The first event of every start."""
        return RulesSet(rules=self.rules)


class VerifierActor:
    """A verifier's daemon."""

    def __init__(self, name: str, signer: LocalKey) -> None:
        self.name, self.signer = name, signer
        self.account = signer.address
        self.peer = PeerId(f"{name}-peer")
        self.records: dict[BatchId, AuditRecord] = {}
        self.runs: dict[tuple[Digest, Address], ResultContent] = {}
        """What re-executions gave, by leaf and auditor: none is paid for twice."""
        self.is_up, self.has_vanished = True, False
        self.epoch = 0
        self.start(0)

    def start(self, chain_at: int) -> None:
        """A new process on the old disk."""
        self.is_up, self.epoch = True, self.epoch + 1
        self.follower = Follower(self.account)
        self.party = Coordinator(
            deployment=DEPLOYMENT,
            key=self.signer,
            peer=self.peer,
            addresses=(f"/memory/{self.name}",),
            preimages=PREIMAGES[self.account],
            history_until=chain_at,
            records=[self.records[batch] for batch in sorted(self.records)],
        )

    def handle(self, event: VerifierEvent, now: int) -> Sequence[VerifierEffect]:
        """Straight to the party."""
        return self.party.handle(event, now)


class BuyerActor:
    """One buyer's process: one lease after the other, some jobs in each; without, it just waits.

    A process that wants gangs has one of these for each lease: `members`, itself the first.
    """

    def __init__(
        self,
        name: str,
        wallet: LocalKey,
        jobs: int,
        duration: int,
        verified: float,
        lead: BuyerActor | None = None,
    ) -> None:
        self.name, self.wallet = name, wallet
        self.lead = lead or self
        self.members: list[BuyerActor] = [*self.lead.members, self] if lead else [self]
        self.lead.members = self.members
        self.account = wallet.address
        self.peer = PeerId(f"{name}-peer")
        self.purse = Purse(account=wallet.address, signer=wallet, domain=DEPLOYMENT.domain)
        self.jobs, self.duration, self.verified = jobs, duration, verified
        self.is_up, self.has_vanished = True, False
        self.epoch = 0
        self.nonce = 0
        self.is_stubborn = False
        self.party: Buyer = self._new_party()
        self.follower = Follower(self.account)
        self.lease: LeaseKey | None = None
        self.jobs_sent = self.jobs_done = 0
        self.leases_closed = 0
        self.promised: dict[tuple[LeaseKey, int, int], TokenAmount] = {}
        self.is_over = False

    @property
    def is_all_over(self) -> bool:
        """Whether every lease of its process is, and no longer chain took an end back."""
        return all(
            member.is_over and member.party.phase is Phase.OVER for member in self.lead.members
        )

    def _new_party(self) -> Buyer:
        return Buyer(purse=self.purse, peer=self.peer, rhythm=Rhythm.of(DEPLOYMENT))

    def renew(self) -> None:
        """The next lease: a new party and a new nonce; the process is the same."""
        self.party, self.follower = self._new_party(), Follower(self.account)
        self.epoch += 1
        self.nonce += 1
        self.lease, self.jobs_sent, self.is_over = None, 0, False

    def handle(self, event: BuyerEvent, now: int) -> Sequence[BuyerEffect]:
        """Straight to the party."""
        return self.party.handle(event, now)

    def next_job(self, lease: LeaseKey) -> JobSpec:
        """What it wants run."""
        self.jobs_sent += 1
        return JobSpec(
            lease=lease,
            number=self.jobs_sent,
            command=("work", str(700 * self.jobs_sent)),
            runtime_s_max=3,
        )

    def hear(
        self, notice: object, want: Callable[[JobSpec], None], close: Callable[[], None]
    ) -> None:
        """What a user does about what it is told."""
        match notice:
            case LeaseUsable(lease=lease):
                self.lease = lease
                if self.jobs:
                    want(self.next_job(lease))
            case JobDone() | JobRefused():
                self.jobs_done += isinstance(notice, JobDone)
                if self.lease is not None and self.jobs_sent < self.jobs:
                    want(self.next_job(self.lease))
                elif not self.is_stubborn:
                    close()
            case LeaseOver() | LeaseNotOpened():
                self.is_over = True
                self.leases_closed += isinstance(notice, LeaseOver)
            case _:
                pass


Actor: TypeAlias = NodeActor | MarketActor | VerifierActor | BuyerActor
