"""Pipelines: a chain of jobs as TOML that a person can read, made into what a host can run without any client.

    kind = "pipeline"
    dir = "/data/loop"                       # its record (pipeline.json), and what its steps make unless they say where
    stages = [10, 1000, "all"]               # first with 10 rows, then with 1,000, then with all of them

    [vars]                                   # words to be used below in braces
    venv = "/opt/vllm/bin/python"

    [defaults]                               # for every step whose kind has the key
    python = "{venv}"

    [servers.target]                         # a profile by its name, and what is different here; or a whole one
    profile = "kimi-k25-vllm"

    [[step]]
    id = "answers"
    kind = "synthesise"
    server = "target"                        # started before it, and stopped when no later step needs it
    prompts = "/data/prompts.jsonl"
    gates = [{key = "failed_share", most = 0.02}]

    [[step]]
    id = "prepared"
    kind = "prepare"
    data = ["{answers.path}"]                # what an earlier step makes
    small = {seq_length = 1024}              # what is different in all stages but the last

Everything is checked, and fixed, before anything runs: paths, ports, cards. All mistakes are told at once, with their lines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from eagletui.config import Notice
from eagletui.jobfiles import BadJobFile, JobFile
from eagletui.jobs import gates
from eagletui.jobs.base import BadJob, Kind, redact_argv, redact_env
from eagletui.jobs.keys import COMMON, read_keys
from eagletui.jobs.kinds import kind
from eagletui.jobs.pipeline import STEP_ID
from eagletui.pipeline_servers import ServerTables
from eagletui.pipeline_text import Lines, Unknown, mentions, resolve
from eagletui.profile_launch import NoSuchCards, card_env, cards_of
from eagletui.profiles import Profile

TOP = ("kind", "name", "description", "dir", "stages", "vars", "defaults", "servers", "step")
OWN = ("id", "kind", "server", "gates", "small", "when")
"""A step's keys that are the pipeline's, not its kind's."""
_STAGED = ("synthesise", "prepare", "extract", "train")
_GROWS = ("synthesise",)
"""Kinds whose output of a small stage is gone on with in the next: it lies beside the stages, not in one."""
_WHEN = ("each", "first", "last")
_NO_STEPS = ("serve", "pipeline")


def cards_used(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The cards (UUIDs) that any step or server of a compiled pipeline's spec will have."""
    plan = spec["pipeline"]
    parts = [step["spec"] for step in plan["steps"]] + list(plan["servers"].values())
    return tuple(sorted({card for part in parts for card in part.get("gpus") or ()}))


@dataclass
class _Step:
    """A ``[[step]]`` as it stands: its place in the file, and its kind."""

    number: int
    id: str
    table: Mapping[str, Any]
    kind: Kind
    when: str


@dataclass
class _Stage:
    """One turn through the steps. ``name`` is None where there are no stages, ``rows`` None for all rows."""

    name: str | None
    rows: int | None
    last: bool
    names: dict[str, Any] = field(default_factory=dict)


def compile_pipeline(file: JobFile, profiles: Mapping[str, Profile], uuids: Sequence[str] = ()) -> dict[str, Any]:
    """What `jobs.pipeline.Pipeline.spec` takes: ``{"name", "pipeline"}``, for a host with these profiles and cards.

    Raises `BadJobFile` with everything that is wrong.
    """
    return _Compiler(file, profiles, uuids).run()


class _Compiler:
    def __init__(self, file: JobFile, profiles: Mapping[str, Profile], uuids: Sequence[str]) -> None:
        self._file, self._document, self._uuids = file, file.values, uuids
        self._lines = Lines(file.text)
        self._notices: list[Notice] = []
        self._profiles = profiles
        self._steps: list[_Step] = []
        self._out: list[dict[str, Any]] = []
        self._made: list[tuple[str, tuple[str, ...]]] = []
        self._broken: set[str] = set()
        self._values_of: dict[str, Mapping[str, Any]] = {}
        self._servers: dict[str, dict[str, Any]] = {}

    def run(self) -> dict[str, Any]:
        names = self._top()
        stages = self._stages()
        self._read_steps()
        tables = ServerTables(self._table("servers"), self._profiles, self._uuids, self._note, self._note_unknown)
        self._check_names(names, tables)
        for stage in stages:
            # what an earlier stage has made goes by its name until this one has made it too
            stage.names = names = {**names, **({"stage": stage.name} if stage.name else {})}
            for step in self._of(stage, stages):
                if not self._compile(step, stage, tables):
                    self._broken.add(step.id)
        unused = sorted(set(tables.names) - tables.used)
        for name in unused:
            self._note(
                "servers." + name, 0, "", f"no step uses the server {name!r}", f'add server = "{name}" to one, or remove it'
            )
        if self._notices:
            raise BadJobFile(sorted(self._notices, key=lambda notice: notice.line or 0))
        plan = {"dir": self._dir, "servers": self._servers, "steps": self._out}
        return {"name": self._file.name, "profile": self._file.name, "pipeline": plan}

    def _note_unknown(self, table: str, number: int, key: str, error: Unknown, what: str = "") -> None:
        """A name that stands for nothing; what comes of another mistake is not told as one of its own."""
        if error.name.partition(".")[0] not in self._broken:
            self._note(table, number, key, what + str(error), "see docs/pipelines.md")

    def _note(self, table: str, number: int, key: str, what: str, remedy: str) -> None:
        notice = Notice(self._file.source, self._lines.at(table, number, key), what, remedy)
        if notice not in self._notices:  # a mistake in a step is one, though it is met in every stage
            self._notices.append(notice)

    def _table(self, name: str) -> Mapping[str, Any]:
        value = self._document.get(name, {})
        if isinstance(value, Mapping):
            return value
        self._note("", 0, name, f"{name!r} is no table", f"write [{name}] and its keys below it")
        return {}

    # ------------------------------------------------------------------------------------------------------------ the top

    def _top(self) -> dict[str, Any]:
        """The words of [vars], filled in; ``dir``."""
        for key in self._document:
            if key not in TOP:
                near = get_close_matches(key, TOP, 1)
                self._note(
                    key, 0, "", f"unknown key {key!r}", f"did you mean {near[0]!r}?" if near else f"known: {', '.join(TOP)}"
                )
        names: dict[str, Any] = {}
        for key, value in self._table("vars").items():
            try:
                names[key] = resolve(value, names)
            except Unknown as error:
                names[key] = value
                self._note("vars", 0, key, str(error), "a variable may use those above it")
        self._dir = ""
        place = self._document.get("dir")
        try:
            place = resolve(place, names)
        except Unknown as error:
            self._note("", 0, "dir", str(error), "dir may use [vars]")
        else:
            if not isinstance(place, str) or not place.startswith("/") or not place.strip("/") or "/../" in f"{place}/":
                what = "'dir' is missing" if place is None else f"'dir' is {place!r}"
                self._note("", 0, "dir", what, 'add dir = "/where/its/record/and/results/go", an absolute path on the host')
            else:
                self._dir = str(Path(place))
        names["dir"] = self._dir
        return names

    def _stages(self) -> list[_Stage]:
        given = self._document.get("stages")
        if given is None:
            return [_Stage(None, None, True)]
        rows = [item for item in given if _whole(item)] if isinstance(given, list) else []
        good = isinstance(given, list) and given and all(_whole(item) or item == "all" for item in given)
        if not good or rows != sorted(set(rows)) or "all" in given[:-1]:
            what = f"'stages' is {json.dumps(given, default=str)}"
            self._note("", 0, "stages", what, 'expected numbers of rows that grow, "all" for the last: [10, 1000, "all"]')
            return [_Stage(None, None, True)]
        return [_Stage(str(item), None if item == "all" else item, at == len(given) - 1) for at, item in enumerate(given)]

    # ---------------------------------------------------------------------------------------------------------- the steps

    def _read_steps(self) -> None:
        tables = self._document.get("step")
        if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
            self._note("step", 0, "", "there is no step", "add [[step]] with id, kind and the keys of that kind")
            return
        begun = False
        for number, table in enumerate(tables):
            name, word = table.get("id"), table.get("kind")
            if not isinstance(name, str) or not STEP_ID.fullmatch(name) or "." in name or len(name) > 24:
                what = "a step has no 'id'" if name is None else f"'id' is {name!r}"
                self._note("step", number, "id", what, "expected a word of letters, digits, '_' and '-', at most 24 long")
                continue
            if any(step.id == name for step in self._steps):
                self._note("step", number, "id", f"there is a step {name!r} already", "give one of them another id")
                continue
            found = self._kind(number, word)
            if found is None:
                self._broken.add(name)
                continue
            staged = found.name in _STAGED
            begun = begun or staged
            when = table.get("when", "each" if staged else "last" if begun else "first")
            if when not in _WHEN:
                self._note("step", number, "when", f"'when' is {when!r}", "expected each, first or last: in which of the stages")
                self._broken.add(name)
                continue
            self._steps.append(_Step(number, name, table, found, when))

    def _kind(self, number: int, word: Any) -> Kind | None:
        try:
            if not isinstance(word, str) or word in _NO_STEPS:
                raise BadJob("'kind' is missing" if word is None else f"a step cannot be of kind {word!r}")
            return kind(word)
        except BadJob as error:
            self._note("step", number, "kind", str(error), "see docs/jobs.md; servers stand under [servers]")
            return None

    def _check_names(self, names: Mapping[str, Any], tables: ServerTables) -> None:
        for step in self._steps:
            for other, what in ((names, "variable"), (tables.names, "server")):
                if step.id in other:
                    self._note("step", step.number, "id", f"{step.id!r} is a {what} too", "names in braces would be ambiguous")

    def _of(self, stage: _Stage, stages: Sequence[_Stage]) -> list[_Step]:
        first = stage is stages[0]
        return [
            step
            for step in self._steps
            if step.when == "each" or (step.when == "first" and first) or (step.when == "last" and stage.last)
        ]

    def _compile(self, step: _Step, stage: _Stage, tables: ServerTables) -> bool:
        """Add one step of one stage to what is made; False with what is wrong noted."""
        ident = f"{step.id}.{stage.name}" if stage.name and step.when == "each" else step.id
        server: str | None = None
        spec_of_server: Mapping[str, Any] | None = None
        if (wanted := step.table.get("server")) is not None:
            made = tables.make(wanted, stage.names, stage.name, step.number, self._dir)
            if made is None:
                return False
            server, spec_of_server, facts = made
            self._servers[server] = dict(spec_of_server)
            stage.names.update({f"{wanted}.{key}": value for key, value in facts.items()})
        values = self._values(step, stage, ident, spec_of_server)
        if values is None:
            return False
        spec = self._spec(step, values)
        if spec is None:
            return False
        shared = sorted(set(spec.get("gpus") or ()) & set((spec_of_server or {}).get("gpus") or ()))
        if shared:
            what = f"step {step.id}: it and its server {server} want the same card ({shared[0]})"
            self._note("step", step.number, "gpus", what, "give them different ones")
            return False
        # a command has no output of its own: what it is expected to leave stands for it
        expected = [path for path in spec.get("expect") or () if path.startswith("/")]
        outputs = [str(values["output"])] if values.get("output") else expected
        made_by = {**({"path": outputs[0]} if outputs else {}), **step.kind.made(values)}
        stage.names.update({f"{step.id}.{key}": value for key, value in made_by.items()})
        needs = self._needs([spec, spec_of_server], outputs)
        self._values_of.update(dict.fromkeys(outputs, values))
        size = {"size": self._size(values)} if step.kind.name == "extract" else {}
        self._out.append(
            {
                **size,
                "id": ident, "kind": step.kind.name, "spec": spec, "server": server, "gates": self._gates(step),
                "stage": stage.name if step.when == "each" else None, "needs": needs, "outputs": outputs,
            }
        )  # fmt: skip
        self._made.append((ident, tuple(outputs)))
        return True

    def _values(self, step: _Step, stage: _Stage, ident: str, server: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The keys of its kind, filled in and checked; None with what is wrong noted."""
        known = {key.name for key in (*COMMON, *step.kind.keys)}
        small = step.table.get("small", {})
        if not isinstance(small, Mapping):
            self._note("step", step.number, "small", "'small' is no table", "such as small = {epochs = 1}")
            small = {}
        given = {key: value for key, value in self._table("defaults").items() if key in known}
        given.update({key: value for key, value in step.table.items() if key not in OWN})
        if not stage.last:
            given.update(small)
        values: dict[str, Any] = {}
        names, wrong = dict(stage.names), False
        for key, value in given.items():
            while key not in values:
                try:
                    values[key] = resolve(value, names)
                except Unknown as error:
                    wrong = True
                    self._note_unknown("step", step.number, key, error)
                    names[error.name] = "/unknown"  # so that the other keys are looked at as well
        if stage.rows is not None and "limit" in known:
            values["limit"] = min(stage.rows, values.get("limit") or stage.rows)
        if "output" in known and "output" not in values:
            below = f"/{stage.name}" if stage.name and step.when == "each" and step.kind.name not in _GROWS else ""
            values["output"] = f"{self._dir}{below}/{step.id}"
        if server is not None:
            _from_server(values, known, server, stage.names.get(f"{step.table['server']}.storage"))
        values["kind"], values["name"] = step.kind.name, ident
        checked, problems = read_keys(step.kind.keys, values)
        problems = list(problems) or list(step.kind.check(checked))
        for item in problems:
            key = "small" if item.key in small and not stage.last else item.key
            self._note("step", step.number, key, f"step {step.id}: {item.what}", item.remedy)
        return None if problems or wrong else checked

    def _spec(self, step: _Step, values: Mapping[str, Any]) -> dict[str, Any] | None:
        wanted = values.get("gpus")
        try:
            cards = cards_of(wanted, self._uuids, f"step {step.id}")
            spec = step.kind.spec(values, "x", cards or ())
        except (BadJob, NoSuchCards) as error:
            self._note("step", step.number, "", f"step {step.id}: {error}", "see docs/jobs.md")
            return None
        if cards is not None and wanted != "all":
            spec["env"] = {**card_env(cards, self._uuids), **spec["env"]}
        del spec["id"]
        return spec

    def _gates(self, step: _Step) -> list[Any]:
        given = step.table.get("gates", [])
        good = []
        for gate in given if isinstance(given, list) else [given]:
            why = gates.problem(gate)
            if why is None:
                good.append(dict(gate))
            else:
                self._note("step", step.number, "gates", f"step {step.id}: {why}", "see docs/pipelines.md")
        return good

    def _size(self, extract: Mapping[str, Any]) -> dict[str, Any]:
        """How large the hidden states may become, as far as the file tells: the bounds of prompts and rows, one row a prompt."""
        prepared = self._values_of.get(str(extract["data"]), {})
        answers = [self._values_of.get(str(path), {}) for path in prepared.get("data") or ()]
        limits = [limit for values in answers if (limit := values.get("limit"))]
        rows = sum(limits) if limits and len(limits) == len(answers) else prepared.get("max_samples")
        layers = len(extract.get("layers") or (0, 0, 0)) + 1
        return {"target": extract["target"], "rows": rows, "tokens": prepared.get("seq_length"), "layers": layers}

    def _needs(self, specs: Sequence[Any], own: Sequence[str]) -> list[str]:
        """The earlier steps whose outputs these specs name: of several with one output the last."""
        out, seen = [], set(own)
        for ident, paths in reversed(self._made):
            fresh = [path for path in paths if path not in seen]
            seen.update(paths)
            if any(mentions(spec, path) for spec in specs for path in fresh):
                out.append(ident)
        return out[::-1]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _from_server(values: dict[str, Any], known: set[str], server: Mapping[str, Any], storage: Any) -> None:
    """What a step's kind asks of a server, from the one that it uses: a step that says it itself is right."""
    address = str((server.get("ready") or {}).get("address") or "127.0.0.1")
    facts: dict[str, Any] = {"endpoint": f"http://{address}:{server.get('port')}/v1", "storage": storage}
    if "engine" in known:  # it describes a server; the `port` of a command is one that it needs for itself
        facts.update({key: server.get(key) for key in ("engine", "port", "drafter", "k", "model")})
        # it stands on the step's command line, where everybody can read it
        facts.update(host=address, launch={"argv": redact_argv(server["argv"]), "env": redact_env(server.get("env") or {})})
    for key, value in facts.items():
        if key in known and value is not None:
            values.setdefault(key, value)
