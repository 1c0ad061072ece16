"""Asks that serve group buys: those whose matcher is GroupBuy, one a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.group_buy import CampaignOffer
from cloud_gpu.protocol.group_reports import LockedPledge
from cloud_gpu.protocol.lease import MachineKey, MachineStatus
from cloud_gpu.protocol.orders import Ask, AskId, SignedAdvert
from cloud_gpu.protocol.settlement import bond_needed
from cloud_gpu.protocol.signing import Verified
from cloud_gpu.protocol.values import Address
from market.books.book import Book, is_newer
from market.books.ledger import Ledger
from market.doors.group_door import check_group_ask
from market.rules import MarketRules


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAsk:
    """An ask at rest."""

    id: AskId
    ask: Verified[Ask]
    advert: SignedAdvert

    @property
    def machine(self) -> MachineKey:
        """What it is for."""
        return self.ask.payload.machine

    @property
    def rank(self) -> tuple[int, AskId]:
        """Cheapest first: who asks less is served first, though all are paid the same."""
        return self.ask.payload.min_price_per_hour.value, self.id


class GroupAsks:
    """Changes only by the calls below."""

    def __init__(self) -> None:
        self._asks: dict[MachineKey, GroupAsk] = {}
        self._refused: dict[AskId, int] = {}

    def examine(
        self, advert: SignedAdvert, *, rules: MarketRules, ledger: Ledger, at: int
    ) -> GroupAsk | Rejection:
        """What would rest here if this advert were heard now. Rejects as `check_group_ask`, and
        DUPLICATE.
        """
        payload = advert.body.ask.payload
        known = self._asks.get(payload.machine)
        is_old = known is not None and not is_newer(advert, known.advert)
        if is_old or payload.id in self._refused:
            found = "an ask no newer than the one at rest, or refused by GroupBuy before"
            return Rejection(
                reason=RejectReason.DUPLICATE, field="ask", found=found, needed="a newer one"
            )
        verified = check_group_ask(advert, rules=rules, ledger=ledger, at=at)
        if isinstance(verified, Rejection):
            return verified
        return GroupAsk(id=payload.id, ask=verified, advert=advert)

    def put(self, ask: GroupAsk) -> None:
        """An examined ask takes the place of its machine's earlier one."""
        self._asks[ask.machine] = ask

    def of(self, machine: MachineKey) -> GroupAsk | None:
        """A machine's ask."""
        return self._asks.get(machine)

    def refuse(self, ask: GroupAsk) -> None:
        """GroupBuy would not open it: never take it again."""
        self._refused[ask.id] = ask.ask.payload.start_by
        if self._asks.get(ask.machine) == ask:
            del self._asks[ask.machine]

    def expire(self, at: int) -> set[int]:
        """Drop what has ended; returns the products of which there is less."""
        over = [each for each in self._asks.values() if each.ask.payload.start_by <= at]
        for each in over:
            del self._asks[each.machine]
        self._refused = {ask: end for ask, end in self._refused.items() if end > at}
        return {each.ask.payload.product for each in over}

    def able(
        self, offer: CampaignOffer, *, rules: MarketRules, ledger: Ledger, book: Book, at: int
    ) -> list[GroupAsk]:
        """Asks by which a campaign could open leases now, in the order of service."""
        found = (
            each
            for each in self._asks.values()
            if _fits(each.ask.payload, offer, ledger, at + rules.inclusion_s)
            and not _is_promised(each.machine, offer, ledger, at + rules.start_window_s)
            and book.holder(each.machine) is None
        )
        return sorted(found, key=lambda each: each.rank)

    def rows(self) -> list[list[object]]:
        """Everything in it in one fixed order, for a digest of the state."""
        asks: list[object] = [[str(key), each.id] for key, each in sorted(self._asks.items())]
        refused: list[object] = [[str(ask), end] for ask, end in sorted(self._refused.items())]
        return [asks, refused]


def _fits(ask: Ask, offer: CampaignOffer, ledger: Ledger, at: int) -> bool:
    """As `LeaseBook.openPledged` decides, but for buyer and signature."""
    campaign = offer.campaign
    row = ledger.machines.get(ask.machine)
    product = ledger.products.get(campaign.product)
    return (
        row is not None
        and product is not None
        and row.status is MachineStatus.FREE
        and row.next_seq == ask.seq
        and row.product == ask.product == campaign.product
        and ask.min_price_per_hour <= campaign.price_per_hour
        and ask.min_duration <= campaign.duration <= ask.max_duration
        and ask.start_by >= at
        and ledger.fee_of(campaign.market_id) <= ask.max_fee_bps
        and bond_needed(campaign.cost(product.slice_gpus), product.min_bond) <= row.free_bond
        and (not offer.providers or ask.provider in offer.providers)
    )


def _is_promised(machine: MachineKey, offer: CampaignOffer, ledger: Ledger, by: int) -> bool:
    """Whether a lease that begins `by` then, Unix seconds, could run into a future's window."""
    promised = ledger.futures.promised_from(machine)
    return promised is not None and by + offer.campaign.duration > promised


def served(pledges: Sequence[LockedPledge], asks: Sequence[GroupAsk]) -> list[GroupAsk]:
    """The asks to close a campaign with: the n-th serves the n-th slice, of pledges by place.

    As many as can be: nobody is served by its own machine, so an ask that its owner cannot take
    changes places with an earlier one that it can.
    """
    buyers = [each.buyer for each in pledges for _ in range(each.slices)]
    left, chosen = list(asks), list[GroupAsk]()
    for buyer in buyers:
        place = next((n for n, each in enumerate(left) if each.machine.provider != buyer), None)
        if place is not None:
            chosen.append(left.pop(place))
            continue
        swap = _swap(buyer, buyers, chosen) if left else None
        if swap is None:
            break
        chosen.append(chosen[swap])
        chosen[swap] = left.pop(0)
    return chosen


def _swap(buyer: Address, buyers: Sequence[Address], chosen: Sequence[GroupAsk]) -> int | None:
    """A slice whose ask `buyer` can take, and which can take an ask of `buyer`'s for it."""
    return next(
        (
            n
            for n, each in enumerate(chosen)
            if each.machine.provider != buyer and buyers[n] != buyer
        ),
        None,
    )
