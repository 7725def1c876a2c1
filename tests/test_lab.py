"""The lab without its engine: steps that resume, failures in one line, processes that end, and what may be removed."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import struct
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui import lab as labs
from eagletui.labparts import steps, training
from eagletui.labparts.paths import Lab, default_root, find_lab
from eagletui.labparts.report import LabError
from eagletui.labparts.steps import Step, Work
from eagletui.paths import assets_path
from eagletui.profiles import load_profiles
from eagletui.records import JobState
from tests.lab_reporter import Heard


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "lab")


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a path short enough for the engine's sockets, which pytest's own may not be."""
    path = Path(os.path.realpath(subprocess.check_output(["mktemp", "-d"], text=True).strip()))
    yield path / "lab"
    shutil.rmtree(path)


class Recipe:
    """Three steps in the place of the real ones, which write a file each; ``broken`` fails until it is emptied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()
        self.unsound: set[str] = set()
        made = tuple(Step(name, f"the {name}", 1, self._work(name), self._check(name)) for name in ("venv", "model", "drafter"))
        monkeypatch.setattr(labs, "STEPS", made)

    def _work(self, name: str) -> Callable[[Work], None]:
        def work(work: Work) -> None:
            self.ran.append(name)
            if name in self.broken:
                raise LabError(name, "it broke", "mend it")
            (work.lab.root / name).write_text("made")

        return work

    def _check(self, name: str) -> Callable[[Work], None]:
        def check(work: Work) -> None:
            if name in self.unsound:
                raise LabError(name, "it is not whole", "run it again")

        return check


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    return Recipe(monkeypatch)


# -------------------------------------------------------------------------------------------------------------- building


def test_where_the_lab_is(monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(Path.home())
    assert str(default_root({})) == f"{home}/.cache/eagletui/lab"
    assert str(default_root({"XDG_CACHE_HOME": "/c"})) == "/c/eagletui/lab"
    assert str(default_root({"XDG_CACHE_HOME": "relative"})) == f"{home}/.cache/eagletui/lab"
    assert str(default_root({"XDG_CACHE_HOME": "/c", "EAGLETUI_LAB": "~/x/../y"})) == f"{home}/y"
    monkeypatch.setenv("EAGLETUI_LAB", "/elsewhere")
    assert find_lab().root == Path("/elsewhere")
    assert find_lab("/given").root == Path("/given")


def test_a_build_runs_every_step_once_and_then_nothing(short: Path, recipe: Recipe) -> None:
    heard = Heard()
    assert labs.up(short, reporter=heard) == 0
    assert recipe.ran == ["venv", "model", "drafter"]
    assert heard.steps == ["1/3 the venv", "done", "2/3 the model", "done", "3/3 the drafter", "done"]
    assert labs.up(short, reporter=heard) == 0
    assert recipe.ran == ["venv", "model", "drafter"]
    assert heard.said[-1] == f"the lab in {short} is ready"


def test_a_build_goes_on_where_it_stopped(short: Path, recipe: Recipe) -> None:
    recipe.broken.add("model")
    heard = Heard()
    assert labs.up(short, reporter=heard) == 1
    assert heard.errors == ["lab up: model: it broke - mend it"]
    assert heard.steps[-1] == "stopped"
    assert not Lab(short).built
    recipe.broken.clear()
    assert labs.up(short, reporter=heard) == 0
    assert recipe.ran == ["venv", "model", "model", "drafter"]
    assert Lab(short).built


def test_a_step_whose_check_fails_is_not_marked(short: Path, recipe: Recipe) -> None:
    recipe.unsound.add("drafter")
    heard = Heard()
    assert labs.up(short, reporter=heard) == 1
    assert heard.errors == ["lab up: drafter: it is not whole - run it again"]
    assert Lab(short).finished("model")
    assert not Lab(short).finished("drafter")


def test_an_older_recipe_is_built_again(short: Path, recipe: Recipe) -> None:
    labs.up(short, reporter=Heard())
    (Lab(short).markers / "drafter").write_text("0\n")
    assert labs.up(short, reporter=Heard()) == 0
    assert recipe.ran == ["venv", "model", "drafter", "drafter"]


def test_an_interrupt_is_told_and_leaves_a_lab_to_go_on_with(
    short: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(work: Work) -> None:
        raise KeyboardInterrupt

    heard = Heard()
    monkeypatch.setattr(labs, "STEPS", (Step("venv", "the venv", 1, interrupt, lambda work: None), *labs.STEPS[1:]))
    assert labs.up(short, reporter=heard) == 130
    assert heard.errors == ["lab up: interrupted - run it again: it goes on where it stopped"]
    assert not Lab(short).finished("venv")


def test_two_builds_at_once_are_refused(short: Path, recipe: Recipe) -> None:
    heard = Heard()
    with labs._alone(Lab(short)):
        assert labs.up(short, reporter=heard) == 1
    assert heard.errors == [f"lab up: lab: another eagletui is at work on {short} - wait until it is done"]
    assert recipe.ran == []


def test_a_folder_with_other_files_is_not_built_in(short: Path, recipe: Recipe) -> None:
    short.mkdir()
    (short / "thesis.txt").write_text("years of work")
    heard = Heard()
    assert labs.up(short, reporter=heard) == 1
    assert heard.errors == [f"lab up: lab: {short} has files in it and is not a lab - choose an empty folder with --dir"]
    assert recipe.ran == []


def test_a_path_too_long_for_sockets_is_refused(tmp_path: Path, recipe: Recipe) -> None:
    heard = Heard()
    assert labs.up(tmp_path / ("x" * 60), reporter=heard) == 1
    assert "is longer than 60 bytes - choose a shorter one with --dir" in heard.errors[0]


def test_a_folder_that_cannot_be_made_is_told(short: Path, recipe: Recipe) -> None:
    short.parent.joinpath("file").write_text("")
    heard = Heard()
    assert labs.up(short.parent / "file" / "lab", reporter=heard) == 1
    assert len(heard.errors) == 1
    assert "Not a directory" in heard.errors[0]


@pytest.mark.parametrize(
    ("system", "machine", "version", "found", "words"),
    [
        ("Darwin", "arm64", (3, 11), None, "this is Darwin on arm64 - connect to a real host instead"),
        ("Linux", "aarch64", (3, 11), None, "this is Linux on aarch64 - connect to a real host instead"),
        ("Linux", "x86_64", (3, 13), None, "no python3.11 on PATH - install Python 3.11, or connect to a real host"),
    ],
)
def test_other_machines_are_told_what_to_do_instead(
    short: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    machine: str,
    version: tuple[int, int],
    found: str | None,
    words: str,
) -> None:
    monkeypatch.setattr(steps.platform, "system", lambda: system)
    monkeypatch.setattr(steps.platform, "machine", lambda: machine)
    monkeypatch.setattr(steps.sys, "version_info", (*version, 0))
    monkeypatch.setattr(steps.shutil, "which", lambda name: found)
    heard = Heard()
    assert labs.up(short, reporter=heard) == 1
    assert len(heard.errors) == 1
    assert words in heard.errors[0]
    assert not short.exists()


def test_another_python_311_on_the_path_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps.sys, "version_info", (3, 13, 0))
    monkeypatch.setattr(steps.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert steps.python311() == "/usr/bin/python3.11"


def test_no_room_is_told_before_anything_is_made(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**10, 9 * 10**9, 10**9))
    heard = Heard()
    assert labs.up(short, reporter=heard) == 1
    assert (
        f"5.2 GB are needed in {short}, and {short.parent} has 1.0 GB free - make room, or choose another place"
        in heard.errors[0]
    )
    assert not short.exists()


def test_without_a_network_it_tells_step_why_remedy_and_log(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_FIND_LINKS": "",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_RETRIES": "1",
        "PIP_NO_CACHE_DIR": "1",
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    heard = Heard()
    assert labs.up(short, reporter=heard) == 1
    (message,) = heard.errors
    assert message.startswith("lab up: torch: python failed (exit status 1): ERROR: ")
    assert "\n" not in message
    assert "No matching distribution found for torch==2.13.0+cpu" in message
    assert "Connection refused" in message
    assert "check the network and pip's configuration" in message
    assert f"the whole output is in {short}/up.log" in message
    assert Lab(short).finished("venv")
    assert not Lab(short).finished("torch")


# ----------------------------------------------------------------------------------------------------------- its contents


def weights(path: Path, names: list[str], cut: int = 0) -> None:
    header = json.dumps(
        {name: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, name in enumerate(names)}
    ).encode()
    data = struct.pack("<Q", len(header)) + header + bytes(len(names))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data[: len(data) - cut])


def test_a_cut_weight_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    weights(path, ["a", "b"])
    assert steps.tensor_names(path, "model") == {"a", "b"}
    weights(path, ["a", "b"], cut=1)
    with pytest.raises(LabError, match="is cut short"):
        steps.tensor_names(path, "model")
    for content in (b"", b"12345678", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2) + b"{}"):
        path.write_bytes(content)
        with pytest.raises(LabError, match="is not a whole safetensors file"):
            steps.tensor_names(path, "model")


def test_a_missing_shard_is_noticed(lab: Lab) -> None:
    names = [f"t{i}" for i in range(16)]
    weights(lab.model / "model.safetensors", names)
    for i, name in enumerate(names):
        weights(lab.sharded / f"model-{i + 1:05}-of-00016.safetensors", [name])
    work = Work(lab, Heard(), {}, sys.executable)
    steps.check_model(work)
    (lab.sharded / "model-00007-of-00016.safetensors").unlink()
    with pytest.raises(LabError, match="has 15 shards and 15 of 16 tensors"):
        steps.check_model(work)


def test_the_profiles_servers_live_in_the_environment_of_the_lab(short: Path, recipe: Recipe) -> None:
    """Whatever the engine writes, it writes into the lab, so that it goes with the lab."""
    lab = Lab(short)
    labs.up(short, reporter=Heard())
    ours = steps.environment(lab)
    profiles, _ = load_profiles("local", lab=lab)
    for name in ("lab-plain", "lab-eagle3", "lab-slow"):
        env = dict(profiles[name].env)
        if name == "lab-slow":
            assert env.pop("LAB_SHARD_DELAY") == "8"
            assert env.pop("PYTHONPATH") == str(lab.slow)
        assert {key: ours.get(key) for key in env} == env


class Bar:
    """What a progress bar is to the engine's loader: an iterable over an iterable."""

    def __init__(self, items: list[Any], **options: Any) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        yield from self.items


@pytest.mark.parametrize(("delay", "waits"), [("2.5", [2.5, 2.5]), ("0", []), ("", [])])
def test_the_slow_plugin_waits_for_each_weight_file_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, delay: str, waits: list[float]
) -> None:
    loader = types.ModuleType("vllm.model_executor.model_loader")
    loader.weight_utils = types.SimpleNamespace(tqdm=Bar)  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.model_executor"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, loader.__name__, loader)
    monkeypatch.setenv("LAB_SHARD_DELAY", delay)
    monkeypatch.syspath_prepend(str(assets_path("lab", "slow")))
    monkeypatch.delitem(sys.modules, "eagletui_lab_slow", raising=False)
    (entry,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="eagletui_lab_slow")
    plugin = entry.load()
    slept: list[float] = []
    monkeypatch.setattr(sys.modules["eagletui_lab_slow"].time, "sleep", slept.append)
    plugin()
    plugin()  # the engine may call it more than once in a process: the delay stays one
    files = ["/m/model-1.safetensors", "/m/model-2.safetensors"]
    assert list(loader.weight_utils.tqdm(files, desc="shards")) == files
    assert list(loader.weight_utils.tqdm([1, 2])) == [1, 2]
    assert slept == waits


def test_the_training_questions_are_all_different() -> None:
    assert len(set(training.prompts())) == 240 >= training.SAMPLES
    assert training.prompts() == training.prompts()


# -------------------------------------------------------------------------------------------------- status, down, remove


def test_status_says_what_is_missing(short: Path, recipe: Recipe) -> None:
    heard = Heard()
    assert labs.status(short, reporter=heard) == 1
    assert heard.said == [f"there is no lab in {short} - build it: eagletui lab up (about 3 minutes, 5 GB)"]
    recipe.broken.add("model")
    labs.up(short, reporter=Heard())
    heard = Heard()
    assert labs.status(short, reporter=heard) == 1
    assert heard.said[0] == f"lab in {short}: not finished, missing: the model; the drafter - go on: eagletui lab up"
    recipe.broken.clear()
    labs.up(short, reporter=Heard())
    heard = Heard()
    assert labs.status(short, reporter=heard) == 0
    assert heard.said[0] == f"lab in {short}: ready"
    assert heard.said[-1] == "running: nothing"


@pytest.fixture
def inhabited(short: Path, recipe: Recipe) -> Iterator[tuple[Lab, subprocess.Popen[bytes]]]:
    """A built lab with one process that runs a program inside it."""
    lab = Lab(short)
    labs.up(short, reporter=Heard())
    program = shutil.copy(shutil.which("sleep") or "/bin/sleep", lab.root / "sleeper")
    process = subprocess.Popen([program, "600"])
    yield lab, process
    process.kill()
    process.wait()


def test_a_lab_that_runs_is_not_removed(inhabited: tuple[Lab, subprocess.Popen[bytes]]) -> None:
    lab, process = inhabited
    heard = Heard()
    assert labs.processes(lab) == [(process.pid, "sleeper")]
    assert labs.remove(lab.root, reporter=heard, confirm=lambda question: True) == 1
    assert heard.errors == [
        f"lab remove: lab: still running from it: sleeper (pid {process.pid}) - end them first: eagletui lab down"
    ]
    assert lab.root.exists()


def test_remove_asks_first_and_takes_all(short: Path, recipe: Recipe) -> None:
    labs.up(short, reporter=Heard())
    questions: list[str] = []

    def answer(yes: bool) -> Callable[[str], bool]:
        return lambda question: (questions.append(question), yes)[1]

    heard = Heard()
    assert labs.remove(short, reporter=heard, confirm=answer(False)) == 1
    assert short.exists()
    assert labs.remove(short, reporter=heard, confirm=answer(True)) == 0
    assert not short.exists()
    assert questions[0].startswith(f"delete {short} (")
    assert labs.remove(short, reporter=heard, confirm=answer(True)) == 0
    assert heard.said == ["nothing was deleted", f"deleted {short}", f"there is no lab in {short}"]
    assert len(questions) == 2


def test_only_a_lab_is_removed(short: Path, recipe: Recipe) -> None:
    short.mkdir()
    (short / "thesis.txt").write_text("years of work")
    heard = Heard()
    assert labs.remove(short, reporter=heard, confirm=lambda question: True) == 1
    assert (short / "thesis.txt").exists()
    link = short.parent / "link"
    real = short.parent / "real"
    labs.up(real, reporter=Heard())
    link.symlink_to(real)
    assert labs.remove(link, reporter=heard, confirm=lambda question: True) == 1
    assert real.exists()
    assert all("was not made by lab up - delete it by hand if you mean it" in error for error in heard.errors)


def job(name: str, program: str, **more: Any) -> JobState:
    return JobState(id=name, kind="serve", name=name, state="running", started=0.0, command=(program, "serve"), **more)


async def test_down_ends_the_labs_servers_and_no_other(lab: Lab) -> None:
    jobs = [
        job("mine", str(lab.vllm)),
        job("ended", str(lab.vllm), ended=1.0),
        job("other", "/opt/vllm/bin/vllm"),
        job("stuck", str(lab.python)),
    ]
    asked: list[str] = []

    async def stop(state: JobState) -> str | None:
        asked.append(state.id)
        return "it is in the kernel" if state.id == "stuck" else None

    heard = Heard()
    assert await labs.down(jobs, stop, reporter=heard, root=lab.root) == 1
    assert asked == ["mine", "stuck"]
    assert heard.said == ["ended mine (mine)"]
    assert heard.errors == ["lab down: stuck (stuck) still runs: it is in the kernel"]
    assert await labs.down(jobs[:1], stop, reporter=heard, root=lab.root) == 0
    assert await labs.down(jobs[1:3], stop, reporter=heard, root=lab.root) == 0
    assert heard.said[-1] == "no server of the lab is running"
