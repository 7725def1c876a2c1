"""Remote text made safe to draw, and numbers made readable. Pure, no terminal library.

`clean` is the one boundary between the host and the terminal: log lines, process names, command lines, host and card
names, error texts and banners pass through it before anything draws them. What it returns holds no control character, so
no remote text can move the cursor, set the clipboard, retitle the window, or reverse the reading direction.

The formatters return ``-`` for None and NaN: what is not available is not zero.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

CAP = 4096
FOLD = "…"
MARK = "�"
TAB = "    "
MISSING = "-"
_COMBINING_MAX = 4

_UNSAFE = re.compile(
    r"[^\x20-\x7e\xa1-\xac\xae-\u02ff\u0370-\u0482\u048a-\u0590\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\u2500-\u259f]"
)
_ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI, with or without its end
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n\r]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS ...
    r"|\x1b[ -/]*[0-~]?"  # everything shorter
)


def decode(data: bytes) -> str:
    """Bytes of unknown origin as text: UTF-8, each undecodable byte as the replacement mark."""
    return data.decode("utf-8", "replace")


def clean(text: str | bytes, cap: int = CAP) -> str:
    """One line that is safe to draw, at most ``cap`` cells wide; what is longer ends in the fold mark.

    Escape sequences and control characters go, a tab becomes spaces, a line break one space; invisible format characters
    (bidirectional controls, joiners, tags), surrogates and stacks of combining marks become a visible mark.
    """
    if not isinstance(text, str):
        text = decode(text)
    room = 4 * cap + 64
    if len(text) > 2 * room:
        text = text[: 2 * room]  # nothing behind it can be shown; an attacker may send megabytes of escapes
    if _UNSAFE.search(text) is not None:
        text = _scrub(text)
    return fold(text, cap)


def _scrub(text: str) -> str:
    if "\x1b" in text or any("\x90" <= c <= "\x9f" for c in text):
        text = _ESCAPE.sub("", text)
    out: list[str] = []
    stacked = 0
    for char in text:
        if " " <= char <= "~":
            out.append(char)
            stacked = 0
        elif char == "\t":
            out.append(TAB)
        elif char == "\n" or char == "\r":
            if out and out[-1] != " ":
                out.append(" ")
        else:
            kind = unicodedata.category(char)
            if kind == "Cc":
                continue
            if kind in ("Mn", "Me"):
                stacked += 1
                if stacked == _COMBINING_MAX + 1:
                    out.append(MARK)
                if stacked > _COMBINING_MAX:
                    continue
            else:
                stacked = 0
            out.append(MARK if kind in ("Cf", "Cs", "Zl", "Zp") else char)
    return "".join(out)


def cells(text: str) -> int:
    """Terminal cells that ``text`` takes: wide characters two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(char: str) -> int:
    if char < "\u0300":
        return 1
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in ("Mn", "Me") else 1


def fold(text: str, cap: int) -> str:
    """``text`` cut to ``cap`` cells, the last one the fold mark when something was cut."""
    if cap <= 0:
        return ""
    if len(text) <= cap and text.isascii():
        return text
    if text.isascii():
        return text[: cap - 1] + FOLD
    if cells(text) <= cap and len(text) <= 2 * cap + 8:
        return text
    used = 0
    for end, char in enumerate(text):
        used += _width(char)
        if used > cap - 1 or end >= 2 * cap:
            return text[:end] + FOLD
    return text


def fold_words(text: str, cap: int) -> str:
    """As `fold`, but cut between two words where one ends in its second half."""
    cut = fold(text, cap)
    if cut == text or not cut:
        return cut
    kept = cut[: -len(FOLD)]
    if text[len(kept)] != " " or cells(kept) > cap - 2:
        at = kept.rfind(" ", len(kept) // 2)
        if at < 0:
            return cut
        kept = kept[:at]
    return f"{kept.rstrip()} {FOLD}"


def pad(text: str, width: int, align: str = "<") -> str:
    """``text`` at exactly ``width`` cells, folded or padded; ``align`` is ``<``, ``>`` or ``^``."""
    if text.isascii() and len(text) <= width:
        return f"{text:{align}{width}}"
    text = fold(text, width)
    gap = width - cells(text)
    if align == ">":
        return " " * gap + text
    if align == "^":
        return " " * (gap // 2) + text + " " * (gap - gap // 2)
    return text + " " * gap


# ------------------------------------------------------------------------------------------------------------ numbers


def known(value: float | None) -> bool:
    return value is not None and value == value


def number(value: float | None, digits: int = 0) -> str:
    """``9,412`` or ``61.2``."""
    if value is None or value != value:
        return MISSING
    if value in (float("inf"), float("-inf")):
        return MISSING
    return f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 0) -> str:
    text = number(value, digits)
    return text if text == MISSING else text + " %"


_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_RATES = (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3))


def size(value: float | None) -> str:
    """Bytes in binary units with three figures: ``2.61 TiB``, ``34 GiB``, ``0 B``."""
    return _scaled(value, _SIZES, "B")


def rate(value: float | None) -> str:
    """Bytes per second in decimal units, as links are rated: ``458 MB/s``."""
    return _scaled(value, _RATES, "B/s")


def _scaled(value: float | None, units: tuple[tuple[str, float], ...], least: str) -> str:
    if value is None or value != value:
        return MISSING
    for unit, scale in units:
        if abs(value) >= scale:
            part = value / scale
            digits = 2 if abs(part) < 9.995 else 1 if abs(part) < 99.95 else 0
            if unit in ("GiB", "MiB", "KiB", "MB/s", "kB/s") and abs(part) >= 9.95:
                digits = 0
            return f"{part:.{digits}f} {unit}"
    return f"{value:.0f} {least}"


def gib(value: float | None, digits: int = 0) -> str:
    """Bytes as a bare number of GiB, for pairs such as ``91/96 GiB``."""
    return MISSING if value is None else number(value / (1 << 30), digits)


def watts(value: float | None) -> str:
    """``412 W``, from a kilowatt up ``2.41 kW``."""
    if value is None or value != value:
        return MISSING
    return f"{value:.0f} W" if value < 999.5 else f"{value / 1000:.2f} kW"


def duration(seconds: float | None) -> str:
    """The two largest units: ``3 s``, ``4 m 02 s``, ``2 h 14 m``, ``41 d 3 h``."""
    if seconds is None or seconds != seconds:
        return MISSING
    total = int(seconds)
    if total < 0:
        return MISSING
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} m {total % 60:02} s"
    if total < 86400:
        return f"{total // 3600} h {total // 60 % 60:02} m"
    return f"{total // 86400} d {total // 3600 % 24} h"


def clock(seconds: float | None) -> str:
    """A short time as on a stop-watch: ``0:09``, ``19:40``, ``1:02:03``."""
    if seconds is None or seconds != seconds or seconds < 0:
        return MISSING
    total = int(seconds)
    hours, minutes = divmod(total // 60, 60)
    return f"{hours}:{minutes:02}:{total % 60:02}" if hours else f"{minutes}:{total % 60:02}"


def millis(seconds: float | None) -> str:
    """``12 ms``; under ten with one decimal, so that a fast link does not read 0."""
    if seconds is None or seconds != seconds:
        return MISSING
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 9.95 else f"{value:,.0f} ms"


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 alert``, ``3 alerts``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


_NAME_NOISE = ("NVIDIA ", "GeForce ", "Tesla ", "Graphics", " Generation", " Edition")


def short_card(name: str | None) -> str:
    """A card's name without what all cards share: ``RTX PRO 6000 Blackwell Server``."""
    if not name:
        return MISSING
    text = clean(name, 80)
    for noise in _NAME_NOISE:
        text = text.replace(noise, "" if noise.endswith(" ") or noise.startswith(" ") else " ")
    return " ".join(text.split()) or MISSING


def short_command(command: str | Iterable[str] | None, fallback: str = "") -> str:
    """A command line with the folders of its program cut: ``/opt/venv/bin/python -m x`` reads ``python -m x``."""
    if command is None:
        return clean(fallback)
    text = clean(command if isinstance(command, str) else " ".join(command))
    head, blank, tail = text.partition(" ")
    return (head.rsplit("/", 1)[-1] or head) + blank + tail
