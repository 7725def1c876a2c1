"""Has the kernel killed for memory in a process's control group? A counter to compare; never a guess."""

from __future__ import annotations

import os
from typing import List, Optional

from eagletui.agent import procfs


def counters(pid: int) -> List[str]:
    """The file that counts kills for memory in the control group of ``pid`` (v2 or v1); empty where none can be read."""
    found = []
    for line in (procfs.read_text("%s/%d/cgroup" % (procfs.PROC, pid)) or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found.append("/sys/fs/cgroup%s/memory.events" % path.rstrip("/"))
        elif "memory" in controllers.split(","):
            # inside a container the path is often the host's, and our own group is the mount's top
            found.append("/sys/fs/cgroup/memory%s/memory.oom_control" % path.rstrip("/"))
            found.append("/sys/fs/cgroup/memory/memory.oom_control")
    return [path for path in found if os.access(path, os.R_OK)][:1]


def kills(paths: List[str]) -> Optional[int]:
    """How often the kernel has killed for memory there so far; None when it does not say."""
    for path in paths:
        for line in (procfs.read_text(path, 65536) or "").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.strip().isdigit():
                return int(value)
    return None
