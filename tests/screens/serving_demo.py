"""Stores of a serving job in each of its states, filled by the watch's own code from made-up states and scrapes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, cast

from eagletui.records import GpuBoard, GpuProcess, JobState, LogLine, Phase, ServerSample
from eagletui.store import Store
from eagletui.watch.servers import Servers, _Follower
from tests.screens.demo import BOOT, GIB, HOSTILE, base_store, card, none_store, set_board

MODEL = "/shared/kimi-k2.5-int4"
DRAFTER = "/data/eagle3/output_10k/4"
COMMAND = ("vllm", "serve", MODEL, "--tensor-parallel-size", "8", "--port", "8000")
LOAD: tuple[tuple[str, str | None, float], ...] = (
    *(("spawn", None, 8.0), ("config", None, 18.0), ("workers", None, 15.0), ("weights", "target", 1180.0)),
    *(("process", "target", 21.0), ("weights", "drafter", 38.0), ("finish", None, 1.0), ("compile", "target", 61.0)),
    *(("compile", "drafter", 6.0), ("profile", None, 25.0), ("kv", None, 2.0), ("warmup", None, 44.0)),
    *(("capture", "target", 41.0), ("api", None, 7.0)),
)


def loaded(scale: float = 1.0) -> tuple[Phase, ...]:
    """The phases of a load that reached ready."""
    at, out = 0.0, []
    for name, role, seconds in LOAD:
        counts = {
            "weights target": (64.0, 64.0, "shards"),
            "weights drafter": (1.0, 1.0, "shards"),
            "capture target": (86.0, 86.0, "graphs"),
        }
        done, total, unit = counts.get(f"{name} {role}", (None, None, None))
        out.append(Phase(name, role, at, seconds * scale, done, total, unit))
        at += seconds * scale
    return (*out, Phase("ready", None, at))


def serve(name: str = "k25-eagle3", **more: Any) -> JobState:
    now = time.time()
    job = JobState(
        "k25", "serve", name, "running", now - 8040, BOOT - 8040, health="ready", engine="vllm", engine_version="0.32.0"
    )
    job = job._replace(
        model=MODEL, drafter=DRAFTER, k=3, port=8000, profile="k25", ready_seconds=1467.0, members=10, rss=290 * GIB, cpu=870.0,
        listening=True, log="/root/.eagletui/jobs/k25/log", log_size=3 << 20, phases=loaded(), command=COMMAND,
        gpus=tuple(card(n).uuid for n in range(8)), served_model="kimi-k2.5", max_model_len=262_144,
        smoke_tokens_per_s=58.3, smoke_seconds=0.55, bytes_read=547 * 10**9,
    )  # fmt: skip
    return job._replace(**more)


def earlier() -> list[JobState]:
    """Five loads of the same profile that reached ready before."""
    out = []
    for n, scale in enumerate((0.9, 0.95, 1.0, 1.05, 1.1)):
        ready = sum(seconds for _, _, seconds in LOAD) * scale
        out.append(
            serve(id=f"e{n}", state="exited", health="gone", rc=0, started=time.time() - 90_000 * (n + 1),
                  ended=time.time() - 80_000 * (n + 1), phases=loaded(scale), ready_seconds=ready, detail="ended by root")
        )  # fmt: skip
    return out


def line(text: str, severity: str = "info", process: str | None = "Worker_TP0", at: str = "16:40:11", **more: Any) -> LogLine:
    return LogLine(0, 1, text, severity, process, f"11-29 {at}", **more)


TAIL = (
    line("Using FlashInfer MLA backend", at="16:36:07"),
    line("vLLM is using nccl==2.28.9", at="16:36:01", noise=True),
    line("Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs", "warning", at="16:36:02"),
    line("Auto-prefetch is disabled because the filesystem (EXT4) is not a recognized network FS", at="16:36:08"),
    line("Loading safetensors checkpoint shards:  18% Completed | 12/64 [03:44<16:10, 18.7s/it]", at="16:39:52", progress=True),
    line("Loading safetensors checkpoint shards:  20% Completed | 13/64 [04:02<15:49, 18.6s/it]", progress=True),
)
ERRORS = (
    *TAIL[:4],
    line("WorkerProc failed to start.", "error", "Worker_TP3", "16:57:01"),
    line("Traceback (most recent call last):", "error", "Worker_TP3", "16:57:01"),
    line("ValueError: image_token_index is missing in the config of kimi_k2", "error", "Worker_TP3", "16:57:01"),
)


def update(store: Store, boot: float) -> None:
    """As the watch does it when a job table comes."""
    store.changed("jobs")
    Servers(cast(Any, None), store).update([job for job in store.jobs.values() if job.ready_seconds is None], boot)
    servers = Servers(cast(Any, None), store)
    servers.follow = lambda job: None  # type: ignore[method-assign]  # its scrapes are put in here, not read
    servers.update(store.jobs.values(), boot)


def loading_job(at: float, **more: Any) -> JobState:
    """The load ``at`` seconds after its start: the first phases done, the weights of the target on their way."""
    began = 41.0
    shards = max(0.0, math.floor((at - began) / 18.6))
    phases = (
        Phase("spawn", None, 0, 9), Phase("config", None, 9, 17), Phase("workers", None, 26, 15),
        Phase("weights", "target", began, None, shards, 64.0, "shards"),
    )  # fmt: skip
    job = serve(
        state="running", health="loading", ready_seconds=None, started=time.time() - at, started_boot=BOOT - at, phases=phases,
        served_model=None, max_model_len=None, smoke_tokens_per_s=None, smoke_seconds=None, listening=False, rss=int(38.1 * GIB),
        bytes_read=int(458e6 * max(0.0, at - began)), log_age=3.0, silent=3.0, members=10,
    )  # fmt: skip
    return job._replace(**more)


def loading_board(store: Store, boot: float, rate: float, odd: bool = False) -> None:
    cards = []
    for n in range(8):
        mem = int(max(0.6 * GIB, 14 * GIB + (boot - BOOT) * rate / 8))
        if odd and n == 5:
            mem //= 3
        process = GpuProcess(41_200 + n, "C", mem - (300 << 20), 1, "root", f"VLLM::Worker_TP{n}", "k25")
        cards.append(card(n, boot, busy=False, mem_used=mem, util=2, power=82.0, processes=(process,)))
    set_board(store, GpuBoard(boot, True, "595.58.03", "13.2", expected=8, cards=tuple(cards)))


def loading_store(moving: bool = True, silent: float = 3.0, known: bool = True, odd: bool = False) -> Store:
    """A load in its weights, with five earlier ones of the same profile here."""
    store = base_store()
    for back in range(60, -1, -2):
        boot = BOOT - back
        loading_board(store, boot, 458e6 if moving else 0.0, odd)
        job = loading_job(283.0 - back if moving else 283.0, log_age=silent, silent=silent)
        if not moving:
            job = job._replace(started_boot=BOOT - 900, cpu=0.0)
        store.jobs = {one.id: one for one in ([*earlier()] if known else [])} | {"k25": job}
        update(store, boot)
    store.tails["k25"] = TAIL
    return store


def failed_store() -> Store:
    """A load that failed when the drafter was to be loaded."""
    store = loading_store()
    phases = (*loaded()[:4], Phase("weights", "drafter", 1221.0, 2.0))
    error = "ValueError: image_token_index is missing in the config of kimi_k2"
    job = serve(state="exited", health="failed", rc=1, started=time.time() - 1300, ended=time.time() - 60, ready_seconds=None)
    job = job._replace(phases=phases, first_error=error, members=0, cpu=None, rss=None, listening=None, served_model=None)
    store.jobs["k25"] = job._replace(smoke_tokens_per_s=None, smoke_seconds=None, max_model_len=None)
    store.tails["k25"] = ERRORS
    update(store, BOOT)
    return store


def no_job_store() -> Store:
    """A host on which nothing was ever served."""
    store = base_store()
    update(store, BOOT)
    return store


def stopped_store() -> Store:
    """Only servers that were ended on request."""
    store = base_store()
    store.jobs = {job.id: job for job in earlier()}
    update(store, BOOT)
    return store


def sample(boot: float, tokens: float, steps: float, running: float, **more: Any) -> ServerSample:
    """A scrape of a vLLM server whose drafter has 31, 11.6 and 2.6 percent per position."""
    drafts = tuple(round(steps * share) for share in (0.31, 0.116, 0.026))
    count = round(tokens / 1.45)
    itl = (
        (0.005, count * 0.3),
        (0.01, count * 0.32),
        (0.025, count * 0.75),
        (0.05, count * 0.97),
        (0.1, count * 0.995),
        (None, count),
    )
    done = round(tokens / 400)
    ttft = ((0.1, done * 0.2), (0.25, done * 0.8), (0.5, done * 0.95), (1.0, done), (None, done))
    return ServerSample(
        boot, time.time() - (BOOT - boot), running, 0.0, 0.04 * running / 3, 21 * tokens, tokens, steps, 3 * steps, sum(drafts),
        drafts, 21 * tokens, 17 * tokens, 0, done, ttft, done * 0.21, itl, count * 0.0231, 1.7e9,
        engine="vllm", k=3, acceptance_from="counters",
    )._replace(**more)  # fmt: skip


def feed(store: Store, job: str, samples: list[ServerSample]) -> None:
    """Scrapes as if they had been read from the host."""
    follower = _Follower(cast(Any, None), store, job)
    for one in samples:
        follower._take(one)
        follower._chart(one)
    follower._publish()


def busy_samples(busy: float = 900.0, idle: float = 0.0, make: Callable[..., ServerSample] = sample) -> list[ServerSample]:
    """A scrape every 2 s: some idle time, then work, then ``idle`` seconds without."""
    out, tokens, steps = [], 0.0, 0.0
    start = BOOT - busy - idle - 300
    at = start
    while at <= BOOT:
        working = start + 300 < at <= BOOT - idle
        if working:
            pace = 61.2 + 6 * math.sin(at / 40) + 3 * math.sin(at / 7)
            tokens, steps = tokens + 2 * pace, steps + 2 * pace / (1.452 + 0.05 * math.sin(at / 60))
        out.append(make(at, round(tokens), round(steps), 3.0 if working else 0.0))
        at += 2
    return out


def ready_store(samples: list[ServerSample] | None = None, **more: Any) -> Store:
    """A server with a drafter that answers three requests at a time."""
    store = base_store()
    set_board(store, GpuBoard(BOOT, True, "595.58.03", "13.2", expected=8, cards=tuple(card(n) for n in range(8))))
    store.jobs = {job.id: job for job in earlier()} | {"k25": serve(**more)}
    update(store, BOOT)
    feed(store, "k25", busy_samples() if samples is None else samples)
    store.tails["k25"] = (*TAIL, line("Application startup complete.", process=None, at="16:58:01"))
    return store


def idle_server_store() -> Store:
    return ready_store(busy_samples(idle=420.0))


def unused_store() -> Store:
    return ready_store([sample(BOOT - back, 0, 0, 0.0) for back in range(600, -1, -2)])


def plain_store() -> Store:
    """A server without a drafter."""
    bare: dict[str, Any] = {
        "verify_steps": None,
        "drafted": None,
        "accepted": None,
        "per_position": None,
        "acceptance_from": None,
    }
    samples = [one._replace(**bare) for one in busy_samples()]
    return ready_store(samples, drafter=None, k=None, name="k25-plain")


def gauge_store() -> Store:
    """An older SGLang: its acceptance is a gauge of the last decode steps."""

    def make(boot: float, tokens: float, steps: float, running: float) -> ServerSample:
        bare: dict[str, Any] = {"verify_steps": None, "drafted": None, "accepted": None, "per_position": None}
        one = sample(boot, tokens, steps, running, **bare)
        return one._replace(engine="sglang", acceptance_from="gauge", gauge_length=1.47, gauge_rate=0.157, preemptions=None)

    return ready_store(busy_samples(make=make), engine="sglang", engine_version="0.5.9", name="k25-sglang")


def wired_wrong_store() -> Store:
    """A drafter whose first position is hardly ever right."""

    def make(boot: float, tokens: float, steps: float, running: float) -> ServerSample:
        drafts = (round(steps * 0.036), round(steps * 0.0006), 0)
        return sample(boot, tokens, steps, running, per_position=drafts, accepted=sum(drafts))

    return ready_store(busy_samples(make=make))


def lab_store() -> Store:
    """The first load of a small engine on a machine without cards."""
    store = none_store()
    phases = (Phase("spawn", None, 0, 4), Phase("config", None, 4, 2), Phase("compile", "target", 6))
    job = loading_job(31.0, phases=phases, name="lab", profile="lab", model="/root/lab/smollm2", gpus=(), members=3, cpu=187.0)
    store.jobs = {"k25": job._replace(rss=int(3.1 * GIB), bytes_read=270_000_000, drafter="/root/lab/drafter/2", command=())}
    update(store, BOOT)
    store.tails["k25"] = TAIL[3:]
    return store


def hostile_server_store() -> Store:
    """Every text of a job tries to take the terminal over."""
    store = loading_store()
    bad = HOSTILE
    hostile = [line(bad, "error", bad, bad), line(bad, "info", bad, bad, progress=True), line(bad, "odd", bad)]
    for id_ in list(store.jobs):
        job = store.jobs[id_]._replace(
            name=bad, engine=bad, engine_version=bad, model=bad, drafter=bad, served_model=bad, detail=bad
        )
        phases = (Phase(bad, bad, 0, None, 1.0, 2.0, bad), *job.phases)
        store.jobs[id_] = job._replace(first_error=bad, phases=phases, command=(bad, bad), profile=bad)
        store.tails[id_] = tuple(hostile)
    store.jobs["k25"] = store.jobs["k25"]._replace(health="failed", state="exited")
    update(store, BOOT)
    feed(store, "k25", busy_samples(60))
    store.servers["k25"] = store.servers["k25"]._replace(problem=bad)
    return store


SERVING_STORES: dict[str, Callable[[], Store]] = {
    "loading": loading_store,
    "stalled": lambda: loading_store(moving=False, silent=190.0, odd=True),
    "first": lambda: loading_store(known=False),
    "lab": lab_store,
    "ready": ready_store,
    "idle-server": idle_server_store,
    "unused": unused_store,
    "plain": plain_store,
    "gauge": gauge_store,
    "wired": wired_wrong_store,
    "failed": failed_store,
    "stopped": stopped_store,
    "no-job": no_job_store,
    "hostile-server": hostile_server_store,
}
