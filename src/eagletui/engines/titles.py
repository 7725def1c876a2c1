"""Which processes of a host are an engine's: by argv and by the titles that engines give their processes. Pure.

The parent of a server keeps its argv; vLLM and SGLang rename the others (``VLLM::EngineCore``, ``sglang::scheduler_TP0``) where
the package ``setproctitle`` is installed. Only a Python, or the engine's own program, counts as a server: a shell, ``sudo``,
``ssh`` or ``docker run`` with the same words in its argv only starts one, here or elsewhere.
"""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Sequence

from eagletui.engines.command import ServerFacts, parse_command

SERVER, PART = "server", "part"


class Title(NamedTuple):
    """What a process is to an engine. ``role`` is `SERVER` (argv of a server) or `PART` (a process that a server started);
    ``name`` is the engine's own word for a part: EngineCore, Worker_TP3, scheduler_TP0 ..."""

    engine: str
    role: str
    name: str = ""


_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?$")
_PROGRAMS = ("vllm", "sglang")
_SCRIPTS = ("launch_server.py", "api_server.py")
_MODULES = {
    "vllm.entrypoints.openai.api_server": 0,
    "vllm.entrypoints.api_server": 0,
    "vllm.entrypoints.cli.main": 1,
    "vllm": 1,
    "sglang.launch_server": 0,
    "sglang": 1,
}
"""Modules that serve -> how many words (``serve``) must follow."""
_WITH_VALUE = ("-X", "-W")
# the prefix is the user's to choose (VLLM_PROCESS_NAME_PREFIX)
_VLLM = re.compile(r"[\w.-]+::((?:APIServer|EngineCore|Worker|DPCoordinator)[\w.]*)$")
_VLLM_SHORT = re.compile(r"VLLM::(\w*)$")
_SGLANG = re.compile(r"sglang::([\w:.]+)")


def server_words(argv: Sequence[str]) -> Optional[List[str]]:
    """The argv from the engine's program on (``-m module``, a script, ``vllm``); None when this process is no server."""
    words = list(argv)
    if not words:
        return None
    if _PYTHON.match(_base(words[0])):
        at = 1
        while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
            at += 2 if words[at] in _WITH_VALUE else 1
        words = words[at:]
    elif _base(words[0]) not in _PROGRAMS:
        return None
    if not words:
        return None
    if words[0] == "-m":
        more = _MODULES.get(words[1]) if len(words) > 1 else None
        return words if more is not None and (not more or words[2:3] == ["serve"]) else None
    base = _base(words[0])
    if base in _PROGRAMS:
        return words if words[1:2] == ["serve"] else None
    return words if base in _SCRIPTS and parse_command(words[:1]) is not None else None


def server_facts(argv: Sequence[str]) -> Optional[ServerFacts]:
    """What the argv of a server's process says; None when it is no server's."""
    words = server_words(argv)
    return None if words is None else parse_command(words)


def title_of(argv: Sequence[str], comm: str = "") -> Optional[Title]:
    """What a process is to an engine; None for all others. ``comm`` (15 characters) counts where the argv is not to be had."""
    facts = server_facts(argv)
    if facts is not None:
        return Title(facts.engine, SERVER)
    text = argv[0] if argv else comm
    match = _VLLM.match(text) or (None if argv else _VLLM_SHORT.match(text))
    if match is not None:
        return Title("vllm", PART, match.group(1))
    match = _SGLANG.match(text)
    return Title("sglang", PART, match.group(1)) if match is not None else None


def _base(word: str) -> str:
    return word.rsplit("/", 1)[-1]
