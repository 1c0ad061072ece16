"""A market to test against."""

from __future__ import annotations

import pytest

from tests.unit.market.builders import Desk, joined, provider


@pytest.fixture
def desk() -> Desk:
    """A market with two providers of two machines each, and two buyers with money."""
    desk = Desk()
    desk.mine(*provider("ada", 2), *provider("eve", 2), *joined("bob", 100), *joined("dan", 100))
    return desk
