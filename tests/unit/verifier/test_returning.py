"""Held pay of a lease that no provider commits to: the verifiers return it, whoever is gone."""

from __future__ import annotations

import pytest

from cloud_gpu.protocol.calls import ReturnHeld
from cloud_gpu.protocol.chain_events import (
    ChainReorganised,
    HeldReturned,
    LeaseClosed,
    TransactionFailed,
)
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseFlags, LeaseKey
from cloud_gpu.protocol.units import TokenAmount
from tests.unit.verifier.builders import (
    DEPLOYMENT,
    FIRST,
    SECOND,
    T0,
    Batch,
    Work,
    lease_of,
    opened,
)
from tests.unit.verifier.story import PATIENCE, Story

assert DEPLOYMENT.audit is not None
CLOSED = 60
DUE = CLOSED + DEPLOYMENT.audit.commit + 1
"""The first second in which the contract lets it go."""
PAID = 9_000_000
LEASE = lease_of("accused", 2)
"""An even number is the first verifier's to return."""


def closed(
    lease: LeaseKey,
    paid: int = PAID,
    reason: LeaseEndReason = LeaseEndReason.END_OF_TIME,
) -> LeaseClosed:
    return LeaseClosed(lease=lease, reason=reason, paid=TokenAmount(paid), at=T0 + CLOSED)


def returned(lease: LeaseKey, at: int) -> HeldReturned:
    return HeldReturned(lease=lease, amount=TokenAmount(PAID), at=T0 + at)


def with_closed(
    lease: LeaseKey = LEASE,
    *,
    signer: LocalKey = FIRST,
    flags: LeaseFlags = LeaseFlags.VERIFIED,
    ending: LeaseClosed | None = None,
    history_until: int = 0,
) -> Story:
    """A lease was opened and closed, and nobody committed to anything."""
    story = Story(signer, history_until=history_until)
    story.at = CLOSED
    return story.chain(opened(lease, flags=flags), ending or closed(lease))


def leases(story: Story) -> list[LeaseKey]:
    return [call.lease for call in story.called(ReturnHeld)]


def test_what_nobody_commits_to_is_returned_after_the_commit_window() -> None:
    story = with_closed()
    assert not leases(story.wait(DUE - 1))
    assert leases(story.wait(DUE)) == [LEASE]


def test_it_is_repeated_until_the_chain_says_so() -> None:
    story = with_closed().wait(DUE)
    story.chain(TransactionFailed(call=ReturnHeld(lease=LEASE), error="no gas"))
    again = leases(story.wait(DUE + 40))
    assert 2 <= len(again) <= 4
    story.chain(returned(LEASE, story.at)).forget()
    assert not leases(story.wait(DUE + 1_000))


@pytest.mark.parametrize(("signer", "seq"), [(FIRST, 2), (SECOND, 3)])
def test_verifiers_take_turns_and_replace_each_other(signer: LocalKey, seq: int) -> None:
    lease, other = lease_of("accused", seq), SECOND if signer is FIRST else FIRST
    assert leases(with_closed(lease, signer=signer).wait(DUE)) == [lease]
    replacing = with_closed(lease, signer=other)
    assert not leases(replacing.wait(DUE + PATIENCE.takeover_s - 1))
    assert leases(replacing.wait(DUE + PATIENCE.takeover_s)) == [lease]


def test_what_the_other_returned_is_left_alone() -> None:
    story = with_closed(signer=SECOND).wait(DUE).chain(returned(LEASE, DUE))
    assert not leases(story.wait(DUE + 10 * PATIENCE.takeover_s))


def test_a_lease_that_is_committed_late_is_left_alone() -> None:
    story = with_closed().wait(DUE - 1)
    story.chain(Batch("accused", [Work()], seq=2).committed(at=T0 + DUE - 1, block=DUE - 1))
    assert not leases(story.wait(DUE + 1_000))


def test_of_two_batches_only_what_neither_took_is_returned() -> None:
    whole, rest = PAID, PAID + 1
    for paid, expected in ((2 * whole, []), (2 * whole + rest, [LEASE])):
        story = Story()
        story.at = CLOSED - 10
        batches = [Batch("accused", [Work(number=no + 1)], seq=2, batch_no=no) for no in (0, 1)]
        committed = [batch.committed(at=T0 + 50, block=50) for batch in batches]
        story.chain(opened(LEASE, flags=LeaseFlags.VERIFIED), *committed)
        story.at = CLOSED
        story.chain(closed(LEASE, paid))
        assert leases(story.wait(DUE)) == expected


@pytest.mark.parametrize(
    "ending",
    [
        closed(LEASE, paid=0),
        closed(LEASE, reason=LeaseEndReason.BUYER_NO_SHOW),  # the provider's own, at once
    ],
    ids=["nothing paid", "buyer never came"],
)
def test_where_nothing_is_held_nothing_is_returned(ending: LeaseClosed) -> None:
    assert not leases(with_closed(ending=ending).wait(DUE + 1_000))


def test_a_lease_that_is_not_verified_holds_nothing() -> None:
    assert not leases(with_closed(flags=LeaseFlags(0)).wait(DUE + 1_000))


def test_an_end_that_a_reorganisation_takes_back_counts_from_its_new_time() -> None:
    story = with_closed().wait(CLOSED + 1).tell(ChainReorganised(block=CLOSED - 1))
    assert not leases(story.wait(DUE + 50))
    story.chain(opened(LEASE, flags=LeaseFlags.VERIFIED))
    later = LeaseClosed(
        lease=LEASE, reason=LeaseEndReason.STOPPED, paid=TokenAmount(PAID), at=T0 + story.at
    )
    due = story.at + DUE - CLOSED
    assert not leases(story.chain(later).wait(due - 1))
    assert leases(story.wait(due)) == [LEASE]


def test_a_return_that_a_reorganisation_takes_back_is_made_again() -> None:
    story = with_closed().wait(DUE).wait(DUE + 1).chain(returned(LEASE, DUE + 1)).forget()
    story.wait(DUE + 2).tell(ChainReorganised(block=DUE))
    assert leases(story.wait(DUE + 3)) == [LEASE]


def test_a_verifier_that_was_away_acts_only_on_what_still_waits() -> None:
    gone = lease_of("accused", 4)
    story = with_closed(history_until=T0 + 500).wait(300)
    story.chain(opened(gone, flags=LeaseFlags.VERIFIED), closed(gone), returned(gone, 300))
    assert not leases(story.wait(499))
    assert leases(story.wait(500)) == [LEASE]
