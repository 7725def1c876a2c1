"""The first root error of a failed launch, behind the wrappers that follow it.

A worker's exception comes out several times: from each of the ranks, then as ``WorkerProc initialization failed`` from the
engine, then as ``Engine core initialization failed. See root cause above.`` from the API server (vLLM), or as ``Received
sigquit from a child process`` (SGLang). None of the later ones carries the cause. So the tracker keeps the first exception
that is no wrapper, and says "failed" only once something fatal is seen: a wrapper, an uncaught exception that reached a
process's top level, a refused command line, a killed process.

What each such line is known to mean is not judged here: a `Witness` is shown all of them.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Tuple

from eagletui.engines.events import Evidence, Failure
from eagletui.engines.failure_words import (
    CHAINED,
    DIED,
    EXCEPTION,
    FRAME,
    GAVE_UP,
    HARMLESS,
    IGNORED,
    INTERRUPT,
    NAMED,
    OWN_CAUSE,
    SECONDARY,
    TOP_LEVEL,
    TRACE,
    USAGE,
    WITHIN,
    WRAPPERS,
)

# (offset, line number, text)
Place = Tuple[int, int, bytes]

ROOT, LOGGED, CONSEQUENCE = 2, 1, 0
_DETAILS = 4
VALIDATION = b"validation error"
_FRAMES = 120
_AFTER = 8
"""How many lines of a process after its exception may still belong to the exception's text."""
_AFTER_BYTES, _LONGEST = 20000, 1200


class Witness:
    """Is shown every line that may tell why a launch failed; see `diagnosis.witness`."""

    def see(
        self, offset: int, message: bytes, process: Optional[bytes], chain: int, kind: str, trace: bytes, number: int = 0
    ) -> None:
        """One line. ``chain`` is the offset at which its traceback (or chain of them) begins, -1 without one.

        ``kind`` is exception, detail (a line of an exception's text after its first), fatal, error (logged as one) or line.
        ``trace`` holds the lines of the traceback above an exception. ``number`` is the number of its line where it is known
        already, else 0.
        """


class _Trace:
    """A traceback being read from one process."""

    __slots__ = ("chain", "first_func", "frame", "harmless", "lines", "process", "thread")

    def __init__(self, process: Optional[bytes], harmless: bool, thread: bool, chain: int) -> None:
        self.process, self.harmless, self.thread, self.chain = process, harmless, thread, chain
        self.first_func: Optional[bytes] = None
        self.frame: Optional[Tuple[int, int, bytes]] = None  # its line number is 0 until it is asked for
        self.lines: List[bytes] = []


class _Candidate:
    """An exception seen; ``weight`` is `ROOT`, `LOGGED` (an error without an exception) or `CONSEQUENCE`."""

    __slots__ = ("chain", "details", "frame", "line", "offset", "phase", "process", "text", "weight")

    def __init__(
        self,
        offset: int,
        line: int,
        text: bytes,
        process: Optional[bytes],
        phase: Tuple[Optional[str], Optional[str]],
        weight: int,
        frame: Optional[Place],
        chain: int,
    ) -> None:
        self.offset, self.line, self.text, self.process = offset, line, text, process
        self.phase, self.weight, self.frame, self.chain = phase, weight, frame, chain
        self.details: List[Place] = []


class _Tail:
    """The lines after an exception: its text may have more of them."""

    __slots__ = ("candidate", "chain", "left", "number", "offset", "text")

    def __init__(self, offset: int, chain: int, candidate: Optional[_Candidate], text: bytes, number: int) -> None:
        self.offset, self.chain, self.candidate, self.text, self.number = offset, chain, candidate, text, number
        self.left = _AFTER


class FailureTracker:
    """Fed with suspicious lines and with every line while `busy`.

    ``phase`` gives the load's (phase, role) now, ``line_of`` the line number of an offset not before the last one asked for.
    `fatal` is set once the launch is over; `interrupted` when it was ended by a signal to the user's wish
    (KeyboardInterrupt), which is no failure. `changes` grows whenever what `failure` tells may be another.
    """

    def __init__(
        self, phase: Callable[[], Tuple[Optional[str], Optional[str]]], line_of: Callable[[int], int], witness: Witness
    ) -> None:
        self._phase = phase
        self._line_of = line_of
        self._witness = witness
        self._open: Dict[Optional[bytes], _Trace] = {}
        self._tails: Dict[Optional[bytes], _Tail] = {}
        self._chained: Dict[Optional[bytes], int] = {}
        self._best: Optional[_Candidate] = None
        self._last: Dict[Optional[bytes], bytes] = {}
        self.fatal: Optional[Place] = None
        self._gave_up: List[Place] = []
        self._own_end = False
        self.interrupted = False
        self.busy = False
        self.changes = 0

    def _note(self) -> None:
        self.busy = bool(self._open or self._tails)

    def line(self, offset: int, process: Optional[bytes], message: bytes, error: bool, bare: bool, follows_bare: bool) -> None:
        """One record. ``error`` when its header says ERROR, ``bare`` when it has no header but perhaps a process prefix.

        ``follows_bare`` when further lines of the same record have no header of their own, nor a process prefix unless it is
        ``bare`` itself.
        """
        if message.endswith(TRACE) or (error and TRACE in message):
            self._begin(offset, process, message, None if follows_bare and not bare else process)
            return
        chain = -1
        kind = "error" if error else "line"
        if message.startswith(IGNORED):
            return
        if self.busy:
            taken, chain = self._continue(offset, process, message)
            if taken:
                return
            if chain >= 0:
                kind = "detail"
        if GAVE_UP.search(message):
            own = OWN_CAUSE.search(message) is not None
            self._give_up(offset, message, own)
            self._witness.see(offset, message, process, offset if own else chain, "fatal", b"")
            if own:
                self._offer(offset, message, process, ROOT, None, offset)
            return
        if bare and (USAGE.match(message) or DIED.search(message)):
            self._offer(offset, message, process, ROOT, None, offset)
            self._give_up(offset, message, True)
            self._witness.see(offset, message, process, offset, "fatal", b"")
        else:
            self._witness.see(offset, message, process, chain, kind, b"")
            if bare:
                if NAMED.match(message) and not message.startswith(b"Exception ignored"):
                    self._offer(offset, message, process, LOGGED, None, offset)
            elif error and not message.startswith((b" ", b"\t")):
                self._offer(offset, message, process, LOGGED, None, offset)
        if error or bare:
            self._last[process] = message[:200]
            if len(self._last) > 256:
                self._last.clear()

    def _begin(self, offset: int, process: Optional[bytes], message: bytes, key: Optional[bytes]) -> None:
        before = message[: message.rfind(TRACE)].strip()
        said = before or self._last.get(process, b"")
        if GAVE_UP.search(before):
            self._give_up(offset, message, False)
            self._witness.see(offset, before, process, -1, "fatal", b"")
        thread = b"Exception in thread" in said or b"Exception ignored" in said
        chain = self._chained.pop(key, offset)
        self._open[key] = _Trace(process, any(h in said for h in HARMLESS), thread, chain)
        self._tails.pop(key, None)
        self._note()

    def _continue(self, offset: int, process: Optional[bytes], message: bytes) -> Tuple[bool, int]:
        """Go on with the process's open traceback, or with the text after its exception.

        Whether the line is dealt with, and the chain it may belong to (-1: none).
        """
        trace = self._open.get(process)
        if trace is None:
            return self._after(offset, process, message)
        if message[:1] in (b" ", b"\t") or message.startswith((b"^", b"~")):
            self.follow(offset, process, message)
            return True, -1
        if message.startswith(WITHIN):
            return True, -1
        del self._open[process]
        self._note()
        if not EXCEPTION.match(message):
            return False, -1  # cut short: another writer's line came in between
        self._exception(offset, process, message, trace)
        return True, -1

    def follow(self, offset: int, process: Optional[bytes], message: bytes) -> bool:
        """An indented line of the process; False when it has no open traceback."""
        trace = self._open.get(process)
        if trace is None:
            return False
        if message.startswith(b'  File "'):
            frame = FRAME.match(message)
            if frame is not None:
                if trace.first_func is None:
                    trace.first_func = frame.group(1)
                trace.frame = (offset, 0, message)
        if len(trace.lines) < _FRAMES:
            trace.lines.append(message)
        return True

    def _after(self, offset: int, process: Optional[bytes], message: bytes) -> Tuple[bool, int]:
        for key in [key for key, tail in self._tails.items() if offset - tail.offset > _AFTER_BYTES]:
            del self._tails[key]
        tail = self._tails.get(process)
        if tail is None:
            self._note()
            return False, -1
        if message.startswith(CHAINED):
            self._chained[process] = tail.chain
            del self._tails[process]
            self._note()
            return True, -1
        tail.left -= 1
        if len(tail.text) < _LONGEST:
            tail.text += b"\n" + message
            if VALIDATION in tail.text:  # its own first line says only that there is one
                self._witness.see(tail.offset, tail.text, process, tail.chain, "exception", b"", tail.number)
        if tail.left <= 0:
            del self._tails[process]
            self._note()
        if message[:1] in (b" ", b"\t"):
            candidate = tail.candidate
            if candidate is not None and len(candidate.details) < _DETAILS:
                candidate.details.append((offset, self._line_of(offset), message.strip()))
                self.changes += 1
            self._witness.see(offset, message.strip(), process, tail.chain, "detail", b"")
            return True, -1
        return False, tail.chain

    def _exception(self, offset: int, process: Optional[bytes], message: bytes, trace: _Trace) -> None:
        if trace.harmless or trace.thread:
            return
        top = trace.first_func in TOP_LEVEL
        if INTERRUPT.match(message):
            if top and (self.fatal is None or (not self._own_end and (self._best is None or self._best.weight < ROOT))):
                self.interrupted = True
            return
        wrapper = any(mark in message for mark in WRAPPERS)
        weight = CONSEQUENCE if wrapper or SECONDARY.match(message) else ROOT
        candidate = self._offer(offset, message, trace.process, weight, self._place(trace), trace.chain)
        if not wrapper:
            # asked for now: later only the numbers of later lines can be told
            number = self._line_of(offset) if VALIDATION in message else 0
            self._tails[process] = _Tail(offset, trace.chain, candidate, message, number)
            self._note()
        if GAVE_UP.search(message) or top:
            self._give_up(offset, message, False)
        self._witness.see(
            offset, message, trace.process, trace.chain, "fatal" if wrapper else "exception", b"\n".join(trace.lines)
        )

    def _place(self, trace: _Trace) -> Optional[Place]:
        if trace.frame is None:
            return None
        at, number, text = trace.frame
        return at, number or self._line_of(at), text.strip()

    def number(self) -> None:
        """A piece of the log ends: find out the numbers of lines in it that may be asked for later."""
        for trace in self._open.values():
            if trace.frame is not None and not trace.frame[1]:
                at, _, text = trace.frame
                trace.frame = (at, self._line_of(at), text)

    def _offer(
        self, offset: int, text: bytes, process: Optional[bytes], weight: int, frame: Optional[Place], chain: int
    ) -> Optional[_Candidate]:
        best = self._best
        if any(mark in text for mark in HARMLESS) or (best is not None and best.weight >= weight):
            return None
        self._best = _Candidate(offset, self._line_of(offset), text, process, self._phase(), weight, frame, chain)
        self.changes += 1
        return self._best

    def _give_up(self, offset: int, message: bytes, own: bool) -> None:
        if self.fatal is None:
            self.fatal = (offset, self._line_of(offset), message)
            self._own_end = own
            self.changes += 1
        if len(self._gave_up) < 2:
            self._gave_up.append((offset, self._line_of(offset), message))
            self.changes += 1

    def grows(self, offset: int) -> bool:
        """Whether the exception at ``offset`` is one whose text says what is wrong in its later lines, and they still come."""
        return any(tail.offset == offset and VALIDATION in tail.text for tail in self._tails.values())

    def forgive(self) -> None:
        """The server is up: what was logged before did not stop it."""
        self._best = None
        self.fatal = None
        self._gave_up = []
        self._open.clear()
        self._tails.clear()
        self._chained.clear()
        self.changes += 1
        self._note()

    @property
    def settled(self) -> bool:
        """Whether something fatal was seen and its root is known, not only the wrappers."""
        return self.fatal is not None and self._best is not None and self._best.weight == ROOT

    @property
    def only_died(self) -> bool:
        """Whether nothing else is known than that one process has died, which those that are being ended do as well."""
        return (
            self.fatal is not None
            and not self._own_end
            and len(self._gave_up) == 1
            and b"died unexpectedly" in self.fatal[2]
            and (self._best is None or self._best.weight < ROOT)
        )

    @property
    def root(self) -> Tuple[int, int]:
        """Offset of the first root error and of the chain of tracebacks it stands in; (-1, -1) without one."""
        best = self._best
        return (-1, -1) if best is None else (best.offset, best.chain)

    def failure(self) -> Optional[Failure]:
        """The failure as far as it is known; None while nothing fatal was seen."""
        if self.fatal is None:
            return None
        best = self._best
        if best is None:
            best = _Candidate(self.fatal[0], self.fatal[1], self.fatal[2], None, self._phase(), 0, None, -1)
        text = best.text.rstrip(b":").strip() if best.details and best.text.endswith(b":") else best.text
        if best.details and VALIDATION in best.text:
            text = best.text + b" " + b" ".join(t for _, _, t in best.details[:2])
        places = [(best.offset, best.line, best.text), *best.details[:2]]
        if best.frame is not None:
            places.append(best.frame)
        places += [place for place in self._gave_up if place[0] != best.offset]
        evidence = tuple(Evidence(at, line, line_text(what)) for at, line, what in places)
        process = best.process.decode("utf-8", "replace") if best.process else None
        return Failure(best.offset, best.line, line_text(text), process, best.phase[0], best.phase[1], evidence)


def line_text(raw: bytes) -> str:
    """A line as it is shown as evidence."""
    return raw[:1000].decode("utf-8", "replace").strip()
