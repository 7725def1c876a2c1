"""What the tests of jobs share: the requests as the agent answers them, waiting on conditions, and a clean end."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eagletui.agent import jobs_api, procfs
from eagletui.agent.calls import Call, CallError
from eagletui.agent.job_files import Job
from eagletui.agent.loop import Loop
from eagletui.agent.syscalls import signal_process

FAKE = str(Path(__file__).with_name("fake_server.py"))


def until(condition: Callable[[], Any], seconds: float = 30.0, what: str = "") -> Any:
    """The first true value of ``condition``; a test fails when it does not come."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what or condition}"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Jobs:
    """Requests about jobs, each on a loop of its own as in the agent, and a memory of what was launched."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.launched: list[str] = []

    def call(self, method: str, seconds: float = 60.0, **params: Any) -> Any:
        errors: list[Exception] = []
        loop = Loop(lambda what, error: (errors.append(error), loop.stop())[0])
        answers: list[Any] = []

        def send(result: Any, body: bytes) -> None:
            answers.append(json.loads(json.dumps(result, allow_nan=False)))
            loop.stop()

        def fail(error: CallError) -> None:
            errors.append(error)
            loop.stop()

        call = Call(loop, params, b"", send, fail)
        try:
            jobs_api.METHODS[method](call)
            if not call.answered:
                loop.call_later(seconds, loop.stop)
                loop.run()
        finally:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            loop.close()
        if errors:
            raise errors[0]
        assert answers, f"{method} was not answered within {seconds} s"
        return answers[0]

    def spec(self, *argv: str, **more: Any) -> dict[str, Any]:
        job = more.pop("id", None) or "t-" + uuid.uuid4().hex[:10]
        return {"id": job, "kind": "command", "name": "test", "argv": list(argv), "cwd": "/", **more}

    def server(self, *flags: str, **more: Any) -> dict[str, Any]:
        port = more.pop("port", None) or free_port()
        more.setdefault("graces", [20, 5, 10])
        argv = [sys.executable, "-I", "-S", FAKE, "--port", str(port), *flags]
        return self.spec(*argv, **{"kind": "serve", "server": True, "engine": "vllm", "port": port, **more})

    def launch(self, spec: dict[str, Any], **params: Any) -> dict[str, Any]:
        self.launched.append(spec["id"])
        state: dict[str, Any] = self.call("launch", spec=spec, **params)
        return state

    def job(self, job: str) -> Job:
        return Job(str(self.root / "jobs" / job))

    def state(self, job: str) -> dict[str, Any]:
        return self.job(job).state() or {}

    def wait(self, job: str, condition: Callable[[dict[str, Any]], Any], seconds: float = 30.0) -> dict[str, Any]:
        """The state once ``condition`` holds of it."""
        last: list[dict[str, Any]] = [{}]

        def look() -> Any:
            last[0] = self.state(job)
            return condition(last[0])

        try:
            until(look, seconds)
        except AssertionError:
            log = self.root / "jobs" / job / "shim.log"
            raise AssertionError(f"state stays {last[0]}; shim.log: {log.read_text() if log.exists() else ''}") from None
        return last[0]

    def over(self, job: str, seconds: float = 30.0) -> dict[str, Any]:
        """The state after the job and its supervisor have ended."""
        return self.wait(
            job, lambda s: s.get("state") in ("exited", "oom", "failed_to_exec") and not s.get("members") and not shim(s), seconds
        )

    def kill(self, job: str, **params: Any) -> dict[str, Any]:
        plan = self.call("kill_plan", job=job)
        answer: dict[str, Any] = self.call("kill", job=job, token=plan["token"], **{"wait": 60, **params})
        return answer

    def members(self, job: str) -> dict[tuple[int, int], Any]:
        """The job's live processes: {(pid, start): stat}."""
        scanner = self.job(job).scanner()
        return dict(scanner.scan()) if scanner is not None else {}

    def clean(self) -> None:
        """End what the tests left, by pid and start."""
        for job in self.launched:
            found = self.job(job)
            scanner, state = found.scanner(), found.stored_state() or {}
            if shim(state):
                signal_process(state["shim_pid"], state["shim_start"], signal.SIGKILL)
            if scanner is not None:
                until(lambda s=scanner: not _kill_all(s.scan()), 20, "the job's processes end")  # type: ignore[misc]


def shim(state: dict[str, Any]) -> bool:
    return bool(state.get("shim_pid")) and procfs.alive(state["shim_pid"], state["shim_start"])


def _kill_all(members: dict[tuple[int, int], Any]) -> bool:
    for pid, start in members:
        signal_process(pid, start, signal.SIGKILL)
    return bool(members)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        yield json.loads(line)
