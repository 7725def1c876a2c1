"""Job files: read, changed, checked with everything that is wrong at once, found by path or name."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagletui import jobfiles
from eagletui.jobfiles import BadJobFile, find_job_file, load_job_files, parse_job_file, runnable
from eagletui.jobs.base import BadJob
from eagletui.jobs.kinds import kind
from eagletui.labparts.paths import RECIPE, Lab
from eagletui.paths import assets_path

PATH = Path("/x/my-job.toml")
COMMAND = 'kind = "command"\nargv = ["echo", "a"]\n'


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("EAGLETUI_LAB", str(tmp_path / "lab"))
    return tmp_path / "config" / "eagletui"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_job_file_with_its_defaults() -> None:
    file, notices = parse_job_file(COMMAND + "[env]\nN = 3\n", PATH)
    assert notices == []
    assert file is not None
    assert (file.name, file.kind, file.secrets) == ("my-job", "command", ())
    assert file.values == {
        "kind": "command", "argv": ["echo", "a"], "cwd": "/", "name": "my-job", "env": {"N": "3"},
    }  # fmt: skip


def test_everything_that_is_wrong_is_told_with_its_line() -> None:
    text = (
        'kind = "command"\nargv = ["x"]\nshell = "y"\nprot = 5\ncwd = "here"\nname = "a b"\nsecrets = ["HF TOKEN", "X"]\n'
        '[env]\nX = 1\n"a b" = "x"\nY = true\n'
    )
    file, notices = parse_job_file(text, PATH)
    assert file is None
    assert [(notice.line, notice.what) for notice in notices] == [
        (3, "a command has either argv or shell"),
        (4, "unknown key 'prot'"),
        (5, "'cwd' is 'here'"),
        (6, "'name' is 'a b'"),
        (7, "'HF TOKEN' is no name of a variable"),
        (7, "X is a secret and stands in [env] too"),
        (8, "'a b' in [env] is 'x'"),
        (8, "'Y' in [env] is True"),
    ]
    assert all(notice.remedy for notice in notices)


@pytest.mark.parametrize(
    ("text", "line", "what", "remedy"),
    [
        ("", 1, "'kind' is missing", "known: "),
        ('\nkind = "dowload"', 2, "there is no kind of job 'dowload'", "did you mean 'download'?"),
        ('kind = "serve"', 1, "a server has a profile", "docs/profiles.md"),
        ("kind = 3", 1, "there is no kind of job 3", "known: "),
        ("kind = ", 1, "is not TOML: invalid value", "mend that line; the job file cannot be run"),
    ],
)
def test_a_file_of_no_kind(text: str, line: int, what: str, remedy: str) -> None:
    file, (notice,) = parse_job_file(text, PATH)
    assert file is None
    assert (notice.line, what in notice.what, remedy in notice.remedy) == (line, True, True), notice


def test_changes_of_one_run() -> None:
    changes = ["cwd=/data", "argv+=--seed '1 2'", "env.N=4", 'env.M="5"', "expect=a b", "port=8001", "name=other", "description="]
    file, notices = parse_job_file(COMMAND + 'description = "x"\n', PATH, changes)
    assert notices == []
    assert file is not None
    values = file.values
    assert (values["cwd"], values["argv"], values["port"], file.name) == ("/data", ["echo", "a", "--seed", "1 2"], 8001, "other")
    assert (values["env"], values["expect"]) == ({"N": "4", "M": "5"}, ["a", "b"])
    assert "description" not in values
    swapped, notices = parse_job_file(COMMAND, PATH, ["argv=", "shell=ls | wc -l"])
    assert notices == []
    assert swapped is not None
    assert swapped.values["shell"] == "ls | wc -l"
    numbers, _ = parse_job_file(COMMAND, PATH, ["graces=[1, 2, 3]", 'gpus="all"'])
    assert numbers is not None
    assert (numbers.values["graces"], numbers.values["gpus"]) == ([1, 2, 3], "all")


def test_changes_that_cannot_be_made() -> None:
    _, notices = parse_job_file(COMMAND, PATH, ["cwd", "=3", "argv.x=1", "kind+=x", "prot=3"])
    assert [notice.what for notice in notices] == [
        "--set cwd: is not KEY=VALUE",
        "--set =3: is not KEY=VALUE",
        "--set argv.x=1: there is no table 'argv'",
        "--set kind+=x: 'kind' is no list",
        "unknown key 'prot'",
    ]


def test_a_step_of_a_pipeline_is_changed_by_its_id() -> None:
    text = 'kind = "pipeline"\n[[step]]\nid = "train"\nkind = "train"\nepochs = 5\n[[step]]\nid = "x"\n'
    file, notices = parse_job_file(text, PATH, ["step.train.epochs=1", "vars.n=3"])
    assert notices == []
    assert file is not None
    assert file.values["step"][0]["epochs"] == 1
    assert file.values["vars"] == {"n": 3}
    _, (notice,) = parse_job_file(text, PATH, ["step.trian.epochs=1"])
    assert notice.what == "--set step.trian.epochs=1: there is no table 'step.trian'"


def test_files_are_found_by_name_in_order(own: Path) -> None:
    put(own / "jobs" / "mine.toml", COMMAND)
    put(own / "jobs" / "command.toml", COMMAND + 'description = "of all hosts"\n')
    put(own / "hosts" / "gpu-1" / "jobs" / "command.toml", COMMAND + 'description = "of this host"\n')
    assert find_job_file("command", "gpu-1").description == "of this host"
    assert find_job_file("command", "gpu-2").description == "of all hosts"
    found, notices = load_job_files("gpu-1")
    assert notices == []
    assert (found["command"].description, found["mine"].kind) == ("of this host", "command")
    assert found["download"].source.parent == assets_path("jobs")
    with pytest.raises(BadJob, match="did you mean 'mine'"):
        find_job_file("mien", "gpu-1")


def test_a_broken_file_hides_what_comes_with_us_and_is_told(own: Path) -> None:
    put(own / "jobs" / "download.toml", "kind = 3\n")
    found, (notice,) = load_job_files("gpu-1")
    assert "download" not in found
    assert notice.file == own / "jobs" / "download.toml"
    with pytest.raises(BadJobFile, match="there is no kind of job 3"):
        find_job_file("download", "gpu-1")


def test_a_file_is_found_by_its_path(tmp_path: Path, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "here.toml", COMMAND)
    monkeypatch.chdir(tmp_path)
    assert find_job_file("here.toml", "h").name == "here"
    assert find_job_file(str(tmp_path / "here.toml"), "h", ["name=there"]).name == "there"
    with pytest.raises(BadJobFile, match="cannot be read"):
        find_job_file("./no.toml", "h")


def test_the_labs_own_are_there_when_it_is_built(own: Path, tmp_path: Path) -> None:
    with pytest.raises(BadJob, match="is a job of the lab"):
        find_job_file("copy", "local")
    lab = Lab(tmp_path / "lab")
    put(lab.markers / "drafter", RECIPE)
    assert find_job_file("copy", "local").values["source"] == f"{lab.root}/smollm2-16shards"
    with pytest.raises(BadJob, match="this machine alone"):
        find_job_file("copy", "gpu-1")


def test_all_files_that_come_along_can_be_run(own: Path, tmp_path: Path) -> None:
    put(Lab(tmp_path / "lab").markers / "drafter", RECIPE)
    found, notices = load_job_files("local")
    assert notices == []
    assert {"build", "command", "copy", "download"} <= set(found)
    assert all(file.description for file in found.values())
    for file in found.values():
        if file.kind != jobfiles.PIPELINE:
            assert kind(file.kind).spec({**file.values, "operator": "x"}, "job-1", ("GPU-1",))["kind"] == file.kind


def test_every_kind_says_what_its_keys_mean() -> None:
    for name in runnable():
        found = kind(name)
        assert len({key.name for key in found.keys}) == len(found.keys)
        assert all(key.help and key.expected() for key in found.keys)
