"""One server that was found, while somebody looks: its log, its port, its scrapes, what its processes use. Nothing is written
on its host, no prompt is sent to it, and it is scraped by one of us only."""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, Optional, Tuple

from eagletui.agent import ports, procfs
from eagletui.agent.adopt import network
from eagletui.agent.adopt.engine_log import EngineSource
from eagletui.agent.adopt.found import LEFTOVER, Found
from eagletui.agent.adopt.holder import DOCKER, PODMAN
from eagletui.agent.adopt.inspect import Container, container_of
from eagletui.agent.adopt.journal import JournalSource
from eagletui.agent.adopt.loading import LoadLog
from eagletui.agent.adopt.logs import FileSource, Source
from eagletui.agent.adopt.memory import MemoryFile
from eagletui.agent.adopt.output import ENGINE, FILE, JOURNAL, output_of
from eagletui.agent.loop import Loop, boot_now
from eagletui.agent.members import Key, cgroup_pids
from eagletui.agent.port_watch import PortWatch
from eagletui.agent.procfs import Stat
from eagletui.agent.server_probe import Owner, Rules, ServerProbe
from eagletui.agent.tool import Said, Tool
from eagletui.agent.usage import Meter
from eagletui.engines.metrics import MetricsError, server_sample
from eagletui.engines.readiness import RULES
from eagletui.records import to_doc
from eagletui.records.jobs import MOST_PIDS

SAMPLES_CAP = 4 << 20
PORT_EVERY = 3.0
WARM = 30.0
"""Seconds of listening after which SGLang's first request is over."""
MEMBERS_EVERY = 2.0
CLOCKS = 0.05
"""Seconds by which a process's start may seem later than its first line: it is told in ticks, and by another clock."""
LAST_WORDS = 10.0
"""Seconds after its end in which a log may still bring what it had said: the journal and a container's engine take a while."""
_ANYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound


class Watched(Owner):
    """``found`` as the processes show it; `renew` with each later look, `tick` about once a second, `ended` when it has gone."""

    def __init__(self, loop: Loop, found: Found, chain: Tuple[Stat, ...], log: Callable[[str], None]) -> None:
        self._loop, self.found, self._chain, self._complain = loop, found, chain, log
        self._f: Dict[str, Any] = found.state()
        self._f["started"] = float(int(found.started))  # worked out anew by each agent: without the noise of its clock
        self._members: Dict[Key, Stat] = {}
        self._inner: Dict[Key, int] = {}
        self._meter = Meter()
        self._metered = self._looked_at_port = float("-inf")
        self._listening_since = loop.now()
        self._probe: Optional[ServerProbe] = None
        self._samples: Optional[MemoryFile] = None
        self._source: Optional[Source] = None
        self._log_problem: Optional[str] = None
        self._closed = False
        self.over: Optional[float] = None
        self._address = self._address_of(found)
        self._through: Optional[int] = None
        self._sure = True
        self._port = found.facts.port if found.facts is not None else 0
        self._listening = False
        self._ports: Optional[PortWatch] = None
        self._read = LoadLog(found.started, self._log_ready)
        if found.main is None:
            self._leftover()
            return
        self._f["health"] = "loading"
        self._begin()

    def _begin(self) -> None:
        self._start_port()
        self._start_log()
        self._look_at_members(self._loop.now())
        self._look_at_port(self._loop.now())
        if self._listening:
            self._f["health"] = "ready"  # vLLM listens only then; the probe says so of SGLang within seconds, or takes it back
        if self._through is None:
            self._start_probe(self._port)
        if self.found.holder.kind in (DOCKER, PODMAN):
            self._inspect()
        elif not self._sure:
            self.server_no_metrics(
                "no numbers: whether its port %d is this host's cannot be seen; log in as its user or as root" % self._port
            )
        elif self._through is not None:
            self.server_no_metrics("no numbers: it is in a network of its own, and its port %d is not this host's" % self._port)

    # --------------------------------------------------------------------------------------------------------- starting

    @staticmethod
    def _address_of(found: Found) -> str:
        host = found.facts.host if found.facts is not None else ""
        return "127.0.0.1" if host in _ANYWHERE else "127.0.0.1" if host == "localhost" else host

    def _start_port(self) -> None:
        self._through, self._sure = _network_of(self.found)
        if self._through is not None:
            self._f.pop("port", None)  # not this host's: what answers there is somebody else
        elif self._port:
            self._ports = PortWatch(self._port, self._address)

    def _start_log(self) -> None:
        found = self.found
        output = output_of(found, self._chain)
        try:
            if output.kind == FILE:
                self._source = FileSource(self._loop, output.path, output.name, self._read.feed, self._read.jumped)
            elif output.kind == JOURNAL:
                holder = found.holder
                self._source = JournalSource(
                    self._loop, found.id, str(holder.unit), holder.unit_uid, found.started, self._read.feed
                )
            elif output.kind == ENGINE:
                self._source = EngineSource(self._loop, found.id, found.holder, self._holder_started(), self._read.feed)
        except OSError as error:
            output = output._replace(problem="its log cannot be gathered here: %s" % (error.strerror or error))
        self._log_problem = output.problem

    def _holder_started(self) -> float:
        """When the oldest process of the container began: its engine's log may hold earlier runs."""
        oldest = min([start for _, start in self.found.members], default=0)
        return self.found.started - self.found.started_boot + oldest / procfs.CLOCK_TICKS - CLOCKS

    def _inspect(self) -> None:
        holder = self.found.holder
        if holder.owner is not None and holder.owner != os.geteuid():
            return  # of another user's engine we know what /proc says
        Tool(self._loop, [holder.kind, "inspect", str(holder.container)], self._inspected, 10.0)

    def _inspected(self, said: Said) -> None:
        if self._closed:
            return
        box = container_of(said.out) if said.ok else Container()
        if box.name:
            self._f["name"] = box.name
        if box.image:
            self._f["image"] = box.image
        if not said.ok:
            self._f["detail"] = "%s tells nothing of its container: %s" % (
                self.found.holder.kind,
                said.why(self.found.holder.kind),
            )
        if self._through is not None:
            self._reach(box)

    def _reach(self, box: Container) -> None:
        """Find the way into a network of its own: a published port, else its address on this host's bridge."""
        published = next(((address, port) for inner, address, port in box.ports if inner == self._port), None)
        if published is not None:
            self._address, self._f["port"] = published
            self._start_probe(published[1])
        elif box.address:
            self._address = box.address
            self._f["detail"] = "its port %d is not published: from this host it answers at %s" % (self._port, box.address)
            self._start_probe(self._port)
        else:
            self.server_no_metrics("no numbers: its port %d cannot be reached from this host" % self._port)

    def _start_probe(self, port: int) -> None:
        if not port or self._closed or self.found.main is None:
            return
        try:
            self._samples = MemoryFile(self.found.id + ".samples", SAMPLES_CAP)
        except OSError as error:
            self._f["metrics_problem"] = "no numbers: they cannot be gathered here: %s" % (error.strerror or error)
            return
        # only questions that cost the engine nothing: SGLang's /health and /health_generate run a token
        rules = Rules(
            port,
            health=RULES[self.found.engine].models,
            after_log=self.found.engine == "sglang" and self._source is not None,
            smoke=False,
            version=RULES[self.found.engine].version,
            poll=1.0,
            address=self._address,
        )
        self._probe = ServerProbe(self._loop, rules, self, lambda: self._listening)
        if self._read.ready:
            self._probe.log_says_ready()
        self._probe.start(0.0)

    # ------------------------------------------------------------------------------------------------------------ turns

    @property
    def _settled(self) -> bool:
        return self._source is None or self._source.settled

    @property
    def loading(self) -> bool:
        return self.over is None and self._f.get("health") == "loading"

    def asked_to_end(self, asked: bool) -> None:
        """Somebody ends it with eagletui just now: what it says then is no failure."""
        self._read.asked = self._read.asked or asked

    @property
    def died(self) -> bool:
        """The server itself has ended since the last look at all processes."""
        return self.over is None and self.found.main is not None and not procfs.alive(*self.found.main)

    def renew(self, found: Found, chain: Tuple[Stat, ...]) -> None:
        """The same server, as it is now: other members, or dead with some of them left."""
        died = self.found.main is not None and found.main is None
        self.found, self._chain = found, chain
        if died:
            self._stop()
            self._leftover()

    def note(self, text: str) -> None:
        """Something to tell of it in words."""
        self._f["detail"] = text

    def _leftover(self) -> None:
        self._f.update(state=LEFTOVER, health="gone", listening=None, phase=None)
        self._f.pop("pid", None)
        self._f.pop("pid_start", None)
        self._look_at_members(self._loop.now())
        self._name_leftovers()
        self._log_problem = self._log_problem or "the server is dead, and with it what led to its log"

    def _name_leftovers(self) -> None:
        names = ["pid %d (%s)" % (stat.pid, stat.comm) for stat in list(self._members.values())[:8]]
        self._f["detail"] = "the server is dead; left of it: %s" % ", ".join(names)

    def tick(self, now: float) -> None:
        """Look at what changes."""
        if self.over is not None:
            if now - self.over < LAST_WORDS and self._source is not None:
                self._source.poll()
                self._judge_end()
            return
        if self._source is not None:
            self._source.poll()
        if now - self._metered >= MEMBERS_EVERY:
            self._look_at_members(now)
        if self.found.main is None:
            self._name_leftovers()
            return
        self._look_at_port(now)
        self._f.update(self._read.fields(self._f.get("health") == "ready"))

    def _look_at_members(self, now: float) -> None:
        self._metered = now
        pids = dict(self.found.members)
        if self.found.holder.cgroup is not None:
            pids.update(dict.fromkeys((p for p in cgroup_pids(self.found.holder.cgroup) if p not in pids), -1))
        members = {}
        for pid, start in pids.items():
            stat = procfs.read_stat(pid)
            if stat is not None and not stat.dead and start in (-1, stat.start):
                members[(pid, stat.start)] = stat
        self._members = dict(sorted(members.items(), key=lambda item: (item[0][1], item[0][0])))
        usage = self._meter.look(self._members, now)
        oldest = list(self._members)[:MOST_PIDS]
        known = {key: self._inner[key] if key in self._inner else _inner(key[0]) for key in oldest}
        self._inner = known
        self._f.update(
            members=usage.members,
            member_pids=[list(key) for key in oldest],
            inner_pids=[[pid, known[(pid, start)]] for pid, start in oldest if known[(pid, start)] != pid],
            blocked=usage.blocked,
            stopped=usage.stopped,
            rss=usage.rss,
            cpu=usage.cpu,
            cpu_top=usage.cpu_top,
            bytes_read=usage.bytes_read,
        )

    def _look_at_port(self, now: float) -> None:
        if not self._port or now - self._looked_at_port < (1.0 if not self._listening else PORT_EVERY):
            return
        if not self._listening:
            self._listening_since = now
        elif self._probe is not None and self._settled and now - self._listening_since > WARM:
            self._probe.log_says_ready()  # its log no longer holds that line; the warm-up request is over by now
        self._looked_at_port = now
        if self._ports is None or not _descriptors_shown(self.found):
            self._listening = bool(ports.listening_inodes(self._port, self._through))
        else:
            self._ports.look(self._members, now)
            self._listening = self._ports.listening
        self._f["listening"] = self._listening

    # ------------------------------------------------------------------------------------------- what the server says

    def _log_ready(self) -> None:
        if self._source is not None:
            self._source.enough()
        if self._probe is not None:
            self._probe.log_says_ready()

    def server_ready(self) -> None:
        was_loading = self._f.get("health") == "loading"
        self._f["health"] = "ready"
        self._f.update(self._read.fields(True))
        if was_loading and self._f.get("ready_seconds") is None:
            self._f["ready_seconds"] = round(boot_now() - self.found.started_boot, 2)

    def server_model(self, name: str, max_model_len: Optional[int]) -> None:
        self._f["served_model"] = name
        if max_model_len is not None:
            self._f["max_model_len"] = max_model_len

    def server_version(self, version: str) -> None:
        self._f["engine_version"] = self._f.get("engine_version") or version

    def server_smoke(self, result: Dict[str, Any]) -> None:
        raise AssertionError("no prompt is sent to a server that is not ours")

    def server_metrics(self, text: bytes, boot: float, wall: float) -> None:
        try:
            sample = server_sample(text, boot, wall, self._f.get("k"), self.found.engine)
        except MetricsError as error:
            self.server_no_metrics("no numbers: %s" % error)
            return
        if sample is None or (sample.running is None and sample.generated_tokens is None):
            self.server_no_metrics("no numbers: its metrics page has none of vLLM or SGLang")
            return
        self._f["metrics_problem"] = None
        if self._samples is not None:
            self._samples.append(dict(to_doc(sample), job=self.found.id))

    def server_no_metrics(self, why: str) -> None:
        self._f["metrics_problem"] = why

    def server_silent(self, why: Optional[str]) -> None:
        self._f["detail"] = None if why is None else "does not answer: %s" % why

    # ----------------------------------------------------------------------------------------------------------- ending

    def ended(self) -> None:
        """No process of it is left."""
        if self.over is not None:
            return
        self._stop()
        self._f.update(
            state="exited",
            ended=float(int(time.time())),
            members=0,
            detail="ended; its exit status is not known: eagletui had not started it",
            phase=None,
        )
        for name in ("member_pids", "inner_pids", "blocked", "stopped", "rss", "cpu", "cpu_top", "listening", "pid", "pid_start"):
            self._f.pop(name, None)
        self.over = self._loop.now()
        self._judge_end()

    def _judge_end(self) -> None:
        """Its log says whether it has failed; the last of it may come a moment after its end."""
        self._read.ended()
        told = self._read.fields(self._read.ready)
        self._f.update({name: told[name] for name in ("first_error", "causes", "phases") if name in told})
        self._f["health"] = "failed" if self._read.failed else "gone"

    def _stop(self) -> None:
        if self._probe is not None:
            self._probe.stop()
            self._probe = None
        if self._source is not None:
            self._source.poll()  # what it said last

    def close(self) -> None:
        """Nobody looks any more, or it is long over."""
        self._closed = True
        self._stop()
        for thing in (self._source, self._samples):
            if thing is not None:
                thing.close()
        self._source = self._samples = None

    # --------------------------------------------------------------------------------------------------------- document

    def document(self) -> Dict[str, Any]:
        """The `JobState` document now."""
        doc = dict(self._f)
        source = self._source
        if source is not None:
            doc.update(log=source.path, log_size=source.size, log_floor=source.floor or None)
            if source.mtime is not None and self.over is None:
                now = time.time()  # a log that was there before is silent since the start only
                age = max(0.0, min(now - source.mtime, now - self.found.started))
                doc.update(log_age=round(age, 1) if age < 5 else float(int(age)), silent=float(int(age)))
        doc["log_problem"] = source.problem if source is not None and source.problem else self._log_problem
        if self._samples is not None:
            doc["samples"] = self._samples.path
        return {key: value for key, value in doc.items() if value is not None and value != []}


def _network_of(found: Found) -> Tuple[Optional[int], bool]:
    """(the server's pid when it is, or may be, in another network than we are: through it that one's sockets are seen;
    whether that is certain)."""
    assert found.main is not None
    pid = found.main[0]
    same = network.is_ours(pid)
    return (None if same else pid), same is not None


def _inner(pid: int) -> int:
    numbers = procfs.nspid(pid)
    return numbers[-1] if numbers else pid


def _descriptors_shown(found: Found) -> bool:
    """Whether we may see which sockets the server holds."""
    assert found.main is not None
    return os.access("%s/%d/fd" % (procfs.PROC, found.main[0]), os.R_OK)
