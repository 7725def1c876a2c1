"""A server inside a docker or podman container: the command line that starts it, and the names of things in it.

The output of the program goes to the job's own log, which is mounted into the container, not through the container engine: so the
log has the same bounded file with the same offsets as every job's, and neither the end of the foreground client nor of the
engine's monitor loses a line. For that the program is started by ``/bin/sh -c 'exec "$@" >>LOG 2>&1'`` inside the container, one
fixed text; the arguments follow it as a list.

Secrets are named (``--env NAME``), their values come from the environment of the client process. Pure functions.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

ENGINES = ("docker", "podman")
LOG = "{log}"
"""Stands in the command line for the path of the job's log, which only the host knows."""
LOG_INSIDE = "/run/eagletui.log"
SHELL_LINE = 'exec "$@" >>%s 2>&1' % LOG_INSIDE
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}")


def name_of(job: str) -> str:
    """The container's name."""
    return "eagletui-" + job


def run_argv(
    profile: Mapping[str, Any],
    job: str,
    program: Sequence[str],
    env: Mapping[str, str],
    secrets: Iterable[str],
    devices: Sequence[str] = (),
) -> List[str]:
    """``docker run ...`` or ``podman run ...`` for ``program`` in a profile's container.

    Profile keys: ``container`` (docker or podman), ``image``, ``mounts`` (``SOURCE:TARGET[:ro]``), ``container_args``, ``cwd``
    (inside), ``entrypoint`` ("image" keeps the image's own before the program), ``gpus``. ``env`` is written out, of
    ``secrets`` only the names; ``devices`` are the cards' names for the engine. The host's network and its shared memory are
    used unless ``container_args`` says otherwise.
    """
    engine = str(profile["container"])
    extra = [str(word) for word in profile.get("container_args") or ()]
    argv = [engine, "run", "--name", name_of(job), "--label", "eagletui.job=" + job]
    if not _has(extra, ("--network", "--net")):
        argv += ["--network", "host"]
    if not _has(extra, ("--ipc", "--shm-size")):
        argv += ["--ipc", "host"]
    argv += card_args(engine, profile.get("gpus"), devices)
    argv += ["--volume", "%s:%s" % (LOG, LOG_INSIDE)]
    for mount in profile.get("mounts") or ():
        argv += ["--volume", str(mount)]
    hidden = set(secrets)
    for name, value in env.items():
        argv += ["--env", name if name in hidden else "%s=%s" % (name, value)]
    for name in sorted(hidden - set(env)):
        argv += ["--env", name]
    if profile.get("cwd"):
        argv += ["--workdir", str(profile["cwd"])]
    argv += extra
    inner = ["-c", SHELL_LINE, "sh", *program]
    if profile.get("entrypoint") == "image":
        return [*argv, str(profile["image"]), "/bin/sh", *inner]
    return [*argv, "--entrypoint", "/bin/sh", str(profile["image"]), *inner]


def card_args(engine: str, wanted: Any, devices: Sequence[str]) -> List[str]:
    """The options that give cards to a container. docker has an option of its own, podman takes them as CDI devices."""
    if wanted is None:
        return []
    if engine == "docker":
        if wanted == "all":
            return ["--gpus", "all"]
        text = "device=" + ",".join(devices)
        return ["--gpus", '"%s"' % text if len(devices) > 1 else text]  # docker reads it as CSV: the quotes are its own
    names = ["all"] if wanted == "all" else list(devices)
    return [word for name in names for word in ("--device", "nvidia.com/gpu=" + name)]


def _has(words: Sequence[str], options: Sequence[str]) -> bool:
    return any(word.split("=", 1)[0] in options for word in words)


def gives_cards(words: Sequence[str]) -> bool:
    """Whether these further options give the container cards by themselves."""
    return _has(words, ("--gpus", "--device", "--privileged", "--runtime", "--hooks-dir"))


def own_network(words: Sequence[str]) -> bool:
    """Whether these further options take the container off the host's network."""
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in ("--network", "--net"):
            return (value if equals else words[at + 1] if at + 1 < len(words) else "host") != "host"
    return False


def about(profile: Mapping[str, Any], job: str, program: Sequence[str]) -> Dict[str, Any]:
    """What the spec says of the container: ``{engine, name, image, program}``."""
    return {
        "engine": str(profile["container"]),
        "name": name_of(job),
        "image": str(profile["image"]),
        "program": [str(word) for word in program],
    }


def check(doc: Any) -> str:
    """Why a spec's ``container`` is not one; empty when it is."""
    if not isinstance(doc, dict):
        return "container should be an object"
    if doc.get("engine") not in ENGINES:
        return "container.engine should be docker or podman, not %r" % (doc.get("engine"),)
    if not isinstance(doc.get("name"), str) or not NAME.fullmatch(doc["name"]):
        return "container.name should be a container's name, not %r" % (doc.get("name"),)
    return ""


def with_log(argv: Sequence[str], path: str, selinux: bool = False) -> Tuple[str, ...]:
    """The command line with the log's path in its place; where SELinux is on, the file is given to containers (``:z``)."""
    mount = "%s:%s" % (LOG, LOG_INSIDE)
    full = "%s:%s%s" % (path, LOG_INSIDE, ":z" if selinux else "")
    return tuple(full if word == mount else word for word in argv)
