"""The port `Runtime`: one suite, on the process runtime and on every runtime of a Docker engine."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest
import trio

from cloud_gpu.protocol.events import JobExited, JobStarted, OutputRead
from cloud_gpu.protocol.hardware import Isolation
from cloud_gpu.protocol.job import JobOutcome
from cloud_gpu.protocol.limits import JOB_LOG_BYTES_MAX
from tests.support.runtimes import LEASE, PROFILE, Bench, start_and_be_killed


async def test_the_report_says_what_isolates(runtime: Bench) -> None:
    report = await runtime.runtime.prepare(LEASE, PROFILE)
    expected = {
        "process": Isolation.PROCESS,
        "runc": Isolation.CONTAINER,
        "runsc": Isolation.GVISOR,
    }
    assert (report.runtime, report.isolation) == (runtime.kind, expected[runtime.kind])
    assert report.python.startswith("3.")
    assert report.fingerprint
    again = await runtime.runtime.prepare(LEASE, PROFILE)
    assert again == report, "Ready binds it: it must not change"


async def test_a_job_runs_and_returns_its_code_output_and_files(runtime: Bench) -> None:
    spec = runtime.spec(
        "python",
        "train.py",
        "x y",
        files={"train.py": PROGRAM, "in/a.txt": b"input", "same.txt": b"same"},
    )
    exited = await runtime.run(spec)
    assert (exited.outcome, exited.exit_code, exited.detail) == (JobOutcome.EXITED, 7, "")
    assert runtime.printed(spec) == b"x y input\n"
    assert runtime.content(exited.stdout) == b"x y input\n"
    assert runtime.content(exited.stderr) == b"to stderr\n"
    assert [(f.path, runtime.content(f)) for f in exited.outputs] == [
        ("in/a.txt", b"changed"),
        ("out/b.bin", b"\0\1"),
    ], "what is new or changed, nothing else"
    assert 0 < exited.ended_at - exited.started_at < 60_000
    assert isinstance(await runtime.hear(JobStarted, spec.id), JobStarted)


PROGRAM = b"""
import pathlib, sys
print(sys.argv[1], pathlib.Path("in/a.txt").read_text())
print("to stderr", file=sys.stderr)
pathlib.Path("in/a.txt").write_text("changed")
pathlib.Path("out").mkdir()
pathlib.Path("out/b.bin").write_bytes(bytes([0, 1]))
sys.exit(7)
"""


async def test_output_comes_while_the_job_runs_and_in_order(runtime: Bench) -> None:
    spec = runtime.python(
        "import time\nfor i in range(5): print(i, flush=True); time.sleep(0.3)\ntime.sleep(1)"
    )
    await runtime.runtime.start_job(spec)
    await runtime.hear(OutputRead, spec.id)
    assert not [e for e in runtime.told if isinstance(e, JobExited)]
    await runtime.exited(spec)
    offset = 0
    for event in runtime.told:
        if isinstance(event, OutputRead):
            assert event.offset == offset
            offset += len(event.chunk)
    assert runtime.printed(spec) == b"0\n1\n2\n3\n4\n"


async def test_output_can_be_read_again_from_an_offset(runtime: Bench) -> None:
    spec = runtime.python("print('abcdef', flush=True); import time; time.sleep(60)")
    await runtime.runtime.start_job(spec)
    await runtime.hear(OutputRead, spec.id)
    runtime.told.clear()
    await runtime.runtime.read_output(LEASE, spec.id, 3, 0)
    assert [(e.stream, e.offset, e.chunk) for e in runtime.told if isinstance(e, OutputRead)] == [
        ("stdout", 3, b"def\n")
    ]


async def test_the_environment_is_ours_the_jobs_and_nobody_elses(
    runtime: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the provider's")
    spec = runtime.python(
        "import os, json; print(json.dumps(dict(os.environ)))",
        environment={"MINE": "1", "CLOUD_GPU_RANK": "9"},
        seed=5,
    )
    await runtime.run(spec)
    seen = json.loads(runtime.printed(spec))
    assert "AWS_SECRET_ACCESS_KEY" not in seen
    assert seen["MINE"] == "1"
    assert seen["CLOUD_GPU_JOB_ID"] == str(spec.id)
    assert seen["CLOUD_GPU_RANK"] == "0", "a job cannot give itself another rank"
    assert (seen["CLOUD_GPU_SEED"], seen["CLOUD_GPU_GPUS"]) == ("5", "1")
    assert int(seen["CLOUD_GPU_DEADLINE"]) > 1_700_000_000
    assert not [name for name in seen if name.startswith("PYTEST")]


async def test_numpy_and_threads_work(runtime: Bench) -> None:
    spec = runtime.python(
        "import numpy, threading\n"
        "t = [threading.Thread(target=lambda: numpy.ones((200, 200)) @ numpy.ones((200, 200)))"
        " for _ in range(4)]\n"
        "[x.start() for x in t]; [x.join() for x in t]\n"
        "import multiprocessing\n"
        "print(sum(multiprocessing.get_context('fork').Pool(2).map(abs, [-1, -2])))"
    )
    exited = await runtime.run(spec)
    assert exited.exit_code == 0, runtime.content(exited.stderr)
    assert runtime.printed(spec) == b"3\n"


async def test_a_shell_line_runs(runtime: Bench) -> None:
    spec = runtime.spec("sh", "-c", "echo one | sed s/one/two/; exit 3")
    exited = await runtime.run(spec)
    assert (exited.exit_code, runtime.printed(spec)) == (3, b"two\n")


async def test_a_program_that_is_not_there_is_said_not_raised(runtime: Bench) -> None:
    exited = await runtime.run(runtime.spec("no-such-program"))
    assert exited.exit_code == 127
    assert exited.outcome in (JobOutcome.FAILED_TO_START, JobOutcome.EXITED)


async def test_pause_stops_the_job_and_resume_lets_it_go_on(runtime: Bench) -> None:
    spec = runtime.python(TICKING)
    await runtime.runtime.start_job(spec)
    await runtime.hear(OutputRead, spec.id)
    await runtime.runtime.pause(LEASE)
    await runtime.runtime.pause(LEASE)
    await trio.sleep(0.3)
    frozen = runtime.printed(spec)
    await trio.sleep(1)
    assert runtime.printed(spec) == frozen
    await runtime.runtime.resume(LEASE)
    await runtime.runtime.resume(LEASE)
    exited = await runtime.exited(spec)
    assert (exited.outcome, runtime.printed(spec)) == (JobOutcome.EXITED, b"." * 20)


TICKING = """
import os, time
if os.fork():  # the child too must stop
    os.wait()
else:
    for _ in range(20):
        print(".", end="", flush=True)
        time.sleep(0.1)
"""


async def test_a_killed_job_ends_with_all_its_processes(runtime: Bench) -> None:
    spec = runtime.python(STUBBORN)
    await runtime.runtime.start_job(spec)
    await runtime.hear(OutputRead, spec.id)
    await runtime.runtime.pause(LEASE)
    await runtime.runtime.kill_job(LEASE, spec.id)
    exited = await runtime.exited(spec, within_s=20)
    assert (exited.outcome, exited.exit_code) == (JobOutcome.KILLED, 137)
    assert not processes_of(spec.id)
    await runtime.runtime.kill_job(LEASE, spec.id)
    assert runtime.told[-1] == exited, "the second answer equals the first"


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""


def processes_of(job: object) -> list[int]:
    """Processes of this machine that were started for a job, gVisor's inside aside."""
    mark = f"CLOUD_GPU_JOB_ID={job}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def test_a_job_that_never_started_can_be_killed(runtime: Bench) -> None:
    spec = runtime.python("print(1)")
    await runtime.runtime.kill_job(LEASE, spec.id)
    exited = await runtime.exited(spec, within_s=20)
    assert exited.outcome is JobOutcome.KILLED
    await runtime.runtime.start_job(spec)
    assert runtime.told[-1] == exited, "and then it does not start any more"


async def test_the_wall_clock_ends_a_job(runtime: Bench) -> None:
    exited = await runtime.run(runtime.python("import time; time.sleep(60)", runtime_s_max=2))
    assert (exited.outcome, exited.exit_code) == (JobOutcome.TIMED_OUT, 137)
    assert "2 s" in exited.detail
    assert exited.ended_at - exited.started_at < 10_000


async def test_children_that_a_job_leaves_behind_are_ended(runtime: Bench) -> None:
    spec = runtime.python(
        "import os, time\nif os.fork() == 0:\n os.setsid(); time.sleep(600)\nprint('left')"
    )
    exited = await runtime.run(spec)
    assert (exited.outcome, exited.exit_code) == (JobOutcome.EXITED, 0)
    assert not processes_of(spec.id)


async def test_a_flood_of_output_is_cut_and_the_job_goes_on(runtime: Bench) -> None:
    spec = runtime.python(
        "import sys\n"
        "for i in range(12): sys.stdout.write(('%07d' % i + 'x' * 1016 + chr(10)) * 1024)\n"
        "sys.stdout.flush()\nopen('done', 'w').write('yes')"
    )
    exited = await runtime.run(spec)
    assert exited.log_cut
    assert exited.stdout.size == JOB_LOG_BYTES_MAX
    assert runtime.content(exited.stdout).startswith(b"0000000x"), "the beginning is kept"
    assert exited.outcome is JobOutcome.EXITED
    assert [f.path for f in exited.outputs] == ["done"]


async def test_starting_a_job_twice_is_starting_it_once(runtime: Bench) -> None:
    spec = runtime.python("import time; time.sleep(1); print('once')")
    await runtime.runtime.start_job(spec)
    await runtime.runtime.start_job(spec)
    exited = await runtime.exited(spec)
    await runtime.runtime.start_job(spec)
    assert [e for e in runtime.told if isinstance(e, JobExited)] == [exited, exited]
    assert runtime.content(exited.stdout) == b"once\n"


async def test_removing_a_lease_ends_its_jobs_and_leaves_nothing(runtime: Bench) -> None:
    spec = runtime.python("import time; print(1, flush=True); time.sleep(600)")
    await runtime.runtime.start_job(spec)
    await runtime.hear(OutputRead, spec.id)
    await runtime.runtime.remove(LEASE)
    exited = await runtime.exited(spec, within_s=20)
    assert exited.outcome is JobOutcome.KILLED
    assert not processes_of(spec.id)
    assert not list((runtime.folder / "data" / "leases").iterdir())
    await runtime.runtime.remove(LEASE)


async def test_a_new_daemon_adopts_a_running_job(runtime: Bench, tmp_path: Path) -> None:
    await runtime.runtime.remove(LEASE)
    spec = runtime.python(
        "import time\nfor i in range(30): print(i, flush=True); time.sleep(0.1)\n"
        "open('out', 'w').write('whole')"
    )
    await start_and_be_killed(runtime.kind, tmp_path, spec)
    (report,) = await runtime.runtime.adopt()
    assert report == await runtime.runtime.prepare(LEASE, PROFILE)
    await runtime.runtime.start_job(spec)
    exited = await runtime.exited(spec)
    assert exited.outcome is JobOutcome.EXITED
    assert runtime.printed(spec).split() == [str(i).encode() for i in range(30)]
    assert runtime.content(exited.stdout) == runtime.printed(spec)
    assert [runtime.content(f) for f in exited.outputs] == [b"whole"]


async def test_a_new_daemon_learns_the_end_of_a_job_that_ended_meanwhile(
    runtime: Bench, tmp_path: Path
) -> None:
    await runtime.runtime.remove(LEASE)
    spec = runtime.python("print('done', flush=True); import time; time.sleep(3)")
    await start_and_be_killed(runtime.kind, tmp_path, spec)
    await trio.sleep(4)
    await runtime.runtime.start_job(spec)
    exited = await runtime.exited(spec)
    assert (exited.outcome, exited.exit_code) == (JobOutcome.EXITED, 0)
    assert runtime.content(exited.stdout) == b"done\n"
    await runtime.runtime.start_job(spec)
    assert runtime.told[-1] == exited


def test_no_job_of_this_suite_is_left() -> None:
    """Last in the file on purpose: what the tests above started is gone."""
    left = [
        pid
        for pid in psutil.pids()
        if "node.adapters.supervisor" in _command_line(pid) and _is_ours(pid)
    ]
    assert not left


def _command_line(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def _is_ours(pid: int) -> bool:
    """Started below this test run's temporary folders."""
    return any("test_runtime" in word or "pytest" in word for word in _command_line(pid))
