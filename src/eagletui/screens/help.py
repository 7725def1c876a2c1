"""The help screen: every key, from the table of actions with the keys in force."""

from __future__ import annotations

from eagletui.actions import Keymap, glyph, sections
from eagletui.widgets.dialog import Reader
from eagletui.widgets.paint import Line


def help_reader(keys: Keymap, readonly: bool) -> Reader:
    """A dialog with all keys."""
    return Reader("Keys", lambda width: help_lines(keys, readonly, width))


def help_lines(keys: Keymap, readonly: bool, width: int) -> list[Line]:
    out: list[Line] = []
    for title, actions in sections():
        if out:
            out.append([])
        out.append([(title, "strong")])
        for action in actions:
            shown = " ".join(glyph(key) for key in keys.keys[action.id])
            note = "  not in a read-only session" if readonly and action.writes else ""
            out.append([(f"  {shown:<12}", "key"), (f"{action.label:<16}", ""), (action.help + note, "dim")])
    out += [
        [],
        [("Signs", "strong")],
        [
            ("  ●", "good"),
            (" good   ", "dim"),
            ("~", "work"),
            (" working, or an estimate   ", "dim"),
            ("!", "warn"),
            (" attention   ", "dim"),
        ],
        [
            ("  ✗", "bad"),
            (" bad   ", "dim"),
            ("-", ""),
            (" not available, which is not zero   ", "dim"),
            ("dim", "dim"),
            (" is old data, with its age", "dim"),
        ],
    ]
    return out
