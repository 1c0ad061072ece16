"""Ways out of a job's container: each fails where jobs run, and bites on a plain container."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import pytest
import trio

from cloud_gpu.protocol.events import JobExited
from cloud_gpu.protocol.job import JobOutcome
from tests.support import escapes
from tests.support.runtimes import LEASE, Bench, bench, engine, image

pytestmark = pytest.mark.docker

NO_CONTROL = {
    "write core_pattern": "a plain container has /proc/sys read-only too",
    "write sysrq": "as core_pattern",
    "read kcore": "a plain container masks it",
    "engine socket": "nobody mounts it by accident",
    "metadata service": "this network may have none",
    "mount": "a plain container has no CAP_SYS_ADMIN",
    "fsopen": "as mount",
    "unshare user": "as mount",
    "setns": "as mount",
    "pivot_root": "as mount",
    "bpf": "the plain profile refuses it",
    "perf": "the plain profile refuses it",
    "keyctl": "the plain profile refuses it",
    "userfaultfd": "the plain profile refuses it",
    "open by handle": "the plain profile refuses it",
    "kexec": "the plain profile refuses it",
    "load module": "the plain profile refuses it",
    "swapon": "the plain profile refuses it",
    "set time": "the plain profile refuses it",
    "kernel log": "the plain profile refuses it",
    "reboot": "the plain profile refuses it",
    "personality": "the plain profile refuses it",
    "mbind": "the plain profile refuses it",
    "read init's memory": "the plain profile of some engines refuses it",
    "io_uring": "the plain profile of newer engines refuses it",
    "socket vsock": "the kernel may have no such module",
    "socket alg": "the kernel may have no such module",
    "socket audit": "the kernel may have no such module",
}
"""Probes that need not succeed on a plain container of every engine, and why."""

GVISOR_OWN = {
    "may gain privileges",
    "make device",
    "unshare user",
    "setns",
    "chroot",
    "trace init",
    "read init's memory",
    "personality",
    "mbind",
    "keyctl",
    "perf",
    "bpf",
    "userfaultfd",
    "io_uring",
    "fsopen",
    "open by handle",
    "swapon",
    "reboot",
    "kexec",
    "load module",
    "set time",
    "kernel log",
    "pivot_root",
    "mount",
    "run from temporary",
    "socket packet",
    "socket raw",
    "socket audit",
    "socket alg",
    "socket vsock",
    "write sysrq",
    "has capabilities",
}
"""What gVisor answers out of its own kernel: it reaches nothing of the provider's machine."""

PROGRAM = Path(escapes.__file__).read_bytes()


@cache
def plain() -> dict[str, object]:
    """The weakest configuration that is in use: `docker run`, as root."""
    container = engine().containers.create(
        image().reference,
        ["python", "-c", PROGRAM.decode()],
        environment={"PATH": "/usr/local/bin:/bin"},
        init=True,
    )
    try:
        container.start()
        container.wait(timeout=60)
        found: dict[str, object] = json.loads(container.logs(stderr=False))
        return found
    finally:
        container.remove(force=True)


async def probed(runtime: Bench) -> dict[str, object]:
    spec = runtime.spec("python", "escapes.py", files={"escapes.py": PROGRAM})
    exited = await runtime.run(spec)
    assert exited.exit_code == 0, runtime.content(exited.stderr)
    found: dict[str, object] = json.loads(runtime.printed(spec))
    return found


@pytest.fixture(params=["runc", "runsc"])
async def runtime(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    if request.param not in engine().info()["Runtimes"]:
        pytest.skip(f"NOT TESTED: the engine has no runtime {request.param}")
    async with bench(request.param, tmp_path) as made:
        yield made


async def test_no_way_out_works_where_jobs_run(runtime: Bench) -> None:
    found = await probed(runtime)
    kernel = found.pop("kernel")
    if runtime.kind == "runsc":
        assert kernel == "4.4.0", "gVisor's own kernel answers, not the provider's"
        found = {name: worked for name, worked in found.items() if name not in GVISOR_OWN}
    assert not [name for name, worked in found.items() if worked]


def test_the_probes_bite_on_a_plain_container() -> None:
    found = {name: worked for name, worked in plain().items() if name != "kernel"}
    harmless = {name for name, worked in found.items() if not worked}
    assert harmless <= NO_CONTROL.keys(), "these prove nothing"
    assert len(found) - len(harmless) >= 8


async def test_a_fork_bomb_is_stopped_and_the_node_goes_on(runtime: Bench) -> None:
    bomb = runtime.python(
        "import os, time\n"
        "for n in range(5000):\n"
        "    try:\n"
        "        if os.fork() == 0: time.sleep(20); os._exit(0)\n"
        "    except OSError: print('stopped at', n, flush=True); os._exit(9)\n"
        "print('never stopped')",
        runtime_s_max=60,
    )
    exited = await runtime.run(bomb)
    assert exited.exit_code != 0, "gVisor ends the whole sandbox, runc refuses the fork"
    assert b"never stopped" not in runtime.printed(bomb)
    if runtime.kind == "runc":
        assert int(runtime.printed(bomb).split()[-1]) < 512
    assert (await runtime.run(runtime.python("print(1)"))).exit_code == 0


async def test_memory_is_bounded(runtime: Bench) -> None:
    hog = runtime.python("b = []\nwhile True: b.append(bytearray(16 << 20)); print(len(b))")
    exited = await runtime.run(hog)
    assert exited.exit_code not in (0, None)
    assert exited.outcome in (JobOutcome.OUT_OF_MEMORY, JobOutcome.EXITED)
    if runtime.kind == "runc":
        assert exited.outcome is JobOutcome.OUT_OF_MEMORY
    assert len(runtime.content(exited.stdout).split()) < 512 // 16


@pytest.mark.parametrize("folder", ["/job", "/tmp", "/dev/shm"])
async def test_bytes_are_bounded_everywhere(runtime: Bench, folder: str) -> None:
    spec = runtime.python(
        "import errno, sys\n"
        f"f = open('{folder}/big', 'wb', buffering=0)\n"
        "n = 0\n"
        "try:\n"
        "    while n < 1000: f.write(bytes(1 << 20)); n += 1\n"
        "except OSError as error: print(n, error.errno == errno.ENOSPC)\n",
        outputs=("nothing",),
    )
    exited = await runtime.run(spec)
    if exited.exit_code == 0:
        written, is_full = runtime.printed(spec).split()
        assert is_full == b"True"
        assert int(written) <= 260
    else:
        assert exited.exit_code == 137, "a tmpfs is memory: its bound may be met first"


async def test_files_are_bounded(runtime: Bench) -> None:
    spec = runtime.python(
        "n = 0\n"
        "try:\n"
        "    while n < 200_000: open(f'/tmp/{n}', 'w').close(); n += 1\n"
        "    print('never stopped')\n"
        "except OSError: print(n)",
        runtime_s_max=120,
    )
    exited = await runtime.run(spec)
    assert exited.outcome in (JobOutcome.EXITED, JobOutcome.OUT_OF_MEMORY)
    if runtime.kind == "runc":  # gVisor's tmpfs counts bytes only: files are bounded by memory
        assert int(runtime.printed(spec)) < 100_000


async def test_checkpoints_share_the_bound_of_the_leases_disk(runtime: Bench) -> None:
    spec = runtime.python(
        "n = 0\n"
        "try:\n"
        "    f = open('/ckpt/big', 'wb', buffering=0)\n"
        "    while n < 200: f.write(bytes(1 << 20)); n += 1\n"
        "except OSError: pass\n"
        "open('/ckpt/big', 'wb').write(b'kept')\n"
        "print(n)"
    )
    exited = await runtime.run(spec)
    assert exited.exit_code == 0, runtime.content(exited.stderr)
    assert int(runtime.printed(spec)) < 64
    again = runtime.python("print(open('/ckpt/big').read())")
    await runtime.run(again)
    assert runtime.printed(again) == b"kept\n", "all jobs of a lease share it"


async def test_processors_are_bounded(tmp_path: Path) -> None:
    async with bench("runc", tmp_path) as runtime:
        spec = runtime.python(
            "import os, time\n"
            "for _ in range(2):\n"
            "    if os.fork() == 0:\n"
            "        end = time.time() + 2\n"
            "        while time.time() < end: pass\n"
            "        os._exit(0)\n"
            "os.wait(); os.wait(); t = os.times(); print(t.children_user + t.children_system)"
        )
        await runtime.run(spec)
        assert float(runtime.printed(spec)) < 2.6, "one processor for two seconds"


async def test_terminal_escapes_and_binary_output_pass_as_bytes(runtime: Bench) -> None:
    spec = runtime.python(r"import sys; sys.stdout.buffer.write(b'\x1b[2J\xff\x00\r\n')")
    await runtime.run(spec)
    assert runtime.printed(spec) == b"\x1b[2J\xff\x00\r\n"


async def test_containers_that_no_lease_names_are_removed_at_the_start(runtime: Bench) -> None:
    spec = runtime.python("import time; time.sleep(600)")
    await runtime.runtime.start_job(spec)
    label = f"cloud-gpu.folder={runtime.folder / 'data' / 'leases'}"
    assert len(engine().containers.list(all=True, filters={"label": label})) == 1
    (runtime.folder / "data" / "leases").rename(runtime.folder / "away")
    await runtime.runtime.adopt()
    assert engine().containers.list(all=True, filters={"label": label}) == []
    (runtime.folder / "away").rename(runtime.folder / "data" / "leases")
    with trio.fail_after(30):
        while not [e for e in runtime.told if isinstance(e, JobExited)]:  # noqa: ASYNC110
            await trio.sleep(0.1)


async def test_a_job_cannot_name_another_image(runtime: Bench) -> None:
    exited = await runtime.run(runtime.spec("true", image="sha256:" + "0" * 64))
    assert exited.outcome is JobOutcome.FAILED_TO_START
    report = await runtime.runtime.prepare(LEASE, None)  # type: ignore[arg-type]
    exited = await runtime.run(runtime.spec("true", image=report.image))
    assert (exited.outcome, exited.exit_code) == (JobOutcome.EXITED, 0)
