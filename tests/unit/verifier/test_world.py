"""Everybody together, by seeds: cheats are convicted by two, honest providers by nobody."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.calls import AccuseSegment
from tests.unit.verifier.builders import FIRST, SECOND, Batch, peer_of
from tests.unit.verifier.framing import Framer
from tests.unit.verifier.world import Behaviour, World

HONEST = Behaviour()
SEEDS = range(8)


def state_of(world: World, batch: Batch) -> BatchState:
    return world.chain.batches[batch.lease, 0].state


def everybody(*odd: Behaviour, loss: float = 0.1, seed: int = 0) -> World:
    """Three honest providers, and these."""
    names = {f"odd-{i}": behaviour for i, behaviour in enumerate(odd)}
    honest = {f"honest-{i}": HONEST for i in range(3)}
    world = World(seed, {**names, **honest}, loss)
    for name in world.providers:
        for seq in (1, 2):
            world.works(name, jobs=world.rng.randrange(1, 7), seq=seq)
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_honest_providers_are_paid_in_full(seed: int) -> None:
    world = everybody(seed=seed, loss=0.2).finish()
    assert {state_of(world, batch) for batch in world.batches} == {BatchState.FINAL}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_liar_is_convicted_of_what_was_drawn_and_nobody_else_is(seed: int) -> None:
    world = everybody(Behaviour(lie="42"), seed=seed).finish()
    caught = 0
    for batch in world.batches:
        convicted = world.convicted(batch)
        assert convicted <= world.wrong(batch)
        caught += len(convicted)
        if batch.provider != "odd-0":
            assert state_of(world, batch) is BatchState.FINAL
        elif convicted:
            assert state_of(world, batch) is BatchState.PARTIAL
    assert caught >= 1  # the first of its image is always drawn


@pytest.mark.parametrize("seed", SEEDS)
def test_a_flaky_provider_is_convicted_of_its_own_faults_alone(seed: int) -> None:
    world = everybody(Behaviour(wrong=0.4), seed=seed).finish()
    for batch in world.batches:
        assert world.convicted(batch) <= world.wrong(batch)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_auditor_that_lies_convicts_nobody_honest(seed: int) -> None:
    """The cheapest auditor of all always gives the same wrong answer; so does a second one."""
    world = everybody(Behaviour(lie="42"), Behaviour(wrong=1.0), seed=seed).finish()
    for batch in world.batches:
        assert world.convicted(batch) <= world.wrong(batch)


@pytest.mark.parametrize("seed", SEEDS)
def test_auditors_that_fail_delay_and_convict_nobody_honest(seed: int) -> None:
    world = everybody(Behaviour(fails=0.5), Behaviour(lie="7", fails=0.5), seed=seed).finish()
    for batch in world.batches:
        assert world.convicted(batch) <= world.wrong(batch)


@pytest.mark.parametrize("framer", ["first", "second"])
@pytest.mark.parametrize("seed", SEEDS)
def test_one_verifier_that_lies_convicts_nobody(seed: int, framer: str) -> None:
    world = everybody(seed=seed)
    key, other = (FIRST, "second") if framer == "first" else (SECOND, "first")
    world.parties[framer] = Framer(world.coordinator(key), key, peer_of(other))
    for event in world.told:
        world.tell(framer, event)
    world.finish()
    tried = [why for name, call, why in world.reverted if isinstance(call, AccuseSegment)]
    assert tried, "the framer did not even try"
    assert not [batch for batch in world.batches if world.convicted(batch)]


@pytest.mark.parametrize("framer", ["first", "second"])
def test_a_verifier_that_lies_finds_an_auditor_that_lies_and_still_convicts_nobody_honest(
    framer: str,
) -> None:
    world = everybody(Behaviour(wrong=1.0), seed=3)
    key, other = (FIRST, "second") if framer == "first" else (SECOND, "first")
    world.parties[framer] = Framer(world.coordinator(key), key, peer_of(other))
    for event in world.told:
        world.tell(framer, event)
    world.finish()
    for batch in world.batches:
        assert world.convicted(batch) <= world.wrong(batch)


def test_a_silent_node_is_not_paid_and_not_convicted() -> None:
    world = everybody(Behaviour(shows=False)).finish()
    silent = [batch for batch in world.batches if batch.provider == "odd-0"]
    assert {state_of(world, batch) for batch in silent} == {BatchState.PARTIAL}
    assert not [batch for batch in silent if world.convicted(batch)]


@pytest.mark.parametrize("victim", ["first", "second"])
@pytest.mark.parametrize("at_s", [1, 4, 7, 12, 20, 31, 45])
def test_a_verifier_that_is_killed_anywhere_goes_on(victim: str, at_s: int) -> None:
    world = everybody(Behaviour(lie="42"), seed=at_s).run(at_s)
    world.restart(victim)
    world.finish()
    liar = [batch for batch in world.batches if batch.provider == "odd-0"]
    assert sum(len(world.convicted(batch)) for batch in liar) >= 1
    for batch in world.batches:
        assert world.convicted(batch) <= world.wrong(batch)
        if batch.provider != "odd-0":
            assert state_of(world, batch) is BatchState.FINAL


def test_one_verifier_alone_ends_every_batch_and_convicts_nobody() -> None:
    world = everybody(Behaviour(lie="42"))
    world.parties.pop("second")
    world.finish()
    assert not [batch for batch in world.batches if world.convicted(batch)]


def test_a_run_is_a_function_of_its_seed() -> None:
    one, other = (everybody(Behaviour(wrong=0.5), seed=5).run(200) for _ in range(2))
    assert one.log == other.log
    assert one.log != everybody(Behaviour(wrong=0.5), seed=6).run(200).log
