"""What the watch keeps for the screens of a server: the job they show, usual times, a load's series, the last work."""

from __future__ import annotations

import asyncio
from pathlib import Path

from eagletui.agent.job_lines import Lines
from eagletui.records import HostInfo, JobState, Phase, to_doc
from eagletui.store import Store
from eagletui.watch.servers import Servers
from tests.watch.test_servers import FileReader, scrape


def loading(done: float, read: int) -> JobState:
    phases = (Phase("config", None, 0, 4.0), Phase("weights", "target", 4.0, None, done, 16, "shards"))
    return JobState(
        "new",
        "serve",
        "lab",
        "running",
        50.0,
        100.0,
        health="loading",
        engine="vllm",
        profile="p",
        phases=phases,
        bytes_read=read,
    )


async def test_a_load_leaves_its_series_until_it_is_ready() -> None:
    store = Store()
    servers = Servers(FileReader(), store, retry=0.0)
    earlier = JobState("old", "serve", "lab", "exited", 1.0, engine="vllm", profile="p", ready_seconds=9.0)
    earlier = earlier._replace(phases=(Phase("config", None, 0, 3.0), Phase("weights", "target", 3.0, 6.0)))
    for at, done in ((104.0, 1.0), (106.0, 1.0), (108.0, 2.0)):
        servers.update([earlier, loading(done, int(done * 1e9))], at)
    assert (store.jobs_boot, store.selected) == (108.0, "new")
    assert store.jobs_seen is not None
    assert store.usual["new"] == {("config", None): 3.0, ("weights", "target"): 6.0}
    assert list(store.series["job", "new", "bytes_read"].window()[1]) == [1e9, 1e9, 2e9]
    assert list(store.series["job", "new", "weights target"].window()[1]) == [1.0, 1.0, 2.0]
    servers.update([earlier], 110.0)
    assert not store.series
    assert store.selected == "old"
    await servers.stop()


async def test_the_last_work_of_a_server_that_has_been_idle_since_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "j1"
    folder.mkdir(parents=True)
    lines = Lines(str(folder / "samples.jsonl"), cap=1 << 20)
    for i in range(200):
        work = min(i, 30)
        lines.append(to_doc(scrape(i * 2.0, work * 60, work * 20, work * 10, running=1.0 if i < 30 else 0.0)))
    store = Store()
    store.info = HostInfo("h", "boot", "root", 0, "3.11", 1, 60.0, 1e9, state_dir=str(tmp_path))
    job = JobState("j1", "serve", "lab", "running", 0.0, ready_seconds=9.0, health="ready")
    store.jobs = {"j1": job}
    seen = asyncio.Event()
    store.listen(lambda topic: seen.set() if topic == "servers" else None)
    reader = FileReader()
    servers = Servers(reader, store, retry=0.0)
    servers.update([job], 400.0)
    while "j1" not in store.last_busy or ("server", "j1", "generated") not in store.series:
        seen.clear()
        await asyncio.wait_for(seen.wait(), 10)
    busy = store.last_busy["j1"]
    assert busy.boot == 60.0
    assert busy.window("10 s").generated_per_s == 30.0  # type: ignore[union-attr]
    assert store.servers["j1"].boot == 398.0
    assert store.servers["j1"].window("1 m").generated_per_s == 0.0  # type: ignore[union-attr]

    lines.append(to_doc(scrape(400.0, 31 * 60, 31 * 20, 31 * 10, running=0.0)))  # a request between two scrapes
    reader.changed.set()
    while store.last_busy["j1"].boot < 400.0:
        seen.clear()
        await asyncio.wait_for(seen.wait(), 10)
    servers.update([], 402.0)
    assert "j1" not in store.last_busy
    await servers.stop()
