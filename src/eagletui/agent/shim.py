"""The supervisor of one job, a process of its own: starts the main process, watches it, notes what happens, carries out the kill.

It outlives the agent and the client, and lives until no process of the job is left. Its memory and CPU are kept tiny: once a
second it looks at its members, twice a second at the log; everything is written to files that any agent can read.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from eagletui.agent import bundle, leftovers, oom, ports, procfs, state_dir, syscalls
from eagletui.agent.ending import Ending, merge_result
from eagletui.agent.job_lines import EVENTS_CAP, SAMPLES_CAP, Lines
from eagletui.agent.job_log import JobLog
from eagletui.agent.log_tail import DEFAULT_CAP, LogTail
from eagletui.agent.loop import Loop, boot_now
from eagletui.agent.members import Key, Origin, Scanner, here
from eagletui.agent.procfs import Stat
from eagletui.agent.server_probe import Owner, Rules, ServerProbe
from eagletui.agent.spawn import SpawnFailed, open_log, spawn
from eagletui.agent.usage import Meter
from eagletui.records import JobState, to_doc
from eagletui.records.jobs import MOST_PIDS

TICK = 1.0
LOG_TICK = 0.5
SCAN_LOADING, SCAN_READY = 3.0, 15.0
FILES_LOADING, FILES_READY = 5.0, 30.0
MOST_FILES = 512
PORT_EVERY = 15.0
BOUND_EVERY, BOUND_BYTES = 10.0, 1 << 20
CONTROL_GROUPS = "/sys/fs/cgroup"


class Shim(Owner):
    """``directory`` is the job's, ``env`` the whole environment of the child, ``lease_fds`` stay open for as long as we live."""

    def __init__(self, loop: Loop, directory: str, spec: Mapping[str, Any], env: Mapping[str, str], lease_fds: List[int]) -> None:
        self._loop, self._directory, self._spec, self._env, self._lease_fds = loop, directory, spec, env, lease_fds
        self._log_path = os.path.join(directory, "log")
        own = procfs.read_stat(os.getpid())
        self._own: Key = (os.getpid(), own.start if own else 0)
        self._boot_id, self._pid_ns, self._pid1 = here()
        self.started = False
        self._main_running = False
        self._main_pid = 0
        self._killed = False
        self._unwritten: Dict[str, Dict[str, Any]] = {}
        self._written: Optional[Dict[str, Any]] = None
        self._origin_doc: Optional[Dict[str, Any]] = None
        self._scanned = 0.0
        self._bounded = 0.0
        self._bounded_at = 0
        self._ticks = 0
        self._port_looked = 0.0
        self._files_looked = 0.0
        self._address = str((spec.get("ready") or {}).get("address") or "127.0.0.1")
        self._terminate = False
        self._members: Dict[Key, Stat] = {}
        self._meter = Meter()
        self._own_socket: Optional[int] = None
        self._oom_files: List[str] = []
        self._oom_before: Optional[int] = None
        self._oom_rose: Optional[float] = None
        self._probe: Optional[ServerProbe] = None
        self._f: Dict[str, Any] = {
            "id": str(spec["id"]),
            "kind": str(spec["kind"]),
            "name": str(spec.get("name") or spec["id"]),
            "state": "launching",
            "started": round(time.time(), 3),
            "started_boot": round(boot_now(), 3),
            "port": spec.get("port"),
            "gpus": tuple(spec.get("gpus") or ()),
            "shim_pid": self._own[0],
            "shim_start": self._own[1],
            "boot_id": self._boot_id,
            "command": tuple(spec["argv"]),
            "log": self._log_path,
            "phase": None,
        }
        for name in ("engine", "model", "drafter", "k", "operator", "cwd", "profile"):
            self._f[name] = spec.get(name)

    # ------------------------------------------------------------------------------------------------------- starting

    def start(self) -> None:
        """Start the main process. When that fails the state says why, and `started` stays False."""
        log_fd = open_log(self._log_path)
        info = os.fstat(log_fd)
        self._events = Lines(os.path.join(self._directory, "events.jsonl"), EVENTS_CAP)
        self._samples: Optional[Lines] = None
        self._tail = LogTail(self._log_path, lambda data: self._log.feed(data), int(self._spec.get("log_cap") or DEFAULT_CAP))
        group, directory, kill_file = self._own_group()
        self._scanner = Scanner(
            Origin(self._boot_id, self._pid_ns, self._pid1, self._own, None, (info.st_dev, info.st_ino), group)
        )
        self._ending = Ending(self._loop, self._directory, self._spec, self._scanner, self._kill_told, self._kill_done, kill_file)
        self._write_state(sync=True)
        self._write_origin()
        try:
            pid = spawn(self._spec["argv"], str(self._spec["cwd"]), self._env, log_fd, self._lease_fds, directory)
        except SpawnFailed as error:
            self._f.update(state="failed_to_exec", rc=127, ended=round(time.time(), 3), detail=str(error), first_error=str(error))
            state_dir.write_json(
                os.path.join(self._directory, "exit.json"), {"rc": 127, "error": str(error), "wall": time.time()}
            )
            self._write_state(sync=True)
            return
        finally:
            os.close(log_fd)
            self._env = {}  # the secrets are the child's now
        stat = procfs.read_stat(pid)
        main = (pid, stat.start if stat else 0)
        self._scanner.origin = self._scanner.origin._replace(main=main)
        self._scanner.known.add(main)
        self._main_running, self._main_pid = True, pid
        server = bool(self._spec.get("server"))
        self._f.update(state="running", pid=pid, pid_start=main[1], members=1, health="loading" if server else None)
        self._write_origin()
        self._write_state(sync=True)
        self._oom_files = oom.counters(pid)
        self._oom_before = oom.kills(self._oom_files)
        self._log = JobLog(self._make_reader(), self._events, self._log_ready, self._trouble)
        self._log.note({"kind": "started", "text": "pid %d" % pid})
        if server and isinstance(self._spec.get("port"), int):
            self._probe = ServerProbe(self._loop, self._rules(), self, lambda: bool(self._f.get("listening")))
            self._probe.start()
        self.started = True
        self._loop.watch_child(pid, self._main_ended)
        self._loop.call_later(LOG_TICK, self._log_tick)
        self._loop.call_later(TICK, self._tick)

    def _own_group(self) -> Any:
        """(control group of the job, its directory to move the child to, its cgroup.kill), in a unit; else Nones."""
        if not self._spec.get("unit"):
            return None, None, None
        group = procfs.cgroup(os.getpid())
        if not group or group == "/":
            return None, None, None
        directory = CONTROL_GROUPS + group + "/job"
        try:
            os.mkdir(directory)
        except OSError:
            return group, None, None  # no delegation: the unit's group is the job's, and holds us as well
        kill_file = directory + "/cgroup.kill"
        return group + "/job", directory, kill_file if os.path.exists(kill_file) else None

    def _make_reader(self) -> Any:
        if not self._spec.get("engine"):
            return None
        from eagletui.engines.reader import LogReader

        return LogReader(started=self._f["started_boot"])

    def _rules(self) -> Rules:
        ready = self._spec.get("ready") or {}
        known = {key: value for key, value in ready.items() if key in Rules._fields and key != "port"}
        return Rules(int(self._spec["port"]), **known)

    # --------------------------------------------------------------------------------------------------------- ticks

    def terminate(self) -> None:
        """From a signal handler: the unit is being stopped, so end the job as a kill would."""
        self._terminate = True

    def _log_tick(self) -> None:
        more = self._tail.poll()
        if self._tail.offset - self._bounded_at >= BOUND_BYTES:
            self._bound_log()
        if self._terminate:
            self._terminate = False
            self._ending.begin(False, "SIGTERM to the supervisor", {})
        else:
            self._ending.look()
        self._loop.call_later(0 if more else LOG_TICK, self._log_tick)

    def _tick(self) -> None:
        self._loop.call_later(TICK, self._tick)
        now = self._loop.now()
        self._reap_orphans()
        self._ticks += 1
        if self._ticks == 3:
            bundle.BLOB = b""  # only an agent launches
            syscalls.give_back_memory()
        every = SCAN_READY if self._f.get("health") == "ready" else SCAN_LOADING
        if now - self._scanned >= every or not self._main_running:
            self._members, self._scanned = self._scanner.scan(), now
        else:
            self._members = self._scanner.refresh()
        usage = self._meter.look(self._members, now)
        self._f.update(
            members=usage.members,
            member_pids=_pids(self._members),
            blocked=usage.blocked,
            rss=usage.rss,
            cpu=usage.cpu,
            bytes_read=usage.bytes_read,
            log_size=self._tail.size,
            log_floor=self._tail.floor or None,
        )
        self._f["silent"] = max(0.0, float(int(time.time() - self._tail.mtime))) if self._tail.mtime else None
        self._look_at_port(now)
        if now - self._files_looked >= (FILES_READY if self._f.get("health") == "ready" else FILES_LOADING):
            self._files_looked = now
            self._note_files()
        self._look_for_oom(now)
        if now - self._bounded >= BOUND_EVERY:
            self._bound_log()
        self._log_fields()
        for name, doc in list(self._unwritten.items()):
            self._keep(name, doc)
        self._write_state()
        self._write_origin()
        if not self._main_running and not self._members and not self._ending.active:
            self._finish()

    def _bound_log(self) -> None:
        self._bounded, self._bounded_at = self._loop.now(), self._tail.offset
        self._tail.bound()
        if self._tail.warning:
            self._trouble(self._tail.warning)

    def _log_fields(self) -> None:
        ending = self._ending.active or self._killed
        for name, value in self._log.fields().items():
            if value is None or (name == "max_model_len" and self._f.get("max_model_len")):
                continue
            if name == "first_error" and ending and not self._f.get("first_error"):
                continue  # what an engine complains of while it is being ended is no failure of its own
            self._f[name] = value

    def _note_files(self) -> None:
        """Remember what members use in /dev/shm and /tmp: when they were killed nobody else can tell whose it was."""
        used = {path for path in leftovers.used_paths(pid for pid, _ in self._members) if os.path.exists(path)}
        known = [path for path in self._scanner.origin.files if path not in used and os.path.exists(path)]
        self._scanner.origin = self._scanner.origin._replace(files=tuple((sorted(used) + known)[:MOST_FILES]))

    def _look_at_port(self, now: float) -> None:
        """Whether a member listens. The kernel's table costs 10 ms to read: only when somebody answers there, and rarely then."""
        port = self._f.get("port")
        if not isinstance(port, int):
            return
        if self._own_socket is None:
            if not ports.answers(port, self._address):
                self._f["listening"] = False
                return
        elif now - self._port_looked < PORT_EVERY:
            return
        self._port_looked = now
        inodes = ports.listening_inodes(port)
        if self._own_socket not in inodes:
            self._own_socket = None
            for inode in inodes:
                if any(ports.holds_socket(pid, {inode}) for pid, _ in self._members):
                    self._own_socket = inode
        self._f["listening"] = self._own_socket is not None

    def _look_for_oom(self, now: float) -> None:
        count = oom.kills(self._oom_files)
        if count is not None and self._oom_before is not None and count > self._oom_before:
            self._oom_rose = now
            self._oom_before = count
            self._log.note({"kind": "notice", "text": "the kernel killed a process of this control group for memory"})

    def _reap_orphans(self) -> None:
        """Adopted descendants that ended. The main process's status is left for the loop to take."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or found.si_pid == self._main_pid:
                return
            os.waitpid(found.si_pid, os.WNOHANG)

    # --------------------------------------------------------------------------------------------- what the server says

    def _log_ready(self) -> None:
        if self._probe is not None:
            self._probe.log_says_ready()

    def server_ready(self) -> None:
        self._f["health"] = "ready"
        self._f["ready_seconds"] = round(boot_now() - self._f["started_boot"], 2)
        self._log.note({"kind": "ready", "text": "answers on port %d" % self._f["port"]})
        self._samples = Lines(os.path.join(self._directory, "samples.jsonl"), SAMPLES_CAP)
        self._log_fields()
        self._write_state(sync=True)

    def server_model(self, name: str, max_model_len: Optional[int]) -> None:
        self._f["served_model"] = name
        if max_model_len is not None:
            self._f["max_model_len"] = max_model_len

    def server_smoke(self, result: Dict[str, Any]) -> None:
        self._f["smoke_tokens_per_s"] = result.get("tokens_per_s")
        self._f["smoke_seconds"] = result.get("seconds")
        fields: Dict[str, Any] = {"smoke_tokens_per_s": result.get("tokens_per_s"), "smoke_seconds": result.get("seconds")}
        if result.get("problem"):
            fields["smoke_problem"] = self._f["smoke_problem"] = result["problem"]
        merge_result(self._directory, {key: value for key, value in fields.items() if value is not None})
        self._log.note(dict({"kind": "smoke"}, **result))

    def server_metrics(self, text: bytes, boot: float, wall: float) -> None:
        from eagletui.engines.metrics import MetricsError, server_sample

        try:
            sample = server_sample(text, boot, wall, self._f.get("k"), self._spec.get("engine"))
            if sample is None or (sample.running is None and sample.generated_tokens is None):
                self.server_no_metrics("no numbers: its metrics page has none of vLLM or SGLang")
                return
            self._f["metrics_problem"] = None
            if self._samples is not None:
                self._samples.append(to_doc(sample))
        except MetricsError as error:
            self.server_no_metrics("no numbers: %s" % error)
        except OSError as error:
            self._trouble("samples.jsonl: %s" % (error.strerror or error))

    def server_no_metrics(self, why: str) -> None:
        self._f["metrics_problem"] = why

    def server_silent(self, why: Optional[str]) -> None:
        self._f["detail"] = None if why is None else "does not answer: %s" % why

    def _trouble(self, text: str) -> None:
        """Something about the supervision itself, which the job survives."""
        if self._f.get("detail") != text:
            self._f["detail"] = text

    # --------------------------------------------------------------------------------------------------------- ending

    def _main_ended(self, status: int) -> None:
        self._main_running = False
        if self._probe is not None:
            self._probe.stop()
        for _ in range(64):  # what it said last; a member that floods the log is read on by the ticks
            if not self._tail.poll():
                break
        self._log_fields()
        rc: Optional[int] = None
        if status >= 0:
            rc = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._look_for_oom(self._loop.now())
        # a SIGKILL that nobody of us sent, right after the kernel counted a kill for memory here
        killed_for_memory = rc == -9 and self._oom_rose is not None and not self._ending.active and self._ending.by is None
        if killed_for_memory and self._oom_rose is not None and self._loop.now() - self._oom_rose > 15:
            killed_for_memory = False
        self._members = self._scanner.scan()
        wall = round(time.time(), 3)
        self._f.update(
            rc=rc,
            ended=wall,
            members=len(self._members),
            member_pids=_pids(self._members),
            listening=None,
            state="oom" if killed_for_memory else ("stopping" if self._ending.active else "exited"),
        )
        ready = self._f.get("health") == "ready"
        if self._f.get("health") is not None and not self._ending.active:
            # a server that nobody ended has failed, whatever its status: vLLM ends with 0 when its engine has died
            self._f["health"] = "failed"
            if ready and not self._f.get("detail"):
                from eagletui.jobs.base import status_words

                self._f["detail"] = "ended after it was ready, though nobody here asked for it: %s" % status_words(rc)
        if killed_for_memory:
            self._f["detail"] = "killed by the kernel for memory"
        elif self._oom_rose is not None and not self._ending.active:
            self._f["detail"] = "the kernel killed a process of the job's control group for memory"
        exit_doc: Dict[str, Any] = {
            "rc": rc,
            "wall": wall,
            "boot": round(boot_now(), 3),
            "seconds": round(boot_now() - self._f["started_boot"], 3),
            "members_left": [list(key) for key in self._members],
            "oom": killed_for_memory,
            "usage": _usage(),
        }
        self._keep("exit.json", exit_doc)
        self._log.note({"kind": "ended", "text": "exit status %s" % ("unknown" if rc is None else rc)})
        if self._members and not self._ending.active:
            self._f["detail"] = _left_behind(self._members)
        self._write_state(sync=True)
        if not self._members and not self._ending.active:
            self._finish()

    def _kill_told(self, text: str) -> None:
        self._f.update(state="stopping", detail=text)
        if self._f.get("health") is not None:
            self._f["health"] = "stopping"
        if self._probe is not None:
            self._probe.stop()
        self._write_state()

    def _kill_done(self, stuck: List[Stat]) -> None:
        if stuck:
            self._f["detail"] = "cannot be ended: " + "; ".join("pid %d (%s)" % (s.pid, s.state) for s in stuck[:8])
            self._write_state(sync=True)
            return
        self._f["ended_by"] = self._ending.by or "request"
        self._f["detail"] = "ended by %s" % self._ending.by if self._ending.by else "ended on request"
        self._killed = True
        # the loop may not have reaped the main process yet: its status comes in a moment, then `_tick` finishes

    def _finish(self) -> None:
        """No process of the job is left: judge it, write the last state, end."""
        from eagletui.jobs.kinds import kind

        if self._tail.poll() or self._unwritten:
            return  # the log is not read to its end, or the disk is full: the next tick comes here again
        self._log.finish()
        self._log_fields()
        killed = self._killed
        self._f.update(members=0, member_pids=(), blocked=None, cpu=None, rss=None, silent=None)
        if self._f["state"] in ("stopping", "running"):
            self._f["state"] = "exited"
        if self._f.get("health") is not None and (killed or self._f["health"] == "stopping"):
            self._f["health"] = "gone"
        if self._f.get("detail") and not killed and str(self._f["detail"]).startswith(_LEFT):
            self._f["detail"] = None
        self._f["log_size"] = self._tail.size
        ok, why = kind(str(self._spec["kind"])).verdict(self._spec, self._f, killed)
        if not self._safely("result.json", lambda: merge_result(self._directory, {"ok": ok, "why": why})):
            return
        self._write_state(sync=True)
        self._loop.stop()

    # --------------------------------------------------------------------------------------------------------- files

    def _write_state(self, sync: bool = False) -> None:
        doc = to_doc(JobState(**self._f))
        if doc == self._written and not sync:
            return
        if self._safely("state.json", lambda: state_dir.write_json(os.path.join(self._directory, "state.json"), doc, sync)):
            self._written = doc

    def _write_origin(self) -> None:
        origin = self._scanner.origin._replace(known=frozenset(self._scanner.known))
        doc = origin.doc()
        if doc != self._origin_doc:
            path = os.path.join(self._directory, "shim.json")
            if self._safely("shim.json", lambda: state_dir.write_json(path, doc, sync=False)):
                self._origin_doc = doc

    def _keep(self, name: str, doc: Dict[str, Any]) -> None:
        """Write a file that must not be lost; while the disk is full every tick tries again."""
        if self._safely(name, lambda: state_dir.write_json(os.path.join(self._directory, name), doc)):
            self._unwritten.pop(name, None)
        else:
            self._unwritten[name] = doc

    def _safely(self, what: str, write: Any) -> bool:
        """A write that may fail (full disk): told in the next state that can be written, and tried again by the next tick."""
        try:
            write()
        except OSError as error:
            self._f["detail"] = "%s cannot be written: %s" % (what, error.strerror or error)
            return False
        return True


_LEFT = "left behind: "


def _left_behind(members: Mapping[Key, Stat]) -> str:
    return _LEFT + ", ".join("pid %d (%s)" % (stat.pid, stat.comm) for stat in list(members.values())[:12])


def _pids(members: Iterable[Key]) -> Tuple[Key, ...]:
    """The oldest members: an engine's workers start before what these start (dozens of compilers each)."""
    return tuple(sorted(members, key=lambda key: (key[1], key[0]))[:MOST_PIDS])


def _usage() -> Dict[str, float]:
    """CPU seconds and largest resident size of the ended children."""
    import resource

    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"user": round(use.ru_utime, 2), "system": round(use.ru_stime, 2), "max_rss": use.ru_maxrss * 1024}
