"""What must hold after each event of a season, and what must have happened when it is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloud_gpu.protocol.chain_events import LeaseClosed, LeaseOpened
from cloud_gpu.protocol.effects import StartJob
from cloud_gpu.protocol.lease import LeaseKey, MachineStatus
from cloud_gpu.protocol.orders import Bid, SignedBid
from cloud_gpu.protocol.settlement import accrued
from cloud_gpu.protocol.signing import Signed
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest
from cloud_gpu.protocol.voucher import Voucher
from cloud_gpu.testing.simulated_chain import Block
from tests.simulation.actors import Actor, BuyerActor, NodeActor
from tests.simulation.audit_checkers import AuditCheckers
from tests.simulation.scene import DEPLOYMENT, PRODUCT

if TYPE_CHECKING:
    from tests.simulation.world import World


class Checkers:
    """Invariants over one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._total = world.chain.book.owed
        self._audits = AuditCheckers(world)
        self._vouchers: dict[LeaseKey, int] = {}
        self._bids: dict[Digest, Bid] = {}
        self.gangs = 0
        """Bids for several machines whose leases opened; one that was taken back counts, too."""

    def after_block(self) -> None:
        """Money is conserved, pay is within voucher, ceiling and cap, bonds within need."""
        book = self._world.chain.book
        total = self._total - self._audits.after_block()
        assert book.owed == book.deposited == total, (book.owed, book.deposited, total)
        self._whole(self._world.chain.head)
        assert all(row.cash >= 0 for row in book.accounts.values())
        for key, machine in book.machines.items():
            lease = machine.lease
            running = machine.status in (
                MachineStatus.FUNDED,
                MachineStatus.ACTIVE,
                MachineStatus.STOPPED,
            )
            assert (lease is not None) == running, (key, machine.status)
            if lease is None:
                continue
            assert 0 <= lease.paid <= lease.cap, (key, lease)
            if machine.status is MachineStatus.FUNDED:
                assert lease.paid == 0, (key, lease)
            named = LeaseKey(provider=key.provider, index=key.index, seq=machine.seq)
            assert lease.paid <= self._vouchers.get(named, 0), (named, lease)

    def wanted(self, orders: Sequence[SignedBid]) -> None:
        """Alternatives of which at most one opens, each whole or not at all."""
        self._bids |= {order.bid.payload.id: order.bid.payload for order in orders}

    def _whole(self, block: Block) -> None:
        """Whatever opened in a block opened with all its machines."""
        opened = Counter(e.bid for _, e in block.events if isinstance(e, LeaseOpened))
        for bid, leases in opened.items():
            machines = self._bids[bid].count // PRODUCT.slice_gpus
            assert leases == machines, (bid, leases, machines)
            self.gangs += machines > 1

    def after_event(self, actor: Actor, effects: Sequence[object]) -> None:
        """No machine works for two leases; no work without a lease on chain."""

        if not isinstance(actor, NodeActor):
            return
        machines = [spec.lease.machine for spec in actor.room.running.values()]
        leases = {spec.lease for spec in actor.room.running.values()}
        assert len({lease.machine for lease in leases}) == len(leases), machines
        for effect in effects:
            if isinstance(effect, StartJob):
                lease = effect.spec.lease
                assert self._is_known(lease), f"work for {lease}, which never opened"

    def _is_known(self, lease: LeaseKey) -> bool:
        # A reorganisation may have taken the opening back while the node has not heard of it yet.
        return self._world.faults.reorganise > 0 or any(
            isinstance(event, LeaseOpened) and event.terms.key == lease for event in self._told()
        )

    def voucher(self, buyer: BuyerActor, signed: Signed[Voucher]) -> None:
        """A buyer's vouchers never fall within a lease, and never run ahead by two intervals."""
        voucher = signed.payload
        tab = buyer.party.tab
        assert tab is not None, voucher
        # After a reorganisation the same number can be another lease, or one that began later.
        same = (voucher.lease, tab.terms.opened_at, tab.started_at)
        before = buyer.promised.get(same, TokenAmount(0))
        assert voucher.amount >= before, (voucher, before)
        buyer.promised[same] = voucher.amount
        most = max(self._vouchers.get(voucher.lease, 0), voucher.amount.value)
        self._vouchers[voucher.lease] = most
        elapsed = self._world.now // 1000 - tab.started_at
        ahead = 2 * DEPLOYMENT.voucher_interval_s + 3  # its clock is the newest block it saw
        ceiling = accrued(tab.terms.cap, elapsed + ahead, tab.terms.duration)
        assert voucher.amount <= ceiling, (voucher, ceiling)

    def _told(self) -> list[object]:
        return [event for block in self._world.chain.blocks for _, event in block.events]

    def at_the_end(self) -> None:
        """Faults are off for long: every lock is released, every lease has one end."""
        world, book = self._world, self._world.chain.book
        self.after_block()
        deserted: set[LeaseKey] = set()
        for key, machine in book.machines.items():
            if world.is_deserted(key):
                deserted.add(LeaseKey(provider=key.provider, index=key.index, seq=machine.seq))
            else:
                assert machine.status is MachineStatus.FREE, (key, machine)
        opened = [e.terms.key for e in self._told() if isinstance(e, LeaseOpened)]
        closed = [e.lease for e in self._told() if isinstance(e, LeaseClosed)]
        assert sorted(opened) == sorted([*closed, *deserted])
        assert len(set(opened)) == len(opened), "a lease number was opened twice"
        served = {e.bid for e in self._told() if isinstance(e, LeaseOpened)}
        nonces = [(self._bids[bid].buyer, self._bids[bid].nonce) for bid in served]
        assert len(set(nonces)) == len(nonces), "two alternatives opened"
        self._audits.at_the_end()
        for node in [node for node in world.nodes if not node.has_vanished]:
            assert not node.room.running, node.room.running
            assert not node.room.prepared, node.room.prepared
        assert world.market.party.status().openings == 0
        assert world.market.replayed().state_hash() == world.market.party.state_hash()
