"""Jobs: their phases, their state as the shim last wrote it, and what needs a person."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from eagletui.records.codec import NESTED
from eagletui.records.work import Work


class Phase(NamedTuple):
    """One phase of a load. ``role`` is target, drafter or None; times in seconds from the first line of the log.

    ``seconds`` is None while the phase runs. ``done``/``total`` count ``unit`` (shards, files, graphs, bytes ...).
    """

    id: str
    role: Optional[str] = None
    start: float = 0.0
    seconds: Optional[float] = None
    done: Optional[float] = None
    total: Optional[float] = None
    unit: Optional[str] = None


class Alert(NamedTuple):
    """Something that needs a person. ``key`` identifies it, so that the same trouble is one alert. Severity: info, warn, bad."""

    key: str
    severity: str
    text: str
    wall: float
    source: str = ""
    remedy: Optional[str] = None
    acknowledged: bool = False


class Evidence(NamedTuple):
    """A line of a log that shows something: its byte offset, its number (from 1) and its text."""

    offset: int
    line: int
    text: str


class Cause(NamedTuple):
    """Why a launch failed, or may have: ``id`` names an entry of the failure catalogue, or is ``unknown``.

    ``confidence`` is 0 to 1. ``provenance``: seen (the text was met in a real log), source (read in the engine's source) or
    hearsay. ``source`` says where that was.
    """

    id: str
    title: str
    confidence: float
    remedy: str
    cause: str = ""
    evidence: Tuple[Evidence, ...] = ()
    source: str = ""
    provenance: str = ""


NESTED["Cause"] = {"evidence": Evidence}

MOST_PIDS = 64
PROBLEMS = "!problems"
"""The key in a document of the stream ``jobs`` that is no job's id: {what could not be found out: why}; absent without any."""


class JobState(NamedTuple):
    """One job, as its supervisor (the shim) last wrote it.

    ``state`` is one of launching, running, stopping, exited, failed_to_exec, oom, lost_supervisor, lost_reboot,
    lost_container. ``health`` of a server: loading, ready, failed, stopping, gone. ``rc`` is the exit status, negative for a
    signal; None is unknown, never guessed. ``started``/``ended`` are wall times, ``started_boot`` a boot time.
    ``ended_by`` names who ended it with eagletui; None when nobody did: a server that then ends has failed, whatever its status.
    ``members`` counts the live processes, ``cpu`` is their use in percent of one core, ``cpu_top`` the busiest one's, ``blocked``
    how many of them wait in the kernel and cannot be killed (state D), ``stopped`` how many were stopped (state T), ``rss`` and
    ``bytes_read`` their sums, ``disk_read`` the part of the bytes that came from a disk, not from the page cache.
    ``smoke_tokens_per_s``: the speed of the first short answer after the server was ready, ``smoke_problem`` why there was
    none. ``metrics_problem`` says in words why its metrics cannot be had; None while they can. ``member_pids`` are the members
    as (pid, start ticks), oldest first, at most `MOST_PIDS`: whose a process on a card is follows from them.
    ``runner`` is how a job of ours runs: process, system-unit, user-unit, docker, podman. ``adopted`` is None for those; a server
    that eagletui only found says what holds it: process, systemd, docker, podman. ``unit`` is its systemd unit, ``container``
    the container's id, ``image`` that container's image. ``survival`` says in words what would end the job although nobody
    asked for it (the end of the login session ...); None when nothing known would. ``causes`` says why it failed, as its log
    and its end tell it, the likeliest first; empty while nothing has failed.
    ``troubles`` are what needs a person although the job goes on, each ``subject: words``: its log lies on a full disk or was
    moved away, another process has its port, a file of its record cannot be written.
    ``state`` of a server that was found may also be leftover: the server is dead, and others of its processes are left. Of these
    servers ``log`` and ``samples`` (scrapes, a JSON object a line) may be paths that only this agent has: while it runs, offsets
    in them never change. ``log_problem`` says in words why there is no log, or what is missing of it. ``inner_pids`` are members
    as (pid, its number in its own pid namespace, which is what its log prints), where these differ.
    ``work`` is what a job that is no server does. Of an ended job ``ok`` says whether its result was checked and is right (None:
    it was ended on request, or nobody can know), ``outcome`` the same in one line. ``parent`` is the pipeline it is a step of.
    """

    id: str
    kind: str
    name: str
    state: str
    started: float
    started_boot: Optional[float] = None
    ended: Optional[float] = None
    rc: Optional[int] = None
    health: Optional[str] = None
    engine: Optional[str] = None
    engine_version: Optional[str] = None
    model: Optional[str] = None
    served_model: Optional[str] = None
    max_model_len: Optional[int] = None
    drafter: Optional[str] = None
    k: Optional[int] = None
    port: Optional[int] = None
    gpus: Tuple[str, ...] = ()
    pid: Optional[int] = None
    pid_start: Optional[int] = None
    shim_pid: Optional[int] = None
    shim_start: Optional[int] = None
    boot_id: Optional[str] = None
    operator: Optional[str] = None
    command: Tuple[str, ...] = ()
    cwd: Optional[str] = None
    log: Optional[str] = None
    log_size: Optional[int] = None
    log_age: Optional[float] = None
    phases: Tuple[Phase, ...] = ()
    phase: Optional[str] = None
    ready_seconds: Optional[float] = None
    first_error: Optional[str] = None
    detail: Optional[str] = None
    ended_by: Optional[str] = None
    members: Optional[int] = None
    bytes_read: Optional[int] = None
    disk_read: Optional[int] = None
    rss: Optional[int] = None
    listening: Optional[bool] = None
    silent: Optional[float] = None
    profile: Optional[str] = None
    cpu: Optional[float] = None
    blocked: Optional[int] = None
    stopped: Optional[int] = None
    cpu_top: Optional[float] = None
    log_floor: Optional[int] = None
    smoke_tokens_per_s: Optional[float] = None
    smoke_seconds: Optional[float] = None
    smoke_problem: Optional[str] = None
    metrics_problem: Optional[str] = None
    member_pids: Tuple[Tuple[int, int], ...] = ()
    runner: Optional[str] = None
    adopted: Optional[str] = None
    unit: Optional[str] = None
    container: Optional[str] = None
    image: Optional[str] = None
    survival: Optional[str] = None
    causes: Tuple[Cause, ...] = ()
    troubles: Tuple[str, ...] = ()
    samples: Optional[str] = None
    log_problem: Optional[str] = None
    inner_pids: Tuple[Tuple[int, int], ...] = ()
    work: Optional[Work] = None
    ok: Optional[bool] = None
    outcome: Optional[str] = None
    parent: Optional[str] = None


NESTED["JobState"] = {"phases": Phase, "causes": Cause}
