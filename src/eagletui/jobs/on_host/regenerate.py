"""The same by speculators' own regenerate-responses (vLLM alone), with what it does not do itself.

It gets a file of ours (each row with an id, so that nothing is asked twice), always resumes, and counts only as far as its files
bear it out. A torn line of a killed run would swallow the next row: it is cut off. Without a server it would mark all that is
left as failed: it is ended at the first such error and started again when the server is back. Its ``--limit`` counts only
what is asked anew, so the file has no more prompts than are wanted.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from typing import Any, Dict, List, Mapping, Optional, Pattern, Set

from eagletui.jobs.on_host.answers import generated
from eagletui.jobs.on_host.chat import Chat, Unusable
from eagletui.jobs.on_host.child import Child
from eagletui.jobs.on_host.figures import LOOK_BACK, STALL_LEAST
from eagletui.jobs.on_host.journal import lines, repair
from eagletui.jobs.on_host.ledger import ANSWERS, ASIDE
from eagletui.jobs.on_host.prompts import Prompts
from eagletui.jobs.on_host.server_gate import Gate
from eagletui.jobs.on_host.summary import share
from eagletui.jobs.on_host.telling import Teller

RAW, RAW_ERRORS, ASKED = "regenerated.jsonl", "regenerated.errors.jsonl", "asked.jsonl"
TICK = 1.0
ROUNDS = 5
"""How often it is started again without a single new answer."""
_NO_SERVER = re.compile(
    r"Client(Connector|OS|Connection|Payload)|ServerDisconnected|Connection(Reset|Refused|Aborted)|HTTP 50[234]"
)
_NO_IDS = re.compile("returned no token ids")
_EMPTY = "empty assistant generation"


class Regeneration:
    """One run of it. ``settings`` as in `synthesise`."""

    def __init__(self, settings: Mapping[str, Any], prompts: Prompts, total: int, teller: Teller) -> None:
        self._settings, self._prompts, self._total, self._teller = settings, prompts, total, teller
        self._output: str = settings["output"]
        self._ids = set(prompts.ids[:total])
        self.done: Set[str] = set()
        self._rows: Set[str] = set()
        self._answers: Dict[str, int] = {}
        self._double = self._tokens = self._truncated = 0
        self._at = 0
        self._errors_at = 0
        self._reasons: Dict[str, str] = {}
        self._recent: List[float] = []
        self._moved = time.monotonic()
        self._late = False

    def _path(self, name: str) -> str:
        return os.path.join(self._output, name)

    async def server(self) -> str:
        """Wait for the server. Returns the name of the model. Raises `Unusable`."""
        chat = Chat(self._settings["endpoint"], None, self._settings["request_timeout"])
        try:
            gate = Gate(chat, self._settings["server_wait"], lambda text: self._teller.trouble("server", text))
            await gate.enter(self._settings.get("model"))
            return gate.model
        finally:
            await chat.close()

    def go(self, model: str, held: int) -> Dict[str, Any]:
        """Run it until nothing is left that a further round would mend. ``held``: the descriptor that holds OUTPUT."""
        self._ask_file()
        rounds = 0
        while True:
            cut = repair(self._path(RAW))
            if cut:
                self._teller.note("%s: a torn last line was cut off (%d bytes)" % (RAW, cut))
            self._read()
            left = self._total - len(self.done & self._ids)
            self._teller.stage("asking", "prompts", self._total, self._total - left)
            if not left:
                break
            before = len(self.done)
            no_server = self._round(model, held)
            rounds = 0 if len(self.done) > before else rounds + 1
            if not no_server:
                break
            if rounds >= ROUNDS:
                raise Unusable("%d rounds without an answer, the last one for: %s" % (rounds, no_server))
            self._teller.note("regenerate-responses was ended, for the server is away: %s" % no_server)
            asyncio.run(self.server())
        return self._result()

    def _ask_file(self) -> None:
        new = self._path(ASKED + ".tmp")
        with open(new, "w", encoding="utf-8", errors="backslashreplace") as out:
            for index in range(self._total):
                row = {"id": self._prompts.ids[index], "messages": self._prompts.turns(index)}
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
        os.replace(new, self._path(ASKED))

    def _round(self, model: str, held: int) -> Optional[str]:
        """One run of the tool. Returns the error that ended it when that was the server's absence. Raises `Unusable`."""
        errors = self._path(RAW_ERRORS)
        if os.path.exists(errors):
            os.truncate(errors, 0)  # what failed is asked again
        self._errors_at, self._reasons, self._moved = 0, {}, time.monotonic()
        child = Child(self._command(model), {"COLUMNS": "200", "HF_HUB_OFFLINE": "1"}, keep=(held,))
        ended = threading.Event()
        useless: List[str] = []

        def watch() -> None:
            while not ended.wait(TICK):
                self._read()
                reason = self._reason(_NO_SERVER) or self._reason(_NO_IDS)
                if reason and not useless:
                    useless.append(reason)
                    child.process.terminate()
                self._tell()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        status = child.wait(lambda mark: None)
        ended.set()
        watcher.join()
        repair(self._path(RAW))
        self._read()
        self._moved = time.monotonic()  # it is not waited for any more
        self._tell()
        if self._reason(_NO_IDS):
            raise Unusable("the server gives no token ids where regenerate-responses looks for them: leave out tool")
        if status != 0 and not useless:
            raise Unusable("regenerate-responses ended with status %d: %s" % (status, (child.last or ["it said nothing"])[-1]))
        return self._reason(_NO_SERVER)

    def _reason(self, pattern: Pattern[str]) -> Optional[str]:
        """The first error of this round that is of that kind."""
        return next((text for text in list(self._reasons.values()) if pattern.search(text)), None)

    def _command(self, model: str) -> List[str]:
        settings = self._settings
        sampling = dict(settings.get("sampling") or {})
        for name in ("temperature", "seed"):
            if settings.get(name) is not None:
                sampling[name] = settings[name]
        if settings.get("enable_thinking") is not None:
            kwargs = dict(sampling.get("chat_template_kwargs") or {}, enable_thinking=settings["enable_thinking"])
            sampling["chat_template_kwargs"] = kwargs
        argv = [sys.executable, "-m", "speculators", "regenerate-responses", "--model", model, "--resume"]
        argv += ["--endpoint", settings["endpoint"].rstrip("/") + "/chat/completions"]
        argv += ["--dataset", self._path(ASKED), "--outfile", self._path(RAW)]
        argv += ["--concurrency", str(settings["concurrency"]), "--max-tokens", str(settings["max_tokens"])]
        argv += ["--max-retries", str(settings["retries"])]
        return argv + (["--sampling-params", json.dumps(sampling)] if sampling else [])

    # ----------------------------------------------------------------------------------------------- what its files say

    def _read(self) -> None:
        """Read on in what it writes."""
        for _number, end, row in lines(self._path(RAW), self._at):
            self._at = end
            name = None if row is None else row.get("id")
            if row is None or not isinstance(name, str) or name in self._rows:
                self._double += 1
                continue
            self._rows.add(name)
            prompt = str(row.get("primary_id"))
            self.done.add(prompt)
            self._answers[prompt] = self._answers.get(prompt, 0) + 1
            self._tokens += generated(row)
            self._truncated += truncated(row)
            self._moved = time.monotonic()
            self._recent.append(self._moved)
        for _number, end, row in lines(self._path(RAW_ERRORS), self._errors_at):
            self._errors_at = end
            if row is not None:
                self._reasons[str(row.get("id"))] = str((row.get("metadata") or {}).get("error"))

    def _tell(self) -> None:
        now = time.monotonic()
        self._recent = [at for at in self._recent if now - at <= LOOK_BACK]
        late = now - self._moved > STALL_LEAST
        if late or self._late:
            self._teller.trouble("requests", "no new answer for %d s" % (now - self._moved) if late else None)
        self._late = late
        counters = {
            "answers/s": len(self._recent) / LOOK_BACK if self._recent else None,
            "rows": len(self._rows),
            "tokens": self._tokens,
            "truncated": {"value": self._truncated, "bad": True},
            "failed": {"value": len(self._reasons), "bad": True},
        }
        self._teller.progress(len(self.done & self._ids), self._total, counters)

    def _result(self) -> Dict[str, Any]:
        """Filter, and count again from the files."""
        aside = self._filter()
        path = self._path(ANSWERS)
        missing = self._ids - self.done
        empty = sum(_EMPTY in self._reasons.get(name, "") for name in missing)
        failed = sum(name in self._reasons for name in missing) - empty
        answers = len(self._rows)
        asked = zip(self._prompts.ids[: self._total], self._prompts.answers)
        short = sum(0 < self._answers.get(name, 0) < number for name, number in asked)
        return {
            "prompts": self._total,
            "complete": self._total - len(missing),
            "answers": answers,
            "rows": answers - aside,
            "set_aside": aside,
            "failed": failed,
            "missing": len(missing) - failed - empty,
            "truncated": self._truncated,
            "empty": empty,
            "ended_early": short,
            "without_ids": 0,
            "double": 0,
            "repaired": self._double,
            "tokens": self._tokens,
            "truncated_share": share(self._truncated, answers),
            "empty_share": share(empty, answers + empty),
            "failed_share": share(failed, self._total),
            "invalid": len(self._prompts.problems),
            "repeated": len(self._prompts.repeated),
            "reasons": dict(Counter(self._reasons[name] for name in missing if name in self._reasons).most_common(5)),
            "path": path,
            "bytes": os.path.getsize(path),
            "errors": self._path(RAW_ERRORS),
        }

    def _filter(self) -> int:
        """Write the rows for training, each once; what its filter keeps from them goes aside. Returns how many those are."""
        seen: Set[str] = set()
        aside = 0
        with open(self._path(ANSWERS + ".tmp"), "wb") as out, open(self._path(ASIDE + ".tmp"), "wb") as other:
            for _number, _end, row in lines(self._path(RAW)):
                if row is None or row.get("id") in seen:
                    continue
                seen.add(str(row.get("id")))
                line = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"
                if truncated(row) and not self._settings["keep_truncated"]:
                    aside += 1
                    other.write(line)
                else:
                    out.write(line)
            for file in (out, other):
                file.flush()
                os.fsync(file.fileno())
        for name in (ASIDE, ANSWERS):
            os.replace(self._path(name + ".tmp"), self._path(name))
        return aside


def truncated(row: Mapping[str, Any]) -> bool:
    """Whether a row of speculators' ran into max_tokens."""
    return (row.get("metadata") or {}).get("finish_reason") == "length"
