"""Composes the SDK and the command line: settings, wallet, market, chain and overlay into clients.

`Session` and `AsyncSession` are made here; `main` hands the command line its outside world. Heavy
libraries are imported when something is opened.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cloud_gpu.adapters.client_folder import client_folder, remove_left_folders
from cloud_gpu.adapters.configuration import keep_logs_apart, load_settings
from cloud_gpu.adapters.gangs import BlockingGang
from cloud_gpu.adapters.given import BlockingGiven
from cloud_gpu.adapters.portal import PORTAL
from cloud_gpu.adapters.sessions import AsyncioSession, BlockingSession, SharedClients
from cloud_gpu.adapters.this_machine import ThisMachine
from cloud_gpu.client import Client
from cloud_gpu.opening import WaitedTooLong
from cloud_gpu.protocol.limits import ARTIFACT_BYTES_MAX
from cloud_gpu.settings import Settings

if TYPE_CHECKING:
    from cloud_gpu.group_buyer import GroupBuyer
    from cloud_gpu.protocol.lease import LeaseKey
    from cloud_gpu.taking import Given
    from cloud_gpu.trader import Trader

T = TypeVar("T")
Say = Callable[[str], None]


@asynccontextmanager
async def open_client(settings: Settings) -> AsyncIterator[Client]:
    """A client for as long as the block lasts; on trio.

    Raises `SettingsInvalid`, `ChainUnavailable`.
    """
    import trio

    from cloud_gpu.adapters.chain_feed import ChainFeed, open_chain
    from cloud_gpu.adapters.lines import BuyerLines
    from cloud_gpu.adapters.market_http import HttpMarket
    from cloud_gpu.adapters.several_markets import SeveralMarkets
    from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
    from cloud_gpu.protocol.adapters.clock import SystemClock
    from cloud_gpu.protocol.adapters.deployment_files import read_deployment
    from cloud_gpu.protocol.adapters.keystore import load_key
    from cloud_gpu.spending import Purse

    keep_logs_apart(settings.log_level)
    urls, rpc = [settings.need("market"), *settings.other_markets.split()], settings.need("rpc")
    key = load_key(Path(settings.need("keystore")), Path(settings.need("password_file")))
    deployment = read_deployment(Path(settings.need("deployment")))
    clock = SystemClock()
    await trio.to_thread.run_sync(remove_left_folders, os.getuid())
    with client_folder() as folder:
        store = ArtifactStore(folder / "files", ARTIFACT_BYTES_MAX)
        async with (
            AsyncExitStack() as stack,
            open_chain(rpc, deployment, key) as chain,
            trio.open_nursery() as nursery,
        ):
            markets = [await stack.enter_async_context(HttpMarket(url)) for url in urls]
            market = SeveralMarkets(markets) if len(markets) > 1 else markets[0]
            feed = ChainFeed(chain)
            nursery.start_soon(feed.run)

            async def start_lines() -> BuyerLines:
                from cloud_gpu.adapters.node_stream import started_node_stream

                wire = await nursery.start(started_node_stream, store)
                return BuyerLines(
                    nursery=nursery, wire=wire, store=store, feed=feed, market=market, clock=clock
                )

            yield Client(
                purse=Purse(account=key.address, signer=key, domain=deployment.domain),
                market=market,
                chain=feed,
                start_lines=_once(start_lines),
                clock=clock,
                deployment=deployment,
                draw=lambda: secrets.randbits(32),
                others=markets[1:],
            )
            nursery.cancel_scope.cancel()


def _once(start: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """What `start` gives, started once: leases that are opened side by side share one host."""
    import trio

    starting, started = trio.Lock(), list[T]()

    async def get() -> T:
        async with starting:
            if not started:
                started.append(await start())
        return started[0]

    return get


def _load(flags: Mapping[str, str | None]) -> Settings:
    return load_settings(flags, os.environ)


_CLIENTS = SharedClients(_load, open_client)


class Session(BlockingSession):
    """GPUs for as long as a `with` block lasts: bid, run, pay by the second, settle.

        with Session(gpu_type="A100", count=2, max_price="1.20", timeout="2h") as s:
            s.put("train.py")
            s.run("python train.py")
            s.get("out/")

    `gpu_type` is a GPU class or words of one; `max_price` tokens per GPU-hour, obligatory here or
    in the settings; durations are words ("2h") or seconds; `provider` and `exclude_providers` are
    addresses ("0x…"). Raises `ValueError` for a word that cannot be read; entering raises
    `NoMatch`, `FundsTooSmall`, `Rejected`, `MarketUnavailable`, `StartTimeout`, `SettingsInvalid`,
    `ChainUnavailable`.
    """

    clients = _CLIENTS


class GivenSession(BlockingGiven):
    """A `Session` in a lease that a future or a group buy opened for this account.

        with GivenSession("0x…/3/1") as s:
            s.run("python train.py")

    Named as `cloud-gpu group show` and `future positions` do, before its start deadline; or a
    `taking.Given`, to wait for what a campaign or a contract will open. Leaving a future's lease
    early costs margin for the time that is left. Raises as `Session`, and `Rejected` for a lease
    that cannot be taken up.
    """

    clients = _CLIENTS


class AsyncSession(AsyncioSession):
    """`Session` for an asyncio loop: `async with`, and every method awaited."""

    clients = _CLIENTS


class Gang(BlockingGang):
    """Several machines for one bid, which open together or not at all.

        with Gang(gpu_type="H100", count=64, min_count=32, scope="fabric", timeout="6h") as gang:
            gang.put("train.py")
            gang.run("torchrun --nnodes $NNODES --node-rank $NODE_RANK train.py")

    `scope` says how near the machines are: node, fabric, region or any; `chunk` how many GPUs come
    together at a node; `min_count` how few will do. Every machine is paid its own price, none more
    than `max_price`. Words and errors are those of `Session`.
    """

    clients = _CLIENTS


def open_trader(
    settings: Settings | None = None, within_s: float = 120
) -> AbstractContextManager[Trader]:
    """Futures: GPU time bought or sold ahead, with the settings' wallet at their market.

        with open_trader() as trader:
            order = trader.buy("A100:2", start="7d", length="1d", max_price="1.20")
            trader.market.report(order.payload.id)  # the contract, once a batch opened one
            trader.contracts.fund(1)

    Blocking; a transaction is waited for `within_s` seconds. Raises `SettingsInvalid`,
    `ChainUnavailable`.
    """
    from cloud_gpu.adapters.desks import opened_trader

    chosen = settings or _load({})
    keep_logs_apart(chosen.log_level)
    return opened_trader(chosen, within_s)


def open_group_buyer(
    settings: Settings | None = None, within_s: float = 120
) -> AbstractContextManager[GroupBuyer]:
    """Group buys: several buyers lock money for a block of machines, and get it or get it back.

        with open_group_buyer() as buyer:
            offer = buyer.offer("A100", price="1.00", duration="2h", goal=3, deadline="3d")
            campaign = buyer.open(offer)
            buyer.hand_in(buyer.pledge(offer.campaign, slices=1))
            buyer.campaign(campaign).report.missing_slices

    Blocking; a transaction is waited for `within_s` seconds. Raises `SettingsInvalid`,
    `ChainUnavailable`.
    """
    from cloud_gpu.adapters.desks import opened_group_buyer

    chosen = settings or _load({})
    keep_logs_apart(chosen.log_level)
    return opened_group_buyer(chosen, within_s)


class _Outside(ThisMachine):
    """The command line's outside world; see `cloud_gpu.cli.outside.Outside`."""

    def settings(self, flags: Mapping[str, str | None]) -> Settings:
        """From flags, environment and files. Raises `SettingsInvalid`."""
        return _load(flags)

    def ask(
        self,
        settings: Settings,
        work: Callable[[Client], Awaitable[T]],
        say: Say,  # noqa: ARG002
        within_s: float | None,
    ) -> T:
        """See `cloud_gpu.cli.outside.Outside`."""
        import trio

        async def answer() -> T:
            with trio.move_on_after(math.inf if within_s is None else within_s):
                async with open_client(settings) as client:
                    return await work(client)
            raise WaitedTooLong(f"market and chain gave no answer in {within_s:g} s")

        return PORTAL.call(answer)

    def given_session(
        self, settings: Settings, say: Say, lease: LeaseKey | Given, within_s: int | None
    ) -> GivenSession:
        """A `GivenSession` of these settings."""
        return GivenSession(lease, open_timeout=within_s, settings=settings, say=say)

    def trader(self, settings: Settings, within_s: float) -> AbstractContextManager[Trader]:
        """See `open_trader`."""
        return open_trader(settings, within_s)

    def group_buyer(
        self, settings: Settings, within_s: float
    ) -> AbstractContextManager[GroupBuyer]:
        """See `open_group_buyer`."""
        return open_group_buyer(settings, within_s)

    def session(self, settings: Settings, say: Say, **words: Any) -> Session:
        """A `Session` of these settings."""
        return Session(settings=settings, say=say, **words)


def main() -> None:
    """The console script `cloud-gpu`."""
    from cloud_gpu.cli.app import run

    sys.exit(run(_Outside(), sys.argv[1:]))
