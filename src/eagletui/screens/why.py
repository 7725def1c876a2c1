"""Does it work or hang: the pattern, what was measured, where its processes are, and one token on request."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding

from eagletui.actions import BY_ID
from eagletui.commands.why import Canary, HostError, Looked, Stacks
from eagletui.records import Liveness
from eagletui.screens.deeds import deeds_of
from eagletui.screens.details import folded_text
from eagletui.store import Store
from eagletui.text import clean, plural
from eagletui.widgets.dialog import Reader
from eagletui.widgets.paint import Line

STYLES = {"stuck": "bad", "suspect": "warn", "slow": "warn", "works": "good"}
MOST_FRAMES = 60


class WhySheet(Reader):
    """Looks at the processes as soon as it opens; ``c`` asks the server for one token."""

    BINDINGS: ClassVar = [
        Binding(",".join(BY_ID[name].keys), f"dialog_{name}", BY_ID[name].label, id=name) for name in ("look_again", "canary")
    ]

    def __init__(self, store: Store, job: str) -> None:
        state = store.jobs.get(job)
        name = clean(state.name, 60) if state is not None else "job"
        super().__init__(f"why: {name}", self._lines, frozenset({"jobs", "clock"}))
        self._store, self._job = store, job
        self.looked: Looked | None = None
        self.trouble: str | None = None
        self.token: Canary | None = None
        self.asking = False
        self.looking = False

    def on_mount(self) -> None:
        self.action_dialog_look_again()

    def action_dialog_look_again(self) -> None:
        if not self.looking:
            self.run_worker(self._look(), exclusive=False)

    def action_dialog_canary(self) -> None:
        if not self.asking:
            self.run_worker(self._ask(), exclusive=False)

    async def _look(self) -> None:
        job = self._store.jobs.get(self._job)
        if job is None:
            return
        self.looking, self.trouble = True, None
        self.body.redraw()
        try:
            self.looked = await deeds_of(self.app).stacks(job)
        except HostError as error:
            self.trouble = str(error)
        self.looking = False
        self.body.redraw()

    async def _ask(self) -> None:
        job = self._store.jobs.get(self._job)
        if job is None:
            return
        self.asking, self.token = True, None
        self.body.redraw()
        try:
            self.token = await deeds_of(self.app).canary(job)
        except HostError as error:
            self.token = Canary(None, None, str(error))
        self.asking = False
        self.body.redraw()

    def _lines(self, width: int) -> list[Line]:
        job = self._store.jobs.get(self._job)
        if job is None:
            return [[("! ", "warn"), ("this job is not on the host any more", "")]]
        out = verdict_lines(self._store.liveness.get(self._job), width)
        key = self.app.keys.shown("canary")  # type: ignore[attr-defined]
        out += [[], *token_lines(self.token, self.asking, key, width), []]
        if self.trouble is not None:
            out += folded_text("", clean(self.trouble), width, "warn")
        elif self.looked is None:
            out.append([("looking at its processes", "dim")])
        else:
            out += looked_lines(self.looked, width)
        return out


def verdict_lines(found: Liveness | None, width: int) -> list[Line]:
    """The pattern with its evidence and what to do."""
    if found is None:
        return [[("nothing speaks for a hang", "good"), ("   what is known moves, or has not been quiet for long", "dim")]]
    out = folded_text("", f"{found.verdict}: {found.text}", width, STYLES.get(found.verdict, ""))
    for text in found.evidence:
        out += folded_text("  ", clean(text), width, "dim")
    if found.remedy:
        out += [[("what to do", "dim")], *folded_text("  ", clean(found.remedy), width, "")]
    return out


def token_lines(token: Canary | None, asking: bool, key: str, width: int) -> list[Line]:
    """One token: what became of it, or the key that asks for it."""
    if asking:
        return [[("asked for one token, up to 60 s", "work")]]
    if token is None:
        return [[(f"{key}", "key"), (" asks the server for one token: its health page proves nothing", "dim")]]
    style = {True: "good", False: "bad", None: "warn"}[token.alive]
    return folded_text("", clean(token.words), width, style)


def looked_lines(looked: Looked, width: int) -> list[Line]:
    """Where each process is: its waits, and its Python stack."""
    out: list[Line] = [[(plural(len(looked.processes), "process", "processes"), "strong")]]
    if looked.why:
        out += folded_text("  ", looked.why, width, "dim")
    for process in looked.processes:
        out += [[], *_process(process, width)]
    return out


def _process(process: Stacks, width: int) -> list[Line]:
    waits = ", ".join(f"{clean(name, 60)}" + (f" x{count}" if count > 1 else "") for name, count in process.waits[:6])
    state = "bad" if process.state in ("D", "T", "t") else "dim"
    out: list[Line] = [
        [
            (f"{process.pid} ", "strong"),
            (clean(process.name, 20), ""),
            (f"  state {process.state}", state),
            (f"  {plural(process.threads, 'thread')}", "dim"),
        ]
    ]
    out += folded_text("  ", waits, width, "dim")
    if process.problem:
        out += folded_text("  ", clean(process.problem), width, "warn")
    for line in process.python[:MOST_FRAMES]:
        out.append([("  " + clean(line, 300), "strong" if line.startswith("Thread") else "")])
    if len(process.python) > MOST_FRAMES:
        out.append([(f"  {plural(len(process.python) - MOST_FRAMES, 'more line')}", "dim")])
    if not process.python and process.kernel:
        out += [[("  kernel ", "dim"), (clean(line, 100), "")] for line in process.kernel[:8]]
    return out
