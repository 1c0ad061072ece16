"""Published rounds of random markets: honest ones pass every audit, and nobody can accuse them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import BidWithdrawn
from cloud_gpu.protocol.lease import MachineKey
from cloud_gpu.protocol.orders import SignedAdvert, SignedBid
from cloud_gpu.protocol.rounds import Lane, PublishedRound, RoundBody, Taken, Unmatched
from cloud_gpu.protocol.values import Digest
from market.audit.proof_claims import check_proof
from market.audit.proofs import Claim, Exhibit, Proof, ProofFails
from market.audit.showing import place_exhibit
from market.lanes.round_lists import ROOTS, RoundLists
from tests.property.test_market_lane_a import MACHINES, PROVIDERS, adverts, orders
from tests.support.published import audited, journal_of, prover_of, published, resealed
from tests.unit.market.builders import (
    MARKET_KEY,
    RULES,
    Desk,
    batches,
    joined,
    opened,
    product,
    provider,
    skip,
)

MARKET = MARKET_KEY.address


class History(list[PublishedRound]):
    """The rounds of one market, in fewer words than a list's."""

    def __repr__(self) -> str:
        return f"{len(self)} rounds"


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Some rounds of one market: orders come, openings open or fail, bids are withdrawn."""
    desk = Desk()
    desk.mine(product(2))
    for name in PROVIDERS:
        desk.mine(*provider(name, MACHINES, products=(1, 2)))
    desk.mine(*joined("bob", 3), *joined("dan", 3))
    for _ in range(draw(st.integers(1, 3))):
        wanted: list[SignedBid] = draw(orders())
        desk.hear(*draw(adverts()))
        desk.submit(*wanted)
        if draw(st.booleans()) and wanted:
            desk.inbox += 1
            desk.tell(BidWithdrawn(bid=wanted[0].bid.payload.id, inbox=desk.inbox))
        effects = desk.end_round()
        for call in batches(effects):
            answer = draw(st.sampled_from(("opened", "refused", "silence")))
            if answer == "refused":
                skip(desk, RejectReason.STALE_SEQUENCE, "ask.seq")
            elif answer == "opened":
                ask, bid = call.matches[0].ask.payload, call.matches[0].bid.payload
                machine = MachineKey(provider=ask.provider, index=ask.index)
                desk.mine(opened(bid, machine, call.price, at_s=desk.now // 1000))
        desk.pass_time(draw(st.sampled_from((0, RULES.round_ms, 5_000))))
        desk.mine()
    desk.end_round()
    return History(published(journal_of(desk)))


@given(histories())
@settings(max_examples=25)
def test_an_honest_market_passes(rounds: History) -> None:
    found, auditor = audited(from_json(to_json(each), PublishedRound) for each in rounds)
    assert found is None, str(found)
    assert auditor.audited.rounds == len(rounds)


@given(histories(), st.randoms(use_true_random=False))
@settings(max_examples=15)
def test_no_claim_against_an_honest_market_holds_whatever_is_shown(
    rounds: History, rng: Random
) -> None:
    """Every claim about every order, with all rows of the round or any part of them."""
    lists = {lane: RoundLists() for lane in Lane}
    rules = rounds[0].body.rules if rounds else ""
    for each in rounds:
        at = lists[each.header.body.facts.lane]
        at.apply(each.body)
        shown = list(all_of(at))
        about = [*at.orders.rows, *at.asks.rows]
        for key in about:
            some = tuple(exhibit for exhibit in shown if rng.random() < 0.7)
            for exhibits in (tuple(shown), some):
                for claim in set(Claim) - {Claim.FORK, Claim.UNREAD}:
                    proof = Proof(
                        claim=claim,
                        order=Digest.parse(key),
                        headers=(each.header,),
                        rules=rules,
                        exhibits=exhibits,
                    )
                    with pytest.raises(ProofFails):
                        check_proof(proof, MARKET)
    prover = prover_of(rounds)
    for key in (*lists[Lane.ON_DEMAND].orders.rows, *lists[Lane.ON_DEMAND].asks.rows):
        with pytest.raises(ProofFails):
            prover.prove(Digest.parse(key))


def all_of(lists: RoundLists) -> Iterator[Exhibit]:
    for name in ROOTS:
        entries = lists.entries(name)
        for place in range(len(entries)):
            yield place_exhibit(name, entries, place)


@given(adverts(), orders(), st.data())
def test_a_fill_given_to_somebody_else_is_found_and_can_be_proved(
    offered: list[SignedAdvert], wanted: list[SignedBid], data: st.DataObject
) -> None:
    """A market that takes one fill away convicts itself by its own signed rows."""
    desk = Desk()
    desk.mine(product(2))
    for name in PROVIDERS:
        desk.mine(*provider(name, MACHINES, products=(1, 2)))
    desk.mine(*joined("bob", 3), *joined("dan", 3))
    desk.hear(*offered)
    desk.submit(*wanted)
    desk.end_round()
    rounds = published(journal_of(desk))
    fills = [fill for each in rounds for fill in each.body.fills if isinstance(fill, Taken)]
    singles = [fill for fill in fills if sum(each.bid == fill.bid for each in fills) == 1]
    if not singles:
        return
    robbed = data.draw(st.sampled_from(singles))

    def cheat(_: int, body: RoundBody) -> RoundBody:
        left = tuple(fill for fill in body.fills if fill is not robbed)
        lost = Unmatched(order=robbed.bid, reason="no-match")
        return replace(body, fills=left, unmatched=(*body.unmatched, lost))

    cheated = resealed(rounds, cheat)
    found, _ = audited(cheated)
    assert found is not None
    assert found.field.startswith(("fills", "unmatched", "conditions"))
    proof = prover_of(cheated).prove(robbed.bid)
    assert proof.claim in (Claim.ENVY, Claim.LIMIT)
    assert check_proof(proof, MARKET)
