"""Where a process's output goes, by its descriptors 1 and 2: a file, the journal, its container's engine, or out of reach."""

from __future__ import annotations

import os
from typing import Iterator, NamedTuple, Optional, Tuple

from eagletui.agent import procfs
from eagletui.agent.adopt.found import Found
from eagletui.agent.adopt.holder import DOCKER, PODMAN, SYSTEMD
from eagletui.agent.procfs import Stat

FILE, JOURNAL, ENGINE = "file", "journal", "engine"
_MULTIPLEXERS = {"tmux": "a tmux pane", "screen": "a window of screen", "zellij": "a pane of zellij"}


class Output(NamedTuple):
    """``kind`` is file, journal or engine, None when nobody can read it: then ``problem`` says why in words.

    ``path`` of a file leads to it through the process's descriptor, also when it was deleted; ``name`` is where it lies."""

    kind: Optional[str] = None
    problem: Optional[str] = None
    path: str = ""
    name: str = ""


def output_of(found: Found, chain: Tuple[Stat, ...]) -> Output:
    """Where the output of a server goes; ``chain`` are its ancestors. Touches no file system but /proc."""
    if found.main is None:
        return Output(problem="the server is dead, and with it what led to its log")
    pid = found.main[0]
    leads = procfs.fd_paths(pid)
    order = (2, 1) if found.engine == "sglang" else (1, 2)  # where each writes its own lines; mostly both go the same way
    for fd in order:
        name = leads.get(fd, "")
        if name.startswith("/") and not name.startswith(("/dev/", "/proc/")):
            return Output(FILE, path="%s/%d/fd/%d" % (procfs.PROC, pid, fd), name=name)
    if found.holder.kind == SYSTEMD and (not leads or any(lead.startswith("socket:") for lead in leads.values())):
        return Output(JOURNAL)
    if found.holder.kind in (DOCKER, PODMAN) and _is_the_containers(found, leads):
        return Output(ENGINE)
    if not leads:
        user = procfs.user(found.uid) if found.uid is not None else "another user"
        return Output(problem="its log cannot be seen: it is a process of %s (connect as that user, or as root)" % user)
    lead = leads.get(order[0]) or leads.get(order[1]) or ""
    if lead.startswith("pipe:"):
        tee = _tee(pid, lead)
        return tee if tee is not None else Output(problem=_piped(pid, lead))
    return Output(problem=_nowhere(lead, chain))


def _is_the_containers(found: Found, leads: "dict[int, str]") -> bool:
    """Whether the output is that of the container's own main process, which its engine keeps."""
    if not leads:
        return True  # not ours to see: the engine may tell
    # numbers 1 and 2 of process 1 in there: a shell typed into by `exec` has a terminal of its own
    for pid, start in found.members:
        numbers = procfs.nspid(pid)
        if len(numbers) > 1 and numbers[-1] == 1 and procfs.alive(pid, start):
            first = procfs.fd_paths(pid)
            return any(first.get(fd) == lead for fd, lead in leads.items()) or set(first.values()) & set(leads.values()) != set()
    return True


def _nowhere(lead: str, chain: Tuple[Stat, ...]) -> str:
    if lead.startswith("/dev/null"):
        return "it has no log: its output is thrown away (/dev/null)"
    for ancestor in chain:
        for name, words in _MULTIPLEXERS.items():
            if ancestor.comm.lower().startswith(name):
                return "it has no log that can be read: it prints to %s" % words
    if lead.startswith(("/dev/pts/", "/dev/tty")):
        return "it has no log that can be read: it prints to the terminal %s" % lead
    return "it has no log that can be read: its output goes to %s" % (lead.split(":")[0] or "nowhere")


def _readers(pid: int, lead: str) -> Iterator[Stat]:
    """Processes of the same process group or session whose stdin is that pipe."""
    own = procfs.read_stat(pid)
    for other in procfs.pids() if own is not None else ():
        found = procfs.read_stat(other)
        if found is None or own is None or found.session != own.session or found.pid == pid:
            continue
        if procfs.fd_paths(other, (0,)).get(0) == lead:
            yield found


def _tee(pid: int, lead: str) -> Optional[Output]:
    """The file that ``| tee FILE`` keeps of it."""
    for reader in _readers(pid, lead):
        files = {os.path.basename(word) for word in procfs.argv(reader.pid)[1:] if not word.startswith("-")}
        for fd in range(3, 16) if reader.comm == "tee" else ():
            path = "%s/%d/fd/%d" % (procfs.PROC, reader.pid, fd)
            name = procfs.fd_paths(reader.pid, (fd,)).get(fd, "")
            if name.startswith("/") and os.path.basename(name.replace(" (deleted)", "")) in files:
                return Output(FILE, path=path, name=name)
    return None


def _piped(pid: int, lead: str) -> str:
    for reader in _readers(pid, lead):
        return "it has no log that can be read: it prints into a pipe to %s (pid %d)" % (reader.comm, reader.pid)
    return "it has no log that can be read: it prints into a pipe"
