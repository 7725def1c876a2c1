"""Before a training starts again: what it left is put in order, so that it goes on where it was and from nothing half written.

The trainer goes on from the highest numbered folder whether that is whole or not, and never from ``interrupted/``.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import List, Optional

from eagletui.jobs.checkpoints import INTERRUPTED, STATE, Checkpoint, epochs, interrupted


def write_state(folder: str, epoch: int, local_step: int, global_step: int) -> None:
    """training_state.json as the trainer writes it, but whole or not at all."""
    path = os.path.join(folder, STATE)
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump({"epoch": epoch, "local_step": local_step, "global_step": global_step}, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)


def put_in_order(path: str) -> List[str]:
    """Set half-written checkpoints aside and take up an interrupted one. What was done, one line each."""
    said: List[str] = []
    for checkpoint in epochs(path):
        if checkpoint.problem is not None:
            aside = _free(os.path.join(path, "incomplete-%s" % checkpoint.name))
            os.rename(checkpoint.path, aside)
            said.append("checkpoint %s is not whole (%s): kept as %s" % (checkpoint.name, checkpoint.problem, aside))
    found = interrupted(path)
    if found is not None:
        said.append(_take_up(path, found))
    return said


def _take_up(path: str, found: Checkpoint) -> str:
    """Make ``interrupted/`` the checkpoint of its epoch when it is the newest; else set it aside."""
    if found.problem is not None or found.epoch is None:
        aside = _free(os.path.join(path, "incomplete-%s" % INTERRUPTED))
        os.rename(found.path, aside)
        return "what was saved at the interruption is not whole (%s): kept as %s" % (found.problem, aside)
    last = epochs(path)[-1:]
    newest = last[0].global_step if last and last[0].global_step is not None else -1
    if found.global_step is None or not found.local_step or found.global_step <= newest:
        aside = _free(os.path.join(path, "older-%s" % INTERRUPTED))
        os.rename(found.path, aside)
        return "what was saved at the interruption is no step ahead of the last checkpoint: kept as %s" % aside
    place = os.path.join(path, str(found.epoch))
    older: Optional[str] = None
    if os.path.isdir(place):  # saved in the middle of the same epoch, before the interruption
        older = _free(os.path.join(path, "older-%d" % found.epoch))
        os.rename(place, older)
    os.rename(found.path, place)
    if older is not None:
        shutil.rmtree(older, ignore_errors=True)  # what cannot be removed only takes room
    return "goes on from the interruption: epoch %d, step %d" % (found.epoch + 1, found.global_step)


def _free(path: str) -> str:
    """The path, or the first one like it that nothing has."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = "%s-%d" % (path, number)
    return free
