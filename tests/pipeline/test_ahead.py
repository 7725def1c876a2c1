"""A pipeline's file through the commands and the real agent: what it would do, run, and what would be left to do."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eagletui.commands import Desk, open_desk
from eagletui.commands.pipelines import look_ahead
from eagletui.commands.run import job_file, plan_run, run_job, wait_over
from eagletui.hosts.target import parse_target
from tests.agent.jobs_harness import Jobs
from tests.pipeline.harness import Pipelines

FILE = """
kind = "pipeline"
dir = "{place}/loop"
stages = [2, "all"]

[[step]]
id = "once"
kind = "command"
argv = ["{python}", "-c", "open('{place}/once', 'w').write('1')"]
expect = ["{place}/once"]

[[step]]
id = "each"
kind = "command"
when = "each"
shell = "cat {{once.path}} > {place}/each-{{stage}}"
expect = ["{place}/each-{{stage}}"]
"""


@pytest.fixture
async def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    for name in ("EAGLETUI_STATE", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    found = await open_desk(parse_target("local"), None, {}, ("jobs", "gpus", "host"))
    yield found
    await found.close()


async def test_what_it_would_do_and_did(desk: Desk, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    path = place / "small.toml"
    path.write_text(FILE.format(place=place, python=sys.executable))
    left = Pipelines(Jobs(tmp_path / "EAGLETUI_STATE"), tmp_path)
    try:
        plan = await plan_run(desk, job_file(desk, str(path)))
        ahead = await look_ahead(desk, plan.spec)
        assert [(step.id, step.stage, step.why) for step in ahead.steps] == [
            ("once", None, "not done yet"),
            ("each.2", "2", "not done yet"),
            ("each.all", "all", "not done yet"),
        ]
        state = await wait_over(desk, (await run_job(desk, plan, {})).id, lambda _state: None)
        assert (state.ok, state.outcome) == (True, "all 3 steps are done")
        assert state.work is not None
        assert (state.work.done, state.work.total) == (3, 3)

        again = await plan_run(desk, job_file(desk, str(path)))
        ahead = await look_ahead(desk, again.spec)
        assert [step.why for step in ahead.steps] == [None, None, None]
        assert ahead.notes[0] == f"an earlier run (job {state.id}) was done: all 3 steps are done"
        (place / "each-all").unlink()
        ahead = await look_ahead(desk, again.spec)
        assert [step.id for step in ahead.steps if step.why] == ["each.all"]
        assert "not there any more" in str(ahead.steps[2].why)
    finally:
        left.clean()


async def test_the_room_for_hidden_states_is_told(desk: Desk, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps({"text_config": {"hidden_size": 7168}}))
    path = tmp_path / "states.toml"
    path.write_text(
        f"""
kind = "pipeline"
dir = "{tmp_path}/loop"
[defaults]
python = "/opt/python"
target = "{target}"
model = "{target}"
[[step]]
id = "answers"
kind = "synthesise"
prompts = "/p.jsonl"
limit = 10000
[[step]]
id = "prepared"
kind = "prepare"
data = ["{{answers.path}}"]
seq_length = 2048
[[step]]
id = "states"
kind = "extract"
data = "{{prepared.path}}"
layers = [2, 30, 58]
"""
    )
    plan = await plan_run(desk, job_file(desk, str(path)))
    notes = (await look_ahead(desk, plan.spec)).notes
    assert "states: at most 1.07 TiB of hidden states (10,000 rows of at most 2,048 tokens, in bfloat16)" in notes[-1]
