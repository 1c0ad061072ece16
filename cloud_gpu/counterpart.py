"""Who stands behind an ask: the node's key and peer, by the provider's own signature.

A market shows adverts; whether one speaks for the provider of a lease, and whether the machine
behind it is what was advertised, the buyer's side finds out here.
"""

from __future__ import annotations

from cloud_gpu.protocol.hardware import HardwareProfile
from cloud_gpu.protocol.identity import KeyRole, NoDelegates
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.signing import Domain, verify_statement
from cloud_gpu.protocol.values import Address


class OnlyKey:
    """A key ring of one: the node key that a provider's wallet signed for in its binding."""

    def __init__(self, account: Address, signer: Address, role: KeyRole) -> None:
        self.held = (account, signer, role)

    def may_sign(self, account: Address, signer: Address, role: KeyRole, at: int) -> bool:  # noqa: ARG002
        """See `KeyRing`; the chain checks expiry and revocation of what is posted there."""
        return (account, signer, role) == self.held


def node_of(advert: SignedAdvert, provider: Address, domain: Domain, at: int) -> OnlyKey | str:
    """The key of the provider's node, or why the advert does not speak for the provider.

    The provider's wallet bound the node key and the peer; the node key signed the advert. `at` in
    Unix seconds.
    """
    binding = advert.body.binding
    bound = verify_statement(
        binding, domain, account=provider, keys=NoDelegates(), role=None, at=at
    )
    if bound is not None:
        return f"its node binding: {bound}"
    if binding.body.provider != provider:
        return f"its node binding names the provider {binding.body.provider}"
    if binding.body.peer != advert.body.peer:
        return f"it names the peer {advert.body.peer}, its node binding {binding.body.peer}"
    node_key = binding.body.node_key
    # An advert outlives its expiry here: the lease that came of it is running.
    said = verify_statement(advert, domain, account=node_key, keys=NoDelegates(), role=None, at=0)
    if said is not None:
        return str(said)
    return OnlyKey(provider, node_key, KeyRole.NODE)


def less_than_advertised(found: HardwareProfile, promised: HardwareProfile) -> str | None:
    """What of a machine is worse than its advert said; None: nothing."""
    if found.gpu_class != promised.gpu_class:
        return f"GPU class: found {found.gpu_class}, advertised {promised.gpu_class}"
    if found.simulated and not promised.simulated:
        return "GPUs: found simulated ones, advertised real ones"
    if found.isolation.strength < promised.isolation.strength:
        return f"isolation: found {found.isolation}, advertised {promised.isolation}"
    least, said = (min(gpu.memory_mib for gpu in p.gpus) for p in (found, promised))
    if least < said:
        return f"GPU memory: found {least} MiB, advertised {said} MiB"
    if found.region != promised.region:
        return f"region: found {found.region or 'none'}, advertised {promised.region or 'none'}"
    return None
