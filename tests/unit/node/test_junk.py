"""Whatever a peer sends, in whatever order: the provider answers or is silent, it never raises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cloud_gpu.protocol.effects import Send
from cloud_gpu.protocol.events import MessageReceived, SendFailed
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.job import JobSpec
from cloud_gpu.protocol.lease import LeaseEndReason, LeaseKey
from cloud_gpu.protocol.messages import (
    AcceptGiven,
    Access,
    CloseAsked,
    Declined,
    FinalOffered,
    JobAsked,
    JobKilled,
    JobPrinted,
    JobSubmitted,
    LeaseEndedHere,
    Message,
    OpenSession,
    Preparing,
    VoucherGiven,
)
from cloud_gpu.protocol.signing import Signed, Statement
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Digest, Signature
from cloud_gpu.protocol.voucher import Accept, Final, Voucher
from tests.unit.node.builders import (
    BUYER_PEER,
    INTERVAL,
    LEASE,
    WALLET,
    Story,
    exited,
    spec,
    submit,
    voucher,
)

offsets = st.integers(min_value=-(2**70), max_value=2**70) | st.integers(0, 3)
digests = st.binary(min_size=32, max_size=32).map(Digest) | st.just(spec().id)
signatures = st.binary(min_size=65, max_size=65).map(Signature)
peers = st.sampled_from([BUYER_PEER, PeerId("stranger")])
leases = st.just(LEASE) | st.builds(
    LeaseKey,
    provider=st.just(WALLET.address),
    index=st.integers(0, 2**32 - 1),
    seq=st.integers(0, 2**24 - 1),
)
words = {"provider": st.just(WALLET.address), "index": st.integers(0, 2), "seq": st.integers(0, 3)}
amounts = st.integers(0, 2**48 - 1).map(TokenAmount)


def signed(payloads: st.SearchStrategy[object]) -> st.SearchStrategy[Signed]:  # type: ignore[type-arg]
    return st.builds(Signed, payload=payloads, signature=signatures)


def stated(bodies: st.SearchStrategy[object]) -> st.SearchStrategy[Statement]:  # type: ignore[type-arg]
    numbers = st.integers(0, 2**53)
    return st.builds(Statement, body=bodies, nonce=numbers, expiry=numbers, signature=signatures)


specs = st.builds(
    JobSpec,
    lease=leases,
    number=st.integers(1, 5000),
    command=st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)),
    environment=st.dictionaries(st.just("A"), st.text()),
    egress=st.lists(st.text(), max_size=2).map(tuple),
    runtime_s_max=st.integers(1, 1000),
)
junk: st.SearchStrategy[Message] = st.one_of(
    st.builds(
        OpenSession,
        access=stated(
            st.builds(Access, lease=leases, node=st.text().map(PeerId), buyer_peer=peers)
        ),
    ),
    st.builds(
        AcceptGiven, accept=signed(st.builds(Accept, **words, started_at=st.integers(0, 2**32 - 1)))
    ),
    st.builds(VoucherGiven, voucher=signed(st.builds(Voucher, **words, amount=amounts))),
    st.builds(JobSubmitted, spec=stated(specs)),
    st.builds(JobAsked, lease=leases, job=digests, stdout_from=offsets, stderr_from=offsets),
    st.builds(JobKilled, lease=leases, job=digests),
    st.builds(CloseAsked, lease=leases),
    # What only a node says.
    st.builds(Preparing, lease=leases, detail=st.text()),
    st.builds(FinalOffered, final=signed(st.builds(Final, **words, amount=amounts))),
    st.builds(
        LeaseEndedHere, lease=leases, reason=st.sampled_from(LeaseEndReason), detail=st.text()
    ),
    st.builds(
        JobPrinted, lease=leases, job=digests, stream=st.text(), offset=offsets, chunk=st.binary()
    ),
)
stages = st.sampled_from(["start", "open", "prepare", "accept", "begin"])


def story_at(stage: str) -> Story:
    story = Story()
    if stage == "open":
        return story.start().open()
    reached: Story = getattr(story, stage)()
    return reached


@given(stages, st.lists(st.tuples(peers, junk, st.integers(0, 2 * INTERVAL)), max_size=12))
def test_junk_never_raises_and_never_pays_or_runs_anything(
    stage: str, said: list[tuple[PeerId, Message, int]]
) -> None:
    story = story_at(stage)
    for peer, message, pause in said:
        story.say(message, peer=peer)
        for effect in story.found(Send):
            assert effect.peer in (peer, BUYER_PEER)
        assert not [e for e in story.effects if type(e).__name__ in ("StartJob", "Begin")]
        story.wait(pause)


@given(stages, st.lists(st.tuples(peers, junk), max_size=6))
def test_junk_is_not_worth_the_journal(stage: str, said: list[tuple[PeerId, Message]]) -> None:
    story = story_at(stage)
    for peer, message in said:
        event = MessageReceived(peer=PeerId("stranger"), message=message)
        assert not story.provider.must_survive(event) or isinstance(message, OpenSession)
        story.say(message, peer=peer)
        story.tell(SendFailed(peer=peer, message=message, detail="gone"))


@given(st.lists(junk, max_size=8))
def test_a_good_lease_survives_junk(said: list[Message]) -> None:
    """A stranger's junk changes nothing for the buyer; its own can only end what is its own."""
    story = Story().begin()
    for message in said:
        story.say(message, peer=PeerId("stranger"))
    story.say(submit(spec(), story.at))
    story.tell(exited(spec(), 0, 1))
    story.say(voucher(2))
    assert not story.said(Declined)
