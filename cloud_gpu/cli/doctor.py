"""`cloud-gpu doctor`: every thing that renting needs, checked in order, each with its fix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cloud_gpu.cli.exits import ExitCode
from cloud_gpu.cli.failures import failure_of
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.protocol.errors import CloudGpuError, FundsTooSmall
from cloud_gpu.protocol.units import format_tokens
from cloud_gpu.settings import Settings

if TYPE_CHECKING:
    from rich.table import Table


def doctor(run: Invocation) -> int:
    """Check settings, key, chain, vault and market."""
    checks: list[dict[str, Any]] = []
    code = 0

    def check(name: str, look: Callable[[], str]) -> bool:
        nonlocal code
        try:
            checks.append({"check": name, "ok": True, "found": look(), "next": ""})
        except CloudGpuError as error:
            failure = failure_of(error)
            code = code or failure.code
            fix = failure.needed if failure.next == "cloud-gpu doctor" else failure.next
            checks.append({"check": name, "ok": False, "found": failure.found, "next": fix})
        return bool(checks[-1]["ok"])

    settings = Settings()

    def read() -> str:
        nonlocal settings
        settings = run.settings()
        return f"context {settings.context}" if settings.context else "no context is used"

    if check("settings", read):
        check("price limit", lambda: f"{format_tokens(settings.price_limit)} a GPU-hour")
        wallet = check("wallet key", lambda: run.outside.address(settings))
        chain = check("chain", lambda: run.outside.chain_found(settings))
        if wallet and chain:
            check("vault", lambda: _vault(run, settings))
        if wallet and chain:
            check("market", lambda: _market(run, settings))
            for url in settings.other_markets.split():
                elsewhere = replace(settings, market=url, other_markets="")
                check("other market", partial(_market, run, elsewhere))
    run.say.result("doctor", {"ok": code == 0, "checks": checks}, lambda: _table(checks))
    if code == 0:
        run.say.next("cloud-gpu ls")
    return code or ExitCode.DONE


def _vault(run: Invocation, settings: Settings) -> str:
    with run.outside.wallet(settings, run.wait_s) as wallet:
        cash = wallet.account().cash
    if not cash:
        raise FundsTooSmall(needed=1, have=0, text="in the vault: bids are paid from it")
    return f"{format_tokens(cash)} tokens"


def _market(run: Invocation, settings: Settings) -> str:
    found = run.ask(settings, lambda client: client.market())
    return f"market {found.market_id} at {settings.market}, fee {found.fee_bps.value / 100:g} %"


def _table(checks: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(box=None)
    for column in ("", "check", "found", "fix"):
        table.add_column(column, overflow="fold")
    for row in checks:
        table.add_row("ok" if row["ok"] else "NO", row["check"], row["found"], row["next"])
    return table
