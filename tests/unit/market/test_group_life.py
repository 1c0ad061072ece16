"""Group buys' pure rules: a campaign's life ends whatever happens, and asks serve all they can."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from cloud_gpu.protocol.group_reports import CampaignState, LockedPledge
from cloud_gpu.protocol.units import TokenAmount
from market.books.group_life import (
    CAMPAIGN_TABLE,
    CampaignFacts,
    CampaignStep,
    due_step,
    settled_state,
)
from market.lanes.group_asks import GroupAsk, served
from tests.unit.market.builders import advert, key, resting_ask

S = CampaignState
LIVE = [state for state in CampaignState if state is not S.REFUSED]
FACTS = st.builds(
    CampaignFacts,
    slices=st.integers(0, 5),
    goal=st.integers(1, 5),
    is_closed=st.booleans(),
    is_locked=st.booleans(),
    is_over=st.booleans(),
)


def right_state(facts: CampaignFacts, before: CampaignState) -> CampaignState:
    """Where a campaign stands, from the facts alone; once over, it stays over."""
    if facts.is_closed:
        return S.OPENED
    if facts.is_over or before in (S.FAILED, S.REFUNDED):
        return S.FAILED if facts.is_locked else S.REFUNDED
    return S.REACHED if facts.slices >= facts.goal else S.GATHERING


@given(FACTS, st.sampled_from(LIVE))
def test_steps_lead_from_any_state_to_the_one_that_the_facts_name(
    facts: CampaignFacts, before: CampaignState
) -> None:
    after = settled_state(before, facts)
    assert due_step(after, facts) is None
    assert after is right_state(facts, before)


def test_every_step_of_the_table_is_asked_for_by_some_facts() -> None:
    asked: set[tuple[CampaignState, CampaignStep]] = set()
    for state in CampaignState:
        for bits in range(16):
            facts = CampaignFacts(
                slices=bits & 1,
                goal=1,
                is_closed=bool(bits & 2),
                is_locked=bool(bits & 4),
                is_over=bool(bits & 8),
            )
            step = due_step(state, facts)
            if step is not None:
                asked.add((state, step))
    assert asked == set(CAMPAIGN_TABLE)


NAMES = ("ada", "bob", "cat")
ASKS = {name: [advert(name, index) for index in range(4)] for name in NAMES}


def asks_of(names: list[str]) -> list[GroupAsk]:
    found = []
    for place, name in enumerate(names):
        signed = ASKS[name][names[:place].count(name)]
        resting = resting_ask(signed)
        found.append(GroupAsk(id=resting.id, ask=resting.ask, advert=signed))
    return found


def most(buyers: list[str], providers: list[str]) -> int:
    """Of the first buyers, how many can be served by others' machines: every way is tried."""
    for count in range(min(len(buyers), len(providers)), 0, -1):
        for chosen in permutations(providers, count):
            if all(b != p for b, p in zip(buyers, chosen, strict=False)):
                return count
    return 0


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(NAMES), max_size=4),
    st.lists(st.sampled_from(NAMES), max_size=4),
)
def test_as_many_slices_are_served_as_can_be_and_none_by_its_own_buyer(
    buyers: list[str], providers: list[str]
) -> None:
    pledges = [
        LockedPledge(place=n, buyer=key(name).address, slices=1, amount=TokenAmount(1))
        for n, name in enumerate(buyers)
    ]
    asks = asks_of(providers)
    found = served(pledges, asks)
    assert len(found) == most(buyers, providers)
    assert len({each.id for each in found}) == len(found)
    for pledge, ask in zip(pledges, found, strict=False):
        assert ask.machine.provider != pledge.buyer
