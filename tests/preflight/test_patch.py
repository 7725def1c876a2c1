"""Patches: a text that is known is changed and comes back byte for byte, and anything else is left alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from eagletui.cli import main
from eagletui.commands import Desk
from eagletui.commands import patch as patches
from eagletui.engines.patches.core import (
    APPLICABLE,
    APPLIED,
    BACKUP,
    NATIVE,
    UNKNOWN,
    Hunk,
    file_state,
    hunk_state,
    revert,
    set_state,
    summary,
)
from eagletui.engines.patches.kimi_eagle3 import KIMI_EAGLE3
from eagletui.engines.patches.sets import SETS
from eagletui.hosts.base import HostError
from tests.commands.conftest import desk, places  # noqa: F401 - fixtures
from tests.preflight import world

HUNK = Hunk(
    "a.py", "says more", (("x = 1\ny = 2\n", "x = 1\nz = 3\ny = 2\n"), ("x = 1\nw = 2\n", "x = 1\nz = 3\nw = 2\n")), ("z = 3",)
)
LAST = {"0.16.0": "afmoe", "0.17.1": "nemotron_h"}


AROUND: dict[tuple[str, str], tuple[str, str]] = {
    ("deepseek_v2.py", "which layers to keep"): ("class DeepseekV2Model:\n    def __init__(self, config):\n        pass\n", ""),
    ("deepseek_v2.py", "keep their states"): ("\n    def forward(self, positions):\n        pass\n", ""),
    ("deepseek_v2.py", "hand them out"): ("", "    pass\n"),
    ("deepseek_v2.py", "the class is asked"): ("    def set_moe_parameters(self, example_moe):\n", ""),
    ("kimi_k25.py", "the interface's name"): ("", ")\n"),
    ("kimi_k25.py", "the class is asked"): ("    def compute_logits(self, hidden_states):\n", ""),
    ("eagle.py", "the image token"): (
        "class P:\n    def load(self, a, target_model):\n        if a:\n            if a > 1:\n",
        "                pass\n",
    ),
    ("speculative.py", "the list of families"): (
        "class C:\n    def check(self):\n        listed = [\n",
        "\n        ):\n            raise ValueError\n",
    ),
}
"""What stands around the lines of a hunk, so that the whole is Python."""


def source(version: str) -> dict[str, str]:
    """The files of the set, made of the lines that it looks for and of nothing else."""
    out: dict[str, str] = {}
    for hunk in KIMI_EAGLE3.hunks:
        befores = [before for before, _ in hunk.variants]
        text = next((before for before in befores if LAST[version] in before), befores[0])
        ahead, behind = AROUND.get((hunk.file.rpartition("/")[2], hunk.what), ("", ""))
        out[hunk.file] = out.get(hunk.file, "") + ahead + text + behind
    return out


def installed(root: Path, version: str) -> Path:
    """A venv whose vLLM holds those lines; the package's folder."""
    world.vllm(root, version, families=None, kimi=False)
    package = root / "lib/python3.11/site-packages/vllm"
    for file, text in source(version).items():
        path = package / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


def digest(package: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in package.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------------------------------------------------- the texts


def test_states_of_a_hunk() -> None:
    assert hunk_state(HUNK, "a\nx = 1\ny = 2\n") == APPLICABLE
    assert hunk_state(HUNK, "x = 1\nw = 2\n") == APPLICABLE
    assert hunk_state(HUNK, "x = 1\nz = 3\ny = 2\n") == APPLIED
    assert hunk_state(HUNK, "x = 1\nz = 3\nother\n") == NATIVE
    assert hunk_state(HUNK, "x = 1\nother\n") == UNKNOWN
    assert hunk_state(HUNK, "x = 1\ny = 2\n" * 2) == UNKNOWN  # which of the two?
    assert hunk_state(HUNK, "x  = 1\ny = 2\n") == UNKNOWN


def test_a_file_that_is_changed_in_part_is_not_touched() -> None:
    other = HUNK._replace(variants=(("p\n", "p\nq\n"),), native=())
    assert file_state("a.py", (HUNK, other), "x = 1\ny = 2\np\n").becomes == "x = 1\nz = 3\ny = 2\np\nq\n"
    half = file_state("a.py", (HUNK, other), "x = 1\nz = 3\ny = 2\np\n")
    assert (half.state, half.becomes) == (UNKNOWN, None)
    assert file_state("a.py", (HUNK,), None).state == UNKNOWN


def test_only_what_applying_gives_is_reverted() -> None:
    assert revert("x = 1\ny = 2\n", "x = 1\nz = 3\ny = 2\n", (HUNK,)) == "x = 1\ny = 2\n"
    assert revert("x = 1\ny = 2\n", "x = 1\nz = 3\ny = 2\nmine\n", (HUNK,)) is None
    assert revert("other\n", "x = 1\nz = 3\ny = 2\n", (HUNK,)) is None


@pytest.mark.parametrize("patch", SETS, ids=lambda patch: patch.name)
def test_every_set_is_well_made(patch: patches.PatchSet) -> None:
    assert patch.files[-1] == "config/speculative.py"  # what lets a launch pass is written last
    for hunk in patch.hunks:
        for before, after in hunk.variants:
            assert before != after
            assert hunk_state(hunk, before) == APPLICABLE
            assert hunk_state(hunk, after) == APPLIED


@pytest.mark.parametrize("version", sorted(LAST))
def test_the_whole_set_is_applied_once_and_known_again(version: str) -> None:
    texts: dict[str, str | None] = {**source(version)}
    states = set_state(KIMI_EAGLE3, texts)
    assert summary(states) == APPLICABLE
    changed = {state.file: state.becomes for state in states}
    assert summary(set_state(KIMI_EAGLE3, changed)) == APPLIED
    assert '"kimi_k2",' in (changed["config/speculative.py"] or "")
    partly = {**texts, "config/speculative.py": changed["config/speculative.py"]}
    assert summary(set_state(KIMI_EAGLE3, partly)) == "partly"


# --------------------------------------------------------------------------------------------------------- on a host


async def test_apply_and_revert_give_every_byte_back(desk: Desk, tmp_path: Path) -> None:  # noqa: F811
    package = installed(tmp_path / "venv", "0.17.1")
    os.chmod(package / "config/speculative.py", 0o640)
    before = digest(package)
    engine = await patches.find_engine(desk, str(tmp_path / "venv"))
    assert (engine.version, engine.package) == ("0.17.1", str(package))
    seen = await patches.look(desk, engine, KIMI_EAGLE3)
    assert seen.state == APPLICABLE
    applied = await patches.apply(desk, seen)
    assert applied.state == APPLIED
    changed = digest(package)
    for file in KIMI_EAGLE3.files:
        assert changed[f"{package}/{file}"] != before[f"{package}/{file}"]
        assert changed[f"{package}/{file}{BACKUP}"] == before[f"{package}/{file}"]
    assert (package / "config/speculative.py").stat().st_mode & 0o777 == 0o640
    assert (await patches.apply(desk, applied)).state == APPLIED
    assert digest(package) == changed
    reverted = await patches.undo(desk, applied)
    assert reverted.state == APPLICABLE
    assert digest(package) == before


async def test_what_was_changed_since_is_not_reverted(desk: Desk, tmp_path: Path) -> None:  # noqa: F811
    package = installed(tmp_path / "venv", "0.16.0")
    engine = await patches.find_engine(desk, str(tmp_path / "venv/bin/python"))
    applied = await patches.apply(desk, await patches.look(desk, engine, KIMI_EAGLE3))
    with (package / "model_executor/models/kimi_k25.py").open("a") as file:
        file.write("# mine\n")
    now = digest(package)
    with pytest.raises(HostError, match="was changed since it was patched"):
        await patches.undo(desk, await patches.look(desk, engine, KIMI_EAGLE3))
    assert digest(package) == now
    assert applied.state == APPLIED


async def test_a_text_that_is_not_known_is_left_alone(desk: Desk, tmp_path: Path) -> None:  # noqa: F811
    package = installed(tmp_path / "venv", "0.17.1")
    path = package / "v1/spec_decode/eagle.py"
    path.write_text(path.read_text().replace("vision_config", "visual_config"))
    before = digest(package)
    engine = await patches.find_engine(desk, str(tmp_path / "venv"))
    seen = await patches.look(desk, engine, KIMI_EAGLE3)
    assert seen.state == UNKNOWN
    assert "v1/spec_decode/eagle.py" in seen.why
    with pytest.raises(HostError, match=r"install vllm 0\.18"):
        await patches.apply(desk, seen)
    with pytest.raises(HostError, match="not reverted"):
        await patches.undo(desk, seen)
    assert digest(package) == before


@pytest.mark.parametrize(("version", "state"), [("0.15.1", "not for it"), ("0.18.0", "outgrown"), ("0.32.0", "outgrown")])
async def test_other_versions_are_not_offered_it(desk: Desk, tmp_path: Path, version: str, state: str) -> None:  # noqa: F811
    installed(tmp_path / "venv", "0.17.1")
    file = tmp_path / "venv/lib/python3.11/site-packages/vllm/_version.py"
    file.write_text(f"__version__ = version = '{version}'\n")
    engine = await patches.find_engine(desk, str(tmp_path / "venv"))
    seen = await patches.look(desk, engine, KIMI_EAGLE3)
    assert seen.state == state
    assert "0.18" in seen.why
    with pytest.raises(HostError, match="not applied"):
        await patches.apply(desk, seen)


async def test_a_failure_on_the_way_is_taken_back(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    package = installed(tmp_path / "venv", "0.17.1")
    before = digest(package)
    engine = await patches.find_engine(desk, str(tmp_path / "venv"))
    seen = await patches.look(desk, engine, KIMI_EAGLE3)
    real = patches._write

    async def write(desk: Desk, path: str, data: bytes, expect: str, mode: int | None) -> None:
        if path.endswith("config/speculative.py"):
            raise HostError(f"write {path}", "no space left on its disk", kind="agent")
        await real(desk, path, data, expect, mode)

    monkeypatch.setattr(patches, "_write", write)
    with pytest.raises(HostError, match="no space left"):
        await patches.apply(desk, seen)
    assert digest(package) == before


async def test_an_upgrade_outgrows_it_and_the_originals_are_cleared_away(desk: Desk, tmp_path: Path) -> None:  # noqa: F811
    package = installed(tmp_path / "venv", "0.17.1")
    engine = await patches.find_engine(desk, str(tmp_path / "venv"))
    await patches.apply(desk, await patches.look(desk, engine, KIMI_EAGLE3))
    (package / "_version.py").write_text("__version__ = version = '0.18.1'\n")
    for file in KIMI_EAGLE3.files:
        (package / file).write_text("# new\n")
    engine = await patches.find_engine(desk, str(tmp_path / "venv"))
    seen = await patches.look(desk, engine, KIMI_EAGLE3)
    assert seen.state == "outgrown"
    assert "originals of an older version" in seen.why
    asked = world.launch({"engine": "vllm", "venv": str(tmp_path / "venv"), "model": "/m", "tp": 8})
    assert "patch-outgrown" in world.ids(world.found(asked))
    await patches.undo(desk, seen)
    assert not list(package.rglob("*" + BACKUP))
    assert {(package / file).read_text() for file in KIMI_EAGLE3.files} == {"# new\n"}


async def test_a_read_only_desk_changes_nothing(desk: Desk, tmp_path: Path) -> None:  # noqa: F811
    package = installed(tmp_path / "venv", "0.17.1")
    before = digest(package)
    engine = await patches.find_engine(desk, str(tmp_path / "venv"))
    seen = await patches.look(desk, engine, KIMI_EAGLE3)
    desk.readonly = True
    with pytest.raises(HostError, match="read-only"):
        await patches.apply(desk, seen)
    assert digest(package) == before


async def test_only_kept_originals_can_be_discarded(desk: Desk, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "precious"
    path.write_text("x")
    sha = hashlib.sha256(b"x").hexdigest()
    with pytest.raises(HostError, match="no original"):
        await desk.session.request("discard", path=str(path), expect_sha=sha)
    kept = tmp_path / ("a.py" + BACKUP)
    kept.write_text("y")
    with pytest.raises(HostError, match="changed meanwhile"):
        await desk.session.request("discard", path=str(kept), expect_sha=sha)
    assert (path.exists(), kept.exists()) == (True, True)


# ------------------------------------------------------------------------------------------------------- the command


def test_the_command_from_list_to_revert(places: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:  # noqa: F811
    package = installed(tmp_path / "venv", "0.17.1")
    venv = str(tmp_path / "venv")

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["patch", *words])
        out, err = capfd.readouterr()
        return code, out, err

    code, out, _ = run("list", "local", venv)
    assert code == 0
    assert "kimi-eagle3" in out
    assert run("check", "local", venv)[0] == 1
    before = digest(package)
    code, out, _ = run("apply", "local", venv, "kimi-eagle3", "--json")
    doc = json.loads(out)
    assert (code, doc["patches"][0]["state"], doc["engine"]["version"]) == (0, "applied", "0.17.1")
    assert all(file["original"] for file in doc["patches"][0]["files"])
    assert run("check", "local", venv)[0] == 0
    assert run("revert", "local", venv)[0] == 0
    assert digest(package) == before
    code, _, err = run("revert", "local", venv)
    assert code == 2
    assert "nothing to revert" in err
    code, _, err = run("apply", "local", venv, "kimi-eagle4")
    assert code == 2
    assert "there are: kimi-eagle3" in err
    code, _, err = run("check", "local", "no-such-profile")
    assert code == 2
    assert "is no profile for local" in err
    shutil.rmtree(package)
    code, _, err = run("check", "local", venv)
    assert code == 2
    assert "has no vllm" in err


def test_what_is_put_in_keeps_the_style() -> None:
    for hunk in KIMI_EAGLE3.hunks:
        for before, after in hunk.variants:
            added = [line for line in after.splitlines() if line not in before.splitlines()]
            assert added
            assert not any("\t" in line or len(line) > 88 for line in added)
