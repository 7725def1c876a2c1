"""A form over what it would start: fields with their labels, the plan that they make, values of secrets, and the launch.

What is typed is planned anew once typing pauses; nothing that is shown was made from other words than those in the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from eagletui.text import clean
from eagletui.widgets.dialog import Lines
from eagletui.widgets.paint import Line, folded
from eagletui.widgets.sheet import Field, Sheet, bindings

PAUSE = 0.2
"""Seconds without a key before the plan is made anew."""
LABEL = 19
CHROME = 7
"""Rows of the form that are neither fields nor command: heading, origin, a blank one, what is said, the keys."""


class FormRow(NamedTuple):
    """One line of a form: what it is called, what stands in it at first, and what stands there while it is empty."""

    id: str
    label: str
    text: str
    hint: str = ""


class Planned(Protocol):
    """What a form makes: the names of secrets without a value here."""

    @property
    def missing(self) -> tuple[str, ...]: ...


class Fields(VerticalScroll, can_focus=False, inherit_bindings=False):
    """The fields; they scroll with the focus. Without the arrows of a scrolled box, which the form has for going among them."""


class PlanForm(Sheet[None]):
    """Subclasses give `rows`, `origin`, `preview_lines`, `make_plan` and `launch`; ``problems`` are by field, "" for several."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("form_launch"),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
        Binding("pagedown", "scroll_preview(1)", show=False, priority=True),
        Binding("pageup", "scroll_preview(-1)", show=False, priority=True),
    ]
    DEFAULT_CSS = f"""
    PlanForm .fields {{ height: auto; background: $surface; scrollbar-size-vertical: 1; }}
    PlanForm .row {{ height: 1; }}
    PlanForm .row > Lines {{ width: {LABEL}; }}
    PlanForm .row > Field {{ width: 1fr; }}
    PlanForm .preview {{ height: auto; margin-top: 1; background: $surface; scrollbar-size-vertical: 1; }}
    """
    first = ""
    """The field that has the keys at first; empty: the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: dict[str, str] = {}
        self._timer: Timer | None = None
        self._busy = False
        self._labels: dict[str, Lines] = {}
        self._rows: list[FormRow] = []

    def rows(self) -> Sequence[FormRow]:
        raise NotImplementedError

    def origin(self, width: int) -> list[Line]:
        """Where what stands in the fields comes from."""
        raise NotImplementedError

    def preview_lines(self, width: int) -> list[Line]:
        """What it would start, below the mistakes."""
        raise NotImplementedError

    async def make_plan(self) -> Planned | None:
        """The plan of what stands in the fields; None, with ``problems``, when none can be made."""
        raise NotImplementedError

    async def launch(self) -> None:
        """Start what the fields say, or say what is in the way."""
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        yield Lines(self.origin)
        self._rows = list(self.rows())
        with Fields(classes="fields"):
            for row in self._rows:
                label = self._labels[row.id] = Lines(lambda _width, r=row: [self._label(r.id, r.label)])  # type: ignore[misc]
                yield Horizontal(label, Field(row.text, id=widget_id(row.id), hint=row.hint), classes="row")
            yield Vertical(id="secret-values")
        self._preview = Lines(self._preview_lines)
        with VerticalScroll(classes="preview", can_focus=False):
            yield self._preview

    def on_mount(self) -> None:
        self.query_one("#secret-values").styles.height = "auto"
        self.query_one(f"#{widget_id(self.first or self._rows[0].id)}", Field).focus()
        self.plan_soon(0.0)

    def on_resize(self) -> None:
        """The fields take what they need, at most half; the command has the rest."""
        room = self.app.size.height * 94 // 100 - CHROME
        fields = min(len(self._rows) + len(self.query_one("#secret-values").children), max(5, room // 2))
        self.query_one(".fields").styles.max_height = fields
        self.query_one(".preview").styles.max_height = max(4, room - fields)

    def action_scroll_preview(self, way: int) -> None:
        """Scroll the command and the environment by a page; the fields keep the keys."""
        preview = self.query_one(".preview", VerticalScroll)
        preview.scroll_relative(y=way * max(1, preview.size.height - 1), animate=False)

    # -------------------------------------------------------------------------------------------------------- the words

    def _label(self, id_: str, label: str) -> Line:
        return [("✗ " if id_ in self.problems else "  ", "bad"), (label, "bad" if id_ in self.problems else "dim")]

    def _preview_lines(self, width: int) -> list[Line]:
        names = {row.id: row.label for row in self._rows}
        out: list[Line] = []
        for field, what in self.problems.items():
            name = names.get(field, "")
            out += signed(f"{name}: {what}" if name else what, "✗ ", "bad", width)
        return [*out, *self.preview_lines(width)]

    def redraw_plan(self) -> None:
        """Labels and preview as they are now."""
        for panel in (*self._labels.values(), self._preview):
            panel.redraw()

    # --------------------------------------------------------------------------------------------------------- the plan

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if (event.input.id or "").startswith("field-"):
            self.plan_soon(PAUSE)

    def plan_soon(self, pause: float) -> None:
        """Make the plan anew, once nothing was typed for ``pause`` seconds."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(pause, self._start_planning) if pause else None
        if not pause:
            self._start_planning()

    def _start_planning(self) -> None:
        self.run_worker(self.planned(), group="plan", exclusive=True)

    async def planned(self) -> Planned | None:
        """The plan of what stands in the fields now, with everything that is shown of it drawn anew."""
        plan = await self.make_plan()
        await self._ask_secrets(plan.missing if plan is not None else None)
        self.redraw_plan()
        return plan

    def texts(self) -> dict[str, str]:
        """What stands in the fields now."""
        return {row.id: self.query_one(f"#{widget_id(row.id)}", Field).value for row in self._rows}

    def fill(self, texts: Mapping[str, str]) -> None:
        """Put these words into the fields."""
        for id_, text in texts.items():
            self.query_one(f"#{widget_id(id_)}", Field).value = text

    async def _ask_secrets(self, missing: Sequence[str] | None) -> None:
        """A field for each secret that this machine's environment lacks; a value that was typed stays while it is wanted."""
        if missing is None:
            return
        place = self.query_one("#secret-values", Vertical)
        for row in list(place.children):
            if row.name not in missing:
                await row.remove()
        known = {row.name for row in place.children}
        for name in missing:
            if name not in known:
                label = Lines(lambda _width, n=name: [[("  ", ""), (clean(n, LABEL - 3), "warn")]])  # type: ignore[misc]
                value = Field(hidden=True, hint=f"the value of {name}: sent to the host alone, written nowhere")
                await place.mount(Horizontal(label, value, classes="row", name=name))
        self.on_resize()

    def secrets(self) -> dict[str, str]:
        rows = self.query_one("#secret-values", Vertical).children
        return {str(row.name): row.query_one(Field).value for row in rows}

    def lacks_secrets(self, plan: Planned, secrets: Mapping[str, str]) -> bool:
        """Whether a value has to be typed first; then that is said, and its field has the keys."""
        without = [name for name in plan.missing if not secrets.get(name)]
        if without:
            self.say([("! ", "warn"), (f"type a value for {', '.join(without)}: it is not in your environment", "warn")])
            next(row for row in self.query_one("#secret-values").children if row.name == without[0]).query_one(Field).focus()
        return bool(without)

    # --------------------------------------------------------------------------------------------------------- the keys

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_next(Field)

    def action_dialog_form_launch(self) -> None:
        self.start_launch()

    def start_launch(self) -> None:
        """Launch, unless a launch is under way."""
        if not self._busy:
            self._busy = True
            self.run_worker(self._launch(), group="launch")

    async def _launch(self) -> None:
        try:
            await self.launch()
        finally:
            self._busy = False


def widget_id(id_: str) -> str:
    """The id of a field's widget."""
    return "field-" + id_.replace(".", "-")


def signed(text: str, sign: str, style: str, width: int) -> list[Line]:
    """A text with a sign before it, folded below itself."""
    pieces = folded(clean(text, 400), max(10, width - len(sign)))
    return [[(sign if at == 0 else " " * len(sign), style), (piece, style)] for at, piece in enumerate(pieces)]


def runs_as_line(runs_as: str) -> list[Line]:
    """How the host would run it."""
    if not runs_as:
        return []
    how = "runs " if runs_as.startswith(("in ", "as ")) else "runs as "
    return [[(how, "dim"), (clean(runs_as, 200), "")]]


def command_lines(command: Sequence[str], env: Mapping[str, str], width: int) -> list[Line]:
    """The exact command and environment."""
    import shlex

    out: list[Line] = [[("command and environment", "head"), ("   pgup pgdn scroll", "dim")]]
    out += [[(piece, "")] for piece in folded(clean(shlex.join(command), 1 << 16), max(10, width - 2))]
    for name, value in sorted(env.items()):
        out += [[(piece, "dim")] for piece in folded(clean(f"{name}={shlex.quote(value)}", 1 << 14), max(10, width - 2))]
    return out
