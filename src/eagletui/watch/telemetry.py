"""Documents of the agent's streams -> records -> store and series. One function per stream, each complete or raising."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eagletui.agent.documents import board_from_doc, host_from_doc, processes_from_doc
from eagletui.records import GpuBoard, HostSample, JobState, from_doc
from eagletui.records.jobs import PROBLEMS
from eagletui.store import Store
from eagletui.watch.outliers import outliers
from eagletui.watch.owners import with_owners
from eagletui.watch.summary import summarise

GPU_SERIES = (
    "util",
    "mem_util",
    "mem_used",
    "power",
    "temp",
    "clock_sm",
    "clock_mem",
    "pcie_tx",
    "pcie_rx",
)
"""Fields of a card that are kept as series ``("gpu", uuid, field)``, in the units of `GpuSample`."""

HOST_SERIES = ("cpu", "cpu_iowait", "load1", "net_rx", "net_tx")
"""Fields of the host kept as series ``("host", field)``; further ``mem_used``, ``shm_used`` and the disks' rates."""


def record_host(store: Store, doc: Mapping[str, Any], boot: float) -> None:
    """A push of the stream ``host``: `HostSample`, and its series at host time ``boot``."""
    sample = host_from_doc(doc, boot)
    store.host = sample
    for name in HOST_SERIES:
        store.track(("host", name), boot, getattr(sample, name))
    store.track(("host", "mem_used"), boot, mem_used(sample))
    store.track(("host", "shm_used"), boot, sample.shm_used)
    reads = [disk.read_rate for disk in sample.disks if disk.read_rate is not None]
    writes = [disk.write_rate for disk in sample.disks if disk.write_rate is not None]
    store.track(("host", "disk_read"), boot, sum(reads) if reads else None)
    store.track(("host", "disk_write"), boot, sum(writes) if writes else None)
    store.changed("host")


def mem_used(sample: HostSample) -> int | None:
    """Memory that is not available to new programs, in bytes."""
    if sample.mem_total is None or sample.mem_available is None:
        return None
    return sample.mem_total - sample.mem_available


def record_gpus(store: Store, doc: Mapping[str, Any], boot: float) -> None:
    """A push of the stream ``gpus``: the board, its summary and outliers, and each card's series.

    While NVML hangs (``stale_since``) or a card is lost, the last values are old: the series get a gap, not a flat line. A card
    that has gone stays expected when the agent is another one than saw it: after a reconnect, a restart, a reboot.
    """
    board = board_from_doc(doc, boot)
    store.cards_known = max(store.cards_known, board.expected or 0, len(board.cards))
    if store.cards_known:
        board = board._replace(expected=store.cards_known)
    store.gpus = with_owners(board, store.jobs.values())
    store.gpu_summary = summarise(board)
    store.outliers = outliers(board)
    for card in board.cards:
        old = board.stale_since is not None or card.lost is not None
        for name in GPU_SERIES:
            store.track(("gpu", card.uuid, name), boot, None if old else getattr(card, name))
    _gap_of_missing(store, board, boot)
    store.changed("gpus")


def _gap_of_missing(store: Store, board: GpuBoard, boot: float) -> None:
    """A card that has left the board leaves a gap, once, so that its chart does not bridge the time without it."""
    here = {card.uuid for card in board.cards}
    for key, series in store.series.items():
        if key[0] == "gpu" and key[1] not in here:
            last = series.last()
            if last is not None and last[1] == last[1]:
                series.push(boot, None)


def record_processes(store: Store, doc: Mapping[str, Any], boot: float) -> None:
    """A push of the stream ``processes``: the process table, with ages at host time ``boot``."""
    store.processes = processes_from_doc(doc, boot, store.info.clock_ticks if store.info is not None else 100)
    store.changed("processes")


def record_jobs(store: Store, doc: Mapping[str, Any], _boot: float) -> None:
    """A push of the stream ``jobs``: the job table by id, and under `PROBLEMS` what could not be found out."""
    store.jobs = {name: from_doc(JobState, job) for name, job in doc.items() if name != PROBLEMS}
    store.job_problems = {str(what): str(why) for what, why in (doc.get(PROBLEMS) or {}).items()}
    if store.gpus is not None:
        owned = with_owners(store.gpus, store.jobs.values())
        if owned is not store.gpus:
            store.gpus = owned
            store.changed("gpus")
    store.changed("jobs")


def gap(store: Store, boot: float) -> None:
    """End every series of the cards and the host with a gap: nothing is known of the time after ``boot`` until the next sample.

    What the supervisor of a job records on the host has no gap: it comes when the link is back.
    """
    for key, series in store.series.items():
        if key[0] not in ("gpu", "host"):
            continue
        last = series.last()
        if last is not None and last[1] == last[1]:
            series.push(max(boot, last[0]), None)
