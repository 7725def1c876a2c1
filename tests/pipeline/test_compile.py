"""A pipeline's file made into what runs: references, stages, servers, needs, and every mistake at once with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eagletui.jobfiles import BadJobFile, find_job_file, parse_job_file
from eagletui.jobs.kinds import kind
from eagletui.jobs.pipeline import check_plan, step_prints
from eagletui.labparts.paths import RECIPE, Lab
from eagletui.pipelines import compile_pipeline
from eagletui.profiles import load_profiles, parse_profile

PROFILE = """
name = "small"
engine = "vllm"
model = "/m/small"
venv = "/opt/vllm"
port = 8100
args = ["--enforce-eager"]
"""
LOOP = """
kind = "pipeline"
name = "loop"
dir = "/data/loop"
stages = [10, 100, "all"]

[vars]
root = "/data"
prompts = "{root}/prompts.jsonl"
layers = [2, 15, 27]

[defaults]
python = "/opt/vllm/bin/python"
model = "/m/small"
target = "/m/small"

[servers.target]
profile = "small"

[servers.states]
profile = "small"
hidden_states = "{layers}"
layer_count = 30

[servers.drafted]
profile = "small"
drafter = "{trained.best}"
k = 3

[[step]]
id = "check"
kind = "command"
shell = "test -s {prompts}"

[[step]]
id = "answers"
kind = "synthesise"
server = "target"
prompts = "{prompts}"
limit = 5000
max_tokens = 512
gates = [{key = "failed_share", most = 0.02}, {key = "rows", least = 5}]

[[step]]
id = "prepared"
kind = "prepare"
data = ["{answers.path}"]
seq_length = 1024

[[step]]
id = "trained"
kind = "train"
data = "{prepared.path}"
layers = "{layers}"
epochs = 5
small = {epochs = 1}

[[step]]
id = "bench"
kind = "benchmark"
server = "drafted"
arm = "trained"
prompts = "{prompts}"

[[step]]
id = "after"
kind = "command"
server = "states"
argv = ["cat", "{bench.path}/result.json", "{{kept}}"]
"""


def compiled(text: str, uuids: tuple[str, ...] = ()) -> dict[str, Any]:
    file, notices = parse_job_file(text, Path("/x/loop.toml"))
    assert file is not None, notices
    profile, problems = parse_profile(PROFILE, Path("/x/small.toml"))
    assert profile is not None, problems
    return compile_pipeline(file, {"small": profile}, uuids)


def wrong(text: str) -> list[str]:
    with pytest.raises(BadJobFile) as caught:
        compiled(text)
    return [str(notice) for notice in caught.value.notices]


def steps(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["id"]: step for step in plan["steps"]}


def test_stages_go_through_the_data_steps_and_the_rest_comes_once() -> None:
    plan = compiled(LOOP)["pipeline"]
    assert check_plan(plan)
    assert [step["id"] for step in plan["steps"]] == [
        "check",
        "answers.10", "prepared.10", "trained.10",
        "answers.100", "prepared.100", "trained.100",
        "answers.all", "prepared.all", "trained.all",
        "bench", "after",
    ]  # fmt: skip
    assert [step["stage"] for step in plan["steps"]][:3] == [None, "10", "10"]


def test_rows_grow_in_one_file_and_everything_else_has_a_place_of_its_stage() -> None:
    found = steps(compiled(LOOP)["pipeline"])
    limits = [found[f"answers.{stage}"]["spec"]["argv"][-1] for stage in (10, 100, "all")]
    assert [f'"limit": {limit},' in text for limit, text in zip((10, 100, 5000), limits, strict=True)] == [True] * 3
    assert {found[f"answers.{stage}"]["outputs"][0] for stage in (10, 100, "all")} == {"/data/loop/answers"}
    assert found["prepared.10"]["outputs"] == ["/data/loop/10/prepared"]
    assert found["trained.all"]["outputs"] == ["/data/loop/all/trained"]
    small, whole = found["trained.10"]["spec"]["argv"], found["trained.all"]["spec"]["argv"]
    assert (small[small.index("--epochs") + 1], whole[whole.index("--epochs") + 1]) == ("1", "5")
    assert whole[whole.index("--data-path") + 1] == "/data/loop/all/prepared"
    assert whole[whole.index("--target-layer-ids") + 1 :][:3] == ["2", "15", "27"]


def test_what_a_step_builds_on_is_found_through_paths_and_servers() -> None:
    found = steps(compiled(LOOP)["pipeline"])
    assert found["prepared.100"]["needs"] == ["answers.100"]
    assert found["trained.100"]["needs"] == ["prepared.100"]
    assert found["bench"]["needs"] == ["trained.all"], "its server has that drafter"
    assert found["after"]["needs"] == ["bench"]
    assert found["after"]["spec"]["argv"][-1] == "{kept}"


def test_servers_come_from_profiles_and_steps_from_their_servers() -> None:
    plan = compiled(LOOP)["pipeline"]
    assert sorted(plan["servers"]) == ["drafted", "states", "target"]
    drafted = plan["servers"]["drafted"]
    assert drafted["drafter"] == "/data/loop/all/trained/checkpoints/checkpoint_best"
    assert "extract_hidden_states" in " ".join(plan["servers"]["states"]["argv"])
    assert "/data/loop/passing" in " ".join(plan["servers"]["states"]["argv"])
    found = steps(plan)
    assert '"endpoint": "http://127.0.0.1:8100/v1"' in found["answers.10"]["spec"]["argv"][-1]
    assert '"port": 8100' in found["bench"]["spec"]["argv"][-1]
    assert '"drafter": "/data/loop/all/trained' in found["bench"]["spec"]["argv"][-1]
    assert found["bench"]["server"] == "drafted"
    assert found["after"]["spec"].get("port") is None, "the server's port is not one that a command needs for itself"


def test_a_servers_secrets_are_not_on_the_command_line_of_its_benchmark() -> None:
    given = 'profile = "small"\ndrafter = "{trained.best}"'
    assert given in LOOP
    keys = given + '\nadd_args = ["--api-key", "canary-1"]\nenv = {MY_TOKEN = "canary-2", A = "b"}'
    words = steps(compiled(LOOP.replace(given, keys))["pipeline"])["bench"]["spec"]["argv"][-1]
    assert '"A": "b"' in words
    assert "MY_TOKEN" in words
    assert "canary" not in words


def test_a_server_that_depends_on_the_stage_is_another_one_in_each() -> None:
    text = LOOP + '\n[[step]]\nid = "tried"\nkind = "command"\nwhen = "each"\nserver = "drafted"\nargv = ["true"]\n'
    plan = compiled(text)["pipeline"]
    found = steps(plan)
    assert [found[f"tried.{stage}"]["server"] for stage in (10, 100, "all")] == ["drafted", "drafted.100", "drafted.all"]
    assert found["bench"]["server"] == "drafted.all"
    assert [plan["servers"][name]["drafter"].split("/")[3] for name in ("drafted", "drafted.100", "drafted.all")] == [
        "10",
        "100",
        "all",
    ]


def test_without_stages_the_ids_are_plain() -> None:
    plan = compiled(LOOP.replace('stages = [10, 100, "all"]', ""))["pipeline"]
    assert [step["id"] for step in plan["steps"]] == ["check", "answers", "prepared", "trained", "bench", "after"]
    assert steps(plan)["prepared"]["outputs"] == ["/data/loop/prepared"]


def test_one_stage_is_the_first_and_the_last() -> None:
    plan = compiled(LOOP.replace('stages = [10, 100, "all"]', "stages = [10]"))["pipeline"]
    assert [step["id"] for step in plan["steps"]] == ["check", "answers.10", "prepared.10", "trained.10", "bench", "after"]
    argv = steps(plan)["trained.10"]["spec"]["argv"]
    assert argv[argv.index("--epochs") + 1] == "5", "what is small is for the stages before the last"


def test_the_same_file_is_the_same_pipeline() -> None:
    one, two = compiled(LOOP)["pipeline"], compiled(LOOP)["pipeline"]
    assert one == two
    assert step_prints(one) == step_prints(two)
    other = compiled(LOOP.replace("max_tokens = 512", "max_tokens = 600"))["pipeline"]
    before, after = step_prints(one), step_prints(other)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == set(before) - {"check"}, "all that is built on the answers is another thing"


def test_the_spec_of_the_whole() -> None:
    spec = kind("pipeline").spec({**compiled(LOOP), "operator": "ann"}, "p-1")
    assert (spec["kind"], spec["name"], spec["operator"]) == ("pipeline", "loop", "ann")
    assert spec["argv"] == ["eagletui-pipeline", "/data/loop"]
    assert kind("pipeline").title(spec) == "12 steps in /data/loop"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('dir = "/data/loop"', 'dir = "loop"'), "@ 'dir' is 'loop'"),
        (('stages = [10, 100, "all"]', 'stages = [100, 10]'), "@ 'stages' is [100, 10]"),
        (("[servers.target]", "[server.target]"), "@ unknown key 'server' - did you mean 'servers'?"),
        (('id = "prepared"', 'id = "answers"'), "@ there is a step 'answers' already"),
        (('id = "prepared"', 'id = "target"'), "'target' is a server too"),
        (('kind = "prepare"', 'kind = "prepair"'), "@ there is no kind of job called 'prepair'"),
        (("seq_length = 1024", "seq_lenght = 1024"), "@ step prepared: unknown key 'seq_lenght' - did you mean 'seq_length'?"),
        (("seq_length = 1024", 'seq_length = "long"'), "@ step prepared: 'seq_length' is 'long' - expected a whole number"),
        (('data = ["{answers.path}"]', 'data = ["{anwsers.path}"]'), "@ {anwsers.path} stands for nothing: did you mean {ans"),
        (('data = ["{answers.path}"]', 'data = ["{answers.lines}"]'), "of answers there is {answers."),
        (('data = ["{answers.path}"]', 'data = ["{trained.path}"]'), "{trained.path} stands for nothing"),
        (('server = "target"', 'server = "tagret"'), "@ there is no server 'tagret' - did you mean 'target'?"),
        (('target]\nprofile = "small"', 'target]\nprofile = "smal"'), "@ server target: there is no profile 'smal', did you"),
        (('k = 3', 'kk = 3'), "@ server drafted: unknown key 'kk'"),
        (('layer_count = 30', ''), "server states: layer_count is missing"),
        (("most = 0.02", "atmost = 0.02"), "@ step answers: a gate has key, least and most, not atmost"),
        (("epochs = 5", "epochs = 5\nwhen = \"often\""), "'when' is 'often'"),
        (("small = {epochs = 1}", "small = {epoch = 1}"), "step trained: unknown key 'epoch' - did you mean 'epochs'?"),
        (('server = "states"\n', ""), ":20: no step uses the server 'states'"),
        (('[vars]\n', '[vars]\nhome = "{rot}"\n'), "@ {rot} stands for nothing"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(change: tuple[str, str], told: str) -> None:
    assert LOOP.count(change[0]) >= 1
    text = LOOP.replace(change[0], change[1], 1)
    if told.startswith("@"):  # at the last line of what was changed
        told = f":{text[: LOOP.index(change[0]) + len(change[1].rstrip())].count(chr(10)) + 1}:{told[1:]}"
    notices = wrong(text)
    assert any(told in notice for notice in notices), notices


def test_all_mistakes_are_told_at_once() -> None:
    text = LOOP.replace("seq_length = 1024", "seq_lenght = 1").replace("epochs = 5", 'epochs = "five"').replace("k = 3", "k = 99")
    notices = wrong(text)
    assert len(notices) == 3, notices
    assert [notice.split(":")[1] for notice in notices] == sorted((notice.split(":")[1] for notice in notices), key=int)


def test_cards_are_fixed_when_it_is_compiled() -> None:
    cards = ("GPU-a", "GPU-b")
    text = LOOP.replace("epochs = 5", "epochs = 5\ngpus = [1]").replace(
        '[servers.target]\nprofile = "small"', '[servers.target]\nprofile = "small"\ngpus = "all"'
    )
    plan = compiled(text, cards)["pipeline"]
    assert steps(plan)["trained.10"]["spec"]["gpus"] == ["GPU-b"]
    assert steps(plan)["trained.10"]["spec"]["env"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert plan["servers"]["target"]["gpus"] == list(cards)
    with pytest.raises(BadJobFile, match="card 1 is wanted"):
        compiled(text, cards[:1])
    both = LOOP.replace("layer_count = 30", "layer_count = 30\ngpus = 1").replace('id = "after"', 'id = "after"\ngpus = [0, 1]')
    with pytest.raises(BadJobFile, match="step after: it and its server states want the same card"):
        compiled(both, cards)


def test_the_pipelines_that_come_with_eagletui_can_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    lab = Lab(tmp_path / "lab")
    lab.markers.mkdir(parents=True)
    (lab.markers / "drafter").write_text(RECIPE)
    cards = [f"GPU-{number}" for number in range(8)]
    profiles, _ = load_profiles("local", lab=lab)
    for name, count, servers in (("drafter-loop", 19, 4), ("lab-loop", 13, 3)):
        values = compile_pipeline(find_job_file(name, "local", lab=lab), profiles, cards)
        plan = check_plan(values["pipeline"])
        assert (len(plan["steps"]), len(plan["servers"])) == (count, servers)
        found = steps(plan)
        assert found["verdict"]["needs"][0] == "bench-none"
        assert found["trained.all"]["needs"][-2:] == ["prepared.all", "states.all"]
        assert found["states.all"]["spec"]["argv"][found["states.all"]["spec"]["argv"].index("--storage") + 1].endswith(
            "/passing"
        )
