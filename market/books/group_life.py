"""The life of a campaign: which steps there are, and which one the facts of the chain ask for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cloud_gpu.protocol.group_reports import CampaignState


class CampaignStep(StrEnum):
    """What can happen to a campaign."""

    REACH = "reach"
    """Its goal is pledged."""
    FALL = "fall"
    """A block with pledges vanished."""
    CLOSE = "close"
    """Its leases opened."""
    LAPSE = "lapse"
    """Its deadline passed."""
    REFUND = "refund"
    """The last pledge is back."""
    UNDO = "undo"
    """The block that ended it is no longer part of the chain."""


_S, _T = CampaignState, CampaignStep

CAMPAIGN_TABLE: Final = MappingProxyType(
    {
        (_S.GATHERING, _T.REACH): _S.REACHED,
        (_S.REACHED, _T.FALL): _S.GATHERING,
        (_S.GATHERING, _T.LAPSE): _S.FAILED,
        (_S.REACHED, _T.LAPSE): _S.FAILED,
        (_S.FAILED, _T.REFUND): _S.REFUNDED,
        # Our clock may run ahead of the chain's: a close in the last block counts.
        **{
            (state, _T.CLOSE): _S.OPENED
            for state in (_S.GATHERING, _S.REACHED, _S.FAILED, _S.REFUNDED)
        },
        (_S.OPENED, _T.UNDO): _S.GATHERING,
        (_S.REFUNDED, _T.UNDO): _S.FAILED,
    }
)
"""(state, step) -> state; a missing entry means that nothing happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFacts:
    """What decides about a campaign's next step."""

    slices: int
    goal: int
    is_closed: bool
    is_locked: bool
    """Some pledge is neither spent nor back."""
    is_over: bool
    """Its deadline passed."""


def next_campaign_state(state: CampaignState, step: CampaignStep) -> CampaignState | None:
    """The state after a step, or None when the step does not apply."""
    return CAMPAIGN_TABLE.get((state, step))


def due_step(state: CampaignState, facts: CampaignFacts) -> CampaignStep | None:
    """The step that the facts ask for; None: the state says what they say."""
    if facts.is_closed and state is not _S.REFUSED:
        return None if state is _S.OPENED else _T.CLOSE
    match state:
        case CampaignState.GATHERING | CampaignState.REACHED if facts.is_over:
            return _T.LAPSE
        case CampaignState.GATHERING:
            return _T.REACH if facts.slices >= facts.goal else None
        case CampaignState.REACHED:
            return _T.FALL if facts.slices < facts.goal else None
        case CampaignState.FAILED:
            return None if facts.is_locked else _T.REFUND
        case CampaignState.REFUNDED:
            return _T.UNDO if facts.is_locked else None
        case CampaignState.OPENED:
            return _T.UNDO
        case CampaignState.REFUSED:
            return None


def settled_state(state: CampaignState, facts: CampaignFacts) -> CampaignState:
    """Where a campaign stands once every step that the facts ask for was taken."""
    while (step := due_step(state, facts)) is not None:
        after = next_campaign_state(state, step)
        assert after is not None, f"no way from {state} by {step}"
        state = after
    return state
