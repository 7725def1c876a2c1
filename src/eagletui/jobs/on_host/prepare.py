"""Training data by speculators' prepare-data, with what it leaves out: ``PYTHON -m eagletui.jobs.on_host.prepare SETTINGS``.

SETTINGS is a JSON object, the keys of the kind (see `eagletui.jobs.prepare`). The data are judged and made alike first
(`training_rows`); prepare-data works in a directory of its own inside OUTPUT, so that it never finds files of an earlier run,
which it would take without a word; what it made is read again from its files before it is moved to OUTPUT, ``state.json`` last.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagletui.jobs.on_host.arrow_rows import BadDataset, Held, counted_tokens, look
from eagletui.jobs.on_host.child import Child
from eagletui.jobs.on_host.hold import Held as HeldByOther
from eagletui.jobs.on_host.hold import hold
from eagletui.jobs.on_host.ledger import ANSWERS
from eagletui.jobs.on_host.prompts import told
from eagletui.jobs.on_host.stopping import Stop
from eagletui.jobs.on_host.sums import hash_file, read_json, write_json
from eagletui.jobs.on_host.telling import Teller
from eagletui.jobs.on_host.training_rows import TEXT, TOKENS, Limits, Rows
from eagletui.jobs.outputs import NAME, NotOurs, claim
from eagletui.jobs.seen import Mark

MAKING, SUMMARY, TOKEN_FREQ, STATE = ".making", "summary.json", "token_freq.pt", "state.json"
BYTES_PER_TOKEN = 40
"""Of disk while it works: the rows as JSON come on top; two int64 columns, once in its cache and once in its output."""
_COMPLAINS = r"Failed to process conversation \d+: (.*)"


def log(text: str) -> None:
    """A line of plain log."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def data_files(settings: Mapping[str, Any]) -> List[str]:
    """The files that are meant: a directory is one of a synthesis. Raises `Stop`."""
    out = []
    for path in settings["data"]:
        if os.path.isdir(path):
            path = os.path.join(path, ANSWERS)
        if not os.path.isfile(path):
            raise Stop("%s is not there" % path, 2)
        if os.path.getsize(path) == 0:
            raise Stop("%s is empty" % path, 2)
        out.append(path)
    return out


def vocabulary(model: str) -> Optional[int]:
    """How many tokens the model has, by its config (of a nested one the text part's); None when it is not on this disk."""
    config = read_json(os.path.join(model, "config.json"))
    if not isinstance(config, dict):
        return None
    inner = config.get("text_config")
    for part in (inner, config):
        if isinstance(part, dict) and isinstance(part.get("vocab_size"), int):
            return int(part["vocab_size"])
    return None


def inputs_of(settings: Mapping[str, Any], files: List[str]) -> Dict[str, Any]:
    """What the dataset follows from."""
    names = ("model", "seq_length", "max_samples", "minimum_valid_tokens", "token_freq", "seed", "keep_truncated", "keep_empty")
    out: Dict[str, Any] = {name: settings.get(name) for name in names}
    out["data"] = [hash_file(path) for path in files]
    return out


class Preparation:
    """One run of it."""

    def __init__(self, settings: Mapping[str, Any], teller: Teller) -> None:
        self._settings, self._teller = settings, teller
        self._output: str = settings["output"]
        self._making = os.path.join(self._output, MAKING)

    def go(self) -> Dict[str, Any]:
        """Make the dataset, or find it made already. Returns the summary. Raises `Stop`, ``OSError``."""
        files = data_files(self._settings)
        self._teller.stage("reading what the data are")
        inputs = inputs_of(self._settings, files)
        there, held = self._claim(inputs)
        try:
            return (self._made_before() if there else None) or self._make(files)
        finally:
            os.close(held)

    def _make(self, files: List[str]) -> Dict[str, Any]:
        self._clear()
        os.mkdir(self._making)
        rows = self._rows(files)
        self._run(rows)
        made = self._summary(rows, self._check(rows))
        self._publish(made)
        return made

    def _claim(self, inputs: Mapping[str, Any]) -> Tuple[bool, int]:
        """Whether it was begun before, and the descriptor that holds OUTPUT. Raises `Stop`."""
        try:
            try:
                there = claim(self._output, "prepare", inputs, "eagletui")
            except NotOurs:
                if not self._settings["overwrite"] or not self._of_ours():
                    raise
                held = hold(self._output)
                self._teller.note("%s was made of other data or settings: made anew" % self._output)
                self._clear()
                os.unlink(os.path.join(self._output, NAME))
                return claim(self._output, "prepare", inputs, "eagletui"), held
            return there, hold(self._output)
        except (NotOurs, HeldByOther) as error:
            raise Stop(str(error) + " (overwrite = true makes it anew)" * self._of_ours(), 2) from None

    def _of_ours(self) -> bool:
        there = read_json(os.path.join(self._output, NAME))
        return isinstance(there, dict) and there.get("kind") == "prepare"

    def _clear(self) -> None:
        """Remove what a run of ours made, and nothing else; what makes the dataset a dataset goes first."""
        names = sorted(os.listdir(self._output), key=lambda name: name != STATE)
        for name in names:
            path = os.path.join(self._output, name)
            if name == MAKING:
                shutil.rmtree(path)
            elif name in (STATE, SUMMARY, SUMMARY + ".tmp", TOKEN_FREQ, "dataset_info.json") or name.endswith(".arrow"):
                os.unlink(path)

    def _made_before(self) -> Optional[Dict[str, Any]]:
        made = read_json(os.path.join(self._output, SUMMARY))
        if not isinstance(made, dict) or not os.path.exists(os.path.join(self._output, STATE)):
            return None
        try:
            held = look(self._output)
        except BadDataset as error:
            self._teller.note("the dataset that is there is made anew: %s" % error)
            return None
        same = (held.rows, held.tokens, held.trained) == (made.get("rows"), made.get("tokens"), made.get("valid_tokens"))
        if same:
            self._teller.note("the dataset is there already, of the same data")
        return made if same else None

    # ------------------------------------------------------------------------------------------------------- the rows

    def _rows(self, files: List[str]) -> Rows:
        settings = self._settings
        limits = Limits(
            settings["seq_length"],
            settings.get("minimum_valid_tokens") or 1,
            settings["keep_truncated"],
            settings["keep_empty"],
            vocabulary(settings["model"]),
        )
        rows = Rows(limits)
        self._teller.stage("judging the rows", "rows")
        path = os.path.join(self._making, "rows.jsonl")
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as out:
            for file in files:
                before = rows.wrong
                for row in rows.of(file):
                    out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
                    self._teller.progress(rows.read)
                if rows.wrong > before:
                    self._wrong(file, rows, rows.wrong - before)
            for row in rows.rest():
                out.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
        if not rows.kept:
            raise Stop("no row is left of %d (%s)" % (rows.read, dropped_words(rows.dropped) or "there were none"), 2)
        if rows.style == TEXT and not settings.get("endpoint"):
            raise Stop("the data have no token ids: a vLLM server of the model has to render them (endpoint)", 2)
        if rows.dropped:
            self._teller.note("left out: %s" % dropped_words(rows.dropped))
        if rows.clipped:
            words = "%d of %d rows are longer than seq_length %d (the longest has %d) and lose their end"
            self._teller.note(words % (rows.clipped, rows.kept, settings["seq_length"], rows.longest))
        self._room(os.path.getsize(path), rows.tokens)
        return rows

    def _wrong(self, file: str, rows: Rows, count: int) -> None:
        for line in told(rows.problems):
            log("%s, %s" % (file, line))
        if not self._settings["skip_invalid"]:
            first = told(rows.problems)[0]
            raise Stop("%s: %d rows cannot be used (%s): mend them, or set skip_invalid" % (file, count, first), 2)
        rows.problems = []

    def _room(self, size: int, tokens: int) -> None:
        need = tokens * BYTES_PER_TOKEN if tokens else 4 * size
        free = os.statvfs(self._making)
        there = free.f_bavail * free.f_frsize
        if need > there:
            raise Stop("%s needs about %.1f GB more, and %.1f GB are free" % (self._output, need / 1e9, there / 1e9), 1)

    # ------------------------------------------------------------------------------------------------------- the tool

    def _command(self) -> Tuple[List[str], Dict[str, str]]:
        settings = self._settings
        argv = [sys.executable, "-m", "speculators", "prepare-data", "--model", settings["model"]]
        argv += ["--data", os.path.join(self._making, "rows.jsonl"), "--output", os.path.join(self._making, "data")]
        argv += ["--seq-length", str(settings["seq_length"]), "--seed", str(settings["seed"])]
        for flag, name in (
            ("--max-samples", "max_samples"),
            ("--minimum-valid-tokens", "minimum_valid_tokens"),
            ("--num-preprocessing-workers", "workers"),
        ):
            if settings.get(name) is not None:
                argv += [flag, str(settings[name])]
        if settings.get("endpoint"):
            root = settings["endpoint"].rstrip("/")
            argv += ["--render-endpoint", root[: -len("/v1")] if root.endswith("/v1") else root]
        # without the table a drafter's reduced vocabulary would be taken from whatever lies around
        argv.append("--no-skip-token-freq" if settings["token_freq"] else "--skip-token-freq")
        if settings["trust_remote_code"]:
            argv.append("--trust-remote-code")
        # its cache would fill the home directory with a copy of all data
        env = {"HF_DATASETS_CACHE": os.path.join(self._making, "cache"), "COLUMNS": "200", "NO_COLOR": "1"}
        if os.path.isdir(settings["model"]):
            env["HF_HUB_OFFLINE"] = "1"
        return argv, env

    def _run(self, rows: Rows) -> None:
        self._teller.stage("prepare-data", "rows", rows.kept)
        argv, env = self._command()
        log("$ " + " ".join(argv))

        def seen(found: Mark) -> None:
            if found.text and found.total == rows.kept:
                self._teller.progress(found.done)

        child = Child(argv, env, complains=_COMPLAINS)
        status = child.wait(seen)
        if status != 0:
            # its last line only says that no row is left
            words = child.complaint or (child.last[-1] if child.last else "it said nothing")
            raise Stop("prepare-data ended with status %d: %s" % (status, words[:300]))

    def _check(self, rows: Rows) -> Held:
        """Read what was made. Raises `Stop` when it is not what the rows say."""
        self._teller.stage("checking the dataset")
        data = os.path.join(self._making, "data")
        try:
            held = look(data)
            counted = counted_tokens(os.path.join(data, TOKEN_FREQ)) if self._settings["token_freq"] else None
        except BadDataset as error:
            raise Stop("prepare-data ended well, but %s" % error) from None
        wrong = disagree(rows, held, counted, self._settings.get("max_samples"))
        if wrong:
            raise Stop("prepare-data ended well, but %s" % "; ".join(wrong))
        return held

    def _summary(self, rows: Rows, held: Held) -> Dict[str, Any]:
        dropped = dict(rows.dropped)
        if rows.style == TOKENS and held.rows < rows.kept:
            dropped["beyond max_samples"] = rows.kept - held.rows
        made: Dict[str, Any] = {
            "rows": held.rows,
            "tokens": held.tokens,
            "valid_tokens": held.trained,
            "longest": held.longest,
            "mean": round(held.tokens / held.rows, 1),
            "read": rows.read,
            "dropped": sum(dropped.values()),
            "dropped_by": dropped,
            "dropped_share": round(sum(dropped.values()) / rows.read, 6),
            "clipped": rows.clipped,
            "clipped_share": round(rows.clipped / rows.kept, 6),
            "path": self._output,
            "bytes": held.bytes,
            "token_freq": os.path.join(self._output, TOKEN_FREQ) if self._settings["token_freq"] else None,
        }
        words = "%d rows, %d tokens (%d to train on)" % (held.rows, held.tokens, held.trained)
        made["why"] = words + (", left out: %s" % dropped_words(dropped) if dropped else "")
        return made

    def _publish(self, made: Mapping[str, Any]) -> None:
        """One file system, so each file is there whole or not at all; without ``state.json`` it is no dataset."""
        data = os.path.join(self._making, "data")
        write_json(os.path.join(self._output, SUMMARY), made)
        for name in sorted(os.listdir(data), key=lambda name: name == STATE):
            os.replace(os.path.join(data, name), os.path.join(self._output, name))
        shutil.rmtree(self._making)


def disagree(rows: Rows, held: Held, counted: Optional[int], most: Optional[int]) -> List[str]:
    """What does not fit between the rows that went in and the dataset that came out, in words."""
    out = []
    if held.rows == 0:
        out.append("the dataset is empty")
    if rows.style == TOKENS:
        wanted = rows.kept if most is None else min(rows.kept, most)
        if held.rows != wanted:
            out.append("it has %d rows and should have %d" % (held.rows, wanted))
        elif wanted == rows.kept and (held.tokens, held.trained) != (rows.tokens, rows.trained):
            words = "it has %d tokens (%d to train on) and should have %d (%d)"
            out.append(words % (held.tokens, held.trained, rows.tokens, rows.trained))
    if counted is not None and counted != held.trained:
        out.append("its token frequencies are of %d tokens, and it has %d to train on" % (counted, held.trained))
    return out


def dropped_words(dropped: Mapping[str, int]) -> str:
    """What was left out, most first."""
    return ", ".join("%d %s" % (count, why) for why, count in sorted(dropped.items(), key=lambda item: -item[1]))


def main(argv: List[str]) -> int:
    """Run it. Returns the exit status: 0 the dataset is there and was checked, 1 it could not be made, 2 its inputs are wrong."""
    settings = json.loads(argv[0])
    teller = Teller("rows")
    try:
        made = Preparation(settings, teller).go()
        teller.result(**made)
        return 0
    except Stop as error:
        why, code = str(error), error.code
    except OSError as error:
        why, code = "%s: %s" % (error.filename or settings["output"], error.strerror or error), 1
    log(why)
    teller.result(why=why)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
