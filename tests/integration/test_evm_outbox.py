"""The outbox's file: private, of one process, of one key and chain."""

import stat
from pathlib import Path

import pytest

from cloud_gpu.protocol.errors import SettingsInvalid
from tests.support.anvil import Deployed, deployed_on, key, running_anvil
from tests.support.watching import watched


async def test_an_outbox_is_private_to_its_user_and_to_one_process(
    deployed: Deployed, tmp_path: Path
) -> None:
    buyer, path = deployed.member("buyer"), tmp_path / "keys" / "outbox"
    async with watched(deployed, buyer, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        with pytest.raises(SettingsInvalid, match="another process sends with this key"):
            async with watched(deployed, buyer, path):
                pass


async def test_an_outbox_of_another_key_or_chain_is_refused(
    deployed: Deployed, tmp_path: Path
) -> None:
    async with watched(deployed, key("buyer"), tmp_path / "outbox"):
        pass
    with pytest.raises(SettingsInvalid, match=r"written for key 0x.*delete the file"):
        async with watched(deployed, key("node"), tmp_path / "outbox"):
            pass
    # The same addresses on a chain that began at another time.
    with running_anvil("--timestamp", "1700000000") as other:
        elsewhere = deployed_on(other)
        with pytest.raises(SettingsInvalid, match="another data folder"):
            async with watched(elsewhere, key("buyer"), tmp_path / "outbox"):
                pass


async def test_an_outbox_that_cannot_be_written_says_so(deployed: Deployed, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SettingsInvalid, match="cannot be opened"):
        async with watched(deployed, key("buyer"), tmp_path / "file" / "outbox"):
            pass
