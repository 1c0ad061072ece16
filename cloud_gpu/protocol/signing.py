"""EIP-712: typed values, their digests, signatures, and `Signed[T] -> verify() -> Verified[T]`.

Only `verify` makes a `Verified`; the book, leasing and the referee accept nothing else. Off-chain
statements are canonical JSON bound by one type, `Document`. Source: EIP-712, EIP-191, RFC 8785.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from operator import attrgetter
from struct import Struct
from struct import error as StructError
from types import MappingProxyType
from typing import ClassVar, Final, Generic, TypeVar

from coincurve import PublicKey
from msgspec.structs import fields

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import KeyRing, KeyRole, Signer
from cloud_gpu.protocol.units import Quantity
from cloud_gpu.protocol.values import Address, Digest, Signature, Value, keccak256

_HALF_ORDER: Final = bytes.fromhex(
    "7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0"
)
_RECOVERY: Final = {27: b"\0", 28: b"\1"}
"""Ethereum's v -> libsecp256k1's recovery id."""
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


@cache
def _prefix(domain: Domain) -> bytes:
    return b"\x19\x01" + domain.separator


class TypedData(Value, frozen=True, kw_only=True):
    """A value that EIP-712 can hash; `TYPE` is its exact type string, shared with Solidity."""

    TYPE: ClassVar[str]
    ROLE: ClassVar[KeyRole | None] = None
    """Which delegated key may sign it for its account; None: the account's own key alone."""
    NAMES: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Fields whose name here is not the type string's: those of the type string, then ours."""

    def struct_hash(self) -> Digest:
        """keccak256(typeHash || one word per field); every field is of a static type.

        Raises ValueError, naming the field, for what its type cannot hold.
        """
        return keccak256(_layout(type(self)).packed(self))

    def digest(self, domain: Domain) -> Digest:
        """What is signed: keccak256(0x19 0x01 || domain separator || struct hash)."""
        return _digest_of(self.struct_hash(), domain)


def _digest_of(struct_hash: Digest, domain: Domain) -> Digest:
    return keccak256(_prefix(domain) + struct_hash.raw)


_NATIVE: Final = {"bool": "31x?", "uint8": "31xB", "uint16": "30xH", "uint32": "28xI"} | {
    "uint64": "24xQ",
    "address": "12x20s",
    "bytes32": "32s",
}
"""How `struct` writes a word; other widths are written as so many bytes."""


def _words(kind: type[TypedData]) -> list[tuple[str, str]]:
    """Type and name of each field, as the type string has them."""
    inside = kind.TYPE[kind.TYPE.index("(") + 1 : -1]
    return [(word, name) for word, name in (field.split(" ") for field in inside.split(","))]


@cache
def field_names(kind: type[TypedData]) -> tuple[str, ...]:
    """Our names of the fields, in the order of the type string."""
    return tuple(kind.NAMES.get(name, _CAMEL.sub("_", name).lower()) for _, name in _words(kind))


class _Layout:
    """A type string compiled once: one pass takes the fields, one call packs all their words."""

    def __init__(self, kind: type[TypedData]) -> None:
        units = {field.name: field.type for field in fields(kind)}
        formats, paths = [">32s"], []
        self._lengths: list[tuple[int, int]] = []
        self._widths: list[tuple[int, int]] = []
        for place, ((word, _), name) in enumerate(
            zip(_words(kind), field_names(kind), strict=True)
        ):
            if word in ("address", "bytes32"):
                self._lengths.append((place, 20 if word == "address" else 32))
                paths.append(f"{name}.raw")
            else:
                unit = units[name]
                is_quantity = isinstance(unit, type) and issubclass(unit, Quantity)
                paths.append(f"{name}.value" if is_quantity else name)
            if word not in _NATIVE:
                width = int(word.removeprefix("uint")) // 8
                self._widths.append((place, width))
            formats.append(_NATIVE.get(word) or f"{32 - width}x{width}s")
        assert len(paths) > 1, "attrgetter gives a tuple for two names or more"
        self._paths = paths
        self._take = attrgetter(*paths)
        self._pack = Struct("".join(formats)).pack
        self._type_hash = keccak256(kind.TYPE.encode()).raw

    def packed(self, value: TypedData) -> bytes:
        """Type hash and words. Raises ValueError."""
        try:
            found = list(self._take(value))
            for place, length in self._lengths:
                if len(found[place]) != length:  # struct would cut or fill it without a word
                    raise ValueError(f"{self._paths[place]}: needed {length} bytes")
            for place, width in self._widths:
                found[place] = found[place].to_bytes(width, "big")
            return self._pack(self._type_hash, *found)
        except (AttributeError, OverflowError, StructError) as error:
            raise ValueError(f"{value!r} does not fit {value.TYPE}: {error}") from error


@cache
def _layout(kind: type[TypedData]) -> _Layout:
    return _Layout(kind)


DataT = TypeVar("DataT", bound=TypedData)


class Signed(Value, Generic[DataT], frozen=True, kw_only=True):
    """A typed value with a signature nobody has checked yet."""

    payload: DataT
    signature: Signature


_VERIFY: Final = object()


class Verified(Generic[DataT]):
    """A typed value whose signature was checked; only `verify` makes one."""

    __slots__ = ("account", "digest", "payload", "signature", "signer", "struct_hash")

    def __init__(
        self,
        made_by: object,
        signed: Signed[DataT],
        struct_hash: Digest,
        digest: Digest,
        account: Address,
        signer: Address,
    ) -> None:
        assert made_by is _VERIFY, "only verify() makes a Verified value"
        self.payload = signed.payload
        self.signature = signed.signature
        self.struct_hash = struct_hash
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
    raw, recovery = signature.raw, _RECOVERY.get(signature.raw[64])
    if recovery is None or raw[32:64] > _HALF_ORDER:
        return None
    try:
        key = PublicKey.from_signature_and_message(raw[:64] + recovery, digest.raw, hasher=None)
    except Exception:  # coincurve raises bare Exception subclasses for points off the curve
        return None
    return Address(keccak256(key.format(compressed=False)[1:]).raw[12:])


def verify(
    signed: Signed[DataT], domain: Domain, *, account: Address, keys: KeyRing, at: int
) -> Verified[DataT] | Rejection:
    """Check that `account`, or a key it delegated for this type, signed the value.

    `at` is in Unix seconds. Rejects: BAD_SIGNATURE, KEY_NOT_AUTHORISED.
    """
    struct_hash = signed.payload.struct_hash()
    digest = _digest_of(struct_hash, domain)
    what = type(signed.payload).__name__
    signer = _signer_for(
        digest, signed.signature, what, account=account, keys=keys, role=signed.payload.ROLE, at=at
    )
    if isinstance(signer, Rejection):
        return signer
    return Verified(_VERIFY, signed, struct_hash, digest, account, signer)


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
    if signer == account:
        return signer
    if signer is not None and role is not None and keys.may_sign(account, signer, role, at):
        return signer
    needed = f"{account}" + (f" or its {role.name.lower()} key" if role else "")
    if signer is None:
        return Rejection(
            reason=RejectReason.BAD_SIGNATURE,
            field=f"{what}.signature",
            found="a signature that recovers to no key",
            needed=f"the signature of {needed}",
            next="Sign the value again for this chain id and LeaseBook address.",
        )
    return Rejection(
        reason=RejectReason.KEY_NOT_AUTHORISED,
        field=f"{what}.signature",
        found=f"signed by {signer}",
        needed=needed,
        next="Check the key, the chain id and the LeaseBook address that were signed for.",
    )


class Document(TypedData, frozen=True, kw_only=True):
    """What every off-chain statement is signed as."""

    TYPE = "Document(bytes32 kind,bytes32 digest,uint64 nonce,uint64 expiry)"
    NAMES = MappingProxyType({"digest": "content"})
    kind: Digest
    content: Digest
    nonce: int
    expiry: int
    """Unix seconds after which the statement no longer counts."""


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


@cache
def _kind_hash(kind: str) -> Digest:
    return keccak256(kind.encode())


def document_of(body: Value, nonce: int, expiry: int) -> Document:
    """The document that binds a statement's content; `body` names its kind in `KIND`."""
    kind: str = body.KIND  # type: ignore[attr-defined]
    return Document(
        kind=_kind_hash(kind), content=keccak256(to_json(body)), nonce=nonce, expiry=expiry
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
