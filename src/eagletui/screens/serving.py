"""What the screens of a serving job share: which job it is, its head line, the keys that change job and window."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from textual.binding import Binding
from textual.screen import Screen

from eagletui.actions import SERVING, WINDOWED, live
from eagletui.records import JobState
from eagletui.screens.base import Page
from eagletui.screens.serving_words import head_lines, window_line
from eagletui.views.serving import Shown, choose, current, neighbour, next_window, shown_window
from eagletui.widgets.paint import Line
from eagletui.widgets.panel import Panel


def bindings(scope: str) -> list[Binding | tuple[str, str] | tuple[str, str, str]]:
    """The bindings of a page for the actions of ``scope``, from the table."""
    return [Binding(",".join(a.keys), a.id, a.label, show=False, id=a.id) for a in live([scope])]


class ServingPage(Page, can_focus=True):
    """A screen of the serving job ``store.selected``. It has no list: the keys are the page's own."""

    scopes: ClassVar[tuple[str, ...]] = (SERVING,)
    BINDINGS: ClassVar = bindings(SERVING)

    def focus_first(self, screen: Screen[Any]) -> None:
        if screen.focused is not self:
            screen.set_focus(self, scroll_visible=False)

    def action_next_server(self) -> None:
        self._move(1)

    def action_previous_server(self) -> None:
        self._move(-1)

    def _move(self, step: int) -> None:
        store = self.store
        found = neighbour(store.jobs.values(), store.selected, step)
        if found is not None and found != store.selected:
            choose(store, found)
            self.redraw()


class WindowedPage(ServingPage):
    """One that shows a window of time."""

    scopes: ClassVar[tuple[str, ...]] = (SERVING, WINDOWED)
    BINDINGS: ClassVar = bindings(WINDOWED)

    def action_window(self) -> None:
        self.store.window = next_window(self.store.window)
        self.store.changed("selected")
        self.redraw()


class ServerPart(Panel):
    """A panel about the selected job. Subclasses give `about`; without any job only the head says so."""

    topics = frozenset({"jobs", "servers", "selected"})
    fades = True

    def about(self, job: JobState, width: int) -> list[Line]:
        raise NotImplementedError

    def lines(self, width: int) -> list[Line]:
        job = current(self.store)
        return self.about(job, width) if job is not None else []

    def shown(self, job: JobState) -> Shown:
        """The window to show of this job, the last one with work in it while it is idle."""
        return shown_window(self.store.servers, self.store.last_busy, job.id, self.store.window)

    @property
    def now(self) -> float:
        return time.monotonic()


class Head(ServerPart):
    """Name, state, engine, model and drafter of the job; how to start one when there is none."""

    topics = frozenset({"jobs", "selected", "clock"})

    def lines(self, width: int) -> list[Line]:
        return head_lines(self.store, width, self.now)


class WindowHead(ServerPart):
    """The window that is shown, with its true length; what is idle says since when."""

    def about(self, job: JobState, width: int) -> list[Line]:
        return [window_line(self.store, job, self.shown(job), width), []]
