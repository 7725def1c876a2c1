"""Removing the record and the log of a job that has ended, after a question."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.widget import Widget
from textual.widgets import Button

from eagletui.commands.logs import HostError
from eagletui.screens.deeds import deeds_of
from eagletui.widgets.dialog import Lines
from eagletui.widgets.sheet import Choice, Sheet, bindings


class RemoveSheet(Sheet[None]):
    """Asks, removes, and says when that failed."""

    BINDINGS: ClassVar = bindings("confirm")
    hints = ("confirm",)

    def __init__(self, job: str, name: str) -> None:
        super().__init__()
        self._job, self._name = job, name

    def heading(self) -> str:
        return f"remove {self._name}?"

    def body(self) -> Iterable[Widget]:
        yield Lines(lambda _width: [[("Its log, its events and its recorded samples are deleted from the host.", "")]])

    def buttons(self) -> Iterable[Choice]:
        yield Choice("Cancel", id="cancel")
        yield Choice("Remove", id="remove", danger=True)

    def on_mount(self) -> None:
        self.query_one("#cancel", Choice).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "cancel":
            self.dismiss(None)
        else:
            self.action_dialog_confirm()

    def action_dialog_confirm(self) -> None:
        self.run_worker(self._remove(), group="remove", exclusive=True)

    async def _remove(self) -> None:
        try:
            await deeds_of(self.app).remove_job(self._job)
        except HostError as error:
            self.fail(error)
            return
        self.dismiss(None)
