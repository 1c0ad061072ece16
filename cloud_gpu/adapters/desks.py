"""What an account trades with beside leases, composed from settings. Blocking."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloud_gpu.adapters.market_futures import MarketFutures
from cloud_gpu.adapters.market_group_buys import MarketGroupBuys
from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.adapters.portal import PORTAL
from cloud_gpu.group_buyer import GroupBuyer
from cloud_gpu.protocol.adapters.clock import SystemClock
from cloud_gpu.protocol.adapters.deployment_files import read_deployment
from cloud_gpu.protocol.adapters.keystore import load_key
from cloud_gpu.protocol.adapters.wallet import Wallet
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.settings import Settings
from cloud_gpu.trader import Trader


@contextmanager
def opened_trader(settings: Settings, within_s: float) -> Iterator[Trader]:
    """See `cloud_gpu.main.open_trader`."""
    with _opened(settings, within_s) as (market, wallet, key):
        yield Trader(
            account=wallet,
            signer=key,
            market=MarketFutures(market),
            deployment=wallet.deployment,
            clock=SystemClock(),
            draw=_draw,
        )


@contextmanager
def opened_group_buyer(settings: Settings, within_s: float) -> Iterator[GroupBuyer]:
    """See `cloud_gpu.main.open_group_buyer`."""
    with _opened(settings, within_s) as (market, wallet, key):
        yield GroupBuyer(
            account=wallet,
            signer=key,
            market=MarketGroupBuys(market),
            deployment=wallet.deployment,
            clock=SystemClock(),
            draw=_draw,
        )


@contextmanager
def _opened(settings: Settings, within_s: float) -> Iterator[tuple[HttpMarket, Wallet, LocalKey]]:
    url, rpc = settings.need("market"), settings.need("rpc")
    key = load_key(Path(settings.need("keystore")), Path(settings.need("password_file")))
    deployment = read_deployment(Path(settings.need("deployment")))
    market = HttpMarket(url)
    try:
        with Wallet(rpc, deployment, key, timeout_s=within_s) as wallet:
            yield market, wallet, key
    finally:
        PORTAL.call(market.close)


def _draw() -> int:
    return secrets.randbits(32)
