"""The whole line as processes: a chain, a market, providers (one lies), two verifiers, a buyer."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cloud_gpu.protocol.adapters.deployment_files import write_deployment
from cloud_gpu.protocol.adapters.keystore import (
    DEVNET_SCRYPT_N,
    write_keystore,
    write_password_file,
    write_secret_file,
)
from cloud_gpu.protocol.deployment import AuditPlan, AuditWindows, VerifierAccount
from cloud_gpu.protocol.identity import KeyRole, LocalKey
from cloud_gpu.protocol.lease import LeaseFlags, Windows
from cloud_gpu.protocol.units import TokenAmount
from cloud_gpu.protocol.values import keccak256
from tests.support.anvil import Deployed, deployed_on, key, running_anvil
from tests.support.market_daemon import MarketDaemon, market_config, start_market
from tests.support.node_daemon import NodeDaemon, node_config, start_node
from tests.support.person import Person
from tests.support.trading import BOND_TOKENS, Trading, trading_on
from tests.support.verifier_daemon import VerifierDaemon, start_verifier, verifier_config
from verifier.draw import Preimages

WINDOWS = Windows(start=30, claim=20, retire=3_600)
AUDITS = AuditWindows(commit=300, challenge=8, hard_cap=600, late_slash=100, answer=30)
LIAR = "provider"
"""The cheapest, so that a buyer's first lease is its."""
PROVIDERS = {LIAR: "1.00", "second": "2.00", "third": "2.10", "fourth": "2.20"}
VERIFIERS = ("first verifier", "second verifier")

_LIE = """#!/bin/sh
{python} "$@"
code=$?
for file in out/*; do echo "I did not compute this" > "$file"; done
exit $code
"""


@dataclass
class AuditLine:
    """Everything that runs."""

    deployed: Deployed
    market: MarketDaemon
    nodes: dict[str, NodeDaemon]
    verifiers: dict[str, VerifierDaemon]
    buyer: Person
    folder: Path

    def config_of(self, verifier: str) -> Path:
        return self.folder / verifier.replace(" ", "-") / "verifier.toml"

    def restart(self, verifier: str) -> None:
        """kill -9, and start again on the same folder."""
        self.verifiers[verifier].kill()
        self.verifiers[verifier] = start_verifier(self.config_of(verifier))

    def logs(self) -> str:
        logs = {name: node.log for name, node in self.nodes.items()}
        logs |= {name: verifier.log for name, verifier in self.verifiers.items()}
        return "\n".join(f"== {name}\n{log.read_text()[-3_000:]}" for name, log in logs.items())


def seed_of(verifier: str) -> bytes:
    return keccak256(f"preimages of {verifier}".encode()).raw


@contextmanager
def audit_line(folder: Path) -> Iterator[AuditLine]:
    """Start it all; end it all, whatever happens."""
    accounts = [
        VerifierAccount(
            signer=key(name).address,
            anchor=Preimages(keccak256(seed_of(name)), 100).anchor,
            audits=key(f"audits of {name}").address,
        )
        for name in VERIFIERS
    ]
    plan = AuditPlan(verifiers=(accounts[0], accounts[1]), windows=AUDITS)
    with ExitStack() as stack:
        anvil = stack.enter_context(running_anvil())
        deployed = deployed_on(anvil, WINDOWS, audits=plan, voucher_interval_s=2, heartbeat_s=1)
        trading = trading_on(deployed, flags=LeaseFlags.VERIFIED)
        others = [_provider(trading, name) for name in PROVIDERS if name != LIAR]
        audits = {name: deployed.member(f"audits of {name}") for name in VERIFIERS}
        for name in VERIFIERS:
            deployed.key(name)
        anvil.rpc.call("evm_setIntervalMining", 1)
        market = start_market(market_config(trading, folder / "market"))
        stack.callback(market.end)
        nodes: dict[str, NodeDaemon] = {}
        verifiers: dict[str, VerifierDaemon] = {}
        line = AuditLine(
            deployed, market, nodes, verifiers, _buyer(trading, market, folder), folder
        )
        stack.callback(_end_all, line)
        _start_all(line, [_Provider(LIAR, trading), *others], audits)
        _corrupt(folder / LIAR / "data")
        yield line


def _end_all(line: AuditLine) -> None:
    for node in line.nodes.values():
        node.end()
    for verifier in line.verifiers.values():
        verifier.end()


def _start_all(line: AuditLine, owners: list[_Provider], audits: dict[str, LocalKey]) -> None:
    """Two at a time, for two cores."""
    with ThreadPoolExecutor(2) as pool:
        started = [pool.submit(_node, line, each) for each in owners]
        seen = [pool.submit(_verifier, line, name, account) for name, account in audits.items()]
    for node in started:
        node.result()
    for verifier in seen:
        verifier.result()


@dataclass(frozen=True)
class _Provider:
    name: str
    trading: Trading


def _provider(trading: Trading, name: str) -> _Provider:
    """Another provider with one machine of the same product."""
    deployed = trading.deployed
    owner, node = deployed.member(name), deployed.key(f"node of {name}")
    with deployed.wallet(owner) as wallet:
        bond = TokenAmount(BOND_TOKENS * deployed.deployment.bond_unit.value)
        wallet.add_machine(0, bond, trading.product)
        wallet.set_delegate(node, KeyRole.NODE, deployed.anvil.time() + 86_400)
    return _Provider(name, replace(trading, provider=owner, node=node))


def _node(line: AuditLine, provider: _Provider) -> None:
    folder = line.folder / provider.name
    folder.mkdir(parents=True, exist_ok=True)
    machine = {
        "index": 0,
        "gpu_class": "A100-SXM4-80GB",
        "price": PROVIDERS[provider.name],
        "simulated": True,
        "gpu_memory_mib": 81_920,
        "verified": True,
    }
    bootstrap = list(line.market.addresses)
    config = node_config(provider.trading, folder, bootstrap=bootstrap, machines=[machine])
    line.nodes[provider.name] = start_node(config)


def _corrupt(data: Path) -> None:
    """The liar's python runs a job and then writes something else: its node signs that."""
    shims = [path for path in data.rglob("python3") if path.read_bytes().startswith(b"#!/bin/sh")]
    assert shims, f"no python shim below {data}"
    for shim in shims:
        for path in (shim, shim.with_name("python")):
            path.write_text(_LIE.format(python=shlex.quote(sys.executable)))
            path.chmod(0o755)


def _verifier(line: AuditLine, name: str, audits: LocalKey) -> None:
    folder = line.config_of(name).parent
    config = verifier_config(
        folder,
        line.deployed.deployment,
        line.deployed.rpc_url,
        key(name),
        audits,
        market=line.market.url,
        bootstrap=list(line.market.addresses),
    )
    digits = keccak256(seed_of(name)).raw.hex()
    write_secret_file(folder / "preimages", digits.encode())
    line.verifiers[name] = start_verifier(config)


def _buyer(trading: Trading, market: MarketDaemon, folder: Path) -> Person:
    home = folder / "buyer"
    home.mkdir(parents=True)
    write_keystore(home / "wallet.json", trading.buyer.secret, "secret", work=DEVNET_SCRYPT_N)
    write_password_file(home / "password", "secret")
    write_deployment(home / "deployment.json", trading.deployed.deployment)
    return Person(
        home,
        {
            "CLOUD_GPU_MARKET": market.url,
            "CLOUD_GPU_RPC": trading.deployed.rpc_url,
            "CLOUD_GPU_DEPLOYMENT": str(home / "deployment.json"),
            "CLOUD_GPU_KEYSTORE": str(home / "wallet.json"),
            "CLOUD_GPU_PASSWORD_FILE": str(home / "password"),
            "CLOUD_GPU_MAX_PRICE": "5.00",
        },
    )
