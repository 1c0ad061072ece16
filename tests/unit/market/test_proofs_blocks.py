"""Proofs against block auctions: limits and what was given twice; lane A's order says nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.rounds import PublishedRound, RoundBody, Taken
from cloud_gpu.protocol.values import Digest
from market.audit.proof_claims import check_proof
from market.audit.proofs import Claim, Proof, ProofFails
from market.audit.showing import place_exhibit
from market.lanes.round_lists import ROOTS, RoundLists
from tests.support.published import audited, prover_of, receipt_of, resealed
from tests.unit.market.builders import MARKET_KEY
from tests.unit.market.test_auditing_blocks import (
    ALL,
    ASKS,
    GANG,
    HOUR,
    LONG,
    LOW,
    POOR,
    SHORT,
    TWO_HOURS,
    id_of,
    luckier,
    priced,
    rounds,
    with_fills,
)
from tests.unit.market.test_block_auctions import desk

__all__ = ["desk", "rounds"]

MARKET = MARKET_KEY.address


def above_the_limit(body: RoundBody) -> RoundBody:
    return priced(body, "1.36")


def below_the_ask(body: RoundBody) -> RoundBody:
    return priced(body, "1.29")


def gang_at_two_prices(body: RoundBody) -> RoundBody:
    first = next(row for row in body.fills if isinstance(row, Taken) and row.bid == id_of(GANG))
    one = priced(with_fills(body, [first]), "1.34").fills
    return with_fills(body, [*one, *(row for row in body.fills if row is not first)])


def twice(body: RoundBody) -> RoundBody:
    (row,) = (each for each in body.fills if isinstance(each, Taken) and each.bid == id_of(LONG))
    return replace(body, fills=(*body.fills, replace(row, bid=id_of(SHORT))))


def both_alternatives(body: RoundBody) -> RoundBody:
    changed = [
        replace(row, bid=id_of(HOUR)) if isinstance(row, Taken) and row.bid == id_of(LONG) else row
        for row in body.fills
    ]
    return with_fills(body, changed)


def too_few(body: RoundBody) -> RoundBody:
    first = next(row for row in body.fills if isinstance(row, Taken) and row.bid == id_of(GANG))
    return with_fills(body, [row for row in body.fills if row is not first])


CHEATS: list[tuple[Callable[[RoundBody], RoundBody], Digest, Claim]] = [
    (above_the_limit, id_of(LONG), Claim.LIMIT),
    (gang_at_two_prices, id_of(GANG), Claim.LIMIT),
    (both_alternatives, id_of(TWO_HOURS), Claim.TWICE),
    (twice, id_of(LONG), Claim.TWICE),
    (luckier, id_of(LOW), Claim.TIE),
]


@pytest.mark.parametrize(
    ("cheat", "about", "claim"), CHEATS, ids=[cheat.__name__ for cheat, _, _ in CHEATS]
)
def test_what_breaks_a_limit_or_is_given_twice_is_proved(
    rounds: list[PublishedRound],
    cheat: Callable[[RoundBody], RoundBody],
    about: Digest,
    claim: Claim,
) -> None:
    cheated = resealed(rounds, lambda place, body: cheat(body) if place else body)
    proof = prover_of(cheated).prove(about)
    assert proof.claim is claim
    assert check_proof(proof, MARKET).startswith("In round 2 of market 1")
    with pytest.raises(ProofFails):
        prover_of(rounds).prove(about)


def test_a_gang_without_all_its_machines_and_a_price_below_an_ask_are_proved_or_found(
    rounds: list[PublishedRound],
) -> None:
    cheated = resealed(rounds, lambda place, body: below_the_ask(body) if place else body)
    rows = [row for row in cheated[1].body.fills if isinstance(row, Taken)]
    (dearest,) = (row.bid for row in rows if row.ask == id_of(ASKS[3]))
    assert prover_of(cheated).prove(dearest).claim is Claim.LIMIT
    found, _ = audited(resealed(rounds, lambda place, body: too_few(body) if place else body))
    assert found is not None
    assert found.field.startswith("fills 0x")


def test_an_order_that_is_missing_from_an_auction_is_proved_by_its_receipt(
    rounds: list[PublishedRound],
) -> None:
    receipt = receipt_of(id_of(POOR), 1)
    proof = prover_of(rounds[:1]).prove_unread(receipt)
    assert f"where order {id_of(GANG)} came out" in check_proof(proof, MARKET)


def test_no_claim_against_an_honest_auction_holds_whatever_is_shown(
    rounds: list[PublishedRound],
) -> None:
    """Lane A's order of service says nothing about an auction: nor does envy."""
    lists = RoundLists()
    lists.apply(rounds[1].body)
    shown = tuple(
        place_exhibit(name, entries, place)
        for name in ROOTS
        for entries in (lists.entries(name),)
        for place in range(len(entries))
    )
    for about in [id_of(each) for each in (*ALL, *ASKS)]:
        for claim in set(Claim) - {Claim.FORK, Claim.UNREAD}:
            proof = Proof(
                claim=claim,
                order=about,
                headers=(rounds[1].header,),
                rules=rounds[0].body.rules,
                exhibits=shown,
            )
            with pytest.raises(ProofFails):
                check_proof(proof, MARKET)
        with pytest.raises(ProofFails):
            prover_of(rounds).prove(about)
