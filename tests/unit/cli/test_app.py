"""The command tree with a pretend outside world: flags, formats, exit codes, consent."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloud_gpu.cli.app import run
from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.opening import WaitedTooLong
from cloud_gpu.protocol.errors import (
    ChainUnavailable,
    CloudGpuError,
    MarketUnavailable,
    SettingsInvalid,
)
from cloud_gpu.protocol.ports import AccountView
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address
from cloud_gpu.settings import Settings, SettingsFile, read_settings


class PretendWallet:
    """Ten tokens in the wallet, two in the vault."""

    address = Address(b"\x01" * 20)

    def __init__(self) -> None:
        self.tokens, self.cash, self.id = 10_000_000, 2_000_000, 0

    def account(self) -> AccountView:
        return AccountView(id=self.id, cash=TokenAmount(self.cash), nonce_base=0, nonce_bits=0)

    def token_balance(self) -> TokenAmount:
        return TokenAmount(self.tokens)

    def native_balance(self) -> int:
        return 10**18

    def register_account(self) -> int:
        self.id = 7
        return 7

    def deposit(self, amount: TokenAmount) -> None:
        self.tokens -= amount.value
        self.cash += amount.value

    def withdraw(self, amount: TokenAmount) -> None:
        self.tokens += amount.value
        self.cash -= amount.value


class PretendWorld:
    """An outside world that holds a wallet, and fails where it is told to."""

    def __init__(self, failing: CloudGpuError | Exception | None = None) -> None:
        self.held = PretendWallet()
        self.failing = failing
        self.flags: Mapping[str, str | None] = {}
        self.waits: list[float | None] = []

    def settings(self, flags: Mapping[str, str | None]) -> Settings:
        self.flags = flags
        return Settings(max_price="1.00", context="test", market="http://127.0.0.1:1")

    def wallet(self, settings: Settings, within_s: float) -> Any:
        self.waits.append(within_s)
        if self.failing is not None:
            raise self.failing
        return nullcontext(self.held)

    def ask(self, settings: Settings, work: Any, say: Any, within_s: float | None) -> Any:
        self.waits.append(within_s)
        raise self.failing or AssertionError("nobody to ask")

    def address(self, settings: Settings) -> str:
        return str(self.held.address)

    def chain_found(self, settings: Settings) -> str:
        return "LeaseBook 0x0 on chain 1"


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


def called(world: PretendWorld, *arguments: str) -> int:
    return run(world, arguments)  # type: ignore[arg-type]


Captured = pytest.CaptureFixture[str]


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
    monkeypatch.setattr("cloud_gpu.cli.wallet.time", SimpleNamespace(monotonic=lambda: now))
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
        (["--gpu", "A100|"], "--gpu: found '', needed a class or a word of one"),
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
        world.project = SettingsFile(path="/home/me/cloud-gpu.toml", text=f'max_price = "{price}"')
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


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGHUP, ExitCode.HUNG_UP),
        (signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGTERM, ExitCode.TERMINATED),
    ],
)
def test_an_ending_signal_interrupts_once_and_exits_with_its_code(
    number: signal.Signals, code: int, capsys: Captured
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
