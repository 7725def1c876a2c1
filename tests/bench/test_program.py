"""One arm, measured for real at a stand-in server: passes, warm-ups, counters, resume, and what is told when it cannot be."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from eagletui.jobs.benchmark import Benchmark
from eagletui.jobs.keys import read_keys
from eagletui.jobs.on_host import load_client
from eagletui.jobs.on_host.bench_tools import find
from eagletui.jobs.on_host.prompt_sets import make
from eagletui.jobs.on_host.verdict import judge, result_of, validation_of
from eagletui.records import from_doc, to_doc
from eagletui.records.bench import BenchResult, BenchVerdict
from tests.agent.jobs_harness import until
from tests.bench.stand_in import StandIn

SRC = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [{"conversations": [{"from": "human", "value": f"question number {n} of many"}]} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def values(server: StandIn, tmp_path: Path, **more: Any) -> dict[str, Any]:
    """A job file's values for the stand-in, checked."""
    given = {
        "python": sys.executable, "output": str(tmp_path / "out"), "arm": "none", "engine": server.engine, "model": str(tmp_path),
        "port": server.port, "prompts": str(tmp_path / "prompts.jsonl"), "count": 8, "concurrency": [1], "passes": 2,
        "max_tokens": 64, "tool": "own", "role": "none", **more,
    }  # fmt: skip
    found, wrong = read_keys(Benchmark.keys, {key: value for key, value in given.items() if value is not None})
    assert wrong == []
    return found


def measure(server: StandIn, tmp_path: Path, env: dict[str, str] | None = None, **more: Any) -> tuple[int, dict[str, Any], str]:
    """Run the program of the job: status, what it told as its result, its whole output."""
    spec = Benchmark().spec(values(server, tmp_path, **more), "job")
    paths = os.pathsep.join(path for path in (SRC, (env or {}).get("PYTHONPATH")) if path)
    done = subprocess.run(
        spec["argv"], env={**os.environ, **(env or {}), **spec["env"], "PYTHONPATH": paths}, cwd="/", capture_output=True,
        text=True, timeout=100,
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"eagletui": "result"')]
    return done.returncode, told[-1] if told else {}, done.stdout + done.stderr


def test_an_arm_without_a_drafter(tmp_path: Path, prompts: Path) -> None:
    with StandIn() as server:
        status, told, output = measure(server, tmp_path, concurrency=[1, 2])
        assert status == 0, output
        result = result_of(str(tmp_path / "out"))
        one, two = result.cells
        assert (one.concurrency, two.concurrency) == (1, 2)
        assert one.good == 2
        assert one.spec is None
        assert one.itl is not None
        assert one.engine_itl == pytest.approx(10.0), "by the engine's own counters"
        assert all(found.foreign == 0 for cell in result.cells for found in cell.passes)
        assert [len(cell.passes) for cell in result.cells] == [2, 2]
        assert result.server.version == "0.32.0"
        assert result.server.prefix_cache == "flushed"
        assert result.settings.prompts_file_hash
        assert result.versions is not None
        assert result.machine is not None
        assert server.flushed == 4, "before each pass"
        # warm-ups: other prompts than any measured one, as many as will be under way
        texts = [body["messages"][-1]["content"] for body in server.asked]
        assert len(texts) == 4 * 8 + 2 * (1 + 2)
        rows = (tmp_path / "out" / "sets" / "as-given.jsonl").read_text().splitlines()
        measured = {json.loads(row)["messages"][-1]["content"] for row in rows}
        assert len(measured) == 8
        assert all(texts.count(text) == 4 for text in measured), "two loads, two passes, and no warm-up among them"
    told_cells = told["cells"]
    assert "requests" not in told_cells[0]["passes"][0], "the job's own record stays small"
    answers = (tmp_path / "out" / "texts").glob("*.jsonl")
    assert all(len(path.read_text().splitlines()) == 8 for path in answers)


def test_the_same_prompts_in_the_same_order_for_every_arm(tmp_path: Path, prompts: Path) -> None:
    with StandIn() as server:
        first = measure(server, tmp_path, output=str(tmp_path / "a"), sets=str(tmp_path / "sets"), concurrency=[1], passes=1)
        before = len(server.asked)
        second = measure(server, tmp_path, output=str(tmp_path / "b"), sets=str(tmp_path / "sets"), concurrency=[1], passes=1)
        texts = [body["messages"][-1]["content"] for body in server.asked]
    assert texts[:before] == texts[before:]
    assert first[1]["cells"][0]["prompts_hash"] == second[1]["cells"][0]["prompts_hash"]
    assert {body["temperature"] for body in server.asked} == {0.0}
    assert not any("ignore_eos" in body for body in server.asked)


def test_a_drafters_arm_and_the_verdict(tmp_path: Path, prompts: Path) -> None:
    with StandIn() as plain, StandIn(k=3, accepts=1) as drafting:
        assert measure(plain, tmp_path, output=str(tmp_path / "none"), sets=str(tmp_path / "sets"))[0] == 0
        status, _, output = measure(
            drafting, tmp_path, output=str(tmp_path / "d"), sets=str(tmp_path / "sets"), arm="trained", role="trained",
            drafter="/drafter", k=3,
        )  # fmt: skip
        assert status == 0, output
    cell = result_of(str(tmp_path / "d")).cells[0]
    assert cell.length == pytest.approx(2.0)
    assert cell.acceptance == pytest.approx(1 / 3)
    assert cell.spec is not None
    assert cell.spec.basis == "counters"
    (tmp_path / "val_metrics.json").write_text(json.dumps({"val/full_acc_0_epoch": 0.9, "val/full_acc_1_epoch": 0.1}))
    found = judge(
        {
            "arms": [
                {"results": [str(tmp_path / "none")]},
                {"results": [str(tmp_path / "d")], "validation": str(tmp_path / "val_metrics.json")},
            ]
        }
    )
    (comparison,) = found.comparisons
    assert [load.same_outputs for load in comparison.loads] == [1.0]
    assert comparison.validation == (0.9, 0.1)
    assert [one.paths for one in found.files] == [(str(tmp_path / name / "result.json"),) for name in ("none", "d")]
    assert from_doc(BenchVerdict, to_doc(found)).files == found.files
    assert all(load.gain is not None for load in comparison.loads)


def test_sglang_tells_its_drafts_request_by_request(tmp_path: Path, prompts: Path) -> None:
    with StandIn("sglang", k=3, accepts=2, metrics=False) as server:
        status, _, output = measure(server, tmp_path, arm="trained", role="trained", drafter="/d", k=3)
        assert status == 0, output
    result = result_of(str(tmp_path / "out"))
    spec = result.cells[0].spec
    assert spec is not None
    assert spec.basis == "requests"
    assert result.cells[0].length == pytest.approx(3.0)
    assert spec.per_position[2] == 0
    assert "not known" in " ".join(result.cells[0].notes), "without metrics nobody can tell whether others used it"


def test_a_server_whose_requests_all_fail_is_told(tmp_path: Path, prompts: Path) -> None:
    with StandIn(fails=True) as server:
        status, told, output = measure(server, tmp_path)
    assert status == 1
    assert "the server answers no request: HTTP 500" in told["why"]
    assert output.strip().splitlines()[-1] == told["why"]


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    with StandIn(breaks_off=True) as server:
        doc = load_client.run(load_client.Ask("127.0.0.1", server.port, "tiny", 64), [[{"role": "user", "content": "a"}]], 1)
    assert (doc["completed"], doc["failed"]) == (0, 1)
    assert "broke off" in doc["errors"][0]


def test_a_port_where_nobody_answers_is_told(tmp_path: Path, prompts: Path) -> None:
    with StandIn() as server:
        pass
    status, told, _ = measure(server, tmp_path)
    assert status == 1
    assert told["why"] == f"nothing that serves a model answers on port {server.port}"


def test_it_goes_on_with_the_passes_that_are_there(tmp_path: Path, prompts: Path) -> None:
    with StandIn() as server:
        assert measure(server, tmp_path)[0] == 0
        before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / "passes").glob("*.pass.json")}
        (tmp_path / "out" / "passes" / "as-given-c1-p2.pass.json").unlink()
        (tmp_path / "out" / "result.json").unlink()
        asked = len(server.asked)
        status, told, output = measure(server, tmp_path)
        assert status == 0, output
        assert len(server.asked) - asked == 8 + 1, "one pass and its warm-up"
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out" / "passes").glob("*.pass.json")}
    assert {name for name in after if after[name] != before[name]} == {"as-given-c1-p2.pass.json"}
    assert told["why"] == "1 of 1 cells measured, 2 passes"
    assert "1 of the passes are of an earlier run" in told["notes"][0]


def test_a_pass_that_cannot_be_read_is_measured_again(tmp_path: Path, prompts: Path) -> None:
    passes = tmp_path / "out" / "passes"
    with StandIn() as server:
        assert measure(server, tmp_path, concurrency=[1])[0] == 0
        one, two = sorted(passes.glob("*.pass.json"))
        one.write_text('{"block": ""}')
        two.write_text("{")
        status, _, output = measure(server, tmp_path, concurrency=[1])
    assert status == 0, output
    assert result_of(str(tmp_path / "out")).cells[0].good == 2


def test_an_output_of_other_settings_is_not_taken_over(tmp_path: Path, prompts: Path) -> None:
    with StandIn() as server:
        assert measure(server, tmp_path, concurrency=[1], passes=1)[0] == 0
        status, told, _ = measure(server, tmp_path, concurrency=[1], passes=1, max_tokens=32)
    assert status == 1
    assert "max_tokens was 64 and is 32" in told["why"]


def test_contexts_are_made_by_the_servers_own_count(tmp_path: Path, prompts: Path) -> None:
    with StandIn() as server:
        status, _, output = measure(server, tmp_path, contexts=[0, 512], concurrency=[1], passes=1)
        assert status == 0, output
    given, long = result_of(str(tmp_path / "out")).cells
    assert (given.context, long.context) == ("as given", "512")
    assert long.context_tokens is not None
    assert 0.9 * 512 < long.context_tokens <= 512
    rows = [
        json.loads(line)["messages"][-1]["content"] for line in (tmp_path / "out" / "sets" / "512.jsonl").read_text().splitlines()
    ]
    assert len({row[:80] for row in rows}) == len(rows), "no prompt begins as another: the prefix cache would know it"


def test_prompts_that_cannot_be_made_as_long_as_wanted_are_told(tmp_path: Path) -> None:
    """Long words fall short, a question that is longer by itself is too long; the next arm tells it too."""
    file = tmp_path / "prompts.jsonl"

    def note(word: str, tokens: int) -> str:
        file.write_text("".join(json.dumps({"prompt": f"{word} {n}"}) + "\n" for n in range(4)))
        folder = str(tmp_path / word[:4])
        made = [make(folder, str(file), tokens, 3, 1, 0, lambda text: len(text.split())) for _ in range(2)]
        assert made[0].note == made[1].note
        return made[0].note

    assert re.fullmatch(r"of 3 prompts of 100 tokens 3 shorter \(down to \d\d?\)", note("x" * 200, 100))
    assert re.fullmatch(r"of 3 prompts of 20 tokens 3 longer \(up to 5\d\), by their question alone", note("much " * 50, 20))
    assert note("word", 200) == ""


def test_contexts_that_do_not_fit_are_refused_at_once(tmp_path: Path, prompts: Path) -> None:
    with StandIn(context=1024) as server:
        status, told, _ = measure(server, tmp_path, contexts=[2048])
        assert not server.asked
    assert status == 2
    assert "do not fit into the server's context of 1024" in told["why"]


def test_without_a_way_to_empty_the_prefix_cache_that_is_told(tmp_path: Path, prompts: Path) -> None:
    with StandIn(flushes=False) as server:
        assert measure(server, tmp_path, concurrency=[1], passes=1)[0] == 0
    assert result_of(str(tmp_path / "out")).server.prefix_cache == "on"


def test_prompts_that_are_none_are_told_with_their_line(tmp_path: Path, prompts: Path) -> None:
    prompts.write_text('{"conversations": [{"from": "human", "value": "a"}]}\n{"text": "b"}\n')
    with StandIn() as server:
        status, told, _ = measure(server, tmp_path)
    assert status == 1
    assert "line 2" in told["why"]


# ------------------------------------------------------------------------------------------------------- the engine's own tool

_TOOL = """
import json, os, sys
sys.path.insert(0, {src!r})
from eagletui.jobs.on_host import load_client
if {broken!r}:
    raise ModuleNotFoundError("No module named 'datasets'")
words = sys.argv[1:]
def value(name): return words[words.index(name) + 1]
rows = [json.loads(line) for line in open(value("--dataset-path"))][: int(value("--num-prompts"))]
chats = [row.get("messages") or [{{"role": "user", "content": row["prompt"]}}] for row in rows]
url = value("--base-url")
extra = json.loads(value("--extra-request-body")) if "--extra-request-body" in words else {{}}
ask = load_client.Ask("127.0.0.1", int(url.rpartition(":")[2]), "tiny", 64)
doc = load_client.run(ask, chats, int(value("--max-concurrency")))
del doc["spec_details"]
doc["offline"] = os.environ.get("HF_HUB_OFFLINE")
if "--output-file" in words:
    open(value("--output-file"), "a").write(json.dumps(doc) + "\\n")
else:
    open(value("--result-dir") + "/" + value("--result-filename"), "w").write(json.dumps(doc))
"""


def engine_package(tmp_path: Path, engine: str, broken: bool = False, flags: str | None = None) -> dict[str, str]:
    """A package that stands for the engine: with the sources that are looked into, and a tool that measures for real."""
    root = tmp_path / "site" / engine
    if engine == "vllm":
        home, main = root / "benchmarks", root / "entrypoints" / "cli" / "main.py"
        source = home / "serve.py"
        known = '"--skip-chat-template" "--disable-shuffle" "--no-oversample" "--save-detailed" "--custom-output-len" ' \
                '"--ready-check-timeout-sec" "--num-warmups"'  # fmt: skip
    else:
        home = root / "benchmark"
        source = main = home / "serving.py"
        known = '"--disable-ignore-eos" "--output-details" "--extra-request-body" "--max-concurrency" "--warmup-requests" ' \
                '"sglang-oai-chat" "openai"'  # fmt: skip
    for folder in (root, home, main.parent, main.parent.parent):
        folder.mkdir(parents=True, exist_ok=True)
        if folder != root.parent:
            (folder / "__init__.py").touch()
    text = _TOOL.format(src=SRC, broken=broken)
    source.write_text(f"# {flags if flags is not None else known}\n" + (text if source == main else ""))
    if source != main:
        main.write_text(text)
    return {"PYTHONPATH": str(tmp_path / "site")}


def tool_argv(result: BenchResult) -> list[str]:
    return list(result.cells[0].passes[0].command)


def test_vllms_tool_is_run_with_its_traps_closed(tmp_path: Path, prompts: Path) -> None:
    env = engine_package(tmp_path, "vllm")
    with StandIn() as server:
        status, _, output = measure(server, tmp_path, env, tool="engine", passes=1)
        assert status == 0, output
        warm = {body["messages"][-1]["content"] for body in server.asked[:1]}
        measured = [body["messages"][-1]["content"] for body in server.asked[1:]]
    result = result_of(str(tmp_path / "out"))
    assert result.cells[0].passes[0].tool == "vllm bench serve"
    assert json.loads(Path(result.cells[0].passes[0].file or "").read_text())["offline"] == "1", "nothing is asked of a hub"
    argv = tool_argv(result)
    for flag in ("--skip-chat-template", "--disable-shuffle", "--no-oversample", "--save-detailed"):
        assert flag in argv
    for flag, value in (
        ("--temperature", "0"), ("--num-warmups", "0"), ("--ready-check-timeout-sec", "0"), ("--tokenizer", str(tmp_path)),
        ("--backend", "openai-chat"), ("--request-rate", "inf"), ("--num-prompts", "8"),
    ):  # fmt: skip
        assert argv[argv.index(flag) + 1] == value
    assert "--ignore-eos" not in argv
    assert "random" not in argv
    assert len(set(measured)) == len(measured) == 8, "no prompt twice, none tried out before"
    assert not warm & set(measured)


def test_sglangs_tool_is_run_with_its_traps_closed(tmp_path: Path, prompts: Path) -> None:
    env = engine_package(tmp_path, "sglang")
    with StandIn("sglang", k=3, accepts=1, metrics=False) as server:
        status, _, output = measure(
            server, tmp_path, env, tool="engine", passes=2, arm="trained", role="trained", drafter="/d", k=3
        )
        assert status == 0, output
        asked = [body for body in server.asked if body.get("return_spec_tokens_details")]
        assert len(asked) == 2 * 8, "where nothing else counts drafts, each pass is asked for its details"
    result = result_of(str(tmp_path / "out"))
    argv = tool_argv(result)
    assert "--disable-ignore-eos" in argv
    assert "--apply-chat-template" not in argv, "its server renders the template"
    assert argv[argv.index("--warmup-requests") + 1] == "0"
    extra = json.loads(argv[argv.index("--extra-request-body") + 1])
    assert extra == {"temperature": 0.0, "stream_options": {"include_usage": True}}
    assert result.cells[0].length == pytest.approx(2.0)


def test_a_tool_that_cannot_be_run_is_replaced_and_that_is_told(tmp_path: Path, prompts: Path) -> None:
    env = engine_package(tmp_path, "sglang", broken=True)
    with StandIn("sglang") as server:
        status, _, output = measure(server, tmp_path, env, tool="engine", concurrency=[1], passes=1)
        assert status == 0, output
    result = result_of(str(tmp_path / "out"))
    assert "measured by eagletui's own client: sglang.benchmark.serving cannot be run here" in result.notes[0]
    assert result.cells[0].passes[0].tool == "eagletui's client"


def test_the_tool_ends_with_the_benchmark_whatever_ends_that(tmp_path: Path, prompts: Path) -> None:
    """Left alone it would go on asking the server, beside the benchmark that is run again."""
    env = engine_package(tmp_path, "vllm")
    mark = tmp_path / "tool.pid"
    main = tmp_path / "site" / "vllm" / "entrypoints" / "cli" / "main.py"
    main.write_text(
        f"import os, signal\nopen({str(mark)!r} + '.new', 'w').write(str(os.getpid()))\n"
        f"os.rename({str(mark)!r} + '.new', {str(mark)!r})\nsignal.pause()\n"
    )
    with StandIn() as server:
        spec = Benchmark().spec(values(server, tmp_path, tool="engine"), "job")
        paths = os.pathsep.join((SRC, env["PYTHONPATH"]))
        with subprocess.Popen(
            spec["argv"], env={**os.environ, **spec["env"], "PYTHONPATH": paths}, cwd="/", stdout=subprocess.DEVNULL
        ) as benchmark:
            until(mark.exists, 60, "the tool runs")
            tool = psutil.Process(int(mark.read_text()))
            benchmark.kill()
        until(lambda: not tool.is_running() or tool.status() == psutil.STATUS_ZOMBIE, 30, "the tool has ended")


def test_sglangs_tool_under_its_old_name_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_package(tmp_path, "sglang")
    root = tmp_path / "site" / "sglang"
    (root / "benchmark" / "serving.py").rename(root / "bench_serving.py")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    tool, why = find("sglang")
    assert tool is not None, why
    assert tool.module == "sglang.bench_serving"


def test_a_tool_that_is_too_old_is_not_taken(tmp_path: Path, prompts: Path) -> None:
    env = engine_package(tmp_path, "vllm", flags='"--save-detailed"')
    with StandIn() as server:
        status, _, output = measure(server, tmp_path, env, tool="engine", concurrency=[1], passes=1)
        assert status == 0, output
    assert "is too old: it knows no --skip-chat-template" in result_of(str(tmp_path / "out")).notes[0]


def test_system_messages_are_not_dropped_for_the_tools_sake(tmp_path: Path, prompts: Path) -> None:
    rows = [
        {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": f"question {n}"}]} for n in range(20)
    ]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    env = engine_package(tmp_path, "vllm")
    with StandIn() as server:
        status, _, output = measure(server, tmp_path, env, tool="engine", concurrency=[1], passes=1)
        assert status == 0, output
        assert all(body["messages"][0]["role"] == "system" for body in server.asked)
    assert "no system message" in result_of(str(tmp_path / "out")).notes[0]


# ------------------------------------------------------------------------------------------------------------- validation


def test_validation_is_read_as_training_leaves_it(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[1] / "jobs" / "data" / "train_lab" / "val_metrics.json"
    assert validation_of(str(recorded)) == pytest.approx((0.219, 0.048, 0.010), abs=0.001)
    assert validation_of([0.5, 0.2]) == (0.5, 0.2)
    assert validation_of(None) == ()
    best = tmp_path / "train" / "checkpoints" / "checkpoint_best"
    best.mkdir(parents=True)
    (best / "val_metrics.json").write_bytes(recorded.read_bytes())
    assert validation_of(str(tmp_path / "train")) == validation_of(str(recorded))
