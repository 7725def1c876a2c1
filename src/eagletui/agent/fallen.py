"""Which of an engine's own processes ended while its server went on. Who dies first tells most of what follows, and a server
without its engine is useless, however alive it looks: vLLM ends seconds later, SGLang not always.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

from eagletui.agent import procfs
from eagletui.agent.members import Key
from eagletui.agent.procfs import Stat

# as the engines name themselves; `comm` holds 15 bytes of it. Helpers (compilers, trackers) come and go, and are not meant.
_TITLE = re.compile(r"(?:VLLM|sglang)::\S+")
USELESS_AFTER = 20.0
"""Seconds after which a server that lost a process is told to go on without it; vLLM needs a few to end by itself."""
_RECENT = 300.0


class Fallen:
    """`look` once a second. ``first`` and ``trouble`` say what is to be said."""

    def __init__(self) -> None:
        self._names: Dict[Key, str] = {}
        self._gone: List[Tuple[float, str]] = []

    def look(self, members: Mapping[Key, Stat], now: float) -> None:
        """``members`` are those that live, ``now`` is the loop's time in seconds."""
        for key, stat in members.items():
            if key not in self._names and _TITLE.match(stat.comm):
                title = (procfs.cmdline(stat.pid) or "").split(" ")[0]
                name = title if _TITLE.match(title) else stat.comm
                self._names[key] = "%s (pid %d)" % (name, stat.pid)
        for key in [key for key in self._names if key not in members]:
            self._gone.append((now, self._names.pop(key)))

    def first(self, now: float) -> Optional[str]:
        """``VLLM::EngineCore (pid 123) ended before it``, of those that ended lately the first; None without any."""
        recent = [name for at, name in self._gone if now - at < _RECENT]
        return "%s ended before it" % recent[0] if recent else None

    def trouble(self, now: float) -> Optional[str]:
        """What a server that goes on should not go on without."""
        lost = [name for at, name in self._gone if now - at >= USELESS_AFTER]
        return "processes: %s ended, and the server goes on without" % ", ".join(lost[:4]) if lost else None
