"""A season's parties and what is known of their leases; moves are tried here, and told apart."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from benchmarks._audited import CommittedBatch
from benchmarks._chain import Chain, Receipt, Refused
from benchmarks._parties import Machine, Market, Party
from cloud_gpu.protocol.adapters.bindings import futures, lease_book
from cloud_gpu.protocol.adapters.evm_bound import Call
from cloud_gpu.protocol.calls import ChainCall
from cloud_gpu.protocol.group_buy import Campaign
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import LeaseKey, MachineStatus
from cloud_gpu.protocol.values import Address

NAMED = ("LeaseBook_", "Verification_", "Futures_", "GroupBuy_", "ERC20")
_SOON_S = 6 * 3_600
_LIVE = (MachineStatus.FUNDED, MachineStatus.ACTIVE, MachineStatus.STOPPED)


class Broken(Exception):
    """The contracts did what they must not, or failed in a way that they do not name."""


@dataclass(eq=False)
class Rented:
    """A lease, and who is in it."""

    key: LeaseKey
    machine: Machine
    buyer: Party
    verified: bool
    status: MachineStatus
    promised: int = 0
    """The largest voucher so far."""


@dataclass(eq=False)
class Ahead:
    """A contract of futures that was neither delivered nor ended, and the pair that opened it."""

    number: int
    long: Party
    short: Party
    series: futures.Series
    price: int
    pair: futures.FuturePair
    funded: bool = False
    machines: tuple[int, ...] = ()
    """Nominated."""


@dataclass(eq=False)
class Pool:
    """A campaign, and whose pledges are locked at which places."""

    campaign: Campaign
    listed: tuple[Address, ...]
    pledges: dict[int, tuple[Party, int]] = field(default_factory=dict)
    """Who, and how many slices."""


@dataclass
class Season:
    """Everybody, and what they did so far."""

    chain: Chain
    market: Market
    providers: list[Party]
    buyers: list[Party]
    machines: list[Machine]
    dice: random.Random
    live: list[Rented] = field(default_factory=list)
    ended: list[Rented] = field(default_factory=list)
    """Verified leases that are over, and not committed yet."""
    batches: list[CommittedBatch] = field(default_factory=list)
    ahead: list[Ahead] = field(default_factory=list)
    units: list[LeaseKey] = field(default_factory=list)
    """Delivered leases whose margins are not settled."""
    pools: list[Pool] = field(default_factory=list)
    nonces: dict[Party, int] = field(default_factory=dict)
    done: int = 0
    refused: int = 0
    fouls: int = 0
    """Refused, as they must be."""
    facts: Counter[str] = field(default_factory=Counter)
    """What came of it: leases, futures, ... and how often."""

    def attempt(self, key: LocalKey, call: Call[Any] | ChainCall) -> Receipt | None:
        """An honest move: it may be refused, by name."""
        try:
            receipt = self.chain.send(key, call)
        except Refused as refusal:
            if not refusal.name.startswith(NAMED):
                raise Broken(f"an honest call failed with {refusal}") from refusal
            self.refused += 1
            return None
        self.done += 1
        return receipt

    def must(self, key: LocalKey, call: Call[Any] | ChainCall) -> None:
        """A way out: nothing may refuse it."""
        try:
            self.chain.send(key, call)
        except Refused as refusal:
            raise Broken(f"no way out: {refusal}, {call!r}"[:400]) from refusal

    def foul(self, key: LocalKey, call: Call[Any] | ChainCall) -> None:
        """A move that must be refused. Raises Broken when it is not."""
        try:
            self.chain.send(key, call)
        except Refused:
            self.fouls += 1
            return
        raise Broken(f"a foul call went through: {call!r}"[:400])

    def nonce(self, buyer: Party) -> int:
        """One that this buyer did not use."""
        self.nonces[buyer] = self.nonces.get(buyer, -1) + 1
        return self.nonces[buyer]

    def machine(self, machine: Machine) -> lease_book.Machine:
        """Its words now."""
        provider = machine.provider.wallet.address
        return self.chain.ask(lease_book.machine_of(provider, machine.index))

    def opened(self, machine: Machine, buyer: Party, seq: int, *, verified: bool) -> bool:
        """Take a lease down if it is there."""
        found = self.machine(machine)
        if found.seq != seq or found.status != MachineStatus.FUNDED:
            return False
        self.facts["leases"] += 1
        key = LeaseKey(provider=machine.provider.wallet.address, index=machine.index, seq=seq)
        self.live.append(Rented(key, machine, buyer, verified, MachineStatus.FUNDED))
        return True

    def refresh(self, rented: Rented) -> None:
        """What became of a lease."""
        found = self.machine(rented.machine)
        status = MachineStatus(found.status)
        if found.seq == rented.key.seq and status in _LIVE:
            rented.status = status
            return
        self.live.remove(rented)
        if rented.verified:
            self.ended.append(rented)

    def one_in(self, *wanted: MachineStatus) -> Rented | None:
        """A lease in one of these states; none named: any live one."""
        found = [rented for rented in self.live if rented.status in (wanted or _LIVE)]
        return self.dice.choice(found) if found else None

    def party(self, address: Address) -> Party:
        """Whose wallet that is."""
        return next(p for p in (*self.providers, *self.buyers) if p.wallet.address == address)

    def machines_of(self, provider: Party) -> list[Machine]:
        """All of its machines, free or not."""
        return [machine for machine in self.machines if machine.provider == provider]

    def travel(self, to: int) -> None:
        """Until then or a little later, where it is not far away."""
        gap = to - self.chain.time()
        if 0 < gap <= _SOON_S:
            self.chain.pass_time(gap + self.dice.randint(0, 600))

    def stranger(self, *known: Party) -> Party:
        """Somebody else."""
        return self.dice.choice([p for p in (*self.providers, *self.buyers) if p not in known])
