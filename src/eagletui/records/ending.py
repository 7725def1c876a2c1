"""A line of a job's log, what a kill would end, and what came of it."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from eagletui.records.cards import GpuProcess
from eagletui.records.codec import NESTED


class LogLine(NamedTuple):
    """One record of a job's log, ready to be drawn. ``offset`` is its first byte in the file, ``end`` the first after it.

    ``process`` is who printed it (``Worker_TP3``), ``severity`` debug, info, warning or error, ``noise`` what may be folded
    away; ``progress`` a bar or counter: never noise. ``text`` is decoded but not yet sanitised.
    """

    offset: int
    end: int
    text: str
    severity: str = "info"
    process: Optional[str] = None
    stamp: Optional[str] = None
    noise: bool = False
    progress: bool = False
    cut: int = 0


class Victim(NamedTuple):
    """A process that a kill would end. Its identity is (pid, start). ``waiting_on``: what in the kernel holds it (D)."""

    pid: int
    start: int
    user: str = ""
    state: str = "?"
    command: str = ""
    rss: Optional[int] = None
    main: bool = False
    waiting_on: Optional[str] = None


class KillPlan(NamedTuple):
    """What ending a job would end and free, as the host found it just now; ``token`` stands for exactly this list.

    ``gpus`` are uuids, ``gpu_memory`` the bytes its processes hold on them, ``shm``/``tmp`` paths of its files,
    ``suspects`` processes on its cards that are not its own (shown, never signalled). ``cost`` is how long the load took.

    ``lever`` is the command that ends it, in words, where signals are not what does (a container, a systemd unit); ``note``
    what a person should know of that. ``adopted`` says what holds a server that eagletui only found (see `JobState`), ``only``
    that exactly these processes are meant, which somebody has named. ``confirm`` is what has to be typed to end it, ``because``
    why; None where a plain yes is enough.
    """

    job: str
    name: str
    token: str
    processes: Tuple[Victim, ...] = ()
    gpus: Tuple[str, ...] = ()
    gpu_memory: Optional[int] = None
    port: Optional[int] = None
    listening: bool = False
    shm: Tuple[str, ...] = ()
    tmp: Tuple[str, ...] = ()
    suspects: Tuple[GpuProcess, ...] = ()
    uptime: Optional[float] = None
    cost: Optional[float] = None
    operator: Optional[str] = None
    graces: Tuple[float, ...] = ()
    lever: Optional[str] = None
    note: Optional[str] = None
    adopted: Optional[str] = None
    only: bool = False
    confirm: Optional[str] = None
    because: Optional[str] = None


class KillReport(NamedTuple):
    """What came of it: ``released`` and ``remaining`` in words; ``gpu_memory`` says whether the cards' memory came back."""

    job: str
    done: bool
    released: Tuple[str, ...] = ()
    remaining: Tuple[str, ...] = ()
    seconds: Optional[float] = None
    rc: Optional[int] = None
    gpu_memory: Optional[str] = None


NESTED["KillPlan"] = {"processes": Victim, "suspects": GpuProcess}
