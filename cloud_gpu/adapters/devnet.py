"""The devnet launcher: Anvil, the contracts, a market and its nodes, started and ended as one.

`launched` is a context: inside it everything runs and answers, after it nothing is left. Children
are separate processes of this Python environment, told what to do by files in the devnet's folder.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import tomli_w

from cloud_gpu.adapters import devnet_profile as profile
from cloud_gpu.adapters.chain_reading import ChainReader
from cloud_gpu.adapters.devnet_chain import Prepared, prepare
from cloud_gpu.adapters.devnet_state import DevnetState
from cloud_gpu.adapters.processes import Child, ChildFailed, mark_of, undivided
from cloud_gpu.adapters.toolchain import find_anvil
from cloud_gpu.protocol.adapters.evm_rpc import Rpc

_ANVIL_WITHIN_S: Final = 20.0
_DAEMON_WITHIN_S: Final = 60.0
"""A loaded two-core machine imports for seconds."""
_LISTED_WITHIN_S: Final = 45.0
_GRACE_S: Final = 8.0
_LISTENING = re.compile(r"Listening on ([\d.]+):(\d+)")
_BLOCKS_KEPT: Final = 256

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start, where."""

    folder: Path
    """Empty or absent; belongs to the devnet."""
    nodes: int = 2
    entropy: Callable[[int], bytes] = os.urandom
    """Where keys come from: as many bytes as asked for."""


class Devnet:
    """A devnet that runs."""

    def __init__(self, plan: Plan, rpc_url: str, prepared: Prepared) -> None:
        self.plan, self.rpc_url, self.prepared = plan, rpc_url, prepared
        self.market_url = ""
        self.children: list[Child] = []
        self.stand_ins: dict[str, None] = dict.fromkeys(profile.STAND_INS)
        """What is not real here, in the words of those who pretend; ordered."""

    @property
    def folder(self) -> Path:
        """Its data."""
        return self.plan.folder

    def child(self, name: str) -> Child:
        """A process by name: "chain", "market", "node-0" and so on."""
        return next(child for child in self.children if child.name == name)

    def reader(self, rpc: Rpc) -> ChainReader:
        """A reader of its chain."""
        return ChainReader(rpc, self.prepared.deployment)

    def state(self) -> DevnetState:
        """Where everything is."""
        return DevnetState(
            folder=str(self.folder),
            nodes=self.plan.nodes,
            market=self.market_url,
            rpc=self.rpc_url,
            deployment=str(self.prepared.deployment_path),
            keystore=str(self.prepared.buyer.keystore),
            password_file=str(self.prepared.buyer.password),
            max_price=profile.MAX_PRICE,
            started_at=time.time_ns() // 1_000_000,
            stand_ins=tuple(self.stand_ins),
            keeper=mark_of(os.getpid(), "keeper"),
            children=tuple(child.mark for child in self.children),
        )


@contextmanager
def launched(plan: Plan, say: Say) -> Iterator[Devnet]:
    """A devnet with every ask on the market's book. Raises ChildFailed, ToolchainMissing."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        say("starting the chain")
        anvil = _start(stack, "chain", _anvil_command(), plan.folder)
        rpc_url = anvil.wait_for(_listening, _ANVIL_WITHIN_S)
        rpc = stack.enter_context(Rpc(rpc_url))
        rpc.call("anvil_setLoggingEnabled", False)
        say("deploying the contracts, filling the wallets")
        prepared = prepare(rpc, rpc_url, plan.folder, plan.nodes, plan.entropy)
        # Blocks came with their transactions so far; from here on, one a second.
        rpc.call("evm_setIntervalMining", profile.BLOCK_S)
        devnet = Devnet(plan, rpc_url, prepared)
        devnet.children.append(anvil)
        say("starting the market")
        market = _start_market(stack, devnet)
        say(f"starting {plan.nodes} nodes")
        _start_nodes(stack, devnet, market)
        say("waiting for the asks")
        _wait_for_asks(devnet)
        yield devnet


def _start(stack: ExitStack, name: str, command: Sequence[str], folder: Path) -> Child:
    with undivided():
        child = Child(name, command, folder, _environ())
        stack.callback(child.end, _GRACE_S)
    return child


def _environ() -> dict[str, str]:
    """Ours, but for a person's own settings: a devnet's parties read their files alone."""
    return {k: v for k, v in os.environ.items() if not k.startswith("CLOUD_GPU_")}


def _anvil_command() -> list[str]:
    # Anvil would persist old states below the user's home: it is told to forget them instead.
    return [
        str(find_anvil()),
        *("--host", "127.0.0.1", "--port", "0", "--accounts", "1"),
        *("--prune-history", str(_BLOCKS_KEPT)),
    ]


def _listening(written: str) -> str | None:
    found = _LISTENING.search(written)
    return f"http://{found[1]}:{found[2]}" if found else None


def _daemon(module: str, config: Path) -> list[str]:
    """The console script's function, in this very Python environment."""
    program = f"import sys; from {module} import main; sys.exit(main())"
    return [sys.executable, "-c", program, "run", "--config", str(config)]


def _start_market(stack: ExitStack, devnet: Devnet) -> Mapping[str, Any]:
    operator = devnet.prepared.market
    config = _write_config(
        devnet,
        "market",
        {
            "market_id": devnet.prepared.market_id,
            "keystore": str(operator.keystore),
            "password_file": str(operator.password),
            "listen_http": "127.0.0.1:0",
            "round_ms": profile.ROUND_MS,
        },
    )
    child = _start(stack, "market", _daemon("market.main", config), devnet.folder)
    devnet.children.append(child)
    ready = child.ready_line(_DAEMON_WITHIN_S)
    devnet.market_url = str(ready["http"])
    return ready


def _start_nodes(stack: ExitStack, devnet: Devnet, market: Mapping[str, Any]) -> None:
    started = []
    for node in devnet.prepared.nodes:
        config = _write_config(
            devnet,
            node.name,
            {
                "provider": str(node.wallet.key.address),
                "keystore": str(node.key.keystore),
                "password_file": str(node.key.password),
                "binding": str(node.binding_path),
                "bootstrap": list(market["addresses"]),
                "matcher": str(devnet.prepared.market.key.address),
                "max_fee_bps": profile.MAX_FEE.value,
                "runtime": "process",
                "end_jobs_on_stop": True,
                "ask_interval_s": profile.ASK_INTERVAL_S,
                "ask_life_s": profile.ASK_LIFE_S,
                "machines": [machine.table() for machine in node.machines],
            },
        )
        child = _start(stack, node.name, _daemon("node.main", config), devnet.folder)
        devnet.children.append(child)
        started.append(child)
    for child in started:
        ready = child.ready_line(_DAEMON_WITHIN_S)
        said = ready.get("stand_ins")
        devnet.stand_ins |= dict.fromkeys(map(str, said if isinstance(said, list) else []))


def _write_config(devnet: Devnet, name: str, table: Mapping[str, Any]) -> Path:
    path = devnet.folder / f"{name}.toml"
    common = {
        "deployment": str(devnet.prepared.deployment_path),
        "rpc": devnet.rpc_url,
        "data_folder": str(devnet.folder / f"{name}-data"),
        "listen_overlay": "/ip4/127.0.0.1/tcp/0",
    }
    path.write_text(tomli_w.dumps({**common, **table}))
    return path


def _wait_for_asks(devnet: Devnet) -> None:
    wanted = sum(len(node.machines) for node in devnet.prepared.nodes)
    deadline = time.monotonic() + _LISTED_WITHIN_S
    listed = -1
    with httpx.Client(base_url=devnet.market_url, trust_env=False, timeout=10) as client:
        while time.monotonic() < deadline:
            for child in devnet.children:
                if child.exit_code is not None:
                    raise ChildFailed(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")
            answer = client.get("/v1/asks", params={"limit": wanted})
            listed = len(answer.json()) if answer.status_code == 200 else -1
            if listed >= wanted:
                return
            time.sleep(0.1)
    tails = "\n".join(f"-- {child.name}\n{child.tail()}" for child in devnet.children[1:])
    raise ChildFailed(
        f"the market lists {max(listed, 0)} of {wanted} asks after {_LISTED_WITHIN_S:g} s\n{tails}"
    )
