"""The machine: what it is, and how it is at one moment."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from eagletui.records.codec import NESTED


class HostInfo(NamedTuple):
    """What the agent says of the machine when it starts. ``identity`` of everything on it is (boot_id, pid, start)."""

    hostname: str
    boot_id: str
    user: str
    uid: int
    python: str
    agent_pid: int
    boot: float
    wall: float
    kernel: str = ""
    os_name: str = ""
    cpus: int = 1
    page_size: int = 4096
    clock_ticks: int = 100
    systemd: bool = False
    container: Optional[str] = None
    pid1_start: Optional[int] = None
    nvml: bool = False
    state_dir: Optional[str] = None
    state_problem: Optional[str] = None


class Disk(NamedTuple):
    """One mounted file system: sizes in bytes, ``free`` is what an ordinary user may still write."""

    mount: str
    device: str
    fstype: str
    total: int
    free: int
    read_rate: Optional[float] = None
    write_rate: Optional[float] = None


class HostSample(NamedTuple):
    """The machine at one moment. ``cpu`` is percent of all cores together, 0 to 100.

    ``hung_mounts`` are file systems (network, FUSE) that did not answer; the sizes of their disks are the last known ones.
    """

    boot: float
    cpu: Optional[float] = None
    cpu_iowait: Optional[float] = None
    load1: Optional[float] = None
    load5: Optional[float] = None
    load15: Optional[float] = None
    mem_total: Optional[int] = None
    mem_available: Optional[int] = None
    mem_cached: Optional[int] = None
    mem_dirty: Optional[int] = None
    swap_total: Optional[int] = None
    swap_used: Optional[int] = None
    net_rx: Optional[float] = None
    net_tx: Optional[float] = None
    uptime: Optional[float] = None
    tasks: Optional[int] = None
    disks: Tuple[Disk, ...] = ()
    shm_total: Optional[int] = None
    shm_used: Optional[int] = None
    mem_limit: Optional[int] = None
    mem_limit_used: Optional[int] = None
    hung_mounts: Optional[Tuple[str, ...]] = None


class Process(NamedTuple):
    """One process. ``start`` is its start in clock ticks after boot: with the pid and boot id, its identity."""

    pid: int
    start: int
    ppid: int = 0
    user: str = ""
    state: str = "?"
    comm: str = ""
    command: str = ""
    cpu: Optional[float] = None
    rss: Optional[int] = None
    threads: Optional[int] = None
    age: Optional[float] = None


NESTED["HostSample"] = {"disks": Disk}
