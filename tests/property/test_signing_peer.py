"""Every signed type: the digest and the signer are those of eth-account, of any values."""

from __future__ import annotations

from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.audit import Verdict
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.signing import Document, Domain, TypedData, recover
from cloud_gpu.protocol.units import Quantity
from cloud_gpu.protocol.values import Digest, FixedBytes, Signature
from tests.support import drawing

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "Ask": drawing.asks,
    "Bid": drawing.bids,
    "Match": drawing.matches,
    "Ready": drawing.readies,
    "Accept": drawing.accepts,
    "Voucher": drawing.vouchers,
    "Final": drawing.finals,
    "Delegate": drawing.delegations,
    "Permit": drawing.permits,
    "Document": drawing.documents,
    "Commit": drawing.commitments,
    "Verdict": drawing.verdicts,
    "Results": drawing.results,
    "FutureOrder": drawing.future_orders,
    "Assignment": drawing.assignments,
    "Pledge": drawing.pledges,
}
"""Name in the type string -> values."""
RENAMED = {Document: ("digest", "content"), Verdict: ("digest", "result_digest")}
domains = st.builds(
    Domain,
    name=st.text(max_size=40),
    chain_id=drawing.words(64),
    verifying_contract=drawing.addresses,
    version=st.text(max_size=5),
)
keys = st.integers(1, 2**200).map(lambda secret: LocalKey(secret.to_bytes(32, "big")))


def _plain(found: object) -> object:
    if isinstance(found, FixedBytes):
        return found.raw
    return found.value if isinstance(found, Quantity) else found


def _message(value: TypedData, domain: Domain) -> Any:
    """What eth-account signs."""
    name, _, rest = value.TYPE.partition("(")
    types, data = [], {}
    for field in rest[:-1].split(","):
        kind, camel = field.split(" ")
        types.append({"name": camel, "type": kind})
        ours = "".join("_" + c.lower() if c.isupper() else c for c in camel)
        theirs, renamed = RENAMED.get(type(value), ("", ""))
        data[camel] = _plain(getattr(value, renamed if camel == theirs else ours))
    about = {
        "name": domain.name,
        "version": domain.version,
        "chainId": domain.chain_id,
        "verifyingContract": domain.verifying_contract.raw,
    }
    return encode_typed_data(about, {name: types}, data)


@pytest.mark.parametrize("name", VALUES)
def test_digest_and_signer_are_those_of_eth_account(name: str) -> None:
    @given(VALUES[name], domains, keys)
    def check(value: TypedData, domain: Domain, key: LocalKey) -> None:
        assert value.TYPE.startswith(name + "(")
        theirs = Account.sign_message(_message(value, domain), key.secret)
        ours = key.sign_digest(value.digest(domain))
        assert value.digest(domain).raw == bytes(theirs.message_hash)
        assert ours.raw == bytes(theirs.signature)
        assert recover(value.digest(domain), Signature(bytes(theirs.signature))) == key.address

    check()


def test_every_signed_type_is_compared() -> None:
    def below(kind: type[TypedData]) -> set[type[TypedData]]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__()))

    named = [kind.TYPE for kind in below(TypedData) if "TYPE" in vars(kind)]
    assert {each.partition("(")[0] for each in named} == set(VALUES)


@given(drawing.digests, st.binary(min_size=64, max_size=64), st.sampled_from((27, 28)))
def test_a_random_signature_recovers_to_the_same_key_or_to_none(
    digest: Digest, raw: bytes, v: int
) -> None:
    signature = raw + bytes([v])
    found = recover(digest, Signature(signature))
    if found is not None:  # eth-account takes malleable ones, too
        assert Account._recover_hash(digest.raw, signature=signature) == str(found)
