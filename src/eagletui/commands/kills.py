"""Ending things from a desk, with proof: jobs, servers that were found, and processes that a person names one by one.

A kill is bound to the very processes that were shown, goes on over lost connections, and its end is told only after NVML has
seen the memory come back.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eagletui.commands.desk import Desk, may_change
from eagletui.commands.gpu_return import CardsBefore, cards_before, memory_back
from eagletui.commands.jobs import LIVE, news
from eagletui.hosts.base import HostError
from eagletui.records import GpuBoard, GpuProcess, GpuSample, JobState, KillPlan, KillReport, from_doc


async def kill_plan(desk: Desk, job: str) -> KillPlan:
    """What ending ``job`` would end and free, as it is at this moment. Raises `HostError` (absent: nothing of it runs)."""
    on_cards = _on_cards(desk.store.gpus)
    doc = await desk.session.request(
        "kill_plan", job=job, gpu_processes=[{"uuid": card.uuid, "pid": process.pid} for card, process in on_cards]
    )
    plan = _plan_of(doc, [(card, process) for card, process in on_cards if card.uuid in doc["gpus"]])
    confirm, because = _to_type(plan, desk.operator)
    return plan._replace(confirm=confirm, because=because)


def pids_id(pids: Iterable[int]) -> str:
    """What stands for single processes where a job's id is asked for: `kill_plan` and `kill` then mean exactly these."""
    return "pids-" + "-".join(str(pid) for pid in sorted(set(pids)))


def _to_type(plan: KillPlan, operator: str) -> tuple[str | None, str | None]:
    """What a person has to type to end this, and why: nothing for a job of their own."""
    if plan.only:
        numbers = sorted(process.pid for process in plan.processes)
        return " ".join(map(str, numbers)), f"eagletui did not start {'it' if len(numbers) == 1 else 'them'}"
    if plan.adopted is not None:
        return plan.name, "eagletui did not start it"
    if plan.operator and plan.operator != operator:
        return plan.name, f"{plan.operator} launched it"
    return None, None


def _on_cards(board: GpuBoard | None) -> list[tuple[GpuSample, GpuProcess]]:
    if board is None:
        return []
    return [(card, process) for card in board.cards for process in card.processes or ()]


def _plan_of(doc: Mapping[str, Any], on_cards: Sequence[tuple[GpuSample, GpuProcess]]) -> KillPlan:
    members = {process["pid"] for process in doc["processes"]}
    own = [process for _, process in on_cards if process.pid in members]
    # pids that /proc does not show are numbers of another namespace: whose they are cannot be told, so nobody is suspected
    suspects = {} if doc.get("only") else {p.pid: p for _, p in on_cards if p.pid not in members and _seen(p)}
    plan = {
        **doc,
        "processes": [{**process, "main": process["pid"] == doc.get("main")} for process in doc["processes"]],
        "shm": [entry["path"] for entry in doc.get("shm") or ()],
        "tmp": [entry["path"] for entry in doc.get("tmp") or ()],
        "suspects": (),
    }
    return from_doc(KillPlan, plan)._replace(
        suspects=tuple(suspects.values()),
        gpu_memory=sum(process.mem or 0 for process in own) if own else None,
    )


def _seen(process: GpuProcess) -> bool:
    return process.user is not None or process.command is not None


async def kill(desk: Desk, plan: KillPlan, *, now: bool = False) -> KillReport:
    """End what ``plan`` shows, and wait for the proof: processes gone, port free, the cards' memory back.

    ``now`` skips the graces. Goes on over lost connections: the kill itself is the host's. Raises `HostError`: kind replaced when
    the processes are not those of the plan any more (look again), absent when none is left.
    """
    may_change(desk, "kill")
    cards = cards_before(desk.store.gpus, plan.gpus, {process.pid for process in plan.processes})
    before = (await _look(desk, plan.job))[1].get("wall")
    began = time.monotonic()
    deadline = began + sum(plan.graces or (60.0, 15.0, 30.0)) + 60.0
    asked = lost = False
    while True:
        try:
            if not asked:
                await desk.session.request("kill", job=plan.job, token=plan.token, now=now, operator=desk.operator)
                asked = True
            state, result = await _look(desk, plan.job)
            fresh = result.get("wall") not in (None, before)
            # the host writes the result before it calls a job over
            if (state.state not in LIVE and (fresh or not state.members)) or (fresh and result.get("remaining")):
                return await _report(desk, plan, state, result, cards)
            if time.monotonic() > deadline:
                why = f"still ending: {state.detail}" if state.detail else "it was told to end, and has not"
                return KillReport(plan.job, False, remaining=(why,), seconds=time.monotonic() - began)
        except HostError as error:
            if lost and not asked and error.kind in ("absent", "replaced"):
                asked = True  # it had been taken up before the connection was lost, and what was shown is ending already
                continue
            if not error.retry or time.monotonic() > deadline:
                raise
            # lost on the way: whether it was taken up shows in the job itself
            lost = True
            await desk.session.wait_online(max(0.0, deadline - time.monotonic()))
            state, result = await _look(desk, plan.job)
            # one that had ended before, and of which only members are left, looks over whether it was taken up or not
            over = state.state not in LIVE and not state.members
            asked = state.state == "stopping" or over or result.get("wall") not in (None, before)
        await news(desk, "jobs", 0.5)


async def _look(desk: Desk, job: str) -> tuple[JobState, dict[str, Any]]:
    """A job's state and result as the host has them now."""
    answer = await desk.session.request("job", job=job)
    return from_doc(JobState, answer["state"]), dict(answer.get("result") or {})


async def _report(desk: Desk, plan: KillPlan, state: JobState, result: Mapping[str, Any], cards: CardsBefore) -> KillReport:
    remaining = tuple(str(item) for item in result.get("remaining") or ())
    back = None if remaining else await memory_back(desk, cards)
    if back is not None and not back.done:
        remaining = (back.words,)
    return KillReport(
        plan.job,
        not remaining,
        tuple(str(item) for item in result.get("released") or ()),
        remaining,
        result.get("seconds"),
        state.rc,
        back.words if back is not None else None,
    )


async def hurry(desk: Desk, job: str) -> None:
    """A job that is ending gets no more time: SIGKILL to all of it. Raises `HostError`."""
    may_change(desk, "kill")
    await desk.session.request("kill", job=job, token="", now=True, operator=desk.operator)


async def end_job(desk: Desk, job: str) -> str | None:
    """End a job, whatever its processes are at this moment. None when nothing of it is left, else in words what is."""
    may_change(desk, "kill")
    report = await kill(desk, await kill_plan(desk, job))
    return None if report.done else "; ".join(report.remaining)


async def remove_job(desk: Desk, job: str) -> None:
    """Delete the record and the log of an ended job from the host. Raises `HostError`."""
    may_change(desk, "remove")
    while True:
        try:
            await desk.session.request("remove", job=job)
            return
        except HostError as error:
            if not error.retry:
                raise
        try:
            await _look(desk, job)  # the connection was lost meanwhile: is it still there?
        except HostError as error:
            if error.kind == "absent":
                return
            raise
