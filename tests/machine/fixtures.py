"""The fixtures `machine`, a booted host of its own for one test, and `image`, what containers of tests are made of."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.machine import podman
from tests.machine.nspawn import Machine, base_root, missing


@pytest.fixture(scope="session")
def nspawn_root() -> Path:
    """The built root; a test that needs it is skipped, with the reason, where none can be had."""
    why = missing()
    if why is not None:
        pytest.skip(f"no machine inside this one: {why}")
    try:
        return base_root()
    except RuntimeError as error:
        pytest.skip(f"no machine inside this one: {error}")


@pytest.fixture
def machines(nspawn_root: Path) -> Iterator[Callable[..., Machine]]:
    """Makes machines that are not booted yet; all are ended with the test."""
    with tempfile.TemporaryDirectory(prefix="et-machine-") as name:
        made: list[Machine] = []

        def make(**options: bool) -> Machine:
            directory = Path(name, str(len(made)))
            directory.mkdir()
            made.append(Machine(directory, **options))
            return made[-1]

        try:
            yield make
        finally:
            for machine in made:
                machine.close()


@pytest.fixture
def machine(machines: Callable[..., Machine]) -> Machine:
    """A booted host: root, ann and bob may log in with its key."""
    return machines().boot()


@pytest.fixture(scope="session")
def image() -> str:
    """The image that containers of tests run; skipped, with the reason, where there is no podman."""
    why = podman.missing()
    if why is not None:
        pytest.skip(f"no containers here: {why}")
    try:
        return podman.image()
    except RuntimeError as error:
        pytest.skip(f"no containers here: {error}")
