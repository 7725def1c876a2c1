"""A training's samples: what its trainer logged of one step, or of the validation after an epoch."""

from __future__ import annotations

from typing import Dict, NamedTuple

TRAIN, VAL = "train", "val"


class TrainingPoint(NamedTuple):
    """One line of a training's ``samples.jsonl``.

    ``wall`` is when the trainer wrote it, ``step`` the optimizer steps since the training began (over resumes; the same step
    again replaces the one before), ``epoch`` counts from 0. ``split`` is `TRAIN` for one step and `VAL` for the validation
    that follows an epoch, whose ``step`` is the last one before it. ``values`` by name, absent where the trainer logged none:

    - ``loss``: the sum over the drafted positions; ``loss_0`` ... each one's own;
    - ``full_acc_0`` ...: the share (0..1) of tokens where the drafter is right at this position and at all before it (joint);
      ``cond_acc_0`` ...: right at this position among those right before it (conditional);
    - ``lr``: learning rate (``lr_NAME`` of each optimizer where there are several, ``lr`` the first one's);
    - ``tokens_per_s`` of the first process alone (one a card); ``step_ms`` and its parts ``fetch_ms``, ``fwd_ms``, ``bwd_ms``,
      ``opt_ms``, ``queue_ms``, ``h2d_ms``, ``clip_ms``; ``fetch_frac``: the share (0..1) of a step that waits for data;
    - ``error_records``: samples of this step that could not be used; ``memory_mb``: the most that a card's allocator held.

    A value that was no number is left out. There is no gradient norm: the trainer logs none.
    """

    wall: float
    step: int
    epoch: int
    split: str
    values: Dict[str, float]
