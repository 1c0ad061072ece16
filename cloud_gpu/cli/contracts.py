"""`cloud-gpu contracts`: put the contracts on a chain, and check what lies there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_gpu.cli.confirming import confirm
from cloud_gpu.cli.failures import UsageWrong
from cloud_gpu.cli.invocation import Invocation, amount, seconds
from cloud_gpu.cli.output import money
from cloud_gpu.cli.outside import DeploymentPreview
from cloud_gpu.protocol import limits
from cloud_gpu.protocol.codec import to_builtins
from cloud_gpu.protocol.deployment import (
    AuditPlan,
    AuditWindows,
    Deployment,
    DeploymentTerms,
    VerifierAccount,
)
from cloud_gpu.protocol.futures import FuturesRules
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.units import ZERO_TOKENS, BasisPoints, TokenAmount, format_tokens
from cloud_gpu.protocol.values import ZERO_ADDRESS, Address, Digest
from cloud_gpu.settings import Settings

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_DEPLOY_S = 1_800
"""How long a deployment may take unless told: slow blocks, and confirmations on top."""


RULES = FuturesRules()
"""Of futures, unless told."""


def _address(word: str) -> Address:
    try:
        return Address.parse(word.lower())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _verifier(word: str) -> VerifierAccount:
    parts = word.split(":")
    if len(parts) != 3:
        raise typer.BadParameter(f"found {word!r}, needed SIGNER:ANCHOR:AUDITS")
    try:
        return VerifierAccount(
            signer=Address.parse(parts[0].lower()),
            anchor=Digest.parse(parts[1].lower()),
            audits=Address.parse(parts[2].lower()),
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _time(help_text: str) -> Any:
    return typer.Option(parser=seconds, metavar="DURATION", help=help_text)


Rpc = Annotated[str | None, typer.Option("--rpc", metavar="URL", help="An EVM node of the chain.")]


Keystore = Annotated[str | None, typer.Option(help="Of the key that pays for gas.")]
PasswordFile = Annotated[str | None, typer.Option(help="With its password.")]
Out = Annotated[Path, typer.Option(help="Where the addresses are written.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be sent, and send nothing.")
]
Confirmations = Annotated[
    int, typer.Option(min=0, max=1000, help="Blocks on top before a thing counts as done.")
]
Token = Annotated[
    Address | None,
    typer.Option(parser=_address, metavar="0x…", help="The ERC-20 token of all payments."),
]
PlayMoney = Annotated[
    bool, typer.Option("--play-money", help="Deploy a token that anybody can mint.")
]
Guardian = Annotated[
    Address | None,
    typer.Option(parser=_address, metavar="0x…", help="May pause openings for a while."),
]
Fee = Annotated[
    TokenAmount | None,
    typer.Option(parser=amount, metavar="TOKENS", help="Burnt for a product or market."),
]
Verifiers = Annotated[
    list[VerifierAccount] | None,
    typer.Option(
        "--verifier",
        parser=_verifier,
        metavar="SIGNER:ANCHOR:AUDITS",
        help="Twice, for verified leases; `cloud-gpu-verifier anchor` prints an anchor.",
    ),
]

LongMargin = Annotated[
    int,
    typer.Option(
        min=1,
        max=limits.MARGIN_BPS_MAX,
        help="What a future's buyer locks, of 10,000 of its value.",
    ),
]
ShortMargin = Annotated[
    int,
    typer.Option(
        min=1, max=limits.MARGIN_BPS_MAX, help="What its seller locks, of 10,000 of its value."
    ),
]
MarginFloor = Annotated[
    TokenAmount | None,
    typer.Option(
        parser=amount,
        metavar="TOKENS",
        help="The least margin of a future.",
        show_default=format_tokens(RULES.margin_floor),
    ),
]


def deploy(
    run: Invocation,
    rpc: Rpc = None,
    keystore: Keystore = None,
    password_file: PasswordFile = None,
    out: Out = Path("deployment.json"),
    dry_run: DryRun = False,
    confirmations: Confirmations = 1,
    token: Token = None,
    play_money: PlayMoney = False,
    guardian: Guardian = None,
    registration_fee: Fee = None,
    verifiers: Verifiers = None,
    start_window: Annotated[int, _time("Opening to the latest begin.")] = 900,
    claim_window: Annotated[int, _time("End of a lease to its expiry.")] = 48 * 3600,
    retire_delay: Annotated[int, _time("Retiring to the bond's return.")] = 864_000,
    no_show: Annotated[int, _time("Of price that a no-show costs.")] = 300,
    commit_window: Annotated[int, _time("End of a lease to the last commit.")] = 86_400,
    challenge: Annotated[int, _time("For contesting an accusation.")] = 86_400,
    hard_cap: Annotated[int, _time("Commit to pay without results.")] = 86_400,
    late_slash: Annotated[int, _time("After it, while the bond answers.")] = 604_800,
    answer: Annotated[int, _time("For showing a challenged leaf.")] = 900,
    long_margin_bps: LongMargin = RULES.long_margin.value,
    short_margin_bps: ShortMargin = RULES.short_margin.value,
    margin_floor: MarginFloor = None,
    futures_lead: Annotated[int, _time("Funding's end to a window's start.")] = RULES.lead,
    futures_lead_short: Annotated[int, _time("Likewise, below a day.")] = RULES.lead_short,
    voucher_interval: Annotated[int, _time("Between two vouchers.")] = 60,
    heartbeat: Annotated[int, _time("Between two signs of life.")] = 10,
) -> int:
    """Put the contracts on a chain. Run it again after an interruption: it goes on."""
    if (token is None) is not play_money:
        raise UsageWrong("name the payment token: either --token 0x…, or --play-money")
    margins = (long_margin_bps, short_margin_bps, margin_floor or RULES.margin_floor)
    try:
        terms = DeploymentTerms(
            windows=Windows(
                start=start_window, claim=claim_window, retire=retire_delay, no_show=no_show
            ),
            token=token,
            audits=_audits(verifiers or [], commit_window, challenge, hard_cap, late_slash, answer),
            futures=_rules(*margins, futures_lead, futures_lead_short),
            registration_fee=registration_fee or ZERO_TOKENS,
            guardian=guardian or ZERO_ADDRESS,
            voucher_interval_s=voucher_interval,
            heartbeat_s=heartbeat,
            confirmations=confirmations,
        )
    except ValueError as error:
        raise UsageWrong(_with_flag(str(error))) from error
    settings = run.settings(rpc=rpc, keystore=keystore, password_file=password_file)
    if dry_run:
        return _preview(run, settings, terms)
    return _deployed(run, settings, terms, out)


def _preview(run: Invocation, settings: Settings, terms: DeploymentTerms) -> int:
    preview = run.outside.contracts(settings).preview(terms)
    payload = _plan(preview) | {"fixed": _fixed(terms)}
    run.say.result("deployment-plan", payload, lambda: _plan_table(preview, payload["fixed"]))
    run.say.next("the same without --dry-run")
    return 0


def _deployed(run: Invocation, settings: Settings, terms: DeploymentTerms, out: Path) -> int:
    desk = run.outside.contracts(settings)
    confirm(run, f"Deploy to the chain at {settings.need('rpc')}, and pay for the gas?")
    made = desk.deploy(terms, out, run.say.progress, run.wait or _DEPLOY_S)
    run.say.result("deployment", _result(made, out), lambda: _table(_result(made, out)))
    run.say.next(f"cloud-gpu contracts verify {out}")
    return 0


def verify(
    run: Invocation,
    file: Annotated[Path, typer.Argument(help="What `contracts deploy` wrote.")],
    rpc: Rpc = None,
) -> int:
    """Compare code and fixed settings on the chain with a deployment's file and this package."""
    found = run.outside.contracts(run.settings(rpc=rpc)).verify(file)
    payload = {"file": str(file), "equal": list(found)}
    run.say.result("verification", payload, lambda: "\n".join(found))
    return 0


def _audits(
    verifiers: list[VerifierAccount],
    commit: int,
    challenge: int,
    hard_cap: int,
    late_slash: int,
    answer: int,
) -> AuditPlan | None:
    if not verifiers:
        return None
    if len(verifiers) != 2:
        raise UsageWrong(f"found {len(verifiers)} --verifier, needed two, or none")
    first, second = verifiers
    windows = AuditWindows(
        commit=commit,
        challenge=challenge,
        hard_cap=hard_cap,
        late_slash=late_slash,
        answer=answer,
    )
    return AuditPlan(verifiers=(first, second), windows=windows)


def _rules(long: int, short: int, floor: TokenAmount, lead: int, lead_short: int) -> FuturesRules:
    return FuturesRules(
        long_margin=BasisPoints(long),
        short_margin=BasisPoints(short),
        margin_floor=floor,
        lead=lead,
        lead_short=lead_short,
    )


_FLAGS = {
    "windows.start": "--start-window",
    "windows.claim": "--claim-window",
    "windows.retire": "--retire-delay",
    "windows.no_show": "--no-show",
    "audit.commit": "--commit-window",
    "audit.challenge": "--challenge",
    "audit.hard_cap": "--hard-cap",
    "audit.late_slash": "--late-slash",
    "audit.answer": "--answer",
    "futures.margin_floor": "--margin-floor",
    "futures.lead": "--futures-lead",
    "futures.lead_short": "--futures-lead-short",
}
"""What a field of the terms comes from."""


def _with_flag(refusal: str) -> str:
    flag = _FLAGS.get(refusal.split(" ", 1)[0])
    return f"{refusal}: correct {flag}" if flag else refusal


def _fixed(terms: DeploymentTerms) -> dict[str, Any]:
    """What nobody can change afterwards; times in seconds."""
    rules = terms.futures
    return {
        "windows": to_builtins(terms.windows),
        "audits": to_builtins(terms.audits.windows) if terms.audits else None,
        "verifiers": to_builtins(terms.audits.verifiers) if terms.audits else [],
        "futures": {
            "long_margin_bps": rules.long_margin.value,
            "short_margin_bps": rules.short_margin.value,
            "margin_floor": money(rules.margin_floor),
            "lead": rules.lead,
            "lead_short": rules.lead_short,
        },
        "registration_fee": money(terms.registration_fee),
        "guardian": None if terms.guardian.is_zero else str(terms.guardian),
    }


def _plan(preview: DeploymentPreview) -> dict[str, Any]:
    gas = sum(step.gas_most for step in preview.steps)
    return {
        "chain_id": preview.chain_id,
        "deployer": str(preview.deployer),
        "contracts": [
            {
                "contract": step.contract,
                "address": str(step.address),
                "nonce": step.nonce,
                "gas_most": step.gas_most,
            }
            for step in preview.steps
        ],
        "gas_most": gas,
        "cost_most": {"amount": str(gas * preview.fee_most), "unit": "wei"},
    }


def _plan_table(preview: DeploymentPreview, fixed: dict[str, Any]) -> Group:
    from rich.console import Group
    from rich.table import Table

    table = Table("nonce", "contract", "address", "gas at most", box=None)
    for step in preview.steps:
        table.add_row(str(step.nonce), step.contract, str(step.address), f"{step.gas_most:,}")
    gas = sum(step.gas_most for step in preview.steps)
    ether = gas * preview.fee_most / 10**18
    table.add_row("", f"chain {preview.chain_id}", f"at most {ether:.6f} ETH", f"{gas:,}")
    settled = Table("fixed for good", "", box=None)
    for field, value in fixed.items():
        settled.add_row(field, _in_words(value))
    return Group(table, "", settled)


def _in_words(value: Any) -> str:
    match value:
        case {"amount": amount, "unit": unit}:
            return f"{amount} {unit}"
        case dict():
            return ", ".join(f"{name} {_in_words(part)}" for name, part in value.items())
        case list():
            return "; ".join(map(_in_words, value)) or "none"
        case _:
            return "none" if value is None else str(value)


def _result(made: Deployment, out: Path) -> dict[str, Any]:
    named = {
        "lease_book": made.lease_book,
        "verification": made.verification,
        "futures": made.futures,
        "group_buy": made.group_buy,
        "token": made.token,
    }
    return {
        "chain_id": made.chain_id,
        **{name: str(address) for name, address in named.items() if not address.is_zero},
        "first_block": made.first_block,
        "file": str(out.absolute()),
    }


def _table(result: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in result.items():
        table.add_row(name, str(value))
    return table
