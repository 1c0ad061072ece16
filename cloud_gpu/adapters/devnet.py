"""The devnet launcher: Anvil, the contracts, a market, nodes, verifiers, started and ended as one.

`launched` is a context: inside it everything runs and answers, after it nothing is left. Children
are separate processes of this Python environment, told what to do by files in the devnet's folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from cloud_gpu.adapters import devnet_profile as profile
from cloud_gpu.adapters.chain_reading import ChainReader
from cloud_gpu.adapters.devnet_chain import Prepared, prepare
from cloud_gpu.adapters.devnet_daemons import DaemonFiles
from cloud_gpu.adapters.devnet_state import DevnetState
from cloud_gpu.adapters.mounts import unmount_below
from cloud_gpu.adapters.processes import Child, ChildFailed, mark_of, undivided
from cloud_gpu.adapters.toolchain import anvil_url, find_anvil
from cloud_gpu.protocol.adapters.evm_rpc import Rpc

_ANVIL_WITHIN_S: Final = 20.0
_DAEMON_WITHIN_S: Final = 60.0
"""A loaded two-core machine imports for seconds."""
_LISTED_WITHIN_S: Final = 45.0
_GRACE_S: Final = 8.0
_BLOCKS_KEPT: Final = 256
_CHAIN: Final = "chain"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start, where."""

    folder: Path
    """Empty or absent; belongs to the devnet."""
    nodes: int = 2
    runtime: str = "auto"
    """Of the nodes, as in their settings: "auto", "docker", "runc", "runsc" or "process"."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """What which node does wrong on purpose; see the node's `Fault`."""
    entropy: Callable[[int], bytes] = os.urandom
    """Where keys come from: as many bytes as asked for."""


class Devnet:
    """A devnet that runs."""

    def __init__(self, plan: Plan, rpc_url: str, prepared: Prepared, say: Say) -> None:
        self.plan, self.rpc_url, self.prepared = plan, rpc_url, prepared
        self.files = DaemonFiles(plan.folder, rpc_url, prepared)
        self.market_url = ""
        self.children: dict[str, Child] = {}
        """Those that run or ran last, by name: "chain", "market", "node-0", "verifier-1" …"""
        self.stand_ins: dict[str, None] = dict.fromkeys(profile.STAND_INS)
        """What is not real here, in the words of those who pretend; ordered."""
        self._say = say

    @property
    def folder(self) -> Path:
        """Its data."""
        return self.plan.folder

    def start(self, name: str) -> Child:
        """Start a daemon by its file, for the first time or again; it is ended with the devnet."""
        with undivided():
            child = Child(name, self.files.command(name), self.folder, _environ())
            self.children[name] = child
        return child

    def started(self, name: str) -> dict[str, Any]:
        """Wait until a daemon is ready; what it said then. Raises ChildFailed."""
        ready = self.children[name].ready_line(_DAEMON_WITHIN_S)
        self.files.pin(name, ready)
        said = ready.get("stand_ins")
        self.stand_ins |= dict.fromkeys(map(str, said if isinstance(said, list) else []))
        return ready

    def end(self) -> None:
        """End all daemons, side by side. The chain outlives them."""
        died = [
            name
            for name, child in self.children.items()
            if name.startswith("node-") and child.exit_code is not None
        ]
        # Jobs of a node that died run on, and only a node knows them: it comes back to end them.
        for name in died:
            self.start(name)
        for name in died:
            try:
                self.children[name].ready_line(_DAEMON_WITHIN_S)
            except ChildFailed as failed:
                self._say(f"jobs of {name} may be left: {failed}")
        daemons = [child for name, child in self.children.items() if name != _CHAIN]
        with ThreadPoolExecutor(max(1, len(daemons))) as pool:
            for ended in [pool.submit(child.end, _GRACE_S) for child in daemons]:
                ended.result()
        for failure in unmount_below(self.folder):
            self._say(failure)

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
            children=tuple(child.mark for child in self.children.values()),
        )


@contextmanager
def launched(plan: Plan, say: Say) -> Iterator[Devnet]:
    """A devnet with every ask on the market's book. Raises ChildFailed, ToolchainMissing."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        say("starting the chain")
        with undivided():
            anvil = Child(_CHAIN, _anvil_command(), plan.folder, _environ())
            stack.callback(anvil.end, _GRACE_S)
        rpc_url = anvil.wait_for(anvil_url, _ANVIL_WITHIN_S)
        rpc = stack.enter_context(Rpc(rpc_url))
        rpc.call("anvil_setLoggingEnabled", False)
        say("deploying the contracts, filling the wallets")
        prepared = prepare(rpc, rpc_url, plan.folder, plan.nodes, plan.entropy)
        # Blocks came with their transactions so far; from here on, one a second.
        rpc.call("evm_setIntervalMining", profile.BLOCK_S)
        devnet = Devnet(plan, rpc_url, prepared, say)
        devnet.children[_CHAIN] = anvil
        stack.callback(devnet.end)
        say("starting the market")
        devnet.files.write_market()
        devnet.start("market")
        market = devnet.started("market")
        devnet.market_url = str(market["http"])
        _start_others(devnet, market, say)
        say("waiting for the asks")
        _wait_for_asks(devnet)
        yield devnet


def _start_others(devnet: Devnet, market: Mapping[str, Any], say: Say) -> None:
    nodes, verifiers = devnet.prepared.nodes, devnet.prepared.verifiers
    also = f" and {len(verifiers)} verifiers" if verifiers else ""
    say(f"starting {len(nodes)} nodes{also}")
    for number, node in enumerate(nodes):
        fault = devnet.plan.faults.get(number, "")
        devnet.files.write_node(node, market["addresses"], devnet.plan.runtime, fault)
    for verifier in verifiers:
        devnet.files.write_verifier(verifier, market)
    names = [node.name for node in nodes] + [verifier.name for verifier in verifiers]
    for name in names:
        devnet.start(name)
    for name in names:
        devnet.started(name)


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


def _wait_for_asks(devnet: Devnet) -> None:
    wanted = sum(len(node.machines) for node in devnet.prepared.nodes)
    deadline = time.monotonic() + _LISTED_WITHIN_S
    listed = -1
    with httpx.Client(base_url=devnet.market_url, trust_env=False, timeout=10) as client:
        while time.monotonic() < deadline:
            for child in devnet.children.values():
                if child.exit_code is not None:
                    raise ChildFailed(f"{child.name} ended with {child.exit_code}:\n{child.tail()}")
            answer = client.get("/v1/asks", params={"limit": wanted})
            listed = len(answer.json()) if answer.status_code == 200 else -1
            if listed >= wanted:
                return
            time.sleep(0.1)
    daemons = [child for name, child in devnet.children.items() if name != _CHAIN]
    tails = "\n".join(f"-- {child.name}\n{child.tail()}" for child in daemons)
    raise ChildFailed(
        f"the market lists {max(listed, 0)} of {wanted} asks after {_LISTED_WITHIN_S:g} s\n{tails}"
    )
