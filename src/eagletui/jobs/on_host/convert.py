"""A drafter from one form into another: raw EAGLE-3 -> speculators (by `speculators convert`), speculators -> SGLang.

``PYTHON -m eagletui.jobs.on_host.convert --source DIR --output DIR --to FORM --target MODEL --layers 2,30,58``. The result
appears in the output when it is whole; config.json comes last.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, List, Sequence

from eagletui.jobs.drafter_form import RAW, SGLANG, SPECULATORS, BadTensors, Drafter, raw_problem, read_drafter
from eagletui.jobs.on_host import telling, to_sglang
from eagletui.jobs.on_host.inputs import facts
from eagletui.jobs.on_host.target_config import read_shape
from eagletui.jobs.outputs import NotOurs, claim

_MAKING = "making"


class Refused(Exception):
    """It cannot be converted; the text says why and what to do."""


def main(argv: Sequence[str]) -> int:
    """The exit status: 0 when the result is there, 2 when nothing was begun."""
    options = _parser().parse_args(argv)
    try:
        source = read_drafter(options.source)
        if options.to == source.form or (options.to == "vllm" and source.form == SPECULATORS):
            remarks = ["%s reads this form as it is: nothing was converted" % ("vLLM" if options.to == "vllm" else options.to)]
            telling.say("result", path=options.source, format=source.form, remarks=remarks, nothing=True)
            return 0
        if options.to == SGLANG and source.form == RAW:
            telling.say("result", path=options.source, format=RAW, remarks=["SGLang reads raw EAGLE-3 as it is"], nothing=True)
            return 0
        claim(options.output, "convert", facts(options.inputs), "eagletui convert")
        making = os.path.join(options.output, _MAKING)
        shutil.rmtree(making, ignore_errors=True)
        if options.to == SGLANG:
            remarks = to_sglang.convert(source, making)
            form = SGLANG
        else:
            remarks, form = _to_speculators(options, source, making), SPECULATORS
        _take_over(making, options.output)
    except (Refused, NotOurs, BadTensors, to_sglang.CannotConvert) as error:
        telling.say("result", why=str(error))
        return 2
    except OSError as error:
        telling.say("result", why="%s: %s" % (error.filename, error.strerror))
        return 2
    telling.say("result", path=options.output, format=form, remarks=remarks)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="convert")
    for name in ("--source", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--to", choices=(SPECULATORS, SGLANG, "vllm"), required=True)
    parser.add_argument("--target", default="")
    parser.add_argument("--layers", default="")
    parser.add_argument("--norm-before-residual", action="store_true")
    parser.add_argument("--inputs", default="{}")
    return parser


def _to_speculators(options: Any, source: Drafter, making: str) -> List[str]:
    problem = raw_problem(source)
    if problem is not None:
        raise Refused("%s: %s" % (source.path, problem))
    layers = [int(word) for word in options.layers.split(",") if word]
    if not layers or not options.target:
        raise Refused("the target and the layers that the drafter reads must be given: no file says them for sure")
    if find_spec("speculators") is None:
        raise Refused("speculators is not installed beside %s: %s -m pip install speculators" % (sys.executable, sys.executable))
    try:
        shape = read_shape(options.target)
    except (OSError, ValueError) as error:
        raise Refused("the target's shape is unknown: %s" % error) from None
    width = source.tensors["fc.weight"].shape
    if len(width) != 2 or width[1] != len(layers) * shape.width:
        raise Refused(
            "layers: the drafter reads %s numbers a token, and %d layers of %s have %d"
            % (width[1:], len(layers), options.target, len(layers) * shape.width)
        )
    if max(layers) > shape.layers:
        raise Refused("layers: %s has %d" % (options.target, shape.layers))
    remarks = _own_layers(source, layers)
    converter: Any = import_module("speculators.convert")
    converter.convert_model(
        model=options.source,
        verifier=options.target,
        algorithm="eagle3",
        output_path=making,
        eagle_aux_hidden_state_layer_ids=layers,
        norm_before_residual=options.norm_before_residual,
    )
    return remarks + _mend_context(making, shape.context)


def _own_layers(source: Drafter, layers: List[int]) -> List[str]:
    """What the checkpoint says of its layers itself: SGLang's numbers are one less than speculators' and vLLM's."""
    said = (source.config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    if not said or said == layers or [int(layer) + 1 for layer in said] == layers:
        return []
    return ["its own config says the layers %s (SGLang counts one less), and %s were given" % (said, layers)]


def _mend_context(folder: str, context: int) -> List[str]:
    """The converter gives the drafter its target's context, but does not find it in a composed target's configuration."""
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        doc = json.load(file)
    layer = doc["transformer_layer_config"]
    before = int(layer.get("max_position_embeddings") or 0)
    if before >= context:
        return []
    layer["max_position_embeddings"] = context
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(doc, file, indent=2)
    os.rename(path + ".tmp", path)
    return ["max_position_embeddings raised from %d to the target's %d" % (before, context)]


def _take_over(making: str, output: str) -> None:
    """Move the files into the output, config.json last: a folder without one is read by nobody."""
    for name in sorted(os.listdir(making), key=lambda name: (name == "config.json", name)):
        os.rename(os.path.join(making, name), os.path.join(output, name))
    os.rmdir(making)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
