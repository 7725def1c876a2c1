"""The curve of a training from what its trainer logs: scalars by tag become one point a step, and one a validation.

speculators 0.9 logs for each step ``train/...``, ``profile/...``, ``epoch``, ``lr`` and ``global_step``, in this order. After an
epoch come ``val/..._epoch`` and ``epoch``, under the number of the step that is next. After a resume steps come again: what was
logged last counts.
"""

from __future__ import annotations

from math import isfinite
from typing import Dict, Iterable, List, Optional, Tuple

from eagletui.jobs.tb_events import Scalar
from eagletui.records.training import TRAIN, VAL, TrainingPoint

_HOMES = ("train/", "profile/", "val/", "lr/")
_MEMORY = "profile/memory_mb/"
# the last tag of a record, by its split: then the record is whole
_LAST = {TRAIN: "global_step", VAL: "epoch"}


class _Open:
    """A record whose tags are still coming."""

    def __init__(self, first: Scalar, split: str) -> None:
        self.wall, self.step, self.split = first.wall, first.step, split
        self.epoch = 0
        self.tags: Dict[str, float] = {}

    def point(self) -> TrainingPoint:
        values: Dict[str, float] = {}
        for tag, value in self.tags.items():
            name = _name(tag)
            if name is None or not isfinite(value):
                continue
            values[name] = max(value, values.get(name, 0.0)) if tag.startswith(_MEMORY) else value
        rates = [value for tag, value in self.tags.items() if tag.startswith("lr/") and isfinite(value)]
        if rates and "lr" not in values:
            values["lr"] = rates[0]
        step = max(0, self.step - 1) if self.split == VAL else self.step
        return TrainingPoint(self.wall, step, self.epoch, self.split, values)

    def broken(self) -> bool:
        return any(not isfinite(value) for tag, value in self.tags.items() if tag.startswith(("train/loss", "val/loss")))


def _name(tag: str) -> Optional[str]:
    if tag in ("epoch", "global_step"):
        return None
    if tag.startswith(_MEMORY):
        return "memory_mb"
    if tag.startswith("lr/"):
        return "lr_" + tag[3:]
    for home in _HOMES:
        if tag.startswith(home):
            tag = tag[len(home) :]
            break
    return tag[: -len("_epoch")] if tag.endswith("_epoch") else tag


def _split(tag: str) -> Optional[str]:
    """Which kind of record a tag begins or belongs to; None for those that both kinds have."""
    if tag.startswith("val/"):
        return VAL
    return TRAIN if tag.startswith(("train/", "profile/")) else None


class Curve:
    """Tell it the scalars as they are read; it gives each point once, and again when a later run made the same step anew."""

    def __init__(self) -> None:
        self._open: Optional[_Open] = None
        self._walls: Dict[Tuple[str, int], float] = {}
        self.broken: Dict[str, int] = {}
        """Per split the last step whose loss was no number; absent once a later one is again."""

    def feed(self, scalars: Iterable[Scalar]) -> List[TrainingPoint]:
        """The points that these complete."""
        out: List[TrainingPoint] = []
        for scalar in scalars:
            split, now = _split(scalar.tag), self._open
            if now is not None and (
                scalar.step != now.step or scalar.tag in now.tags or (split is not None and split != now.split)
            ):
                out += self.close()
                now = None
            if now is None:
                if split is None:
                    continue  # the rest of a record whose beginning was cut off
                now = self._open = _Open(scalar, split)
            now.tags[scalar.tag] = scalar.value
            if scalar.tag == "epoch" and isfinite(scalar.value):
                now.epoch = int(scalar.value)
            if scalar.tag == _LAST[now.split]:
                out += self.close()
        return out

    def close(self) -> List[TrainingPoint]:
        """The record that is under way, taken as whole: nothing more comes."""
        now, self._open = self._open, None
        if now is None:
            return []
        key = (now.split, now.step)
        if now.wall < self._walls.get(key, 0.0):
            return []  # an older file, read late: a resumed run has made this step again since
        self._walls[key] = now.wall
        if "train/loss" not in now.tags and "val/loss_epoch" not in now.tags:
            return []  # its trainer was killed in the middle of it
        if now.broken():
            self.broken[now.split] = now.step
        else:
            self.broken.pop(now.split, None)
        return [now.point()]
