"""Settings: what is read, from where, and which mistakes are named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cloud_gpu.protocol.codec import to_json
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.values import Address
from market.attributes import Attributes, Tier
from market.main import rules_of
from market.settings import MarketSettings, parse_settings
from tests.unit.market.builders import DOMAIN, MARKET_KEY, RULES

NEEDED = """
deployment = "d.json"
rpc = "http://127.0.0.1:8545"
keystore = "k.json"
password_file = "p"
data_folder = "/var/market"
market_id = 1
"""


def read(more: str = "", environment: dict[str, str] | None = None) -> MarketSettings:
    return parse_settings(NEEDED + more, environment or {})


def test_defaults_are_productions_and_the_database_lies_in_the_data_folder() -> None:
    settings = read()
    assert (settings.round_ms, settings.settle_timeout, settings.chain_silence) == (1_000, 60, 60)
    assert settings.database_url == f"sqlite:///{Path('/var/market/market.sqlite3')}"
    assert settings.listen_http == "127.0.0.1:8805"


def test_the_environment_stands_above_the_file() -> None:
    environment = {"CLOUD_GPU_MARKET_ROUND_MS": "250", "CLOUD_GPU_MARKET_UNHEARD_OF": "x"}
    assert read("round_ms = 500", environment).round_ms == 250
    lists = {"CLOUD_GPU_MARKET_BOOTSTRAP": "/ip4/1.2.3.4/tcp/1/p2p/x,/ip4/1.2.3.5/tcp/1/p2p/y"}
    assert len(read("", lists).bootstrap) == 2


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("rounds = 5", "rounds is no setting of a market; there are account_orders_burst, "),
        ("account_orders_burst = 10", "account_orders_burst is 1000 (what a bulk post may hold)"),
        ('trusted_proxies = ["here"]', "trusted_proxies holds addresses and networks"),
        ('round_ms = "fast"', "round_ms: a whole number is needed"),
        ("round_ms = true", "round_ms: a whole number is needed"),
        ("settle_timeout = 1.5", "settle_timeout: a duration is written"),
        ('settle_timeout = "soon"', "settle_timeout: a duration is written"),
        ("bootstrap = [1]", "bootstrap: a text is needed"),
        ('listen_http = "8805"', 'listen_http is "host:port"'),
        ('listen_http = "here:99999"', 'listen_http is "host:port"'),
        ('log_level = "loud"', "log_level is one of debug, info, warning, error"),
        ("round_ms = ", "the settings file is no TOML"),
    ],
)
def test_a_mistake_is_named_with_its_key(more: str, said: str) -> None:
    with pytest.raises(SettingsInvalid, match=re.escape(said)):
        read(more)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(SettingsInvalid, match="market_id is missing"):
        parse_settings(NEEDED.replace("market_id = 1", ""), {})


def deployment() -> Deployment:
    return Deployment(
        chain_id=DOMAIN.chain_id,
        lease_book=DOMAIN.verifying_contract,
        token=Address(b"\x0c" * 20),
        first_block=0,
        windows=Windows(start=RULES.start_window_s, claim=15, retire=1_000),
        bond_unit=RULES.bond_unit,
    )


def test_rules_are_made_of_settings_and_deployment() -> None:
    assert read().rules(deployment(), MARKET_KEY.address) == RULES


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("round_ms = 9", "rules.round_ms is 10 to 60000, found 9"),
        ('round_ms = 5000\nsettle_timeout = "4s"', "rules.settle_ms is not shorter than a round"),
    ],
)
def test_rules_that_contradict_each_other_are_settings_errors(more: str, said: str) -> None:
    with pytest.raises(SettingsInvalid, match=re.escape(said)):
        read(more).rules(deployment(), MARKET_KEY.address)


def test_an_attribute_table_becomes_part_of_the_rules_and_a_wrong_one_is_named(
    tmp_path: Path,
) -> None:
    file = tmp_path / "attributes.json"
    table = Attributes(tiers=(Tier(provider=MARKET_KEY.address, start_delay_s=30),))
    file.write_bytes(to_json(table))
    settings = read(f'attributes = "{file}"')
    assert rules_of(settings, deployment(), MARKET_KEY.address).attributes == table
    file.write_text('{"tiers": 1}')
    with pytest.raises(SettingsInvalid, match=r"attributes: .*attributes\.json: "):
        rules_of(settings, deployment(), MARKET_KEY.address)
