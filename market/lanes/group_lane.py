"""Group buys from the organiser's word to open leases, or to refunds.

The market lists, posts pledges that were handed in, and closes a campaign when its goal is pledged
and machines are there; GroupBuy decides. Refunds are errands of the `Keeper`'s.
"""

from __future__ import annotations

from dataclasses import replace

from cloud_gpu.protocol.calls import CloseCampaign, LockPledge
from cloud_gpu.protocol.effects import KeepNotice, ReportCampaign, ReportPledge, Transact
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import CampaignSubmitted
from cloud_gpu.protocol.group_reports import CampaignReport, CampaignState
from cloud_gpu.protocol.orders import BidId, SignedAdvert
from cloud_gpu.protocol.units import Instant, instant
from cloud_gpu.protocol.values import Address, Digest
from market.books.group_life import CampaignFacts, settled_state
from market.doors.group_door import TAKES_PLEDGES, check_campaign
from market.lanes.answers import FORGET_S
from market.lanes.floor import Floor
from market.lanes.group_asks import GroupAsk, served
from market.lanes.group_book import OVER, Closing, KeptCampaign
from market.lanes.group_notices import CampaignStanding, near_at
from market.lanes.group_pledging import Pledging
from market.lanes.leasing import retry_after
from market.timers import Timers

CAMPAIGNS_PER_ACCOUNT_MAX = 16
"""Live ones of one organiser."""


class GroupLane:
    """The keeping of campaigns."""

    def __init__(self, floor: Floor, pledges: Pledging) -> None:
        self._floor, self._book = floor, floor.groups
        self._pledges = pledges
        self._looks: Timers[Digest] = Timers(self._next_look)
        self._told: dict[Digest, ReportCampaign] = {}
        self._stale: dict[Digest, None] = {}
        self._products: set[int] = set()
        self._block_is_open = False

    @property
    def deadline(self) -> Instant | None:
        """When to look at a campaign again."""
        return self._looks.first

    # Campaigns.

    def admit(self, event: CampaignSubmitted) -> None:
        """A campaign came out of the inbox."""
        floor, offer = self._floor, event.offer.body
        domain = floor.rules.group_buy_domain
        if domain is None:
            return  # a journal of rules that knew no group buys: nobody was told of it
        kept = KeptCampaign(
            id=offer.campaign.id_in(domain), offer=offer, number=event.inbox, listed_at=floor.at
        )
        if self._book.campaign(kept.id) is not None:
            return
        refused = check_campaign(
            event.offer, rules=floor.rules, products=floor.ledger.products, at=floor.at
        ) or self._too_many(offer.campaign.organiser)
        if refused is None:
            self._book.put(kept)
            self.look_at(kept.id)
        else:
            kept = replace(kept, state=CampaignState.REFUSED, rejection=refused)
            self._report(kept, [])

    def _too_many(self, organiser: Address) -> Rejection | None:
        live = (each for each in self._book.campaigns() if each.state not in OVER)
        own = sum(each.offer.campaign.organiser == organiser for each in live)
        if own < CAMPAIGNS_PER_ACCOUNT_MAX:
            return None
        return Rejection(
            reason=RejectReason.RATE_LIMITED,
            field="campaign.organiser",
            found=f"{own} live campaigns of {organiser}",
            needed=f"fewer than {CAMPAIGNS_PER_ACCOUNT_MAX}",
            next="Wait until some ended.",
        )

    def look_at(self, campaign: Digest) -> None:
        """Something about it may have changed."""
        if self._book.campaign(campaign) is not None:
            self._stale[campaign] = None

    def hear(self, advert: SignedAdvert) -> None:
        """An ask for group buys was heard."""
        ask = self.examine(advert, self._floor.at)
        if isinstance(ask, GroupAsk):
            self._book.asks.put(ask)
            self.supply_changed(ask.ask.payload.product)

    def supply_changed(self, product: int) -> None:
        """Other machines of a product may serve: its campaigns are looked at with the block."""
        self._products.add(product)

    def is_for_groups(self, advert: SignedAdvert) -> bool:
        """Whether an ask is GroupBuy's to open."""
        domain = self._floor.rules.group_buy_domain
        return domain is not None and advert.body.ask.payload.matcher == domain.verifying_contract

    def examine(self, advert: SignedAdvert, at: int) -> GroupAsk | Rejection:
        """What hearing an ask for group buys would change; `at` in Unix seconds."""
        floor = self._floor
        return self._book.asks.examine(advert, rules=floor.rules, ledger=floor.ledger, at=at)

    # Time.

    def begin_block(self) -> None:
        """Facts of a block come in: no campaign is looked at before the block is whole."""
        self._block_is_open = True

    def end_block(self) -> None:
        """The block is whole, or gone."""
        self._block_is_open = False
        changed = self._products | self._book.asks.expire(self._floor.at)
        self._products.clear()
        for each in list(self._book.campaigns()):
            terms = each.offer.campaign
            if each.state in OVER and terms.deadline + FORGET_S < self._floor.at:
                self._book.drop(each.id)
                self._told.pop(each.id, None)
                continue
            due_at = _due_at(each)
            is_due = due_at is not None and due_at <= self._floor.at
            if is_due or each.state is CampaignState.REACHED or terms.product in changed:
                self.look_at(each.id)

    def look_at_all(self) -> None:
        """The rules changed, or blocks vanished."""
        for each in self._book.campaigns():
            self.look_at(each.id)

    def plan(self) -> None:
        """Look at what may have changed, and at what is due."""
        for key in self._looks.due(self._floor.now):
            self.look_at(key)
        if self._block_is_open:
            return
        while self._stale:
            key = next(iter(self._stale))
            del self._stale[key]
            campaign = self._book.campaign(key)
            if campaign is not None:
                self._look(campaign)

    def _look(self, campaign: KeptCampaign) -> None:
        floor, terms = self._floor, campaign.offer.campaign
        row = floor.ledger.groups.row(campaign.id)
        facts = CampaignFacts(
            slices=row.slices,
            goal=terms.goal,
            is_closed=row.closed is not None,
            is_locked=bool(row.locked),
            is_over=floor.at > terms.deadline,
        )
        state = settled_state(campaign.state, facts)
        campaign = replace(campaign, state=state, looked_at=floor.now, seen_at=floor.at)
        self._book.put(campaign)
        if campaign.closing is not None:
            campaign = self._reviewed(campaign, campaign.closing)
        if campaign.closing is None and self._may_close(campaign):
            campaign = self._close(campaign)
        self._pledges.expire(campaign)
        self._report(campaign, self._able(campaign))
        self._give_notice(campaign)
        self._looks.set(campaign.id)

    def _able(self, campaign: KeptCampaign) -> list[GroupAsk]:
        floor = self._floor
        if campaign.state in TAKES_PLEDGES:
            return self._book.asks.able(
                campaign.offer, rules=floor.rules, ledger=floor.ledger, book=floor.book, at=floor.at
            )
        return []

    def _next_look(self, key: Digest) -> Instant | None:
        campaign = self._book.campaign(key)
        due_at = _due_at(campaign) if campaign is not None else None
        if campaign is None or due_at is None:
            return None
        times = [instant(due_at)]
        if campaign.not_before > campaign.looked_at:
            times.append(campaign.not_before)
        if campaign.closing is not None:
            times.append(campaign.closing.posted_at + self._floor.rules.settle_ms)
        return min(times)

    # Closing.

    def _may_close(self, campaign: KeptCampaign) -> bool:
        floor, terms = self._floor, campaign.offer.campaign
        return (
            campaign.state is CampaignState.REACHED
            and floor.is_ready
            and floor.now >= campaign.not_before
            and terms.window_start <= floor.at <= terms.deadline - floor.rules.inclusion_s
        )

    def _close(self, campaign: KeptCampaign) -> KeptCampaign:
        """Post the opening of its leases, if there are machines enough."""
        floor, offer = self._floor, campaign.offer
        asks = served(floor.ledger.groups.row(campaign.id).pledges, self._able(campaign))
        if len(asks) < offer.campaign.goal:
            return campaign
        call = CloseCampaign(
            campaign=offer.campaign,
            providers=offer.providers,
            asks=tuple(each.ask.signed for each in asks),
        )
        for each in asks:
            floor.book.hold(each.machine, BidId(campaign.id))
            floor.shelf.sync(each.machine, floor.at)
        closing = Closing(call=call, asks=tuple(asks), posted_at=floor.now)
        campaign = replace(campaign, closing=closing)
        self._book.put(campaign)
        floor.out.append(Transact(call=call))
        return campaign

    def _reviewed(self, campaign: KeptCampaign, closing: Closing) -> KeptCampaign:
        """Whether a closing still has to be waited for."""
        floor = self._floor
        if campaign.state is CampaignState.REACHED:
            if floor.now < closing.posted_at + floor.rules.settle_ms:
                return campaign
            waited = f"no answer in {floor.rules.settle_ms // 1000} s"
            return self.give_up(campaign, waited)
        campaign = replace(campaign, closing=None, rejection=None)
        self._release(campaign, closing)
        return campaign

    def give_up(
        self, campaign: KeptCampaign, found: str, refused: int | None = None
    ) -> KeptCampaign:
        """Its closing came to nothing, by the ask at `refused` if that is known: again later."""
        closing = campaign.closing
        assert closing is not None, f"{campaign.id} has no closing to give up"
        floor, failures = self._floor, campaign.failures + 1
        if refused is not None and refused < len(closing.asks):
            self._book.asks.refuse(closing.asks[refused])
        campaign = replace(
            campaign,
            closing=None,
            failures=failures,
            not_before=retry_after(min(failures, 6), floor.rules, floor.now),
            rejection=Rejection(
                reason=RejectReason.OPENING_PAUSED,
                field="chain",
                found=found[:500],
                needed="a mined transaction that opens its leases",
                next="Nothing to do: the market tries again until the deadline.",
            ),
        )
        self._release(campaign, closing)
        self.look_at(campaign.id)
        return campaign

    def _release(self, campaign: KeptCampaign, closing: Closing) -> None:
        floor = self._floor
        self._book.put(campaign)
        for each in closing.asks:
            floor.book.release(each.machine, BidId(campaign.id))
            floor.shelf.sync(each.machine, floor.at)
        floor.has_news = True

    # What is told.

    def _report(self, campaign: KeptCampaign, able: list[GroupAsk]) -> None:
        floor, terms = self._floor, campaign.offer.campaign
        row = floor.ledger.groups.row(campaign.id)
        is_open = campaign.state in TAKES_PLEDGES
        held = campaign.closing.asks if campaign.closing is not None else ()
        machines = len(able) + len(held)
        report = CampaignReport(
            id=campaign.id,
            number=campaign.number,
            campaign=terms,
            providers=campaign.offer.providers,
            state=campaign.state,
            listed_at=campaign.listed_at,
            pledges=len(row.pledges),
            slices=row.slices,
            missing_slices=max(0, terms.goal - row.slices) if is_open else 0,
            machines=machines,
            missing_machines=max(0, terms.goal - machines) if is_open else 0,
            leases=row.closed or 0,
            rejection=campaign.rejection,
        )
        effect = ReportCampaign(report=report, pledges=row.pledges, leases=row.leases)
        if self._told.get(campaign.id) != effect:
            floor.out.append(effect)
        if self._book.campaign(campaign.id) is not None:
            self._told[campaign.id] = effect

    def _give_notice(self, campaign: KeptCampaign) -> None:
        floor = self._floor
        standing = CampaignStanding(
            id=campaign.id,
            campaign=campaign.offer.campaign,
            listed_at=campaign.listed_at,
            state=campaign.state,
            row=floor.ledger.groups.row(campaign.id),
            at=floor.at,
        )
        floor.out += [KeepNotice(notice=each) for each in self._book.notices.tell(standing)]

    def restated(self) -> list[ReportCampaign | ReportPledge | KeepNotice]:
        """Everything that was told of campaigns in the book, again."""
        campaigns = list(self._book.campaigns())
        pledges = (each for kept in campaigns for each in self._book.pledges_of(kept.id))
        return [
            *(self._told[each.id] for each in campaigns if each.id in self._told),
            *(ReportPledge(report=each.report) for each in pledges),
            *(KeepNotice(notice=each) for each in self._book.notices.restated()),
        ]

    def rows(self) -> list[object]:
        """What decides what happens next beside the book, for a digest of the state."""
        return [list(self._stale), sorted(self._products), self._block_is_open]

    def calls(self) -> list[LockPledge | CloseCampaign]:
        """Transactions that the chain has not answered."""
        closings = (each.closing for each in self._book.campaigns())
        return [
            *(each.call for each in self._book.waiting()),
            *(each.call for each in closings if each is not None),
        ]


def _due_at(campaign: KeptCampaign) -> int | None:
    """When time alone changes something about it, Unix seconds; None: never again."""
    terms = campaign.offer.campaign
    if campaign.state not in TAKES_PLEDGES:
        return None
    times = terms.deadline + 1, near_at(terms, campaign.listed_at), terms.window_start
    return min((when for when in times if when > campaign.seen_at), default=None)
