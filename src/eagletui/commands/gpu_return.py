"""Whether the cards' memory has come back after a kill: what NVML says, not what the processes' end promises."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection
from typing import NamedTuple

from eagletui.commands.desk import Desk
from eagletui.records import GpuBoard, GpuSample

PATIENCE = 120.0
SLACK = 512 << 20
GIB = 1 << 30


class CardsBefore(NamedTuple):
    """A job's cards before it is ended: the pids that hold memory for it, and per card what no process accounts for."""

    pids: frozenset[int]
    unaccounted: dict[str, int]


class Back(NamedTuple):
    """``done`` when all memory is back; ``words`` says after how long, or which card still holds how much."""

    done: bool
    words: str


def cards_before(board: GpuBoard | None, uuids: Collection[str], members: Collection[int]) -> CardsBefore:
    """Take the measure before the kill. In a container NVML's pids are the host's: then those that /proc does not show count."""
    cards = [card for card in (board.cards if board is not None else ()) if card.uuid in uuids]
    listed = [process for card in cards for process in card.processes or ()]
    pids = {process.pid for process in listed if process.pid in members}
    if not pids:
        pids = {process.pid for process in listed if process.user is None and process.command is None}
    return CardsBefore(frozenset(pids), {card.uuid: rest for card in cards if (rest := _unaccounted(card)) is not None})


def _unaccounted(card: GpuSample) -> int | None:
    """Used memory that no listed process holds, in bytes: the driver's own, and what a dead process has not given back."""
    if card.mem_used is None:
        return None
    return max(0, card.mem_used - sum(process.mem or 0 for process in card.processes or ()))


def still_held(board: GpuBoard | None, before: CardsBefore) -> tuple[str, ...]:
    """One line for each card that still holds memory of the job; empty when all of it is back."""
    out = []
    for card in board.cards if board is not None else ():
        if card.uuid not in before.unaccounted:
            continue
        left = [process for process in card.processes or () if process.pid in before.pids]
        held = sum(process.mem or 0 for process in left)
        rest = _unaccounted(card)
        beyond = 0 if rest is None else rest - before.unaccounted[card.uuid]
        if left:
            out.append(f"card {card.number} still holds {max(held, beyond) / GIB:.1f} GiB (pid {left[0].pid} in NVML's list)")
        elif beyond > SLACK:
            out.append(f"card {card.number} still holds {beyond / GIB:.1f} GiB")
    return tuple(out)


async def memory_back(desk: Desk, before: CardsBefore, patience: float = PATIENCE) -> Back | None:
    """Wait until the cards' memory is back; None when the job had no cards, or NVML says nothing of them."""
    if not before.unaccounted:
        return None
    began = time.monotonic()
    held: tuple[str, ...] = ("no sample of the cards has come since",)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience):
            while held:
                await desk.watch.sample("gpus", desk.watch.count("gpus") + 1)
                board = desk.store.gpus
                if board is not None and board.stale_since is None:
                    held = still_held(board, before)
    if held:
        return Back(False, "; ".join(held))
    return Back(True, f"GPU memory back after {time.monotonic() - began:.0f} s")
