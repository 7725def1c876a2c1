"""The ``[servers.NAME]`` tables of a pipeline: profiles, changed where the table says so, as specs of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from eagletui.engines.command import CommandError
from eagletui.jobs.base import BadJob
from eagletui.jobs.extract_server import extraction_profile
from eagletui.pipeline_text import Unknown, resolve
from eagletui.profile_launch import NoSuchCards, launch_spec
from eagletui.profile_values import CHECKS
from eagletui.profiles import Profile, profile_from

_EXTRA = ("profile", "add_args", "hidden_states", "layer_count", "storage", "seq_length")
Noter = Callable[[str, int, str, str, str], None]
UnknownNoter = Callable[[str, int, str, Unknown, str], None]


class WrongKey(ValueError):
    """One key of a server's table is wrong."""

    def __init__(self, key: str, words: str) -> None:
        super().__init__(words)
        self.key = key


class ServerTables:
    """``note(table, number, key, what, remedy)`` and ``note_unknown`` hear of every mistake.

    ``used`` are the names that `make` was asked for.
    """

    def __init__(
        self,
        tables: Mapping[str, Any],
        profiles: Mapping[str, Profile],
        uuids: Sequence[str],
        note: Noter,
        note_unknown: UnknownNoter,
    ) -> None:
        self._tables, self._profiles, self._uuids = tables, profiles, uuids
        self._note, self._note_unknown = note, note_unknown
        self.names = tuple(tables)
        self.used: set[str] = set()
        self._made: dict[str, dict[str, Any]] = {}

    def make(
        self, name: Any, names: Mapping[str, Any], stage: str | None, number: int, place: str
    ) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
        """(its name, its job's spec, what ``{NAME.key}`` stands for); None with what is wrong noted.

        A server whose table names what a stage makes is another one in each stage, and called so.
        """
        if name not in self._tables:
            near = get_close_matches(str(name), self.names, 1)
            known = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(self.names) or 'none'}"
            self._note("step", number, "server", f"there is no server {name!r}", known)
            return None
        self.used.add(name)
        where = f"servers.{name}"
        try:
            table = self._tables[name]
            if not isinstance(table, Mapping):
                raise ValueError(f"{name!r} is no table")
            values, good = self._resolved(where, name, table, names)
            profile = self._profile(name, values, place)
            spec = launch_spec(profile, "x", self._uuids)
        except (ValueError, BadJob, CommandError, NoSuchCards) as error:
            self._note(where, 0, getattr(error, "key", ""), f"server {name}: {error}", "see docs/profiles.md")
            return None
        if profile.unit is not None:
            self._note(
                where, 0, "", f"server {name}: a systemd unit is no server of a pipeline", "describe it as a profile without unit"
            )
            return None
        if not good:
            return None
        del spec["id"]
        spec["name"] = name
        if profile.secrets:
            spec["secrets"] = list(profile.secrets)
        called = name
        if name in self._made and self._made[name] != spec and stage is not None:
            called = f"{name}.{stage}"
        self._made.setdefault(called, spec)
        facts = {"port": spec.get("port"), "model": profile.model, "drafter": profile.drafter or "", **_address(spec)}
        if "hidden_states" in table:
            facts["storage"] = _storage(values, place)
        return called, spec, facts

    def _resolved(self, where: str, name: str, table: Mapping[str, Any], names: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        """The table filled in, and whether all of its names stood for something: the other keys are looked at in any case."""
        values: dict[str, Any] = {}
        known, good = dict(names), True
        for key, value in table.items():
            while key not in values:
                try:
                    values[key] = resolve(value, known)
                except Unknown as error:
                    good = False
                    self._note_unknown(where, 0, key, error, f"server {name}: ")
                    known[error.name] = "/unknown"
        return values, good

    def _profile(self, name: str, table: dict[str, Any], place: str) -> Profile:
        """Raises ValueError in words."""
        strange = sorted(set(table) - set(CHECKS) - set(_EXTRA))
        if strange:
            near = get_close_matches(strange[0], (*CHECKS, *_EXTRA), 1)
            raise WrongKey(strange[0], f"unknown key {strange[0]!r}" + (f", did you mean {near[0]!r}?" if near else ""))
        values: dict[str, Any] = {}
        if (base := table.get("profile")) is not None:
            if base not in self._profiles:
                near = get_close_matches(str(base), self._profiles, 1)
                raise WrongKey("profile", f"there is no profile {base!r}" + (f", did you mean {near[0]!r}?" if near else ""))
            values = self._profiles[base].as_dict()
        if "drafter" in table and not table["drafter"]:
            for key in ("drafter", "k", "method"):
                values.pop(key, None)
        values.update({key: value for key, value in table.items() if key not in _EXTRA and (key != "drafter" or value)})
        if table.get("env") and table.get("profile"):
            values["env"] = {**self._profiles[table["profile"]].env, **table["env"]}
        if table.get("add_args"):
            values["args"] = [*values.get("args", ()), *table["add_args"]]
        values["name"] = name
        if "hidden_states" in table:
            values = self._extracting(table, values, place)
        return profile_from(values, str(table.get("profile") or ""))

    @staticmethod
    def _extracting(table: Mapping[str, Any], values: Mapping[str, Any], place: str) -> dict[str, Any]:
        layers, last = table["hidden_states"], table.get("layer_count")
        if not isinstance(layers, list) or not all(isinstance(item, int) and not isinstance(item, bool) for item in layers):
            raise WrongKey("hidden_states", "hidden_states should be the layers that the drafter reads, such as [2, 30, 58]")
        if not isinstance(last, int) or isinstance(last, bool):
            what = "layer_count is missing: how many layers the target has (num_hidden_layers of its config.json)"
            raise WrongKey("layer_count", what)
        return extraction_profile(values, layers, last, _storage(table, place), table.get("seq_length"))


def _storage(table: Mapping[str, Any], place: str) -> str:
    """Where a server leaves hidden states, on the disk that they stay on."""
    return str(table.get("storage") or f"{place}/passing")


def _address(spec: Mapping[str, Any]) -> dict[str, str]:
    address = str((spec.get("ready") or {}).get("address") or "127.0.0.1")
    return {"endpoint": f"http://{address}:{spec.get('port')}/v1"}
