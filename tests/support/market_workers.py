"""API workers as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.market_daemon import ENVIRONMENT


@dataclass
class Workers:
    """A running `cloud-gpu-market api`."""

    process: subprocess.Popen[bytes]
    url: str

    def pids(self) -> list[int]:
        """Those that serve; Python's own helper process is none of them."""
        children = psutil.Process(self.process.pid).children()
        return [each.pid for each in children if "spawn_main" in " ".join(each.cmdline())]

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=30)


def start_workers(config: Path, count: int) -> Workers:
    """Start them and wait for the ready line."""
    log = config.with_suffix(".workers.log")
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "market.main", "api"),
                *("--config", str(config), "--workers", str(count)),
            ],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=ENVIRONMENT,
        )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.stdout.close()
    if not line:
        code = process.wait(timeout=10)
        raise AssertionError(f"the workers ended with {code}:\n{log.read_text()}")
    return Workers(process, str(json.loads(line)["http"]))
