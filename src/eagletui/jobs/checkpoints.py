"""The checkpoints that `speculators train` leaves, and which of them are whole. It writes them in place, file after file.

``PATH/<epoch>/`` holds config.json, model.safetensors, the states of optimizer and scheduler, and last of all
training_state.json: without that one it was not finished. ``interrupted/`` is what a stopped training saved,
``checkpoint_best`` a link to the best epoch, val_metrics.json lies in epochs that were the best so far.
"""

from __future__ import annotations

import json
import os
import zipfile
from typing import Any, Dict, List, NamedTuple, Optional

from eagletui.jobs.tensors import BadTensors, folder_headers

INTERRUPTED, BEST, STATE = "interrupted", "checkpoint_best", "training_state.json"


class Checkpoint(NamedTuple):
    """One folder. ``problem`` says what it lacks, None when it is whole; ``local_step`` is 0 at the end of its epoch.

    ``epoch``, ``local_step`` (steps in that epoch) and ``global_step`` (steps in all) are None where no state says so.
    """

    name: str
    path: str
    epoch: Optional[int]
    local_step: Optional[int]
    global_step: Optional[int]
    problem: Optional[str]
    val: Optional[Dict[str, float]] = None


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """An object from a file; None when there is none, or not a whole one."""
    try:
        with open(path, "rb") as file:
            doc = json.load(file)
    except (OSError, ValueError):
        return None  # absent or half written: both mean that it cannot be used, which is all that is asked here
    return doc if isinstance(doc, dict) else None


def read_checkpoint(path: str) -> Checkpoint:
    """What lies in one folder. Reads headers only."""
    name = os.path.basename(path)
    state = read_json(os.path.join(path, STATE)) or {}
    numbers = [state.get(key) for key in ("epoch", "local_step", "global_step")]
    whole = all(isinstance(number, int) and number >= 0 for number in numbers)
    problem = _weights_problem(path)
    if problem is None and not whole:
        problem = "it has no %s that can be read: it was being written when the training ended" % STATE
    epoch, local_step, global_step = numbers if whole else (None, None, None)
    metrics = read_json(os.path.join(path, "val_metrics.json"))
    val = None if metrics is None else {str(k): float(v) for k, v in metrics.items() if isinstance(v, (int, float))}
    return Checkpoint(name, path, epoch, local_step, global_step, problem, val)


def _weights_problem(path: str) -> Optional[str]:
    if read_json(os.path.join(path, "config.json")) is None:
        return "it has no config.json that can be read"
    try:
        folder_headers(path)
    except BadTensors as error:
        return str(error)
    optimizer = os.path.join(path, "optimizer_state_dict.pt")
    if not os.path.isfile(optimizer):
        return "it has no optimizer_state_dict.pt"
    # torch writes a zip, whose table of contents comes last
    return None if zipfile.is_zipfile(optimizer) else "%s is cut short" % optimizer


def epochs(path: str) -> List[Checkpoint]:
    """The checkpoints of epochs below ``path``, the first epoch first; whole and broken ones."""
    try:
        names = [name for name in os.listdir(path) if name.isdigit()]
    except OSError:
        return []  # no checkpoint was saved yet
    folders = [os.path.join(path, name) for name in sorted(names, key=int)]
    return [read_checkpoint(folder) for folder in folders if os.path.isdir(folder) and not os.path.islink(folder)]


def best(path: str) -> Optional[str]:
    """The folder that ``checkpoint_best`` leads to; None while there is none."""
    link = os.path.join(path, BEST)
    try:
        target = os.path.join(path, os.readlink(link))
    except OSError:
        return None  # no validation yet
    return target if os.path.isdir(target) else None


def interrupted(path: str) -> Optional[Checkpoint]:
    """What a stopped training saved; None when there is nothing."""
    folder = os.path.join(path, INTERRUPTED)
    return read_checkpoint(folder) if os.path.isdir(folder) else None
