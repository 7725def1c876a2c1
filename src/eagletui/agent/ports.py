"""Who listens on a TCP port of this host, from /proc/net/tcp and the holders' descriptors; and whether it can be bound."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

from eagletui.agent import procfs
from eagletui.agent.loop import boot_now

_LISTEN = "0A"


class Holder(NamedTuple):
    """A process that listens on a port. ``since`` is its start as Unix time."""

    pid: int
    user: str
    command: str
    since: float

    def text(self) -> str:
        return "pid %d (%s), user %s, since %s" % (
            self.pid,
            self.command[:120],
            self.user,
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since)),
        )


def listening_inodes(port: int, through: Optional[int] = None) -> Set[int]:
    """Inodes of the sockets that listen on ``port``, on any address, IPv4 and IPv6; in the network of the process ``through``."""
    wanted, found = ":%04X" % port, set()
    for name in ("tcp", "tcp6"):
        text = procfs.read_text("%s/%s/net/%s" % (procfs.PROC, through or "self", name), 1 << 24)
        for line in (text or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN and fields[1].endswith(wanted):
                found.add(int(fields[9]))
    return found


def holds_socket(pid: int, inodes: Set[int]) -> bool:
    """True when one of the process's descriptors is one of the sockets."""
    directory = "%s/%d/fd" % (procfs.PROC, pid)
    names = {"socket:[%d]" % inode for inode in inodes}
    try:
        for fd in os.listdir(directory):
            try:
                if os.readlink("%s/%s" % (directory, fd)) in names:
                    return True
            except OSError:
                continue  # closed meanwhile
    except OSError:
        return False  # gone, or not ours to look into
    return False


def listeners(port: int, among: Optional[Iterable[int]] = None) -> List[Holder]:
    """The processes that listen on ``port`` (looked for ``among`` these pids, or everywhere)."""
    inodes = listening_inodes(port)
    if not inodes:
        return []
    found = []
    for pid in procfs.pids() if among is None else among:
        if holds_socket(pid, inodes):
            stat, uid = procfs.read_stat(pid), procfs.uid_of(pid)
            if stat is not None:
                since = time.time() - procfs.age(stat, boot_now())
                user = "?" if uid is None else procfs.user(uid)
                found.append(Holder(pid, user, procfs.cmdline(pid) or stat.comm, since))
    return found


def answers(port: int, address: str = "127.0.0.1") -> bool:
    """Whether anybody accepts connections there. On this host's own address that is told at once, without waiting."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.1)
        return probe.connect_ex((address, port)) == 0


def bindable(port: int, address: str = "0.0.0.0") -> Optional[str]:  # noqa: S104 - any listener is in the way
    """None when a server could listen on the port now, else the kernel's reason. Nothing is left bound."""
    families: Dict[int, str] = {socket.AF_INET: address}
    if address in ("0.0.0.0", "::") and socket.has_ipv6:  # noqa: S104 - compared, not bound for good
        families[socket.AF_INET6] = "::"
    for family, host in families.items():
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no IPv6 here
        try:
            # as servers do: connections that linger in TIME_WAIT are no obstacle, a listener is
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if family == socket.AF_INET6 and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue
            return error.strerror or str(error)
        finally:
            probe.close()
    return None


def why_taken(port: int, address: str = "0.0.0.0") -> Optional[str]:  # noqa: S104 - see bindable
    """None when the port is free, else one line that names who holds it where that can be seen."""
    reason = bindable(port, address)
    if reason is None:
        return None
    holders = listeners(port)
    if holders:
        return "port %d is held by %s" % (port, holders[0].text())
    return "port %d cannot be bound: %s" % (port, reason)
