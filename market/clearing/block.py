"""Lane B: one auction of sealed bids against the free asks, for the window that begins with it.

Who gets what: the most surplus, (limit - ask) x GPU-seconds, by greedy service of the most valuable
bids and a seeded search after it. What they pay: one price a product, or place (`block_prices`). An
ask opens one lease and binds nobody to wait, so no auction deals in windows after its own: a bid
that is not served stays for the next until its start window ends. Pure; the same orders and seed
give the same matches in any order and on any machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.auctions import AuctionLoss, LossReason
from cloud_gpu.protocol.orders import AskId, BidId
from cloud_gpu.protocol.units import Instant, Price, TokenAmount, instant
from cloud_gpu.protocol.values import Address, Digest, keccak256
from market.books.book import Nonce, RestingAsk, RestingBid
from market.clearing.block_prices import Match, Priced, Rival, match_of, most_locked, priced
from market.clearing.fitting import Conditions
from market.clearing.gangs import best_gang
from market.clearing.on_demand import Fill
from market.clearing.scoring import is_by_price

if TYPE_CHECKING:
    from market.clearing.block_search import Fits

STEPS: Final = 10_000
"""Of the search, never seconds."""
AGAIN_MAX: Final = 16
"""How often all are served again without bids that clash in a nonce or in a buyer's cash."""
_HOUR_S = 3_600

Machines = tuple[RestingAsk, ...]
"""What one bid takes."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a bid got nothing."""

    bid: RestingBid
    why: LossReason
    price: Price | None = None
    """The least that was paid for a machine which fits it."""
    needs: TokenAmount | None = None
    """What its buyer's cash does not cover."""
    left: int | None = None
    """Of that cash, what the limits of the buyer's winners leave; None: no account."""
    outbids_at: Price | None = None
    """The least limit at which it comes before somebody who got a machine that fits it; None for a
    gang, which may need several of them, and where no limit may be so high."""

    @property
    def public(self) -> AuctionLoss:
        """What is published of it."""
        return AuctionLoss(bid=self.bid.id, why=self.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockClass:
    """Matches that pay one price."""

    product: int
    regions: tuple[str, ...]
    """Where their machines are, if the product has no one price; else empty."""
    price: Price | None
    """None: none supports all these matches, each has its own."""
    fills: tuple[Fill, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockClearing:
    """What an auction decided."""

    classes: tuple[BlockClass, ...]
    """By product and regions."""
    losses: tuple[Loss, ...]
    """By bid."""
    surplus: TokenAmount
    """Limits less asks, of all matches."""

    @property
    def fills(self) -> tuple[Fill, ...]:
        """All of them, class by class."""
        return tuple(fill for each in self.classes for fill in each.fills)


def window_of(now: Instant, block_s: int) -> int:
    """The window that an auction deals in which closes now: its begin, Unix seconds."""
    return now // instant(block_s) * block_s


def seed_of(
    entered: Digest,
    window: int,
    bids: Iterable[RestingBid],
    asks: Mapping[int, Sequence[RestingAsk]],
) -> Digest:
    """The search's: keccak256(newest entry seed || uint64 window || ids of all orders, sorted).

    What entered last is part of it: whoever knows all orders does not know it before.
    """
    ids = [bid.id.raw for bid in bids]
    ids += [ask.id.raw for ladder in asks.values() for ask in ladder]
    return keccak256(entered.raw + window.to_bytes(8, "big") + b"".join(sorted(ids)))


def clear_block(
    bids: Iterable[RestingBid],
    asks: Mapping[int, Sequence[RestingAsk]],
    cash: Mapping[Address, int],
    given: Conditions,
    *,
    block_s: int,
    seed: Digest,
) -> BlockClearing:
    """Clear an auction.

    `bids` without those of whose nonce another is on its way; `asks` per product, free ones only,
    cheapest first; `cash` of the buyers in base units, less what openings on their way will lock. A
    buyer's cash must cover its limits, since the price is not known before.
    """
    from market.clearing.block_search import Fits  # numba, which API workers do without

    ranked = sorted(bids, key=lambda bid: (bid.rank, bid.id))
    auction = _Auction(ranked, Fits(asks, given), cash, given)
    auction.search(block_s, int.from_bytes(seed.raw[:8], "big"))
    auction.choose_by_score()
    auction.fill_in()
    return auction.priced()


class _Auction:
    """Who has which machines while an auction is cleared."""

    def __init__(
        self,
        ranked: Sequence[RestingBid],
        fits: Fits,
        cash: Mapping[Address, int],
        given: Conditions,
    ) -> None:
        self._ranked, self._fits, self._cash, self._given = ranked, fits, cash, given
        self._by_value = sorted(ranked, key=lambda bid: -_value(bid))
        self._needs = {bid.id: most_locked(bid, given).value for bid in ranked}
        self._taken: dict[BidId, Machines] = {}
        self._used: set[AskId] = set()
        self._served: set[Nonce] = set()
        self._left = dict(cash)
        """What each buyer's winning limits leave of its cash."""

    # Who gets what.

    def search(self, block_s: int, seed: int) -> None:
        """Serve and search; of winners that clash those of less surplus leave, and all again."""
        from market.clearing.block_search import served

        left = [bid for bid in self._ranked if self._is_covered(bid)]
        taken: dict[BidId, Machines] = {}
        clashing: set[BidId] = set()
        for _ in range(AGAIN_MAX):
            taken = served(left, self._fits, block_s=block_s, seed=seed, steps=STEPS)
            clashing = self._clashing(left, taken)
            if not clashing:
                break
            left = [bid for bid in left if bid.id not in clashing]
        for bid in left:
            if bid.id in taken:
                self._give(bid, taken[bid.id])

    def _clashing(self, left: Sequence[RestingBid], taken: Mapping[BidId, Machines]) -> set[BidId]:
        """Winners whose nonce or cash a better one has, and that one's other alternatives."""
        cash, best = dict(self._cash), dict[Nonce, BidId]()
        clashing: set[BidId] = set()
        doubled: set[Nonce] = set()
        winners = [bid for bid in left if bid.id in taken]
        for bid in sorted(winners, key=lambda bid: -_surplus(bid, taken[bid.id])):
            buyer, needs = bid.nonce[0], self._needs[bid.id]
            if bid.nonce in best:
                doubled.add(bid.nonce)
            elif needs > cash[buyer]:
                clashing.add(bid.id)
            else:
                best[bid.nonce] = bid.id
                cash[buyer] -= needs
        return clashing | {
            bid.id for bid in left if bid.nonce in doubled and best[bid.nonce] != bid.id
        }

    def choose_by_score(self) -> None:
        """A bid whose terms weigh more than the price moves to free machines that are better."""
        for bid in self._by_value:
            if bid.id in self._taken and not is_by_price(bid, self._given.attributes):
                self._used -= {ask.id for ask in self._taken[bid.id]}
                best = self._best(bid, self._free_for(bid))
                assert best is not None, "it has some"
                self._taken[bid.id] = best
                self._used |= {ask.id for ask in best}

    def fill_in(self) -> None:
        """What is free after all goes to whom it fits, the most valuable first."""
        for bid in self._by_value:
            if bid.nonce in self._served or not self._is_covered(bid):
                continue
            best = self._best(bid, self._free_for(bid))
            if best is not None:
                self._give(bid, best)

    def _best(self, bid: RestingBid, asks: Sequence[RestingAsk]) -> Machines | None:
        """Of asks that fit one by one, cheapest first."""
        if asks and not self._fits.is_gang(bid) and is_by_price(bid, self._given.attributes):
            return (asks[0],)
        gang = best_gang(bid, asks, self._given)
        return None if gang is None else gang.asks

    def _is_covered(self, bid: RestingBid) -> bool:
        return self._needs[bid.id] <= self._left.get(bid.nonce[0], -1)

    def _give(self, bid: RestingBid, machines: Machines) -> None:
        self._taken[bid.id] = machines
        self._used |= {ask.id for ask in machines}
        self._served.add(bid.nonce)
        self._left[bid.nonce[0]] -= self._needs[bid.id]

    def _free_for(self, bid: RestingBid) -> list[RestingAsk]:
        return [ask for ask in self._fits.within(bid) if ask.id not in self._used]

    # What it costs, and why others got nothing.

    def priced(self) -> BlockClearing:
        """The outcome."""
        unable = {bid.id: self._unable(bid) for bid in self._ranked if bid.id not in self._taken}
        matches: dict[int, list[Match]] = {}
        rivals: dict[int, list[Rival]] = {}
        for bid in self._ranked:
            product = bid.bid.payload.product
            if bid.id in self._taken:
                match = match_of(bid, self._taken[bid.id], self._given)
                matches.setdefault(product, []).append(match)
            elif unable[bid.id] is None and not self._fits.is_gang(bid):
                rivals.setdefault(product, []).append(self._rival(bid))
        classes = [
            _class(product, part)
            for product, found in sorted(matches.items())
            for part in priced(found, [each for each in rivals.get(product, ()) if each.asks])
        ]
        classes.sort(key=lambda each: (each.product, each.regions))
        fills = [fill for each in classes for fill in each.fills]
        won = dict(row for fill in fills for row in _won_by(fill))
        losses = [
            unable[bid.id] or self._beaten(bid, won)
            for bid in self._ranked
            if bid.id not in self._taken
        ]
        surplus = sum(_surplus(fill.bid, fill.asks) for fill in fills)
        return BlockClearing(
            classes=tuple(classes),
            losses=tuple(sorted(losses, key=lambda loss: loss.bid.id)),
            surplus=TokenAmount(surplus // _HOUR_S),
        )

    def _unable(self, bid: RestingBid) -> Loss | None:
        """Why it was no rival of the winners, whatever their prices."""
        if bid.nonce in self._served:
            return Loss(bid, LossReason.ALTERNATIVE)
        if not self._is_covered(bid):
            needs, left = TokenAmount(self._needs[bid.id]), self._left.get(bid.nonce[0])
            return Loss(bid, LossReason.CASH, needs=needs, left=left)
        if self._best(bid, self._fits.within(bid)) is None:
            return Loss(bid, LossReason.INFEASIBLE)
        return None

    def _rival(self, bid: RestingBid) -> Rival:
        """One that wants a single machine."""
        asks = frozenset(ask.id for ask in self._fits.within(bid) if ask.id in self._used)
        return Rival(bid.bid.payload.max_price_per_hour, asks)

    def _beaten(self, bid: RestingBid, won: Mapping[AskId, _Won]) -> Loss:
        lost = [won[ask.id] for ask in self._fits.within(bid) if ask.id in won]
        least = min((each.price for each in lost), default=None)
        is_price = least is not None and bid.bid.payload.max_price_per_hour <= least
        why = LossReason.PRICE if is_price else LossReason.PARADOXICAL
        outbids = None if self._fits.is_gang(bid) else _outbids(bid, lost)
        return Loss(bid, why, price=least, outbids_at=outbids)


@dataclass(frozen=True, slots=True)
class _Won:
    """A machine that somebody got; the sums are the winner's, once for all its losers."""

    price: Price
    asked: int
    value: int
    surplus: int


def _won_by(fill: Fill) -> list[tuple[AskId, _Won]]:
    value, surplus = _value(fill.bid), _surplus(fill.bid, fill.asks)
    return [
        (ask.id, _Won(fill.price, ask.ask.payload.min_price_per_hour.value, value, surplus))
        for ask in fill.asks
    ]


def _outbids(bid: RestingBid, lost: Sequence[_Won]) -> Price | None:
    """The least limit at which its value is above a winner's, and its surplus on that machine."""
    quantity = bid.bid.payload.quantity.value
    worth = min((max(w.value, w.surplus + w.asked * quantity) for w in lost), default=None)
    if worth is None:
        return None
    limit = (worth // (quantity * limits.PRICE_TICK) + 1) * limits.PRICE_TICK
    return Price(limit) if limit <= limits.PRICE_MAX else None


def _class(product: int, part: Priced) -> BlockClass:
    return BlockClass(
        product=product,
        regions=part.regions,
        price=part.price,
        fills=tuple(
            Fill(match.bid, match.asks, price, match.locked(price))
            for match, price in zip(part.matches, part.prices, strict=True)
        ),
    )


def _value(bid: RestingBid) -> int:
    return bid.bid.payload.max_price_per_hour.value * bid.bid.payload.quantity.value


def _surplus(bid: RestingBid, machines: Machines) -> int:
    """In base units x seconds an hour."""
    limit, duration = bid.bid.payload.max_price_per_hour.value, bid.bid.payload.duration
    return sum(
        (limit - ask.ask.payload.min_price_per_hour.value) * ask.gpus * duration for ask in machines
    )
