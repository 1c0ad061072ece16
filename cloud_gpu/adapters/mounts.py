"""What a devnet's nodes mounted below its folder: disks of leases that were open when it ended."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil


def unmount_below(folder: Path) -> list[str]:
    """Unmount everything below a folder; why what is left could not be, in words."""
    found = {Path(each.mountpoint) for each in psutil.disk_partitions(all=True)}
    failures = []
    for mount in sorted(each for each in found if each.is_relative_to(folder.resolve())):
        done = subprocess.run(
            ["umount", "--lazy", str(mount)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            failures.append(f"{mount} stays mounted: {done.stderr.strip()[:300]}")
    return failures
