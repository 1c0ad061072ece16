"""Notices of group buys: what each account should know of its campaigns, told once each.

What should have been told follows from the facts; what was told is remembered, so a notice goes
out when it is due for the first time, and is taken back when its block vanished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cloud_gpu.protocol.group_buy import Campaign
from cloud_gpu.protocol.group_reports import (
    CampaignNotice,
    CampaignState,
    NoticeKind,
    PledgeState,
)
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.units import ZERO_TOKENS, TokenAmount
from cloud_gpu.protocol.values import Address, Digest
from market.books.group_pledges import CampaignRow

NEAR_S: Final = 24 * 3600
"""A deadline is near that long before it, or in the last quarter of a short campaign."""

_K = NoticeKind
_WITHOUT_RECALL = (NoticeKind.LISTED, NoticeKind.HALF, NoticeKind.DEADLINE_NEAR)
_GATHERS = (CampaignState.GATHERING, CampaignState.REACHED)
_FAILED = (CampaignState.FAILED, CampaignState.REFUNDED)

Told = tuple[NoticeKind, Address | int | None]
"""A kind, and whom or which pledge it is about; None: the campaign's people of that time."""


def near_at(campaign: Campaign, listed_at: int) -> int:
    """When its deadline is near, Unix seconds."""
    return campaign.deadline - min(NEAR_S, max(0, campaign.deadline - listed_at) // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignStanding:
    """What notices are made of: a campaign, and how it stands."""

    id: Digest
    campaign: Campaign
    listed_at: int
    state: CampaignState
    row: CampaignRow
    at: int

    @property
    def people(self) -> list[Address]:
        """Its organiser, then its members, by address."""
        members = {each.buyer for each in self.row.pledges} - {self.campaign.organiser}
        return [self.campaign.organiser, *sorted(members)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    kind: NoticeKind
    about: Address | int | None
    to: Sequence[Address]
    amount: TokenAmount = ZERO_TOKENS
    leases: tuple[LeaseKey, ...] = ()
    place: int | None = None


class Notices:
    """What was told of live campaigns."""

    def __init__(self) -> None:
        self._count = 0
        self._told: dict[Digest, dict[Told, tuple[CampaignNotice, ...]]] = {}
        self._kept: dict[Digest, list[CampaignNotice]] = {}

    def tell(self, standing: CampaignStanding) -> list[CampaignNotice]:
        """What goes out now."""
        told = self._told.setdefault(standing.id, {})
        due = {(each.kind, each.about): each for each in _due(standing)}
        out: list[CampaignNotice] = []
        for key in [key for key in told if key not in due and key[0] not in _WITHOUT_RECALL]:
            out += [self._undone(standing, each) for each in told.pop(key)]
        for key, each in due.items():
            if key not in told:
                told[key] = tuple(self._made(standing, each, account) for account in each.to)
                out += told[key]
        self._kept.setdefault(standing.id, []).extend(out)
        return out

    def drop(self, campaign: Digest) -> None:
        """It is over for good."""
        self._told.pop(campaign, None)
        self._kept.pop(campaign, None)

    def restated(self) -> list[CampaignNotice]:
        """Everything that was told of live campaigns, in order."""
        kept = (notice for notices in self._kept.values() for notice in notices)
        return sorted(kept, key=lambda each: each.number)

    def rows(self) -> list[object]:
        """For a digest of the state."""
        told: list[object] = [
            [str(campaign), [[kind, str(about)] for kind, about in keys]]
            for campaign, keys in sorted(self._told.items())
        ]
        return [self._count, told]

    def _made(self, standing: CampaignStanding, due: _Due, account: Address) -> CampaignNotice:
        failed = due.kind is NoticeKind.FAILED
        return CampaignNotice(
            number=self._next(),
            at=standing.at,
            campaign=standing.id,
            account=account,
            kind=due.kind,
            slices=standing.row.slices,
            goal=standing.campaign.goal,
            amount=_locked_of(standing.row, account) if failed else due.amount,
            leases=due.leases,
            place=due.place,
        )

    def _undone(self, standing: CampaignStanding, before: CampaignNotice) -> CampaignNotice:
        return CampaignNotice(
            number=self._next(),
            at=standing.at,
            campaign=standing.id,
            account=before.account,
            kind=NoticeKind.UNDONE,
            slices=standing.row.slices,
            goal=standing.campaign.goal,
            amount=before.amount,
            place=before.place,
            undone=before.kind,
        )

    def _next(self) -> int:
        self._count += 1
        return self._count


def _due(standing: CampaignStanding) -> Iterator[_Due]:
    """All that should have been told by now, in the order in which it happened."""
    row, state, goal = standing.row, standing.state, standing.campaign.goal
    people = standing.people
    yield _Due(kind=_K.LISTED, about=None, to=people[:1])
    for each in row.pledges:
        to = (each.buyer,)
        yield _Due(kind=_K.PLEDGED, about=each.place, to=to, amount=each.amount, place=each.place)
    if 2 * row.slices >= goal:
        yield _Due(kind=_K.HALF, about=None, to=people)
    if row.slices >= goal:
        yield _Due(kind=_K.REACHED, about=None, to=people)
    if state in _GATHERS and standing.at >= near_at(standing.campaign, standing.listed_at):
        yield _Due(kind=_K.DEADLINE_NEAR, about=None, to=people)
    if state in _FAILED:
        yield _Due(kind=_K.FAILED, about=None, to=people)
    if state is CampaignState.OPENED:
        for buyer in sorted({each.buyer for each in row.leases}):
            leases = tuple(each.lease for each in row.leases if each.buyer == buyer)
            yield _Due(kind=_K.LEASES_OPENED, about=buyer, to=(buyer,), leases=leases)
    for each in row.pledges:
        if each.refunded:
            yield _Due(
                kind=_K.REFUNDED,
                about=each.place,
                to=(each.buyer,),
                amount=each.refunded,
                place=each.place,
            )


def _locked_of(row: CampaignRow, account: Address) -> TokenAmount:
    """What of an account's money a campaign holds."""
    return TokenAmount(
        sum(
            each.amount.value
            for each in row.pledges
            if each.buyer == account and each.state is PledgeState.LOCKED
        )
    )
