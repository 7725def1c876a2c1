"""Entry of the shim's process: ``run JOBDIR [LOCK_FD]`` supervises a job, ``reap JOBDIR`` ends one whose shim has died.

``run`` reads ``{"secrets": {...}}`` from stdin; in a systemd unit, from the file named in the spec's ``secrets_file``, which is
removed before anything else. What goes wrong in the supervisor itself is written to ``shim.log`` in the job's directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Optional

from eagletui.agent import groups, leases, limits, ports, state_dir, syscalls
from eagletui.agent.loop import Loop

_NOT_FOR_THE_JOB = (
    "SSH_",
    "EAGLETUI_",
    "LS_COLORS",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "NOTIFY_SOCKET",
    "SYSTEMD_EXEC_PID",
    "MANAGERPID",
    "MEMORY_PRESSURE_",
    "XDG_SESSION_",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "_",
)


def main(argv: List[str]) -> int:
    os.umask(0o077)
    lock_fd = int(argv[2]) if len(argv) > 2 else None
    _close_others(lock_fd)
    directory = os.path.abspath(argv[1])
    os.chdir("/")
    with open(os.path.join(directory, "shim.log"), "a", encoding="utf-8") as errors:
        complaints = _Complaints(errors.fileno())
        os.dup2(errors.fileno(), 2)
    try:
        if argv[0] == "reap":
            return _reap(directory, complaints)
        return _run(directory, lock_fd, complaints)
    except state_dir.StateError as error:
        complaints.write("%s\n" % error)
        return 1


def _close_others(lock_fd: Optional[int]) -> None:
    """What we inherited by accident, from whoever started the agent: a job for days must not hold it open (pipes, locks)."""
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd != lock_fd:
            try:
                os.close(fd)
            except OSError:
                pass  # the one that listed the directory: closed already


class _Complaints:
    """The first hundred errors of the supervisor, each with its place; the disk is not filled with repetitions."""

    def __init__(self, fd: int) -> None:
        self._left = 100

    def write(self, text: str) -> None:
        if self._left > 0:
            self._left -= 1
            try:
                os.write(2, ("%.3f %s" % (time.time(), text)).encode("utf-8", "replace"))
            except OSError:
                pass  # the disk is full: there is nowhere to say it, and the job goes on

    def error(self, what: str, error: Exception) -> None:
        import traceback

        self.write("%s: %s" % (what, "".join(traceback.format_exception(type(error), error, error.__traceback__))))


def _run(directory: str, lock_fd: Optional[int], complaints: _Complaints) -> int:
    from eagletui.agent.shim import Shim

    spec = state_dir.read_json(os.path.join(directory, "spec.json"))
    if spec is None:
        raise state_dir.StateError("spec.json is missing")
    secrets = _secrets(spec)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    if lock_fd is None:
        lock_fd = _lock(directory)
        if lock_fd is None:
            return 1  # another supervisor has the job
    os.set_inheritable(lock_fd, False)
    syscalls.set_name("eagletui-shim")
    limits.ours()
    held = _take_leases(directory, spec)
    if held is None:
        return 1
    # the supervisors that a pipeline's runner starts must become nobody's children: they are no processes of its job
    if not spec.get("pipeline") and not syscalls.become_subreaper():
        complaints.write("not a child subreaper: orphans of the job are found by its log and session only\n")
    loop = Loop(complaints.error)
    env = _environment(spec, secrets)
    if spec.get("on_host") and not _add_code(directory, env, held):
        return 1
    shim = Shim(loop, directory, spec, env, held)
    del secrets, env

    def ended(_number: int, _frame: Any) -> None:
        shim.terminate()

    signal.signal(signal.SIGTERM, ended)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a terminal's; the job is ended through its own kill
    shim.start()
    if shim.started:
        loop.run()
    return 0


def _lock(directory: str) -> Optional[int]:
    """The job's lock: who holds it supervises the job. Waits a little for a launching agent to let go of it."""
    fd = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + 10
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(fd)
                return None
            time.sleep(0.02)


def _secrets(spec: Dict[str, Any]) -> Dict[str, str]:
    path = spec.get("secrets_file")
    try:
        if path:
            fd = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.unlink(str(path))
        else:
            fd = os.dup(0)
    except OSError as error:
        raise state_dir.StateError("the secrets cannot be read: %s" % error.strerror) from None
    with os.fdopen(fd, "rb") as file:
        text = file.read()
    if not text:
        # a launch that was cut here must not become a job without its token; sent again, it starts
        raise state_dir.StateError("the launching agent died before it had handed over the secrets")
    doc = json.loads(text.decode("utf-8"))
    return {str(name): str(value) for name, value in (doc.get("secrets") or {}).items()}


def _environment(spec: Dict[str, Any], secrets: Dict[str, str]) -> Dict[str, str]:
    """The child's: ours without what belongs to the ssh session, then the spec's names, then the secrets."""
    env = {name: value for name, value in os.environ.items() if not _ours(name)}
    env.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    env.setdefault("HOME", os.path.expanduser("~"))
    env.setdefault("PYTHONUNBUFFERED", "1")  # output to a file is held back otherwise, and the log looks dead
    env.update((str(name), str(value)) for name, value in (spec.get("env") or {}).items())
    env.update(secrets)
    return env


def _ours(name: str) -> bool:
    return any(name == item or (item.endswith("_") and len(item) > 1 and name.startswith(item)) for item in _NOT_FOR_THE_JOB)


def _take_leases(directory: str, spec: Dict[str, Any]) -> Optional[List[int]]:
    """The leases, or None after writing why not to ``refused.json``."""
    root = os.path.dirname(os.path.dirname(directory))
    wanted = spec.get("leases") or {}
    port = wanted.get("port")
    holder = {"job": spec["id"], "operator": spec.get("operator"), "since": round(time.time(), 3)}
    try:
        held = leases.take(root, leases.names(port, wanted.get("gpus") or ()), holder)
    except leases.LeaseTaken as error:
        _refuse(directory, str(error), "wait for it, kill it, or choose another")
        return None
    except OSError as error:
        _refuse(directory, "the leases cannot be taken: %s" % error, "")
        return None
    taken = ports.why_taken(port) if isinstance(port, int) else None
    if taken is not None:
        _refuse(directory, taken, "end that process or choose another port")
        return None
    return held


def _add_code(directory: str, env: Dict[str, str], held: List[int]) -> bool:
    """This package on the program's ``PYTHONPATH``, kept for as long as a process of the job lives. False after a refusal."""
    from eagletui.agent import code_dir

    try:
        code = code_dir.unpack(os.path.dirname(os.path.dirname(directory)))
    except OSError as error:
        _refuse(directory, "our programs cannot be unpacked: %s" % error, state_dir.remedy(error))
        return False
    held.append(code.fd)
    env["PYTHONPATH"] = os.pathsep.join(path for path in (code.path, env.get("PYTHONPATH")) if path)
    return True


def _refuse(directory: str, why: str, remedy: str) -> None:
    state_dir.write_json(os.path.join(directory, "refused.json"), {"why": why, "remedy": remedy})


def _reap(directory: str, complaints: _Complaints) -> int:
    """Carry out ``control.json`` for a job whose shim is dead. Nothing happens while its supervisor lives."""
    from eagletui.agent.container import Last
    from eagletui.agent.ending import Ending
    from eagletui.agent.job_files import Job
    from eagletui.agent.kill import stuck_text

    fd = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 1  # the supervisor lives after all, and reads the request itself
    job = Job(directory)
    scanner = job.scanner()
    state = job.stored_state()
    if scanner is None or state is None:
        raise state_dir.StateError("nothing is known of the job's processes")
    syscalls.set_name("eagletui-reap")
    loop = Loop(complaints.error)
    path = os.path.join(directory, "state.json")

    def told(text: str) -> None:
        state.update(state="stopping", detail=text, members=len(scanner.known), shim_pid=os.getpid(), shim_start=_start())
        state_dir.write_json(path, state, sync=False)

    def done(stuck: List[Any]) -> None:
        for key in ("blocked", "stopped", "cpu", "cpu_top", "rss", "listening", "silent", "member_pids"):
            state.pop(key, None)
        state["members"] = len(stuck)
        if ending.refused:
            state.update(state="running", detail=ending.refused)
        elif stuck:
            state["detail"] = "cannot be ended: " + "; ".join(stuck_text(stat) for stat in stuck[:8])
        else:
            exit_doc = state_dir.read_json(os.path.join(directory, "exit.json")) or {}
            started_here = not (spec.get("found") or spec.get("only"))
            state["state"] = "exited" if "rc" in exit_doc or not started_here else "lost_supervisor"
            state["ended"] = state.get("ended") or round(time.time(), 3)
            by = "ended by %s" % (ending.by or "request")
            if started_here and "rc" in exit_doc:
                # it had ended before, and only what it left behind was ended: that does not make its end a wanted one
                state.update(rc=exit_doc["rc"], detail="what it left behind was " + by)
            else:
                state.update(health="gone", ended_by=ending.by or "request", detail=by)
            if started_here:
                state["detail"] += "; its supervisor had died"
        write()

    def write() -> None:
        try:
            state_dir.write_json(path, state)
        except OSError as error:
            complaints.write("state.json cannot be written: %s\n" % (error.strerror or error))

    spec = job.spec
    box = Last(loop, spec) if spec.get("container") else None
    kill_file = groups.found(scanner.origin.cgroup).kill
    ending = Ending(loop, directory, spec, scanner, told, done, kill_file)
    ending.look()

    held: Dict[str, int] = {}

    def again() -> None:
        """Until the last has gone: one that the kernel holds keeps the port and the cards, so we keep their leases for it."""
        loop.call_later(0.25 if ending.active else 1.0, again)
        _keep_leases(directory, spec, held)
        ending.look()
        if ending.refused and not ending.active:
            loop.stop()
        elif not ending.active and not scanner.scan() and ending.settle() and (box is None or box.clear()):
            if box is not None and box.rc is not None and "rc" not in state:
                state.update(state="exited", rc=box.rc)
                write()
            loop.stop()

    if ending.active:
        again()
        loop.run()
    return 0


def _keep_leases(directory: str, spec: Dict[str, Any], held: Dict[str, int]) -> None:
    """Take those of the job's leases that nobody has: its main process may have held them, and it may be the first to go."""
    root = os.path.dirname(os.path.dirname(directory))
    wanted = spec.get("leases") or {}
    holder = {"job": spec.get("id"), "operator": spec.get("operator"), "since": round(time.time(), 3)}
    for name in leases.names(wanted.get("port"), wanted.get("gpus") or ()):
        if name not in held:
            try:
                held[name] = leases.take(root, [name], holder)[0]
            except (leases.LeaseTaken, OSError):
                pass  # a process of the job still holds it, or the next job has it already


def _start() -> int:
    from eagletui.agent.procfs import read_stat

    stat = read_stat(os.getpid())
    return stat.start if stat else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
