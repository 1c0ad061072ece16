"""What an account's own calls have in common: its port, and what must hold before money moves.

Refused here, nothing was sent: the error names field, rule and fix, where a contract would only
name itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import (
    FundsTooSmall,
    MarketUnavailable,
    Rejected,
    Rejection,
    RejectReason,
    SettingsInvalid,
)
from cloud_gpu.protocol.ports import AccountView, MarketApi, MarketView
from cloud_gpu.protocol.product import Product
from cloud_gpu.protocol.receipts import SignedReceipt, check_receipt
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import Address, Digest


class VaultAccount(Protocol):
    """The wallet's account, read and called at the newest block; each call is waited for.

    Raises `TransactionReverted`, `FundsTooSmall`, `ChainUnavailable`.
    """

    @property
    def address(self) -> Address: ...

    def account(self) -> AccountView:
        """Id 0: not registered."""

    def products(self) -> Sequence[Product]: ...

    def chain_time(self) -> int:
        """Unix seconds."""


def refused(reason: RejectReason, field: str, found: str, needed: str, next_: str = "") -> Rejected:
    """A refusal of our own."""
    return Rejected(Rejection(reason=reason, field=field, found=found, needed=needed, next=next_))


def require_cash(account: VaultAccount, needed: TokenAmount, what: str) -> AccountView:
    """The account, which has so much in the vault. Raises `Rejected`, `FundsTooSmall`."""
    found = account.account()
    if found.id == 0:
        raise refused(
            RejectReason.UNKNOWN_ACCOUNT,
            "account",
            f"{account.address}, which is not registered",
            "an account with tokens in the vault",
            "cloud-gpu wallet fund TOKENS",
        )
    if found.cash < needed:
        raise FundsTooSmall(
            needed.value,
            found.cash.value,
            f"The vault of {account.address} is too small for {what}.",
        )
    return found


def product_of(account: VaultAccount, number: int) -> Product:
    """A row of the chain's table. Raises `Rejected`."""
    for each in account.products():
        if each.id == number:
            return each
    raise refused(
        RejectReason.UNKNOWN_PRODUCT,
        "product",
        str(number),
        "a product that is registered on this chain",
    )


def require_market(found: MarketView, deployment: Deployment) -> MarketView:
    """A market of our own deployment. Raises `SettingsInvalid`."""
    ours = (deployment.chain_id, deployment.lease_book)
    if (found.chain_id, found.lease_book) != ours:
        raise SettingsInvalid(
            f"market: found one for LeaseBook {found.lease_book} on chain {found.chain_id},"
            f" needed {ours[1]} on chain {ours[0]}. Correct `market` or `deployment`."
        )
    return found


async def others_that_answer(
    first: MarketView,
    others: Sequence[MarketApi],
    deployment: Deployment,
    progress: Callable[[str], None],
) -> list[MarketView]:
    """What each market besides `first` says of itself. Raises `SettingsInvalid`."""
    found = {first.matcher: first}
    for other in others:
        try:
            view = require_market(await other.describe(), deployment)
        except (MarketUnavailable, Rejected) as error:
            progress(f"one market less to bid at: {error}")
        else:
            found.setdefault(view.matcher, view)
    return list(found.values())[1:]


def require_receipt(
    found: SignedReceipt, order: Digest, deployment: Deployment, *, market: Address, at: int
) -> SignedReceipt:
    """A receipt for `order` under `market`'s signature; `at` in Unix seconds.

    Raises `MarketUnavailable`: what was handed in may stand, but nothing proves it.
    """
    wrong = check_receipt(found, deployment.domain, market=market, at=at)
    problem = str(wrong) if wrong is not None else f"it names {found.body.order}"
    if wrong is not None or found.body.order != order:
        raise MarketUnavailable(f"the market's receipt is not one for {order}: {problem}")
    return found
