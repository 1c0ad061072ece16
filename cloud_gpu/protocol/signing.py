"""EIP-712: typed values, their digests, signatures, and `Signed[T] -> verify() -> Verified[T]`.

Only `verify` makes a `Verified`; the book, leasing and the referee accept nothing else. Off-chain
statements are canonical JSON bound by one type, `Document`. Source: EIP-712, EIP-191, RFC 8785.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import ClassVar, Final, Generic, TypeVar

from coincurve import PublicKey

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import KeyRing, KeyRole, Signer
from cloud_gpu.protocol.units import Quantity
from cloud_gpu.protocol.values import Address, Digest, Signature, Value, keccak256

_HALF_ORDER: Final = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
_CAMEL = re.compile(r"(?<!^)(?=[A-Z])")


class Domain(Value, frozen=True, kw_only=True):
    """Which contract on which chain a signature is for."""

    name: str
    chain_id: int
    verifying_contract: Address
    version: str = "1"

    @property
    def separator(self) -> bytes:
        """EIP-712's hashStruct of the domain (32 bytes)."""
        return _separator(self)


@cache
def _separator(domain: Domain) -> bytes:
    kind = b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
    words = (
        keccak256(kind).raw,
        keccak256(domain.name.encode()).raw,
        keccak256(domain.version.encode()).raw,
        domain.chain_id.to_bytes(32, "big"),
        domain.verifying_contract.raw.rjust(32, b"\0"),
    )
    return keccak256(b"".join(words)).raw


class TypedData(Value, frozen=True, kw_only=True):
    """A value that EIP-712 can hash; `TYPE` is its exact type string, shared with Solidity."""

    TYPE: ClassVar[str]
    ROLE: ClassVar[KeyRole | None] = None
    """Which delegated key may sign it for its account; None: the account's own key alone."""

    def struct_hash(self) -> Digest:
        """keccak256(typeHash || one word per field); every field is of a static type."""
        type_hash, fields = _layout(self.TYPE)
        return keccak256(
            b"".join([type_hash, *(encode(getattr(self, name)) for name, encode in fields)])
        )

    def digest(self, domain: Domain) -> Digest:
        """What is signed: keccak256(0x19 0x01 || domain separator || struct hash)."""
        return keccak256(b"\x19\x01" + domain.separator + self.struct_hash().raw)


@cache
def _layout(type_string: str) -> tuple[bytes, tuple[tuple[str, Callable[[object], bytes]], ...]]:
    inside = type_string[type_string.index("(") + 1 : -1]
    fields = []
    for field in inside.split(","):
        kind, name = field.split(" ")
        fields.append((_CAMEL.sub("_", name).lower(), _encoder(kind)))
    return keccak256(type_string.encode()).raw, tuple(fields)


def _encoder(kind: str) -> Callable[[object], bytes]:
    if kind == "address":
        return lambda found: _raw(found, 20).rjust(32, b"\0")
    if kind == "bytes32":
        return lambda found: _raw(found, 32)
    if kind == "bool":
        return lambda found: int(bool(found)).to_bytes(32, "big")
    bits = int(kind.removeprefix("uint"))

    def encode(found: object) -> bytes:
        value = found.value if isinstance(found, Quantity) else found
        if not isinstance(value, int) or not 0 <= value < 2**bits:
            raise ValueError(f"{kind} cannot hold {found!r}")
        return value.to_bytes(32, "big")

    return encode


def _raw(found: object, length: int) -> bytes:
    raw = getattr(found, "raw", None)
    if not isinstance(raw, bytes) or len(raw) != length:
        raise ValueError(f"needed {length} bytes, found {found!r}")
    return raw


DataT = TypeVar("DataT", bound=TypedData)


class Signed(Value, Generic[DataT], frozen=True, kw_only=True):
    """A typed value with a signature nobody has checked yet."""

    payload: DataT
    signature: Signature


_VERIFY: Final = object()


class Verified(Generic[DataT]):
    """A typed value whose signature was checked; only `verify` makes one."""

    __slots__ = ("account", "digest", "payload", "signature", "signer")

    def __init__(
        self,
        made_by: object,
        signed: Signed[DataT],
        digest: Digest,
        account: Address,
        signer: Address,
    ) -> None:
        assert made_by is _VERIFY, "only verify() makes a Verified value"
        self.payload = signed.payload
        self.signature = signed.signature
        self.digest = digest
        self.account = account
        self.signer = signer

    @property
    def signed(self) -> Signed[DataT]:
        """The value as it travels."""
        return Signed(payload=self.payload, signature=self.signature)

    def __repr__(self) -> str:
        return f"Verified({self.payload!r}, signer={self.signer})"


def sign(payload: DataT, domain: Domain, signer: Signer) -> Signed[DataT]:
    """Sign a typed value. Deterministic (RFC 6979), so simulations reproduce byte for byte."""
    return Signed(payload=payload, signature=signer.sign_digest(payload.digest(domain)))


def recover(digest: Digest, signature: Signature) -> Address | None:
    """The address whose key made the signature, or None: malleable or malformed ones never pass."""
    v = signature.raw[64]
    if v not in (27, 28) or int.from_bytes(signature.raw[32:64], "big") > _HALF_ORDER:
        return None
    try:
        key = PublicKey.from_signature_and_message(
            signature.raw[:64] + bytes([v - 27]), digest.raw, hasher=None
        )
    except Exception:  # coincurve raises bare Exception subclasses for points off the curve
        return None
    return Address(keccak256(key.format(compressed=False)[1:]).raw[12:])


def verify(
    signed: Signed[DataT], domain: Domain, *, account: Address, keys: KeyRing, at: int
) -> Verified[DataT] | Rejection:
    """Check that `account`, or a key it delegated for this type, signed the value.

    `at` is in Unix seconds. Rejects: BAD_SIGNATURE, KEY_NOT_AUTHORISED.
    """
    digest = signed.payload.digest(domain)
    what = type(signed.payload).__name__
    signer = _signer_for(
        digest, signed.signature, what, account=account, keys=keys, role=signed.payload.ROLE, at=at
    )
    if isinstance(signer, Rejection):
        return signer
    return Verified(_VERIFY, signed, digest, account, signer)


def _signer_for(
    digest: Digest,
    signature: Signature,
    what: str,
    *,
    account: Address,
    keys: KeyRing,
    role: KeyRole | None,
    at: int,
) -> Address | Rejection:
    signer = recover(digest, signature)
    needed = f"{account}" + (f" or its {role.name.lower()} key" if role else "")
    if signer is None:
        return Rejection(
            reason=RejectReason.BAD_SIGNATURE,
            field=f"{what}.signature",
            found="a signature that recovers to no key",
            needed=f"the signature of {needed}",
            next="Sign the value again for this chain id and LeaseBook address.",
        )
    if signer != account and (role is None or not keys.may_sign(account, signer, role, at)):
        return Rejection(
            reason=RejectReason.KEY_NOT_AUTHORISED,
            field=f"{what}.signature",
            found=f"signed by {signer}",
            needed=needed,
            next="Check the key, the chain id and the LeaseBook address that were signed for.",
        )
    return signer


class Document(TypedData, frozen=True, kw_only=True):
    """What every off-chain statement is signed as."""

    TYPE = "Document(bytes32 kind,bytes32 digest,uint64 nonce,uint64 expiry)"
    kind: Digest
    content: Digest
    nonce: int
    expiry: int
    """Unix seconds after which the statement no longer counts."""

    def struct_hash(self) -> Digest:
        """As the base, with `content` in the place that the type string calls `digest`."""
        words = (
            keccak256(self.TYPE.encode()).raw,
            self.kind.raw,
            self.content.raw,
            self.nonce.to_bytes(32, "big"),
            self.expiry.to_bytes(32, "big"),
        )
        return keccak256(b"".join(words))


BodyT = TypeVar("BodyT", bound=Value)


class Statement(Value, Generic[BodyT], frozen=True, kw_only=True):
    """An off-chain statement as it travels: its content, and the signed document that binds it."""

    body: BodyT
    nonce: int
    expiry: int
    signature: Signature

    def __post_init__(self) -> None:
        if not (0 <= self.nonce < 2**64 and 0 <= self.expiry < 2**64):
            raise ValueError("a statement's nonce and expiry are 64-bit words")


def document_of(body: Value, nonce: int, expiry: int) -> Document:
    """The document that binds a statement's content; `body` names its kind in `KIND`."""
    kind: str = body.KIND  # type: ignore[attr-defined]
    return Document(
        kind=keccak256(kind.encode()), content=keccak256(to_json(body)), nonce=nonce, expiry=expiry
    )


def state(
    body: BodyT, domain: Domain, signer: Signer, *, nonce: int, expiry: int
) -> Statement[BodyT]:
    """Sign an off-chain statement; `expiry` in Unix seconds."""
    signed = sign(document_of(body, nonce, expiry), domain, signer)
    return Statement(body=body, nonce=nonce, expiry=expiry, signature=signed.signature)


def verify_statement(
    statement: Statement[BodyT],
    domain: Domain,
    *,
    account: Address,
    keys: KeyRing,
    role: KeyRole | None,
    at: int,
) -> Rejection | None:
    """None when `account`, or its key of `role`, signed the statement and it has not expired.

    `at` is in Unix seconds. Rejects: BAD_SIGNATURE, KEY_NOT_AUTHORISED, EXPIRED.
    """
    what = type(statement.body).__name__
    if statement.expiry <= at:
        return Rejection(
            reason=RejectReason.EXPIRED,
            field=f"{what}.expiry",
            found=str(statement.expiry),
            needed=f"later than {at}",
            next="Sign the statement again.",
        )
    document = document_of(statement.body, statement.nonce, statement.expiry)
    signer = _signer_for(
        document.digest(domain),
        statement.signature,
        what,
        account=account,
        keys=keys,
        role=role,
        at=at,
    )
    return signer if isinstance(signer, Rejection) else None
