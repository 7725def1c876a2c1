"""The rules, each with its way in and its way back; and the clockwork."""

from __future__ import annotations

from typing import Any

import pytest

from eagletui.records import Disk, GpuBoard, GpuSample, HostSample, JobState
from eagletui.store import Store
from eagletui.watch.alerts import CLEAR_AFTER, Alarms, Sign, board_signs, host_signs, job_signs

GIB = 1 << 30


def card(number: int = 0, **fields: Any) -> GpuSample:
    return GpuSample(uuid=f"GPU-{number}", number=number, **fields)


def board(*cards: GpuSample, **fields: Any) -> GpuBoard:
    return GpuBoard(**{"boot": 100.0, "present": True, "cards": cards, **fields})


def keys(signs: Any, firm: bool = True) -> set[str]:
    return {sign.key for sign in signs if sign.firm is firm}


def test_a_healthy_board_and_a_host_without_cards_have_no_sign() -> None:
    healthy = card(
        util=99.0, pstate=0, pcie_gen=5, pcie_gen_max=5, pcie_width=16, pcie_width_max=16, margin=20, throttle=("SW power cap",)
    )
    assert list(board_signs(board(healthy, expected=1))) == []
    assert list(board_signs(GpuBoard(boot=1.0, present=False, problem="no libnvidia-ml"))) == []
    assert list(board_signs(None)) == []


@pytest.mark.parametrize(
    ("fields", "key", "severity"),
    [
        ({"lost": "GPU is lost"}, "gpu:GPU-0:lost", "bad"),
        ({"throttle": ("HW thermal",)}, "gpu:GPU-0:HW thermal", "bad"),
        ({"throttle": ("HW power brake",)}, "gpu:GPU-0:HW power brake", "bad"),
        ({"ecc_uncorrected": 2}, "gpu:GPU-0:ecc", "bad"),
        ({"rows_pending": True}, "gpu:GPU-0:rows", "warn"),
        ({"rows_failed": True}, "gpu:GPU-0:rows-failed", "bad"),
        ({"recovery": "reset the GPU"}, "gpu:GPU-0:recovery", "bad"),
        ({"margin": 2}, "gpu:GPU-0:hot", "warn"),
        (
            {"util": 95.0, "pstate": 0, "pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 8, "pcie_width_max": 16},
            "gpu:GPU-0:link",
            "warn",
        ),
    ],
)
def test_what_a_card_can_have(fields: dict[str, Any], key: str, severity: str) -> None:
    (sign,) = board_signs(board(card(**fields)))
    assert (sign.key, sign.severity, sign.firm) == (key, severity, True)
    assert sign.text.startswith("card 0")
    assert sign.remedy


def test_values_that_are_not_available_raise_nothing() -> None:
    assert list(board_signs(board(card()))) == []
    assert list(host_signs(HostSample(boot=1.0))) == []


def test_a_link_at_rest_is_not_judged() -> None:
    idle = card(util=0.0, pstate=8, pcie_gen=1, pcie_gen_max=5, pcie_width=16, pcie_width_max=16)
    assert list(board_signs(board(idle))) == []


def test_missing_cards_by_memory_and_by_configuration() -> None:
    assert keys(board_signs(board(card(), expected=2))) == {"gpu:missing"}
    assert keys(board_signs(board(card(), expected=1), 8)) == {"gpu:missing"}
    (sign,) = board_signs(board(card(), expected=2, problem="1 of 2 cards answer; gone: GPU-b (was card 1)"))
    assert "was card 1" in sign.text
    assert keys(board_signs(GpuBoard(boot=1.0, present=False), 8)) == {"gpu:none"}
    assert keys(board_signs(GpuBoard(boot=1.0, present=False, expected=8))) == {"gpu:none"}  # its driver was there before
    assert keys(board_signs(GpuBoard(boot=1.0, present=False))) == set()


def test_a_driver_that_cannot_be_used() -> None:
    broken = GpuBoard(1.0, True, problem="the driver was changed while it was loaded", stale_since=1.0)
    assert keys(board_signs(broken)) == {"gpu:none"}


def test_stale_data_is_told_and_nothing_else_is_judged() -> None:
    old = board(card(ecc_uncorrected=1), stale_since=90.0, problem="NVML has not answered for 10 s")
    assert keys(board_signs(old)) == {"gpu:stale"}
    assert keys(board_signs(old._replace(stale_since=98.0)), firm=False) == {"gpu:stale"}


@pytest.mark.parametrize(
    ("total", "free", "severity", "firm"),
    [
        (7000 * GIB, 300 * GIB, None, None),  # 4 %, but a model still fits
        (7000 * GIB, 90 * GIB, "warn", True),
        (7000 * GIB, 10 * GIB, "bad", True),
        (200 * GIB, 9 * GIB, "warn", True),
        (200 * GIB, 13 * GIB, "warn", False),
        (200 * GIB, GIB // 2, "bad", True),
        (200 * GIB, 40 * GIB, None, None),
        (GIB // 2, GIB // 4, None, None),  # /boot
        (GIB // 2, 0, "bad", True),
        (0, 0, None, None),
    ],
)
def test_disks(total: int, free: int, severity: str | None, firm: bool | None) -> None:
    signs = list(host_signs(HostSample(boot=1.0, disks=(Disk("/data", "sda", "ext4", total, free),))))
    assert [(s.severity, s.firm) for s in signs] == ([] if severity is None else [(severity, firm)])


@pytest.mark.parametrize(
    ("fields", "key", "firm"),
    [
        ({"shm_total": 100, "shm_used": 95}, "host:shm", True),
        ({"shm_total": 100, "shm_used": 88}, "host:shm", False),
        ({"shm_total": 100, "shm_used": 50}, None, None),
        ({"mem_total": 100, "mem_available": 4}, "host:memory", True),
        ({"mem_total": 100, "mem_available": 6}, "host:memory", False),
        ({"mem_total": 100, "mem_available": 60}, None, None),
        ({"mem_limit": 100, "mem_limit_used": 97}, "host:cgroup", True),
        ({"mem_limit": 100, "mem_limit_used": 20}, None, None),
    ],
)
def test_memory(fields: dict[str, int], key: str | None, firm: bool | None) -> None:
    signs = list(host_signs(HostSample(boot=1.0, **fields)))  # type: ignore[arg-type]
    assert [(s.key, s.firm) for s in signs] == ([] if key is None else [(key, firm)])


@pytest.mark.parametrize(("offset", "firm", "words"), [(7.0, True, "ahead of"), (-7.0, True, "behind"), (4.0, False, "ahead of")])
def test_clock_skew(offset: float, firm: bool, words: str) -> None:
    (sign,) = host_signs(None, offset)
    assert sign.firm is firm
    assert words in sign.text
    assert list(host_signs(None, 1.0)) == []


@pytest.mark.parametrize(
    ("fields", "alert"),
    [
        ({"state": "running", "health": "failed"}, True),
        ({"state": "oom"}, True),
        ({"state": "failed_to_exec"}, True),
        ({"state": "lost_reboot"}, True),
        ({"state": "exited", "rc": 1, "ended": 200.0}, True),
        ({"state": "exited", "rc": 0, "ended": 200.0}, False),
        ({"state": "exited", "rc": -15, "ended": 200.0, "ended_by": "ann"}, False),  # somebody wanted that
        ({"state": "exited", "rc": -11, "ended": 200.0}, True),  # nobody here did
        ({"state": "exited", "rc": 0, "ended": 200.0, "health": "failed", "ready_seconds": 9.0}, True),  # a server, unasked
        ({"state": "exited", "ended": 200.0}, False),  # unknown is not failed
        ({"state": "exited", "rc": 1, "ended": 50.0}, False),  # before we watched
        ({"state": "running", "health": "ready"}, False),
    ],
)
def test_failed_jobs(fields: dict[str, Any], alert: bool) -> None:
    job = JobState(id="j1", kind="serve", name="k25", started=10.0, first_error="CUDA out of memory", **fields)
    signs = list(job_signs([job], since=100.0))
    assert [sign.key for sign in signs] == (["job:j1"] if alert else [])
    assert all("CUDA out of memory" in sign.text for sign in signs)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_sign_must_last_before_it_becomes_an_alert_and_be_gone_before_it_goes(clock: Clock) -> None:
    store = Store()
    alarms = Alarms(store, clock)
    firm = Sign("k", "warn", "text", after=5.0)
    alarms.judge("host", [firm], 1000.0)
    clock.now = 4.0
    alarms.judge("host", [firm], 1004.0)
    assert store.alerts == {}
    clock.now = 5.0
    alarms.judge("host", [firm], 1005.0)
    assert store.alerts["k"].wall == 1005.0
    clock.now = 6.0
    alarms.judge("host", [firm._replace(firm=False, text="less")], 1006.0)
    assert store.alerts["k"].text == "less"
    assert store.alerts["k"].wall == 1005.0
    clock.now = 7.0
    alarms.judge("host", [], 1007.0)
    assert "k" in store.alerts
    clock.now = 6.0 + CLEAR_AFTER
    alarms.judge("host", [], 1016.0)
    assert store.alerts == {}


def test_a_sign_that_comes_and_goes_starts_anew(clock: Clock) -> None:
    store = Store()
    alarms = Alarms(store, clock)
    firm = Sign("k", "warn", "text", after=5.0)
    for clock.now, seen in ((0.0, True), (3.0, False), (4.0, True), (8.0, True)):  # type: ignore[misc]
        alarms.judge("host", [firm] if seen else [], 0.0)
    assert store.alerts == {}
    clock.now = 9.0
    alarms.judge("host", [firm], 0.0)
    assert "k" in store.alerts


def test_a_weak_sign_alone_raises_nothing(clock: Clock) -> None:
    store = Store()
    alarms = Alarms(store, clock)
    for clock.now in (0.0, 100.0):  # type: ignore[misc]
        alarms.judge("host", [Sign("k", "warn", "text", firm=False)], 0.0)
    assert store.alerts == {}


def test_groups_do_not_clear_each_other(clock: Clock) -> None:
    store = Store()
    alarms = Alarms(store, clock)
    alarms.judge("host", [Sign("h", "warn", "text")], 0.0)
    alarms.judge("gpus", [Sign("g", "warn", "text")], 0.0)
    clock.now = 100.0
    alarms.judge("gpus", [], 0.0)
    assert set(store.alerts) == {"h"}
    alarms.forget("host")
    assert store.alerts == {}


def test_an_acknowledged_alert_stays_so_while_its_text_changes(clock: Clock) -> None:
    store = Store()
    alarms = Alarms(store, clock)
    alarms.judge("host", [Sign("k", "warn", "one")], 0.0)
    store.acknowledge(["k"])
    alarms.judge("host", [Sign("k", "bad", "two")], 1.0)
    assert store.alerts["k"].acknowledged
    assert store.alerts["k"].text == "two"


def test_a_snapshot_does_not_wait(clock: Clock) -> None:
    store = Store()
    alarms = Alarms(store, clock, patience=False)
    alarms.judge("host", [Sign("k", "warn", "text", after=30.0), Sign("weak", "warn", "text", firm=False)], 0.0)
    assert set(store.alerts) == {"k"}


def work_signs(*jobs: JobState) -> dict[str, Sign]:
    return {sign.key: sign for sign in job_signs(jobs, 0.0)}


def test_a_job_that_is_no_server_fails_by_its_judged_result_not_by_its_status() -> None:
    job = JobState("s", "synthesise", "synth", "exited", 1.0, ended=2.0, rc=0, ok=False, outcome="0 of 10 rows: all failed")
    (sign,) = work_signs(job).values()
    assert sign.text == "synth failed: 0 of 10 rows: all failed"
    assert not work_signs(job._replace(ok=True, rc=1, outcome="finished; its last lines are an error"))
    assert not work_signs(job._replace(ok=None, rc=-15, ended_by="root", outcome="stopped on request"))


def test_a_step_that_failed_is_told_by_its_pipeline_and_a_trouble_once() -> None:
    step = JobState("s", "train", "train", "exited", 1.0, ended=2.0, rc=1, ok=False, outcome="out of memory", parent="p")
    chain = JobState(
        "p", "pipeline", "loop", "exited", 1.0, ended=3.0, rc=1, ok=False, outcome="step train failed: out of memory"
    )
    assert list(work_signs(step, chain)) == ["job:p"]
    assert list(work_signs(step)) == ["job:s"]
    live = step._replace(state="running", ended=None, rc=None, ok=None, outcome=None, troubles=("loss: no number since step 3",))
    above = chain._replace(state="running", ended=None, rc=None, ok=None, outcome=None, troubles=("train: loss: no number",))
    found = work_signs(live, above)
    assert list(found) == ["job:s:loss"]
    assert found["job:s:loss"].remedy == "its curves are on the screen Training (6)"
    assert list(work_signs(above)) == ["job:p:train"]
