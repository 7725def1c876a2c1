"""How the runner speaks to jobs: the requests of the agent, answered in this very process, and waiting that can be cut short.

Everything happens one after the other: a request, or a wait for a condition, runs the loop until it is over. A SIGTERM asks for
the end in good order, a SIGQUIT for the end at once; whatever waits then raises `Ended`.
"""

from __future__ import annotations

import signal
from typing import Any, Callable, Dict, List, Optional, TypeVar

from eagletui.agent import jobs_api, state_dir
from eagletui.agent.calls import Call, CallError
from eagletui.agent.job_files import Job, read_results, shim_lives
from eagletui.agent.loop import Loop

T = TypeVar("T")

ORDERLY, AT_ONCE = 1, 2
POLL_FIRST, POLL_LAST = 0.05, 1.0
REQUEST_SECONDS = 700.0
LIVE = ("launching", "running", "stopping")


class Ended(Exception):
    """Somebody has asked the pipeline to end."""


class Asking:
    """Requests about the jobs of the state directory ``root``."""

    def __init__(self, root: str, loop: Loop) -> None:
        self.root, self._loop = root, loop
        self.asked = 0
        self._heeded = 0
        signal.signal(signal.SIGTERM, lambda _number, _frame: self._end(ORDERLY))
        signal.signal(signal.SIGQUIT, lambda _number, _frame: self._end(AT_ONCE))

    def _end(self, how: int) -> None:
        self.asked = max(self.asked, how)
        self._loop.stop()

    def heed(self) -> None:
        """From here on what was asked for is being done: waits are cut short only when more is asked for."""
        self._heeded = self.asked

    def request(self, method: str, **params: Any) -> Any:
        """The answer to one request. It is not cut short: each is over soon. Raises `CallError`."""
        answers: List[Any] = []
        errors: List[CallError] = []

        def reply(result: Any, _body: bytes) -> None:
            answers.append(result)
            self._loop.stop()

        def fail(error: CallError) -> None:
            errors.append(error)
            self._loop.stop()

        call = Call(self._loop, params, b"", reply, fail)
        jobs_api.METHODS[method](call)
        deadline = self._loop.now() + REQUEST_SECONDS
        while not call.answered:
            left = deadline - self._loop.now()
            if left < 0:
                call.cancel()
                raise CallError(method, "not answered within %d s" % REQUEST_SECONDS)
            self._turn(min(left, 5.0))
        if errors:
            raise errors[0]
        return answers[0]

    def _turn(self, seconds: float) -> None:
        timer = self._loop.call_later(seconds, self._loop.stop)
        self._loop.run()
        timer.cancel()

    def wait(self, look: Callable[[], Optional[T]], seconds: Optional[float] = None) -> Optional[T]:
        """The first value of ``look`` that is true; None when none came within ``seconds``. Raises `Ended`.

        It looks often at first, then once a second: what has taken minutes may take a second more.
        """
        began = self._loop.now()
        deadline = None if seconds is None else began + seconds
        while True:
            if self.asked > self._heeded:
                raise Ended()
            found = look()
            if found:
                return found
            if deadline is not None and self._loop.now() >= deadline:
                return None
            self._turn(min(POLL_LAST, POLL_FIRST + (self._loop.now() - began) / 10))

    # ------------------------------------------------------------------------------------------------------------- jobs

    def job(self, name: str) -> Job:
        return Job(state_dir.job_dir(self.root, name))

    def state(self, name: str) -> Optional[Dict[str, Any]]:
        """What is true of a job now, as a `JobState` document; None when there is none. Raises `StateError`."""
        return self.job(name).state()

    def over(self, name: str) -> Optional[Dict[str, Any]]:
        """Its last state, once no process of the job is left and its supervisor has gone too: its result is then final."""
        state = self.state(name)
        if state is None or shim_lives(state) or state.get("members"):
            return None
        return state

    def result(self, name: str) -> Dict[str, Any]:
        """What it made; empty when its supervisor had no time to judge it."""
        return dict(read_results(self.job(name)).get("result") or {})

    def kill(self, name: str, operator: str, now: bool, wait: float = 0) -> Optional[Dict[str, Any]]:
        """Have a job end by its own ladder; what came of it when that was within ``wait`` seconds. None when nothing of it runs.

        Raises `CallError`, also when it cannot be asked.
        """
        for last in (False, False, True):
            try:
                plan = self.request("kill_plan", job=name)
                answer = self.request("kill", job=name, token=plan["token"], now=now, operator=operator, wait=wait)
                return dict(answer.get("result") or {})
            except CallError as error:
                if error.kind == "absent":
                    return None
                if error.kind != "replaced" or last:  # its processes changed between the two requests: once more
                    raise
        return None
