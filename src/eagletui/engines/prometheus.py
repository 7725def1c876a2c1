"""The Prometheus text format, as far as the engines' ``/metrics`` pages use it. Fast: only wanted families are looked at."""

from __future__ import annotations

import re
from typing import Container, Dict, List, NamedTuple, Optional, Tuple, Union

Number = Union[int, float]
INF = float("inf")
_EXACT = 2.0**53

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_UNESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}


class MetricsError(ValueError):
    """A page that is no usable metrics page; the text says in one line what is wrong with it."""


class Point(NamedTuple):
    """One line: its labels and value. Values that are whole numbers are ints, so counters stay exact."""

    labels: Dict[str, str]
    value: Number


Families = Dict[str, List[Point]]


def number(text: str) -> Number:
    """A value as printed: ``2316.0`` is the int 2316, ``+Inf`` and ``NaN`` are floats. Raises ValueError for anything else."""
    if text.endswith(".0") and text[:-2].isdigit():
        return int(text[:-2])
    if text.isdigit():
        return int(text)
    value = float(text)  # reads NaN, +Inf and -Inf too
    if value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return value


def parse(page: Union[str, bytes], wanted: Optional[Container[str]] = None) -> Families:
    """The page's families by name: ``{"vllm:num_requests_running": [Point({...}, 1)], ...}``.

    A histogram's lines are under their own names (``..._bucket``, ``..._sum``, ``..._count``). With ``wanted`` only these names
    are read; the other lines are not even checked.

    Raises `MetricsError` for an empty page, one that is not in this format (HTML, JSON), and one that was cut off.
    """
    text = page.decode("utf-8", "replace") if isinstance(page, bytes) else page
    _check(text)
    out: Families = {}
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        brace = line.find("{")
        name = line[:brace] if brace >= 0 else line.partition(" ")[0]
        if wanted is not None and name not in wanted:
            continue
        point = _point(line, brace, name)
        known = out.get(name)
        if known is None:
            out[name] = [point]
        else:
            known.append(point)
    return out


def _check(text: str) -> None:
    start = text[:200].lstrip()
    if not start:
        raise MetricsError("the metrics page is empty")
    if start[0] == "<":
        raise MetricsError("the metrics page is HTML, not metrics: %s" % _short(start))
    if start[0] in '{["':
        raise MetricsError("the metrics page is JSON, not metrics: %s" % _short(start))
    if not (start[0] == "#" or _NAME.match(start)):
        raise MetricsError("the metrics page is not in the Prometheus format: %s" % _short(start))
    if not text.endswith("\n"):
        raise MetricsError(
            "the metrics page was cut off after %d characters: %s" % (len(text), _short(text[text.rfind("\n") + 1 :]))
        )
    if start[0] != "#" and " " not in start.split("\n", 1)[0]:
        raise MetricsError("the metrics page is not in the Prometheus format: %s" % _short(start))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line[:60] + ("..." if len(line) > 60 else ""))


_seen: Dict[str, Dict[str, str]] = {}


def _labels(raw: str, line: str) -> Dict[str, str]:
    known = _seen.get(raw)
    if known is not None:
        return known
    labels: Dict[str, str] = {}
    at = 0
    while at < len(raw):
        match = _LABEL.match(raw, at)
        if match is None:
            raise MetricsError("labels that cannot be read in the metrics page: %s" % _short(line))
        value = match.group(2)
        if "\\" in value:
            value = _UNESCAPE.sub(lambda m: _ESCAPES.get(m.group(1), "\\" + m.group(1)), value)
        labels[match.group(1)] = value
        at = match.end()
    if len(_seen) > 4096:
        _seen.clear()
    _seen[raw] = labels
    return labels


def _point(line: str, brace: int, name: str) -> Point:
    if brace >= 0:
        end = line.rfind("}")  # a brace may also stand inside a quoted value, but not after the labels
        if end < brace:
            raise MetricsError("a line that ends inside its labels: %s" % _short(line))
        labels, rest = _labels(line[brace + 1 : end], line), line[end + 1 :]
    else:
        labels, rest = {}, line[len(name) :]
    # an optional time stamp may follow the value
    parts = rest.split()
    if not parts:
        raise MetricsError("a line without a value in the metrics page: %s" % _short(line))
    try:
        return Point(labels, number(parts[0]))
    except ValueError:
        raise MetricsError("a value that is no number in the metrics page: %s" % _short(line)) from None


def buckets(points: List[Point]) -> Tuple[Tuple[Optional[float], Number], ...]:
    """A histogram's ``_bucket`` lines summed over all other labels: ``((upper bound, cumulative count), ...)``, None = +Inf."""
    total: Dict[float, Number] = {}
    for labels, value in points:
        bound = labels.get("le")
        if bound is None:
            continue
        try:
            key = float(bound)
        except ValueError:
            raise MetricsError("a histogram bound that is no number: %r" % bound) from None
        total[key] = total.get(key, 0) + value
    return tuple((None if key == INF else key, total[key]) for key in sorted(total))
