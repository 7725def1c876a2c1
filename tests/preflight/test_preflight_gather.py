"""The gathering on the host: where an engine is found, what the kernel's files say, and that all of it fits into a request."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from eagletui.agent.facts import engine, machine, place
from eagletui.agent.facts.clock import Clock
from eagletui.agent.facts.gather import gather
from eagletui.commands import Desk
from eagletui.engines.preflight.launch import launch_of, wanted
from tests.agent.jobs_harness import free_port
from tests.commands.conftest import desk, places  # noqa: F401 - fixtures
from tests.conftest import VERSIONS, find_python
from tests.preflight import world

SRC = str(Path(machine.__file__).parents[3])


def capability(at: int, id_: int, following: int, control: int = 0) -> dict[int, bytes]:
    return {at: struct.pack("<I", following << 20 | 1 << 16 | id_), at + 4: struct.pack("<HH", 0xFFFF, control)}


def config_space(parts: dict[int, bytes]) -> bytes:
    out = bytearray(4096)
    for at, data in parts.items():
        out[at : at + len(data)] = data
    return bytes(out)


def test_acs_is_read_from_the_control_register_not_from_the_capability() -> None:
    aer = capability(0x100, 0x0001, 0x150)
    assert machine.acs_control(config_space({**aer, **capability(0x150, 0x000D, 0, 0x001D)})) == 0x1D
    assert machine.acs_control(config_space({**aer, **capability(0x150, 0x000D, 0, 0)})) == 0
    assert machine.acs_control(config_space(capability(0x100, 0x0001, 0))) is None
    assert machine.acs_control(config_space(capability(0x100, 0x0001, 0x100))) is None  # a chain that bites its tail
    assert machine.acs_control(b"\xff" * 4096) is None
    assert machine.acs_control(b"\0" * 64) is None


@pytest.mark.parametrize(("text", "count"), [("0-255", 256), ("0", 1), ("0-191,256-447", 384), ("0-238,240-255", 255), ("", 0)])
def test_processors_are_counted(text: str, count: int) -> None:
    assert machine.count_cpus(text) == count


def test_this_machine_answers_without_an_error() -> None:
    facts = machine.machine(Clock(30))
    assert facts["cpus"]["online"] >= 1
    assert "cmdline" in facts


def find(program: str, root: Path, **env: str) -> dict[str, object]:
    return engine.find("vllm", program.split(), {"PATH": f"{root}/bin", "HOME": str(root / "home"), **env}, "/")


def test_the_engine_of_a_venv_by_each_way_to_name_it(tmp_path: Path) -> None:
    root = world.vllm(tmp_path / "venv", "0.18.1", families=None, kimi=True)
    for words in (f"{root}/bin/vllm serve m", f"{root}/bin/python -m vllm.entrypoints.cli.main serve m", "vllm serve m"):
        found = find(words, root)
        assert found["version"] == "0.18.1", (words, found)
        assert found["package"] == f"{root}/lib/python3.11/site-packages/vllm"
    for words in (
        f"env A=1 {root}/bin/vllm serve m",
        f"numactl --interleave=all {root}/bin/vllm serve m",
        f"nice {root}/bin/vllm",
    ):
        assert find(words, root)["version"] == "0.18.1"
    assert find(f"{root}/bin/vllm", root)["packages"] == {"torch": "2.10.0", "tiktoken": "0.9.0"}


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    root = world.sglang(tmp_path / "venv", "0.5.23", kimi=True)
    assert find(f"{root}/bin/python -m vllm", root)["missing"] is True
    assert "there is no program" in str(find("/nowhere/vllm serve", root)["problem"])
    assert find("docker run img vllm serve m", root)["where"] == "wrapper"
    script = root / "bin" / "serve.sh"
    script.write_text("#!/bin/sh\nvllm serve\n")
    script.chmod(0o755)
    assert find(str(script), root)["where"] == "wrapper"
    script.chmod(0o644)
    assert "may not be executed" in str(find(str(script), root)["problem"])


def test_long_paths_of_pip_and_a_program_that_asks_env(tmp_path: Path) -> None:
    root = world.vllm(tmp_path / "venv", "0.18.1", families=None, kimi=True)
    (root / "bin/vllm").write_text(f"#!/bin/sh\n'''exec' \"{root}/bin/python3.11\" \"$0\" \"$@\"\n' '''\nimport sys\n")
    assert find(f"{root}/bin/vllm", root)["version"] == "0.18.1"
    (root / "bin/vllm").write_text("#!/usr/bin/env python3.11\n")
    assert find(f"{root}/bin/vllm", root)["version"] == "0.18.1"


def test_editable_installations_and_paths_of_the_environment(tmp_path: Path) -> None:
    root = world.vllm(tmp_path / "venv", "0.18.1", families=None, kimi=True)
    site = root / "lib/python3.11/site-packages"
    source = tmp_path / "src" / "vllm"
    source.parent.mkdir()
    (site / "vllm").rename(source)
    assert find(f"{root}/bin/vllm", root)["missing"] is True
    url = site / "vllm-0.18.1.dist-info" / "direct_url.json"
    url.write_text(json.dumps({"url": f"file://{source.parent}", "dir_info": {"editable": True}}))
    found = find(f"{root}/bin/vllm", root)
    assert (found["package"], found["editable"], found["version"]) == (str(source), True, "0.18.1")
    url.unlink()
    (site / "__editable__.vllm.pth").write_text(f"{source.parent}\nimport nothing\n")
    assert find(f"{root}/bin/vllm", root)["package"] == str(source)
    (site / "__editable__.vllm.pth").unlink()
    assert find(f"{root}/bin/vllm", root, PYTHONPATH=str(source.parent))["package"] == str(source)


def test_a_lease_is_seen_without_taking_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path))
    (tmp_path / "leases").mkdir()
    port = free_port()
    lease = tmp_path / "leases" / f"port-{port}"
    lease.write_text('{"job": "k25", "operator": "anna"}')
    asked = {"port": port, "cards": []}
    assert place.place(asked, {}, Clock(30))["leases"] == []
    with lease.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert place.place(asked, {}, Clock(30))["leases"] == [{"lease": f"port-{port}", "holder": lease.read_text()}]
    assert place.place(asked, {}, Clock(30))["leases"] == []


def test_time_is_bounded_and_what_was_not_looked_at_is_named(tmp_path: Path) -> None:
    root = world.vllm(tmp_path / "venv", "0.18.1", families=None, kimi=True)
    model = world.target(tmp_path / "kimi")
    asked = world.launch(
        {"engine": "vllm", "venv": str(root), "model": str(model), "drafter": str(world.drafter(tmp_path / "d"))}
    )
    facts = gather(wanted(asked), Clock(0))
    assert any("headers of target" in what for what in facts["skipped"])
    assert any("source" in what for what in facts["skipped"])
    whole = gather(wanted(asked), Clock(60))
    assert whole["skipped"] == []
    assert whole["engine"]["source"]["models"]["KimiK25ForConditionalGeneration"]["eagle3"] is True


@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_on_every_python_of_a_host(version: str, tmp_path: Path) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    root = world.vllm(tmp_path / "venv", "0.17.1", families=("llama",), kimi=False)
    paths = {"model": str(world.target(tmp_path / "kimi")), "drafter": str(world.drafter(tmp_path / "d"))}
    asked = world.launch({"engine": "vllm", "venv": str(root), "tp": 8, **paths})
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1])\n"
        "from eagletui.agent.facts.gather import gather\nfrom eagletui.agent.facts.clock import Clock\n"
        "from eagletui.engines.preflight.judge import judge\nfrom eagletui.engines.preflight.launch import launch_of\n"
        "d = json.load(sys.stdin)\nprint(json.dumps([f.id for f in judge(launch_of(d), gather(d, Clock(60))).findings]))\n"
    )
    given = json.dumps({**wanted(asked), "gpus": []})
    done = subprocess.run([python, "-I", "-c", code, SRC], input=given, capture_output=True, text=True, check=True)
    assert "eagle3-target-not-allowed" in json.loads(done.stdout)


async def test_an_agent_answers_in_one_request(tmp_path: Path, desk: Desk) -> None:  # noqa: F811
    root = world.vllm(tmp_path / "venv", "0.17.1", families=("llama",), kimi=False)
    asked = world.launch({"engine": "vllm", "venv": str(root), "model": str(world.target(tmp_path / "kimi", shards=64)), "tp": 8})
    facts = await desk.session.request("facts", **wanted(asked))
    assert facts["engine"]["version"] == "0.17.1"
    assert len(facts["target"]["shards"]) == 64
    assert facts["place"]["port"] == {"number": 8000} or "taken" in facts["place"]["port"]
    assert len(json.dumps(facts)) < 200_000


def test_arguments_in_strange_shapes_are_read_without_an_error() -> None:
    asked = launch_of(
        {"argv": [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "--port", "x", "--speculative-config", "{"]}
    )
    assert asked.spec_problem
    assert asked.port
    assert launch_of({}).known is False
    assert launch_of({"argv": [""], "env": None, "gpus": None}).engine == "vllm"
    assert os.fspath(asked.cwd) == "/"


@pytest.mark.parametrize("name", ["vllm-0.18.1-py3.11.egg-info", "vllm-0.18.1.egg-info"])
def test_older_metadata_is_read(name: str, tmp_path: Path) -> None:
    root = world.vllm(tmp_path / "venv", "0.18.1", families=None, kimi=True)
    site = root / "lib/python3.11/site-packages"
    (site / "vllm/_version.py").unlink()
    (site / "vllm-0.18.1.dist-info").rename(site / name)
    (site / "torch-2.10.0.dist-info").rename(site / "torch-2.10.0-py3.11.egg-info")
    found = find(f"{root}/bin/vllm", root)
    assert (found["version"], found["dist"], found["packages"]) == ("0.18.1", "vllm", {"torch": "2.10.0", "tiktoken": "0.9.0"})


def test_the_finder_of_an_editable_installation_and_metadata_beside_its_source(tmp_path: Path) -> None:
    root = world.vllm(tmp_path / "venv", "0.18.1", families=None, kimi=True)
    site = root / "lib/python3.11/site-packages"
    source = tmp_path / "src" / "vllm"
    source.parent.mkdir()
    (site / "vllm").rename(source)
    (source / "_version.py").unlink()
    shutil.rmtree(site / "vllm-0.18.1.dist-info")
    finder = site / "__editable___vllm_0_18_1_finder.py"
    finder.write_text("MAPPING: dict[str, str] = {'other': '/x', 'vllm': '/nowhere/vllm'}\n")
    assert find(f"{root}/bin/vllm", root)["missing"] is True, "what it leads to is not there"
    finder.write_text(f"MAPPING: dict[str, str] = {{'other': '/x', 'vllm': '{source}'}}\nNAMESPACES = {{}}\n")
    found = find(f"{root}/bin/vllm", root)
    assert (found["package"], found["editable"]) == (str(source), True)
    assert "version" not in found
    (source.parent / "vllm.egg-info").mkdir()
    (source.parent / "vllm.egg-info" / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.18.1\n")
    (site / "easy-install.pth").write_text(f"{source.parent}\n")
    assert find(f"{root}/bin/vllm", root)["version"] == "0.18.1"


def test_a_python_whose_packages_cannot_be_found_is_not_called_empty(tmp_path: Path) -> None:
    root = world.vllm(tmp_path / "venv", "0.18.1", families=None, kimi=True)
    (root / "lib").rename(root / "elsewhere")
    found = find(f"{root}/bin/vllm", root)
    assert "missing" not in found
    assert found["where"] == "unseen"
    assert "cannot be told" in str(found["problem"])
