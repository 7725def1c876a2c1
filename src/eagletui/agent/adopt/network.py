"""Whether a process is in the network that we are in, also where its namespaces are not ours to see (another user's process)."""

from __future__ import annotations

import os
from typing import Optional, Set

from eagletui.agent import procfs

_INODE = {"unix": 6, "tcp": 9, "tcp6": 9, "udp": 9, "udp6": 9}
"""The column of a socket's number in these tables of a network."""


def is_ours(pid: int) -> Optional[bool]:
    """None when that cannot be found out. Then the process must not be taken for one of this host's network."""
    try:
        return os.readlink("%s/%d/ns/net" % (procfs.PROC, pid)) == os.readlink("%s/self/ns/net" % procfs.PROC)
    except OSError:
        return _same_sockets(pid)  # gone, or another user's


def _same_sockets(pid: int) -> Optional[bool]:
    """By the tables of its network's sockets, which everybody may read: a socket is in one network only."""
    for name in _INODE:
        theirs, ours = _sockets(str(pid), name), _sockets("self", name)
        if theirs is None or ours is None:
            return None
        if theirs & ours:
            return True
        if theirs or ours:
            return False
    return None


def _sockets(who: str, name: str) -> Optional[Set[str]]:
    text = procfs.read_text("%s/%s/net/%s" % (procfs.PROC, who, name), 1 << 24)
    if text is None:
        return None
    at = _INODE[name]
    rows = (line.split(None, at + 1) for line in text.splitlines()[1:])
    return {fields[at] for fields in rows if len(fields) > at and fields[at] != "0"}
