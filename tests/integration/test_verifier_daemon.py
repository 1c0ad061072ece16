"""The verifier's daemon on a real chain and overlay: its start, its heartbeat, its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from cloud_gpu.protocol.adapters.gossip import OverlaySettings, open_overlay
from cloud_gpu.protocol.audit_messages import AuditRecord, SignedVerifierNotice
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.deployment import AuditWindows, Deployment
from cloud_gpu.protocol.errors import RequestRefused
from cloud_gpu.protocol.identity import LocalKey, NoDelegates
from cloud_gpu.protocol.signing import verify_statement
from cloud_gpu.protocol.topics import ASKS_TOPIC, RECORD_PROTOCOL, VERIFIERS_TOPIC
from cloud_gpu.protocol.units import ZERO_TOKENS
from cloud_gpu.protocol.values import ZERO_DIGEST, Address
from tests.support.anvil import Deployed, deployed_on, running_anvil
from tests.support.overlay import secret_of
from tests.support.verifier_daemon import said, start_verifier, verifier_config
from tests.unit.verifier.builders import lease_of

pytestmark = pytest.mark.timeout(180)


@dataclass(frozen=True)
class Place:
    """A chain whose deployment names two verifiers."""

    deployed: Deployed
    deployment: Deployment
    first: LocalKey
    audits: LocalKey


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with running_anvil() as anvil:
        deployed = deployed_on(anvil)
        first, second = deployed.key("first verifier"), deployed.key("second verifier")
        deployment = replace(
            deployed.deployment,
            verification=Address(b"\x0d" * 20),
            verifiers=(first.address, second.address),
            audit=AuditWindows(commit=60, challenge=10, hard_cap=120, late_slash=60, answer=15),
            heartbeat_s=1,
        )
        anvil.rpc.call("evm_setIntervalMining", 1)
        yield Place(deployed, deployment, first, deployed.key("audit account"))


def config(place: Place, folder: Path, /, **changes: object) -> Path:
    return verifier_config(
        folder, place.deployment, place.deployed.rpc_url, place.first, place.audits, **changes
    )


async def test_it_says_that_it_is_ready_and_alive_and_ends_cleanly(
    place: Place, tmp_path: Path
) -> None:
    path = config(place, tmp_path)
    assert said("anchor", "--config", str(path)).returncode == 0
    daemon = await trio.to_thread.run_sync(start_verifier, path)
    try:
        assert daemon.ready["verifier"] == str(place.first.address)
        settings = OverlaySettings(topics=(ASKS_TOPIC, VERIFIERS_TOPIC), bootstrap=daemon.addresses)
        async with open_overlay(settings, secret_of(9)) as overlay:
            with trio.fail_after(30):
                message = await overlay.messages(VERIFIERS_TOPIC).receive()
            notice = from_json(message.payload, SignedVerifierNotice)
            assert notice.body.verifier == place.first.address
            assert notice.body.addresses == daemon.addresses
            rejection = verify_statement(
                notice,
                place.deployment.domain,
                account=place.first.address,
                keys=NoDelegates(),
                role=None,
                at=notice.body.at,
            )
            assert rejection is None
            name = f"{lease_of('nobody')}#0".encode()
            with pytest.raises(RequestRefused, match="no record"):
                await overlay.request(daemon.addresses, RECORD_PROTOCOL, name)
    finally:
        assert daemon.end() == 0, daemon.log.read_text()

    # Killed, it starts again on the same folder.
    daemon = await trio.to_thread.run_sync(start_verifier, path)
    daemon.kill()
    daemon = await trio.to_thread.run_sync(start_verifier, path)
    assert daemon.end() == 0


def test_the_anchor_is_the_same_each_time_and_its_seed_is_private(
    place: Place, tmp_path: Path
) -> None:
    path = config(place, tmp_path)
    first, again = (said("anchor", "--config", str(path), "--json") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert (tmp_path / "preimages").stat().st_mode & 0o777 == 0o600
    other = config(place, tmp_path / "other")
    assert said("anchor", "--config", str(other), "--json").stdout != first.stdout


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"preimages_file": "/nowhere/preimages"}, "preimages_file"),
        ({"keystore": "/nowhere/key.json"}, "key.json"),
        ({"deployment": "/nowhere/deployment.json"}, "deployment.json"),
        ({"colour": 1}, "colour is no setting"),
    ],
)
def test_what_is_missing_at_the_start_is_named(
    place: Place, tmp_path: Path, change: dict[str, object], named: str
) -> None:
    path = config(place, tmp_path, **change)
    if "preimages_file" not in change:
        said("anchor", "--config", str(path))
    ended = said("run", "--config", str(path))
    assert ended.returncode == 3, ended.stderr
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_key_that_the_deployment_does_not_name_is_no_verifier(
    place: Place, tmp_path: Path
) -> None:
    stranger = place.deployed.key("stranger")
    path = verifier_config(
        tmp_path, place.deployment, place.deployed.rpc_url, stranger, place.audits
    )
    said("anchor", "--config", str(path))
    ended = said("run", "--config", str(path))
    assert ended.returncode == 3
    assert f"{stranger.address} is no verifier of this deployment" in ended.stderr


def test_a_seed_that_others_can_read_is_refused(place: Place, tmp_path: Path) -> None:
    path = config(place, tmp_path)
    said("anchor", "--config", str(path))
    (tmp_path / "preimages").chmod(0o644)
    ended = said("run", "--config", str(path))
    assert ended.returncode == 3
    assert "0600" in ended.stderr


def test_a_record_of_a_batch_that_was_never_committed_does_not_hold(
    place: Place, tmp_path: Path
) -> None:
    config(place, tmp_path)
    record = AuditRecord(
        lease=lease_of("nobody"),
        batch_no=0,
        root=ZERO_DIGEST,
        seed=ZERO_DIGEST,
        passed=ZERO_TOKENS,
        known_images=(),
        outline=None,
        drawn=(),
    )
    (tmp_path / "record.json").write_bytes(to_json(record))
    words = ["check", "--deployment", str(tmp_path / "deployment.json")]
    words += ["--rpc", place.deployed.rpc_url]
    checked = said(*words, "--record", str(tmp_path / "record.json"))
    assert checked.returncode == 1, checked.stderr
    assert "was never committed" in checked.stdout
    assert said(*words).returncode == 2
    assert said(*words, "--record", str(tmp_path / "nothing.json")).returncode == 3
