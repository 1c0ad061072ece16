"""Children of a devnet: ready lines, tails, ends, and that they die with their launcher."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from cloud_gpu.adapters.processes import (
    Child,
    ChildFailed,
    ProcessMark,
    end_marked,
    ended_by_signals,
    mark_of,
    undivided,
)

READY = (
    'import time; print("{\\"ready\\": true, \\"http\\": \\"here\\"}", flush=True); time.sleep(60)'
)
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    'print("{\\"ready\\": true}", flush=True); time.sleep(60)'
)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def start(folder: Path, program: str, name: str = "child") -> Child:
    return Child(name, python(program), folder, os.environ)


def wait_until(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def test_a_child_is_ready_when_it_says_so_and_ends_on_request(tmp_path: Path) -> None:
    child = start(tmp_path, READY)
    assert child.ready_line(within_s=20)["http"] == "here"
    child.end(grace_s=10)
    assert child.exit_code == -signal.SIGTERM


def test_a_child_that_fails_shows_its_last_lines(tmp_path: Path) -> None:
    child = start(tmp_path, "import sys; print('first'); sys.exit('market.toml: unknown key')")
    with pytest.raises(ChildFailed, match=r"(?s)child ended with 1:.*market.toml: unknown key"):
        child.ready_line(within_s=20)


def test_a_child_that_is_never_ready_is_given_up(tmp_path: Path) -> None:
    child = start(tmp_path, "import time; print('still importing', flush=True); time.sleep(60)")
    with pytest.raises(ChildFailed, match=r"(?s)not ready in 1 s.*still importing"):
        child.ready_line(within_s=1)
    child.end(grace_s=10)


def test_half_a_ready_line_is_no_ready_line(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        'sys.stdout.write(\'{"ready": true, "n": 1\'); sys.stdout.flush(); time.sleep(0.3)\n'
        'sys.stdout.write("2}\\n"); sys.stdout.flush(); time.sleep(60)'
    )
    child = start(tmp_path, program)
    assert child.ready_line(within_s=20)["n"] == 12
    child.end(grace_s=10)


def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    child = start(tmp_path, STUBBORN)
    child.ready_line(within_s=20)
    child.end(grace_s=0.2)
    assert child.exit_code == -signal.SIGKILL


def test_a_stopped_child_still_ends(tmp_path: Path) -> None:
    child = start(tmp_path, READY)
    child.ready_line(within_s=20)
    child.signal(signal.SIGSTOP)
    child.end(grace_s=10)
    assert child.exit_code == -signal.SIGTERM


def test_what_a_killed_child_leaves_behind_goes_too(tmp_path: Path) -> None:
    program = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        'job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])\n'
        'print("{\\"ready\\": true, \\"job\\": %d}" % job.pid, flush=True); time.sleep(60)'
    )
    child = start(tmp_path, program)
    job = mark_of(int(str(child.ready_line(within_s=20)["job"])), "job")
    child.end(grace_s=0.2)
    wait_until(lambda: job.find() is None)


@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED: the tether is Linux's own")
def test_children_die_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    launcher = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from cloud_gpu.adapters.processes import Child\n"
        f"child = Child('child', {python(READY)!r}, Path({str(tmp_path)!r}), os.environ)\n"
        "child.ready_line(20); print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(python(launcher), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = mark_of(int(process.stdout.readline()), "child")
        process.kill()
    wait_until(lambda: child.find() is None)


def test_a_mark_is_not_taken_for_a_later_process_of_the_same_pid() -> None:
    mine = mark_of(os.getpid(), "me")
    assert mine.find() == psutil.Process()
    assert ProcessMark(name="me", pid=mine.pid, created=mine.created - 60).find() is None


def test_marked_processes_are_ended_and_named(tmp_path: Path) -> None:
    with subprocess.Popen(python(READY), stdout=subprocess.DEVNULL) as process:
        mark = mark_of(process.pid, "lost")
        gone = ProcessMark(name="gone", pid=mark.pid, created=1.0)
        assert end_marked([gone, mark], grace_s=10) == ["lost"]
        assert mark.find() is None


def interrupted(unwound: list[bool]) -> None:
    with ended_by_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # an impatient second one
            unwound.append(True)


def test_sigterm_unwinds_like_ctrl_c_and_only_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    unwound: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(unwound)
    assert unwound == [True]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_waits_for_the_end_of_what_must_not_be_divided() -> None:
    done: list[str] = []

    def work() -> None:
        with ended_by_signals():
            with undivided():
                os.kill(os.getpid(), signal.SIGTERM)
                done.append("registered")
            done.append("never reached")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["registered"]
