"""All entries of the failure catalogue, in the order of a launch. `ENTRIES` is data, `MATCHERS` the same ready for use."""

from __future__ import annotations

from typing import Dict, Tuple

from eagletui.engines.diagnosis.catalogue import (
    build,
    drafter,
    fabric,
    files,
    host,
    kernels,
    launch,
    memory,
    model,
    serving,
    speculative,
)
from eagletui.engines.diagnosis.entry import Matcher, Signature

THEMES: Tuple[Tuple[str, Tuple[Signature, ...]], ...] = (
    ("Building and importing", build.ENTRIES),
    ("Command line, ports, limits", launch.ENTRIES),
    ("Models, tokenizers, files", files.ENTRIES),
    ("What the model asks of the engine", model.ENTRIES),
    ("Speculative decoding: configuration", speculative.ENTRIES),
    ("Speculative decoding: the drafter's weights", drafter.ENTRIES),
    ("Memory", memory.ENTRIES),
    ("NCCL, PCIe, shared memory", fabric.ENTRIES),
    ("Kernels and compilers", kernels.ENTRIES),
    ("Serving, and how processes end", serving.ENTRIES),
    ("Driver, cards, host", host.ENTRIES),
)

ENTRIES: Tuple[Signature, ...] = tuple(entry for _, entries in THEMES for entry in entries)
BY_ID: Dict[str, Signature] = {entry.id: entry for entry in ENTRIES}
MATCHERS: Tuple[Matcher, ...] = tuple(Matcher(entry) for entry in ENTRIES)
