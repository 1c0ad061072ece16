"""Where nodes and the other verifiers are reached: from signed adverts and notices, checked.

A node announces free machines only, so what was heard is kept while its machine works. Nothing
here is trusted further: whatever a peer says later is signed or proved by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from cloud_gpu.protocol.adverts import node_key_of
from cloud_gpu.protocol.audit_messages import SignedVerifierNotice
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.identity import KeyRing, KeyRole, NoDelegates, PeerId
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.signing import verify_statement
from cloud_gpu.protocol.units import Instant, unix_seconds
from cloud_gpu.protocol.values import Address, Value

MACHINES_MAX: Final = 20_000
"""The longest unheard is forgotten; each has a bond on chain, so a flood of them costs."""


class Place(Value, frozen=True, kw_only=True):
    """A peer and its multiaddrs."""

    peer: PeerId
    addresses: tuple[str, ...]


class Whereabouts:
    """Everybody's newest place."""

    def __init__(self, deployment: Deployment, keys: KeyRing) -> None:
        self._deployment, self._keys = deployment, keys
        self._nodes: OrderedDict[MachineKey, Place] = OrderedDict()
        self._providers: dict[Address, Place] = {}
        self._verifiers: dict[Address, tuple[int, Place]] = {}

    def hear_advert(self, advert: SignedAdvert, now: Instant) -> bool:
        """Keep where a node is; False: it is not signed by the provider's node key."""
        body, ask, at = advert.body, advert.body.ask.payload, unix_seconds(now)
        domain = self._deployment.domain
        key = node_key_of(advert, domain, provider=ask.provider, bound_at=at, said_at=at)
        if isinstance(key, Rejection):
            return False
        if key != ask.provider and not self._keys.may_sign(ask.provider, key, KeyRole.NODE, at):
            return False
        place = Place(peer=body.peer, addresses=body.addresses)
        machine = ask.machine
        self._nodes[machine] = self._providers[ask.provider] = place
        self._nodes.move_to_end(machine)
        while len(self._nodes) > MACHINES_MAX:
            self._providers.pop(self._nodes.popitem(last=False)[0].provider, None)
        return True

    def hear_notice(self, notice: SignedVerifierNotice, now: Instant) -> bool:
        """Keep where a verifier is; False: it is none of the deployment's, or not signed by it."""
        body, at = notice.body, unix_seconds(now)
        if body.verifier not in self._deployment.verifiers or verify_statement(
            notice,
            self._deployment.domain,
            account=body.verifier,
            keys=NoDelegates(),
            role=None,
            at=at,
        ):
            return False
        if body.at >= self._verifiers.get(body.verifier, (0, None))[0]:
            place = Place(peer=body.peer, addresses=body.addresses)
            self._verifiers[body.verifier] = body.at, place
        return True

    def node(self, machine: MachineKey) -> Place | None:
        """Where the node of a machine, or another of its provider's, was last heard."""
        return self._nodes.get(machine) or self._providers.get(machine.provider)

    def verifier(self, address: Address) -> Place | None:
        """Where a verifier was last heard."""
        _, place = self._verifiers.get(address, (0, None))
        return place
