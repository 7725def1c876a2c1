"""Does it work or hang: each pattern with its signs, the near misses beside it, and what is not known speaking for nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from eagletui.connection import Connection
from eagletui.records import GpuBoard, GpuSample, JobState, Phase, ServerSample, ServerView
from eagletui.store import Store
from eagletui.views import liveness
from eagletui.views.liveness import judge, live
from eagletui.views.loading import Silence
from eagletui.views.signs import CardSigns, Observed, observe
from eagletui.watch.liveness import judge_all, liveness_signs

GIB = 1 << 30


def spinning(number: int, **more: Any) -> CardSigns:
    """A card of a deadlock: 100 %, 140 of 600 W, memory flat, nothing over the bus."""
    return CardSigns(number, **{"util": 100.0, "least": 100.0, "power": 140.0, "cap": 600.0, "moved": 0.0, "link": 2e6, **more})


def idle(number: int, **more: Any) -> CardSigns:
    return CardSigns(number, **{"util": 0.0, "least": 0.0, "power": 40.0, "cap": 600.0, "moved": 0.0, "link": 1e6, **more})


def loading(phase: str = "weights", silent: float = 70.0, limit: float = 120.0, **more: Any) -> Observed:
    return Observed(True, phase, Silence(silent, limit, phase), 9, **more)


EIGHT = tuple(spinning(n) for n in range(8))
NONE = tuple(idle(n) for n in range(8))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(loading("workers", cards=EIGHT, cpu=800.0, cpu_most=810.0, read=0.0), ("stuck", "nccl-deadlock"), id="nccl"),
        pytest.param(loading("workers", silent=50, cards=EIGHT), ("stuck", "nccl-deadlock"), id="a notice comes every minute"),
        pytest.param(loading("workers", silent=20, cards=EIGHT), None, id="a line came just now"),
        pytest.param(loading("warmup", cards=[spinning(n, power=310.0) for n in range(8)]), None, id="they draw power"),
        pytest.param(loading("weights", cards=[spinning(n, moved=9 * GIB) for n in range(8)]), None, id="memory grows"),
        pytest.param(loading("warmup", cards=[spinning(n, link=2e10) for n in range(8)]), None, id="the bus carries"),
        pytest.param(loading("workers", cards=EIGHT[:1]), None, id="one card has nobody to wait for"),
        pytest.param(loading("workers", cards=[spinning(n, power=None) for n in range(8)]), None, id="power is not known"),
        pytest.param(loading("warmup", cards=[*EIGHT[:7], idle(7)]), ("stuck", "rank-missing"), id="one rank is missing"),
        pytest.param(loading("warmup", cards=[*EIGHT[:7], idle(7, moved=GIB)]), None, id="it fills its memory"),
        pytest.param(loading("warmup", cards=[*EIGHT[:3], *NONE[3:]]), None, id="most are idle"),
        pytest.param(
            loading("kv", cpu=0.4, cpu_most=1.0, read=0.0, cards=NONE, listening=False, port=8000),
            ("stuck", "dead-no-port"),
            id="dead",
        ),
        pytest.param(
            loading("kv", cpu=0.4, cpu_most=1.0, read=0.0, listening=False), ("stuck", "dead-no-port"), id="no cards here"
        ),
        pytest.param(
            loading("kv", cpu=2.0, cpu_most=40.0, read=0.0, cards=NONE), None, id="the processor worked within the minute"
        ),
        pytest.param(loading("weights", cpu=0.4, cpu_most=1.0, read=3e8, cards=NONE), None, id="it reads"),
        pytest.param(loading("weights", cpu_most=None, read=0.0, cards=NONE), None, id="its processor is not known"),
        pytest.param(loading("kv", cpu=0.4, cpu_most=1.0, listening=False), None, id="whether anything moves is not known"),
        pytest.param(loading("spawn", cpu=0.0, cpu_most=0.0, read=0.0), ("suspect", "waits-early"), id="waits for the hub"),
        pytest.param(loading(stopped=9), ("stuck", "stopped"), id="stopped"),
        pytest.param(loading("weights", blocked=2, cpu=1.0, cpu_most=9.0, read=0.0), ("suspect", "blocked"), id="blocked"),
        pytest.param(loading("weights", blocked=2, cpu=1.0, read=5e8), None, id="blocked, as readers are"),
        pytest.param(loading("weights", 130, cpu=100.0, cpu_most=101.0, read=0.0), ("suspect", "spinning"), id="spins"),
        pytest.param(loading("compile", 130, 600, cpu=100.0, cpu_most=101.0, read=0.0), None, id="compiles"),
        pytest.param(
            loading("compile", 700, 600, cpu=100.0, cpu_most=101.0, read=0.0), ("works", "computing"), id="compiles long"
        ),
        pytest.param(loading("weights", 130, cpu=20.0, cpu_most=30.0, read=4e8), ("works", "reading"), id="reads a large shard"),
        pytest.param(loading("api", 200, 180), ("suspect", "silent"), id="nothing is known but its silence"),
        pytest.param(loading("weights", 5, usual=40.0, spent=120.0), ("slow", "slow-phase"), id="slow"),
        pytest.param(loading("weights", 5, usual=40.0, spent=100.0), None, id="a little slow"),
        pytest.param(Observed(False, running=3.0, busy=130.0, quiet=125.0), ("stuck", "no-tokens"), id="no tokens"),
        pytest.param(Observed(False, running=3.0, busy=130.0, quiet=90.0), None, id="a long prefill"),
        pytest.param(
            Observed(False, running=3.0, busy=70.0, quiet=70.0, cards=NONE), ("stuck", "no-tokens"), id="and cards idle"
        ),
        pytest.param(
            Observed(False, running=3.0, busy=70.0, quiet=70.0, cards=EIGHT), ("stuck", "no-tokens"), id="and cards spin"
        ),
        pytest.param(
            Observed(False, running=3.0, busy=70.0, quiet=70.0, cards=[spinning(0, power=550.0)]),
            None,
            id="prefill at full power",
        ),
        pytest.param(
            Observed(False, running=0.0, waiting=0.0, quiet=70.0, cards=EIGHT), ("suspect", "alive-but-useless"), id="useless"
        ),
        pytest.param(Observed(False, running=None, quiet=70.0, cards=EIGHT), None, id="its requests are not known"),
        pytest.param(Observed(False, running=0.0, quiet=500.0, cards=NONE), None, id="idle"),
        pytest.param(Observed(False, silent_for="does not answer: timed out"), ("stuck", "no-answer"), id="no answer"),
    ],
)
def test_a_pattern_and_its_near_misses(seen: Observed, expected: tuple[str, str] | None) -> None:
    found = judge(seen)
    assert (None if found is None else (found.verdict, found.id)) == expected
    if found is not None and found.verdict != "works":
        assert found.remedy


def test_the_evidence_says_what_was_measured() -> None:
    found = judge(loading("workers", cards=EIGHT[:2], cpu=812.0, cpu_top=101.0, read=0.0, listening=False, port=8000))
    assert found is not None
    assert found.evidence == (
        "no line in the log for 1 m 10 s",
        "phase workers",
        "cpu 812 % of one core over the last minute, the busiest process 101 %",
        "read 0 B/s",
        "cards: 0 at 100 % 140 W memory flat bus 2.00 MB/s; 1 at 100 % 140 W memory flat bus 2.00 MB/s",
        "port 8000 does not listen",
    )
    assert "NCCL_P2P_DISABLE=1" in (found.remedy or "")


def store_of(job: JobState, cards: int = 0) -> Store:
    board = GpuBoard(1000.0, True, cards=tuple(GpuSample(f"u{n}", n, power_cap=600.0) for n in range(cards)))
    store = Store(connection=Connection(state="online"), jobs={job.id: job}, gpus=board if cards else None)
    store.jobs_boot, store.jobs_seen = 1000.0, 50.0
    return store


def fill(store: Store, key: tuple[str, ...], value: float | None, seconds: int = 70, step: int = 1) -> None:
    for at in range(seconds, -1, -step):
        store.track(key, 1000.0 - at, value)


def job(**more: Any) -> JobState:
    return JobState(
        **{
            "id": "j",
            "kind": "serve",
            "name": "k2",
            "state": "running",
            "started": 0.0,
            "started_boot": 500.0,
            "port": 8000,
            "health": "loading",
            "phases": (Phase("workers", None, 300.0),),
            "log_age": 70.0,
            "members": 9,
            "listening": False,
            **more,
        }
    )


def test_what_is_observed_comes_from_the_last_minute() -> None:
    store = store_of(job(gpus=("u0", "u1")), 2)
    fill(store, ("job", "j", "cpu"), 200.0)
    fill(store, ("job", "j", "bytes_read"), 5e9)
    for card in ("u0", "u1"):
        for name, value in (("util", 100.0), ("power", 140.0), ("mem_used", 6e10), ("pcie_tx", 1e6), ("pcie_rx", 1e6)):
            fill(store, ("gpu", card, name), value)
    seen = observe(store, store.jobs["j"], 50.0)
    assert (seen.cpu, seen.cpu_most, seen.read, seen.phase) == (200.0, 200.0, 0.0, "workers")
    assert seen.cards == tuple(CardSigns(n, 100.0, 100.0, 140.0, 600.0, 0.0, 2e6) for n in range(2))
    found = live(store, store.jobs["j"], 50.0)
    assert found is not None
    assert found.id == "nccl-deadlock"


@pytest.mark.parametrize("short", ["cpu", "gap"])
def test_less_than_a_minute_or_a_gap_is_not_known(short: str) -> None:
    store = store_of(job())
    fill(store, ("job", "j", "cpu"), 0.0, 30 if short == "cpu" else 70)
    fill(store, ("job", "j", "bytes_read"), 5e9)
    if short == "gap":
        store.track(("job", "j", "cpu"), 999.5, None)
    seen = observe(store, store.jobs["j"], 50.0)
    assert seen.cpu is None
    assert live(store, store.jobs["j"], 50.0) is None


def test_tokens_that_do_not_come_while_requests_run() -> None:
    ready = job(health="ready", ready_seconds=90.0, log_age=500.0, listening=True)
    store = store_of(ready)
    store.servers["j"] = ServerView("j", 1000.0, ServerSample(1000.0, 0.0, running=2.0, waiting=0.0))
    fill(store, ("server", "j", "running"), 2.0, 150, 2)
    fill(store, ("server", "j", "generated"), 0.0, 130, 2)
    fill(store, ("server", "j", "prompt"), 0.0, 150, 2)
    found = live(store, ready, 50.0)
    assert found is not None
    assert (found.id, found.seconds) == ("no-tokens", 130.0)
    store.track(("server", "j", "generated"), 1001.0, 12.0)
    assert live(store, ready, 50.0) is None


def test_what_is_stuck_is_an_alert_and_goes_with_it() -> None:
    store = store_of(job(stopped=9))
    judge_all(store, 50.0)
    assert store.liveness["j"].id == "stopped"
    (sign,) = liveness_signs(store)
    assert (sign.key, sign.severity) == ("job:j:hang", "bad")
    assert sign.text.startswith("k2: all its processes are stopped")
    store.old = {"jobs"}
    judge_all(store, 50.0)
    assert not store.liveness, "old data is not judged"
    store.old = set()
    store.jobs["j"] = job(stopped=9, state="stopping")
    judge_all(store, 50.0)
    assert not store.liveness


def test_the_page_tells_every_pattern() -> None:
    source = Path(liveness.__file__).read_text()
    patterns = set(re.findall(r'"(?:stuck|suspect|slow|works)",\s+"([a-z-]+)",', source))
    patterns |= {"dead-no-port", "dead", *re.findall(r'return "([a-z-]+)", f?"silent', source)}
    assert len(patterns) >= 16
    page = (Path(__file__).parents[2] / "docs" / "liveness.md").read_text()
    assert {name for name in patterns if f"`{name}`" not in page} == set()
