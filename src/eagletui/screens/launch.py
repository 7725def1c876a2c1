"""Launching a server: choose a profile, change it, see the exact command, start it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.timer import Timer
from textual.widget import Widget

from eagletui.commands.logs import HostError
from eagletui.profiles import Profile
from eagletui.screens.deeds import deeds_of
from eagletui.screens.form import FormRow, PlanForm, command_lines, runs_as_line, signed
from eagletui.screens.preflight import PreflightSheet, brief
from eagletui.text import MISSING, clean, plural
from eagletui.views.launch_form import FIELDS, kind_of, profile_of, texts_of
from eagletui.views.preflight import blocked
from eagletui.views.serving import choose
from eagletui.widgets.dialog import Lines
from eagletui.widgets.paint import Line, folded
from eagletui.widgets.sheet import Sheet, bindings
from eagletui.widgets.table import Column, Row, Table

if TYPE_CHECKING:
    from eagletui.commands import LaunchPlan
    from eagletui.commands.preflight import Preflight
    from eagletui.config import Notice

LOOK_PAUSE = 0.5
"""Seconds more before the host is asked what would stop it."""


class ProfileTable(Table):
    """The profiles of this host."""

    DEFAULT_CSS = "ProfileTable { height: 12; }"
    name_of_rows = "profile"
    without = frozenset(("find", "find_next", "filter", "sort", "copy", "show_all"))

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        super().__init__()
        self.profiles = profiles

    def columns(self) -> Sequence[Column]:
        return (
            Column("profile", 22),
            Column("from", 9, "<", 2),
            Column("engine", 6, "<", 3),
            Column("k", 2, ">", 4),
            Column("port", 5, ">", 5),
            Column("model, drafter", 20, "<", 1, grow=True),
        )

    def rows(self) -> Sequence[Row]:
        return [self._row(name, profile) for name, profile in self.profiles.items()]

    def _row(self, name: str, profile: Profile) -> Row:
        models = clean(profile.model, 200) + (f" + {clean(profile.drafter, 200)}" if profile.drafter else "")
        return Row(
            name,
            (
                clean(name, 60),
                [(kind_of(profile), "dim")],
                profile.engine,
                MISSING if profile.k is None else str(profile.k),
                MISSING if profile.port is None else str(profile.port),
                models,
            ),
        )

    def empty(self) -> list[Line]:
        return [[(" no profile works here: see below", "warn")]]


class LaunchSheet(Sheet[Profile]):
    """The list of profiles, and what is wrong with those that were left out. Returns the one that was chosen."""

    def __init__(self, profiles: Mapping[str, Profile], problems: Sequence[Notice]) -> None:
        super().__init__()
        self._table = ProfileTable(profiles)
        self._problems = problems

    def heading(self) -> str:
        return "launch: choose a profile"

    def body(self) -> Iterable[Widget]:
        yield self._table
        yield Lines(self._about)

    def on_mount(self) -> None:
        self._table.styles.height = max(3, min(len(self._table.profiles) + 1, self.app.size.height - 12))
        self._table.focus()
        key = self.app.keys.shown("open")  # type: ignore[attr-defined]
        if self._table.profiles and key:
            self.say([(key, "key"), (" chooses the profile under the cursor", "dim")])

    def _about(self, width: int) -> list[Line]:
        out: list[Line] = []
        for notice in list(self._problems)[:4]:
            place = notice.file.name + (f":{notice.line}" if notice.line else "")
            text = clean(f"{place}: {notice.what} - {notice.remedy}", 400)
            out += [[("! " if at == 0 else "  ", "warn"), (piece, "warn")] for at, piece in enumerate(folded(text, width - 2))]
        if len(self._problems) > 4:
            out.append([(f"  and {plural(len(self._problems) - 4, 'more mistake')}", "warn")])
        return out

    def on_table_opened(self, message: Table.Opened) -> None:
        message.stop()
        self.dismiss(self._table.profiles[message.key])


class LaunchForm(PlanForm):
    """A profile as fields, over the command they make. It starts from the last of its name that became ready here."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("form_preflight", "form_save", "form_save_all", "form_reset")
    hints = ("form_launch", "form_preflight", "form_save", "form_save_all", "form_reset")
    first = "model"

    def __init__(self, profile: Profile, good: Profile | None = None) -> None:
        super().__init__()
        self._file, self._good = profile, good if good != profile else None
        self.start = self._good or profile
        self.plan: LaunchPlan | None = None
        self.looked: Preflight | None = None
        self._look_problem = ""
        self._look_timer: Timer | None = None
        self._said_busy: tuple[str, ...] = ()
        self._force = False

    def heading(self) -> str:
        return f"launch {self._file.name}"

    def rows(self) -> list[FormRow]:
        texts = texts_of(self.start)
        return [FormRow(field.id, field.label, texts[field.id], field.hint) for field in FIELDS]

    # -------------------------------------------------------------------------------------------------------- the words

    def origin(self, width: int) -> list[Line]:
        if self._good is not None and self.start is self._good:
            return [[("as it last became ready on this host", "good"), ("   ctrl+r: as the file has it", "dim")]]
        source = clean(self._file.source or "its last launch", 200)
        return [[(f"{kind_of(self._file)}   ", "dim"), (source, "dim")]]

    def preview_lines(self, width: int) -> list[Line]:
        if self.plan is None:
            return []
        out: list[Line] = []
        for warning in self.plan.warnings:
            out += signed(warning, "! ", "warn", width)
        out += runs_as_line(self.plan.runs_as)
        for line in self.plan.about:
            out += [[(piece, "")] for piece in folded(clean(line, 1000), max(10, width - 2))]
        out += brief(self.looked, self._look_problem, width, self.app.keys.shown("form_preflight"))  # type: ignore[attr-defined]
        return [*out, *command_lines(self.plan.command, self.plan.env, width)]

    # --------------------------------------------------------------------------------------------------------- the plan

    async def make_plan(self) -> LaunchPlan | None:
        profile, self.problems = profile_of(self.start, self.texts())
        self.plan = None
        if profile is not None:
            try:
                self.plan = await deeds_of(self.app).plan_launch(profile)
            except HostError as error:
                self.problems = {"": f"{error.why}" + (f" - {error.remedy}" if error.remedy else "")}
        self._look_soon()
        return self.plan

    # ---------------------------------------------------------------------------------------------------- the preflight

    def _look_soon(self) -> None:
        """Look at what would stop the launch, once typing has paused; what is known of this very profile stands."""
        if self._look_timer is not None:
            self._look_timer.stop()
        if self.plan is None or (self.looked is not None and self.looked.profile == self.plan.profile):
            return
        self.looked, self._look_problem = None, ""
        self._look_timer = self.set_timer(LOOK_PAUSE, self._start_looking)

    def _start_looking(self) -> None:
        if self.plan is not None:
            self.run_worker(self._look(self.plan), group="preflight", exclusive=True)

    async def _look(self, plan: LaunchPlan) -> Preflight | None:
        """The findings for ``plan``; None, with the reason shown, when the host could not be asked."""
        try:
            self.looked, self._look_problem = await deeds_of(self.app).preflight(plan), ""
        except HostError as error:
            self.looked, self._look_problem = None, error.why
        self._preview.redraw()
        return self.looked

    def action_dialog_form_preflight(self) -> None:
        self.run_worker(self._show_findings(), group="findings", exclusive=True)

    async def _show_findings(self) -> None:
        plan = self.plan or await self.remade()
        if plan is None:
            self.say([("✗ ", "bad"), ("there is nothing to look at: see above", "bad")])
            return
        same = self.looked is not None and self.looked.profile == plan.profile
        self.app.push_screen(PreflightSheet(plan, self.looked if same else None), self._override)

    def _override(self, launch: bool | None) -> None:
        if launch:
            self._force = True
            self.start_launch()

    async def _allowed(self, plan: LaunchPlan) -> bool:
        """Whether nothing blocks the launch; else the page with the findings is shown, which can override them."""
        looked = self.looked
        if looked is None or looked.profile != plan.profile:
            self.say([("~ ", "work"), ("preflight: looking", "work")])
            looked = await self._look(plan)
        if looked is None or not blocked(looked.report):
            return True  # a host that cannot say what would stop it may still launch it
        self.say([("✗ ", "bad"), ("it would not come up", "bad")])
        self.app.push_screen(PreflightSheet(plan, looked), self._override)
        return False

    async def remade(self) -> LaunchPlan | None:
        """The plan of what stands in the fields now."""
        await self.planned()
        return self.plan

    async def launch(self) -> None:
        force, self._force = self._force, False
        try:
            plan = await self.remade()
            if plan is None:
                self.say([("✗ ", "bad"), ("nothing was launched: see above", "bad")])
                return
            secrets = self.secrets()
            if self.lacks_secrets(plan, secrets):
                return
            if not force and not await self._allowed(plan):
                return
            if plan.busy and plan.busy != self._said_busy:
                self._said_busy = plan.busy
                again = self.app.keys.shown("form_launch")  # type: ignore[attr-defined]
                why = clean("; ".join(plan.busy), 300)
                self.say([("! ", "warn"), (f"{why} - {again} once more launches all the same", "warn")])
                return
            self.say([("~ ", "work"), (f"launching {clean(plan.profile.name, 60)}", "work")])
            state = await deeds_of(self.app).launch(plan, secrets)
        except HostError as error:
            self.fail(error)
            return
        if state.state == "failed_to_exec":
            why = state.first_error or state.detail or "its program could not be started"
            self.say([("✗ ", "bad"), (clean(f"it did not start: {why}", 600), "bad")])
            return
        store = self.app.store  # type: ignore[attr-defined]
        store.jobs.setdefault(state.id, state)
        choose(store, state.id)
        store.changed("jobs")
        # by the app: what this form has under way ends with it
        self.app.call_later(self.app.show_page, "load")  # type: ignore[attr-defined]
        self.dismiss(None)

    def action_dialog_form_save(self) -> None:
        self._save(False)

    def action_dialog_form_save_all(self) -> None:
        self._save(True)

    def _save(self, everywhere: bool) -> None:
        profile, self.problems = profile_of(self.start, self.texts())
        self._preview.redraw()
        if profile is None:
            self.say([("✗ ", "bad"), ("it was not saved: see above", "bad")])
            return
        try:
            path = deeds_of(self.app).save_profile(profile, everywhere)
        except HostError as error:
            self.fail(error)
            return
        self.say([("✓ ", "good"), (clean(f"saved as {path}", 300), "")])

    def action_dialog_form_reset(self) -> None:
        """Between the last good one and the file's."""
        self.start = self._file if self.start is self._good or self._good is None else self._good
        self.fill(texts_of(self.start))
        for lines in self.query(Lines):
            lines.redraw()
