"""Which layer ids an engine reads of a drafter's configuration: every engine and version looks in another place."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional

from eagletui.engines.preflight import known
from eagletui.engines.preflight.case import Case
from eagletui.engines.preflight.versions import before

KEY = "eagle_aux_hidden_state_layer_ids"


class Ids(NamedTuple):
    """``ids``: those that the engine reads, None when it falls back to its default. ``lost``: those it does not read, and
    ``lost_at`` where they stand. ``reads`` says in words where it looks; ``sure`` whether that is certain."""

    ids: Optional[List[int]]
    lost: Optional[List[int]] = None
    lost_at: str = ""
    reads: str = ""
    sure: bool = True


def _list(config: Mapping[str, Any], key: str) -> Optional[List[int]]:
    value = config.get(key)
    good = isinstance(value, list) and value and all(isinstance(item, int) for item in value)
    return list(value) if good else None  # type: ignore[arg-type]


def ids_read(case: Case) -> Ids:
    """The ids that this engine reads of this drafter."""
    top = _list(case.draft, KEY)
    inner = case.draft.get("eagle_config")
    nested = _list(inner, KEY) if isinstance(inner, Mapping) else None
    if case.launch.engine == "sglang":
        if nested is not None:
            return Ids(nested)
        if top is not None and case.source.get("top_ids"):
            return Ids(top)
        sure = "top_ids" in case.source
        return Ids(None, top, "at the top of the file", "SGLang reads them below eagle_config alone", sure)
    if top is not None:
        return Ids(top)
    if nested is None:
        return Ids(None)
    below = case.source.get("nested_ids")
    if below is None:
        older = before(case.version, known.NESTED_SINCE)
        if older is None:  # neither source nor version: nothing can be said against it
            return Ids(nested)
        below = not older
    if not below:
        return Ids(None, nested, "below eagle_config", "it reads them at the top alone")
    newer = case.launch.env.get("VLLM_USE_V2_MODEL_RUNNER")
    second = case.source.get("nested_ids_v2")
    if case.on_cpu or newer == "0" or second is not False:
        return Ids(nested)
    # a release with two runners: the newer one, usual on cards in late versions, does not look there
    return Ids(None, nested, "below eagle_config", "its newer model runner reads them at the top alone", newer == "1")


def count_engine_reads(case: Case) -> int:
    """How many hidden states the engine makes the first matrix for: three, unless told in the places where it counts."""
    told = case.draft.get("num_aux_hidden_states")
    if isinstance(told, int) and told > 0:
        return told
    inner = case.draft.get("eagle_config")
    nested = _list(inner, KEY) if isinstance(inner, Mapping) else None
    return len(nested) if nested else 3
