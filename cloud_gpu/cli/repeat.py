"""`cloud-gpu repeat SPEC.json`: run another lease's job word for word, elsewhere.

How a verifier has a drawn segment re-executed: an ordinary lease of its audit account that some
providers may not get. Hidden, since a person would use `run`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cloud_gpu.cli.failures import UsageWrong
from cloud_gpu.cli.invocation import Invocation
from cloud_gpu.cli.output import money
from cloud_gpu.cli.requirements import (
    Count,
    Duration,
    ExcludeProvider,
    Gpu,
    MaxPrice,
    StartBy,
    requirement,
)
from cloud_gpu.client import Client, Lease
from cloud_gpu.outcomes import RunResult
from cloud_gpu.protocol.codec import from_json
from cloud_gpu.protocol.errors import OutsideWorldError
from cloud_gpu.protocol.job import FileRef, JobSpec


def repeat(
    run: Invocation,
    spec: Annotated[Path, typer.Argument(help="The job: JSON of its spec.")],
    gpu: Gpu,
    inputs: Annotated[Path, typer.Option(help="Its input files, each named by its sha256.")],
    results: Annotated[Path, typer.Option(help="Where to put output files, by sha256.")],
    count: Count = 1,
    max_price: MaxPrice = None,
    duration: Duration = "1h",
    start_by: StartBy = "60s",
    exclude_provider: ExcludeProvider = None,
    fetch_mib_max: Annotated[
        int, typer.Option(help="Larger output files stay where they are.")
    ] = 256,
) -> int:
    """Run a job of another lease word for word, and say what it gave."""
    settings = run.settings(max_price=max_price)
    request = requirement(
        settings,
        gpu=gpu,
        count=count,
        duration=duration,
        start_by=start_by,
        region=None,
        isolation=None,
        exclude_provider=exclude_provider,
    )
    job = _read(spec)

    async def work(client: Client) -> dict[str, Any]:
        lease = await client.open(
            request,
            echo=lambda _, __: None,
            progress=run.say.progress,
            within_s=run.wait,
        )
        try:
            result = await lease.repeat(job, inputs)
            fetched = await _fetch(lease, result, results, fetch_mib_max * 2**20)
        finally:
            bill = await lease.close()
        return _payload(lease, result, fetched) | {"paid": money(bill.paid)}

    payload = run.outside.ask(settings, work, run.say.progress, within_s=None)
    run.say.result("repeat", payload, lambda: f"exit code {payload['exit_code']}")
    return 0


async def _fetch(
    lease: Lease, result: RunResult, folder: Path, bytes_max: int
) -> tuple[FileRef, ...]:
    fetched = []
    for file in result.outputs:
        if file.size > bytes_max:
            continue
        try:
            await lease.get(file.path, folder / file.sha256)
        except (OutsideWorldError, FileNotFoundError):
            continue  # it is named in the result, and missing among the fetched
        fetched.append(file)
    return tuple(fetched)


def _payload(lease: Lease, result: RunResult, fetched: tuple[FileRef, ...]) -> dict[str, Any]:
    return {
        "lease": str(lease.funded.lease),
        "provider": str(lease.funded.lease.provider),
        "outcome": str(result.outcome),
        "exit_code": result.code,
        "detail": result.detail,
        "outputs": [
            {
                "path": file.path,
                "sha256": file.sha256,
                "size": file.size,
                "executable": file.executable,
            }
            for file in result.outputs
        ],
        "fetched": sorted({file.sha256 for file in fetched}),
    }


def _read(path: Path) -> JobSpec:
    try:
        return from_json(path.read_bytes(), JobSpec)
    except (OSError, ValueError) as error:
        raise UsageWrong(f"{path}: found no job that can be read: {error}") from error
