"""A load as the screens show it: its phases against earlier loads, its silence against the stall rule, what still moves.

Pure: records and series in, plain values out. Times are seconds, phases count from the first line of the log.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from eagletui.engines.events import DRAFTER, PHASE_LABELS
from eagletui.records import Eta, GpuSample, JobState, LogLine, Phase
from eagletui.store import Series, Store
from eagletui.text import clean
from eagletui.views.serving import elapsed, since_jobs

Key = tuple[str, str | None]

ORDER: tuple[str, ...] = (
    *("spawn", "config", "workers", "weights", "process", "finish", "compile", "profile", "kv", "warmup", "capture", "api"),
    "ready",
)
"""The phases in the order in which most loads go through them; the log's own order comes first."""
CERTAIN = ("weights", "kv", "api")
"""What comes in every load, told as ahead where no earlier load says more."""

STALL_SECONDS: Mapping[str, float] = {"weights": 120.0, "process": 300.0, "compile": 600.0, "profile": 600.0}
STALL_ELSE = 180.0
STALL_STEPS = 5
RATE_SECONDS = 20.0
"""A rate is taken over this time: a shard is read in bursts."""
LEVEL_SHARE, LEVEL_BYTES = 0.06, 1 << 30


class Step(NamedTuple):
    """One phase of a load. ``state`` is done, running, broken (it ended here, without success) or ahead.

    ``spent`` is None ahead, ``usual`` what earlier loads of the profile took here (None: never seen). ``done``/``total`` count
    ``unit``.
    """

    id: str
    role: str | None
    state: str
    spent: float | None = None
    usual: float | None = None
    done: float | None = None
    total: float | None = None
    unit: str | None = None


def phase_name(id_: str, role: str | None = None) -> str:
    """``weights target``, ``CUDA graphs drafter``; fit to be drawn, whatever a host calls its phases."""
    name = PHASE_LABELS.get(id_, clean(id_, 30))
    return f"{name} {clean(role, 20)}" if role else name


LONGEST_PHASE = max(len(phase_name(id_, DRAFTER)) for id_ in PHASE_LABELS)
"""Room for the name of any phase, so that a table of them does not move as they come."""


def timeline(job: JobState, elapsed: float | None, usual: Mapping[Key, float]) -> list[Step]:
    """Every phase of a load: those of its log, then those that earlier loads had (else those that always come).

    ``elapsed`` is the time since the first line; None when it is not known.
    """
    steps: list[Step] = []
    over = job.ready_seconds is None and (job.health in ("failed", "gone") or job.ended is not None)
    for number, phase in enumerate(job.phases):
        if phase.id == "ready":
            continue
        last = number == len(job.phases) - 1
        # a log may lack the line that ends a phase: in a server that is ready none runs any more
        state = "running" if phase.seconds is None and job.ready_seconds is None else "done"
        spent = phase.seconds
        if state == "running" and elapsed is not None and not over:
            spent = max(0.0, elapsed - phase.start)
        if over and last:
            state = "broken"
        steps.append(_step(phase, state, spent, usual))
    if over or job.ready_seconds is not None:
        return steps
    seen = {(step.id, step.role) for step in steps}
    for key in _ahead(job, usual):
        if key not in seen:
            steps.append(Step(key[0], key[1], "ahead", usual=usual.get(key)))
    return steps


def _step(phase: Phase, state: str, spent: float | None, usual: Mapping[Key, float]) -> Step:
    expected = usual.get((phase.id, phase.role))
    return Step(phase.id, phase.role, state, spent, expected, phase.done, phase.total, phase.unit)


def _ahead(job: JobState, usual: Mapping[Key, float]) -> list[Key]:
    if usual:
        return [key for key in usual if key[0] != "ready"]
    found: list[Key] = []
    for name in CERTAIN:
        if name == "weights":
            found.append((name, "target"))
            if job.drafter:
                found.append((name, "drafter"))
        else:
            found.append((name, None))
    reached = max((ORDER.index(p.id) for p in job.phases if p.id in ORDER), default=-1)
    return [key for key in found if ORDER.index(key[0]) >= reached]


def running_phase(job: JobState) -> Phase | None:
    """The phase that runs now, or ran when the job ended."""
    return next((phase for phase in reversed(job.phases) if phase.seconds is None), job.phases[-1] if job.phases else None)


# ---------------------------------------------------------------------------------------------------------- its silence


class Silence(NamedTuple):
    """How long nothing came in the log, and from when on that is too long in this phase."""

    seconds: float
    limit: float
    phase: str | None

    @property
    def too_long(self) -> bool:
        return self.seconds > self.limit


def stall_after(phase: Phase | None, last_step: float | None = None) -> float:
    """Seconds without a line after which a load deserves a look; ``last_step`` is what the last shard took."""
    if phase is None:
        return STALL_ELSE
    limit = STALL_SECONDS.get(phase.id, STALL_ELSE)
    return max(limit, STALL_STEPS * last_step) if phase.id == "weights" and last_step is not None else limit


def silence(job: JobState, since_sample: float, last_step: float | None = None) -> Silence | None:
    """The silence of a load's log now, ``since_sample`` seconds after the job's state was taken; None when it is not known."""
    age = job.log_age if job.log_age is not None else job.silent
    if age is None:
        return None
    phase = running_phase(job)
    return Silence(age + max(0.0, since_sample), stall_after(phase, last_step), phase.id if phase is not None else None)


def last_step(series: Series | None) -> float | None:
    """Seconds between the last two times that a counted value grew: what the last shard took. None before the second."""
    if series is None:
        return None
    times, values = series.window()
    grown = [times[i] for i in range(1, len(times)) if values[i] > values[i - 1]]
    return grown[-1] - grown[-2] if len(grown) >= 2 else None


# ------------------------------------------------------------------------------------------------------- what still moves


def growth(series: Series | None, now: float, seconds: float = RATE_SECONDS) -> float | None:
    """How fast a value grew over the last ``seconds``, per second; None without two values in that time."""
    if series is None:
        return None
    times, values = series.window(now - seconds)
    known = [(t, v) for t, v in zip(times, values, strict=True) if v == v]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    return max(0.0, (known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0]))


class Held(NamedTuple):
    """What a job holds of one card: ``used`` bytes (its own processes' where the driver tells them), of ``total``.

    ``apart`` is the distance to the other cards' middle when this card stands out, else None.
    """

    card: GpuSample
    used: int | None
    total: int | None
    apart: float | None = None


def cards_of(job: JobState, cards: Sequence[GpuSample]) -> list[GpuSample]:
    """The cards a job was given; without a list those its processes are on, else none."""
    if job.gpus:
        wanted = set(job.gpus)
        return [card for card in cards if card.uuid in wanted]
    return [card for card in cards if any(process.job == job.id for process in card.processes or ())]


def held(job: JobState, cards: Sequence[GpuSample]) -> list[Held]:
    """The memory of a job's cards, and which of them stand out: all ranks of a load fill their cards alike."""
    found: list[tuple[GpuSample, int | None]] = []
    for card in cards_of(job, cards):
        own = [process.mem for process in card.processes or () if process.job == job.id and process.mem is not None]
        found.append((card, sum(own) if own else card.mem_used))
    known = [used for _, used in found if used is not None]
    middle = statistics.median(known) if len(known) >= 3 else None
    out = []
    for card, used in found:
        apart = None
        if middle is not None and used is not None and abs(used - middle) > max(LEVEL_BYTES, LEVEL_SHARE * middle):
            apart = used - middle
        out.append(Held(card, used, card.mem_total, apart))
    return out


def headroom(cards: Iterable[GpuSample]) -> list[tuple[int, int]]:
    """(number, free bytes) of each card that tells its memory: total minus used, by whomever."""
    return [(c.number, c.mem_total - c.mem_used) for c in cards if c.mem_total is not None and c.mem_used is not None]


# -------------------------------------------------------------------------------------------------------------- its log


class Folded(NamedTuple):
    """Lines for a small view of a log, oldest first, and how many were folded away as noise."""

    lines: tuple[LogLine, ...]
    folded: int


def fold_lines(lines: Sequence[LogLine], room: int) -> Folded:
    """The last ``room`` lines that say something: no noise, of a bar that ticks only its newest; errors and bars always."""
    kept: list[LogLine] = []
    folded = 0
    for line in reversed(lines):
        if len(kept) >= room:
            break
        if line.noise and not line.progress and line.severity not in ("error", "warning"):
            folded += 1
        elif line.progress and kept and kept[-1].progress and _bar(kept[-1]) == _bar(line):
            continue
        else:
            kept.append(line)
    return Folded(tuple(reversed(kept)), folded)


def _bar(line: LogLine) -> str:
    return line.text.split(":", 1)[0]


def who_failed(job: JobState, lines: Sequence[LogLine]) -> str | None:
    """The process that printed a job's first error, when its line is among ``lines``."""
    wanted = job.first_error
    if not wanted:
        return None
    return next((line.process for line in lines if line.process and wanted[:200] in line.text), None)


def squeezed(steps: Sequence[Step], most: int) -> list[Step]:
    """The steps in at most ``most`` rows: the oldest done ones become one row, then the farthest ones ahead."""
    steps = list(steps)
    if len(steps) <= most:
        return steps
    done = next((i for i, step in enumerate(steps) if step.state != "done"), len(steps))
    fold = min(done, len(steps) - most + 1)
    if fold >= 2:
        steps = [_together(steps[:fold]), *steps[fold:]]
    ahead = next((i for i, step in enumerate(steps) if step.state == "ahead"), len(steps))
    fold = min(len(steps) - ahead, len(steps) - most + 1)
    if len(steps) > most and fold >= 2:
        steps = [*steps[:-fold], _together(steps[-fold:])]
    return steps


def _together(steps: Sequence[Step]) -> Step:
    def total(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    name = f"{len(steps)} phases"
    return Step(name, None, steps[0].state, total(step.spent for step in steps), total(step.usual for step in steps))


class Work(NamedTuple):
    """Signs of work that do not come from the log: bytes read per second, card memory's growth per second, cpu percent."""

    read: float | None = None
    filled: float | None = None
    cpu: float | None = None

    @property
    def moving(self) -> bool | None:
        """Whether data moves, from the disk or onto the cards; None when neither is known."""
        signs = [
            None if self.read is None else self.read > READ_LEAST,
            None if self.filled is None else self.filled > FILLED_LEAST,
        ]
        known = [sign for sign in signs if sign is not None]
        return any(known) if known else None

    @property
    def computing(self) -> bool:
        """Whether the processors are busy. That alone proves no work: ranks that wait for each other spin as well."""
        return self.cpu is not None and self.cpu > CPU_LEAST

    @property
    def still(self) -> bool:
        """Whether something is known, and nothing of it moves."""
        return not self.moving and not self.computing and (self.moving is not None or self.cpu is not None)


READ_LEAST, FILLED_LEAST, CPU_LEAST = 1e6, 1e7, 5.0
"""Below these a load is told to stand still: bytes read and card memory filled per second, percent of one core."""


def work_of(store: Store, job: JobState) -> Work:
    """The signs of work of a load now."""
    read = growth(store.series.get(("job", job.id, "bytes_read")), store.jobs_boot) if store.jobs_boot is not None else None
    filled = None
    if store.gpus is not None:
        rates = [growth(store.series.get(("gpu", card.uuid, "mem_used")), store.gpus.boot) for card in job_cards(store, job)]
        known = [rate for rate in rates if rate is not None]
        filled = sum(known) if known else None
    return Work(read, filled, job.cpu)


def job_cards(store: Store, job: JobState) -> list[GpuSample]:
    return cards_of(job, store.gpus.cards) if store.gpus is not None else []


def silence_of(store: Store, job: JobState, now: float) -> Silence | None:
    """The silence of a load now; ``now`` by this machine's monotonic clock."""
    phase = running_phase(job)
    step = last_step(store.series.get(("job", job.id, f"{phase.id} {phase.role}"))) if phase is not None else None
    return silence(job, since_jobs(store, now) or 0.0, step)


def steps_of(store: Store, job: JobState, now: float) -> list[Step]:
    """The phases of a load now."""
    return timeline(job, elapsed(store, job, now), store.usual.get(job.id, {}))


def eta_of(store: Store, job: JobState, now: float) -> Eta | None:
    """The estimate of a load, less the time since it was made."""
    eta = store.etas.get(job.id)
    since = since_jobs(store, now)
    if eta is None or since is None:
        return eta
    return Eta(max(0.0, eta.seconds - since), max(0.0, eta.low - since), max(0.0, eta.high - since), eta.basis)
