"""Launching a job: its directory and lock, and the supervisor's process, in a systemd unit where that is possible, else forked.

``mkdir`` of the job's directory and a lock in it make a launch happen once, however often it is sent: whoever holds the lock
starts the shim (and hands the lock on to it); everybody else waits for what becomes of it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from typing import Any, Dict, Optional

from eagletui.agent import kill, state_dir, units
from eagletui.agent.calls import Call, CallError
from eagletui.agent.job_files import Job, tail_text
from eagletui.agent.supervisor import UNIT_START, fork_detached, shim_argv, write_secrets
from eagletui.agent.tool import Said, Tool
from eagletui.jobs.base import BadJob, check_spec, secret_name
from eagletui.jobs.hidden import hide, places
from eagletui.jobs.kinds import kind

PATIENCE = 30.0
POLL = 0.02
MAX_SECRETS = 32768  # they go through a pipe in one piece
_LIMITS = "look at `ulimit -u`, `ulimit -n` and TasksMax of the login on the host"


class Launch:
    """One `launch` request until it is answered."""

    def __init__(self, call: Call, root: str) -> None:
        self._call, self._loop, self._root = call, call.loop, root
        try:
            self._spec = check_spec(call.params.get("spec"))
            kind(self._spec["kind"])
            self._job = Job(state_dir.job_dir(root, self._spec["id"]))
        except BadJob as error:
            raise CallError("launch", str(error)) from None
        except state_dir.StateError as error:
            raise CallError("launch", error.why, error.remedy) from None
        self._secrets = self._take_secrets(call.params.get("secrets"))
        self._deadline = self._loop.now() + PATIENCE
        self._started = False
        self._grace = 0.0
        self._secrets_file: Optional[str] = None
        self._cancelled = False
        call.on_cancel = self._cancel

    def _take_secrets(self, given: Any) -> Dict[str, str]:
        secrets = given or {}
        if not isinstance(secrets, dict) or not all(isinstance(n, str) and isinstance(v, str) for n, v in secrets.items()):
            raise CallError("launch", "secrets should be an object of names and texts")
        # what looks like a secret is treated as one, wherever it was put: it must not reach a file
        for name in [name for name in self._spec["env"] if secret_name(name)]:
            secrets.setdefault(name, self._spec["env"].pop(name))
        hidden = hide(self._spec)
        if isinstance(self._spec.get("pipeline"), dict):
            self._hide_parts(secrets, hidden)
        secrets.update(hidden)
        if len(json.dumps(secrets)) > MAX_SECRETS:
            raise CallError("launch", "the secrets are longer than %d bytes" % MAX_SECRETS)
        return dict(secrets)

    def _hide_parts(self, secrets: Dict[str, str], hidden: Dict[str, str]) -> None:
        """The same for the steps and servers of a pipeline: they are kept in its spec. Its runner hands each its own."""
        from eagletui.jobs.pipeline import check_plan, parts  # few launches are of one

        try:
            plan = self._spec["pipeline"] = json.loads(json.dumps(check_plan(self._spec["pipeline"])))
        except BadJob as error:
            raise CallError("launch", str(error)) from None
        for spec in parts(plan):
            names, env = set(spec.get("secrets") or ()), spec.get("env") or {}
            for name in [name for name in env if secret_name(name) and env[name]]:
                value = env.pop(name)
                if name not in names and secrets.setdefault(name, value) != value:
                    remedy = 'put the name into "secrets": its value comes from your environment then'
                    raise CallError("launch", "two parts of the pipeline have different values for %s" % name, remedy)
                names.add(name)
            hide(spec, hidden)
            names.update(places(spec["argv"]))
            if names:
                spec["secrets"] = sorted(names)

    def _cancel(self) -> None:
        self._cancelled = True  # what was started goes on; the same launch sent again finds it

    def begin(self) -> None:
        try:
            state_dir.create(self._root)
            try:
                os.mkdir(self._job.directory, 0o700)
                state_dir.sync_directory(os.path.dirname(self._job.directory))
            except FileExistsError:
                pass  # sent before: what became of that is looked at next
        except state_dir.StateError as error:
            raise CallError("launch", error.why, error.remedy) from None
        except OSError as error:
            raise CallError("launch", "%s: %s" % (self._job.directory, error.strerror), state_dir.remedy(error)) from None
        self._attempt()

    # --------------------------------------------------------------------------------------------------------- waiting

    def _attempt(self) -> None:
        if self._cancelled:
            return
        try:
            if self._answered():
                return
            lock = self._lock()
            if lock is not None:
                try:
                    if self._answered():
                        return
                    if not self._started:
                        self._start(lock)
                    elif self._loop.now() >= self._grace:
                        self._supervisor_died()
                        return
                finally:
                    os.close(lock)
        except state_dir.StateError as error:
            self._call.fail("launch", error.why, error.remedy)
            return
        except OSError as error:
            self._failed(error)
            return
        if self._loop.now() > self._deadline:
            self._call.fail(
                "launch", "the supervisor has not started within %d s" % PATIENCE, "look at the host's load, and try again"
            )
            return
        self._loop.call_later(POLL, self._attempt)

    def _lock(self) -> Optional[int]:
        """The job's lock, or None while somebody has it: a launching agent or the shim."""
        fd = os.open(self._job.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd

    def _answered(self) -> bool:
        """Answer when the outcome is there."""
        state = self._job.state()
        if state is not None and (state["state"] != "launching"):
            self._drop_secrets()
            self._call.reply(state)
            return True
        refused = state_dir.read_json(self._job.path("refused.json"))
        if refused is not None and self._started:
            self._drop_secrets()
            state_dir.remove_tree(self._job.directory)
            self._call.fail("launch", str(refused.get("why")), str(refused.get("remedy") or ""), kind="refused")
            return True
        return False

    def _drop_secrets(self) -> None:
        """The shim has read them; a copy is left only when two agents launched the same job in the same moment."""
        if self._secrets_file is not None:
            try:
                os.unlink(self._secrets_file)
            except FileNotFoundError:
                pass  # as it should be: the shim removes it first of all

    def _supervisor_died(self) -> None:
        self._drop_secrets()
        lines = tail_text(self._job.path("shim.log"))
        self._call.fail("launch", "the supervisor died: %s" % (lines[-1] if lines else "it left no message"))

    def _failed(self, error: OSError) -> None:
        """What the supervisor needs cannot be had; a directory in which nothing was started is taken away again."""
        self._drop_secrets()
        limit = error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENFILE)
        remedy = _LIMITS if limit else state_dir.remedy(error)
        what = error.filename or (self._job.directory if remedy and not limit else "the supervisor")
        why = "%s: %s" % (what, error.strerror or error)
        if not any(os.path.exists(self._job.path(name)) for name in ("state.json", "shim.log")):
            try:
                state_dir.remove_tree(self._job.directory)
            except OSError:
                pass  # an empty directory stays, which the next launch with this id uses
        self._cancelled = True
        self._call.fail("launch", why, remedy)

    # -------------------------------------------------------------------------------------------------------- starting

    def _start(self, lock: int) -> None:
        """Nobody has started it yet, and nobody else can now."""
        self._started = True
        for name in ("refused.json", "shim.log"):
            try:
                os.unlink(self._job.path(name))
            except FileNotFoundError:
                pass  # the usual case: this is the first try
        held = os.dup(lock)  # until the supervisor's process is there
        units.find_way(self._loop, lambda way: self._start_by(way, held))

    def _start_by(self, way: units.Way, held: int) -> None:
        waits = False
        try:
            if way.runner == units.PROCESS:
                self._start_fork(held, way)
            else:
                self._start_unit(held, way)
                waits = True
        except OSError as error:
            self._failed(error)
        finally:
            if not waits:
                os.close(held)

    def _write_spec(self, way: units.Way, **more: Any) -> None:
        doc = dict(self._spec, survival=way.survival, **more)
        doc.setdefault("runner", way.runner)  # a container's is its engine
        state_dir.write_json(self._job.path("spec.json"), {key: value for key, value in doc.items() if value is not None})

    def _start_fork(self, lock: int, way: units.Way) -> None:
        self._write_spec(way)
        read_end, write_end = os.pipe()
        try:
            argv = shim_argv(self._root, "run", self._job.directory, str(lock))
            between = fork_detached(argv, read_end, lock)
            os.write(write_end, json.dumps({"secrets": self._secrets}).encode())
        finally:
            os.close(read_end)
            os.close(write_end)
        self._secrets_file, self._grace = None, 0.0
        self._loop.watch_child(between, lambda status: None)

    def _start_unit(self, held: int, way: units.Way) -> None:
        self._secrets_file = write_secrets(units.secrets_dir(way.runner), self._job.id, self._secrets)
        # the lock cannot be handed to a unit: it is free until the supervisor has started and taken it
        self._grace = self._loop.now() + UNIT_START
        self._write_spec(way, unit=units.unit_name(self._job.id), secrets_file=self._secrets_file)
        argv = shim_argv(self._root, "run", self._job.directory)
        argv = units.unit_argv(way.runner, self._job.id, argv, os.environ, kill.graces_of(self._spec))
        Tool(self._loop, argv, lambda said: self._unit_started(said, held, way), UNIT_START, units.unit_environ(os.environ))

    def _unit_started(self, said: Said, held: int, way: units.Way) -> None:
        if said.ok or "already" in said.err:  # the unit of an earlier try of this launch
            os.close(held)
            return
        # no bus after all (a container with a bare systemd directory, say): the other way works everywhere
        self._drop_secrets()
        units.without_unit(self._loop, way, said.why("systemd-run"), lambda other: self._start_by(other, held))
