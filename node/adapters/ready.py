"""What the daemon says on stdout: one line of JSON, once it can be reached."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloud_gpu.protocol.adapters.gossip import Overlay


def say_ready(overlay: Overlay, runtime: str, stand_ins: Sequence[str]) -> None:
    """The daemon's one word on stdout."""
    ready = {
        "ready": True,
        "peer": overlay.peer_id,
        "addresses": list(overlay.addresses),
        "http": None,
        "runtime": runtime,
        "stand_ins": list(stand_ins),
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
