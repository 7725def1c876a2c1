"""What was answered so far, as the files on the disk say it: the one memory that a resumed run has."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Set

from eagletui.jobs.on_host.answers import ends, generated
from eagletui.jobs.on_host.journal import Journal, lines, rewrite

ANSWERS, ASIDE, ERRORS = "answers.jsonl", "set_aside.jsonl", "errors.jsonl"


class Totals(NamedTuple):
    """Counts of rows: ``rows`` to train on, ``aside`` those that the filters keep from it; tokens are generated ones."""

    rows: int = 0
    aside: int = 0
    truncated: int = 0
    empty: int = 0
    tokens: int = 0
    without_ids: int = 0

    @property
    def answers(self) -> int:
        return self.rows + self.aside


class Ledger:
    """The files of one output directory. ``notes`` says what had to be repaired when they were opened."""

    def __init__(self, directory: str, keep_truncated: bool, keep_empty: bool) -> None:
        self.directory = directory
        self._keep_truncated, self._keep_empty = keep_truncated, keep_empty
        self.notes: List[str] = []
        self.totals = Totals()
        self.failed: Dict[str, str] = {}
        self._next: Dict[str, int] = {}
        self._ended: Set[str] = set()
        self._said: Dict[str, List[str]] = {}
        self._files: List[Journal] = []

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def open(self, several: Callable[[str], bool], progress: Optional[Callable[[float], None]] = None) -> None:
        """Read what is there. ``several`` says whether a prompt asks for more than one answer: then they are remembered."""
        for name in (ANSWERS, ASIDE):
            journal = Journal(self.path(name))
            if journal.cut:
                self.notes.append("%s: a torn last line was cut off (%d bytes)" % (name, journal.cut))
            self._files.append(journal)
        size = sum(os.path.getsize(self.path(name)) for name in (ANSWERS, ASIDE))
        bad: Dict[str, Set[int]] = {}
        read = 0
        for name in (ANSWERS, ASIDE):
            for number, end, row in lines(self.path(name)):
                if progress is not None and size:
                    progress((read + end) / size)
                if row is None or not self._known(row, several):
                    bad.setdefault(name, set()).add(number)
            read += os.path.getsize(self.path(name))
        for name, numbers in bad.items():
            self.notes.append("%s: %d lines that are no rows, or rows twice, were left out" % (name, len(numbers)))
            self._clean(name, numbers)
        # what failed is tried again, so what was said of it counts no more
        errors = self.path(ERRORS)
        if os.path.exists(errors):
            os.truncate(errors, 0)
        self._errors = Journal(errors)

    def _clean(self, name: str, numbers: Set[int]) -> None:
        index = (ANSWERS, ASIDE).index(name)
        self._files[index].close()
        rewrite(self.path(name), lambda number, row: number not in numbers)
        self._files[index] = Journal(self.path(name))

    def _known(self, row: Mapping[str, Any], several: Callable[[str], bool]) -> bool:
        place = _place(row)
        if place is None:
            return False
        prompt, gen = place
        if gen != self._next.get(prompt, 0):
            return False
        self._count(row, prompt, gen, several(prompt))
        return True

    def _count(self, row: Mapping[str, Any], prompt: str, gen: int, several: bool) -> None:
        self._next[prompt] = gen + 1
        if ends(row):
            self._ended.add(prompt)
        if several:
            self._said.setdefault(prompt, []).append(str(row.get("answer") or ""))
        kept, old = self.kept(row), self.totals
        self.totals = Totals(
            old.rows + kept,
            old.aside + (not kept),
            old.truncated + bool(row.get("truncated")),
            old.empty + bool(row.get("empty")),
            old.tokens + generated(row),
            old.without_ids + ("input_ids" not in row),
        )

    def kept(self, row: Mapping[str, Any]) -> bool:
        """Whether the row is for training, by the two filters."""
        return (self._keep_truncated or not row.get("truncated")) and (self._keep_empty or not row.get("empty"))

    def next(self, prompt: str) -> int:
        """Which answer of the prompt comes next."""
        return self._next.get(prompt, 0)

    def complete(self, prompt: str, answers: int) -> bool:
        """Whether nothing is left to ask: all its answers are there, or one that nobody answers on top of."""
        return prompt in self._ended or self._next.get(prompt, 0) >= answers

    @property
    def cut_short(self) -> int:
        """Conversations that a cut or empty answer has ended; a single-turn one counts too."""
        return len(self._ended)

    def said(self, prompt: str) -> List[str]:
        """The answers that the prompt has so far, where it asks for several."""
        return list(self._said.get(prompt, ()))

    def add(self, row: Mapping[str, Any], several: bool) -> None:
        """Write a row down. Raises ``OSError``."""
        place = _place(row)
        assert place is not None
        self._files[0 if self.kept(row) else 1].append(row)
        self._count(row, place[0], place[1], several)

    def forget(self, prompt: str) -> None:
        """Nothing more is asked of it: what was said in it need not be remembered."""
        self._said.pop(prompt, None)

    def fail(self, prompt: str, gen: int, reason: str, status: Optional[int], attempts: int) -> None:
        """Write down that it cannot be answered. Raises ``OSError``."""
        self.failed[prompt] = reason
        self._errors.append({"id": prompt, "gen": gen, "reason": reason, "status": status, "attempts": attempts})

    def sync(self) -> None:
        """Have the disk hold it all. Call it in a thread."""
        for file in (*self._files, self._errors):
            file.sync()

    def close(self) -> None:
        for file in (*self._files, self._errors):
            file.close()


def _place(row: Mapping[str, Any]) -> Optional["tuple[str, int]"]:
    prompt, gen, name = row.get("primary_id"), row.get("gen"), row.get("id")
    if not isinstance(prompt, str) or not isinstance(gen, int) or name != "%s_gen%d" % (prompt, gen):
        return None
    return prompt, gen
