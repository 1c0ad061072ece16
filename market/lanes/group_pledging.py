"""Pledges that are handed in here: examined, posted for their buyers, and what became of them."""

from __future__ import annotations

from dataclasses import replace

from cloud_gpu.protocol.calls import LockPledge
from cloud_gpu.protocol.effects import ReportPledge, Transact
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import PledgeSubmitted
from cloud_gpu.protocol.group_buy import PLEDGES_MAX, SLICES_MAX
from cloud_gpu.protocol.group_reports import PledgeReport, PledgeState
from cloud_gpu.protocol.units import TokenAmount
from market.doors.group_door import (
    TAKES_PLEDGES,
    cash_too_low,
    check_pledge,
    pledged_amount,
    takes_no_pledges,
    unknown_campaign,
)
from market.lanes.floor import Floor
from market.lanes.group_book import KeptCampaign, SentPledge


class Pledging:
    """The way of a pledge from the inbox to the chain."""

    def __init__(self, floor: Floor) -> None:
        self._floor, self._book = floor, floor.groups

    def admit(self, event: PledgeSubmitted) -> None:
        """A pledge came out of the inbox."""
        said = event.pledge.payload
        if self._book.pledge(said.id) is not None:
            return
        campaign = self._book.campaign(said.campaign_id)
        found = (
            unknown_campaign(said.campaign_id)
            if campaign is None
            else self._examined(event, campaign)
        )
        if isinstance(found, Rejection):
            report = PledgeReport(
                pledge=said.id,
                campaign=said.campaign_id,
                state=PledgeState.REFUSED,
                rejection=found,
            )
            self._floor.out.append(ReportPledge(report=report))
            return
        self._book.put_pledge(found)
        self._floor.out += [ReportPledge(report=found.report), Transact(call=found.call)]

    def _examined(self, event: PledgeSubmitted, campaign: KeptCampaign) -> SentPledge | Rejection:
        floor, said, terms = self._floor, event.pledge.payload, campaign.offer.campaign
        pledge = check_pledge(
            event.pledge,
            campaign=terms,
            rules=floor.rules,
            products=floor.ledger.products,
            at=floor.at,
        )
        if isinstance(pledge, Rejection):
            return pledge
        amount = TokenAmount(pledged_amount(said, terms, floor.ledger.products[terms.product]))
        refused = self._beside_others(event, campaign, amount)
        if refused is not None:
            return refused
        report = PledgeReport(pledge=said.id, campaign=campaign.id, state=PledgeState.WAITING)
        return SentPledge(
            pledge=pledge.signed,
            inbox=event.inbox,
            amount=amount,
            call=LockPledge(campaign=terms, pledge=pledge.signed),
            report=report,
        )

    def _beside_others(
        self, event: PledgeSubmitted, campaign: KeptCampaign, amount: TokenAmount
    ) -> Rejection | None:
        floor, said = self._floor, event.pledge.payload
        if (closed := takes_no_pledges(campaign.state)) is not None:
            return closed
        row = floor.ledger.groups.row(campaign.id)
        coming = [each for each in self._book.pledges_of(campaign.id) if each.is_waiting]
        slices = row.slices + sum(each.pledge.payload.slices for each in coming)
        if slices + said.slices > SLICES_MAX or len(row.pledges) + len(coming) >= PLEDGES_MAX:
            return Rejection(
                reason=RejectReason.WRONG_COUNT,
                field="pledge.slices",
                found=f"{said.slices} beside {slices} pledged",
                needed=f"at most {SLICES_MAX} slices and {PLEDGES_MAX} pledges in all",
                next="Pledge fewer slices, or to another campaign.",
            )
        nonce = said.buyer, said.nonce
        if floor.ledger.is_void(*nonce) or nonce in floor.nonces_in_use(said.buyer):
            return Rejection(
                reason=RejectReason.NONCE_USED,
                field="pledge.nonce",
                found=str(said.nonce),
                needed="a nonce of its own: not opened, not voided, not in use",
                next="Sign with a free one.",
            )
        free = floor.free_cash([said.buyer]).get(said.buyer, 0)
        return cash_too_low(free, amount) if free < amount.value else None

    def move(
        self,
        pledge: SentPledge,
        state: PledgeState,
        *,
        rejection: Rejection | None = None,
        place: int | None = None,
    ) -> None:
        """Its report says something else from now on."""
        report = PledgeReport(
            pledge=pledge.id,
            campaign=pledge.report.campaign,
            state=state,
            rejection=rejection,
            place=place,
        )
        if report != pledge.report:
            self._book.put_pledge(replace(pledge, report=report))
            self._floor.out.append(ReportPledge(report=report))

    def expire(self, campaign: KeptCampaign) -> None:
        """What the chain did not take before the deadline, or before it closed, it never takes."""
        if campaign.state in TAKES_PLEDGES:
            return
        why = Rejection(
            reason=RejectReason.EXPIRED,
            field="pledge.campaign_id",
            found=f"a campaign that is {campaign.state}",
            needed="a pledge that was locked before",
            next="GET /v1/group-buys lists others.",
        )
        for each in self._book.pledges_of(campaign.id):
            if each.is_waiting:
                self.move(each, PledgeState.REFUSED, rejection=why)
