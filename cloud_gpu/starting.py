"""From a funded lease to a running one: the part of a buyer that meets the node.

The node's Ready is held against what was signed for (terms, profile, the report's digest) before
the meter starts. What fails the check is never accepted, and its money comes back when the start
deadline has passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cloud_gpu.counterpart import less_than_advertised, node_of
from cloud_gpu.protocol.calls import Begin, ExpireLease, RefundUnstarted
from cloud_gpu.protocol.effects import AskAboutBid, BuyerEffect, Connect, Send, Transact
from cloud_gpu.protocol.identity import OnlyKey, PeerId
from cloud_gpu.protocol.lease import LeaseTerms
from cloud_gpu.protocol.messages import AcceptGiven, OpenSession, ReadyOffered, RuntimeReport
from cloud_gpu.protocol.orders import Advert, Bid, SignedAdvert, SignedBid
from cloud_gpu.protocol.signing import Signed, Verified, verify
from cloud_gpu.protocol.units import GpuSeconds, Instant, cost_down
from cloud_gpu.protocol.voucher import Accept
from cloud_gpu.rhythm import ChainTime, Rhythm
from cloud_gpu.spending import Purse

_WAIT_MS_MIN: Final = 250
"""A node hears of its lease a moment later than we do; an image may take it minutes."""


class Start:
    """One funded lease until it begins, or until its start deadline has passed."""

    def __init__(
        self,
        terms: LeaseTerms,
        order: SignedBid,
        *,
        gpus: int,
        purse: Purse,
        peer: PeerId,
        rhythm: Rhythm,
        time: ChainTime,
    ) -> None:
        self.terms, self.order = terms, order
        self._gpus = gpus
        self._breach = breach(order.bid.payload, terms, gpus)
        self._purse, self._own, self._rhythm, self._time = purse, peer, rhythm, time
        self.advert: Advert | None = None
        self.keys: OnlyKey | None = None
        self.offer: ReadyOffered | None = None
        self.accept: Signed[Accept] | None = None
        self.doubt = self._breach or ""
        """Why this lease is not accepted, in words; empty: nothing speaks against it."""
        self._again_at: Instant = 0
        self._wait_ms = _WAIT_MS_MIN
        self._refund_at: Instant = 0
        self._begun_at: Instant = 0
        self.began_at = 0
        """When the chain began it, Unix seconds; 0: it did not."""

    @property
    def report(self) -> RuntimeReport | None:
        """What the node prepared."""
        return self.offer.report if self.offer else None

    @property
    def node(self) -> PeerId | None:
        """The node's peer, once known."""
        return self.advert.peer if self.advert else None

    @property
    def counterpart(self) -> tuple[PeerId, OnlyKey]:
        """The node's peer and key; asked for only once they are known."""
        assert self.advert is not None
        assert self.keys is not None
        return self.advert.peer, self.keys

    @property
    def deadline(self) -> Instant:
        """When `on_time` has something to do."""
        return self._again_at

    @property
    def is_late(self) -> bool:
        """Whether the chain is past the start deadline: nobody can begin the lease any more."""
        return self._time.block_at > self.terms.start_deadline

    def met(self, advert: SignedAdvert, now: Instant) -> list[BuyerEffect]:
        """The lease's ask is known; keep in touch with its node."""
        if self.advert is not None:
            return []
        keys = node_of(advert, self.terms.key.provider, self._purse.domain, self._time.at(now))
        if isinstance(keys, str):
            self.doubt = f"the market shows an advert that is not the provider's: {keys}"
            return []
        self.doubt = self._breach or ""
        self.keys, self.advert = keys, advert.body
        self._again_at, self._wait_ms = 0, _WAIT_MS_MIN
        return [Connect(peer=advert.body.peer, addresses=advert.body.addresses)]

    def on_time(self, now: Instant) -> list[BuyerEffect]:
        """What has not been answered is said again; past the deadline the money is called back."""
        if now < self._again_at:
            return []
        self._again_at = now + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, 2 * self._rhythm.resend)
        if self.is_late:
            return self._refund(now)
        if self.advert is None or self.keys is None:
            return [AskAboutBid(bid=self.order.bid.payload.id)]
        if self.accept is not None:
            sent = Send(peer=self.advert.peer, message=AcceptGiven(accept=self.accept))
            return [sent, *self._begin(now)]
        return [self.greeting()]

    def greeting(self) -> Send:
        """Introduce our peer to the node, by the buyer's signature."""
        node, _ = self.counterpart
        access = self._purse.access(
            self.terms.key,
            node=node,
            own=self._own,
            expiry=self.terms.start_deadline + self.terms.duration + self._rhythm.claim_s,
        )
        return Send(peer=node, message=OpenSession(access=access))

    def offered(self, offer: ReadyOffered, now: Instant) -> list[BuyerEffect]:
        """The node has the container prepared: check it, and start the meter if all is as asked."""
        if self.accept is not None or self.advert is None or self.keys is None:
            return []
        if self.is_late or self._breach:
            return []
        found = self._fault(offer, self.advert, self.keys, now)
        if found:
            self.doubt = f"the node's Ready is not accepted: {found}"
            return []
        self.doubt = ""
        self.offer = offer
        started_at = max(self._time.block_at, self.terms.opened_at)
        self.accept = self._purse.accept(self.terms.key, started_at)
        self._wait_ms = _WAIT_MS_MIN
        self._again_at = now + self._rhythm.resend
        return [Send(peer=self.advert.peer, message=AcceptGiven(accept=self.accept))]

    def began_not(self) -> None:
        """A longer chain took the beginning back: say again what led to it."""
        self._again_at = self._begun_at = self.began_at = 0

    def _fault(
        self, offer: ReadyOffered, advert: Advert, keys: OnlyKey, now: Instant
    ) -> str | None:
        ready, report = offer.ready.payload, offer.report
        if ready.lease != self.terms.key or report.lease != self.terms.key:
            return f"it is about lease {ready.lease}, needed {self.terms.key}"
        signed = verify(
            offer.ready,
            self._purse.domain,
            account=self.terms.key.provider,
            keys=keys,
            at=self._time.at(now),
        )
        if not isinstance(signed, Verified):
            return str(signed)
        if ready.runtime_hash != report.digest:
            return f"runtime hash: found {report.digest}, signed {ready.runtime_hash}"
        if report.isolation is not report.profile.isolation:
            return f"isolation: found {report.isolation}, profile says {report.profile.isolation}"
        if less := less_than_advertised(report.profile, advert.profile):
            return less
        if (count := len(report.profile.gpus)) != self._gpus:
            return f"GPUs: found {count}, needed {self._gpus}"
        return self.order.terms.unmet_by(report.profile, self.terms.key.provider)

    def _begin(self, now: Instant) -> Sequence[BuyerEffect]:
        # The node posts it at once. One that does not could later claim it never had our Accept,
        # and a no-show would be ours: so we post it ourselves while there is time.
        assert self.accept is not None
        assert self.offer is not None
        left = self.terms.start_deadline - self._time.at(now)
        window = self.terms.start_deadline - self.terms.opened_at
        if 2 * left > window or now < self._begun_at:
            return []
        self._begun_at = now + self._rhythm.chain_patience
        return [Transact(call=Begin(ready=self.offer.ready, accept=self.accept))]

    def _refund(self, now: Instant) -> list[BuyerEffect]:
        if now < self._refund_at:
            return []
        self._refund_at = now + self._rhythm.chain_patience
        if not self.began_at:
            return [Transact(call=RefundUnstarted(lease=self.terms.key))]
        # Nobody is paid for it, and its node does not speak: it can only run out.
        expires_at = self.terms.ends_at(self.began_at) + self._rhythm.claim_s
        is_over = self._time.block_at > expires_at
        return [Transact(call=ExpireLease(lease=self.terms.key))] if is_over else []


def breach(bid: Bid, terms: LeaseTerms, gpus: int) -> str | None:
    """What of an opened lease, of so many of the bid's GPUs, is outside it; None: nothing.

    The contract checks all of it; a chain node that tells otherwise is not to be paid through.
    """
    most = cost_down(bid.max_price_per_hour, GpuSeconds(gpus * bid.duration))
    if terms.buyer != bid.buyer:
        return f"buyer: found {terms.buyer}, needed {bid.buyer}"
    if terms.duration != bid.duration:
        return f"duration: found {terms.duration} s, needed {bid.duration} s"
    if terms.cap > most:
        return f"cap: found {terms.cap.value}, needed at most {most.value} base units"
    if not bid.provider.is_zero and terms.key.provider != bid.provider:
        return f"provider: found {terms.key.provider}, needed {bid.provider}"
    return None
