"""Proofs of fraud: a market that cheats in each way is convicted by a small file, alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.receipts import AHEAD_S_MAX
from cloud_gpu.protocol.rounds import PlacedBid, PublishedRound, RoundBody, Taken, Unmatched
from cloud_gpu.protocol.ties import subject_of_bid, tie_of
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import ZERO_DIGEST, Digest
from market.audit.auditing import INBOX_PATIENCE_MS
from market.audit.proof_claims import check_proof
from market.audit.proofs import Claim, Exhibit, Proof, ProofFails
from tests.support.published import journal_of, prover_of, published, receipt_of, resealed
from tests.unit.market.builders import MARKET_KEY, Desk, advert, key, order

MARKET = MARKET_KEY.address
CHEAP, DEAR, OTHER = advert("ada"), advert("eve", at="1.40"), advert("eve", 1, at="1.45")
HIGH, LOW, POOR = order("bob", limit="1.80"), order("dan", limit="1.50"), order("dan", nonce=9)


def id_of(signed: SignedBid | SignedAdvert) -> Digest:
    if isinstance(signed, SignedBid):
        return Digest(signed.bid.payload.id.raw)
    return Digest(signed.body.ask.payload.id.raw)


@pytest.fixture
def rounds(desk: Desk) -> list[PublishedRound]:
    """HIGH takes CHEAP, LOW takes DEAR, and OTHER stays."""
    desk.hear(CHEAP, DEAR, OTHER)
    desk.submit(HIGH, LOW)
    desk.end_round()
    return published(journal_of(desk))


def fills_of(body: RoundBody) -> dict[Digest, Taken]:
    return {each.bid: each for each in body.fills if isinstance(each, Taken)}


def with_fills(body: RoundBody, *fills: Taken) -> RoundBody:
    return replace(body, fills=tuple(sorted(fills, key=lambda fill: fill.key)))


def envy_of_a_taker(body: RoundBody) -> RoundBody:
    """LOW gets what HIGH should have, and HIGH nothing."""
    fill = replace(fills_of(body)[id_of(HIGH)], bid=id_of(LOW))
    lost = Unmatched(order=id_of(HIGH), reason="no-match")
    return replace(with_fills(body, fill), unmatched=(lost,))


def envy_of_nobody(body: RoundBody) -> RoundBody:
    """HIGH gets nothing, though machines stay free."""
    lost = Unmatched(order=id_of(HIGH), reason="no-match")
    return replace(with_fills(body, fills_of(body)[id_of(LOW)]), unmatched=(lost,))


def poor_on_paper(body: RoundBody) -> RoundBody:
    """HIGH gets nothing: for want of cash, which the signed conditions do not show."""
    lost = Unmatched(order=id_of(HIGH), reason="cash-too-low")
    return replace(with_fills(body, fills_of(body)[id_of(LOW)]), unmatched=(lost,))


def swapped(body: RoundBody) -> RoundBody:
    """HIGH pays for DEAR, LOW gets CHEAP."""
    high, low = fills_of(body)[id_of(HIGH)], fills_of(body)[id_of(LOW)]
    return with_fills(body, replace(high, bid=id_of(LOW)), replace(low, bid=id_of(HIGH)))


def not_the_free_one(body: RoundBody) -> RoundBody:
    """LOW is given OTHER, though DEAR stays free."""
    high, low = fills_of(body)[id_of(HIGH)], fills_of(body)[id_of(LOW)]
    dearer = order("dan", limit="1.50").bid.payload
    price = OTHER.body.ask.payload.min_price_per_hour
    locked = type(low.locked)(price.value * dearer.count * dearer.duration // 3600)
    return with_fills(body, high, replace(low, ask=id_of(OTHER), price=price, locked=locked))


def twice(body: RoundBody) -> RoundBody:
    """CHEAP goes to both."""
    high = fills_of(body)[id_of(HIGH)]
    return replace(body, fills=(high, replace(high, bid=id_of(LOW))))


def above_the_ask(body: RoundBody) -> RoundBody:
    high, low = fills_of(body)[id_of(HIGH)], fills_of(body)[id_of(LOW)]
    return with_fills(body, replace(high, price=Price(high.price.value + 1000)), low)


def unlisted(body: RoundBody) -> RoundBody:
    """HIGH is given a machine that was not on offer."""
    high, low = fills_of(body)[id_of(HIGH)], fills_of(body)[id_of(LOW)]
    return with_fills(body, replace(high, ask=Digest(b"\x01" * 32)), low)


def no_part(body: RoundBody) -> RoundBody:
    """Somebody is matched who did not take part."""
    low = fills_of(body)[id_of(LOW)]
    return with_fills(body, replace(fills_of(body)[id_of(HIGH)], bid=id_of(POOR)), low)


def forged(body: RoundBody) -> RoundBody:
    (first, *rest) = sorted(body.orders, key=lambda each: each.key != str(id_of(HIGH)))
    bid = replace(first.order.bid, signature=LOW.bid.signature)  # type: ignore[union-attr]
    broken = replace(first, order=replace(first.order, bid=bid))
    return replace(body, orders=(broken, *rest))


def luckier(body: RoundBody) -> RoundBody:
    return replace(body, orders=tuple(replace(each, tie=ZERO_DIGEST) for each in body.orders))


def luckier_ask(body: RoundBody) -> RoundBody:
    return replace(body, asks=tuple(replace(each, tie=ZERO_DIGEST) for each in body.asks))


def entered_elsewhere(body: RoundBody) -> RoundBody:
    """HIGH is not among those that entered the batch that it names."""
    (batch,) = (each for each in body.batches if len(each.entered) > 1)
    mine = subject_of_bid(HIGH.bid.payload, HIGH.terms)
    left = replace(batch, entered=tuple(each for each in batch.entered if each != mine))
    orders = tuple(
        replace(
            each, tie=tie_of(left.seed, subject_of_bid(each.order.bid.payload, each.order.terms))
        )
        for each in body.orders
        if isinstance(each, PlacedBid)
    )
    return replace(body, batches=(left,), orders=orders)


CHEATS: list[tuple[Callable[[RoundBody], RoundBody], Digest, Claim]] = [
    (envy_of_a_taker, id_of(HIGH), Claim.ENVY),
    (envy_of_nobody, id_of(HIGH), Claim.ENVY),
    (poor_on_paper, id_of(HIGH), Claim.ENVY),
    (swapped, id_of(HIGH), Claim.SKIPPED),
    (not_the_free_one, id_of(LOW), Claim.SKIPPED),
    (twice, id_of(CHEAP), Claim.TWICE),
    (twice, id_of(LOW), Claim.TWICE),
    (above_the_ask, id_of(HIGH), Claim.LIMIT),
    (unlisted, id_of(HIGH), Claim.LIMIT),
    (no_part, id_of(POOR), Claim.LIMIT),
    (forged, id_of(HIGH), Claim.LIMIT),
    (luckier, id_of(HIGH), Claim.TIE),
    (luckier_ask, id_of(CHEAP), Claim.TIE),
    (entered_elsewhere, id_of(HIGH), Claim.TIE),
]


def convicted(
    rounds: list[PublishedRound], cheat: Callable[[RoundBody], RoundBody], about: Digest
) -> Proof:
    proof = prover_of(resealed(rounds, lambda _, body: cheat(body))).prove(about)
    return from_json(to_json(proof), Proof)


@pytest.mark.parametrize(
    ("cheat", "about", "claim"),
    CHEATS,
    ids=[f"{cheat.__name__}-{claim}" for cheat, _, claim in CHEATS],
)
def test_a_market_that_cheats_is_convicted_by_a_proof_alone(
    rounds: list[PublishedRound],
    cheat: Callable[[RoundBody], RoundBody],
    about: Digest,
    claim: Claim,
) -> None:
    proof = convicted(rounds, cheat, about)
    assert proof.claim is claim
    said = check_proof(proof, MARKET)
    assert said.startswith(f"In round 1 of market 1 of {MARKET}")


def test_an_honest_market_cannot_be_accused(rounds: list[PublishedRound]) -> None:
    prover = prover_of(rounds)
    for about in (HIGH, LOW, POOR, CHEAP, DEAR, OTHER):
        with pytest.raises(ProofFails, match="shows no fault"):
            prover.prove(id_of(about))
    for inbox, about in enumerate((HIGH, LOW, POOR), 1):
        with pytest.raises(ProofFails, match="shows no fault"):
            prover.prove_unread(receipt_of(id_of(about), inbox))
    with pytest.raises(ProofFails, match="this very header"):
        prover.prove_fork(rounds[0].header)


def test_another_order_in_a_receipts_place_is_proved(rounds: list[PublishedRound]) -> None:
    receipt = receipt_of(id_of(POOR), 2)
    proof = prover_of(rounds).prove_unread(receipt)
    assert f"where order {id_of(LOW)} came out" in check_proof(proof, MARKET)
    honest = receipt_of(id_of(LOW), 2)
    forged = (
        receipt_of(id_of(POOR), 2, signer=key("mallory")),
        replace(honest, body=replace(honest.body, order=id_of(POOR))),
    )
    for receipt in forged:
        with pytest.raises(ProofFails):
            prover_of(rounds).prove_unread(receipt)
        with pytest.raises(ProofFails, match="receipt is not signed by"):
            check_proof(replace(proof, receipt=receipt), MARKET)


def test_a_position_that_the_round_left_out_is_proved(rounds: list[PublishedRound]) -> None:
    shorter = resealed(rounds, lambda _, body: replace(body, arrivals=body.arrivals[:1]))
    proof = prover_of(shorter).prove_unread(receipt_of(id_of(LOW), 2))
    assert "does not list all positions" in check_proof(proof, MARKET)


def test_an_order_that_is_not_read_for_long_is_proved(rounds: list[PublishedRound]) -> None:
    at = rounds[0].header.body.facts.at
    proof = prover_of(rounds).prove_unread(receipt_of(id_of(POOR), 3, at - INBOX_PATIENCE_MS - 1))
    assert "600 s later the market had read up to 2" in check_proof(proof, MARKET)


def test_a_receipt_that_is_dated_after_its_order_was_read_is_proved(
    rounds: list[PublishedRound],
) -> None:
    latest = rounds[0].header.body.facts.at + 1000 * AHEAD_S_MAX
    with pytest.raises(ProofFails, match="shows no fault"):
        prover_of(rounds).prove_unread(receipt_of(id_of(LOW), 2, latest))
    proof = prover_of(rounds).prove_unread(receipt_of(id_of(LOW), 2, latest + 1))
    assert "dated 300 s after the market had read it" in check_proof(proof, MARKET)


def test_two_histories_are_proved(rounds: list[PublishedRound]) -> None:
    other = resealed(rounds, facts={"owners_min": 7})
    proof = prover_of(rounds).prove_fork(other[0].header)
    assert "two histories" in check_proof(proof, MARKET)
    with pytest.raises(ProofFails, match="are the same"):
        check_proof(replace(proof, headers=(rounds[0].header, rounds[0].header)), MARKET)


@pytest.mark.parametrize(
    ("cheat", "about", "claim"),
    CHEATS,
    ids=[f"{cheat.__name__}-{claim}" for cheat, _, claim in CHEATS],
)
def test_a_proof_that_was_tampered_with_fails(
    rounds: list[PublishedRound],
    cheat: Callable[[RoundBody], RoundBody],
    about: Digest,
    claim: Claim,
) -> None:
    """Each exhibit changed, moved or left out; each other claim, order, market and header."""
    proof = convicted(rounds, cheat, about)
    broken = [
        replace(proof, headers=tuple(each.header for each in rounds)),
        replace(proof, headers=resealed_by_a_stranger(proof, rounds)),
        replace(proof, headers=()),
        replace(proof, order=Digest(b"\x05" * 32)),
    ]
    for place, exhibit in enumerate(proof.exhibits):
        for other in tampered(exhibit):
            shown = (*proof.exhibits[:place], other, *proof.exhibits[place + 1 :])
            broken.append(replace(proof, exhibits=shown))
    for each in broken:
        with pytest.raises(ProofFails):
            check_proof(each, MARKET)
    with pytest.raises(ProofFails, match="is not signed by"):
        check_proof(proof, key("mallory").address)


def resealed_by_a_stranger(proof: Proof, rounds: list[PublishedRound]) -> tuple[object, ...]:
    signature = resealed(rounds, signer=key("mallory"))[0].header.signature
    return tuple(replace(each, signature=signature) for each in proof.headers)


def tampered(exhibit: Exhibit) -> list[Exhibit]:
    path = exhibit.path
    return [
        replace(exhibit, entry=exhibit.entry + " "),
        replace(exhibit, entry="{}"),
        replace(exhibit, list="receipts"),
        replace(exhibit, header=2),
        replace(exhibit, path=replace(path, place=path.place + 1)),
        replace(exhibit, path=replace(path, count=path.count + 1)),
        replace(exhibit, path=replace(path, siblings=(*path.siblings, ZERO_DIGEST))),
    ]


def test_what_a_proof_does_not_show_is_not_taken_for_true(rounds: list[PublishedRound]) -> None:
    """Without any one of its exhibits a proof holds no more, or shows the same."""
    for cheat, about, _ in CHEATS:
        proof = convicted(rounds, cheat, about)
        honest = prover_of(rounds)
        with pytest.raises(ProofFails):
            honest.prove(about)
        for place in range(len(proof.exhibits)):
            less = (*proof.exhibits[:place], *proof.exhibits[place + 1 :])
            try:
                check_proof(replace(proof, exhibits=less), MARKET)
            except ProofFails:
                continue
            rest = replace(proof, exhibits=less, headers=tuple(r.header for r in rounds))
            with pytest.raises(ProofFails):
                check_proof(rest, MARKET)


def test_a_proof_is_small(rounds: list[PublishedRound]) -> None:
    proof = convicted(rounds, swapped, id_of(HIGH))
    assert len(proof.exhibits) <= 12
