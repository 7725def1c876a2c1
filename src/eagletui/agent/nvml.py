"""What is asked of NVML, and how its answers become fields of `GpuSample`. Runs in a `Worker`'s child: a call may hang or crash.

Questions come in groups; the agent says which group for which card (`gpus.py` has the schedule). A call that a card does not
support is remembered and never asked again. The cost of the calls decided the groups: most take 0.04-0.1 ms, the
byte counters of PCIe 0.9 ms, the margin 1.5 ms, total energy 3.5 ms, PCIe throughput 21 ms per direction.
"""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from eagletui.agent.rounding import mebibytes, significant, watts
from eagletui.agent.worker import Answer, Cell

Fields = Dict[str, Any]

# NVML's error codes that mean more than "not now"
NOT_SUPPORTED = frozenset((2, 3, 4, 13, 22, 25, 26))  # argument, not supported, no permission, no such function, version ...
LOST = frozenset((15, 16, 28))  # fallen off the bus, reset required, not found
BROKEN = frozenset((1, 9, 18))  # uninitialised, driver not loaded, driver and library differ: nothing works any more

THROTTLE = (  # the bits of nvmlDeviceGetCurrentClocksEventReasons; bit 0, idle, is not a throttle
    (0x002, "application clocks"),
    (0x004, "SW power cap"),
    (0x040, "HW thermal"),
    (0x080, "HW power brake"),
    (0x008, "HW slowdown"),
    (0x010, "sync boost"),
    (0x020, "SW thermal"),
    (0x100, "display clocks"),
)
RECOVERY = (  # NVML_GPU_RECOVERY_ACTION_*
    "none",
    "reset the GPU",
    "reboot the node",
    "drain P2P",
    "drain and reset",
    "recover the IMEX domain",
    "reset the bus",
    "reboot the system",
)

FI_MEMORY_TEMP, FI_PCIE_TX, FI_PCIE_RX, FI_RECOVERY = 82, 197, 198, 230


class Question(NamedTuple):
    """One NVML call, what its answer means, and what to ask instead where the driver has no such call."""

    call: str
    args: Tuple[Any, ...]
    read: Callable[[Any], Fields]
    instead: Any = None


def throttle_names(bits: int) -> List[str]:
    """The active reasons by name. "HW slowdown" only says that one of the hardware reasons is active: left out beside one."""
    names = [name for bit, name in THROTTLE if bits & bit]
    if bits & 0x0C0 and "HW slowdown" in names:
        names.remove("HW slowdown")
    unknown = bits & ~0x1FF
    return names + (["reason 0x%x" % unknown] if unknown else [])


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _memory(info: Any) -> Fields:
    out = {"mem_used": mebibytes(info.used), "mem_total": info.total}
    if hasattr(info, "reserved"):
        out["mem_reserved"] = mebibytes(info.reserved)
    return out


def _field_values(values: Any) -> List[Optional[float]]:
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal")
    return [getattr(v.value, names[v.valueType]) if v.nvmlReturn == 0 and 0 <= v.valueType < len(names) else None for v in values]


def _first(name: str, convert: Callable[[float], Any]) -> Callable[[Any], Fields]:
    def read(values: Any) -> Fields:
        value = _field_values(values)[0]
        return {} if value is None else {name: convert(value)}

    return read


def _recovery(value: float) -> str:
    number = int(value)
    return RECOVERY[number] if 0 <= number < len(RECOVERY) else "action %d" % number


def _one(name: str, convert: Callable[[Any], Any] = int) -> Callable[[Any], Fields]:
    return lambda value: {name: convert(value)}


GROUPS: Dict[str, Tuple[Question, ...]] = {
    "static": (
        Question("nvmlDeviceGetName", (), _one("name", _text)),
        Question("nvmlDeviceGetPciInfo_v3", (), lambda info: {"bus_id": _text(info.busId)}),
        Question("nvmlDeviceGetMinorNumber", (), _one("minor")),
        Question("nvmlDeviceGetMaxClockInfo", (1,), _one("clock_sm_max")),
        Question("nvmlDeviceGetMaxClockInfo", (2,), _one("clock_mem_max")),
        Question("nvmlDeviceGetMaxPcieLinkGeneration", (), _one("pcie_gen_max")),
        Question("nvmlDeviceGetMaxPcieLinkWidth", (), _one("pcie_width_max")),
        Question("nvmlDeviceGetBAR1MemoryInfo", (), lambda info: {"bar1_total": info.bar1Total}),
        Question(
            "nvmlDeviceGetPowerManagementLimitConstraints", (), lambda v: {"power_min": v[0] / 1000.0, "power_max": v[1] / 1000.0}
        ),
    ),
    "fast": (
        Question("nvmlDeviceGetUtilizationRates", (), lambda u: {"util": float(u.gpu), "mem_util": float(u.memory)}),
        Question("nvmlDeviceGetMemoryInfo", (0x02000028,), _memory, Question("nvmlDeviceGetMemoryInfo", (), _memory)),
        Question("nvmlDeviceGetPowerUsage", (), _one("power", watts)),
        Question("nvmlDeviceGetTemperature", (0,), _one("temp")),
        Question("nvmlDeviceGetClockInfo", (1,), _one("clock_sm")),
        Question("nvmlDeviceGetClockInfo", (2,), _one("clock_mem")),
        Question("nvmlDeviceGetPerformanceState", (), lambda p: {"pstate": p} if p < 32 else {}),
    ),
    "link": (
        Question("nvmlDeviceGetCurrPcieLinkGeneration", (), _one("pcie_gen")),
        Question("nvmlDeviceGetCurrPcieLinkWidth", (), _one("pcie_width")),
    ),
    "throttle": (
        Question(
            "nvmlDeviceGetCurrentClocksEventReasons",
            (),
            _one("throttle", throttle_names),
            Question("nvmlDeviceGetCurrentClocksThrottleReasons", (), _one("throttle", throttle_names)),
        ),
    ),
    "margin": (Question("nvmlDeviceGetMarginTemperature", (), _one("margin")),),
    "cooling": (
        Question("nvmlDeviceGetFieldValues", ((FI_MEMORY_TEMP,),), _first("temp_mem", int)),
        Question("nvmlDeviceGetFanSpeed", (), _one("fan")),
    ),
    "caps": (
        Question(
            "nvmlDeviceGetEnforcedPowerLimit",
            (),
            _one("power_cap", lambda v: v / 1000.0),
            Question("nvmlDeviceGetPowerManagementLimit", (), _one("power_cap", lambda v: v / 1000.0)),
        ),
        Question("nvmlDeviceGetPersistenceMode", (), _one("persistence", bool)),
    ),
    "health": (
        Question("nvmlDeviceGetTotalEccErrors", (0, 0), _one("ecc_corrected")),
        Question("nvmlDeviceGetTotalEccErrors", (1, 0), _one("ecc_uncorrected")),
        Question(
            "nvmlDeviceGetRemappedRows",
            (),
            lambda r: {
                "rows_corrected": r[0],
                "rows_uncorrected": r[1],
                "rows_pending": bool(r[2]),
                "rows_failed": bool(r[3]),
            },
        ),
        Question("nvmlDeviceGetPcieReplayCounter", (), _one("pcie_replays")),
        Question("nvmlDeviceGetFieldValues", ((FI_RECOVERY,),), _first("recovery", _recovery)),
    ),
    "energy": (Question("nvmlDeviceGetTotalEnergyConsumption", (), _one("energy", lambda v: float(v // 1000))),),
}


class Failed(Exception):
    """An NVML call did not give a value; ``code`` is NVML's."""

    def __init__(self, code: int, text: str, call: str) -> None:
        super().__init__(text)
        self.code, self.text, self.call = code, text, call


class Broken(Failed):
    """After this nothing of NVML works any more (`BROKEN`)."""


class Card:
    """A handle and what is known not to work on it."""

    def __init__(self, number: int, handle: Any) -> None:
        self.number, self.handle = number, handle
        self.unsupported: set = set()  # type: ignore[type-arg]
        self.traffic: Optional[Tuple[float, float, float]] = None


class Asker:
    """Answers the agent's questions about the cards, in the child, with pynvml, run from the source text it was given."""

    def __init__(self, cell: Cell, source: bytes) -> None:
        self.cell, self._source = cell, source
        self.nvml: Any = None
        self.cards: Dict[int, Card] = {}
        self.oddities: Dict[str, str] = {}

    def answer(self, question: Dict[str, Any]) -> Dict[str, Any]:
        """The answer; ``{"failed": {"code", "text", "call"}}`` when NVML as a whole does not work (code 0: not NVML's error)."""
        try:
            result = self._dispatch(question)
        except Failed as failure:
            result = {"failed": {"code": failure.code, "text": failure.text, "call": failure.call}}
        except Exception as error:  # noqa: BLE001 - it is told to the user; the agent starts another child
            result = {"failed": {"code": 0, "text": "%s: %s" % (type(error).__name__, error), "call": self.cell.read()[1]}}
        if self.oddities:
            result["odd"], self.oddities = self.oddities, {}
        return result

    def _dispatch(self, question: Dict[str, Any]) -> Dict[str, Any]:
        if question["do"] == "open":
            return self.open(question.get("without", []))
        if question["do"] == "add":
            return {"cards": {str(n): self.add(n, probe=True) for n in question["numbers"]}}
        if question["do"] == "throughput":
            return {
                "cards": {str(n): {"traffic": self.throughput(self.cards[n])} for n in question["numbers"] if n in self.cards}
            }
        return self.sample(question)

    def open(self, without: List[int]) -> Dict[str, Any]:
        """Start NVML and read what never changes. Cards in ``without`` hung lately and are left alone."""
        self.cell.note(-1, "loading pynvml")
        self.nvml = load_pynvml(self._source)
        self._system("nvmlInit")
        result: Dict[str, Any] = {"driver": _text(self._system("nvmlSystemGetDriverVersion")), "cards": {}}
        try:
            cuda = self._system("nvmlSystemGetCudaDriverVersion_v2")
            result["cuda"] = "%d.%d" % (cuda // 1000, cuda % 1000 // 10)
        except Broken:
            raise
        except Failed:
            pass  # drivers before CUDA 9.2 do not tell: the version is then not available
        result["count"] = self._system("nvmlDeviceGetCount")
        for number in range(result["count"]):
            if number not in without:
                result["cards"][str(number)] = self.add(number)
        return result

    def add(self, number: int, probe: bool = False) -> Dict[str, Fields]:
        """Open one card: its static fields (with ``probe`` also the fast ones), or why it does not answer."""
        try:
            handle = self._system("nvmlDeviceGetHandleByIndex", number, number=number)
            card = Card(number, handle)
            uuid = _text(self._system("nvmlDeviceGetUUID", handle, number=number))
        except Broken:
            raise
        except Failed as failure:
            return {"lost": {"lost": failure.text}}
        self.cards[number] = card
        out = {"static": dict(self.ask(card, "static"), uuid=uuid)}
        if probe:
            out["fast"] = self.ask(card, "fast")
        return out

    def sample(self, question: Dict[str, Any]) -> Dict[str, Any]:
        cards: Dict[str, Dict[str, Fields]] = {}
        result: Dict[str, Any] = {"cards": cards}
        for number, groups in question["cards"]:
            card = self.cards.get(number)
            if card is None:
                continue
            out = cards[str(number)] = {}
            for group in groups:
                if group == "processes":
                    out[group] = self.processes(card)
                elif group == "traffic":
                    out[group] = self.traffic(card)
                else:
                    out[group] = self.ask(card, group)
                if "lost" in out[group]:
                    break
        if question.get("count"):
            result["count"] = self._system("nvmlDeviceGetCount")
        return result

    def ask(self, card: Card, group: str) -> Fields:
        """A group's fields; what the card lacks is absent. ``lost`` holds NVML's words when the card no longer answers at all."""
        out: Fields = {}
        worked, words = False, ""
        for question in GROUPS[group]:
            asked: Optional[Question] = question
            while asked is not None and (asked.call, asked.args) in card.unsupported:
                asked = asked.instead
            while asked is not None:
                try:
                    out.update(asked.read(self._card(card, asked.call, *asked.args)))
                    worked = True
                    break
                except Broken:
                    raise
                except Failed as failure:
                    if failure.code in LOST:
                        return {"lost": failure.text}
                    if failure.code not in NOT_SUPPORTED:
                        words = failure.text  # this value is not there this time; nothing is lost but that
                        break
                    worked = True
                    card.unsupported.add((asked.call, asked.args))
                    asked = asked.instead
        if not worked and words and group == "fast":
            return {"lost": words}
        return out

    def traffic(self, card: Card) -> Fields:
        """PCIe bytes per second from the two cumulative counters; ``no_counters`` where the card has none."""
        call = ("nvmlDeviceGetFieldValues", (FI_PCIE_TX, FI_PCIE_RX))
        if call in card.unsupported:
            return {"no_counters": True}
        try:
            tx, rx = _field_values(self._card(card, *call))
        except Broken:
            raise
        except Failed as failure:
            if failure.code in LOST:
                return {"lost": failure.text}
            if failure.code not in NOT_SUPPORTED:
                return {}
            tx = rx = None
        if tx is None or rx is None:
            card.unsupported.add(call)
            return {"no_counters": True}
        now, before = time.monotonic(), card.traffic
        card.traffic = (now, tx, rx)
        if before is None or tx < before[1] or rx < before[2] or now <= before[0]:
            return {}  # first reading, or a counter wrapped
        seconds = now - before[0]
        return {"pcie_tx": significant((tx - before[1]) / seconds), "pcie_rx": significant((rx - before[2]) / seconds)}

    def throughput(self, card: Card) -> Fields:
        """PCIe bytes per second by the call that samples for 20 ms per direction."""
        out: Fields = {}
        for direction, name in ((0, "pcie_tx"), (1, "pcie_rx")):
            try:
                out[name] = significant(self._card(card, "nvmlDeviceGetPcieThroughput", direction) * 1024.0)
            except Broken:
                raise
            except Failed as failure:
                if failure.code in LOST:
                    return {"lost": failure.text}
                if failure.code in NOT_SUPPORTED:
                    return {"no_throughput": True}
        return out

    def processes(self, card: Card) -> Fields:
        """``{"processes": {pid: [kind, bytes or None]}}``; without the key when the card tells of none of the kinds."""
        found: Dict[str, List[Any]] = {}
        told = False
        for kind, call in (("C", "Compute"), ("G", "Graphics"), ("C", "MPSCompute")):
            for version in ("3", "2"):
                name = "nvmlDeviceGet%sRunningProcesses_v%s" % (call, version)
                if (name, ()) in card.unsupported:
                    continue
                try:
                    listed = self._card(card, name)
                except Broken:
                    raise
                except Failed as failure:
                    if failure.code in LOST:
                        return {"lost": failure.text}
                    if failure.code in NOT_SUPPORTED:
                        card.unsupported.add((name, ()))
                        continue
                    break  # not this time; the other kinds may answer
                told = True
                for process in listed:
                    entry = found.setdefault(str(process.pid), [kind, None])
                    if kind not in entry[0]:
                        entry[0] = "C+G"
                    if process.usedGpuMemory is not None:
                        entry[1] = max(entry[1] or 0, mebibytes(process.usedGpuMemory))
                break
        return {"processes": found} if told else {}

    def _card(self, card: Card, call: str, *args: Any) -> Any:
        return self._call(card.number, call, (card.handle, *args))

    def _system(self, call: str, *args: Any, number: int = -1) -> Any:
        return self._call(number, call, args)

    def _call(self, number: int, call: str, args: Tuple[Any, ...]) -> Any:
        """One call of pynvml, noted in the cell first. Raises `Failed` for every error, also for one of pynvml itself."""
        self.cell.note(number, call)
        try:
            return getattr(self.nvml, call)(*args)
        except self.nvml.NVMLError as error:
            code = int(error.value)
            raise (Broken if code in BROKEN else Failed)(code, str(error), call) from None
        except UnicodeDecodeError as error:
            return error.object  # a name that is not UTF-8: the bytes themselves
        except Exception as error:  # noqa: BLE001 - pynvml and driver disagree; told once to the agent's log
            self.oddities[call] = "%s: %s" % (type(error).__name__, error)
            raise Failed(13, str(error), call) from None


def load_pynvml(source: bytes) -> ModuleType:
    """Run pynvml from its source text. It looks itself up in ``sys.modules`` while it is run, so it must stand there first."""
    module = ModuleType("pynvml")
    sys.modules["pynvml"] = module
    exec(compile(source, "pynvml.py", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - our own client sent it
    return module


def make_asker(source: bytes) -> Callable[[Cell], Answer]:
    """What a `Worker` runs in its child."""

    def make(cell: Cell) -> Answer:
        try:
            import ctypes

            ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL: a hung call must not outlive the agent
        except ImportError:
            pass  # a minimal Python: pynvml needs ctypes too, and says so when it is loaded
        return Asker(cell, source).answer

    return make
