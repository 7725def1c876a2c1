"""One card in full: every fact the driver gives, grouped, and its history as strips. What it does not give is ``-``."""

from __future__ import annotations

from collections.abc import Sequence

from eagletui.records import GpuSample
from eagletui.screens.words import card_trouble
from eagletui.store import Store
from eagletui.text import MISSING, clean, duration, number, rate, size
from eagletui.widgets.bars import columns, spark, time_step
from eagletui.widgets.chart import Chart, Curve
from eagletui.widgets.paint import Line

WINDOW = 600.0


class CardChart(Chart):
    """Utilisation and memory traffic of one card over the last ten minutes."""

    DEFAULT_CSS = "CardChart { height: 13; margin-bottom: 1; }"
    topics = frozenset({"gpus"})

    def __init__(self, store: Store, uuid: str) -> None:
        super().__init__()
        self._store, self._uuid = store, uuid

    def title(self) -> Line:
        return [
            ("█ ", "good"),
            ("utilisation   ", "dim"),
            ("█ ", "warn"),
            ("memory busy   ", "dim"),
            ("% over seconds, now at the right", "head"),
        ]

    def curves(self) -> Sequence[Curve]:
        now = self._store.gpus.boot if self._store.gpus is not None else 0.0
        out: list[Curve] = []
        for name, style in (("util", "good"), ("mem_util", "warn")):
            series = self._store.series.get(("gpu", self._uuid, name))
            if series is not None:
                times, values = series.window(now - WINDOW)
                out.append(Curve([time - now for time in times], values, style))
        return out


def card_lines(store: Store, uuid: str, width: int) -> list[Line]:
    """The facts of the card ``uuid`` in one or two columns of ``width`` cells together."""
    card = next((card for card in (store.gpus.cards if store.gpus is not None else ()) if card.uuid == uuid), None)
    if card is None:
        return [[("! ", "warn"), ("this card is not on the host's list any more", "warn")]]
    out: list[Line] = []
    for text, style in card_trouble(card, store):
        sign = "✗ " if style == "bad" else "! " if style == "warn" else "  "
        out.append([(sign, style), (text, style)])
    out += _history(store, card, width)
    facts = _facts(card)
    count = 2 if width >= 90 else 1
    half = (len(facts) + count - 1) // count
    for at in range(half):
        line: Line = []
        for column in range(count):
            index = at + column * half
            if index < len(facts):
                name, value = facts[index]
                room = width // count - 22
                line += [(f"{name:<20}", "dim"), (f"{value[:room]:<{room + 2}}", "dim" if value == MISSING else "")]
        out.append(line)
    return out


_STRIPS = (("util", "%", 100.0), ("mem_util", "%", 100.0), ("power", "W", 0.0), ("temp", "C", 0.0), ("clock_sm", "MHz", 0.0))
_TITLES = {"util": "utilisation", "mem_util": "memory busy", "power": "power", "temp": "temperature", "clock_sm": "SM clock"}


def _history(store: Store, card: GpuSample, width: int) -> list[Line]:
    tops = {"power": card.power_cap or card.power_max, "temp": 100.0, "clock_sm": card.clock_sm_max}
    room = max(10, width - 34)
    step = time_step(room, 300.0)
    out: list[Line] = []
    for name, unit, high in _STRIPS:
        series = store.series.get(("gpu", card.uuid, name))
        top = high or float(tops.get(name) or 0.0)
        if series is None or top <= 0:
            continue
        last = series.last()
        line: Line = [(f"{_TITLES[name]:<12}", "dim"), (strip_of(store, ("gpu", card.uuid, name), room, step, top), "fill")]
        line += [(f" {number(last[1] if last else None):>6}", ""), (f" of {number(top).replace(',', '')} {unit}", "dim")]
        out.append(line)
    if out:
        out = [[(f"the last {duration(room * step)}", "head")], *out, []]
    return out


def strip_of(store: Store, key: tuple[str, ...], width: int, step: float, top: float) -> str:
    """The series ``key`` as a strip of ``width`` cells of ``step`` seconds each, on the scale 0 to ``top``."""
    series = store.series.get(key)
    now = store.gpus.boot if store.gpus is not None else 0.0
    if series is None:
        return " " * width
    times, values = series.window(now - width * step)
    return spark(columns(times, values, width, step, now), width, 0.0, top)


def _facts(card: GpuSample) -> list[tuple[str, str]]:
    def over(one: float | None, two: float | None, unit: str) -> str:
        return MISSING if one is None else f"{number(one)} of {number(two)} {unit}"

    def yes(value: bool | None) -> str:
        return MISSING if value is None else "yes" if value else "no"

    return [
        ("uuid", clean(card.uuid, 60)),
        ("bus", clean(card.bus_id or MISSING, 30)),
        ("device file", MISSING if card.minor is None else f"/dev/nvidia{card.minor}"),
        ("memory used", f"{size(card.mem_used)} of {size(card.mem_total)}"),
        ("memory reserved", size(card.mem_reserved)),
        ("BAR1", size(card.bar1_total)),
        ("power", over(card.power, card.power_cap, "W")),
        ("cap may be set to", MISSING if card.power_min is None else f"{number(card.power_min)}-{number(card.power_max)} W"),
        ("energy", MISSING if card.energy is None else f"{number(card.energy / 3.6e6, 1)} kWh since the driver started"),
        ("temperature", MISSING if card.temp is None else f"{card.temp} C"),
        ("margin to slowdown", MISSING if card.margin is None else f"{card.margin} C"),
        ("memory temperature", MISSING if card.temp_mem is None else f"{card.temp_mem} C"),
        ("fan", MISSING if card.fan is None else f"{card.fan} %"),
        ("SM clock", over(card.clock_sm, card.clock_sm_max, "MHz")),
        ("memory clock", over(card.clock_mem, card.clock_mem_max, "MHz")),
        ("P-state", MISSING if card.pstate is None else f"P{card.pstate}"),
        ("throttle reasons", MISSING if card.throttle is None else clean(", ".join(card.throttle), 80) or "none"),
        ("PCIe now", _link(card.pcie_gen, card.pcie_width)),
        ("PCIe at best", _link(card.pcie_gen_max, card.pcie_width_max)),
        ("PCIe traffic", f"{rate(card.pcie_rx)} in, {rate(card.pcie_tx)} out"),
        ("PCIe replays", number(card.pcie_replays)),
        ("ECC corrected", number(card.ecc_corrected)),
        ("ECC uncorrected", number(card.ecc_uncorrected)),
        ("rows remapped", f"{number(card.rows_corrected)} corrected, {number(card.rows_uncorrected)} uncorrected"),
        ("remap pending", yes(card.rows_pending)),
        ("remap failed", yes(card.rows_failed)),
        ("recovery action", clean(card.recovery or MISSING, 40)),
        ("persistence mode", yes(card.persistence)),
    ]


def _link(gen: int | None, width: int | None) -> str:
    return MISSING if gen is None or width is None else f"x{width} generation {gen}"
