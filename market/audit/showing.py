"""Chooses the rows of one round that a proof shows: as few as its claim needs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.rounds import (
    AccountCondition,
    MachineCondition,
    PlacedAsk,
    PlacedBid,
    PlacedFuture,
    ProductCondition,
    RoundFacts,
    Taken,
)
from cloud_gpu.protocol.ties import subject_of_ask, subject_of_bid
from cloud_gpu.protocol.units import Instant
from cloud_gpu.protocol.values import Digest
from market.audit.proofs import ENTERED, Exhibit, ProofFails
from market.audit.rebuilding import conditions_of, resting_ask, resting_bid
from market.books.book import RestingAsk, RestingBid
from market.clearing.fitting import fits
from market.clearing.gangs import best_gang
from market.lanes.round_lists import RoundLists, tree_of
from market.rules import MarketRules


def place_exhibit(name: str, entries: Sequence[bytes], place: int, *, header: int = 0) -> Exhibit:
    """One entry of a list, with its path."""
    return Exhibit(
        header=header,
        list=name,
        entry=entries[place].decode(),
        path=tree_of(entries).path(place),
    )


def entered_exhibits(entered: Sequence[Digest], subject: Digest) -> list[Exhibit]:
    """Where a subject stands among those that entered, or its neighbours there."""
    tree = tree_of([each.raw for each in entered])
    place = bisect_left(entered, subject)
    wanted = (place,) if place < len(entered) and entered[place] == subject else (place - 1, place)
    return [
        Exhibit(header=1, list=ENTERED, entry=str(entered[each]), path=tree.path(each))
        for each in wanted
        if 0 <= each < len(entered)
    ]


class Showing:
    """Exhibits of one round, each once."""

    def __init__(self, lists: RoundLists, facts: RoundFacts, rules: MarketRules | None) -> None:
        self._lists, self._facts, self._rules = lists, facts, rules
        self._entries: dict[str, list[bytes]] = {}
        self._keys: dict[str, list[str]] = {}
        self._shown: dict[tuple[str, int], Exhibit] = {}

    @property
    def exhibits(self) -> tuple[Exhibit, ...]:
        """So far."""
        return tuple(self._shown.values())

    # By claim.

    def ranked(self, order: Digest) -> tuple[Instant, Digest]:
        """Show an order; the batch that it says, and what its tie key is drawn for."""
        row = self._lists.orders.rows.get(str(order)) or self._lists.asks.rows.get(str(order))
        if row is None:
            raise ProofFails(f"order {order} did not take part")
        self._key("asks" if isinstance(row, PlacedAsk) else "orders", row.key)
        match row:
            case PlacedBid():
                return row.batch, subject_of_bid(row.order.bid.payload, row.order.terms)
            case PlacedAsk():
                return row.batch, subject_of_ask(row.advert.body.ask.payload)
            case PlacedFuture():
                return row.batch, row.order.payload.id

    def twice(self, order: Digest) -> None:
        """The fills that share an ask, a machine or a nonce with those of a bid, or an ask's."""
        fills = self._fills()
        own = [each for each in fills if order in (each.bid, each.ask)]
        machines = {self._machine(each) for each in own}
        nonces = {self._nonce(each) for each in own}
        for place, each in enumerate(fills):
            is_same = self._machine(each) in machines or self._nonce(each) in nonces
            if is_same or each.ask in {one.ask for one in own}:
                self._place("fills", place)
                self._key("asks", str(each.ask))
                self._key("orders", str(each.bid))

    def limit(self, order: Digest) -> None:
        """A bid, all that it took, and the conditions of that."""
        self._key("orders", str(order))
        for place, each in enumerate(self._fills()):
            if each.bid == order:
                self._place("fills", place)
                self._key("asks", str(each.ask))
                self._conditions_of(str(each.ask))

    def service(self, order: Digest) -> None:
        """What a bid got, and the best machines that were open to it."""
        self.limit(order)
        self._key("unmatched", str(order))
        bid = self._bid(order)
        if bid is None:
            raise ProofFails(f"bid {order} did not take part")
        self._key("conditions", AccountCondition.key_of(bid.nonce[0]))
        takers = {each.ask: each.bid for each in self._fills()}
        own = [ask for ask, taker in takers.items() if taker == order]
        assert self._rules is not None, "claims about service need rules"
        rows = list(self._lists.conditions.rows.values())
        given = conditions_of(self._facts, self._rules, rows)
        open_ = []
        for ask in self._asks(bid.bid.payload.product):
            taker = takers.get(ask.id)
            rival = self._bid(taker) if taker is not None and taker != order else None
            if (taker is None or taker == order or (rival and rival.rank > bid.rank)) and fits(
                bid, ask, given
            ):
                open_.append(ask)
        gang = best_gang(bid, open_, given)
        for ask in gang.asks if gang is not None else ():
            self._key("asks", str(ask.id))
            self._conditions_of(str(ask.id))
            if ask.id in own:
                continue
            self._key("fills", str(ask.id))
            if (taker := takers.get(ask.id)) is not None:
                self._key("orders", str(taker))

    # Rows.

    def _fills(self) -> list[Taken]:
        return [each for each in self._lists.fills if isinstance(each, Taken)]

    def _machine(self, fill: Taken) -> object:
        row = self._lists.asks.rows.get(str(fill.ask))
        return row.advert.body.ask.payload.machine if row is not None else fill.ask

    def _nonce(self, fill: Taken) -> object:
        row = self._lists.orders.rows.get(str(fill.bid))
        bid = row.order.bid.payload if isinstance(row, PlacedBid) else None
        return (bid.buyer, bid.nonce) if bid is not None else fill.bid

    def _bid(self, order: Digest) -> RestingBid | None:
        row = self._lists.orders.rows.get(str(order))
        if not isinstance(row, PlacedBid):
            return None
        found = resting_bid(row, self._facts.domain)
        return found if isinstance(found, RestingBid) else None

    def _asks(self, product: int) -> list[RestingAsk]:
        found = []
        for row in self._lists.asks.rows.values():
            if row.advert.body.ask.payload.product == product:
                ask = resting_ask(row, self._facts.domain)
                if not isinstance(ask, Rejection):
                    found.append(ask)
        return sorted(found, key=lambda ask: (ask.rank, ask.machine))

    def _conditions_of(self, ask: str) -> None:
        row = self._lists.asks.rows.get(ask)
        if row is not None:
            payload = row.advert.body.ask.payload
            self._key("conditions", MachineCondition.key_of(payload.machine))
            self._key("conditions", ProductCondition.key_of(payload.product))

    # Lists.

    def _key(self, name: str, key: str) -> None:
        """Show the row with this key, or the neighbours between which it is missing."""
        keys = self._sorted(name)
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            self._place(name, place)
            return
        for each in (place - 1, place):
            if 0 <= each < len(keys):
                self._place(name, each)

    def _place(self, name: str, place: int) -> None:
        self._sorted(name)
        self._shown[name, place] = place_exhibit(name, self._entries[name], place)

    def _sorted(self, name: str) -> list[str]:
        if name not in self._keys:
            self._keys[name] = self._lists.keys(name)
            self._entries[name] = self._lists.entries(name)
        return self._keys[name]
