"""Look closer at a server that seems to hang: where its processes are, and whether it still makes one token.

Nothing on the host is changed by either. The canary is a request like any other: one token, sent only when a person asks for it.
"""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from eagletui.commands.desk import Desk
from eagletui.hosts.base import HostError, HttpAnswer
from eagletui.records import JobState

__all__ = ["Canary", "HostError", "Looked", "Stacks", "canary", "stacks"]

CANARY_TIMEOUT = 60.0
"""Seconds: what waits in a queue of a busy server may take that long; a deadlock never answers."""
PROMPT = "Hello"
EACH = 20.0
"""Seconds that the host gives py-spy for one process."""


class Stacks(NamedTuple):
    """One process: ``waits`` is [(where its threads wait, how many)], most first; ``python`` lines of py-spy, or why not."""

    pid: int
    name: str
    state: str
    threads: int
    waits: tuple[tuple[str, int], ...] = ()
    kernel: tuple[str, ...] = ()
    python: tuple[str, ...] = ()
    problem: str | None = None


class Looked(NamedTuple):
    """Where the processes of a job are; ``tool`` is the py-spy that was used, ``why`` says why there was none."""

    processes: tuple[Stacks, ...]
    tool: str | None = None
    why: str | None = None


class Canary(NamedTuple):
    """What became of one token: ``alive`` is None when that could not be asked (``words`` say why)."""

    alive: bool | None
    seconds: float | None
    words: str


async def stacks(desk: Desk, job: JobState) -> Looked:
    """Where the job's processes are (at most 16 of them). Raises `HostError`."""
    if not job.member_pids:
        raise HostError(
            "stacks", f"no process of {job.name} is known", "it has ended, or another user's agent is needed", kind="absent"
        )
    keys = [list(key) for key in job.member_pids[:16]]
    answer = await desk.session.request("stacks", processes=keys, timeout=EACH * len(keys))
    try:
        found = tuple(_stacks(one) for one in answer["processes"])
        return Looked(found, answer.get("tool"), answer.get("why"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise HostError("stacks", f"what the host answered cannot be used: {error}", "connect again", kind="protocol") from error


def _stacks(doc: Any) -> Stacks:
    waits = sorted(((str(name), int(count)) for name, count in doc["waits"].items()), key=lambda item: (-item[1], item[0]))
    lines = tuple(str(line) for line in doc.get("python") or ())
    kernel = tuple(str(line) for line in doc.get("kernel") or ())
    return Stacks(
        int(doc["pid"]), str(doc["comm"]), str(doc["state"]), int(doc["threads"]), tuple(waits), kernel, lines, doc.get("problem")
    )


async def canary(desk: Desk, job: JobState, timeout: float = CANARY_TIMEOUT) -> Canary:
    """Ask the server for one token and see whether it comes within ``timeout`` s. Raises `HostError` without a connection."""
    if job.port is None:
        return Canary(None, None, "it serves on no port that is known of")
    model = job.served_model or await _served(desk, job.port)
    if model is None:
        return Canary(False, None, f"port {job.port} does not answer which model it serves, so no token can be asked for")
    body: dict[str, Any] = {"model": model, "max_tokens": 1, "temperature": 0}
    began = time.monotonic()
    for path, prompt in (
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}),
    ):
        try:
            answer = await desk.session.http(
                job.port, path, "POST", json.dumps(body | prompt).encode(), {"Content-Type": "application/json"}, timeout
            )
        except HostError as error:
            if error.retry or error.kind == "closed":
                raise
            if error.kind == "absent":
                return Canary(None, None, f"nobody answers on 127.0.0.1:{job.port}: it is down, or listens on another address")
            return Canary(False, time.monotonic() - began, f"no token within {timeout:.0f} s: {error.why}")
        if answer.status not in (400, 404, 405):
            break
    return _judged(answer, time.monotonic() - began)


def _judged(answer: HttpAnswer, seconds: float) -> Canary:
    if answer.status in (401, 403):
        return Canary(None, seconds, "it wants an API key, and none is known here")
    if answer.status != 200:
        return Canary(False, seconds, f"it answers with status {answer.status}, not with a token")
    try:
        made = int(json.loads(answer.body)["usage"]["completion_tokens"])
    except (KeyError, TypeError, ValueError):
        return Canary(False, seconds, "what it answers is no completion")
    # a model that thinks first has said nothing yet: its tokens count all the same
    return (
        Canary(True, seconds, f"one token in {seconds:.1f} s: it works")
        if made
        else Canary(False, seconds, "it answered without a token")
    )


async def _served(desk: Desk, port: int) -> str | None:
    try:
        answer = await desk.session.http(port, "/v1/models")
        return str(json.loads(answer.body)["data"][0]["id"])
    except HostError as error:
        if error.retry or error.kind == "closed":
            raise
        return None
    except (IndexError, KeyError, TypeError, ValueError):
        return None
