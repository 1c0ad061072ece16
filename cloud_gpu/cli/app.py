"""The command tree of `cloud-gpu`, and what becomes of a failure: text or JSON, and an exit code.

`run` is called by `cloud_gpu.main` with the outside world. Command modules import what is light;
the rest comes when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence

import typer

from cloud_gpu.bidding import WordUnclear
from cloud_gpu.cli import (
    asks,
    auction,
    bid,
    completion,
    contracts,
    demo,
    devnet,
    doctor,
    future,
    given,
    group,
    jobs,
    leases,
    positions,
    repeat,
    series,
    wallet,
    watching,
)
from cloud_gpu.cli import run as running
from cloud_gpu.cli.endings import ended_by_signals
from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import Failure, UsageWrong, failure_of
from cloud_gpu.cli.flags import flag_of
from cloud_gpu.cli.invocation import Invocation, command, root, standing_format
from cloud_gpu.cli.output import Format, Output
from cloud_gpu.cli.outside import Outside
from cloud_gpu.protocol.errors import CloudGpuError

app = typer.Typer(
    name="cloud-gpu",
    help="Rent GPU time from a market that nobody has to trust.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
devnet_app = typer.Typer(
    help="A chain, a market and pretend nodes on this machine.", no_args_is_help=True
)
bid_app = typer.Typer(help="Orders without a session to hold.", no_args_is_help=True)
app.add_typer(bid_app, name="bid")
auction_app = typer.Typer(
    help="Block auctions that have cleared; `bid place --block` takes part.", no_args_is_help=True
)
app.add_typer(auction_app, name="auction")
future_app = typer.Typer(
    help="GPU time in a later window: buy it ahead, or sell it ahead.", no_args_is_help=True
)
app.add_typer(future_app, name="future")
group_app = typer.Typer(
    help="A block of machines, bought by several buyers together.", no_args_is_help=True
)
app.add_typer(group_app, name="group")
wallet_app = typer.Typer(help="Tokens in the wallet and in the vault.", no_args_is_help=True)
app.add_typer(wallet_app, name="wallet")
app.add_typer(devnet_app, name="devnet")
contracts_app = typer.Typer(help="The contracts on a chain of your own.", no_args_is_help=True)
app.add_typer(contracts_app, name="contracts")


_AMOUNT_FIRST = {"ignore_unknown_options": True}
"""-5 is an amount, and a wrong one, not an option."""


@app.callback()
@root
def _before() -> None:
    """Rent GPU time from a market that nobody has to trust."""


app.command("ls")(command(asks.ls))
app.command("quote")(command(asks.quote))
app.command("watch")(command(watching.watch))
app.command("run")(command(running.run))
app.command("repeat", hidden=True)(command(repeat.repeat))
app.command("up")(command(leases.up))
app.command("take")(command(given.take))
app.command("down")(command(leases.down))
app.command("ps")(command(leases.ps))
app.command("show")(command(leases.show))
app.command("exec")(command(jobs.exec_))
app.command("logs")(command(jobs.logs))
bid_app.command("place")(command(bid.place))
bid_app.command("show")(command(bid.show))
bid_app.command("ls")(command(bid.ls))
bid_app.command("cancel")(command(bid.cancel))
auction_app.command("ls")(command(auction.ls))
auction_app.command("show")(command(auction.show))
future_app.command("series")(command(series.series))
future_app.command("book")(command(series.book))
future_app.command("curve")(command(series.curve))
future_app.command("buy")(command(future.buy))
future_app.command("sell")(command(future.sell))
future_app.command("show")(command(future.show))
future_app.command("ls")(command(future.ls))
future_app.command("cancel")(command(future.cancel))
future_app.command("positions")(command(positions.positions))
future_app.command("fund")(command(positions.fund))
future_app.command("nominate")(command(positions.nominate))
future_app.command("join")(command(positions.join))
future_app.command("assign")(command(positions.assign))
group_app.command("ls")(command(group.ls))
group_app.command("show")(command(group.show))
group_app.command("open")(command(group.open_))
group_app.command("pledge")(command(group.pledge))
group_app.command("refund")(command(group.refund))
group_app.command("notices")(command(group.notices))
wallet_app.command("show")(command(wallet.show))
wallet_app.command("fund", context_settings=_AMOUNT_FIRST)(command(wallet.fund))
wallet_app.command("withdraw", context_settings=_AMOUNT_FIRST)(command(wallet.withdraw))
devnet_app.command("up")(command(devnet.up))
devnet_app.command("down")(command(devnet.down))
devnet_app.command("status")(command(devnet.status))
contracts_app.command("deploy")(command(contracts.deploy))
contracts_app.command("verify")(command(contracts.verify))
app.command("demo")(command(demo.demo))
app.command("completion")(command(completion.completion))
app.command("doctor")(command(doctor.doctor))


_ENDINGS = {
    signal.SIGHUP: ExitCode.HUNG_UP,
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
}


def run(outside: Outside, arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code. Nothing but our own bugs gets past."""
    completion.prepare()
    with ended_by_signals() as ending:
        code, failure = _attempted(outside, arguments)
    if ending.signal is not None:  # whatever came of it
        code, failure = _failed(_ENDINGS[ending.signal], "interrupted", ending.signal.name)
    if failure is not None:
        Output(_format_of(arguments) or standing_format(outside)).failure(failure)
    return code


def _attempted(outside: Outside, arguments: Sequence[str]) -> tuple[int, Failure | None]:
    try:
        code = app(
            args=list(arguments),
            prog_name="cloud-gpu",
            obj=Invocation(outside=outside),
            standalone_mode=False,
        )
    except typer.Exit as wanted:
        return wanted.exit_code, None
    except (typer.Abort, KeyboardInterrupt):
        return _failed(ExitCode.INTERRUPTED, "interrupted", "Ctrl-C")
    except typer.TyperException as error:
        failure = failure_of(UsageWrong(_said(error)), _help_of(arguments))
        return failure.code, failure
    except WordUnclear as error:  # found where products and markets are known
        wrong = UsageWrong(f"{flag_of(error.field)}: {error.problem}")
        failure = failure_of(wrong, _help_of(arguments))
        return failure.code, failure
    except CloudGpuError as error:
        failure = failure_of(error, _help_of(arguments))
        return failure.code, failure
    except SystemExit:  # typer's answer to a broken pipe: the reader has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return ExitCode.DONE, None
    except OSError as error:  # a full disk, a folder that is a file: not ours to mend
        needed = "a disk with room, and folders that this user may write to"
        return _failed(ExitCode.UNAVAILABLE, "system-refused", str(error), needed)
    except Exception as error:
        traceback.print_exc()
        found = f"{type(error).__name__}: {error}"
        return _failed(ExitCode.OUR_BUG, "our-bug", found, "a program without this bug")
    return int(code or 0), None


def _failed(code: ExitCode, reason: str, found: str, needed: str = "") -> tuple[int, Failure]:
    return code, Failure(code=code, reason=reason, found=found, needed=needed)


def _help_of(arguments: Sequence[str]) -> str:
    """What prints the help of the command that these words name, as far as they name one."""
    command: object = typer.main.get_command(app)
    words = ["cloud-gpu"]
    for word in arguments:
        inner = getattr(command, "commands", {})
        if word not in inner:
            break
        command = inner[word]
        words.append(word)
    return " ".join((*words, "--help"))


def _said(error: typer.TyperException) -> str:
    say = getattr(error, "format_message", None)
    return str(say()) if callable(say) else str(error)


def _format_of(arguments: Sequence[str]) -> Format | None:
    """The format that a flag names, read without the parser: its own errors need it too."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in own:
        return Format.JSON
    for place, word in enumerate(own):
        value = word.partition("=")[2] if word.startswith("--output=") else ""
        if word in ("-o", "--output") and place + 1 < len(own):
            value = own[place + 1]
        elif word.startswith("-o") and len(word) > 2:
            value = word[2:]
        if value in list(Format):
            return Format(value)
    return None
