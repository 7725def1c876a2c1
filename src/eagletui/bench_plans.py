"""Benchmark plans: which servers are measured against each other, and under what load, as TOML.

    profile = "k25-eagle3"                 # how the server is launched; arms change it
    output = "/data/bench/k25"
    prompts = "/data/prompts.jsonl"
    pretrained = "/data/drafters/k25"      # a drafter as it came
    trained = "/data/train/k25/checkpoints/checkpoint_best"
    validation = "/data/train/k25"         # where its training left its accuracies
    concurrency = [1, 4, 16]
    contexts = [0, 4096]

Without ``[[arm]]`` the arms are: no drafter, the pretrained one untouched, the trained one. A plan becomes a pipeline: servers
started one after the other, a step ``benchmark`` at each, a step ``verdict`` at the end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eagletui.config import Notice, line_of, read_text, read_toml
from eagletui.engines.command import speculative_config
from eagletui.jobs.base import BadJob, redact_argv, redact_env, secret_name
from eagletui.jobs.benchmark import ROLES, Benchmark
from eagletui.jobs.keys import COMMON, Key, Wrong, read_keys
from eagletui.jobs.kinds import kind
from eagletui.profile_launch import NoSuchCards, launch_spec
from eagletui.profiles import Profile, with_changes

CHEAP_LOAD = 180.0
"""Seconds of a load up to which the arm without a drafter is measured again at the end (A-B-A)."""
LENGTHS = (1.5, 2.0, 2.5, 3.0)
_SHARED = (
    "prompts", "count", "contexts", "context_files", "concurrency", "max_tokens", "temperature", "seed", "ignore_eos", "warmups",
    "flush", "tool", "trust_remote_code", "api_key_env",
)  # fmt: skip
_OF_JOB = {key.name: key for key in Benchmark.keys}
_COMMON = {key.name for key in COMMON}

KEYS: tuple[Key, ...] = (
    Key(
        "profile", "text", "the profile that the arms change; its drafter is the trained one unless that is named", required=True
    ),
    Key("output", "path", "where everything goes", required=True),
    Key("python", "path", "the python of the engine's environment; by default the profile's"),
    Key("pretrained", "text", "a drafter as it came, for an arm of its own"),
    Key("trained", "text", "the trained drafter"),
    Key("validation", "path", "where the trained drafter's accuracies are: its training's output, or val_metrics.json"),
    Key("k", "int", "draft tokens a step, for the default arms", low=1, high=64),
    Key("passes", "int", "how often each load is measured at each arm", default=3, low=1, high=100),
    Key(
        "order",
        "text",
        "a-b-a: without a drafter first and last; blocks: each arm once; auto: a-b-a where loads are short here",
        default="auto",
        choices=("auto", "a-b-a", "blocks"),
    ),
    Key("prefix_cache", "bool", "leave the engine's prefix cache on", default=False),
    Key("earlier", "texts", "earlier verdicts on this host, for what is to be expected"),
    Key("lengths", "numbers", "with --synthetic: the acceptance lengths that are acted out", default=LENGTHS, low=1),
    Key("untrained", "text", "with --synthetic: a drafter of the right shape, trained or not"),
    Key("make_untrained", "table", "with --synthetic: make one first; keys of a train job (python, target, data ...)"),
    Key("arm", "tables", "the arms, instead of the default ones"),
    *(_OF_JOB[name] for name in _SHARED if name != "api_key_env"),
    Key("api_key_env", "text", "the variable that holds the servers' key; its value comes from you, and is written nowhere"),
)
ARM_KEYS: tuple[Key, ...] = (
    Key("role", "text", "none: what the others are compared with", choices=tuple(role for role in ROLES if role != "synthetic")),
    Key("profile", "text", "another profile than the plan's"),
    Key("changes", "texts", "changes to the profile: KEY=VALUE, an empty value takes a key away"),
    Key("python", "path", "the python of this arm's engine"),
    Key("validation", "path", "where its drafter's accuracies are"),
)


class BadPlan(ValueError):
    """A plan cannot be run: everything that is wrong with it."""

    def __init__(self, notices: Sequence[Notice]) -> None:
        super().__init__("; ".join(map(str, notices)))
        self.notices = tuple(notices)


@dataclass(frozen=True)
class PlanArm:
    """One arm: the profile that its server is launched from, and what it is for."""

    name: str
    role: str
    profile: Profile
    python: str
    validation: str | None = None
    synthetic_length: float | None = None


@dataclass(frozen=True)
class Plan:
    """A plan, checked. ``values`` are the keys of `KEYS` with their defaults."""

    name: str
    values: Mapping[str, Any]
    arms: tuple[PlanArm, ...]
    source: Path
    text: str = field(default="", repr=False)
    synthetic: bool = False


# ------------------------------------------------------------------------------------------------------------------ a file


def read_plan(path: Path, profiles: Mapping[str, Profile], synthetic: bool = False, changes: Sequence[str] = ()) -> Plan:
    """The plan at ``path``; ``profiles`` are the host's, ``changes`` KEY=VALUE. Raises `BadPlan` with all that is wrong."""
    text, unreadable = read_text(path.expanduser())
    if text is None:
        raise BadPlan([unreadable] if unreadable else [])
    return parse_plan(text, path, profiles, synthetic, changes)


def parse_plan(
    text: str, path: Path, profiles: Mapping[str, Profile], synthetic: bool = False, changes: Sequence[str] = ()
) -> Plan:
    """`read_plan` of a text."""
    document, unreadable = read_toml(text, path, "the plan cannot be run")
    if document is None:
        raise BadPlan([unreadable] if unreadable else [])
    notices: list[Notice] = []

    def note(wrong: Wrong, line: int | None = None) -> None:
        notices.append(Notice(path, line or line_of(text, (wrong.key,)) or 1, wrong.what, wrong.remedy))

    for change in changes:
        key, equal, word = change.partition("=")
        if not equal:
            note(Wrong(key, f"{change!r} is not KEY=VALUE", "see docs/bench.md"))
            continue
        loaded, _ = read_toml(f"v = {word}", path, "")
        document[key] = loaded["v"] if loaded is not None else word
    kind_ = document.pop("kind", "bench")
    if kind_ != "bench":
        note(Wrong("kind", f"'kind' is {kind_!r}", 'a plan has kind = "bench", or none'))
    name = document.pop("name", path.stem)
    for key in sorted(_COMMON & set(document)):
        note(Wrong(key, f"{key!r} is no key of a plan", f"known: {', '.join(key.name for key in KEYS)}"))
        del document[key]
    values, wrong = read_keys(KEYS, document)
    for item in (*wrong, *_together(values, synthetic)):
        note(item)
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        note(Wrong("name", f"'name' is {name!r}", "a name of letters, digits, '.', '_' and '-'"))
    arms: list[PlanArm] = []
    if not notices:
        for found in _arms(values, profiles, synthetic):
            if isinstance(found, Wrong):
                note(found)
            else:
                arms.append(found)
        if not any(arm.role == "none" for arm in arms) and not notices:
            note(
                Wrong("arm", "no arm is without a drafter", 'one arm has to have role = "none": the others are compared with it')
            )
    if notices:
        raise BadPlan(notices)
    return Plan(str(name), {**values, "name": name}, tuple(arms), path, text, synthetic)


def _together(values: Mapping[str, Any], synthetic: bool) -> list[Wrong]:
    out = []
    for arm in values.get("arm") or ():
        unknown = set(arm) - {key.name for key in ARM_KEYS} - {"name"}
        if unknown:
            known = ", ".join(["name", *(key.name for key in ARM_KEYS)])
            out.append(Wrong("arm", f"an arm has the unknown key {sorted(unknown)[0]!r}", f"known: {known}"))
        if not isinstance(arm.get("name"), str) or not arm["name"].strip():
            out.append(Wrong("arm", "an arm has no name", 'add name = "..."'))
        out += read_keys(ARM_KEYS, {key: value for key, value in arm.items() if key != "name"})[1]
    names = [arm.get("name") for arm in values.get("arm") or ()]
    for name in {name for name in names if names.count(name) > 1}:
        out.append(Wrong("arm", f"two arms are called {name!r}", "give one of them another name"))
    if values.get("untrained") and values.get("make_untrained"):
        out.append(Wrong("untrained", "'untrained' and 'make_untrained' both name a drafter", "keep one of them"))
    api_key = values.get("api_key_env")
    if api_key and "=" in api_key:
        out.append(Wrong("api_key_env", "the name of a variable is meant, not the key itself", "give its name"))
    if not synthetic:
        return out
    table = dict(values.get("make_untrained") or {})
    if table:
        _, wrong = read_keys(kind("train").keys, {**table, "output": "/untrained", "dry_run": True})
        out += [Wrong("make_untrained", item.what, item.remedy) for item in wrong]
    return out


# -------------------------------------------------------------------------------------------------------------------- arms


def _arms(values: Mapping[str, Any], profiles: Mapping[str, Profile], synthetic: bool) -> list[PlanArm | Wrong]:
    base = profiles.get(values["profile"])
    if base is None:
        known = ", ".join(sorted(profiles)[:8]) or "none"
        return [Wrong("profile", f"there is no profile {values['profile']!r} for this host", f"known: {known}")]
    if synthetic:
        return _synthetic_arms(values, base)
    if values.get("arm"):
        return [_own_arm(arm, values, base, profiles) for arm in values["arm"]]
    out = [_arm("none", "none", base, ["drafter="], values)]
    for name in ("pretrained", "trained"):
        drafter = values.get(name) or (base.drafter if name == "trained" else None)
        if drafter:
            k = values.get("k") or base.k
            changes = [f"drafter={drafter}", *([f"k={k}"] if k else [])]
            validation = values.get("validation") if name == "trained" else None
            out.append(_arm(name, name, base, changes, values, validation=validation))
    if len(out) == 1:
        out.append(Wrong("trained", "there is no drafter to measure", "name pretrained, trained, or [[arm]]s"))
    return out


def _own_arm(
    arm: Mapping[str, Any], values: Mapping[str, Any], base: Profile, profiles: Mapping[str, Profile]
) -> PlanArm | Wrong:
    profile = base
    if arm.get("profile"):
        found = profiles.get(arm["profile"])
        if found is None:
            return Wrong("arm", f"arm {arm['name']}: there is no profile {arm['profile']!r}", f"known: {', '.join(profiles)}")
        profile = found
    made = _arm(arm["name"], "", profile, arm.get("changes") or (), {**values, **_python(arm)}, validation=arm.get("validation"))
    if isinstance(made, Wrong):
        return made
    role = arm.get("role") or ("other" if made.profile.drafter else "none")
    if (role == "none") != (made.profile.drafter is None):
        has = "has role none and a drafter" if role == "none" else f"has role {role} and no drafter"
        return Wrong("arm", f"arm {arm['name']} {has}", 'change the drafter: changes = ["drafter=..."]')
    return replace(made, role=role)


def _python(arm: Mapping[str, Any]) -> dict[str, Any]:
    return {"python": arm["python"]} if arm.get("python") else {"python": None} if arm.get("profile") else {}


def _arm(
    name: str, role: str, profile: Profile, changes: Sequence[str], values: Mapping[str, Any], *, validation: str | None = None
) -> PlanArm | Wrong:
    try:
        changed = with_changes(profile, changes)
    except ValueError as error:
        return Wrong("arm", f"arm {name}: {error}", "see docs/profiles.md")
    python = values.get("python") or _python_of(changed)
    if python is None:
        what = f"arm {name}: its profile does not say which python has the engine"
        return Wrong("python", what, 'add python = "/path/of/the/venv/bin/python"')
    if changed.unit:
        return Wrong("profile", f"arm {name}: a systemd unit cannot be changed", "give a profile of its own flags")
    if not values["prefix_cache"]:
        off = "--no-enable-prefix-caching" if changed.engine == "vllm" else "--disable-radix-cache"
        if off not in changed.args:
            changed = replace(changed, args=(*changed.args, off))
    return PlanArm(name, role, changed, python, validation)


def _python_of(profile: Profile) -> str | None:
    if profile.python:
        return profile.python if profile.python.startswith("/") else None
    return f"{profile.venv}/bin/python" if profile.venv else None


def _synthetic_arms(values: Mapping[str, Any], base: Profile) -> list[PlanArm | Wrong]:
    """No drafter, then one arm a length, with a drafter whose acceptance is acted out: its shape alone matters."""
    drafter = values.get("untrained") or values.get("trained") or values.get("pretrained") or base.drafter
    if values.get("make_untrained"):
        drafter = f"{values['output']}/untrained/checkpoints"
    k = values.get("k") or base.k or 3
    if not drafter:
        return [Wrong("untrained", "there is no drafter whose shape could be measured", "name untrained, or make_untrained")]
    out = [_arm("none", "none", base, ["drafter="], values)]
    for length in values["lengths"]:
        if not 1 <= length <= k + 1:
            return [Wrong("lengths", f"an acceptance length of {length:g} is not possible with k = {k}", f"from 1 to {k + 1}")]
        made = _arm(f"length-{length:g}", "synthetic", base, [f"drafter={drafter}", f"k={k}"], values)
        if isinstance(made, Wrong):
            return [made]
        profile = made.profile
        if base.engine == "vllm":
            config = speculative_config(
                drafter, k, profile.method or "eagle3", rejection_sample_method="synthetic", synthetic_acceptance_length=length
            )
            profile = replace(profile, args=(*profile.args, "--speculative-config", config))
        else:
            profile = replace(profile, env={**profile.env, "SGLANG_SIMULATE_ACC_LEN": f"{length:g}"})
        out.append(replace(made, profile=profile, synthetic_length=float(length)))
    return out


# --------------------------------------------------------------------------------------------------------------- compiling


def aba(plan: Plan, load_seconds: float | None) -> bool:
    """Whether the arm without a drafter is measured first and last; ``load_seconds`` is what loads took on this host."""
    order = plan.values["order"]
    return order == "a-b-a" or (order == "auto" and load_seconds is not None and load_seconds <= CHEAP_LOAD)


def compile_plan(plan: Plan, uuids: Sequence[str], load_seconds: float | None = None) -> dict[str, Any]:
    """The pipeline ``{"dir", "servers", "steps"}`` of a plan on a host with these cards. Raises `BadJob`, `NoSuchCards`."""
    values, out = plan.values, str(plan.values["output"])
    if plan.synthetic and not uuids and any(arm.profile.engine == "vllm" for arm in plan.arms):
        raise BadJob("vLLM acts out acceptance only on GPUs, and this host has none (its CPU sampler refuses it)")
    steps: list[dict[str, Any]] = []
    servers: dict[str, dict[str, Any]] = {}
    if plan.synthetic and values.get("make_untrained"):
        steps.append(_untrained(values, out))
    blocks = _blocks(plan, load_seconds)
    results: dict[str, list[str]] = {arm.name: [] for arm in plan.arms}
    for arm, block, passes in blocks:
        name = _word(f"{arm.name}-{block}" if block else arm.name, servers)
        spec = launch_spec(arm.profile, name, uuids)
        place = f"{out}/arms/{name}"
        results[arm.name].append(place)
        servers[name] = _without_id(spec, arm.profile.secrets)
        job = _benchmark(plan, arm, spec, place, name, block, passes)
        steps.append(
            {
                "id": name,
                "kind": "benchmark",
                "spec": job,
                "server": name,
                "gates": [],
                "stage": None,
                "needs": [step["id"] for step in steps if step["kind"] == "train"],
                "outputs": [f"{place}/result.json"],
            }
        )
    steps.append(_verdict(plan, out, results, [step["id"] for step in steps if step["kind"] == "benchmark"]))
    return {"dir": out, "servers": servers, "steps": steps}


def _blocks(plan: Plan, load_seconds: float | None) -> list[tuple[PlanArm, str, int]]:
    """(arm, block, passes) in the order in which servers are started."""
    passes = int(plan.values["passes"])
    blocks = [(arm, "", passes) for arm in plan.arms]
    if aba(plan, load_seconds) and len(plan.arms) > 1:
        base = next(arm for arm in plan.arms if arm.role == "none")
        half = (passes + 1) // 2
        rest = [block for block in blocks if block[0] is not base]
        blocks = [(base, "1", half), *rest, (base, "2", half)]
    return blocks


def _word(text: str, taken: Mapping[str, Any]) -> str:
    """A name for a step and its server, not among the ``taken``."""
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:28] or "arm"
    return word if word not in taken else next(f"{word}-{n}" for n in range(2, 1000) if f"{word}-{n}" not in taken)


def _without_id(spec: Mapping[str, Any], secrets: Sequence[str] = ()) -> dict[str, Any]:
    out = {key: value for key, value in spec.items() if key != "id"}
    return {**out, "secrets": list(secrets)} if secrets else out


def _benchmark(
    plan: Plan, arm: PlanArm, server: Mapping[str, Any], place: str, name: str, block: str, passes: int
) -> dict[str, Any]:
    profile, values = arm.profile, plan.values
    shared = {key: values[key] for key in _SHARED if values.get(key) is not None}
    own = {
        "python": arm.python, "output": place, "arm": arm.name, "engine": profile.engine, "model": profile.model,
        "port": server["port"], "drafter": profile.drafter, "k": server.get("k"), "role": arm.role, "passes": passes,
        "sets": f"{values['output']}/sets", "synthetic_length": arm.synthetic_length, "block": block or None,
        # it stands on the command line, where everybody can read it
        "launch": {"argv": redact_argv(server["argv"]), "env": redact_env(server["env"])}, "name": name,
        # the tool is a part of the engine, and may need what the engine needs to be found
        "env": {key: value for key, value in profile.env.items() if not secret_name(key)},
    }  # fmt: skip
    if values.get("api_key_env"):
        own["secrets"] = [values["api_key_env"]]
    found, wrong = read_keys(Benchmark.keys, {**shared, **{key: value for key, value in own.items() if value is not None}})
    wrong = [*wrong, *Benchmark().check(found)]
    if wrong:
        raise BadJob(f"arm {arm.name}: {wrong[0].what}: {wrong[0].remedy}")
    return _without_id(Benchmark().spec(found, name))


def _untrained(values: Mapping[str, Any], out: str) -> dict[str, Any]:
    table = {**values["make_untrained"], "output": f"{out}/untrained", "dry_run": True}
    found, wrong = read_keys(kind("train").keys, table)
    if wrong:
        raise BadJob(f"make_untrained: {wrong[0].what}: {wrong[0].remedy}")
    spec = kind("train").spec(found, "untrained")
    return {
        "id": "untrained", "kind": "train", "spec": _without_id(spec), "server": None, "gates": [], "stage": None, "needs": [],
        "outputs": [f"{out}/untrained"],
    }  # fmt: skip


def _verdict(plan: Plan, out: str, results: Mapping[str, Sequence[str]], needs: Sequence[str]) -> dict[str, Any]:
    table = {
        "python": plan.arms[0].python,
        "output": out,
        "title": plan.name,
        "arms": [
            {"results": list(results[arm.name]), **({"validation": arm.validation} if arm.validation else {})}
            for arm in plan.arms
        ],
        **({"earlier": list(plan.values["earlier"])} if plan.values.get("earlier") else {}),
    }
    spec = kind("verdict").spec({**table, "name": "verdict"}, "verdict")
    return {
        "id": "verdict", "kind": "verdict", "spec": _without_id(spec), "server": None, "gates": [], "stage": None,
        "needs": list(needs), "outputs": [f"{out}/verdict.json"],
    }  # fmt: skip


__all__ = ["ARM_KEYS", "KEYS", "BadPlan", "NoSuchCards", "Plan", "PlanArm", "aba", "compile_plan", "parse_plan", "read_plan"]
