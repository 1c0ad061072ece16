"""Rent GPU time from a market that nobody has to trust: `from cloud_gpu import Session`.

Names are fetched when they are first used. Every daemon loads this file on its way to
`cloud_gpu.protocol`, so it imports nothing: no SDK, no event loop, no chain.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloud_gpu.client import Job, Lease
    from cloud_gpu.main import AsyncSession, Session

__version__ = "0.1.0"
__all__ = ["AsyncSession", "Job", "Lease", "Session", "__version__"]

_HOME = {
    "AsyncSession": "cloud_gpu.main",
    "Job": "cloud_gpu.client",
    "Lease": "cloud_gpu.client",
    "Session": "cloud_gpu.main",
}


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
