"""Who speaks for whom: accounts, the keys they delegate, and the peer that a node is.

The wallet key owns money; a node key (provider) or session key (buyer) is its delegate with a
role and an expiry, and never withdraws, retires or touches a bond. Source: design rule that the
wallet key stays off the machine that runs strangers' jobs.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, NewType, Protocol

from coincurve import PrivateKey

from cloud_gpu.protocol.values import Address, Digest, Signature, Value, keccak256

PeerId = NewType("PeerId", str)
"""A libp2p peer, base58."""


class KeyRole(IntEnum):
    """What a delegated key may sign; the numbers are the contract's."""

    SESSION = 1
    NODE = 2


class Signer(Protocol):
    """A key that signs 32-byte digests; where it is kept is an adapter's business."""

    @property
    def address(self) -> Address: ...

    def sign_digest(self, digest: Digest) -> Signature: ...


class KeyRing(Protocol):
    """Who may sign for an account now."""

    def may_sign(self, account: Address, signer: Address, role: KeyRole, at: int) -> bool: ...


class LocalKey:
    """A private key in memory. Deterministic low-s signatures (RFC 6979)."""

    __slots__ = ("_key", "address")

    def __init__(self, secret: bytes) -> None:
        self._key = PrivateKey(secret)
        public = self._key.public_key.format(compressed=False)[1:]
        self.address = Address(keccak256(public).raw[12:])

    def sign_digest(self, digest: Digest) -> Signature:
        """Sign; v is 27 or 28."""
        raw = self._key.sign_recoverable(digest.raw, hasher=None)
        return Signature(raw[:64] + bytes([raw[64] + 27]))

    @property
    def secret(self) -> bytes:
        """The 32 bytes, for a keystore or for the libp2p identity; never for a log."""
        return self._key.secret

    def __repr__(self) -> str:
        return f"LocalKey({self.address})"


class Delegation(Value, frozen=True, kw_only=True):
    """One delegated key as the chain holds it; times in Unix seconds."""

    account: Address
    role: KeyRole
    expiry: int
    revoked_at: int = 0
    """When a revocation takes effect; 0: not revoked."""

    def holds(self, account: Address, role: KeyRole, at: int) -> bool:
        """Whether the key may sign for the account in this role at this time."""
        live = at < self.expiry and (self.revoked_at == 0 or at < self.revoked_at)
        return self.account == account and self.role == role and live


class Delegations:
    """The delegated keys of all accounts, kept current from chain events."""

    def __init__(self) -> None:
        self._of: dict[Address, Delegation] = {}

    def record(self, signer: Address, delegation: Delegation) -> None:
        """A DelegateSet or DelegateRevoked event was seen."""
        self._of[signer] = delegation

    def of(self, signer: Address) -> Delegation | None:
        """The delegation of a key, expired and revoked ones included."""
        return self._of.get(signer)

    def may_sign(self, account: Address, signer: Address, role: KeyRole, at: int) -> bool:
        """See `KeyRing`; `at` in Unix seconds."""
        found = self._of.get(signer)
        return found is not None and found.holds(account, role, at)


class NoDelegates:
    """A key ring for values that only the account's own key may sign."""

    def may_sign(self, account: Address, signer: Address, role: KeyRole, at: int) -> bool:  # noqa: ARG002
        """Nobody else may."""
        return False


class OnlyKey:
    """A key ring of one, such as the node key that a provider's wallet bound to its node."""

    def __init__(self, account: Address, signer: Address, role: KeyRole) -> None:
        self.held = (account, signer, role)

    def may_sign(self, account: Address, signer: Address, role: KeyRole, at: int) -> bool:  # noqa: ARG002
        """See `KeyRing`; the chain checks expiry and revocation of what is posted there."""
        return (account, signer, role) == self.held


class NodeBinding(Value, frozen=True, kw_only=True):
    """The wallet says: this node key, seen as this peer, is mine. Signed as a statement."""

    KIND: ClassVar[str] = "cloud-gpu/node-binding"
    provider: Address
    node_key: Address
    peer: PeerId
