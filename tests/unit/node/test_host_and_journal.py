"""The host as /proc and cgroups show it; the journal; the configuration of containers."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from cloud_gpu.protocol.chain_events import ChainAdvanced, LeaseOpened
from cloud_gpu.protocol.errors import StorageFailed
from cloud_gpu.protocol.events import MessageReceived, NodeStarted, ProviderEvent
from node.adapters.cpu import read_host
from node.adapters.hardening import Bounds, hardened, seccomp_profile
from node.adapters.journal import SqliteJournal
from tests.unit.node.builders import BUYER_PEER, T0, digest, terms, voucher


def lay(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


HOST = {
    "proc__cpuinfo": "processor : 0\nmodel name : EPYC 7763\nflags : fpu avx512f\n",
    "proc__meminfo": "MemTotal:       16384000 kB\nMemFree: 1 kB\n",
}


def test_the_machine_counts_where_no_cgroup_is_tighter(tmp_path: Path) -> None:
    host = read_host(tmp_path, root=lay(tmp_path, **HOST))
    assert (host.cpu_model, host.cpu_flags) == ("EPYC 7763", ("fpu", "avx512f"))
    assert host.memory_mib == 16_000 - 512
    assert host.network_class == "ethernet"


@pytest.mark.parametrize(
    "limits",
    [
        {
            "sys__fs__cgroup__cpu_dot_max": "100000 100000\n",
            "sys__fs__cgroup__memory_dot_max": str(4 * 2**30),
        },
        {
            "sys__fs__cgroup__cpu__cpu_dot_cfs_quota_us": "100000",
            "sys__fs__cgroup__cpu__cpu_dot_cfs_period_us": "100000",
            "sys__fs__cgroup__memory__memory_dot_limit_in_bytes": str(4 * 2**30),
        },
    ],
    ids=["v2", "v1"],
)
def test_a_tighter_cgroup_counts(tmp_path: Path, limits: dict[str, str]) -> None:
    host = read_host(tmp_path, root=lay(tmp_path, **HOST, **limits))
    assert (host.cpu_cores, host.memory_mib) == (1, 4_096 - 512)


def test_an_active_rdma_port_is_a_network_class(tmp_path: Path) -> None:
    lay(tmp_path, **HOST)
    lay(tmp_path, sys__class__infiniband__mlx5_0__ports__1__state="4: ACTIVE")
    assert read_host(tmp_path, root=tmp_path).network_class == "rdma"


OPENED = LeaseOpened(terms=terms(), bid=digest("b"), at=T0, transaction=digest("t"))
VOUCHER = MessageReceived(peer=BUYER_PEER, message=voucher(1))


def test_the_journal_replays_in_order_after_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    journal = SqliteJournal(path, lambda event: not isinstance(event, NodeStarted))
    journal.append(OPENED, 1)
    journal.append(NodeStarted(at=T0), 2)
    journal.append(VOUCHER, 3)
    # No close: what was appended is on the disk.
    again = SqliteJournal(path, lambda _: True)
    assert list(again.replay()) == [(OPENED, 1), (VOUCHER, 3)]
    journal.close()
    again.close()


def test_chain_events_are_kept_once_and_messages_each_time(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite", lambda _: True)
    events: list[ProviderEvent] = [OPENED, VOUCHER, OPENED, VOUCHER]
    for now, event in enumerate(events):
        journal.append(event, now)
    assert [event for event, _ in journal.replay()] == [OPENED, VOUCHER, VOUCHER]
    journal.close()


def test_what_is_forgotten_leaves_the_journal(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite", lambda _: True)
    for event in (OPENED, VOUCHER, ChainAdvanced(block=1, at=T0)):
        journal.append(event, 1)
    journal.prune(lambda event: isinstance(event, ChainAdvanced))
    assert [event for event, _ in journal.replay()] == [ChainAdvanced(block=1, at=T0)]
    journal.close()


def test_a_journal_that_cannot_be_kept_is_said(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="journal"):
        SqliteJournal(tmp_path / "no" / "folder.sqlite", lambda _: True)
    other = tmp_path / "newer.sqlite"
    with sqlite3.connect(other) as rows:
        rows.execute("PRAGMA user_version=9")
    rows.close()
    with pytest.raises(StorageFailed, match="version 9"):
        SqliteJournal(other, lambda _: True)
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"no database" * 100)
    with pytest.raises(StorageFailed):
        SqliteJournal(broken, lambda _: True)


def bounds(**changes: object) -> Bounds:
    fields: dict[str, object] = {
        "runtime": "runc",
        "user": "65532:65532",
        "memory_mib": 4_096,
        "cpu_cores": 2,
        "labels": {"cloud-gpu.lease": "x"},
    }
    return Bounds(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_container_has_nothing_that_a_job_does_not_need() -> None:
    found = hardened(bounds(), {"PATH": "/bin"}, {"/host/job": "/job"})
    assert found["network_mode"] == "none"
    assert found["cap_drop"] == ["ALL"]
    assert found["read_only"] is True
    assert found["privileged"] is False
    assert found["user"] == "65532:65532"
    assert found["security_opt"][0] == "no-new-privileges:true"
    assert found["mem_limit"] == found["memswap_limit"] == 4_096 * 2**20
    assert (found["pids_limit"], found["nano_cpus"]) == (512, 2 * 10**9)
    assert all("nr_inodes" in options for options in found["tmpfs"].values())
    assert found["environment"] == {"PATH": "/bin", "NVIDIA_VISIBLE_DEVICES": "void"}
    assert found["device_requests"] == []
    assert [(m["Source"], m["Target"]) for m in found["mounts"]] == [("/host/job", "/job")]


def test_real_gpus_are_asked_for_by_uuid_and_no_others() -> None:
    found = hardened(bounds(gpus=("GPU-a",)), {}, {})
    (request,) = found["device_requests"]
    assert request["DeviceIDs"] == ["nvidia.com/gpu=GPU-a"]
    assert request["Driver"] == "cdi"
    assert found["environment"] == {}


def test_the_system_call_filter_is_an_allow_list_without_ways_out() -> None:
    profile = json.loads(seccomp_profile())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    free = {
        name
        for rule in profile["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW" and not rule.get("args")
        for name in rule["names"]
    }
    ways_out = {
        *("ptrace", "process_vm_readv", "process_vm_writev", "bpf", "perf_event_open", "keyctl"),
        *("add_key", "request_key", "userfaultfd", "io_uring_setup", "io_uring_enter", "mount"),
        *("unshare", "setns", "clone", "clone3", "socket", "personality", "open_by_handle_at"),
        *("name_to_handle_at", "kexec_load", "init_module", "finit_module", "reboot", "swapon"),
        *("pivot_root", "chroot", "mbind", "move_pages", "iopl", "ioperm", "quotactl", "syslog"),
    }
    assert not free & ways_out
    assert {"read", "mmap", "futex", "execve", "fork"} <= free
