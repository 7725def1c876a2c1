"""Whether the job itself listens on its port, or somebody else does. Looked at by its supervisor, cheaply."""

from __future__ import annotations

from typing import Iterable, Optional, Set

from eagletui.agent import ports
from eagletui.agent.members import Key

OWN_EVERY = 15.0
STRANGER_EVERY = 5.0


class PortWatch:
    """``listening``: a member has the port. ``stranger``: another process has it, in words; None when not so.

    ``through`` is a process in whose network the job's port is, when that is not the host's (a container with its own).
    """

    def __init__(self, port: int, address: str) -> None:
        self._port, self._address = port, address
        self._own: Optional[int] = None
        self._looked = 0.0
        self.through: Optional[int] = None
        self._theirs: Set[int] = set()
        self.listening = False
        self.stranger: Optional[str] = None

    def look(self, members: Iterable[Key], now: float) -> None:
        """The kernel's table costs 10 ms to read: only when somebody answers there, and rarely then."""
        if self._own is None:
            if not ports.answers(self._port, self._address):
                self.listening, self.stranger, self._theirs = False, None, set()
                return
            if self._theirs and now - self._looked < STRANGER_EVERY:
                return
        elif now - self._looked < OWN_EVERY:
            return
        self._looked = now
        inodes = ports.listening_inodes(self._port, self.through)
        if self._own not in inodes:
            self._own = None
            members = list(members)
            for inode in inodes:
                if any(ports.holds_socket(pid, {inode}) for pid, _ in members):
                    self._own = inode
        self.listening = self._own is not None
        if self.listening:
            self.stranger, self._theirs = None, set()
        elif inodes and inodes != self._theirs:
            self._theirs = inodes
            holders = ports.listeners(self._port)
            who = holders[0].text() if holders else "another process"
            self.stranger = "port: %d is held by %s, not by this job" % (self._port, who)
