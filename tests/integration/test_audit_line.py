"""Everybody as a process: a liar is convicted by two verifiers, an honest provider is paid."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio

from cloud_gpu.protocol.audit import BatchState
from cloud_gpu.protocol.chain_events import BatchFinalised, SegmentConvicted
from cloud_gpu.protocol.values import Address
from tests.support.anvil import key
from tests.support.audit_line import LIAR, VERIFIERS, AuditLine, audit_line
from tests.support.person import Answer
from tests.support.verifier_daemon import said
from tests.support.watching import Watch, watched

pytestmark = [pytest.mark.timeout(600), pytest.mark.alone]

JOB = "import pathlib; o = pathlib.Path('out'); o.mkdir(); (o / 'a.txt').write_text('42')"


def rent(line: AuditLine) -> Answer:
    """One job in a verified lease of its own."""
    return line.buyer.runs(
        *("run", "--gpu", "A100", "--duration", "10m", "--verified", "--yes", "--json"),
        *("--", "python3", "-c", JOB),
        within_s=180,
    )


async def test_a_liar_is_convicted_and_the_honest_are_paid(tmp_path: Path) -> None:
    with audit_line(tmp_path) as line:
        outbox = tmp_path / "watch.sqlite3"
        async with watched(line.deployed, line.deployed.key("nobody"), outbox) as watch:
            await trio.to_thread.run_sync(line.market.client.get, "/healthz")
            await _audited(line, watch)


async def _audited(line: AuditLine, watch: Watch) -> None:
    with ThreadPoolExecutor(2) as pool:  # side by side, so that the liar serves only one
        ran = [pool.submit(rent, line) for _ in range(2)]
        await trio.to_thread.run_sync(lambda: [each.result() for each in ran])
    answers = [each.result() for each in ran]
    assert [each.code for each in answers] == [0, 0], [each.err for each in answers] + [line.logs()]
    assert all("once its results passed their audit" in each.err for each in answers)
    leases = [Address.parse(each.json["lease"].split("/")[0]) for each in answers]
    liar = key(LIAR).address
    assert liar in leases, "the cheapest provider was not rented"
    (honest,) = set(leases) - {liar}
    await trio.to_thread.run_sync(line.restart, VERIFIERS[1])  # nothing is lost by that

    def ended(provider: Address) -> Callable[[BatchFinalised], bool]:
        return lambda e: e.lease.provider == provider

    try:
        convicted = await watch.wait_for(SegmentConvicted, within_s=240)
        of_liar = await watch.wait_for(BatchFinalised, ended(liar), within_s=60)
        of_honest = await watch.wait_for(BatchFinalised, ended(honest), within_s=240)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{line.logs()}") from error
    assert convicted.lease.provider == liar
    assert of_liar.state is BatchState.PARTIAL
    assert (of_liar.provider.value, of_honest.state) == (0, BatchState.FINAL)
    assert of_honest.provider.value > 0
    assert not [e for e in watch.all(SegmentConvicted) if e.lease.provider != liar]
    await trio.to_thread.run_sync(_checked_again, line, f"{convicted.lease}#0")


def _checked_again(line: AuditLine, batch: str) -> None:
    """By somebody who trusts neither verifier: from the chain, and the record one published."""
    words = ["check", "--deployment", str(line.buyer.home / "deployment.json")]
    words += ["--rpc", line.deployed.rpc_url, "--batch", batch, "--verifier"]
    found = [said(*words, daemon.addresses[0]) for daemon in line.verifiers.values()]
    shown = [each for each in found if each.returncode == 0]
    assert shown, [each.stdout + each.stderr for each in found]
    assert "two equal verdicts" in shown[0].stdout
