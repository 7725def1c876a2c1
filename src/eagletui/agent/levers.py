"""What ends a server for good, when signals are not the right thing: the command of the unit or the container that holds it.

A unit with ``Restart=`` or a container with a restart policy comes back after signals; stopped through what holds it, it stays
down. A lever is an object in a job's spec: ``{"kind": "unit", "unit", "uid"}`` or
``{"kind": "container", "engine", "name", "id"}``.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from eagletui.agent.loop import Loop
from eagletui.agent.tool import Said, Tool
from eagletui.jobs import container

UNIT, CONTAINER = "unit", "container"
MARGIN = 15.0
"""Seconds that a container engine may take beyond the grace it was told to give."""
_GONE = ("no such container", "no container with", "no such object", "is not running", "can only kill running containers")


def of_spec(spec: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """The lever of a job: its own container, or what holds a server that was found; None when signals are right."""
    if spec.get("lever"):
        return dict(spec["lever"])
    box = spec.get("container")
    if box:
        return {"kind": CONTAINER, "engine": box["engine"], "name": box["name"], "own": True}
    return None


def of_holder(holder: Any) -> Optional[Dict[str, Any]]:
    """The lever for what holds a server that was found (an `adopt.Holder`)."""
    if holder.kind == "systemd" and holder.unit:
        return {"kind": UNIT, "unit": holder.unit, "uid": holder.unit_uid}
    if holder.kind in container.ENGINES and holder.container:
        return {"kind": CONTAINER, "engine": holder.kind, "id": holder.container, "name": holder.name or holder.container[:12]}
    return None


def systemctl(uid: Optional[int]) -> List[str]:
    """systemctl for the system's manager, or for that user's."""
    argv = ["systemctl", "--no-ask-password", "--no-pager"]
    if uid is None:
        return argv
    return [*argv, "--user"] if uid == os.geteuid() else [*argv, "--user", "--machine=%d@.host" % uid]


def manager_env(uid: Optional[int]) -> Dict[str, str]:
    """The environment for `systemctl`: over ssh without a login session the way to the user's manager is not in it."""
    env = dict(os.environ)
    if uid is not None and uid == os.geteuid():
        env.setdefault("XDG_RUNTIME_DIR", "/run/user/%d" % uid)
    return env


def words(lever: Mapping[str, Any], grace: float) -> str:
    """The command that a lever is, as a person would type it."""
    if lever["kind"] == UNIT:
        return "systemctl %sstop %s" % ("--user " if lever.get("uid") is not None else "", lever["unit"])
    return "%s stop -t %d %s" % (lever["engine"], grace, lever.get("name") or str(lever["id"])[:12])


class Lever:
    """``pull`` asks for the end in good order, ``force`` for the end at once. `finished` once the first has answered."""

    def __init__(self, loop: Loop, lever: Mapping[str, Any], grace: float) -> None:
        self._loop, self._grace = loop, grace
        self.kind = str(lever["kind"])
        # our own job's container: without its engine its processes are ended by signals; of others' things we do not decide that
        self.own = bool(lever.get("own"))
        self.finished = False
        self.problem: Optional[str] = None
        self._env: Optional[Dict[str, str]] = None
        self.text = words(lever, grace)
        if self.kind == UNIT:
            uid = lever.get("uid")
            base, unit = systemctl(uid), str(lever["unit"])
            self._env = manager_env(uid)
            self.name = "systemctl"
            self.stop_argv = [*base, "stop", unit]
            # the stop comes first: it is what keeps systemd from starting the unit again
            self.force_argvs = [[*base, "stop", "--no-block", unit], [*base, "kill", "--signal=SIGKILL", unit]]
        else:
            engine, target = str(lever["engine"]), str(lever.get("id") or lever["name"])
            self.name = engine
            self.stop_argv = [engine, "stop", "-t", "%d" % grace, target]
            # "kill" alone would have a restart policy bring it back; "stop" without patience does not
            self.force_argvs = [[engine, "stop", "-t", "0", target]]
        self._running: List[Tool] = []

    def pull(self) -> None:
        # systemd gives what the unit's TimeoutStopSec says; how long that may take is the ladder's business, not ours
        seconds = 3600.0 if self.kind == UNIT else self._grace + 4 * MARGIN
        self._run(self.stop_argv, self._pulled, seconds)

    def _pulled(self, said: Said) -> None:
        self.finished = True
        self.problem = self._why(said)

    def force(self) -> None:
        """Nobody waits any longer. What goes wrong is told by `problem`; the signals that follow do not depend on it."""
        for tool in self._running:
            tool.give_up()
        self.finished = False
        self._next(list(self.force_argvs))

    def _next(self, argvs: List[List[str]]) -> None:
        def done(said: Said) -> None:
            self.problem = self._why(said) or self.problem
            self._next(argvs[1:])

        if argvs:
            self._run(argvs[0], done, 60.0)
        else:
            self.finished = True

    def _run(self, argv: Sequence[str], done: Callable[[Said], None], seconds: float) -> None:
        self._running = [Tool(self._loop, argv, done, seconds, self._env)]

    def _why(self, said: Said) -> Optional[str]:
        if said.ok or any(word in said.err.lower() for word in _GONE):
            return None
        return "%s: %s" % (self.text if self.kind == UNIT else self.name + " stop", said.why(self.name))


def look(loop: Loop, lever: Mapping[str, Any], done: Callable[[Optional[str]], None]) -> None:
    """What a person should know before the lever is used, in words: whether the thing would come back after mere signals."""
    if lever["kind"] == UNIT:
        argv = [*systemctl(lever.get("uid")), "show", "--property=Restart,TimeoutStopUSec", str(lever["unit"])]
        Tool(loop, argv, lambda said: done(_unit_note(said)), 5.0, manager_env(lever.get("uid")))
    else:
        form = "{{.HostConfig.RestartPolicy.Name}}"
        target = str(lever.get("id") or lever["name"])
        argv = [str(lever["engine"]), "container", "inspect", "--format", form, target]
        Tool(loop, argv, lambda said: done(_container_note(said)), 5.0)


def _unit_note(said: Said) -> Optional[str]:
    facts = dict(line.partition("=")[::2] for line in said.out.splitlines())
    restart = facts.get("Restart", "no")
    if restart in ("no", ""):
        return None
    return "the unit has Restart=%s: stopped it stays down, after signals alone systemd would start it again" % restart


def _container_note(said: Said) -> Optional[str]:
    policy = said.out.strip()
    if not said.ok or policy in ("", "no", "never"):
        return None
    return "the container has --restart=%s: stopped it stays down, after signals alone it would come back" % policy


# ------------------------------------------------------------------------------------------------------ a job's own container


FORM = "{{.State.Pid}} {{.Id}} {{.State.ExitCode}} {{.State.Status}} {{.State.OOMKilled}}"


class Seen:
    """A container as its engine tells of it. ``rc`` is None while it runs and where it never ran; ``absent``: there is none."""

    def __init__(self, said: Said) -> None:
        words = said.out.split()
        self.absent = not said.ok and any(word in said.err.lower() for word in _GONE)
        self.told = said.ok and len(words) == 5
        self.pid = int(words[0]) if self.told and words[0].isdigit() else 0
        self.id = words[1] if self.told else ""
        self.status = words[3] if self.told else ""
        self.oom = self.told and words[4] == "true"
        over = self.told and self.status in ("exited", "stopped", "dead") and words[2].lstrip("-").isdigit()
        self.rc: Optional[int] = int(words[2]) if over else None


def inspect(loop: Loop, box: Mapping[str, Any], done: Callable[[Seen], None]) -> None:
    """Ask the engine for the container of a spec."""
    argv = [str(box["engine"]), "container", "inspect", "--format", FORM, str(box["name"])]
    Tool(loop, argv, lambda said: done(Seen(said)), 20.0)


def remove(loop: Loop, box: Mapping[str, Any], done: Callable[[Optional[str]], None]) -> None:
    """Remove the container of a spec, which has ended. ``done(why it stays)``."""
    if not container.NAME.fullmatch(str(box.get("name"))) or not str(box["name"]).startswith(container.name_of("")):
        done("%r is no container of ours" % box.get("name"))
        return

    def told(said: Said) -> None:
        gone = said.ok or any(word in said.err.lower() for word in _GONE)
        done(None if gone else "the container %s stays: %s" % (box["name"], said.why(str(box["engine"]))))

    Tool(loop, [str(box["engine"]), "rm", "--force", str(box["name"])], told, 60.0)
