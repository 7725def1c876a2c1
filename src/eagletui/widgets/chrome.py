"""The lines around every screen: header, screens, banner, footer. The last three answer the mouse."""

from __future__ import annotations

import time
from collections.abc import Iterable

from textual import events

from eagletui.actions import SCREENS
from eagletui.records import Alert
from eagletui.store import Connection
from eagletui.text import clean, duration, millis, plural
from eagletui.widgets.paint import Line, folded, joined, spread, width_of
from eagletui.widgets.panel import Panel

MOST_WORDS = 900
"""Characters of a failure or its remedy: two fingerprints, a path and a command go into it."""
_STATES = {
    "connecting": ("~", "work"),
    "online": ("", "good"),
    "stale": ("!", "warn"),
    "reconnecting": ("~", "warn"),
    "blocked": ("!", "bad"),
    "closed": ("-", "dim"),
}

WAITING_STATES = ("connecting", "reconnecting", "blocked")
"""States of the link in which it helps to try again at once."""


def data_age(connection: Connection, now: float) -> float | None:
    """Seconds since the last frame came, by this machine's monotonic clock."""
    return None if connection.last_frame is None else max(0.0, now - connection.last_frame)


class Header(Panel):
    """Host, connection and round trip, alerts, the host's uptime and the clock."""

    DEFAULT_CSS = "Header { height: 1; }"
    topics = frozenset({"connection", "info", "host", "alerts", "clock"})

    def lines(self, width: int) -> list[Line]:
        link = self.store.connection
        sign, style = _STATES.get(link.state, ("?", "warn"))
        target = clean(link.target, 80) or "-"
        parts: list[Line] = [[("eagletui", "strong"), ("  ", ""), (target, "")]]
        if link.state == "online":
            words = " ".join(filter(None, (clean(link.transport, 20), millis(link.rtt) if link.rtt is not None else "")))
            parts.append([("● ", style), (words or "online", "")])
        else:
            age = data_age(link, time.monotonic())
            parts.append([(f"{sign} {clean(link.state, 20)}", style)])
            if age is not None:
                parts.append([(f"data is {duration(age)} old", style)])
        if self.frame.readonly:
            parts.append([("read-only", "work")])
        if self.store.host is not None and self.store.host.uptime is not None:
            parts.append([(f"up {duration(self.store.host.uptime)}", "dim")])
        right = [*alerts_word(self.store.alerts.values()), (time.strftime("   %H:%M:%S"), "")]
        return [spread([(" ", ""), *joined(parts, max(1, width - width_of(right) - 2))], right, width)]


def alerts_word(alerts: Iterable[Alert]) -> Line:
    """``! 2 alerts``, in the colour of the worst that nobody has acknowledged."""
    waiting = [alert for alert in alerts if not alert.acknowledged]
    if not waiting:
        return [("no alerts", "dim")]
    worst = "bad" if any(alert.severity == "bad" for alert in waiting) else "warn"
    return [(f"! {plural(len(waiting), 'alert')}", worst)]


class Strip(Panel):
    """A line of clickable pieces; subclasses give `pieces`: (action id, text before the label, label, is current)."""

    kept: frozenset[str] = frozenset()
    closer = False
    """Whether the pieces move together where they do not fit, before one of them is left out."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._spots: list[tuple[int, int, str]] = []

    def pieces(self) -> list[tuple[str, str, str, bool]]:
        raise NotImplementedError

    def lines(self, width: int) -> list[Line]:
        line: Line = []
        self._spots = []
        left = 0
        blank = "" if self.closer and self._wide(self.pieces()) > width else " "
        for id_, key, label, current in self._fitting(width, len(blank)):
            text = f" {key} {label}{blank}"
            line += [(text, "tab")] if current else [(f" {key}", "key"), (f" {label}{blank}", "")]
            self._spots.append((left, left + len(text), id_))
            left += len(text)
        return [line]

    @staticmethod
    def _wide(pieces: list[tuple[str, str, str, bool]], blank: int = 1) -> int:
        """How many cells they take, with ``blank`` ones behind each."""
        return sum(len(key) + len(label) + 2 + blank for _, key, label, _ in pieces)

    def _fitting(self, width: int, blank: int) -> list[tuple[str, str, str, bool]]:
        """The pieces there is room for: the last ones give way, but not the current one and those of `kept`."""
        pieces = self.pieces()
        for piece in reversed(pieces[:]):
            if self._wide(pieces, blank) <= width:
                break
            if not piece[3] and piece[0] not in self.kept:
                pieces.remove(piece)
        return pieces

    async def on_click(self, event: events.Click) -> None:
        for start, end, id_ in self._spots:
            if start <= event.x < end:
                await self.frame.run_action_id(id_)
                return


class Tabs(Strip):
    """The screens by number."""

    DEFAULT_CSS = "Tabs { height: 1; }"
    closer = True

    def pieces(self) -> list[tuple[str, str, str, bool]]:
        page = self.frame.page_name
        return [
            (action.id, self.frame.keys.shown(action.id), action.label, action.screen is not None and action.screen[0] == page)
            for action in SCREENS
        ]


class Footer(Strip):
    """The keys that do something now."""

    DEFAULT_CSS = "Footer { height: 1; }"
    topics = frozenset({"alerts", "connection"})
    kept = frozenset({"help", "quit", "close"})

    def pieces(self) -> list[tuple[str, str, str, bool]]:
        return [(a.id, self.frame.keys.shown(a.id), a.label, False) for a in self.frame.live_actions() if a.footer]


class Banner(Panel):
    """What is wrong with the link and what to do, and what cannot be watched here; no height while all is well."""

    topics = frozenset({"connection", "clock"})

    def lines(self, width: int) -> list[Line]:
        link = self.store.connection
        out: list[Line] = []
        if link.limited:
            out += [[(" ", ""), (piece, "warn")] for piece in folded(clean(link.limited, MOST_WORDS), width - 1)]
            out += _remedy(link.limited_remedy, width)
        if link.state == "online":
            return out
        if link.why:
            style = "bad" if link.state == "blocked" else "warn"
            words = f"{clean(link.step, 40) or 'link'}: {clean(link.why, MOST_WORDS)}"
            out += [[(" ", ""), (piece, style)] for piece in folded(words, width - 1)]
        key = self.frame.keys.shown("retry")
        again: Line = [(f"{key}: try again", "strong")] if key and link.state == "blocked" else []
        if link.next_try is not None:
            wait = link.next_try - time.monotonic()
            again = [(f"try {link.attempts + 1} " + (f"in {duration(wait)}" if wait >= 1 else "now"), "")]
            if key and wait >= 1:
                again.append((f" ({key}: now)", "dim"))
        if again:
            if out and width_of(out[-1]) + 3 + width_of(again) <= width:
                out[-1] += [("   ", ""), *again]
            else:
                out.append([(" ", ""), *again])
        return out + _remedy(link.remedy, width)

    def redraw(self) -> None:
        # an auto height of nothing still takes a row
        link = self.store.connection
        down = link.state != "online" and bool(link.why or link.remedy or link.next_try is not None)
        self.display = down or bool(link.limited)
        super().redraw()


def _remedy(words: str, width: int) -> list[Line]:
    """What to do, folded: it may hold a command to be typed, so it is never cut."""
    pieces = folded(clean(words, MOST_WORDS), width - 3) if words else []
    return [[(" → " if at == 0 else "   ", ""), (piece, "")] for at, piece in enumerate(pieces)]
