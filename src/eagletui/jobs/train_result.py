"""How a training ended: by the checkpoints it left and the words it said. Its exit status is 0 after a stop as well."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagletui.jobs import checkpoints
from eagletui.jobs.checkpoints import Checkpoint
from eagletui.jobs.tensors import BadTensors, folder_headers
from eagletui.jobs.watcher import Outcome
from eagletui.speculation import predicted_length


def positions(values: Mapping[str, float], name: str) -> Tuple[float, ...]:
    """``name_0``, ``name_1`` ... as far as they go."""
    out: List[float] = []
    while "%s_%d" % (name, len(out)) in values:
        out.append(float(values["%s_%d" % (name, len(out))]))
    return tuple(out)


def val_doc(values: Mapping[str, float]) -> Dict[str, Any]:
    """A validation for a result: {"loss", "losses", "full_acc", "cond_acc"}."""
    doc: Dict[str, Any] = {}
    if "loss" in values:
        doc["loss"] = values["loss"]
    for key, name in (("losses", "loss"), ("full_acc", "full_acc"), ("cond_acc", "cond_acc")):
        found = positions(values, name)
        if found:
            doc[key] = list(found)
    return doc


def _plain(metrics: Optional[Mapping[str, float]]) -> Dict[str, float]:
    """val_metrics.json with the names that the curve has."""
    return {name[: -len("_epoch")] if name.endswith("_epoch") else name: value for name, value in (metrics or {}).items()}


def judge(watcher: Any, rc: Optional[int], killed: bool, broken: Optional[int]) -> Outcome:
    """``watcher`` is the training's (`TrainWatcher`), ``broken`` the last step if its loss was no number."""
    plan = watcher.plan
    if plan.get("dry_run"):
        return _dry(watcher, rc, killed)
    found = checkpoints.epochs(watcher.checkpoints)
    whole = [checkpoint for checkpoint in found if checkpoint.problem is None]
    last = whole[-1] if whole else None
    finished = _finished(watcher, last)
    best = _best(watcher.checkpoints, whole) or last
    steps = watcher.point.step + 1 if watcher.point is not None else last.global_step if last is not None else None
    result: Dict[str, Any] = {
        "checkpoint": None if last is None else last.path,
        "best": None if best is None else best.path,
        "epochs": sum(1 for checkpoint in whole if checkpoint.local_step == 0),
        "steps": steps,
        "finished": finished,
    }
    values = _plain(best.val if best is not None else None) or (dict(watcher.val.values) if watcher.val is not None else {})
    if values:
        result["val"] = val_doc(values)
        joint = positions(values, "full_acc")
        if joint:
            result["predicted_length"] = predicted_length(joint)
    result = {key: value for key, value in result.items() if value is not None}
    return _words(watcher, rc, killed, broken, result, found)


def _finished(watcher: Any, last: Optional[Checkpoint]) -> bool:
    """Whether all steps were made and the last checkpoint is whole: by files first, for the words may be cut from the log."""
    if last is None or last.epoch is None:
        return False
    said = bool((watcher.said or {}).get("finished"))
    plan = watcher.plan
    if plan.get("save_best"):
        return said or watcher.epochs_done >= int(plan["epochs"])  # only the best is kept, whichever that was
    if plan.get("max_steps") and last.global_step is not None and last.global_step >= int(plan["max_steps"]):
        return True
    return last.local_step == 0 and (last.epoch >= int(plan["epochs"]) - 1 or said)


def _best(path: str, whole: List[Checkpoint]) -> Optional[Checkpoint]:
    target = checkpoints.best(path)
    if target is None:
        return None
    return next((checkpoint for checkpoint in whole if checkpoint.path == target), None)


def _words(
    watcher: Any, rc: Optional[int], killed: bool, broken: Optional[int], result: Dict[str, Any], found: List[Checkpoint]
) -> Outcome:
    epochs = int(watcher.plan["epochs"])
    far = "%d of %d epochs, %s steps" % (result["epochs"], epochs, result.get("steps", "no"))
    kept = checkpoints.interrupted(watcher.checkpoints)
    if result["finished"]:
        if broken is not None:
            return Outcome(False, "finished (%s), but its loss is no number since step %d" % (far, broken), result)
        why = "finished: %s" % far
        if "predicted_length" in result:
            why += ", predicted length %.3f" % result["predicted_length"]
        if rc not in (0, None) and not killed:
            why += "; all files are whole, then it failed while it cleaned up (%s)" % watcher.why_it_failed(rc)
        return Outcome(True, why, result)
    damaged = [checkpoint for checkpoint in found if checkpoint.problem is not None]
    if damaged:
        result["incomplete"] = [checkpoint.path for checkpoint in damaged]
    saved = watcher.kept and kept is not None and kept.problem is None
    if saved and kept is not None:
        result["interrupted"] = kept.path
    goes_on = (
        "saved, and goes on from there when it is started again"
        if saved
        else "goes on from its last whole checkpoint when it is started again"
        if result["epochs"] or "checkpoint" in result
        else "nothing was saved"
    )
    if killed:
        return Outcome(None, "stopped on request after %s: %s" % (far, goes_on), result)
    if watcher.signal is not None:
        lost = " (the save failed)" if watcher.lost else ""
        return Outcome(False, "stopped by %s after %s: %s%s" % (watcher.signal, far, goes_on, lost), result)
    if rc is None:
        return Outcome(None, "ended with an unknown status after %s: %s" % (far, goes_on), result)
    if rc == 0:
        return Outcome(False, "ended before it had finished, after %s" % far, result)
    return Outcome(False, "failed after %s (%s)" % (far, watcher.why_it_failed(rc)), result)


def _dry(watcher: Any, rc: Optional[int], killed: bool) -> Outcome:
    """An untrained drafter of the same shape: only whether it is there."""
    try:
        tensors = folder_headers(watcher.checkpoints)
    except BadTensors as error:
        if killed:
            return Outcome(None, "ended on request", {})
        return Outcome(False, watcher.why_it_failed(rc) if rc else str(error), {})
    if not os.path.isfile(os.path.join(watcher.checkpoints, "config.json")):
        return Outcome(False, "there is no config.json in %s" % watcher.checkpoints, {})
    result = {"checkpoint": watcher.checkpoints, "best": watcher.checkpoints, "epochs": 0, "steps": 0, "finished": True}
    return Outcome(True, "an untrained drafter of %d tensors" % len(tensors), result)
