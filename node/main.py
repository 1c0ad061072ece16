"""Wires the node: settings, key, chain, overlay, runtime, provider, runner. It decides nothing.

What the daemon alone needs (chain, overlay, engine) is imported by it, since it takes a second.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import trio

from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.adapters.clock import SystemClock
from cloud_gpu.protocol.adapters.command_line import run_command_line
from cloud_gpu.protocol.adapters.deployment_files import read_deployment
from cloud_gpu.protocol.adapters.keystore import load_key
from cloud_gpu.protocol.adapters.logs import configure_logs
from cloud_gpu.protocol.adapters.runner import Runner, run_trio
from cloud_gpu.protocol.codec import to_builtins
from cloud_gpu.protocol.effects import ProviderEffect
from cloud_gpu.protocol.events import DrainAsked, NodeStarted, NoticeWanted, ProviderEvent
from cloud_gpu.protocol.identity import PeerId
from cloud_gpu.protocol.topics import ASKS_TOPIC
from node.adapters.binding import read_binding
from node.adapters.control import Answers, ask_daemon, serve_control
from node.adapters.faults import with_fault
from node.adapters.files import read_settings
from node.adapters.journal import SqliteJournal
from node.adapters.keeping import Keeping
from node.adapters.peers import Peers
from node.adapters.performer import Performer, lane_of
from node.adapters.probes import Probes, survey
from node.adapters.ready import say_ready
from node.adapters.room import MachineRoom
from node.announcing import Announcements
from node.cli.app import app
from node.cli.outside import Outside
from node.notices import NoticeOutlook
from node.provider import Provider
from node.settings import NodeSettings
from node.standing import Finding

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.evm import EvmChain
    from cloud_gpu.protocol.adapters.gossip import Overlay


def main() -> None:
    """The console script."""
    outside = Outside(
        load=partial(read_settings, environment=os.environ),
        serve=serve_settings,
        probe=survey,
        ask=lambda settings, words: ask_daemon(settings.data_folder, words),
        examine=examine,
    )
    sys.exit(run_command_line(app, "cloud-gpu-node", outside, sys.argv[1:]))


def examine(settings: NodeSettings) -> Iterator[Finding]:
    """What `doctor` finds."""
    from node.adapters import checkup

    return checkup.examine(settings)


def serve_settings(settings: NodeSettings) -> int:
    """Run the daemon until it is told to stop; its exit code."""
    configure_logs(settings.log_level)
    return run_trio(partial(serve, settings))


async def serve(settings: NodeSettings) -> None:
    """The daemon."""
    from cloud_gpu.protocol.adapters.evm import EvmChain
    from cloud_gpu.protocol.adapters.gossip import OverlaySettings, open_overlay

    settings.data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = load_key(settings.keystore, settings.password_file)
    deployment = read_deployment(settings.deployment)
    overlay_settings = OverlaySettings(
        topics=(ASKS_TOPIC,), listen=settings.listen_overlay, bootstrap=settings.bootstrap
    )
    async with (
        EvmChain(settings.rpc, deployment, key, settings.data_folder / "outbox.sqlite") as chain,
        open_overlay(overlay_settings, key.secret) as overlay,
        trio.open_nursery() as nursery,
    ):
        peer = PeerId(overlay.peer_id)
        binding = read_binding(
            settings.binding,
            deployment.domain,
            provider=settings.provider,
            node_key=key.address,
            at=SystemClock().now() // 1000,
            peer=peer,
        )
        announcements = Announcements(
            binding=binding,
            addresses=overlay.addresses,
            policies=settings.policies(deployment.group_buy),
            futures=deployment.futures,
            interval_s=settings.ask_interval_s,
            clearance_s=deployment.windows.start + deployment.windows.claim,
            domain=deployment.domain,
            key=key,
            threshold=settings.preemption_threshold,
        )
        provider = Provider(deployment=deployment, key=key, peer=peer, announcements=announcements)
        await _run(settings, provider, chain, overlay, nursery)


async def _run(
    settings: NodeSettings,
    provider: Provider,
    chain: EvmChain,
    overlay: Overlay,
    nursery: trio.Nursery,
) -> None:
    from cloud_gpu.protocol.adapters.artifact_exchange import ArtifactExchange
    from node.adapters.runtimes import choose_runtime

    folder = settings.data_folder
    store = ArtifactStore(folder / "artifacts", settings.artifacts_mib * 2**20)
    performer = Performer(chain)
    journal = SqliteJournal(folder / "journal.sqlite", provider.must_survive)
    runner = Runner[ProviderEvent, ProviderEffect](
        provider, performer, SystemClock(), name="node", lane=lane_of, journal=journal
    )
    runner.replay()
    journal.prune(provider.remembers)
    probes = Probes(settings.machines, folder)
    post = with_fault(settings.fault, runner.post, store)
    chosen = await choose_runtime(settings, nursery, store, post, probes)
    performer.room = room = MachineRoom(
        provider=settings.provider,
        probes=probes,
        runtime=chosen.runtime,
        isolation=chosen.isolation,
        engine_faults=chosen.faults,
        post=runner.post,
    )
    performer.peers = Peers(overlay, runner.post, lambda: provider.adverts)
    keeping = Keeping(
        store,
        may_fetch=provider.may_fetch,
        may_push=provider.may_push,
        is_kept=provider.keeps_file,
        peer_bytes_max=store.bytes_max // (2 * len(settings.machines)),
    )
    ArtifactExchange(overlay, store, keeping.authorise)
    nursery.start_soon(keeping.sweep_for_ever)
    runner.post(NodeStarted(at=await chain.chain_time()))
    await room.adopt()
    nursery.start_soon(performer.follow_chain, runner.post)
    nursery.start_soon(serve_control, folder, _answers(provider, runner.post))
    say_ready(overlay, chosen.name, (*chosen.stand_ins, *settings.stand_ins))
    try:
        await runner.run()
    finally:
        await room.stop(end_jobs=settings.end_jobs_on_stop)
        journal.close()


def _answers(provider: Provider, post: Callable[[ProviderEvent], None]) -> Answers:
    """What the operator's commands say to the daemon."""

    def notice(target: str) -> object:
        found = provider.notice_for(target)
        if isinstance(found, NoticeOutlook):
            post(NoticeWanted(lease=found.lease))
        return to_builtins(found)

    return {
        "status": lambda _: to_builtins(provider.standing),
        "drain": lambda _: post(DrainAsked()),
        "notice": notice,
    }


if __name__ == "__main__":
    main()
