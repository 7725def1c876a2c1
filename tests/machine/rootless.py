"""Run as an ordinary user, under any python3: a container job of podman without root is launched, watched, ended; one is found.

``rootless.py FOLDER``: FOLDER holds ``eagletui``, ``fake_server.py``, ``spec.json``, ``found.json`` (words of a ``podman run``).
Prints one JSON object with what was seen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
sys.path.insert(0, str(FOLDER))

from eagletui.agent import adopt, jobs_api  # noqa: E402
from eagletui.agent.calls import Call, CallError  # noqa: E402
from eagletui.agent.job_files import Job  # noqa: E402
from eagletui.agent.loop import Loop  # noqa: E402

ROOT = Path(os.environ["EAGLETUI_STATE"])


def call(method: str, seconds: float = 120.0, **params: object) -> dict:
    said: list = []
    loop = Loop(lambda what, error: (said.append({"error": repr(error)}), loop.stop()))

    def answer(head: object, body: bytes = b"") -> None:
        said.append(head)
        loop.stop()

    one = Call(loop, params, b"", answer, lambda *error: answer({"error": [str(part) for part in error]}))
    try:
        try:
            jobs_api.METHODS[method](one)
        except CallError as error:
            return {"error": str(error)}
        if not one.answered:
            loop.call_later(seconds, loop.stop)
            loop.run()
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        loop.close()
    return said[0] if said else {"error": "no answer"}


def until(look: object, seconds: float = 90.0) -> object:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = look()  # type: ignore[operator]
        if value:
            return value
        time.sleep(0.1)
    return None


def main() -> None:
    spec = json.loads((FOLDER / "spec.json").read_text())
    out: dict = {"uid": os.getuid(), "launch": call("launch", spec=spec)}
    job = Job(str(ROOT / "jobs" / spec["id"]))
    ready = until(lambda: (s := job.state() or {}).get("health") in ("ready", "failed") and s) or job.state()
    out["ready"] = ready
    plan = call("kill_plan", job=spec["id"])
    out["plan"] = plan
    if "token" in plan:
        out["kill"] = call("kill", job=spec["id"], token=plan["token"], wait=90)
        out["over"] = until(lambda: (s := job.state() or {}).get("state") == "exited" and s)
    out["told"] = (ROOT / "jobs" / spec["id"] / "log").read_text(errors="replace")[-1500:]
    out["left"] = subprocess.run(["podman", "ps", "-aq"], capture_output=True, text=True, check=False).stdout.split()

    words = json.loads((FOLDER / "found.json").read_text())
    name = words[0]
    subprocess.run(["podman", "run", "--detach", "--name", *words], capture_output=True, check=False)
    found = until(lambda: next((one for one in adopt.look().values() if one.holder.kind == "podman"), None))
    out["found"] = None if found is None else {"name": found.holder.name, "owner": found.holder.owner, "doc": found.state()}
    if found is not None:
        plan = call("kill_plan", job=found.id)
        out["found_plan"] = plan
        if "token" in plan:
            out["found_kill"] = call("kill", job=found.id, token=plan["token"], wait=90)
    subprocess.run(["podman", "rm", "--force", "--time", "0", name], capture_output=True, check=False)
    print(json.dumps(out))


main()
