"""Runs inside a container: tries ways out and prints, as JSON, which of them the kernel let pass.

A system call that answers EPERM, EACCES or ENOSYS was refused; anything else, also EINVAL, means
that a stranger reached code that it must not reach. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import socket
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

_REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS}
_LIBC = ctypes.CDLL(None, use_errno=True)
_X86 = {
    "mount": 165,
    "unshare": 272,
    "setns": 308,
    "pivot_root": 155,
    "chroot": 161,
    "bpf": 321,
    "perf_event_open": 298,
    "keyctl": 250,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "open_by_handle_at": 304,
    "kexec_load": 246,
    "init_module": 175,
    "swapon": 167,
    "settimeofday": 164,
    "syslog": 103,
    "ptrace": 101,
    "process_vm_readv": 310,
    "personality": 135,
    "mbind": 237,
    "reboot": 169,
    "fsopen": 430,
}


def call(name: str, *arguments: int) -> bool:
    """Whether a system call got past the filter."""
    ctypes.set_errno(0)
    words = [ctypes.c_long(each) for each in arguments]
    done = _LIBC.syscall(ctypes.c_long(_X86[name]), *words)
    return done >= 0 or ctypes.get_errno() not in _REFUSED


def can(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError as error:
        return error.errno not in _REFUSED | {errno.EAFNOSUPPORT, errno.ENOENT, errno.ENETUNREACH}
    return True


def status(field: str) -> str:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return line.split()[1]
    return ""


def open_socket(*which: int) -> Callable[[], None]:
    return lambda: socket.socket(*which).close()


def connect(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except TimeoutError:
        return True  # packets leave: nobody refused them here
    except OSError as error:
        return error.errno == errno.ECONNREFUSED


def probes() -> dict[str, bool]:
    """Name → whether it worked."""
    folder = tempfile.mkdtemp()
    new_user, address_no_randomize = 0x10000000, 0x40000
    seize = 0x4206  # unlike PTRACE_ATTACH, after which a container never ends
    return {
        "has capabilities": int(status("CapEff"), 16) != 0,
        "may gain privileges": status("NoNewPrivs") != "1",
        "is root": os.getuid() == 0,
        "write root": can(lambda: Path("/escape").write_text("x")),
        "write core_pattern": can(lambda: Path("/proc/sys/kernel/core_pattern").open("w").close()),
        "write sysrq": can(lambda: Path("/proc/sysrq-trigger").open("w").close()),
        "read kcore": can(lambda: Path("/proc/kcore").open("rb").read(1)),
        "make device": can(lambda: os.mknod(f"{folder}/d", stat.S_IFBLK | 0o600, os.makedev(8, 0))),
        "run from temporary": can(lambda: run_from(folder)),
        "engine socket": Path("/var/run/docker.sock").exists(),
        "network interface": {path.name for path in Path("/sys/class/net").iterdir()} != {"lo"},
        "metadata service": connect("169.254.169.254", 80),
        "socket packet": can(open_socket(17, socket.SOCK_RAW)),
        "socket raw": can(open_socket(socket.AF_INET, socket.SOCK_RAW, 1)),
        "socket vsock": can(open_socket(40, socket.SOCK_STREAM)),
        "socket alg": can(open_socket(38, socket.SOCK_SEQPACKET)),
        "socket audit": can(open_socket(16, socket.SOCK_RAW, 9)),
        "mount": call("mount", 0, 0, 0, 0, 0),
        "fsopen": call("fsopen", 0, 0),
        "unshare user": call("unshare", new_user),
        "setns": call("setns", -1, 0),
        "pivot_root": call("pivot_root", 0, 0),
        "chroot": call("chroot", 0),
        "bpf": call("bpf", 0, 0, 0),
        "perf": call("perf_event_open", 0, 0, -1, -1, 0),
        "keyctl": call("keyctl", 0, -2, 0),
        "userfaultfd": call("userfaultfd", 0),
        "io_uring": call("io_uring_setup", 1, 0),
        "open by handle": call("open_by_handle_at", -1, 0, 0),
        "kexec": call("kexec_load", 0, 0, 0, 0),
        "load module": call("init_module", 0, 0, 0),
        "swapon": call("swapon", 0, 0),
        "set time": call("settimeofday", 0, 0),
        "kernel log": call("syslog", 10, 0, 0),
        "reboot": call("reboot", 0, 0, 0, 0),
        "trace init": call("ptrace", seize, 1, 0, 0),
        "read init's memory": call("process_vm_readv", 1, 0, 0, 0, 0, 0),
        "personality": call("personality", address_no_randomize),
        "mbind": call("mbind", 0, 0, 0, 0, 0, 0),
    }


def run_from(folder: str) -> None:
    """A program in a place that must hold none."""
    path = Path(folder) / "program"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    if os.spawnv(os.P_WAIT, str(path), [str(path)]) == 127:
        raise PermissionError(errno.EACCES, "not executable here")


if __name__ == "__main__":
    print(json.dumps({"kernel": platform.release(), **probes()}))  # noqa: T201
