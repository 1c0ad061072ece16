"""Seasons with verifiers: what becomes of liars, of the honest, and of what nobody commits to."""

from __future__ import annotations

from typing import TypeVar

import pytest

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.chain_events import (
    BatchFinalised,
    ChainEvent,
    HeldReturned,
    SegmentConvicted,
)
from tests.simulation import faults as weather
from tests.simulation.scene import Cast, cast_of
from tests.simulation.test_seasons import play
from tests.simulation.world import World
from verifier.audit import Audit
from verifier.batch_audit import BatchAudit
from verifier.returning import Returning

EventT = TypeVar("EventT", bound=ChainEvent)

ONE_LIAR = cast_of([1.0, 0.0, 0.0, 0.0], buyers=3, verified=1.0)
"""The first seat's asks are as cheap as the others': it gets its share of the leases."""


def audited(seed: int, cast: Cast = ONE_LIAR) -> World:
    return World(seed, weather.NONE, cast)


def told(world: World, kind: type[EventT]) -> list[EventT]:
    events = [event for block in world.chain.blocks for _, event in block.events]
    return [event for event in events if isinstance(event, kind)]


def breaks(world: World) -> str:
    """What the checkers say is wrong with a season; empty: nothing."""
    try:
        play(world)
    except AssertionError as error:
        return str(error)
    return ""


def test_audited_season_when_nothing_fails_then_the_liar_alone_is_convicted() -> None:
    world = audited(1)
    play(world)
    liar = world.nodes[0].seat.wallet.address
    convicted = told(world, SegmentConvicted)
    assert convicted
    assert {event.lease.provider for event in convicted} == {liar}
    ends = {e.state for e in told(world, BatchFinalised) if e.lease.provider != liar}
    assert ends == {BatchState.FINAL}


def test_audited_season_when_a_verifier_vanishes_then_nobody_is_convicted_and_all_ends() -> None:
    faults = weather.Faults(verifier_vanishes=1.0)
    worlds = [World(seed, faults, ONE_LIAR) for seed in range(3)]
    for world in worlds:
        play(world)
    assert any(told(world, BatchFinalised) for world in worlds)


def test_audited_season_when_buyers_let_leases_idle_then_what_is_held_returns() -> None:
    world = audited(2)
    for buyer in world.buyers:
        buyer.jobs = 0
    play(world)
    assert told(world, HeldReturned)
    assert not told(world, BatchFinalised)


# The checkers can fail.


def test_checkers_when_nobody_returns_held_pay_then_they_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Returning, "review", lambda *_: None)
    world = audited(2)
    world.buyers[0].jobs = 0
    assert "neither committed nor returned" in breaks(world)


def test_checkers_when_no_batch_is_ended_then_they_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BatchAudit, "_end", lambda *_: None)
    assert "BatchState.DRAWN" in breaks(audited(1))


def test_checkers_when_a_liar_gets_away_then_they_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Audit, "take_opinion", lambda *_: None)
    assert "not convicted" in breaks(audited(1))


def test_checkers_when_the_honest_are_convicted_then_they_notice() -> None:
    class Nothing(set):  # type: ignore[type-arg]
        def add(self, _: object) -> None:
            """Whatever was returned was right."""

    world = audited(1)
    world.rooms.wrong = Nothing()
    assert "convicted of what was right" in breaks(world)


def test_checkers_when_the_honest_are_not_paid_then_they_notice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BatchAudit, "_audit", lambda *_: None)
    # Where no liar's batch is first; then nobody would have found that one out.
    assert "honest and not paid" in breaks(audited(2))
