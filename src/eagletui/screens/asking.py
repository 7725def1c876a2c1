"""What SSH asks while the dashboard is open - a password, a passphrase, a code, an unknown host key - in a box over it.

What is typed goes to the login and nowhere else: it is drawn as dots, cannot be copied, and is not kept by the box.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from textual.app import App
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input

from eagletui.text import clean
from eagletui.widgets.dialog import Lines
from eagletui.widgets.paint import Line, folded
from eagletui.widgets.sheet import Choice, Field, Sheet

T = TypeVar("T")


class AskSheet(Sheet[list[str]]):
    """Questions of the host, one line each: a list of answers, None when the person declines. ``prompts``: text, and whether it
    may be seen while it is typed."""

    def __init__(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> None:
        super().__init__()
        self._title, self._instructions, self._prompts = title, instructions, tuple(prompts)

    def heading(self) -> str:
        return self._title

    def body(self) -> Iterable[Widget]:
        if self._instructions.strip():
            words = self._instructions
            yield Lines(lambda width: [[(piece, "")] for line in words.splitlines() for piece in folded(clean(line, 500), width)])
        for number, (prompt, echo) in enumerate(self._prompts):
            label = clean(prompt, 300).strip()
            yield Lines(lambda width, label=label: [[(piece, "strong")] for piece in folded(label, width)])  # type: ignore[misc]
            yield Field(id=f"answer-{number}", hidden=not echo)

    def buttons(self) -> Iterable[Choice]:
        yield Choice("Answer", id="answer")
        yield Choice("Decline", id="decline")

    def on_mount(self) -> None:
        self.query(Field).first().focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        fields = list(self.query(Field))
        at = fields.index(event.input) if isinstance(event.input, Field) else len(fields) - 1
        if at + 1 < len(fields):
            fields[at + 1].focus()
        else:
            self._answer()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self._answer() if event.button.id == "answer" else self.dismiss(None)

    def _answer(self) -> None:
        answers = [field.value for field in self.query(Field)]
        for field in self.query(Field):
            field.clear()
        self.dismiss(answers)


class TrustSheet(Sheet[bool]):
    """An unknown host key: trust it and remember it, or not."""

    def __init__(self, host: str, address: str, key_type: str, fingerprint: str, randomart: str) -> None:
        super().__init__()
        self._host, self._address, self._type = host, address, key_type
        self._fingerprint, self._art = fingerprint, randomart

    def heading(self) -> str:
        return f"trust {self._host}?"

    def body(self) -> Iterable[Widget]:
        yield Lines(self._lines)

    def _lines(self, width: int) -> list[Line]:
        told = f"{self._host} ({self._address}) is not known yet. It shows this {self._type} key:"
        compare = (
            "Compare it with what the host's owner tells you, or on the host: ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub. "
            "It was known before? Then somebody may be listening."
        )
        return [
            *([(piece, "")] for piece in folded(clean(told, 400), width)),
            *([(piece, "strong")] for piece in folded(clean(self._fingerprint, 200), width)),
            *([(clean(line, 40), "dim")] for line in self._art.splitlines()),
            *([(piece, "")] for piece in folded(compare, width)),
        ]

    def buttons(self) -> Iterable[Choice]:
        yield Choice("No", id="no")
        yield Choice("Trust and remember it", id="yes", danger=True)

    def on_mount(self) -> None:
        self.query_one("#no", Choice).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.dismiss(event.button.id == "yes")


class ScreenPrompter:
    """Implements `hosts.base.Prompter` with boxes over the dashboard, one at a time. A box that is no longer wanted goes away."""

    def __init__(self, app: App[Any], target: str) -> None:
        self._app, self._target = app, target
        self._one_at_a_time = asyncio.Lock()

    async def secret(self, prompt: str) -> str | None:
        answers = await self._ask(AskSheet(f"log in to {self._target}", "", [(prompt, False)]))
        return answers[0] if answers else None

    async def answer(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        return await self._ask(AskSheet(f"log in to {self._target}: {title}", instructions, prompts))

    async def trust(self, host: str, address: str, key_type: str, fingerprint: str, randomart: str) -> bool:
        trusted: bool | None = await self._ask(TrustSheet(host, address, key_type, fingerprint, randomart))
        return trusted is True

    async def _ask(self, sheet: ModalScreen[T]) -> T | None:
        async with self._one_at_a_time:
            answered: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

            def give(value: T | None) -> None:
                if not answered.done():
                    answered.set_result(value)

            def show() -> None:
                if answered.done() or not self._app.is_running:
                    give(None)  # it is not wanted any more, or nobody is there
                else:
                    self._app.push_screen(sheet, give)

            # the session's task is none of Textual's: only a message gets into its context
            if not self._app.call_later(show):
                return None  # the dashboard is being left
            try:
                return await answered
            finally:
                self._app.call_later(self._take_away, sheet)

    def _take_away(self, sheet: ModalScreen[T]) -> None:
        """The connection that asked has gone: so does its box."""
        if sheet.is_active:
            sheet.dismiss(None)
