"""What reads a training while it runs: its curve from event files, its phases from the console, its result from checkpoints."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagletui.jobs.base import status_words
from eagletui.jobs.curve import Curve
from eagletui.jobs.pace import Pace
from eagletui.jobs.tb_events import EventDir
from eagletui.jobs.told import ToldWatcher
from eagletui.jobs.train_alarms import Alarms
from eagletui.jobs.train_result import judge, positions
from eagletui.records import to_doc
from eagletui.records.training import TRAIN, VAL, TrainingPoint
from eagletui.records.work import Counter, Work
from eagletui.speculation import predicted_length

_PHASES = (
    (re.compile(r"Training epoch (\d+)/(\d+) started"), "training"),
    (re.compile(r"Training epoch (\d+)/(\d+) completed"), "epoch"),
    (re.compile(r"Validation epoch (\d+)/(\d+) started"), "validating"),
    (re.compile(r"Validation epoch (\d+)/(\d+) completed"), "validated"),
)
_SAVING = re.compile(r"Saving checkpoint to (\S+)")
_SAVED = re.compile(r"Checkpoint saved to (\S+)")
_BEST = re.compile(r"Updated checkpoint_best -> (\d+)")
_SIGNAL = re.compile(r"Received (SIG[A-Z]+) ")
_KEPT = re.compile(r"Interrupt checkpoint saved to")
_LOST = re.compile(r"Failed to save interrupt checkpoint|Interrupt checkpoint save timed out")
_CUT = re.compile(r"\bError\b.*|\b[A-Za-z_.]*(?:Error|Exception): .*")


class TrainWatcher(ToldWatcher):
    """``spec["train"]``: {"output", "epochs", "max_steps", "save_best", "dry_run", "nproc"}."""

    def __init__(self, spec: Mapping[str, Any], directory: str) -> None:
        super().__init__(spec, directory)
        self.plan: Mapping[str, Any] = spec["train"]
        self.checkpoints = os.path.join(str(self.plan["output"]), "checkpoints")
        self._events = EventDir(os.path.join(str(self.plan["output"]), "tb", "run"))
        self._curve, self._alarms, self._steps = Curve(), Alarms(), Pace()
        self._points: List[Dict[str, Any]] = []
        self._since = _last_wall(os.path.join(directory, "samples.jsonl"))
        self._born, self._live = time.time(), False
        self._began: Optional[float] = None
        self._boot = 0.0
        self._phase, self._stage = "starting", "starting"
        self._epoch_steps: Dict[int, int] = {}
        self.epochs_done = 0
        self.last: List[str] = []
        self.point: Optional[TrainingPoint] = None
        """The last step that was logged."""
        self.val: Optional[TrainingPoint] = None
        """The last validation."""
        self.signal: Optional[str] = None
        self.kept = self.lost = False
        self.error: Optional[str] = None

    # ------------------------------------------------------------------------------------------------------- the console

    def line(self, text: str, boot: float) -> None:
        for pattern, phase in _PHASES:
            match = pattern.search(text)
            if match is not None:
                self._enter(phase, int(match.group(1)), int(match.group(2)))
                return
        if _SAVING.search(text):
            self._phase, self._stage = "saving", "saving a checkpoint"
        elif _SAVED.search(text):
            self._notes.append("checkpoint saved: %s" % _SAVED.search(text).group(1))  # type: ignore[union-attr]
        elif _BEST.search(text):
            self._notes.append("the best so far: epoch %d" % (int(_BEST.search(text).group(1)) + 1))  # type: ignore[union-attr]
        elif _SIGNAL.search(text):
            self.signal = _SIGNAL.search(text).group(1)  # type: ignore[union-attr]
            self._phase, self._stage = "saving", "stopping: saves where it is"
        elif _KEPT.search(text):
            self.kept = True
            self._notes.append("stopped: where it was is saved")
        elif _LOST.search(text):
            self.lost = True
        else:
            match = _CUT.search(text)
            if match is not None and "│" not in text:
                self.error = match.group(0)[:300]

    def _enter(self, phase: str, number: int, total: int) -> None:
        if phase == "training":
            self._phase, self._stage = "training", "training epoch %d of %d" % (number, total)
        elif phase == "epoch":
            self.epochs_done = max(self.epochs_done, number)
            self._phase = "saving"
            self._notes.append("epoch %d of %d is done" % (number, total))
        elif phase == "validating":
            self._phase, self._stage = "validating", "validating epoch %d of %d" % (number, total)
        else:
            self._phase = "pause"

    # ----------------------------------------------------------------------------------------------------- the event files

    def look(self, boot: float) -> None:
        self._boot = boot
        if self._began is None:
            self._began = boot
        self._take_points(self._curve.feed(self._events.look()), boot)

    def _take_points(self, points: List[TrainingPoint], boot: float) -> None:
        for point in points:
            if point.wall > self._since:  # a supervisor that took over reads the event files anew: these are told already
                self._points.append(to_doc(point))
            if point.split == VAL:
                self.val = point
                self._notes.append(_val_words(point))
            else:
                self.point = point
                self._live = self._live or point.wall >= self._born
                self._epoch_steps[point.epoch] = max(self._epoch_steps.get(point.epoch, 0), point.step + 1)
                if self._live:  # what an earlier run made, and how long this one took to start, say nothing of its pace
                    self._steps.tell(boot, point.step + 1)
        self._alarms.take(points, boot)

    def samples(self) -> List[Dict[str, Any]]:
        out, self._points = self._points, []
        return out

    # ------------------------------------------------------------------------------------------------------ what it gives

    def _total(self) -> Tuple[Optional[float], Optional[str]]:
        """Steps in all, and how that is known."""
        told = (self._progress or {}).get("total")
        if isinstance(told, (int, float)):
            return float(told), None
        if self.plan.get("max_steps"):
            return float(self.plan["max_steps"]), None
        if self.epochs_done and 0 in self._epoch_steps and self.point is not None and self.point.epoch > 0:
            return float(self._epoch_steps[0] * int(self.plan["epochs"])), "as many steps an epoch as in the first"
        return None, None

    def work(self, boot: float) -> Optional[Work]:
        if self._began is None:
            return None
        total, basis = self._total()
        done = None if self.point is None else float(self.point.step + 1)
        pace = self._steps.basis(boot)
        return Work(
            stage=self._stage,
            done=done,
            total=total,
            unit="steps",
            rate=self._steps.rate(boot),
            remaining=self._steps.remaining(boot, total),
            basis=", ".join(word for word in (pace, basis) if word) or None,
            counters=self._counters(),
        )

    def _counters(self) -> Tuple[Counter, ...]:
        out: List[Counter] = []
        if self.point is not None:
            v = self.point.values
            # each process counts its own batch, and the first one's is logged
            speed = "tok/s a card" if int(self.plan.get("nproc") or 1) > 1 else "tok/s"
            for name, key, unit, scale in (
                ("loss", "loss", "", 1.0),
                ("lr", "lr", "", 1.0),
                ("tokens", "tokens_per_s", speed, 1.0),
                ("step", "step_ms", "ms", 1.0),
                ("waits for data", "fetch_frac", "%", 100.0),
                ("memory", "memory_mb", "MB", 1.0),
            ):
                if key in v:
                    out.append(Counter(name, v[key] * scale, unit))
            for number, share in enumerate(positions(v, "full_acc"), 1):
                out.append(Counter("accuracy %d" % number, 100.0 * share, "%"))
        if self.val is not None and "loss" in self.val.values:
            out.append(Counter("validation loss", self.val.values["loss"]))
            joint = positions(self.val.values, "full_acc")
            if joint:
                out.append(Counter("predicted length", predicted_length(joint)))
        if self._alarms.unreadable:
            out.append(Counter("unusable", self._alarms.unreadable, "samples", True))
        return tuple(out)

    def troubles(self) -> Tuple[str, ...]:
        found = dict(self._troubles)
        if self._began is not None and not self.plan.get("dry_run"):
            # until its first step of today: readers start, kernels are compiled
            phase = "training" if self._phase == "training" and self._live else "pause"
            found.update(self._alarms.look(self._boot, self._began, phase, self._curve.broken))
        if self._events.problem:
            found["events"] = self._events.problem
        if self._events.damaged:
            found["events"] = "%d damaged records were passed over" % self._events.damaged
        return tuple("%s: %s" % item for item in found.items())

    def outcome(self, rc: Optional[int], killed: bool) -> Any:
        super().outcome(rc, killed)  # reads what is left of the output
        while True:
            found = self._events.look()
            if not found:
                break
            self._take_points(self._curve.feed(found), self._boot)
        self._take_points(self._curve.close(), self._boot)
        return judge(self, rc, killed, self._curve.broken.get(TRAIN))

    def why_it_failed(self, rc: Optional[int]) -> str:
        """What its last words say, behind its status."""
        said = (self.said or {}).get("why")
        words = str(said) if said else self.error or (self.last[-1] if self.last else "")
        return "%s: %s" % (status_words(rc), words) if words else status_words(rc)


def _last_wall(path: str) -> float:
    """When the last sample that is in the file was logged; 0 when there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            lines = file.read().split(b"\n")[:-1]  # what follows the last end of a line is cut short
        return float(json.loads(lines[-1])["wall"]) if lines else 0.0
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0  # nothing was told yet, or nobody can know: told twice is as good as once, the step is the same


def _val_words(point: TrainingPoint) -> str:
    joint = positions(point.values, "full_acc")
    words = "validation after epoch %d: loss %.3f" % (point.epoch + 1, point.values.get("loss", float("nan")))
    if joint:
        words += ", accuracy %s, predicted length %.3f" % ("/".join("%.3f" % share for share in joint), predicted_length(joint))
    return words
