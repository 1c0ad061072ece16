"""What an operator tells a market: one TOML file, then the environment. Parsed here, read by main.

An unknown key in the file is an error that names it; an unknown variable is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final

from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.settings_file import (
    FilePath,
    Seconds,
    Text,
    Texts,
    Truth,
    Whole,
    check_log_level,
    read_table,
    settings_of,
)
from cloud_gpu.protocol.units import BasisPoints
from cloud_gpu.protocol.values import Address
from market.attributes import NO_ATTRIBUTES, Attributes
from market.rate_limits import BULK_ORDERS_MAX, Network, RateLimit
from market.rules import MarketRules

_PER_S_MAX, _BURST_MAX = 1_000_000, 1_000_000
ENVIRONMENT_PREFIX: Final = "CLOUD_GPU_MARKET_"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketSettings:
    """Everything a market is told."""

    deployment: FilePath
    """JSON file that the deployer wrote."""
    rpc: Text
    keystore: FilePath
    """Of the matcher: its account posts openings, its signature is under receipts."""
    password_file: FilePath
    data_folder: FilePath
    """Chain outbox, and the database unless `database` names another."""
    market_id: Whole
    """The market's row in LeaseBook; 0: no market, no fee."""
    listen_http: Text = "127.0.0.1:8805"
    """Host and port; port 0: any free one. Put a proxy with TLS before it. Empty: API workers
    alone serve."""
    listen_api: Text = "127.0.0.1:8806"
    """Of the API workers, `cloud-gpu-market api`."""
    listen_overlay: Text = "/ip4/0.0.0.0/tcp/0"
    bootstrap: Texts = ()
    database: Text = ""
    """A URL: "sqlite:///file" or "postgresql+psycopg://…"; empty: SQLite in the data folder."""
    round_ms: Whole = 1_000
    """What arrives within one round is matched together."""
    settle_timeout: Seconds = 60
    """An opening that the chain has not answered for so long is given up."""
    chain_silence: Seconds = 60
    """No round while the newest block is older."""
    inclusion: Seconds = 3
    """Orders that end sooner are not matched: the transaction would come too late."""
    verifier_silence: Seconds = 600
    """No verified lease is matched while a verifier was not heard for so long."""
    verified_owners_min: Whole = 3
    """Nor in a GPU class with fewer owners."""
    block_window: Seconds = 3_600
    """A block auction closes so often."""
    futures_batch_ms: Whole = 60_000
    """Orders of futures that arrive within one batch are cleared together."""
    position_limit_bps: Whole = 2_500
    """What one account may hold of the hours that a product's machines have in a window."""
    account_orders_per_s: Whole = 200
    """What one account may hand in, by its signature; 0: no limit. Each process counts for itself,
    so N workers let N times as much through at most."""
    account_orders_burst: Whole = 2_000
    """At once, after a rest; at least as many as a bulk post may hold."""
    address_requests_per_s: Whole = 200
    """What one client address may ask (IPv6: 64 bits of it), an order of many as one; 0: any."""
    address_requests_burst: Whole = 4_000
    loopback_limited: Truth = False
    """Else this machine's own addresses may ask without limit."""
    trusted_proxies: Texts = ()
    """Addresses or networks whose `X-Forwarded-For` is believed."""
    attributes: Text = ""
    """JSON file of the attribute table: start delays, power, energy's price and carbon by place."""
    log_level: Text = "info"

    def __post_init__(self) -> None:
        check_log_level(self.log_level)
        if self.listen_http:
            _check_address("listen_http", self.listen_http)
        _check_address("listen_api", self.listen_api)
        for name in ("account_orders", "address_requests"):
            per_s, burst = getattr(self, f"{name}_per_s"), getattr(self, f"{name}_burst")
            if per_s > _PER_S_MAX or not BULK_ORDERS_MAX <= burst <= _BURST_MAX:
                raise ValueError(
                    f"{name}_per_s is at most {_PER_S_MAX}, {name}_burst is {BULK_ORDERS_MAX} (what"
                    f" a bulk post may hold) to {_BURST_MAX}, found {per_s} and {burst}"
                )
        for each in self.trusted_proxies:
            _network(each)

    @property
    def account_limit(self) -> RateLimit:
        """Of one account's orders."""
        return RateLimit(
            name="account_orders_per_s",
            per_s=self.account_orders_per_s,
            burst=self.account_orders_burst,
        )

    @property
    def address_limit(self) -> RateLimit:
        """Of one client address' requests."""
        return RateLimit(
            name="address_requests_per_s",
            per_s=self.address_requests_per_s,
            burst=self.address_requests_burst,
        )

    @property
    def proxies(self) -> tuple[Network, ...]:
        """Those whose word is believed."""
        return tuple(map(_network, self.trusted_proxies))

    @property
    def database_url(self) -> str:
        """Where inbox, journal and public tables lie."""
        return self.database or f"sqlite:///{self.data_folder / 'market.sqlite3'}"

    def rules(
        self, deployment: Deployment, matcher: Address, attributes: Attributes = NO_ATTRIBUTES
    ) -> MarketRules:
        """The market's rules on one deployment. Raises SettingsInvalid."""
        try:
            return MarketRules(
                domain=deployment.domain,
                matcher=matcher,
                market_id=self.market_id,
                bond_unit=deployment.bond_unit,
                round_ms=self.round_ms,
                settle_ms=self.settle_timeout * 1000,
                silence_ms=self.chain_silence * 1000,
                inclusion_s=self.inclusion,
                verifiers=deployment.verifiers,
                heartbeat_age_s=self.verifier_silence,
                class_owners_min=self.verified_owners_min,
                block_s=self.block_window,
                attributes=attributes,
                futures_domain=None if deployment.futures.is_zero else deployment.futures_domain,
                futures=deployment.futures_rules,
                futures_batch_ms=self.futures_batch_ms,
                position_limit=BasisPoints(self.position_limit_bps),
                group_buy_domain=(
                    None if deployment.group_buy.is_zero else deployment.group_buy_domain
                ),
                start_window_s=deployment.windows.start,
            )
        except ValueError as error:
            raise SettingsInvalid(str(error)) from error


def _network(found: str) -> Network:
    try:
        return ip_network(found)
    except ValueError as error:
        raise ValueError(
            f'trusted_proxies holds addresses and networks ("10.0.0.0/8"), found {found!r}: {error}'
        ) from error


def _check_address(name: str, found: str) -> None:
    host, colon, port = found.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 65_536):
        raise ValueError(f'{name} is "host:port", found {found!r}')


def parse_settings(text: str, environment: Mapping[str, str]) -> MarketSettings:
    """The settings in a file's text, overridden by the environment; raises SettingsInvalid."""
    table = read_table(text, MarketSettings, environment, ENVIRONMENT_PREFIX)
    return settings_of(MarketSettings, table, "market")
