"""The place of a launch: its port, leases, shared memory, disks, limits, memory, and engine processes that are left over."""

from __future__ import annotations

import os
import resource
import time
from typing import Any, Dict, List, Mapping, Optional

from eagletui.agent import leftovers, ports, procfs, state_dir
from eagletui.agent.facts.clock import Clock
from eagletui.agent.leases import names as lease_names

MOST = 40
_LIMITS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "nproc": resource.RLIMIT_NPROC}
_TITLES = ("VLLM::", "sglang::")


def place(launch: Mapping[str, Any], env: Mapping[str, str], clock: Clock) -> Dict[str, Any]:
    """``port`` {number, taken}, ``leases`` [{lease, holder}], ``shm`` {total, free, files}, ``limits`` {name: [soft, hard]},
    ``disks`` {what: {path, free, total}}, ``memory`` {total, available, swap, limit}, ``engines`` [{pid, start, ppid, title,
    user}]."""
    out: Dict[str, Any] = {}
    port = launch.get("port")
    if isinstance(port, int) and 0 < port < 65536:
        out["port"] = {"number": port}
        taken = ports.why_taken(port, _address(str(launch.get("address") or "")))
        if taken is not None:
            out["port"]["taken"] = taken
    cards = [str(card) for card in launch.get("cards") or ()]
    out["leases"] = _leases(lease_names(port, cards))
    out["shm"] = _shm(clock)
    out["disks"] = _disks(env)
    out["limits"] = {name: [_limit(value) for value in resource.getrlimit(which)] for name, which in _LIMITS.items()}
    out["memory"] = _memory()
    out["engines"] = _engines(clock)
    return out


def _address(address: str) -> str:
    """An address that can be bound here; a name counts as any."""
    return address if address and all(c in "0123456789.:abcdefABCDEF" for c in address) else "0.0.0.0"  # noqa: S104 - only tried


def _limit(value: int) -> Optional[int]:
    return None if value == resource.RLIM_INFINITY else value


def _leases(wanted: List[str]) -> List[Dict[str, Any]]:
    """Those of these leases that somebody holds, from the kernel's table of locks: looking takes none of them."""
    root = os.path.join(state_dir.locate(os.environ), "leases")
    held = set()
    for line in (procfs.read_text("%s/locks" % procfs.PROC, 1 << 22) or "").splitlines():
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK":
            held.add(fields[5])
    out = []
    for name in wanted:
        path = os.path.join(root, name)
        try:
            info = os.stat(path)
        except OSError:
            continue  # never taken, or not ours to see
        if "%02x:%02x:%d" % (os.major(info.st_dev), os.minor(info.st_dev), info.st_ino) in held:
            text = procfs.read_text(path, 4096) or ""
            out.append({"lease": name, "holder": text})
    return out


def _shm(clock: Clock) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    usage = _free(leftovers.SHM)
    if usage is not None:
        out.update(usage)
    files: List[Dict[str, Any]] = []
    try:
        entries = sorted(os.scandir(leftovers.SHM), key=lambda entry: entry.name)
    except OSError:
        return out  # a container without it: `total` is absent too
    now = time.time()
    for entry in entries:
        if leftovers.engine_name(entry.path):
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed meanwhile
            files.append({"path": entry.path, "size": info.st_blocks * 512, "age": now - info.st_mtime})
    if files and not clock.over("who uses the files in /dev/shm"):
        used = leftovers.used_paths(_until(clock))
        for file in files:
            file["used"] = file["path"] in used
    out["files"] = sorted(files, key=lambda file: -file["size"])[:MOST]
    out["engine_bytes"] = sum(file["size"] for file in files if not file.get("used", True))
    out["engine_files"] = sum(1 for file in files if not file.get("used", True))
    return out


def _until(clock: Clock) -> Any:
    """All processes, as long as there is time for them."""
    for pid in procfs.pids():
        if clock.over("who uses the files in /dev/shm"):
            return
        yield pid


def _disks(env: Mapping[str, str]) -> Dict[str, Dict[str, Any]]:
    home = env.get("HOME") or os.path.expanduser("~")
    cache = env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    wanted = {
        "cache": env.get("VLLM_CACHE_ROOT") or cache,
        "temporary files": env.get("TMPDIR") or "/tmp",
        "hub": env.get("HF_HOME") or os.path.join(cache, "huggingface"),
        "job logs": state_dir.locate(os.environ),
    }
    out = {}
    for what, path in wanted.items():
        usage = _free(path)
        if usage is not None:
            out[what] = {"path": path, **usage}
    return out


def _free(path: str) -> Optional[Dict[str, Any]]:
    """{total, free} of the file system that holds ``path``, or its nearest parent that is there."""
    while path not in ("", "/") and not os.path.exists(path):
        path = os.path.dirname(path)
    try:
        info = os.statvfs(path or "/")
    except OSError:
        return None  # not told: no finding is made of it
    return {"total": info.f_blocks * info.f_frsize, "free": info.f_bavail * info.f_frsize}


def _memory() -> Dict[str, Any]:
    fields = {}
    for line in (procfs.read_text("%s/meminfo" % procfs.PROC) or "").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            fields[name] = int(words[0]) * 1024
    out = {"total": fields.get("MemTotal"), "available": fields.get("MemAvailable"), "swap": fields.get("SwapFree")}
    limit = procfs.read_text("/sys/fs/cgroup/memory.max") or procfs.read_text("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    if limit and limit.strip().isdigit() and int(limit) < (fields.get("MemTotal") or 0):
        out["limit"] = int(limit)
    return {name: value for name, value in out.items() if value is not None}


def _engines(clock: Clock) -> List[Dict[str, Any]]:
    """Worker processes of engines by their titles, whoever started them."""
    out: List[Dict[str, Any]] = []
    for pid in procfs.pids():
        if len(out) >= MOST or clock.over("engine processes"):
            break
        stat = procfs.read_stat(pid)
        if stat is None or stat.dead or not stat.comm.startswith(_TITLES):
            continue
        uid = procfs.uid_of(pid)
        title = (procfs.cmdline(pid, 256) or stat.comm)[:80]
        user = "?" if uid is None else procfs.user(uid)
        out.append({"pid": pid, "start": stat.start, "ppid": stat.ppid, "title": title, "user": user})
    return out
