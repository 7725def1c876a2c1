"""The watch against a host double: pushes become records, series and alerts; nothing one stream sends harms another."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from eagletui.hosts.base import HostError, Push
from eagletui.records import JobState, ServerSample, ServerView, to_doc
from eagletui.store import Connection, Store
from eagletui.watch import telemetry
from eagletui.watch.core import Intervals, Watch
from tests.watch.double import INFO, FakeHost

CARD = {"number": 0, "name": "NVIDIA H200", "util": 90.0, "mem_used": 1 << 30, "power": 400.0, "temp": 60}


class Bench:
    """A watch with everything it needs, on clocks that the test moves."""

    def __init__(self, **options: Any) -> None:
        self.now = 50.0
        self.wall = 1_700_000_001.0
        self.host, self.store = FakeHost(), Store()
        self.watch = Watch(self.host, self.store, clock=lambda: self.now, wall=lambda: self.wall, **options)

    def online(self, **fields: Any) -> None:
        self.watch.on_state(Connection("online"), INFO._replace(**fields))

    def values(self, *key: str) -> list[float]:
        return list(self.store.series[key].window()[1])


@pytest.fixture
async def bench() -> Bench:
    made = Bench()
    made.online()
    await made.watch.start()
    return made


async def test_the_streams_are_subscribed_at_their_intervals() -> None:
    bench = Bench(intervals=Intervals(gpus=5.0))
    await bench.watch.start()
    assert dict(bench.host.subscriptions) == {"host": 2.0, "gpus": 5.0, "processes": 1.0, "jobs": 2.0}
    await bench.watch.stop()
    assert sorted(bench.host.ended) == ["gpus", "host", "jobs", "processes"]


async def test_a_push_of_the_cards_fills_board_summary_and_series(bench: Bench) -> None:
    bench.host.push("gpus", {"present": True, "cards": {"GPU-a": CARD}}, boot=1001.0)
    bench.host.push("gpus", {"present": True, "cards": {"GPU-a": {**CARD, "util": 80.0}}}, boot=1002.0)
    assert bench.store.gpus is not None
    assert bench.store.gpus.cards[0].util == 80.0
    assert bench.store.gpu_summary is not None
    assert bench.store.gpu_summary.answering == 1
    assert bench.values("gpu", "GPU-a", "util") == [90.0, 80.0]
    assert list(bench.store.series["gpu", "GPU-a", "util"].window()[0]) == [1001.0, 1002.0]
    assert math.isnan(bench.values("gpu", "GPU-a", "pcie_tx")[0])
    assert bench.store.revision["gpus"] == 2


async def test_lost_stale_and_missing_cards_leave_gaps(bench: Bench) -> None:
    push = bench.host.push
    push("gpus", {"present": True, "cards": {"GPU-a": CARD, "GPU-b": {**CARD, "number": 1}}}, boot=1001.0)
    push("gpus", {"present": True, "cards": {"GPU-a": {**CARD, "lost": "GPU is lost"}}}, boot=1002.0)
    push("gpus", {"present": True, "stale_since": 1002.0, "cards": {"GPU-a": CARD}}, boot=1003.0)
    assert [math.isnan(v) for v in bench.values("gpu", "GPU-a", "util")] == [False, True, True]
    assert [math.isnan(v) for v in bench.values("gpu", "GPU-b", "util")] == [False, True]
    assert "gpu:GPU-a:lost" in bench.store.alerts


async def test_a_push_of_the_host(bench: Bench) -> None:
    disks = {"/": {"device": "sda", "fstype": "ext4", "total": 1000 << 30, "free": 500 << 30, "read_rate": 5.0}}
    bench.host.push("host", {"cpu": 12.0, "mem_total": 100, "mem_available": 60, "disks": disks})
    assert bench.values("host", "cpu") == [12.0]
    assert bench.values("host", "mem_used") == [40.0]
    assert bench.values("host", "disk_read") == [5.0]
    assert math.isnan(bench.values("host", "net_rx")[0])
    assert bench.store.clock_offset == pytest.approx(0.0)


async def test_processes_and_jobs(bench: Bench) -> None:
    bench.host.push("processes", {"42": {"start": 99000, "comm": "python", "cpu": 5.0}}, boot=1001.0)
    assert [(p.pid, p.age) for p in bench.store.processes] == [(42, 11.0)]
    job = JobState("j1", "serve", "k25", "running", 1_700_000_000.0, health="failed")
    bench.host.push("jobs", {"j1": to_doc(job)})
    assert bench.store.jobs == {"j1": job}
    assert "job:j1" in bench.store.alerts


async def test_a_document_that_cannot_be_read_is_told_and_the_others_go_on(bench: Bench) -> None:
    bench.host.push("jobs", {"j1": {"id": "j1"}})
    assert "jobs" in bench.store.alerts["stream:jobs"].text
    bench.host.push("host", {"cpu": 1.0})
    assert bench.values("host", "cpu") == [1.0]
    bench.host.push("jobs", {})
    assert "stream:jobs" not in bench.store.alerts


async def test_a_refused_stream_is_an_alert_and_nobody_waits_for_it() -> None:
    bench = Bench()
    bench.host.refuse["gpus"] = HostError("subscribe", "no such stream", "update", kind="agent")
    await bench.watch.start()
    assert bench.store.alerts["stream:gpus"].text == "gpus: no data: no such stream"
    await asyncio.wait_for(bench.watch.sample("gpus"), 5)
    bench.host.push("host", {})
    await asyncio.wait_for(bench.watch.sample("host"), 5)


async def test_waiting_for_a_second_sample(bench: Bench) -> None:
    waiting = asyncio.ensure_future(bench.watch.sample("host", 2))
    bench.host.push("host", {})
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.host.push("host", {})
    await asyncio.wait_for(waiting, 5)


async def test_a_lost_connection_ends_every_series_with_one_gap(bench: Bench) -> None:
    bench.host.push("host", {"cpu": 1.0}, boot=1001.0)
    bench.watch.on_state(Connection("stale"), INFO)
    assert bench.values("host", "cpu") == [1.0]
    bench.watch.on_state(Connection("reconnecting"), INFO)
    bench.watch.on_state(Connection("connecting"), INFO)
    assert [math.isnan(v) for v in bench.values("host", "cpu")] == [False, True]
    bench.online()
    bench.host.push("host", {"cpu": 3.0}, boot=1030.0)
    assert [math.isnan(v) for v in bench.values("host", "cpu")] == [False, True, False]
    assert bench.store.connection.state == "online"


async def test_a_reboot_clears_the_history_and_says_so(bench: Bench) -> None:
    bench.host.push("host", {"cpu": 1.0, "mem_total": 100, "mem_available": 1}, boot=5000.0)
    bench.host.push("gpus", {"present": True, "cards": {"GPU-a": {**CARD, "lost": "gone"}}}, boot=5000.0)
    assert "gpu:GPU-a:lost" in bench.store.alerts
    bench.watch.on_state(Connection("reconnecting"), INFO)
    bench.online(boot_id="boot-2", boot=12.0)
    assert bench.store.series == {}
    assert bench.store.gpus is None
    assert set(bench.store.alerts) == {"host:reboot"}
    assert "rebooted" in bench.store.alerts["host:reboot"].text
    bench.host.push("host", {"cpu": 2.0}, boot=13.0)
    assert bench.values("host", "cpu") == [2.0]


async def test_the_same_boot_keeps_the_history(bench: Bench) -> None:
    bench.host.push("host", {"cpu": 1.0})
    bench.online(agent_pid=200)
    assert bench.values("host", "cpu") == [1.0]
    assert "host:reboot" not in bench.store.alerts


def used(cpu: float | None) -> dict[str, Any]:
    """A process table of one, its use of the processors known or not."""
    process = {"start": 99000, "comm": "python"}
    return {"42": process if cpu is None else {**process, "cpu": cpu}}


async def test_the_use_of_the_processors_is_known_soon_also_after_a_reconnect(bench: Bench) -> None:
    for cpu, pace in ((None, 1.0), (5.0, 15.0), (None, 1.0), (6.0, 15.0)):
        bench.host.push("processes", used(cpu))
        await bench.watch.settled()
        assert [interval for stream, interval in bench.host.subscriptions if stream == "processes"][-1] == pace


async def test_traffic_is_asked_for_while_somebody_looks(bench: Bench) -> None:
    assert ("gpus", {}) in bench.host.params
    bench.host.params.clear()
    bench.watch.look("traffic", True)
    await bench.watch.settled()
    bench.watch.look("traffic", False)
    await bench.watch.settled()
    assert bench.host.params == [("gpus", {"traffic": True}), ("gpus", {})]


async def test_a_stream_comes_anew_before_its_old_subscription_ends(bench: Bench) -> None:
    """A source that nobody watches for a moment begins anew: NVML is opened again, there is nothing to measure cpu from."""
    bench.host.events.clear()
    before = bench.host.listeners["gpus"]
    bench.watch.look("traffic", True)
    await bench.watch.settled()
    assert bench.host.events == ["+gpus", "-gpus"]
    doc = {"present": True, "cards": {"GPU-a": CARD}}
    bench.host.push("gpus", doc)
    before(Push("gpus", 2, 1001.5, 1_700_000_001.5, doc, doc))  # one that was still on its way
    assert bench.watch.count("gpus") == 1
    bench.host.push("gpus", doc)
    assert bench.watch.count("gpus") == 2


async def test_until_the_new_subscription_sends_the_old_one_counts() -> None:
    bench = Bench()
    await bench.watch.start()
    before = bench.host.listeners["gpus"]
    bench.host.refuse["gpus"] = HostError("connect", "no connection", kind="timeout", retry=True)
    bench.watch.look("traffic", True)
    await bench.watch.settled()
    before(Push("gpus", 2, 1001.5, 1_700_000_001.5, {}, {"present": True, "cards": {"GPU-a": CARD}}))
    assert bench.watch.count("gpus") == 1
    assert bench.host.ended == []
    bench.host.refuse.clear()
    bench.online()
    await asyncio.sleep(0)
    assert bench.host.events[-2:] == ["+gpus", "-gpus"]
    await bench.watch.stop()
    assert sorted(bench.host.ended) == ["gpus", "gpus", "host", "jobs", "processes"]


async def test_what_is_known_from_before_a_reconnect_is_old_until_its_stream_sends(bench: Bench) -> None:
    bench.host.push("gpus", {"present": True, "cards": {"GPU-a": CARD}})
    assert bench.store.old == set()
    bench.watch.on_state(Connection("reconnecting"), INFO)
    bench.online()
    assert bench.store.old == {"host", "gpus", "processes", "jobs"}
    bench.store.listen(lambda topic: seen.append((topic, topic in bench.store.old)))
    seen: list[tuple[str, bool]] = []
    bench.host.push("gpus", {"present": True, "cards": {"GPU-a": CARD}})
    assert seen[0] == ("gpus", False)
    assert bench.store.old == {"host", "processes", "jobs"}


async def test_an_alert_goes_with_the_pushes_of_other_streams(bench: Bench) -> None:
    """Where there is no driver any more the cards' stream sends once in a minute."""
    hot = {**CARD, "ecc_uncorrected": 2}
    bench.host.push("gpus", {"present": True, "cards": {"GPU-a": hot}})
    assert set(bench.store.alerts) == {"gpu:GPU-a:ecc"}
    bench.host.push("gpus", {"present": True, "problem": "NVML: driver/library mismatch", "cards": {}})
    bench.now += 3
    bench.host.push("gpus", {"present": True, "problem": "NVML: driver/library mismatch", "cards": {}})
    assert "no card can be read" in bench.store.alerts["gpu:none"].text
    bench.host.push("gpus", {"present": False, "problem": "no NVIDIA driver", "cards": {}})
    assert bench.store.alerts["gpu:none"].text == "no cards, 1 expected: no NVIDIA driver"
    bench.now += 11
    bench.host.push("host", {})
    assert set(bench.store.alerts) == {"gpu:none"}


async def test_processes_are_sampled_faster_while_somebody_looks(bench: Bench) -> None:
    bench.host.push("processes", used(5.0))
    await bench.watch.settled()
    bench.host.subscriptions.clear()
    bench.host.ended.clear()
    bench.watch.look("processes", True)
    bench.watch.look("processes", True)
    bench.watch.look("processes", False)
    await bench.watch.settled()
    assert bench.host.subscriptions == [("processes", 3.0)]
    bench.watch.look("processes", False)
    await bench.watch.settled()
    assert bench.host.subscriptions == [("processes", 3.0), ("processes", 15.0)]
    assert bench.host.ended == ["processes", "processes"]


async def test_the_clock_offset_is_the_least_delayed_of_the_last_samples(bench: Bench) -> None:
    for late in (0.0, 2.0, 5.0):
        bench.wall = 1_700_000_001.0 + late
        bench.host.push("host", {}, wall=1_700_000_001.0)
    assert bench.store.clock_offset == pytest.approx(0.0)
    for _ in range(8):
        bench.host.push("host", {}, wall=bench.wall + 60.0)
    bench.now += 10
    bench.host.push("host", {}, wall=bench.wall + 60.0)
    assert bench.store.clock_offset == pytest.approx(60.0)
    assert "ahead" in bench.store.alerts["host:clock"].text


async def test_the_number_of_cards_from_the_configuration() -> None:
    bench = Bench(expected_cards=8)
    await bench.watch.start()
    bench.host.push("gpus", {"present": True, "cards": {"GPU-a": CARD}})
    bench.now += 5
    bench.host.push("gpus", {"present": True, "cards": {"GPU-a": CARD}})
    assert "1 of 8 cards" in bench.store.alerts["gpu:missing"].text


async def test_a_stream_that_was_not_reached_is_subscribed_once_the_host_is_there() -> None:
    bench = Bench()
    bench.host.refuse["gpus"] = HostError("connect", "no connection", kind="timeout", retry=True)
    await bench.watch.start()
    assert bench.store.alerts == {}
    assert "gpus" not in bench.host.listeners
    bench.host.refuse.clear()
    bench.online()
    await asyncio.sleep(0)
    assert "gpus" in bench.host.listeners


async def test_what_came_with_the_new_connection_survives_the_news_of_the_reboot(bench: Bench) -> None:
    bench.host.push("processes", {"1": {"start": 1}}, boot=5000.0)
    bench.host.push("gpus", {"present": True, "cards": {"GPU-a": CARD}}, boot=5000.0)
    bench.watch.on_state(Connection("reconnecting"), INFO)
    bench.host.push("processes", {"2": {"start": 1}}, boot=11.0)
    bench.online(boot_id="boot-2")
    assert [process.pid for process in bench.store.processes] == [2]
    assert bench.store.gpus is None


async def test_a_failing_listener_of_the_store_does_not_end_the_stream(bench: Bench) -> None:
    def listener(_topic: str) -> None:
        raise RuntimeError("a screen's defect")

    stop = bench.store.listen(listener)
    bench.host.push("host", {"cpu": 1.0})
    stop()
    bench.host.push("host", {"cpu": 2.0})
    assert bench.values("host", "cpu") == [1.0, 2.0]


async def test_the_scrapes_of_a_ready_server_are_followed(bench: Bench) -> None:
    bench.online(state_dir="/s")
    samples = [ServerSample(1000.0 + n, 1.0, generated_tokens=60.0 * n) for n in range(3)]
    bench.host.files["/s/jobs/j1/samples.jsonl"] = b"".join(json.dumps(to_doc(sample)).encode() + b"\n" for sample in samples)
    seen = asyncio.Event()
    bench.store.listen(lambda _topic: seen.set() if "j1" in bench.store.servers else None)
    job = JobState("j1", "serve", "k25", "running", 1.0, health="ready", ready_seconds=20.0)
    bench.host.push("jobs", {"j1": to_doc(job)})
    async with asyncio.timeout(10):
        await seen.wait()
    assert bench.store.servers["j1"].job == "j1"
    await bench.watch.stop()


def serving(health: str, state: str = "running") -> dict[str, Any]:
    return {"j": to_doc(JobState("j", "serve", "j", state, 1.0, health=health, ready_seconds=3.0 if health == "ready" else None))}


async def test_jobs_are_looked_at_more_often_while_one_loads_or_ends(bench: Bench) -> None:
    ready: list[str] = []
    bench.watch.on_ready = lambda job: ready.append(job.id)
    paces = []
    for doc in (serving("loading"), serving("loading"), serving("ready"), serving("ready"), serving("stopping", "stopping"), {}):
        bench.host.push("jobs", doc)
        await bench.watch.settled()
        paces.append([interval for stream, interval in bench.host.subscriptions if stream == "jobs"][-1])
    assert paces == [1.0, 1.0, 2.0, 2.0, 1.0, 2.0]
    assert ready == ["j"]
    await bench.watch.stop()


async def test_a_reboot_ends_what_was_measured_of_servers(bench: Bench) -> None:
    bench.host.push("jobs", serving("ready"))
    bench.store.servers["j"] = ServerView("j", 5.0, ServerSample(5.0, 6.0))
    bench.online(boot_id="boot-2")
    assert bench.store.servers == {}
    await bench.watch.stop()


async def test_a_card_that_has_gone_stays_missing_when_the_agent_starts_anew(bench: Bench) -> None:
    """The new agent counts one card and knows of no other; only this side remembers."""
    both = {"GPU-a": CARD, "GPU-b": {**CARD, "number": 1}}
    bench.host.push("gpus", {"present": True, "expected": 2, "cards": both}, boot=1001.0)
    bench.watch.on_state(Connection("reconnecting"), INFO)
    bench.online()
    for boot in (1010.0, 1020.0):
        bench.host.push("gpus", {"present": True, "expected": 1, "cards": {"GPU-a": CARD}}, boot=boot)
        bench.now += 5
    assert bench.store.gpu_summary is not None
    assert (bench.store.gpu_summary.answering, bench.store.gpu_summary.expected) == (1, 2)
    assert "1 of 2 cards" in bench.store.alerts["gpu:missing"].text
    bench.online(boot_id="boot-2")
    bench.host.push("gpus", {"present": False, "problem": "no NVIDIA driver", "cards": {}}, boot=30.0)
    assert "2 expected: no NVIDIA driver" in bench.store.alerts["gpu:none"].text


def test_a_lost_link_leaves_no_gap_in_what_the_host_records_itself() -> None:
    store = Store()
    for key in (("gpu", "u", "util"), ("host", "cpu"), ("server", "j", "generated")):
        store.track(key, 10.0, 5.0)
    telemetry.gap(store, 12.0)
    assert {key: len(series) for key, series in store.series.items()} == {
        ("gpu", "u", "util"): 2,
        ("host", "cpu"): 2,
        ("server", "j", "generated"): 1,
    }
