"""Jobs that a pipeline has started, as seen by others than its runner: for the plan of a kill, and for the kill itself."""

from __future__ import annotations

import os
import signal
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple

from eagletui.agent import kill, state_dir
from eagletui.agent.job_files import Job
from eagletui.agent.members import Scanner
from eagletui.agent.syscalls import signal_process
from eagletui.jobs.pipeline import RECORD


class Child(NamedTuple):
    """A job of a pipeline that has processes now. ``what`` names it: ``step extract.10``, ``server target``."""

    what: str
    job: Job
    state: Dict[str, Any]
    scanner: Scanner


def living(root: str, spec: Mapping[str, Any]) -> List[Child]:
    """What runs of the pipeline with this spec, as its record tells. Raises `StateError`."""
    record = state_dir.read_json(os.path.join(str(spec["pipeline"]["dir"]), RECORD)) or {}
    if record.get("job") != spec.get("id"):
        return []  # it never began, or a later run has taken over what it had started
    out = []
    for what, name in _jobs(record):
        job = Job(state_dir.job_dir(root, name))
        state = job.state()
        scanner = job.scanner() if state is not None else None
        if state is not None and scanner is not None and scanner.scan():
            out.append(Child(what, job, state, scanner))
    return out


def _jobs(record: Mapping[str, Any]) -> Iterator[Any]:
    for step in record.get("steps") or ():
        if step.get("state") == "running" and step.get("job"):
            yield "step %s" % step.get("id"), str(step["job"])
    for name, server in (record.get("servers") or {}).items():
        if server.get("job") and server.get("state") != "stopped":
            yield "server %s" % name, str(server["job"])


def extend(plan: Dict[str, Any], root: str, spec: Mapping[str, Any]) -> Dict[str, Any]:
    """The kill plan of a pipeline with what its end takes along. What confirms it stays the runner: they are its own."""
    # the runner itself uses no shared memory: what only looks like an engine's, and was made since it started, is others'
    out = dict(plan, processes=list(plan["processes"]), gpus=list(plan["gpus"]), shm=[], tmp=[])
    words = []
    for child in living(root, spec):
        its = kill.plan(child.job.spec, child.state, child.scanner)
        for key in ("processes", "gpus", "shm", "tmp"):
            out[key] += [entry for entry in its[key] if entry not in out[key]]
        count = len(its["processes"])
        words.append("%s (job %s, %d process%s)" % (child.what, child.job.id, count, "" if count == 1 else "es"))
        if its.get("port") and out.get("port") is None:
            out.update(port=its["port"], listening=its["listening"])
    if words:
        out["note"] = "its end takes along " + ", ".join(words)
    return out


class RunnerLever:
    """Ends a pipeline's runner, which ends what it has started by their own ladders before it goes (see `kill.Ladder`)."""

    own = True
    finished = False
    problem = None

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self.text = "the runner ends its step, then its servers"

    def pull(self) -> None:
        self._signal(signal.SIGTERM)

    def force(self) -> None:
        self._signal(signal.SIGQUIT)

    def _signal(self, number: int) -> None:
        main = self._scanner.origin.main
        if main is not None:
            try:
                signal_process(main[0], main[1], number)
            except PermissionError:
                pass  # the ladder's own signals tell that


def left(root: str, spec: Mapping[str, Any]) -> List[str]:
    """What of it still runs after its runner has gone, in words."""
    try:
        return ["%s still runs: job %s" % (child.what, child.job.id) for child in living(root, spec)]
    except state_dir.StateError as error:
        return ["what it had started cannot be told: %s" % error.why]
