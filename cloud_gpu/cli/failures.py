"""Every way a command fails, in one shape: what was found, what was needed, what to do next."""

from __future__ import annotations

from msgspec import structs

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.flags import flag_of, in_flags
from cloud_gpu.opening import WaitedTooLong
from cloud_gpu.protocol.errors import (
    CloudGpuError,
    FundsTooSmall,
    GasTooSmall,
    LeaseInterrupted,
    MarketUnavailable,
    NoMatch,
    Rejected,
    Rejection,
    RejectReason,
    RunError,
    SettingsInvalid,
    StartTimeout,
    ToolchainMissing,
    TransactionReverted,
)
from cloud_gpu.protocol.units import format_tokens
from cloud_gpu.protocol.values import Value


class Failure(Value, frozen=True, kw_only=True):
    """The JSON of an error: `reason` is a reject reason, a contract error or a word of ours."""

    code: int
    reason: str
    found: str
    needed: str = ""
    next: str = ""

    def lines(self) -> list[str]:
        """For people, on standard error."""
        parts = [("error", self.reason), ("found", self.found)]
        parts += [("needed", self.needed), ("next", self.next)]
        return [f"{name + ':':<8}{text}" for name, text in parts if text]


class UsageWrong(CloudGpuError):
    """The command line asks for something that does not go together."""

    exit_code = ExitCode.USAGE


class NoSuchThing(CloudGpuError):
    """What the command names does not exist."""

    exit_code = ExitCode.NO_SUCH_THING

    def __init__(self, found: str, needed: str, next_step: str) -> None:
        super().__init__(f"{found}; needed {needed}. {next_step}")
        self.found, self.needed, self.next_step = found, needed, next_step


class StillWaiting(CloudGpuError):
    """The time for waiting is over; what was asked for goes on by itself."""

    exit_code = ExitCode.STILL_WAITING

    def __init__(self, found: str, needed: str, next_step: str) -> None:
        super().__init__(f"{found}; needed {needed}. {next_step}")
        self.found, self.needed, self.next_step = found, needed, next_step


def refused_here(error: OSError | ValueError) -> CloudGpuError:
    """What a file or a word of the command line did wrong inside a lease."""
    if isinstance(error, FileNotFoundError):
        return NoSuchThing(str(error), "a file that is there", "")
    return UsageWrong(str(error))


def failure_of(error: CloudGpuError, usage: str = "cloud-gpu --help") -> Failure:
    """What to print for an exception that reached the command line; `usage` prints its help."""
    code = int(error.exit_code)
    match error:
        case NoMatch(rejection=rejection):
            named = flag_of(rejection.field), in_flags(rejection.next)
            return _of_rejection(code, structs.replace(rejection, field=named[0], next=named[1]))
        case Rejected(rejection=rejection):
            return _of_rejection(code, rejection)
        case NoSuchThing():
            return Failure(
                code=code,
                reason="no-such-thing",
                found=error.found,
                needed=error.needed,
                next=error.next_step,
            )
        case StillWaiting():
            return Failure(
                code=code,
                reason="still-waiting",
                found=error.found,
                needed=error.needed,
                next=error.next_step,
            )
        case GasTooSmall():
            return Failure(
                code=code,
                reason="gas-too-small",
                found=str(error),
                needed=f"{error.needed} wei" if error.needed else "native currency for gas",
                next="send it native currency, and run the command again",
            )
        case FundsTooSmall():
            return Failure(
                code=code,
                reason="funds-too-small",
                found=f"{format_tokens(error.have)} tokens. {error}",
                needed=f"{format_tokens(error.needed)} tokens",
                next="cloud-gpu wallet fund AMOUNT, or ask for less time or fewer GPUs",
            )
        case RunError(code=remote):
            return Failure(code=remote, reason="command-failed", found=str(error))
        case ToolchainMissing():
            return _of_three_lines(code, "tool-missing", str(error))
        case _:
            reason, needed, next_step = _words_for(error, usage)
            return Failure(
                code=code, reason=reason, found=str(error), needed=needed, next=next_step
            )


_UNKNOWN = (
    RejectReason.UNKNOWN_ORDER,
    RejectReason.UNKNOWN_LEASE,
    RejectReason.UNKNOWN_JOB,
)


def _of_rejection(code: int, rejection: Rejection) -> Failure:
    found = rejection.found or "nothing"
    if rejection.reason in _UNKNOWN:
        code = ExitCode.NO_SUCH_THING
    return Failure(
        code=code,
        reason=str(rejection.reason),
        found=f"{rejection.field}: {found}" if rejection.field else found,
        needed=rejection.needed,
        next=rejection.next,
    )


def _of_three_lines(code: int, reason: str, text: str) -> Failure:
    """The toolchain says found, needed and next in a line each."""
    said = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return Failure(
        code=code,
        reason=reason,
        found=said.get("found", text),
        needed=said.get("needed", ""),
        next=said.get("next", ""),
    )


def _words_for(error: CloudGpuError, usage: str) -> tuple[str, str, str]:
    match error:
        case UsageWrong():
            return "usage", "", usage
        case SettingsInvalid():
            return "settings-invalid", "", "cloud-gpu doctor"
        case MarketUnavailable():
            return "market-unavailable", "a market that answers", "cloud-gpu doctor"
        case TransactionReverted(error=name):
            return name, "a call that the contract accepts", "cloud-gpu wallet show"
        case WaitedTooLong():
            return "still-waiting", "an answer in that time", "try again with a longer --timeout"
        case StartTimeout():
            return "start-timeout", "a provider that gets ready", "try again: another ask may match"
        case LeaseInterrupted(reason=reason):
            return reason, "a lease that runs to its end", "rent again; what was not used came back"
        case _:
            kind = type(error).__name__
            words = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind).lstrip("-")
            return words, "", "cloud-gpu doctor"
