"""Answers of a model to a file of prompts, from its own server: ``PYTHON -m eagletui.jobs.on_host.synthesise SETTINGS``.

SETTINGS is a JSON object, the keys of the kind (see `eagletui.jobs.synthesise`). OUTPUT gets ``answers.jsonl`` (rows for
training), ``set_aside.jsonl`` (rows that the filters keep from it), ``errors.jsonl`` (prompts without an answer, and why) and
``summary.json``. Killed at any moment and started again, it goes on with what is missing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from eagletui.jobs.on_host.asking import Asker, Failed, Wish
from eagletui.jobs.on_host.chat import Chat, Unusable
from eagletui.jobs.on_host.concurrency import WINDOW, Concurrency
from eagletui.jobs.on_host.figures import Figures, stalled
from eagletui.jobs.on_host.hold import Held, hold
from eagletui.jobs.on_host.ledger import Ledger
from eagletui.jobs.on_host.prompts import BadPrompts, Prompts, told
from eagletui.jobs.on_host.regenerate import Regeneration
from eagletui.jobs.on_host.server_gate import Gate
from eagletui.jobs.on_host.stopping import Stop
from eagletui.jobs.on_host.summary import summary, words
from eagletui.jobs.on_host.sums import write_json
from eagletui.jobs.on_host.telling import Teller
from eagletui.jobs.outputs import NotOurs, claim

TICK = 1.0
SYNC_EVERY = 2.0
SUMMARY = "summary.json"


def read_prompts(settings: Mapping[str, Any], teller: Teller) -> Prompts:
    """The prompts, after all of the file was judged. Raises `Stop`."""
    path = settings["prompts"]
    teller.stage("reading the prompts")
    try:
        prompts = Prompts(path)
    except OSError as error:
        raise Stop("%s cannot be read: %s" % (path, error.strerror or error), 2) from None
    except BadPrompts as error:
        raise Stop("%s: %s" % (path, error), 2) from None
    for line in told(prompts.problems):
        log("%s, %s" % (path, line))
    if prompts.problems:
        count = len(prompts.problems)
        first = prompts.problems[0]
        if not settings["skip_invalid"]:
            raise Stop(
                "%s: %d rows cannot be used (line %d: %s): mend them, or set skip_invalid"
                % (path, count, first.line, first.what),
                2,
            )
        teller.note("%d rows of the prompts were left out: %s" % (count, told(prompts.problems)[0]))
    if prompts.repeated:
        teller.note(
            "%d rows say again what an earlier one says (the first in line %d): asked once"
            % (len(prompts.repeated), prompts.repeated[0])
        )
    if not len(prompts):
        raise Stop("%s has no prompts" % path, 2)
    return prompts


def log(text: str) -> None:
    """A line of plain log."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def about(settings: Mapping[str, Any], prompts: Prompts, model: str) -> Dict[str, Any]:
    """What the rows follow from: another of these is another output. How many prompts are asked is not among it."""
    names = ("max_tokens", "temperature", "seed", "sampling", "enable_thinking", "keep_truncated", "keep_empty", "tool")
    out = {name: settings.get(name) for name in names}
    out.update(prompts=prompts.sha, model=model)
    return out


class Run:
    """One run over the prompts."""

    def __init__(self, settings: Mapping[str, Any], prompts: Prompts, teller: Teller) -> None:
        self._settings, self._prompts, self._teller = settings, prompts, teller
        key_name = settings.get("api_key_env")
        key = os.environ.get(key_name) if key_name else None
        if key_name and not key:
            raise Stop("%s, which should hold the server's key, is not set: name it in secrets" % key_name, 2)
        self._chat = Chat(settings["endpoint"], key, settings["request_timeout"])
        self._gate = Gate(self._chat, settings["server_wait"], self._server_words)
        self._pace = Concurrency(settings["concurrency"])
        self._total = wanted(settings, prompts)
        self._tasks: Dict["asyncio.Task[None]", str] = {}
        self._failures_in_row = 0
        self._full = False
        self._stage = ""
        self._stalled: Optional[str] = None

    async def go(self) -> Dict[str, Any]:
        """Ask for all that is missing. Returns the summary. Raises `Stop`, `Unusable`, ``OSError``."""
        self._enter("waiting for the server")
        await self._gate.enter(self._settings.get("model"))
        self._check_room()
        self._ledger = self._open()
        self._figures = Figures(self._chat)
        self._asker = Asker(self._chat, self._gate, self._wish(), self._settings["retries"], self._slower)
        self._todo = [
            index
            for index in range(self._total)
            if not self._ledger.complete(self._prompts.ids[index], self._prompts.answers[index])
        ]
        self._done = self._total - len(self._todo)
        self._enter("asking", self._done)
        self._todo.reverse()
        beside = [asyncio.ensure_future(self._watch()), asyncio.ensure_future(self._keep_pace())]
        try:
            await self._ask_all(beside)
        finally:
            for task in (*beside, *self._tasks):
                task.cancel()
            await asyncio.gather(*beside, *self._tasks, return_exceptions=True)
            self._ledger.close()
            os.close(self._held)
            await self._chat.close()
        return summary(self._ledger, self._total, self._prompts)

    def _wish(self) -> Wish:
        extra = dict(self._settings.get("sampling") or {})
        thinking = self._settings.get("enable_thinking")
        if thinking is not None:
            extra["chat_template_kwargs"] = dict(extra.get("chat_template_kwargs") or {}, enable_thinking=thinking)
        return Wish(self._settings["max_tokens"], self._settings.get("temperature"), self._settings.get("seed"), extra)

    def _check_room(self) -> None:
        context, wanted = self._gate.context, self._settings["max_tokens"]
        if context is not None and wanted >= context:
            raise Stop("max_tokens %d leaves no room for a prompt: the server's context is %d" % (wanted, context), 2)

    def _open(self) -> Ledger:
        self._held = take_output(self._settings, self._prompts, self._gate.model)
        book = Ledger(self._settings["output"], self._settings["keep_truncated"], self._settings["keep_empty"])
        several = {name for name, count in zip(self._prompts.ids, self._prompts.answers) if count > 1}
        self._teller.stage("reading what is there", "%", 100)
        book.open(several.__contains__, lambda share: self._teller.progress(round(100 * share)))
        for note in book.notes:
            self._teller.note(note)
        return book

    # ------------------------------------------------------------------------------------------------------- the asking

    async def _ask_all(self, beside: Sequence["asyncio.Task[None]"]) -> None:
        while self._todo or self._tasks:
            for task in beside:
                if task.done():
                    task.result()  # a disk that fails ends the run, not its telling alone
            while self._todo and len(self._tasks) < self._pace.limit:
                index = self._todo.pop()
                task = asyncio.ensure_future(self._one(index))
                self._tasks[task] = self._prompts.ids[index]
            self._full = self._full or len(self._tasks) >= self._pace.limit
            finished, _ = await asyncio.wait(self._tasks, timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                del self._tasks[task]
                task.result()  # what no request can mend ends the run

    async def _one(self, index: int) -> None:
        name, several = self._prompts.ids[index], self._prompts.answers[index] > 1

        def take(row: Dict[str, Any]) -> None:
            self._ledger.add(row, several)
            self._figures.answered(row)
            self._failures_in_row = 0

        try:
            await self._asker.converse(name, self._prompts.turns(index), self._ledger.said(name), take)
        except Failed as error:
            self._ledger.fail(name, error.gen, str(error), error.status, error.attempts)
            self._failures_in_row += 1
            most = self._settings["stop_after_failures"]
            if self._failures_in_row >= most:
                raise Stop("%d prompts in a row failed, the last one with: %s" % (self._failures_in_row, error)) from None
        self._ledger.forget(name)
        self._done += 1

    def _slower(self, why: str) -> None:
        said = self._pace.trouble(time.monotonic(), why)
        if said is not None:
            self._teller.note(said)

    # ------------------------------------------------------------------------------------------------------ the telling

    def _enter(self, stage: str, done: Optional[float] = None) -> None:
        self._stage = stage
        self._teller.stage(stage, "prompts", self._total, done)

    def _server_words(self, text: Optional[str]) -> None:
        self._teller.trouble("server", text)
        if text is None:
            self._teller.note("the server is there")

    async def _watch(self) -> None:
        """Tell how far it is, and have the disk keep what is written."""
        synced = time.monotonic()
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            if now - synced >= SYNC_EVERY:
                synced = now
                await loop.run_in_executor(None, self._ledger.sync)
            self._tell(now)

    async def _keep_pace(self) -> None:
        """Look at the server's figures, which may take a while to come, and decide how many requests there may be."""
        while True:
            await asyncio.sleep(WINDOW)
            await self._figures.scrape()
            said = self._pace.look(time.monotonic(), self._figures.counted(), self._figures.waiting, self._full)
            self._full = len(self._tasks) >= self._pace.limit
            if said is not None:
                self._teller.note(said)

    def _tell(self, now: float) -> None:
        totals, flying = self._ledger.totals, self._asker.flying
        waits = stalled(flying, now, self._figures.usual())
        if waits is not None or self._stalled is not None:
            self._teller.trouble("requests", waits)
        self._stalled = waits
        counters: Dict[str, Any] = {
            "tok/s": self._figures.rate(now),
            "answers/s": self._figures.answers_rate(now),
            "in flight": len(flying),
            "concurrency": self._pace.limit,
            "server queue": self._figures.waiting,
            "rows": totals.rows,
            "tokens": totals.tokens,
            "truncated": {"value": totals.truncated, "bad": True},
            "empty": {"value": totals.empty, "bad": True},
            "failed": {"value": len(self._ledger.failed), "bad": True},
            "retries": self._asker.retried or None,
            "outages": self._gate.outages or None,
            "longest wait": {"value": max((max(0.0, now - left) for left in flying.values()), default=None), "unit": "s"},
        }
        stage = "waiting for the server" if self._gate.away else "asking"
        if stage != self._stage:
            self._enter(stage, self._done)
        self._teller.progress(self._done, self._total, counters)


def by_us(settings: Mapping[str, Any], prompts: Prompts, teller: Teller) -> Dict[str, Any]:
    """Ask for the answers ourselves."""
    return asyncio.run(Run(settings, prompts, teller).go())


def by_speculators(settings: Mapping[str, Any], prompts: Prompts, teller: Teller) -> Dict[str, Any]:
    """Have speculators ask for them."""
    run = Regeneration(settings, prompts, wanted(settings, prompts), teller)
    teller.stage("waiting for the server")
    model = asyncio.run(run.server())
    held = take_output(settings, prompts, model)
    try:
        return run.go(model, held)
    finally:
        os.close(held)


def wanted(settings: Mapping[str, Any], prompts: Prompts) -> int:
    """How many prompts are to be answered, from the first on."""
    limit = settings.get("limit")
    return min(len(prompts), limit) if limit else len(prompts)


def take_output(settings: Mapping[str, Any], prompts: Prompts, model: str) -> int:
    """Make the output directory this run's. Returns the descriptor that holds it. Raises `Stop`."""
    output = settings["output"]
    try:
        claim(output, "synthesise", about(settings, prompts, model), "eagletui")
        return hold(output)
    except (NotOurs, Held) as error:
        raise Stop(str(error), 2) from None


def main(argv: List[str]) -> int:
    """Run it. Returns the exit status: 0 all prompts are accounted for, 1 it cannot go on, 2 settings or prompts are wrong."""
    settings = json.loads(argv[0])
    teller = Teller("prompts")
    try:
        prompts = read_prompts(settings, teller)
        made = (
            by_speculators(settings, prompts, teller) if settings["tool"] == "speculators" else by_us(settings, prompts, teller)
        )
        made["why"] = words(made)
        write_json(os.path.join(settings["output"], SUMMARY), made)
        teller.result(**made)
        return 0
    except Stop as error:
        why, code = str(error), error.code
    except Unusable as error:
        why, code = str(error), 1
    except OSError as error:
        why, code = "%s: %s" % (error.filename or settings["output"], error.strerror or error), 1
    log(why)
    teller.result(why=why)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
