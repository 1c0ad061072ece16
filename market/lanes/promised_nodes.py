"""Where the nodes of promised machines are, so that who takes up a future's lease can find them.

A machine that was named for a window is on nobody's list of asks when the window comes. Its node
signs an ask for it whose matcher is Futures: a word that no contract opens anything with, with the
peer, the addresses and the profile that any advert has.
"""

from __future__ import annotations

import msgspec

from cloud_gpu.protocol.chain_events import ChainAdvanced, ChainReorganised
from cloud_gpu.protocol.effects import MarketEffect, ReportNode
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.future_events import FutureEvent
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import SignedAdvert
from market.books.book import is_newer
from market.doors.intake import check_advert, speaks_for
from market.lanes.floor import Floor
from market.rules import MatchmakerEvent


class PromisedNodes:
    """The last advert of each machine that a live contract names, delivered or not."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._adverts: dict[MachineKey, SignedAdvert] = {}

    def is_meant(self, advert: SignedAdvert) -> bool:
        """Whether an ask is for Futures."""
        domain = self._floor.rules.futures_domain
        return domain is not None and advert.body.ask.payload.matcher == domain.verifying_contract

    def examine(self, advert: SignedAdvert, at: int) -> Rejection | None:
        """Why hearing it would change nothing; `at` in Unix seconds. Rejects as `check_advert`."""
        machine, rules = advert.body.ask.payload.machine, self._floor.rules
        assert rules.futures_domain is not None, "the advert is for Futures"
        if machine not in self._promised():
            return Rejection(
                reason=RejectReason.UNKNOWN_MACHINE,
                field="ask.index",
                found=str(machine),
                needed="a machine that a live contract of futures names",
            )
        known = self._adverts.get(machine)
        if known is not None and (not is_newer(advert, known) or _is_same(advert, known)):
            found = "an advert no newer than the one at hand, or of the same node in the same place"
            needed = "news of where the node is"
            return Rejection(reason=RejectReason.DUPLICATE, field="ask", found=found, needed=needed)
        of_futures = msgspec.structs.replace(rules, matcher=rules.futures_domain.verifying_contract)
        checked = check_advert(advert, rules=of_futures, ledger=self._floor.ledger, at=at)
        return checked if isinstance(checked, Rejection) else None

    def hear(self, advert: SignedAdvert) -> None:
        """An advert for Futures was heard."""
        if self.examine(advert, self._floor.at) is None:
            machine = advert.body.ask.payload.machine
            self._adverts[machine] = advert
            self._floor.out.append(ReportNode(machine=machine, advert=advert))

    def follow(self, event: MatchmakerEvent) -> None:
        """After the ledger took it in: forget what is promised or vouched for no more."""
        gone = set[MachineKey]()
        if isinstance(event, FutureEvent | ChainReorganised):
            gone |= self._adverts.keys() - self._promised()
        if isinstance(event, ChainAdvanced):  # a revocation takes effect later
            gone |= {machine for machine in self._adverts if not self._is_vouched_for(machine)}
        for machine in sorted(gone):
            del self._adverts[machine]
            self._floor.out.append(ReportNode(machine=machine, advert=None))

    def _is_vouched_for(self, machine: MachineKey) -> bool:
        """Whether the key that signed may still: the newer word of a stolen one bars the node's."""
        node_key, ledger = self._adverts[machine].body.binding.body.node_key, self._floor.ledger
        return speaks_for(machine.provider, node_key, ledger, ledger.at)

    def restated(self) -> list[MarketEffect]:
        """What is shown."""
        return [ReportNode(machine=key, advert=self._adverts[key]) for key in sorted(self._adverts)]

    def rows(self) -> list[object]:
        """Everything in it in one fixed order, for a digest of the state."""
        return [[str(key), self._adverts[key].signature] for key in sorted(self._adverts)]

    def _promised(self) -> set[MachineKey]:
        return {
            MachineKey(provider=contract.short, index=index)
            for contract in self._floor.ledger.futures.contracts.values()
            for index in contract.machines
        }


def _is_same(one: SignedAdvert, other: SignedAdvert) -> bool:
    """Whether they differ in nothing but the ask, which nobody opens."""
    return msgspec.structs.replace(one.body, ask=other.body.ask) == other.body
