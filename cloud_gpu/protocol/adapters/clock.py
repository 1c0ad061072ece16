"""The only wall clock in the repository."""

from __future__ import annotations

import time

from cloud_gpu.protocol.units import Instant


class SystemClock:
    """The machine's clock, Unix milliseconds."""

    def now(self) -> Instant:
        """Now. May step when the machine's clock is corrected: parties only compare deadlines."""
        return time.time_ns() // 1_000_000
