"""An existing systemd unit as the way to run a server: what it would run, and starting it.

It is shown and ended like any server that was found.

unit        unit, user    {"unit", "load", "active", "sub", "result", "status", "pid", "exec", "file", "restart", "more": [file]}
unit_start  unit, user    `JobState` of the server in it, once it is seen (at most `SEEN_WITHIN` seconds after the unit runs)
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, List, Optional

from eagletui.agent import adopt, levers
from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.tool import Said, Tool
from eagletui.jobs.base import redact_argv

_STATE = ("LoadState", "ActiveState", "SubState", "Result", "ExecMainStatus", "MainPID")
_MADE_OF = ("ExecStart", "FragmentPath", "DropInPaths", "Restart", "User")
SETTLE_WITHIN = 30.0
SEEN_WITHIN = 30.0
POLL = 0.3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@\\-]{0,200}\.service")


class Unit:
    """A request about one unit."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.name = call.text("unit")
        if not _NAME.fullmatch(self.name):
            raise CallError("unit", "%r is not the name of a service" % self.name, "such as vllm.service")
        self.uid: Optional[int] = os.geteuid() if call.params.get("user") else None
        self.ctl = "systemctl --user" if self.uid is not None else "systemctl"
        self.journal = "journalctl --user-unit %s" if self.uid is not None else "journalctl -u %s"
        self.env = levers.manager_env(self.uid)

    def ask(self, argv: List[str], done: Callable[[Said], None], seconds: float = 20.0) -> None:
        Tool(self.call.loop, [*levers.systemctl(self.uid), *argv], done, seconds, self.env)

    def facts(self, step: str, done: Callable[[Dict[str, Any]], None]) -> None:
        """``done`` with what systemd says of it; a unit that there is not fails the request."""

        def told(said: Said) -> None:
            if not said.ok:
                self.call.fail(step, "systemd cannot be asked: %s" % said.why("systemctl"), "does this host run systemd?")
                return
            doc = parse(self.name, said.out)
            if doc["load"] != "loaded":
                where = "the user's manager" if self.uid is not None else "this host"
                why = (
                    "%s has no unit %s" % (where, self.name)
                    if doc["load"] == "not-found"
                    else "%s is %s" % (self.name, doc["load"])
                )
                self.call.fail(
                    step, why, "look at: systemctl %slist-unit-files" % ("--user " if self.uid is not None else ""), "absent"
                )
                return
            done(doc)

        self.ask(["show", "--property=" + ",".join(_STATE + _MADE_OF), self.name], told)


def parse(name: str, text: str) -> Dict[str, Any]:
    """The answer of ``systemctl show``."""
    facts = dict(line.partition("=")[::2] for line in text.splitlines())
    match = re.search(r"argv\[\]=(.*?) ; ignore_errors=", facts.get("ExecStart", ""))
    words = match.group(1).split(" ") if match is not None else []
    return {
        "unit": name,
        "load": facts.get("LoadState", ""),
        "active": facts.get("ActiveState", ""),
        "sub": facts.get("SubState", ""),
        "result": facts.get("Result", ""),
        "status": facts.get("ExecMainStatus", ""),
        "pid": int(facts["MainPID"]) if facts.get("MainPID", "").isdigit() else 0,
        "exec": " ".join(redact_argv(words)),
        "file": facts.get("FragmentPath", ""),
        "more": facts.get("DropInPaths", "").split(),
        "restart": facts.get("Restart", ""),
        "user": facts.get("User", ""),
    }


def unit(call: Call) -> None:
    Unit(call).facts("unit", call.reply)


def unit_start(call: Call) -> None:
    one = Unit(call)
    one.facts("launch", lambda doc: _start(one, doc))


def _start(one: Unit, doc: Dict[str, Any]) -> None:
    found = _seen(one)
    if found is not None:  # sent again, or somebody was quicker: it runs
        if one.call.params.get("again"):
            one.call.reply(found)
        else:
            one.call.fail(
                "launch", "%s runs already (main process %d)" % (one.name, doc["pid"]), "it is in the list of jobs", "taken"
            )
        return

    def started(said: Said) -> None:
        if said.ok:
            _settle(one, one.call.loop.now() + SETTLE_WITHIN)
        else:
            one.call.fail("launch", "%s start %s: %s" % (one.ctl, one.name, said.why("systemctl")), "may this user start it?")

    # not waited for: a unit that tells when it is ready does so after the load
    one.ask(["start", "--no-block", one.name], started)


def _settle(one: Unit, deadline: float) -> None:
    """Until the unit has a main process, or has failed."""

    def told(doc: Dict[str, Any]) -> None:
        now = one.call.loop.now()
        if doc["active"] == "failed" or (doc["active"] == "inactive" and doc["result"] not in ("", "success")):
            why = "%s failed: %s, exit status %s" % (one.name, doc["result"], doc["status"])
            one.call.fail(
                "launch", why, "look at: journalctl %s %s -n 50" % ("--user-unit" if one.uid is not None else "-u", one.name)
            )
        elif doc["pid"] and doc["active"] in ("active", "activating", "reloading"):
            _wait_for_server(one, now + SEEN_WITHIN, doc["pid"])
        elif now > deadline:
            one.call.fail(
                "launch", "%s is still %s (%s)" % (one.name, doc["active"], doc["sub"]), "look at: systemctl status " + one.name
            )
        else:
            one.call.loop.call_later(POLL, lambda: _settle(one, deadline))

    if not one.call.answered:
        one.facts("launch", told)


def _wait_for_server(one: Unit, deadline: float, pid: int) -> None:
    if one.call.answered:
        return
    found = _seen(one)
    if found is not None:
        one.call.reply(found)
    elif one.call.loop.now() > deadline:
        why = "%s runs (main process %d), but no server of vLLM or SGLang is seen in it" % (one.name, pid)
        one.call.fail("launch", why, "look at: %s status %s" % (one.ctl, one.name))
    else:
        one.call.loop.call_later(POLL, lambda: _wait_for_server(one, deadline, pid))


def _seen(one: Unit) -> Optional[Dict[str, Any]]:
    """The server in the unit, as it is found by its processes."""
    for found in adopt.look().values():
        if found.holder.unit == one.name and found.holder.unit_uid == one.uid and found.main is not None:
            return found.state()
    return None


METHODS: Dict[str, Handler] = {"unit": unit, "unit_start": unit_start}
