"""The port, leases, shared memory, disks, limits, and what earlier launches have left behind."""

from __future__ import annotations

import json
from typing import Iterator

from eagletui.engines.preflight.case import GIB, Case, size
from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Finding

PART = "place"
LIVE = ("launching", "running", "stopping")


def port(case: Case) -> Iterator[Finding]:
    """Can the port be listened on, and does no other job want it?"""
    facts = case.place.get("port") or {}
    leased = any(held.get("lease") == "port-%s" % facts.get("number") for held in case.place.get("leases") or ())
    if facts.get("taken") and not leased:  # that a job of ours has it is told by its name
        late = "SGLang finds out after the whole load" if case.launch.engine == "sglang" else "the launch ends within seconds"
        yield Finding(
            "port-taken",
            BLOCK,
            "port %d is taken" % facts["number"],
            str(facts["taken"]),
            late,
            "end that process, or set another port in the profile",
            PART,
        )


def leases(case: Case) -> Iterator[Finding]:
    """Ports and cards that a job of eagletui holds."""
    for held in case.place.get("leases") or ():
        try:
            holder = json.loads(held.get("holder") or "{}")
        except ValueError:
            holder = {}  # it is just being written
        who = "job %s" % holder["job"] if holder.get("job") else "another job"
        by = " of %s" % holder["operator"] if holder.get("operator") else ""
        what = str(held["lease"]).replace("-", " ", 1)
        yield Finding(
            "lease-held",
            BLOCK,
            "%s is leased by %s%s" % (what, who, by),
            _listening(case, str(held["lease"])),
            "the launch is refused",
            "end that job, or choose another port or other cards",
            PART,
        )


def _listening(case: Case, lease: str) -> str:
    """Who listens, where that is known; a job that still loads holds the port without listening."""
    taken = (case.place.get("port") or {}).get("taken")
    return str(taken) if taken and lease.startswith("port-") else "its lease, from /proc/locks"


def files(case: Case) -> Iterator[Finding]:
    """The files that options name."""
    for option, path in sorted((case.place.get("absent") or {}).items()):
        yield Finding(
            "file-missing",
            BLOCK,
            "the file of %s is not there" % option,
            path,
            "the launch ends when it is read: with some engines after the whole load",
            "correct the path; a relative one starts at the profile's `cwd` (%s)" % case.launch.cwd,
            PART,
        )


def shm(case: Case) -> Iterator[Finding]:
    """Shared memory between the ranks: 64 MB in a container by default, and what dead engines left there."""
    facts = case.place.get("shm") or {}
    total, free = facts.get("total"), facts.get("free")
    ranks = case.launch.tp * case.launch.pp * case.launch.dp
    need = 8 * GIB if ranks > 2 else 1 * GIB if ranks > 1 else 64 * (1 << 20)
    if free is not None and free < need:
        inside = case.launch.runner in ("docker", "podman")  # it has its own, or this one: not known here
        severity = BLOCK if free < 64 * (1 << 20) and ranks > 1 and not inside else WARN
        yield Finding(
            "shm-small",
            severity,
            "/dev/shm has little room",
            "%s free of %s; %s are usual for %d ranks" % (size(free), size(total), size(need), ranks),
            "NCCL and the message queues end with: No space left on device, or SIGBUS",
            "remove what dead engines left there; a container: --shm-size or --ipc=host",
            PART,
        )
    left = facts.get("engine_bytes") or 0
    if facts.get("engine_files") and (left > 0.1 * (total or left) or left > GIB):
        first = [file["path"] for file in facts.get("files") or () if not file.get("used", True)][:3]
        yield Finding(
            "shm-leftovers",
            WARN,
            "/dev/shm holds %s that nobody uses" % size(left),
            "%d files of engines: %s" % (facts["engine_files"], ", ".join(first)),
            "they take memory until they are removed",
            "rm them: no process has them open",
            PART,
        )
    elif facts.get("engine_files"):
        yield Finding(
            "shm-files",
            INFO,
            "%d files of ended engines lie in /dev/shm (%s)" % (facts["engine_files"], size(left)),
            "nobody has them open",
            "",
            "",
            PART,
        )


def disks(case: Case) -> Iterator[Finding]:
    """Room for compile caches, temporary files, logs and what has to be downloaded."""
    least = {"cache": 10 * GIB, "temporary files": 1 * GIB, "job logs": 1 * GIB}
    if case.on_cpu or case.launch.eager:
        least["cache"] = 1 * GIB
    for what, facts in sorted((case.place.get("disks") or {}).items()):
        need, free = least.get(what), facts.get("free")
        if need is None or free is None or free >= need:
            continue
        yield Finding(
            "disk-%s" % what.split()[-1],
            BLOCK if free < 64 * (1 << 20) else WARN,
            "little room for %s" % what,
            "%s free at %s" % (size(free), facts.get("path")),
            "it ends with: No space left on device",
            "make room, or point the variable elsewhere (VLLM_CACHE_ROOT, TMPDIR, EAGLETUI_STATE)",
            PART,
        )


def limits(case: Case) -> Iterator[Finding]:
    """Limits that the job inherits."""
    told = case.place.get("limits") or {}
    files = told.get("nofile") or [None, None]
    if files[0] is not None and files[0] < 65535:
        low = files[1] is not None and files[1] < 65535
        yield Finding(
            "nofile",
            WARN if low and files[1] < 16384 else INFO,
            "few files may be open at once",
            "ulimit -n is %s (at most %s)" % (files[0], files[1]),
            "many requests at once end with: Too many open files",
            "LimitNOFILE=65535 in the unit, or raise it in limits.conf",
            PART,
        )
    memlock = told.get("memlock") or [None, None]
    if memlock[0] is not None and memlock[0] < 64 * (1 << 20) and case.launch.tp > 1 and not case.on_cpu:
        yield Finding(
            "memlock",
            INFO,
            "little memory may be locked",
            "ulimit -l is %s" % size(memlock[0]),
            "pinned buffers and RDMA may fail",
            "LimitMEMLOCK=infinity",
            PART,
        )


def orphans(case: Case) -> Iterator[Finding]:
    """Worker processes of engines whose server has gone."""
    ours = {tuple(pid) for job in case.jobs.values() if job.state in LIVE or job.adopted for pid in job.member_pids}
    found = [p for p in case.place.get("engines") or () if (p["pid"], p["start"]) not in ours and p["ppid"] == 1]
    if found:
        named = ", ".join("%s (pid %d, %s)" % (p["title"], p["pid"], p["user"]) for p in found[:4])
        yield Finding(
            "orphans",
            WARN,
            "%d engine processes have lost their server" % len(found),
            named,
            "they keep their memory, ports and shared memory",
            "end them by their pids, after a look at who started them",
            PART,
        )


CHECKS = (port, leases, files, shm, disks, limits, orphans)
