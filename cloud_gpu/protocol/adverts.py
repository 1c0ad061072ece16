"""Who an advert speaks for: one rule for all who hear it, market, buyer, verifier and auditor.

The provider's wallet bound one node key to one peer, and that key signed both the advert and the
ask in it. Whether the chain lets the key sign now is asked by those who have a chain.
"""

from __future__ import annotations

from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import KeyRole, NoDelegates, OnlyKey
from cloud_gpu.protocol.orders import Ask, SignedAdvert
from cloud_gpu.protocol.signing import Domain, Verified, verify, verify_statement
from cloud_gpu.protocol.values import Address

ANY_TIME = 0
"""Before everything expires: a statement of the past counts as it did then."""


def node_key_of(
    advert: SignedAdvert, domain: Domain, *, provider: Address, bound_at: int, said_at: int
) -> Address | Rejection:
    """The node key that speaks for `provider`.

    The binding must count at `bound_at`, the advert at `said_at`, Unix seconds. Rejects:
    BAD_SIGNATURE, KEY_NOT_AUTHORISED, EXPIRED.
    """
    body, binding = advert.body, advert.body.binding
    refused = verify_statement(
        binding, domain, account=provider, keys=NoDelegates(), role=None, at=bound_at
    )
    if refused is not None:
        return refused
    found = binding.body
    if (found.provider, found.peer) != (provider, body.peer):
        return Rejection(
            reason=RejectReason.KEY_NOT_AUTHORISED,
            field="advert.binding",
            found=f"{found.provider} at {found.peer}",
            needed=f"{provider} at {body.peer}",
            next="Sign a binding of this node's peer with the provider's wallet.",
        )
    refused = verify_statement(
        advert, domain, account=found.node_key, keys=NoDelegates(), role=None, at=said_at
    )
    return found.node_key if refused is None else refused


def ask_of(advert: SignedAdvert, domain: Domain, *, at: int) -> Verified[Ask] | Rejection:
    """The ask, signed by the node key that speaks for its provider; `at` in Unix seconds.

    Rejects as `node_key_of`.
    """
    signed = advert.body.ask
    provider = signed.payload.provider
    key = node_key_of(advert, domain, provider=provider, bound_at=at, said_at=at)
    if isinstance(key, Rejection):
        return key
    ring = OnlyKey(provider, key, KeyRole.NODE)
    ask = verify(signed, domain, account=provider, keys=ring, at=at)
    if isinstance(ask, Rejection) or ask.signer == key:
        return ask
    return Rejection(
        reason=RejectReason.KEY_NOT_AUTHORISED,
        field="ask.signature",
        found=f"signed by {ask.signer}",
        needed=f"{key}, the key that the binding names",
        next="Sign asks with the node key that the wallet bound to this peer.",
    )
