"""The state of one launch while its log is read: phases, facts, outcome. The grammars of the engines drive it."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from eagletui.engines.bars import Bar, weight_unit
from eagletui.engines.events import DRAFTER, TARGET, Event
from eagletui.records import Phase

Key = Tuple[str, Optional[str]]


class PhaseEntry:
    """A phase being timed. ``bars`` holds (done, total) of each bar shown in it, in order of appearance."""

    __slots__ = ("bars", "end", "id", "role", "start", "unit")

    def __init__(self, id: str, role: Optional[str], start: float) -> None:  # noqa: A002 - the name of the field
        self.id, self.role, self.start = id, role, start
        self.end: Optional[float] = None
        self.unit: Optional[str] = None
        self.bars: Dict[str, Tuple[float, float]] = {}

    def done_total(self) -> Tuple[Optional[float], Optional[float]]:
        if not self.bars:
            return None, None
        return sum(d for d, _ in self.bars.values()), sum(t for _, t in self.bars.values())

    def record(self) -> Phase:
        done, total = self.done_total()
        seconds = None if self.end is None else max(0.0, self.end - self.start)
        return Phase(self.id, self.role, self.start, seconds, done, total, self.unit)


class LoadState:
    """What handlers of log lines see and change. ``offset``, ``time`` and ``process`` belong to the line at hand.

    A phase is entered once: with eight ranks, the first to print its line opens it, and the line of a straggler changes
    nothing. So the order is the engine's own.
    """

    def __init__(self) -> None:
        self.offset = 0
        self.time = 0.0
        self.process: Optional[bytes] = None
        self.events: List[Event] = []
        self.restarts = 0
        self.reset()

    def reset(self) -> None:
        """Forget the launch: the log goes on with another one."""
        self.engine: Optional[str] = None
        self.hint: Optional[str] = None
        self.version: Optional[str] = None
        self.model: Optional[str] = None
        self.drafter: Optional[str] = None
        self.phases: List[PhaseEntry] = []
        self._seen: Set[Key] = set()
        self.facts: Dict[str, Any] = {}
        self.ready_at: Optional[float] = None
        self.stopping = False
        self.stats: Optional[Dict[str, Any]] = None
        self.loads: Dict[Optional[bytes], int] = {}
        self.ranks: Set[bytes] = set()
        self.capture_role: Optional[str] = None
        self.capture_label: Optional[str] = None
        self.compile_role: Optional[str] = None
        self.compile_by: Optional[bytes] = None
        self.speculative: Optional[bool] = None
        self.target_done = False
        self.quiet_waits = 0

    # ------------------------------------------------------------------------------------------------------- phases

    @property
    def current(self) -> Optional[PhaseEntry]:
        return self.phases[-1] if self.phases and self.phases[-1].end is None else None

    def enter(self, id: str, role: Optional[str] = None) -> bool:  # noqa: A002 - the name of the field
        """Begin a phase, ending the one before; False when it has been before, or the launch is over."""
        key = (id, role)
        if key in self._seen or self.ready_at is not None:
            return False
        self._seen.add(key)
        if self.phases and self.phases[-1].end is None:
            self.phases[-1].end = self.time
        # the first phase began with the first line, whichever line gives it away
        self.phases.append(PhaseEntry(id, role, 0.0 if id == "spawn" else self.time))
        self.emit("phase", id, role=role)
        return True

    def seen(self, id: str, role: Optional[str] = None) -> bool:  # noqa: A002 - the name of the field
        return (id, role) in self._seen

    def close(self) -> None:
        """End the running phase: the launch failed or the server went."""
        if self.phases and self.phases[-1].end is None:
            self.phases[-1].end = self.time

    def ready(self, text: str) -> None:
        if self.ready_at is None:
            self.enter("ready")
            self.ready_at = self.time
            self.emit("ready", text=text)

    def stop(self, text: str) -> None:
        if not self.stopping:
            self.stopping = True
            self.close()
            self.emit("shutdown", text=text)

    # -------------------------------------------------------------------------------------------------------- reports

    def emit(self, kind: str, name: str = "", **more: Any) -> None:
        if kind in ("phase", "progress", "stats"):
            self.quiet_waits = 0
        self.events.append(Event(kind, self.offset, self.time, name, **more))

    def fact(self, name: str, value: Any, again: bool = True) -> None:
        """Note a fact; with ``again`` false the first value stays."""
        if value is None or self.facts.get(name) == value or (not again and name in self.facts):
            return
        self.facts[name] = value
        self.emit("fact", name, value=value)

    def count(self, name: str) -> int:
        """Count something that may happen often, without an event for each."""
        self.facts[name] = self.facts.get(name, 0) + 1
        return int(self.facts[name])

    def add_seconds(self, name: str, seconds: float) -> None:
        self.fact(name, round(self.facts.get(name, 0.0) + seconds, 3))

    # ---------------------------------------------------------------------------------------------------------- bars

    def bar(self, bar: Bar) -> None:
        """A tick of a progress bar: put it to the phase it belongs to."""
        unit = weight_unit(bar.desc)
        if unit is not None:
            self._weight_bar(bar, unit)
            return
        if bar.desc.startswith("Capturing"):
            self.enter("capture", self.capture_role or TARGET)
            entry = self._entry("capture", self.capture_role or TARGET)
            # SGLang's text names the batch it is at; the graph it captures was announced in the line before
            name = self.capture_label or "batches" if bar.desc.startswith("Capturing batches") else bar.desc
            self._tick(entry, name, bar, "graphs")
            return
        self.emit("progress", bar.desc, done=bar.done, total=bar.total, value={"left": bar.left, "rate": bar.rate})

    def _weight_bar(self, bar: Bar, unit: str) -> None:
        role = TARGET
        if self.seen("weights", DRAFTER):
            role = DRAFTER
        elif self.target_done and self.speculative is not False:
            role = DRAFTER
            self.enter("weights", role)
        else:
            self.enter("weights", role)
        self._tick(self._entry("weights", role), "weights", bar, unit)

    def _tick(self, entry: Optional[PhaseEntry], name: str, bar: Bar, unit: str) -> None:
        if entry is None:
            return
        old = entry.bars.get(name)
        now = (bar.done, bar.total)
        if old == now:
            return  # the last tick of a bar is printed twice
        entry.bars[name] = now
        entry.unit = unit
        done, total = entry.done_total()
        value = {"left": bar.left, "rate": bar.rate, "elapsed": bar.elapsed}
        self.emit("progress", entry.id, role=entry.role, done=done, total=total, unit=unit, value=value)

    def _entry(self, id: str, role: Optional[str]) -> Optional[PhaseEntry]:  # noqa: A002 - the name of the field
        for entry in reversed(self.phases):
            if entry.id == id and entry.role == role:
                return entry
        return None
