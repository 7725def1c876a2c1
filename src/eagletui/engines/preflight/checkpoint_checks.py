"""Is the checkpoint whole? Its files against its index, and each file against its own header."""

from __future__ import annotations

from typing import Any, Iterator, Mapping

from eagletui.engines.preflight.case import Case, size, where
from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Finding

PART = "checkpoint"
_OTHER_CONFIG = ("--config-format", "--hf-config-path")
"""With these the configuration is another file."""
CONTAINERS = ("docker", "podman")


def parts(case: Case) -> Iterator["tuple[str, Mapping[str, Any]]"]:
    """(role, facts) of the checkpoints of this launch."""
    if case.target:
        yield "target", case.target
    if case.drafter and case.launch.drafter:
        yield "drafter", case.drafter


def there(case: Case) -> Iterator[Finding]:
    """Is there a checkpoint at all where the launch names one?"""
    for role, facts in parts(case):
        given = str(facts.get("given") or "")
        if facts.get("problem"):
            yield Finding(
                "%s-unreadable" % role,
                BLOCK,
                "the %s cannot be read" % role,
                "%s: %s" % (given, facts["problem"]),
                "the engine cannot either",
                "check its owner and mode",
                PART,
            )
        elif facts.get("kind") == "absent" and case.launch.runner in CONTAINERS:
            yield Finding(
                "%s-in-container" % role,
                INFO,
                "the %s could not be looked at" % role,
                "%s is not on the host: it may be mounted, or lie in the image" % given,
                "whether it is whole and fits is not checked",
                "",
                PART,
            )
        elif facts.get("kind") == "absent":
            yield Finding(
                "%s-absent" % role,
                # an address, or a name on the hub of the old kind (without an owner): no path of this host
                WARN if "://" in given or "/" not in given else BLOCK,
                "there is no %s there" % role,
                str(facts.get("path") or given),
                "the launch ends when the configuration is made",
                "correct the path in the profile",
                PART,
            )
        elif facts.get("kind") == "hub":
            elsewhere = "--revision" in case.launch.flags or any(name.endswith("_USE_MODELSCOPE") for name in case.launch.env)
            yield from _hub(role, given, facts.get("hub") or {}, elsewhere)


def _hub(role: str, given: str, hub: Mapping[str, Any], elsewhere: bool) -> Iterator[Finding]:
    """``elsewhere``: another revision or another hub is asked for than the one that was looked for."""
    if hub.get("snapshot") is None:
        if hub.get("offline"):
            yield Finding(
                "%s-not-cached" % role,
                WARN if elsewhere else BLOCK,
                "the %s is a name on the hub, and the hub is switched off" % role,
                "%s is not in %s; HF_HUB_OFFLINE is set" % (given, hub.get("cache")),
                "the launch ends: cannot find the requested files",
                "download it first, or give the path of a folder",
                PART,
            )
        else:
            yield Finding(
                "%s-download" % role,
                INFO,
                "the %s will be downloaded from the hub" % role,
                "%s is not in %s" % (given, hub.get("cache")),
                "the load takes as much longer; what it is could not be checked",
                "download it beforehand to have it checked",
                PART,
            )
    elif hub.get("incomplete"):
        yield Finding(
            "%s-incomplete" % role,
            BLOCK if hub.get("offline") else WARN,
            "a download of the %s was not finished" % role,
            "%d files in %s/blobs end in .incomplete" % (hub["incomplete"], hub.get("cache")),
            "the engine goes on with the download, or fails offline",
            "finish it before the launch",
            PART,
        )


def dummy(case: Case, role: str) -> bool:
    """Whether weights are made up instead of read."""
    return role == "target" and case.launch.load_format == "dummy"


def config(case: Case) -> Iterator[Finding]:
    """The configuration file of each."""
    for role, facts in parts(case):
        why = facts.get("config_problem")
        if why and facts.get("weights") != "gguf":
            yield Finding(
                "%s-config" % role,
                WARN if role == "target" and any(flag in case.launch.flags for flag in _OTHER_CONFIG) else BLOCK,
                "the %s's config.json cannot be read" % role,
                "%s: %s" % (where(facts, "config.json"), why),
                "the engine needs it before anything else",
                "is this the folder of a checkpoint? else fetch the file again",
                PART,
            )
        if facts.get("weights") == "none" and not why and "shards" in facts and not dummy(case, role):
            yield Finding(
                "%s-no-weights" % role,
                BLOCK,
                "the %s has no weights" % role,
                "no .safetensors, .bin or .gguf in %s" % where(facts),
                "the launch ends: cannot find any model weights",
                "fetch the weights",
                PART,
            )
        if facts.get("weights") == "bin" and role == "drafter":
            yield Finding(
                "drafter-bin",
                INFO,
                "the drafter's weights are in a pickle, which is not looked into",
                where(facts),
                "its shapes could not be checked",
                "convert it to safetensors",
                PART,
            )


def whole(case: Case) -> Iterator[Finding]:
    """Missing files, truncated ones, pointers of Git LFS, files of another version of the checkpoint."""
    for role, facts in parts(case):
        if dummy(case, role):
            continue
        missing = facts.get("missing") or []
        if missing:
            yield Finding(
                "%s-files-missing" % role,
                BLOCK,
                "%d of the %s's files are missing" % (len(missing), role),
                "%s in %s, named by model.safetensors.index.json" % (_some(missing), where(facts)),
                "the load fails",
                "download them",
                PART,
            )
        if facts.get("index_problem"):
            yield Finding(
                "%s-index" % role,
                BLOCK,
                "the %s's index cannot be read" % role,
                "%s: %s" % (where(facts, "model.safetensors.index.json"), facts["index_problem"]),
                "the load fails",
                "fetch it again",
                PART,
            )
        shards = facts.get("shards") or []
        pointers = [shard["name"] for shard in shards if shard.get("lfs")]
        if pointers:
            yield Finding(
                "%s-lfs" % role,
                BLOCK,
                "the %s's files are pointers of Git LFS" % role,
                "%s in %s" % (_some(pointers), where(facts)),
                "the load fails: invalid header",
                "git lfs pull, or download it with hf",
                PART,
            )
        broken = [shard for shard in shards if shard.get("problem") and not shard.get("lfs")]
        if broken:
            first = broken[0]
            yield Finding(
                "%s-damaged" % role,
                BLOCK,
                "%d of the %s's files %s damaged" % (len(broken), role, "are" if len(broken) > 1 else "is"),
                "%s in %s: %s%s"
                % (
                    first["name"],
                    where(facts),
                    first["problem"],
                    " (and %d more)" % (len(broken) - 1) if len(broken) > 1 else "",
                ),
                "the load fails when it comes to that file",
                "download it again: an interrupted copy or download",
                PART,
            )
        mixed = [shard for shard in shards if shard.get("absent")]
        if mixed:
            yield Finding(
                "%s-mixed" % role,
                BLOCK,
                "the %s's index and files are of different versions" % role,
                "%s lacks %d of the tensors that the index places there" % (mixed[0]["name"], mixed[0]["absent"]),
                "weights stay unset, or the load fails",
                "download the whole checkpoint again",
                PART,
            )


def _some(names: "list[str]") -> str:
    return ", ".join(names[:3]) + (" and %d more" % (len(names) - 3) if len(names) > 3 else "")


def total(case: Case) -> Iterator[Finding]:
    """The size that the index tells against the files."""
    for role, facts in parts(case):
        told = (facts.get("index") or {}).get("total_size")
        shards = facts.get("shards") or []
        if not isinstance(told, int) or not shards or len(shards) < (facts.get("index") or {}).get("files", 0):
            continue
        data = sum(shard.get("data") or 0 for shard in shards)
        # the index's number is of the tensors; some tools count those that are stored once twice
        if all("data" in shard for shard in shards) and data < told * 0.9:
            yield Finding(
                "%s-total" % role,
                WARN,
                "the %s's files hold less than its index says" % role,
                "%s of tensors in %s, the index says %s" % (size(data), where(facts), size(told)),
                "tensors may be missing",
                "compare with the hub's list of files",
                PART,
            )


CHECKS = (there, config, whole, total)
