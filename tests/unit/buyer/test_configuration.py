"""Settings from the files of a machine, and logs that keep off a program's stdout."""

import subprocess
import sys
from pathlib import Path

import pytest

from cloud_gpu.adapters.configuration import load_settings
from cloud_gpu.protocol.errors import SettingsInvalid


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's folders, and a project to stand in."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_are_found_where_they_belong(home: Path) -> None:
    write(home / "config/cloud-gpu/contexts/devnet.toml", 'market = "http://devnet"')
    write(home / "config/cloud-gpu/contexts/lab.toml", 'market = "http://lab"\nrpc = "http://rpc"')
    assert load_settings({}, {}).market == "http://devnet"
    write(home / "config/cloud-gpu/config.toml", 'context = "lab"')
    assert load_settings({}, {}).market == "http://lab"
    write(home / "project/cloud-gpu.toml", 'market = "http://project"')
    found = load_settings({}, {"CLOUD_GPU_MAX_PRICE": "1.20"})
    assert (found.market, found.rpc, found.max_price) == ("http://project", "http://rpc", "1.20")
    assert load_settings({"market": "http://flag"}, {}).market == "http://flag"


def test_a_file_that_cannot_be_read_is_named(home: Path) -> None:
    (home / "project/cloud-gpu.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsInvalid, match=r"cloud-gpu\.toml: cannot be read"):
        load_settings({}, {})


PROGRAM = """
import logging, structlog
{before}
from cloud_gpu.adapters.configuration import keep_logs_apart
keep_logs_apart("{level}")
print("result")
structlog.get_logger().error("inner", part="x")
structlog.get_logger().info("chatter")
logging.getLogger("libp2p.transport.tcp").error("Failed to open TCP stream")
"""


def shown(level: str = "error", before: str = "") -> tuple[str, str]:
    program = PROGRAM.format(level=level, before=before)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_logs_go_to_stderr_and_libp2ps_nowhere() -> None:
    out, err = shown()
    assert out == "result\n"
    assert "inner" in err
    assert "chatter" not in err
    assert "TCP" not in err


def test_who_asks_for_more_gets_more() -> None:
    out, err = shown("info")
    assert out == "result\n"
    assert "chatter" in err
    assert "TCP" in err


def test_a_program_that_set_up_its_logs_keeps_them() -> None:
    before = "logging.getLogger('libp2p').setLevel(logging.ERROR)\nstructlog.configure()"
    out, err = shown(before=before)
    assert "inner" in out
    assert "TCP" in err


def test_a_command_line_that_only_answers_for_itself_loads_nothing_heavy() -> None:
    program = (
        "import sys, cloud_gpu.main, cloud_gpu.cli.app\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"eth_abi", "eth_utils", "httpx", "libp2p", "numpy", "pydantic", "rich", "structlog"}
    assert not heavy & set(loaded)
