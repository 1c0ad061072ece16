"""Notice to an interruptible lease: who is told, when its machine is back, what is offered then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from cloud_gpu.protocol.calls import GiveNotice, ReleaseLease
from cloud_gpu.protocol.chain_events import (
    ChainReorganised,
    LeaseClosed,
    LeaseOpened,
    LeaseStarted,
    MachineAdded,
    NoticeGiven,
    ProductRegistered,
)
from cloud_gpu.protocol.effects import KillJob, RemoveContainer
from cloud_gpu.protocol.errors import Rejection, RejectReason
from cloud_gpu.protocol.events import MachineProbed, NodeStarted, NoticeWanted
from cloud_gpu.protocol.hardware import GpuClass
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseFlags, LeaseKey, MachineKey
from cloud_gpu.protocol.messages import LeaseEndedHere
from cloud_gpu.protocol.orders import AskFlags
from cloud_gpu.protocol.units import BasisPoints, Price, TokenAmount
from node.notices import NoticeOutlook, room_below
from tests.unit.node.builders import (
    DURATION,
    INTERVAL,
    LEASE,
    POLICY,
    PROFILE,
    T0,
    WALLET,
    Story,
    digest,
    make_provider,
    restarted,
    spec,
    submit,
    terms,
    voucher,
)
from tests.unit.node.test_promised import NAMED
from tests.unit.node.test_promised import opened as sold

NOTICE_S = 600
PRODUCT = ProductRegistered(
    product=1,
    gpu_class=GpuClass("A100-SXM4-80GB"),
    slice_gpus=2,
    region_group="",
    min_bond=BasisPoints(0),
    notice=NOTICE_S,
    penalty=BasisPoints(100),
    flags=1,
)
GIVEN = NoticeGiven(lease=LEASE, releasable_at=T0 + NOTICE_S, at=T0)


def running(flags: int = LeaseFlags.INTERRUPTIBLE) -> Story:
    story = Story()
    story.flags = flags
    story.begin()
    story.mine(PRODUCT)
    return story


def pay(story: Story) -> None:
    story.say(voucher((story.at - T0) // INTERVAL + 2))


def wait_paying(story: Story, seconds: int) -> None:
    for _ in range(seconds // INTERVAL):
        pay(story)
        story.wait(INTERVAL)


def test_the_operators_wish_goes_to_the_chain_until_it_is_there() -> None:
    story = running()
    story.tell(NoticeWanted(lease=LEASE))
    assert story.calls(GiveNotice) == [GiveNotice(lease=LEASE)]
    again = restarted(story)
    wait_paying(story, INTERVAL)
    assert story.calls(GiveNotice)
    again.tell(NodeStarted(at=again.at))
    assert again.calls(GiveNotice), "it outlives the daemon"
    story.mine(GIVEN)
    story.wait(INTERVAL)
    assert not story.calls(GiveNotice)


def test_when_notice_has_run_its_work_ends_and_it_is_released_with_the_best_voucher() -> None:
    story = running()
    job = spec()
    story.say(submit(job, story.at))
    story.mine(GIVEN)
    wait_paying(story, NOTICE_S - INTERVAL)
    pay(story)
    story.wait(INTERVAL - 1)
    assert not story.calls(ReleaseLease), "it is the buyer's to the last second"
    story.wait(1)
    assert story.found(KillJob)
    (told,) = story.said(LeaseEndedHere)
    assert told.reason is LeaseEndReason.NOTICE
    story.wait(2)
    (release,) = story.calls(ReleaseLease)
    assert release.voucher is not None
    assert release.voucher.payload.amount.value == 1_000 * (NOTICE_S + INTERVAL)
    story.wait(20)
    assert story.found(RemoveContainer)
    story.close(LeaseEndReason.NOTICE)
    story.wait(60)
    assert not story.calls(ReleaseLease)
    assert story.provider.adverts, "the machine is for rent again"


def test_a_lease_that_ends_before_is_closed_as_any_other() -> None:
    story = running()
    late = T0 + DURATION + 1
    story.mine(NoticeGiven(lease=LEASE, releasable_at=late, at=T0))
    wait_paying(story, DURATION)
    story.wait(30)
    assert not story.calls(ReleaseLease)


def test_a_notice_that_a_longer_chain_took_back_releases_nobody() -> None:
    story = running()
    block = story.block
    story.mine(GIVEN)
    story.tell(ChainReorganised(block=block))
    wait_paying(story, NOTICE_S + INTERVAL)
    assert not story.calls(ReleaseLease)


def test_notice_means_nothing_to_a_lease_that_is_not_interruptible() -> None:
    story = running(flags=0)
    story.mine(GIVEN)
    wait_paying(story, NOTICE_S + INTERVAL)
    assert not story.calls(ReleaseLease)


@pytest.mark.parametrize("target", ["0", "0/1", str(LEASE)])
def test_the_operator_is_told_when_the_machine_is_back(target: str) -> None:
    story = running()
    assert story.provider.notice_for(target) == NoticeOutlook(
        lease=LEASE,
        is_given=False,
        releasable_at=story.at + NOTICE_S,
        ends_at=T0 + DURATION,
    )
    story.mine(NoticeGiven(lease=LEASE, releasable_at=T0 + 77, at=T0))
    found = story.provider.notice_for(target)
    assert isinstance(found, NoticeOutlook)
    assert (found.is_given, found.releasable_at) == (True, T0 + 77)


@pytest.mark.parametrize("target", ["", "1", "0/2", "x", "0/1/2", "0x12/0/1", "/0/1"])
def test_what_names_no_running_lease_is_refused_with_those_that_run(target: str) -> None:
    found = running().provider.notice_for(target)
    assert isinstance(found, Rejection)
    assert (found.reason, found.field) == (RejectReason.UNKNOWN_LEASE, "lease")


def test_a_firm_lease_is_refused_by_field_rule_and_fix() -> None:
    found = running(flags=0).provider.notice_for("0")
    assert isinstance(found, Rejection)
    assert found.field == "lease.interruptible"
    assert "interruptible" in found.needed
    assert "penalty" in found.next


def test_a_lease_in_a_promised_windows_way_is_told_in_time() -> None:
    story = running()
    window = T0 + DURATION
    contract = replace(sold(), series=replace(sold().series, window_start=window))
    story.mine(contract, NAMED)
    tell_at = window - 300 - NOTICE_S
    wait_paying(story, tell_at - story.at - INTERVAL)
    pay(story)
    story.wait(INTERVAL - 1)
    assert not story.calls(GiveNotice)
    story.wait(1)
    assert story.calls(GiveNotice) == [GiveNotice(lease=LEASE)]


@pytest.mark.parametrize(
    ("threshold", "machines", "used", "room"),
    [
        (10_000, 10, 9, 0),
        (10_000, 10, 10, -1),
        (8_000, 10, 7, 0),
        (8_000, 10, 8, -1),
        (8_000, 10, 0, 7),
        (7_500, 3, 2, 0),
        (6_000, 1, 1, -1),
        (1, 10, 3, -3),
    ],
)
def test_the_threshold_is_reached_never_passed(
    threshold: int, machines: int, used: int, room: int
) -> None:
    assert room_below(BasisPoints(threshold), machines, used) == room


# A node of several machines under a threshold.

FIRM = Price(2_000_000)
HALVES = replace(POLICY, flags=int(AskFlags.INTERRUPTIBLE), firm_price=FIRM)


class Fleet(Story):
    """Five interruptible machines, of which three may be used below the threshold."""

    def __init__(self) -> None:
        policies = dict.fromkeys(range(5), HALVES)
        super().__init__(make_provider(policies, threshold=BasisPoints(8_000)))
        self.tell(NodeStarted(at=0))
        self.mine(PRODUCT)
        for index in range(5):
            machine = MachineKey(provider=WALLET.address, index=index)
            self.mine(MachineAdded(machine=machine, product=1, bond=TokenAmount(50_000_000)))
            self.tell(MachineProbed(machine=machine, profile=PROFILE, healthy=True))

    def lease(self, index: int, cap: int, flags: int = LeaseFlags.INTERRUPTIBLE) -> LeaseKey:
        """One opens and begins."""
        key = LeaseKey(provider=WALLET.address, index=index, seq=1)
        agreed = replace(terms(key, self.at, flags), cap=TokenAmount(cap))
        self.mine(
            LeaseOpened(terms=agreed, bid=digest("b"), at=self.at, transaction=digest("t")),
            LeaseStarted(lease=key, started_at=self.at, at=self.at),
        )
        return key

    @property
    def offers(self) -> Sequence[tuple[int, bool]]:
        """Index, and whether it is offered for good."""
        asks = [advert.body.ask.payload for advert in self.provider.adverts]
        assert all((ask.min_price_per_hour == FIRM) == (not ask.flags) for ask in asks)
        return sorted((ask.index, not ask.flags) for ask in asks)


def test_below_the_threshold_machines_may_be_taken_away_the_last_ones_may_not() -> None:
    fleet = Fleet()
    assert fleet.offers == [(0, False), (1, False), (2, False), (3, True), (4, True)]
    fleet.lease(0, cap=100)
    assert fleet.offers == [(1, False), (2, False), (3, True), (4, True)]
    fleet.lease(1, cap=100)
    fleet.lease(2, cap=100)
    assert fleet.offers == [(3, True), (4, True)]
    assert not fleet.calls(GiveNotice), "what is offered as interruptible never reaches it"


def test_a_firm_lease_that_reaches_the_threshold_costs_who_pays_least_the_machine() -> None:
    fleet = Fleet()
    fleet.lease(0, cap=300)
    cheap = fleet.lease(1, cap=100)
    fleet.lease(2, cap=200)
    fleet.lease(3, cap=900, flags=0)
    assert fleet.calls(GiveNotice) == [GiveNotice(lease=cheap)]
    fleet.mine(NoticeGiven(lease=cheap, releasable_at=fleet.at + NOTICE_S, at=fleet.at))
    assert not fleet.calls(GiveNotice), "one makes room enough"
    assert fleet.offers == [(4, True)]
    over = TokenAmount(0)
    fleet.mine(LeaseClosed(lease=cheap, reason=LeaseEndReason.NOTICE, paid=over, at=fleet.at))
    assert fleet.offers == [(1, True), (4, True)], "it is not let to the next who would leave"


def test_of_equals_the_last_begun_leaves() -> None:
    fleet = Fleet()
    fleet.lease(2, cap=100)
    fleet.wait(60)
    last = fleet.lease(0, cap=100)
    fleet.lease(4, cap=100, flags=0)
    fleet.lease(3, cap=100, flags=0)
    assert fleet.calls(GiveNotice) == [GiveNotice(lease=last)]


def test_machines_out_of_order_are_used_and_firm_leases_are_never_told() -> None:
    fleet = Fleet()
    machine = MachineKey(provider=WALLET.address, index=4)
    fleet.tell(MachineProbed(machine=machine, profile=PROFILE, healthy=False))
    assert fleet.offers == [(0, False), (1, False), (2, True), (3, True)]
    for index in range(4):
        fleet.lease(index, cap=100, flags=0)
    assert not fleet.calls(GiveNotice)
