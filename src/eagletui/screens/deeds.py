"""What the screens may do to a host: the commands, bound to the desk of this app. A test's desk brings its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pathlib import Path

    from eagletui.commands import Desk, LaunchPlan, Prompter
    from eagletui.commands.logs import LogWindow, Match
    from eagletui.commands.preflight import Preflight
    from eagletui.commands.probe import Probe
    from eagletui.commands.run import RunPlan
    from eagletui.commands.why import Canary, Looked
    from eagletui.config import Notice
    from eagletui.jobfiles import BadJobFile, JobFile
    from eagletui.profiles import Profile
    from eagletui.records import Alert, JobState, KillPlan, KillReport
    from eagletui.records.bench import BenchResult, BenchVerdict


class Deeds:
    """One method for each command that a screen calls; the command modules are imported when one is first called.

    Failures are `eagletui.commands.logs.HostError`, told in one line.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def retry(self) -> None:
        """Connect again at once."""
        from eagletui import commands

        commands.retry(self._desk)

    def ask_with(self, prompter: Prompter | None) -> None:
        """Who is asked what a new connection needs to know: a password, a code, whether a host key is right."""
        from eagletui import commands

        commands.ask_with(self._desk, prompter)

    def acknowledge(self, keys: Iterable[str]) -> list[Alert]:
        """Acknowledge these alerts; those that were not before."""
        from eagletui import commands

        return commands.acknowledge(self._desk, keys)

    def profiles(self) -> tuple[dict[str, Profile], list[Notice]]:
        from eagletui import commands

        return commands.profiles(self._desk)

    def last_good(self, name: str) -> Profile | None:
        from eagletui import commands

        return commands.last_good(self._desk, name)

    def save_profile(self, profile: Profile, everywhere: bool) -> Path:
        from eagletui import commands

        return commands.save_profile(self._desk, profile, everywhere)

    async def plan_launch(self, profile: Profile) -> LaunchPlan:
        from eagletui import commands

        return await commands.plan_launch(self._desk, profile)

    async def preflight(self, plan: LaunchPlan) -> Preflight:
        """What would stop this launch."""
        from eagletui.commands.preflight import preflight

        return await preflight(self._desk, plan.profile, plan)

    async def launch(self, plan: LaunchPlan, secrets: Mapping[str, str]) -> JobState:
        from eagletui import commands

        return await commands.launch(self._desk, plan, secrets)

    async def kill_plan(self, job: str) -> KillPlan:
        from eagletui import commands

        return await commands.kill_plan(self._desk, job)

    async def kill(self, plan: KillPlan) -> KillReport:
        from eagletui import commands

        return await commands.kill(self._desk, plan)

    def pids_id(self, pids: Iterable[int]) -> str:
        """What stands for single processes where a job is asked for."""
        from eagletui import commands

        return commands.pids_id(pids)

    async def hurry(self, job: str) -> None:
        from eagletui import commands

        await commands.hurry(self._desk, job)

    async def remove_job(self, job: str) -> None:
        from eagletui import commands

        await commands.remove_job(self._desk, job)

    def launched_from(self, job: str) -> Profile | None:
        """The profile that a job was launched from at this desk."""
        return self._desk.launched.get(job)

    @property
    def operator(self) -> str:
        """Who acts here, as the host's records name them."""
        return self._desk.operator

    def log_of(self, job: str) -> LogWindow:
        from eagletui.commands import logs

        return logs.log_of(self._desk, job)

    async def first_error(self, window: LogWindow, text: str | None) -> Match | None:
        from eagletui.commands import logs

        return await logs.first_error(window, text)

    async def stacks(self, job: JobState) -> Looked:
        from eagletui.commands import why

        return await why.stacks(self._desk, job)

    async def canary(self, job: JobState) -> Canary:
        from eagletui.commands import why

        return await why.canary(self._desk, job)

    def job_files(self) -> tuple[dict[str, JobFile], list[Notice]]:
        """The job files of this host, and what is wrong with those left out. Reads files."""
        from eagletui.jobfiles import load_job_files

        return load_job_files(self._desk.place)

    async def plan_run(self, file: JobFile) -> RunPlan:
        """What running a job file here would start."""
        from eagletui.commands.run import BadJobFile, plan_run

        try:
            return await plan_run(self._desk, file)
        except BadJobFile as error:
            raise _told(error) from None

    async def run_job(self, plan: RunPlan, secrets: Mapping[str, str]) -> JobState:
        """Start it."""
        from eagletui.commands.run import run_job

        return await run_job(self._desk, plan, secrets)

    def export_bench(self, name: str, verdict: BenchVerdict | None, results: Sequence[BenchResult]) -> list[str]:
        """Write a verdict and its results to files on this machine; their paths. Blocks."""
        from eagletui.commands.exports import export_bench

        return export_bench(name, verdict, results)

    def probe(self, job: str) -> Probe:
        from eagletui.commands.probe import Probe

        return Probe(self._desk, job)


def deeds_of(app: Any) -> Deeds:
    """The deeds of this app's desk."""
    own = getattr(app.desk, "deeds", None)
    return cast(Deeds, own) if own is not None else Deeds(app.desk)


def _told(error: BadJobFile) -> Exception:
    """What is wrong with a job file, as a failure in one line."""
    from eagletui.commands.logs import HostError

    what = "; ".join(f"{notice.what}: {notice.remedy}" if notice.remedy else notice.what for notice in error.notices)
    return HostError("job file", what, kind="config")
