"""How a job outlives the ssh session: as a systemd unit of the host, as one of the user's own manager, or as a plain process.

Root on a systemd host gets a system unit: nothing that befalls a login session reaches it. A user who lingers gets a unit of
the manager that runs for him without a session. Everybody else gets a process of its own session, which logind may end at
logout; then `Way.survival` says so. In a container without systemd there is no login manager to fear.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from eagletui.agent import limits, procfs
from eagletui.agent.calls import Call, Handler
from eagletui.agent.loop import Loop
from eagletui.agent.tool import Said, Tool

SYSTEMD = "/run/systemd/system"
LINGER = "/var/lib/systemd/linger"
RUNTIME = "/run/user"
RUN_DIR = "/run/eagletui"
PROCESS, SYSTEM_UNIT, USER_UNIT = "process", "system-unit", "user-unit"
STOP_MARGIN = 30
_LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_TRUTHS = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")


class Way(NamedTuple):
    """``runner`` is one of process, system-unit, user-unit; ``survival`` what would end the job although nobody asked for it."""

    runner: str
    survival: Optional[str] = None


def find_way(loop: Loop, found: Callable[[Way], None]) -> None:
    """How a job of ours would run here; ``found(way)`` is called at once, or when logind has answered (at most 3 s)."""
    if not os.path.isdir(SYSTEMD):
        found(Way(PROCESS))
        return
    if os.geteuid() == 0:
        found(Way(SYSTEM_UNIT))
        return
    name = procfs.user(os.geteuid())
    lingers = os.path.exists("%s/%s" % (LINGER, name))
    if lingers and runtime_dir() is not None:
        found(Way(USER_UNIT))
        return
    reason = "%s lingers, but no manager of that user runs" % name if lingers else ""
    ask_logind(loop, lambda said: found(Way(PROCESS, judge(name, said, reason))))


def without_unit(loop: Loop, way: Way, why: str, found: Callable[[Way], None]) -> None:
    """The way of a job whose unit systemd did not make."""
    reason = "systemd made no unit (%s)" % why
    if way.runner == SYSTEM_UNIT:
        found(Way(PROCESS, "the job ends when its ssh session is terminated (loginctl terminate-session): " + reason))
    else:
        ask_logind(loop, lambda said: found(Way(PROCESS, judge(procfs.user(os.geteuid()), said, reason))))


def runtime_dir() -> Optional[str]:
    """The directory of the user's manager, when that runs."""
    path = "%s/%d" % (RUNTIME, os.geteuid())
    return path if os.path.exists(path + "/systemd/private") else None


def ask_logind(loop: Loop, found: Callable[[Said], None]) -> None:
    """Its three properties about leftover processes."""
    Tool(loop, ["busctl", "--system", "get-property", *_LOGIND, *_TRUTHS], found, timeout=3.0)


def judge(name: str, said: Said, reason: str = "") -> Optional[str]:
    """What logind does to the processes of ``name`` at logout, and what to do; None when it leaves them alone.

    ``reason`` says why no unit is possible; by default that the user does not linger.
    """
    lines = said.out.splitlines()
    reason = reason or "%s does not linger" % name
    fix = "`loginctl enable-linger %s` before the launch prevents it" % name
    if not said.ok or len(lines) != len(_TRUTHS):
        why = said.why("busctl")
        return "the job may end at logout: %s, and logind does not say what it does then (%s); %s" % (reason, why, fix)
    only, exclude = (line.split()[2:] for line in lines[1:])
    quoted = '"%s"' % name
    if lines[0] != "b true" or quoted in exclude or (only and quoted not in only):
        return None
    return "the job ends with the last session of %s: logind has KillUserProcesses=yes and %s; %s" % (name, reason, fix)


def unit_name(job: str) -> str:
    return "eagletui-%s.service" % job


def unit_argv(
    way: str, job: str, argv: Sequence[str], environ: Mapping[str, str], graces: Sequence[float], name: str = ""
) -> List[str]:
    """systemd-run's command line for a supervisor as the main process of a unit of its own.

    KillMode=process: should the supervisor die, its job lives on in the unit's control group; and `systemctl stop` signals
    the supervisor alone, which then ends the job as a kill would, in the time that its graces need. No secret, and nothing
    of the user's, is in it: only the interpreter, our code and the job's directory.
    """
    properties = (
        "Type=exec",
        "KillMode=process",
        "TimeoutStopSec=%d" % (sum(graces) + STOP_MARGIN),
        "LimitNOFILE=1048576",
        "LimitMEMLOCK=infinity",
        "LimitCORE=0",
        "TasksMax=infinity",
        "OOMPolicy=continue",
        "OOMScoreAdjust=-900",
        "UMask=0077",
        "Delegate=yes",
    )
    out = ["systemd-run"] + (["--user"] if way == USER_UNIT else [])
    out += ["--collect", "--quiet", "--no-ask-password", "--unit=" + (name or unit_name(job))]
    out.append("--description=eagletui job " + job)
    for item in properties:
        out += ["-p", item]
    for variable in ("HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG"):
        if environ.get(variable):
            out.append("--setenv=%s=%s" % (variable, environ[variable]))
    return out + ["--"] + [part.replace("$", "$$") for part in argv]  # systemd-run expands $ in arguments


def unit_environ(environ: Mapping[str, str]) -> Dict[str, str]:
    """What systemd-run itself needs: where the user's manager listens, which an exec over ssh is not always told."""
    out = dict(environ)
    own = runtime_dir()
    if own is not None:
        out["XDG_RUNTIME_DIR"] = own
    return out


def secrets_dir(way: str) -> str:
    """A directory in memory that is ours alone. Raises `OSError`."""
    own = runtime_dir() if way == USER_UNIT else None
    path = RUN_DIR if own is None else own + "/eagletui"
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path


def survival(call: Call) -> None:
    """The request: how a job would run here, before one is launched, and what it would have too little of."""

    def found(way: Way) -> None:
        low = list(limits.low(way.runner == SYSTEM_UNIT))
        call.reply({"runner": way.runner, "survival": way.survival, "limits": low})

    find_way(call.loop, found)


METHODS: Dict[str, Handler] = {"survival": survival}
