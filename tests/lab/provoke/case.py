"""One failure that is provoked: how, and what has to be told of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eagletui.labparts.paths import Lab
from eagletui.profiles import Profile, load_profiles
from tests.lab.provoke.models import Models
from tests.lab.sglang_server import Sglang


@dataclass
class World:
    """What a case is made of: engines, whole and broken models, a free port, and a folder for what it writes."""

    lab: Lab
    sglang: Sglang | None
    models: Models
    port: int
    folder: Path

    def vllm(self, *args: str, drafter: str | None = None, model: str | None = None, **more: Any) -> Profile:
        """A profile of the lab's vLLM; ``drafter`` and ``model`` are names of broken ones or paths, "" the lab's own drafter."""
        given = load_profiles("local", lab=self.lab)[0]["lab-plain" if drafter is None else "lab-eagle3"]
        changes: dict[str, Any] = {"port": self.port, "args": (*given.args, *args), **more}
        if drafter:
            changes["drafter"] = self._path(drafter)
        if model:
            changes["model"] = self._path(model)
        changes["env"] = {**given.env, **more.get("env", {})}
        return replace(given, **changes)

    def sgl(self, *args: str, drafter: str | None = "", model: str | None = None, **more: Any) -> Profile:
        """A profile of SGLang, with the lab's drafter (as converted) unless ``drafter`` is None or another."""
        assert self.sglang is not None
        changes: dict[str, Any] = {"args": args, **more}
        if drafter is None or drafter:
            changes["drafter"] = self._path(drafter) if drafter else None
        if model:
            changes["model"] = self._path(model)
        return self.sglang.profile(self.folder, self.port, **changes)

    def _path(self, name: str) -> str:
        return name if "/" in name else self.models.make(name)


@dataclass(frozen=True)
class Case:
    """``diagnosed`` are the ids of which one has to be the first cause; ``preflight`` those of which one has to be found before.

    No ``diagnosed``: nothing fails, the server comes up, and only preflight tells what is wrong.

    Preflight cannot know everything: then ``preflight`` is empty and ``unknowable`` says why. ``around`` is entered before the
    launch (it holds a port); ``act`` is called with every state until it returns True.
    """

    name: str
    what: str
    engine: str
    profile: Callable[[World], Profile]
    diagnosed: tuple[str, ...]
    preflight: tuple[str, ...] = ()
    unknowable: str = ""
    around: Callable[[World], AbstractContextManager[Any]] | None = None
    act: Callable[[World, Any], bool] | None = None

    @property
    def id(self) -> str:
        return f"{self.engine}/{self.name}"

    def __post_init__(self) -> None:
        assert bool(self.preflight) != bool(self.unknowable), f"{self.name}: what preflight finds, or why it cannot"
