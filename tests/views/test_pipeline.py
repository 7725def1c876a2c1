"""Pipelines and the order of jobs, worked out of whatever documents came from the host."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eagletui.records import JobState
from eagletui.store import PipelineDocs
from eagletui.views.jobs import grouped
from eagletui.views.pipeline import servers_of, steps_of, waits_for
from tests.screens.work_demo import STEPS, pipeline_jobs, plan, record

anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("id", "kind", "state", "steps", "servers", "gates", "figures", "needs", "key", "most", "job", "port", "attempt")
shaped = st.dictionaries(st.sampled_from(NAMES), anything, max_size=6)


@given(
    st.builds(PipelineDocs, st.dictionaries(st.sampled_from(NAMES), st.lists(shaped, max_size=3) | anything, max_size=4), shaped)
)
def test_no_document_of_a_host_can_break_the_screen(docs: PipelineDocs) -> None:
    steps = steps_of(docs, {}, "p")
    for step in steps:
        assert isinstance(step.id + step.kind + step.why, str)
        assert step.state in ("waiting", "running", "done", "failed", "ended")
        assert waits_for(step, steps)
    for server in servers_of(docs, {}, "p"):
        assert isinstance(server.name + server.state, str)


def test_steps_in_the_order_of_the_plan_with_what_the_record_and_the_jobs_say() -> None:
    jobs = pipeline_jobs()
    steps = steps_of(PipelineDocs(plan(), record(3)), jobs, "loop")
    assert [step.id for step in steps] == [one[0] for one in STEPS]
    assert [step.state for step in steps] == ["done"] * 3 + ["running"] + ["waiting"] * 5
    assert steps[0].gates == ("truncated_share at most 0.2",)
    assert steps[0].figures == (("truncated_share", 0.1),)
    assert steps[3].now is jobs["loop-synth-2"]
    assert waits_for(steps[5], steps) == "for synth"
    failed = steps_of(PipelineDocs(plan(), record(3, "too many", True)), jobs, "loop")
    assert failed[3].gate_failed
    assert waits_for(failed[5], failed) == "behind synth"
    assert waits_for(steps_of(PipelineDocs(plan(), {}), {}, "loop")[0], []) == "for its turn"


def test_before_its_record_has_come_the_jobs_tell() -> None:
    jobs = pipeline_jobs()
    steps = steps_of(None, jobs, "loop")
    assert [step.state for step in steps] == ["done", "done", "done", "running"]
    assert [server.name for server in servers_of(None, jobs, "loop")] == ["target"]


def test_servers_know_their_steps() -> None:
    servers = {one.name: one for one in servers_of(PipelineDocs(plan(), record(3)), pipeline_jobs(), "loop")}
    assert servers["target"].state == "ready"
    assert servers["target"].steps == ("synth-10", "extract-10", "synth")
    assert servers["with"].state == "not started"
    assert servers["with"].port == 8002


def one(id_: str, started: float, parent: str | None = None, state: str = "exited") -> JobState:
    return JobState(id_, "command", id_, state, started, parent=parent)


def test_steps_stand_below_their_pipeline_and_nothing_is_lost() -> None:
    jobs = {
        job.id: job
        for job in (
            one("old", 1),
            one("p", 5),
            one("b", 7, "p"),
            one("a", 6, "p"),
            one("run", 2, state="running"),
            one("lone", 9, "gone"),
        )
    }
    assert [(key, depth) for key, _, depth in grouped(jobs)] == [
        ("run", 0),
        ("lone", 0),
        ("p", 0),
        ("a", 1),
        ("b", 1),
        ("old", 0),
    ]


@given(st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.floats(0, 9), st.sampled_from([*"abcdef", None]))))
def test_every_job_is_shown_once_whatever_the_parents(table: dict[str, tuple[float, str | None]]) -> None:
    jobs = {id_: one(id_, started, parent) for id_, (started, parent) in table.items()}
    shown = [key for key, _, _ in grouped(jobs)]
    assert sorted(shown) == sorted(jobs)
