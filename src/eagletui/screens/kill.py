"""Ending a job: what will die and be freed, the question, the ladder as it goes, and the proof."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Button, Input

from eagletui.commands.logs import HostError
from eagletui.records import KillPlan, KillReport
from eagletui.screens.deeds import deeds_of
from eagletui.screens.words import job_state
from eagletui.store import Store
from eagletui.text import MISSING, clean, duration, plural, short_command, size
from eagletui.widgets.dialog import Lines
from eagletui.widgets.paint import Line, folded
from eagletui.widgets.sheet import Choice, Field, Sheet, bindings

SHOWN_PROCESSES = 14
SHOWN_FILES = 6
HOLDERS = {"systemd": "a systemd unit", "docker": "a docker container", "podman": "a podman container"}


class KillSheet(Sheet[None]):
    """Asks before it ends the job ``job`` (a key of the store's table), then shows how that goes and what came of it."""

    BINDINGS: ClassVar = bindings("confirm", "hurry", "look_again")
    DEFAULT_CSS = """
    KillSheet > .sheet { border-left: thick $error; }
    KillSheet .scroll { height: auto; background: $surface; scrollbar-size-vertical: 1; }
    """

    def __init__(self, store: Store, job: str) -> None:
        super().__init__()
        self._store, self._job = store, job
        state = store.jobs.get(job)
        # single processes have no name but their numbers
        self._name = clean(state.name if state is not None else job.replace("pids-", "process ", 1), 60)
        self.plan: KillPlan | None = None
        self.report: KillReport | None = None
        self.ending = False
        self._began = False

    @property
    def hints(self) -> tuple[str, ...]:  # type: ignore[override]
        if self.ending:
            return ("hurry",)
        return ("look_again",) if self.report is not None or self.plan is None else ("confirm", "look_again")

    def heading(self) -> str:
        return f"end {self._name}?" if self.report is None and not self.ending else f"ending {self._name}"

    def body(self) -> Iterable[Widget]:
        self._text = Lines(self._lines, frozenset({"jobs", "clock"}))
        self._scroll = VerticalScroll(self._text, classes="scroll", can_focus=False)
        yield self._scroll
        self._typed = Field(id="typed")
        self._typed.display = False
        yield self._typed

    def buttons(self) -> Iterable[Choice]:
        yield Choice("Cancel", id="cancel")
        yield Choice("End it", id="end", danger=True)

    def on_resize(self) -> None:
        # the buttons and the keys must be seen, however long the list is
        self._scroll.styles.max_height = max(3, self.app.size.height * 94 // 100 - 6)

    def on_mount(self) -> None:
        self.on_resize()
        self.query_one("#cancel", Choice).focus()
        self.action_dialog_look_again()

    # -------------------------------------------------------------------------------------------------------- the words

    def _lines(self, width: int) -> list[Line]:
        if self.report is not None:
            return report_lines(self.report, width)
        if self.ending:
            return self._progress()
        if self.plan is None:
            return [[("~ looking at its processes", "work")]] if not self.said else []
        return plan_lines(self.plan, self._store, width)

    def _progress(self) -> list[Line]:
        job = self._store.jobs.get(self._job)
        what = (job.detail if job is not None else None) or "it has been told to end"
        line: Line = [("~ ", "work"), (clean(what, 300), "")]
        if job is not None and job.state not in ("running", "launching", "stopping"):
            line = [("~ its processes are gone; the cards' memory is awaited", "work")]
        out: list[Line] = [[job_state(job)] if job is not None else [], line]
        if job is not None and job.members is not None:
            out.append([(plural(job.members, "process", "processes") + " left", "dim")])
        return [*out, [], [("this goes on when you leave this box, and when the connection is lost", "dim")]]

    @property
    def _wanted(self) -> str:
        """What has to be typed, as it is shown; empty when a plain yes is enough."""
        return clean(self.plan.confirm or "", 200).strip() if self.plan is not None else ""

    def _redraw(self) -> None:
        if not self.is_mounted:
            return
        cancel, end = self.query_one("#cancel", Choice), self.query_one("#end", Choice)
        over = self.report is not None
        cancel.label = "Close" if over or self.ending else "Cancel"
        end.label = "Kill now" if self.ending else "End it"
        end.display = self.ending or (self.plan is not None and not over)
        self._typed.display = bool(self._wanted) and not self.ending and not over
        self._typed.placeholder = f"type {self._wanted} to confirm"
        for lines in self.query(Lines):
            lines.redraw()

    # --------------------------------------------------------------------------------------------------------- the deeds

    def action_dialog_look_again(self) -> None:
        if not self.ending:
            self.plan = self.report = None
            self.say([])
            self.run_worker(self._look(), exclusive=True, group="look")

    def _stale(self) -> bool:
        """Whether what is seen may be old; says so."""
        state = self._store.connection.state
        if state == "online":
            return False
        self.say(
            [("✗ ", "bad"), (f"the link is {clean(state, 20)}: what would die cannot be told now, so nothing is ended", "bad")]
        )
        return True

    async def _look(self) -> None:
        if not self._stale():
            try:
                self.plan = await deeds_of(self.app).kill_plan(self._job)
            except HostError as error:
                self.fail(error)
        self._redraw()

    def action_dialog_confirm(self) -> None:
        """Confirmed: by its key or its button."""
        if self.plan is None or self.ending or self.report is not None or self._stale():
            return
        if self._wanted and self._typed.value.split() != self._wanted.split():
            what = "the number of each process" if self.plan.only else "its name"
            because = clean(self.plan.because or "", 120)
            self.say([("! ", "warn"), (f"{because}: type {what}, {self._wanted}, to end it all the same", "warn")])
            self._typed.focus()
            return
        self.ending = True
        self.say([])
        # its own worker of the app: the proof is awaited even when this box has been closed
        self.app.run_worker(self._end(self.plan), group="kill")
        self._redraw()

    async def _end(self, plan: KillPlan) -> None:
        try:
            self.report = await deeds_of(self.app).kill(plan)
        except HostError as error:
            self.plan = None
            if self.is_attached:
                self.fail(error)
            else:
                self.app.notify(clean(str(error), 300), severity="error", markup=False)
        finally:
            self.ending = False
        if self.is_attached:
            self._redraw()
        elif self.report is not None:
            done = self.report.done
            words = (
                "is gone, and what it held is free" if done else "ended, but not all is free: " + "; ".join(self.report.remaining)
            )
            self.app.notify(clean(f"{self._name} {words}", 400), severity="information" if done else "error", markup=False)

    def action_dialog_hurry(self) -> None:
        """Skip the graces: SIGKILL to all of it."""
        if self.ending:
            self.say([("~ SIGKILL to all of it is asked for", "work")])
            self.run_worker(self._hurry(), exclusive=True, group="hurry")

    async def _hurry(self) -> None:
        try:
            await deeds_of(self.app).hurry(self._job)
        except HostError as error:
            self.fail(error)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "cancel":
            self.dismiss(None)
        elif self.ending:
            self.action_dialog_hurry()
        else:
            self.action_dialog_confirm()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_dialog_confirm()

    def on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down"):
            self._scroll.scroll_relative(y=1 if event.key == "down" else -1, animate=False)
            event.stop()
        elif event.key in ("pageup", "pagedown"):
            self._scroll.scroll_relative(y=(1 if event.key == "pagedown" else -1) * self._scroll.size.height, animate=False)
            event.stop()


def plan_lines(plan: KillPlan, store: Store, width: int) -> list[Line]:
    """What a kill would end and free."""
    out: list[Line] = []
    if plan.because:
        more = f"; {HOLDERS[plan.adopted]} holds it" if plan.adopted in HOLDERS else ""
        out.append([("! ", "warn"), (clean(plan.because, 120) + more, "warn")])
    cost = f"{duration(plan.cost)} to be ready again" if plan.cost is not None else "not known"
    out.append(
        [("up ", "dim"), (duration(plan.uptime), ""), ("   a restart costs ", "dim"), (cost, "strong" if plan.cost else "dim")]
    )
    out += [[], [(f"{plural(len(plan.processes), 'process', 'processes')} end", "strong")]]
    for process in plan.processes[:SHOWN_PROCESSES]:
        mark = "main" if process.main else f"{clean(process.state, 2)}"
        head = f"  {process.pid:>8}  {clean(process.user or MISSING, 10):<10} {mark:<5}{size(process.rss):>9}  "
        out.append([(head, "dim"), (clean(short_command(process.command), max(10, width - len(head))), "")])
        if process.waiting_on is not None:
            why = f"uninterruptible, waiting on {clean(process.waiting_on, 60)}: it cannot be ended until that is over"
            out.append([(" " * 12, ""), (why, "warn")])
    if len(plan.processes) > SHOWN_PROCESSES:
        out.append([(f"  and {len(plan.processes) - SHOWN_PROCESSES} more", "dim")])
    out += [[], [("freed", "strong")]]
    if plan.gpus:
        cards = store.gpus.cards if store.gpus is not None else ()
        numbers = [str(card.number) for card in cards if card.uuid in plan.gpus] or [clean(uuid, 12) for uuid in plan.gpus]
        held = f", {size(plan.gpu_memory)} on them" if plan.gpu_memory is not None else ""
        out.append([("  GPU   ", "dim"), (", ".join(numbers) + held, "")])
    if plan.port is not None:
        out.append([("  port  ", "dim"), (str(plan.port), ""), ("" if plan.listening else "   nothing listens there now", "dim")])
    for name, files in (("shm", plan.shm), ("tmp", plan.tmp)):
        for at, path in enumerate(files[:SHOWN_FILES]):
            out.append([(f"  {name if at == 0 else '':<6}", "dim"), (clean(path, 200), "")])
        if len(files) > SHOWN_FILES:
            out.append([(f"        and {len(files) - SHOWN_FILES} more", "dim")])
    if plan.suspects:
        out += [[], [("! ", "warn"), ("on its cards, but not its own: they are not touched (GPUs ends them one by one)", "warn")]]
        for suspect in plan.suspects:
            words = f"{clean(suspect.user or MISSING, 12)}  {size(suspect.mem)}  {clean(suspect.command or '', 120)}"
            out.append([(f"  {suspect.pid:>8}  ", "dim"), (words, "")])
    if plan.lever is not None:
        out += [[], [("how   ", "dim"), (clean(plan.lever, 200), "strong")]]
        if plan.note:
            out += [[("      ", ""), (piece, "dim")] for piece in folded(clean(plan.note, 300), max(10, width - 6))]
    elif len(plan.graces) == 3:
        main, members = (f"{grace:g} s" for grace in plan.graces[:2])
        steps = f"SIGTERM to the main process, {main} (a server gets it twice); to all, {members}; then SIGKILL"
        if plan.only:
            steps = (
                f"SIGTERM, {main if len(plan.processes) == 1 else members}; then SIGKILL - to these alone, not to their children"
            )
        out += [[], [("how   ", "dim"), (steps, "dim")]]
    return out


def report_lines(report: KillReport, width: int) -> list[Line]:
    """What came of it, with what is not free first."""
    took = f" after {duration(report.seconds)}" if report.seconds is not None else ""
    status = "" if report.rc is None else f"   exit status {report.rc}"
    out: list[Line] = [
        [("✓ ", "good"), (f"gone{took}", "good"), (status, "dim")]
        if report.done
        else [("✗ ", "bad"), (f"not all of it is gone{took}", "bad"), (status, "dim")],
        [],
    ]
    for text in report.remaining:
        out += [
            [("✗ " if at == 0 else "  ", "bad"), (piece, "bad")] for at, piece in enumerate(folded(clean(text, 600), width - 4))
        ]
    out += [[("✓ ", "good"), (clean(text, width - 2), "")] for text in report.released]
    if report.gpu_memory and report.gpu_memory not in report.remaining:
        out.append([("✓ " if report.done else "  ", "good"), (clean(report.gpu_memory, width - 2), "")])
    return out
