"""A real container engine: podman with a small image that is built here, and storage of its own under ~/.cache.

The image is a minimal Debian; programs come from the machine by bind mounts. The engine's configuration is given by its own
variables, so nothing outside is touched, and what a test has started is removed by the container's own label.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from eagletui.profiles import Profile
from tests.agent.jobs_harness import FAKE

TOOLS = ("podman", "runc", "conmon", "debootstrap", "fuse-overlayfs", "tar")
IMAGE = "localhost/eagletui/test:1"
CACHE = Path.home() / ".cache" / "eagletui" / "tests" / "podman"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# the default limits need a capability that such a machine may lack, and crun wants a purer cgroup hierarchy than it may have
CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
STORAGE = """[storage]
driver = "overlay"
graphroot = "{cache}/storage"
runroot = "/run/eagletui-tests-podman"
[storage.options.overlay]
mount_program = "/usr/bin/fuse-overlayfs"
"""


def missing() -> str | None:
    """Why there can be no containers here."""
    if os.geteuid() != 0:
        return "root is needed for podman"
    absent = [tool for tool in TOOLS if shutil.which(tool, path=PATH) is None]
    return f"not installed: {', '.join(absent)}" if absent else None


def environment() -> dict[str, str]:
    """The variables by which podman finds its configuration and storage."""
    return {
        "CONTAINERS_CONF": str(CACHE / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(CACHE / "storage.conf"),
        "PATH": os.environ.get("PATH", "") + ":" + PATH,
    }


def run(*argv: str, check: bool = True, seconds: float = 120.0) -> str:
    """What podman answers. Raises `RuntimeError` with its last words."""
    done = subprocess.run(
        ["podman", *argv], env={**os.environ, **environment()}, capture_output=True, text=True, timeout=seconds, check=False
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"podman {' '.join(argv)}: {done.stderr.strip()[-500:]}")
    return done.stdout.strip()


def image() -> str:
    """The image's name, built when it is not there yet (about a minute). Raises `RuntimeError`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (CACHE / "containers.conf").write_text(CONF)
        (CACHE / "storage.conf").write_text(STORAGE.format(cache=CACHE))
        if not run("images", "--quiet", IMAGE, check=False):
            _build()
    return IMAGE


def _build() -> None:
    root = CACHE / "root"
    if not (root / "built").exists():
        shutil.rmtree(root, ignore_errors=True)
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", "bookworm", str(root)], capture_output=True, text=True, check=False, timeout=900
        )
        if done.returncode != 0:
            raise RuntimeError(f"debootstrap: {done.stdout.strip()[-300:]} {done.stderr.strip()[-300:]}")
        (root / "built").touch()
    packed = subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE)
    done = subprocess.run(
        ["podman", "import", "-", IMAGE],
        env={**os.environ, **environment()},
        stdin=packed.stdout,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert packed.stdout is not None
    packed.stdout.close()
    packed.wait()
    if done.returncode != 0:
        raise RuntimeError(f"podman import: {done.stderr.strip()[-300:]}")
    shutil.rmtree(root, ignore_errors=True)


def fake_profile(name: str, port: int, *flags: str, **more: object) -> Profile:
    """The stand-in server in a container, under this very Python."""
    python = os.path.realpath(sys.executable)
    tests = os.path.dirname(FAKE)
    values: dict[str, object] = {
        "name": name,
        "engine": "vllm",
        "model": "/models/fake",
        "container": "podman",
        "image": IMAGE,
        "mounts": (f"{sys.base_prefix}:{sys.base_prefix}:ro", f"{tests}:{tests}:ro"),
        "command": (python, "-I", "-S", FAKE),
        "port": port,
        "args": flags,
        "graces": (20, 5, 10),
        **more,
    }
    return Profile(**values)  # type: ignore[arg-type]


def names(job: str) -> list[str]:
    """The containers of a job, running or not."""
    return run("ps", "--all", "--quiet", "--filter", f"label=eagletui.job={job}").split()


def remove(job: str) -> None:
    """Take away what a job has left."""
    for found in names(job):
        run("rm", "--force", "--time", "0", found, check=False)
