"""Every exception that may reach the command line, with its exit code and its three lines."""

import pytest

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import NoSuchThing, StillWaiting, UsageWrong, failure_of
from cloud_gpu.protocol import errors
from cloud_gpu.protocol.errors import CloudGpuError, Rejection, RejectReason

REJECTION = Rejection(
    reason=RejectReason.BAD_SIGNATURE,
    field="Bid.signature",
    found="signed by another",
    needed="the buyer's",
    next="Sign it again.",
)


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (UsageWrong("no"), ExitCode.USAGE, "usage"),
        (errors.SettingsInvalid("no"), ExitCode.SETTINGS, "settings-invalid"),
        (NoSuchThing("a", "b", "c"), ExitCode.NO_SUCH_THING, "no-such-thing"),
        (errors.NoMatch(REJECTION), ExitCode.NO_MATCH, "bad-signature"),
        (errors.FundsTooSmall(2, 1, "no"), ExitCode.FUNDS, "funds-too-small"),
        (errors.Rejected(REJECTION), ExitCode.REJECTED, "bad-signature"),
        (errors.MarketUnavailable("no"), ExitCode.UNAVAILABLE, "market-unavailable"),
        (errors.ChainUnavailable("no"), ExitCode.UNAVAILABLE, "chain-unavailable"),
        (errors.PeerUnreachable("no"), ExitCode.UNAVAILABLE, "peer-unreachable"),
        (errors.TransactionReverted("X"), ExitCode.UNAVAILABLE, "X"),
        (StillWaiting("a", "b", "c"), ExitCode.STILL_WAITING, "still-waiting"),
        (errors.StartTimeout("no"), ExitCode.PROVIDER_FAILED, "start-timeout"),
        (errors.LeaseInterrupted("health", "no"), ExitCode.PROVIDER_FAILED, "health"),
    ],
)
def test_exit_code_and_reason_of_each_error(error: CloudGpuError, code: int, reason: str) -> None:
    failure = failure_of(error)
    assert (failure.code, failure.reason) == (code, reason)
    assert failure.found


def test_a_rejection_keeps_its_field_and_what_to_do() -> None:
    failure = failure_of(errors.Rejected(REJECTION))
    assert failure.lines() == [
        "error:  bad-signature",
        "found:  Bid.signature: signed by another",
        "needed: the buyer's",
        "next:   Sign it again.",
    ]


@pytest.mark.parametrize(
    ("field", "change", "shown", "said"),
    [
        ("timeout", 'Ask for timeout="1d".', "--duration", "Ask for --duration 1d."),
        ("count", "Ask for count=4.", "--count", "Ask for --count 4."),
        ("max_price", 'Bid at least max_price="1.20".', "--max-price", "--max-price 1.20."),
        ("regions", "Ask for less of regions.", "--region", "Ask for less of --region."),
        ("isolation_min", "Ask for another.", "--isolation", "Ask for another."),
        ("start_timeout", "Give more, or raise max_price.", "--start-by", "raise --max-price."),
    ],
)
def test_what_is_in_the_way_is_said_in_flags(
    field: str, change: str, shown: str, said: str
) -> None:
    blocking = Rejection(reason=RejectReason.NO_MATCH, field=field, found="a", next=change)
    failure = failure_of(errors.NoMatch(blocking))
    assert failure.found == f"{shown}: a"
    assert failure.next.endswith(said)


def test_funds_are_shown_in_tokens() -> None:
    failure = failure_of(errors.FundsTooSmall(2_500_000, 1_000_000, "the vault"))
    assert failure.needed == "2.50 tokens"
    assert failure.found.startswith("1.00 tokens")


def test_a_missing_tool_keeps_the_three_lines_of_the_toolchain() -> None:
    failure = failure_of(errors.ToolchainMissing("found: no npm\nneeded: npm\nnext: install it"))
    assert (failure.found, failure.needed, failure.next) == ("no npm", "npm", "install it")


def test_a_failed_remote_command_passes_its_code_through() -> None:
    assert failure_of(errors.RunError(42, "boom")).code == 42


def all_errors(kind: type[CloudGpuError]) -> set[type[CloudGpuError]]:
    found = {kind}
    for child in kind.__subclasses__():
        found |= all_errors(child)
    return found


def test_every_error_of_the_protocol_has_a_documented_exit_code() -> None:
    assert {int(kind.exit_code) for kind in all_errors(CloudGpuError)} <= {int(c) for c in ExitCode}
