"""The supervisor of one job, a process of its own: starts the main process, watches it, notes what happens, carries out the kill.

It outlives the agent and the client, and lives until no process of the job is left. Its memory and CPU are kept tiny: once a
second it looks at its members, twice a second at the log; everything is written to files that any agent can read.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from eagletui.agent import bundle, groups, leftovers, oom, procfs, state_dir, syscalls
from eagletui.agent.container import Box, command_of
from eagletui.agent.ending import Ending
from eagletui.agent.fallen import Fallen
from eagletui.agent.job_lines import EVENTS_CAP, Lines
from eagletui.agent.job_log import JobLog
from eagletui.agent.kill import stuck_text
from eagletui.agent.log_tail import DEFAULT_CAP, LogTail
from eagletui.agent.loop import Loop, boot_now
from eagletui.agent.members import Key, Named, Origin, Scanner, here
from eagletui.agent.port_watch import PortWatch
from eagletui.agent.procfs import Stat
from eagletui.agent.server_probe import Rules, ServerProbe
from eagletui.agent.shim_container import Boxed
from eagletui.agent.shim_server import Served
from eagletui.agent.shim_work import Worked
from eagletui.agent.spawn import SpawnFailed, open_log, spawn
from eagletui.agent.usage import Meter
from eagletui.records.jobs import MOST_PIDS

TICK = 1.0
LOG_TICK = 0.5
LOG_TICK_TIGHT = 0.1  # the disk is nearly full, and the log is what fills it
SCAN_LOADING, SCAN_READY = 3.0, 15.0
FILES_LOADING, FILES_READY = 5.0, 30.0
BOUND_EVERY = 10.0


class Shim(Served, Boxed, Worked):
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
        self._over_before: Optional[str] = None  # the state in which the job had ended before anybody ended what it left
        self._over_why: Optional[str] = None
        self._unwritten: Dict[str, Dict[str, Any]] = {}
        self._written: Optional[Dict[str, Any]] = None
        self._origin_doc: Optional[Dict[str, Any]] = None
        self._scanned = 0.0
        self._bounded = 0.0
        self._ticks = 0
        self._files_looked = 0.0
        address, port = str((spec.get("ready") or {}).get("address") or "127.0.0.1"), spec.get("port")
        self._port = PortWatch(port, address) if isinstance(port, int) else None
        self._seen_children: Set[int] = set()
        self._failed_writes: Dict[str, str] = {}
        self._losses: Optional[str] = None
        self._terminate = False
        self._members: Dict[Key, Stat] = {}
        self._meter = Meter()
        self._fallen = Fallen()
        self._oom: Optional[oom.Watch] = None
        self._probe = None
        self._box = Box(loop, spec, self._container_runs, self._container_told) if spec.get("container") else None
        self._f = {
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
            "command": command_of(spec, self._log_path),
            "log": self._log_path,
            "phase": None,
        }
        for name in ("engine", "model", "drafter", "k", "operator", "cwd", "profile", "runner", "unit", "survival", "parent"):
            self._f[name] = spec.get(name)
        self._f["image"] = (spec.get("container") or {}).get("image")

    # ------------------------------------------------------------------------------------------------------- starting

    def start(self) -> None:
        """Start the main process. When that fails the state says why, and `started` stays False."""
        log_fd = open_log(self._log_path)
        self._open_to_container(log_fd)
        info = os.fstat(log_fd)
        self._events = Lines(os.path.join(self._directory, "events.jsonl"), EVENTS_CAP)
        self._samples = None
        self._log = JobLog(self._make_reader(), self._events, self._log_ready, self._trouble)
        cap = int(self._spec.get("log_cap") or DEFAULT_CAP)
        self._tail = LogTail(self._log_path, self._feed, cap, self._log_anew)
        group = groups.make(self._spec)
        self._scanner = (Named if self._spec.get("pipeline") else Scanner)(
            Origin(
                self._boot_id,
                self._pid_ns,
                self._pid1,
                self._own,
                None,
                (info.st_dev, info.st_ino),
                group.path,
                places=leftovers.places(self._env),
            )
        )
        # a pipeline's group may hold what its runner has started, which is ended by ladders of its own
        kill_file = None if self._spec.get("pipeline") else group.kill
        self._ending = Ending(self._loop, self._directory, self._spec, self._scanner, self._kill_told, self._kill_done, kill_file)
        self._write_state(sync=True)
        self._write_origin()
        try:
            argv, cwd = self._argv(), str(self._spec["cwd"])
            pid = spawn(argv, cwd, self._env, log_fd, self._lease_fds, group.directory, self._note_main)
        except SpawnFailed as error:
            self._f.update(state="failed_to_exec", rc=127, ended=round(time.time(), 3), detail=str(error), first_error=str(error))
            self._f.update(ok=False, outcome=str(error))
            state_dir.write_json(
                os.path.join(self._directory, "exit.json"), {"rc": 127, "error": str(error), "wall": time.time()}
            )
            self._write_state(sync=True)
            return
        finally:
            os.close(log_fd)
            self._env = {}  # the secrets are the child's now
        self._main_running, self._main_pid = True, pid
        main = self._scanner.origin.main or (pid, 0)
        server = bool(self._spec.get("server"))
        self._f.update(state="running", pid=pid, pid_start=main[1], members=1, health="loading" if server else None)
        self._write_state(sync=True)
        self._oom = oom.Watch(pid)
        self._log.note({"kind": "started", "text": "pid %d" % pid})
        if self._box is not None:
            self._box.start()
        if server and isinstance(self._spec.get("port"), int):
            self._probe = ServerProbe(self._loop, self._rules(), self, lambda: bool(self._f.get("listening")))
            self._probe.start()
        self.started = True
        self._start_watching()
        self._loop.watch_child(pid, self._main_ended)
        self._loop.call_later(LOG_TICK, self._log_tick)
        self._loop.call_later(TICK, self._tick)

    def _argv(self) -> Sequence[str]:
        """What is executed: of a pipeline our own runner, which its spec cannot name."""
        if self._spec.get("pipeline"):
            from eagletui.agent.supervisor import own_argv

            root = os.path.dirname(os.path.dirname(self._directory))
            return own_argv(root, "eagletui.agent.pipeline.main", self._directory)
        command: Sequence[str] = self._f["command"]
        return command

    def _note_main(self, pid: int) -> None:
        """Before the program may run: whoever comes after us must know which process it is."""
        stat = procfs.read_stat(pid)
        main = (pid, stat.start if stat else 0)
        self._scanner.origin = self._scanner.origin._replace(main=main)
        self._scanner.known.add(main)
        self._write_origin()

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
        waits = not self._may_read()
        more = not waits and self._tail.poll()
        if self._tail.due:
            self._bound_log()
        if not self._stopped():
            self._ending.look()
        self._loop.call_later(0 if more else LOG_TICK_TIGHT if self._tail.tight or waits else LOG_TICK, self._log_tick)

    def _stopped(self) -> bool:
        """Obey a SIGTERM; False when none came."""
        if not self._terminate:
            return False
        self._terminate = False
        # asked again while it is under way: a person does not want to wait
        by = _STOPPED if self._spec.get("unit") else "SIGTERM to the supervisor"
        if self._spec.get("survival") and not self._spec.get("unit"):
            by += ", as logind sends it at logout"
        self._ending.begin(self._ending.active, by, {})
        return True

    def _tick(self) -> None:
        self._loop.call_later(TICK, self._tick)
        now = self._loop.now()
        self._reap_orphans()
        self._ticks += 1
        if self._ticks == 3:
            bundle.BLOB = b""  # only an agent launches
            syscalls.give_back_memory()
        every = SCAN_READY if self._f.get("health") == "ready" else SCAN_LOADING
        adopted = set(self._scanner.adopted())
        if now - self._scanned >= every or not self._main_running or adopted - self._seen_children:
            self._members, self._scanned = self._scanner.scan(), now
        else:
            self._members = self._scanner.refresh()
        self._seen_children = adopted
        if self._main_running:
            self._fallen.look(self._members, now)
        usage = self._meter.look(self._members, now)
        self._f.update(
            members=usage.members,
            member_pids=_pids(self._members),
            blocked=usage.blocked,
            stopped=usage.stopped,
            cpu_top=usage.cpu_top,
            rss=usage.rss,
            cpu=usage.cpu,
            bytes_read=usage.bytes_read,
            disk_read=usage.disk_read,
            log_size=self._tail.size,
            log_floor=self._tail.floor or None,
        )
        self._f["silent"] = max(0.0, float(int(time.time() - self._tail.mtime))) if self._tail.mtime else None
        if self._port is not None:
            self._port.look(self._members, now)
            self._f["listening"] = self._port.listening
        if now - self._files_looked >= (FILES_READY if self._f.get("health") == "ready" else FILES_LOADING):
            self._files_looked = now
            self._note_files()
        self._look_for_oom(now)
        if now - self._bounded >= BOUND_EVERY:
            self._bound_log()
        self._log_fields()
        self._f.update(log=self._tail.place(), troubles=self._troubles())
        for name, doc in list(self._unwritten.items()):
            self._keep(name, doc)
        self._write_origin()  # first: whoever comes after us must find those that the state speaks of
        self._write_state()
        if not self._main_running and not self._members and not self._ending.active and self._ending.settle():
            self._finish()

    def _bound_log(self) -> None:
        self._bounded = self._loop.now()
        self._tail.bound()

    def _note(self, text: str) -> None:
        self._log.note({"kind": "notice", "text": text})

    def _log_anew(self, what: str) -> None:
        """Somebody, or we, cut the log: said where the log's meaning is kept, for nothing in it tells."""
        self._log.note({"kind": "notice", "text": what})

    def _troubles(self) -> Tuple[str, ...]:
        """What needs a person although the job goes on."""
        port = self._port.stranger if self._port is not None else None
        files = next(iter(self._failed_writes.values()), None)
        box = "container: " + self._box.stays if self._box is not None and self._box.stays else None
        alone = self._fallen.trouble(self._loop.now()) if self._main_running and not self._ending.active else None
        memory = "memory: " + self._oom.text if self._oom is not None and self._oom.text else None
        return tuple(
            text for text in (self._tail.trouble, port, files, memory, self._losses, box, alone, *self._work_troubles()) if text
        )

    def _log_fields(self) -> None:
        ending = self._ending.active or self._killed
        for name, value in self._log.fields().items():
            if value is None or (name == "max_model_len" and self._f.get("max_model_len")):
                continue
            if name in ("first_error", "causes") and ending and not self._f.get(name):
                continue  # what an engine complains of while it is being ended is no failure of its own
            self._f[name] = value

    def _look_for_oom(self, now: float) -> None:
        if self._oom is not None and self._oom.look((pid for pid, _ in self._scanner.known), now):
            self._log.note({"kind": "notice", "text": self._oom.text})

    def _reap_orphans(self) -> None:
        """Adopted descendants that ended. The main process's status is left for the loop to take."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None or self._loop.watches(found.si_pid):
                return
            pid, status = os.waitpid(found.si_pid, os.WNOHANG)
            if self._box is not None:
                self._box.reaped(pid, status)

    # --------------------------------------------------------------------------------------------------- what goes wrong

    def _trouble(self, text: str) -> None:
        """Something about the supervision itself, which the job survives."""
        self._losses = "files: " + text

    # --------------------------------------------------------------------------------------------------------- ending

    def _main_ended(self, status: int) -> None:
        self._stopped()  # whoever signals a whole session reaches the job and us at once: then it was ended, and did not fail
        if self._box is not None:
            self._box.client_ended(status, self._over)
            return
        rc: Optional[int] = None
        if status >= 0:
            rc = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._over(rc)

    def _over(self, rc: Optional[int], oom_told: bool = False, note: Optional[str] = None) -> None:
        """The main process has ended with this status (None: unknown)."""
        self._main_running = False
        if self._probe is not None:
            self._probe.stop()
        for _ in range(64):  # what it said last; a member that floods the log is read on by the ticks
            if not self._tail.poll():
                break
        self._log_fields()
        self._container_ended(note)
        self._look_for_oom(self._loop.now())
        memory = self._oom.text if self._oom is not None else None
        # nobody of us sent that signal, and the kernel has just counted a kill for memory here
        unasked = not self._ending.active and self._ending.by is None
        killed_for_memory = unasked and (oom_told or (self._oom is not None and self._oom.ended(rc, self._loop.now())))
        self._log.ended(rc, killed_for_memory, not unasked)
        first = self._fallen.first(self._loop.now())
        self._members = self._scanner.scan()
        wall = round(time.time(), 3)
        self._f.update(
            rc=rc,
            ended=wall,
            members=len(self._members),
            member_pids=_pids(self._members),
            listening=None,
            troubles=self._troubles(),
            state="oom" if killed_for_memory else ("stopping" if self._ending.active else "exited"),
        )
        ready = self._f.get("health") == "ready"
        if self._f.get("health") is not None and not self._ending.active:
            # a server that nobody ended has failed, whatever its status: vLLM ends with 0 when its engine has died
            self._f["health"] = "failed"
            words = None
            if ready:
                from eagletui.jobs.base import status_words

                words = "ended after it was ready, though nobody here asked for it: %s" % status_words(rc)
            self._f["detail"] = "; ".join(text for text in (words, first, self._f.get("detail")) if text) or None
        if killed_for_memory:
            self._f["detail"] = memory or "killed by the kernel for memory"
            self._f["first_error"] = self._f.get("first_error") or self._f["detail"]
        elif memory is not None and unasked:
            self._f["detail"] = memory
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
        self._over_why = self._f.get("detail")
        if self._members and not self._ending.active:
            self._f["detail"] = "; ".join(text for text in (_left_behind(self._members), self._over_why) if text)
        self._write_state(sync=True)
        if not self._members and not self._ending.active and self._ending.settle():
            self._finish()

    def _kill_told(self, text: str) -> None:
        if self._f["state"] != "stopping":
            # the job itself had ended, and only what it left behind is being ended: that does not make its end a wanted one
            self._over_before = None if self._main_running else self._f["state"]
        self._f.update(state="stopping", detail=text)
        if self._f.get("health") is not None and self._over_before is None:
            self._f["health"] = "stopping"
        if self._probe is not None:
            self._probe.stop()
        self._write_state()

    def _kill_done(self, stuck: List[Stat]) -> None:
        if stuck:
            self._f["detail"] = "cannot be ended: " + "; ".join(stuck_text(stat) for stat in stuck[:8])
            self._write_state(sync=True)
            return
        by = "ended by %s" % self._ending.by if self._ending.by else "ended on request"
        if self._ending.repeated:
            by += "; a first SIGTERM did nothing, so it was sent again"
        if self._ending.alone:
            by += "; its other processes had ended before, and it went on without them"
        if self._over_before is not None:
            self._f["detail"] = "; ".join(text for text in (self._over_why, "what it left behind was " + by) if text)
            return
        self._f["ended_by"] = self._ending.by or "request"
        self._f["detail"] = by
        self._killed = True
        # the loop may not have reaped the main process yet: its status comes in a moment, then `_tick` finishes

    def _finish(self) -> None:
        """No process of the job is left: judge it, write the last state, end."""
        if self._tail.poll() or self._unwritten or (self._box is not None and not self._box.clear()):
            return  # not read to its end, the disk is full, or the container is being removed: the next tick comes here again
        self._log.finish()
        self._log_fields()
        killed = self._killed
        self._f.update(members=0, member_pids=(), blocked=None, stopped=None, cpu=None, cpu_top=None, rss=None, silent=None)
        if self._f["state"] in ("stopping", "running"):
            self._f["state"] = self._over_before or "exited"
        if self._f.get("health") is not None and (killed or self._f["health"] == "stopping"):
            self._f["health"] = "gone"
        if self._f.get("detail") and not killed and str(self._f["detail"]).startswith(_LEFT):
            self._f["detail"] = self._over_why
        self._f.update(log_size=self._tail.size, log_floor=self._tail.floor or None)
        self._f["log"] = self._tail.place()
        if str(self._f["log"]).startswith("/proc/"):
            self._f["log"] = None  # deleted: it goes with us
        if not self._judge(killed):
            return
        self._f["troubles"] = self._troubles()
        self._write_state(sync=True)
        self._loop.stop()


_LEFT = "left behind: "
_STOPPED = "a stop of its unit (systemctl stop, or the host's shutdown)"


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
