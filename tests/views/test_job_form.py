"""A job file as the fields of a form, and back, with the checks of the file itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagletui.jobfiles import JobFile, load_job_files, parse_job_file, runnable
from eagletui.views.job_form import WHAT, blank, changes_of, fields_of, file_of, kinds_to_fill, texts_of

COMMAND = """kind = "command"
argv = ["nvidia-smi", "topo", "-p2p r"]
expect = ["out.txt"]
gpus = [0, "GPU-1"]
graces = [1, 2.5, 3]
secrets = ["HF_TOKEN"]

[env]
A = "one two"
B = "3"
"""
CHAIN = """kind = "pipeline"
name = "loop"
dir = "/data/loop"
stages = [10, "all"]

[vars]
prompts = "/data/p.jsonl"
layers = [2, 30, 58]
rows = 10000

[[step]]
id = "a"
kind = "command"
argv = ["true"]
"""


def read(text: str) -> JobFile:
    file, notices = parse_job_file(text, Path("file.toml"))
    assert file is not None, notices
    return file


@pytest.mark.parametrize("text", [COMMAND, CHAIN])
def test_what_nobody_changed_stays_as_it_is(text: str) -> None:
    file = read(text)
    texts = texts_of(file)
    assert changes_of(file, texts) == []
    made, problems = file_of(file, texts)
    assert problems == {}
    assert made == file


def test_all_shipped_files_go_through_the_form_unchanged() -> None:
    files, notices = load_job_files("some-host")
    assert notices == []
    for file in files.values():
        assert changes_of(file, texts_of(file)) == []


def test_every_kind_of_value_is_written_and_read() -> None:
    file = read(COMMAND)
    texts = texts_of(file)
    assert texts["argv"] == "nvidia-smi topo '-p2p r'"
    assert texts["env"] == "A='one two' B=3"
    assert texts["graces"] == "1 2.5 3"
    texts |= {"argv": "echo 'a b' c", "env": "C='x y'", "gpus": "2", "graces": "4 5 6", "secrets": "", "port": "8001"}
    made, problems = file_of(file, texts)
    assert problems == {}
    assert made is not None
    values = made.values
    assert list(values["argv"]) == ["echo", "a b", "c"]
    assert values["env"] == {"C": "x y"}
    assert values["gpus"] == 2
    assert list(values["graces"]) == [4, 5, 6]
    assert "secrets" not in values or not values["secrets"]
    assert values["port"] == 8001


def test_what_cannot_be_drawn_is_kept_as_the_file_has_it() -> None:
    file = read('kind = "command"\nshell = "one\\ntwo \\u001b[2J"\n')
    assert texts_of(file)["shell"] == "one two "
    made, _ = file_of(file, texts_of(file) | {"port": "8001"})
    assert made is not None
    assert made.values["shell"] == "one\ntwo \x1b[2J"


def test_one_card_by_its_index_has_a_comma() -> None:
    file = read(COMMAND)
    made, _ = file_of(file, texts_of(file) | {"gpus": "2,"})
    assert made is not None
    assert list(made.values["gpus"]) == [2]
    made, _ = file_of(file, texts_of(file) | {"gpus": "all"})
    assert made is not None
    assert made.values["gpus"] == "all"


def test_words_of_a_pipeline_keep_what_they_are() -> None:
    file = read(CHAIN)
    texts = texts_of(file) | {
        "vars.layers": "2 29 57",
        "vars.rows": "500",
        "vars.prompts": "/d/1",
        "stages": "20 all",
        "dir": "/d/x",
    }
    made, problems = file_of(file, texts)
    assert problems == {}
    assert made is not None
    assert made.values["vars"] == {"prompts": "/d/1", "layers": [2, 29, 57], "rows": 500}
    assert made.values["stages"] == [20, "all"]
    assert made.values["dir"] == "/d/x"


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        ({"port": "many"}, "port", "a whole number from 1 to 65535"),
        ({"cwd": "relative"}, "cwd", "an absolute path"),
        ({"argv": "echo 'a"}, "argv", "no closing quotation"),
        ({"env": "novalue"}, "env", "is not name=value"),
        ({"name": "a b"}, "name", "expected"),
    ],
)
def test_a_mistake_is_told_at_its_field(changed: dict[str, str], field: str, said: str) -> None:
    file = read(COMMAND)
    made, problems = file_of(file, texts_of(file) | changed)
    assert made is None
    assert said in problems[field], problems


def test_an_empty_form_tells_all_that_is_needed() -> None:
    for word in runnable():
        if word == "pipeline":
            continue
        file = blank(word)
        needed = {field.id for field in fields_of(file) if field.required}
        made, problems = file_of(file, texts_of(file))
        assert needed <= set(problems), word
        assert made is None or not needed


def test_every_kind_can_be_chosen_and_says_what_it_does() -> None:
    assert {word for word, about in kinds_to_fill() if about} == set(runnable()) - {"pipeline"}
    assert set(WHAT) == set(runnable()) - {"pipeline"}
