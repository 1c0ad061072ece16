"""`cloud-gpu wallet`: what the account holds, and moving tokens into the vault and out of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cloud_gpu.cli.confirming import confirm
from cloud_gpu.cli.invocation import Invocation, amount
from cloud_gpu.cli.output import money
from cloud_gpu.cli.outside import WalletDesk
from cloud_gpu.cli.trading import patience
from cloud_gpu.protocol.errors import FundsTooSmall
from cloud_gpu.protocol.units import TokenAmount, format_tokens
from cloud_gpu.settings import Settings

if TYPE_CHECKING:
    from rich.table import Table

Amount = Annotated[
    TokenAmount, typer.Argument(parser=amount, metavar="TOKENS", help='An amount, like "25.50".')
]


@contextmanager
def opened_wallet(run: Invocation, settings: Settings) -> Iterator[WalletDesk]:
    """The wallet. Raises StillWaiting for a transaction that is not mined in the time there is."""
    with patience(run, "cloud-gpu wallet show"), run.outside.wallet(settings, run.wait_s) as wallet:
        yield wallet


def show(run: Invocation) -> None:
    """What the account holds."""
    with opened_wallet(run, run.settings()) as wallet:
        _tell(run, wallet)


def fund(run: Invocation, tokens: Amount) -> None:
    """Move tokens from the wallet into the vault, where bids are paid from."""
    with opened_wallet(run, run.settings()) as wallet:
        have = wallet.token_balance()
        if have < tokens:
            raise FundsTooSmall(
                needed=tokens.value,
                have=have.value,
                text=f"in the wallet {wallet.address}, outside the vault",
            )
        confirm(run, f"Move {format_tokens(tokens)} tokens into the vault?")
        if not wallet.account().id:
            run.say.progress("registering the account")
            wallet.register_account()
        run.say.progress("depositing")
        wallet.deposit(tokens)
        _tell(run, wallet)


def withdraw(run: Invocation, tokens: Amount) -> None:
    """Move tokens out of the vault into the wallet."""
    with opened_wallet(run, run.settings()) as wallet:
        have = wallet.account().cash
        if have < tokens:
            raise FundsTooSmall(
                needed=tokens.value, have=have.value, text="free in the vault; locks are not free"
            )
        confirm(run, f"Move {format_tokens(tokens)} tokens out of the vault?")
        run.say.progress("withdrawing")
        wallet.withdraw(tokens)
        _tell(run, wallet)


def _tell(run: Invocation, wallet: WalletDesk) -> None:
    account, tokens = wallet.account(), wallet.token_balance()
    payload: dict[str, Any] = {
        "address": str(wallet.address),
        "account": account.id or None,
        "wallet": money(tokens),
        "vault": money(account.cash),
        "gas": {"amount": str(wallet.native_balance()), "unit": "wei"},
    }

    def table() -> Table:
        from rich.table import Table

        rows = Table(show_header=False, box=None)
        rows.add_row("address", str(wallet.address))
        rows.add_row("account", f"no. {account.id}" if account.id else "not registered")
        rows.add_row("in the wallet", f"{format_tokens(tokens)} tokens")
        rows.add_row("in the vault", f"{format_tokens(account.cash)} tokens")
        return rows

    run.say.result("wallet", payload, table)
    if not account.cash:
        run.say.next("cloud-gpu wallet fund TOKENS --yes")
