"""The requests about jobs: launch, list, look at one, plan a kill, kill, remove.

========== ===================================== ======================================================================
launch     spec, secrets                         `JobState`; the same id again answers with the same job
jobs       -                                     {"jobs": {id: JobState}, "problems": {id: why}}
job        job                                   {"state", "spec" (secrets hidden), "result", "exit", "directory"}
kill_plan  job, gpu_processes [{uuid, pid}]      `kill.plan`, "suspects": foreign pids on the job's cards, "lever", "adopted",
                                                 "only" (processes that were named one by one), "note"
kill       job, token, now, operator, wait       {"by": "shim" or "helper", "state", "result" (when it ended within wait)}
remove     job                                   {}
survival   -                                     {"runner", "survival", "limits"}: how a job would run here, what would end it,
                                                 and of what it would have too little
========== ===================================== ======================================================================
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Dict, Optional

from eagletui.agent import endings, kill, levers, state_dir
from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.ending import CONTROL, RESULT
from eagletui.agent.job_files import Board, Job, is_over, read_results, shim_lives
from eagletui.agent.launch import Launch
from eagletui.agent.supervisor import start_helper
from eagletui.agent.syscalls import signal_process
from eagletui.agent.units import survival
from eagletui.jobs.base import redact_argv, redact_env

POLL = 0.1
REACT = 10.0
LEAVES = 5.0
"""How long a supervisor may take to leave after it has written the last state."""


def _root() -> str:
    return state_dir.locate(os.environ)


def _job(call: Call, step: str) -> Job:
    root = _root()
    why = state_dir.problem(root)
    if why and os.path.lexists(root):  # what others can write may name any process as a job's
        raise CallError(step, why, "make it yours alone: chown, and chmod 700")
    try:
        job = Job(state_dir.job_dir(root, call.text("job")))
        if job.stored_state() is None:
            raise CallError(step, "there is no job %r on this host" % job.id, kind="absent")
    except state_dir.StateError as error:
        raise CallError(step, error.why, error.remedy) from None
    return job


def launch(call: Call) -> None:
    Launch(call, _root()).begin()


def jobs(call: Call) -> None:
    board = Board(_root())
    call.reply({"jobs": board.look(), "problems": board.problems})


def job(call: Call) -> None:
    wanted = call.text("job")
    try:
        if endings.is_ours(wanted):
            told = endings.look(_root(), wanted)
            told["state"]["command"] = redact_argv(told["state"].get("command") or [])
            told["spec"]["argv"] = redact_argv(told["spec"].get("argv") or [])
            call.reply(told)
            return
        found = _job(call, "job")
        spec = found.spec
        spec["env"] = redact_env(spec.get("env") or {})
        spec["argv"] = redact_argv(spec.get("argv") or [])
        state = dict(found.state() or {})
        state["command"] = redact_argv(state.get("command") or [])
        call.reply(dict(read_results(found), state=state, spec=spec, directory=found.directory))
    except state_dir.StateError as error:
        raise CallError("job", error.why, error.remedy) from None


def _target(call: Call, step: str) -> endings.Target:
    """What is to be ended: a job, a server that was found, or named processes."""
    wanted = call.text("job")
    if endings.is_ours(wanted):
        return endings.target(_root(), wanted)
    found = _job(call, step)
    try:
        state = found.state() or {}
        scanner = found.scanner()
        if scanner is None:
            raise CallError(step, str(state.get("detail") or "nothing is known of its processes"), "there is nothing to end")
        return endings.Target(found.spec, state, scanner)
    except state_dir.StateError as error:
        raise CallError(step, error.why, error.remedy) from None


def _plan(what: endings.Target, step: str) -> Dict[str, Any]:
    plan = kill.plan(what.spec, what.state, what.scanner)
    if not plan["processes"]:
        raise CallError(step, "no process of job %s runs" % what.spec.get("id"), "there is nothing to end", kind="absent")
    if what.spec.get("pipeline"):
        from eagletui.agent.pipeline.children import extend

        plan = extend(plan, _root(), what.spec)
    return endings.described(plan, what)


def kill_plan(call: Call) -> None:
    what = _target(call, "kill plan")
    plan = _plan(what, "kill plan")
    members = {process["pid"] for process in plan["processes"]}
    given = [p for p in call.params.get("gpu_processes") or [] if isinstance(p, dict)]
    if endings.is_ours(str(plan["job"])):  # nobody has leased cards for it: they are those that its processes are on
        plan["gpus"] = sorted({str(p.get("uuid")) for p in given if p.get("pid") in members})
    on_cards = [p for p in given if p.get("uuid") in plan["gpus"]]
    plan["gpu_pids"] = sorted({p["pid"] for p in on_cards if p.get("pid") in members})
    # whoever else is on its cards is nobody's business when single processes are ended
    plan["suspects"] = [] if plan["only"] else [p for p in on_cards if p.get("pid") not in members]
    for process in plan["processes"]:
        process["command"] = " ".join(redact_argv(process["command"].split(" ")))
    lever = levers.of_spec(what.spec)
    if lever is None:
        call.reply(plan)
    else:
        levers.look(call.loop, lever, lambda note: call.reply(dict(plan, **({"note": note} if note else {}))))


def kill_job(call: Call) -> None:
    wanted = call.text("job")
    token, now = call.text("token", ""), bool(call.params.get("now"))
    wait = call.number("wait", 0, 0, 600)
    what = _target(call, "kill")
    plan = _plan(what, "kill")
    try:
        state = endings.under_way(_root(), wanted) or {} if endings.is_ours(wanted) else what.state
        under_way = state.get("state") == "stopping"
        if token != plan["token"] and not (now and under_way):
            raise CallError(
                "kill",
                "the job's processes are not those that were shown",
                "look at the new list and confirm again",
                kind="replaced",
            )
        found = _job(call, "kill") if not endings.is_ours(wanted) else endings.directory(_root(), wanted)
        if endings.is_ours(wanted) and not under_way:
            found = endings.prepare(_root(), wanted, what, call.params.get("operator"))
    except state_dir.StateError as error:
        raise CallError("kill", error.why, error.remedy) from None
    except OSError as error:
        raise CallError("kill", "%s: %s" % (error.filename or "endings", error.strerror or error)) from None
    began = time.time()
    files = {entry["path"]: entry["why"] for entry in plan["shm"] + plan["tmp"]}
    if what.spec.get("pipeline"):
        files = {}  # they are those of its steps and servers, whose own endings remove them
    control = {"now": now, "operator": call.params.get("operator"), "wall": began, "files": files}
    by = "shim"
    try:
        state_dir.write_json(found.path(CONTROL), {key: value for key, value in control.items() if value is not None})
        if not shim_lives(state):
            by = "helper"
            start_helper(call.loop, _root(), found.id, found.directory)
    except OSError as error:
        # a full disk must not keep a job alive: its supervisor takes a signal as a kill too, only without who asked for it
        if by == "helper" or not _ask_by_signal(state):
            raise CallError("kill", "%s: %s" % (error.filename or found.directory, error.strerror or error)) from None
    _follow(call, found, by, began, wait)


def _ask_by_signal(state: Dict[str, Any]) -> bool:
    return shim_lives(state) and signal_process(state["shim_pid"], state["shim_start"], signal.SIGTERM)


def _follow(call: Call, found: Job, by: str, began: float, wait: float) -> None:
    """Answer once the request was taken up, and with what came of it when that is within ``wait`` seconds."""
    deadline = call.loop.now() + max(wait, REACT)

    def look() -> None:
        if call.answered:
            return
        try:
            taken = not os.path.exists(found.path(CONTROL))
            state = found.state() or {}
            result = state_dir.read_json(found.path(RESULT)) or {}
        except state_dir.StateError as error:
            call.fail("kill", error.why, error.remedy)
            return
        done = "released" in result and float(result.get("wall") or 0) >= began and (is_over(state) or bool(result["remaining"]))
        done = done or ("released" in result and float(result.get("wall") or 0) >= began and not state.get("members"))
        if done or (taken and (not wait or call.loop.now() >= deadline)):
            call.reply({"by": by, "state": state, **({"result": result} if done else {})})
        elif call.loop.now() >= deadline:
            pid = state.get("shim_pid")
            call.fail(
                "kill", "the supervisor (pid %s) does not take up the request" % pid, "is it stopped? end it, and try again"
            )
        else:
            call.loop.call_later(POLL, look)

    look()


def remove(call: Call) -> None:
    _remove(call, _job(call, "remove"), call.loop.now() + LEAVES)


def _remove(call: Call, found: Job, deadline: float) -> None:
    try:
        state = found.state() or {}
        box = found.spec.get("container")
    except state_dir.StateError as error:
        call.fail("remove", error.why, error.remedy)
        return
    if is_over(state) and shim_lives(state) and call.loop.now() < deadline:
        # its end is written, and its supervisor is just leaving
        call.loop.call_later(POLL, lambda: None if call.answered else _remove(call, found, deadline))
        return
    if shim_lives(state) or state.get("members"):
        call.fail("remove", "job %s still runs" % found.id, "kill it first")
        return

    def gone(why: Optional[str]) -> None:
        if why is not None:
            call.fail("remove", why, "remove the container by hand, then try again")
            return
        try:
            state_dir.remove_tree(found.directory)
        except OSError as error:
            call.fail("remove", "%s: %s" % (found.directory, error.strerror))
            return
        call.reply({})

    if box and state.get("container") and state.get("state") in ("lost_reboot", "lost_supervisor", "lost_container"):
        levers.remove(call.loop, box, gone)  # nobody was there to take it away
    else:
        gone(None)


METHODS: Dict[str, Handler] = {
    "launch": launch,
    "jobs": jobs,
    "job": job,
    "kill_plan": kill_plan,
    "kill": kill_job,
    "remove": remove,
    "survival": survival,
}
