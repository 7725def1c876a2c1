"""What every kind of job has: how a profile becomes a spec, what it is called, and how its end is judged. Pure functions.

A spec is what the host is asked to run (a JSON object)::

    id, kind, name     the id is made by the client: a launch that is sent twice starts once
    argv, cwd, env     the program; ``env`` holds names and values that are no secrets
    leases             {"port": int, "gpus": [uuid ...]}: what no other job may have at the same time
    server             True when it answers on ``port``
    ready              how that is found out: ``health`` (path), ``after_log``, ``metrics``, ``smoke``
    engine, model, drafter, k, port, gpus, profile, operator
    graces             seconds after SIGTERM to the main process, SIGTERM to all, SIGKILL
    log_cap            bytes of the log that are kept
    container          {"engine", "name", "image", "program"}: argv starts it, and it is ended through its engine
    runner             docker or podman, for such a job
    on_host            True when argv runs a program of ours (``PYTHON -m eagletui.jobs.on_host.NAME``): the supervisor puts this
                       package on the program's PYTHONPATH
    parent             the pipeline that it is a step of
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from eagletui.jobs.keys import Key, Wrong
from eagletui.jobs.watcher import Watcher
from eagletui.records.redact import HIDDEN as HIDDEN
from eagletui.records.redact import redact_argv as redact_argv
from eagletui.records.redact import redact_env as redact_env
from eagletui.records.redact import secret_name as secret_name

Spec = Dict[str, Any]


class BadJob(ValueError):
    """A profile or spec that cannot be run; the text names the field and what it should be."""


def check_spec(spec: Any) -> Spec:
    """The spec with its defaults, after every field was checked. Raises `BadJob`."""
    if not isinstance(spec, dict):
        raise BadJob("the spec should be an object")
    out: Spec = dict(spec)
    for name in ("id", "kind"):
        if not isinstance(out.get(name), str) or not out[name]:
            raise BadJob("%s should be text" % name)
    argv = out.get("argv")
    if (
        not isinstance(argv, (list, tuple))
        or not argv
        or not all(isinstance(a, str) and "\0" not in a for a in argv)
        or not argv[0]
    ):
        raise BadJob("argv should be a list of texts, the program first")
    out["argv"] = list(argv)
    out.setdefault("cwd", "/")
    if not isinstance(out["cwd"], str) or not out["cwd"].startswith("/"):
        raise BadJob("cwd should be an absolute path, not %r" % (out["cwd"],))
    env = out.setdefault("env", {})
    if not isinstance(env, dict) or not all(_plain_env(n, v) for n, v in env.items()):
        raise BadJob("env should be an object of names and texts")
    port = out.get("port")
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536):
        raise BadJob("port should be a number from 1 to 65535, not %r" % (port,))
    gpus = out.setdefault("gpus", [])
    if not isinstance(gpus, (list, tuple)) or not all(isinstance(g, str) for g in gpus):
        raise BadJob("gpus should be a list of uuids")
    wanted = out.setdefault("leases", {"port": port, "gpus": list(gpus)})
    if not isinstance(wanted, dict):
        raise BadJob('leases should be an object {"port", "gpus"}')
    if not isinstance(out.setdefault("ready", {}), dict):
        raise BadJob("ready should be an object")
    if out.get("container") is not None:
        from eagletui.jobs.container import check

        why = check(out["container"])
        if why:
            raise BadJob(why)
    return out


def _plain_env(name: Any, value: Any) -> bool:
    return isinstance(name, str) and name != "" and isinstance(value, str) and "=" not in name and "\0" not in name + value


def job_spec(kind: str, values: Mapping[str, Any], job: str, argv: Sequence[str], cards: Sequence[str] = (), **more: Any) -> Spec:
    """The spec of a job that runs ``argv``: with what every job file may say, the cards, and ``more`` fields (None: left out).

    ``secrets`` holds names alone: whoever launches it sends their values beside the spec. Raises `BadJob`.
    """
    spec: Spec = {"id": job, "kind": kind, "name": str(values.get("name") or job), "argv": [str(word) for word in argv]}
    spec["gpus"] = list(cards)
    for key in ("cwd", "env", "secrets", "log_cap", "graces", "profile", "operator", "parent"):
        if values.get(key) is not None:
            spec[key] = values[key]
    spec.update(more)
    return check_spec({key: value for key, value in spec.items() if value is not None})


class Kind:
    """One kind of job. ``name`` is its word in specs and tables, ``server`` whether it answers on a port until it is ended.

    ``keys`` are what a job file may say of it, besides `keys.COMMON`; a server has none, but a profile.
    """

    name = ""
    server = False
    keys: Tuple[Key, ...] = ()

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        """The spec of a job with the id ``job`` on these cards (UUIDs). Raises `BadJob` naming the profile's field.

        ``profile``: the checked values of a job file, with their defaults; of a server, its profile.
        """
        raise NotImplementedError

    def check(self, values: Mapping[str, Any]) -> Sequence[Wrong]:
        """What is wrong with a job file's values taken together, each of which is right by itself."""
        return ()

    def made(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        """What the later steps of a pipeline may name of it (``{answers.path}``): a word -> a path that follows from the values.

        ``path`` is there for every kind with an ``output``: these are others within it.
        """
        return {}

    def title(self, spec: Mapping[str, Any]) -> str:
        """One line that says what runs."""
        raise NotImplementedError

    def watcher(self, spec: Mapping[str, Any], directory: str) -> Optional[Watcher]:
        """What reads the job while it runs and judges its result; None where the exit status is all there is (`verdict`)."""
        return None

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        """Was it a success, and why: True, False, or None when that cannot be known. An exit status alone proves little."""
        raise NotImplementedError


def status_words(rc: Optional[int]) -> str:
    """An exit status in words."""
    if rc is None:
        return "exit status unknown"
    if rc < 0:
        return "ended by %s" % SIGNALS.get(-rc, "signal %d" % -rc)
    return "exit status %d" % rc


SIGNALS = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    11: "SIGSEGV",
}
SIGNALS.update({13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM"})
