"""`cloud-gpu-node probe`: what each machine's ask would say, and why one could not be offered."""

from __future__ import annotations

import json

import typer

from cloud_gpu.protocol.codec import to_builtins
from node.cli.options import AsJson, Config
from node.cli.outside import Outside


def probe(ctx: typer.Context, config: Config, as_json: AsJson = False) -> None:
    """Read the hardware behind each machine; nothing is started or announced."""
    outside: Outside = ctx.obj
    readings = outside.probe(outside.load(config))
    if as_json:
        print(
            json.dumps(
                {
                    "schema": 1,
                    "machines": [
                        {"index": index, "profile": to_builtins(profile), "faults": list(faults)}
                        for index, profile, faults in readings
                    ],
                }
            )
        )
    else:
        for index, profile, faults in readings:
            if profile is None:
                print(f"machine {index}: nothing found")
            else:
                count, gpu = len(profile.gpus), profile.gpus[0]
                stand_in = ", simulated" if profile.simulated else ""
                print(f"machine {index}: {count} x {gpu.model}, {gpu.memory_mib} MiB{stand_in}")
                print(
                    f"  {profile.cpu_cores} cores of {profile.cpu_model}, {profile.memory_mib} MiB"
                    f" memory, {profile.disk_mib} MiB disk"
                )
            for fault in faults:
                print(f"  NOT OFFERED: {fault}")
    if any(faults for _, _, faults in readings):
        raise typer.Exit(10)
