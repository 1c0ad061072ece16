"""A stranger's audit of lane C: batches at one price, computed again from what was published."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.rounds import (
    AccountCondition,
    Lane,
    Paired,
    PlacedFuture,
    PublishedRound,
    RoundBody,
    SeriesCondition,
)
from cloud_gpu.protocol.units import Price
from cloud_gpu.protocol.values import ZERO_DIGEST
from market.audit.proofs import Claim
from tests.support.published import audited, journal_of, prover_of, published, resealed
from tests.unit.market.futures_builders import FUTURES_RULES, FuturesDesk, future, openings


@pytest.fixture
def rounds() -> list[PublishedRound]:
    """A batch in which one contract is matched and one order waits, then one without a match."""
    desk = FuturesDesk()
    desk.order(
        future("bob", buys=True, at="1.50"),
        future("ada", buys=False),
        future("dan", buys=True, at="0.10", nonce=4),
    )
    (call,) = openings(desk.end_batch())
    desk.mine(desk.opened(call.pairs[0], call.price))
    desk.order(future("eve", buys=False, at="9.00", nonce=5))
    desk.end_batch()
    return published(journal_of(desk, FUTURES_RULES))


def test_an_honest_market_passes(rounds: list[PublishedRound]) -> None:
    found, auditor = audited(rounds)
    assert found is None, str(found)
    assert [each.header.body.facts.lane for each in rounds] == [Lane.FUTURES] * 2
    assert (auditor.audited.matches, auditor.audited.orders) == (1, 4)


@pytest.fixture
def refilled() -> list[PublishedRound]:
    """A long's order of three is filled by two units, then by one."""
    desk = FuturesDesk()
    desk.order(future("bob", buys=True, units=3), future("ada", buys=False, units=2))
    (call,) = openings(desk.end_batch())
    desk.mine(desk.opened(call.pairs[0], call.price))
    desk.order(future("eve", buys=False))
    (call,) = openings(desk.end_batch())
    desk.mine(desk.opened(call.pairs[0], call.price))
    return published(journal_of(desk, FUTURES_RULES))


def test_what_is_left_of_an_order_is_audited_too(refilled: list[PublishedRound]) -> None:
    found, auditor = audited(refilled)
    assert found is None, str(found)
    assert auditor.audited.matches == 2


@pytest.mark.parametrize("filled", [-1, 3])
def test_more_filled_than_rounds_have_matched_is_found(
    refilled: list[PublishedRound], filled: int
) -> None:
    def cheat(place: int, body: RoundBody) -> RoundBody:
        if not place:
            return body
        rows = (
            replace(each, filled=filled) if isinstance(each, PlacedFuture) and each.filled else each
            for each in body.orders
        )
        return replace(body, orders=tuple(rows))

    found, _ = audited(resealed(refilled, cheat))
    assert found is not None
    assert (found.number, found.field.rsplit(".", 1)[-1]) == (2, "filled")


def dearer(body: RoundBody) -> RoundBody:
    (pair,) = body.fills
    assert isinstance(pair, Paired)
    return replace(body, fills=(replace(pair, price=Price(pair.price.value + 1000)),))


def unpaired(body: RoundBody) -> RoundBody:
    return replace(body, fills=())


def another_reference(body: RoundBody) -> RoundBody:
    return replace(
        body,
        conditions=tuple(
            replace(each, reference=Price(9_000_000)) if isinstance(each, SeriesCondition) else each
            for each in body.conditions
        ),
    )


def richer(body: RoundBody) -> RoundBody:
    return replace(
        body,
        conditions=tuple(
            replace(each, left=each.left + 1) if isinstance(each, AccountCondition) else each
            for each in body.conditions
        ),
    )


def no_series(body: RoundBody) -> RoundBody:
    rest = [each for each in body.conditions if not isinstance(each, SeriesCondition)]
    return replace(body, conditions=tuple(rest))


@pytest.mark.parametrize(
    ("cheat", "field"),
    [
        (dearer, "fills 0x"),
        (unpaired, "fills 0x"),
        (another_reference, "fills 0x"),
        (richer, "conditions account"),
        (no_series, "conditions series"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_a_cheat_is_named_with_its_round_and_field(
    rounds: list[PublishedRound], cheat: Callable[[RoundBody], RoundBody], field: str
) -> None:
    found, _ = audited(resealed(rounds, lambda place, body: body if place else cheat(body)))
    assert found is not None
    assert found.number == 1
    assert found.field.startswith(field)


def test_a_wrong_tie_key_is_proved(rounds: list[PublishedRound]) -> None:
    def luckier(_: int, body: RoundBody) -> RoundBody:
        return replace(body, orders=tuple(replace(each, tie=ZERO_DIGEST) for each in body.orders))

    cheated = resealed(rounds[:1], luckier)
    bid = future("bob", buys=True, at="1.50").payload.id
    assert prover_of(cheated).prove(bid).claim is Claim.TIE
