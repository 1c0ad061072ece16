"""The asks on offer: what enters the book, what leaves it, and what the public list says.

An ask is on the list exactly while its machine could be leased by it. One for the lease after the
running one rests in the book unlisted.
"""

from __future__ import annotations

from cloud_gpu.protocol.effects import ListAsk, MarketEffect, UnlistAsk
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import Ask, AskId, SignedAdvert
from cloud_gpu.protocol.units import Instant, instant
from market.books.book import Book, RestingAsk, is_newer
from market.books.ledger import Ledger
from market.doors.intake import check_advert
from market.rules import MarketRules
from market.timers import Timers


class Shelf:
    """Asks of the book, and which of them are listed. Effects go to `out`."""

    def __init__(self, book: Book, ledger: Ledger, out: list[MarketEffect]) -> None:
        self._book, self._ledger, self._out = book, ledger, out
        self._listed: dict[MachineKey, tuple[AskId, SignedAdvert]] = {}
        self._refused: dict[AskId, int] = {}
        self._ends: Timers[MachineKey] = Timers(self._end_of)

    @property
    def listed_count(self) -> int:
        """Asks on offer."""
        return len(self._listed)

    def listed(self) -> list[ListAsk]:
        """The whole list, by machine."""
        return [
            ListAsk(ask=ask, advert=advert) for _, (ask, advert) in sorted(self._listed.items())
        ]

    def examine(
        self, advert: SignedAdvert, *, rules: MarketRules, at: int, batch: Instant
    ) -> RestingAsk | Rejection:
        """What would rest in the book if this advert were heard now.

        Rejects as `check_advert`, DUPLICATE for what is known, older than what is known, or was
        refused by the contract before, and DURATION_OUTSIDE_LIMITS for what could run into a window
        that the machine is promised for.
        """
        payload = advert.body.ask.payload
        known = self._book.ask_of(payload.machine)
        if payload.id in self._refused:
            return _duplicate("an ask that LeaseBook refused before")
        if known is not None and not is_newer(advert, known.advert):
            return _duplicate("an ask no newer than the one in the book")
        verified = check_advert(advert, rules=rules, ledger=self._ledger, at=at)
        if isinstance(verified, Rejection):
            return verified
        if (promised := self._run_into(payload, rules)) is not None:
            return Rejection(
                reason=RejectReason.DURATION_OUTSIDE_LIMITS,
                field="ask.max_duration",
                found=f"{payload.max_duration} s from {payload.start_by} on",
                needed=f"leases that are over at {promised}, when a future's window starts",
                next="Sign an ask of shorter leases, or none before the delivery.",
            )
        return RestingAsk(id=payload.id, ask=verified, advert=advert, batch=batch)

    def put(self, ask: RestingAsk, at: int) -> None:
        """An examined ask takes the place of its machine's earlier one."""
        self._book.put_ask(ask)
        self._ends.set(ask.machine)
        self.sync(ask.machine, at)

    def withhold(self, machine: MachineKey, rules: MarketRules, at: int) -> None:
        """It was named for a window: drop an ask of before whose lease could run into it."""
        known = self._book.ask_of(machine)
        if known is not None and self._run_into(known.ask.payload, rules) is not None:
            self._book.drop_ask(machine)
            self.sync(machine, at)

    def _run_into(self, ask: Ask, rules: MarketRules) -> int | None:
        """The start of a window into which the ask's longest lease could run, Unix seconds."""
        promised = self._ledger.futures.promised_from(ask.machine)
        latest_end = ask.start_by + rules.start_window_s + ask.max_duration
        return promised if promised is not None and latest_end > promised else None

    def refuse(self, ask: RestingAsk, at: int) -> None:
        """LeaseBook would not open this ask: never take it again."""
        self._refused[ask.id] = ask.ask.payload.start_by
        known = self._book.ask_of(ask.machine)
        if known is not None and known.id == ask.id:
            self._book.drop_ask(ask.machine)
        self.sync(ask.machine, at)

    def sync(self, machine: MachineKey, at: int) -> None:
        """Drop the machine's ask if it is dead, and list it exactly if it is available."""
        ask = self._book.ask_of(machine)
        if ask is not None and self._is_dead(ask, at):
            self._book.drop_ask(machine)
            ask = None
        before = self._listed.get(machine)
        if ask is not None and self._book.is_available(ask, self._ledger, at):
            now = ask.id, ask.advert
            if before != now:
                self._withdraw(before, unless=ask.id)
                self._listed[machine] = now
                self._out.append(ListAsk(ask=ask.id, advert=ask.advert))
        elif before is not None:
            self._withdraw(before)
            del self._listed[machine]

    def sync_all(self, at: int) -> None:
        """After something that may concern any machine."""
        for machine in sorted({ask.machine for ask in self._book.asks()} | self._listed.keys()):
            self.sync(machine, at)

    def expire(self, now: Instant, at: int) -> None:
        """Drop what has ended; called with every block, so no timer is needed."""
        for machine in self._ends.due(instant(at) if instant(at) > now else now):
            self.sync(machine, at)
        if self._refused:
            self._refused = {ask: end for ask, end in self._refused.items() if end >= at}

    def _withdraw(
        self, before: tuple[AskId, SignedAdvert] | None, unless: AskId | None = None
    ) -> None:
        if before is not None and before[0] != unless:
            self._out.append(UnlistAsk(ask=before[0]))

    def _is_dead(self, ask: RestingAsk, at: int) -> bool:
        row = self._ledger.machines.get(ask.machine)
        return (
            row is None
            or row.is_leaving
            or ask.ask.payload.seq < row.next_seq
            or ask.ask.payload.start_by <= at
        )

    def _end_of(self, machine: MachineKey) -> Instant | None:
        ask = self._book.ask_of(machine)
        return instant(ask.ask.payload.start_by) if ask is not None else None

    def rows(self) -> list[list[object]]:
        """Everything in it in one fixed order, for a digest of the state."""
        listed: list[object] = [
            [str(machine), ask] for machine, (ask, _) in sorted(self._listed.items())
        ]
        refused: list[object] = [[str(ask), end] for ask, end in sorted(self._refused.items())]
        return [listed, refused]


def _duplicate(found: str) -> Rejection:
    return Rejection(reason=RejectReason.DUPLICATE, field="ask", found=found, needed="a newer one")
