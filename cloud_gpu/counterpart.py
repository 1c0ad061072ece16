"""Who stands behind an ask: the node's key and peer, by the provider's own signature.

A market shows adverts; whether one speaks for the provider of a lease, and whether the machine
behind it is what was advertised, the buyer's side finds out here.
"""

from __future__ import annotations

from cloud_gpu.protocol.adverts import ANY_TIME, node_key_of
from cloud_gpu.protocol.errors import Rejection
from cloud_gpu.protocol.hardware import HardwareProfile
from cloud_gpu.protocol.identity import KeyRole, OnlyKey
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.signing import Domain
from cloud_gpu.protocol.values import Address


def node_of(advert: SignedAdvert, provider: Address, domain: Domain, at: int) -> OnlyKey | str:
    """The key of the provider's node, or why the advert does not speak for the provider.

    `at` in Unix seconds. An advert outlives its expiry: the lease that came of it is running.
    """
    key = node_key_of(advert, domain, provider=provider, bound_at=at, said_at=ANY_TIME)
    return str(key) if isinstance(key, Rejection) else OnlyKey(provider, key, KeyRole.NODE)


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
