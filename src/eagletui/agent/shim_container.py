"""What a supervisor does for a job in a container, besides what it does for every job. See `container.Box`."""

from __future__ import annotations

import os
from typing import Any, Mapping, Optional

from eagletui.agent import oom
from eagletui.agent.container import LOG_MODE, Box, Found, client_problem
from eagletui.agent.job_files import tail_text
from eagletui.agent.port_watch import PortWatch
from eagletui.agent.shim_files import Kept
from eagletui.jobs import container


class Boxed(Kept):
    """The part of a supervisor that its `Box` speaks to."""

    _spec: Mapping[str, Any]
    _box: Optional[Box]
    _port: Optional[PortWatch]
    _oom: Optional[oom.Watch]
    _log_path: str

    def _note(self, text: str) -> None:
        """Say it where the log's meaning is kept."""
        raise NotImplementedError

    def _open_to_container(self, log_fd: int) -> None:
        if self._box is not None:
            os.fchmod(log_fd, LOG_MODE)

    def _container_runs(self, found: Found) -> None:
        """The container's first process is the job's main process from now on."""
        self._scanner.scan()  # the client and the monitor are older than it: they stay members because they are known
        origin = self._scanner.origin
        self._scanner.origin = origin._replace(main=found.main, cgroup=found.cgroup or origin.cgroup)
        self._scanner.known.add(found.main)
        self._f.update(pid=found.main[0], pid_start=found.main[1], container=found.id)
        self._oom = oom.Watch(found.main[0])
        if self._port is not None and container.own_network(self._spec["argv"]):
            self._port.through = found.main[0]
        self._note("container %s, main process %d" % (found.id[:12], found.main[0]))
        self._write_origin()
        self._write_state(sync=True)

    def _container_told(self, text: str) -> None:
        """Something about it that does not end the job."""
        self._f["detail"] = text
        self._note(text)
        self._write_state()

    def _container_ended(self, note: Optional[str]) -> None:
        """Before its end is told: why it did not even start, where the client has said so."""
        if note is None:
            return
        self._f["detail"] = note
        if self._box is not None and self._box.found is None and not self._f.get("first_error"):
            self._f["first_error"] = client_problem(tail_text(self._log_path))
