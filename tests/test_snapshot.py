"""The snapshot of ``status``: readable at 80 columns, safe to print, and complete as JSON."""

from __future__ import annotations

import json

import pytest

from eagletui.cli.jobs import _table
from eagletui.cli.snapshot import WIDTH, as_lines, as_object
from eagletui.records import JobState
from eagletui.store import Store
from eagletui.text import cells
from tests.screens.demo import STORES, board_store


@pytest.mark.parametrize("name", sorted(STORES))
def test_every_store_fits_the_terminal_and_holds_nothing_that_could_steer_it(name: str) -> None:
    lines = as_lines(STORES[name]())
    assert max(map(cells, lines)) <= WIDTH
    assert not [char for line in lines for char in line if char < " " or "\x7f" <= char <= "\x9f" or char == "\u202e"]


@pytest.mark.parametrize("name", sorted(STORES))
def test_every_store_is_json_without_nan(name: str) -> None:
    shown = json.loads(json.dumps(as_object(STORES[name]()), allow_nan=False))
    assert {"version", "host", "gpus", "servers", "jobs", "alerts"} <= set(shown)


def test_a_board_of_eight() -> None:
    store = board_store()
    shown = as_object(store)
    assert [card["number"] for card in shown["gpus"]] == list(range(8))
    assert shown["gpus"][3]["throttle"] == ["HW thermal"]
    assert shown["gpus"][0]["fan"] is None
    assert shown["gpus"][0]["processes"][0]["job"] == "k25"
    assert {job["kind"] for job in shown["servers"]} == {"serve"}
    assert len(shown["servers"]) + len(shown["jobs"]) == len(store.jobs)
    assert set(shown["servers"][0]) == {*JobState._fields, "running", "waiting", "kv", "window", "eta"}
    assert [alert["severity"] for alert in shown["alerts"]] == ["bad", "warn"]
    text = "\n".join(as_lines(store))
    for part in (
        "8 of 8",
        "HW thermal",
        "k25-eagle3",
        ":8000 ready",
        "synth-25k",
        "GPU 3 is 4 C",
        "-> look at its airflow",
        "/data 2.61 TiB",
    ):
        assert part in text


def test_a_store_that_knows_nothing_says_so() -> None:
    shown = as_object(Store())
    assert shown["gpus"] == []
    assert shown["gpus_problem"] == "no answer"
    assert shown["host"]["cpu"] is None
    assert "host    no data" in as_lines(Store())


def test_a_server_without_numbers_or_a_first_answer_says_why_in_every_verb() -> None:
    why = "no numbers: /metrics is answered with status 500"
    job = JobState("a", "serve", "a", "running", 1.0, health="ready", smoke_problem="key needed", metrics_problem=why)
    for text in ("\n".join(as_lines(Store(jobs={"a": job}))), "\n".join(_table([job]))):
        assert "no first answer: the server wants an API key" in text
    assert why in "\n".join(as_lines(Store(jobs={"a": job})))
    assert why in "\n".join(_table([job._replace(smoke_problem=None)]))
    ended = job._replace(state="exited", health="gone", rc=0)
    assert "no first answer" not in "\n".join(_table([ended]))
