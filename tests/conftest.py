"""What holds for every test: trio, no network but loopback, pinned Hypothesis profiles, and no
silent skip. A test that needs Docker, PostgreSQL or a GPU says so with a marker.
"""

import ipaddress
import os
import shutil
import subprocess
import sys
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.support.anvil",
    "tests.support.databases",
    "tests.support.market_api",
]

IN_CI = os.environ.get("CLOUD_GPU_CI") == "1"

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,  # the same commit gives the same verdict
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],  # two shared cores
)
settings.register_profile(
    "nightly", settings.get_profile("ci"), max_examples=5000, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "trio"


class NetworkBlocked(AssertionError):
    """A test tried to reach another machine."""


_CONNECTING = {"socket.connect", "socket.sendto", "socket.sendmsg"}
_RESOLVING = {"socket.getaddrinfo", "socket.gethostbyname"}


def _is_here(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    if host in (None, "", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _keep_off_the_network(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook also sees sockets that were made before a test began, or inside a library.

    It does not see child processes: npm must fetch Anvil, and our daemons bind to loopback.
    """
    if event in _CONNECTING:
        address = arguments[1]
        if isinstance(address, tuple) and not _is_here(address[0]):
            raise NetworkBlocked(f"a test reached for {address[0]}; only loopback is allowed")
    elif event in _RESOLVING and not _is_here(arguments[0]):
        raise NetworkBlocked(f"a test looked up {arguments[0]!r}; only loopback is allowed")


sys.addaudithook(_keep_off_the_network)


@cache
def _missing_engine() -> str | None:
    """Why there is no Docker engine to use, or None when there is one."""
    docker = shutil.which("docker")
    if docker is None:
        return "no docker command on PATH"
    try:
        asked = subprocess.run(
            [docker, "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "the Docker engine did not answer in 20 s"
    return None if asked.returncode == 0 else asked.stderr.strip() or "no Docker engine answers"


def _missing_postgres() -> str | None:
    from tests.support import databases  # a plugin: pytest must be the first to import it

    return databases.missing()


@cache
def _missing_gpu() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi on PATH"
    asked = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return None if asked.returncode == 0 and "GPU" in asked.stdout else "nvidia-smi lists no GPU"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly too")
    parser.addoption("--seeds", type=int, default=200, help="simulated seasons to run")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("docker") and (reason := _missing_engine()):
        if IN_CI:
            pytest.fail(f"CI must have a Docker engine: {reason}", pytrace=False)
        pytest.skip(f"NOT TESTED, no Docker engine: {reason}")
    if item.get_closest_marker("postgres") and (reason := _missing_postgres()):
        if IN_CI:
            pytest.fail(f"CI must have a PostgreSQL: {reason}", pytrace=False)
        pytest.skip(f"NOT TESTED, no PostgreSQL: {reason}")
    if item.get_closest_marker("gpu") and (reason := _missing_gpu()):
        pytest.skip(f"NOT TESTED, no GPU: {reason}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--nightly"):
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A test must not read, or change, what the person at this machine has configured."""
    for name in [name for name in os.environ if name.startswith("CLOUD_GPU_")]:
        if name != "CLOUD_GPU_CI":
            monkeypatch.delenv(name)
    nobody = tmp_path_factory.getbasetemp() / "nobody"
    for kind in ("CONFIG", "DATA", "STATE"):  # the cache stays: Anvil is in it
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(nobody / kind.lower()))
