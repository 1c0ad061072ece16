"""A deployment whose leases can be verified, for tests that ask for it."""

import pytest

from tests.unit.node import builders
from tests.unit.node.verified import DEPLOYMENT


@pytest.fixture
def verified_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builders, "DEPLOYMENT", DEPLOYMENT)
