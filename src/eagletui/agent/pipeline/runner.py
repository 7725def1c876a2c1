"""Going through the steps of a pipeline, each once: what is done is skipped, what runs is taken up, a failure stops it."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagletui.agent import state_dir
from eagletui.agent.calls import CallError
from eagletui.agent.job_files import ENDED as ENDED_STATES
from eagletui.agent.loop import Loop
from eagletui.agent.pipeline.asking import AT_ONCE, Asking, Ended
from eagletui.agent.pipeline.record import Record
from eagletui.agent.pipeline.servers import Servers
from eagletui.agent.pipeline.words import Failed, Narrator, counts_words, seconds_words, why_server_failed, work_words
from eagletui.jobs import gates
from eagletui.jobs.pipeline import made, step_prints, todo

DONE, FAILED, ENDED = 0, 1, 3
LEFT_SECONDS = 10.0
"""How long processes that a step has left behind may stay: the step itself has ended, and nobody else would ever end them."""
LOST_MOST = 3
"""How often a step is begun again by itself after its supervisor was lost: nobody knows then how it ended."""


class Runner:
    """``spec`` is the pipeline's own, ``secrets`` the values of the variables that its steps and servers name."""

    def __init__(
        self, asking: Asking, loop: Loop, spec: Mapping[str, Any], record: Record, tell: Narrator, secrets: Mapping[str, str]
    ) -> None:
        self._asking, self._spec, self._record, self._tell, self._secrets = asking, spec, record, tell, secrets
        self._plan: Mapping[str, Any] = spec["pipeline"]
        self._steps: List[Mapping[str, Any]] = self._plan["steps"]
        self._prints = step_prints(self._plan)
        self._by = "pipeline %s" % spec.get("name")
        self._todo: Dict[str, str] = {}
        self._lost: Dict[str, int] = {}
        self._servers = Servers(asking, loop, record, self._plan, tell, self._launch)
        self._at: Optional[Dict[str, Any]] = None

    # ---------------------------------------------------------------------------------------------------------- its course

    def run(self) -> int:
        """All of it; the exit status. What it started is ended, whatever happens but its own sudden death."""
        began = time.monotonic()
        try:
            self._prepare()
            for number, step in enumerate(self._steps, 1):
                self._one(number, step)
            self._servers.stop(self._servers.running(), self._by)
        except Failed as error:
            return self._close("failed", FAILED, error.words)
        except Ended:
            return self._close("ended", ENDED, "")
        except state_dir.StateError as error:
            return self._close("failed", FAILED, "%s%s" % (error.why, " - " + error.remedy if error.remedy else ""))
        except CallError as error:
            return self._close(
                "failed", FAILED, "%s: %s%s" % (error.step, error.why, " - " + error.remedy if error.remedy else "")
            )
        except OSError as error:
            return self._close("failed", FAILED, "%s: %s" % (error.filename or self._record.path, error.strerror or error))
        count = len(self._steps)
        words = "all %d steps are done" % count if count > 1 else "its step is done"
        self._record.doc.update(state="done", ended=round(time.time(), 3), why=words)
        self._record.save()
        self._tell.line("%s, %s" % (words, seconds_words(time.monotonic() - began)))
        self._tell.show()
        return DONE

    def _prepare(self) -> None:
        gone = self._record.arrange(self._steps)
        self._todo = todo(self._plan, {str(entry["id"]): entry for entry in self._record.steps})
        for entry in self._record.steps:
            if entry["id"] not in self._todo:
                entry["state"] = "done"
            elif entry["state"] == "done":  # known also to the next run, should we die before we come to it
                entry.update(state="waiting", why=self._todo[entry["id"]])
        self._record.save()
        count = len(self._steps)
        self._tell.line(
            "pipeline %s: %d step%s in %s" % (self._spec.get("name"), count, "" if count == 1 else "s", self._plan["dir"])
        )
        for entry in gone:
            if entry.get("state") == "running" and entry.get("job"):
                self._tell.line("step %s is not in the file any more, and still ran: it is ended" % entry.get("id"))
                self._end_job(str(entry["job"]))
        first = next((step["id"] for step in self._steps if step["id"] in self._todo), None)
        for entry in self._record.steps:
            if entry.get("state") == "running" and entry.get("job") and entry["id"] != first:
                self._tell.line("step %s ran already, and %s comes before it now: it is ended" % (entry["id"], first))
                self._end_job(str(entry["job"]))
                entry.update(state="ended", why="another step came before it")
        for name in self._servers.running():
            if name not in self._plan["servers"]:
                self._tell.line("server %s is not in the file any more" % name)
                self._servers.stop([name], self._by)

    def _one(self, number: int, step: Mapping[str, Any]) -> None:
        entry = self._record.step(step["id"])
        assert entry is not None  # `arrange` made one for each
        self._at = entry
        why = self._todo.get(step["id"])
        stage = ", stage %s" % step["stage"] if step.get("stage") else ""
        title = "step %d of %d: %s (%s%s)" % (number, len(self._steps), step["id"], step["kind"], stage)
        if why is None:
            self._tell.line("%s: done before" % title)
        else:
            self._tell.line(title + (": again, %s" % why if entry.get("attempt") and entry.get("state") != "running" else ""))
            self._record.doc["at"] = step["id"]
            self._tell.at(number, step)
            self._run_step(number, step, entry)
        self._tell.done = number
        self._tell.show()
        self._at = None
        self._servers.stop([name for name in self._servers.running() if not self._needed(name, number)], self._by)

    def _needed(self, server: str, after: int) -> bool:
        """Whether a later step that is still to be run needs this server."""
        return any(step.get("server") == server and step["id"] in self._todo for step in self._steps[after:])

    # ------------------------------------------------------------------------------------------------------------ one step

    def _run_step(self, number: int, step: Mapping[str, Any], entry: Dict[str, Any]) -> None:
        while True:
            job = self._take_up(step, entry)
            if job is None or self._asking.over(job) is None:
                if step.get("server"):
                    self._servers.need(str(step["server"]))
                job = job or self._begin(step, entry)
                self._follow(number, step, job)
            if self._judge(step, entry, job):
                return

    def _take_up(self, step: Mapping[str, Any], entry: Dict[str, Any]) -> Optional[str]:
        """The job of a step that had been begun before; None when it is to be begun (again)."""
        if entry.get("state") != "running" or not entry.get("job"):
            return None
        job = str(entry["job"])
        state = self._asking.state(job)
        if entry.get("fingerprint") != self._prints[step["id"]]:
            self._tell.line("job %s runs it as it was before the file changed: it is ended, and the step begun anew" % job, 1)
            self._end_job(job)
            return None
        if state is None:
            self._launch_step(step, entry, job)  # it was written down, and not launched any more
        elif self._asking.over(job) is None:
            self._tell.line("it runs already: job %s" % job, 1)
        return job

    def _begin(self, step: Mapping[str, Any], entry: Dict[str, Any]) -> str:
        self._servers.give_way(step.get("server"), step["spec"])
        for key in ("why", "gate", "figures", "made", "seconds", "ended", "gates"):
            entry.pop(key, None)
        entry.update(state="running", fingerprint=self._prints[step["id"]], started=round(time.time(), 3))
        job = self._record.next_job(entry, step["id"])
        self._launch_step(step, entry, job)
        return job

    def _launch_step(self, step: Mapping[str, Any], entry: Dict[str, Any], job: str) -> None:
        try:
            self._launch(step["spec"], job)
        except CallError as error:
            entry.update(state="failed", why=error.why)
            raise Failed("step %s cannot be started: %s" % (step["id"], error.why), error.remedy) from None
        self._tell.line("job %s" % job, 1)

    def _launch(self, spec: Mapping[str, Any], job: str) -> None:
        """Start a job of ours; once, however often. Raises `CallError`, `Failed`."""
        names = [str(name) for name in spec.get("secrets") or ()]
        without = [name for name in names if not self._secrets.get(name)]
        if without:
            raise Failed(
                "no value for %s was handed over" % ", ".join(without), "set it where you run eagletui, and run this again"
            )
        doc = dict(spec, id=job, parent=self._spec["id"], operator=self._spec.get("operator"))
        doc = {key: value for key, value in doc.items() if value is not None}
        self._asking.request("launch", spec=doc, secrets={name: self._secrets[name] for name in names})

    def _follow(self, number: int, step: Mapping[str, Any], job: str) -> None:
        """Until nothing of it runs any more; it is ended when its server fails meanwhile."""
        told: List[str] = []

        def look() -> Optional[Dict[str, Any]]:
            state = self._asking.over(job)
            if state is not None:
                return state
            state = self._asking.state(job) or {}
            if state.get("state") == "lost_supervisor" and not told:
                told.append("lost")
                self._tell.line("the supervisor of job %s has died; the step goes on without one" % job, 1)
            if (
                state.get("state") in ENDED_STATES
                and time.time() - float(state.get("ended") or 0) > LEFT_SECONDS
                and "left" not in told
            ):
                told.append("left")
                self._tell.line("it has ended, and what it left behind is ended too (%s)" % state.get("detail"), 1)
                self._asking.kill(job, self._by, False)
            self._tell.troubles = ["%s: %s" % (step["id"], text) for text in state.get("troubles") or ()]
            self._tell.at(number, step, work_words(state.get("work")) or str(state.get("detail") or ""))
            self._servers.check(step.get("server"))
            return None

        try:
            self._asking.wait(look)
        except Failed:
            self._tell.line("its server has failed: the step is ended", 1)
            self._end_job(job)
            raise
        finally:
            self._tell.troubles = []

    def _judge(self, step: Mapping[str, Any], entry: Dict[str, Any], job: str) -> bool:
        """True when the step is done; False when it is to be begun once more. Raises `Failed`."""
        state, result = self._asking.state(job) or {}, self._asking.result(job)
        entry["seconds"] = _took(state, entry)
        if state.get("ended_by"):
            entry.update(state="ended", why="ended by %s" % state["ended_by"])
            raise Failed("step %s was ended by %s (job %s)" % (step["id"], state["ended_by"], job), AGAIN)
        lost = result.get("ok") is None and str(state.get("state")).startswith("lost")
        if lost or ("ok" not in result and state.get("rc") != 127):
            return self._was_lost(step, entry, state)
        if not result.get("ok"):
            why = str(result.get("why") or state.get("outcome") or state.get("detail") or "nobody can say why")
            cause, remedy = why_server_failed(state) if state.get("causes") else ("", "")
            if cause and cause not in why:
                why += " (%s)" % cause
            entry.update(state="failed", why=why)
            raise Failed("step %s failed: %s" % (step["id"], why), remedy or "its log: %s; %s" % (state.get("log") or job, AGAIN))
        numbers = gates.figures(step["kind"], result)
        entry["figures"] = {key: numbers[key] for key in list(numbers)[: gates.MOST_FIGURES]}
        entry["made"] = made(list(step.get("outputs") or ()))
        gone = [path for path, counts in entry["made"].items() if counts is None]
        if gone:
            entry.update(state="failed", why="it has ended well, and %s is not there" % gone[0])
            raise Failed("step %s has ended well, and %s is not there" % (step["id"], gone[0]), "see its log: job %s" % job)
        counts = counts_words(result)
        self._tell.line("done in %s%s" % (seconds_words(entry["seconds"]), ": " + counts if counts else ""), 1)
        why_not, lines = self._gate(step, numbers)
        for line in lines:
            self._tell.line("gate: %s" % line, 1)
        if why_not is not None:
            entry.update(state="failed", gate=True, why=why_not)
            raise Failed("step %s: %s" % (step["id"], why_not), "%s; %s" % (gates.hint(why_not), AGAIN))
        entry.update(state="done", why=str(result.get("why") or ""), ended=round(time.time(), 3))
        entry.pop("gate", None)
        self._record.save()
        return True

    def _was_lost(self, step: Mapping[str, Any], entry: Dict[str, Any], state: Mapping[str, Any]) -> bool:
        why = str(state.get("detail") or "its supervisor died before it had judged the end")
        count = self._lost[step["id"]] = self._lost.get(step["id"], 0) + 1
        if count > LOST_MOST:
            entry.update(state="failed", why=why)
            raise Failed("step %s was lost %d times: %s" % (step["id"], count, why), "look at the host's log (memory?)")
        self._tell.line("nobody knows how it ended (%s): it is begun again, and goes on where it was" % why, 1)
        entry["state"] = "waiting"
        return False

    @staticmethod
    def _gate(step: Mapping[str, Any], numbers: Mapping[str, float]) -> Tuple[Optional[str], List[str]]:
        """(why it may not be followed by the next one or None, [each gate in words])."""
        judged = [gates.judge(gate, numbers) for gate in step.get("gates") or ()]
        return next((words for good, words in judged if not good), None), [words for _, words in judged]

    # ------------------------------------------------------------------------------------------------------------ its end

    def _end_job(self, job: str) -> None:
        """End a step's job, and wait for it."""
        asked: List[bool] = []

        def look() -> bool:
            if self._asking.state(job) is None or self._asking.over(job) is not None:
                return True
            now = self._asking.asked >= AT_ONCE
            if now not in asked:
                asked.append(now)
                self._asking.kill(job, self._by, now)
            return False

        self._asking.wait(look)

    def _close(self, state: str, status: int, why: str) -> int:
        """The pipeline is over before its time: what it started is ended, and it is written down why."""
        at = self._at
        if state == "ended":
            where = " at step %s" % at["id"] if at is not None else ""
            why = "ended on request%s - %s" % (where, AGAIN)
        self._tell.line("stopped: " + why)
        while True:
            self._asking.heed()
            try:
                if at is not None and at.get("state") == "running" and at.get("job"):
                    if self._asking.over(str(at["job"])) is None:
                        self._tell.line("ending job %s" % at["job"], 1)
                        self._end_job(str(at["job"]))
                    if state == "ended":
                        at.update(state="ended", why="ended with the pipeline")
                self._servers.stop(self._servers.running(), self._by, lambda: self._asking.asked >= AT_ONCE)
                self._tell.line("nothing of it runs any more", 1)
                break
            except Ended:
                continue  # asked again, for an end at once
            except (Failed, CallError, state_dir.StateError, OSError) as error:
                self._tell.line("could not end all of it: %s" % error, 1)
                why += "; and not all of it could be ended: %s" % error
                break
        if at is not None and at.get("state") == "running" and state == "failed":
            at.update(state="failed", why=why)
        self._record.doc.update(state=state, why=why, ended=round(time.time(), 3))
        try:
            self._record.save()
        except OSError as error:
            self._tell.line("%s cannot be written: %s" % (self._record.path, os.strerror(error.errno or 0)))
        self._tell.show("stopped")
        return status


AGAIN = "run the pipeline again: it goes on with this step"


def _took(state: Mapping[str, Any], entry: Mapping[str, Any]) -> float:
    began, ended = state.get("started") or entry.get("started"), state.get("ended") or time.time()
    return round(max(0.0, ended - began), 1) if began else 0.0
