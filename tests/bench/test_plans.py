"""Benchmark plans: what is wrong with one is told at once, and what a good one becomes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagletui.bench_plans import BadPlan, Plan, compile_plan, parse_plan
from eagletui.jobs.base import BadJob
from eagletui.jobs.kinds import kind
from eagletui.profiles import Profile

BASE = Profile("base", "vllm", "/m", drafter="/d/3", k=3, venv="/venv", port=8100)
SGLANG = Profile("sg", "sglang", "/m", drafter="/sgd", k=3, venv="/sg", port=8200, secrets=("HF_TOKEN",))
PROFILES = {"base": BASE, "sg": SGLANG}
LEAST = 'profile = "base"\noutput = "/out"\nprompts = "/p.jsonl"\n'
GPU = ("GPU-1",)


def parsed(text: str, synthetic: bool = False, changes: tuple[str, ...] = ()) -> Plan:
    return parse_plan(text, Path("/plans/p.toml"), PROFILES, synthetic, changes)


def wrong(text: str, synthetic: bool = False) -> list[str]:
    with pytest.raises(BadPlan) as caught:
        parsed(text, synthetic)
    return [str(notice) for notice in caught.value.notices]


def settings(step: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(step["spec"]["argv"][-1])
    return found


def test_the_arms_by_default() -> None:
    plan = parsed(LEAST + 'pretrained = "/pre"\ntrained = "/new"\nvalidation = "/train"\n')
    assert [(arm.name, arm.role, arm.profile.drafter, arm.validation) for arm in plan.arms] == [
        ("none", "none", None, None),
        ("pretrained", "pretrained", "/pre", None),
        ("trained", "trained", "/new", "/train"),
    ]
    assert {arm.python for arm in plan.arms} == {"/venv/bin/python"}
    assert [arm.profile.drafter for arm in parsed(LEAST).arms] == [None, "/d/3"], "the profile's own drafter is the trained one"


def test_the_pipeline_is_one_that_can_run() -> None:
    made = compile_plan(parsed(LEAST + 'pretrained = "/pre"\nvalidation = "/train"\n'), GPU)
    spec = kind("pipeline").spec({"name": "p", "pipeline": made}, "id")
    assert [step["id"] for step in spec["pipeline"]["steps"]] == ["none", "pretrained", "trained", "verdict"]
    none, _, trained, verdict = made["steps"]
    assert none["server"] == "none"
    assert "--speculative-config" not in made["servers"]["none"]["argv"]
    assert "--speculative-config" in made["servers"]["trained"]["argv"]
    assert settings(none)["role"] == "none"
    assert settings(trained)["k"] == 3
    assert settings(trained)["port"] == made["servers"]["trained"]["port"] == 8100
    assert len({settings(step)["sets"] for step in made["steps"][:3]}) == 1, "all arms get the same prompts"
    assert settings(verdict)["arms"][2] == {"results": ["/out/arms/trained"], "validation": "/train"}
    assert verdict["needs"] == ["none", "pretrained", "trained"]
    assert verdict["outputs"] == ["/out/verdict.json"]
    assert "id" not in none["spec"]


def test_the_prefix_cache_is_off_unless_it_is_wanted() -> None:
    servers = compile_plan(parsed(LEAST), GPU)["servers"]
    assert all("--no-enable-prefix-caching" in server["argv"] for server in servers.values())
    assert "--disable-radix-cache" in compile_plan(parsed(LEAST.replace("base", "sg")), GPU)["servers"]["none"]["argv"]
    servers = compile_plan(parsed(LEAST + "prefix_cache = true\n"), GPU)["servers"]
    assert not any("--no-enable-prefix-caching" in server["argv"] for server in servers.values())


@pytest.mark.parametrize(("order", "seconds", "ids"), [
    ("auto", 33.0, ["none-1", "trained", "none-2"]),
    ("auto", 1400.0, ["none", "trained"]),
    ("auto", None, ["none", "trained"]),
    ("a-b-a", 1400.0, ["none-1", "trained", "none-2"]),
    ("blocks", 33.0, ["none", "trained"]),
])  # fmt: skip
def test_a_b_a_where_a_reload_is_cheap(order: str, seconds: float | None, ids: list[str]) -> None:
    made = compile_plan(parsed(LEAST + f'order = "{order}"\n'), GPU, seconds)
    assert [step["id"] for step in made["steps"][:-1]] == ids
    passes = [settings(step)["passes"] for step in made["steps"][:-1]]
    assert passes == ([2, 3, 2] if len(ids) == 3 else [3, 3])
    if len(ids) == 3:
        assert settings(made["steps"][-1])["arms"][0]["results"] == ["/out/arms/none-1", "/out/arms/none-2"]


def test_arms_of_ones_own_and_two_engines() -> None:
    plan = parsed(
        LEAST
        + """
[[arm]]
name = "none"
changes = ["drafter="]
[[arm]]
name = "k 5"
changes = ["k=5"]
[[arm]]
name = "sglang"
profile = "sg"
"""
    )
    assert [(arm.name, arm.role, arm.python) for arm in plan.arms] == [
        ("none", "none", "/venv/bin/python"), ("k 5", "other", "/venv/bin/python"), ("sglang", "other", "/sg/bin/python"),
    ]  # fmt: skip
    made = compile_plan(plan, GPU)
    assert [step["id"] for step in made["steps"]] == ["none", "k-5", "sglang", "verdict"]
    assert settings(made["steps"][1])["k"] == 5
    assert made["servers"]["sglang"]["secrets"] == ["HF_TOKEN"]
    assert kind("pipeline").spec({"name": "p", "pipeline": made}, "id")["secrets"] == ["HF_TOKEN"]


def test_synthetic_arms_act_acceptance_out() -> None:
    plan = parsed(LEAST + "lengths = [1.5, 3]\n", synthetic=True)
    assert [(arm.name, arm.role, arm.synthetic_length) for arm in plan.arms] == [
        ("none", "none", None), ("length-1.5", "synthetic", 1.5), ("length-3", "synthetic", 3.0),
    ]  # fmt: skip
    made = compile_plan(plan, GPU)
    argv = made["servers"]["length-1.5"]["argv"]
    assert argv.count("--speculative-config") == 1
    config = json.loads(argv[argv.index("--speculative-config") + 1])
    assert config["rejection_sample_method"] == "synthetic"
    assert config["synthetic_acceptance_length"] == 1.5
    assert config["num_speculative_tokens"] == 3
    assert settings(made["steps"][1])["synthetic_length"] == 1.5


def test_synthetic_on_sglang_is_a_variable() -> None:
    made = compile_plan(parsed(LEAST.replace("base", "sg") + "lengths = [2]\n", synthetic=True), GPU)
    assert made["servers"]["length-2"]["env"]["SGLANG_SIMULATE_ACC_LEN"] == "2"
    assert "SGLANG_SIMULATE_ACC_LEN" not in made["servers"]["none"]["env"]


def test_vllm_on_a_cpu_refuses_synthetic_acceptance_and_that_is_told_before() -> None:
    plan = parsed(LEAST, synthetic=True)
    with pytest.raises(BadJob, match="only on GPUs"):
        compile_plan(plan, ())
    compile_plan(parsed(LEAST.replace("base", "sg"), synthetic=True), ())


def test_an_untrained_drafter_can_be_made_first() -> None:
    text = LEAST + '[make_untrained]\npython = "/spec/bin/python"\ntarget = "/m"\ndata = "/prepared"\n'
    made = compile_plan(parsed(text, synthetic=True), GPU)
    first, second = made["steps"][0], made["steps"][2]
    assert (first["id"], first["kind"]) == ("untrained", "train")
    assert "--dry-run" in first["spec"]["argv"]
    assert second["needs"] == ["untrained"]
    assert any("/out/untrained/checkpoints" in word for word in made["servers"]["length-1.5"]["argv"])


@pytest.mark.parametrize(("text", "words"), [
    ('output = "/o"\nprompts = "/p"\n', "'profile' is missing"),
    (LEAST.replace("base", "basic"), "there is no profile 'basic'"),
    (LEAST + "concurency = [1]\n", "did you mean 'concurrency'?"),
    (LEAST + "passes = 0\n", "'passes' is 0"),
    (LEAST + 'log_cap = 100000\n', "'log_cap' is no key of a plan"),
    (LEAST + '[[arm]]\nname = "a"\n', "no arm is without a drafter"),
    (LEAST + '[[arm]]\nname = "a"\nrole = "none"\n', "has role none and a drafter"),
    (LEAST + '[[arm]]\nname = "a"\nchanges = ["drafter="]\n[[arm]]\nname = "a"\n', "two arms are called 'a'"),
    (LEAST + '[[arm]]\nrole = "none"\n', "an arm has no name"),
    (LEAST + '[[arm]]\nname = "a"\nchange = ["x=1"]\n', "unknown key 'change'"),
    (LEAST + '[[arm]]\nname = "a"\nchanges = ["drafter=", "porto=1"]\n', "unknown key 'porto'"),
    (LEAST + '[[arm]]\nname = "a"\nprofile = "x"\n', "there is no profile 'x'"),
    ("profile = \n", "is not TOML"),
])  # fmt: skip
def test_what_is_wrong_is_told(text: str, words: str) -> None:
    assert any(words in notice for notice in wrong(text)), wrong(text)


def test_lengths_beyond_what_is_possible_are_told() -> None:
    assert "from 1 to 4" in wrong(LEAST + "lengths = [5]\n", synthetic=True)[0]


def test_changes_of_the_command_line() -> None:
    plan = parsed(LEAST, changes=("passes=5", "concurrency=[2, 8]", "output=/elsewhere"))
    assert (plan.values["passes"], plan.values["concurrency"], plan.values["output"]) == (5, [2, 8], "/elsewhere")


def test_the_tool_gets_the_engines_environment_and_no_value_of_a_secret_stands_anywhere() -> None:
    profile = replace(BASE, env={"PYTHONPATH": "/site", "MY_TOKEN": "abc"}, args=("--api-key", "xyz"))
    plan = parse_plan(LEAST, Path("/p.toml"), {"base": profile})
    step = compile_plan(plan, GPU)["steps"][0]
    assert step["spec"]["env"]["PYTHONPATH"] == "/site"
    assert "abc" not in json.dumps(step)
    assert "xyz" not in json.dumps(step)


def test_a_key_of_a_server_is_a_name_and_goes_into_the_secrets() -> None:
    made = compile_plan(parsed(LEAST + 'api_key_env = "VLLM_API_KEY"\n'), GPU)
    assert made["steps"][0]["spec"]["secrets"] == ["VLLM_API_KEY"]
