"""The stream ``jobs``: ``{job id: JobState document}``, from the files that the shims write, and servers that were found."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from eagletui.agent import endings, state_dir
from eagletui.agent.adopt.observer import Observer
from eagletui.agent.job_files import Board
from eagletui.agent.loop import Timer
from eagletui.agent.source import Context, Source
from eagletui.jobs.base import redact_argv
from eagletui.records.jobs import PROBLEMS


class JobsSource(Source):
    """Looks every ``interval`` seconds: a stat for each live job, nothing for ended ones.

    The first document comes when the host's processes have been looked at for servers that eagletui did not start.
    """

    name = "jobs"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._root = root = state_dir.locate(os.environ)
        self._board = Board(root)
        self._observer = Observer(context.loop, root, context.log)
        self._observer.on_first = self._look
        self._timer: Optional[Timer] = None
        self._interval = 1.0
        self._told: Dict[str, str] = {}

    def start(self, interval: float, params: Dict[str, Any]) -> None:
        self._interval = max(0.1, interval)
        self._look()

    def stop(self) -> None:
        """Nobody watches: the children that read logs end with it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._observer.stop()

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.context.loop.call_later(self._interval, self._look)
        found = self._board.look()
        if self._board.problems != self._told:
            self._told = dict(self._board.problems)
            for job, why in self._told.items():
                self.context.log("job %s: %s" % (job, why))
        others = self._observer.look(found, endings.ending(self._root))
        if self._observer.complete:
            docs = {job: dict(doc, command=redact_argv(doc.get("command") or [])) for job, doc in found.items()}
            docs.update(others)
            endings.overlay(self._root, docs)
            problems = {"the record of the job %s" % job: why for job, why in self._board.problems.items()}
            problems.update(self._observer.problems)
            if problems:
                docs[PROBLEMS] = problems
            self.context.publish(docs)
