"""The request ``facts``: everything that preflight judges for one launch, in one answer.

Parameters as `engines.preflight.launch.wanted` gives them. The answer is ``{"engine", "target", "drafter", "place", "machine",
"seconds", "skipped"}``; a part that failed is ``{"problem": why}``.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Mapping

from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.facts.clock import Clock
from eagletui.agent.files import in_worker

SECONDS = 2.2
"""What the gathering may take: a preflight answers within three seconds on a local disk."""


def facts(call: Call) -> None:
    """Gather in a worker thread: slow disks and dead mounts never hold the loop."""
    launch = dict(call.params)
    if not isinstance(launch.get("engine"), str):
        raise CallError("facts", "parameter 'engine' should be text")
    clock = Clock(call.number("seconds", SECONDS, 0.1, 30))
    in_worker(call, "facts", "", lambda: gather(launch, clock))


def gather(launch: Mapping[str, Any], clock: Clock) -> Dict[str, Any]:
    """All facts for a launch. What a part raises becomes its ``problem``: the others are told all the same."""
    from eagletui.agent.facts import engine, machine, model, place

    env = _environment(launch)
    out: Dict[str, Any] = {}
    # the cheap parts first, so that a slow disk takes none of them away
    out["machine"] = _part(lambda: machine.machine(clock))
    out["place"] = _part(lambda: place.place(launch, env, clock))
    out["place"]["absent"] = _absent(launch)
    if launch.get("known") is False:
        missing = _part(lambda: engine.program_missing(launch, env))
        if missing:
            out["engine"] = missing
        out["seconds"] = round(clock.spent, 3)
        out["skipped"] = clock.skipped
        return out
    for role in ("drafter", "target"):
        name = launch.get("model" if role == "target" else role)
        if isinstance(name, str) and name:
            out[role] = _part(lambda n=name, r=role: model.model(n, str(launch.get("cwd") or "/"), env, clock, r))  # type: ignore[misc]
    architectures = {role: _architectures(out.get(role)) for role in ("target", "drafter")}
    out["engine"] = _part(lambda: engine.engine(launch, env, architectures, clock))
    out["seconds"] = round(clock.spent, 3)
    out["skipped"] = clock.skipped
    return out


def _environment(launch: Mapping[str, Any]) -> Dict[str, str]:
    """The environment that the job will have: the agent's own with the profile's variables over it."""
    own = launch.get("env")
    return {**os.environ, **{str(k): str(v) for k, v in own.items()}} if isinstance(own, Mapping) else dict(os.environ)


def _absent(launch: Mapping[str, Any]) -> Dict[str, str]:
    """{option: path} of the files that options name and that are not there."""
    out: Dict[str, str] = {}
    files = launch.get("files")
    for option, name in files.items() if isinstance(files, Mapping) else ():
        path = os.path.join(str(launch.get("cwd") or "/"), os.path.expanduser(str(name)))
        if not os.path.exists(path):
            out[str(option)] = path
    return out


def _architectures(part: Any) -> List[str]:
    config = (part or {}).get("config") or {}
    names = config.get("architectures")
    return [str(name) for name in names] if isinstance(names, list) else []


def _part(work: Callable[[], Dict[str, Any]]) -> Dict[str, Any]:
    try:
        return work()
    except OSError as error:
        return {"problem": "%s: %s" % (error.filename or "it", error.strerror or error)}
    except (ValueError, RecursionError) as error:
        return {"problem": "what was read is not what it should be: %s" % error}


METHODS: Dict[str, Handler] = {"facts": facts}
