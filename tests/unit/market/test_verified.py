"""Verified bids: matched only while all verifiers are heard and others could repeat the work."""

from __future__ import annotations

import msgspec
import pytest

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.audit_messages import SignedVerifierNotice, VerifierNotice
from cloud_gpu.protocol.chain_events import BatchFinalised
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import VerifierHeard
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.orders import AskFlags, BidFlags, SignedBid
from cloud_gpu.protocol.product import ProductFlags
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.units import ZERO_TOKENS, BasisPoints
from tests.unit.market.builders import (
    DOMAIN,
    NOW_S,
    RULES,
    Desk,
    advert,
    joined,
    key,
    order,
    pairs,
    product,
    provider,
)

NAMES = ("vera", "viktor")
WITH_VERIFIERS = msgspec.structs.replace(
    RULES, verifiers=tuple(key(name).address for name in NAMES), silence_ms=3_600_000
)


def notice(name: str, at: int = NOW_S, signer: str | None = None) -> SignedVerifierNotice:
    body = VerifierNotice(
        verifier=key(name).address, peer=PeerId("p"), addresses=("/ip4/1.1.1.1/tcp/1",), at=at
    )
    return state(body, DOMAIN, key(signer or name), nonce=at, expiry=at + 600)


@pytest.fixture
def desk() -> Desk:
    """Three owners of a product with verified leases; one of them offers a machine."""
    desk = Desk(WITH_VERIFIERS)
    desk.mine(product(flags=int(ProductFlags.VERIFIED)))
    desk.mine(*provider("ada"), *provider("eve"), *provider("zoe"), *joined("bob", 2))
    desk.hear(advert("ada", flags=AskFlags.VERIFIED))
    return desk


def verified(**changes: object) -> SignedBid:
    flags = int(BidFlags.VERIFIED)
    return order("bob", flags=flags, audit_bps=BasisPoints(600), **changes)  # type: ignore[arg-type]


def hear(desk: Desk, *notices: SignedVerifierNotice) -> None:
    desk.tell(*(VerifierHeard(notice=each) for each in notices))


def test_a_verified_bid_is_matched_while_both_verifiers_are_heard(desk: Desk) -> None:
    hear(desk, *map(notice, NAMES))
    desk.submit(verified())
    assert len(pairs(desk.end_round())) == 1


def test_a_verified_bid_waits_while_one_verifier_is_silent_and_is_told_so(desk: Desk) -> None:
    hear(desk, notice("vera"))
    bid = verified()
    desk.submit(bid)
    assert pairs(desk.end_round()) == []
    why = desk.report(bid).rejection
    assert why is not None
    assert (why.reason, why.field) == (RejectReason.NO_MATCH, "bid.flags")
    assert why.next.startswith("Do without verified results")
    hear(desk, notice("viktor"))
    assert len(pairs(desk.end_round())) == 1


def test_a_heartbeat_that_is_ten_minutes_old_no_longer_counts(desk: Desk) -> None:
    hear(desk, *map(notice, NAMES))
    desk.now += (WITH_VERIFIERS.heartbeat_age_s + 1) * 1_000
    later = desk.now // 1_000 + 300
    desk.hear(advert("ada", flags=AskFlags.VERIFIED, start_by=later, announced=2))
    desk.submit(verified(start_by=later))
    assert pairs(desk.end_round()) == []


def test_a_class_with_too_few_owners_opens_no_verified_lease() -> None:
    desk = Desk(WITH_VERIFIERS)
    desk.mine(product(flags=int(ProductFlags.VERIFIED)))
    desk.mine(*provider("ada", 3), *provider("eve"), *joined("bob", 2))
    desk.hear(advert("ada", flags=AskFlags.VERIFIED))
    hear(desk, *map(notice, NAMES))
    bid = verified()
    desk.submit(bid)
    assert pairs(desk.end_round()) == []
    why = desk.report(bid).rejection
    assert why is not None
    assert why.found == "2 owners of this GPU class"


def test_audits_are_paid_beside_the_cap_so_the_vault_must_cover_both(desk: Desk) -> None:
    hear(desk, *map(notice, NAMES))
    desk.submit(verified(duration=7_200))
    assert pairs(desk.end_round()) == []
    desk.mine(joined("bob", 1)[1])
    assert len(pairs(desk.end_round())) == 1


@pytest.mark.parametrize(
    "bad",
    [
        notice("vera", signer="mallory"),
        notice("mallory"),
        msgspec.structs.replace(notice("vera"), expiry=NOW_S),
    ],
    ids=["forged", "stranger", "expired"],
)
def test_a_notice_that_is_no_verifiers_changes_nothing(
    desk: Desk, bad: SignedVerifierNotice
) -> None:
    hear(desk, notice("viktor"))
    before = desk.market.state_hash()
    assert not desk.market.examine_notice(bad, desk.now)
    hear(desk, bad)
    assert desk.market.state_hash() == before


def test_a_heartbeat_hardly_newer_than_the_last_is_no_event(desk: Desk) -> None:
    hear(desk, notice("vera"))
    assert not desk.market.examine_notice(notice("vera", NOW_S + 5), desk.now)
    assert desk.market.examine_notice(notice("vera", NOW_S + 60), desk.now)


def test_without_verifiers_in_the_deployment_no_verified_lease_is_opened() -> None:
    desk = Desk()
    desk.mine(product(flags=int(ProductFlags.VERIFIED)))
    desk.mine(*provider("ada"), *provider("eve"), *provider("zoe"), *joined("bob", 9))
    desk.hear(advert("ada", flags=AskFlags.VERIFIED))
    desk.submit(verified(), order("bob", nonce=1))
    assert len(pairs(desk.end_round())) == 1


def test_a_provider_that_was_slashed_for_fraud_opens_no_verified_lease(desk: Desk) -> None:
    hear(desk, *map(notice, NAMES))
    machine = advert("ada").body.ask.payload
    desk.mine(
        BatchFinalised(
            lease=LeaseKey(provider=machine.provider, index=machine.index, seq=1),
            batch_no=0,
            state=BatchState.SLASHED,
            provider=ZERO_TOKENS,
            market=ZERO_TOKENS,
            audits=ZERO_TOKENS,
            buyer=ZERO_TOKENS,
            burnt=ZERO_TOKENS,
            at=NOW_S,
        )
    )
    bid = verified()
    desk.submit(bid)
    assert pairs(desk.end_round()) == []
    why = desk.report(bid).rejection
    assert why is not None
    assert why.found == "a provider that fraud cost its verified leases"
    desk.submit(order("bob", nonce=1))
    assert len(pairs(desk.end_round())) == 1  # a plain one opens
