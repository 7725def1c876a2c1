"""The frozen records that everybody shares: agent, shim, client and screens.

Every record is a ``NamedTuple`` of plain values. ``None`` always means "not available", never zero. Times are seconds:
``boot`` times count from the host's boot (``CLOCK_BOOTTIME``, it neither jumps nor stops in suspend), ``wall`` times are
Unix time by the host's clock. Sizes are bytes, rates bytes per second, unless a field says otherwise.

On the wire and on disk a record is a JSON object that leaves out what is ``None`` (`to_doc`); `from_doc` reads one back,
ignores keys it does not know (an older reader of a newer file) and names the key when one it needs is missing.

Runs on the host too: standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple, Type, TypeVar

R = TypeVar("R")


class BadRecord(ValueError):
    """A document that is not the record it should be; the text names the record and the key."""


def to_doc(record: Any) -> Dict[str, Any]:
    """A record as a JSON-ready dict, without the fields that are ``None``; nested records become dicts, tuples lists."""
    return {k: _plain(v) for k, v in zip(record._fields, record) if v is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return to_doc(value) if hasattr(value, "_fields") else [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def from_doc(cls: Type[R], doc: Mapping[str, Any]) -> R:
    """Read a record back. Lists become tuples; a field named in ``cls``'s entry of `NESTED` becomes that record.

    Raises `BadRecord` when ``doc`` is no object, a required field is absent, or a nested one is malformed.
    """
    if not isinstance(doc, Mapping):
        raise BadRecord("%s: expected an object, got %s" % (cls.__name__, type(doc).__name__))
    fields: Tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    defaults: Mapping[str, Any] = cls._field_defaults  # type: ignore[attr-defined]
    nested = NESTED.get(cls.__name__, {})
    values = []
    for name in fields:
        value = doc.get(name)
        if value is None:
            if name not in defaults:
                raise BadRecord("%s: %r is missing" % (cls.__name__, name))
            values.append(defaults[name])
            continue
        if name in nested:
            if not isinstance(value, (list, tuple)):
                raise BadRecord("%s: %r should be a list" % (cls.__name__, name))
            value = tuple(from_doc(nested[name], item) for item in value)
        elif isinstance(value, list):
            value = tuple(value)
        values.append(value)
    return cls(*values)


# ---------------------------------------------------------------------------------------------------------- the host


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


# ---------------------------------------------------------------------------------------------------------- the cards


class GpuProcess(NamedTuple):
    """A process that holds memory on a card. ``kind`` is C (compute), G (graphics) or C+G.

    ``pid`` is the number that NVML gives: a host pid. Inside a container it may be one that /proc does not show; then
    ``user`` and ``command`` are None.
    """

    pid: int
    kind: str = "C"
    mem: Optional[int] = None
    start: Optional[int] = None
    user: Optional[str] = None
    command: Optional[str] = None
    job: Optional[str] = None


class GpuSample(NamedTuple):
    """One card at one moment, keyed by ``uuid``; ``number`` is NVML's index. What the card lacks is None.

    Units: percent, bytes, watts, degrees C, MHz, bytes per second, joules. ``margin`` is the distance in degrees to the
    slowdown temperature (NVML's T.Limit). ``throttle`` holds the active clock-event reasons by name; an empty tuple
    means none, None means the card does not say. ``lost`` is NVML's own words when the card no longer answers.
    ``pcie_gen`` is what the link runs at now: it idles at generation 1, so it may be judged only under load.
    """

    uuid: str
    number: int
    name: Optional[str] = None
    bus_id: Optional[str] = None
    minor: Optional[int] = None
    util: Optional[float] = None
    mem_util: Optional[float] = None
    mem_used: Optional[int] = None
    mem_total: Optional[int] = None
    mem_reserved: Optional[int] = None
    bar1_total: Optional[int] = None
    power: Optional[float] = None
    power_cap: Optional[float] = None
    power_min: Optional[float] = None
    power_max: Optional[float] = None
    energy: Optional[float] = None
    temp: Optional[int] = None
    temp_mem: Optional[int] = None
    margin: Optional[int] = None
    fan: Optional[int] = None
    clock_sm: Optional[int] = None
    clock_mem: Optional[int] = None
    clock_sm_max: Optional[int] = None
    clock_mem_max: Optional[int] = None
    pstate: Optional[int] = None
    pcie_gen: Optional[int] = None
    pcie_gen_max: Optional[int] = None
    pcie_width: Optional[int] = None
    pcie_width_max: Optional[int] = None
    pcie_tx: Optional[float] = None
    pcie_rx: Optional[float] = None
    pcie_replays: Optional[int] = None
    throttle: Optional[Tuple[str, ...]] = None
    ecc_corrected: Optional[int] = None
    ecc_uncorrected: Optional[int] = None
    rows_corrected: Optional[int] = None
    rows_uncorrected: Optional[int] = None
    rows_pending: Optional[bool] = None
    rows_failed: Optional[bool] = None
    recovery: Optional[str] = None
    persistence: Optional[bool] = None
    lost: Optional[str] = None
    processes: Optional[Tuple[GpuProcess, ...]] = None


class GpuBoard(NamedTuple):
    """All cards of a host at one moment. ``problem`` says in one line why there are none, or why the data is old.

    ``present`` is False where no NVIDIA driver is installed. ``stale_since`` (boot time) is set while NVML hangs.
    ``expected`` is the number of cards seen before; fewer in ``cards`` means that some have gone.
    """

    boot: float
    present: bool
    driver: Optional[str] = None
    cuda: Optional[str] = None
    problem: Optional[str] = None
    stale_since: Optional[float] = None
    expected: Optional[int] = None
    cards: Tuple[GpuSample, ...] = ()


# ----------------------------------------------------------------------------------------------------------- the jobs


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


class JobState(NamedTuple):
    """One job, as its supervisor (the shim) last wrote it.

    ``state`` is one of launching, running, stopping, exited, failed_to_exec, oom, lost_supervisor, lost_reboot,
    lost_container. ``health`` of a server: loading, ready, failed, stopping, gone. ``rc`` is the exit status, negative for a
    signal; None is unknown, never guessed. ``started``/``ended`` are wall times, ``started_boot`` a boot time.
    ``members`` counts the live processes, ``cpu`` is their use in percent of one core, ``blocked`` how many of them wait in the
    kernel and cannot be killed (state D), ``rss`` and ``bytes_read`` their sums. ``smoke_tokens_per_s``: the speed of the first
    short answer after the server was ready.
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
    members: Optional[int] = None
    bytes_read: Optional[int] = None
    rss: Optional[int] = None
    listening: Optional[bool] = None
    silent: Optional[float] = None
    profile: Optional[str] = None
    cpu: Optional[float] = None
    blocked: Optional[int] = None
    log_floor: Optional[int] = None
    smoke_tokens_per_s: Optional[float] = None
    smoke_seconds: Optional[float] = None


class ServerSample(NamedTuple):
    """One scrape of an engine's ``/metrics`` in the definition common to both engines; counters are exact.

    ``accepted`` counts accepted draft tokens without the bonus token, ``drafted`` the proposed ones, ``verify_steps`` the
    verify rounds that had a draft, ``per_position[i]`` the rounds whose draft token i was accepted. ``ttft`` and ``itl``
    are histograms: ``((upper bound, cumulative count), ...)`` with the last bound ``inf`` written as None, then sum and count.
    ``acceptance_from`` says where the acceptance counters come from: ``counters`` (vLLM's own), ``derived`` (SGLang 0.5.14+,
    from its counts of finished requests), ``gauge`` (older SGLang: only ``gauge_length``, a last sample). ``decoded_tokens``
    and ``prefilled_tokens`` move while requests run, where the engine has such counters. ``k`` is the draft tokens per step.
    """

    boot: float
    wall: float
    running: Optional[float] = None
    waiting: Optional[float] = None
    kv: Optional[float] = None
    prompt_tokens: Optional[float] = None
    generated_tokens: Optional[float] = None
    verify_steps: Optional[float] = None
    drafted: Optional[float] = None
    accepted: Optional[float] = None
    per_position: Optional[Tuple[float, ...]] = None
    prefix_queries: Optional[float] = None
    prefix_hits: Optional[float] = None
    preemptions: Optional[float] = None
    finished: Optional[float] = None
    ttft: Optional[Tuple[Tuple[Optional[float], float], ...]] = None
    ttft_sum: Optional[float] = None
    itl: Optional[Tuple[Tuple[Optional[float], float], ...]] = None
    itl_sum: Optional[float] = None
    start_time: Optional[float] = None
    gauge_length: Optional[float] = None
    gauge_rate: Optional[float] = None
    engine: Optional[str] = None
    k: Optional[int] = None
    acceptance_from: Optional[str] = None
    decoded_tokens: Optional[float] = None
    prefilled_tokens: Optional[float] = None


class Acceptance(NamedTuple):
    """Acceptance over one window, from the difference of counters; pooled, never a mean of means.

    ``rate`` = accepted / drafted, ``length`` = 1 + accepted / verify steps (it counts the bonus token), ``per_position[i]``
    = rounds with draft token i accepted / verify steps, all None when nothing was drafted in the window.
    ``seconds`` is the true distance of the two scrapes. ``restarted`` when a counter fell inside the window. ``basis`` is
    ``counters``, ``derived`` or ``gauge`` (see `ServerSample`): a gauge is one interval's mean, not the window's.
    """

    seconds: float
    verify_steps: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    rate: Optional[float] = None
    length: Optional[float] = None
    per_position: Tuple[float, ...] = ()
    drafted_per_s: Optional[float] = None
    accepted_per_s: Optional[float] = None
    emitted_per_s: Optional[float] = None
    restarted: bool = False
    basis: str = "counters"


class Eta(NamedTuple):
    """An estimate of the seconds left, with its range and the words for what it rests on. Always shown with ``~``."""

    seconds: float
    low: float
    high: float
    basis: str


class Percentiles(NamedTuple):
    """Seconds at 50, 90 and 99 % of a histogram's observations in a window; ``beyond`` names those above its last bound."""

    observations: float
    p50: Optional[float] = None
    p90: Optional[float] = None
    p99: Optional[float] = None
    mean: Optional[float] = None
    beyond: Tuple[str, ...] = ()


class ServerWindow(NamedTuple):
    """What a server did between two scrapes, ``seconds`` apart; ``label`` is the window asked for (10 s, 1 m, 10 m, all).

    Tokens and requests per second; ``partial`` when the scrapes at hand do not reach back as far as the label says.
    """

    label: str
    seconds: float
    partial: bool = False
    prompt_per_s: Optional[float] = None
    generated_per_s: Optional[float] = None
    finished_per_s: Optional[float] = None
    prefix_hit_rate: Optional[float] = None
    acceptance: Optional[Acceptance] = None
    ttft: Optional[Percentiles] = None
    itl: Optional[Percentiles] = None
    restarted: bool = False


class ServerView(NamedTuple):
    """A serving job as the screens show it: its newest scrape and the windows that end with it; ``boot`` is its time."""

    job: str
    boot: float
    sample: ServerSample
    windows: Tuple[ServerWindow, ...] = ()
    problem: Optional[str] = None

    def window(self, label: str) -> Optional[ServerWindow]:
        return next((w for w in self.windows if w.label == label), None)


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
    """A process that a kill would end. Its identity is (pid, start)."""

    pid: int
    start: int
    user: str = ""
    state: str = "?"
    command: str = ""
    rss: Optional[int] = None
    main: bool = False


class KillPlan(NamedTuple):
    """What ending a job would end and free, as the host found it just now; ``token`` stands for exactly this list.

    ``gpus`` are uuids, ``gpu_memory`` the bytes its processes hold on them, ``shm``/``tmp`` paths of its files,
    ``suspects`` processes on its cards that are not its own (shown, never signalled). ``cost`` is how long the load took.
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


class KillReport(NamedTuple):
    """What came of it: ``released`` and ``remaining`` in words; ``gpu_memory`` says whether the cards' memory came back."""

    job: str
    done: bool
    released: Tuple[str, ...] = ()
    remaining: Tuple[str, ...] = ()
    seconds: Optional[float] = None
    rc: Optional[int] = None
    gpu_memory: Optional[str] = None


NESTED: Dict[str, Dict[str, Any]] = {
    "HostSample": {"disks": Disk},
    "GpuSample": {"processes": GpuProcess},
    "GpuBoard": {"cards": GpuSample},
    "JobState": {"phases": Phase},
    "KillPlan": {"processes": Victim, "suspects": GpuProcess},
}
