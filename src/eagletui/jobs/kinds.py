"""The table of kinds: a name in a spec -> its `Kind`. A kind's module is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Dict, Tuple

from eagletui.jobs.base import BadJob, Kind

_HOMES: Dict[str, Tuple[str, str]] = {
    "benchmark": ("eagletui.jobs.benchmark", "Benchmark"),
    "build": ("eagletui.jobs.build", "Build"),
    "command": ("eagletui.jobs.command", "Command"),
    "convert": ("eagletui.jobs.convert", "Convert"),
    "download": ("eagletui.jobs.download", "Download"),
    "extract": ("eagletui.jobs.extract", "Extract"),
    "pipeline": ("eagletui.jobs.pipeline", "Pipeline"),
    "prepare": ("eagletui.jobs.prepare", "Prepare"),
    "serve": ("eagletui.jobs.serve", "Serve"),
    "synthesise": ("eagletui.jobs.synthesise", "Synthesise"),
    "train": ("eagletui.jobs.train", "Train"),
    "verdict": ("eagletui.jobs.verdict", "Verdict"),
}


def names() -> Tuple[str, ...]:
    """All kinds, for help and completion."""
    return tuple(sorted(_HOMES))


def kind(name: str) -> Kind:
    """The kind called ``name``. Raises `BadJob`."""
    try:
        module, cls = _HOMES[name]
    except KeyError:
        raise BadJob("there is no kind of job called %r (known: %s)" % (name, ", ".join(names()))) from None
    found: Kind = getattr(import_module(module), cls)()
    return found
