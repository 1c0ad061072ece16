"""A verifier's ears and mouth on a real overlay: what it hears, what it says, what it publishes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from cloud_gpu.protocol.adapters.gossip import Overlay, OverlaySettings, open_overlay
from cloud_gpu.protocol.audit_messages import (
    AuditMessage,
    AuditRecord,
    EvidenceGiven,
    OutlineAsked,
    OutlineRequest,
)
from cloud_gpu.protocol.calls import FallbackSeed
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.effects import (
    Connect,
    PublishRecord,
    PublishVerifier,
    SendAudit,
    Transact,
)
from cloud_gpu.protocol.errors import RequestRefused
from cloud_gpu.protocol.events import (
    AskHeard,
    AuditMessageReceived,
    VerifierEvent,
    VerifierHeard,
)
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.signing import state
from cloud_gpu.protocol.topics import (
    ASKS_PROTOCOL,
    ASKS_TOPIC,
    AUDIT_PROTOCOL,
    RECORD_PROTOCOL,
    VERIFIERS_TOPIC,
)
from tests.support.overlay import secret_of
from tests.unit.verifier.builders import (
    DEPLOYMENT,
    FIRST,
    T0,
    Batch,
    Work,
    advert,
    digest,
    notice,
)
from verifier.adapters.hearing import Hearing
from verifier.adapters.performer import Performer
from verifier.adapters.reading import ask_record
from verifier.adapters.records import Records

EventT = TypeVar("EventT", bound=VerifierEvent)
SETTINGS = OverlaySettings(topics=(ASKS_TOPIC, VERIFIERS_TOPIC), gossip_heartbeat_s=0.3)


@dataclass
class Verifier:
    """The adapters under test, what they posted, and a peer of somebody else's beside them."""

    overlay: Overlay
    other: Overlay
    records: Records
    performer: Performer
    events: list[VerifierEvent] = field(default_factory=list)
    calls: list[object] = field(default_factory=list)

    async def submit(self, call: object) -> None:
        self.calls.append(call)

    def heard(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(60):
            while not condition():  # noqa: ASYNC110
                await trio.sleep(0.02)


@pytest.fixture
async def verifier(tmp_path: Path) -> AsyncIterator[Verifier]:
    async with open_overlay(SETTINGS, secret_of(1)) as overlay:
        joining = OverlaySettings(
            topics=SETTINGS.topics, bootstrap=overlay.addresses, gossip_heartbeat_s=0.3
        )
        async with open_overlay(joining, secret_of(2)) as other:
            held = [to_json(advert("late"))]

            async def listed(_peer: str, payload: bytes) -> bytes:
                assert payload == b"list"
                return b"[" + b",".join([*held, b'{"junk": 1}']) + b"]"

            other.serve(ASKS_PROTOCOL, listed)
            records = Records(tmp_path / "records")
            found = Verifier(overlay, other, records, Performer.__new__(Performer))
            found.performer = Performer(found, overlay, records)  # type: ignore[arg-type]
            records.serve(overlay)
            hearing = Hearing(overlay, found.events.append)
            async with trio.open_nursery() as nursery:
                for task in (hearing.asks, hearing.notices, hearing.catch_up):
                    nursery.start_soon(task)
                for topic in SETTINGS.topics:
                    await other.wait_for_peers(topic, 1)
                yield found
                nursery.cancel_scope.cancel()


async def test_it_hears_asks_and_verifiers_and_drops_junk(verifier: Verifier) -> None:
    for topic in SETTINGS.topics:
        for junk in (b"", b"{", b"[1]", b"\xff" * 100):
            await verifier.other.publish(topic, junk)
    fresh, heartbeat = advert("fresh"), notice(FIRST, "first")
    await verifier.other.publish(ASKS_TOPIC, to_json(fresh))
    await verifier.other.publish(VERIFIERS_TOPIC, to_json(heartbeat))
    await verifier.until(lambda: len(verifier.heard(VerifierHeard)) == 1)
    assert verifier.heard(VerifierHeard)[0].notice == heartbeat
    await verifier.until(lambda: len(verifier.heard(AskHeard)) == 2)
    adverts = [event.advert for event in verifier.heard(AskHeard)]
    assert fresh in adverts
    assert advert("late") in adverts  # which the other peer held before


async def test_an_advert_repeated_word_for_word_is_heard_once(verifier: Verifier) -> None:
    for _ in range(3):
        await verifier.other.publish(ASKS_TOPIC, to_json(advert("fresh")))
        await verifier.other.publish(VERIFIERS_TOPIC, to_json(notice(FIRST, "first")))
    await verifier.until(lambda: len(verifier.heard(VerifierHeard)) == 3)
    adverts = [event.advert for event in verifier.heard(AskHeard)]
    assert adverts.count(advert("fresh")) == 1


async def test_messages_about_batches_come_in_with_their_peer(verifier: Verifier) -> None:
    message = EvidenceGiven(evidence=Batch("accused", [Work()]).evidence(0))
    answer = await verifier.other.request(
        verifier.overlay.addresses, AUDIT_PROTOCOL, to_json(message)
    )
    assert answer == b""
    (heard,) = verifier.heard(AuditMessageReceived)
    assert (heard.peer, heard.message) == (verifier.other.peer_id, message)


@pytest.mark.parametrize("junk", [b"", b"{}", b'{"type": "EvidenceGiven"}', b"\x00" * 1_000])
async def test_junk_is_refused_to_its_senders_face(verifier: Verifier, junk: bytes) -> None:
    with pytest.raises(RequestRefused, match="no message about a batch"):
        await verifier.other.request(verifier.overlay.addresses, AUDIT_PROTOCOL, junk)
    assert not verifier.heard(AuditMessageReceived)


async def test_it_says_what_the_coordinator_decides(verifier: Verifier) -> None:
    heard: list[AuditMessage] = []

    async def receive(_peer: str, payload: bytes) -> bytes:
        heard.append(from_json(payload, AuditMessage))
        return b""

    verifier.other.serve(AUDIT_PROTOCOL, receive)
    batch = Batch("accused", [Work()])
    request = OutlineRequest(verifier=FIRST.address, lease=batch.lease, batch_no=0)
    question = OutlineAsked(
        request=state(request, DEPLOYMENT.domain, FIRST, nonce=1, expiry=T0 + 60)
    )
    peer = PeerId(verifier.other.peer_id)
    await verifier.performer(Connect(peer=peer, addresses=verifier.other.addresses))
    await verifier.performer(SendAudit(peer=peer, message=question))
    assert heard == [question]

    heartbeat = notice(FIRST, "first")
    await verifier.performer(PublishVerifier(notice=heartbeat))
    with trio.fail_after(60):
        message = await verifier.other.messages(VERIFIERS_TOPIC).receive()
    assert message.payload == to_json(heartbeat)

    call = FallbackSeed(lease=batch.lease, batch_no=0)
    await verifier.performer(Transact(call=call))
    assert verifier.calls == [call]


async def test_a_peer_that_is_gone_costs_nothing(verifier: Verifier) -> None:
    gone = PeerId("QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N")
    message = EvidenceGiven(evidence=Batch("accused", [Work()]).evidence(0))
    await verifier.performer(SendAudit(peer=gone, message=message))


async def test_a_record_is_published_for_whoever_asks(verifier: Verifier, tmp_path: Path) -> None:
    batch = Batch("accused", [Work()])
    record = AuditRecord(
        lease=batch.lease,
        batch_no=0,
        root=batch.tree.root,
        seed=digest("seed"),
        passed=batch.value,
        known_images=(),
        outline=batch.outline,
        drawn=(0,),
        evidence=(batch.evidence(0),),
    )
    await verifier.performer(PublishRecord(record=record))
    (address,) = verifier.overlay.addresses
    assert await ask_record(address, f"{batch.lease}#0") == record
    assert list(Records(tmp_path / "records").all()) == [record]
    with pytest.raises(RequestRefused, match="no record"):
        await ask_record(address, f"{batch.lease}#1")
    for name in ("../../etc/passwd", "", "0x/0/0#0"):
        with pytest.raises(RequestRefused, match="needed the name"):
            await verifier.other.request(verifier.overlay.addresses, RECORD_PROTOCOL, name.encode())


def test_a_torn_record_is_left_out(tmp_path: Path) -> None:
    records = Records(tmp_path)
    (tmp_path / "torn.json").write_bytes(b'{"lease":')
    assert list(records.all()) == []
