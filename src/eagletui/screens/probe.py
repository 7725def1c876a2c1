"""Send a prompt to a server and read how it answers: reasoning, answer, speed, and the acceptance of this one request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.containers import VerticalScroll
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from eagletui.commands.logs import HostError
from eagletui.screens.deeds import deeds_of
from eagletui.store import Store
from eagletui.text import MISSING, clean, duration, millis, number, percent, plural
from eagletui.widgets.dialog import Lines
from eagletui.widgets.paint import Line, folded, wrapped
from eagletui.widgets.sheet import Field, Sheet, bindings

if TYPE_CHECKING:
    from eagletui.commands.probe import Answered, Piece, Probe, Sent

PROMPT = "Write three sentences about the sea."
REDRAW = 0.1
SHOWN = 200_000
"""Characters of an answer that are kept to be read back."""


class ProbeSheet(Sheet[None]):
    """One question at a time; the forwarded port is open only while this box is."""

    BINDINGS: ClassVar = bindings("probe_stop")
    hints = ("probe_stop",)
    DEFAULT_CSS = """
    ProbeSheet .answer { height: 1fr; margin-top: 1; background: $surface; scrollbar-size-vertical: 1; }
    ProbeSheet > .sheet { height: 94%; }
    """

    def __init__(self, store: Store, job: str) -> None:
        super().__init__()
        state = store.jobs.get(job)
        self._name = clean(state.name if state is not None else job, 60)
        self._job = job
        self._probe: Probe | None = None
        self.reasoning = self.answer = ""
        self.sent: Sent | None = None
        self.done: Answered | None = None
        self.tokens: int | None = None
        self.asking = False
        self._due: Timer | None = None

    def heading(self) -> str:
        return f"ask {self._name}"

    def body(self) -> Iterable[Widget]:
        yield Field(PROMPT, id="question", hint="a question; enter sends it")
        self._key = Field(id="key", hidden=True, hint="the server's API key; enter sends the question again")
        self._key.display = False
        yield self._key
        self._numbers = Lines(self._number_lines)
        yield self._numbers
        self._text = Lines(self._text_lines)
        self._scroll = VerticalScroll(self._text, classes="answer", can_focus=False)
        yield self._scroll

    def on_mount(self) -> None:
        self.query_one("#question", Field).focus()

    async def on_unmount(self) -> None:
        if self._probe is not None:
            await self._probe.close()

    # -------------------------------------------------------------------------------------------------------- the words

    def _number_lines(self, width: int) -> list[Line]:
        if self.done is not None:
            return answered_lines(self.done, width)
        if not self.asking:
            return [[("enter sends it as one user message, with the server's own settings", "dim")]]
        if self.sent is None:
            return [[("~ ", "work"), ("asking for the model's name", "dim")]]
        so_far = "no token yet" if self.tokens is None and not self.answer and not self.reasoning else "answering"
        words = f"{plural(self.tokens, 'token')} so far" if self.tokens is not None else so_far
        return [[("~ ", "work"), (clean(self.sent.model, 80), ""), (f"   {words}", "dim")], *self._note()]

    def _note(self) -> list[Line]:
        note = self.sent.note if self.sent is not None else ""
        return [[("! ", "warn"), (clean(note, 200), "warn")]] if note else []

    def _text_lines(self, width: int) -> list[Line]:
        out: list[Line] = self._note() if self.done is not None else []
        if self.reasoning:
            out += [[("reasoning", "head")], *_wrapped(self.reasoning, width, "dim"), []]
        if self.answer:
            out += [[("answer", "head")], *_wrapped(self.answer, width, "")]
        elif self.done is not None:
            why = "the server sent no answer text" + (", only reasoning" if self.reasoning else "")
            out.append([("- ", "dim"), (why, "dim")])
        return out

    def _redraw_soon(self) -> None:
        if self._due is None:
            self._due = self.set_timer(REDRAW, self._redraw)

    def _redraw(self) -> None:
        self._due = None
        at_end = self._scroll.scroll_offset.y >= self._scroll.max_scroll_y
        self._numbers.redraw()
        self._text.redraw()
        if at_end:
            self.call_after_refresh(self._scroll.scroll_end, animate=False)

    # --------------------------------------------------------------------------------------------------------- the deeds

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not self.asking and self.query_one("#question", Field).value.strip():
            self.asking = True
            self.run_worker(self._ask(), group="ask", exclusive=True)

    def action_dialog_probe_stop(self) -> None:
        if self._probe is not None and self.asking:
            self._probe.stop()

    async def _ask(self) -> None:
        self.reasoning = self.answer = ""
        self.sent = self.done = self.tokens = None
        self.say([])
        self._redraw()
        if self._probe is None:
            self._probe = deeds_of(self.app).probe(self._job)
        try:
            async for event in self._probe.ask(self.query_one("#question", Field).value, self._key.value or None):
                self._take(event)
        except HostError as error:
            self.fail(error)
            if error.kind == "auth":
                self._key.display = True
                self._key.focus()
        finally:
            self.asking = False
            if self.is_attached:
                self._redraw()

    def _take(self, event: Sent | Piece | Answered) -> None:
        name = type(event).__name__
        if name == "Sent":
            self.sent = event  # type: ignore[assignment]
        elif name == "Answered":
            self.done = event  # type: ignore[assignment]
        else:
            piece: Piece = event  # type: ignore[assignment]
            if piece.reasoning:
                self.reasoning = (self.reasoning + piece.text)[-SHOWN:]
            else:
                self.answer = (self.answer + piece.text)[-SHOWN:]
            self.tokens = piece.tokens if piece.tokens is not None else self.tokens
        self._redraw_soon()


def _wrapped(text: str, width: int, style: str) -> list[Line]:
    return [[(piece, style)] for line in text.split("\n") for piece in folded(clean(line, 8192), max(10, width - 1))]


def answered_lines(done: Answered, width: int) -> list[Line]:
    """Speed and acceptance of one answer."""
    end = "stopped by you" if done.stopped else clean(done.why or "", 30)
    parts: list[Line] = [
        [("✓ " if not done.stopped else "- ", "good" if not done.stopped else "dim"), (f"{duration(done.seconds)}", "")],
        [("first token ", "dim"), (millis(done.first), "")],
        [(number(done.tokens), ""), (" tokens", "dim")],
        [(number(done.per_second, 1), "strong"), (" tok/s", "dim")],
        [("prompt ", "dim"), (number(done.prompt_tokens), "")],
        [("end: ", "dim"), (end or MISSING, "")],
    ]
    out = wrapped(parts, width)
    found = done.acceptance
    if found is not None:
        line: list[Line] = [
            [("acceptance ", "dim"), (percent(None if found.rate is None else 100 * found.rate, 1), "strong")],
            [("length ", "dim"), (number(found.length, 2), "")],
        ]
        if done.alone is False:
            line.append([("! ", "warn"), ("other traffic in the window", "warn")])
        elif done.alone is None:
            line.append([("other requests may be counted too", "dim")])
        else:
            line.append([("of this request alone", "dim")])
        line.append(
            [("by position ", "dim"), (", ".join(percent(100 * share, 0) for share in found.per_position) or MISSING, "")]
        )
        out += wrapped(line, width)
    else:
        out.append([("acceptance ", "dim"), (MISSING, ""), ("   no drafter, or no counters", "dim")])
    return out
