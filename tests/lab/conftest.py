"""The lab for tests against a real engine: built once, by the product's own code, and kept for the next run."""

from __future__ import annotations

import fcntl
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagletui import lab as labs
from eagletui.labparts.paths import Lab, find_lab
from eagletui.labparts.report import TerminalReporter
from eagletui.labparts.steps import machine_problem
from tests.agent.jobs_harness import Jobs
from tests.lab.sglang_server import Sglang, is_built, sglang_root

HERE = Path(__file__).parent
LIMIT = 1500  # seconds: the first test that needs the lab may have to download and build it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests here that ask for the lab are marked `engine`, and their time limit leaves room for a build."""
    for item in items:
        if item.path.is_relative_to(HERE) and "lab" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.engine)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The lab at its usual place (``EAGLETUI_LAB`` names another), built when it is not there.

    A lock beside it is held for the whole session: one engine at a time is all that a small machine can serve.
    """
    problem = machine_problem()
    if problem is not None:
        pytest.skip(str(problem))
    place = find_lab()
    place.root.parent.mkdir(parents=True, exist_ok=True)
    with place.root.with_name(place.root.name + ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        out, err = io.StringIO(), io.StringIO()
        if labs.up(place.root, reporter=TerminalReporter(out, err)) != 0:
            pytest.fail(f"the lab could not be built: {err.getvalue()}\n{out.getvalue()}", pytrace=False)
        yield place


@pytest.fixture(scope="session")
def sglang(lab: Lab) -> Sglang:
    """The real SGLang with the lab's models; one engine at a time, so with the lab's lock. Built by ``make sglang`` alone."""
    root = sglang_root()
    if not is_built(root):
        pytest.skip(f"no SGLang in {root}: `make sglang` builds it (2 minutes, 2.6 GB)")
    found = Sglang(root, lab)
    found.prepare()
    return found


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """Requests about jobs under a state directory of this test; what it launched is ended by pid afterwards."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("EAGLETUI_STATE", str(tmp_path / "state"))
    found = Jobs(tmp_path / "state")
    yield found
    found.clean()
