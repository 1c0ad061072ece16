"""Settings name what is wrong; nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloud_gpu.protocol.errors import SettingsInvalid
from verifier.settings import parse_settings

WHOLE = """
deployment = "deployment.json"
rpc = "http://127.0.0.1:8545"
keystore = "verifier.json"
password_file = "password"
preimages_file = "preimages"
data_folder = "data"
market = "http://127.0.0.1:8805"
audit_keystore = "audits.json"
audit_password_file = "password"
max_price = "2.50"
"""


def test_a_whole_file_is_read() -> None:
    settings = parse_settings(WHOLE + 'bootstrap = ["/ip4/127.0.0.1/tcp/1/p2p/x"]', {})
    assert settings.deployment == Path("deployment.json")
    assert settings.max_price == "2.50"
    assert (settings.preimages, settings.replays_at_once) == (10_000, 1)
    assert settings.bootstrap == ("/ip4/127.0.0.1/tcp/1/p2p/x",)


def test_the_environment_goes_first_and_others_variables_are_not_ours() -> None:
    settings = parse_settings(
        WHOLE, {"CLOUD_GPU_VERIFIER_REPLAYS_AT_ONCE": "3", "CLOUD_GPU_RPC": "nonsense"}
    )
    assert settings.replays_at_once == 3
    assert settings.rpc == "http://127.0.0.1:8545"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("colour = 1", "colour is no setting of a verifier"),
        ("replays_at_once = 0", "replays_at_once: a whole number above 0"),
        ("replays_at_once = true", "replays_at_once: a whole number above 0"),
        ("listen_overlay = 7", "listen_overlay: a text is needed"),
        ("bootstrap = 7", "bootstrap: a list of texts"),
        ('log_level = "loud"', "log_level is one of"),
        ("= 7", "no TOML"),
    ],
)
def test_a_wrong_setting_is_named(change: str, named: str) -> None:
    with pytest.raises(SettingsInvalid, match=named):
        parse_settings(WHOLE + change, {})


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('rpc = "http://127.0.0.1:8545"', 'rpc = "127.0.0.1"', "rpc: a URL"),
        ('max_price = "2.50"', 'max_price = "cheap"', "max_price: a price is written like"),
        ('market = "http://127.0.0.1:8805"', "", "market is missing"),
        ('"audits.json"', '"verifier.json"', "audit_keystore is another one"),
    ],
)
def test_a_missing_or_unreadable_setting_is_named(before: str, after: str, named: str) -> None:
    with pytest.raises(SettingsInvalid, match=named):
        parse_settings(WHOLE.replace(before, after), {})
