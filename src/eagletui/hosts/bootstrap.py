"""How an agent gets onto a host: one fixed shell text that finds a python3, and the agent's modules as one blob for its stdin.

Nothing is written on the host. The shell text holds no data but a nonce and a number; everything else goes over stdin.
"""

from __future__ import annotations

import json
import re
import secrets
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import eagletui
from eagletui.agent.bundle import MORE

PYTHONS = (
    "python3",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/opt/conda/bin/python3",
    "/opt/venv/bin/python3",
    "/usr/libexec/platform-python",
)
NONE, OLD, MINIMAL = 91, 92, 93  # the exit statuses of the shell text; its stderr says "eagletui[status]: ..." as well

# The text below lies in double quotes inside single quotes: no single quote, no $, no backtick, no !, and a backslash only
# before a double quote; so it means the same to sh, bash, zsh, fish and csh. A buffer of one byte makes `read(n)` take
# exactly n bytes from the descriptor, whatever pieces they come in, and leave the frames that follow.
_PYTHON = ";".join(
    (
        "import sys,io,importlib.machinery as m",
        r"end=lambda c,t:(print(\"eagletui[%d]: %s: %s\"%(c,sys.executable,t),file=sys.stderr),sys.exit(c))",
        r"sys.version_info<(3,8) and end(92,\"Python %d.%d.%d\"%sys.version_info[:3])",
        r"w=\"json ctypes _ctypes zlib select selectors socket subprocess threading signal fcntl struct hashlib\".split()",
        "w=[n for n in w if n not in sys.builtin_module_names and not m.PathFinder.find_spec(n)]",
        r"w and end(93,\"it lacks \"+\" \".join(w))",
        r"r=io.BufferedReader(io.FileIO(0,\"rb\",False),1).read",
        r"b=r(int.from_bytes(r(4),\"big\"))",
        "b or sys.exit(94)",  # the client is gone already
        "import zlib,json",
        "z=zlib.decompressobj()",
        "d=json.loads(z.decompress(b))",
        "s={}",
        r"exec(d[\"eagletui.agent.bundle\"],s)",
        r"s[\"start\"](b,d,z.unused_data,\"eagletui.agent.main\",sys.argv[1:])",
    )
)
_SHELL = (
    'n=91;for p in {pythons};do command -v "$p">/dev/null 2>&1||continue;"$p" -I -S -u -c "{python}" {nonce} {watchdog};s=$?;'
    "case $s in 92)test $n = 93||n=92;;93)n=93;;126|127);;*)exit $s;;esac;done;"
    'test $n = 91&&echo "eagletui[91]: no python3 was found">&2;exit $n'
)


def new_nonce() -> str:
    """A word that no login script prints: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def command(nonce: str, watchdog: float = 60.0) -> str:
    """The one line for the host's login shell. ``watchdog``: seconds without a frame after which the agent ends itself."""
    if not re.fullmatch(r"[0-9a-f]{16,64}", nonce):
        raise ValueError("a nonce is 16 to 64 hexadecimal digits")
    text = _SHELL.format(pythons=" ".join(PYTHONS), python=_PYTHON, nonce=nonce, watchdog=f"{watchdog:g}")
    return f"exec /bin/sh -c '{text}'"


# -------------------------------------------------------------------------------------------------------- the modules

_ROOMS = ("agent", "engines", "jobs", "records")
_SINGLE = ("__init__.py", "speculation.py")


def _files() -> dict[str, Path]:
    """What runs on the host: module name -> file."""
    root = Path(eagletui.__file__).parent
    files = {_module(root, root / name): root / name for name in _SINGLE if (root / name).exists()}
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            files[_module(root, path)] = path
    return files


def _module(root: Path, path: Path) -> str:
    parts = ("eagletui", *path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


_FIRST = ("main", "server", "streams", "hello", "host", "gpus", "procs")
_IMPORT = re.compile(r"^[ \t]*(?:from (eagletui[\w.]*) import ([^\n(#]+|\([^)]*\))|import (eagletui[\w.]*))", re.MULTILINE)


def _needed(sources: Mapping[str, str], roots: Sequence[str]) -> list[str]:
    """``roots`` and what they import, directly or not, among ``sources``."""
    todo, seen = list(roots), set[str]()
    while todo:
        name = todo.pop()
        if name in seen or name not in sources:
            continue
        seen.add(name)
        todo.append(name.rpartition(".")[0])
        for package, names, plain in _IMPORT.findall(sources[name]):
            todo.append(plain or package)
            todo.extend(f"{package}.{word}" for word in re.findall(r"\w+", names))
    return sorted(seen)


class Parts(NamedTuple):
    """The blob in the two parts that it is sent in: what the first samples of the host need, and the rest."""

    first: bytes
    rest: bytes


_made: dict[tuple[tuple[str, str], ...], Parts] = {}


def parts(extra: Mapping[str, str] | None = None) -> Parts:
    """The agent's modules, and ``extra`` ones (in the first part), each as zlib-compressed JSON ``{module name: source}``.

    On a line with a delay the first part saves round trips: a third of the bytes before the first sample. Made once: a client
    that is upgraded on disk while it runs goes on to send the agent that belongs to it.
    """
    key = tuple((extra or {}).items())
    made = _made.get(key)
    if made is None:
        sources = {name: path.read_text(encoding="utf-8") for name, path in _files().items()}
        sources.update(extra or {})
        names = _needed(sources, [f"eagletui.agent.{name}" for name in _FIRST] + list(extra or ()))
        first = {name: sources.pop(name) for name in names} | {MORE: "more"}
        made = _made[key] = Parts(_pack(first), _pack(sources))
    return made


def _pack(sources: Mapping[str, str]) -> bytes:
    return zlib.compress(json.dumps(sources, separators=(",", ":"), ensure_ascii=False).encode(), 6)


def bundle(extra: Mapping[str, str] | None = None) -> bytes:
    """The whole blob, both parts in one: what `eagletui.agent.bundle.LOADER` runs from a file."""
    return b"".join(parts(extra))


def opening(blob: bytes) -> bytes:
    """The first bytes on the agent's stdin: the blob behind its length; frames may follow at once."""
    return len(blob).to_bytes(4, "big") + blob


# ------------------------------------------------------------------------------------------------------- what went wrong


class NoAgent(NamedTuple):
    """Why the shell text started no agent: the `HostError` kind, the reason, the remedy."""

    kind: str
    why: str
    remedy: str


_PROBLEM = re.compile(r"eagletui\[(\d+)\]: ([^\r\n]*?)(?=,? *(?:eagletui\[|exit status |[\r\n]|$))")


def explain(text: str, status: int | None = None) -> NoAgent | None:
    """What the shell text's stderr (within ``text``) or its exit ``status`` says; None when it is not about Python."""
    told: dict[int, list[str]] = {}
    for number, words in _PROBLEM.findall(text):
        told.setdefault(int(number), []).append(words.strip(" ;,"))
    if MINIMAL in told or status == MINIMAL:
        why = told.get(MINIMAL, ["its python3 lacks modules of the standard library"])[0]
        return NoAgent("minimal-python", why, "install the full standard library there: apt-get install python3")
    if OLD in told or status == OLD:
        why = told.get(OLD, ["its python3"])[0] + " is too old"
        return NoAgent("old-python", why, "install Python 3.8 or newer there as python3")
    if NONE in told or status == NONE:
        return NoAgent("no-python", "the host has no python3", "install it there: apt-get install python3")
    return None
