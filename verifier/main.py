"""Wires the verifier: settings, keys, chain, overlay, coordinator, runner. It decides nothing.

What the daemon alone needs (chain, overlay) is imported by it, since it takes a second.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from cloud_gpu.protocol.adapters.artifacts import ArtifactStore
from cloud_gpu.protocol.adapters.clock import SystemClock
from cloud_gpu.protocol.adapters.command_line import run_command_line
from cloud_gpu.protocol.adapters.deployment_files import read_deployment
from cloud_gpu.protocol.adapters.keystore import load_key
from cloud_gpu.protocol.adapters.logs import configure_logs
from cloud_gpu.protocol.adapters.runner import Runner, run_trio
from cloud_gpu.protocol.deployment import Deployment
from cloud_gpu.protocol.effects import VerifierEffect
from cloud_gpu.protocol.events import VerifierEvent
from cloud_gpu.protocol.identity import LocalKey, PeerId
from cloud_gpu.protocol.topics import ASKS_TOPIC, VERIFIERS_TOPIC
from cloud_gpu.protocol.values import Digest
from verifier.adapters.files import Files
from verifier.adapters.hearing import Hearing, follow
from verifier.adapters.performer import Performer, lane_of
from verifier.adapters.preimages import load_preimages, make_preimages
from verifier.adapters.reading import read_audit, read_text
from verifier.adapters.records import Records
from verifier.adapters.repeater import Repeater, find_program, open_repeater
from verifier.adapters.replay import Replays
from verifier.checking import Check, check_record
from verifier.cli.app import app
from verifier.cli.outside import Audited, Outside
from verifier.coordinator import Coordinator
from verifier.settings import VerifierSettings, parse_settings

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.evm import EvmChain
    from cloud_gpu.protocol.adapters.gossip import Overlay


def main() -> None:
    """The console script."""
    outside = Outside(load=load_settings, serve=serve_settings, anchor=anchor, check=check)
    sys.exit(run_command_line(app, "cloud-gpu-verifier", outside, sys.argv[1:]))


def load_settings(path: Path) -> VerifierSettings:
    """Read the settings file; raises `SettingsInvalid`."""
    return parse_settings(read_text(path), os.environ)


def anchor(settings: VerifierSettings) -> Digest:
    """What the contract is constructed with; the chain's seed is made where there is none."""
    make_preimages(settings.preimages_file)
    return load_preimages(settings.preimages_file, settings.preimages).anchor


def check(audited: Audited) -> tuple[Check, ...]:
    """Recompute an audit."""
    deployment = read_deployment(audited.deployment)

    source = audited.record, audited.verifier or "", audited.batch or ""
    record, ledger = trio.run(read_audit, *source, audited.rpc, deployment)
    return check_record(record, ledger, deployment)


def serve_settings(settings: VerifierSettings) -> int:
    """Run the daemon until it is told to stop; its exit code."""
    configure_logs(settings.log_level)
    return run_trio(partial(serve, settings))


async def serve(settings: VerifierSettings) -> None:
    """The daemon."""
    from cloud_gpu.protocol.adapters.evm import EvmChain
    from cloud_gpu.protocol.adapters.gossip import OverlaySettings, open_overlay

    settings.data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = load_key(settings.keystore, settings.password_file)
    deployment = read_deployment(settings.deployment)
    overlay_settings = OverlaySettings(
        topics=(ASKS_TOPIC, VERIFIERS_TOPIC),
        listen=settings.listen_overlay,
        bootstrap=settings.bootstrap,
    )
    outbox = settings.data_folder / "outbox.sqlite3"
    program = find_program(
        os.environ,
        market=settings.market,
        rpc=settings.rpc,
        deployment=settings.deployment,
        keystore=settings.audit_keystore,
        password_file=settings.audit_password_file,
        max_price=settings.max_price,
    )
    async with AsyncExitStack() as stack:
        chain = await stack.enter_async_context(EvmChain(settings.rpc, deployment, key, outbox))
        overlay = await stack.enter_async_context(open_overlay(overlay_settings, key.secret))
        repeater = await stack.enter_async_context(open_repeater(program, settings.data_folder))
        nursery = await stack.enter_async_context(trio.open_nursery())
        await _audit(settings, key, deployment, chain, overlay, repeater, nursery)


async def _audit(
    settings: VerifierSettings,
    key: LocalKey,
    deployment: Deployment,
    chain: EvmChain,
    overlay: Overlay,
    repeater: Repeater,
    nursery: trio.Nursery,
) -> None:
    from cloud_gpu.protocol.adapters.artifact_exchange import ArtifactExchange

    records = Records(settings.data_folder / "records")
    coordinator = Coordinator(
        deployment=deployment,
        key=key,
        peer=PeerId(overlay.peer_id),
        addresses=overlay.addresses,
        preimages=load_preimages(settings.preimages_file, settings.preimages),
        history_until=await chain.chain_time(),
        records=records.all(),
    )
    performer = Performer(chain, overlay, records)
    runner = Runner[VerifierEvent, VerifierEffect](
        coordinator, performer, SystemClock(), name="verifier", lane=lane_of
    )
    store = ArtifactStore(settings.data_folder / "artifacts", settings.artifacts_mib * 2**20)
    exchange = ArtifactExchange(overlay, store, coordinator.may)
    performer.replays = Replays(
        folder=settings.data_folder,
        files=Files(store, exchange),
        repeater=repeater,
        deployment=deployment,
        post=runner.post,
        at_once=settings.replays_at_once,
    )
    records.serve(overlay)
    hearing = Hearing(overlay, runner.post)

    for task in (
        partial(follow, chain, runner.post),
        hearing.asks,
        hearing.notices,
        hearing.catch_up,
    ):
        nursery.start_soon(task)
    where = {"peer": overlay.peer_id, "addresses": list(overlay.addresses), "http": None}
    ready = {"ready": True, **where, "verifier": str(key.address)}
    print(json.dumps(ready), flush=True)  # noqa: T201 the daemon's one word on stdout
    await runner.run()


if __name__ == "__main__":
    main()
