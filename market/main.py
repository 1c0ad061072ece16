"""Wires the market: settings, key, store, chain, overlay, matchmaker, HTTP. It decides nothing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio
from anyio import to_thread
from fastapi import FastAPI

from cloud_gpu.protocol.adapters.clock import SystemClock
from cloud_gpu.protocol.adapters.command_line import run_command_line
from cloud_gpu.protocol.adapters.deployment_files import read_deployment
from cloud_gpu.protocol.adapters.keystore import load_key
from cloud_gpu.protocol.adapters.logs import configure_logs
from cloud_gpu.protocol.adapters.runner import Runner, run_trio
from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import MarketEffect
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.rounds import SignedHeader
from cloud_gpu.protocol.topics import ASKS_TOPIC, VERIFIERS_TOPIC
from cloud_gpu.protocol.units import unix_seconds
from cloud_gpu.protocol.values import Address
from market.adapters.following import follow
from market.adapters.hearing import Hearing
from market.adapters.performing import Performer, Unwritten, lane_of
from market.adapters.rounds_source import read_rounds
from market.adapters.sequencing import Sequencer
from market.adapters.telling import tell
from market.api.app import create_app
from market.api.front import Front
from market.api.limiting import Limiting
from market.api.metrics import Metrics
from market.api.workers import Following, run_workers
from market.attributes import Attributes
from market.audit.replaying import replay_lines
from market.audit.replaying_told import StoredRounds
from market.cli.app import app
from market.cli.outside import BookPage, Outside
from market.health import health_of
from market.matchmaker import Matchmaker
from market.receipts import header_signer, receipt_signer
from market.rules import MarketRules, MatchmakerEvent, RulesSet
from market.settings import MarketSettings, parse_settings
from market.standing import Standing
from market.store.database import Database
from market.store.futures import SqlFutures
from market.store.group_buys import SqlGroups
from market.store.inbox import SqlInbox
from market.store.journal import SqlJournal
from market.store.news import SqlNews
from market.store.rounds import SqlRounds
from market.store.views import SqlBook

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.evm import EvmChain
    from cloud_gpu.protocol.adapters.gossip import Overlay, OverlaySettings


def main() -> None:
    """The console script."""
    outside = Outside(
        load=load_settings,
        serve=serve_settings,
        serve_api=serve_api,
        replay=replay,
        rounds=read_rounds,
        book=show_book,
    )
    sys.exit(run_command_line(app, "cloud-gpu-market", outside, sys.argv[1:]))


def load_settings(path: Path) -> MarketSettings:
    """Read the settings file; raises `SettingsInvalid`, `OSError`."""
    return parse_settings(path.read_text(), os.environ)


def replay(database_url: str, held: Sequence[SignedHeader]) -> Iterator[bytes]:
    """The matches of a journal, as lines; the last line is the `ReplayedState`."""
    with closing(Database.existing(database_url)) as database:
        rounds = SqlRounds(database)
        newest = rounds.newest
        told = SqlBook(database).told() | SqlFutures(database).told() | SqlGroups(database).told()
        journal = SqlJournal(database)
        stored = StoredRounds(newest=newest, rounds=rounds.all, head_at=journal.head_at, held=held)
        if not journal.length:
            raise SettingsInvalid(f"database: the journal at {database.shown} is empty")
        yield from replay_lines(journal.replay, journal.head, told, stored)


def show_book(database_url: str, count_max: int) -> BookPage:
    """What the public tables say now."""
    with closing(Database.existing(database_url)) as database:
        view, inbox = SqlBook(database), SqlInbox(database)
        waiting = ((inbox.bid(report.bid), report) for report in view.waiting(count_max))
        return BookPage(
            asks=view.asks("", count_max, unix_seconds(SystemClock().now())),
            waiting=[
                (order.bid.payload, report)
                for order, report in waiting
                if order is not None and not order.terms.block
            ],
        )


def serve_settings(settings: MarketSettings) -> int:
    """Run the daemon until it is told to stop; its exit code."""
    configure_logs(settings.log_level)
    return run_trio(partial(serve, settings))


def serve_api(settings: MarketSettings, workers: int) -> int:
    """Run API workers until told to stop; the exit code. Raises CloudGpuError before any starts."""
    configure_logs(settings.log_level)
    make = partial(worker_app, settings)
    make().state.database.close()
    return run_workers(make, settings.listen_api, workers, lambda url: _say_ready(http=url))


def worker_app(settings: MarketSettings) -> FastAPI:
    """One worker's app: the settings' key and database, no chain and no overlay."""
    configure_logs(settings.log_level)
    key = load_key(settings.keystore, settings.password_file)
    deployment = read_deployment(settings.deployment)
    rules = rules_of(settings, deployment, key.address)
    database = Database.serving(settings.database_url, rules.owner)
    view = SqlBook(database)
    following = Following(view)
    front = Front(
        rules=rules,
        deployment=deployment,
        inbox=SqlInbox(database),
        view=view,
        futures=SqlFutures(database),
        groups=SqlGroups(database),
        rounds=SqlRounds(database),
        clock=SystemClock(),
        sign=receipt_signer(key, deployment.domain),
        arrived=lambda: None,
        standing=following.standing,
        metrics=Metrics(),
        limiting=_limiting(settings),
        news=SqlNews(database),
    )
    made = create_app(front, following.running)
    made.state.database = database
    return made


async def serve(settings: MarketSettings) -> None:
    """The daemon: what its journal says, then chain and overlay, then everything at once."""
    from cloud_gpu.protocol.adapters.evm import EvmChain  # workers do without both
    from cloud_gpu.protocol.adapters.gossip import open_overlay

    settings.data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = load_key(settings.keystore, settings.password_file)
    deployment = read_deployment(settings.deployment)
    rules = rules_of(settings, deployment, key.address)
    await _warm_up()
    async with AsyncExitStack() as stack:
        database = stack.enter_context(closing(Database(settings.database_url)))
        database.claim()
        database.create(owner=rules.owner)
        market, metrics, clock = Matchmaker(rules), Metrics(), SystemClock()
        book = SqlBook(database, header_signer(key))
        performer = Performer(book, metrics.performed)
        runner = Runner[MatchmakerEvent, MarketEffect](
            market, performer, clock, name="market", lane=lane_of, journal=SqlJournal(database)
        )
        unwritten = Unwritten(SqlRounds(database).newest)
        runner.replay(unwritten.keep)
        outbox, followed = settings.data_folder / "outbox.sqlite3", market.status().followed
        chain = await stack.enter_async_context(
            EvmChain(settings.rpc, deployment, key, outbox, resume_after=followed)
        )
        performer.submit = chain.submit
        overlay = await stack.enter_async_context(open_overlay(_overlay(settings), key.secret))
        hearing = Hearing(overlay, market, runner.post, clock, metrics.heard)
        sequencer = Sequencer(SqlInbox(database), runner.post, market.status().inbox)
        standing = partial(_standing, market, overlay, sequencer, runner, clock)
        front = Front(
            rules=rules,
            deployment=deployment,
            inbox=SqlInbox(database),
            view=book,
            futures=SqlFutures(database),
            groups=SqlGroups(database),
            rounds=SqlRounds(database),
            clock=clock,
            sign=receipt_signer(key, deployment.domain),
            arrived=sequencer.wake,
            standing=standing,
            metrics=metrics,
            limiting=_limiting(settings),
            news=SqlNews(database),
        )
        runner.post(RulesSet(rules=rules))
        before = market.restated()
        await performer.restate([*unwritten.effects, *before])
        nursery = await stack.enter_async_context(trio.open_nursery())
        listening = hearing.listen, hearing.listen_to_verifiers, hearing.catch_up
        for task in (runner.run, performer.write, sequencer.run, *listening):
            nursery.start_soon(task)
        await _catch_up(nursery, chain, runner, performer)
        nursery.start_soon(performer.resend, before, market.restated, lambda: runner.waiting)
        await nursery.start(tell, book, standing)
        url = await _serve_own(nursery, create_app(front), settings.listen_http)
        _say_ready(peer=overlay.peer_id, addresses=list(overlay.addresses), http=url)


def rules_of(settings: MarketSettings, deployment: Deployment, matcher: Address) -> MarketRules:
    """The rules that settings make. Raises SettingsInvalid, for the attribute table as well."""
    if not settings.attributes:
        return settings.rules(deployment, matcher)
    try:
        table = from_json(Path(settings.attributes).read_bytes(), Attributes)
    except (OSError, ValueError) as error:
        raise SettingsInvalid(f"attributes: {settings.attributes}: {error}") from error
    return settings.rules(deployment, matcher, table)


async def _catch_up(
    nursery: trio.Nursery,
    chain: EvmChain,
    runner: Runner[MatchmakerEvent, MarketEffect],
    performer: Performer,
) -> None:
    """Follow the chain; back when all that it held is known: products, else, would be denied."""
    nursery.start_soon(follow, chain, runner.post)
    await chain.caught_up.wait()
    await performer.settle(lambda: runner.waiting)


async def _warm_up() -> None:
    """Load the kernel, or compile it where nothing was kept: later an auction would stand still."""
    from market.kernel import warm_up  # numba, which workers do without

    failure = await to_thread.run_sync(warm_up, abandon_on_cancel=True)
    if failure is not None:
        structlog.get_logger().warning("kernel.not_kept", error=failure)


async def _serve_own(nursery: trio.Nursery, made: FastAPI, listen: str) -> str:
    """The URL of the daemon's own HTTP; empty: only workers serve."""
    if not listen:
        return ""
    from market.api.server import serve_http  # hypercorn, which workers do without

    url: str = await nursery.start(serve_http, made, listen)
    return url


def _standing(
    market: Matchmaker,
    overlay: Overlay,
    sequencer: Sequencer,
    runner: Runner[MatchmakerEvent, MarketEffect],
    clock: SystemClock,
) -> Standing:
    status, now = market.status(), clock.now()
    return Standing(
        at=now,
        fee=status.fee,
        peer=overlay.peer_id,
        addresses=tuple(overlay.addresses),
        health=health_of(
            status,
            rules=market.rules,
            now=now,
            peers=len(overlay.peers()),
            inbox_read=sequencer.position,
            events_waiting=runner.waiting,
        ),
    )


def _limiting(settings: MarketSettings) -> Limiting:
    return Limiting(
        clock=SystemClock(),
        account=settings.account_limit,
        address=settings.address_limit,
        trusted=settings.proxies,
        is_loopback_limited=settings.loopback_limited,
    )


def _say_ready(**facts: object) -> None:
    print(json.dumps({"ready": True, **facts}), flush=True)  # noqa: T201 its word on stdout


def _overlay(settings: MarketSettings) -> OverlaySettings:
    from cloud_gpu.protocol.adapters.gossip import OverlaySettings

    return OverlaySettings(
        topics=(ASKS_TOPIC, VERIFIERS_TOPIC),
        listen=settings.listen_overlay,
        bootstrap=settings.bootstrap,
    )


if __name__ == "__main__":
    main()
