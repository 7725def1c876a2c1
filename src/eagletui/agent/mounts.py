"""Which file systems are worth showing, and which of them may hang when they are asked (network, FUSE)."""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Tuple

# fmt: off
_LOCAL = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "jfs", "reiserfs", "vfat", "exfat", "ntfs", "ntfs3",
     "hfsplus", "zfs")
)
_REMOTE = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "wekafs", "afs", "9p", "virtiofs", "orangefs",
     "ocfs2", "gfs2", "glusterfs")
)
# fmt: on
_NO_DISK = frozenset(("fuse.lxcfs", "fuse.portal", "fuse.gvfsd-fuse", "fuse.snapfuse", "fuse.squashfuse"))
_MOST = 64
_OCTAL = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """One line of mountinfo. ``device`` is ``major:minor``; ``risky``: asking it may block for ever."""

    device: str
    mount: str
    fstype: str
    source: str
    risky: bool = False


def parse(text: str) -> List[Mount]:
    """``/proc/self/mountinfo``, in the kernel's order; lines that are none are left out."""
    found = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if dash and len(fields) >= 6 and len(tail) >= 2:
            found.append(Mount(fields[2], _plain(fields[4]), tail[0], _plain(tail[1])))
    return found


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match.group(1), 8)), text)


def choose(mounts: List[Mount]) -> List[Mount]:
    """The mounts to show: real file systems once each, by their shortest mount point, and the root whatever it is."""
    visible: Dict[str, Mount] = {m.mount: m for m in mounts}  # a later mount hides an earlier one at the same place
    risky: List[str] = []
    best: Dict[str, Mount] = {}
    for m in sorted(visible.values(), key=lambda m: (len(m.mount), m.mount)):
        remote = m.fstype in _REMOTE or (m.fstype.startswith("fuse") and m.fstype not in _NO_DISK and m.fstype != "fusectl")
        below = any(m.mount.startswith(place.rstrip("/") + "/") for place in risky)
        if remote:
            risky.append(m.mount)
        if remote or m.fstype in _LOCAL or m.mount == "/":
            best.setdefault(_identity(m, remote), m._replace(risky=remote or below))
    return sorted(best.values(), key=lambda m: m.mount)[:_MOST]


def _identity(m: Mount, remote: bool) -> str:
    return m.source if remote or m.source.startswith("/dev/") else m.device


def parse_diskstats(text: str) -> Dict[str, Tuple[str, int, int]]:
    """``/proc/diskstats``: ``{major:minor: (name, bytes read, bytes written)}``, counted since boot."""
    out = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 10 and fields[5].isdigit() and fields[9].isdigit():
            out["%s:%s" % (fields[0], fields[1])] = (fields[2], int(fields[5]) * 512, int(fields[9]) * 512)
    return out
