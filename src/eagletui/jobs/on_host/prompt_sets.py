"""The prompts of a benchmark: one file a context length, the same for every arm, whose rows are chat messages.

``SETS/<name>.jsonl`` has a row a prompt, ``{"messages": [...]}``, in the order that every pass keeps. A set is made once, from
the file of prompts, and taken as it is afterwards: that all arms get the same prompts is a matter of its hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from eagletui.jobs.on_host.prompts import Prompts, Turns, told

AS_GIVEN = "as given"
TRIES = 6
CLOSE = 0.02
"""How far from the wanted length a made prompt may be (and never beyond it)."""

Count = Callable[[str], int]


class BadSet(ValueError):
    """A prompt set cannot be made or used; the text says why and what to do."""


class PromptSet(NamedTuple):
    """A file of prompts. ``rows`` are the messages of each; ``warm`` are other prompts, for warming up. ``sha`` is the file's.

    ``note`` says which prompts could not be made as long as wanted; empty where all are.
    """

    name: str
    path: str
    rows: List[Turns]
    warm: List[Turns]
    sha: str
    simple: bool
    note: str = ""

    def first(self, count: int) -> str:
        """A hash of the first ``count`` rows: what a cell measures."""
        return _hash("\n".join(json.dumps(row, ensure_ascii=False, sort_keys=True) for row in self.rows[:count]))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def context_name(tokens: int) -> str:
    """``4k`` for 4096, ``1000``; 0 is the prompts as they are given."""
    if not tokens:
        return AS_GIVEN
    return "%dk" % (tokens // 1024) if tokens % 1024 == 0 else "%d" % tokens


def read_rows(path: str) -> List[Turns]:
    """The prompts of a file: rows of conversations or messages up to their first user turn, or rows of ``prompt``.

    Raises `BadSet`, which names the first bad line.
    """
    try:
        with open(path, encoding="utf-8") as file:
            first = next((line for line in file if line.strip()), "")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSet("%s cannot be read: %s" % (path, error)) from None
    row = _json(first)
    if isinstance(row, dict) and "prompt" in row and "messages" not in row:
        return _plain(path)
    try:
        prompts = Prompts(path)
    except ValueError as error:
        raise BadSet("%s: %s" % (path, error)) from None
    if prompts.problems:
        raise BadSet("%s, %s" % (path, told(prompts.problems)[0]))
    return [_first_turn(prompts.turns(index)) for index in range(len(prompts))]


def _first_turn(turns: Turns) -> Turns:
    """Up to the first user turn: what follows would build on an answer that is not there."""
    for at, turn in enumerate(turns):
        if turn["role"] == "user":
            return turns[: at + 1]
    return turns


def _plain(path: str) -> List[Turns]:
    rows: List[Turns] = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = _json(line)
            if not isinstance(row, dict) or not isinstance(row.get("prompt"), str) or not row["prompt"].strip():
                raise BadSet("%s, line %d: an object with a prompt is expected" % (path, number))
            rows.append([{"role": "user", "content": row["prompt"]}])
    return rows


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None  # told by who reads the whole file


def make(
    folder: str,
    prompts: str,
    context: int,
    count: int,
    spare: int,
    seed: int,
    counter: Optional[Count],
    given: Optional[str] = None,
) -> PromptSet:
    """The set for a context of that many tokens (0: as given), of at least ``count`` prompts where there are as many.

    ``spare`` further ones are kept apart for warming up. ``given`` is a file that is taken as it is, named by its stem. An
    existing set is used when it was made of the same inputs. Raises `BadSet`.
    """
    source = given or prompts
    name = os.path.splitext(os.path.basename(given))[0] if given else context_name(context)
    about = {"source": source, "sha": file_hash(source), "context": context, "count": count, "spare": spare, "seed": seed}
    path = os.path.join(folder, name.replace(" ", "-") + ".jsonl")
    there = _there(path, about)
    if there is not None:
        return _set(name, path, there)
    rows = _distinct(read_rows(source))
    if len(rows) < 2:
        raise BadSet("%s has %d different prompts: too few to measure with" % (source, len(rows)))
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)  # noqa: S311 - an order that can be repeated, nothing secret
    rows = [rows[at] for at in order]
    chosen = rows[:count]
    warm = rows[count : count + spare]
    note = ""
    if context:
        if counter is None:
            raise BadSet("prompts of %d tokens cannot be made: nothing counts tokens here" % context)
        made = [_stretched(row, rows, at, context, counter) for at, row in enumerate(chosen)]
        chosen, note = [row for row, _ in made], _apart([size for _, size in made], context)
        warm = [_stretched(row, rows, count + at, context, counter)[0] for at, row in enumerate(warm)]
    doc = {"about": about, "rows": chosen, "warm": _enough(warm, chosen, spare)}
    os.makedirs(folder, exist_ok=True)
    _write(path, "".join(json.dumps({"messages": row}, ensure_ascii=False) + "\n" for row in doc["rows"]))
    kept = {"about": about, "sha": file_hash(path), "warm": doc["warm"], "note": note}
    _write(path + ".about", json.dumps(kept, ensure_ascii=False))
    return _set(name, path, {"rows": doc["rows"], "warm": doc["warm"], "note": note})


def _set(name: str, path: str, doc: Mapping[str, Any]) -> PromptSet:
    rows = list(doc["rows"])
    return PromptSet(name, path, rows, list(doc["warm"]), file_hash(path), all(len(row) == 1 for row in rows), doc["note"])


def _there(path: str, about: Mapping[str, Any]) -> Optional[Dict[str, Any]]:
    """What an earlier arm made of the same inputs; None when there is nothing. Raises `BadSet` for another's."""
    try:
        with open(path + ".about", encoding="utf-8") as file:
            doc = json.load(file)
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line)["messages"] for line in file]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError) as error:
        raise BadSet("%s is damaged (%s): remove it" % (path, error)) from None
    if doc.get("about") != about or doc.get("sha") != file_hash(path):
        raise BadSet("%s was made of other prompts or settings: choose another output for this plan, or remove it" % path)
    return {"rows": rows, "warm": doc["warm"], "note": str(doc.get("note") or "")}


def file_hash(path: str) -> str:
    """16 hex digits of the file's content. Raises `BadSet`."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError as error:
        raise BadSet("%s cannot be read: %s" % (path, error.strerror or error)) from None
    return digest.hexdigest()[:16]


def _write(path: str, text: str) -> None:
    temp = path + ".new"
    with open(temp, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)
    os.replace(temp, path)


def _distinct(rows: Sequence[Turns]) -> List[Turns]:
    """Each prompt once: one that is repeated comes from the prefix cache."""
    seen: Dict[str, Turns] = {}
    for row in rows:
        seen.setdefault(json.dumps(row, sort_keys=True), row)
    return list(seen.values())


def _enough(warm: Sequence[Turns], chosen: Sequence[Turns], spare: int) -> List[Turns]:
    """Prompts to warm up with that are none of the measured ones, and begin otherwise (or the prefix cache knew them)."""
    out = list(warm)
    for at in range(spare - len(out)):
        row = chosen[at % len(chosen)]
        text = "(%d) In other words, and shorter: %s" % (at + 1, row[-1]["content"])
        out.append([*row[:-1], {"role": "user", "content": text}])
    return out


def _apart(sizes: Sequence[int], tokens: int) -> str:
    """Which of the made prompts are not as long as wanted, in words; empty where all are."""
    short = [size for size in sizes if size < (1 - CLOSE) * tokens]
    long = [size for size in sizes if size > tokens]
    parts = ["%d shorter (down to %d)" % (len(short), min(short))] if short else []
    parts += ["%d longer (up to %d), by their question alone" % (len(long), max(long))] if long else []
    return "of %d prompts of %d tokens %s" % (len(sizes), tokens, ", ".join(parts)) if parts else ""


def _stretched(row: Turns, rows: Sequence[Turns], at: int, tokens: int, count: Count) -> Tuple[Turns, int]:
    """The prompt with text of other rows before its question, ``tokens`` long or a little less; and its length in tokens.

    Each prompt begins at another row, so that none is the beginning of another.
    """
    question = row[-1]["content"]

    def whole(background: str) -> str:
        return "Notes:\n%s\n\n%s" % (background, question)

    parts: List[str] = []
    size, turn = 0, at * 7 + 1
    # about four characters a token, and never too little: it is cut below
    while size < 8 * tokens:
        text = rows[turn % len(rows)][-1]["content"]
        parts.append("%d. %s" % (len(parts) + 1 + at, text))
        size += len(parts[-1]) + 1
        turn += 1
    background = "\n".join(parts)
    low, high = 0, len(background)
    reached: Optional[int] = None
    guess = min(high, 4 * tokens)
    for _ in range(TRIES):
        found = count(whole(background[:guess]))
        if found > tokens:
            high = guess
        else:
            low, reached = guess, found
            if found >= (1 - CLOSE) * tokens:
                break
        next_guess = int(guess * tokens * (1 - CLOSE / 2) / found) if found else high
        guess = next_guess if low < next_guess < high else (low + high) // 2
    text = whole(background[:low])
    return [*row[:-1], {"role": "user", "content": text}], count(text) if reached is None else reached
