"""What an account trades with beside leases, composed from settings. Blocking."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloud_gpu.adapters.market_futures import MarketFutures
from cloud_gpu.adapters.market_http import HttpMarket
from cloud_gpu.adapters.portal import PORTAL
from cloud_gpu.protocol.adapters.clock import SystemClock
from cloud_gpu.protocol.adapters.deployment_files import read_deployment
from cloud_gpu.protocol.adapters.keystore import load_key
from cloud_gpu.protocol.adapters.wallet import Wallet
from cloud_gpu.settings import Settings
from cloud_gpu.trader import Trader


@contextmanager
def opened_trader(settings: Settings, within_s: float) -> Iterator[Trader]:
    """See `cloud_gpu.main.open_trader`."""
    url, rpc = settings.need("market"), settings.need("rpc")
    key = load_key(Path(settings.need("keystore")), Path(settings.need("password_file")))
    deployment = read_deployment(Path(settings.need("deployment")))
    market = HttpMarket(url)
    try:
        with Wallet(rpc, deployment, key, timeout_s=within_s) as wallet:
            yield Trader(
                account=wallet,
                signer=key,
                market=MarketFutures(market),
                deployment=deployment,
                clock=SystemClock(),
                draw=lambda: secrets.randbits(32),
            )
    finally:
        PORTAL.call(market.close)
