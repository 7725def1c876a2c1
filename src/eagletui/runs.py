"""The course of a training run, step by step, in bounded memory: what the charts of a training are drawn from. Pure data.

Lines come in the order in which they were written. A step that comes again, or an earlier one, later in time, is a training that
was resumed: what had been logged from that step on never became part of the drafter, and is dropped. A line that was read already
(the end of a file is read twice when it is rotated) changes nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from eagletui.records.training import VAL, TrainingPoint

CELLS = 2048
"""Cells that are kept at least, once there are as many lines; at most twice as many."""
MOST_NAMES = 96
NAN = float("nan")


class Column:
    """One value of each cell: its least, largest and mean value; NaN where no line had it."""

    __slots__ = ("high", "low", "mean")

    def __init__(self, length: int) -> None:
        gaps = [NAN] * length
        self.low, self.high, self.mean = array("d", gaps), array("d", gaps), array("d", gaps)

    def append(self, value: float) -> None:
        self.low.append(value)
        self.high.append(value)
        self.mean.append(value)

    def fold(self, at: int, value: float, before: int) -> None:
        """One line more in the cell ``at``, which holds ``before`` of them."""
        if value != value:
            return
        if self.mean[at] != self.mean[at]:
            self.low[at] = self.high[at] = self.mean[at] = value
            return
        self.low[at], self.high[at] = min(self.low[at], value), max(self.high[at], value)
        self.mean[at] += (value - self.mean[at]) / (before + 1)

    def halve(self, counts: array[int]) -> None:
        pairs = range(0, len(self.mean), 2)
        self.low = array("d", [_pick(min, self.low[i : i + 2]) for i in pairs])
        self.high = array("d", [_pick(max, self.high[i : i + 2]) for i in pairs])
        self.mean = array("d", [_mean(self.mean[i : i + 2], counts[i : i + 2]) for i in pairs])

    def cut(self, at: int) -> None:
        del self.low[at:], self.high[at:], self.mean[at:]


def _pick(which: object, pair: array[float]) -> float:
    known = [value for value in pair if value == value]
    return which(known) if known else NAN  # type: ignore[operator]


def _mean(pair: array[float], counts: array[int]) -> float:
    known = [(value, count) for value, count in zip(pair, counts, strict=True) if value == value]
    total = sum(count for _, count in known)
    return sum(value * count for value, count in known) / total if total else NAN


class Course:
    """The lines of one split. A cell is one line while there is room, then as many neighbours as it takes (``per``).

    ``first`` and ``last`` are the steps of a cell's first and last line, ``walls`` and ``epochs`` its last line's, ``counts`` how
    many lines are in it.
    """

    def __init__(self, cells: int = CELLS) -> None:
        self._room = 2 * cells
        self.per = 1
        self.first, self.last, self.walls = array("d"), array("d"), array("d")
        self.epochs, self.counts = array("q"), array("q")
        self.columns: dict[str, Column] = {}
        self.lines = 0

    def __len__(self) -> int:
        return len(self.last)

    def add(self, point: TrainingPoint) -> bool:
        """Take a line; False when it was known."""
        step = float(point.step)
        if self.last and step <= self.last[-1]:
            if point.wall <= self.walls[-1]:
                return False
            self._resume(step)
        values = self._values(point.values)
        if self.last and self.counts[-1] < self.per:
            before = self.counts[-1]
            for name, column in self.columns.items():
                column.fold(-1, values.get(name, NAN), before)
            self.last[-1], self.walls[-1], self.epochs[-1], self.counts[-1] = step, point.wall, point.epoch, before + 1
        else:
            self.first.append(step)
            self.last.append(step)
            self.walls.append(point.wall)
            self.epochs.append(point.epoch)
            self.counts.append(1)
            for name, column in self.columns.items():
                column.append(values.get(name, NAN))
        self.lines += 1
        if len(self.last) >= self._room:
            self._thin()
        return True

    def _values(self, given: Mapping[str, float]) -> dict[str, float]:
        """The numbers of a line; a name that is new gets its column."""
        out = {}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value in (float("inf"), float("-inf")):
                continue
            if name not in self.columns:
                if len(self.columns) >= MOST_NAMES:
                    continue
                self.columns[name] = Column(len(self.last))
            out[name] = float(value)
        return out

    def _resume(self, step: float) -> None:
        """Drop what was logged from ``step`` on. Of a cell that lies astride nothing can be kept apart: it goes whole."""
        at = bisect_left(self.last, step)
        self.lines -= sum(self.counts[at:])
        del self.first[at:], self.last[at:], self.walls[at:], self.epochs[at:], self.counts[at:]
        for column in self.columns.values():
            column.cut(at)

    def _thin(self) -> None:
        """Two cells become one; the least and the largest value stay."""
        for column in self.columns.values():
            column.halve(self.counts)
        self.first = self.first[0::2]
        ends = [min(i + 1, len(self.last) - 1) for i in range(0, len(self.last), 2)]
        self.last, self.walls = array("d", [self.last[i] for i in ends]), array("d", [self.walls[i] for i in ends])
        self.epochs = array("q", [self.epochs[i] for i in ends])
        self.counts = array("q", [sum(self.counts[i : i + 2]) for i in range(0, len(self.counts), 2)])
        self.per *= 2


@dataclass
class Run:
    """One training as it was logged. ``whole`` once all that was logged before has been read; ``problem`` why some is missing.

    ``newest`` is the last line of a step, with all its values.
    """

    job: str
    cells: int = CELLS
    whole: bool = False
    problem: str | None = None
    newest: TrainingPoint | None = None
    train: Course = field(init=False)
    val: Course = field(init=False)

    def __post_init__(self) -> None:
        self.train, self.val = Course(self.cells), Course(self.cells)

    def add(self, point: TrainingPoint) -> bool:
        """Take a line; False when it was known."""
        if point.split == VAL:
            return self.val.add(point)
        if not self.train.add(point):
            return False
        if self.val.last and self.val.last[-1] > point.step:
            self.val._resume(point.step)  # validated on a branch that was given up
        self.newest = point
        return True
