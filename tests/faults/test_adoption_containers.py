"""Servers in containers that eagletui did not start: a real podman, its log, its numbers of processes, its networks."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent import adopt, procfs
from eagletui.agent.adopt import observer
from eagletui.profile_launch import launch_spec
from tests.agent.adopt_harness import Look, install
from tests.agent.jobs_harness import Jobs, free_port
from tests.machine import podman

pytestmark = [pytest.mark.machine, pytest.mark.timeout(300)]
INSIDE = "/opt/engine"


class Boxes:
    """Containers with the stand-in, started by hand as people do."""

    def __init__(self, folder: Path, image: str) -> None:
        install(folder / "bin")
        self.folder, self.image = folder, image
        self.names: list[str] = []
        self.python = os.path.realpath(sys.executable)

    def run(self, *options: str, flags: tuple[str, ...] = (), command: tuple[str, ...] | None = None) -> str:
        """The name of a new container, detached."""
        name = "k2-" + uuid.uuid4().hex[:8]
        self.names.append(name)
        mounts = ("-v", f"{sys.base_prefix}:{sys.base_prefix}:ro", "-v", f"{self.folder}/bin:{INSIDE}:ro")
        program = command or (self.python, "-I", "-S", f"{INSIDE}/vllm", "serve", "/models/k2", *flags)
        podman.run("run", "--detach", "--name", name, *mounts, *options, self.image, *program)
        return name

    def clean(self) -> None:
        for name in self.names:
            podman.run("rm", "--force", "--time", "0", name, check=False)


@pytest.fixture
def boxes(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Boxes]:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(adopt, "_finder", None)
    monkeypatch.setattr(observer, "LOOK_EVERY", 0.5)
    for name, value in podman.environment().items():
        monkeypatch.setenv(name, value)
    found = Boxes(tmp_path, image)
    yield found
    found.clean()


@pytest.fixture
def look(boxes: Boxes) -> Iterator[Look]:
    found = Look(boxes.folder)
    yield found
    found.close()


def named(look: Look, name: str, good: Any = lambda state: True) -> dict[str, Any]:
    """The server in the container of that name, once ``good`` holds of its state."""

    def match(doc: dict[str, Any]) -> dict[str, Any] | None:
        return next((state for state in doc.values() if state.get("name") == name and good(state)), None)

    found: dict[str, Any] = look.until(match, 90)
    return found


def test_a_server_in_a_container_is_a_job_with_its_engines_log(boxes: Boxes, look: Look) -> None:
    port = free_port()
    name = boxes.run("--network", "host", flags=("--port", str(port), "--workers", "3"))
    ready = named(look, name, lambda s: s["health"] == "ready" and s.get("image") and s.get("log") and s.get("served_model"))
    assert (ready["adopted"], ready["image"], ready["port"]) == ("podman", boxes.image, port)
    assert ready["container"] == podman.run("inspect", "--format", "{{.Id}}", name)
    assert ready["pid"] == int(podman.run("inspect", "--format", "{{.State.Pid}}", name))
    # the log prints the container's own numbers; they are joined to this host's
    inner = dict(ready["inner_pids"])
    assert inner[ready["pid"]] == 1
    assert len(inner) == ready["members"] == 4
    text = look.until(lambda doc: (data := look.read(ready["log"])).count(b"startup complete") and data).decode()
    printed = {int(number) for number in re.findall(r"pid=(\d+)", text)}
    assert printed <= set(inner.values())
    assert not re.search(r"^\d{4}-\d\d-\d\dT", text, re.MULTILINE), "the engine's stamps are not the server's"
    look.until(lambda doc: look.read(ready["samples"]).count(b"\n") >= 2)
    # what a kill needs
    found = adopt.find(ready["id"])
    assert found is not None
    assert (found.holder.kind, found.holder.container, found.holder.name) == ("podman", ready["container"], name)
    assert {pid for pid, _ in adopt.members_of(ready["id"])} == set(inner)
    podman.run("stop", "--time", "5", name)
    over = look.server(lambda s: s["state"] == "exited", id=ready["id"])
    assert (over["health"], over.get("rc")) == ("gone", None)


def test_the_reader_of_a_containers_log_may_be_killed(boxes: Boxes, look: Look) -> None:
    port = free_port()
    name = boxes.run("--network", "host", flags=("--port", str(port)))
    ready = named(look, name, lambda s: s["health"] == "ready" and s.get("log"))
    before = look.until(lambda doc: (data := look.read(ready["log"])).count(b"startup complete") and data)
    for expected in range(3):
        reader = look.until(lambda doc: _reader(ready["container"]))
        os.kill(reader, signal.SIGKILL)
        look.until(lambda doc, old=reader: (now := _reader(ready["container"])) and now != old)
        _ask(port)  # it prints a line
        look.until(lambda doc, n=expected: look.read(ready["log"]).count(b"takes for ever") == n + 1)
    assert look.read(ready["log"]).startswith(before)
    assert look.read(ready["log"]).count(b"startup complete") == 1


def _reader(container: str) -> int | None:
    own = os.getpid()
    for pid in procfs.pids():
        stat = procfs.read_stat(pid)
        if stat is not None and stat.ppid == own and not stat.dead and container in (procfs.cmdline(pid) or ""):
            return pid
    return None


def _ask(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 10) as sock:
        sock.sendall(b"POST /never HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")


def test_an_earlier_run_of_the_container_is_not_this_ones_log(boxes: Boxes, look: Look) -> None:
    port = free_port()
    name = boxes.run("--network", "host", flags=("--port", str(port)))
    first = named(look, name, lambda s: s["health"] == "ready" and s.get("log"))
    look.until(lambda doc: look.read(first["log"]).count(b"startup complete"))
    podman.run("restart", "--time", "2", name)
    second = named(look, name, lambda s: s["id"] != first["id"] and s["health"] == "ready" and s.get("log"))
    assert second["container"] == first["container"]
    data = look.until(lambda doc: (found := look.read(second["log"])).count(b"startup complete") and found)
    assert data.count(b"startup complete") == 1
    assert data.count(b"version 0.32.0") == 1


def test_a_shell_in_a_container_that_starts_a_server_has_no_log(boxes: Boxes, look: Look) -> None:
    port = free_port()
    name = boxes.run("--network", "host", command=("/bin/sleep", "600"))
    inside = (boxes.python, "-I", "-S", f"{INSIDE}/vllm", "serve", "/models/k2", "--port", str(port))
    podman.run("exec", "--detach", "--tty", name, *inside)
    ready = named(look, name, lambda s: s["health"] == "ready" and s.get("log_problem"))
    assert ready["adopted"] == "podman"
    assert "terminal" in ready["log_problem"]
    assert "log" not in ready
    look.until(lambda doc: look.read(ready["samples"]))


def test_a_job_of_ours_in_a_container_never_comes_twice(boxes: Boxes, look: Look) -> None:
    jobs = Jobs(boxes.folder / "state")
    job = "box-" + uuid.uuid4().hex[:8]
    mounts = (f"{sys.base_prefix}:{sys.base_prefix}:ro", f"{boxes.folder}/bin:{INSIDE}:ro")
    command = (boxes.python, "-I", "-S", f"{INSIDE}/vllm", "serve")
    profile = podman.fake_profile("box", free_port(), mounts=mounts, command=command)
    seen: list[str] = []

    def never_found(doc: dict[str, Any]) -> bool:
        seen.extend(name for name, state in doc.items() if adopt.is_found(name) and f"eagletui-{job}" in json.dumps(state))
        return doc.get(job, {}).get("health") == "ready" and bool(doc[job].get("container"))

    try:
        jobs.launch(launch_spec(profile, job))
        look.until(never_found, 90)
        count = look.count
        look.until(lambda doc: never_found(doc) and look.count > count + 10, 90)
        container = (look.doc or {})[job]["container"]
        assert not seen
        assert not [name for name, state in (look.doc or {}).items() if name != job and state.get("container") == container]
    finally:
        podman.remove(job)
        jobs.clean()
