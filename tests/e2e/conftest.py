"""A devnet for all scenarios of a file, and a person who uses it from the command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.person import Person


@pytest.fixture(scope="module")
def buyer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody who has typed `cloud-gpu devnet up`."""
    person = Person(tmp_path_factory.mktemp("buyer"))
    up = person.runs("devnet", "up", "--runtime", "process", "--json")
    assert up.code == 0, f"{up.out}\n{up.err}"
    yield person
    down = person.runs("devnet", "down")
    assert down.code == 0, down.err


@pytest.fixture
def newcomer(tmp_path: Path) -> Person:
    """Somebody with an empty home."""
    return Person(tmp_path)
