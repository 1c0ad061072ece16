"""What a verifier is told: one TOML file, then the environment. Parsed here, read by main.

An unknown key in the file is an error that names it; an unknown variable is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from cloud_gpu.protocol.settings_file import (
    FilePath,
    Positive,
    Text,
    Texts,
    check_log_level,
    read_table,
    settings_of,
    text,
)
from cloud_gpu.protocol.units import parse_price

ENVIRONMENT_PREFIX: Final = "CLOUD_GPU_VERIFIER_"


def _url(found: object) -> str:
    url = text(found)
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"a URL that begins with http:// or https:// is needed, found {url!r}")
    return url


def _price(found: object) -> str:
    price = text(found)
    parse_price(price)
    return price


Url = Annotated[str, _url]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSettings:
    """Everything a verifier is told."""

    deployment: FilePath
    """JSON file that the deployer wrote; it names this verifier's account."""
    rpc: Url
    keystore: FilePath
    """Of the verifier: it signs verdicts and posts draws and accusations."""
    password_file: FilePath
    preimages_file: FilePath
    """32 bytes in hex, mode 0600: the seed of the hash chain whose anchor the contract holds."""
    preimages: Positive = 10_000
    """How many draws the chain serves, as the contract was told."""
    data_folder: FilePath
    """Chain outbox, artefacts, re-executions and published records."""
    market: Url
    """Where re-executions are rented, like any lease."""
    audit_keystore: FilePath
    """Of the account that pays them: another one, since two programs must not share a key."""
    audit_password_file: FilePath
    max_price: Annotated[str, _price]
    """Limit of a re-execution, tokens per GPU-hour, "1.20"."""
    replays_at_once: Positive = 1
    """Side by side; each has a lease of its own."""
    artifacts_mib: Positive = 10 * 1024
    listen_overlay: Text = "/ip4/0.0.0.0/tcp/0"
    bootstrap: Texts = ()
    log_level: Text = "info"

    def __post_init__(self) -> None:
        check_log_level(self.log_level)
        if self.keystore == self.audit_keystore:
            raise ValueError("audit_keystore is another one than keystore")


def parse_settings(content: str, environment: Mapping[str, str]) -> VerifierSettings:
    """The settings in a file's text, overridden by the environment; raises SettingsInvalid."""
    table = read_table(content, VerifierSettings, environment, ENVIRONMENT_PREFIX)
    return settings_of(VerifierSettings, table, "verifier")
