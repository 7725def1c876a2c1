"""The first root error of a failed launch, behind the wrappers that follow it.

A worker's exception comes out several times: from each of the ranks, then as ``WorkerProc initialization failed`` from the
engine, then as ``Engine core initialization failed. See root cause above.`` from the API server (vLLM), or as ``Received
sigquit from a child process`` (SGLang). None of the later ones carries the cause. So the tracker keeps the first exception
that is no wrapper, and says "failed" only once something fatal is seen: a wrapper, an uncaught exception that reached a
process's top level, a refused command line, a killed process.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, List, Optional, Tuple

from eagletui.engines.events import Evidence, Failure

_EXCEPTION = re.compile(
    rb"^(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure|Timeout|Warning|Group|Cancelled)?(?:: |$)"
)
_NAMED = re.compile(rb"^(?:[A-Za-z_]\w*\.)*_?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout)(?:: |$)")
_FRAME = re.compile(rb'^ +File "[^"]*", line \d+, in (\S+)')
_USAGE = re.compile(rb"^(?:vllm|sglang|usage|[\w./-]+\.py)(?: [\w-]+)?: error: |^error: (?:argument|unrecognized|the following)")
_DIED = re.compile(
    rb"^(?:\S+: )?(?:Killed$|Segmentation fault|Bus error|Aborted(?: \(core dumped\))?$|Fatal Python error: "
    rb"|terminate called after throwing|Illegal instruction)"
)

# an exception with one of these texts reports another one
_WRAPPERS = (
    b"initialization failed due to an exception in a background process",
    b"Engine core initialization failed",
    b"EngineCore encountered a",
    b"EngineDeadError",
    b"See stack trace for root cause",
    b"See root cause above",
    b"Worker failed with error",
    b"Engine process failed to start",
    b"EngineCore failed to start",
)
# these follow when another process of the launch has died
_SECONDARY = re.compile(
    rb"^(?:\w+\.)*(?:BrokenPipeError|ConnectionResetError|ConnectionRefusedError|EOFError|CancelledError|SystemExit|"
    rb"ProcessRaisedException|ProcessExitedException|ChildFailedError|QueueEmpty|Empty|RuntimeError: cancelled)"
)
_INTERRUPT = re.compile(rb"^KeyboardInterrupt(?::|$)")
_TOP_LEVEL = (b"<module>", b"_bootstrap", b"_run_module_as_main", b"run_engine_core", b"worker_main", b"run_scheduler_process")

# what an engine says when it gives up; the text may be in an error record, a wrapper's exception or a plain line
FATAL = (
    b"EngineCore failed to start",
    b"Engine core initialization failed",
    b"initialization failed due to an exception in a background process",
    b"WorkerProc failed to start",
    b"EngineCore encountered a fatal error",
    b"EngineCore encountered an issue",
    b"EngineCore hit an exception",
    b"died unexpectedly",
    b"hit an exception: ",
    b"Received sigquit from a child process",
    b"Initialization failed. warmup error",
    b"error while attempting to bind on address",
    b"Port is already in use",
    b"Rank 0 scheduler died",
    b"scheduler died",
    b"Watchdog caught collective operation timeout",
    b"watchdog timeout",
)
_FATAL = re.compile(b"|".join(re.escape(mark) for mark in FATAL))


_WORDS = (
    b"rror",
    b"xception",
    b"failed",
    b"Traceback",
    b"nterrupt",
    b"died",
    b"sigquit",
    b"atchdog",
    b"in use",
    b"Killed",
    b"fault",
    b"Bus e",
    b"Aborted",
    b"Illegal",
    b"terminate called",
)


def suspects(data: bytes) -> List[int]:
    """Where in a piece of log the words are without which a line cannot matter here, in order.

    A line of an open traceback is followed without this. Searching the whole piece for each word is several times faster
    than asking line by line.
    """
    found: List[int] = []
    for word in _WORDS:
        at = data.find(word)
        while at >= 0:
            found.append(at)
            at = data.find(word, at + 1)
    found.sort()
    return found


# logged with a traceback, and the engine goes on without it
_HARMLESS = (b"JIT kernel warmup failed", b"Exception in ASGI application", b"Error in handling request", b"usage stats")

_TRACE = b"Traceback (most recent call last):"
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")

# (offset, line number, text)
Place = Tuple[int, int, bytes]


class _Trace:
    """A traceback being read from one process."""

    __slots__ = ("first_func", "frame", "harmless", "process", "thread")

    def __init__(self, process: Optional[bytes], harmless: bool, thread: bool) -> None:
        self.process, self.harmless, self.thread = process, harmless, thread
        self.first_func: Optional[bytes] = None
        self.frame: Optional[Place] = None


class _Candidate:
    """An exception seen; ``weight`` 2 is a root cause, 1 a logged error without an exception, 0 a consequence."""

    __slots__ = ("details", "frame", "line", "offset", "phase", "process", "text", "weight")

    def __init__(
        self,
        offset: int,
        line: int,
        text: bytes,
        process: Optional[bytes],
        phase: Tuple[Optional[str], Optional[str]],
        weight: int,
        frame: Optional[Place],
    ) -> None:
        self.offset, self.line, self.text, self.process = offset, line, text, process
        self.phase, self.weight, self.frame = phase, weight, frame
        self.details: List[Place] = []


_DETAILS = 4


class FailureTracker:
    """Fed with suspicious lines and with every line of a process whose traceback is open; see `wants`.

    ``phase`` gives the load's (phase, role) now, ``line_of`` the line number of an offset not before the last one asked for.
    `fatal` is set once the launch is over; `interrupted` when it was ended by a signal to the user's wish
    (KeyboardInterrupt), which is no failure.
    """

    def __init__(self, phase: Callable[[], Tuple[Optional[str], Optional[str]]], line_of: Callable[[int], int]) -> None:
        self._phase = phase
        self._line_of = line_of
        self.open: Dict[Optional[bytes], _Trace] = {}
        self._collect: Dict[Optional[bytes], _Candidate] = {}
        self._best: Optional[_Candidate] = None
        self._last: Dict[Optional[bytes], bytes] = {}
        self.fatal: Optional[Place] = None
        self._gave_up: List[Place] = []
        self.interrupted = False
        self.busy = False

    def _note(self) -> None:
        self.busy = bool(self.open or self._collect)

    def line(self, offset: int, process: Optional[bytes], message: bytes, error: bool, bare: bool, follows_bare: bool) -> None:
        """One record. ``error`` when its header says ERROR, ``bare`` when it has no header but perhaps a process prefix.

        ``follows_bare`` when further lines of the same record have no header of their own, nor a process prefix unless it is
        ``bare`` itself.
        """
        if message.endswith(_TRACE) or (error and _TRACE in message):
            before = message[: message.rfind(_TRACE)].strip()
            said = before or self._last.get(process, b"")
            if _FATAL.search(before):
                self._give_up(offset, message)
            thread = b"Exception in thread" in said or b"Exception ignored" in said
            key = None if follows_bare and not bare else process
            self.open[key] = _Trace(process, any(h in said for h in _HARMLESS), thread)
            self._collect.pop(key, None)
            self._note()
            return
        if self.busy and self._continue(offset, process, message):
            return
        if _FATAL.search(message):
            self._give_up(offset, message)
            if b"error while attempting to bind" in message or b"Port is already in use" in message or b"atchdog" in message:
                self._offer(offset, message, process, 2, None)
            return
        if bare:
            if _USAGE.match(message) or _DIED.match(message):
                self._offer(offset, message, process, 2, None)
                self._give_up(offset, message)
            elif _NAMED.match(message) and not message.startswith(b"Exception ignored"):
                self._offer(offset, message, process, 1, None)
        elif error and not message.startswith((b" ", b"\t")):
            self._offer(offset, message, process, 1, None)
        if error or bare:
            self._last[process] = message[:200]
            if len(self._last) > 256:
                self._last.clear()

    def _continue(self, offset: int, process: Optional[bytes], message: bytes) -> bool:
        """Go on with the process's open traceback, or with the text after its exception; False when it is neither."""
        trace = self.open.get(process)
        if trace is None:
            candidate = self._collect.get(process)
            if candidate is None:
                return False
            if message[:1] in (b" ", b"\t") and len(candidate.details) < _DETAILS:
                candidate.details.append((offset, self._line_of(offset), message.strip()))
                return True
            del self._collect[process]
            self._note()
            return False
        if message[:1] in (b" ", b"\t") or message.startswith((b"^", b"~")):
            frame = _FRAME.match(message)
            if frame is not None:
                if trace.first_func is None:
                    trace.first_func = frame.group(1)
                trace.frame = (offset, self._line_of(offset), message.strip())
            return True
        if message.startswith(_CHAINED) or message.startswith(b"[Previous line repeated"):
            return True
        del self.open[process]
        self._note()
        if not _EXCEPTION.match(message):
            return False  # cut short: another writer's line came in between
        self._exception(offset, process, message, trace)
        return True

    def _exception(self, offset: int, process: Optional[bytes], message: bytes, trace: _Trace) -> None:
        if trace.harmless or trace.thread:
            return
        top = trace.first_func in _TOP_LEVEL
        if _INTERRUPT.match(message):
            if top and self.fatal is None:
                self.interrupted = True
            return
        wrapper = any(mark in message for mark in _WRAPPERS)
        weight = 0 if wrapper or _SECONDARY.match(message) else 2
        candidate = self._offer(offset, message, trace.process, weight, trace.frame)
        if candidate is not None:
            self._collect[process] = candidate
            self._note()
        if _FATAL.search(message) or top:
            self._give_up(offset, message)

    def _offer(
        self, offset: int, text: bytes, process: Optional[bytes], weight: int, frame: Optional[Place]
    ) -> Optional[_Candidate]:
        best = self._best
        if any(mark in text for mark in _HARMLESS) or (best is not None and best.weight >= weight):
            return None
        self._best = _Candidate(offset, self._line_of(offset), text, process, self._phase(), weight, frame)
        return self._best

    def _give_up(self, offset: int, message: bytes) -> None:
        if self.fatal is None:
            self.fatal = (offset, self._line_of(offset), message)
        if len(self._gave_up) < 2:
            self._gave_up.append((offset, self._line_of(offset), message))

    def forgive(self) -> None:
        """The server is up: what was logged before did not stop it."""
        self._best = None
        self.fatal = None
        self._gave_up = []
        self.open.clear()
        self._collect.clear()
        self._note()

    @property
    def settled(self) -> bool:
        """Whether something fatal was seen and its root is known, not only the wrappers."""
        return self.fatal is not None and self._best is not None and self._best.weight == 2

    def failure(self) -> Optional[Failure]:
        """The failure as far as it is known; None while nothing fatal was seen."""
        if self.fatal is None:
            return None
        best = self._best
        if best is None:
            best = _Candidate(self.fatal[0], self.fatal[1], self.fatal[2], None, self._phase(), 0, None)
        text = best.text.rstrip(b":").strip() if best.details and best.text.endswith(b":") else best.text
        if best.details and b"validation error" in best.text:
            text = best.text + b" " + b" ".join(t for _, _, t in best.details[:2])
        places = [(best.offset, best.line, best.text), *best.details[:2]]
        if best.frame is not None:
            places.append(best.frame)
        places += [place for place in self._gave_up if place[0] != best.offset]
        evidence = tuple(Evidence(at, line, _text(what)) for at, line, what in places)
        process = best.process.decode("utf-8", "replace") if best.process else None
        return Failure(best.offset, best.line, _text(text), process, best.phase[0], best.phase[1], evidence)


def _text(raw: bytes) -> str:
    return raw[:1000].decode("utf-8", "replace").strip()
