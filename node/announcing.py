"""Which machines are for rent now, and the signed adverts that say so.

A machine is announced when its gate is open, the chain has it free and nobody drains the node.
Adverts are repeated at a fixed interval, since late joiners hear nothing older.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from cloud_gpu.protocol.effects import Publish
from cloud_gpu.protocol.events import MachineProbed
from cloud_gpu.protocol.hardware import HardwareProfile
from cloud_gpu.protocol.identity import NodeBinding, Signer
from cloud_gpu.protocol.lease import LeaseKey, LeaseState, MachineKey, MachineStatus
from cloud_gpu.protocol.orders import Advert, SignedAdvert
from cloud_gpu.protocol.signing import Domain, Statement, sign, state
from cloud_gpu.protocol.units import BasisPoints, Instant, instant, unix_seconds
from cloud_gpu.protocol.values import Address
from node.ledger import Ledger
from node.notices import NO_THRESHOLD, room_below, used_machines
from node.pricing import Policy, ask_for, ending_before, is_stale
from node.review import Review
from node.standing import MachineStanding

BINDING_MARGIN_S: Final = 60
"""An advert must not outlive the statement that says whose node this is."""


_Offer: TypeAlias = tuple[int, Address]
"""A machine's index, and who may open the ask."""


class Announcements:
    """The asks of one node's machines.

    One for a machine that is promised ahead names Futures as its matcher: nobody opens it, it says
    where the node is to whom the lease will be for.
    """

    def __init__(
        self,
        *,
        binding: Statement[NodeBinding],
        addresses: Sequence[str],
        policies: Mapping[int, Policy],
        futures: Address,
        interval_s: int,
        clearance_s: int,
        domain: Domain,
        key: Signer,
        threshold: BasisPoints = NO_THRESHOLD,
    ) -> None:
        """`clearance_s`: see `ending_before`, of what a machine was promised ahead for.

        `threshold`: the utilisation from which on machines are kept for firm leases. `futures` is
        the contract by which machines are promised; zero: there is none.
        """
        self.provider: Address = binding.body.provider
        self._binding, self._addresses = binding, tuple(addresses)
        self._policies, self._futures, self._interval_s = dict(policies), futures, interval_s
        self._clearance_s, self._threshold = clearance_s, threshold
        self._domain, self._key = domain, key
        self._healthy: dict[int, HardwareProfile] = {}
        self._adverts: dict[_Offer, SignedAdvert] = {}
        self._next_at: dict[_Offer, Instant] = {}
        self.is_draining = False

    @property
    def indexes(self) -> Sequence[int]:
        """The machines this node has."""
        return tuple(self._policies)

    @property
    def current(self) -> Sequence[SignedAdvert]:
        """The adverts that stand."""
        return tuple(self._adverts.values())

    def standings(self, ledger: Ledger) -> tuple[MachineStanding, ...]:
        """Each machine in a few words."""
        return tuple(
            MachineStanding(
                index=index,
                is_healthy=index in self._healthy,
                is_offered=(index, self._policies[index].matcher) in self._adverts,
                next_seq=ledger.next_seq(index),
            )
            for index in self._policies
        )

    def probed(self, event: MachineProbed) -> None:
        """A machine's gate: without a healthy probe it is not offered."""
        index = event.machine.index
        if event.healthy and event.machine.provider == self.provider:
            if self._healthy.get(index) != event.profile:
                self._withdraw(index)
                self._drop((index, self._futures))
            self._healthy[index] = event.profile
        else:
            self._healthy.pop(index, None)

    def drain(self) -> None:
        """No machine is offered from now on."""
        self.is_draining = True

    def room(self, ledger: Ledger, leaving: Collection[LeaseKey], now: Instant) -> int | None:
        """How many more machines may be used below the threshold; None: there is none.

        `leaving`: leases that are about to be given notice.
        """
        if not self._threshold or self.is_draining:
            return None
        free = MachineStatus.FREE
        own = [
            index
            for index in self._policies
            if (machine := ledger.machines.get(index)) is not None and machine.status is free
        ]
        staying = used_machines(ledger.leases, leaving)
        used = [
            index
            for index in own
            if index in staying
            or index not in self._healthy
            or self._policy(index, ledger, now) is None
        ]
        return room_below(self._threshold, len(own), len(used))

    def review(self, ledger: Ledger, leaving: Collection[LeaseKey], review: Review) -> None:
        """Announce what is free, and withdraw what is not."""
        room = self.room(ledger, leaving, review.now)
        busy = {
            key.index
            for key, lease in ledger.leases.items()
            if lease.state is not LeaseState.CLOSED
        }
        is_bound = self._binding.expiry - BINDING_MARGIN_S > unix_seconds(review.now)
        for index in self._policies:
            machine = ledger.machines.get(index)
            is_free = (
                machine is not None
                and machine.status is MachineStatus.FREE
                and index not in busy
                and index in self._healthy
            )
            self._stand_by(index, ledger, review, is_bound=is_bound)
            policy = self._policy(index, ledger, review.now)
            if policy is not None and policy.is_interruptible and is_free and room is not None:
                room -= 1
                policy = policy if room >= 0 else policy.firm
            is_held_back = not is_bound or self.is_draining
            if machine is None or policy is None or not is_free or is_held_back:
                self._withdraw(index)
                continue
            for matcher in policy.matchers:
                offer = index, matcher
                self._renew(offer, ledger.next_seq(index), machine.product, policy, review.now)
                self._announce(offer, review)

    def _policy(self, index: int, ledger: Ledger, now: Instant) -> Policy | None:
        """What is asked for a machine now; None: it is kept for what it was promised ahead for."""
        policy, promised = self._policies[index], ledger.promised_from(index)
        if promised is None:
            return policy
        return ending_before(policy, promised, now, self._clearance_s)

    def _stand_by(self, index: int, ledger: Ledger, review: Review, *, is_bound: bool) -> None:
        """Say where a promised machine is until its lease begins, also while it is let to others,
        or no new lease is wanted.
        """
        machine, offer = ledger.machines.get(index), (index, self._futures)
        is_promised = ledger.promised_from(index) is not None or ledger.awaits_long(index)
        if machine is None or not (is_promised and is_bound and index in self._healthy):
            self._drop(offer)
            return
        policy = self._policies[index]
        self._renew(offer, ledger.next_seq(index), machine.product, policy, review.now)
        self._announce(offer, review)

    def _withdraw(self, index: int) -> None:
        for matcher in self._policies[index].matchers:
            self._drop((index, matcher))

    def _drop(self, offer: _Offer) -> None:
        self._adverts.pop(offer, None)
        self._next_at.pop(offer, None)

    def _renew(self, offer: _Offer, seq: int, product: int, policy: Policy, now: Instant) -> None:
        """Sign a new ask when there is none for this lease number, or it grows old or too long."""
        index, matcher = offer
        advert = self._adverts.get(offer)
        ask = advert.body.ask.payload if advert is not None else None
        if ask is not None and ask.seq == seq and not is_stale(ask, now, policy):
            # The same life ahead would allow less by what has passed since it was signed.
            since_s = unix_seconds(now) + policy.life_s - ask.start_by
            is_same = (ask.flags, ask.min_price_per_hour) == (policy.flags, policy.price)
            if is_same and ask.max_duration <= policy.max_duration + since_s:
                return
        machine = MachineKey(provider=self.provider, index=index)
        ask = ask_for(machine, seq, product, policy, matcher, now)
        signed = sign(ask, self._domain, self._key)
        body = Advert(
            ask=signed,
            profile=self._healthy[index],
            peer=self._binding.body.peer,
            addresses=self._addresses,
            binding=self._binding,
        )
        self._adverts[offer] = state(
            body, self._domain, self._key, nonce=seq, expiry=signed.payload.start_by
        )
        self._next_at.pop(offer, None)

    def _announce(self, offer: _Offer, review: Review) -> None:
        at = self._next_at.get(offer, review.now)
        if review.now >= at:
            review.do(Publish(advert=self._adverts[offer]))
            at = self._next_at[offer] = review.now + instant(self._interval_s)
        review.look_at(at)
