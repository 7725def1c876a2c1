"""What the acting screens ask for, without a host: commands that the test answers, a log that is a real file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from pathlib import Path
from typing import Any

from eagletui.agent.files import floor_of
from eagletui.commands import LaunchPlan, pids_id
from eagletui.commands.preflight import Preflight
from eagletui.commands.probe import Answered, Piece, Sent
from eagletui.commands.run import RunPlan
from eagletui.commands.why import Canary, Looked, Stacks
from eagletui.config import Notice
from eagletui.engines.preflight.findings import Report
from eagletui.hosts.base import Chunk, Doc, HostError
from eagletui.jobfiles import JobFile
from eagletui.jobs.kinds import kind
from eagletui.profile_launch import launch_spec
from eagletui.profiles import Profile, load_profiles
from eagletui.records import Acceptance, Alert, GpuProcess, JobState, KillPlan, KillReport, Victim
from eagletui.store import Store
from eagletui.watch.logs import LogWindow, Match, first_error

LOG = Path(__file__).parent.parent / "data" / "engines" / "vllm-0.32" / "serve_eagle3.log"
GIB = 1 << 30


class FileReader:
    """A real file, read and searched as the agent does; a read at the end waits until `poke`."""

    def __init__(self) -> None:
        self.grown = asyncio.Event()
        self.fail: HostError | None = None

    def poke(self) -> None:
        self.grown.set()

    async def read(
        self, path: str, offset: int, limit: int = 65536, wait: float = 0.0, identity: tuple[int, int] | None = None
    ) -> Chunk:
        if self.fail is not None:
            raise self.fail
        while wait and offset >= os.path.getsize(path):
            self.grown.clear()
            await self.grown.wait()
        fd = os.open(path, os.O_RDONLY)
        try:
            info = os.fstat(fd)
            floor = floor_of(fd, info.st_size)
            at = max(floor, info.st_size + offset if offset < 0 else offset)
            return Chunk(os.pread(fd, limit, at), at, info.st_size, info.st_dev, info.st_ino, floor, info.st_mtime)
        finally:
            os.close(fd)

    async def search(self, path: str, pattern: str, start: int = 0, **params: Any) -> Doc:
        from eagletui.agent.search import _finder, _Hunt

        hunt = _Hunt(path, _finder(pattern.encode(), bool(params.get("regex")), bool(params.get("ignore_case"))), start, None, 1)
        return hunt.backward() if params.get("backward") else hunt.forward()


SPY = ('Thread 4711 (active): "MainThread"', "    all_reduce (torch/distributed/distributed_c10d.py:2811)")


class DeedsDouble:
    """Records what was asked for in ``done``; the answers are attributes that a test may change."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.operator = "root"
        self.busy: tuple[str, ...] = ()
        self.store: Store | None = None
        self.reader = FileReader()
        self.log: Path = LOG
        self.stored: dict[str, Profile] | None = None
        self.notices: list[Notice] = []
        self.good: Profile | None = None
        self.files: dict[str, JobFile] = {}
        self.planned: list[JobFile] = []
        self.missing: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.findings: Report | None = Report(seconds=0.3)
        self.looks = 0
        self.refusal: HostError | None = None
        self.launched: dict[str, Profile] = {}
        self.plan = kill_plan()
        self.report = KillReport(
            "k25", True, ("10 processes", "port 8000", "/dev/shm/psm_5f3a"), (), 12.4, -15, "731 GiB came back"
        )
        self.looked = Looked((Stacks(4711, "VLLM::Worker_TP3", "S", 2, (("futex_wait_queue", 2),), (), SPY),), "/usr/bin/py-spy")
        self.token = Canary(True, 0.4, "one token in 0.4 s: it works")
        self.may_end = asyncio.Event()
        self.events: list[Any] = probe_events()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.may_end.set()

    def _check(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def retry(self) -> None:
        self.done.append(("retry",))

    def ask_with(self, prompter: Any) -> None:
        self.prompter = prompter

    def acknowledge(self, keys: Iterable[str]) -> list[Alert]:
        assert self.store is not None
        found = [self.store.alerts[key] for key in keys]
        self.done.append(("acknowledge", *(alert.key for alert in found)))
        self.store.acknowledge(alert.key for alert in found)
        return found

    def profiles(self) -> tuple[dict[str, Profile], list[Notice]]:
        found, _ = load_profiles("gpu-host")
        return (found if self.stored is None else self.stored), self.notices

    def last_good(self, name: str) -> Profile | None:
        return self.good

    def save_profile(self, profile: Profile, everywhere: bool) -> Path:
        self.done.append(("save", profile, everywhere))
        self._check()
        return Path("/home/me/.config/eagletui/profiles") / f"{profile.name}.toml"

    async def plan_launch(self, profile: Profile) -> LaunchPlan:
        spec = launch_spec(profile, "job-1", [f"GPU-{n}" for n in range(8)])
        env = {**spec["env"], **dict.fromkeys(profile.secrets, "***")}
        missing = tuple(name for name in profile.secrets if name in self.missing)
        plan = LaunchPlan(profile, "job-1", spec, tuple(spec["argv"]), env, profile.secrets, missing, self.warnings)
        return plan._replace(busy=self.busy)

    async def preflight(self, plan: LaunchPlan) -> Preflight:
        self.looks += 1
        if self.findings is None:
            raise HostError("preflight", "the host did not answer", kind="agent")
        return Preflight(plan.profile, plan, self.findings)

    async def launch(self, plan: LaunchPlan, secrets: Mapping[str, str]) -> JobState:
        self.done.append(("launch", plan.profile, dict(secrets)))
        self._check()
        return JobState("job-1", "serve", plan.profile.name, "running", 1.0, health="loading")

    async def kill_plan(self, job: str) -> KillPlan:
        self.done.append(("kill_plan", job))
        self._check()
        return self.plan

    def pids_id(self, pids: Iterable[int]) -> str:
        return pids_id(pids)

    async def kill(self, plan: KillPlan) -> KillReport:
        self.done.append(("kill", plan.token))
        await self.may_end.wait()
        self._check()
        return self.report

    async def hurry(self, job: str) -> None:
        self.done.append(("hurry", job))

    async def remove_job(self, job: str) -> None:
        self.done.append(("remove", job))
        self._check()

    def launched_from(self, job: str) -> Profile | None:
        return self.launched.get(job)

    def job_files(self) -> tuple[dict[str, JobFile], list[Notice]]:
        return dict(self.files), list(self.notices)

    async def plan_run(self, file: JobFile) -> RunPlan:
        self.planned.append(file)
        if self.refusal is not None:
            raise self.refusal
        found = kind(file.kind)
        spec = found.spec(dict(file.values), "job-2")
        missing = tuple(name for name in file.secrets if name in self.missing)
        plan = RunPlan(file, "job-2", spec, found.title(spec), tuple(spec["argv"]), dict(spec["env"]), file.secrets, missing)
        return plan._replace(warnings=self.warnings, busy=self.busy)

    async def run_job(self, plan: RunPlan, secrets: Mapping[str, str]) -> JobState:
        self.done.append(("run", plan.file, dict(secrets)))
        self._check()
        return JobState("job-2", plan.file.kind, plan.file.name, "running", 1.0)

    def export_bench(self, name: str, verdict: Any, results: Any) -> list[str]:
        self.done.append(("export", name, verdict, [result.arm for result in results]))
        if self.refusal is not None:
            raise self.refusal
        return ["/home/me/exports/a.json", "/home/me/exports/a.csv", "/home/me/exports/a.md"]

    def log_of(self, job: str) -> LogWindow:
        self._check()
        return LogWindow(self.reader, str(self.log))

    async def first_error(self, window: LogWindow, text: str | None) -> Match | None:
        return await first_error(window, text)

    async def stacks(self, job: JobState) -> Looked:
        self.done.append(("stacks", job.id))
        self._check()
        return self.looked

    async def canary(self, job: JobState) -> Canary:
        self.done.append(("canary", job.id))
        self._check()
        return self.token

    def probe(self, job: str) -> ProbeDouble:
        return ProbeDouble(self)


class ProbeDouble:
    def __init__(self, deeds: DeedsDouble) -> None:
        self.deeds = deeds
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        self.stopped.set()
        self.deeds.done.append(("stop",))

    async def close(self) -> None:
        self.deeds.done.append(("close",))

    async def ask(self, prompt: str, key: str | None = None) -> AsyncGenerator[Sent | Piece | Answered, None]:
        self.deeds.done.append(("ask", prompt, key))
        self.deeds._check()
        for event in self.deeds.events:
            if isinstance(event, Answered):
                waits = [asyncio.ensure_future(e.wait()) for e in (self.stopped, self.deeds.may_answer)]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in waits:
                    wait.cancel()
                yield event._replace(stopped=self.stopped.is_set())
            else:
                yield event


def kill_plan() -> KillPlan:
    worker = "/opt/vllm/bin/python -c from multiprocessing.spawn import spawn_main --multiprocessing-fork"
    victims = [
        Victim(41_190, 80, "root", "S", "/opt/vllm/bin/vllm serve /shared/kimi-k2.5-int4 --tensor-parallel-size 8", 9 * GIB, True)
    ]
    victims += [Victim(41_200 + n, 90 + n, "root", "R", worker, (31 - n) * GIB) for n in range(9)]
    return KillPlan(
        "k25", "k25-eagle3", "token-1", tuple(victims), tuple(f"GPU-00000000-0000-4000-8000-{n:012d}" for n in range(8)),
        731 * GIB, 8000, True, ("/dev/shm/psm_5f3a", "/dev/shm/sem.mp-x1"), ("/tmp/torchinductor_root",),
        (GpuProcess(900, "C", 2 * GIB, 1, "anna", "python train.py"),), 8040.0, 1322.0, "root", (60.0, 15.0, 30.0),
    )  # fmt: skip


def probe_events() -> list[Any]:
    spoken = Acceptance(3.0, 40, 120, 38, 0.317, 1.95, (0.6, 0.25, 0.1))
    return [
        Sent("kimi-k2.5"),
        Piece("The user wants three sentences. ", True, 8),
        Piece("Keep them short.\n", True, 14),
        Piece("The sea is wide. ", False, 20),
        Piece("It moves all day.", False, 26),
        Answered(3.2, 0.41, 17, 26, 61.2, spoken, True, "stop"),
    ]
