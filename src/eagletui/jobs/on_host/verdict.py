"""The verdict over the arms of a plan: ``PYTHON -m eagletui.jobs.on_host.verdict SETTINGS``.

SETTINGS is a JSON object, the keys of the kind (see `eagletui.jobs.verdict`). OUTPUT gets ``verdict.json`` (a `BenchVerdict`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from eagletui.jobs.bench.cells import merged
from eagletui.jobs.bench.compare import CostKey
from eagletui.jobs.bench.judge import Arm, known_costs, verdict
from eagletui.jobs.on_host.telling import Teller
from eagletui.records import BadRecord, from_doc, to_doc
from eagletui.records.bench import BenchResult, BenchVerdict


class Missing(Exception):
    """A file that the verdict needs is not there or is no such file; the text says which."""


def load(path: str) -> Any:
    """The JSON of a file. Raises `Missing`."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise Missing("%s cannot be read: %s" % (path, error.strerror or error)) from None
    except ValueError as error:
        raise Missing("%s is no JSON: %s" % (path, error)) from None


def result_of(path: str) -> BenchResult:
    """The result of a benchmark, by its file or its output. Raises `Missing`."""
    file = os.path.join(path, "result.json") if os.path.isdir(path) else path
    try:
        return from_doc(BenchResult, load(file))
    except BadRecord as error:
        raise Missing("%s is no result of a benchmark: %s" % (file, error)) from None


def validation_of(value: Any) -> Tuple[float, ...]:
    """Joint accuracies per position: given, or in a ``val_metrics.json``, or below a training's output. Raises `Missing`."""
    if not value:
        return ()
    if isinstance(value, (list, tuple)):
        return tuple(float(one) for one in value)
    doc = load(_metrics_file(str(value)))
    numbers = _full(doc)
    if not numbers:
        raise Missing("%s has no joint accuracies (full_acc_0 ...)" % value)
    return numbers


def _metrics_file(path: str) -> str:
    if not os.path.isdir(path):
        return path
    for name in ("val_metrics.json", "checkpoint_best/val_metrics.json", "checkpoints/checkpoint_best/val_metrics.json"):
        if os.path.exists(os.path.join(path, name)):
            return os.path.join(path, name)
    raise Missing("%s has no val_metrics.json" % path)


def _full(doc: Any) -> Tuple[float, ...]:
    """``full_acc_0``, ``full_acc_1`` ... wherever they stand, with or without a prefix and ``_epoch``; or a list ``full_acc``."""
    found: Dict[int, float] = {}

    def look(value: Any) -> None:
        if not isinstance(value, Mapping):
            return
        if isinstance(value.get("full_acc"), list):
            found.update({at: float(one) for at, one in enumerate(value["full_acc"])})
        for name, one in value.items():
            word = str(name).rpartition("/")[2]
            word = word[: -len("_epoch")] if word.endswith("_epoch") else word
            place = word[len("full_acc_") :] if word.startswith("full_acc_") else ""
            if place.isdigit() and isinstance(one, (int, float)):
                found[int(place)] = float(one)
            else:
                look(one)

    look(doc)
    return tuple(found[at] for at in range(len(found))) if set(found) == set(range(len(found))) else ()


def costs_of(paths: Sequence[str]) -> Dict[CostKey, float]:
    """C from earlier verdicts on this host, the last one counting most. Raises `Missing`."""
    out: Dict[CostKey, float] = {}
    for path in paths:
        file = os.path.join(path, "verdict.json") if os.path.isdir(path) else path
        try:
            out.update(known_costs(from_doc(BenchVerdict, load(file))))
        except BadRecord as error:
            raise Missing("%s is no verdict: %s" % (file, error)) from None
    return out


def judge(settings: Mapping[str, Any]) -> BenchVerdict:
    """The verdict over the arms that SETTINGS name. Raises `Missing`."""
    arms: List[Arm] = []
    for one in settings["arms"]:
        blocks = [result_of(path) for path in one["results"]]
        paths = tuple(block.path for block in blocks if block.path)
        arms.append(Arm(merged(blocks), validation_of(one.get("validation")), paths))
    earlier = settings.get("earlier")
    return verdict(arms, str(settings.get("title") or ""), costs_of(earlier) if earlier else None, time.time())


def main(argv: List[str]) -> int:
    settings = json.loads(argv[0])
    teller = Teller("arms")
    teller.stage("judging", total=len(settings["arms"]), done=0)
    why: Optional[str] = None
    try:
        found = judge(settings)
        os.makedirs(settings["output"], exist_ok=True)
        path = os.path.join(settings["output"], "verdict.json")
        temp = path + ".new"
        with open(temp, "w", encoding="utf-8", errors="surrogatepass") as file:
            json.dump(to_doc(found), file, ensure_ascii=False, indent=1)
        os.replace(temp, path)
    except (Missing, OSError) as error:
        why = str(error)
    if why is not None:
        teller.result(why=why)
        print(why, flush=True)  # noqa: T201 - the last line of the log says why
        return 1
    teller.progress(len(settings["arms"]), at_once=True)
    print(found.headline, flush=True)  # noqa: T201 - what a person reads in the log
    judged = sum(1 for one in found.comparisons for load in one.loads if load.pays is not None)
    teller.result(why=found.headline, path=path, judged=judged, suspects=len(found.suspects), verdict=to_doc(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
