"""Requests that patching an engine needs beside `read` and `write`: where it is installed, and removing a kept original again."""

from __future__ import annotations

import hashlib
import os
from typing import Dict

from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.files import absolute, in_worker, open_regular
from eagletui.engines.patches.core import BACKUP


def engine(call: Call) -> None:
    """Where the engine ``engine`` of the command ``argv`` is installed: see `facts.engine.find`."""
    name, argv = call.text("engine"), call.params.get("argv")
    env = call.params.get("env") or {}
    if not isinstance(argv, list) or not isinstance(env, dict):
        raise CallError("request", "'argv' should be a list and 'env' an object")
    from eagletui.agent.facts.engine import find

    given = {str(key): str(value) for key, value in env.items()}
    in_worker(call, "engine", "", lambda: find(name, [str(w) for w in argv], {**os.environ, **given}, call.text("cwd", "/")))


def discard(call: Call) -> None:
    """Remove an original that was kept beside a patched file. Nothing of another name, and nothing that has changed."""
    path, expect = absolute(call), call.text("expect_sha")
    if not path.endswith(BACKUP):
        raise CallError("discard %s" % path, "it is no original that was kept by a patch")
    in_worker(call, "discard", path, lambda: _discard(path, expect))


def _discard(path: str, expect: str) -> "Dict[str, str]":
    fd, _ = open_regular(path, "discard")
    with os.fdopen(fd, "rb") as file:
        if hashlib.sha256(file.read()).hexdigest() != expect:
            raise CallError("discard %s" % path, "it was changed meanwhile", "look at it again", "replaced")
    os.unlink(path)
    return {}


METHODS: Dict[str, Handler] = {"engine": engine, "discard": discard}
