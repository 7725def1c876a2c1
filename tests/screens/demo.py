"""Stores to look at: ``python -m tests.screens.demo NAME`` shows one of `STORES` in the dashboard, ``crash`` how it fails."""

from __future__ import annotations

import asyncio
import math
import sys
import time

from eagletui.records import (
    Acceptance,
    Alert,
    Disk,
    GpuBoard,
    GpuProcess,
    GpuSample,
    HostInfo,
    HostSample,
    JobState,
    Phase,
    Process,
    ServerSample,
    ServerView,
    ServerWindow,
)
from eagletui.store import Connection, Store
from eagletui.watch.outliers import outliers
from eagletui.watch.summary import summarise
from tests.screens.deeds_double import DeedsDouble

GIB = 1 << 30
BOOT = 3_550_000.0
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
WORKER = "/opt/vllm/bin/python -m vllm.entrypoints.openai.api_server --model /shared/kimi-k2.5-int4 --tensor-parallel-size 8"


class Watcher:
    """Records what is looked at."""

    def __init__(self) -> None:
        self.looked: list[tuple[str, bool]] = []

    def look(self, topic: str, on: bool) -> None:
        self.looked.append((topic, on))


class DeskDouble:
    """A desk without a host."""

    def __init__(self, *, readonly: bool = False) -> None:
        self.readonly = readonly
        self.watch = Watcher()
        self.deeds = DeedsDouble()


def card(number: int, boot: float = BOOT, *, busy: bool = True, name: str = NAME, **more: object) -> GpuSample:
    """One card as such a host shows it under a decode load, or idle."""
    wave = math.sin(boot / 7 + number)
    values: dict[str, object] = {
        "uuid": f"GPU-00000000-0000-4000-8000-{number:012d}",
        "number": number,
        "name": name,
        "bus_id": f"00000000:{6 + 16 * number:02X}:00.0",
        "minor": (2, 3, 0, 1, 6, 7, 4, 5)[number % 8],
        "util": round(91 + 3 * wave) if busy else 0,
        "mem_util": round(48 + 9 * wave) if busy else 0,
        "mem_used": int(91.4 * GIB) if busy else 2 << 20,
        "mem_total": 97_887 << 20,
        "mem_reserved": 636 << 20,
        "bar1_total": 128 * GIB,
        "power": 301.0 + 9 * wave if busy else 38.0,
        "power_cap": 600.0,
        "power_min": 300.0,
        "power_max": 600.0,
        "temp": 64 + number % 5 if busy else 27,
        "margin": 21 - number % 5 if busy else 58,
        "clock_sm": 2302 if busy else 180,
        "clock_mem": 12_481 if busy else 405,
        "clock_sm_max": 2430,
        "clock_mem_max": 12_481,
        "pstate": 0 if busy else 8,
        "pcie_gen": 5 if busy else 1,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_tx": 1.31e9 if busy else 7.6e5,
        "pcie_rx": 1.28e9 if busy else 5.6e5,
        "pcie_replays": 0,
        "throttle": ("SW power cap",) if busy and number == 6 else (),
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "rows_corrected": 0,
        "rows_uncorrected": 0,
        "rows_pending": False,
        "rows_failed": False,
        "recovery": "none",
        "persistence": True,
        "processes": (GpuProcess(41_200 + number, "C", int(91.1 * GIB), 1, "root", f"VLLM::Worker_TP{number}", "k25"),)
        if busy
        else (),
    }
    return GpuSample(**{**values, **more})  # type: ignore[arg-type]


def set_board(store: Store, board: GpuBoard) -> None:
    """As the watch does it."""
    store.gpus, store.gpu_summary, store.outliers = board, summarise(board), outliers(board)
    for sample in board.cards:
        for name in ("util", "mem_util", "mem_used", "power", "temp", "clock_sm", "pcie_rx", "pcie_tx"):
            store.track(("gpu", sample.uuid, name), board.boot, None if sample.lost else getattr(sample, name))
    store.changed("gpus")


def set_host(store: Store, boot: float = BOOT) -> None:
    store.host = HostSample(
        boot, 11.4, 0.2, 31.0, 28.4, 25.0, 1511 * GIB, 1299 * GIB, 1000 * GIB, 0, 0, 0, 2.1e6, 1.9e6, boot, 2204,
        (Disk("/", "/dev/nvme0n1p2", "ext4", 1800 * GIB, 612 * GIB), Disk("/data", "/dev/md0", "xfs", 14_000 * GIB, 2674 * GIB)),
        755 * GIB, 34 * GIB,
    )  # fmt: skip
    store.changed("host")


def online(store: Store) -> None:
    now = time.monotonic()
    store.connection = Connection("online", "root@gpu-host", "ssh", 0.0121, now, now)


def base_store() -> Store:
    store = Store()
    online(store)
    store.info = HostInfo("gpu-host", "boot", "root", 0, "3.12", 400, BOOT, time.time(), cpus=256, nvml=True)
    set_host(store)
    store.processes = tuple(
        Process(41_200 + n, 90 + n, 1, "root", "R" if n % 3 else "S", "python", f"VLLM::Worker_TP{n}" if n < 8 else WORKER,
                99.8 - 7 * n, (31 - n) * GIB, 64, 8044.0 + n)
        for n in range(14)
    )  # fmt: skip
    return store


def demo_jobs(now: float) -> tuple[JobState, ...]:
    serve = JobState(
        "k25", "serve", "k25-eagle3", "running", now - 8040, BOOT - 8040, health="ready", engine="vllm", engine_version="0.32.0"
    )
    serve = serve._replace(
        model="/shared/kimi-k2.5-int4",
        drafter="/data/eagle3/output_10k/4",
        k=3,
        port=8000,
        ready_seconds=1322.0,
        members=10,
        rss=290 * GIB,
        log="/root/.eagletui/jobs/k25/log",
        log_size=3 << 20,
        phases=(Phase("weights", "target", 41, 1180, 64, 64, "shards"), Phase("warm-up", None, 1221, 25.0)),
        command=("vllm", "serve", "/shared/kimi-k2.5-int4", "--tensor-parallel-size", "8"),
    )
    error = "ValueError: image_token_index is missing in the config of kimi_k2"
    return (
        serve,
        JobState("syn", "synthesise", "synth-25k", "running", now - 7100, BOOT - 7100,
                 detail="9,412 / 25,000   0 failed  214 truncated"),
        serve._replace(id="old", name="k25-plain", state="exited", started=now - 90_000, ended=now - 88_000, rc=1,
                       health="failed", ready_seconds=None, first_error=error),
        JobState("tr", "train", "drafter-10k", "exited", now - 200_000, BOOT - 200_000, ended=now - 170_000, rc=0,
                 detail="5 of 5 epochs, acceptance predicted 14.8 %"),
    )  # fmt: skip


def board_store(cards: int = 8, seconds: int = 120) -> Store:
    """Eight cards that decode, one with a slow clock, a server, jobs and alerts."""
    store = base_store()
    for back in range(seconds, -1, -1):
        boot = BOOT - back
        odd = {3: {"clock_sm": 1740, "throttle": ("HW thermal",), "temp": 84, "margin": 4}}
        samples = [card(n, boot, **odd.get(n, {})) for n in range(cards)]
        set_board(store, GpuBoard(boot, True, "595.58.03", "13.2", expected=cards, cards=tuple(samples)))
    now = time.time()
    store.jobs = {job.id: job for job in demo_jobs(now)}
    acceptance = Acceptance(60.0, 2520.0, 7560.0, 1142.0, 0.151, 1.45, (0.31, 0.116, 0.026), 126.0, 19.0, 61.2)
    store.servers = {
        "k25": ServerView(
            "k25",
            BOOT,
            ServerSample(BOOT, now, 3.0, 0.0, 0.04),
            (
                ServerWindow("10 s", 10.0, generated_per_s=60.7),
                ServerWindow("1 m", 60.0, generated_per_s=61.2, acceptance=acceptance),
            ),
        )
    }
    store.last_busy = dict(store.servers)
    store.jobs_boot, store.jobs_seen = BOOT, time.monotonic()
    store.raise_alert(
        Alert("pays", "warn", "the drafter does not pay on k25-eagle3: 0.66x of no drafter", now - 660, "acceptance",
              "serve without the drafter, or train one that reaches 40 % acceptance here")
    )  # fmt: skip
    store.raise_alert(
        Alert("hot", "bad", "GPU 3 is 4 C from slowing down", now - 60, "gpus", "look at its airflow, or lower its power cap")
    )
    return store


def idle_store() -> Store:
    store = base_store()
    for back in range(60, -1, -1):
        set_board(
            store,
            GpuBoard(BOOT - back, True, "595.58.03", "13.2", expected=8, cards=tuple(card(n, busy=False) for n in range(8))),
        )
    return store


def none_store() -> Store:
    """A host without NVIDIA's driver."""
    store = base_store()
    set_board(store, GpuBoard(BOOT, False, problem="libnvidia-ml.so.1 is not installed"))
    return store


def down_store() -> Store:
    """The link is down, one card is lost, and the driver hung before that."""
    store = board_store()
    assert store.gpus is not None
    cards = (*store.gpus.cards[:5], store.gpus.cards[5]._replace(lost="GPU is lost"), *store.gpus.cards[6:])
    set_board(store, store.gpus._replace(cards=cards, problem="NVML has not answered for 12 s", stale_since=BOOT - 12))
    now = time.monotonic()
    store.connection = Connection(
        "reconnecting", "root@gpu-host", "ssh", None, now - 9, now - 9, 3, now + 4, "network", "no route to host",
        "check the VPN; jobs on the host go on",
    )  # fmt: skip
    return store


HOSTILE = "\x1b]52;c;aGFja2Vk\x07\x1b[2J\x1b[31mred[@click=app.quit]x[/]\u202egnp\x9b1mC1\x00\r\nnext\x1b]0;title"


def hostile_store() -> Store:
    """Every text of the host tries to take the terminal over."""
    store = board_store(3, 5)
    bad = HOSTILE
    assert store.gpus is not None
    cards = tuple(
        c._replace(name=bad, bus_id=bad, throttle=(bad,), recovery=bad, lost=bad if c.number == 2 else None,
                   processes=(GpuProcess(7, "C", GIB, 1, bad, bad, bad),)) for c in store.gpus.cards
    )  # fmt: skip
    set_board(store, store.gpus._replace(cards=cards, driver=bad, cuda=bad, problem=bad))
    store.outliers = {cards[0].uuid: bad}
    store.processes = (Process(1, 1, 0, bad, bad, bad, bad, 1.0, GIB, 1, 1.0), Process(2, 2, 0, bad, "S", bad, ""))
    assert store.host is not None
    store.host = store.host._replace(disks=(Disk(bad, bad, bad, GIB, GIB),))
    store.connection = store.connection._replace(target=bad, transport=bad)
    job = JobState(bad, bad, bad, "running", time.time(), BOOT, health="loading", first_error=bad, detail=bad, k=3, port=8000)
    job = job._replace(engine=bad, engine_version=bad, model=bad, drafter=bad, cwd=bad, log=bad, command=(bad, bad))
    job = job._replace(phases=(Phase(bad, bad, unit=bad, done=1.0, total=2.0),))
    store.jobs = {"a": job._replace(kind="serve"), "b": job, "c": job._replace(state=bad), "d": job._replace(state="oom")}
    store.servers = {"a": ServerView("a", BOOT, ServerSample(BOOT, 0.0), problem=bad)}
    store.alerts = {bad: Alert(bad, "bad", bad, time.time(), bad, bad)}
    return store


STORES = {
    "board": board_store, "idle": idle_store, "none": none_store, "down": down_store, "hostile": hostile_store,
    "many": lambda: board_store(64, 60), "empty": Store,
}  # fmt: skip


class FailingWatcher(Watcher):
    def look(self, topic: str, on: bool) -> None:
        raise RuntimeError("a failure \x1b[31mmade for the test")


async def show(name: str) -> int:
    from eagletui.app import EagleApp
    from tests.screens.serving_demo import SERVING_STORES

    store = {**STORES, **SERVING_STORES}["board" if name == "crash" else name]()
    desk = DeskDouble()
    if name == "crash":
        desk.watch = FailingWatcher()
    desk.deeds.store = store
    app = EagleApp(store, desk)

    async def live() -> None:
        while True:
            await asyncio.sleep(1)
            if store.gpus is None or store.connection.state != "online":
                continue
            boot = store.gpus.boot + 1
            online(store)
            if store.gpus.present and name != "hostile":
                fresh = {c.number: card(c.number, boot) for c in store.gpus.cards}
                moving = ("util", "mem_util", "power")
                cards = tuple(c._replace(**{f: getattr(fresh[c.number], f) for f in moving}) for c in store.gpus.cards)
                set_board(store, store.gpus._replace(boot=boot, cards=cards))
            store.changed("connection")

    task = asyncio.create_task(live())
    await app.run_async()
    task.cancel()
    return 1 if app.failure is not None else app.return_code or 0


if __name__ == "__main__":
    sys.exit(asyncio.run(show(sys.argv[1] if len(sys.argv) > 1 else "board")))
