"""A model or data set onto the host, from the hub or from another directory of it: size first, whole and checked at the end."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Tuple

from eagletui.jobs import manifest
from eagletui.jobs.base import Kind, Spec, job_spec, status_words
from eagletui.jobs.keys import Key, Wrong
from eagletui.jobs.told import ToldWatcher
from eagletui.jobs.watcher import Outcome

PROGRAM = "eagletui.jobs.on_host.download"


class Download(Kind):
    """``repo`` is fetched by huggingface_hub's own listing under ``python``; ``source`` is copied, by any python3."""

    name = "download"
    keys: Tuple[Key, ...] = (
        Key("output", "path", "the directory that it goes to", required=True),
        Key("repo", "text", "a repository of the hub, ORGANISATION/NAME"),
        Key("source", "path", "or a directory or file of this host to copy"),
        Key("python", "path", "the python of an environment that has huggingface_hub; needed for a repo"),
        Key(
            "revision", "text", "a branch, tag or commit of the repo; what it stands for at the first run is kept", default="main"
        ),
        Key("repo_type", "text", "what the repo is", default="model", choices=("model", "dataset")),
        Key("files", "texts", "only what matches one of these patterns (`*.safetensors`, `config.json`)"),
        Key("skip", "texts", "nothing that matches one of these patterns (`*.bin`, `original/*`)"),
        Key("workers", "int", "files at a time", default=4, low=1, high=64),
        Key(
            "hashes",
            "bool",
            "check SHA-256: of a repo as the hub tells them, while it comes; of a copy by reading it back",
            default=True,
        ),
        Key("spare", "number", "GiB of the disk that have to stay free", default=2, low=0),
    )

    def check(self, values: Mapping[str, Any]) -> Sequence[Wrong]:
        out: List[Wrong] = []
        if (values.get("repo") is None) == (values.get("source") is None):
            key = "source" if "repo" in values else "repo"
            out.append(Wrong(key, "either repo or source says what is downloaded", "keep one" if "repo" in values else "add one"))
        elif values.get("repo") is not None and values.get("python") is None:
            what = "'python' is missing: the hub is asked by huggingface_hub"
            out.append(Wrong("repo", what, "add python = the python of an environment that has it (your engine's has)"))
        repo = values.get("repo")
        if repo is not None and (repo.count("/") > 1 or any(c.isspace() for c in repo) or repo.startswith((".", "/", "http"))):
            out.append(Wrong("repo", "'repo' is %r" % repo, "expected ORGANISATION/NAME, as in the address of its page"))
        return out

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        argv = [profile.get("python") or "python3", "-m", PROGRAM, "--output", profile["output"]]
        if profile.get("repo") is not None:
            argv += ["--repo", profile["repo"], "--revision", profile.get("revision") or "main"]
            argv += ["--type", profile.get("repo_type") or "model"]
        else:
            argv += ["--source", profile["source"]]
        for flag, key in (("--file", "files"), ("--skip", "skip")):
            for pattern in profile.get(key) or ():
                argv += [flag, pattern]
        argv += ["--workers", str(profile.get("workers") or 4), "--spare", "%g" % profile.get("spare", 2), "--job", job]
        if not profile.get("hashes", True):
            argv.append("--no-hashes")
        return job_spec(self.name, profile, job, argv, cards, on_host=True, output=profile["output"])

    def title(self, spec: Mapping[str, Any]) -> str:
        argv = list(spec["argv"])
        flag = "--repo" if "--repo" in argv else "--source"
        return "%s to %s" % (argv[argv.index(flag) + 1], spec.get("output"))

    def watcher(self, spec: Mapping[str, Any], directory: str) -> "DownloadWatcher":
        return DownloadWatcher(spec, directory)

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        return None, "ended on request" if killed else status_words(state.get("rc"))


class DownloadWatcher(ToldWatcher):
    """What the program says, and in the end a look of our own at every file."""

    def check(self, result: Mapping[str, Any]) -> Outcome:
        output = str(self.spec["output"])
        wanted = manifest.read(output)
        if wanted is None:
            return Outcome(False, "%s has no list of its files" % output, dict(result))
        wrong = manifest.problems(output, wanted)
        if wrong:
            more = " and %d more" % (len(wrong) - 1) if len(wrong) > 1 else ""
            return Outcome(False, "%s%s" % (wrong[0], more), dict(result, problems=wrong[:20]))
        return Outcome(
            True, str(result.get("why") or "whole"), dict(result, path=output, files=len(wanted.files), bytes=wanted.size)
        )
