"""Whose the processes on the cards are: the driver gives pids, the supervisors tell which pids are their job's. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from eagletui.records import GpuBoard, GpuProcess, GpuSample, JobState


def with_owners(board: GpuBoard, jobs: Iterable[JobState]) -> GpuBoard:
    """The board with each process's ``job`` (an id) filled in; the very same board when nothing is to change.

    A process is (pid, start ticks): one whose start is not known may be another than the job's, in a container or after its
    pid was given away, and belongs to nobody here.
    """
    owner = {(pid, start): job.id for job in jobs for pid, start in job.member_pids}
    cards = tuple(_card(card, owner) for card in board.cards)
    return board if all(new is old for new, old in zip(cards, board.cards, strict=True)) else board._replace(cards=cards)


def _card(card: GpuSample, owner: dict[tuple[int, int], str]) -> GpuSample:
    if not card.processes:
        return card
    found = tuple(_process(process, owner) for process in card.processes)
    return card if found == card.processes else card._replace(processes=found)


def _process(process: GpuProcess, owner: dict[tuple[int, int], str]) -> GpuProcess:
    job = owner.get((process.pid, process.start)) if process.start is not None else None
    return process if process.job == job else process._replace(job=job)
