"""What a devnet's daemons are told: one TOML file each, in the devnet's folder.

A daemon takes any free ports at its first start. They are written into its file afterwards, so
that it is found where it was when it is started again.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import tomli_w

from cloud_gpu.adapters import devnet_profile as profile
from cloud_gpu.adapters.devnet_chain import Prepared, PreparedNode, PreparedVerifier
from cloud_gpu.adapters.devnet_state import config_of

_ANY_PORT: Final = "/ip4/127.0.0.1/tcp/0"

Table = Mapping[str, Any]


class DaemonFiles:
    """Writes settings files below one folder."""

    def __init__(self, folder: Path, rpc_url: str, prepared: Prepared) -> None:
        self._folder, self._rpc_url, self._prepared = folder, rpc_url, prepared

    def path(self, name: str) -> Path:
        """A daemon's file."""
        return config_of(self._folder, name)

    def command(self, name: str) -> list[str]:
        """How to start a daemon: the console script's function, in this very environment."""
        package = name.split("-")[0]
        program = f"import sys; from {package}.main import main; sys.exit(main())"
        return [sys.executable, "-c", program, "run", "--config", str(self.path(name))]

    def write_market(self) -> None:
        """The market's."""
        operator = self._prepared.market
        self._write(
            "market",
            {
                "market_id": self._prepared.market_id,
                "keystore": str(operator.keystore),
                "password_file": str(operator.password),
                "listen_http": "127.0.0.1:0",
                "round_ms": profile.ROUND_MS,
                "block_window": f"{profile.BLOCK_WINDOW_S}s",
                "futures_batch_ms": profile.FUTURES_BATCH_MS,
                "position_limit_bps": profile.POSITION_LIMIT.value,
                "verified_owners_min": profile.VERIFIED_FROM_NODES,
            },
        )

    def write_node(
        self, node: PreparedNode, bootstrap: Sequence[str], runtime: str, fault: str
    ) -> None:
        """A node's; `fault` is what it does wrong on purpose, or empty."""
        self._write(
            node.name,
            {
                "provider": str(node.wallet.key.address),
                "keystore": str(node.key.keystore),
                "password_file": str(node.key.password),
                "binding": str(node.binding_path),
                "bootstrap": list(bootstrap),
                "matcher": str(self._prepared.market.key.address),
                "group_buys": True,
                "max_fee_bps": profile.MAX_FEE.value,
                "runtime": runtime,
                "end_jobs_on_stop": True,
                "ask_interval_s": profile.ASK_INTERVAL_S,
                "ask_life_s": profile.ASK_LIFE_S,
                "fault": fault,
                "machines": [machine.table() for machine in node.machines],
            },
        )

    def write_verifier(self, verifier: PreparedVerifier, market: Table) -> None:
        """A verifier's."""
        self._write(
            verifier.name,
            {
                "keystore": str(verifier.key.keystore),
                "password_file": str(verifier.key.password),
                "preimages_file": str(verifier.preimages),
                "preimages": profile.PREIMAGES,
                "market": str(market["http"]),
                "bootstrap": list(market["addresses"]),
                "audit_keystore": str(verifier.audits.keystore),
                "audit_password_file": str(verifier.audits.password),
                "max_price": profile.MAX_PRICE,
                "replays_at_once": profile.REPLAYS_AT_ONCE,
            },
        )

    def pin(self, name: str, ready: Table) -> None:
        """Keep the ports that a daemon says it listens on."""
        table = tomllib.loads(self.path(name).read_text())
        table["listen_overlay"] = str(ready["addresses"][0]).partition("/p2p/")[0]
        if "listen_http" in table:
            table["listen_http"] = str(ready["http"]).removeprefix("http://")
        self.path(name).write_text(tomli_w.dumps(table))

    def _write(self, name: str, table: Table) -> None:
        common = {
            "deployment": str(self._prepared.deployment_path),
            "rpc": self._rpc_url,
            "data_folder": str(self._folder / f"{name}-data"),
            "listen_overlay": _ANY_PORT,
        }
        self.path(name).write_text(tomli_w.dumps({**common, **table}))
