"""The cards of a host and the processes on them."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from eagletui.records.codec import NESTED


class GpuProcess(NamedTuple):
    """A process that holds memory on a card. ``kind`` is C (compute), G (graphics) or C+G.

    ``pid`` is the number that NVML gives: a host pid. Inside a container it may be one that /proc does not show; then
    ``user`` and ``command`` are None.
    """

    pid: int
    kind: str = "C"
    mem: Optional[int] = None
    start: Optional[int] = None
    user: Optional[str] = None
    command: Optional[str] = None
    job: Optional[str] = None


class GpuSample(NamedTuple):
    """One card at one moment, keyed by ``uuid``; ``number`` is NVML's index. What the card lacks is None.

    Units: percent, bytes, watts, degrees C, MHz, bytes per second, joules. ``margin`` is the distance in degrees to the
    slowdown temperature (NVML's T.Limit). ``throttle`` holds the active clock-event reasons by name; an empty tuple
    means none, None means the card does not say. ``lost`` is NVML's own words when the card no longer answers.
    ``pcie_gen`` is what the link runs at now: it idles at generation 1, so it may be judged only under load.
    """

    uuid: str
    number: int
    name: Optional[str] = None
    bus_id: Optional[str] = None
    minor: Optional[int] = None
    util: Optional[float] = None
    mem_util: Optional[float] = None
    mem_used: Optional[int] = None
    mem_total: Optional[int] = None
    mem_reserved: Optional[int] = None
    bar1_total: Optional[int] = None
    power: Optional[float] = None
    power_cap: Optional[float] = None
    power_min: Optional[float] = None
    power_max: Optional[float] = None
    energy: Optional[float] = None
    temp: Optional[int] = None
    temp_mem: Optional[int] = None
    margin: Optional[int] = None
    fan: Optional[int] = None
    clock_sm: Optional[int] = None
    clock_mem: Optional[int] = None
    clock_sm_max: Optional[int] = None
    clock_mem_max: Optional[int] = None
    pstate: Optional[int] = None
    pcie_gen: Optional[int] = None
    pcie_gen_max: Optional[int] = None
    pcie_width: Optional[int] = None
    pcie_width_max: Optional[int] = None
    pcie_tx: Optional[float] = None
    pcie_rx: Optional[float] = None
    pcie_replays: Optional[int] = None
    throttle: Optional[Tuple[str, ...]] = None
    ecc_corrected: Optional[int] = None
    ecc_uncorrected: Optional[int] = None
    rows_corrected: Optional[int] = None
    rows_uncorrected: Optional[int] = None
    rows_pending: Optional[bool] = None
    rows_failed: Optional[bool] = None
    recovery: Optional[str] = None
    persistence: Optional[bool] = None
    lost: Optional[str] = None
    processes: Optional[Tuple[GpuProcess, ...]] = None


class GpuBoard(NamedTuple):
    """All cards of a host at one moment. ``problem`` says in one line why there are none, or why the data is old.

    ``present`` is False where no NVIDIA driver is installed. ``stale_since`` (boot time) is set while NVML hangs.
    ``expected`` is the number of cards seen before; fewer in ``cards`` means that some have gone.
    """

    boot: float
    present: bool
    driver: Optional[str] = None
    cuda: Optional[str] = None
    problem: Optional[str] = None
    stale_since: Optional[float] = None
    expected: Optional[int] = None
    cards: Tuple[GpuSample, ...] = ()


NESTED["GpuSample"] = {"processes": GpuProcess}
NESTED["GpuBoard"] = {"cards": GpuSample}
