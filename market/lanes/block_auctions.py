"""Lane B's life: when an auction closes, what it posts, and what it says to whom it gave nothing.

A match becomes an opening like lane A's. One that fails frees its machines, and its bid waits for
the next auction. Nothing here tells what a bid wants before its auction has cleared; then all who
took part are published, so that anybody can clear it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cloud_gpu.protocol.auctions import (
    AuctionClass,
    AuctionFill,
    AuctionReport,
    LossReason,
)
from cloud_gpu.protocol.effects import ReportAuction
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.match import BidState, Explanation
from cloud_gpu.protocol.rounds import Lane
from cloud_gpu.protocol.units import Instant, format_tokens, instant
from cloud_gpu.protocol.values import Digest
from market.books.book import RestingAsk
from market.clearing.block import (
    BlockClass,
    BlockClearing,
    Loss,
    clear_block,
    seed_of,
    window_of,
)
from market.clearing.explaining import explain, short_of_cash
from market.clearing.fitting import Conditions
from market.clearing.on_demand import Fill
from market.lanes.bids_record import BidsRound, auctioned
from market.lanes.floor import Floor
from market.lanes.leasing import openings_for
from market.lanes.rounds import EXPLAINED_BIDS_MAX, Rounds, compared

KEPT = 24
"""Auctions that are told again at a start; the outside world may have missed the last."""


class BlockAuctions:
    """The auctions of lane B, one window after the other."""

    def __init__(self, floor: Floor, rounds: Rounds) -> None:
        self._floor, self._rounds = floor, rounds
        self._told: list[AuctionReport] = []
        self.ends: Instant | None = None
        """When the open auction closes; None: no sealed bid waits, no timer."""

    @property
    def deadline(self) -> Instant | None:
        """When the open auction closes."""
        return self.ends

    def plan(self) -> None:
        """Open an auction if a sealed bid waits and the chain is heard."""
        floor = self._floor
        if self.ends is None and floor.book.has_sealed and floor.is_ready:
            length = floor.rules.block_s
            self.ends = instant(window_of(floor.now, length) + length)

    def pass_time(self) -> None:
        """Clear the auction whose time is over."""
        if self.ends is None or self._floor.now < self.ends:
            return
        self.ends = None
        if self._floor.is_ready:
            self._end(window_of(self._floor.now, self._floor.rules.block_s))

    def reset(self) -> None:
        """The rules changed."""
        self.ends = None

    def restated(self) -> list[ReportAuction]:
        """The last auctions, for an outside world that may have missed some."""
        return [ReportAuction(report=report) for report in self._told]

    def rows(self) -> list[object]:
        """Everything in it in one fixed order, for a digest of the state."""
        return [self.ends, list(self._told)]

    # An auction.

    def _end(self, window: int) -> None:
        floor = self._floor
        floor.book.end_batch()
        floor.shelf.expire(floor.now, floor.at)
        busy = self._rounds.busy()
        bids = [
            bid
            for bid in floor.book.sealed()
            if bid.not_before <= floor.now and bid.nonce not in busy
        ]
        if not bids:
            return
        asks = {
            product: floor.book.available(product, floor.ledger, floor.at)
            for product in sorted({bid.bid.payload.product for bid in bids})
        }
        given = self._rounds.conditions(bids, asks)
        cash = floor.free_cash({bid.nonce[0] for bid in bids})
        seed = seed_of(floor.book.batches.seed, window, bids, asks)
        clearing = clear_block(bids, asks, cash, given, block_s=floor.rules.block_s, seed=seed)
        self._post(clearing, window)
        self._explain(clearing, window, asks, given)
        self._tell(clearing, window, seed, asks)
        self._rounds.publish(
            Lane.BLOCK,
            BidsRound(
                bids=bids,
                asks=asks,
                cash=cash,
                given=given,
                outcome=auctioned(clearing),
                busy=busy,
            ),
        )

    def _post(self, clearing: BlockClearing, window: int) -> None:
        floor = self._floor
        openings = openings_for(clearing.fills, floor.rules, floor.now)
        why = {
            fill.bid.id: Explanation(asks=len(fill.asks), price=_why(fill, of, window))
            for of in clearing.classes
            for fill in of.fills
        }
        floor.post(openings, why)

    def _explain(
        self,
        clearing: BlockClearing,
        window: int,
        asks: Mapping[int, Sequence[RestingAsk]],
        given: Conditions,
    ) -> None:
        taken_at = {
            ask.machine: fill.bid.bid.payload.max_price_per_hour
            for fill in clearing.fills
            for ask in fill.asks
        }
        for place, loss in enumerate(clearing.losses):
            bid = self._floor.book.bid(loss.bid.id)
            if bid is None or bid.state is not BidState.PENDING:
                continue
            why, how = _why_not(loss, window), None
            if place < EXPLAINED_BIDS_MAX and loss.why is not LossReason.ALTERNATIVE:
                known = None if loss.why is LossReason.INFEASIBLE else why
                why, how = explain(bid, compared(bid, asks), taken_at, given, known)
                if loss.why in (LossReason.PRICE, LossReason.PARADOXICAL):
                    how = msgspec.structs.replace(how, change=_worth_more(loss))
            self._floor.answers.explain(bid, why, how, bid.explained_in)
            now = self._floor.book.bid(bid.id)
            if bid.terms.one_round and now is not None:
                self._floor.answers.expire(now)

    def _tell(
        self,
        clearing: BlockClearing,
        window: int,
        seed: Digest,
        asks: Mapping[int, Sequence[RestingAsk]],
    ) -> None:
        products = self._floor.ledger.products
        report = AuctionReport(
            window=window,
            block_s=self._floor.rules.block_s,
            seed=seed,
            bids=len(clearing.fills) + len(clearing.losses),
            asks=sum(len(ladder) for ladder in asks.values()),
            surplus=clearing.surplus,
            classes=tuple(
                AuctionClass(
                    product=each.product,
                    gpu_class=products[each.product].gpu_class,
                    regions=each.regions,
                    price=each.price,
                    fills=tuple(
                        AuctionFill(
                            bid=fill.bid.id,
                            asks=tuple(ask.id for ask in fill.asks),
                            price=fill.price,
                        )
                        for fill in each.fills
                    ),
                )
                for each in clearing.classes
            ),
            losses=tuple(loss.public for loss in clearing.losses),
        )
        self._told = [*self._told, report][-KEPT:]
        self._floor.out.append(ReportAuction(report=report))


def _why(fill: Fill, of: BlockClass, window: int) -> str:
    limit = format_tokens(fill.bid.bid.payload.max_price_per_hour)
    price, where = format_tokens(fill.price), ", ".join(each or "no region" for each in of.regions)
    where = f" in {where}" if where else ""
    if of.price is None:
        return (
            f"No one price suits all matches{where} of auction {window}: this one pays its ask and"
            f" a share of the room up to its limit, {price} (the limit was {limit})."
        )
    return (
        f"All matches of this product{where} in auction {window} pay {price}"
        f" (the limit was {limit})."
    )


def _why_not(loss: Loss, window: int) -> Rejection:
    if loss.needs is None:
        return _lost(loss, window)
    return short_of_cash(loss.bid, loss.needs, loss.left)


def _lost(loss: Loss, window: int) -> Rejection:
    limit = format_tokens(loss.bid.bid.payload.max_price_per_hour)
    paid = "" if loss.price is None else format_tokens(loss.price)
    change = _worth_more(loss)
    if loss.why is LossReason.INFEASIBLE:  # one of more than are compared with the asks
        return Rejection(
            reason=RejectReason.NO_MATCH,
            field="bid.product",
            found=f"too few free machines that fit, in auction {window}",
            needed=f"{loss.bid.bid.payload.count} GPUs of such",
            next="Wait for the next auction, or bid with other terms as an alternative.",
        )
    if loss.why is LossReason.ALTERNATIVE:
        return Rejection(
            reason=RejectReason.NO_MATCH,
            field="bid.nonce",
            found=f"another bid of its nonce, matched in auction {window}",
            needed="none that comes before it",
            next="Nothing to do: it ends here, as it was for one round."
            if loss.bid.terms.one_round
            else "Nothing to do: it ends when the other opens, and waits if that fails.",
        )
    if loss.why is LossReason.PARADOXICAL:
        return Rejection(
            reason=RejectReason.NO_MATCH,
            field="bid.max_price_per_hour",
            found=f"{limit}: paradoxically rejected in auction {window}"
            + (f", where machines that fit went at {paid}" if paid else ""),
            needed="a block of more value (limit x GPU-hours) than those that took them",
            next=f"{change} Or wait for the next auction."
            if change
            else "Wait for the next auction, or sign a higher limit or a longer block.",
        )
    return Rejection(
        reason=RejectReason.NO_MATCH,
        field="bid.max_price_per_hour",
        found=limit,
        needed=f"above {paid or 'what others bid'}, paid in auction {window}",
        next=f"{change} Or wait for the next auction."
        if change
        else "Wait for the next auction, or sign a higher limit.",
    )


def _worth_more(loss: Loss) -> str:
    """The change that would have put it before a winner; "": a higher limit alone would not."""
    if loss.outbids_at is None or loss.outbids_at <= loss.bid.bid.payload.max_price_per_hour:
        return ""
    return f"Raise the price limit to {format_tokens(loss.outbids_at)}."
