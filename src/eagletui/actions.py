"""One table of what the keys do: bindings, footer, help screen, command palette and ``docs/keys.md`` all come from it.

``python -m eagletui.actions`` prints the documentation page. Keys can be changed by action id (`Keymap`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

EVERYWHERE, LIST, DIALOG = "everywhere", "list", "dialog"
SERVING, WINDOWED = "serving", "windowed"
"""Scopes of several screens: those of one serving job, and those of them that show a window of time."""
NEVER = frozenset(("ctrl+a", "ctrl+b", "ctrl+s", "ctrl+z", "ctrl+q", "ctrl+c"))
"""Keys that are not ours: tmux, screen, flow control, suspend; and the two that Textual keeps for leaving and copying."""


class Action(NamedTuple):
    """One thing a key does.

    ``scope`` says where: everywhere, in a list, in a dialog, or the name of a screen. ``screen`` is set for the action that
    shows a screen: ``(name, "module:Class")``. ``writes`` marks what changes the host (absent in a read-only session) and
    ``destructive`` what ends something, after a question. ``order`` sorts the footer; ``footer`` False keeps it out of there.
    """

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    scope: str = EVERYWHERE
    order: int = 50
    footer: bool = True
    palette: bool = True
    writes: bool = False
    destructive: bool = False
    screen: tuple[str, str] | None = None


ACTIONS: tuple[Action, ...] = (
    # the screens
    Action(
        "overview",
        ("1",),
        "Overview",
        "Cards, servers, jobs, host and alerts at a glance",
        footer=False,
        screen=("overview", "eagletui.screens.overview:Overview"),
    ),
    Action(
        "gpus",
        ("2",),
        "GPUs",
        "Every card, its history, and the processes on it",
        footer=False,
        screen=("gpus", "eagletui.screens.gpus:Gpus"),
    ),
    Action(
        "load",
        ("3",),
        "Load",
        "A server on its way to ready: phases, what still moves, how long yet",
        footer=False,
        screen=("load", "eagletui.screens.load:Load"),
    ),
    Action(
        "throughput",
        ("4",),
        "Throughput",
        "Tokens per second, requests, KV cache and latencies of a server",
        footer=False,
        screen=("throughput", "eagletui.screens.throughput:Throughput"),
    ),
    Action(
        "acceptance",
        ("5",),
        "Acceptance",
        "What becomes of the drafter's tokens, and whether it pays",
        footer=False,
        screen=("acceptance", "eagletui.screens.acceptance:AcceptancePage"),
    ),
    Action(
        "training",
        ("6",),
        "Training",
        "How a drafter learns: loss, accuracy, the length it promises against what it needs here (a gradient norm is not logged)",
        footer=False,
        screen=("training", "eagletui.screens.training:Training"),
    ),
    Action(
        "jobs",
        ("7",),
        "Jobs",
        "Everything that runs and has run on the host",
        footer=False,
        screen=("jobs", "eagletui.screens.jobs:Jobs"),
    ),
    Action(
        "bench",
        ("8",),
        "Bench",
        "What was measured here: speed with and without drafters by load, and whether they pay",
        footer=False,
        screen=("bench", "eagletui.screens.bench:Bench"),
    ),
    # in a list
    Action("open", ("enter",), "open", "Open what the cursor is on: a card, a process, a job, a step, an alert", LIST, 10),
    Action("find", ("slash",), "find", "Move the cursor to the next row that holds a text", LIST, 20),
    Action("find_next", ("n",), "next", "Go to the next row that holds the text last looked for", LIST, 21, footer=False),
    Action("filter", ("f",), "filter", "Show only the rows that hold a text; an empty text shows all again", LIST, 22),
    Action("sort", ("s",), "sort", "Sort by the next column; a click on a column's head does the same", LIST, 23),
    Action("copy", ("y",), "copy", "Copy the row under the cursor to this machine's clipboard", LIST, 24),
    Action("up", ("up",), "up", "One row up", LIST, 90, footer=False, palette=False),
    Action("down", ("down",), "down", "One row down", LIST, 90, footer=False, palette=False),
    Action("page_up", ("pageup",), "page up", "One page up", LIST, 90, footer=False, palette=False),
    Action("page_down", ("pagedown",), "page down", "One page down", LIST, 90, footer=False, palette=False),
    Action("first", ("home",), "first", "First row", LIST, 90, footer=False, palette=False),
    Action("last", ("end",), "last", "Last row", LIST, 90, footer=False, palette=False),
    Action("show_all", ("escape",), "show all", "End a filter", LIST, 91, footer=False, palette=False),
    # on the screens of a serving job
    Action("next_server", ("right_square_bracket", "right"), "next server", "Show the next serving job", SERVING, 12),
    Action(
        "previous_server", ("left_square_bracket", "left"), "previous", "Show the serving job before", SERVING, 13, footer=False
    ),
    Action("window", ("w",), "window", "Show the next window of time: 10 s, 1 m, 10 m, all", WINDOWED, 11),
    # in the log of a job
    Action("follow", ("F",), "follow", "Show the end of the log and what comes", "log", 11),
    Action("fold", ("z",), "fold noise", "Fold known noise and old ticks of bars, or show every line", "log", 12),
    Action("first_error", ("e",), "first error", "Go to the first error", "log", 13),
    Action("find_previous", ("N",), "previous", "Go to the next match the other way", "log", 22, footer=False),
    Action("facts", ("i",), "facts", "All that is known of the job", "log", 14),
    Action("wrap", ("w",), "wrap", "Wrap long lines, or cut them", "log", 25),
    Action("left", ("left",), "left", "Scroll to the left", "log", 90, footer=False, palette=False),
    Action("right", ("right",), "right", "Scroll to the right", "log", 90, footer=False, palette=False),
    # on the screen of a training
    Action("overlay", ("c",), "compare", "Draw other trainings, past ones too, on the same axes", "training", 11),
    Action("next_chart", ("v",), "view", "All charts, or the next one alone", "training", 12),
    Action("loss_parts", ("d",), "draft steps", "The loss of each draft step, or their sum", "training", 13),
    Action("log_axis", ("g",), "log axis", "The loss on a logarithmic axis, or an even one", "training", 14),
    Action("x_axis", ("t",), "steps or time", "Over steps, or over hours", "training", 15),
    Action("next_run", ("right_square_bracket", "right"), "next training", "Show the next training", "training", 16),
    Action("previous_run", ("left_square_bracket", "left"), "previous", "Show the training before", "training", 17, footer=False),
    # on the screen of benchmarks
    Action("bench_view", ("v",), "results", "All results, or the verdict with its loads", "bench", 11),
    Action("bench_mark", ("m",), "mark", "Mark the result under the cursor; two of them can be compared", "bench", 12),
    Action("bench_differences", ("d",), "differences", "How the two marked results were launched and what came out", "bench", 13),
    Action("bench_curve", ("c",), "break-even", "Speed over acceptance length, by the measured step cost", "bench", 14),
    Action("bench_export", ("e",), "export", "Write what is shown to files here, as JSON, CSV and Markdown", "bench", 15),
    Action("next_verdict", ("right_square_bracket", "right"), "next verdict", "Show the next verdict", "bench", 16),
    Action("previous_verdict", ("left_square_bracket", "left"), "previous", "Show the verdict before", "bench", 17, footer=False),
    # on the screen of a pipeline
    Action("step_log", ("i",), "its log", "Open the log of the pipeline itself: what it did when, and why", "pipeline", 12),
    # on the jobs
    Action("remove", ("x",), "remove", "Remove an ended job with its log", "jobs", 36, writes=True, destructive=True),
    # everywhere
    Action("launch", ("l",), "launch", "Choose a profile, change it, and launch a server", order=30, writes=True),
    Action("new_job", ("b",), "new job", "Choose a job file or a kind of job, change it, and start it", order=33, writes=True),
    Action(
        "kill",
        ("k",),
        "kill",
        "End a job with all its processes, and prove it; in a list of processes the one under the cursor",
        order=31,
        writes=True,
        destructive=True,
    ),
    Action("log", ("o",), "log", "Open the log of the job under the cursor, else of the selected one", order=32),
    Action("relaunch", ("r",), "relaunch", "Launch a job again: the form with its profile", order=33, writes=True),
    Action("probe", ("p",), "ask", "Send a prompt to a server that is ready, and see how it answers", order=34),
    Action("why", ("h",), "why", "Does a server work or hang: the pattern, what was measured, where its processes are", order=35),
    Action("acknowledge", ("a",), "acknowledge", "Acknowledge the alert under the cursor, else the newest one", order=40),
    Action("retry", ("R",), "try again", "Connect again at once: what was in the way is mended, or to wait no longer", order=5),
    Action("next_list", ("tab",), "next list", "Go to the next list of the screen", order=45, footer=False, palette=False),
    Action("previous_list", ("shift+tab",), "previous list", "Go to the list before", order=45, footer=False, palette=False),
    Action("help", ("question_mark",), "help", "Every key, from the same table as this line", order=70),
    Action("palette", ("ctrl+p",), "commands", "Find a command by its name", order=71, palette=False),
    Action("theme", (), "colours", "Choose among the colour themes", order=72, footer=False),
    Action("quit", ("q",), "quit", "Leave; jobs on the host go on", order=80),
    # in a dialog
    Action("close", ("escape",), "back", "Back to where you were", DIALOG, 10, palette=False),
    Action("confirm", ("K",), "yes, do it", "Confirm: end or remove what the box shows", DIALOG, 20, False, False, True, True),
    Action("hurry", ("N",), "kill now", "Give it no more time: SIGKILL to all of it", DIALOG, 21, False, False, True, True),
    Action(
        "look_again",
        ("R",),
        "look again",
        "Look anew: at what would be ended, at where the processes are",
        DIALOG,
        22,
        False,
        False,
    ),
    Action("canary", ("c",), "one token", "Ask the server for one token, and see whether it comes", DIALOG, 23, False, False),
    Action("form_launch", ("ctrl+l",), "launch", "Launch what the form shows", DIALOG, 30, False, False, True),
    Action(
        "form_preflight", ("ctrl+n",), "preflight", "Tell all that would stop the launch of the form", DIALOG, 31, False, False
    ),
    Action("form_save", ("ctrl+o",), "save here", "Keep the form as a profile of this host", DIALOG, 31, False, False),
    Action("form_save_all", ("ctrl+t",), "save for all", "Keep the form as a profile of all hosts", DIALOG, 32, False, False),
    Action("form_reset", ("ctrl+r",), "reset", "Start again from the file, or from what last worked", DIALOG, 33, False, False),
    Action("probe_stop", ("ctrl+g",), "stop", "End the answer that is coming", DIALOG, 40, False, False),
)

BY_ID: Mapping[str, Action] = {action.id: action for action in ACTIONS}
SCREENS: tuple[Action, ...] = tuple(action for action in ACTIONS if action.screen)

_GLYPHS = {
    "slash": "/",
    "question_mark": "?",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "full_stop": ".",
    "comma": ",",
    "space": "space",
    "plus": "+",
    "minus": "-",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
}
_NAMED = re.compile(
    r"(?:f(?:[1-9]|1\d|2[0-4])|enter|escape|tab|space|backspace|delete|insert|home|end|pageup|pagedown|up|down|left|right"
    r"|slash|question_mark|full_stop|comma|plus|minus|colon|semicolon|equals_sign|underscore|exclamation_mark|number_sign"
    r"|left_square_bracket|right_square_bracket|less_than_sign|greater_than_sign|asterisk|at|tilde|grave_accent)"
)
_MODIFIERS = re.compile(r"^(?:(?:ctrl|alt|shift|super)\+)*")
_SPELLED = {glyph: name for name, glyph in _GLYPHS.items() if len(glyph) == 1}


def glyph(key: str) -> str:
    """A key as people write it: ``question_mark`` is ``?``."""
    return _GLYPHS.get(key, key)


class Keymap(NamedTuple):
    """The keys in force: per action id. ``problems`` are one-line complaints about the wishes that were not followed."""

    keys: Mapping[str, tuple[str, ...]]
    problems: tuple[str, ...] = ()

    def shown(self, action: str) -> str:
        """The first key of an action, for the footer."""
        keys = self.keys.get(action, ())
        return glyph(keys[0]) if keys else ""

    def changed(self) -> dict[str, str]:
        """What differs from the table, in the form Textual takes."""
        return {id_: ",".join(keys) for id_, keys in self.keys.items() if keys != BY_ID[id_].keys}


def keymap(wishes: Mapping[str, str] | None = None) -> Keymap:
    """The table's keys with ``wishes`` (action id -> keys, comma separated) applied.

    A wish that names no action, no key, a key that is not ours, or one that another action of the same scope has, is left
    out and named in ``problems``.
    """
    keys = {action.id: action.keys for action in ACTIONS}
    problems: list[str] = []
    accepted: dict[str, tuple[str, ...]] = {}
    for id_, text in (wishes or {}).items():
        parts = ("comma",) if text.strip() == "," else tuple(part.strip() for part in text.split(","))
        wanted = tuple(_SPELLED.get(part, part) for part in parts)
        trouble = _trouble(id_, wanted)
        if trouble:
            problems.append(f"keys: {trouble}")
        else:
            accepted[id_] = wanted
    for id_, wanted in accepted.items():
        trial = {**keys, **{other: k for other, k in accepted.items() if other != id_}, id_: wanted}
        rival = next((o for o in trial if o != id_ and _meet(BY_ID[o], BY_ID[id_]) and set(trial[o]) & set(wanted)), None)
        if rival is not None:
            shared = glyph(min(set(trial[rival]) & set(wanted)))
            problems.append(f"keys: {id_} = {shared!r} is the key of {rival!r} already - give {rival!r} another key as well")
        else:
            keys[id_] = wanted
    return Keymap(keys, tuple(problems))


def _trouble(id_: str, wanted: Iterable[str]) -> str | None:
    if id_ not in BY_ID:
        return f"there is no action {id_!r} - the ids are in docs/keys.md"
    for key in wanted:
        bare = _MODIFIERS.sub("", key)
        if not (len(bare) == 1 and bare.isprintable() and not bare.isspace()) and not _NAMED.fullmatch(bare):
            return f"{id_} = {key!r} is not a key - write for example 'x', 'ctrl+x', 'f5' or 'slash'"
        if key in NEVER:
            return f"{id_} = {key!r} belongs to the terminal, tmux or Textual - choose another key"
    return None


def _meet(one: Action, other: Action) -> bool:
    """Whether two actions can be live at once. A dialog has its keys for itself."""
    if DIALOG in (one.scope, other.scope):
        return one.scope == other.scope
    shared = (EVERYWHERE, LIST)
    if {one.scope, other.scope} <= {SERVING, WINDOWED}:
        return True
    return one.scope in shared or other.scope in shared or one.scope == other.scope


def live(scopes: Iterable[str], *, readonly: bool = False) -> list[Action]:
    """The actions of these scopes, sorted for the footer."""
    wanted = set(scopes)
    return sorted((a for a in ACTIONS if a.scope in wanted and not (readonly and a.writes)), key=lambda a: a.order)


def sections() -> list[tuple[str, list[Action]]]:
    """The table by heading, for the help screen and the documentation."""
    titles = {
        "screens": "Screens",
        EVERYWHERE: "Everywhere",
        LIST: "In a list",
        SERVING: "On the screens of a server",
        WINDOWED: "On the screens Throughput and Acceptance",
        DIALOG: "In a dialog",
    }
    groups: dict[str, list[Action]] = {title: [] for title in titles.values()}
    for action in ACTIONS:
        named = BY_ID[action.scope].label if action.scope in BY_ID else action.scope.capitalize()
        where = "Screens" if action.screen else titles.get(action.scope) or f"On the screen {named}"
        groups.setdefault(where, []).append(action)
    return [(title, found) for title, found in groups.items() if found]


def markdown() -> str:
    """The page ``docs/keys.md``."""
    out = [
        "# Keys",
        "",
        "Generated from `src/eagletui/actions.py` by `python -m eagletui.actions`; do not edit.",
        "",
        "Change a key in the configuration, by its id:",
        "",
        "```toml",
        "[keys]",
        'quit = "ctrl+x"',
        'find = "slash,ctrl+f"',
        "```",
        "",
        "Not available for this: " + ", ".join(f"`{key}`" for key in sorted(NEVER)) + ".",
    ]
    for title, found in sections():
        out += ["", f"## {title}", "", "| key | id | does |", "|---|---|---|"]
        for action in found:
            keys = " ".join(f"`{glyph(key)}`" for key in action.keys) or "none"
            notes = " Asks first." if action.destructive else ""
            notes += " Not in a read-only session." if action.writes else ""
            out.append(f"| {keys} | `{action.id}` | {action.help}.{notes} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
