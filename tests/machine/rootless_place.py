"""A folder of an ordinary user with podman's storage, configuration, an image, and eagletui's sources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.agent.jobs_harness import FAKE
from tests.machine.podman import PATH

HERE = Path(__file__).parent
NOBODY = 65534
IMAGE = "localhost/eagletui/rootless:1"
MOUNTS = ("/usr:/usr:ro", "/lib:/lib:ro", "/lib64:/lib64:ro", "/bin:/bin:ro")
"""Of this machine: the image has nothing of its own."""
STORAGE = """[storage]
driver = "vfs"
graphroot = "{0}/storage"
runroot = "{0}/runroot"
[storage.options]
ignore_chown_errors = "true"
[storage.options.vfs]
ignore_chown_errors = "true"
"""
CONF = """[containers]
default_ulimits = []
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


class Place:
    """``folder`` belongs to the user ``uid``, who has no subordinate ids: one id is mapped into a container, as its root."""

    uid = NOBODY

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "run").mkdir()
        (folder / "storage.conf").write_text(STORAGE.format(folder))
        (folder / "containers.conf").write_text(CONF)
        shutil.copytree(HERE.parents[1] / "src/eagletui", folder / "eagletui", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(FAKE, folder / "fake_server.py")
        shutil.copy(HERE / "rootless.py", folder / "rootless.py")
        for name in ("usr", "lib", "lib64", "bin", "tmp", "proc", "sys", "dev", "etc", "run"):
            (folder / "empty" / name).mkdir(parents=True)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.uid, self.uid)
            path.chmod(0o700 if path.is_dir() else 0o600)
        self.env = {
            "HOME": str(folder),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "EAGLETUI_STATE": str(folder / "state"),
            "PATH": PATH,
        }

    def _as_user(self, *argv: str, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
        ids = (f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups")
        return subprocess.run(
            ["setpriv", *ids, *argv], env=self.env, cwd=self.folder, capture_output=True, text=True, check=False, timeout=seconds
        )

    def problem(self) -> str:
        """Why such a container does not run on this machine; empty when it does."""
        pack = f"tar -C {self.folder}/empty -c . | podman import - {IMAGE}"
        done = self._as_user("/bin/sh", "-c", pack)
        if done.returncode == 0:
            volumes = [word for mount in MOUNTS for word in ("--volume", mount)]
            done = self._as_user("podman", "run", "--rm", "--network", "host", *volumes, IMAGE, "/bin/true")
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[-1][:200]

    def run(self) -> dict[str, Any]:
        """What `rootless` has seen as that user."""
        done = self._as_user("/usr/bin/python3", "-S", str(self.folder / "rootless.py"), str(self.folder), seconds=500)
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def close(self) -> None:
        """Leave nothing: containers first."""
        self._as_user("podman", "rm", "--all", "--force", "--time", "0")
        # files of other ids in the storage are the user's own to remove, from within a namespace of podman's
        self._as_user("podman", "unshare", "rm", "-rf", str(self.folder / "storage"))
        shutil.rmtree(self.folder, ignore_errors=True)
