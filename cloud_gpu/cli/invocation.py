"""One run of the command line: the global flags, and how a command function gets them.

`command` adds the global flags to every command, so that they stand before or after its name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_type_hints

import typer

from cloud_gpu.cli.output import Format, Output
from cloud_gpu.cli.outside import AnswerT, Outside
from cloud_gpu.client import Client
from cloud_gpu.protocol.errors import CloudGpuError
from cloud_gpu.protocol.units import TokenAmount, parse_duration, parse_price, parse_tokens
from cloud_gpu.settings import Settings

WAIT_S = 120
"""How long a command waits for others, unless told or a bid ends it."""


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """What a command function is given beside its own options."""

    outside: Outside
    chosen: Format | None = None
    """What a flag said; None: the settings decide."""
    yes: bool = False
    quiet: bool = False
    color: bool = True
    wait: int | None = None
    """Seconds to wait for others; None: as long as it takes where a bid ends it, else `WAIT_S`."""

    @property
    def wait_s(self) -> int:
        """How long to wait where nothing else ends it."""
        return WAIT_S if self.wait is None else self.wait

    @property
    def form(self) -> Format:
        """How results are written."""
        return self.chosen or standing_format(self.outside)

    @property
    def say(self) -> Output:
        """Where results and progress go."""
        return Output(self.form, quiet=self.quiet, color=self.color)

    def settings(self, **flags: str | None) -> Settings:
        """The settings, with what this command's own flags say. Raises SettingsInvalid."""
        return self.outside.settings(flags)

    def ask(self, settings: Settings, work: Callable[[Client], Awaitable[AnswerT]]) -> AnswerT:
        """Do something with a client, in the time there is to wait for others."""
        return self.outside.ask(settings, work, self.say.progress, self.wait_s)


def standing_format(outside: Outside) -> Format:
    """What the settings say; people's tables where they say nothing, or cannot be read."""
    try:
        return Format(outside.settings({}).output)
    except CloudGpuError:
        return Format.TABLE  # whatever needs the settings says what is wrong with them


def seconds(word: str) -> int:
    """A duration as an option: "90s", "2m"."""
    try:
        return parse_duration(word)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def price(word: str) -> str:
    """A limit in tokens a GPU-hour as an option, left as it was written."""
    try:
        found = parse_price(word)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not found:
        raise typer.BadParameter(f"found {word!r}, needed a price above 0")
    return word


def amount(word: str) -> TokenAmount:
    """An amount of tokens as an argument."""
    if word.startswith("-") and word[1:2].isdigit():
        raise typer.BadParameter(f"found {word!r}, needed an amount above 0")
    try:
        found = parse_tokens(word)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if not found:
        raise typer.BadParameter(f"found {word!r}, needed an amount above 0")
    return found


_GLOBAL: dict[str, tuple[Any, Any]] = {
    "output": (
        Annotated[
            Format | None,
            typer.Option(
                "--output", "-o", help="How the result is written.", rich_help_panel="Global"
            ),
        ],
        None,
    ),
    "as_json": (
        Annotated[
            bool, typer.Option("--json", help="Short for -o json.", rich_help_panel="Global")
        ],
        False,
    ),
    "yes": (
        Annotated[
            bool,
            typer.Option("--yes", "-y", help="Spend without asking.", rich_help_panel="Global"),
        ],
        False,
    ),
    "quiet": (
        Annotated[
            bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel="Global")
        ],
        False,
    ),
    "no_color": (
        Annotated[bool, typer.Option("--no-color", help="No colour.", rich_help_panel="Global")],
        False,
    ),
    "wait": (
        Annotated[
            int | None,
            typer.Option(
                "--timeout",
                parser=seconds,
                metavar="DURATION",
                help='How long to wait for others, not for a command that runs: "90s", "2m".',
                rich_help_panel="Global",
            ),
        ],
        None,
    ),
}


def _with_flags(known: Invocation, found: dict[str, Any]) -> Invocation:
    form = Format.JSON if found["as_json"] else found["output"] or known.chosen
    return replace(
        known,
        chosen=form,
        yes=known.yes or found["yes"],
        quiet=known.quiet or found["quiet"],
        color=known.color and not found["no_color"],
        wait=found["wait"] or known.wait,
    )


def command(function: Callable[..., int | None]) -> Callable[..., int]:
    """A typer command of a function that takes the invocation first and returns an exit code."""

    @functools.wraps(function)
    def called(ctx: typer.Context, **given: Any) -> int:
        flags = {name: given.pop(name) for name in _GLOBAL}
        return function(_with_flags(ctx.obj, flags), **given) or 0

    _sign(called, function, skip=1)
    return called


def root(function: Callable[[], None]) -> Callable[..., None]:
    """The callback before every command: it keeps the flags that stand before the name."""

    @functools.wraps(function)
    def called(ctx: typer.Context, **given: Any) -> None:
        ctx.obj = _with_flags(ctx.obj, given)

    _sign(called, function, skip=0)
    return called


def _sign(called: Callable[..., Any], function: Callable[..., Any], *, skip: int) -> None:
    """Give `called` the parameters of `function` and the global ones, where typer looks."""
    hints = get_type_hints(function, include_extras=True)
    own = list(inspect.signature(function).parameters.values())[skip:]
    parameters = [inspect.Parameter("ctx", _BY_NAME, annotation=typer.Context)]
    parameters += [
        inspect.Parameter(p.name, _BY_NAME, annotation=hints[p.name], default=p.default)
        for p in own
    ]
    parameters += [
        inspect.Parameter(name, _BY_NAME, annotation=annotation, default=default)
        for name, (annotation, default) in _GLOBAL.items()
    ]
    parameters.sort(key=lambda p: p.default is not inspect.Parameter.empty)
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    del called.__wrapped__  # type: ignore[attr-defined]  # typer would follow it


_BY_NAME = inspect.Parameter.KEYWORD_ONLY
