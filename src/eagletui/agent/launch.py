"""Launching a job: its directory and lock, and the supervisor's process, in a systemd unit where root has one, else forked.

``mkdir`` of the job's directory and a lock in it make a launch happen once, however often it is sent: whoever holds the lock
starts the shim (and hands the lock on to it); everybody else waits for what becomes of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
import time
from typing import Any, Dict, List, Mapping, Optional

from eagletui.agent import bundle, state_dir
from eagletui.agent.calls import Call, CallError
from eagletui.agent.job_files import Job, tail_text
from eagletui.agent.loop import Loop
from eagletui.jobs.base import BadJob, check_spec, secret_name
from eagletui.jobs.kinds import kind

PATIENCE = 30.0
POLL = 0.02
UNIT_START = 10.0
MAX_SECRETS = 32768  # they go through a pipe in one piece
RUN_DIR = "/run/eagletui"
_FROM_SOURCE = (
    "import sys;sys.path.insert(0,sys.argv[1]);from importlib import import_module;"
    "sys.exit(import_module(sys.argv[2]).main(sys.argv[3:]))"
)


def shim_argv(root: str, *args: str) -> List[str]:
    """The command line of a supervisor: this very code, kept in the state directory. Raises `OSError`."""
    if not bundle.BLOB:
        import eagletui

        source = os.path.dirname(os.path.dirname(os.path.abspath(eagletui.__file__)))
        return [sys.executable, "-I", "-S", "-c", _FROM_SOURCE, source, "eagletui.agent.shim_main", *args]
    directory = os.path.join(root, "code")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    path = os.path.join(directory, hashlib.sha256(bundle.BLOB).hexdigest()[:16] + ".blob")
    if not os.path.exists(path):
        bundle.write_blob(path)
        _forget_old(directory, path)
    return [sys.executable, "-I", "-S", "-c", bundle.LOADER, path, "eagletui.agent.shim_main", *args]


def _forget_old(directory: str, current: str) -> None:
    """Remove the code of versions not used for a day; a running shim has read its own already."""
    for entry in os.scandir(directory):
        if entry.path != current and time.time() - entry.stat().st_mtime > 86400:
            os.unlink(entry.path)


def fork_detached(argv: List[str], stdin: int, keep: Optional[int] = None) -> int:
    """Start a process that is nobody's child and in a session of its own. Returns the pid of the one in between, to be reaped."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(stdin, 0)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        if keep is not None:
            os.set_inheritable(keep, True)
        os.execv(argv[0], argv)  # noqa: S606 - an argument list, no shell
    finally:
        os._exit(127)


def systemd_argv(job: str, argv: List[str], environ: Mapping[str, str]) -> List[str]:
    """systemd-run's command line for a supervisor as the main process of a system unit of its own.

    No secret, and nothing of the user's, is in it: only the interpreter, our code and the job's directory.
    """
    properties = (
        "Type=exec",
        "KillMode=mixed",
        "TimeoutStopSec=180",
        "LimitNOFILE=1048576",
        "LimitMEMLOCK=infinity",
        "LimitCORE=0",
        "TasksMax=infinity",
        "OOMPolicy=continue",
        "UMask=0077",
        "Delegate=yes",
    )
    out = [
        "systemd-run",
        "--collect",
        "--quiet",
        "--no-ask-password",
        "--unit=" + unit_name(job),
        "--description=eagletui job " + job,
    ]
    for item in properties:
        out += ["-p", item]
    for name in ("HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG"):
        if environ.get(name):
            out.append("--setenv=%s=%s" % (name, environ[name]))
    return out + ["--"] + [part.replace("$", "$$") for part in argv]  # systemd-run expands $ in arguments


def unit_name(job: str) -> str:
    return "eagletui-%s.service" % job


def wants_unit() -> bool:
    """Root on a host that systemd runs: there a unit survives the end of the ssh session, a fork does not always."""
    return os.geteuid() == 0 and os.path.isdir("/run/systemd/system")


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
        if len(json.dumps(secrets)) > MAX_SECRETS:
            raise CallError("launch", "the secrets are longer than %d bytes" % MAX_SECRETS)
        return dict(secrets)

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
            raise CallError("launch", "%s: %s" % (self._job.directory, error.strerror)) from None
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
            self._call.fail("launch", "%s: %s" % (error.filename or "the supervisor", error.strerror or error))
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

    # -------------------------------------------------------------------------------------------------------- starting

    def _start(self, lock: int) -> None:
        """Nobody has started it yet, and nobody else can now."""
        self._started = True
        for name in ("refused.json", "shim.log"):
            try:
                os.unlink(self._job.path(name))
            except FileNotFoundError:
                pass  # the usual case: this is the first try
        if wants_unit():
            self._start_unit(lock)
        else:
            self._start_fork(lock)

    def _write_spec(self, **more: Any) -> None:
        state_dir.write_json(self._job.path("spec.json"), dict(self._spec, **more))

    def _start_fork(self, lock: int) -> None:
        self._write_spec()
        read_end, write_end = os.pipe()
        try:
            argv = shim_argv(self._root, "run", self._job.directory, str(lock))
            between = fork_detached(argv, read_end, lock)
            os.write(write_end, json.dumps({"secrets": self._secrets}).encode())
        finally:
            os.close(read_end)
            os.close(write_end)
        self._secrets = {}
        self._loop.watch_child(between, lambda status: None)

    def _start_unit(self, lock: int) -> None:
        secrets_file = os.path.join(RUN_DIR, self._job.id + ".secrets")
        os.makedirs(RUN_DIR, mode=0o700, exist_ok=True)
        write_secrets(secrets_file, self._secrets)
        self._secrets_file = secrets_file
        # the lock cannot be handed to a unit: it is free until the supervisor has started and taken it
        self._grace = self._loop.now() + UNIT_START
        self._write_spec(unit=unit_name(self._job.id), secrets_file=secrets_file)
        argv = systemd_argv(self._job.id, shim_argv(self._root, "run", self._job.directory), os.environ)
        held = os.dup(lock)  # until systemd-run has answered
        run_captured(self._loop, argv, self._job.path("systemd-run.err"), lambda ok: self._unit_started(ok, held))

    def _unit_started(self, ok: bool, held: int) -> None:
        try:
            said = " ".join(tail_text(self._job.path("systemd-run.err")))
            if not ok and "already" not in said:
                # no bus after all (a container with a bare systemd directory): the other way works everywhere
                self._drop_secrets()
                self._secrets_file, self._grace = None, 0.0
                os.unlink(self._job.path("systemd-run.err"))
                self._start_fork(held)
        except OSError as error:
            self._call.fail("launch", "%s: %s" % (error.filename or "the supervisor", error.strerror or error))
            self._cancelled = True
        finally:
            os.close(held)


def write_secrets(path: str, secrets: Mapping[str, str]) -> None:
    """A 0600 file in memory-backed /run, which the shim removes before it does anything else."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass  # the usual case
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps({"secrets": dict(secrets)}).encode())


def run_captured(loop: Loop, argv: List[str], errors: str, done: Any) -> None:
    """Run a short command without waiting for it; its stderr goes to a file. ``done(True)`` when it exits with 0."""
    fd = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    pid = os.fork()
    if pid == 0:
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, 0)
            os.dup2(nothing, 1)
            os.dup2(fd, 2)
            os.execvp(argv[0], argv)  # noqa: S606 - an argument list, no shell
        finally:
            os._exit(127)
    os.close(fd)
    loop.watch_child(pid, lambda status: done(status == 0))
