"""What the kill matrix does to a real engine: start it, look at its processes; afterwards, what was left and what was told."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import threading
import urllib.request
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagletui import cli
from eagletui.agent import procfs
from eagletui.agent.calls import CallError
from eagletui.agent.ports import why_taken
from eagletui.agent.syscalls import signal_process
from eagletui.labparts.paths import Lab
from eagletui.profile_launch import launch_spec
from eagletui.profiles import Profile, load_profiles
from tests.agent.jobs_harness import Jobs, free_port, shim, until
from tests.lab.sglang_server import Sglang
from tests.lab.story import opened

LOAD = 600.0
END = 240.0
"""Generous: on a busy machine a load takes minutes, and SGLang's answer to a lost child tens of seconds."""
GRACES = [20.0, 10.0, 20.0]


@dataclass
class Process:
    """One process of the engine, by pid and start."""

    pid: int
    start: int
    command: str

    @property
    def alive(self) -> bool:
        return procfs.alive(self.pid, self.start)


def vllm_profile(lab: Lab, port: int, workers: int = 1) -> Profile:
    """The lab's target, with three workers on two cores where ``workers`` says so."""
    profile = replace(load_profiles("local", lab=lab)[0]["lab-plain"], port=port, name="vllm")
    if workers == 1:
        return profile
    env = {**profile.env, "VLLM_CPU_OMP_THREADS_BIND": "|".join("011"[:workers])}
    return replace(profile, tp=workers, env=env)


class Engine:
    """One server, started as a job by the agent's own requests."""

    def __init__(self, jobs: Jobs, profile: Profile) -> None:
        self.jobs, self.profile = jobs, profile
        self.port = profile.port or 0
        self.id = f"matrix-{self.port}"
        self.processes: list[Process] = []
        self.files: set[str] = set()
        self.answers: list[Any] = []
        self._asking: threading.Thread | None = None

    @classmethod
    def vllm(cls, jobs: Jobs, lab: Lab, workers: int = 1) -> Engine:
        return cls(jobs, vllm_profile(lab, free_port(), workers))

    @classmethod
    def sglang(cls, jobs: Jobs, sglang: Sglang, folder: Path) -> Engine:
        return cls(jobs, sglang.profile(folder, free_port()))

    def launch(self) -> None:
        self.jobs.launch({**launch_spec(self.profile, self.id), "graces": GRACES})

    def ready(self) -> None:
        """Launch it and wait for its first answer; look at what it consists of and uses."""
        self.launch()
        state = self.jobs.wait(self.id, lambda s: s.get("smoke_tokens_per_s") or s.get("state") != "running", LOAD)
        assert state["health"] == "ready", state
        self.look()
        until(self._noted, 60, "the supervisor has seen the files of its job")

    def _noted(self) -> bool:
        """Whether the supervisor knows every file that its job uses: it looks now and then."""
        origin = self.jobs.job(self.id).origin()
        return origin is not None and self.files <= set(origin.known_files)

    def loading(self) -> None:
        """Launch it and wait until its children load."""
        self.launch()
        begun = {"workers", "weights", "process", "kv"}  # phases of a second or two: which of them is seen is chance
        self.jobs.wait(
            self.id, lambda s: begun & {phase["id"] for phase in s.get("phases") or ()} or s.get("state") != "running", LOAD
        )
        self.look()
        assert self.state["health"] == "loading", self.state

    def look(self) -> None:
        """The job's processes, and the files that they use."""
        found = {(pid, start) for pid, start in self.jobs.members(self.id)}
        self.processes = [Process(pid, start, procfs.cmdline(pid) or "") for pid, start in sorted(found)]
        for process in self.processes:
            self.files |= opened(process.pid)

    @property
    def state(self) -> dict[str, Any]:
        return self.jobs.state(self.id)

    def process(self, mark: str) -> Process:
        """The first process whose command line holds ``mark``; the main process for an empty one."""
        if not mark:
            pid = self.state["pid"]
            return next(process for process in self.processes if process.pid == pid)
        return next(process for process in self.processes if mark in process.command)

    def signal(self, mark: str, number: int) -> Process:
        victim = self.process(mark)
        signal_process(victim.pid, victim.start, number)
        return victim

    def kill_shim(self) -> None:
        state = self.state
        signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)
        until(lambda: not shim(state), 30, "the supervisor dies")

    def ask(self, tokens: int = 700) -> None:
        """Begin a long request; it is under way when this returns."""

        def run() -> None:
            body = {"model": str(self.profile.model), "prompt": "Once upon a time", "max_tokens": tokens, "temperature": 0}
            body["ignore_eos"] = True
            address = f"http://127.0.0.1:{self.port}/v1/completions"
            request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=END) as answer:
                    self.answers.append(answer.read())
            except (OSError, ValueError) as error:
                self.answers.append(error)

        self._asking = threading.Thread(target=run, daemon=True)
        self._asking.start()
        path = self.jobs.root / "jobs" / self.id / "samples.jsonl"
        until(lambda: any(json.loads(line).get("running") for line in path.read_bytes().splitlines()[-3:]), 120, "it runs")

    # --------------------------------------------------------------------------------------------------------- afterwards

    def main_gone(self, again: int = 0) -> dict[str, Any]:
        """The state once the main process has ended by itself. ``again`` is a signal that it gets once more when it stays: vLLM
        was seen to lose a SIGTERM in the last moments of its load."""
        main = self.process("")
        try:
            until(lambda: not main.alive, END / 4 if again else END, "the main process ends by itself")
        except AssertionError:
            if not again:
                raise
            signal_process(main.pid, main.start, again)
            until(lambda: not main.alive, END, "the main process ends at the second signal")
        return self.jobs.wait(self.id, lambda s: s.get("state") not in ("running", "launching"), 60)

    def kill(self, **params: Any) -> dict[str, Any]:
        """End it, and what came of it."""
        answer = self.jobs.kill(self.id, wait=END, **params)
        result: dict[str, Any] = answer["result"]
        return result

    def clear(self) -> None:
        """End what is left of it, if anything is: with no word of something that stays."""
        try:
            result = self.kill()
        except CallError as error:
            if error.kind != "absent":
                raise
            return
        assert result["remaining"] == []

    def assert_nothing_left(self, *, young: bool = False) -> None:
        """No process, listener, lease or file of it is there any more; its supervisor has ended.

        ``young``: it ended by itself within seconds of making a file, before its supervisor looked: that one nobody knows of.
        """
        until(lambda: not shim(self.jobs.job(self.id).stored_state() or {}), 60, "the supervisor ends")
        assert [process for process in self.processes if process.alive] == []
        assert self.jobs.members(self.id) == {}
        assert why_taken(self.port) is None
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", self.port))
        # a kill removes the job's files; what an engine left that ended by itself is offered, and goes when it is asked for
        if any(os.path.exists(path) for path in self.files):
            offered = self.offered()
            unknown = {path for path in self.files if os.path.exists(path)} - offered
            assert young or not unknown, (unknown, offered)
            self.offered("--remove")
            for path in unknown:
                os.unlink(path)
        assert sorted(path for path in self.files if os.path.exists(path)) == []
        if self._asking is not None:
            self._asking.join(60)
            assert not self._asking.is_alive(), "who asked still waits"

    def offered(self, *words: str) -> set[str]:
        """What `eagletui leftovers` lists, with ``--remove`` of what it removed."""
        shown = json.loads(_said("leftovers", "local", "--json", *words))
        return set(shown["removed"]) if words else {entry["path"] for entry in shown["leftovers"]}

    def table(self) -> str:
        """The line of `eagletui jobs` about it."""
        return next(line for line in _said("jobs", "local").splitlines() if line.startswith(self.id))

    def told(self) -> str:
        """What its state says, in short, for the report of the matrix."""
        state = self.state
        causes = [cause.get("title") or cause.get("id") for cause in state.get("causes") or ()]
        parts = {name: state.get(name) for name in ("state", "health", "rc", "members", "detail", "first_error", "troubles")}
        return json.dumps({**{k: v for k, v in parts.items() if v not in (None, [], ())}, "causes": causes[:2]})


def note(case: str, engine: Engine, left: Any = "") -> None:
    """A line of the matrix, for who reads the output."""
    line = f"MATRIX {case} | left: {left} | told: {engine.told()} | jobs: {engine.table()}"
    print(line)
    if os.environ.get("EAGLETUI_MATRIX"):
        with open(os.environ["EAGLETUI_MATRIX"], "a") as file:
            file.write(line + "\n")


def _said(*words: str) -> str:
    """What a command prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert cli.main(list(words)) == 0
    return out.getvalue()
