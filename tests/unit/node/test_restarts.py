"""Kill -9, chains read again, blocks replaced: nothing lost, nothing twice."""

from __future__ import annotations

from cloud_gpu.protocol.calls import (
    Begin,
)
from cloud_gpu.protocol.chain_events import (
    ChainAdvanced,
    ChainReorganised,
    LeaseClosed,
    LeaseOpened,
    LeaseStarted,
    MachineAdded,
)
from cloud_gpu.protocol.effects import (
    PrepareContainer,
    Publish,
    RemoveContainer,
    Send,
    StartJob,
)
from cloud_gpu.protocol.errors import RejectReason
from cloud_gpu.protocol.events import (
    ContainerReady,
    JobStarted,
    MachineProbed,
    NodeStarted,
    ProviderEvent,
)
from cloud_gpu.protocol.lease import LeaseEndReason
from cloud_gpu.protocol.messages import (
    Declined,
    JobAsked,
    ReadyOffered,
    VoucherAcknowledged,
)
from cloud_gpu.protocol.units import TokenAmount
from tests.unit.node.builders import (
    BUYER,
    BUYER_PEER,
    CLAIM,
    LEASE,
    MACHINE,
    PROFILE,
    START,
    T0,
    Story,
    accept,
    digest,
    exited,
    key,
    kinds,
    open_session,
    report,
    restarted,
    spec,
    submit,
    terms,
    voucher,
)


def test_kill_9_loses_no_voucher_no_job_and_no_result() -> None:
    before = Story().begin()
    before.say(voucher(7))
    before.say(submit(spec(1), before.at))
    before.tell(exited(spec(1), 0, 1))
    before.say(submit(spec(2), before.at))
    before.tell(JobStarted(lease=LEASE, job=spec(2).id))
    result = before.say(JobAsked(lease=LEASE, job=spec(1).id))

    after = restarted(before)
    after.tell(NodeStarted(at=after.at))
    assert PrepareContainer(lease=LEASE) in after.effects, "adopted before the chain is read"
    after.tell(ContainerReady(lease=LEASE, report=report()))
    assert after.found(StartJob) == [StartJob(spec=spec(2))]
    assert after.say(voucher(1))[0] == Send(
        peer=BUYER_PEER,
        message=VoucherAcknowledged(lease=LEASE, amount=TokenAmount(420_000), paused=False),
    )
    assert after.say(JobAsked(lease=LEASE, job=spec(1).id)) == result


def test_reading_the_chain_again_does_nothing_twice() -> None:
    before = Story().begin()
    before.say(voucher(10))
    after = restarted(before)
    after.wait(5)
    head = after.at
    after.tell(NodeStarted(at=head))
    after.tell(ContainerReady(lease=LEASE, report=report()))
    opened = LeaseOpened(terms=terms(), bid=digest("bid"), at=T0, transaction=digest("t"))
    history: list[ProviderEvent] = [
        MachineAdded(machine=MACHINE, product=1, bond=TokenAmount(50_000_000)),
        opened,
        ChainAdvanced(block=2, at=T0),
    ]
    after.tell(*history)
    assert kinds(after.effects) == [], "a lease that history shows as funded is not begun again"
    after.tell(LeaseStarted(lease=LEASE, started_at=T0, at=T0), ChainAdvanced(block=3, at=head))
    assert not after.calls(Begin)
    assert not after.found(PrepareContainer)
    assert not after.found(Publish)


def test_old_leases_in_history_leave_no_trace() -> None:
    story = Story()
    story.tell(NodeStarted(at=T0))
    old = T0 - 10 * CLAIM
    story.tell(
        MachineAdded(machine=MACHINE, product=1, bond=TokenAmount(50_000_000)),
        LeaseOpened(terms=terms(opened_at=old), bid=digest("b"), at=old, transaction=digest("t")),
        ChainAdvanced(block=2, at=old),
        LeaseClosed(
            lease=LEASE, reason=LeaseEndReason.EXPIRED, paid=TokenAmount(0), at=old + START
        ),
        ChainAdvanced(block=3, at=T0),
        MachineProbed(machine=MACHINE, profile=PROFILE, healthy=True),
    )
    assert kinds(story.effects) == ["ProbeMachine", "Publish"]
    assert story.found(Publish)[0].advert.body.ask.payload.seq == 2


def test_a_container_that_no_lease_wants_is_removed() -> None:
    story = Story()
    story.tell(NodeStarted(at=T0), ContainerReady(lease=LEASE, report=report()))
    assert not story.found(RemoveContainer), "the chain may still show its lease"
    story.mine()
    assert story.found(RemoveContainer) == [RemoveContainer(lease=LEASE)]


def test_a_reorganised_begin_is_sent_again() -> None:
    story = Story().accept()
    block = story.block
    story.mine(LeaseStarted(lease=LEASE, started_at=T0, at=story.at))
    story.say(voucher(10))
    story.wait(20)
    story.tell(ChainReorganised(block=block))
    assert story.calls(Begin)


def test_a_lease_that_a_reorganisation_took_away_is_kept_for_a_minute() -> None:
    story = Story().start()
    block = story.block
    story.open()
    story.tell(ContainerReady(lease=LEASE, report=report()))
    story.tell(ChainReorganised(block=block))
    story.mine()
    story.wait(59)
    assert not story.found(RemoveContainer)
    story.wait(2)
    assert story.found(RemoveContainer)


def test_a_lease_that_came_back_for_another_buyer_starts_from_nothing() -> None:
    story = Story().start()
    block = story.block
    story.open()
    story.tell(ContainerReady(lease=LEASE, report=report()))
    story.say(open_session(story.at))
    story.tell(ChainReorganised(block=block))
    other = LeaseOpened(
        terms=terms(opened_at=story.at + 1), bid=digest("x"), at=story.at, transaction=digest("u")
    )
    story.mine(other)
    assert kinds(story.effects) == ["RemoveContainer", "PrepareContainer"]
    story.say(voucher(1))
    assert story.said(Declined)[0].rejection.reason is RejectReason.NOT_THE_BUYER


def test_the_buyers_session_key_may_do_all_that_the_buyer_may() -> None:
    from cloud_gpu.protocol.chain_events import DelegationChanged
    from cloud_gpu.protocol.identity import Delegation, KeyRole

    session = key("session")
    story = Story().start()
    delegation = Delegation(account=BUYER.address, role=KeyRole.SESSION, expiry=T0 + 86_400)
    story.mine(DelegationChanged(signer=session.address, delegation=delegation))
    story.open()
    story.tell(ContainerReady(lease=LEASE, report=report()))
    story.say(open_session(story.at, signer=session))
    assert story.said(ReadyOffered)
    story.say(voucher(1, signer=session))
    assert story.said(VoucherAcknowledged)[0].amount == TokenAmount(60_000)
    story.say(accept(story.at, signer=session))
    assert story.calls(Begin)
    revoked = Delegation(
        account=BUYER.address, role=KeyRole.SESSION, expiry=T0 + 86_400, revoked_at=T0 + 30
    )
    story.mine(DelegationChanged(signer=session.address, delegation=revoked))
    story.mine(LeaseStarted(lease=LEASE, started_at=T0, at=story.at))
    story.wait(60)
    story.say(voucher(2, signer=session))
    assert story.said(VoucherAcknowledged)[0].amount == TokenAmount(120_000), (
        "a revocation never touches vouchers of leases that began before"
    )
