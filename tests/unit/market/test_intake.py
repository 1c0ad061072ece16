"""The door: each thing that can be wrong with an order has its own reason."""

from __future__ import annotations

import msgspec
import pytest

from cloud_gpu.protocol import limits
from cloud_gpu.protocol.chain_events import (
    ChainEvent,
    DelegationChanged,
    MachineRetiring,
    MarketRegistered,
)
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.identity import Delegation, KeyRole, NodeBinding, PeerId
from cloud_gpu.protocol.orders import (
    AskFlags,
    BidFlags,
    Cancellation,
    SignedAdvert,
    SignedBid,
    Terms,
)
from cloud_gpu.protocol.signing import Statement, Verified, state
from cloud_gpu.protocol.units import BasisPoints
from cloud_gpu.protocol.values import Address, Digest
from market.books.ledger import Ledger
from market.doors.intake import check_advert, check_bid, check_cancellation
from tests.unit.market.builders import (
    DOMAIN,
    FEE,
    MARKET_KEY,
    NOW_S,
    RULES,
    SEALED,
    advert,
    key,
    machine,
    order,
    price,
    product,
    profile,
    provider,
)

R = RejectReason


def ledger(*more: ChainEvent) -> Ledger:
    """One product, a market with a fee, a provider with one machine."""
    found = Ledger(RULES.bond_unit)
    market = MarketRegistered(market_id=1, account=MARKET_KEY.address, fee=FEE)
    for event in (product(), market, *provider("ada"), *more):
        found.apply(event)
    return found


def judged_bid(signed: SignedBid, at: int = NOW_S) -> RejectReason | None:
    known = ledger()
    found = check_bid(signed, rules=RULES, products=known.products, fee=known.fee_of(1), at=at)
    return found.reason if isinstance(found, Rejection) else None


def test_a_sound_bid_is_verified_with_its_buyer_as_signer() -> None:
    known = ledger()
    found = check_bid(order("bob"), rules=RULES, products=known.products, fee=FEE, at=NOW_S)
    assert isinstance(found, Verified)
    assert found.signer == found.account == key("bob").address


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"matcher": Address(b"\x09" * 20)}, R.WRONG_MATCHER),
        ({"terms": Digest(bytes(32))}, R.TERMS_DIGEST_DIFFERS),
        ({"start_by": NOW_S}, R.EXPIRED),
        ({"start_by": NOW_S + limits.ORDER_LIFE_S_MAX + 1}, R.DURATION_OUTSIDE_LIMITS),
        ({"product": 7}, R.UNKNOWN_PRODUCT),
        ({"count": 65}, R.WRONG_COUNT),
        ({"count": 2}, R.FLAGS_DIFFER),
        ({"count": 3, "flags": 4, "wanting": Terms(chunk=2)}, R.WRONG_COUNT),
        ({"wanting": Terms(start_from=NOW_S + 301)}, R.DURATION_OUTSIDE_LIMITS),
        ({"flags": BidFlags.VERIFIED}, R.FLAGS_DIFFER),
        ({"audit_bps": BasisPoints(5)}, R.FLAGS_DIFFER),
        ({"wanting": Terms(block=True)}, R.MALFORMED),
        ({"max_fee_bps": BasisPoints(99)}, R.FEE_ABOVE_LIMIT),
        ({"max_price_per_hour": price("0.001"), "duration": 3}, R.CAP_OUT_OF_RANGE),
        ({"max_price_per_hour": price(281_000_000), "duration": 86_400}, R.CAP_OUT_OF_RANGE),
    ],
)
def test_a_bid_that_breaks_one_rule_is_told_which(
    changes: dict[str, object], reason: RejectReason
) -> None:
    assert judged_bid(order("bob", **changes)) is reason  # type: ignore[arg-type]


def test_a_sealed_bid_needs_a_salt_and_is_told_why() -> None:
    assert judged_bid(order("bob", wanting=SEALED)) is None
    found = check_bid(
        order("bob", wanting=Terms(block=True)),
        rules=RULES,
        products=ledger().products,
        fee=FEE,
        at=NOW_S,
    )
    assert isinstance(found, Rejection)
    assert (found.field, found.found) == ("terms.salt", "none")
    assert "32 random bytes" in found.needed


def test_a_bid_signed_by_another_key_or_changed_after_signing_is_refused() -> None:
    sound = order("bob")
    dearer = msgspec.structs.replace(sound.bid.payload, max_price_per_hour=price(9))
    forged = msgspec.structs.replace(sound, bid=msgspec.structs.replace(sound.bid, payload=dearer))
    assert judged_bid(order("bob", signer="mallory")) is R.KEY_NOT_AUTHORISED
    assert judged_bid(forged) is R.KEY_NOT_AUTHORISED


def test_terms_longer_than_a_market_reads_are_refused() -> None:
    longest = Terms(regions=tuple("x" * 59 + f"{n:05d}" for n in range(64)))
    assert judged_bid(order("bob", wanting=longest)) is None
    endless = Terms(cuda_min="1" * limits.TERMS_BYTES_MAX)
    assert judged_bid(order("bob", wanting=endless)) is R.TOO_LARGE


def judged_advert(signed: SignedAdvert, *more: ChainEvent, at: int = NOW_S) -> RejectReason | None:
    found = check_advert(signed, rules=RULES, ledger=ledger(*more), at=at)
    return found.reason if isinstance(found, Rejection) else None


def test_a_sound_advert_is_verified_with_the_node_key_as_signer() -> None:
    found = check_advert(advert("ada"), rules=RULES, ledger=ledger(), at=NOW_S)
    assert isinstance(found, Verified)
    assert found.signer == key("ada-node").address


def test_the_wallet_itself_may_sign_where_it_bound_itself() -> None:
    assert judged_advert(advert("ada", node="ada", bound="ada")) is None
    assert judged_advert(advert("ada", node="ada")) is R.KEY_NOT_AUTHORISED


def test_another_node_key_of_the_provider_speaks_for_its_own_peer_alone() -> None:
    """Or buyers and auditors, who know the binding alone, would doubt what the market took."""
    of_ada = Delegation(account=key("ada").address, role=KeyRole.NODE, expiry=NOW_S + 10**6)
    second = DelegationChanged(signer=key("second").address, delegation=of_ada)
    said = advert("ada")
    for mixed in (
        advert("ada", node="second"),
        state(said.body, DOMAIN, key("second"), nonce=1, expiry=said.expiry),
    ):
        assert judged_advert(mixed, second) is R.KEY_NOT_AUTHORISED
    both = advert("ada", node="second", bound="second")
    assert judged_advert(both, second) is None
    assert judged_advert(both) is R.KEY_NOT_AUTHORISED  # bound, and unknown to the chain


@pytest.mark.parametrize(
    ("signed", "reason"),
    [
        (advert("ada", matcher=Address(b"\x09" * 20)), R.WRONG_MATCHER),
        (advert("ada", start_by=NOW_S), R.EXPIRED),
        (advert("ada", start_by=NOW_S + limits.ORDER_LIFE_S_MAX + 1), R.DURATION_OUTSIDE_LIMITS),
        (advert("ada", max_fee_bps=BasisPoints(99)), R.FEE_ABOVE_LIMIT),
        (advert("ada", 5), R.UNKNOWN_MACHINE),
        (advert("eve"), R.UNKNOWN_MACHINE),
        (advert("ada", product=2), R.WRONG_PRODUCT),
        (advert("ada", seq=2), R.STALE_SEQUENCE),
        (advert("ada", flags=AskFlags.INTERRUPTIBLE), R.FLAGS_DIFFER),
        (advert("ada", hardware=profile(2)), R.WRONG_COUNT),
        (advert("ada", hardware=profile(gpu_class="H100-SXM5-80GB")), R.WRONG_COUNT),
        (advert("ada", addresses=("/ip4/127.0.0.1/tcp/1/p2p/other",)), R.MALFORMED),
        (advert("ada", node="mallory"), R.KEY_NOT_AUTHORISED),
    ],
    ids=lambda value: value.value if isinstance(value, R) else "",
)
def test_an_advert_that_breaks_one_rule_is_told_which(
    signed: SignedAdvert, reason: RejectReason
) -> None:
    assert judged_advert(signed) is reason


def test_an_ask_for_a_machine_that_is_leaving_is_refused() -> None:
    assert (
        judged_advert(advert("ada"), MachineRetiring(machine=machine("ada"))) is R.UNKNOWN_MACHINE
    )


def bound(**changes: object) -> Statement[NodeBinding]:
    fields = {
        "provider": key("ada").address,
        "node_key": key("ada-node").address,
        "peer": PeerId("peer-ada"),
    }
    body = NodeBinding(**(fields | changes))  # type: ignore[arg-type]
    return state(body, DOMAIN, key("ada"), nonce=1, expiry=NOW_S + 60)


@pytest.mark.parametrize(
    ("binding", "reason"),
    [
        (bound(), None),
        (bound(peer=PeerId("peer-eve")), R.KEY_NOT_AUTHORISED),
        (bound(provider=key("eve").address), R.KEY_NOT_AUTHORISED),
        (bound(node_key=key("other").address), R.KEY_NOT_AUTHORISED),
        (msgspec.structs.replace(bound(), expiry=NOW_S), R.EXPIRED),
        (msgspec.structs.replace(bound(), nonce=2), R.KEY_NOT_AUTHORISED),
    ],
    ids=["sound", "peer", "provider", "node-key", "expired", "altered"],
)
def test_a_binding_that_does_not_bind_this_node_is_refused(
    binding: Statement[NodeBinding], reason: RejectReason | None
) -> None:
    assert judged_advert(advert("ada", binding=binding)) is reason


def test_a_cancellation_counts_only_from_the_buyer_and_before_it_expires() -> None:
    body = Cancellation(bid=order("bob").bid.payload.id)
    signed = state(body, DOMAIN, key("bob"), nonce=1, expiry=NOW_S + 10)
    buyer = key("bob").address
    assert check_cancellation(signed, buyer=buyer, rules=RULES, at=NOW_S) is None
    late = check_cancellation(signed, buyer=buyer, rules=RULES, at=NOW_S + 10)
    other = check_cancellation(signed, buyer=key("dan").address, rules=RULES, at=NOW_S)
    assert late is not None
    assert other is not None
    assert (late.reason, other.reason) == (R.EXPIRED, R.KEY_NOT_AUTHORISED)
    assert str(key("dan").address) not in str(other), "whose the order is, a stranger is not told"
