"""Flags with a pretend outside world: what a bad one is called, and what a good one reaches."""

import json
import re
from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.opening import WaitedTooLong
from cloud_gpu.protocol.errors import (
    ChainUnavailable,
    MarketUnavailable,
)
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from cloud_gpu.settings import Settings, SettingsFile, read_settings
from tests.unit.cli.worlds import Captured, PretendWallet, PretendWorld, called


class RealSettings(PretendWorld):
    """Whose settings are read as they are, from what the test says."""

    project: SettingsFile | None = None
    environment: Mapping[str, str] = {}

    def settings(self, flags: Mapping[str, str | None]) -> Settings:
        return read_settings(
            flags=flags,
            environment=self.environment,
            project=self.project,
            context=lambda _: None,
            contexts="contexts",
        )


RENTING = ["run", "up", "quote", "bid place"]
DIGEST = "0x" + "00" * 32


@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("quote", "--gpu", "A100"),
        ("bid", "place", "--gpu", "A100", "--yes"),
        ("bid", "show", DIGEST),
        ("bid", "cancel", DIGEST),
    ],
)
@pytest.mark.parametrize(("flags", "waits"), [((), 120), (("--timeout", "8s"), 8)])
def test_a_command_that_asks_others_waits_as_long_as_it_is_told(
    words: tuple[str, ...], flags: tuple[str, ...], waits: int, capsys: Captured
) -> None:
    world = PretendWorld(WaitedTooLong("no answer in 8 s"))
    assert called(world, *words, *flags, "--json") == ExitCode.STILL_WAITING
    assert world.waits == [waits]
    error = json.loads(capsys.readouterr().out)
    assert (error["code"], error["reason"]) == (9, "still-waiting")


@pytest.mark.parametrize(
    ("took_s", "code"), [(8, ExitCode.STILL_WAITING), (7, ExitCode.UNAVAILABLE)]
)
def test_a_transaction_is_waited_for_as_long_as_one_is_told(
    took_s: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    now = 1_000

    class Slow(PretendWallet):
        def deposit(self, amount: TokenAmount) -> None:
            nonlocal now
            now += took_s
            raise ChainUnavailable("transaction 0x12 was not mined")

    world = PretendWorld()
    world.held = Slow()
    monkeypatch.setattr("cloud_gpu.cli.trading.time", SimpleNamespace(monotonic=lambda: now))
    assert called(world, "wallet", "fund", "1", "--yes", "--timeout", "8s", "--json") == code
    assert world.waits == [8]
    assert "0x12" in json.loads(capsys.readouterr().out)["found"]


@pytest.mark.parametrize(("flags", "waits"), [((), None), (("--timeout", "8s"), 8)])
@pytest.mark.parametrize("command", ["run", "up"])
def test_a_lease_is_waited_for_as_long_as_its_bid_stands_or_as_one_is_told(
    command: str, flags: tuple[str, ...], waits: int | None, capsys: Captured
) -> None:
    class World(PretendWorld):
        def session(self, settings: Settings, say: Any, **words: Any) -> Any:
            self.waits.append(words["open_timeout"])
            raise WaitedTooLong("no lease was usable after 8 s")

        def leases(self) -> Any:
            return SimpleNamespace(keeping=lambda _: nullcontext())

    world = World()
    words = [command, "--gpu", "A100", "--yes", "--json", *flags]
    words += ["--", "true"] if command == "run" else ["--foreground", "--name", "x"]
    code = called(world, *words)
    assert code == (ExitCode.RUN_FAILED if command == "run" else ExitCode.STILL_WAITING)
    assert json.loads(capsys.readouterr().out)["code"] == ExitCode.STILL_WAITING
    assert world.waits == [waits]


ONE, TWO = str(Address(b"\x01" * 20)), str(Address(b"\x02" * 20))


def test_a_provider_is_named_and_others_are_excluded_by_flags() -> None:
    given: dict[str, Any] = {}

    class World(PretendWorld):
        def session(self, settings: Settings, say: Any, **words: Any) -> Any:
            given.update(words)
            raise MarketUnavailable("enough")

    flags = ("--provider", ONE, "--exclude-provider", TWO)
    called(World(), "run", "--gpu", "A100", "--yes", *flags, "--", "true")
    assert str(given["provider"]) == ONE
    assert [str(each) for each in given["exclude_providers"]] == [TWO]


@pytest.mark.parametrize("flag", ["--provider", "--exclude-provider"])
@pytest.mark.parametrize("command", RENTING)
def test_an_address_that_cannot_be_read_names_its_flag(
    command: str, flag: str, capsys: Captured
) -> None:
    words = [*command.split(), "--gpu", "A100", "--yes", "--json", flag, "0x12", "--", "true"]
    assert called(PretendWorld(), *words[: None if command == "run" else -2]) == ExitCode.USAGE
    found = json.loads(capsys.readouterr().out)["found"]
    assert found == f"{flag}: found '0x12', needed 0x and 40 hex digits"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--duration", "2x"], """--duration: a duration is written like "2h", .*, found '2x'"""),
        (["--start-by", "soon"], "--start-by: a duration is written like .*, found 'soon'"),
        (["--isolation", "glass"], "--isolation: found 'glass', needed one of process, "),
        (["--verified", "--audit-bps", "12001"], "--audit-bps: found 12001, needed 0 to 12000"),
        (["--gpu", "A100|"], "--gpu: found '', needed a class like A100:80GB:2, or a comparison"),
        (["--count", "70000"], "--count: found 70000, needed 1 to 65535 GPUs"),
    ],
)
@pytest.mark.parametrize("command", RENTING)
def test_a_word_that_cannot_be_read_is_named_by_its_flag(
    command: str, words: list[str], said: str, capsys: Captured
) -> None:
    given = [*command.split(), "--gpu", "A100", "--yes", "--json", *words]
    given += ["--", "true"] if command == "run" else []
    assert called(PretendWorld(), *given) == ExitCode.USAGE
    assert re.match(said, json.loads(capsys.readouterr().out)["found"])


@pytest.mark.parametrize("price", ["1,20", "-1", "0", "1.2345"])
@pytest.mark.parametrize("command", RENTING)
def test_a_price_limit_that_cannot_be_read_is_a_usage_error_like_any_flag(
    command: str, price: str, capsys: Captured
) -> None:
    given = [*command.split(), "--gpu", "A100", "--yes", "--json", f"--max-price={price}"]
    given += ["--", "true"] if command == "run" else []
    assert called(RealSettings(), *given) == ExitCode.USAGE
    assert "--max-price" in json.loads(capsys.readouterr().out)["found"]


@pytest.mark.parametrize("price", ["1,20", "0"])
@pytest.mark.parametrize("source", ["cloud-gpu.toml", "CLOUD_GPU_MAX_PRICE"])
def test_a_price_limit_of_a_file_or_the_environment_is_a_setting_and_names_where_it_is_from(
    source: str, price: str, capsys: Captured
) -> None:
    world = RealSettings()
    if source == "cloud-gpu.toml":
        world.project = SettingsFile(path="cloud-gpu.toml", text=f'max_price = "{price}"')
    else:
        world.environment = {"CLOUD_GPU_MAX_PRICE": price}
    assert called(world, "quote", "--gpu", "A100", "--json") == ExitCode.SETTINGS
    found = json.loads(capsys.readouterr().out)["found"]
    assert source in found
    assert "max_price" in found


def test_an_idle_time_that_cannot_be_read_is_named_by_its_flag(capsys: Captured) -> None:
    words = ("up", "--gpu", "A100", "--yes", "--idle-timeout", "2x")
    assert called(PretendWorld(), *words) == ExitCode.USAGE
    assert "--idle-timeout" in capsys.readouterr().err
