"""The log of a job, opened to be read: at its end at once, however large it is."""

from __future__ import annotations

from eagletui.commands.desk import Desk
from eagletui.hosts.base import HostError
from eagletui.watch.logs import LogWindow, Match, first_error

__all__ = ["HostError", "LogWindow", "Match", "first_error", "log_of"]


def log_of(desk: Desk, job: str) -> LogWindow:
    """The window over the log of ``job``, not opened yet. Raises `HostError` (absent) when it has none."""
    state = desk.store.jobs.get(job)
    if state is None:
        raise HostError("log", "this job is not on the host any more", kind="absent")
    if not state.log:
        why = state.log_problem or ("its log is being fetched" if state.adopted else f"{state.name} has no log that is known of")
        raise HostError("log", why, kind="absent")
    return LogWindow(desk.session, state.log)
