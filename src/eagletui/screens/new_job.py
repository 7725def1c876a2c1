"""A new job: choose a job file, or a kind to fill in, change it, see what would run, start it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from eagletui.commands.logs import HostError
from eagletui.screens.deeds import deeds_of
from eagletui.screens.form import FormRow, PlanForm, command_lines, runs_as_line, signed, widget_id
from eagletui.text import clean, plural
from eagletui.views.job_form import blank, fields_of, file_of, kinds_to_fill, place_of, texts_of
from eagletui.widgets.dialog import Lines
from eagletui.widgets.paint import Line, folded
from eagletui.widgets.sheet import Sheet, bindings
from eagletui.widgets.table import Column, Row, Table

if TYPE_CHECKING:
    from eagletui.commands.run import RunPlan
    from eagletui.config import Notice
    from eagletui.jobfiles import JobFile


class FileTable(Table):
    """The job files of this host, then the kinds that a form can start from nothing."""

    DEFAULT_CSS = "FileTable { height: 12; }"
    name_of_rows = "job file"
    without = frozenset(("find", "find_next", "filter", "sort", "copy", "show_all"))

    def __init__(self, files: Mapping[str, JobFile]) -> None:
        super().__init__()
        self.files = files

    def columns(self) -> Sequence[Column]:
        return (
            Column("job file", 22),
            Column("kind", 11, "<", 2),
            Column("from", 9, "<", 3),
            Column("what it does", 20, "<", 1, grow=True),
        )

    def rows(self) -> Sequence[Row]:
        out = []
        for name, file in self.files.items():
            about = clean(file.description, 200)
            out.append(Row(f"file:{name}", (clean(name, 60), [(file.kind, "dim")], [(place_of(file), "dim")], about)))
        for word, about in kinds_to_fill():
            out.append(Row(f"kind:{word}", ([(f"new {word}", "")], [(word, "dim")], [("empty", "dim")], [(about, "dim")])))
        return out


class NewJobSheet(Sheet["JobFile"]):
    """The list, and what is wrong with files that were left out. Returns the one that was chosen."""

    def __init__(self, files: Mapping[str, JobFile], problems: Sequence[Notice]) -> None:
        super().__init__()
        self._table = FileTable(files)
        self._problems = problems

    def heading(self) -> str:
        return "new job: choose a job file, or a kind"

    def body(self) -> Iterable[Widget]:
        yield self._table
        yield Lines(self._about)

    def on_mount(self) -> None:
        self._table.styles.height = max(3, min(len(self._table.rows()) + 1, self.app.size.height - 12))
        self._table.focus()
        key = self.app.keys.shown("open")  # type: ignore[attr-defined]
        if key:
            self.say([(key, "key"), (" chooses what is under the cursor", "dim")])

    def _about(self, width: int) -> list[Line]:
        out: list[Line] = []
        for notice in list(self._problems)[:4]:
            place = notice.file.name + (f":{notice.line}" if notice.line else "")
            out += signed(f"{place}: {notice.what} - {notice.remedy}", "! ", "warn", width)
        if len(self._problems) > 4:
            out.append([(f"  and {plural(len(self._problems) - 4, 'more mistake')}", "warn")])
        return out

    def on_table_opened(self, message: Table.Opened) -> None:
        message.stop()
        sort, _, name = message.key.partition(":")
        self.dismiss(self._table.files[name] if sort == "file" else blank(name))


class JobForm(PlanForm):
    """A job file as fields, over what they would run."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("form_reset")
    hints = ("form_launch", "form_reset")

    def __init__(self, file: JobFile) -> None:
        super().__init__()
        self._file = file
        self._fields = fields_of(file)
        self._help = {widget_id(field.id): field.help for field in self._fields}
        self.plan: RunPlan | None = None
        self._said_busy: tuple[str, ...] = ()
        self._about_field = ""

    def heading(self) -> str:
        return f"new {self._file.kind}"

    def rows(self) -> list[FormRow]:
        texts = texts_of(self._file)
        return [
            FormRow(field.id, clean(field.id, 17) + (" *" if field.required else ""), texts[field.id], field.hint)
            for field in self._fields
        ]

    # -------------------------------------------------------------------------------------------------------- the words

    def origin(self, width: int) -> list[Line]:
        words = self._about_field or "* is needed"
        return [[(clean(words, max(10, width)), "dim")]]

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """What the field takes that has the keys now."""
        self._about_field = self._help.get(event.widget.id or "", "")
        self.redraw_plan()
        for lines in self.query(Lines):
            lines.redraw()

    def preview_lines(self, width: int) -> list[Line]:
        if self.plan is None:
            return []
        out: list[Line] = []
        for warning in self.plan.warnings:
            out += signed(warning, "! ", "warn", width)
        out += runs_as_line(self.plan.runs_as)
        out += [[(piece, "")] for piece in folded(clean(self.plan.title, 1000), max(10, width - 2))]
        out += steps_lines(self.plan, width)
        return [*out, *command_lines(self.plan.command, self.plan.env, width)]

    # --------------------------------------------------------------------------------------------------------- the plan

    async def make_plan(self) -> RunPlan | None:
        file, self.problems = file_of(self._file, self.texts())
        self.plan = None
        if file is not None:
            try:
                self.plan = await deeds_of(self.app).plan_run(file)
            except HostError as error:
                self.problems = {"": f"{error.why}" + (f" - {error.remedy}" if error.remedy else "")}
        return self.plan

    async def launch(self) -> None:
        try:
            await self.planned()
            plan = self.plan
            if plan is None:
                self.say([("✗ ", "bad"), ("nothing was started: see above", "bad")])
                return
            secrets = self.secrets()
            if self.lacks_secrets(plan, secrets):
                return
            if plan.busy and plan.busy != self._said_busy:
                self._said_busy = plan.busy
                again = self.app.keys.shown("form_launch")  # type: ignore[attr-defined]
                self.say(
                    [("! ", "warn"), (f"{clean('; '.join(plan.busy), 300)} - {again} once more starts it all the same", "warn")]
                )
                return
            self.say([("~ ", "work"), (f"starting {clean(plan.file.name, 60)}", "work")])
            state = await deeds_of(self.app).run_job(plan, secrets)
        except HostError as error:
            self.fail(error)
            return
        if state.state == "failed_to_exec":
            why = state.first_error or state.detail or "its program could not be started"
            self.say([("✗ ", "bad"), (clean(f"it did not start: {why}", 600), "bad")])
            return
        store = self.app.store  # type: ignore[attr-defined]
        store.jobs.setdefault(state.id, state)
        store.changed("jobs")
        # by the app: what this form has under way ends with it
        self.app.call_later(self.app.open_started, state.id)  # type: ignore[attr-defined]
        self.dismiss(None)

    def action_dialog_form_reset(self) -> None:
        """As the file has it."""
        self.fill(texts_of(self._file))


def steps_lines(plan: RunPlan, width: int) -> list[Line]:
    """The steps of a pipeline, each with its stage and server; nothing for other jobs."""
    chain = plan.spec.get("pipeline")
    if not isinstance(chain, dict):
        return []
    out: list[Line] = [[("steps", "head")]]
    for number, step in enumerate(chain.get("steps") or (), 1):
        words = [str(step.get("kind"))]
        if step.get("stage"):
            words.append(f"{step['stage']} rows" if str(step["stage"]).isdigit() else str(step["stage"]))
        if step.get("server"):
            words.append(f"with server {step['server']}")
        out.append(
            [(f"{number:>3} ", "dim"), (f"{clean(str(step.get('id')), 24):<24} ", ""), (clean(", ".join(words), 80), "dim")]
        )
    return out
