"""The door to a lease's keeper: the right token, nobody else's, and a keeper that is gone."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cloud_gpu.adapters.kept_leases import KeeperGone, KeptLeases
from cloud_gpu.protocol.errors import SettingsInvalid


def echo(request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield {"heard": dict(request)}
    yield {"more": 1}


@pytest.fixture
def leases(tmp_path: Path) -> KeptLeases:
    return KeptLeases(tmp_path / "leases")


def door_of(leases: KeptLeases, tmp_path: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "leases" / name / "door.json").read_text())
    return found


def test_answers_come_in_order_and_the_token_stays_outside(leases: KeptLeases) -> None:
    with leases.keeping("a"), leases.answering("a", echo):
        assert list(leases.ask("a", {"do": "x"})) == [{"heard": {"do": "x"}}, {"more": 1}]


@pytest.mark.parametrize("sent", [b'{"do": "x"}\n', b'{"do": "x", "token": "no"}\n', b"junk\n"])
def test_a_stranger_on_this_machine_gets_no_answer(
    leases: KeptLeases, tmp_path: Path, sent: bytes
) -> None:
    with leases.keeping("a"), leases.answering("a", echo):
        port = door_of(leases, tmp_path, "a")["port"]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(sent)
            assert connection.recv(100) == b""
        assert next(leases.ask("a", {}))  # and the door still stands


def test_the_token_is_for_the_owner_alone(leases: KeptLeases, tmp_path: Path) -> None:
    with leases.keeping("a"), leases.answering("a", echo):
        assert (tmp_path / "leases" / "a" / "door.json").stat().st_mode & 0o077 == 0
        assert (tmp_path / "leases" / "a").stat().st_mode & 0o077 == 0


def test_a_keeper_that_is_gone_is_said(leases: KeptLeases) -> None:
    with leases.keeping("a"), leases.answering("a", echo):
        pass
    assert not leases.is_kept("a")
    with pytest.raises(KeeperGone, match="what was not used returns by itself"):
        next(leases.ask("a", {}))


def test_one_name_is_kept_once(leases: KeptLeases) -> None:
    with leases.keeping("a"):
        assert leases.is_kept("a")
        failed: list[BaseException] = []

        def other() -> None:
            try:
                with KeptLeases(leases._folder).keeping("a"):
                    pass
            except SettingsInvalid as error:
                failed.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(10)
        assert len(failed) == 1
        assert "cloud-gpu down a" in str(failed[0])


@pytest.mark.parametrize("name", ["", "../x", "A", "a/b", "-a", "a" * 41])
def test_a_name_is_one_word_of_a_path(leases: KeptLeases, name: str) -> None:
    with pytest.raises(SettingsInvalid, match="lower-case letters"):
        leases.record(name)


def test_names_are_free_or_known_by_their_records(leases: KeptLeases) -> None:
    assert (leases.names(), leases.free_name()) == ([], "lease-1")
    with leases.keeping("lease-1"):
        leases.note("lease-1", {"state": "open"})
    assert (leases.names(), leases.free_name()) == (["lease-1"], "lease-2")
    assert leases.record("lease-1") == {"state": "open"}
    leases.forget("lease-1")
    assert leases.record("lease-1") is None
