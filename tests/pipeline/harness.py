"""Small pipelines of real jobs: steps that note each start and each row, servers that stand in for engines."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagletui.jobs.kinds import kind
from tests.agent.jobs_harness import Jobs, until

STEP = """
import json, os, sys, time
name, place, rows, pace = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
with open(os.path.join(place, name + '.starts'), 'a') as file: file.write('%d\\n' % os.getpid())
path = os.path.join(place, name + '.rows')
there = sum(1 for _ in open(path)) if os.path.exists(path) else 0
tell = lambda event, **doc: print(json.dumps({'eagletui': event, **doc}), flush=True)
for row in range(there, rows):
    with open(path, 'a') as file: file.write('%s %d\\n' % (name, row))
    tell('progress', done=row + 1, total=rows, unit='rows')
    hold = os.path.join(place, name + '.hold')
    while row + 1 == rows and os.path.exists(hold): time.sleep(0.02)
    time.sleep(pace)
if os.path.exists(os.path.join(place, name + '.fail')): print('it cannot'); sys.exit(3)
tell('result', why='%d rows' % rows, rows=rows, bad=int(os.environ.get('BAD', '0')))
"""


class Pipelines:
    """Pipelines under ``place``, run as jobs of ``jobs``."""

    def __init__(self, jobs: Jobs, place: Path) -> None:
        self.jobs, self.place = jobs, place
        self.dir = place / "loop"
        self.made = place / "made"
        self.made.mkdir()

    def step(self, name: str, rows: int = 3, pace: float = 0.0, **more: Any) -> dict[str, Any]:
        argv = [sys.executable, "-I", "-S", "-c", STEP, name, str(self.made), str(rows), str(pace)]
        spec = {"kind": "command", "argv": argv, "cwd": "/", "graces": [5, 2, 5], **more.pop("spec", {})}
        outputs = [str(self.made / f"{name}.rows")]
        return {"id": name, "kind": "command", "spec": spec, "outputs": outputs, **more}

    def server(self, *flags: str, **more: Any) -> dict[str, Any]:
        spec = self.jobs.server(*flags, **more)
        del spec["id"]
        return spec

    def run(self, steps: list[dict[str, Any]], servers: dict[str, Any] | None = None, **more: Any) -> str:
        """Launch it (again); the id of its job."""
        plan = {"dir": str(self.dir), "servers": servers or {}, "steps": steps}
        values = {"name": "loop", "pipeline": plan, **more}
        job = "p-" + uuid.uuid4().hex[:8]
        self.jobs.launch(kind("pipeline").spec(values, job))
        return job

    def over(self, job: str, seconds: float = 60.0) -> dict[str, Any]:
        return self.jobs.over(job, seconds)

    def record(self) -> dict[str, Any]:
        doc: dict[str, Any] = json.loads((self.dir / "pipeline.json").read_text())
        return doc

    def entry(self, name: str) -> dict[str, Any]:
        try:
            return next((entry for entry in self.record()["steps"] if entry["id"] == name), {})
        except FileNotFoundError:
            return {}

    def starts(self, name: str) -> int:
        path = self.made / f"{name}.starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def rows(self, name: str) -> list[str]:
        path = self.made / f"{name}.rows"
        return path.read_text().splitlines() if path.exists() else []

    def log(self, job: str) -> str:
        return (self.jobs.root / "jobs" / job / "log").read_text()

    def result(self, job: str) -> dict[str, Any]:
        doc: dict[str, Any] = self.jobs.call("job", job=job)["result"]
        return doc

    def all_jobs(self) -> list[str]:
        return sorted(path.name for path in (self.jobs.root / "jobs").iterdir())

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        return until(condition, 60.0, what)

    def clean(self) -> None:
        """Have everything ended that is left, also what a runner had started."""
        folder = self.jobs.root / "jobs"
        if folder.is_dir():
            # the runners first: they would go on to start jobs
            names = self.all_jobs()
            self.jobs.launched = [name for name in names if name.startswith("p-")]
            self.jobs.clean()
            self.jobs.launched = self.all_jobs()
