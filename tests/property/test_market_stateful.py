"""The matchmaker through any history: rounds, refusals, losses, cancellations, reorganisations.

A chain that opens, skips or loses what the market posts plays against it. After every step no
machine and no nonce is used twice, and at the end the log replays to the same state.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cloud_gpu.protocol.calls import MatchedOrders, OpenBatch, OpenGang, OpeningCall, pairs_of
from cloud_gpu.protocol.chain_events import (
    ChainAdvanced,
    ChainReorganised,
    EntrySkipped,
    LeaseClosed,
    LeaseOpened,
    TransactionFailed,
)
from cloud_gpu.protocol.effects import ListAsk, Transact, UnlistAsk
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import BidWithdrawn
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, MachineKey
from cloud_gpu.protocol.match import BidState
from cloud_gpu.protocol.orders import Ask, Bid, BidFlags, Scope, Terms
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest
from market.matchmaker import Matchmaker
from market.rules import MarketRules
from tests.unit.market.builders import (
    RULES,
    Desk,
    advert,
    joined,
    machine,
    opened,
    order,
    provider,
    reports,
)

PROVIDERS, BUYERS = ("ada", "eve"), ("bob", "dan")
MACHINES = 2
FINAL = (BidState.REJECTED, BidState.EXPIRED, BidState.CANCELLED)
SKIPS = (
    (RejectReason.CASH_TOO_LOW, "bid.buyer"),
    (RejectReason.NONCE_USED, "bid.nonce"),
    (RejectReason.MACHINE_NOT_FREE, "ask.index"),
    (RejectReason.BOND_TOO_LOW, "ask.index"),
    (RejectReason.EXPIRED, "start_by"),
)
RULES_HERE = MarketRules(
    domain=RULES.domain,
    matcher=RULES.matcher,
    market_id=1,
    bond_unit=RULES.bond_unit,
    settle_ms=8_000,
    silence_ms=30_000,
)


class MarketHistory(RuleBasedStateMachine):
    """What the world may do to a market."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(RULES_HERE)
        for name in PROVIDERS:
            self.desk.mine(*provider(name, MACHINES))
        for name in BUYERS:
            self.desk.mine(*joined(name, 50))
        self.bids: dict[Digest, Bid] = {}
        self.seen = 0
        self.on_chain: list[tuple[int, Bid, LeaseOpened]] = []
        """Leases that are open now: (block, bid, event)."""
        self.used: list[tuple[int, tuple[object, int]]] = []
        """(block, nonce) of all openings."""
        self.unanswered: list[tuple[OpeningCall, int, tuple[MatchedOrders, ...]]] = []
        """Call, entry, and what it opens: one lease, or all of a gang."""
        self.next_seq = {machine(name, index): 1 for name in PROVIDERS for index in range(MACHINES)}
        self.announced = 0

    # The world.

    @rule(
        name=st.sampled_from(PROVIDERS),
        index=st.integers(0, MACHINES - 1),
        at=st.sampled_from(("0.90", "1.00", "1.20")),
        ahead=st.sampled_from((0, 0, 0, 1)),
    )
    def hear(self, name: str, index: int, at: str, ahead: int) -> None:
        self.announced += 1
        ends = self.desk.now // 1000 + 60 + self.announced
        self.desk.hear(
            advert(
                name,
                index,
                at=at,
                seq=self.next_seq[machine(name, index)] + ahead,
                announced=self.announced,
                start_by=ends,
            )
        )
        self.look()

    @rule(
        name=st.sampled_from(BUYERS),
        limit=st.sampled_from(("0.95", "1.10", "1.30")),
        nonce=st.integers(0, 3),
        life=st.sampled_from((5, 20, 200)),
        count=st.sampled_from((1, 1, 2, 3)),
        scope=st.sampled_from((Scope.ANY, Scope.NODE)),
    )
    def submit(
        self, name: str, limit: str, nonce: int, life: int, count: int, scope: Scope
    ) -> None:
        ends, flags = self.desk.now // 1000 + life, int(BidFlags.PAY_AS_ASK)
        wanting = Terms(scope=scope)
        signed = order(
            name,
            limit=limit,
            nonce=nonce,
            start_by=ends,
            count=count,
            flags=flags,
            wanting=wanting,
        )
        self.bids[signed.bid.payload.id] = signed.bid.payload
        self.desk.submit(signed)
        self.look()

    @rule(ms=st.sampled_from((100, 1_000, 3_000, 9_000)))
    def wait(self, ms: int) -> None:
        self.desk.pass_time(ms)
        self.desk.mine()
        self.look()

    @precondition(lambda self: self.unanswered)
    @rule(pick=st.integers(0, 99), skip=st.sampled_from(SKIPS), opens=st.booleans())
    def answer(self, pick: int, skip: tuple[RejectReason, str], opens: bool) -> None:
        call, position, entries = self.unanswered.pop(pick % len(self.unanswered))
        asks, bid = [entry.ask.payload for entry in entries], entries[0].bid.payload
        is_unused = (bid.buyer, bid.nonce) not in [nonce for _, nonce in self.used]
        if opens and is_unused and all(map(self.is_free, asks)):
            events = [
                opened(bid, key_of(ask), ask.min_price_per_hour, seq=ask.seq, gpus=1)
                for ask in asks
            ]
            self.desk.mine(*events)
            self.on_chain += [(self.desk.block, bid, event) for event in events]
            self.used.append((self.desk.block, (bid.buyer, bid.nonce)))
            self.next_seq |= {key_of(ask): ask.seq + 1 for ask in asks}
        else:
            reason, field = skip if is_unused else SKIPS[1]
            self.desk.mine(
                EntrySkipped(
                    call=call, position=position, rejection=Rejection(reason=reason, field=field)
                )
            )
        self.look()

    @precondition(lambda self: self.unanswered)
    @rule()
    def fail(self) -> None:
        call = self.unanswered[0][0]
        self.unanswered = [each for each in self.unanswered if each[0] != call]
        self.desk.mine(TransactionFailed(call=call, error="Reverted"))
        self.look()

    @precondition(lambda self: self.on_chain)
    @rule()
    def close(self) -> None:
        _, _, event = self.on_chain.pop(0)
        self.desk.mine(
            LeaseClosed(
                lease=event.terms.key,
                reason=LeaseEndReason.STOPPED,
                paid=TokenAmount(0),
                at=self.desk.now // 1000,
            )
        )
        self.look()

    @precondition(lambda self: self.bids)
    @rule(pick=st.integers(0, 99))
    def withdraw(self, pick: int) -> None:
        self.desk.tell(BidWithdrawn(bid=sorted(self.bids)[pick % len(self.bids)]))
        self.look()

    @precondition(lambda self: self.on_chain and self.on_chain[-1][0] == self.desk.block)
    @rule()
    def reorganise(self) -> None:
        """The newest block opened a lease; it is replaced by one in which it opens again."""
        block, bid, _ = self.on_chain[-1]
        self.desk.tell(ChainReorganised(block=block - 1))
        self.check()
        events = [event for at, _, event in self.on_chain if at == block]
        self.desk.tell(*events, ChainAdvanced(block=block, at=self.desk.now // 1000))
        report = self.desk.report_of(bid.id)
        assert report.state is BidState.OPENED
        assert len(report.leases) == bid.count
        self.look()

    # What must hold.

    def is_free(self, ask: Ask) -> bool:
        key_ = key_of(ask)
        return self.next_seq[key_] == ask.seq and not self.is_leased(key_)

    def is_leased(self, machine_: MachineKey) -> bool:
        return any(event.terms.key.machine == machine_ for _, _, event in self.on_chain)

    def look(self) -> None:
        """Collect what the market posted since the last look."""
        for effect in self.desk.effects[self.seen :]:
            if not isinstance(effect, Transact):
                continue
            call = effect.call
            if isinstance(call, OpenGang):
                self.unanswered.append((call, 0, pairs_of(call)))
            elif isinstance(call, OpenBatch):
                self.unanswered += [(call, n, (entry,)) for n, entry in enumerate(call.matches)]
        self.seen = len(self.desk.effects)

    @invariant()
    def check(self) -> None:
        told = reports(self.desk.effects)
        matched = [
            self.bids[bid] for bid, report in told.items() if report.state is BidState.MATCHED
        ]
        nonces = [(bid.buyer, bid.nonce) for bid in matched]
        assert len(set(nonces)) == len(nonces), "two alternatives on their way"
        taken = [
            (advert.body.ask.payload.provider, advert.body.ask.payload.index)
            for report in told.values()
            if report.state is BidState.MATCHED
            for advert in report.adverts
        ]
        assert len(set(taken)) == len(taken), "one machine for two bids"
        assert self.desk.market.status().openings == len(matched)
        for bid, report in told.items():
            price = report.price
            assert price is None or price <= self.bids[bid].max_price_per_hour
            assert report.state not in FINAL or not report.leases

    @invariant()
    def the_list_shows_free_machines_only(self) -> None:
        listed: dict[Digest, LeaseKey] = {}
        for effect in self.desk.effects:
            if isinstance(effect, ListAsk):
                ask = effect.advert.body.ask.payload
                listed[effect.ask] = LeaseKey(provider=ask.provider, index=ask.index, seq=ask.seq)
            elif isinstance(effect, UnlistAsk):
                listed.pop(effect.ask)
        machines = [lease.machine for lease in listed.values()]
        assert len(set(machines)) == len(machines)
        for lease in listed.values():
            assert not self.is_leased(lease.machine)
            assert lease.seq == self.next_seq[lease.machine]
        assert self.desk.market.status().asks == len(listed)

    def teardown(self) -> None:
        twin = Matchmaker(RULES_HERE)
        effects = [effect for event, now in self.desk.log for effect in twin.handle(event, now)]
        assert effects == self.desk.effects
        assert twin.state_hash() == self.desk.market.state_hash()
        self.desk.pass_time(300_000)
        waiting = [r for r in reports(self.desk.effects).values() if r.state is BidState.PENDING]
        assert not waiting, "bids whose start-by has passed still wait"
        assert self.desk.market.status().openings == 0
        assert self.desk.market.deadline is None


def key_of(ask: Ask) -> MachineKey:
    return MachineKey(provider=ask.provider, index=ask.index)


TestMarketHistory = MarketHistory.TestCase
TestMarketHistory.settings = settings(stateful_step_count=40)
