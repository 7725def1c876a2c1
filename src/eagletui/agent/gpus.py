"""The ``gpus`` stream: asks the NVML child on a schedule, survives its hangs and crashes, and publishes the board.

The child (`nvml.py` in a `Worker`) holds NVML. This side decides what is asked when, names what hangs, leaves a hung card out
while the others go on, and starts a new child when one has died. What is published for a card is the last answer of each group.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from eagletui.agent import nvml
from eagletui.agent.gpu_procs import GpuProcesses
from eagletui.agent.gpu_trouble import crash_text, failure_text, hang_text
from eagletui.agent.hello import has_nvml
from eagletui.agent.loop import Timer, boot_now
from eagletui.agent.source import Context, Source
from eagletui.agent.ticker import Ticker
from eagletui.agent.worker import Worker, hanging


class Timing(NamedTuple):
    """Seconds. ``opening`` is long: without persistence mode the driver takes up to 30 s to start eight cards."""

    answer: float = 5.0  # a sample that is not answered by then hangs
    probe: float = 2.0  # the same for a card that has hung before
    opening: float = 60.0
    late: float = 2.0  # without an answer for so long, the data counts as old
    retry: Tuple[float, ...] = (0.2, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)  # before a new child
    leave_out: float = 30.0  # a hung card; doubled each time it hangs again
    leave_out_most: float = 600.0
    lost: float = 10.0  # between questions to a card that says it is lost
    library: float = 60.0  # between looks for a driver
    module: float = 15.0  # until pynvml is asked for again
    recount: float = 10.0


# How often each group is asked of a card; "fast" goes with every sample, "traffic" too while somebody looks at it. Chosen by what
# the calls cost on a data-centre card: fast 0.27 ms, throttle 0.1, link 0.3, traffic 0.9, margin 1.5, energy 3.5.
PERIODS = {
    "throttle": 2.0,
    "processes": 3.0,
    "link": 5.0,
    "cooling": 5.0,
    "traffic": 5.0,
    "margin": 10.0,
    "caps": 30.0,
    "health": 60.0,
    "energy": 120.0,
}
# The dear ones wait, so that the first picture comes at once: what may be an alert until the second sample, the others in turn.
_SECOND_SAMPLE = ("health",)
_IN_TURN = ("energy", "cooling")


class _Card:
    """What is known of one card: the last fields of each group, and when each is due again."""

    def __init__(self, uuid: str, number: int) -> None:
        self.uuid, self.number = uuid, number
        self.groups: Dict[str, Dict[str, Any]] = {}
        self.due: Dict[str, float] = {}
        self.lost: Optional[str] = None
        self.out_until: Optional[float] = None  # left out until then
        self.strikes = 0

    def doc(self) -> Dict[str, Any]:
        out: Dict[str, Any] = {"uuid": self.uuid, "number": self.number}
        for fields in self.groups.values():
            out.update(fields)
        if self.lost is not None:
            out["lost"] = self.lost
        return out


class GpuSource(Source):
    """The stream's parameter ``traffic`` (bool): PCIe traffic at every sample, by the slow call where there are no counters."""

    name = "gpus"
    timing = Timing()

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._interval, self._traffic = 1.0, False
        self._source: Optional[bytes] = None
        self._worker: Optional[Worker] = None
        self._ticker = Ticker(context.loop, self._tick)
        self._retry: Optional[Timer] = None
        self._running = self._ready = False
        self._failures = 0
        self._just_probed = self._killed = False
        self._trouble: Optional[str] = None
        self._hung: Optional[str] = None
        self._present = True
        self._driver: Optional[str] = None
        self._cuda: Optional[str] = None
        self._count = 0
        self._count_due = 0.0
        self._cards: Dict[int, _Card] = {}
        self._seen: Dict[str, _Card] = {}
        self._good: Optional[float] = None
        self._slow_call: Dict[int, bool] = {}
        self._slow_turn = 0
        self._processes = GpuProcesses()

    # ------------------------------------------------------------------------------------------------ the stream

    def start(self, interval: float, params: Dict[str, Any]) -> None:
        self._interval, self._traffic = max(0.1, interval), params.get("traffic") is True
        if not self._running:
            self._running, self._failures, self._trouble = True, 0, None
            self._begin()
        self._ticker.start(self._interval, 0.0 if self._ready else self._interval)

    def stop(self) -> None:
        self._running = self._ready = False
        self._ticker.stop()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def provided(self, module: str, source: bytes) -> None:
        if module == "pynvml":
            self._source = source
            if self._running and self._worker is None:
                self._begin()

    def _begin(self) -> None:
        """Find the library, get pynvml, start a child: whichever of them is missing now."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if not self._running or self._worker is not None:
            return
        if not has_nvml():
            self._present = False
            self._trouble = "no NVIDIA driver (libnvidia-ml.so.1 not found)"
            self._publish()
            self._retry = self.context.loop.call_later(self.timing.library, self._begin)
            return
        self._present = True
        if hanging(self.name):
            self._trouble = "an NVML call of an earlier watch still hangs inside the driver; no second one is started"
            self._publish()
            self._again(self.timing.retry[-1])
            return
        if self._source is None:
            self.context.need("pynvml")
            self._retry = self.context.loop.call_later(self.timing.module, self._no_module)
            return
        self._hung = None
        self._worker = Worker(self.context.loop, self.name, nvml.make_asker(self._source), self._gone)
        without = [card.number for card in self._cards.values() if card.out_until is not None]
        self._ask({"do": "open", "without": without}, self._opened, self.timing.opening)

    def _no_module(self) -> None:
        self._trouble = "NVML is not read yet: still waiting for pynvml, which the client sends"
        self._publish()
        self._begin()

    def _ask(self, question: Dict[str, Any], got: Any, seconds: float) -> None:
        if self._worker is not None:
            self._worker.ask(question, got, seconds, self._overdue)

    # ------------------------------------------------------------------------------------------------ answers

    def _opened(self, answer: Dict[str, Any]) -> None:
        if self._has_failed(answer):
            return
        loop_now = self.context.loop.now()
        self._driver, self._cuda = answer.get("driver"), answer.get("cuda")
        before, self._cards = self._cards, {}
        if answer["count"] != self._count:
            self._slow_call.clear()
            before = {}  # the numbers have moved: which card hung is not known any more
        self._count, self._count_due = answer["count"], loop_now + self.timing.recount
        for number in range(self._count):
            groups = answer["cards"].get(str(number))
            old = before.get(number)
            if groups is not None:
                self._take(number, groups, old)
            elif old is not None:
                self._cards[number] = old
            else:
                self._card("GPU-unknown-%d" % number, number).out_until = loop_now
        self._ready, self._trouble = True, None
        self._sample()

    def _card(self, uuid: str, number: int) -> _Card:
        card = self._seen.get(uuid) or _Card(uuid, number)
        if not uuid.startswith("GPU-unknown-"):
            self._seen[uuid] = card
        card.number = number
        self._cards[number] = card
        return card

    def _take(self, number: int, groups: Dict[str, Any], old: Optional[_Card]) -> None:
        """A card that was opened: its static fields, or why it could not be."""
        static = groups.get("static")
        if static is None:
            uuid = old.uuid if old is not None else "GPU-unknown-%d" % number
            words = groups.get("lost", {}).get("lost", "no answer")
            self._lose(self._card(uuid, number), words)
            self._cards[number].out_until = self.context.loop.now() + self.timing.lost
            return
        card = self._card(static.pop("uuid"), number)
        card.lost = card.out_until = None
        card.due.clear()
        card.groups["static"] = static

    def _sampled(self, answer: Dict[str, Any]) -> None:
        if self._has_failed(answer):
            return
        for key, groups in answer.get("cards", {}).items():
            card = self._cards.get(int(key))
            if card is not None:
                self._store(card, groups)
        self._good = boot_now()
        self._failures = 0
        self._hung = None
        self._publish()
        if answer.get("count", self._count) != self._count:
            self._restart(0.0)  # a card has gone, or come: NVML is told only at its start
        else:
            self._ask_slow_traffic()

    def _store(self, card: _Card, groups: Dict[str, Any]) -> None:
        for group, fields in groups.items():
            words = fields.pop("lost", None)
            if words is not None:
                self._lose(card, words)
                return
            if group == "traffic":
                if fields.pop("no_counters", False):
                    self._slow_call.setdefault(card.number, True)
                    continue
                if fields.pop("no_throughput", False):
                    self._slow_call[card.number] = False
                if not fields and group in card.groups:
                    continue  # the first reading after a wrap: the last rate stands until the next
            if group == "processes" and "processes" in fields:
                fields = {"processes": self._processes.describe(fields["processes"])}
            card.groups[group] = fields
        card.lost = None

    def _lose(self, card: _Card, words: str) -> None:
        """NVML says that the card does not answer: nothing but its name is known of it now."""
        card.lost = words
        card.groups = {"static": card.groups.get("static", {})}
        card.due = {"lost": self.context.loop.now() + self.timing.lost}

    def _has_failed(self, answer: Dict[str, Any]) -> bool:
        """Handle an answer that says NVML as a whole does not work, and tell the log what pynvml could not do."""
        for call, text in answer.get("odd", {}).items():
            self.context.log("%s: %s" % (call, text))
        failed = answer.get("failed")
        if failed is None:
            return False
        if failed["code"] == 12:
            self._present = False
        self._trouble = failure_text(failed["code"], failed["text"], failed["call"])
        self._publish()
        self._restart(self._pause())
        return True

    # ------------------------------------------------------------------------------------------------ asking

    def _tick(self) -> None:
        worker = self._worker
        if worker is None:
            if self._trouble is not None or self._hung is not None:
                self._publish()
        elif worker.stuck or worker.busy:
            if worker.busy and worker.waited() > self.timing.late:
                number, call = worker.cell.read()
                self._hung = hang_text(number, call, worker.waited())
            if self._hung is not None:
                self._publish()
        elif self._ready:
            self._sample()

    def _sample(self) -> None:
        """Ask for the next sample, or try a card again that was left out."""
        now = self.context.loop.now()
        due = [card.number for card in self._cards.values() if card.out_until is not None and card.out_until <= now]
        if due and not self._just_probed:
            self._just_probed = True
            self._ask({"do": "add", "numbers": due[:1]}, self._probed, self.timing.probe)
            return
        self._just_probed = False
        cards: List[Tuple[int, List[str]]] = []
        for card in self._cards.values():
            groups = self._due(card, now)
            if groups:
                cards.append((card.number, groups))
        count = now >= self._count_due
        if count:
            self._count_due = now + self.timing.recount
        self._ask({"do": "sample", "cards": cards, "count": count}, self._sampled, self.timing.answer)

    def _due(self, card: _Card, now: float) -> List[str]:
        if card.out_until is not None:
            return []
        if card.lost is not None:
            if now < card.due.get("lost", 0.0):
                return []
            card.due["lost"] = now + self.timing.lost
            return ["fast"]
        groups = ["fast"]
        for group, period in PERIODS.items():
            every = 0.0 if group == "traffic" and self._traffic else period
            due = card.due.get(group)
            if due is None and group in _SECOND_SAMPLE + _IN_TURN:
                card.due[group] = now + self._interval * (0.5 + (card.number % 4 if group in _IN_TURN else 0))
            elif due is None or now + 0.4 * self._interval >= due:
                # the first turn is cut short by a different part for each card, so that they take turns from then on
                card.due[group] = now + every * (1.0 if group in card.groups else 0.5 + card.number % 8 / 8.0)
                groups.append(group)
        if not self._traffic and card.number in self._slow_call:
            card.groups.pop("traffic", None)
        return groups

    def _ask_slow_traffic(self) -> None:
        """Where a card has no byte counters: the call that takes 40 ms, one card per sample, while somebody looks."""
        numbers = [n for n, works in self._slow_call.items() if works and n in self._cards and self._cards[n].lost is None]
        if self._traffic and numbers:
            self._slow_turn += 1
            number = numbers[self._slow_turn % len(numbers)]
            self._ask({"do": "throughput", "numbers": [number]}, self._measured, self.timing.answer)

    def _measured(self, answer: Dict[str, Any]) -> None:
        if not self._has_failed(answer):
            for key, groups in answer.get("cards", {}).items():
                if int(key) in self._cards:
                    self._store(self._cards[int(key)], groups)

    def _probed(self, answer: Dict[str, Any]) -> None:
        if self._has_failed(answer):
            return
        for key, groups in answer.get("cards", {}).items():
            self._take(int(key), groups, self._cards.get(int(key)))
        self._sample()

    # ------------------------------------------------------------------------------------------------ trouble

    def _overdue(self) -> None:
        """No answer in time; the child has just been killed. The card it hung on is left out of the next one."""
        if self._worker is None:
            return
        number, call = self._worker.cell.read()
        self._hung = hang_text(number, call, self._worker.waited())
        self._blame(number, "%s did not answer" % call)
        self._ready, self._killed = False, True
        self._publish()

    def _blame(self, number: int, text: str) -> None:
        if number >= 0:
            self._leave_out(self._cards.get(number) or self._card("GPU-unknown-%d" % number, number), text)

    def _leave_out(self, card: _Card, text: str) -> None:
        pause = min(self.timing.leave_out * 2**card.strikes, self.timing.leave_out_most)
        card.strikes += 1
        card.out_until = self.context.loop.now() + pause
        card.lost = "%s; left out, tried again after %.0f s" % (text, pause)

    def _gone(self, why: str) -> None:
        """The child has ended and is reaped."""
        worker, self._worker = self._worker, None
        self._ready = False
        if not self._running:
            return
        killed, self._killed = self._killed, False
        if worker is not None and not killed:
            self._hung = None  # it was slow, and then it ended: the end is what counts
            number, call = worker.cell.read()
            self._trouble = crash_text(why, number)
            if worker.crashed:
                self._blame(number, "%s crashed" % (call or "NVML"))
            self._publish()
        self._again(self._pause())

    def _pause(self) -> float:
        pause = self.timing.retry[min(self._failures, len(self.timing.retry) - 1)]
        self._failures += 1
        return pause

    def _restart(self, pause: float) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        self._ready = False
        self._again(pause)

    def _again(self, pause: float) -> None:
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self.context.loop.call_later(pause, self._begin)

    # ------------------------------------------------------------------------------------------------ the document

    def _publish(self) -> None:
        boot = boot_now()
        doc: Dict[str, Any] = {"boot": round(boot, 3), "present": self._present}
        if self._driver is not None:
            doc["driver"] = self._driver
        if self._cuda is not None:
            doc["cuda"] = self._cuda
        problem = self._trouble or self._hung or self._missing()
        if problem is not None:
            doc["problem"] = problem
        if (self._trouble or self._hung) and self._present:
            doc["stale_since"] = round(boot if self._good is None else self._good, 3)
        if self._seen:
            doc["expected"] = len(self._seen)
        doc["cards"] = {card.uuid: card.doc() for card in self._cards.values()}
        self.context.publish(doc)

    def _missing(self) -> Optional[str]:
        here = {card.uuid for card in self._cards.values()}
        missing = [card for uuid, card in self._seen.items() if uuid not in here]
        if missing:
            names = ", ".join("%s (was card %d)" % (card.uuid, card.number) for card in missing)
            return "%d of %d cards answer; gone: %s" % (len(here), len(self._seen), names)
        if self._ready and not self._cards:
            return "the NVIDIA driver answers, but shows no cards here"
        return None
