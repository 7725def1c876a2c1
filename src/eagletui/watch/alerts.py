"""What of the telemetry needs a person: pure rules, each with its own hysteresis, and the clockwork that raises and clears.

A rule looks at the newest records and returns `Sign` s. A sign is ``firm`` when its threshold is crossed, or not firm when
the value lies between the threshold and the way back: that keeps a raised alert up but raises none. `Alarms` adds time: a
sign must be firm for ``after`` seconds before it becomes an alert, and gone for `CLEAR_AFTER` before the alert goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from eagletui import text
from eagletui.records import Alert, Disk, GpuBoard, GpuSample, HostSample, JobState
from eagletui.store import Store
from eagletui.views.causes import known_cause
from eagletui.watch.summary import summarise

GIB = 1 << 30
CLEAR_AFTER = 10.0
THROTTLES = {
    "HW slowdown": "hardware slowdown",
    "HW thermal": "hardware thermal slowdown",
    "HW power brake": "power brake, the supply or the board asks for less",
    "SW thermal": "thermal slowdown",
}
"""The clock-event reasons that need a person; a card at its power cap is working as intended."""


class Sign(NamedTuple):
    """One thing a rule has seen; the fields up to ``source`` become the `Alert`."""

    key: str
    severity: str
    text: str
    remedy: str | None = None
    source: str = "host"
    firm: bool = True
    after: float = 0.0


# --------------------------------------------------------------------------------------------------------- the cards


def board_signs(board: GpuBoard | None, expected: int | None = None) -> Iterator[Sign]:
    """All signs of the cards. ``expected`` is the number the user's configuration gives; None takes how many were seen."""
    if board is None:
        return
    wanted = expected if expected is not None else board.expected
    if not board.present:
        if wanted:
            why = board.problem or "no NVIDIA driver on the host"
            yield Sign("gpu:none", "bad", f"no cards, {wanted} expected: {why}", "check the driver: nvidia-smi", "gpu")
        return
    if board.problem and not board.cards:
        # the same key as above: the one takes the other's place
        yield Sign("gpu:none", "bad", f"no card can be read: {board.problem}", "run nvidia-smi on the host", "gpu", after=2.0)
        return
    if board.stale_since is not None:
        age = max(0.0, board.boot - board.stale_since)
        yield Sign(
            "gpu:stale",
            "bad",
            f"card data is {text.duration(age)} old: {board.problem or 'NVML does not answer'}",
            "NVML hangs when a card's firmware has stopped; dmesg | grep -i xid tells, a reset or reboot mends it",
            "gpu",
            firm=age >= 5.0,
        )
        return  # everything below would judge old values
    if wanted is not None and len(board.cards) < wanted:
        yield Sign(
            "gpu:missing",
            "bad",
            board.problem or f"{len(board.cards)} of {wanted} cards: {wanted - len(board.cards)} missing",
            "dmesg | grep -i 'xid\\|fallen off' tells which; a cold reboot brings back a card that fell off the bus",
            "gpu",
            after=3.0,
        )
    summary = summarise(board)
    links = summary.links if summary else {}
    for card in board.cards:
        yield from _card(card, links.get(card.uuid))


def _card(card: GpuSample, slow_link: str | None) -> Iterator[Sign]:
    who = f"card {card.number}"
    key = f"gpu:{card.uuid}:"
    if card.lost is not None:
        yield Sign(
            key + "lost",
            "bad",
            f"{who} no longer answers: {card.lost}",
            "its processes must end and the card be reset (nvidia-smi -r) or the host rebooted",
            "gpu",
        )
        return
    for reason, words in THROTTLES.items():
        if card.throttle is not None and reason in card.throttle:
            yield Sign(
                key + reason,
                "bad" if reason.startswith("HW") else "warn",  # hardware cuts the clock to half or less
                f"{who} is throttled: {words}",
                "check power cables and supply" if reason == "HW power brake" else "check cooling and airflow",
                "gpu",
                after=5.0,
            )
    if card.margin is not None and card.margin <= 6:
        yield Sign(
            key + "hot",
            "warn",
            f"{who} is {card.margin} C below its slowdown temperature",
            "check cooling and airflow",
            "gpu",
            firm=card.margin <= 3,
            after=10.0,
        )
    if card.ecc_uncorrected:
        yield Sign(
            key + "ecc",
            "bad",
            f"{who} has had {text.plural(card.ecc_uncorrected, 'uncorrected memory error')}",
            "results since may be wrong: stop its jobs and reset the card (nvidia-smi -r)",
            "gpu",
        )
    if card.rows_pending:
        yield Sign(
            key + "rows",
            "warn",
            f"{who} waits for a reset to remap memory rows",
            "reset it when its jobs are done: nvidia-smi -r",
            "gpu",
        )
    if card.rows_failed:
        yield Sign(key + "rows-failed", "bad", f"{who} could not remap a bad memory row", "the card should be replaced", "gpu")
    if card.recovery and card.recovery.lower() != "none":
        yield Sign(
            key + "recovery", "bad", f"{who} asks for recovery: {card.recovery}", "end its jobs, then do what it asks for", "gpu"
        )
    if slow_link:
        yield Sign(
            key + "link",
            "warn",
            f"{who} runs its PCIe link at {slow_link} under load",
            "reseat the card or riser; check the slot's setting in the firmware",
            "gpu",
            after=30.0,
        )


# ---------------------------------------------------------------------------------------------------------- the host


def host_signs(sample: HostSample | None, clock_offset: float | None = None) -> Iterator[Sign]:
    """Signs of memory, disks and clock. ``clock_offset`` is the host's clock minus ours, in seconds."""
    if clock_offset is not None and abs(clock_offset) >= 3.0:
        side = "ahead of" if clock_offset > 0 else "behind"
        yield Sign(
            "host:clock",
            "warn",
            f"the host's clock is {text.duration(abs(clock_offset))} {side} this machine's",
            "timedatectl on both tells which is wrong",
            firm=abs(clock_offset) >= 5.0,
            after=3.0,
        )
    if sample is None:
        return
    for disk in sample.disks:
        yield from _disk(disk)
    if sample.shm_total and sample.shm_used is not None:
        share = sample.shm_used / sample.shm_total
        if share > 0.85:
            yield Sign(
                "host:shm",
                "bad" if share > 0.97 else "warn",
                f"/dev/shm is {100 * share:.0f} % full ({text.size(sample.shm_total - sample.shm_used)} free)",
                "NCCL and the engines' workers need it; leftovers of dead servers lie there: ls -la /dev/shm",
                firm=share > 0.9,
                after=3.0,
            )
    if sample.mem_total and sample.mem_available is not None:
        share = sample.mem_available / sample.mem_total
        if share < 0.07:
            yield Sign(
                "host:memory",
                "bad" if share < 0.02 else "warn",
                f"memory: {text.size(sample.mem_available)} of {text.size(sample.mem_total)} available",
                "the kernel kills the largest process when it runs out",
                firm=share < 0.05,
                after=5.0,
            )
    if sample.mem_limit and sample.mem_limit_used is not None:
        share = sample.mem_limit_used / sample.mem_limit
        if share > 0.93:
            yield Sign(
                "host:cgroup",
                "warn",
                f"memory limit of this container: {100 * share:.0f} % used of {text.size(sample.mem_limit)}",
                "processes are killed at the limit; raise it or use less",
                firm=share > 0.96,
                after=5.0,
            )


def _disk(disk: Disk) -> Iterator[Sign]:
    if disk.total <= 0:
        return
    share = disk.free / disk.total
    # a share alone would cry on a large disk that still takes a model, an amount alone on every small one
    bad = disk.free < GIB or (share < 0.01 and disk.free < 20 * GIB)
    warn = bad or (share < 0.05 and disk.free < 100 * GIB)
    near = warn or (share < 0.07 and disk.free < 120 * GIB)
    if disk.total < 2 * GIB:  # /boot and the like: only the share tells
        bad, warn, near = share < 0.01, share < 0.05, share < 0.07
    if near:
        yield Sign(
            f"disk:{disk.mount}",
            "bad" if bad else "warn",
            f"{disk.mount}: {text.size(disk.free)} of {text.size(disk.total)} free",
            "a job that prints into a full disk dies",
            firm=warn,
        )


# ---------------------------------------------------------------------------------------------------------- the jobs


def job_signs(jobs: Iterable[JobState], since: float) -> Iterator[Sign]:
    """Signs of jobs that failed: those still running, and those that ended after ``since`` (host wall time)."""
    table = list(jobs)
    names = {job.id for job in table}
    for job in table:
        if job.ended is not None and job.ended < since:
            continue
        why = _failure(job)
        if why and job.parent in names:
            continue  # a step: its pipeline stops for it, and says why
        if why:
            known = known_cause(job)
            said = known.title if known is not None else job.outcome or job.first_error
            remedy = known.remedy if known is not None else "open its log (7, enter)"
            yield Sign(f"job:{job.id}", "bad", f"{job.name} {why}" + (f": {said}" if said else ""), remedy, "job")
        elif job.health == "ready" and job.detail and job.detail.startswith("does not answer"):
            yield Sign(f"job:{job.id}:silent", "bad", f"{job.name} {job.detail}", "open its log (7, enter)", "job")
        if job.ended is None:
            for trouble in job.troubles:
                subject = trouble.partition(":")[0]
                remedy = _REMEDIES.get(subject) or _LOOK.get(job.kind, "open its log (7, enter)")
                if job.kind == "pipeline" and any(one.parent == job.id and one.ended is None and one.troubles for one in table):
                    continue  # it repeats what its running step says
                yield Sign(f"job:{job.id}:{subject}", "warn", f"{job.name} - {trouble}", remedy, "job")


def problem_signs(problems: Mapping[str, str]) -> Iterator[Sign]:
    """Signs of what the agent could not find out about jobs and servers. ``problems``: {what it did: why not}."""
    for what, why in problems.items():
        yield Sign(
            f"problem:{what}",
            "warn",
            f"{what}: {why}",
            "what it would tell is missing here, the rest is not; tell its makers",
            "job",
        )


_REMEDIES = {
    "log": "make room on its disk, or leave the log where it is: the job's directory is in its facts (7, enter, i)",
    "port": "end that process, or launch on another port",
    "files": "make room on the disk of the state directory",
    "memory": "give its control group or container more, end others, or use less (fewer workers, less offloaded to memory)",
}


_LOOK = {"serve": "", "train": "its curves are on the screen Training (6)", "benchmark": "it is on the screen Bench (8)"}


def _failure(job: JobState) -> str | None:
    if job.kind != "serve" and job.state == "exited" and job.ok is not None:
        return None if job.ok else "failed"
    if job.kind != "serve" and job.state == "exited" and job.outcome and job.ended_by is not None:
        return None
    if job.state == "oom":
        return "was killed: out of memory"
    if job.state == "failed_to_exec":
        return "could not be started"
    if job.state in ("lost_supervisor", "lost_reboot", "lost_container"):
        return {"lost_supervisor": "lost its supervisor", "lost_reboot": "ended with a reboot"}.get(
            job.state, "ended with its container"
        )
    if job.health == "failed":
        return "failed" if job.ready_seconds is None else "ended by itself"
    if job.ended is None and job.causes and job.health in ("loading", "ready"):
        return "is failing" if job.ready_seconds is None else "has failed"
    if job.state == "exited" and job.rc and job.ended_by is None:
        return f"ended with status {job.rc}" if job.rc > 0 else f"was ended by signal {-job.rc}"
    return None


# ----------------------------------------------------------------------------------------------------- the clockwork


class Alarms:
    """Turns signs into the store's alerts. ``clock`` is any clock that only goes forward, in seconds.

    Without ``patience`` a firm sign is an alert at once: for a snapshot, which sees everything only once.
    """

    def __init__(self, store: Store, clock: Callable[[], float], *, patience: bool = True) -> None:
        self._store, self._clock, self._patience = store, clock, patience
        self._groups: dict[str, dict[str, _Track]] = {}

    def judge(self, group: str, signs: Iterable[Sign], wall: float) -> None:
        """The signs that the rules of ``group`` see now; alerts of that group that are seen no more go after a while."""
        now = self._clock()
        tracks = self._groups.setdefault(group, {})
        seen = set()
        for sign in signs:
            seen.add(sign.key)
            track = tracks.setdefault(sign.key, _Track())
            track.last_seen, track.seen = now, True
            track.firm_since = (now if track.firm_since is None else track.firm_since) if sign.firm else None
            needed = sign.after if self._patience else 0.0
            ripe = track.firm_since is not None and now - track.firm_since >= needed
            if ripe or track.raised:
                track.raised = True
                self._store.raise_alert(Alert(sign.key, sign.severity, sign.text, wall, sign.source, sign.remedy))
        for key in [key for key in tracks if key not in seen]:
            tracks[key].firm_since, tracks[key].seen = None, False
        self.sweep()

    def sweep(self) -> None:
        """Clear what is seen no more and has been gone long enough: of every group, however seldom its own stream sends."""
        now = self._clock()
        for tracks in self._groups.values():
            for key in [key for key, track in tracks.items() if not track.seen]:
                track = tracks[key]
                if not track.raised or now - track.last_seen >= CLEAR_AFTER:
                    del tracks[key]
                    if track.raised:
                        self._store.clear_alert(key)

    def forget(self, group: str) -> None:
        """Clear the group's alerts at once: what they were about is gone (a reboot)."""
        for key in self._groups.pop(group, {}):
            self._store.clear_alert(key)


class _Track:
    """How long one sign has been seen."""

    __slots__ = ("firm_since", "last_seen", "raised", "seen")

    def __init__(self) -> None:
        self.firm_since: float | None = None
        self.last_seen = 0.0
        self.raised = False
        self.seen = True
