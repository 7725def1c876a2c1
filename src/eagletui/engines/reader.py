"""Reads an engine's log as it grows: phases, progress, facts, readiness, statistics, the first real error.

`LogReader` takes bytes in any pieces and finds out by itself which engine writes. The same code runs in a job's supervisor
on the host, in the client and for a file on disk.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List, Optional, Set, Tuple

from eagletui.engines import sglang_log, vllm_log
from eagletui.engines.bars import parse_bar
from eagletui.engines.diagnosis.judge import End, judge, stuck_causes
from eagletui.engines.diagnosis.witness import Notes
from eagletui.engines.events import Event, Failure, Summary, phases_json
from eagletui.engines.failure import FailureTracker
from eagletui.engines.failure_words import EARLY_WORDS, GAVE_UP, STARTS, WORDS, suspects, suspicious
from eagletui.engines.log_clock import LogClock
from eagletui.engines.state import LoadState
from eagletui.engines.stream import HEADER_START, Line, LineSplitter, clean, pieces, split_header
from eagletui.records import Cause, Phase

__all__ = ["LogClock", "LogReader", "phases_json", "read_log"]

Handler = Callable[[LoadState, bytes], None]

_KEY = 7
SURE = 0.5
"""Confidence from which a cause is told before the first error's own text was read."""


def _table() -> Dict[bytes, List[Tuple[bytes, Handler]]]:
    table: Dict[bytes, List[Tuple[bytes, Handler]]] = {}
    for prefix, handler in (*vllm_log.RULES, *sglang_log.RULES):
        table.setdefault(prefix[:_KEY], []).append((prefix, handler))
    for rules in table.values():
        rules.sort(key=lambda rule: -len(rule[0]))  # the longest start that fits is meant
    return table


_RULES = _table()
_SPACE, _BRACKET, _CLOSING = 0x20, 0x5B, 0x29
_HEADER_MAX = 120
_UVICORN = b"INFO:     "
_UVICORN_KEY = _UVICORN[:_KEY]
_HINTS = (
    (b"/vllm/", "vllm"),
    (b"usage: vllm", "vllm"),
    (b"vllm: error", "vllm"),
    (b"vllm serve: error", "vllm"),
    (b"VLLM_", "vllm"),
    (b"/sglang/", "sglang"),
    (b"sglang serve: error", "sglang"),
    (b"launch_server.py: error", "sglang"),
)


_EARLY = (*WORDS, *EARLY_WORDS, *(mark for mark, _ in _HINTS))
_QUIET = b"OG"
"""The last letters of the levels INFO, WARNING and DEBUG."""


class LogReader:
    """One engine log, read from ``offset`` on.

    ``started`` is the boot time at which the process was started; with it the silent imports before the first line count
    as the phase spawn. Give `feed` the boot time at which the bytes came while reading live: then phases are timed by
    arrival (log stamps have one second's resolution); without it they are timed by the log's own stamps.
    """

    def __init__(self, offset: int = 0, started: Optional[float] = None) -> None:
        self._lines = LineSplitter(offset)
        self._state = LoadState()
        self._notes = Notes(self._place_now, self._line_of)
        self._failure = FailureTracker(self._phase_now, self._line_of, self._notes)
        self._judged = (-1, -1)
        self._clock = LogClock()
        self._zero: Optional[float] = started
        self._now = 0.0
        self._live = started is not None
        self._chunk = b""
        self._chunk_offset = offset
        self._chunk_line = 0
        self._counted = (0, 0)
        self._hot = True
        self._stamps: Set[bytes] = set()
        self._headers: Dict[bytes, Tuple[Optional[bytes], Optional[bytes], Optional[bytes]]] = {}
        self._last_stamp: Optional[bytes] = None
        self._failed: Optional[Failure] = None
        self._told: Optional[int] = None
        self._causes: Tuple[Cause, ...] = ()
        self._alerted: Optional[str] = None
        self._restarts = 0
        self._interrupted = self._was_ready = self._was_stopping = self._begun = False
        if started is not None:
            self._state.enter("spawn")

    # --------------------------------------------------------------------------------------------------------- reading

    def feed(self, data: bytes, boot: Optional[float] = None) -> List[Event]:
        """Read more bytes; returns what they said. ``boot`` is the time of their arrival (seconds since the host's boot)."""
        if boot is not None:
            if self._zero is None:
                self._zero = boot
            self._live = True
            self._now = max(self._now, boot - self._zero)
        self._chunk_offset, self._chunk, self._counted = self._lines.offset, data, (0, 0)
        lines = self._lines.feed(data)
        self._read(lines, data)
        if self._failure.busy:
            self._failure.number()
        self._chunk_line += data.count(b"\n")
        self._chunk, self._counted = b"", (0, 0)
        self._chunk_offset += len(data)
        return self._take()

    def finish(self) -> List[Event]:
        """The log is complete: read its last line even without a line end."""
        self._read(self._lines.finish(), b"")
        self._judge(final=True)
        return self._take()

    def _take(self) -> List[Event]:
        events, self._state.events = self._state.events, []
        return events

    def _read(self, lines: List[Line], data: bytes) -> None:
        """The hot loop. A line that no rule wants, of a second already seen, is left again without a function call."""
        start, rules, stamps, failure = HEADER_START, _RULES, self._stamps, self._failure
        dirty = b"\x1b" in data or b"\0" in data
        early = self._state.engine is None
        found = suspects(data, _EARLY if early else WORDS)
        found.append(1 << 62)
        at_hot, base = 0, self._chunk_offset
        next_hot = base + found[0]
        first = True
        for offset, raw, _cut in lines:
            if first:
                # its beginning may have come with an earlier piece, whose words were looked for before it was whole
                first = False
                line = clean(raw)
                hot = suspicious(line, self._state.engine is None)
                while next_hot < offset + len(raw):
                    at_hot += 1
                    next_hot = base + found[at_hot]
                self._line(offset, line, hot)
                failure = self._failure
                continue
            line = clean(raw) if dirty else raw
            if next_hot < offset + len(raw):
                while next_hot < offset + len(raw):
                    at_hot += 1
                    next_hot = base + found[at_hot]
                self._line(offset, line, not early or suspicious(line, self._state.engine is None))
                failure = self._failure
                continue
            if not failure.busy and line:
                if line[0] in start:
                    end = line.find(b"] ", 0, _HEADER_MAX)
                    if end > 0:
                        key = line[end + 2 : end + 9]
                        if line[0] == _BRACKET:
                            if line[1:20] in stamps:
                                if key == _UVICORN_KEY:
                                    if line[end + 12 : end + 13].isdigit():
                                        continue  # a request that was answered
                                elif key not in rules and key[:1] > b" " and line[20:21] != b".":
                                    continue
                        elif key not in rules and key[:1] > b" ":
                            at = line.rfind(b" [", 0, end)
                            if line[at - 14 : at] in stamps and line[at - 16] in _QUIET and line.find(b"|", 0, at) < 0:
                                continue
                    else:
                        at = line.find(_UVICORN, 0, _HEADER_MAX)
                        if at >= 0 and line[at + 10 : at + 11].isdigit() and (at == 0 or line[at - 2] == _CLOSING):
                            continue
                elif (
                    line[:_KEY] not in rules
                    and line[:4] not in STARTS
                    and b"%" not in line
                    and (b"] " not in line or b" NCCL INFO " in line)
                    and b"pid=" not in line
                ):
                    continue
            elif line[:1] == b" " and failure.follow(offset, None, line):
                continue
            elif line[:1] == b"(":
                end = line.find(b"] ", 0, _HEADER_MAX) + 2
                if line[end : end + 1] == b" ":
                    known = self._headers.get(line[:end])
                    if known is not None and known[1] == b"ERROR" and failure.follow(offset, known[0], line[end:]):
                        continue
            self._line(offset, line, line[:4] in STARTS)
            failure = self._failure

    def _line(self, offset: int, line: bytes, hot: bool) -> None:
        """One cleaned line that may matter; ``hot`` when it holds a word of a failure."""
        if not line:
            return
        self._hot = hot
        process = level = stamp = None
        body = 0
        if line[0] in HEADER_START:
            # the same header comes many times within a second
            end = line.find(b"] ", 0, _HEADER_MAX) + 2
            known = self._headers.get(line[:end]) if end > 1 else None
            if known is not None:
                process, level, stamp = known
                body = end
            elif not line.startswith(_UVICORN):
                process, level, stamp, body = split_header(line)
                if body == end and stamp is not None:
                    if len(self._headers) > 2048:
                        self._headers.clear()
                    self._headers[line[:end]] = (process, level, stamp)
        if stamp is None and (line.find(b"pid=", body) >= 0 or line.find(b"] ", body) >= 0):
            for at, piece, (process, level, stamp, body) in pieces(line, offset):
                self._record(at, piece[body:], process, level, stamp)
        else:
            self._record(offset, line[body:] if body else line, process, level, stamp)

    def _record(
        self, offset: int, message: bytes, process: Optional[bytes], level: Optional[bytes], stamp: Optional[bytes]
    ) -> None:
        if not message:
            return
        s = self._state
        if stamp is not None and stamp != self._last_stamp:
            self._last_stamp = stamp
            if stamp not in self._stamps:
                if len(self._stamps) > 512:
                    self._stamps.clear()
                self._stamps.add(stamp)
            if not self._live:
                self._stamp(stamp)
            if s.engine is None and s.hint is None:
                s.hint = "sglang" if len(stamp) >= 19 else "vllm"
        s.offset, s.process, s.time = offset, process, self._now
        found = _RULES.get(message[:_KEY])
        known = False
        if found is not None:
            for prefix, handler in found:
                if message.startswith(prefix):
                    handler(s, message)
                    known = True
                    break
        elif message[0] == _SPACE and level == b"INFO" and s.ready_at is None and b"\xe2\x96" in message:
            vllm_log.logo(s, message)
        if known:
            pass
        elif message.startswith(_UVICORN):
            self._uvicorn(message)
        elif stamp is None:
            self._bare(message, process)
        if s.restarts != self._restarts:
            self._restart()
        elif s.ready_at is not None and not self._was_ready:
            self._became_ready()
        elif s.stopping and not self._was_stopping:
            self._stopped()
        elif not self._begun and s.engine is not None:
            self._begun = True
            self._unfail()  # a script's own complaints before it started the engine
        failure = self._failure
        error = level == b"ERROR" or level == b"CRITICAL"
        if level == b"WARNING" and self._hot and GAVE_UP.search(message) is not None:
            error = True  # vLLM only warns when its core has vanished
        # what is logged as no error tells of none, and a rule knows what its line means
        told = self._hot and level is None and not known and message[0] != _SPACE
        if failure.busy or error or told:
            # SGLang's header has no level, and stands before the first line of a record only
            failure.line(offset, process, message, error, stamp is None, level is None)
            self._judge()

    def _bare(self, message: bytes, process: Optional[bytes]) -> None:
        s = self._state
        if s.engine is None and s.hint is None:
            self._guess(message, process)
        if s.ready_at is None and b"%" in message:
            bar = parse_bar(message.lstrip())
            if bar is not None:
                s.bar(bar)

    def _guess(self, message: bytes, process: Optional[bytes]) -> None:
        """A hint at the engine from a line without a header, until a line that only one of them prints."""
        if process is not None and process.startswith((b"Worker", b"EngineCore", b"APIServer", b"VllmWorker")):
            self._state.hint = "vllm"
            return
        for mark, engine in _HINTS:
            if mark in message:
                self._state.hint = engine
                return

    def _uvicorn(self, message: bytes) -> None:
        s = self._state
        if message.startswith(b"Application startup complete", 10):
            if (s.engine or s.hint) == "sglang":
                s.enter("warmup")  # SGLang opens its port before the first request has run
            elif (s.engine or s.hint) == "vllm":
                s.ready("Application startup complete.")
        elif message.startswith(b"Shutting down", 10) or message.startswith(b"Finished server process", 10):
            s.stop(message[10:].decode("utf-8", "replace"))

    def _stamp(self, stamp: bytes) -> None:
        seconds = self._clock.seconds(stamp)
        if seconds is None:
            return
        if self._zero is None:
            self._zero = seconds
        # lines of several processes are not quite in order
        self._now = max(self._now, seconds - self._zero)

    def _restart(self) -> None:
        self._restarts = self._state.restarts
        self._notes = Notes(self._place_now, self._line_of)
        self._failure = FailureTracker(self._phase_now, self._line_of, self._notes)
        self._judged = (-1, -1)
        self._failed = self._told = self._alerted = None
        self._causes = ()
        self._stamps.clear()
        self._interrupted = self._was_ready = self._was_stopping = False
        if not self._live:
            self._zero = self._clock.value  # stamps may even go back, when logs were joined
        elif self._zero is not None:
            self._zero += self._now
        self._now = 0.0
        self._state.time = 0.0
        for entry in self._state.phases:
            entry.start, entry.end = 0.0, None if entry.end is None else 0.0

    # -------------------------------------------------------------------------------------------------------- judgement

    def _place_now(self) -> Tuple[Optional[str], Optional[str]]:
        """The phase and the engine, for what only means something there."""
        phases = self._state.phases
        return (phases[-1].id if phases else None), self.engine

    def _phase_now(self) -> Tuple[Optional[str], Optional[str]]:
        phases = self._state.phases
        return (phases[-1].id, phases[-1].role) if phases else (None, None)

    def _judge(self, final: bool = False) -> None:
        failure, s = self._failure, self._state
        if failure.interrupted and not self._interrupted:
            self._interrupted = True
            self._unfail()
            s.stop("interrupted")
        if failure.fatal is None or (s.stopping and self._failed is None):
            return
        seen = (failure.changes, self._notes.changes)
        if seen != self._judged:
            self._judged = seen
            now = failure.failure()
            if now != self._failed:
                self._failed = now
                s.close()
            self._causes = judge(now, failure.root, self._notes.hits, s.version)
        elif not final:
            return
        # a wrapper comes before its cause's traceback has been read: it is told only if nothing better has come by the end
        if self._failed is not None and self._told != self._failed.offset and (final or failure.settled):
            self._told = self._failed.offset
            s.emit("failure", value=self._failed, text=self._failed.text)
        top = self._causes[0] if self._causes else None
        if top is not None and not final and top.evidence and failure.grows(top.evidence[0].offset):
            return  # its text has further lines, and they say what the first one does not
        if top is not None and top.id != self._alerted and (final or failure.settled or top.confidence >= SURE):
            self._alerted = top.id
            s.emit("alert", top.id, value=self._causes, text=top.title)

    def _unfail(self) -> None:
        """What seemed a failure was none: forget it."""
        if self._failed is not None or self._failure.fatal is not None:
            self._failure.forgive()
            self._notes.hits.clear()
            self._failed = self._told = self._alerted = None
            self._causes = ()

    def _stopped(self) -> None:
        """The server is being ended: processes that were ended with it have not failed."""
        self._was_stopping = True
        if self._failure.only_died and "core-killed" not in self._notes.hits:
            self._unfail()

    def _became_ready(self) -> None:
        """A server that is up has survived what was logged before - except that another one holds its port."""
        self._was_ready = True
        fatal = self._failure.fatal
        if fatal is None or b"attempting to bind" not in fatal[2]:
            self._unfail()

    def _line_of(self, offset: int) -> int:
        """The number of the line at ``offset``: counted on from the last one asked for, so a long traceback costs no more."""
        inside = offset - self._chunk_offset
        if inside <= 0:
            return self._chunk_line + 1
        at, line = self._counted
        if inside < at:
            at = line = 0
        line += self._chunk.count(b"\n", at, inside)
        self._counted = (inside, line)
        return self._chunk_line + line + 1

    # ---------------------------------------------------------------------------------------------------------- summary

    @property
    def outcome(self) -> str:
        """loading, ready, failed or stopped; a failure stays one, whatever the processes print while they end."""
        if self._failed is not None:
            return "failed"
        if self._state.stopping:
            return "stopped"
        return "ready" if self._state.ready_at is not None else "loading"

    @property
    def engine(self) -> Optional[str]:
        return self._state.engine or self._state.hint

    @property
    def zero_stamp(self) -> Optional[float]:
        """The log's own stamp (local time, in seconds) that phases are counted from; None while reading live, or before one."""
        return None if self._live else self._zero

    def pending_progress(self) -> Optional[Event]:
        """The tick that tqdm is showing now: it has no line end until the next one comes. It is not consumed."""
        pending = clean(self._lines.pending)
        for at, piece, (_process, level, _stamp, body) in pieces(pending, self._lines.offset - len(pending)):
            bar = parse_bar(piece[body:].lstrip()) if level is None and piece.endswith(b"]") else None
            if bar is not None:
                return Event(
                    "progress",
                    at,
                    self._now,
                    bar.desc,
                    done=bar.done,
                    total=bar.total,
                    value={"left": bar.left, "rate": bar.rate},
                )
        return None

    def summary(self) -> Summary:
        """What is known so far; cheap enough to ask every second."""
        s = self._state
        phases = tuple(entry.record() for entry in s.phases)
        current = s.current
        tick = self.pending_progress()
        if tick is not None and current is not None and current.id in ("weights", "capture") and current.bars:
            phases = (*phases[:-1], _with_tick(phases[-1], tick, list(current.bars.values())[-1]))
        return Summary(
            self.engine,
            s.version,
            self.outcome,
            s.model,
            s.drafter,
            phases,
            dict(s.facts),
            None if current is None else current.id,
            s.ready_at,
            self._failed,
            self._now,
            self._chunk_line + (1 if self._lines.pending else 0),
            s.stats,
            s.restarts,
            self._causes,
        )

    def diagnosis(self, end: Optional[End] = None) -> Tuple[str, Tuple[Cause, ...]]:
        """The outcome and why, the likeliest cause first; ``end`` is how its process ended, when that is known."""
        outcome = self.outcome
        failed = self._failed
        if outcome == "loading" and (end is None or not end.ended):
            return outcome, stuck_causes(self._state.quiet_waits)
        if outcome in ("loading", "ready") and end is not None and end.failed:
            outcome = "failed"
        if outcome != "failed":
            return outcome, ()
        return outcome, judge(failed, self._failure.root, self._notes.hits, self._state.version, end)


def _with_tick(phase: Phase, tick: Event, last: Tuple[float, float]) -> Phase:
    """The phase with the pending tick, when it is the next one of the bar that ``last`` belongs to."""
    if tick.done is None or tick.total != last[1] or tick.done <= last[0] or phase.done is None:
        return phase
    return phase._replace(done=phase.done + tick.done - last[0])


def read_log(chunks: Iterable[bytes]) -> Summary:
    """Read a whole log from its pieces (of any size); times are by the log's own stamps."""
    reader = LogReader()
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish()
    return reader.summary()
