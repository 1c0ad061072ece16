"""Typed values hash as eth-account hashes them, and only the right key verifies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol import codec
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.futures import Assignment, FutureOrder
from cloud_gpu.protocol.group_buy import Pledge
from cloud_gpu.protocol.identity import (
    Delegation,
    Delegations,
    KeyRole,
    LocalKey,
    NodeBinding,
    NoDelegates,
    PeerId,
)
from cloud_gpu.protocol.match import Match
from cloud_gpu.protocol.orders import Ask, Bid
from cloud_gpu.protocol.signing import (
    Document,
    Domain,
    Signed,
    Statement,
    TypedData,
    Verified,
    recover,
    sign,
    state,
    verify,
    verify_statement,
)
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from cloud_gpu.protocol.values import Address, Digest, Signature
from cloud_gpu.protocol.voucher import Accept, Final, Ready, Voucher

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "orders.json").read_text())
KINDS: dict[str, type[TypedData]] = {
    kind.__name__: kind
    for kind in (
        *(Ask, Bid, Match, Ready, Accept, Voucher, Final, Document),
        *(FutureOrder, Assignment, Pledge),
    )
}
DOMAIN = Domain(
    name=VECTORS["domain"]["name"],
    chain_id=VECTORS["domain"]["chainId"],
    verifying_contract=Address.parse(VECTORS["domain"]["verifyingContract"]),
)
KEY, OTHER = LocalKey(b"\x01" * 32), LocalKey(b"\x02" * 32)
HALF_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


class Unchecked(TypedData, frozen=True, kw_only=True):
    """A voucher that does not look at its fields."""

    TYPE = Voucher.TYPE
    provider: Address = OTHER.address
    index: int = 0
    seq: int = 1
    amount: TokenAmount = TokenAmount(5)


def _voucher(amount: int = 5) -> Voucher:
    return Voucher(provider=OTHER.address, index=0, seq=1, amount=TokenAmount(amount))


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name)


def _value(field: str, text: str) -> Any:
    if field in ("minPricePerHour", "maxPricePerHour", "limitPricePerHour", "price"):
        return Price(int(text))
    if field in ("maxFeeBps", "auditBps"):
        return BasisPoints(int(text))
    if field in ("amount", "leaverPays", "joinerPays", "maxAmount"):
        return TokenAmount(int(text))
    if text.startswith("0x"):
        return Address.parse(text) if len(text) == 42 else Digest.parse(text)
    return int(text)


@pytest.mark.parametrize(
    "case", [c for c in VECTORS["cases"] if c["type"] in KINDS], ids=lambda c: c["structHash"][:10]
)
def test_typed_value_when_given_a_vector_then_hashes_equal(case: dict[str, Any]) -> None:
    kind = KINDS[case["type"]]
    assert case["typeString"] == kind.TYPE
    fields = {_snake(name): _value(name, text) for name, text in case["fields"].items()}
    if kind is Document:
        fields["content"] = fields.pop("digest")
    value = kind(**fields)
    assert str(value.struct_hash()) == case["structHash"]
    assert str(value.digest(DOMAIN)) == case["digest"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"amount": TokenAmount(2**48)}, "amount"),
        ({"seq": 2**24}, "seq"),
        ({"index": 2**32}, "index"),
        ({"index": -1}, "index"),
        ({"provider": Digest(bytes(32))}, "provider"),
        ({"provider": 5}, "provider"),
    ],
)
def test_struct_hash_when_a_field_does_not_fit_then_refused(
    change: dict[str, Any], named: str
) -> None:
    unfit = msgspec.convert({}, Unchecked)
    for name, value in change.items():
        unfit = msgspec.structs.replace(unfit, **{name: value})
    with pytest.raises(ValueError, match=named):
        unfit.struct_hash()


def test_verify_when_signed_by_the_account_then_verified() -> None:
    signed = sign(_voucher(), DOMAIN, KEY)
    found = verify(signed, DOMAIN, account=KEY.address, keys=NoDelegates(), at=0)
    assert isinstance(found, Verified)
    assert (found.signer, found.payload, found.signed) == (KEY.address, _voucher(), signed)


def test_verify_when_signed_by_another_key_then_rejected_with_both_addresses() -> None:
    found = verify(
        sign(_voucher(), DOMAIN, OTHER), DOMAIN, account=KEY.address, keys=NoDelegates(), at=0
    )
    assert isinstance(found, Rejection)
    assert found.reason is RejectReason.KEY_NOT_AUTHORISED
    assert str(OTHER.address) in found.found
    assert str(KEY.address) in found.needed


@pytest.mark.parametrize(
    ("role", "at", "passes"),
    [
        (KeyRole.SESSION, 99, True),
        (KeyRole.NODE, 99, False),
        (KeyRole.SESSION, 100, False),
        (KeyRole.SESSION, 49, True),
    ],
)
def test_verify_when_signed_by_a_delegate_then_role_and_expiry_decide(
    role: KeyRole, at: int, passes: bool
) -> None:
    keys = Delegations()
    keys.record(OTHER.address, Delegation(account=KEY.address, role=role, expiry=100))
    signed = sign(_voucher(), DOMAIN, OTHER)
    found = verify(signed, DOMAIN, account=KEY.address, keys=keys, at=at)
    assert isinstance(found, Verified) is passes


def test_delegation_when_revoked_then_ends_when_the_revocation_takes_effect() -> None:
    kept = Delegation(account=KEY.address, role=KeyRole.NODE, expiry=100, revoked_at=50)
    assert kept.holds(KEY.address, KeyRole.NODE, 49)
    assert not kept.holds(KEY.address, KeyRole.NODE, 50)


def test_verify_when_the_chain_or_contract_differs_then_rejected() -> None:
    signed = sign(_voucher(), DOMAIN, KEY)
    for other in (
        Domain(name="LeaseBook", chain_id=1, verifying_contract=DOMAIN.verifying_contract),
        Domain(name="LeaseBook", chain_id=31337, verifying_contract=Address(b"\x09" * 20)),
        Domain(name="Futures", chain_id=31337, verifying_contract=DOMAIN.verifying_contract),
    ):
        found = verify(signed, other, account=KEY.address, keys=NoDelegates(), at=0)
        assert isinstance(found, Rejection)


def test_recover_when_the_signature_is_malleable_then_none() -> None:
    signed = sign(_voucher(), DOMAIN, KEY)
    raw = signed.signature.raw
    s = int.from_bytes(raw[32:64], "big")
    assert s <= HALF_ORDER
    twin = Signature(raw[:32] + (CURVE_ORDER - s).to_bytes(32, "big") + bytes([55 - raw[64]]))
    digest = _voucher().digest(DOMAIN)
    assert recover(digest, signed.signature) == KEY.address
    assert recover(digest, twin) is None


@given(st.binary(min_size=65, max_size=65))
def test_recover_when_given_any_bytes_then_never_raises(raw: bytes) -> None:
    assert recover(_voucher().digest(DOMAIN), Signature(raw)) != KEY.address


def test_verified_when_made_by_hand_then_refused() -> None:
    signed = sign(_voucher(), DOMAIN, KEY)
    with pytest.raises(AssertionError, match="only verify"):
        Verified(
            object(),
            signed,
            _voucher().struct_hash(),
            _voucher().digest(DOMAIN),
            KEY.address,
            KEY.address,
        )


def _binding(nonce: int = 1, expiry: int = 100) -> Statement[NodeBinding]:
    body = NodeBinding(provider=KEY.address, node_key=OTHER.address, peer=PeerId("16Uiu2"))
    return state(body, DOMAIN, KEY, nonce=nonce, expiry=expiry)


def _check(statement: Statement[NodeBinding], at: int = 10) -> Rejection | None:
    return verify_statement(
        statement, DOMAIN, account=KEY.address, keys=NoDelegates(), role=None, at=at
    )


def test_statement_when_unchanged_then_verifies_until_it_expires() -> None:
    assert _check(_binding(), at=99) is None
    expired = _check(_binding(), at=100)
    assert expired is not None
    assert expired.reason is RejectReason.EXPIRED


def test_statement_when_body_nonce_or_expiry_changes_then_rejected() -> None:
    good = _binding()
    other_body = NodeBinding(provider=KEY.address, node_key=OTHER.address, peer=PeerId("16Uiu3"))
    for forged in (
        Statement(body=other_body, nonce=1, expiry=100, signature=good.signature),
        Statement(body=good.body, nonce=2, expiry=100, signature=good.signature),
        Statement(body=good.body, nonce=1, expiry=101, signature=good.signature),
    ):
        assert _check(forged) is not None


def test_signed_when_sent_as_json_then_comes_back_equal() -> None:
    signed = sign(_voucher(), DOMAIN, KEY)
    assert codec.from_json(codec.to_json(signed), Signed[Voucher]) == signed
