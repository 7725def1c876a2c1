"""How one finds out over HTTP that a server is ready, as data, and what its model list says. Pure.

vLLM listens only once it is ready, so any answer of ``/v1/models`` proves it: 200, or 401 when a key is needed. SGLang listens
seconds before its warm-up request has run and answers ``/v1/models`` at once, so only ``/health_generate`` (which runs one
token) or its own "ready to roll" line proves it - and that line can come from a server whose port another one holds, so
the line alone is not enough either.
"""

from __future__ import annotations

import json
from typing import Any, List, NamedTuple, Optional, Tuple

READY, STARTING, KEY_NEEDED, DEAD, UNKNOWN = "ready", "starting", "key needed", "dead", "unknown"


class Readiness(NamedTuple):
    """``path`` is what to ask, ``statuses`` what an answer means; any other status is ``unknown``, no connection ``refused``.

    ``log_needed``: the log must have said "ready" as well. ``models`` is the path of the model list, ``generates`` is True when
    asking ``path`` makes the engine run a token (so not too often). ``version`` is where it says its version: SGLang's log does
    not, and the log of a server that was only found may be lost.
    """

    engine: str
    path: str
    statuses: Tuple[Tuple[int, str], ...]
    refused: str
    log_needed: bool
    models: str
    alive: str
    generates: bool
    version: str

    def judge(self, status: Optional[int]) -> str:
        """The meaning of an HTTP status; None is a refused connection."""
        if status is None:
            return self.refused
        return dict(self.statuses).get(status, UNKNOWN)


RULES = {
    "vllm": Readiness(
        "vllm",
        "/v1/models",
        ((200, READY), (401, KEY_NEEDED), (403, KEY_NEEDED), (503, DEAD), (500, DEAD)),
        STARTING,
        False,
        "/v1/models",
        "/health",
        False,
        "/version",
    ),
    "sglang": Readiness(
        "sglang",
        "/health_generate",
        ((200, READY), (401, KEY_NEEDED), (403, KEY_NEEDED), (503, STARTING)),
        STARTING,
        True,
        "/v1/models",
        "/model_info",
        True,
        "/server_info",
    ),
}


class ServedModel(NamedTuple):
    """An entry of the model list. ``root`` is the path it was loaded from, ``adapter`` whether it is a LoRA on another."""

    id: str
    max_model_len: Optional[int] = None
    root: Optional[str] = None
    owner: Optional[str] = None
    adapter: bool = False


def served_models(body: bytes) -> List[ServedModel]:
    """The models in an answer of ``/v1/models``, the base model first.

    Raises ValueError, saying what is wrong, when it is none.
    """
    try:
        doc: Any = json.loads(body.decode("utf-8"))
    except ValueError as error:
        raise ValueError("the model list is not JSON: %s" % error) from None
    data = doc.get("data") if isinstance(doc, dict) else None
    if not isinstance(data, list):
        raise ValueError("the model list has no list under 'data'")
    out = []
    for entry in data:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            raise ValueError("the model list has an entry without an id")
        length = entry.get("max_model_len")
        root, owner = entry.get("root"), entry.get("owned_by")
        out.append(
            ServedModel(
                entry["id"],
                length if isinstance(length, int) else None,
                root if isinstance(root, str) else None,
                owner if isinstance(owner, str) else None,
                entry.get("parent") is not None,
            )
        )
    return sorted(out, key=lambda model: model.adapter)
