"""podman without root: a user's container jobs run, are found, and end like those of root."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.profile_launch import launch_spec
from tests.agent.jobs_harness import FAKE, free_port
from tests.machine import podman
from tests.machine.rootless_place import IMAGE, MOUNTS, Place

pytestmark = [pytest.mark.machine, pytest.mark.timeout(600)]


@pytest.fixture
def place() -> Iterator[Place]:
    why = podman.missing()
    if why is not None:
        pytest.skip(f"no containers here: {why}")
    made = Place(Path(tempfile.mkdtemp(prefix="et-rootless-")))
    yield made
    made.close()


@pytest.mark.fault(31, how="podman without root, as a user without subordinate ids: a job in a container, and one that was found")
def test_a_users_container_runs_is_found_and_ends(place: Place) -> None:
    why = place.problem()
    if why:
        pytest.skip(f"podman without root does not run here: {why}")
    port, other = free_port(), free_port()
    program = ("/usr/bin/python3", "-I", "-S", f"{place.folder}/fake_server.py")
    # without root podman gives a container the host's /dev/mqueue with its shared memory, and not every machine has one
    profile = podman.fake_profile(
        "mine",
        port,
        container_args=("--ipc", "private"),
        image=IMAGE,
        mounts=(*MOUNTS, f"{place.folder}:{place.folder}:ro"),
        command=program,
    )
    (place.folder / "spec.json").write_text(json.dumps(launch_spec(profile, f"box-{os.urandom(4).hex()}")))
    bind = [word for mount in (*MOUNTS, f"{place.folder}:{place.folder}:ro") for word in ("--volume", mount)]
    # the name of the program makes a server of it
    shutil.copy(Path(FAKE).with_name("stand_in.py"), place.folder / "vllm")
    serve = ["/usr/bin/python3", "-I", "-S", f"{place.folder}/vllm", "serve", "/models/k2", "--port", str(other)]
    (place.folder / "found.json").write_text(json.dumps(["et-found", "--network", "host", *bind, IMAGE, *serve]))
    seen: dict[str, Any] = place.run()
    assert seen["uid"] == place.uid
    ready = seen["ready"]
    assert ready["health"] == "ready", seen["told"] + str(ready)
    assert (ready["runner"], ready["state"]) == ("podman", "running")
    assert seen["plan"]["lever"].startswith("podman stop"), seen["plan"]
    assert seen["kill"]["result"]["remaining"] == [], seen["kill"]
    assert f"port {port}" in seen["kill"]["result"]["released"]
    assert (seen["over"]["state"], seen["over"]["health"]) == ("exited", "gone")
    assert seen["left"] == []
    assert seen["found"]["name"] == "et-found", seen
    assert seen["found"]["doc"]["adopted"] == "podman"
    assert seen["found_plan"]["lever"].startswith("podman stop"), seen["found_plan"]
    assert seen["found_kill"]["result"]["remaining"] == [], seen["found_kill"]
