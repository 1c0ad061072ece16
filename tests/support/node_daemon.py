"""A node as its own process on a real chain, and a buyer's side that speaks to it by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import tomli_w
import trio

from cloud_gpu.adapters.devnet_chain import peer_of
from cloud_gpu.protocol.adapters.artifact_exchange import ArtifactExchange
from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.adapters.deployment_files import write_deployment
from cloud_gpu.protocol.adapters.gossip import Overlay, OverlaySettings, open_overlay
from cloud_gpu.protocol.adapters.keystore import (
    DEVNET_SCRYPT_N,
    write_keystore,
    write_password_file,
)
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.identity import NodeBinding, PeerId
from cloud_gpu.protocol.job import JobSpec
from cloud_gpu.protocol.lease import LeaseKey
from cloud_gpu.protocol.messages import (
    AcceptGiven,
    Access,
    JobSubmitted,
    Message,
    OpenSession,
    VoucherGiven,
)
from cloud_gpu.protocol.orders import SignedAdvert
from cloud_gpu.protocol.signing import sign, state
from cloud_gpu.protocol.voucher import Accept
from tests.support.trading import Trading

MessageT = TypeVar("MessageT")


@dataclass
class NodeDaemon:
    """A running `cloud-gpu-node run`."""

    process: subprocess.Popen[bytes]
    config: Path
    ready: dict[str, object]
    log: Path

    @property
    def addresses(self) -> tuple[str, ...]:
        found = self.ready["addresses"]
        assert isinstance(found, list)
        return tuple(found)

    @property
    def peer(self) -> PeerId:
        return PeerId(str(self.ready["peer"]))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=60)


def node_config(
    trading: Trading, folder: Path, bound_s: int = 86_400, /, **changes: object
) -> Path:
    """Write everything that a node reads at its start; the path of its settings file.

    `bound_s` is how long its provider's wallet binds it.
    """
    deployment = trading.deployed.deployment
    write_deployment(folder / "deployment.json", deployment)
    write_keystore(folder / "node.json", trading.node.secret, "secret", work=DEVNET_SCRYPT_N)
    write_password_file(folder / "node.password", "secret")
    body = NodeBinding(
        provider=trading.provider.address,
        node_key=trading.node.address,
        peer=peer_of(trading.node),
    )
    expiry = trading.deployed.anvil.time() + bound_s
    binding = state(body, deployment.domain, trading.provider, nonce=1, expiry=expiry)
    (folder / "binding.json").write_bytes(to_json(binding))
    table: dict[str, object] = {
        "deployment": str(folder / "deployment.json"),
        "rpc": trading.deployed.rpc_url,
        "keystore": str(folder / "node.json"),
        "password_file": str(folder / "node.password"),
        "binding": str(folder / "binding.json"),
        "data_folder": str(folder / "data"),
        "provider": str(trading.provider.address),
        "matcher": str(trading.matcher.address),
        "listen_overlay": "/ip4/127.0.0.1/tcp/0",
        "runtime": "process",
        "ask_interval_s": 1,
        "machines": [
            {
                "index": 0,
                "gpu_class": "A100-SXM4-80GB",
                "price": "3.60",
                "simulated": True,
                "gpu_memory_mib": 81_920,
            }
        ],
    }
    path = folder / "node.toml"
    path.write_text(tomli_w.dumps({**table, **changes}))
    return path


def start_node(config: Path, environment: Mapping[str, str] = MappingProxyType({})) -> NodeDaemon:
    """Start the daemon and wait for its ready line; `environment` is added to its own."""
    log = config.with_suffix(".log")
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "node.main", "run", "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.stdout.close()
    if not line:
        code = process.wait(timeout=10)
        raise AssertionError(f"the node ended with {code}:\n{log.read_text()}")
    return NodeDaemon(process=process, config=config, ready=json.loads(line), log=log)


def end_jobs_below(folder: Path) -> None:
    """End job supervisors that a killed node left, for tests that fail half-way."""
    for path in folder.glob("data/leases/*/jobs/*/pid.json"):
        pid = json.loads(path.read_text())["pid"]
        with open(os.devnull):  # noqa: PTH123
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue


class BuyerSide:
    """Says what a buyer's side says, and keeps what it hears."""

    def __init__(self, trading: Trading, overlay: Overlay, store: ArtifactStore) -> None:
        self.trading, self.overlay, self.store = trading, overlay, store
        self.heard: list[Message] = []
        self.artifacts = ArtifactExchange(overlay, store, lambda *_: False)
        overlay.serve("/cloud-gpu/message/1", self._hear)

    @property
    def at(self) -> int:
        return self.trading.deployed.anvil.time()

    async def _hear(self, peer: str, payload: bytes) -> bytes:
        self.heard.append(from_json(payload, Message))
        return b""

    async def say(self, node: NodeDaemon, message: Message) -> None:
        await self.overlay.request(node.addresses, "/cloud-gpu/message/1", to_json(message))

    async def ask(
        self, node: NodeDaemon, message: Message, kind: type[MessageT], within_s: float = 60
    ) -> MessageT:
        """Say it every half second until the answer comes, as everybody does who waits."""
        with trio.fail_after(within_s):
            while True:
                self.heard = [m for m in self.heard if not isinstance(m, kind)]
                await self.say(node, message)
                with trio.move_on_after(0.5):
                    return await self.hear(kind)

    async def hear(self, kind: type[MessageT], within_s: float = 60) -> MessageT:
        with trio.fail_after(within_s):
            while True:
                for message in self.heard:
                    if isinstance(message, kind):
                        self.heard.remove(message)
                        return message
                await trio.sleep(0.02)

    async def adverts(self, node: NodeDaemon) -> list[SignedAdvert]:
        raw = await self.overlay.request(node.addresses, "/cloud-gpu/asks/1", b"list")
        return [from_json(json.dumps(each), SignedAdvert) for each in json.loads(raw)]

    # Words.

    def session(self, lease: LeaseKey, node: NodeDaemon) -> OpenSession:
        access = Access(lease=lease, node=node.peer, buyer_peer=PeerId(self.overlay.peer_id))
        domain = self.trading.deployed.deployment.domain
        signed = state(access, domain, self.trading.session, nonce=1, expiry=self.at + 600)
        return OpenSession(access=signed)

    def accept(self, lease: LeaseKey) -> AcceptGiven:
        word = Accept(provider=lease.provider, index=lease.index, seq=lease.seq, started_at=self.at)
        domain = self.trading.deployed.deployment.domain
        return AcceptGiven(accept=sign(word, domain, self.trading.session))

    def voucher(self, lease: LeaseKey, amount: int) -> VoucherGiven:
        return VoucherGiven(voucher=self.trading.voucher(lease, amount))

    def submit(self, spec: JobSpec) -> JobSubmitted:
        domain = self.trading.deployed.deployment.domain
        signed = state(spec, domain, self.trading.session, nonce=spec.number, expiry=self.at + 600)
        return JobSubmitted(spec=signed)


@asynccontextmanager
async def buyer_side(trading: Trading, folder: Path) -> AsyncIterator[BuyerSide]:
    settings = OverlaySettings(topics=("cloud-gpu/asks/1",))
    async with open_overlay(settings, trading.session.secret) as overlay:
        yield BuyerSide(trading, overlay, ArtifactStore(folder / "buyer", 10**9))
