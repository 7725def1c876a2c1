"""`http`: one request to a server on this host's loopback, made here, so that it costs the client one round trip."""

from __future__ import annotations

import errno
import os
from typing import Dict

from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.fetch import Answer, Fetch

MAX_BODY = 8 * 1024 * 1024
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_OURS = frozenset(("host", "connection", "content-length", "transfer-encoding", "accept-encoding"))


def http(call: Call) -> None:
    port = int(call.number("port", None, 1, 65535))
    path, method = call.text("path"), call.text("method", "GET").upper()
    timeout = call.number("timeout", 5.0, 0.05, 3600)
    if not method or not set(method) <= _TOKEN or not path.startswith("/") or not all("!" <= c <= "~" for c in path):
        raise CallError("http", "%r is not a request" % ("%s %s" % (method, path)))
    headers = _headers(call)
    step = "http 127.0.0.1:%d" % port

    def done(answer: Answer) -> None:
        if not answer.status:
            refused = answer.error == os.strerror(errno.ECONNREFUSED)
            if refused:
                call.fail(step, "nothing listens on port %d" % port, kind="absent")
            else:
                call.fail(step, answer.error)
        elif len(answer.body) > MAX_BODY:
            call.fail(step, "an answer of %d MiB, more than %d" % (len(answer.body) >> 20, MAX_BODY >> 20))
        else:
            call.reply({"status": answer.status, "headers": answer.headers}, answer.body)

    fetch = Fetch(call.loop, port, path, done, method, call.body, headers, timeout)
    call.on_cancel = fetch.cancel


def _headers(call: Call) -> Dict[str, str]:
    """The client's own headers, without those that are made here. Raises `CallError` for what would break their lines."""
    headers = call.params.get("headers") or {}
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        raise CallError("request", "'headers' should be an object of texts")
    for name, value in headers.items():
        if not name or not set(name) <= _TOKEN or any(c in value for c in "\r\n\0"):
            raise CallError("http", "the header %r is not one" % name)
    return {name: value for name, value in headers.items() if name.lower() not in _OURS}


METHODS: Dict[str, Handler] = {"http": http}
