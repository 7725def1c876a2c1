"""One small request to a server that extracts hidden states: what it really hands out, before thousands are sent."""

from __future__ import annotations

import fcntl
import json
import os
import time
import urllib.error
import urllib.request
from typing import Any, Dict, NamedTuple, Optional, Sequence

from eagletui.jobs.hidden_states import FORMATS, IDS, STATES
from eagletui.jobs.tensors import BadTensors, read_header

_LOCK_SECONDS = 60.0
_HOW = "start it with method extract_hidden_states and the ExampleHiddenStatesConnector"


class NoStates(Exception):
    """The server does not hand out what is needed; the text says why and what to do."""


class Handed(NamedTuple):
    """``layers`` and ``width`` of what it hands out, the number format (bfloat16 ...), and the folder it writes to."""

    layers: int
    width: int
    dtype: str
    storage: str


def probe(endpoint: str, ids: Sequence[int], seconds: float) -> Handed:
    """Have the server compute ``ids`` (a few tokens) and read the file it left; that is removed again. Raises `NoStates`."""
    endpoint = endpoint.rstrip("/")
    models = _ask(endpoint, "/models", None, seconds).get("data")
    if not models:
        raise NoStates("the server at %s has no model yet: wait until it is ready" % endpoint)
    body = {"model": models[0]["id"], "prompt": list(ids), "max_tokens": 1, "return_token_ids": True}
    answer = _ask(endpoint, "/completions", body, seconds)
    params = answer.get("kv_transfer_params") or {}
    path = params.get("hidden_states_path") or params.get("handle")
    if not isinstance(path, str):
        raise NoStates("the server at %s answers without hidden states: %s" % (endpoint, _HOW))
    if not path.startswith("/"):
        raise NoStates("the server leaves its hidden states at %r: give it an absolute path" % path)
    try:
        _wait_for(path)
        header = read_header(path)
        states, tokens = header[STATES], header[IDS]
    except (BadTensors, KeyError, OSError) as error:
        raise NoStates("what the server wrote cannot be read here (%s): is it on this machine?" % error) from None
    finally:
        for name in (path, path + ".lock"):
            _remove(name)
    if tokens.shape != (len(ids),) or len(states.shape) != 3 or states.shape[0] != len(ids):
        words = (len(ids), list(states.shape))
        raise NoStates("of %d tokens the server wrote states of the shape %s: is its prefix cache off?" % words)
    names = [name for name, form in FORMATS.items() if form.name == states.dtype]
    if not names:
        raise NoStates("the server writes states in %s, and only %s are read" % (states.dtype, ", ".join(FORMATS)))
    return Handed(states.shape[1], states.shape[2], names[0], os.path.dirname(path))


def _ask(endpoint: str, path: str, body: Optional[Dict[str, Any]], seconds: float) -> Dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    if not endpoint.startswith(("http://", "https://")):
        raise NoStates("endpoint: %r is no address" % endpoint)
    request = urllib.request.Request(endpoint + path, data, {"Content-Type": "application/json"})  # noqa: S310 - checked above
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a server of this machine, whatever proxies are set
    try:
        with opener.open(request, timeout=seconds) as answer:
            doc = json.loads(answer.read().decode("utf-8"))
    except urllib.error.HTTPError as error:
        text = error.read(300).decode("utf-8", "replace").strip()
        raise NoStates("the server at %s refuses the first sample (%d: %s)" % (endpoint, error.code, text)) from None
    except (OSError, ValueError) as error:
        raise NoStates("no server answers at %s (%s): start it, or correct endpoint" % (endpoint, error)) from None
    return doc if isinstance(doc, dict) else {}


def _wait_for(path: str) -> None:
    """Until the server has let go of the file's lock; it holds that from before it answers."""
    lock = path + ".lock"
    end = time.monotonic() + _LOCK_SECONDS
    while os.path.exists(lock):
        with open(lock, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > end:
                    raise OSError("its lock was not released for %d s" % _LOCK_SECONDS) from None
        time.sleep(0.05)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # it was never written, or lies on another machine: what is left is a few tokens' states
