"""One buyer, its market's and its node's words, and time by hand."""

import hashlib
from typing import Any

from cloud_gpu.bidding import LeaseRequest, make_bids, wish
from cloud_gpu.buyer import Buyer
from cloud_gpu.protocol import chain_events as chain
from cloud_gpu.protocol import messages as said
from cloud_gpu.protocol.effects import BuyerEffect, Send, Tell, Transact
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import (
    BidAcknowledged,
    BidReported,
    BuyerEvent,
    DeadlinePassed,
    JobWanted,
    LeaseWanted,
    MessageReceived,
)
from cloud_gpu.protocol.hardware import GpuClass, HardwareProfile
from cloud_gpu.protocol.identity import LocalKey, NodeBinding, PeerId
from cloud_gpu.protocol.job import FileRef, JobOutcome, JobResult, JobSpec
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey, LeaseTerms
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.notices import Notice
from cloud_gpu.protocol.orders import Advert, Ask, SignedAdvert
from cloud_gpu.protocol.ports import MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import Receipt, sign_receipts
from cloud_gpu.protocol.signing import sign, state
from cloud_gpu.protocol.units import BasisPoints, GpuSeconds, Price, TokenAmount, cost_down
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from cloud_gpu.protocol.voucher import Final, Ready
from cloud_gpu.rhythm import Rhythm
from cloud_gpu.spending import Purse
from cloud_gpu.testing.world import BUYER, DEPLOYMENT, MATCHER, profile_of

T0 = 1_800_000_000
"""Unix seconds at which a test begins."""
DOMAIN = DEPLOYMENT.domain
PROVIDER, NODE_KEY, STRANGER = (LocalKey(bytes([n]) * 32) for n in (7, 8, 9))
NODE, OWN = PeerId("node"), PeerId("own")
ADDRESS = "/ip4/127.0.0.1/tcp/1/p2p/node"
PRICE = Price(1_200_000)
DURATION = 600
CAP = cost_down(PRICE, GpuSeconds(2 * DURATION))
LEASE = LeaseKey(provider=PROVIDER.address, index=0, seq=1)
PROFILE = profile_of("A100-SXM4-80GB", 2)
RHYTHM = Rhythm.of(DEPLOYMENT)
PRODUCT = Product(
    id=1,
    gpu_class=GpuClass("A100-SXM4-80GB"),
    slice_gpus=2,
    region_group="",
    min_bond=BasisPoints(100),
    notice=60,
    penalty=BasisPoints(100),
    flags=0,
)
MARKET = MarketView(
    matcher=MATCHER.address,
    market_id=1,
    fee_bps=BasisPoints(100),
    round_ms=300,
    chain_id=DEPLOYMENT.chain_id,
    lease_book=DEPLOYMENT.lease_book,
    token=DEPLOYMENT.token,
    peer=PeerId("market"),
    addresses=(),
)


def request(**words: Any) -> LeaseRequest:
    usual: dict[str, Any] = {
        "gpu_type": "A100",
        "count": 2,
        "max_price": "2.00",
        "duration": DURATION,
    }
    return wish(**{**usual, **words})


def purse(signer: LocalKey = BUYER) -> Purse:
    return Purse(account=BUYER.address, signer=signer, domain=DOMAIN)


def advert(
    profile: HardwareProfile = PROFILE,
    *,
    seq: int = 1,
    price: Price = PRICE,
    signer: LocalKey = NODE_KEY,
    binder: LocalKey = PROVIDER,
    product: int = 1,
    **ask: Any,
) -> SignedAdvert:
    words: dict[str, Any] = {
        "provider": PROVIDER.address,
        "index": 0,
        "seq": seq,
        "product": product,
        "min_price_per_hour": price,
        "min_duration": 10,
        "max_duration": 86_400,
        "start_by": T0 + 300,
        "matcher": MATCHER.address,
        "max_fee_bps": BasisPoints(500),
    }
    made = Ask(**{**words, **ask})
    binding = NodeBinding(provider=PROVIDER.address, node_key=NODE_KEY.address, peer=NODE)
    body = Advert(
        ask=sign(made, DOMAIN, NODE_KEY),
        profile=profile,
        peer=NODE,
        addresses=(ADDRESS,),
        binding=state(binding, DOMAIN, binder, nonce=0, expiry=T0 + 10**6),
    )
    return state(body, DOMAIN, signer, nonce=1, expiry=T0 + 300)


class Bench:
    """A Buyer under test; `effects` are those of the last event."""

    def __init__(self, *, start_timeout: int = 60) -> None:
        self.now = T0 * 1000
        self.buyer = Buyer(purse=purse(), peer=OWN, rhythm=RHYTHM)
        self.orders = make_bids(
            request(start_timeout=start_timeout), [(PRODUCT, 2)], MARKET, purse(), nonce=3, at=T0
        )
        self.bid: Digest = self.orders[0].bid.payload.id
        self.effects: list[BuyerEffect] = []
        self.block = 100

    def give(self, *events: BuyerEvent) -> list[BuyerEffect]:
        self.effects = [e for event in events for e in self.buyer.handle(event, self.now)]
        return self.effects

    def pass_s(self, seconds: float, *, blocks: bool = True) -> list[BuyerEffect]:
        """Let time pass as the runner does: deadline by deadline, a block each second."""
        found: list[BuyerEffect] = []
        until = self.now + int(seconds * 1000)
        next_block = self.now + 1000
        while True:
            deadline = self.buyer.deadline
            upcoming = min(next_block if blocks else until, until, deadline or until)
            self.now = max(self.now, upcoming)
            if deadline is not None and deadline <= self.now:
                found += self.give(DeadlinePassed())
                moved = self.buyer.deadline
                assert moved is None or moved > self.now, "the deadline must move on"
            if blocks and next_block <= self.now:
                self.block += 1
                found += self.give(chain.ChainAdvanced(block=self.block, at=self.now // 1000))
                next_block += 1000
            if self.now >= until:
                self.effects = found
                return found

    # What is seen of the effects.

    def notices(self, kind: type[Notice]) -> list[Any]:
        return [
            e.notice for e in self.effects if isinstance(e, Tell) and isinstance(e.notice, kind)
        ]

    def sent(self, kind: type[Any]) -> list[Any]:
        return [
            e.message for e in self.effects if isinstance(e, Send) and isinstance(e.message, kind)
        ]

    def calls(self) -> list[Any]:
        return [e.call for e in self.effects if isinstance(e, Transact)]

    # What others say.

    def hear(self, message: said.Message, peer: PeerId = NODE) -> list[BuyerEffect]:
        return self.give(MessageReceived(peer=peer, message=message))

    def receipt(self, signer: LocalKey = MATCHER, ahead_s: int = 0) -> BidAcknowledged:
        body = Receipt(order=self.bid, inbox=1, received_at=self.now + 1000 * ahead_s)
        return BidAcknowledged(receipt=sign_receipts([body], signer, DOMAIN, life_s=10_000)[0])

    def report(self, bid_state: BidState, **words: Any) -> BidReported:
        return BidReported(report=BidReport(bid=self.bid, state=bid_state, **words))

    def opened(self, **differs: Any) -> chain.LeaseOpened:
        at = self.now // 1000
        words: dict[str, Any] = {
            "key": LEASE,
            "buyer": BUYER.address,
            "cap": CAP,
            "duration": DURATION,
            "start_deadline": at + DEPLOYMENT.windows.start,
            "market_id": 1,
            "opened_at": at,
        }
        terms = LeaseTerms(**{**words, **differs})
        return chain.LeaseOpened(terms=terms, bid=self.bid, at=at, transaction=ZERO_DIGEST)

    def ready(
        self,
        profile: HardwareProfile = PROFILE,
        *,
        signer: LocalKey = NODE_KEY,
        lease: LeaseKey = LEASE,
        promised: Digest | None = None,
    ) -> said.ReadyOffered:
        report = said.RuntimeReport(
            lease=lease, profile=profile, runtime="process", isolation=profile.isolation, image=""
        )
        ready = Ready(
            provider=lease.provider,
            index=lease.index,
            seq=lease.seq,
            runtime_hash=promised or report.digest,
        )
        return said.ReadyOffered(ready=sign(ready, DOMAIN, signer), report=report)

    def final(
        self, amount: TokenAmount, signer: LocalKey = NODE_KEY, lease: LeaseKey = LEASE
    ) -> said.FinalOffered:
        final = Final(provider=lease.provider, index=lease.index, seq=lease.seq, amount=amount)
        return said.FinalOffered(final=sign(final, DOMAIN, signer))

    def acknowledge(self, amount: TokenAmount | None = None) -> list[BuyerEffect]:
        """The node holds a voucher: by default, the newest."""
        tab = self.buyer.tab
        assert tab is not None
        held = tab.promised if amount is None else amount
        return self.hear(said.VoucherAcknowledged(lease=LEASE, amount=held, paused=False))

    def result(
        self, spec: JobSpec, signer: LocalKey = NODE_KEY, **differs: Any
    ) -> said.JobFinished:
        empty = FileRef(path="log", sha256=hashlib.sha256(b"").hexdigest(), size=0)
        words: dict[str, Any] = {
            "lease": LEASE,
            "job": spec.id,
            "outcome": JobOutcome.EXITED,
            "exit_code": 0,
            "stdout": empty,
            "stderr": empty,
            "started_at": self.now,
            "ended_at": self.now,
            "used": GpuSeconds(1),
        }
        body = JobResult(**{**words, **differs})
        return said.JobFinished(result=state(body, DOMAIN, signer, nonce=1, expiry=T0 + 10**6))

    # How far it is.

    def placed(self) -> "Bench":
        self.give(chain.ChainAdvanced(block=self.block, at=T0))
        self.give(LeaseWanted(bids=self.orders))
        return self

    def funded(self) -> "Bench":
        self.placed()
        self.give(self.receipt(), self.report(BidState.MATCHED, adverts=(advert(),)))
        self.give(self.opened())
        return self

    def accepted(self) -> "Bench":
        self.funded()
        self.hear(self.ready())
        return self

    def running(self) -> "Bench":
        self.accepted()
        self.give(chain.LeaseStarted(lease=LEASE, started_at=T0, at=T0))
        self.acknowledge()
        return self

    def with_job(self, number: int = 1) -> JobSpec:
        spec = job(number)
        self.give(JobWanted(spec=spec))
        return spec

    def closed(self, paid: int, reason: LeaseEndReason) -> list[BuyerEffect]:
        at = self.now // 1000
        return self.give(
            chain.LeaseClosed(lease=LEASE, reason=reason, paid=TokenAmount(paid), at=at)
        )


def job(number: int = 1, **words: Any) -> JobSpec:
    usual: dict[str, Any] = {
        "lease": LEASE,
        "number": number,
        "command": ("true",),
        "runtime_s_max": 60,
    }
    return JobSpec(**{**usual, **words})


def refusal(reason: RejectReason) -> Rejection:
    return Rejection(reason=reason, field="x", found="a", needed="b", next="Do c.")
