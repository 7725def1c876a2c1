"""How long cards' memory takes to come back, and what a dead server leaves on them: `python -m tests.gpu.release_check PROFILE`.

On a machine with real cards and an engine that PROFILE starts (`eagletui launch local PROFILE` has to work). Every case starts
that server, ends it or part of it, and prints what eagletui said beside what NVML saw, which is read here 50 times a second:

    term      `eagletui kill`: the main process first, with its grace
    now       `eagletui kill --now`, requests under way
    api       SIGKILL to the main process (the API server) alone: what is left of it, and that a kill clears it
    engine    SIGKILL to the engine's main process below it
    workers   a server that eagletui did not start, its workers stopped (SIGSTOP) and everything above them killed, so that they
              hold the cards as leftovers: found, named, cleared
    hang      one worker stopped with requests under way, as in a collective that never ends: what `eagletui why` says, and that
              it recovers

Exit status 1 when memory did not come back, a process was left, or a leftover or hang was not found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml

MIB = 1 << 20
NEAR = 64 * MIB
CASES = ("term", "now", "api", "engine", "workers", "hang")
PATIENCE = 60.0


class Cards(threading.Thread):
    """Samples the memory in use on every card; `back` says when it was near the baseline again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        pynvml.nvmlInit()
        self._cards = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        self.baseline = self.now()
        self._log: list[tuple[float, int]] = []
        self.start()

    def now(self) -> int:
        return sum(int(pynvml.nvmlDeviceGetMemoryInfo(card).used) for card in self._cards)

    def run(self) -> None:
        while True:
            self._log.append((time.monotonic(), self.now()))
            time.sleep(0.02)

    def held(self) -> int:
        return self.now() - self.baseline

    def fell(self, since: float) -> tuple[float | None, float | None]:
        """Seconds after ``since`` when memory began to fall, and when it was back for good."""
        log = [(at, used) for at, used in list(self._log) if at >= since]
        if not log:
            return None, None
        top = log[0][1]
        first = next((at for at, used in log if used < top - NEAR), None)
        last_high = max((at for at, used in log if used > self.baseline + NEAR), default=None)
        back = None if last_high is None or last_high >= log[-1][0] - 0.05 else last_high
        return first and first - since, back and back - since


def eagletui(*words: str, seconds: float = 300.0) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-m", "eagletui", *words], capture_output=True, text=True, timeout=seconds)
    return done.returncode, done.stdout, done.stderr


def tell(text: str) -> None:
    print(text, flush=True)


def servers() -> list[dict[str, Any]]:
    _, out, _ = eagletui("jobs", "local", "--json")
    return [job for job in json.loads(out)["jobs"] if job["kind"] == "serve"]


def job_of(profile: str) -> dict[str, Any]:
    return max((job for job in servers() if job["name"] == profile), key=lambda job: float(job["started"]))


def launched(profile: str) -> dict[str, Any]:
    began = time.monotonic()
    code, out, err = eagletui("launch", "local", profile, "--wait", "--force", seconds=400)
    tell(f"  launch: exit status {code} after {time.monotonic() - began:.0f} s {'' if code == 0 else (out + err)[-1500:]}")
    return job_of(profile)


def tree(root: int) -> dict[int, str]:
    """The live processes below ``root``, itself among them: pid -> command name."""
    parents, names = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                name, _, rest = Path(f"/proc/{entry}/stat").read_text().rpartition(")")
                if rest.split()[0] != "Z":
                    parents[int(entry)], names[int(entry)] = int(rest.split()[1]), name.partition("(")[2]
    found = {root} if root in parents else set()
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return {pid: names[pid] for pid in sorted(found)}


def on_cards(pids: dict[int, str]) -> list[int]:
    """Those that hold memory on a card."""
    holders = {
        int(process.pid)
        for i in range(pynvml.nvmlDeviceGetCount())
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(i))
    }
    return [pid for pid in pids if pid in holders]


@contextlib.contextmanager
def traffic(port: int, model: str) -> Iterator[list[int]]:
    """Four streams of requests until the block ends; the list counts the answers."""
    stop, answers = threading.Event(), [0]

    def ask() -> None:
        body = json.dumps({"model": model, "prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True}).encode()
        while not stop.is_set():
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=200) as answer:
                    answer.read()
                answers[0] += 1
            except (OSError, urllib.error.URLError, ValueError):
                stop.wait(1.0)  # the server was ended, or hangs: that is what is tried here

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()


def wait(seconds: float, what: Callable[[], bool]) -> float | None:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if what():
            return time.monotonic() - began
        time.sleep(0.05)
    return None


def told_times(cards: Cards, since: float, what: str) -> bool:
    wait(PATIENCE, lambda: cards.held() < NEAR)
    time.sleep(0.5)
    first, back = cards.fell(since)
    held = cards.held()
    tell(
        f"  {what}: memory began to fall after {first if first is None else round(first, 2)} s, back to the baseline after"
        f" {back if back is None else round(back, 2)} s; {held / MIB:.0f} MiB above it now"
    )
    return held < NEAR


def ended(job: str, cards: Cards, *more: str) -> bool:
    """End it with eagletui; whether all is free again."""
    began = time.monotonic()
    code, out, err = eagletui("kill", "local", job, "--json", *(more or ("--yes",)))
    report = json.loads(out) if out.strip().startswith("{") else {"text": (out + err)[-800:]}
    shown = {
        key: report.get(key)
        for key in ("done", "seconds", "rc", "gpu_memory", "released", "remaining", "text")
        if report.get(key)
    }
    took = time.monotonic() - began
    tell(f"  eagletui kill {' '.join(more)}: exit status {code}, {took:.1f} s with connecting: {json.dumps(shown)}")
    return told_times(cards, began, "since the command")


def case_term(profile: str, cards: Cards) -> bool:
    job = launched(profile)
    tell(f"  holds {cards.held() / MIB:.0f} MiB in processes {tree(int(job['pid']))}")
    return ended(job["id"], cards)


def case_now(profile: str, cards: Cards) -> bool:
    job = launched(profile)
    with traffic(job["port"], job["served_model"]):
        time.sleep(5)
        return ended(job["id"], cards, "--yes", "--now")


def _dead(profile: str, cards: Cards, victim: Callable[[dict[int, str], dict[str, Any]], int]) -> bool:
    job = launched(profile)
    members = tree(int(job["pid"]))
    pid = victim(members, job)
    with traffic(job["port"], job["served_model"]):
        time.sleep(3)
        tell(f"  SIGKILL to {pid} ({members[pid]}) of {members}")
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        wait(PATIENCE / 2, lambda: cards.held() < NEAR)
    told_times(cards, began, "after the SIGKILL alone")
    state = job_of(profile)
    left = [p for p in members if os.path.exists(f"/proc/{p}")]
    tell(
        f"  eagletui says: {state['state']}, health {state['health']}, members {state['members']}: {state['detail']}; left {left}"
    )
    if cards.held() < NEAR and not left:
        return True
    return ended(job["id"], cards)


def case_api(profile: str, cards: Cards) -> bool:
    return _dead(profile, cards, lambda members, job: int(job["pid"]))


def case_engine(profile: str, cards: Cards) -> bool:
    def engine(members: dict[int, str], job: dict[str, Any]) -> int:
        return next(pid for pid, name in members.items() if "EngineCor" in name or "scheduler" in name)

    return _dead(profile, cards, engine)


def case_workers(profile: str, cards: Cards) -> bool:
    _, out, _ = eagletui("launch", "local", profile, "--dry-run", "--json")
    plan = json.loads(out)
    log = open("/tmp/release_check.log", "wb")  # noqa: SIM115 - the server's, for as long as it lives
    server = subprocess.Popen(
        [word for word in plan["command"] if word], cwd=plan["cwd"], env={**os.environ, **plan["env"]}, stdout=log, stderr=log,
        stdin=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    found: dict[str, Any] = {}

    def ready() -> bool:
        found.update(next((job for job in servers() if job["adopted"] and job["health"] == "ready"), {}))
        return bool(found)

    tell(f"  found ready after {wait(240, ready) or -1:.0f} s: {found.get('id')} held by {found.get('adopted')}")
    members = tree(server.pid)
    holders = [pid for pid in on_cards(members) if members[pid] != "" and pid != server.pid]
    tell(f"  processes {members}, on the cards {holders}; now the workers are stopped and the others killed")
    for pid in holders:
        os.kill(pid, signal.SIGSTOP)
    for pid in members:
        if pid not in holders:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    server.wait()
    left: dict[str, Any] = {}

    def seen() -> bool:
        left.update(next((job for job in servers() if job["state"] == "leftover"), {}))
        return bool(left)

    took = wait(90, seen)
    tell(f"  leftover seen after {took if took is None else round(took)} s: {left.get('id')} {left.get('member_pids')}")
    tell(f"  eagletui says: {left.get('detail')}")
    _, out, _ = eagletui("status", "local")
    tell("    " + "\n    ".join(line for line in out.splitlines() if "left" in line.lower() or "alert" in line.lower()))
    if not left:
        for pid in holders:
            os.kill(pid, signal.SIGKILL)
        return False
    return ended(left["id"], cards, "--yes", "--confirm", left["name"]) and not any(os.path.exists(f"/proc/{p}") for p in holders)


def case_hang(profile: str, cards: Cards) -> bool:
    job = launched(profile)
    members = tree(int(job["pid"]))
    worker = on_cards(members)[-1]
    good = True
    with traffic(job["port"], job["served_model"]) as answers:
        time.sleep(6)
        tell(f"  {answers[0]} answers; SIGSTOP to {worker} ({members[worker]})")
        os.kill(worker, signal.SIGSTOP)
        for what in ("stopped", "after SIGCONT"):
            began = time.monotonic()
            code, out, err = eagletui("why", "local", job["id"], "--watch", "130" if what == "stopped" else "20")
            tell(
                f"  eagletui why, {what}: exit status {code} after {time.monotonic() - began:.0f} s\n    "
                + "\n    ".join((out + err).splitlines()[:24])
            )
            good = good and (("stuck" in out) == (what == "stopped"))
            if what == "stopped":
                for i in range(pynvml.nvmlDeviceGetCount()):
                    card = pynvml.nvmlDeviceGetHandleByIndex(i)
                    util, power = pynvml.nvmlDeviceGetUtilizationRates(card).gpu, pynvml.nvmlDeviceGetPowerUsage(card) / 1000
                    tell(f"    card {i}: {util} %, {power:.0f} of {pynvml.nvmlDeviceGetEnforcedPowerLimit(card) / 1000:.0f} W")
                os.kill(worker, signal.SIGCONT)
                before = answers[0]
                took = wait(60, lambda before=before: answers[0] > before)  # type: ignore[misc]
                tell(f"  SIGCONT: answers go on after {took} s")
    return ended(job["id"], cards) and good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; repeatable")
    options = parser.parse_args()
    cards = Cards()
    tell(f"{pynvml.nvmlDeviceGetCount()} cards, {cards.baseline / MIB:.0f} MiB in use before")
    failed = []
    for case in options.case or CASES:
        tell(f"{case}:")
        began = time.monotonic()
        good = bool(globals()[f"case_{case}"](options.profile, cards))
        tell(f"  {'held' if good else 'LOST'} ({time.monotonic() - began:.0f} s)")
        failed += [] if good else [case]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
