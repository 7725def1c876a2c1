"""The keys that act, from anywhere: on the job under the cursor, else on the one that is selected. Mixed into the app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from textual.app import App

from eagletui.screens.deeds import deeds_of
from eagletui.screens.words import LIVE_STATES
from eagletui.store import Store
from eagletui.text import clean
from eagletui.views.bench import choose_verdict
from eagletui.views.pipeline import choose_pipeline, pipeline_job
from eagletui.views.serving import choose, is_server
from eagletui.views.training import choose_run, current_run
from eagletui.widgets.table import Table

if TYPE_CHECKING:
    from eagletui.jobfiles import JobFile
    from eagletui.profiles import Profile


class Acting(App[int]):
    """Log, launch, relaunch, kill, probe and remove. The dialogs are imported when they are first wanted."""

    store: Store
    log_job: str | None = None
    """The job whose log was asked for last."""

    async def show_page(self, name: str) -> None:
        raise NotImplementedError

    def job_at_hand(self) -> str | None:
        """The job (a key of the table) under the cursor of the focused list, else the selected one, else the only one alive."""
        jobs = self.store.jobs
        focused = self.screen_stack[0].focused
        if isinstance(focused, Table) and focused.name_of_rows in ("job", "server", "step") and focused.cursor_key in jobs:
            return focused.cursor_key
        page = getattr(self, "page_name", "")
        if page == "log" and self.log_job in jobs:
            return self.log_job
        shown = {"training": current_run, "pipeline": pipeline_job}.get(page)
        found = shown(self.store) if shown is not None else None
        if found is not None:
            return found.id
        if self.store.selected in jobs:
            return self.store.selected
        alive = [key for key, job in jobs.items() if job.state in LIVE_STATES]
        return alive[0] if len(alive) == 1 else None

    def _some_job(self, what: str) -> str | None:
        job = self.job_at_hand()
        if job is None:
            self.notify(f"no job to {what}: choose one on the screen Jobs", severity="warning", markup=False)
        return job

    def _may_write(self) -> bool:
        if self.readonly:  # type: ignore[attr-defined]
            self.notify("this session is read-only", severity="warning", markup=False)
            return False
        return True

    async def show_log(self, job: str) -> None:
        """Show the log of this job."""
        self.log_job = job
        await self.show_page("log")
        page = cast(Any, self).page
        if page is not None:
            page.redraw()

    async def open_job(self, key: str) -> None:
        """Show a job on the screen that shows its kind best: a pipeline's steps, a training's curves, else its log."""
        job = self.store.jobs.get(key)
        if job is None:
            return
        if job.kind == "pipeline":
            choose_pipeline(self.store, key)
            await self.show_page("pipeline")
        elif job.kind == "train":
            choose_run(self.store, key)
            await self.show_page("training")
        elif job.kind in ("benchmark", "verdict") and (key in self.store.bench or key in self.store.verdicts):
            if job.kind == "verdict":
                choose_verdict(self.store, key)
            await self.show_page("bench")
        else:
            if is_server(job):
                choose(self.store, key)  # the screens of a server show this one from now on
            await self.show_log(key)

    async def action_log(self) -> None:
        job = self._some_job("show the log of")
        if job is not None:
            await self.show_log(job)

    def action_launch(self) -> None:
        if not self._may_write():
            return
        from eagletui.screens.launch import LaunchSheet

        def chosen(profile: Profile | None) -> None:
            if profile is not None:
                self._open_form(profile)

        self.push_screen(LaunchSheet(*deeds_of(self).profiles()), chosen)

    def _open_form(self, profile: Profile) -> None:
        from eagletui.screens.launch import LaunchForm

        self.push_screen(LaunchForm(profile, deeds_of(self).last_good(profile.name)))

    def action_new_job(self) -> None:
        if not self._may_write():
            return
        from eagletui.screens.new_job import JobForm, NewJobSheet

        def chosen(file: JobFile | None) -> None:
            if file is not None:
                self.push_screen(JobForm(file))

        self.push_screen(NewJobSheet(*deeds_of(self).job_files()), chosen)

    async def open_started(self, key: str) -> None:
        """Show a job that was just started: a pipeline and a training on their screens, others among the jobs."""
        job = self.store.jobs.get(key)
        if job is not None and job.kind in ("pipeline", "train"):
            await self.open_job(key)
        else:
            await self.show_page("jobs")

    def action_relaunch(self) -> None:
        if not self._may_write():
            return
        job = self._some_job("launch again")
        if job is None:
            return
        state, deeds = self.store.jobs[job], deeds_of(self)
        profile = deeds.launched_from(state.id)
        if profile is None and state.profile:
            profile = deeds.profiles()[0].get(state.profile) or deeds.last_good(state.profile)
        if profile is None:
            why = f"{clean(state.name, 60)} was not launched from a profile that is known here"
            self.notify(f"{why} - press l and choose one", severity="warning", markup=False)
            return
        from eagletui.screens.launch import LaunchForm

        self.push_screen(LaunchForm(profile))

    def action_kill(self) -> None:
        if not self._may_write():
            return
        job = self._process_at_hand() or self._some_job("end")
        if job is not None:
            from eagletui.screens.kill import KillSheet

            self.push_screen(KillSheet(self.store, job))

    def _process_at_hand(self) -> str | None:
        """What ends the process under the cursor of a list of processes: its job, else what stands for it alone."""
        focused = self.screen_stack[0].focused
        of_processes = isinstance(focused, Table) and focused.name_of_rows == "process"
        pid: int | None = cast(Any, focused).pid_at_cursor if of_processes else None
        if pid is None:
            return None
        for key, job in self.store.jobs.items():
            if any(member[0] == pid for member in job.member_pids) or job.pid == pid:
                return key
        return deeds_of(self).pids_id([pid])

    def action_remove(self) -> None:
        if not self._may_write():
            return
        job = self._some_job("remove")
        if job is None:
            return
        state = self.store.jobs[job]
        if state.state in LIVE_STATES or state.members:
            self.notify(f"{clean(state.name, 60)} still runs: end it first (k)", severity="warning", markup=False)
            return
        from eagletui.screens.remove import RemoveSheet

        self.push_screen(RemoveSheet(job, clean(state.name, 60)))

    def action_why(self) -> None:
        job = self._some_job("look at")
        if job is not None:
            from eagletui.screens.why import WhySheet

            self.push_screen(WhySheet(self.store, job))

    def action_probe(self) -> None:
        job = self._some_job("ask")
        if job is None:
            return
        state = self.store.jobs[job]
        if state.port is None or state.state != "running" or state.health not in ("ready", None):
            why = "it serves on no port" if state.port is None else "it is not ready"
            self.notify(f"{clean(state.name, 60)} cannot be asked: {why}", severity="warning", markup=False)
            return
        from eagletui.screens.probe import ProbeSheet

        self.push_screen(ProbeSheet(self.store, job))
