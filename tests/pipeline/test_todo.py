"""What a run of a pipeline has to do, by what earlier ones left; gates and their figures. No processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eagletui.agent.loop import Loop
from eagletui.agent.pipeline import cards
from eagletui.jobs import gates
from eagletui.jobs.base import BadJob
from eagletui.jobs.pipeline import PipelineWatcher, check_plan, made, missing, step_prints, todo


def step(name: str, *needs: str, **more: Any) -> dict[str, Any]:
    spec = {"kind": "command", "argv": ["true", name], "cwd": "/"}
    return {"id": name, "kind": "command", "spec": spec, "needs": list(needs), "server": None, **more}


def plan(*steps: dict[str, Any], **servers: Any) -> dict[str, Any]:
    return {"dir": "/d", "servers": servers, "steps": list(steps)}


def done(wanted: dict[str, Any], **changes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    prints = step_prints(wanted)
    out = {}
    for one in wanted["steps"]:
        entry = {
            "state": "done",
            "fingerprint": prints[one["id"]],
            "made": {"/d/" + one["id"]: [1, 1]},
            "figures": {"rows": 10.0},
        }
        out[one["id"]] = {**entry, **changes.get(one["id"], {})}
    return out


CHAIN = plan(step("a"), step("b", "a"), step("c", "b"), step("d"))


def lost(*names: str) -> Any:
    return lambda there: next((f"{path} is gone" for path in there if path.rsplit("/", 1)[1] in names), None)


def test_all_is_to_do_at_first_and_nothing_once_it_is_done() -> None:
    assert todo(CHAIN, {}, lost()) == dict.fromkeys("abcd", "not done yet")
    assert todo(CHAIN, done(CHAIN), lost()) == {}


def test_what_builds_on_a_step_that_is_run_again_is_run_again() -> None:
    again = todo(CHAIN, done(CHAIN, a={"state": "failed", "why": "exit status 3"}), lost())
    assert again == {"a": "exit status 3", "b": "what it builds on is made anew", "c": "what it builds on is made anew"}


def test_what_was_deleted_is_made_again_only_for_a_step_that_is_run() -> None:
    assert todo(CHAIN, done(CHAIN), lost("a", "b")) == {}, "hidden states may be deleted once the training is done"
    assert list(todo(CHAIN, done(CHAIN, c={"state": "waiting"}), lost("a"))) == ["c"], "b is there, so a is not needed"
    again = todo(CHAIN, done(CHAIN, c={"state": "waiting"}), lost("a", "b"))
    assert again == {"c": "not done yet", "b": "/d/b is gone", "a": "/d/a is gone"}
    assert todo(CHAIN, done(CHAIN), lost("d")) == {"d": "/d/d is gone"}, "nobody builds on it: it is a result"


def test_a_changed_spec_or_server_is_another_step() -> None:
    servers = {"s": {"kind": "serve", "argv": ["serve", "x"], "server": True, "model": "m"}}
    one = plan(step("a", server="s"), step("b", "a"), **servers)
    other = plan(step("a", server="s"), step("b", "a"), s={**servers["s"], "model": "n"})
    assert list(todo(other, done(one), lost())) == ["a", "b"]
    same = plan(step("a", server="s"), step("b", "a"), s={**servers["s"], "graces": [1, 1, 1], "operator": "ann"})
    assert todo(same, done(one), lost()) == {}, "how a server is ended does not change what was made with it"


def test_gates_are_looked_at_with_the_bounds_of_today() -> None:
    loose, tight = [plan(step("a", gates=[{"key": "rows", "least": n}])) for n in (5, 20)]
    assert todo(tight, done(loose), lost()) == {"a": "rows is 10, at least 20 allowed"}
    assert todo(loose, done(loose, a={"state": "failed", "gate": True}), lost()) == {}
    assert todo(tight, done(loose, a={"state": "failed", "gate": True}), lost()) == {"a": "rows is 10, at least 20 allowed"}


def test_what_was_made_is_counted_and_may_grow(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("1\n")
    (tmp_path / "states" / "deep").mkdir(parents=True)
    (tmp_path / "states" / "deep" / "hs_0").write_bytes(b"x" * 10)
    paths = [str(tmp_path / name) for name in ("rows", "states", "none")]
    there = made(paths)
    assert there == {paths[0]: [1, 2], paths[1]: [1, 10], paths[2]: None}
    del there[paths[2]]
    assert missing(there) is None
    (tmp_path / "rows").write_text("1\n2\n")
    assert missing(there) is None
    (tmp_path / "states" / "deep" / "hs_0").write_bytes(b"")
    assert missing(there) == f"{paths[1]} has 0 bytes, and had 10"
    (tmp_path / "states" / "deep" / "hs_0").unlink()
    assert missing(there) == f"{paths[1]} has 0 files, and had 1"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dir": "d"}, "dir should be an absolute path"),
        ({"dir": "/d/../e"}, "dir should be an absolute path"),
        ({"steps": []}, "at least one step"),
        ({"steps": [step("a"), step("a")]}, "step a stands there twice"),
        ({"steps": [step("a", "b"), step("b")]}, "it needs 'b', which is no earlier step"),
        ({"steps": [step("a", server="s")]}, "there is no server 's'"),
        ({"steps": [step("../a")]}, "a step's id should be"),
        ({"steps": [{**step("a"), "spec": {"kind": "command", "argv": []}}]}, "step a: argv should be a list"),
        ({"steps": [step("a", gates=[{"key": "x"}])]}, "a gate has least or most"),
        ({"servers": {"s": {"kind": "serve", "argv": ["x"]}}}, "its spec is not that of a server"),
        ({"steps": [{**step("a"), "kind": "train"}]}, "its kind is not that of its spec"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(BadJob, match=why):
        check_plan({**CHAIN, **change})


def test_figures_are_every_number_and_the_shares_of_counts() -> None:
    result = {"ok": True, "rows": 90, "failed": 10, "truncated": 45, "tokens": 1e6, "val": {"loss": 2.5, "full_acc": [0.5, 0.2]}}
    found = gates.figures("synthesise", result)
    assert found["val.full_acc.1"] == 0.2
    assert (found["failed_share"], found["truncated_share"]) == (0.1, 0.45)
    assert "tokens_share" not in found, "tokens are no part of the rows"
    assert "ok" not in found
    assert gates.figures("prepare", {"rows": 8, "dropped": 2})["dropped_share"] == 0.2
    assert gates.figures("extract", {"samples": 0, "skipped": 4, "sane": False}) == {
        "samples": 0, "skipped": 4, "sane": 0, "skipped_share": 1, "sane_share": 0,
    }  # fmt: skip
    given = gates.figures("synthesise", {"rows": 1, "failed": 1, "failed_share": 0.25})
    assert given["failed_share"] == 0.25, "what a step has worked out itself is right"


def test_what_was_set_aside_or_is_missing_is_a_share_of_all_answers_or_prompts() -> None:
    counts = {"prompts": 20, "answers": 16, "rows": 4, "set_aside": 12, "failed": 0, "missing": 5}
    found = gates.figures("synthesise", counts)
    assert (found["set_aside_share"], found["missing_share"]) == (0.75, 0.25)
    nothing = gates.figures("synthesise", {**counts, "rows": 0, "set_aside": 16})
    assert nothing["set_aside_share"] == 1.0, "all set aside: the gate must see it"
    assert not gates.judge({"key": "set_aside_share", "most": 0.2}, nothing)[0]


def test_a_gate_says_which_figure_and_which_bound() -> None:
    assert gates.judge({"key": "x", "most": 1}, {"x": 1.0}) == (True, "x is 1, at most 1 allowed")
    assert gates.judge({"key": "x", "least": 2, "most": 3}, {"x": 1.0}) == (False, "x is 1, at least 2 and at most 3 allowed")
    assert gates.judge({"key": "x", "most": 1}, {}) == (False, "x is not among the figures of its result (none)")
    assert gates.hint("truncated_share is 0.7") == "raise max_tokens"


def test_what_a_watcher_says_when_the_runner_left_nothing(tmp_path: Path) -> None:
    spec = {"id": "p", "pipeline": {"dir": str(tmp_path)}}
    watcher = PipelineWatcher(spec, str(tmp_path))
    watcher.look(0.0)
    assert watcher.work(0.0) is None
    assert watcher.outcome(-9, False).ok is False
    assert "ended by SIGKILL" in watcher.outcome(-9, False).why
    assert watcher.outcome(None, True).why == "ended on request"


def test_a_card_that_is_still_full_is_told_and_one_that_cannot_be_asked_is_not() -> None:
    before = {"GPU-a": 400, "GPU-b": 400}
    assert cards.held(before, {"GPU-a": 900, "GPU-b": 50_000}) == ["card GPU-b holds 48.4 GiB more than before"]
    assert cards.held(before, {}) == []
    assert cards.used(Loop(lambda what, error: None), []) == {}
