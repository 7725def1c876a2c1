"""The agent as a process: started through the shell text under each interpreter, spoken to in frames."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eagletui import __version__
from eagletui.agent import frames
from eagletui.agent.frames import encode
from eagletui.hosts import bootstrap
from eagletui.records import HostInfo, from_doc

from .process import Agent

MODULES = """
import sys
def loaded(call):
    call.reply(sorted(sys.modules))
def crash(call):
    raise KeyError("a mistake")
def wrong(call):
    call.reply(float("nan"))
def printing(call):
    import os
    print("this must not reach the frames", flush=True)
    os.system("echo nor this; echo nor this >&2")
    call.reply("printed")
def never(call):
    call.on_cancel = lambda: cancelled.append(call.params["name"])
def cancellations(call):
    call.reply(cancelled)
cancelled = []
METHODS = {"loaded": loaded, "crash": crash, "wrong": wrong, "printing": printing, "never": never,
           "cancellations": cancellations}
"""
EXTRA = {"eagletui.agent.jobs_api": MODULES}


@pytest.fixture
def start() -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def make(watchdog: float = 60.0, extra: dict[str, str] | None = None) -> Agent:
        agents.append(Agent(watchdog, bootstrap.bundle(EXTRA if extra is None else extra)))
        return agents[-1].start()

    yield make
    for agent in agents:
        agent.close()


def test_under_every_python(host_python: str, start: Callable[..., Agent], tmp_path: object) -> None:
    agent = start()
    info = from_doc(HostInfo, agent.result("hello", version=__version__))
    if host_python != "host":
        assert info.python.startswith(host_python + ".")
    assert set(agent.result("hello")) <= set(HostInfo._fields)
    assert info.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert info.hostname == os.uname().nodename
    assert info.agent_pid in (agent.process.pid, *children(agent.process.pid))

    answer = agent.ask("read", path="/proc/self/comm", offset=0)
    assert answer.body.startswith(b"python")
    path = f"{tmp_path}/file"
    agent.result("write", b"one\ntwo\nthree\n", path=path)
    assert agent.ask("read", path=path, offset=-6).body == b"three\n"
    assert [m["offset"] for m in agent.result("search", path=path, pattern="t", regex=True)["matches"]] == [4, 8]
    assert [e["name"] for e in agent.result("list", path=str(tmp_path))["entries"] if e["kind"] == "file"] == ["file"]
    assert agent.result("stat", paths=[path, "/nowhere"])[1] is None
    assert "nothing listens" in agent.ask("http", port=1, path="/").head["why"]

    loaded = agent.result("loaded")
    assert "eagletui.agent.server" in loaded
    ours = [m for m in loaded if m.startswith("eagletui")]
    assert [m for m in ours if not m.startswith("eagletui.agent")] == ["eagletui"]
    foreign = {"asyncio", "dataclasses", "psutil", "textual", "asyncssh", "http.client", "site", "sitecustomize"}
    assert foreign.isdisjoint(loaded)


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def test_end_of_stdin_is_the_end(start: Callable[..., Agent]) -> None:
    agent = start()
    agent.result("hello")
    agent.process.stdin.close()  # type: ignore[union-attr]
    assert agent.end() == (0, "")


@pytest.mark.fault(3, how="a client that sends nothing: the agent ends by itself")
def test_a_client_that_is_silent_is_given_up(start: Callable[..., Agent]) -> None:
    agent = start(watchdog=0.3)
    agent.result("hello")
    status, said = agent.end()
    assert status == 1
    assert said.startswith("eagletui: the agent ended: no word from the client for")


@pytest.mark.fault(14, how="an agent whose loop hangs: its own timer ends it")
def test_an_agent_that_hangs_is_ended_by_the_kernel(start: Callable[..., Agent], tmp_path: object) -> None:
    agent = start(watchdog=0.5)
    path = f"{tmp_path}/line"
    with open(path, "w") as file:
        file.write("a" * 60 + "!")
    agent.request("search", path=path, pattern="^(a+)+$", regex=True)  # takes longer than anybody lives
    status, _said = agent.end()
    assert status == 128 + signal.SIGALRM


def test_sigterm_ends_it_and_sigint_does_not(start: Callable[..., Agent]) -> None:
    agent = start()
    pid = agent.result("hello")["agent_pid"]
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGHUP)
    assert agent.result("hello")["agent_pid"] == pid
    os.kill(pid, signal.SIGTERM)
    assert agent.end() == (0, "")


def test_it_has_no_terminal_and_a_session_apart_from_ours(start: Callable[..., Agent]) -> None:
    pid = start().result("hello")["agent_pid"]
    assert os.getsid(pid) != os.getsid(0)
    with open(f"/proc/{pid}/stat") as file:
        assert file.read().rpartition(")")[2].split()[4] == "0"  # tty_nr
    for fd in (0, 1, 2):
        assert os.readlink(f"/proc/{pid}/fd/{fd}") == "/dev/null"


def test_what_code_prints_does_not_reach_the_frames(start: Callable[..., Agent]) -> None:
    agent = start()
    assert agent.result("printing") == "printed"
    assert agent.result("hello")["uid"] == os.getuid()
    agent.process.stdin.close()  # type: ignore[union-attr]
    assert agent.end() == (0, "")


@pytest.mark.fault(15, how="a client that sends what is no frame")
def test_bytes_that_are_no_frames_end_it_with_the_reason(start: Callable[..., Agent]) -> None:
    agent = start()
    agent.write(b"GET / HTTP/1.1\r\n\r\n")
    status, said = agent.end()
    assert status == 1
    assert "not the protocol: frame header is wrong" in said


def test_the_blob_may_come_in_single_bytes_with_frames_behind_it(start: Callable[..., Agent]) -> None:
    agent = Agent(blob=bootstrap.bundle(EXTRA))
    try:
        data = bootstrap.opening(agent.blob)
        request = encode(frames.Frame(frames.REQUEST, 9, {"method": "hello", "params": {}}))
        for i in range(40):
            agent.write(data[i : i + 1])
        agent.write(data[40:] + request)
        agent.skip()
        assert agent.next().id == 9
    finally:
        agent.close()


@pytest.mark.fault(15, how="a request whose handler raises")
def test_a_mistake_in_a_handler_is_an_answer_and_the_place_is_in_the_debug_log(start: Callable[..., Agent]) -> None:
    agent = start()
    assert agent.ask("crash").head["why"] == "the agent failed: KeyError: 'a mistake'"
    assert "cannot be sent" in agent.ask("wrong").head["why"]
    (trace, other) = agent.result("debug")["lines"]
    assert "eagletui-bundle/eagletui/agent/jobs_api.py" in trace
    assert 'raise KeyError("a mistake")' in trace  # with the source line, though there is no file
    assert "not JSON" in other


def test_requests_that_are_none(start: Callable[..., Agent]) -> None:
    agent = start(extra={})
    for method, params, why in (
        ("read", {"path": 5}, "'path' should be text"),
        ("read", {"path": "relative"}, "not an absolute path"),
        ("read", {"path": "/etc/hostname", "limit": 10**9}, "'limit' should be a number from 1 to 65536"),
        ("hello", {"version": "0.0.0"}, "the client is 0.0.0"),
        ("subscribe", {"stream": "nope"}, "no stream 'nope'"),
        ("batch", {"calls": [1]}, "call 0 is not [method, parameters]"),
        ("batch", {"calls": 1}, "list of at most 256"),
    ):
        answer = agent.ask(method, **params)
        assert answer.kind == frames.ERROR
        assert why in answer.head["why"]
        assert set(answer.head) == {"step", "why", "remedy", "kind"}


def test_a_batch_is_one_answer_in_order_with_all_bodies(start: Callable[..., Agent], tmp_path: object) -> None:
    agent = start()
    calls = []
    for i in range(100):
        with open(f"{tmp_path}/{i}", "w") as file:
            file.write(str(i) * 50)
        calls.append(["read", {"path": f"{tmp_path}/{i}", "offset": 0, "limit": 40}])
    calls[50] = ["read", {"path": f"{tmp_path}/none"}]
    answer = agent.ask("batch", calls=calls)
    results = answer.head["result"]
    assert [r.get("body", 0) for r in results] == [0 if i == 50 else 40 for i in range(100)]
    assert results[50]["error"]["kind"] == "absent"
    assert answer.body == b"".join((str(i) * 50)[:40].encode() for i in range(100) if i != 50)
    assert agent.result("batch", calls=[]) == []


def test_a_cancelled_request_is_never_answered(start: Callable[..., Agent]) -> None:
    agent = start()
    one = agent.request("never", name="one")
    two = agent.request("batch", calls=[["never", {"name": "two"}], ["never", {"name": "three"}]])
    agent.send(frames.CANCEL, one)
    agent.send(frames.CANCEL, two)
    agent.send(frames.CANCEL, 12345)
    assert agent.result("cancellations") == ["one", "two", "three"]


def test_a_long_body_goes_in_pieces_by_credit_and_beats_overtake_it(start: Callable[..., Agent], tmp_path: object) -> None:
    agent = start()
    data = os.urandom(65536)
    calls = []
    for i in range(8):
        with open(f"{tmp_path}/{i}", "wb") as file:
            file.write(data)
        calls.append(["read", {"path": f"{tmp_path}/{i}"}])
    id_ = agent.request("batch", calls=calls)
    got = [agent.next(), agent.next()]
    agent.send(frames.BEAT, 77)
    assert agent.next().kind == frames.BEAT  # no third piece without a credit
    while "result" not in got[-1].head:
        agent.send(frames.CREDIT, id_, {"n": 1})
        got.append(agent.next())
    assert [f.head.get("more", False) for f in got] == [True] * 7 + [False]
    assert b"".join(f.body for f in got) == data * 8


def test_a_long_request_comes_in_pieces(start: Callable[..., Agent], tmp_path: object) -> None:
    agent = start()
    data = os.urandom(1_000_000)
    pieces = [data[i : i + 200_000] for i in range(0, len(data), 200_000)]
    for piece in pieces[:-1]:
        agent.send(frames.REQUEST, 500, {"more": True}, piece)
    agent.send(frames.REQUEST, 500, {"method": "write", "params": {"path": f"{tmp_path}/big"}}, pieces[-1])
    assert agent.next().kind == frames.RESPONSE
    with open(f"{tmp_path}/big", "rb") as file:
        assert file.read() == data


def test_a_request_waits_for_modules_that_come_later() -> None:
    late = "from importlib import import_module\nimport_module('eagletui.jobs')\n" + MODULES
    parts = bootstrap.parts({"eagletui.agent.jobs_api": late})
    agent = Agent(blob=parts.first)
    try:
        agent.start()
        waiting = agent.request("loaded")
        taken_back = agent.request("never", name="taken back")
        agent.send(frames.CANCEL, taken_back)
        agent.send(frames.BEAT, 1)
        assert agent.next().kind == frames.BEAT  # nothing is answered yet, nothing fails
        assert "damaged" in agent.ask("modules", b"no zlib").head["why"]
        rest = agent.request("modules", parts.rest)
        answers = [agent.next(), agent.next()]
        assert [(a.kind, a.id) for a in answers] == [(frames.RESPONSE, rest), (frames.RESPONSE, waiting)]
        assert "eagletui.jobs" in answers[1].head["result"]
        assert agent.result("cancellations") == []
        assert "this agent cannot do that" not in agent.ask("nothing").head["why"]
    finally:
        agent.close()


def test_the_loader_runs_a_module_from_a_stored_blob(host_python: str, start: Callable[..., Agent], tmp_path: object) -> None:
    shim = "from eagletui.agent import bundle\ndef main(argv):\n    print(argv, len(bundle.BLOB))\n    return 5\n"
    store = (
        "import subprocess, sys\nfrom eagletui.agent import bundle\n"
        "def store(call):\n"
        "    bundle.write_blob(call.params['path'])\n"
        "    path = call.params['path']\n"
        "    call.reply([sys.executable, '-I', '-S', '-c', bundle.LOADER, path, 'eagletui.agent.shimlet', 'a b'])\n"
        "METHODS = {'store': store}\n"
    )
    agent = start(extra={"eagletui.agent.jobs_api": store, "eagletui.agent.shimlet": shim})
    command = agent.result("store", path=f"{tmp_path}/blob")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (f"['a b'] {len(agent.blob)}\n", 5), done.stderr
    with open(f"{tmp_path}/blob", "rb") as file:
        assert file.read() == agent.blob
    assert os.stat(f"{tmp_path}/blob").st_mode & 0o777 == 0o600
