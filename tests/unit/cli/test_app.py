"""The command tree with a pretend outside world: flags, formats, exit codes, consent."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import UsageWrong
from cloud_gpu.cli.trading import digest_of
from cloud_gpu.protocol.errors import (
    ChainUnavailable,
    MarketUnavailable,
    SettingsInvalid,
)
from cloud_gpu.settings import Settings
from tests.unit.cli.worlds import Captured, PretendWorld, called


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "json", "wallet", "show"],
        ["wallet", "show", "--json"],
        ["--json", "wallet", "show"],
    ],
)
def test_global_flags_stand_before_or_after_the_command(
    arguments: list[str], capsys: Captured
) -> None:
    assert called(PretendWorld(), *arguments) == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["kind"]) == (1, "wallet")
    assert found["vault"] == {"amount": "2.00", "unit": "token"}


def test_funding_registers_deposits_and_shows_both_sides(capsys: Captured) -> None:
    world = PretendWorld()
    assert called(world, "wallet", "fund", "2.5", "--yes", "--json") == ExitCode.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["account"], found["wallet"]["amount"], found["vault"]["amount"]) == (
        7,
        "7.50",
        "4.50",
    )


def test_spending_without_a_terminal_and_without_yes_is_a_usage_error(capsys: Captured) -> None:
    world = PretendWorld()
    assert called(world, "wallet", "fund", "2.5") == ExitCode.USAGE
    assert "add --yes" in capsys.readouterr().err
    assert world.held.tokens == 10_000_000


def test_funding_more_than_the_wallet_holds_says_how_much_there_is(capsys: Captured) -> None:
    assert called(PretendWorld(), "wallet", "fund", "11", "--yes", "--json") == ExitCode.FUNDS
    error = json.loads(capsys.readouterr().out)
    assert (error["reason"], error["needed"]) == ("funds-too-small", "11.00 tokens")
    assert error["found"].startswith("10.00 tokens")


@pytest.mark.parametrize("command", ["fund", "withdraw"])
@pytest.mark.parametrize("tokens", ["-5", "-0.5", "0", "0.00"])
def test_only_a_positive_amount_is_moved(command: str, tokens: str, capsys: Captured) -> None:
    world = PretendWorld()
    assert called(world, "wallet", command, tokens, "--yes", "--json") == ExitCode.USAGE
    found = json.loads(capsys.readouterr().out)["found"]
    assert found == f"Invalid value for 'TOKENS': found '{tokens}', needed an amount above 0"
    assert (world.held.tokens, world.held.cash) == (10_000_000, 2_000_000)


@pytest.mark.parametrize("words", [["5", "--nonsense"], ["--nonsense", "5"], ["5", "-7"]])
def test_an_unknown_flag_beside_an_amount_is_still_an_error(
    words: list[str], capsys: Captured
) -> None:
    assert called(PretendWorld(), "wallet", "withdraw", *words, "--yes") == ExitCode.USAGE
    assert capsys.readouterr().err


def test_withdrawing_more_than_the_vault_holds_is_refused_before_any_transaction() -> None:
    world = PretendWorld()
    assert called(world, "wallet", "withdraw", "3", "--yes") == ExitCode.FUNDS
    assert world.held.cash == 2_000_000


@pytest.mark.parametrize("words", [["nonsense"], ["wallet", "fund", "1,5"], ["ls", "--limit", "x"]])
def test_usage_errors_exit_2_also_as_json(words: list[str], capsys: Captured) -> None:
    assert called(PretendWorld(), *words) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("error:  usage")
    assert called(PretendWorld(), *words, "-ojson") == ExitCode.USAGE
    assert json.loads(capsys.readouterr().out)["reason"] == "usage"


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (["nonsense"], "cloud-gpu --help"),
        (["wallet", "fund", "1,5"], "cloud-gpu wallet fund --help"),
        (["ls", "--limit", "x"], "cloud-gpu ls --help"),
    ],
)
def test_a_usage_error_names_the_help_of_its_command(
    words: list[str], usage: str, capsys: Captured
) -> None:
    assert called(PretendWorld(), *words) == ExitCode.USAGE
    assert capsys.readouterr().err.rstrip().endswith(usage)


def test_an_id_may_be_the_beginning_of_one_that_was_handed_in_from_here() -> None:
    noted = ["0x" + "ab" * 32, "0x" + "abab" * 3 + "cd" * 26]
    assert str(digest_of("0x" + "ab" * 7, "BID", noted)) == noted[0]
    assert str(digest_of(noted[1], "BID", noted)) == noted[1]
    with pytest.raises(UsageWrong, match="begins 2 ids"):
        digest_of("0xababab", "BID", noted)
    for text in ("0xabab", "0xffffffff"):  # too short to mean one; unknown
        with pytest.raises(UsageWrong, match="64 hex digits"):
            digest_of(text, "BID", noted)


def test_a_market_that_is_down_exits_8(capsys: Captured) -> None:
    world = PretendWorld(MarketUnavailable("no answer from http://127.0.0.1:1"))
    assert called(world, "ls", "-o", "json") == ExitCode.UNAVAILABLE
    assert json.loads(capsys.readouterr().out)["reason"] == "market-unavailable"


def test_run_reports_its_own_failures_as_125_with_the_code_in_the_json(capsys: Captured) -> None:
    class NoSessions(PretendWorld):
        def session(self, settings: Settings, say: Any, **words: Any) -> Any:
            raise MarketUnavailable("no answer")

    arguments = ("run", "--gpu", "A100", "--yes", "--json", "--", "true")
    assert called(NoSessions(), *arguments) == ExitCode.RUN_FAILED
    assert json.loads(capsys.readouterr().out)["code"] == ExitCode.UNAVAILABLE


def test_a_remote_command_keeps_its_own_flags() -> None:
    seen: list[Any] = []

    class Session:
        bill = None

        def run(self, command: list[str], **_: Any) -> Any:
            seen.append(command)
            raise MarketUnavailable("enough")

    class World(PretendWorld):
        def session(self, settings: Settings, say: Any, **words: Any) -> Any:
            return nullcontext(Session())

    called(World(), "run", "--gpu", "A100", "--yes", "--", "tool", "--json", "-o", "x")
    assert seen == [["tool", "--json", "-o", "x"]]


def test_a_bug_of_ours_exits_1_with_its_traceback(capsys: Captured) -> None:
    assert called(PretendWorld(ZeroDivisionError("oops")), "wallet", "show") == ExitCode.OUR_BUG
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "found:  ZeroDivisionError: oops" in err


def test_ctrl_c_exits_130() -> None:
    class Interrupted(PretendWorld):
        def wallet(self, settings: Settings, within_s: float) -> Any:
            raise KeyboardInterrupt

    assert called(Interrupted(), "wallet", "show") == ExitCode.INTERRUPTED


@pytest.fixture
def hears_signals() -> Iterator[None]:
    """Whoever runs the tests in the background, or under nohup, made them deaf to some."""
    before = {
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGHUP, ExitCode.HUNG_UP),
        (signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGTERM, ExitCode.TERMINATED),
    ],
)
def test_an_ending_signal_interrupts_once_and_exits_with_its_code(
    number: signal.Signals, code: int, capsys: Captured, hears_signals: None
) -> None:
    story: list[str] = []

    class Ending(PretendWorld):
        def wallet(self, settings: Settings, within_s: float) -> Any:
            try:
                signal.raise_signal(number)
            finally:
                signal.raise_signal(signal.SIGHUP)
                signal.raise_signal(signal.SIGTERM)
                story.append("put in order")

    before = [signal.getsignal(each) for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)]
    assert called(Ending(), "wallet", "show", "--json") == code
    assert story == ["put in order"]
    assert json.loads(capsys.readouterr().out)["found"] == number.name
    after = [signal.getsignal(each) for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)]
    assert after == before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    class HungUp(PretendWorld):
        def wallet(self, settings: Settings, within_s: float) -> Any:
            signal.raise_signal(signal.SIGHUP)
            return super().wallet(settings, within_s)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert called(HungUp(), "wallet", "show") == ExitCode.DONE
    finally:
        signal.signal(signal.SIGHUP, before)


def test_doctor_exits_with_the_first_failure_and_names_each_fix(capsys: Captured) -> None:
    world = PretendWorld(ChainUnavailable("no answer from the EVM node"))
    assert called(world, "doctor", "--json") == ExitCode.UNAVAILABLE
    found = json.loads(capsys.readouterr().out)
    assert {check["check"]: check["ok"] for check in found["checks"]} == {
        "settings": True,
        "price limit": True,
        "wallet key": True,
        "chain": True,
        "vault": False,
        "market": False,
    }


def test_doctor_asks_every_market_for_itself(capsys: Captured) -> None:
    class Three(PretendWorld):
        def settings(self, flags: Mapping[str, str | None]) -> Settings:
            return Settings(max_price="1.00", market="http://a", other_markets="http://b http://c")

        def ask(self, settings: Settings, work: Any, say: Any, within_s: float | None) -> Any:
            raise MarketUnavailable(f"{settings.market} alone: {not settings.other_markets}")

    assert called(Three(), "doctor", "--json") == ExitCode.UNAVAILABLE
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [(c["check"], c["found"]) for c in checks if not c["ok"]][-2:] == [
        ("other market", "http://b alone: True"),
        ("other market", "http://c alone: True"),
    ]


def test_doctor_without_settings_stops_there(capsys: Captured) -> None:
    class Unset(PretendWorld):
        def settings(self, flags: Mapping[str, str | None]) -> Settings:
            raise SettingsInvalid("config.toml: not TOML")

    assert called(Unset(), "doctor", "--json") == ExitCode.SETTINGS
    assert [c["check"] for c in json.loads(capsys.readouterr().out)["checks"]] == ["settings"]


def test_help_needs_none_of_the_heavy_libraries() -> None:
    program = (
        "import sys\n"
        "from cloud_gpu.cli.app import run\n"
        "code = run(None, ['--help'])\n"
        "heavy = {'libp2p', 'trio', 'anyio', 'httpx', 'web3', 'eth_account', 'eth_abi', 'numpy'}\n"
        "sys.exit(repr(heavy & set(sys.modules)) if heavy & set(sys.modules) else code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in ("devnet", "demo", "ls", "quote", "run", "wallet", "doctor"):
        assert name in done.stdout


def test_the_shell_is_told_how_to_complete_and_which_words_there_are(capsys: Captured) -> None:
    assert called(PretendWorld(), "completion", "bash") == ExitCode.DONE
    assert "_CLOUD_GPU_COMPLETE=complete_bash" in capsys.readouterr().out
    asked = subprocess.run(
        [Path(sys.executable).with_name("cloud-gpu")],
        env={
            **os.environ,
            "_CLOUD_GPU_COMPLETE": "complete_bash",
            "COMP_WORDS": "cloud-gpu wallet f",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
    )
    assert asked.stdout.split() == ["fund"]
