"""`cloud-gpu up` hands its keeper the same wish, whatever was asked for."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from cloud_gpu.protocol.errors import ChainUnavailable
from tests.unit.cli.worlds import PretendWorld, called

PROVIDER, OTHER = "0x" + "11" * 20, "0x" + "22" * 20


class World(PretendWorld):
    """Notes what a keeper is told, and what a session is opened for; then it fails."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.wanted: list[dict[str, Any]] = []

    def leases(self) -> Any:
        return self

    def free_name(self) -> str:
        return "mine"

    def is_kept(self, name: str) -> bool:
        return False

    def forget(self, name: str) -> None:
        """There is nothing."""

    def keeping(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def start_keeper(self, name: str, arguments: list[str]) -> Any:
        self.words = arguments
        raise ChainUnavailable("no keeper here")

    def session(self, settings: Any, say: Any, **words: Any) -> Any:
        self.wanted.append(words)
        raise ChainUnavailable("no session here")


@pytest.mark.parametrize(
    "wish",
    [
        ("--gpu", "A100:2"),
        ("--gpu", "A100", "--interruptible", "--region", "EU", "--isolation", "gvisor"),
        ("--gpu", "H100 region=US", "--duration", "2h", "--start-by", "5m", "--timeout", "90s"),
        ("--gpu", "A100", "--verified", "--audit-bps", "900", "--provider", PROVIDER),
        ("--gpu", "A100", "--exclude-provider", PROVIDER, "--exclude-provider", OTHER),
    ],
)
def test_a_keeper_wants_what_its_user_wanted(wish: tuple[str, ...]) -> None:
    world = World()
    called(world, "up", "--foreground", *wish)
    called(world, "up", "--yes", *wish)
    called(world, *world.words)
    wanted, kept = world.wanted
    assert kept == wanted
    assert wanted["interruptible"] is ("--interruptible" in wish)
