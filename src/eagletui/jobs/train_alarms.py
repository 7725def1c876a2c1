"""What goes wrong in a training that goes on: a loss that is no number or does not fall, data that come too slowly, silence."""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Deque, Dict, List, Optional, Tuple

from eagletui.records.training import TRAIN, VAL, TrainingPoint

STARVED = 0.3
"""Share of the time that steps wait for data: above it the disk, or the server that makes the states, is the bottleneck."""
STALLED = 10.0
"""Silence of this many median steps."""
QUIET = 30.0
"""Seconds of silence that are never a stall, however short the steps are."""
PAUSE, START = 900.0, 1800.0
"""Seconds without a step that a validation or a checkpoint may take, and the start."""
_RECENT, _LEAST = 40, 10
_PLATEAU_STEPS = 400
_FLAT = 0.002
_PATIENCE = 2
_BLIND_STEPS, _BLIND = 300, 0.001


class Alarms:
    """Fed with the points in the order they come; `look` says what holds now, by subject."""

    def __init__(self) -> None:
        self._recent: Deque[TrainingPoint] = deque(maxlen=_RECENT)
        self._losses: Deque[float] = deque(maxlen=_PLATEAU_STEPS)
        self._hits: Deque[float] = deque(maxlen=_BLIND_STEPS)
        self._vals: List[Tuple[int, float]] = []
        self._seen: Optional[float] = None
        self._rate, self._peak = 0.0, 0.0
        self.unreadable = 0.0
        """Samples that could not be read, over all steps."""
        self.steps = 0

    def take(self, points: List[TrainingPoint], boot: float) -> None:
        """These are new, ``boot`` is now."""
        for point in points:
            if point.split == VAL:
                if "loss" in point.values:
                    self._vals = [pair for pair in self._vals if pair[0] < point.epoch] + [(point.epoch, point.values["loss"])]
                continue
            before = self._recent[-1] if self._recent else None
            if before is not None and point.step <= before.step:
                self._recent.clear()  # resumed: the first steps of a start say nothing of its pace
            self._recent.append(point)
            self.steps += 1
            self.unreadable += point.values.get("error_records", 0.0)
            if "loss" in point.values:
                self._losses.append(point.values["loss"])
            if "full_acc_0" in point.values:
                self._hits.append(point.values["full_acc_0"])
            self._rate = point.values.get("lr", self._rate)
            self._peak = max(self._peak, self._rate)
        if points:
            self._seen = boot

    def step_seconds(self) -> Optional[float]:
        """The median time between two logged steps, lately; None before there are some."""
        points = list(self._recent)
        pairs = [(points[at - 1], points[at]) for at in range(1, len(points))]
        gaps = [b.wall - a.wall for a, b in pairs if b.epoch == a.epoch and b.wall >= a.wall]
        return median(gaps) if len(gaps) >= 3 else None

    def look(self, boot: float, began: float, phase: str, broken: Dict[str, int]) -> Dict[str, str]:
        """What needs a person now. ``began``: the job's start; ``phase``: training, or pause while it saves or validates."""
        out: Dict[str, str] = {}
        for split, step in broken.items():
            name = "training" if split == TRAIN else "validation"
            out["loss"] = "the %s loss is no number since step %d: stop it, lower lr, look at the hidden states" % (name, step)
        text = self._starved()
        if text:
            out["data"] = text
        text = self._flat()
        if text:
            out["plateau"] = text
        text = self._blind()
        if text:
            out["accuracy"] = text
        if self.unreadable:
            out["samples"] = "%d could not be used (missing, unreadable, or of other tokens)" % self.unreadable
        text = self._stalled(boot, began, phase)
        if text:
            out["stall"] = text
        return out

    def _starved(self) -> Optional[str]:
        points = list(self._recent)[1:]  # the first one waits for the loader's processes to start
        waits = sum(point.values.get("fetch_ms", 0.0) for point in points)
        steps = sum(point.values.get("step_ms", 0.0) for point in points)
        if len(points) < _LEAST or steps <= 0 or waits / steps <= STARVED:
            return None
        return "%.0f %% of a step waits for data: the disk is too slow, or num_workers too small" % (100 * waits / steps)

    def _flat(self) -> Optional[str]:
        if len(self._vals) > _PATIENCE:
            epoch, best = min(self._vals, key=lambda pair: pair[1])
            since = self._vals[-1][0] - epoch
            if since >= _PATIENCE:
                return "the validation loss has not fallen for %d epochs (best %.3f after epoch %d)" % (since, best, epoch + 1)
        losses = list(self._losses)
        if len(losses) < _PLATEAU_STEPS or self._rate < self._peak / 10:
            return None  # at the end of its schedule a training moves little, as it should
        half = len(losses) // 2
        before, after = sum(losses[:half]) / half, sum(losses[half:]) / (len(losses) - half)
        if before <= 0 or (before - after) / before >= _FLAT:
            return None
        return "the loss has not fallen for %d steps (%.3f, then %.3f)" % (len(losses), before, after)

    def _blind(self) -> Optional[str]:
        if len(self._hits) < _BLIND_STEPS or sum(self._hits) / len(self._hits) >= _BLIND:
            return None
        return "nothing is predicted right after %d steps: the hidden states or the vocabulary mapping do not fit" % self.steps

    def _stalled(self, boot: float, began: float, phase: str) -> Optional[str]:
        if self._seen is None:
            return None if boot - began < START else "no step for %.0f min since the start" % ((boot - began) / 60)
        silent = boot - self._seen
        usual = self.step_seconds()
        limit = PAUSE if phase != "training" or usual is None else max(QUIET, STALLED * usual)
        if silent <= limit:
            return None
        more = "" if usual is None else ", a step takes %.1f s" % usual
        return "nothing was logged for %.0f s%s: look at its processes" % (silent, more)
