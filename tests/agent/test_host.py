"""The host stream: what the files of /proc mean, which mounts are disks, and a network file system that has died."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.agent import host, mounts, procfs
from eagletui.agent.documents import host_from_doc
from tests.agent.fakenvml import ROOT, Running, pythons

SOURCE = "eagletui.agent.host:HostSource"


def test_cpu_between_two_readings() -> None:
    before = host.parse_cpu("cpu  100 0 100 800 0 0 0 0 50 0\ncpu0 1 2\n")
    after = host.parse_cpu("cpu  150 0 150 860 40 0 0 0 90 0\n")
    assert before is not None
    assert after is not None
    assert host.cpu_percent(before, after) == (50.0, 20.0), "guest time counts once; waiting for disks is not work"
    assert host.cpu_percent(after, after) == (None, None)
    assert host.cpu_percent(after, before) == (None, None), "counters that fall are no percentage"
    assert host.parse_cpu("") is None
    assert host.parse_cpu("cpu 1 2 x 4 5") is None


def test_interfaces_that_count() -> None:
    text = (
        "Inter-|   Receive\n face |bytes\n"
        "    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n"
        "  eth0:1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n"
        "veth12: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0\n"
    )
    assert host.parse_net(text) == {"lo": (999, 999), "eth0": (1000, 2000), "veth12": (500, 500)}
    assert host.choose_interfaces(["lo", "eth0", "bond0", "veth12"], ["eth0"]) == ["eth0"], "a bond is its members"
    assert host.choose_interfaces(["lo", "eth0", "docker0"], []) == ["eth0"], "inside a container nothing has a device"


def test_meminfo() -> None:
    assert host.parse_meminfo("MemTotal:  10 kB\nHugePages_Total:   3\nOdd line\n") == {"MemTotal": 10240, "HugePages_Total": 3}


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    host.parse_cpu(text)
    host.parse_meminfo(text)
    host.parse_net(text)
    mounts.choose(mounts.parse(text))
    mounts.parse_diskstats(text)


def line(mount: str, fstype: str, source: str, device: str = "8:1") -> str:
    return f"30 1 {device} / {mount} rw,relatime shared:1 - {fstype} {source} rw\n"


def test_which_mounts_are_disks() -> None:
    text = (
        line("/", "ext4", "/dev/sda1")
        + line("/proc", "proc", "proc", "0:5")
        + line("/srv/bind", "ext4", "/dev/sda1")
        + line("/run", "tmpfs", "tmpfs", "0:20")
        + line("/snap/core/1", "squashfs", "/dev/loop0", "7:0")
        + line("/var/lib/docker/overlay2/x/merged", "overlay", "overlay", "0:50")
        + line(r"/mnt/with\040blank", "xfs", "/dev/nvme0n1", "259:0")
        + line("/mnt/nas", "nfs4", "nas:/export", "0:60")
        + line("/mnt/nas/deep", "ext4", "/dev/sdb1", "8:17")
        + line("/home/u/.gvfs", "fuse.gvfsd-fuse", "gvfsd-fuse", "0:61")
        + line("/mnt/s3", "fuse.s3fs", "s3fs", "0:62")
        + line("/tank", "zfs", "tank", "0:70")
        + line("/tank/models", "zfs", "tank/models", "0:71")
        + line("/data", "btrfs", "/dev/sdc", "0:80")
        + line("/data/sub", "btrfs", "/dev/sdc", "0:80")
        + "garbage\n"
    )
    found = {m.mount: m for m in mounts.choose(mounts.parse(text))}
    assert list(found) == ["/", "/data", "/mnt/nas", "/mnt/nas/deep", "/mnt/s3", "/mnt/with blank", "/tank", "/tank/models"]
    assert {m for m, mount in found.items() if mount.risky} == {"/mnt/nas", "/mnt/nas/deep", "/mnt/s3"}


def test_a_containers_root_is_shown_and_its_bind_mounts_once() -> None:
    text = (
        line("/", "overlay", "overlay", "0:99") + line("/etc/hosts", "ext4", "/dev/sda1") + line("/models", "ext4", "/dev/sda1")
    )
    assert [m.mount for m in mounts.choose(mounts.parse(text))] == ["/", "/models"]


def test_a_later_mount_hides_an_earlier_one() -> None:
    text = line("/data", "ext4", "/dev/sda1") + line("/data", "xfs", "/dev/sdb1", "8:17")
    assert [m.fstype for m in mounts.choose(mounts.parse(text))] == ["xfs"]


def test_diskstats() -> None:
    text = " 259 0 nvme0n1 10 0 2000 5 20 0 4000 6 0 7 8\n   8 1 sda1 1 2 x\n"
    assert mounts.parse_diskstats(text) == {"259:0": ("nvme0n1", 1024000, 2048000)}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/sys/fs/cgroup/memory.max": "max\n"}, (None, None)),
        ({"/sys/fs/cgroup/memory.max": "1000\n", "/sys/fs/cgroup/memory.current": "800\n"}, (1000, 800)),
        (
            {
                "/proc/self/cgroup": "0::/a/b\n",
                "/sys/fs/cgroup/a/memory.max": "500\n",
                "/sys/fs/cgroup/a/memory.current": "450\n",
                "/sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 50\n",
                "/sys/fs/cgroup/a/b/memory.max": "900\n",
            },
            (500, 400),
        ),
        (
            {
                "/proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "700\n",
                "/sys/fs/cgroup/memory/memory.usage_in_bytes": "300\n",
                "/sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 20\n",
            },
            (700, 280),
        ),
        ({"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, (None, None)),
    ],
    ids=["none", "container", "a group above", "version 1 in a container", "version 1 without a limit"],
)
def test_memory_limit(monkeypatch: pytest.MonkeyPatch, files: dict[str, str], expected: tuple[int | None, int | None]) -> None:
    monkeypatch.setattr(procfs, "read_text", lambda path, limit=0: files.get(path))
    assert host.memory_limit() == expected


@pytest.mark.parametrize("python", pythons(), ids=lambda path: "oldest" if "3.8" in path else "this")
def test_this_machine(python: str) -> None:
    running = Running(SOURCE, python)
    try:
        running.send(start=[0.1, {}])
        doc = running.until(lambda doc: "cpu" in doc and "net_rx" in doc, "rates")
        assert running.children() == [] or any(
            m.risky for m in mounts.choose(mounts.parse(Path("/proc/self/mountinfo").read_text()))
        )
    finally:
        running.close()
    sample = host_from_doc(doc)
    assert sample.cpu is not None
    assert 0 <= sample.cpu <= 100
    assert sample.mem_total == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < (sample.mem_available or 0) < (sample.mem_total or 0)
    assert sample.uptime == sample.boot == doc["boot"]
    assert (sample.tasks or 0) > 1
    root = next(disk for disk in sample.disks if disk.mount == "/")
    info = os.statvfs("/")
    assert root.total == info.f_blocks * info.f_frsize
    assert 0 < root.free <= root.total
    assert "hung_mounts" not in doc


def can_mount() -> bool:
    return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


@pytest.mark.skipif(not can_mount(), reason="needs root and /dev/fuse")
def test_a_dead_network_file_system_blocks_nothing_and_is_named(tmp_path: Path) -> None:
    """A real mount whose server never answers, in a mount namespace of its own."""
    prefix = ["unshare", "-m", sys.executable, str(ROOT / "tests/agent/dead_mount.py"), str(tmp_path), "--"]
    running = Running(SOURCE, prefix=prefix, slow=0.2, answer=0.3, pause=0.5)
    try:
        running.send(start=[0.1, {}])
        doc = running.until(lambda doc: "hung_mounts" in doc, "the hung mount")
        assert doc["hung_mounts"] == [str(tmp_path)]
        assert "/" in doc["disks"], "the others are there"
        assert str(tmp_path) not in doc["disks"], "its size was never known: left out, not 0"
        seen: list[Any] = []
        doc = running.until(lambda doc: seen.append(doc["boot"]) or len(seen) > 15, "documents go on")
        assert doc["hung_mounts"] == [str(tmp_path)], "it is asked again, and still hangs"
        assert running.says == []
    finally:
        running.close()
