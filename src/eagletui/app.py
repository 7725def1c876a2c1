"""The dashboard: wiring, timers, and the way out. What it shows is in `screens`, what it knows in the store."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import logging
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, cast

from rich.console import Console
from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import Screen
from textual.theme import Theme

from eagletui.actions import BY_ID, DIALOG, EVERYWHERE, LIST, SCREENS, Action, keymap, live
from eagletui.paths import state_dir
from eagletui.screens.acting import Acting
from eagletui.screens.asking import ScreenPrompter
from eagletui.screens.base import Desk, Page
from eagletui.screens.deeds import deeds_of
from eagletui.screens.leaving import Leaving, stay_awake
from eagletui.screens.palette import Commands
from eagletui.screens.prompt import NO_SHOW, Held, Prompt, switches
from eagletui.screens.words import sorted_alerts
from eagletui.store import Store
from eagletui.text import clean
from eagletui.widgets.chrome import WAITING_STATES, Banner, Footer, Header, Tabs
from eagletui.widgets.dialog import Reader
from eagletui.widgets.panel import Panel
from eagletui.widgets.sheet import Sheet
from eagletui.widgets.table import Table

log = logging.getLogger("eagletui.app")

REDRAW = 0.25
"""Seconds between two redraws at least: more a person cannot read, and less the link's samples do not need."""

THEME = Theme(
    name="eagletui",
    primary="#5c9fd8",
    secondary="#7f8ea3",
    accent="#6cb6ff",
    foreground="#d3d9e2",
    background="#10151b",
    surface="#181f28",
    panel="#222b36",
    success="#56b68b",
    warning="#e3b341",
    error="#ff7b72",
    dark=True,
)
_OWN_ACTIONS = {"palette": "command_palette"}
OTHER_PAGES = {"log": "eagletui.screens.log:Log", "pipeline": "eagletui.screens.pipeline:PipelinePage"}
"""Screens without a number: they are of one job, and opened by a key."""


def _binding(action: Action) -> Binding:
    call = f"show_page('{action.screen[0]}')" if action.screen is not None else _OWN_ACTIONS.get(action.id, action.id)
    return Binding(",".join(action.keys), call, action.label, show=False, id=action.id)


class EagleApp(Acting):
    """The dashboard over one store. ``keys`` (action id -> keys) changes the table's; complaints are shown at the start.

    ``run_async`` returns when the user leaves, on SIGTERM and SIGHUP, and when the terminal has gone; ``return_code`` then
    tells which. An error that ends it is one line on stderr and a traceback in `log_file`.
    """

    CSS_PATH = "app.tcss"
    TITLE = "eagletui"
    COMMANDS: ClassVar = {Commands}
    BINDINGS: ClassVar = [_binding(action) for action in live([EVERYWHERE]) if action.keys]

    def __init__(self, store: Store, desk: Desk, *, readonly: bool = False, keys: Mapping[str, str] | None = None) -> None:
        self.store, self.desk, self.readonly = store, desk, readonly or desk.readonly
        self.keys = keymap(keys)
        self.page_name = ""
        self._page: Page | None = None
        self.failure: str | None = None
        self._dirty: set[str] = set()
        self._redraw_due = False
        self._redrawn = 0.0
        self._held = Held()
        super().__init__()
        self.animation_level = "none"
        # Textual prints tracebacks here at the end; ours are in the log, and the user gets one line
        self.error_console = Console(file=io.StringIO())
        self.register_theme(THEME)
        if self.theme == "textual-dark":  # the user has chosen no other
            self.theme = THEME.name

    def compose(self) -> ComposeResult:
        yield Header()
        yield Tabs()
        yield Banner()
        yield Vertical(id="body")
        yield Prompt()
        yield Footer()

    async def on_mount(self) -> None:
        self._catch_signals()
        if changed := self.keys.changed():
            self.set_keymap(changed)
        self._unlisten = self.store.listen(self._on_change)
        self.set_interval(1.0, self._tick)
        self.theme_changed_signal.subscribe(self, self._repaint)
        # Textual draws on after SIGTSTP and SIGCONT as if the terminal still showed what it did
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        deeds_of(self).ask_with(ScreenPrompter(self, self.store.connection.target or "the host"))
        await self.show_page(cast(tuple[str, str], SCREENS[0].screen)[0])
        for problem in self.keys.problems:
            self.notify(problem, severity="warning", timeout=15, markup=False)

    def on_unmount(self) -> None:
        deeds_of(self).ask_with(None)
        self._unlisten()
        self._look(self.page, False)

    # ---------------------------------------------------------------------------------------------- what has changed

    def _on_change(self, topic: str) -> None:
        self._dirty.add(topic)
        if not self._redraw_due:
            self._redraw_due = True
            # the change comes from the session's task, not from one of ours: only a message gets it into Textual's context
            wait = max(0.0, self._redrawn + REDRAW - time.monotonic())
            asyncio.get_running_loop().call_later(wait, self.call_later, self._redraw_dirty)

    def _redraw_dirty(self) -> None:
        self._redraw_due = False
        self._redrawn = time.monotonic()
        topics, self._dirty = frozenset(self._dirty), set()
        if topics:
            self._refresh(topics)

    def _tick(self) -> None:
        self._refresh(frozenset({"clock"}))

    def _refresh(self, topics: frozenset[str]) -> None:
        if not self.screen_stack:
            return  # the screens are taken down: a tick was already under way when the dashboard was left
        base = self.screen_stack[0]
        for panel in base.query("Screen > Panel").results(Panel):
            if panel.touched(topics):
                panel.redraw()
        if len(self.screen_stack) > 1 and isinstance(self.screen, (Reader, Sheet)):
            self.screen.refresh_topics(topics)
        if self.page is not None:
            self.page.refresh_topics(topics)

    # ----------------------------------------------------------------------------------------------------- the screens

    @property
    def page(self) -> Page | None:
        """The screen that is shown."""
        return self._page

    async def show_page(self, name: str) -> None:
        """Show a screen by its name, made when it is first wanted."""
        before = self.page
        base = self.screen_stack[0]
        page = next(iter(base.query(f"#page-{name}").results(Page)), None)
        if page is not None and page is before:
            return
        if page is None:
            pages = dict(action.screen for action in SCREENS if action.screen is not None)
            target = {**pages, **OTHER_PAGES}[name]
            module, _, cls = target.partition(":")
            page = cast(Page, getattr(importlib.import_module(module), cls)(id=f"page-{name}"))
            await base.query_one("#body").mount(page)
        if before is not None:
            before.display = False
            self._look(before, False)
        page.display = True
        self._page, self.page_name = page, name
        self._look(page, True)
        base.set_focus(None)  # the keys must not go to a list that is no longer seen
        page.focus_first(base)
        base.query_one(Tabs).redraw()
        page.call_after_refresh(self._shown, page)

    def _shown(self, page: Page) -> None:
        if page is self.page:
            page.redraw()
            page.focus_first(self.screen_stack[0])  # what there was nothing of before may be here now
            self._redraw_footer()

    def _look(self, page: Page | None, on: bool) -> None:
        for topic in page.looks if page is not None else ():
            self.desk.watch.look(topic, on)

    def live_actions(self) -> list[Action]:
        """What the keys do now, for footer and palette."""
        scopes = [EVERYWHERE, self.page_name, *(self.page.scopes if self.page is not None else ())]
        if isinstance(self.screen_stack[0].focused, Table):
            scopes.append(LIST)
        if len(self.screen_stack) > 1 and isinstance(self.screen, Reader):
            scopes = [DIALOG]
        waiting = any(not alert.acknowledged for alert in self.store.alerts.values())
        focused = self.screen_stack[0].focused
        without = focused.without if isinstance(focused, Table) else frozenset()
        actions = [a for a in live(scopes, readonly=self.readonly) if a.screen is None and a.id not in without]
        down = self.store.connection.state in WAITING_STATES
        return [a for a in actions if {"acknowledge": waiting, "retry": down}.get(a.id, True)]

    async def run_action_id(self, id_: str) -> None:
        """Do what the key of this action does; used by footer, tabs and palette."""
        action = BY_ID[id_]
        focused = self.screen_stack[0].focused
        if action.scope == LIST and isinstance(focused, Table):
            await self.run_action(f"table_{id_}", focused)
        elif self.page is not None and action.scope in self.page.scopes:
            await self.run_action(id_, self.page)
        else:
            await self.run_action(_binding(action).action, self)

    def _redraw_footer(self) -> None:
        if self.screen_stack:  # else the screens are taken down, and a focus that moved on the way is told late
            self.screen_stack[0].query_one(Footer).redraw()

    def on_descendant_focus(self, _event: events.DescendantFocus) -> None:
        self._redraw_footer()

    def on_table_opened(self, message: Table.Opened) -> None:
        if self.page is not None:
            self.page.opened(message.table, message.key)

    async def on_event(self, event: events.Event) -> None:
        """Textual's hook. Keys typed behind one that opens or closes the prompt wait until it has done so."""
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
        elif not self._held.keeps(event):
            if isinstance(event, events.Key) and len(self.screen_stack) == 1 and switches(self.screen, event.key):
                self.set_timer(NO_SHOW, partial(self._held.drop, self._held.hold()))
            await super().on_event(event)

    async def let_keys_go(self) -> None:
        """The prompt has opened or closed: the keys that waited for it go where the focus is now."""
        waiting = self._held.take()
        while waiting:
            if self._held.holds:
                self._held.keeps(waiting.pop(0))
            else:
                await self.on_event(waiting.pop(0))

    async def on_table_asked(self, message: Table.Asked) -> None:
        self.screen_stack[0].query_one(Prompt).open(message.table, message.purpose)
        await self.let_keys_go()

    # ----------------------------------------------------------------------------------------------------- the actions

    async def action_show_page(self, name: str) -> None:
        await self.show_page(name)

    def action_acknowledge(self) -> None:
        focused = self.screen_stack[0].focused
        waiting = [alert for alert in sorted_alerts(self.store.alerts) if not alert.acknowledged]
        if isinstance(focused, Table) and focused.name_of_rows == "alert":
            waiting = [alert for alert in waiting if alert.key == focused.cursor_key] or waiting
        for alert in deeds_of(self).acknowledge([alert.key for alert in waiting[:1]]):
            self.notify(f"acknowledged: {clean(alert.text, 80)}", markup=False)

    def action_retry(self) -> None:
        if self.store.connection.state in WAITING_STATES:
            deeds_of(self).retry()
        else:
            self.notify("there is a connection: nothing to try", markup=False)

    def action_next_list(self) -> None:
        self.screen.focus_next(Table)

    def action_previous_list(self) -> None:
        self.screen.focus_previous(Table)

    def action_help(self) -> None:
        from eagletui.screens.help import help_reader

        self.push_screen(help_reader(self.keys, self.readonly))

    def action_theme(self) -> None:
        self.search_themes()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """None of Textual's own: the palette shows the table's actions."""
        return ()

    def _repaint(self, _theme: Theme) -> None:
        for panel in self.screen_stack[0].query(Panel):
            panel.refresh()

    # ------------------------------------------------------------------------------------------------------ the way out

    def _catch_signals(self) -> None:
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()

        def gone() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is over: it has left already
                loop.call_soon_threadsafe(self._leave, "the terminal has gone", signal.SIGHUP)

        leaving = Leaving(gone, lambda: getattr(self._driver, "attrs_before", None))
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._leave, number.name, number)
            # in the place of the loop's handler, which does nothing: the loop is woken by the number alone, and may be stuck
            signal.signal(number, leaving.begin)
        leaving.start()
        for number in (signal.SIGTSTP, signal.SIGCONT):
            textual = signal.getsignal(number)
            if callable(textual):  # between two turns of the loop: amid a write it could wait for ever for a lock that is held
                loop.add_signal_handler(number, textual, number, None)

    def _leave(self, why: str, number: signal.Signals) -> None:
        log.info("%s: leaving", why)
        stay_awake()
        self.exit(return_code=128 + number)

    def _handle_exception(self, error: Exception) -> None:
        """Textual's hook for what nobody caught: log it, say it in one line after the terminal is restored, leave."""
        self._failed(error)
        super()._handle_exception(error)

    def _failed(self, error: Exception) -> None:
        log.error("ended by an error", exc_info=error)
        if self.failure is None:
            self.failure = f"the dashboard failed: {clean(f'{type(error).__name__}: {error}', 200)}"

    async def run_async(self, **options: Any) -> int | None:
        """Run until the user leaves. Errors go to the log file, and one line to stderr."""
        handler = _log_to_file()
        try:
            return await super().run_async(**options)
        except Exception as error:  # noqa: BLE001 - on the way out too: told in one line, the traceback is in the log
            self._failed(error)
            return None
        finally:
            logging.getLogger("eagletui").removeHandler(handler)
            handler.close()
            if self.failure is not None:
                sys.stderr.write(f"eagletui: {self.failure} - details are in {log_file()}; jobs on the host go on\n")


def log_file() -> str:
    """The file that holds what went wrong in the dashboard."""
    return str(state_dir() / "dashboard.log")


def _log_to_file() -> logging.Handler:
    """Log to `log_file`, owner only, made on the first record; where that is not possible, nowhere."""
    root = logging.getLogger("eagletui")
    try:
        state_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
        handler: logging.Handler = logging.FileHandler(log_file(), encoding="utf-8", delay=True, errors="backslashreplace")
    except OSError:
        handler = logging.NullHandler()  # a read-only home: the one line on stderr still tells what failed
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.propagate = False
    return handler
