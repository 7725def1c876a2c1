"""The lab: a tiny real engine with a target and an EAGLE-3 drafter on this machine, built, told about and removed.

`up`, `down`, `status` and `remove` return exit codes: 0 done, 1 failed or refused (one line on the reporter says at which
step, why, and what to do), 130 interrupted. Building is resumable: a step is marked only after its check passed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from eagletui.labparts.paths import RECIPE, Lab, find_lab
from eagletui.labparts.report import LabError, Reporter
from eagletui.labparts.running import folder_size
from eagletui.labparts.steps import STEPS, Step, Work, environment, machine_problem, python311, room_problem
from eagletui.labparts.training import train_drafter
from eagletui.records import JobState
from eagletui.text import size

LONGEST_ROOT = 60  # the engine's sockets lie in the lab: their paths may have 107 bytes, 41 of them a name under tmp/


def up(root: str | os.PathLike[str] | None = None, *, reporter: Reporter, train: bool = False) -> int:
    """Build the lab at ``root`` (default: its usual place), or go on with a build; quick when all is there.

    ``train`` makes the drafter anew on this machine instead of unpacking the one that comes with eagletui.
    """
    lab = find_lab(root)
    try:
        if lab.built and not train:
            reporter.say(f"the lab in {lab.root} is ready")
            return 0
        _may_build(lab)
        with _alone(lab):
            _build(lab, reporter, train)
    except LabError as error:
        reporter.error(f"lab up: {error}")
        return 1
    except OSError as error:
        reporter.error(f"lab up: {error.filename or lab.root}: {error.strerror} - check the folder, or choose another with --dir")
        return 1
    except KeyboardInterrupt:
        reporter.error("lab up: interrupted - run it again: it goes on where it stopped")
        return 130
    reporter.say(f"the lab in {lab.root} is ready: eagletui launch local lab-eagle3")
    return 0


def _may_build(lab: Lab) -> None:
    problem = machine_problem()
    if problem is not None:
        raise problem
    if len(os.fsencode(lab.root)) > LONGEST_ROOT:
        raise LabError("lab", f"the path {lab.root} is longer than {LONGEST_ROOT} bytes", "choose a shorter one with --dir")
    if lab.root.exists() and not lab.mark.exists() and any(lab.root.iterdir()):
        raise LabError("lab", f"{lab.root} has files in it and is not a lab", "choose an empty folder with --dir")
    if running := processes(lab):
        raise LabError("lab", f"still running from it: {_names(running)}", "end them first: eagletui lab down")
    needed = sum(step.room for step in STEPS if not lab.finished(step.id))
    problem = room_problem(lab.root, needed)
    if problem is not None:
        raise problem


def _build(lab: Lab, reporter: Reporter, train: bool) -> None:
    python = python311()
    if python is None:
        raise LabError("lab", "the Python 3.11 of a moment ago is gone", "install it and run lab up again")
    work = Work(lab, reporter, environment(lab), python)
    shutil.rmtree(lab.tmp, ignore_errors=True)  # what an interrupted installer left; nothing of the lab runs while it is built
    for folder in (lab.markers, lab.tmp):
        folder.mkdir(parents=True, exist_ok=True)
    for number, step in enumerate(STEPS, 1):
        anew = train and step.id == "drafter"
        if lab.finished(step.id) and not anew:
            continue
        title = f"{step.title}, trained here (5 to 60 minutes)" if anew else step.title
        reporter.begin(number, len(STEPS), title)
        try:
            _one(work, step, anew)
        except BaseException:
            reporter.end("stopped")
            raise
        reporter.end("done")


def _one(work: Work, step: Step, train: bool) -> None:
    marker = work.lab.markers / step.id
    marker.unlink(missing_ok=True)
    if train:
        train_drafter(work)
    else:
        step.work(work)
    step.check(work)
    partial = marker.with_suffix(".new")
    partial.write_text(RECIPE + "\n")
    partial.replace(marker)


@contextmanager
def _alone(lab: Lab) -> Iterator[None]:
    """Hold the lab's lock; `LabError` when another build or removal holds it. Makes the folder and marks it as a lab."""
    lab.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with lab.mark.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError("lab", f"another eagletui is at work on {lab.root}", "wait until it is done") from None
        if not file.tell():
            file.write(json.dumps({"what": "eagletui lab", "recipe": RECIPE}) + "\n")
            file.flush()
        yield


# ---------------------------------------------------------------------------------------------------- afterwards


def lab_jobs(jobs: Sequence[JobState], lab: Lab) -> list[JobState]:
    """Those of this machine's jobs that run a program of the lab and have not ended."""
    inside = str(lab.venv) + os.sep
    return [job for job in jobs if job.ended is None and job.command and any(part.startswith(inside) for part in job.command[:2])]


async def down(
    jobs: Sequence[JobState],
    stop: Callable[[JobState], Awaitable[str | None]],
    *,
    reporter: Reporter,
    root: str | os.PathLike[str] | None = None,
) -> int:
    """End the lab's servers among ``jobs``. ``stop`` ends one job and returns None, or in one line why it still runs."""
    lab = find_lab(root)
    mine = lab_jobs(jobs, lab)
    if not mine:
        reporter.say("no server of the lab is running")
        return 0
    failed = 0
    for job in mine:
        why = await stop(job)
        if why is None:
            reporter.say(f"ended {job.name} ({job.id})")
        else:
            failed += 1
            reporter.error(f"lab down: {job.name} ({job.id}) still runs: {why}")
    return 1 if failed else 0


def processes(lab: Lab) -> list[tuple[int, str]]:
    """Processes of this machine that run from the lab: pid and name, found by a mapped or open file inside it."""
    inside = os.fsencode(os.path.realpath(lab.root)) + b"/"
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if inside in (entry / "maps").read_bytes():
                found.append((int(entry.name), (entry / "comm").read_text().strip()))
        except OSError:
            continue  # it ended meanwhile, or is another user's and so cannot run from this user's lab
    return sorted(found)


def _names(running: Sequence[tuple[int, str]]) -> str:
    return ", ".join(f"{name} (pid {pid})" for pid, name in running)


def status(root: str | os.PathLike[str] | None = None, *, reporter: Reporter) -> int:
    """Say what of the lab is there and what runs from it. 0 when it is ready to use, 1 when it is not."""
    lab = find_lab(root)
    if not lab.mark.is_file():
        reporter.say(f"there is no lab in {lab.root} - build it: eagletui lab up (about 3 minutes, 5 GB)")
        return 1
    missing = [step.title for step in STEPS if not lab.finished(step.id)]
    state = f"not finished, missing: {'; '.join(missing)} - go on: eagletui lab up" if missing else "ready"
    reporter.say(f"lab in {lab.root}: {state}")
    reporter.say(f"on disk: {size(folder_size(lab.root))}")
    reporter.say(f"running: {_names(processes(lab)) or 'nothing'}")
    return 1 if missing else 0


def remove(
    root: str | os.PathLike[str] | None = None,
    *,
    reporter: Reporter,
    confirm: Callable[[str], bool],
) -> int:
    """Delete the lab's folder after ``confirm`` said yes to a question. Refuses any folder that `up` did not make."""
    lab = find_lab(root)
    try:
        if not lab.root.exists():
            reporter.say(f"there is no lab in {lab.root}")
            return 0
        _may_remove(lab)
        with _alone(lab):
            if not confirm(f"delete {lab.root} ({size(folder_size(lab.root))})?"):
                reporter.say("nothing was deleted")
                return 1
            shutil.rmtree(lab.root)
    except LabError as error:
        reporter.error(f"lab remove: {error}")
        return 1
    except OSError as error:
        reporter.error(f"lab remove: {error.filename}: {error.strerror} - delete the rest by hand")
        return 1
    reporter.say(f"deleted {lab.root}")
    return 0


def _may_remove(lab: Lab) -> None:
    if lab.root.is_symlink() or not lab.mark.is_file():
        raise LabError("lab", f"{lab.root} was not made by lab up", "delete it by hand if you mean it")
    if running := processes(lab):
        raise LabError("lab", f"still running from it: {_names(running)}", "end them first: eagletui lab down")
