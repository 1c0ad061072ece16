"""The market's API over HTTP: orders a second, one and many a request, and what a kill loses.

1 and 2 uvicorn workers on SQLite and on PostgreSQL with its own defaults (durable), with the
client on the same cores; no matchmaker beside, but for the last part. A trivial app under the same
server takes as many requests in the same run. Then real load on two workers and a matchmaker on
Anvil, while a worker and the matchmaker are killed with SIGKILL: `lost` counts acknowledged bids
that the matchmaker, started again, never reports on. Prints a table, then one JSON line; null
where there is no PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import _fronts as fronts
from benchmarks._chain import running_chain
from benchmarks._orders import MATCHER, RULES, bids
from benchmarks._parties import Market
from benchmarks._postgres import missing_postgres, running_postgres
from benchmarks.season import TERMS
from cloud_gpu.protocol.codec import from_json, to_json
from cloud_gpu.protocol.receipts import check_receipt
from cloud_gpu.protocol.values import Digest
from market.api.schemas import Placed
from market.rules import MarketRules
from market.store.database import Database
from market.store.views import SqlBook

SINGLE_TARGET, BULK_TARGET = 800, 5_000
"""Of two workers on PostgreSQL. Source: the issue, DESIGN.md 7."""
CONNECTIONS, BULK_CONNECTIONS = 16, 8
BULK_ORDERS, BULK_TIMES = 500, 6
"""In one request; and in all, for each single post of a run: a few seconds of load."""
SINGLE, BULK, TRIVIAL = "/v1/bids", "/v1/bids:bulk", "/"
PATIENCE_S = 120.0
ENGINES = ("sqlite", "postgres")


@dataclass(frozen=True)
class Figures:
    """One run: orders (or requests) a second, and how long each request took."""

    per_s: float
    p50_ms: float
    p99_ms: float


@contextmanager
def empty_database(engine: str, folder: Path) -> Iterator[str]:
    """The URL of a new one."""
    if engine == "sqlite":
        yield f"sqlite:///{folder / 'market.sqlite3'}"
    else:
        with running_postgres(durable=True) as url:
            yield url


def measured(url: str, path: str, bodies: Sequence[bytes], connections: int, each: int) -> Figures:
    """Send all; every order must have been taken as a new one, with the market's receipt."""
    found = fronts.load(url, path, bodies, connections)
    places: set[int] = set()
    for status, body in found.answers:
        wrong = status not in (200, 201)
        if path == BULK and not wrong:
            wrong = not _all_new(body, places)
        if wrong or found.cut:
            sys.exit(f"{path}: {status} {body[:500]}, {found.cut} connections cut")
    if path == BULK and len(places) != len(bodies) * each:
        sys.exit(f"{path}: {len(places)} places in the inbox for {len(bodies) * each} orders")
    cuts = statistics.quantiles(found.latencies_ms, n=100)
    return Figures(len(bodies) * each / found.seconds, cuts[49], cuts[98])


def _all_new(body: str, places: set[int]) -> bool:
    """Whether a bulk answer has a new place for each, and the market's word for first and last."""
    answers = from_json(body, list[Placed])
    receipts = [each.receipt for each in answers if each.status == 201 and each.receipt is not None]
    places.update(each.body.inbox for each in receipts)
    return len(receipts) == len(answers) and all(
        check_receipt(each, RULES.domain, market=MATCHER.address, at=int(time.time())) is None
        for each in (receipts[0], receipts[-1])
    )


def throughput(engine: str, count: int, orders: int) -> dict[str, Figures]:
    """One engine under so many workers: single posts, then bulk posts."""
    made = [to_json(order) for order in bids((1 + BULK_TIMES) * orders, int(time.time()))]
    single, rest = made[:orders], made[orders:]
    bulk = [
        b"[" + b",".join(rest[first : first + BULK_ORDERS]) + b"]"
        for first in range(0, len(rest), BULK_ORDERS)
    ]
    with tempfile.TemporaryDirectory() as name, empty_database(engine, Path(name)) as database:
        fronts.prepare(database)
        with fronts.workers(fronts.settings(Path(name), database), count) as (_, url):
            return {
                "single": measured(url, SINGLE, single, CONNECTIONS, 1),
                "bulk": measured(url, BULK, bulk, BULK_CONNECTIONS, BULK_ORDERS),
            }


def trivial(count: int, requests: int) -> Figures:
    """The server and the client by themselves."""
    body = to_json(bids(1)[0])
    with fronts.trivial(count) as url:
        return measured(url, TRIVIAL, [body] * requests, CONNECTIONS, 1)


def lost(engine: str, orders: int) -> tuple[int, int]:
    """Acknowledged bids, and how many of them no matchmaker knows after two kills under load."""
    with (
        tempfile.TemporaryDirectory() as name,
        empty_database(engine, Path(name)) as database,
        running_chain(TERMS, "--block-time", "1") as chain,
    ):
        market = Market(chain)
        rules = MarketRules(
            domain=chain.deployment.domain,
            matcher=market.matcher.address,
            market_id=market.market_id,
            bond_unit=chain.deployment.bond_unit,
        )
        made = bids(orders, int(time.time()), rules=rules, product=market.product)
        config = fronts.settings(
            Path(name),
            database,
            deployment=chain.deployment,
            key=market.matcher,
            market_id=market.market_id,
            rpc=chain.rpc.shown,
        )
        acknowledged = _under_kills(config, [to_json(order) for order in made])
        return len(acknowledged), _unreported(config, database, acknowledged)


def _under_kills(config: Path, bodies: Sequence[bytes]) -> list[Digest]:
    """The bids that got a receipt while a worker, then the matchmaker, was killed."""
    first = fronts.matchmaker(config, 1)
    try:
        with fronts.workers(config, 2) as (workers, url):
            serving = [
                each.pid
                for each in psutil.Process(workers.pid).children(recursive=True)
                if "spawn_main" in " ".join(each.cmdline())
            ]
            with fronts.loading(url, SINGLE, bodies, CONNECTIONS) as client:
                time.sleep(1.0)
                os.kill(serving[0], signal.SIGKILL)
                time.sleep(0.5)
                first.kill()
                found = fronts.answered(client)
    finally:
        first.kill()
    return [
        Digest.parse(json.loads(body)["body"]["order"])
        for status, body in found.answers
        if status in (200, 201)
    ]


def _unreported(config: Path, database: str, acknowledged: Sequence[Digest]) -> int:
    """How many a matchmaker that starts again does not report on within a while."""
    again, deadline = fronts.matchmaker(config, 2), time.monotonic() + PATIENCE_S
    try:
        with closing(Database.existing(database)) as opened:
            view, missing = SqlBook(opened), list(acknowledged)
            while missing and time.monotonic() < deadline:
                time.sleep(0.5)
                missing = [bid for bid in missing if view.report(bid) is None]
            return len(missing)
    finally:
        again.end(10)


def row(name: str, found: Figures) -> None:
    """One line of the table."""
    print(f"{name:34}{found.per_s:>12,.0f}{found.p50_ms:>10.1f}{found.p99_ms:>10.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", type=int, default=3_000, help="single posts of one run")
    asked = parser.parse_args()
    reason = missing_postgres()
    engines = ENGINES[:1] if reason else ENGINES
    if reason:
        print(f"PostgreSQL is not measured: {reason}\n")
    print(f"load average {os.getloadavg()[0]:.1f} at the start, {os.cpu_count()} cores\n")
    print(f"{'':34}{'a second':>12}{'p50 ms':>10}{'p99 ms':>10}")
    line: dict[str, float | None] = {}
    for count in (1, 2):
        bare = trivial(count, asked.orders)
        row(f"trivial requests, {count} workers", bare)
        line[f"trivial_per_s_{count}_workers"] = round(bare.per_s)
        for engine in engines:
            for kind, found in throughput(engine, count, asked.orders).items():
                row(f"{engine}, {kind}, {count} workers", found)
                line[f"{engine}_{kind}_per_s_{count}_workers"] = round(found.per_s)
                line[f"{engine}_{kind}_p50_ms_{count}_workers"] = round(found.p50_ms, 1)
                line[f"{engine}_{kind}_p99_ms_{count}_workers"] = round(found.p99_ms, 1)
    acknowledged, missing = lost(engines[-1], asked.orders)
    print(f"\nafter the kills: {acknowledged} acknowledged on {engines[-1]}, {missing} lost")
    line["submissions_per_s_2_workers"] = line.get("postgres_single_per_s_2_workers")
    line["bulk_orders_per_s"] = line.get("postgres_bulk_per_s_2_workers")
    line["lost"] = missing
    print(f"targets: {SINGLE_TARGET} single and {BULK_TARGET:,} in bulk a second, none lost")
    print(json.dumps(line))


if __name__ == "__main__":
    main()
