"""Entry of a pipeline's runner: ``main([JOBDIR])``, the main process of the pipeline's job; its output is the job's log."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, List, Mapping

from eagletui.agent import state_dir, syscalls
from eagletui.agent.loop import Loop
from eagletui.agent.pipeline.asking import Asking
from eagletui.agent.pipeline.record import Busy, Now, Record, lock
from eagletui.agent.pipeline.runner import FAILED, Runner
from eagletui.agent.pipeline.words import Narrator
from eagletui.jobs.pipeline import secret_names

REFUSED = 4


def main(argv: List[str]) -> int:
    """``argv``: the directory of the job. The exit status: 0 done, 1 stopped by a failure, 3 ended on request, 4 never begun."""
    directory = os.path.abspath(argv[0])
    root = os.path.dirname(os.path.dirname(directory))
    os.environ["EAGLETUI_STATE"] = root  # the requests about jobs look there
    os.umask(0o077)
    syscalls.set_name("eagletui-pipe")
    complaints = _Complaints(os.path.join(directory, "runner.log"))
    spec = state_dir.read_json(os.path.join(directory, "spec.json")) or {}
    plan = spec["pipeline"]
    tell = Narrator(Now(directory), len(plan["steps"]))
    # before anything else: from now on whoever ends us has what we started ended first
    loop = Loop(complaints.error)
    asking = Asking(root, loop)
    try:
        os.makedirs(plan["dir"], exist_ok=True)
        held = lock(plan["dir"], str(spec["id"]))
    except Busy as error:
        return _refuse(tell, "another run of this pipeline is at work in %s: %s - wait for it, or end it" % (plan["dir"], error))
    except OSError as error:
        return _refuse(tell, "%s cannot be used: %s - choose another dir" % (plan["dir"], error.strerror or error))
    try:
        record = Record(plan["dir"], str(spec["id"]), str(spec.get("name") or "pipeline"))
    except state_dir.StateError as error:
        return _refuse(tell, "%s - move it away to begin anew, or choose another dir" % error.why)
    try:
        return Runner(asking, loop, spec, record, tell, _secrets(plan)).run()
    except Exception as error:  # noqa: BLE001 - a mistake of ours: told in a line here, with its place in runner.log
        complaints.error("runner", error)
        tell.line(
            "stopped by a mistake in eagletui (%s: %s); what was started goes on - see runner.log" % (type(error).__name__, error)
        )
        return FAILED
    finally:
        os.close(held)


def _refuse(tell: Narrator, why: str) -> int:
    tell.line(why)
    tell.refused(why)
    return REFUSED


def _secrets(plan: Mapping[str, Any]) -> Dict[str, str]:
    """What the client handed over for single steps and servers; it is taken out of the environment that all of them inherit."""
    return {name: value for name, value in ((name, os.environ.pop(name, "")) for name in secret_names(plan)) if value}


class _Complaints:
    """What goes wrong in the runner itself, with its place."""

    def __init__(self, path: str) -> None:
        self._path = path

    def error(self, what: str, error: Exception) -> None:
        import traceback

        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write("%.3f %s: %s" % (time.time(), what, text))
        except OSError:
            sys.stdout.write("%s: %s\n" % (what, error))  # a full disk: the log is bounded otherwise
