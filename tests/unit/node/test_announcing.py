"""What a node offers: healthy free machines, signed, in time, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from cloud_gpu.protocol.chain_events import (
    MachineAdded,
    MachinePaused,
    MachineRetiring,
)
from cloud_gpu.protocol.effects import (
    ProbeMachine,
    Publish,
    RemoveContainer,
)
from cloud_gpu.protocol.events import (
    DrainAsked,
    MachineProbed,
    NodeStarted,
)
from cloud_gpu.protocol.identity import NoDelegates
from cloud_gpu.protocol.lease import LeaseEndReason
from cloud_gpu.protocol.orders import AskFlags
from cloud_gpu.protocol.signing import Verified, verify, verify_statement
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from tests.unit.node.builders import (
    DOMAIN,
    LEASE,
    MACHINE,
    NODE,
    POLICY,
    PROFILE,
    T0,
    WALLET,
    Story,
    make_provider,
)


def test_a_healthy_free_machine_is_announced_and_again_each_interval() -> None:
    story = Story().start()
    (publish,) = story.found(Publish)
    ask = publish.advert.body.ask.payload
    assert (ask.provider, ask.index, ask.seq, ask.product) == (WALLET.address, 0, 1, 1)
    assert ask.start_by == T0 + 300
    story.wait(89)
    assert len(story.found(Publish)) == 2, "at 30 s and 60 s"
    assert [p.advert for p in story.found(Publish)] == 2 * [publish.advert]


def test_group_buys_are_asked_too_where_the_owner_says_so() -> None:
    module = Address(b"\x1f" * 20)
    serving = msgspec.structs.replace(POLICY, group_buy=module)
    story = Story(make_provider(serving)).start()
    asks = [p.advert.body.ask.payload for p in story.found(Publish)]
    assert [ask.matcher for ask in asks] == [POLICY.matcher, module]
    assert {ask.seq for ask in asks} == {1}, "one lease: who opens it first has it"
    story.wait(31)
    assert len(story.found(Publish)) == 2, "both again"
    (standing,) = story.provider.standing.machines
    assert standing.is_offered
    story.mine(MachinePaused(machine=MACHINE, paused=True))
    assert not story.provider.adverts


def test_group_buys_get_no_machine_that_can_be_taken_away() -> None:
    taken_back = int(AskFlags.INTERRUPTIBLE)
    policy = msgspec.structs.replace(POLICY, group_buy=Address(b"\x1f" * 20), flags=taken_back)
    story = Story(make_provider(policy)).start()
    (publish,) = story.found(Publish)
    assert publish.advert.body.ask.payload.matcher == POLICY.matcher


def test_an_ask_is_signed_again_before_it_grows_old() -> None:
    story = Story().start()
    first = story.found(Publish)[0].advert
    story.wait(200)
    newest = story.found(Publish)[-1].advert
    assert newest.body.ask.payload.start_by > first.body.ask.payload.start_by
    assert newest.expiry == newest.body.ask.payload.start_by


def test_adverts_and_asks_are_signed_by_the_node_key() -> None:
    story = Story().start()
    advert = story.found(Publish)[0].advert
    node = {"account": NODE.address, "keys": NoDelegates(), "at": story.at}
    assert verify_statement(advert, DOMAIN, role=None, **node) is None  # type: ignore[arg-type]
    assert isinstance(verify(advert.body.ask, DOMAIN, **node), Verified)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "event",
    [
        MachinePaused(machine=MACHINE, paused=True),
        MachineRetiring(machine=MACHINE),
        MachineProbed(machine=MACHINE, profile=PROFILE, healthy=False, detail="XID 79"),
        DrainAsked(),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_is_not_for_rent_is_not_announced(event: object) -> None:
    story = Story().start()
    assert story.provider.adverts
    story.mine(event)  # type: ignore[arg-type]
    assert not story.provider.adverts
    assert not [e for e in story.wait(120) if isinstance(e, Publish)]


def test_a_paused_machine_is_announced_when_it_is_back() -> None:
    story = Story().start()
    story.mine(MachinePaused(machine=MACHINE, paused=True))
    story.mine(MachinePaused(machine=MACHINE, paused=False))
    assert story.found(Publish)


def test_a_leased_machine_is_announced_again_with_the_next_seq() -> None:
    story = Story().prepare()
    assert not story.provider.adverts
    story.close(LeaseEndReason.BUYER_NO_SHOW)
    assert story.found(RemoveContainer) == [RemoveContainer(lease=LEASE)]
    (publish,) = story.found(Publish)
    assert publish.advert.body.ask.payload.seq == 2


def test_hardware_is_probed_at_the_start_and_every_minute() -> None:
    story = Story()
    story.tell(NodeStarted(at=0))
    story.mine(MachineAdded(machine=MACHINE, product=1, bond=TokenAmount(1)))
    assert story.found(ProbeMachine) == [ProbeMachine(index=0)]
    story.wait(60)
    assert story.found(ProbeMachine) == [ProbeMachine(index=0)]
