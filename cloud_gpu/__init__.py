"""Rent GPU time from a market that nobody has to trust: `from cloud_gpu import Session`.

Names are fetched when they are first used. Every daemon loads this file on its way to
`cloud_gpu.protocol`, so it imports nothing: no SDK, no event loop, no chain.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloud_gpu.client import Job, Lease
    from cloud_gpu.main import (
        AsyncSession,
        Gang,
        GivenSession,
        Session,
        open_group_buyer,
        open_trader,
    )
    from cloud_gpu.outcomes import Bill, Cost, RunResult
    from cloud_gpu.protocol.errors import (
        ChainUnavailable,
        CloudGpuError,
        FundsTooSmall,
        LeaseInterrupted,
        MarketUnavailable,
        NoMatch,
        Rejected,
        RunError,
        SettingsInvalid,
        StartTimeout,
    )

__version__ = "0.1.0"
__all__ = [
    "AsyncSession",
    "Bill",
    "ChainUnavailable",
    "CloudGpuError",
    "Cost",
    "FundsTooSmall",
    "Gang",
    "GivenSession",
    "Job",
    "Lease",
    "LeaseInterrupted",
    "MarketUnavailable",
    "NoMatch",
    "Rejected",
    "RunError",
    "RunResult",
    "Session",
    "SettingsInvalid",
    "StartTimeout",
    "__version__",
    "open_group_buyer",
    "open_trader",
]

_ELSEWHERE = {
    "cloud_gpu.client": ("Job", "Lease"),
    "cloud_gpu.main": (
        "AsyncSession",
        "Gang",
        "GivenSession",
        "Session",
        "open_group_buyer",
        "open_trader",
    ),
    "cloud_gpu.outcomes": ("Bill", "Cost", "RunResult"),
}
_HOME = {name: home for home, names in _ELSEWHERE.items() for name in names}
_HOME |= {
    name: "cloud_gpu.protocol.errors" for name in __all__ if name not in {*_HOME, "__version__"}
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
