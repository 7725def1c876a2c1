"""What a synthesis has made, counted again from the files."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any, Dict, Mapping

from eagletui.jobs.on_host.answers import generated
from eagletui.jobs.on_host.journal import lines
from eagletui.jobs.on_host.ledger import ANSWERS, ASIDE, ERRORS, Ledger
from eagletui.jobs.on_host.prompts import Prompts


def count(path: str) -> Dict[str, Any]:
    """The rows of a file: rows, truncated, empty, without_ids, tokens, double (ids), bytes."""
    out = {"rows": 0, "truncated": 0, "empty": 0, "without_ids": 0, "tokens": 0, "double": 0, "bytes": 0}
    seen = set()
    for _number, end, row in lines(path):
        out["bytes"] = end
        if row is None:
            continue
        out["rows"] += 1
        out["truncated"] += bool(row.get("truncated"))
        out["empty"] += bool(row.get("empty"))
        out["without_ids"] += "input_ids" not in row
        out["tokens"] += generated(row)
        out["double"] += row.get("id") in seen
        seen.add(row.get("id"))
    return out


def summary(book: Ledger, total: int, prompts: Prompts) -> Dict[str, Any]:
    """The result of a run over the first ``total`` prompts."""
    path = book.path(ANSWERS)
    kept, aside = count(path), count(book.path(ASIDE))
    answers = kept["rows"] + aside["rows"]
    ids, wanted = prompts.ids[:total], prompts.answers[:total]
    complete = sum(book.complete(name, number) for name, number in zip(ids, wanted))
    failed = sum(name in book.failed for name in ids)
    short = sum(book.complete(name, number) and book.next(name) < number for name, number in zip(ids, wanted))
    return {
        "prompts": total,
        "complete": complete,
        "answers": answers,
        "rows": kept["rows"],
        "set_aside": aside["rows"],
        "failed": failed,
        "missing": total - complete - failed,
        "truncated": kept["truncated"] + aside["truncated"],
        "empty": kept["empty"] + aside["empty"],
        "ended_early": short,
        "without_ids": kept["without_ids"] + aside["without_ids"],
        "double": kept["double"] + aside["double"],
        "tokens": kept["tokens"] + aside["tokens"],
        "truncated_share": share(kept["truncated"] + aside["truncated"], answers),
        "empty_share": share(kept["empty"] + aside["empty"], answers),
        "failed_share": share(failed, total),
        "invalid": len(prompts.problems),
        "repeated": len(prompts.repeated),
        "reasons": dict(Counter(book.failed.values()).most_common(5)),
        "path": path,
        "bytes": os.path.getsize(path),
        "errors": book.path(ERRORS),
    }


def share(part: int, whole: int) -> float:
    """The part of the whole, 0 to 1."""
    return round(part / whole, 6) if whole else 0.0


def words(made: Mapping[str, Any]) -> str:
    """The result in one line."""
    text = "%d rows from %d of %d prompts, %d tokens" % (made["rows"], made["complete"], made["prompts"], made["tokens"])
    for name in ("failed", "truncated", "empty"):
        if made[name]:
            text += ", %d %s" % (made[name], name)
    if made["ended_early"]:
        text += ", %d conversations ended early" % made["ended_early"]
    if made["set_aside"]:
        text += ", %d set aside" % made["set_aside"]
    return text
