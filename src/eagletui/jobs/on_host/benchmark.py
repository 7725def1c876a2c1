"""One arm of a benchmark, measured at a running server: ``PYTHON -m eagletui.jobs.on_host.benchmark SETTINGS``.

SETTINGS is a JSON object, the keys of the kind (see `eagletui.jobs.benchmark`). OUTPUT gets ``passes/`` (each pass's own result
and the tool's), ``result.json`` (a `BenchResult`) and ``texts/`` (the answers). Passes go round all cells before a second one of
the same cell, so that a drift of the machine meets them all. Killed and started again, it keeps the passes that are whole.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib import import_module
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from eagletui.jobs.bench.cells import pooled
from eagletui.jobs.bench.passes import Run, details_counts, from_own, with_counters, with_drafts, with_queue
from eagletui.jobs.on_host import bench_server, bench_tools, load_client, prompt_sets
from eagletui.jobs.on_host.hold import Held, hold
from eagletui.jobs.on_host.prompt_sets import BadSet, PromptSet
from eagletui.jobs.on_host.stopping import Stop
from eagletui.jobs.on_host.telling import Teller
from eagletui.jobs.outputs import NotOurs, claim
from eagletui.records import ServerSample, from_doc, to_doc
from eagletui.records.bench import BenchCell, BenchPass, BenchResult, BenchServer, BenchSettings

A_REQUEST = 4
"""Prompts for each request under way, at least: with fewer the load is not reached for long enough."""
LOOK = 5.0
SETTLE = 20
"""How often a server is looked at that still runs something, a quarter of a second apart."""
MAX_WARM = 64


class Place(NamedTuple):
    """One cell to be measured: a set of prompts at a concurrency, ``asked`` of them."""

    set: PromptSet
    concurrency: int
    asked: int

    @property
    def name(self) -> str:
        return "%s-c%d" % (self.set.name.replace(" ", "-"), self.concurrency)


class Arm:
    """The measurement of one arm."""

    def __init__(self, settings: Mapping[str, Any], teller: Teller) -> None:
        self.settings, self.teller = settings, teller
        self.output: str = settings["output"]
        name = settings.get("api_key_env")
        self.key = os.environ.get(name) if name else None
        if name and not self.key:
            raise Stop("%s, which should hold the server's key, is not set: name it in secrets" % name, 2)
        self.server = bench_server.Server(settings.get("host") or "127.0.0.1", settings["port"], self.key)
        self.engine: str = settings["engine"]
        self.notes: List[str] = []
        self.places: List[Place] = []
        self.tool: Optional[bench_tools.Tool] = None
        self.flushed: Optional[bool] = None

    # ---------------------------------------------------------------------------------------------------------- before

    def prepare(self) -> None:
        """Find the server and the tool, make the prompt sets. Raises `Stop`."""
        self.teller.stage("looking at the server")
        self.served, self.longest = self.server.model()
        if self.served is None:
            raise Stop("nothing that serves a model answers on port %d" % self.server.port)
        if self.settings.get("served_model"):
            self.served = self.settings["served_model"]
        process = bench_server.listener(self.server.port)
        launch = self.settings.get("launch") or {}
        argv = process.argv if process is not None else tuple(launch.get("argv") or ())
        self.facts = BenchServer(
            self.engine,
            self.settings["model"],
            self.server.port,
            self.served,
            self.settings.get("drafter"),
            self.settings.get("k"),
            self.settings.get("role"),
            self.server.version(self.engine),
            tuple(argv),
            process.environment if process is not None else launch.get("env"),
            bench_server.template_hash(self.settings["model"], tuple(argv)),
            synthetic_length=self.settings.get("synthetic_length"),
            max_model_len=self.longest,
            origin=bench_server.origin(self.settings.get("drafter")),
        )
        self._choose_tool()
        self._make_sets()

    def _choose_tool(self) -> None:
        if self.settings["tool"] == "own":
            return
        self.tool, why = bench_tools.find(self.engine)
        if self.tool is None:
            self._note("measured by eagletui's own client: %s" % why)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.teller.note(text)

    def _make_sets(self) -> None:
        self.teller.stage("making the prompt sets")
        settings = self.settings
        folder = settings.get("sets") or os.path.join(self.output, "sets")
        largest = max(settings["concurrency"])
        count = max(settings["count"], A_REQUEST * largest)
        spare = min(MAX_WARM, max(2, settings.get("warmups") or largest))
        wanted: List[Tuple[int, Optional[str]]] = [(context, None) for context in settings["contexts"]]
        wanted += [(0, path) for path in settings.get("context_files") or ()]
        for context, given in wanted:
            if self.longest and context + settings["max_tokens"] > self.longest:
                what = "prompts of %d tokens and answers of %d do not fit into the server's context of %d"
                raise Stop(what % (context, settings["max_tokens"], self.longest), 2)
            made = prompt_sets.make(folder, settings["prompts"], context, count, spare, settings["seed"], self._counter(), given)
            if made.note:
                self._note(made.note)
            for concurrency in settings["concurrency"]:
                asked = min(len(made.rows), max(settings["count"], A_REQUEST * concurrency))
                self.places.append(Place(made, concurrency, asked))
            if not made.simple and self.tool is not None and self.engine == "vllm":
                self._note("measured by eagletui's own client: vLLM's tool can send no system message, and prompts have one")
                self.tool = None

    def _counter(self) -> Optional[prompt_sets.Count]:
        served = self.served or ""
        if self.server.count("one", served) is not None:

            def count(text: str) -> int:
                found = self.server.count(text, served)
                if found is None:
                    raise BadSet("the server stopped counting tokens")
                return found

            return count
        try:
            transformers = import_module("transformers")  # the engine brings it along
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                self.settings["model"], trust_remote_code=self.settings["trust_remote_code"]
            )
        except Exception as error:  # noqa: BLE001 - whatever a tokenizer's own code raises: without it nothing counts
            self._note("nothing counts tokens here (%s): context lengths cannot be made" % error)
            return None
        return lambda text: len(tokenizer.encode(text))

    # --------------------------------------------------------------------------------------------------------- measuring

    def measure(self) -> BenchResult:
        """All passes that are missing, then the result."""
        begun = time.time()
        before, cards = bench_server.machine(), bench_server.cards()
        folder = os.path.join(self.output, "passes")
        for name in ("passes", "texts"):
            os.makedirs(os.path.join(self.output, name), exist_ok=True)
        passes: Dict[str, List[BenchPass]] = {place.name: [] for place in self.places}
        kept = 0
        total = self.settings["passes"] * sum(place.asked for place in self.places)
        done = 0
        self.teller.stage("measuring", "requests", total, done)
        for number in range(1, self.settings["passes"] + 1):
            for place in self.places:
                path = os.path.join(folder, "%s-p%d.pass.json" % (place.name, number))
                found = _kept(path)
                if found is not None:
                    kept += 1
                else:
                    words = "%s, pass %d of %d" % (place.name, number, self.settings["passes"])
                    self.teller.stage("measuring %s" % words, "requests", total, done)
                    found = self._pass(place, number, folder, done)
                    _write(path, found)
                    for problem in found.problems:
                        self.teller.note("%s: left out: %s" % (words, problem))
                passes[place.name].append(found)
                done += place.asked
                self.teller.progress(done, total, _counters(passes))
        if 0 < kept < self.settings["passes"] * len(self.places):
            self._note("%d of the passes are of an earlier run: it was interrupted, and went on here" % kept)
        machine = dict(before, load_after=bench_server.machine()["load"])
        found_cards = [dict(card, **_after(card, bench_server.cards())) for card in cards]
        cells = [self._cell(place, passes[place.name]) for place in self.places]
        result = BenchResult(
            self.settings["arm"],
            self.facts._replace(prefix_cache=self._cache_word(passes)),
            self._settings(),
            tuple(cells),
            begun,
            time.time() - begun,
            bench_server.versions(),
            machine,
            tuple(found_cards),
            tuple(self.notes),
            os.path.join(self.output, "result.json"),
        )
        return result

    def _settings(self) -> BenchSettings:
        settings = self.settings
        return BenchSettings(
            settings["max_tokens"],
            float(settings["temperature"]),
            settings["seed"],
            settings["ignore_eos"],
            settings["prompts"],
            prompt_sets.file_hash(settings["prompts"]),
            settings.get("warmups"),
        )

    def _cell(self, place: Place, passes: List[BenchPass]) -> BenchCell:
        cell = BenchCell(place.concurrency, place.set.name, None, place.asked, place.set.first(place.asked), tuple(passes))
        return pooled(cell)

    def _pass(self, place: Place, number: int, folder: str, done: int) -> BenchPass:
        settings = self.settings
        self._warm(place)
        self._settle()
        if settings["flush"]:
            self.flushed = self.server.flush(self.engine)
        run = Run(place.asked, place.concurrency, settings["max_tokens"], bool(settings.get("drafter")), settings.get("k"))
        name = "%s-p%d" % (place.name, number)
        wall = time.time()
        before = self.server.sample()
        watch = _Progress(self.server, before, self.teller, done, place.asked)
        try:
            found, file, details = self._tool_pass(place, run, folder, name)
        finally:
            queued = watch.end()
        found = with_queue(found, run, queued)
        found = with_counters(found, run, before, self.server.sample())
        found = self._with_details(found, place, run, number, details)
        self._keep_texts(found, file, name)
        return with_drafts(found, run)._replace(number=number, block=settings.get("block") or "", wall=wall, file=file)

    def _settle(self) -> None:
        """Wait until the server runs nothing, as far as it tells: the last of the warm-up may not have left yet."""
        for _ in range(SETTLE):
            sample = self.server.sample()
            if sample is None or not sample.running:
                return
            time.sleep(0.25)

    def _tool_pass(self, place: Place, run: Run, folder: str, name: str) -> Tuple[BenchPass, str, List[Mapping[str, Any]]]:
        settings = self.settings
        if self.tool is not None:
            load = bench_tools.Load(
                place.set, place.asked, place.concurrency, settings["max_tokens"], float(settings["temperature"]),
                settings["seed"], settings["ignore_eos"], self.served or "", settings["model"], settings["trust_remote_code"],
            )  # fmt: skip
            try:
                found, file = bench_tools.run(self.tool, load, self.server, folder, name, self.key)
                return found, file, []
            except bench_tools.Unusable as error:
                self._note("measured by eagletui's own client: %s" % error)
                self.tool = None
        doc = load_client.run(self._ask(self.engine == "sglang"), place.set.rows[: place.asked], place.concurrency)
        file = os.path.join(folder, name + ".json")
        with open(file, "w", encoding="utf-8", errors="surrogatepass") as out:
            json.dump(doc, out)
        return from_own(doc, run), file, [one for one in doc["spec_details"] if one]

    def _ask(self, details: bool) -> load_client.Ask:
        settings = self.settings
        return load_client.Ask(
            self.server.host, self.server.port, self.served or "", settings["max_tokens"], float(settings["temperature"]),
            settings["seed"], settings["ignore_eos"], details, self.key,
        )  # fmt: skip

    def _warm(self, place: Place) -> None:
        """Requests whose result is thrown away, with prompts that are not measured; at least as many as will be under way."""
        count = max(self.settings.get("warmups") or 0, place.concurrency)
        rows = [place.set.warm[at % len(place.set.warm)] for at in range(count)]
        ask = self._ask(False)
        ask = ask._replace(max_tokens=min(ask.max_tokens, 64))
        doc = load_client.run(ask, rows, place.concurrency)
        if doc["failed"] == len(rows):
            raise Stop("the server answers no request: %s" % next(error for error in doc["errors"] if error))

    def _with_details(self, found: BenchPass, place: Place, run: Run, number: int, details: List[Mapping[str, Any]]) -> BenchPass:
        """SGLang: counts of drafts from the details of each request, from a pass of our own client where the tool has none."""
        if self.engine != "sglang" or not run.drafter or found.problems:
            return found
        if not details and (number == 1 or found.spec is None):
            doc = load_client.run(self._ask(True), place.set.rows[: place.asked], place.concurrency)
            details = [one for one in doc["spec_details"] if one]
            if len(details) < place.asked:
                return found._replace(notes=(*found.notes, "%d of %d answers told their drafts" % (len(details), place.asked)))
        counts = details_counts(details, run.k)
        return found if counts is None else found._replace(spec=counts)

    def _keep_texts(self, found: BenchPass, file: str, name: str) -> None:
        """The answers as text, one JSON object a line: hashes are in the result."""
        doc = bench_tools.read(file)
        texts = (doc or {}).get("generated_texts")
        if found.problems or not isinstance(texts, list):
            return
        path = os.path.join(self.output, "texts", name + ".jsonl")
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as out:
            for text in texts:
                out.write(json.dumps({"answer": text}, ensure_ascii=False) + "\n")

    def _cache_word(self, passes: Mapping[str, List[BenchPass]]) -> Optional[str]:
        """How it was with the prefix cache, as far as the server tells; None where neither its command nor its counters do."""
        hits = [one.prefix_hits for found in passes.values() for one in found if one.prefix_hits is not None]
        words = set(self.facts.argv)
        off = {"--no-enable-prefix-caching", "--disable-radix-cache"} & words
        if off:
            return "off"
        if self.flushed:
            return "flushed"
        if hits and max(hits) > 0:
            self._note("the prefix cache is on and cannot be emptied: passes after the first find their prompts in it")
        return "on" if words or hits else None


class _Progress:
    """Tells how many requests of a pass are done while its tool runs, by the server's own count, and looks how many it runs."""

    def __init__(
        self, server: bench_server.Server, before: Optional[ServerSample], teller: Teller, done: int, asked: int
    ) -> None:
        self._stop = threading.Event()
        self._args = (server, before, teller, done, asked)
        self._queue: List[Tuple[float, float]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        if before is not None and before.finished is not None:
            self._thread.start()

    def _run(self) -> None:
        server, before, teller, done, asked = self._args
        start = before.finished if before is not None and before.finished is not None else 0.0
        while not self._stop.wait(LOOK):
            sample = server.sample()
            if sample is not None and sample.finished is not None:
                teller.progress(done + min(float(asked), max(0.0, sample.finished - start)))
                if sample.running is not None and sample.waiting is not None:
                    self._queue.append((sample.running, sample.waiting))

    def end(self) -> List[Tuple[float, float]]:
        """Stop; what was seen: (requests that ran, requests that waited in the server) every `LOOK` seconds."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        return self._queue


def _counters(passes: Mapping[str, List[BenchPass]]) -> Dict[str, Any]:
    every = [one for found in passes.values() for one in found]
    left_out = sum(1 for one in every if one.problems)
    out: Dict[str, Any] = {"passes": len(every), "left out": {"value": left_out, "bad": True}}
    if every and every[-1].tokens_per_s:
        out["last pass"] = {"value": every[-1].tokens_per_s, "unit": "tok/s"}
    return out


def _after(card: Mapping[str, str], later: List[Dict[str, str]]) -> Dict[str, str]:
    """What of a card moves, after the measurement."""
    same = next((one for one in later if one.get("uuid") == card.get("uuid")), None)
    names = ("clocks.sm", "temperature.gpu", "power.draw", "pstate")
    return {name + ".after": same[name] for name in names if name in same} if same else {}


def _kept(path: str) -> Optional[BenchPass]:
    """A pass that an earlier run finished; None when there is none, or none that can be read: it is measured again then."""
    try:
        with open(path, encoding="utf-8") as file:
            found = from_doc(BenchPass, json.load(file))
    except (FileNotFoundError, ValueError):  # files are whole or not there: what is no pass is of another version
        return None
    return None if found.problems else found  # one that failed is measured again


def _write(path: str, record: Any) -> None:
    temp = path + ".new"
    with open(temp, "w", encoding="utf-8", errors="surrogatepass") as file:
        json.dump(to_doc(record), file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temp, path)


def about(settings: Mapping[str, Any]) -> Dict[str, Any]:
    """What the result follows from: another of these is another output."""
    names = (
        "arm", "engine", "model", "drafter", "k", "contexts", "context_files", "concurrency", "passes", "count", "max_tokens",
        "temperature", "seed", "ignore_eos", "synthetic_length", "block", "tool", "launch",
    )  # fmt: skip
    out = {name: settings.get(name) for name in names}
    out["prompts"] = prompt_sets.file_hash(settings["prompts"])
    return out


def shortened(result: BenchResult) -> Dict[str, Any]:
    """The result without the single requests and commands, for the job's own record."""
    cells = tuple(
        cell._replace(passes=tuple(one._replace(requests=None, command=()) for one in cell.passes)) for cell in result.cells
    )
    return to_doc(result._replace(cells=cells))


def main(argv: List[str]) -> int:
    """Exit status: 0 measured (the counts say what), 1 failed, 2 settings that cannot be used."""
    settings = json.loads(argv[0])
    teller = Teller("requests")
    try:
        again = claim(settings["output"], "benchmark", about(settings), settings.get("arm"))
        held = hold(settings["output"])
        if again:
            teller.note("goes on with the passes that are there")
        arm = Arm(settings, teller)
        arm.prepare()
        result = arm.measure()
        _write(os.path.join(settings["output"], "result.json"), result)
        os.close(held)
    except (Stop, BadSet, NotOurs, Held, OSError) as error:
        teller.result(why=str(error))
        print(error, flush=True)  # noqa: T201 - the last line of the log says why
        return getattr(error, "code", 1)
    good = sum(1 for cell in result.cells if cell.good)
    passes = sum(len(cell.passes) for cell in result.cells)
    left = passes - sum(cell.good for cell in result.cells)
    why = "%d of %d cells measured, %d passes%s" % (
        good, len(result.cells), passes, ", %d of them left out" % left if left else "",
    )  # fmt: skip
    teller.result(why=why, good=good, bad=len(result.cells) - good, left_out=left, **shortened(result))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
