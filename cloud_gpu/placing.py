"""From signed bids to a funded lease: the part of a buyer that talks to the market.

The market is asked, never believed: only the chain says that a lease is open, and only time past
the bids' `start_by` on the chain says that none can open any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from cloud_gpu.protocol.effects import AskAboutBid, BuyerEffect, SubmitBid, Tell
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.lease import LeaseTerms
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.notices import BidPlaced, LeaseNotOpened
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.receipts import SignedReceipt, check_receipt
from cloud_gpu.protocol.signing import Domain
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest
from cloud_gpu.rhythm import Rhythm

_CHAIN_SILENT_S: Final = 30
"""So long after the bids' end a chain that makes no blocks is given up."""


class _Standing(Enum):
    SENT = auto()
    """On its way: submitted again until the market says that it has it."""
    HELD = auto()
    """The market has it on disk."""
    DEAD = auto()
    """The market will not open it."""


@dataclass(slots=True)
class _Placed:
    order: SignedBid
    standing: _Standing = _Standing.SENT
    report: BidReport | None = None
    rejection: Rejection | None = None


class Placement:
    """The alternatives of one lease at one market, from submission to an outcome."""

    def __init__(
        self,
        orders: Sequence[SignedBid],
        slice_gpus: Sequence[int],
        adverts: Sequence[SignedAdvert],
        domain: Domain,
        rhythm: Rhythm,
        *,
        is_quiet: bool = False,
    ) -> None:
        """`is_quiet`: somebody else of the same gang talks to the market."""
        assert orders, "a lease is wanted without a bid"
        self._domain, self._rhythm, self._is_quiet = domain, rhythm, is_quiet
        self._bids: dict[Digest, _Placed] = {o.bid.payload.id: _Placed(o) for o in orders}
        counts = slice_gpus or [order.bid.payload.count for order in orders]
        self._gpus: dict[Digest, int] = {
            order.bid.payload.id: gpus for order, gpus in zip(orders, counts, strict=True)
        }
        self._adverts = {_lease_words(advert): advert for advert in adverts}
        self._again_at: Instant = 0
        self._silence = ""

    @property
    def nonce(self) -> int:
        """What all alternatives share."""
        return next(iter(self._bids.values())).order.bid.payload.nonce

    @property
    def start_by(self) -> int:
        """Unix seconds after which none of them can open."""
        return max(placed.order.bid.payload.start_by for placed in self._bids.values())

    @property
    def deadline(self) -> Instant:
        """When `on_time` has something to do."""
        return self._again_at

    def order(self, bid: Digest) -> SignedBid | None:
        """One of our orders by its struct hash."""
        placed = self._bids.get(bid)
        return placed.order if placed else None

    def gpus_of(self, bid: Digest) -> int:
        """GPUs of one machine of a bid of ours."""
        return self._gpus[bid]

    def start(self, now: Instant) -> list[BuyerEffect]:
        """Hand all of them to the market."""
        said = [] if self._is_quiet else list(self._bids)
        told: list[BuyerEffect] = [Tell(notice=BidPlaced(bid=bid)) for bid in said]
        return told + self.on_time(now)

    def on_time(self, now: Instant) -> list[BuyerEffect]:
        """Submit what the market has not acknowledged, ask about the rest."""
        if now < self._again_at:
            return []
        self._again_at = now + self._rhythm.poll
        effects: list[BuyerEffect] = []
        for bid, placed in self._bids.items():
            if self._is_quiet:
                break
            if placed.standing is _Standing.SENT:
                effects.append(SubmitBid(order=placed.order))
            elif placed.standing is _Standing.HELD:
                effects.append(AskAboutBid(bid=bid))
        return effects

    def acknowledged(self, receipt: SignedReceipt, at: int) -> None:
        """The market has a bid. A receipt that its matcher did not sign, or dated ahead of this
        machine's clock, counts for nothing. `at` is that clock's, not the chain's, Unix seconds.
        """
        placed = self._bids.get(receipt.body.order)
        if placed is None or placed.standing is not _Standing.SENT:
            return
        market = placed.order.bid.payload.matcher
        unsigned = check_receipt(receipt, self._domain, market=market, at=at)
        if unsigned is None:
            placed.standing = _Standing.HELD
            self._silence = ""
        else:
            self._silence = f"the market's receipt does not count: {unsigned}"

    def refused(self, bid: Digest, rejection: Rejection) -> None:
        """The market does not take a bid, or no longer knows it."""
        placed = self._bids.get(bid)
        if placed is None:
            return
        if rejection.reason is RejectReason.UNKNOWN_ORDER:
            placed.standing = _Standing.SENT  # it lost what it had acknowledged
        elif rejection.reason in (RejectReason.RATE_LIMITED, RejectReason.MARKET_STOPPING):
            self._silence = str(rejection)
        else:
            placed.standing, placed.rejection = _Standing.DEAD, rejection

    def reported(self, report: BidReport) -> None:
        """The market told how far a bid is."""
        placed = self._bids.get(report.bid)
        if placed is None:
            return
        self._silence = ""
        placed.report = report
        placed.rejection = report.rejection or placed.rejection
        for advert in report.adverts:
            self._adverts[_lease_words(advert)] = advert
        if report.state in (BidState.REJECTED, BidState.EXPIRED, BidState.CANCELLED):
            placed.standing = _Standing.DEAD

    def silent(self, detail: str) -> None:
        """The market did not answer."""
        self._silence = detail

    def advert_of(self, terms: LeaseTerms) -> SignedAdvert | None:
        """The ask that a lease came from, if the market ever showed it."""
        key = terms.key
        return self._adverts.get((key.provider.raw, key.index, key.seq))

    def gave_up(self, block_at: int, at: int) -> LeaseNotOpened | None:
        """Why no lease will come of the bids; None: one still may.

        `block_at` is the newest block's time, `at` what it must be by now; Unix seconds.
        """
        dead = all(placed.standing is _Standing.DEAD for placed in self._bids.values())
        late = block_at > self.start_by
        deaf = at > self.start_by + _CHAIN_SILENT_S
        if not (dead or late or deaf):
            return None
        rejection = next((p.rejection for p in self._bids.values() if p.rejection), None)
        order = next(iter(self._bids.values())).order
        if self._silence and not dead:
            kind, detail = "market-silent", self._silence
        elif rejection is None:
            kind, detail = "expired", "no match was made before the bid expired"
        else:
            kind, detail = _KINDS.get(rejection.reason, "rejected"), str(rejection)
            if not dead and kind == "rejected":
                kind = "no-match"  # what a round said of a bid that it left in the book
        return LeaseNotOpened(kind=kind, detail=detail, terms=order.terms, rejection=rejection)


_KINDS: Final = {
    RejectReason.NO_MATCH: "no-match",
    RejectReason.EXPIRED: "expired",
    RejectReason.CASH_TOO_LOW: "funds",
}


def _lease_words(advert: SignedAdvert) -> tuple[bytes, int, int]:
    ask = advert.body.ask.payload
    return ask.provider.raw, ask.index, ask.seq
