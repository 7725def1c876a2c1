"""Reads an engine's log as it grows: phases, progress, facts, readiness, statistics, the first real error.

`LogReader` takes bytes in any pieces and finds out by itself which engine writes. The same code runs in a job's supervisor
on the host, in the client and for a file on disk.
"""

from __future__ import annotations

import datetime
from typing import Callable, Dict, Iterable, List, Optional, Tuple

from eagletui.engines import sglang_log, vllm_log
from eagletui.engines.bars import parse_bar
from eagletui.engines.events import Event, Failure, Summary, phases_json
from eagletui.engines.failure import FailureTracker, suspects
from eagletui.engines.state import LoadState
from eagletui.engines.stream import HEADER_START, Line, LineSplitter, clean, pieces, split_header
from eagletui.records import Phase

__all__ = ["LogClock", "LogReader", "phases_json", "read_log"]

Handler = Callable[[LoadState, bytes], None]

_KEY = 7
_DAY = 86400


class LogClock:
    """Time stamps of a log in seconds. vLLM prints no year: a month that falls back is the next year."""

    __slots__ = ("_last", "_shift", "value")

    def __init__(self) -> None:
        self._last = b""
        self.value = 0.0
        self._shift = 0.0

    def seconds(self, stamp: bytes) -> Optional[float]:
        """The stamp ``11-29 15:40:49`` or ``2026-11-29 16:19:09.123`` in seconds from an arbitrary zero; None if malformed."""
        if stamp == self._last:
            return self.value
        try:
            if len(stamp) >= 19:
                days = datetime.date(int(stamp[0:4]), int(stamp[5:7]), int(stamp[8:10])).toordinal()
                clock = stamp[11:]
                value = float(days * _DAY)
            else:
                # without a year: a leap year, so that 29 February exists
                days = datetime.date(2024, int(stamp[0:2]), int(stamp[3:5])).toordinal()
                clock = stamp[6:]
                value = days * _DAY + self._shift
            value += int(clock[0:2]) * 3600 + int(clock[3:5]) * 60 + float(clock[6:])
        except ValueError:  # digits that are no date: this is no stamp
            return None
        if len(stamp) < 19 and self._last and value < self.value - 180 * _DAY:
            self._shift += 366 * _DAY
            value += 366 * _DAY
        self._last, self.value = stamp, value
        return value


def _table() -> Dict[bytes, List[Tuple[bytes, Handler]]]:
    table: Dict[bytes, List[Tuple[bytes, Handler]]] = {}
    for prefix, handler in (*vllm_log.RULES, *sglang_log.RULES):
        table.setdefault(prefix[:_KEY], []).append((prefix, handler))
    for rules in table.values():
        rules.sort(key=lambda rule: -len(rule[0]))  # the longest start that fits is meant
    return table


_RULES = _table()
_SPACE = 0x20
_HEADER_MAX = 120
_UVICORN = b"INFO:     "
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


class LogReader:
    """One engine log, read from ``offset`` on.

    ``started`` is the boot time at which the process was started; with it the silent imports before the first line count
    as the phase spawn. Give `feed` the boot time at which the bytes came while reading live: then phases are timed by
    arrival (log stamps have one second's resolution); without it they are timed by the log's own stamps.
    """

    def __init__(self, offset: int = 0, started: Optional[float] = None) -> None:
        self._lines = LineSplitter(offset)
        self._state = LoadState()
        self._failure = FailureTracker(self._phase_now, self._line_of)
        self._clock = LogClock()
        self._zero: Optional[float] = started
        self._now = 0.0
        self._live = started is not None
        self._chunk = b""
        self._chunk_offset = offset
        self._chunk_line = 0
        self._counted = (0, 0)
        self._hot = True
        self._headers: Dict[bytes, Tuple[Optional[bytes], Optional[bytes], Optional[bytes]]] = {}
        self._last_stamp: Optional[bytes] = None
        self._failed: Optional[Failure] = None
        self._told: Optional[int] = None
        self._restarts = 0
        self._interrupted = self._was_ready = False
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
        start, rules, headers = HEADER_START, _RULES, self._headers
        dirty = b"\x1b" in data or b"\0" in data
        found = suspects(data)
        found.append(1 << 62)
        at_hot, base = 0, self._chunk_offset
        next_hot = base + found[0]
        hot = first = True
        for offset, raw, _cut in lines:
            line = raw
            if first:
                line, first = clean(raw), False  # its beginning came with an earlier piece
            else:
                if dirty:
                    line = clean(raw)
                hot = False
                if next_hot < offset + len(raw):
                    hot = True
                    while next_hot < offset + len(raw):
                        at_hot += 1
                        next_hot = base + found[at_hot]
            if not line:
                continue
            process = level = stamp = None
            body = 0
            if line[0] in start:
                # the same header comes many times within a second
                end = line.find(b"] ", 0, _HEADER_MAX) + 2
                known = headers.get(line[:end]) if end > 1 else None
                if known is not None:
                    process, level, stamp = known
                    body = end
                elif not line.startswith(_UVICORN):
                    process, level, stamp, body = split_header(line)
                    if body == end and stamp is not None:
                        if len(headers) > 2048:
                            headers.clear()
                        headers[line[:end]] = (process, level, stamp)
            glued = stamp is None and (line.find(b"pid=", body) >= 0 or line.find(b"] ", body) >= 0)
            if not hot and not glued and (stamp is None or stamp == self._last_stamp) and not self._failure.busy:
                if line.startswith(_UVICORN, body):
                    if line[body + 10 : body + 11].isdigit():
                        continue  # a request that was answered
                elif line[body : body + _KEY] not in rules:
                    if stamp is None:
                        if b"%" not in line and self._state.engine is not None:
                            continue
                    elif level != b"ERROR" and line[body : body + 1] > b" ":
                        continue
            self._hot = hot
            if glued:
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
            if not self._live:
                self._stamp(stamp)
            if s.engine is None and s.hint is None:
                s.hint = "sglang" if len(stamp) >= 19 else "vllm"
        s.offset, s.process, s.time = offset, process, self._now
        found = _RULES.get(message[:_KEY])
        if found is not None:
            for prefix, handler in found:
                if message.startswith(prefix):
                    handler(s, message)
                    break
        elif message[0] == _SPACE and level == b"INFO" and s.ready_at is None and b"\xe2\x96" in message:
            vllm_log.logo(s, message)
        if message.startswith(_UVICORN):
            self._uvicorn(message)
        elif stamp is None:
            self._bare(message, process)
        if s.restarts != self._restarts:
            self._restart()
        elif s.ready_at is not None and not self._was_ready:
            self._became_ready()
        failure = self._failure
        error = level == b"ERROR" or level == b"CRITICAL"
        if failure.busy or error or (self._hot and level != b"WARNING"):
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
        self._failure = FailureTracker(self._phase_now, self._line_of)
        self._failed = self._told = None
        self._interrupted = self._was_ready = False
        if not self._live:
            self._zero = self._clock.value  # stamps may even go back, when logs were joined
        elif self._zero is not None:
            self._zero += self._now
        self._now = 0.0
        self._state.time = 0.0
        for entry in self._state.phases:
            entry.start, entry.end = 0.0, None if entry.end is None else 0.0

    # -------------------------------------------------------------------------------------------------------- judgement

    def _phase_now(self) -> Tuple[Optional[str], Optional[str]]:
        phases = self._state.phases
        return (phases[-1].id, phases[-1].role) if phases else (None, None)

    def _judge(self, final: bool = False) -> None:
        failure, s = self._failure, self._state
        if failure.interrupted and not self._interrupted:
            self._interrupted = True
            s.stop("interrupted")
        if failure.fatal is None or (s.stopping and self._failed is None):
            return
        now = failure.failure()
        if now is not None and now != self._failed:
            self._failed = now
            s.close()
        # a wrapper comes before its cause's traceback has been read: it is told only if nothing better has come by the end
        if self._failed is not None and self._told != self._failed.offset and (final or failure.settled):
            self._told = self._failed.offset
            s.emit("failure", value=self._failed, text=self._failed.text)

    def _became_ready(self) -> None:
        """A server that is up has survived what was logged before - except that another one holds its port."""
        self._was_ready = True
        fatal = self._failure.fatal
        if fatal is None or b"attempting to bind" not in fatal[2]:
            self._failure.forgive()
            self._failed = self._told = None

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
        )


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
