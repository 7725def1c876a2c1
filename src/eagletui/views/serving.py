"""Which serving job the screens show, which window of it, and whether it is idle. Pure but for `choose`, which tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from eagletui.engines.command import ServerFacts, parse_command
from eagletui.records import Acceptance, JobState, ServerSample, ServerView, ServerWindow
from eagletui.speculation import conditional_from_joint, first_position_word
from eagletui.store import Store

LABELS: tuple[str, ...] = ("10 s", "1 m", "10 m", "all")
"""The windows that a server is shown over."""
LIVE = frozenset(("launching", "running", "stopping"))
IDLE_AFTER = 10.0
"""Seconds without work after which a server is told as idle; between two short requests it is not."""
LEFTOVER = "leftover"
KEPT_FAILURES = 3


def is_server(job: JobState) -> bool:
    return job.kind == "serve" or job.health is not None


def is_loading(job: JobState) -> bool:
    if job.adopted is not None and job.health == "ready":
        return False  # how long the load of a server that was found took may never be known
    return job.state in LIVE and job.ready_seconds is None and job.health not in ("failed", "gone") and not is_stopping(job)


def is_stopping(job: JobState) -> bool:
    return job.state == "stopping" or (job.state in LIVE and job.health == "stopping")


def has_failed(job: JobState) -> bool:
    """Whether a server ended or gave up without being asked to."""
    return job.health == "failed" or job.state in ("oom", "failed_to_exec")


def is_alive(job: JobState) -> bool:
    """Whether something of a server runs: it goes on serving when its supervisor was killed, and holds its memory when only
    some of its processes are left."""
    return job.state in LIVE or (job.state in ("lost_supervisor", LEFTOVER) and bool(job.members))


def smoke_words(problem: str | None) -> str | None:
    """Why there was no first answer."""
    if problem == "key needed":
        return "no first answer: the server wants an API key, and none is known here"
    return f"no first answer: {problem}" if problem else None


def complaints(job: JobState) -> list[str]:
    """What is wrong with a job that runs: its log, port or files; of a server why it gave no first answer, or no numbers."""
    own = (smoke_words(job.smoke_problem), job.metrics_problem) if is_alive(job) else ()
    return [words for words in (*own, *(job.troubles if job.ended is None else ())) if words]


def servers(jobs: Iterable[JobState]) -> list[JobState]:
    """The serving jobs in the order in which they are shown: those that load, those that serve, the rest; newest first."""

    def rank(job: JobState) -> tuple[int, float]:
        return (0 if is_loading(job) else 1 if is_alive(job) else 2, -job.started)

    return sorted((job for job in jobs if is_server(job)), key=rank)


def selected(jobs: Iterable[JobState], chosen: str | None, shown: str | None = None) -> str | None:
    """The job to show: the person's choice while it is there, else the newest that loads, that serves, that has been.

    ``shown`` is looked at now. It stays while it is there, unless it has ended and a later one runs.
    """
    order = servers(jobs)
    if any(job.id == chosen for job in order):
        return chosen
    looked_at = next((job for job in order if job.id == shown), None)
    if looked_at is not None:
        if is_alive(looked_at):
            return shown
        later = (job.id for job in order if is_alive(job) and job.started > looked_at.started)
        return next(later, shown)
    return order[0].id if order else None


def select_anew(store: Store, jobs: Iterable[JobState]) -> None:
    """Select the job to show from a new job table. A choice of a job that runs lapses with it; one of an ended job holds."""
    table = list(jobs)
    found = selected(table, store.chosen, store.selected)
    if any(job.id == store.chosen and is_alive(job) for job in table):
        store.chosen = None  # from here on it stays because it is looked at
    store.selected = found


def neighbour(jobs: Iterable[JobState], current: str | None, step: int) -> str | None:
    """The serving job ``step`` further in `servers`, round the end; None when there is none."""
    ids = [job.id for job in servers(jobs)]
    if not ids:
        return None
    return ids[(ids.index(current) + step) % len(ids)] if current in ids else ids[0]


def choose(store: Store, job: str | None) -> None:
    """Show this job from now on; None leaves the choice to `selected` again."""
    store.chosen = job
    store.selected = selected(store.jobs.values(), job, store.selected if job is not None else None)
    store.changed("selected")


def current(store: Store) -> JobState | None:
    """The job that the screens of a server show."""
    return store.jobs.get(store.selected) if store.selected is not None else None


def worth_showing(jobs: Iterable[JobState]) -> list[JobState]:
    """The servers of an overview, oldest first: the live ones, and failed ones that no later start of the same has replaced."""
    order = servers(jobs)
    live = [job for job in order if is_alive(job)]
    newest: dict[tuple[str, str | None], float] = {}
    for job in order:
        key = (job.name, job.profile)
        newest[key] = max(newest.get(key, 0.0), job.started)
    failed = [job for job in order if not is_alive(job) and has_failed(job) and newest[job.name, job.profile] == job.started][
        :KEPT_FAILURES
    ]
    return sorted(live, key=lambda job: job.started) + failed


def next_window(label: str) -> str:
    """The window after ``label``, round the end."""
    return LABELS[(LABELS.index(label) + 1) % len(LABELS)] if label in LABELS else LABELS[0]


class Shown(NamedTuple):
    """The window to show. While the server is idle it is the last one with work in it.

    That one ended ``idle`` seconds ago, at ``since``, a wall time of the host. ``unused`` when no request has come since the
    first scrape that is known.
    """

    window: ServerWindow | None
    idle: float | None = None
    since: float | None = None
    unused: bool = False


def is_busy(before: ServerSample | None, sample: ServerSample) -> bool:
    """Whether the server worked at this scrape, or since the one before."""
    if (sample.running or 0) > 0 or (sample.waiting or 0) > 0:
        return True
    if before is None:
        return False
    for name in ("generated_tokens", "decoded_tokens", "prompt_tokens"):
        old, new = getattr(before, name), getattr(sample, name)
        if old is not None and new is not None and new > old:
            return True
    return False


def shown_window(views: Mapping[str, ServerView], last_busy: Mapping[str, ServerView], job: str, label: str) -> Shown:
    """The window ``label`` of a job's newest view; of its last view with work in it while it is idle."""
    view, busy = views.get(job), last_busy.get(job)
    if view is None:
        return Shown(None)
    if busy is None:
        return Shown(None, unused=True)
    idle = view.boot - busy.boot
    if idle < IDLE_AFTER:
        return Shown(view.window(label))
    return Shown(busy.window(label), idle, busy.sample.wall)


def since_jobs(store: Store, now: float) -> float | None:
    """Seconds since the job table was taken, ``now`` by this machine's monotonic clock; None while the link is down or before it.

    While nothing is heard of the host, nothing is known of what went on: its clocks stand still on the screen.
    """
    if store.jobs_seen is None:
        return None
    last = now if store.connection.state == "online" else store.connection.last_frame
    return max(0.0, (last if last is not None else store.jobs_seen) - store.jobs_seen)


def elapsed(store: Store, job: JobState, now: float) -> float | None:
    """Seconds since a live job was started, by the host's clock; for one that has ended, how long it ran."""
    if job.ended is not None:
        return max(0.0, job.ended - job.started)
    since = since_jobs(store, now)
    if job.started_boot is None or store.jobs_boot is None or since is None:
        return None
    return max(0.0, store.jobs_boot + since - job.started_boot)


def ready_for(store: Store, job: JobState, now: float) -> float | None:
    """How long a server has been ready."""
    spent = elapsed(store, job, now)
    return None if spent is None or job.ready_seconds is None else max(0.0, spent - job.ready_seconds)


def tensor_parallel(job: JobState) -> int | None:
    """Over how many cards a server splits each layer; None when its command is not one that is understood."""
    facts = _facts(job.command)
    return facts.tp if facts is not None else None


@lru_cache(maxsize=32)
def _facts(command: tuple[str, ...]) -> ServerFacts | None:
    return parse_command(command)


def conditional(acceptance: Acceptance) -> tuple[float | None, ...]:
    """The acceptance of each position given that those before it were accepted; None where no step got that far."""
    return conditional_from_joint(acceptance.per_position)


HINT_STEPS = 200
"""Verify steps in a window below which its first position is not judged."""


def first_position(acceptance: Acceptance) -> str | None:
    """What the first position points at (`speculation.first_position_word`); None where too little was drafted to say."""
    if not acceptance.per_position or acceptance.verify_steps < HINT_STEPS:
        return None
    return first_position_word(acceptance.per_position[0])
