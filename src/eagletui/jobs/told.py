"""What a program of ours tells of itself on its output (see `on_host.telling`), read by the job's supervisor.

One JSON object a line, with ``"eagletui"`` first: ``progress``, ``note``, ``sample``, ``trouble`` and ``result``. Everything else
on the output is plain log. A line may stand behind what others have printed without ending their line.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagletui.engines.stream import LineSplitter, clean
from eagletui.jobs.base import status_words
from eagletui.jobs.pace import Pace
from eagletui.jobs.watcher import Outcome, Watcher
from eagletui.records.work import Counter, Work

MARK = b'{"eagletui": "'
_LAST = 12
"""Lines of plain log that are remembered, to say why it failed."""


class ToldWatcher(Watcher):
    """The watcher of such a program. A kind takes it as it is, or overrides `line` (plain log) and `check` (the result).

    ``said`` is the result that the program told last, ``last`` the last lines of its plain log.
    """

    def __init__(self, spec: Mapping[str, Any], directory: str) -> None:
        super().__init__(spec, directory)
        self._splitter, self._pace = LineSplitter(), Pace()
        self._progress: Optional[Dict[str, Any]] = None
        self._samples: List[Dict[str, Any]] = []
        self._notes: List[str] = []
        self._troubles: Dict[str, str] = {}
        self.said: Optional[Dict[str, Any]] = None
        self.last: List[str] = []

    # -------------------------------------------------------------------------------------------------- to be overridden

    def line(self, text: str, boot: float) -> None:
        """A line of plain log."""

    def check(self, result: Mapping[str, Any]) -> Outcome:
        """The program says that it has finished with this result: look whether that is right, by counts and files."""
        return Outcome(True, str(result.get("why") or "finished"), dict(result))

    # -------------------------------------------------------------------------------------------------------- the reading

    def feed(self, data: bytes, boot: float) -> None:
        for _, line, dropped in self._splitter.feed(data):
            self._line(line, dropped, boot)

    def _line(self, line: bytes, dropped: int, boot: float) -> None:
        at = line.find(MARK)
        if at >= 0 and not dropped:
            doc = _object(line[at:])
            if doc is not None:
                self._take(doc, boot)
                line = line[:at]
        text = clean(line).decode("utf-8", "replace").rstrip()
        if text:
            self.last = [*self.last[1 - _LAST :], text]
            self.line(text, boot)

    def _take(self, doc: Mapping[str, Any], boot: float) -> None:
        kind = doc["eagletui"]
        if kind == "progress":
            before = self._progress or {}
            stage = doc.get("stage", before.get("stage"))
            if stage != before.get("stage") or doc.get("unit") != before.get("unit"):
                self._pace = Pace()  # other things are counted now
            self._progress = dict(doc, stage=stage)
            if _number(doc.get("done")) is not None:
                self._pace.tell(boot, float(doc["done"]))
        elif kind == "note" and isinstance(doc.get("text"), str):
            self._notes.append(doc["text"])
        elif kind == "sample" and isinstance(doc.get("wall"), (int, float)):
            self._samples.append({key: value for key, value in doc.items() if key != "eagletui"})
        elif kind == "trouble" and isinstance(doc.get("subject"), str):
            if doc.get("text"):
                self._troubles[doc["subject"]] = str(doc["text"])
            else:
                self._troubles.pop(doc["subject"], None)
        elif kind == "result":
            self.said = {key: value for key, value in doc.items() if key != "eagletui"}

    # ------------------------------------------------------------------------------------------------------ what it gives

    def work(self, boot: float) -> Optional[Work]:
        doc = self._progress
        if doc is None:
            return None
        done, total = _number(doc.get("done")), _number(doc.get("total"))
        return Work(
            stage=doc.get("stage"),
            done=done,
            total=total,
            unit=str(doc.get("unit") or ""),
            rate=None if done is None else self._pace.rate(boot),
            remaining=None if done is None else self._pace.remaining(boot, total),
            basis=None if done is None else self._pace.basis(boot),
            counters=counters(doc.get("counters") or {}),
        )

    def samples(self) -> List[Dict[str, Any]]:
        out, self._samples = self._samples, []
        return out

    def notes(self) -> List[str]:
        out, self._notes = self._notes, []
        return out

    def troubles(self) -> Tuple[str, ...]:
        return tuple("%s: %s" % item for item in self._troubles.items())

    def outcome(self, rc: Optional[int], killed: bool) -> Outcome:
        for _, line, dropped in self._splitter.finish():
            self._line(line, dropped, 0.0)
        said = dict(self.said or {})
        if killed:
            return Outcome(None, "ended on request%s" % self.so_far(), said)
        if rc == 0 and self.said is not None:
            return self.check(said)
        if rc == 0:
            why = "it ended without telling a result%s" % self.so_far()
        else:
            knew = rc is not None and rc > 0 and said.get("why")
            why = str(knew) if knew else ": ".join([status_words(rc) + self.so_far(), *self.last[-1:]])
        return Outcome(None if rc is None else False, why, said)

    def so_far(self) -> str:
        """How far it got, to be put behind a sentence; empty where nobody knows."""
        doc = self._progress or {}
        done, total, unit = _number(doc.get("done")), _number(doc.get("total")), doc.get("unit") or ""
        if done is None:
            return ""
        return (" after %s%s %s" % (_count(done), "" if total is None else " of " + _count(total), unit)).rstrip()


def counters(docs: Mapping[str, Any]) -> Tuple[Counter, ...]:
    """``{"failed": {"value": 3, "bad": true}, "tok/s": 312.5}`` as records; what is no number is left out."""
    out = []
    for name, doc in docs.items():
        more = doc if isinstance(doc, Mapping) else {"value": doc}
        value = _number(more.get("value"))
        if value is not None:
            out.append(Counter(str(name), value, str(more.get("unit") or ""), bool(more.get("bad"))))
    return tuple(out)


def _number(value: Any) -> Optional[float]:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return value if good and abs(value) != float("inf") else None


def _count(value: float) -> str:
    return "%d" % value if value == int(value) else "%g" % value


def _object(line: bytes) -> Optional[Dict[str, Any]]:
    try:
        doc = json.loads(line.decode("utf-8"))
    except ValueError:
        return None  # cut, or something else that only begins like it: plain log
    return doc if isinstance(doc, dict) else None
