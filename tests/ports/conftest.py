"""The runtimes on which the suite of the port `Runtime` runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.runtimes import Bench, bench, engine

RUNTIMES = [
    "process",
    pytest.param("runc", marks=pytest.mark.docker),
    pytest.param("runsc", marks=pytest.mark.docker),
]


@pytest.fixture(params=RUNTIMES)
async def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    if request.param == "runsc" and "runsc" not in engine().info()["Runtimes"]:
        pytest.skip("NOT TESTED on gVisor: the engine has no runtime runsc")
    async with bench(request.param, tmp_path) as made:
        yield made
