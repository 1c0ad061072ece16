"""Orders, keys and chain events for the market's tests: short to write, signed for real."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cloud_gpu.protocol.calls import OpenBatch, OpenGang, pairs_of
from cloud_gpu.protocol.chain_events import (
    AccountRegistered,
    CashChanged,
    ChainAdvanced,
    ChainEvent,
    DelegationChanged,
    EntrySkipped,
    LeaseOpened,
    MachineAdded,
    MarketRegistered,
    ProductRegistered,
)
from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.effects import MarketEffect, ReportBid, Transact
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import AskHeard, BidSubmitted, DeadlinePassed
from cloud_gpu.protocol.hardware import Gpu, GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.identity import (
    Delegation,
    KeyRole,
    LocalKey,
    NodeBinding,
    NoDelegates,
    PeerId,
)
from cloud_gpu.protocol.lease import LeaseKey, LeaseTerms, MachineKey
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import Advert, Ask, Bid, SignedAdvert, SignedBid, Terms
from cloud_gpu.protocol.signing import Domain, Verified, sign, state, verify
from cloud_gpu.protocol.ties import subject_of_bid
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Instant, Price, TokenAmount, cost_down
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest, keccak256
from market.books.book import RestingAsk, RestingBid
from market.health import health_of
from market.matchmaker import Matchmaker
from market.ports import OrderKind, SoundOrder
from market.rules import MarketRules, MatchmakerEvent
from market.standing import Standing

TOKEN = 1_000_000
NOW_S = 1_800_000_000
NOW = NOW_S * 1000
DOMAIN = Domain(name="LeaseBook", chain_id=31337, verifying_contract=Address(b"\x0b" * 20))
MARKET_KEY = LocalKey(keccak256(b"market").raw)
RULES = MarketRules(
    domain=DOMAIN, matcher=MARKET_KEY.address, market_id=1, bond_unit=TokenAmount(TOKEN)
)
FEE = BasisPoints(100)
A100 = GpuClass("A100-SXM4-80GB")
SEALED = Terms(block=True, salt=keccak256(b"salt"))


def key(name: str) -> LocalKey:
    """One key per name."""
    return LocalKey(keccak256(name.encode()).raw)


def price(tokens: str | int) -> Price:
    """ "1.20" or whole tokens per GPU-hour."""
    whole, _, rest = str(tokens).partition(".")
    return Price(int(whole) * TOKEN + int(rest.ljust(6, "0")))


def profile(gpus: int = 1, **changes: object) -> HardwareProfile:
    fields: dict[str, object] = {
        "gpu_class": A100,
        "gpus": (Gpu(model="A100", memory_mib=81_920, cuda="12.4"),) * gpus,
        "cpu_model": "EPYC",
        "cpu_architecture": "x86_64",
        "cpu_cores": 16,
        "memory_mib": 65_536,
        "disk_mib": 100_000,
        "region": "FR/EU",
        "isolation": Isolation.CONTAINER,
        "simulated": True,
    }
    return HardwareProfile(**(fields | changes))  # type: ignore[arg-type]


def machine(provider: str = "ada", index: int = 0) -> MachineKey:
    return MachineKey(provider=key(provider).address, index=index)


def advert(
    provider: str = "ada",
    index: int = 0,
    *,
    at: str | int = "1.00",
    seq: int = 1,
    hardware: HardwareProfile | None = None,
    announced: int = 1,
    node: str | None = None,
    bound: str | None = None,
    binding: object = None,
    addresses: tuple[str, ...] | None = None,
    host: str | None = None,
    **changes: object,
) -> SignedAdvert:
    """An ask of `provider`, signed by its node key and wrapped as gossip carries it.

    `node` signs instead, `bound` is the key that the wallet bound instead.
    """
    wallet, signer = key(provider), key(node or provider + "-node")
    peer = PeerId(f"peer-{host or provider}")
    fields: dict[str, object] = {
        "provider": wallet.address,
        "index": index,
        "seq": seq,
        "product": 1,
        "min_price_per_hour": price(at),
        "min_duration": 60,
        "max_duration": 86_400,
        "start_by": NOW_S + 600,
        "matcher": MARKET_KEY.address,
        "max_fee_bps": FEE,
    }
    ask = Ask(**(fields | changes))  # type: ignore[arg-type]
    node_key = key(bound or provider + "-node").address
    said = NodeBinding(provider=wallet.address, node_key=node_key, peer=peer)
    body = Advert(
        ask=sign(ask, DOMAIN, signer),
        profile=hardware or profile(),
        peer=peer,
        addresses=addresses or (f"/ip4/127.0.0.1/tcp/4001/p2p/{peer}",),
        binding=state(said, DOMAIN, wallet, nonce=1, expiry=NOW_S + 86_400),
    )
    if binding is not None:
        body = msgspec.structs.replace(body, binding=binding)
    return state(body, DOMAIN, signer, nonce=announced, expiry=NOW_S + 3_600)


def order(
    buyer: str = "bob",
    *,
    limit: str | int = "1.50",
    nonce: int = 0,
    wanting: Terms | None = None,
    signer: str | None = None,
    **changes: object,
) -> SignedBid:
    """A bid of `buyer`, signed."""
    terms = wanting or Terms()
    fields: dict[str, object] = {
        "buyer": key(buyer).address,
        "product": 1,
        "count": 1,
        "max_price_per_hour": price(limit),
        "duration": 3_600,
        "start_by": NOW_S + 300,
        "open_from": NOW_S + 300,
        "provider": ZERO_ADDRESS,
        "nonce": nonce,
        "matcher": MARKET_KEY.address,
        "max_fee_bps": FEE,
        "terms": terms.digest,
    }
    bid = Bid(**(fields | changes))  # type: ignore[arg-type]
    return SignedBid(bid=sign(bid, DOMAIN, key(signer or buyer)), terms=terms)


def sound(signed: SignedBid) -> SoundOrder:
    """As the door hands it to the inbox."""
    return SoundOrder(kind=OrderKind.BID, id=signed.bid.payload.id, octets=to_json(signed))


def product(number: int = 1, gpus: int = 1, **changes: object) -> ProductRegistered:
    fields: dict[str, object] = {
        "product": number,
        "gpu_class": A100,
        "slice_gpus": gpus,
        "region_group": "",
        "min_bond": BasisPoints(1_000),
        "notice": 0,
        "penalty": BasisPoints(500),
        "flags": 0,
    }
    return ProductRegistered(**(fields | changes))  # type: ignore[arg-type]


def joined(account: str, tokens: int = 0) -> list[ChainEvent]:
    """An account with cash in the vault."""
    address = key(account).address
    events: list[ChainEvent] = [AccountRegistered(account=address, id=1)]
    if tokens:
        amount = TokenAmount(tokens * TOKEN)
        events.append(CashChanged(account=address, amount=amount, increase=True))
    return events


def provider(
    name: str, machines: int = 1, *, bond: int = 10, products: tuple[int, ...] = (1,)
) -> list[ChainEvent]:
    """A provider with bonded machines, of the products in turn, and a node key."""
    delegation = Delegation(account=key(name).address, role=KeyRole.NODE, expiry=NOW_S + 10**6)
    events = joined(name, bond * machines)
    events.append(DelegationChanged(signer=key(name + "-node").address, delegation=delegation))
    events += [
        MachineAdded(
            machine=machine(name, index),
            product=products[index % len(products)],
            bond=TokenAmount(bond * TOKEN),
        )
        for index in range(machines)
    ]
    return events


def opened(
    bid: Bid, of: MachineKey, at: Price, *, seq: int = 1, at_s: int = NOW_S, gpus: int = 0
) -> LeaseOpened:
    """The chain says that a bid's lease is funded; of `gpus` GPUs, or of all."""
    terms = LeaseTerms(
        key=LeaseKey(provider=of.provider, index=of.index, seq=seq),
        buyer=bid.buyer,
        cap=cost_down(at, GpuSeconds((gpus or bid.count) * bid.duration)),
        duration=bid.duration,
        start_deadline=at_s + 600,
        market_id=1,
        opened_at=at_s,
    )
    return LeaseOpened(terms=terms, bid=bid.id, at=at_s, transaction=Digest(bytes(32)))


def standing(at: Instant = NOW, *, peers: int = 1) -> Standing:
    """A market that is well."""
    status = Desk().market.status()
    return Standing(
        at=at,
        fee=FEE,
        peer="peer-market",
        addresses=("/ip4/127.0.0.1/tcp/1/p2p/peer-market",),
        health=health_of(status, rules=RULES, now=at, peers=peers, inbox_read=0, events_waiting=0),
    )


class Desk:
    """A matchmaker with a clock; what it was told and what it answered."""

    def __init__(self, rules: MarketRules = RULES) -> None:
        self.market = Matchmaker(rules)
        self.now: Instant = NOW
        self.block = 0
        self.log: list[tuple[MatchmakerEvent, Instant]] = []
        self.effects: list[MarketEffect] = []
        self.inbox = 0
        self.tell(product(), MarketRegistered(market_id=1, account=MARKET_KEY.address, fee=FEE))
        self.mine()

    def tell(self, *events: MatchmakerEvent) -> list[MarketEffect]:
        effects: list[MarketEffect] = []
        for event in events:
            self.log.append((event, self.now))
            effects += self.market.handle(event, self.now)
        self.effects += effects
        return effects

    def mine(self, *events: ChainEvent) -> list[MarketEffect]:
        """One block with these events."""
        self.block += 1
        return self.tell(*events, ChainAdvanced(block=self.block, at=self.now // 1000))

    def hear(self, *adverts: SignedAdvert) -> list[MarketEffect]:
        return self.tell(*(AskHeard(advert=each) for each in adverts))

    def submit(self, *orders: SignedBid) -> list[MarketEffect]:
        effects: list[MarketEffect] = []
        for each in orders:
            self.inbox += 1
            effects += self.tell(BidSubmitted(order=each, inbox=self.inbox))
        return effects

    def pass_time(self, ms: int) -> list[MarketEffect]:
        """Let every deadline on the way fire, as the runner does."""
        until, effects = self.now + ms, []
        while (deadline := self.market.deadline) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            effects += self.tell(DeadlinePassed())
            assert self.market.deadline is None or self.market.deadline > self.now
        self.now = until
        return effects

    def end_round(self) -> list[MarketEffect]:
        return self.pass_time(RULES.round_ms)

    def report_of(self, bid: Digest) -> BidReport:
        """What the API would answer now."""
        return reports(self.effects)[bid]

    def report(self, order_: SignedBid) -> BidReport:
        """What the API would answer now."""
        return self.report_of(order_.bid.payload.id)


def batches(effects: Sequence[MarketEffect]) -> list[OpenBatch]:
    """The openings among some effects."""
    return [
        effect.call
        for effect in effects
        if isinstance(effect, Transact) and isinstance(effect.call, OpenBatch)
    ]


def pairs(effects: Sequence[MarketEffect]) -> list[tuple[Digest, Digest]]:
    """(bid id, ask id) of every match among some effects."""
    return [
        (match.bid.payload.id, match.ask.payload.id)
        for effect in effects
        if isinstance(effect, Transact) and isinstance(effect.call, OpenBatch | OpenGang)
        for match in pairs_of(effect.call)
    ]


def gangs(effects: Sequence[MarketEffect]) -> list[OpenGang]:
    """The openings of several machines among some effects."""
    return [
        effect.call
        for effect in effects
        if isinstance(effect, Transact) and isinstance(effect.call, OpenGang)
    ]


def reports(effects: Sequence[MarketEffect]) -> dict[Digest, BidReport]:
    """The last report of each bid."""
    return {effect.report.bid: effect.report for effect in effects if isinstance(effect, ReportBid)}


def resting_ask(signed: SignedAdvert, *, batch: Instant = 0) -> RestingAsk:
    """An ask as the book holds it; its id is its tie key."""
    ask = signed.body.ask
    verified = verify(ask, DOMAIN, account=ask.payload.provider, keys=AnyNodeKey(), at=NOW_S)
    assert isinstance(verified, Verified), verified
    return RestingAsk(
        id=ask.payload.id, ask=verified, advert=signed, batch=batch, tie=ask.payload.id.raw
    )


def resting_bid(signed: SignedBid, *, batch: Instant = 0, inbox: int = 1) -> RestingBid:
    """A bid as the book holds it; its tie key is its nonce's hash."""
    bid = signed.bid.payload
    verified = verify(signed.bid, DOMAIN, account=bid.buyer, keys=NoDelegates(), at=NOW_S)
    assert isinstance(verified, Verified), verified
    return RestingBid(
        id=bid.id,
        bid=verified,
        terms=signed.terms,
        inbox=inbox,
        batch=batch,
        tie=subject_of_bid(bid, signed.terms).raw,
        report=BidReport(bid=bid.id, state=BidState.PENDING),
    )


class AnyNodeKey:
    """A key ring that lets every key sign: what the intake checks is not tested here."""

    def may_sign(self, account: Address, signer: Address, role: KeyRole, at: int) -> bool:
        return True


def match_one(desk: Desk) -> tuple[SignedAdvert, SignedBid]:
    """One ask and one bid, whose opening is on its way."""
    offered, wanted = advert("ada", at="1.00"), order("bob")
    desk.hear(offered)
    desk.submit(wanted)
    desk.end_round()
    return offered, wanted


def skip(desk: Desk, reason: RejectReason, field: str) -> None:
    (batch,) = batches(desk.effects)[-1:]
    rejection = Rejection(reason=reason, field=field, found="x", needed="y")
    desk.mine(EntrySkipped(call=batch, position=0, rejection=rejection))
