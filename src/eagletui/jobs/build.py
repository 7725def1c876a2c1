"""Building from source on the host, such as SGLang's kernels for SM120: needs looked at first, jobs bounded by memory."""

from __future__ import annotations

import json
import re
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from eagletui.jobs.base import Kind, Spec, job_spec, status_words
from eagletui.jobs.keys import Key, Wrong
from eagletui.jobs.seen import SeenWatcher
from eagletui.jobs.watcher import Outcome

PROGRAM = "eagletui.jobs.on_host.build"
_OOM = re.compile(
    r"(?:fatal error: )?Killed signal terminated program (?P<program>\w[\w+.-]*)|fatal error: Killed"
    r"|internal compiler error: Killed"
    r"|'?(?P<tool>nvcc|cudafe\+\+|cicc|ptxas|clang\+*|c\+\+|cc1plus)'? died due to signal 9|^Killed$|virtual memory exhausted"
    r"|std::bad_alloc|cannot allocate memory",
    re.IGNORECASE,
)
_FAILED = re.compile(r"^FAILED: |\berror: |^CMake Error|\*\*\* \[.*Error \d+|^ERROR: |undefined reference|^ninja: error:")
_SAME = re.compile(r"^(?:ninja: build stopped|error: subprocess-exited|ERROR: Failed building|make(?:\[\d+\])?: \*\*\* Waiting)")
_MOST = 300


class Build(Kind):
    """``argv`` or ``shell`` builds in ``source``; by default pip does, into the environment of ``python``."""

    name = "build"
    keys: Tuple[Key, ...] = (
        Key("source", "path", "the directory of the sources; it is built there", required=True),
        Key("python", "path", "the python of the environment that it is built for, and that has to import it", required=True),
        Key("argv", "texts", "what builds it, instead of `python -m pip install --no-build-isolation -v .`"),
        Key("shell", "text", "or a line for `bash -lc`"),
        Key("programs", "texts", "programs that have to be there before it begins", default=("cmake", "ninja", "c++")),
        Key("modules", "texts", "Python modules that `python` has to have (`scikit_build_core`, `torch`)"),
        Key("headers", "texts", "C headers that have to be found (`numa.h`, `cuda_runtime.h`)"),
        Key("gib_per_job", "number", "GiB of memory that one compiler may take: bounds the jobs at a time", default=4, low=0.1),
        Key("jobs", "int", "jobs at a time, at most; by default one for each core, as far as memory goes", low=1),
        Key("imports", "texts", "Python modules that have to be importable afterwards"),
        Key("expect", "texts", "files that have to be there afterwards, from `source` where they are relative"),
    )

    def check(self, values: Mapping[str, Any]) -> Sequence[Wrong]:
        out: List[Wrong] = []
        if values.get("argv") is not None and values.get("shell") is not None:
            out.append(Wrong("shell", "'argv' and 'shell' both say what builds it", "keep one of them"))
        if not values.get("imports") and not values.get("expect"):
            remedy = "add imports (modules) or expect (files): an exit status proves nothing"
            out.append(Wrong("imports", "nothing says what the build has to have made", remedy))
        return out

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        python = str(profile["python"])
        if profile.get("shell") is not None:
            command = ["bash", "-lc", str(profile["shell"])]
        else:
            command = list(profile.get("argv") or (python, "-m", "pip", "install", "--no-build-isolation", "-v", "."))
        wanted = {key: profile[key] for key in ("programs", "modules", "headers", "imports", "expect") if profile.get(key)}
        wanted.update(gib=profile.get("gib_per_job", 4), jobs=profile.get("jobs"), source=profile["source"])
        argv = [python, "-m", PROGRAM, json.dumps(wanted, sort_keys=True), "--", *command]
        return job_spec(self.name, profile, job, argv, cards, on_host=True, source=profile["source"])

    def title(self, spec: Mapping[str, Any]) -> str:
        argv = list(spec["argv"])
        return "%s in %s" % (" ".join(argv[argv.index("--") + 1 :]), spec.get("source"))

    def watcher(self, spec: Mapping[str, Any], directory: str) -> "BuildWatcher":
        return BuildWatcher(spec, directory)

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        return None, "ended on request" if killed else status_words(state.get("rc"))


class BuildWatcher(SeenWatcher):
    """Counts what ninja, make or pip show, and keeps the first error and whether a compiler was killed for memory."""

    def __init__(self, spec: Mapping[str, Any], directory: str) -> None:
        super().__init__(spec, directory)
        self._first: Optional[str] = None
        self._killed: Optional[str] = None

    def line(self, text: str, boot: float) -> None:
        super().line(text, boot)
        killed = _OOM.search(text)
        if killed is not None and self._killed is None:
            self._killed = killed.group("program") or killed.group("tool") or "a compiler"
        if self._first is None and killed is None and _FAILED.search(text) and not _SAME.search(text):
            self._first = text.strip()[:_MOST]

    def troubles(self) -> Tuple[str, ...]:
        if self._killed is None:
            return super().troubles()
        return (*super().troubles(), "memory: %s was killed by the kernel; the rest of the build goes on" % self._killed)

    def outcome(self, rc: Optional[int], killed: bool) -> Outcome:
        found = super().outcome(rc, killed)
        if killed or found.ok or rc is None:
            return found
        if self._killed is not None:
            jobs = int(found.result.get("jobs") or 0)
            fewer = "jobs = %d" % (jobs // 2) if jobs > 1 else "more memory or swap"
            why = (
                "out of memory: the kernel killed %s%s - %s (or a larger gib_per_job), and run it again: what is built stays"
                % (
                    self._killed,
                    self.so_far(),
                    fewer,
                )
            )
            return Outcome(False, why, found.result)
        if self._first is not None and not found.result.get("checked"):
            return Outcome(False, "%s: %s" % (found.why.partition(": ")[0], self._first), found.result)
        return found
