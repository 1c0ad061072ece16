"""Wires the node: settings, key, chain, overlay, runtime, provider, runner. It decides nothing."""

from __future__ import annotations

import json
import os
import sys
from contextlib import aclosing
from functools import partial
from pathlib import Path

import trio

from cloud_gpu.protocol.adapters.artifact_exchange import ArtifactExchange
from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.adapters.clock import SystemClock
from cloud_gpu.protocol.adapters.evm import EvmChain, read_deployment
from cloud_gpu.protocol.adapters.gossip import Overlay, OverlaySettings, open_overlay
from cloud_gpu.protocol.adapters.keystore import load_key
from cloud_gpu.protocol.adapters.runner import Runner, run_trio
from cloud_gpu.protocol.effects import ProviderEffect
from cloud_gpu.protocol.errors import SettingsInvalid
from cloud_gpu.protocol.events import NodeStarted, ProviderEvent
from cloud_gpu.protocol.identity import NodeBinding, PeerId
from node.adapters.binding import read_binding
from node.adapters.journal import SqliteJournal
from node.adapters.logs import configure_logs
from node.adapters.peers import ASKS_TOPIC, Peers, authorisation
from node.adapters.performer import Performer, lane_of
from node.adapters.probes import Probes
from node.adapters.room import MachineRoom
from node.adapters.runtimes import choose_runtime
from node.announcing import Announcements
from node.cli.app import run
from node.cli.outside import Outside
from node.provider import Provider
from node.settings import NodeSettings, parse_settings


def main() -> None:
    """The console script."""
    sys.exit(run(Outside(load=load_settings, serve=serve_settings), sys.argv[1:]))


def load_settings(path: Path) -> NodeSettings:
    """Read the settings file; raises `SettingsInvalid`."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"the settings file cannot be read: {error}") from error
    return parse_settings(text, os.environ)


def serve_settings(settings: NodeSettings) -> int:
    """Run the daemon until it is told to stop; its exit code."""
    configure_logs(settings.log_level)
    return run_trio(partial(serve, settings))


async def serve(settings: NodeSettings) -> None:
    """The daemon."""
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
            wanted=NodeBinding(provider=settings.provider, node_key=key.address, peer=peer),
            at=SystemClock().now() // 1000,
        )
        announcements = Announcements(
            binding=binding,
            addresses=overlay.addresses,
            policies=settings.policies(),
            interval_s=settings.ask_interval_s,
            domain=deployment.domain,
            key=key,
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
    folder = settings.data_folder
    store = ArtifactStore(folder / "artifacts", settings.artifacts_mib * 2**20)
    performer = Performer(chain)
    runner = Runner[ProviderEvent, ProviderEffect](
        provider,
        performer,
        SystemClock(),
        name="node",
        lane=lane_of,
        journal=SqliteJournal(folder / "journal.sqlite", provider.must_survive),
    )
    runner.replay()
    probes = Probes(settings.machines, folder)
    chosen = await choose_runtime(settings, nursery, store, runner.post, probes)
    performer.room = room = MachineRoom(
        provider=settings.provider,
        probes=probes,
        runtime=chosen.runtime,
        isolation=chosen.isolation,
        engine_faults=chosen.faults,
        post=runner.post,
    )
    performer.peers = Peers(overlay, runner.post, lambda: provider.adverts)
    ArtifactExchange(overlay, store, authorisation(provider.may_fetch, provider.may_push))
    runner.post(NodeStarted(at=await chain.chain_time()))
    await room.adopt()

    async def follow() -> None:
        async with aclosing(chain.events()) as events:
            async for event in events:
                runner.post(event)

    nursery.start_soon(follow)
    ready = {
        "ready": True,
        "peer": overlay.peer_id,
        "addresses": list(overlay.addresses),
        "http": None,
        "runtime": chosen.name,
        "stand_ins": [*chosen.stand_ins, *settings.stand_ins],
    }
    print(json.dumps(ready), flush=True)  # noqa: T201 the daemon's one word on stdout
    await runner.run()


if __name__ == "__main__":
    main()
