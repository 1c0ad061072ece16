"""A market as its own process on a real chain, and a provider's peer that gossips asks by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx
import msgspec
import tomli_w
import trio

from cloud_gpu.protocol.adapters.deployment_files import write_deployment
from cloud_gpu.protocol.adapters.gossip import Overlay, OverlaySettings, open_overlay
from cloud_gpu.protocol.adapters.keystore import (
    DEVNET_SCRYPT_N,
    write_keystore,
    write_password_file,
)
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.hardware import Gpu, GpuClass, HardwareProfile, Isolation
from cloud_gpu.protocol.identity import NodeBinding, PeerId
from cloud_gpu.protocol.match import BidReport, BidState
from cloud_gpu.protocol.orders import Advert, SignedAdvert, SignedBid, Terms
from cloud_gpu.protocol.signing import sign, state
from cloud_gpu.protocol.topics import ASKS_TOPIC
from cloud_gpu.protocol.values import Digest
from tests.support.trading import Trading

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("CLOUD_GPU_")},
    "PYTHONUNBUFFERED": "1",
}


@dataclass
class MarketDaemon:
    """A running `cloud-gpu-market run`."""

    process: subprocess.Popen[bytes]
    config: Path
    url: str
    addresses: tuple[str, ...]

    def __post_init__(self) -> None:
        self.client = httpx.Client(base_url=self.url, timeout=20, trust_env=False, verify=False)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)
        self.client.close()

    def end(self) -> int:
        self.process.terminate()
        self.client.close()
        return self.process.wait(timeout=60)

    def get(self, path: str) -> httpx.Response:
        return self.client.get(path)

    def post(self, path: str, body: bytes) -> httpx.Response:
        return self.client.post(path, content=body)

    def place(self, order: SignedBid) -> httpx.Response:
        return self.post("/v1/bids", to_json(order))

    def report(self, bid: Digest) -> BidReport:
        answer = self.get(f"/v1/bids/{bid}")
        assert answer.status_code == 200, answer.text
        return from_json(answer.content, BidReport)

    async def report_in(self, bid: Digest, *wanted: BidState, within_s: float = 60) -> BidReport:
        """Ask until the bid is in one of these states."""
        with trio.fail_after(within_s):
            while True:
                report = await trio.to_thread.run_sync(self.report, bid)
                if report.state in wanted:
                    return report
                await trio.sleep(0.05)

    async def asks(self, count: int, within_s: float = 60) -> list[SignedAdvert]:
        """Ask until so many asks are listed."""
        with trio.fail_after(within_s):
            while True:
                answer = await trio.to_thread.run_sync(self.get, "/v1/asks")
                found = from_json(answer.content, list[SignedAdvert])
                if len(found) == count:
                    return found
                await trio.sleep(0.05)

    async def explained(self, bid: Digest, within_s: float = 60) -> BidReport:
        """Ask until the market says why a bid waits."""
        with trio.fail_after(within_s):
            while True:
                report = await trio.to_thread.run_sync(self.report, bid)
                if report.rejection is not None:
                    return report
                await trio.sleep(0.05)


def market_config(trading: Trading, folder: Path, **changes: object) -> Path:
    """Write everything that a market reads at its start; the path of its settings file."""
    folder.mkdir(parents=True, exist_ok=True)
    write_deployment(folder / "deployment.json", trading.deployed.deployment)
    write_keystore(folder / "market.json", trading.matcher.secret, "secret", work=DEVNET_SCRYPT_N)
    write_password_file(folder / "market.password", "secret")
    table: dict[str, object] = {
        "deployment": str(folder / "deployment.json"),
        "rpc": trading.deployed.rpc_url,
        "keystore": str(folder / "market.json"),
        "password_file": str(folder / "market.password"),
        "data_folder": str(folder / "data"),
        "market_id": trading.market_id,
        "listen_http": "127.0.0.1:0",
        "listen_overlay": "/ip4/127.0.0.1/tcp/0",
        "round_ms": 200,
    }
    path = folder / "market.toml"
    path.write_text(tomli_w.dumps({**table, **changes}))
    return path


def market_command(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command of `cloud-gpu-market` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "market.main", *arguments],
        capture_output=True,
        env=ENVIRONMENT,
        timeout=60,
        check=False,
    )


def start_market(
    config: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> MarketDaemon:
    """Start the daemon and wait for its ready line; `environment` is added to its own."""
    log = config.with_suffix(".log")
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "market.main", "run", "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=ENVIRONMENT | dict(environment),
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.stdout.close()
    if not line:
        code = process.wait(timeout=10)
        raise AssertionError(f"the market ended with {code}:\n{log.read_text()}")
    ready = json.loads(line)
    return MarketDaemon(process, config, str(ready["http"]), tuple(ready["addresses"]))


def advert_of(
    trading: Trading,
    index: int = 0,
    seq: int = 1,
    *,
    peer: str = "peer",
    addresses: tuple[str, ...] = ("/ip4/127.0.0.1/tcp/1/p2p/peer",),
    number: int = 1,
    **changes: object,
) -> SignedAdvert:
    """An ask of the trading's provider as its node gossips it, the `number`-th of that peer."""
    domain, at = trading.deployed.deployment.domain, trading.deployed.anvil.time()
    ask = msgspec.structs.replace(trading.ask(seq, index).payload, **changes)
    bound = NodeBinding(
        provider=trading.provider.address, node_key=trading.node.address, peer=PeerId(peer)
    )
    body = Advert(
        ask=sign(ask, domain, trading.node),
        profile=HardwareProfile(
            gpu_class=GpuClass("A100-SXM4-80GB"),
            gpus=(Gpu(model="A100", memory_mib=81_920),),
            cpu_model="test",
            cpu_architecture="x86_64",
            cpu_cores=2,
            memory_mib=4_096,
            disk_mib=10_000,
            region="FR/EU",
            isolation=Isolation.PROCESS,
            simulated=True,
        ),
        peer=PeerId(peer),
        addresses=addresses,
        binding=state(bound, domain, trading.provider, nonce=1, expiry=at + 86_400),
    )
    return state(body, domain, trading.node, nonce=number, expiry=at + 600)


class ProviderPeer:
    """A provider's peer, as far as a market sees one."""

    def __init__(self, trading: Trading, overlay: Overlay) -> None:
        self.trading, self.overlay = trading, overlay
        self._announced = 0

    def advert(self, index: int = 0, seq: int = 1, **changes: object) -> SignedAdvert:
        self._announced += 1
        at = self.trading.deployed.anvil.time()
        return advert_of(
            self.trading,
            index,
            seq,
            peer=self.overlay.peer_id,
            addresses=self.overlay.addresses,
            number=self._announced,
            **({"start_by": at + 300 + self._announced} | changes),
        )

    async def announce(self, *adverts: SignedAdvert) -> None:
        for advert in adverts:
            await self.overlay.publish(ASKS_TOPIC, to_json(advert))


@asynccontextmanager
async def provider_peer(trading: Trading, market: MarketDaemon) -> AsyncIterator[ProviderPeer]:
    """A peer of the market's."""
    settings = OverlaySettings(topics=(ASKS_TOPIC,), bootstrap=market.addresses)
    async with open_overlay(settings, trading.node.secret) as overlay:
        await overlay.wait_for_peers(ASKS_TOPIC, 1)
        yield ProviderPeer(trading, overlay)


def order_of(trading: Trading, nonce: int, *, limit: int = 0, life_s: int = 300) -> SignedBid:
    """A bid of the trading's buyer; `limit` in base units, else at the asks' price."""
    terms, at = Terms(), trading.deployed.anvil.time()
    plain = trading.bid(nonce).payload
    bid = msgspec.structs.replace(
        plain,
        terms=terms.digest,
        start_by=at + life_s,
        open_from=at + life_s,
        **({"max_price_per_hour": type(plain.max_price_per_hour)(limit)} if limit else {}),
    )
    return SignedBid(bid=sign(bid, trading.deployed.deployment.domain, trading.buyer), terms=terms)
