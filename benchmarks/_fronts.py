"""Processes of a market's front: API workers, the matchmaker, a client that loads them."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks._orders import FEE, MATCHER, NOW_S, PRODUCT, RULES
from cloud_gpu.adapters.processes import Child
from cloud_gpu.protocol.adapters.deployment_files import write_deployment
from cloud_gpu.protocol.adapters.keystore import (
    DEVNET_SCRYPT_N,
    write_keystore,
    write_password_file,
)
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import ListProduct
from cloud_gpu.protocol.identity import LocalKey
from cloud_gpu.protocol.lease import Windows
from cloud_gpu.protocol.values import Address
from market.health import health_of
from market.matchmaker import Matchmaker
from market.standing import Standing
from market.store.database import Database
from market.store.views import SqlBook

_START_S = 120.0
DEPLOYMENT = Deployment(
    chain_id=RULES.domain.chain_id,
    lease_book=RULES.domain.verifying_contract,
    token=Address(b"\x0c" * 20),
    first_block=0,
    windows=Windows(start=10, claim=15, retire=30),
    bond_unit=RULES.bond_unit,
)
"""For workers that never see a chain."""


@dataclass(frozen=True)
class Answered:
    """What a client saw."""

    seconds: float
    latencies_ms: list[float]
    answers: list[tuple[int, str]]
    cut: int


def settings(
    folder: Path,
    database: str,
    *,
    deployment: Deployment = DEPLOYMENT,
    key: LocalKey = MATCHER,
    market_id: int = RULES.market_id,
    rpc: str = "http://127.0.0.1:1",
) -> Path:
    """The files of a market; the path of its TOML file."""
    write_deployment(folder / "deployment.json", deployment)
    write_keystore(folder / "key.json", key.secret, "secret", work=DEVNET_SCRYPT_N)
    write_password_file(folder / "password", "secret")
    table: dict[str, Any] = {
        "deployment": str(folder / "deployment.json"),
        "rpc": rpc,
        "keystore": str(folder / "key.json"),
        "password_file": str(folder / "password"),
        "data_folder": str(folder),
        "database": database,
        "market_id": market_id,
        "listen_http": "",
        "listen_api": "127.0.0.1:0",
        "listen_overlay": "/ip4/127.0.0.1/tcp/0",
        "log_level": "warning",
    }
    path = folder / "market.toml"
    path.write_text(tomli_w.dumps(table))
    return path


def prepare(database: str) -> None:
    """As if a matchmaker had run: tables, a product, its word of itself."""
    health = health_of(
        Matchmaker(RULES).status(),
        rules=RULES,
        now=NOW_S * 1000,
        peers=0,
        inbox_read=0,
        events_waiting=0,
    )
    standing = Standing(at=NOW_S * 1000, fee=FEE, peer="", addresses=(), health=health)
    with closing(Database(database)) as opened:
        opened.create(RULES.owner)
        SqlBook(opened).write([ListProduct(product=PRODUCT)])
        SqlBook(opened).stand(standing)


@contextmanager
def workers(config: Path, count: int) -> Iterator[tuple[Child, str]]:
    """API workers, and their URL."""
    command = [sys.executable, "-m", "market.main", "api", "--config", str(config)]
    with _running("api", [*command, "--workers", str(count)], config.parent) as child:
        yield child, str(child.ready_line(_START_S)["http"])


@contextmanager
def trivial(count: int) -> Iterator[str]:
    """The trivial app under as many uvicorn workers; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "benchmarks._trivial:app", "--port", port]
    options = ["--workers", str(count), "--log-level", "warning", "--no-access-log"]
    with (
        tempfile.TemporaryDirectory() as name,
        _running("trivial", [*command, *options], Path(name)) as child,
    ):
        child.wait_for(lambda _: _accepts(int(port)) or None, _START_S)
        yield f"http://127.0.0.1:{port}"


def matchmaker(config: Path, life: int) -> Child:
    """A daemon that is up; `life` tells its files from those before."""
    command = [sys.executable, "-m", "market.main", "run", "--config", str(config)]
    child = Child(f"matchmaker{life}", command, config.parent, os.environ)
    child.ready_line(_START_S)
    return child


@contextmanager
def _running(name: str, command: Sequence[str], folder: Path) -> Iterator[Child]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    child = Child(name, command, folder, environ)
    try:
        yield child
    finally:
        child.end(30)


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def loading(url: str, path: str, bodies: Sequence[bytes], connections: int) -> Iterator[Child]:
    """A client at work in a process of its own."""
    host, _, port = url.removeprefix("http://").partition(":")
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "bodies"
        file.write_bytes(b"\n".join(bodies))
        where = [host, port, path, str(connections), str(file)]
        command = [sys.executable, "-m", "benchmarks._load", *where]
        with _running("load", command, Path(name)) as child:
            yield child


def answered(child: Child, within_s: float = 300.0) -> Answered:
    """What the client printed at its end."""
    found = child.wait_for(_whole, within_s)
    return Answered(**{**found, "answers": [tuple(each) for each in found["answers"]]})


def _whole(text: str) -> dict[str, Any] | None:
    return json.loads(text) if text.endswith("}\n") else None


def load(url: str, path: str, bodies: Sequence[bytes], connections: int) -> Answered:
    """Send all bodies, each once, over so many connections."""
    with loading(url, path, bodies, connections) as child:
        return answered(child)
