"""All that the checks are given: the launch, the facts of the host, the cards as the telemetry has them, the known jobs."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional

from eagletui.engines.preflight.launch import Launch, text_config
from eagletui.records import GpuBoard, GpuSample, JobState

GIB = float(1 << 30)
VISIBLE = "CUDA_VISIBLE_DEVICES"


class Case(NamedTuple):
    """One launch on one host. The parts are those of the request ``facts``; an absent part is an empty object.

    ``expected`` is how many cards the host should have, as its owner says.
    """

    launch: Launch
    engine: Mapping[str, Any] = {}
    target: Mapping[str, Any] = {}
    drafter: Mapping[str, Any] = {}
    place: Mapping[str, Any] = {}
    machine: Mapping[str, Any] = {}
    board: Optional[GpuBoard] = None
    jobs: Mapping[str, JobState] = {}
    expected: Optional[int] = None

    @property
    def version(self) -> Optional[str]:
        """The engine's version, where it was found."""
        return self.engine.get("version")

    @property
    def source(self) -> Mapping[str, Any]:
        """What the engine's source says; empty when it was not read."""
        return self.engine.get("source") or {}

    @property
    def name(self) -> str:
        """The engine with its version, for words: ``vLLM 0.17.1``."""
        word = {"vllm": "vLLM", "sglang": "SGLang"}[self.launch.engine]
        return "%s %s" % (word, self.version) if self.version else word

    @property
    def on_cpu(self) -> bool:
        """Whether the engine is a build that uses no cards."""
        if "--device" in self.launch.flags and "cpu" in self.launch.argv:
            return True
        return self.engine.get("cpu") is True or "cpu" in (self.version or "") or "SGLANG_USE_CPU_ENGINE" in self.launch.env

    @property
    def text(self) -> Mapping[str, Any]:
        """The configuration of the target's language model."""
        return text_config(self.target.get("config") or {})

    @property
    def draft(self) -> Mapping[str, Any]:
        """The drafter's configuration as the engine sees it: in speculators' format, the layer's with what stands beside it."""
        config = self.drafter.get("config") or {}
        inner = config.get("transformer_layer_config")
        if not self.speculators or not isinstance(inner, Mapping):
            return config
        outer = {key: value for key, value in config.items() if key not in ("architectures", "transformer_layer_config", "dtype")}
        return {**inner, **{key: value for key, value in outer.items() if value is not None}}

    @property
    def speculators(self) -> bool:
        """Whether the drafter is in the format of the training library speculators."""
        config = self.drafter.get("config") or {}
        return "speculators_config" in config or "speculators_model_type" in config

    @property
    def eagle3(self) -> bool:
        """Whether the launch drafts with EAGLE-3."""
        if not self.launch.drafter:
            return False
        method = (self.launch.method or "").lower()
        if method:
            return method == "eagle3"
        return "eagle3" in (self.launch.drafter or "").lower() or bool(self.drafter.get("config", {}).get("speculators_config"))

    def cards(self) -> List[GpuSample]:
        """The cards that the launch runs on: those it names, else the first ones the engine would take; none when it cannot be
        told which they are."""
        if self.board is None:
            return []
        cards = sorted(self.board.cards, key=lambda card: card.number)
        if self.launch.cards:
            return [card for card in cards if card.uuid in self.launch.cards]
        if "--base-gpu-id" in self.launch.flags or any(word.startswith(VISIBLE + "=") for word in self.launch.argv):
            return []
        if VISIBLE in self.launch.env:
            cards = visible(cards, self.launch.env[VISIBLE])
        return cards[: self.launch.tp * self.launch.pp * self.launch.dp]


def visible(cards: List[GpuSample], chosen: str) -> List[GpuSample]:
    """The cards that CUDA_VISIBLE_DEVICES lets a program see, in its order; none when one of its words names no card here."""
    out = []
    for word in (word.strip() for word in chosen.split(",") if word.strip()):
        same = [card for card in cards if str(card.number) == word or (word.startswith("GPU-") and card.uuid.startswith(word))]
        if len(same) != 1:
            return []
        out += same
    return out


def where(part: Mapping[str, Any], file: str = "") -> str:
    """A file of a checkpoint, for evidence."""
    path = str(part.get("path") or part.get("given") or "")
    return path.rstrip("/") + "/" + file if file else path


def size(count: Optional[float]) -> str:
    """Bytes in words."""
    if count is None:
        return "-"
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("kB", 1000)):
        if count >= scale:
            return "%.1f %s" % (count / scale, unit)
    return "%d bytes" % count
