"""The conversion of a drafter: raw EAGLE-3 to the form of speculators, which vLLM reads as well, or that to SGLang's."""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from eagletui.jobs.base import BadJob, Kind, Spec, job_spec, status_words
from eagletui.jobs.drafter_form import SGLANG, SPECULATORS, BadTensors, dtype_problems, read_drafter, speculators_problems
from eagletui.jobs.keys import Key
from eagletui.jobs.told import ToldWatcher
from eagletui.jobs.watcher import Outcome, Watcher

_KEYS = re.compile(r"(Missing|Unexpected) keys in checkpoint: (.*)")


class Convert(Kind):
    """Its output is a drafter's folder that is there whole or not at all."""

    name = "convert"
    keys: Tuple[Key, ...] = (
        Key("python", "path", "the python of the environment that has speculators", required=True),
        Key("source", "path", "the drafter", required=True),
        Key("output", "path", "where the converted one goes", required=True),
        Key("to", "text", "the form that is wanted", required=True, choices=(SPECULATORS, SGLANG, "vllm")),
        Key("target", "text", "the target model; needed for speculators' form"),
        Key(
            "layers",
            "ints",
            "the target's layers that the drafter reads, as vLLM counts them; needed for speculators' form",
            low=0,
        ),
        Key("norm_before_residual", "bool", "whether the raw drafter was trained so", default=False),
    )

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        values = dict(profile)
        if values["to"] == SPECULATORS and not (values.get("target") and values.get("layers")):
            raise BadJob("layers: for speculators' form give target and layers, the drafter's files do not say them for sure")
        plain = {name: values[name] for name in ("to", "layers", "norm_before_residual") if values.get(name)}
        paths = {name: values[name] for name in ("source", "target") if values.get(name)}
        argv = [values["python"], "-m", "eagletui.jobs.on_host.convert", "--source", values["source"]]
        argv += ["--output", values["output"], "--to", values["to"]]
        argv += ["--inputs", json.dumps({"values": plain, "paths": paths}, sort_keys=True)]
        if values.get("target"):
            argv += ["--target", values["target"]]
        if values.get("layers"):
            argv += ["--layers", ",".join(str(layer) for layer in values["layers"])]
        if values.get("norm_before_residual"):
            argv.append("--norm-before-residual")
        values["env"] = {"COLUMNS": "400", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **(values.get("env") or {})}
        plan = {"output": values["output"], "to": values["to"], "layers": values.get("layers")}
        return job_spec(self.name, values, job, argv, cards, on_host=True, convert=plan)

    def title(self, spec: Mapping[str, Any]) -> str:
        return "a drafter for %s" % (spec.get("convert") or {}).get("to")

    def watcher(self, spec: Mapping[str, Any], directory: str) -> Watcher:
        return ConvertWatcher(spec, directory)

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[bool, str]:
        return False, "nobody looked at its result: %s" % status_words(state.get("rc"))


class ConvertWatcher(ToldWatcher):
    """Reads the converter's warnings, which its exit status does not know of, and in the end the result's headers."""

    def __init__(self, spec: Mapping[str, Any], directory: str) -> None:
        super().__init__(spec, directory)
        self._wrong: List[str] = []

    def line(self, text: str, boot: float) -> None:
        match = _KEYS.search(text)
        if match is not None:
            self._wrong.append("%s keys: %s" % (match.group(1).lower(), match.group(2)[:300]))

    def troubles(self) -> Tuple[str, ...]:
        return (*super().troubles(), *("weights: %s" % text for text in self._wrong))

    def check(self, result: Mapping[str, Any]) -> Outcome:
        doc: Dict[str, Any] = dict(result)
        path = str(result.get("path"))
        remarks = [str(text) for text in result.get("remarks") or ()]
        try:
            drafter = read_drafter(path)
        except BadTensors as error:
            return Outcome(False, str(error), doc)
        doc["tensors"] = len(drafter.tensors)
        if self._wrong:
            return Outcome(False, "the weights do not fit the form: %s" % "; ".join(self._wrong), doc)
        if result.get("nothing"):
            return Outcome(True, "; ".join(remarks), doc)
        problems = speculators_problems(drafter) if result.get("format") == SPECULATORS else self._sglang(drafter)
        layers = self.spec["convert"].get("layers")
        if layers and result.get("format") == SPECULATORS:
            said = drafter.config.get("eagle_aux_hidden_state_layer_ids")
            if said != list(layers):
                problems.append("its config says the layers %s instead of %s" % (said, list(layers)))
        if problems:
            return Outcome(False, "the result is not right: %s" % "; ".join(problems), doc)
        words = "%d tensors in the form of %s" % (len(drafter.tensors), result.get("format"))
        return Outcome(True, "; ".join([words, *remarks]), doc)

    def _sglang(self, drafter: Any) -> List[str]:
        problems = dtype_problems(drafter.tensors)
        for name in ("fc.weight", "lm_head.weight", "norm.weight", "midlayer.self_attn.q_proj.weight"):
            if name not in drafter.tensors:
                problems.append("it has no %s" % name)
        if drafter.config.get("architectures") != ["LlamaForCausalLMEagle3"]:
            problems.append("its config names another architecture")
        return problems
