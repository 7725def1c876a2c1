"""What found servers are recognised by: titles, control groups, what engines and journal print. Pure, on real texts."""

from __future__ import annotations

import json

import pytest

from eagletui.agent.adopt.engine_log import moment
from eagletui.agent.adopt.holder import Holder, container_in, paths_of, unit_in
from eagletui.agent.adopt.inspect import Container, container_of
from eagletui.agent.adopt.journal import entry_of
from eagletui.agent.adopt.loading import LoadLog
from eagletui.agent.adopt.memory import MemoryFile
from eagletui.engines.titles import PART, SERVER, Title, server_facts, title_of

ID = "9a2e7d6aa649f857d327bede8cedf390b3a2d13ee5a2d838d663af8e52b9fc93"


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/python3 /usr/local/bin/vllm serve /m --port 8001",
        "/opt/venv/bin/python3.12 -u -X dev /opt/venv/bin/vllm serve /m --port 8001",
        "vllm serve /m --port=8001",
        "python3 -m vllm.entrypoints.openai.api_server --model /m --port 8001",
        "python -I -S -W ignore -m vllm.entrypoints.cli.main serve /m --port 8001",
        "python3 -m sglang.launch_server --model-path /m --port 8001",
        "/usr/bin/python3 /usr/local/bin/sglang serve --model-path /m --port 8001",
        "python3 /sgl-workspace/sglang/python/sglang/launch_server.py --model /m --port 8001",
    ],
)
def test_a_server_is_known_by_its_argv(line: str) -> None:
    facts = server_facts(line.split())
    assert facts is not None
    assert (facts.model, facts.port) == ("/m", 8001)
    assert title_of(line.split()) == Title("sglang" if "sglang" in line else "vllm", SERVER)


@pytest.mark.parametrize(
    "words",
    [
        ["bash", "-c", "vllm serve /m"],
        ["sudo", "vllm", "serve", "/m"],
        ["ssh", "gpu", "vllm", "serve", "/m"],
        ["docker", "run", "image", "vllm", "serve", "/m"],
        ["podman", "run", "--rm", "image", "python3", "-m", "sglang.launch_server"],
        ["grep", "vllm", "serve"],
        ["python3", "bench.py", "vllm", "serve", "/m"],
        ["python3", "-c", "from multiprocessing.spawn import spawn_main", "vllm", "serve"],
        ["python3", "/usr/bin/vllm", "bench", "serve"],
        ["python3", "-m", "vllm", "chat"],
        ["python3", "-m", "sglang_router.launch_router", "--port", "8000"],
        ["python3"],
        ["python3", "-u"],
        [],
    ],
)
def test_what_only_starts_or_names_a_server_is_none(words: list[str]) -> None:
    assert server_facts(words) is None
    assert title_of(words) is None


@pytest.mark.parametrize(
    ("argv", "comm", "engine", "name"),
    [
        (["VLLM::EngineCore"], "VLLM::EngineCor", "vllm", "EngineCore"),
        (["VLLM::Worker_DP0_TP3_EP3"], "VLLM::Worker_DP", "vllm", "Worker_DP0_TP3_EP3"),
        (["k2::EngineCore_DP0"], "k2::EngineCore_", "vllm", "EngineCore_DP0"),
        (["VLLM::DPCoordinator"], "", "vllm", "DPCoordinator"),
        (["sglang::scheduler_TP0"], "sglang::schedul", "sglang", "scheduler_TP0"),
        (["sglang::detokenizer"], "", "sglang", "detokenizer"),
        (["sglang::tokenizer_worker:2"], "", "sglang", "tokenizer_worker:2"),
        ([], "VLLM::Worker_TP", "vllm", "Worker_TP"),
        ([], "sglang::schedul", "sglang", "schedul"),
    ],
)
def test_parts_of_a_server_are_known_by_their_titles(argv: list[str], comm: str, engine: str, name: str) -> None:
    assert title_of(argv, comm) == Title(engine, PART, name)


def test_names_like_titles_are_no_parts() -> None:
    assert title_of(["std::Worker pool"], "x") is None
    assert title_of(["python3", "worker.py"], "python3") is None


# ------------------------------------------------------------------------------------------------------ control groups


@pytest.mark.parametrize(
    ("text", "kind", "cgroup"),
    [
        (f"0::/libpod_parent/libpod-{ID}\n", "podman", f"/libpod_parent/libpod-{ID}"),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", "podman", f"/machine.slice/libpod-{ID}.scope"),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope\n", "podman", None),
        (f"0::/system.slice/docker-{ID}.scope\n", "docker", f"/system.slice/docker-{ID}.scope"),
        (f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/\n", "docker", f"/docker/{ID}"),
    ],
)
def test_the_container_is_in_the_control_group(text: str, kind: str, cgroup: str | None) -> None:
    found = container_in(paths_of(text))
    assert found is not None
    assert (found.kind, found.container) == (kind, ID)
    assert cgroup is None or found.cgroup == cgroup


def test_podmans_monitor_is_not_its_container() -> None:
    assert container_in(paths_of(f"0::/machine.slice/libpod-conmon-{ID}.scope\n")) is None


@pytest.mark.parametrize(
    ("text", "unit", "uid"),
    [
        ("0::/system.slice/vllm.service\n", "vllm.service", None),
        ("1:name=systemd:/system.slice/vllm@k2.service/inner\n0::/\n", "vllm@k2.service", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/k2.service\n", "k2.service", 1000),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None, None),
        ("0::/user.slice/user-1000.slice/user@1000.service/tmux-spawn-1.scope\n", None, None),
        ("0::/\n", None, None),
    ],
)
def test_the_unit_is_in_the_control_group(text: str, unit: str | None, uid: int | None) -> None:
    found = unit_in(paths_of(text)) or Holder()
    assert (found.unit, found.unit_uid) == (unit, uid)
    if unit is not None:
        assert found.cgroup is not None
        assert found.cgroup.endswith(unit)


# ---------------------------------------------------------------------------------------------------------- containers


def test_what_dockers_inspect_says() -> None:
    doc = [
        {
            "Name": "/k2",
            "Image": "sha256:1",
            "Config": {"Image": "vllm/vllm-openai:v0.32.0", "Tty": False},
            "HostConfig": {"LogConfig": {"Type": "json-file"}},
            "NetworkSettings": {
                "IPAddress": "172.17.0.2",
                "Ports": {"8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "5002"}, {"HostIp": "::", "HostPort": "5002"}]},
            },
        }
    ]
    assert container_of(json.dumps(doc)) == Container(
        "k2", "vllm/vllm-openai:v0.32.0", ((8000, "127.0.0.1", 5002), (8000, "127.0.0.1", 5002)), "172.17.0.2", "json-file"
    )


@pytest.mark.parametrize("text", ["", "no", "[]", "[1]", '{"NetworkSettings": {"Ports": {"8000/tcp": null}, "Networks": null}}'])
def test_an_inspect_that_says_nothing(text: str) -> None:
    assert container_of(text) == Container()


def test_a_stamp_of_an_engines_log() -> None:
    assert moment(b"1970-01-01T00:00:10.5Z") == (10, 500_000_000)
    assert moment(b"1970-01-01T02:00:10.000000001+02:00") == (10, 1)
    assert moment(b"1970-01-01T00:00:10Z") == (10, 0)


# ------------------------------------------------------------------------------------------------------------- journal


def line(**fields: object) -> bytes:
    return json.dumps({"__CURSOR": "c", "__REALTIME_TIMESTAMP": "1500000000", **fields}).encode()


def test_a_message_of_the_journal_may_be_text_bytes_or_nothing() -> None:
    entry = entry_of(line(MESSAGE="hello"))
    assert entry is not None
    assert (entry.cursor, entry.wall, entry.data) == ("c", 1500.0, b"hello\n")
    assert entry_of(line(MESSAGE=[13, 255, 65])).data == b"\r\xffA\n"  # type: ignore[union-attr]
    assert entry_of(line(MESSAGE=None)).data == b"\n"  # type: ignore[union-attr]
    assert entry_of(line(MESSAGE=["one", [116, 119, 111]])).data == b"one\ntwo\n"  # type: ignore[union-attr]
    assert entry_of(line(MESSAGE="half", _LINE_BREAK="line-max")).data == b"half"  # type: ignore[union-attr]


def test_what_systemd_and_journald_say_themselves_is_marked() -> None:
    assert entry_of(line(MESSAGE="Started x", _PID="1")).data == b"systemd: Started x\n"  # type: ignore[union-attr]
    dropped = entry_of(line(MESSAGE="Suppressed", MESSAGE_ID="a596d6fe7bfa4994828e72309e95d61e", N_DROPPED="2500"))
    assert dropped is not None
    assert dropped.data.startswith(b"eagletui: ")
    assert b"dropped 2500 lines" in dropped.data


@pytest.mark.parametrize(
    "data", [b"", b"-- No entries --", b"[]", b'{"MESSAGE": "x"}', b'{"__CURSOR": 1, "__REALTIME_TIMESTAMP": []}']
)
def test_what_is_no_entry(data: bytes) -> None:
    assert entry_of(data) is None


# ------------------------------------------------------------------------------------------------------------- the log


def stamped(clock: str, text: str, process: str = "APIServer") -> bytes:
    return f"({process} pid=1) INFO 11-29 {clock} [x.py:1] {text}\n".encode()


LOAD = (
    stamped("10:00:12", "vLLM API server version 0.32.0")
    + stamped("10:00:20", "Initializing a V1 LLM engine (v0.32.0) with config: model='/m', speculative_config=None", "EngineCore")
    + stamped("10:00:40", "Starting to load model /m...", "Worker_TP0")
    + b"\rLoading safetensors checkpoint shards:  50% Completed | 2/4 [00:02<00:02,  1.2it/s]\n"
)
STARTED = 1_796_000_400.0  # a Unix time on a whole quarter of an hour, as 10:00:00 is in every zone


def test_phases_of_a_log_read_afterwards_are_counted_from_the_start_of_the_process() -> None:
    assert STARTED % 900 == 0
    heard: list[int] = []
    log = LoadLog(STARTED, lambda: heard.append(1))
    assert log.fields(False) == {}
    log.feed(LOAD)
    phases = {phase["id"]: phase for phase in log.fields(False)["phases"]}
    assert (phases["spawn"]["start"], phases["spawn"]["seconds"]) == (0.0, 12.0)
    assert phases["weights"]["start"] == 40.0
    assert (phases["weights"]["done"], phases["weights"]["total"]) == (2.0, 4.0)
    assert "ready_seconds" not in log.fields(False)
    log.feed(
        stamped("10:01:00", "Loading weights took 18.0 seconds", "Worker_TP0") + b"INFO:     Application startup complete.\n"
    )
    log.feed(stamped("10:01:05", "x"))
    assert heard == [1]
    assert log.fields(True)["ready_seconds"] == 60.0


FAILS = b"""(EngineCore pid=7) INFO 11-30 01:00:00 [core.py:1] Starting to load model /models/x...
Traceback (most recent call last):
  File "x.py", line 1, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


def test_causes_of_a_log_of_which_a_part_was_left_out_point_into_the_log_itself() -> None:
    log = LoadLog(0.0, lambda: None)
    log.feed(b"the beginning\n")
    log.jumped(5_000_000)
    log.feed(FAILS)
    log.ended()
    cause = log.fields(False)["causes"][0]
    assert cause["evidence"][0]["offset"] == 5_000_000 + FAILS.index(b"torch.Out")
    assert cause["evidence"][0]["line"] == 0
    assert log.failed


def test_what_a_server_says_while_it_is_ended_is_no_failure_of_its_own() -> None:
    log = LoadLog(0.0, lambda: None)
    log.asked = True
    log.feed(FAILS)
    log.ended()
    assert not log.failed
    assert not log.fields(False).get("causes")


def test_a_log_of_another_run_tells_no_times_of_this_one() -> None:
    log = LoadLog(STARTED - 400, lambda: None)  # the first line would be 412 s after the start: no import takes as long
    log.feed(LOAD + b"INFO:     Application startup complete.\n")
    found = log.fields(True)
    assert "ready_seconds" not in found
    assert found["phases"][0]["start"] == 0.0


# ------------------------------------------------------------------------------------------------------ memory of ours


def test_a_file_in_memory_keeps_its_offsets_and_its_bound() -> None:
    file = MemoryFile("found-1.log", 64 * 1024)
    try:
        piece = bytes(range(256)) * 16
        for _ in range(64):
            file.write(piece)
        assert file.size == 64 * 4096
        assert file.full is None
        assert 0 < file.floor <= file.size - 48 * 1024
        with open(file.path, "rb") as found:
            found.seek(file.size - 4096)
            assert found.read() == piece
    finally:
        file.close()


def test_the_same_thing_has_the_same_path_again_and_two_have_two() -> None:
    one, two = MemoryFile("found-1.log", 4096), MemoryFile("found-1.samples", 4096)
    path = one.path
    assert path != two.path
    one.close()
    again = MemoryFile("found-1.log", 4096)
    try:
        assert again.path == path
    finally:
        again.close()
        two.close()
