"""Hidden states with transformers, for small targets that vLLM cannot extract from: the same files as the server's.

Layer ``i`` is the state that enters layer i, and the last one what enters the final norm: vLLM counts so, and transformers'
own ``hidden_states`` have the norm applied to the last. Both are taken where they pass, before the modules.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Dict, List, Tuple

from eagletui.jobs import hidden_states
from eagletui.jobs.on_host import telling
from eagletui.jobs.on_host.arrow_rows import files


def extract(options: Any, plan: Any, tell: telling.Teller) -> None:
    """Write what is missing, one sample after the other; each file appears whole."""
    torch: Any = import_module("torch")
    save: Any = import_module("safetensors.torch").save_file
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    tell.stage("loading %s" % options.target)
    model = _load(options, _computed_in(torch, device, plan.layout.dtype)).to(device).eval()
    states = _Taken(model, plan.layers, plan.shape.layers)
    there = set(hidden_states.present(options.output))
    tell.stage("extracting", total=len(plan.rows), done=len(there))
    done = len(there)
    with torch.inference_mode():
        for index, ids in _samples(options.data, len(plan.rows)):
            if index in there:
                continue
            tokens = torch.tensor([ids], dtype=torch.long)
            found = states.run(model, tokens.to(device))
            target = os.path.join(options.output, hidden_states.file_name(index))
            temp = os.path.join(options.output, "making-%d.tmp" % index)
            body = {
                "hidden_states": found.to(getattr(torch, plan.layout.dtype)).cpu().contiguous(),
                "token_ids": tokens[0].contiguous(),
            }
            save(body, temp)
            os.rename(temp, target)
            done += 1
            tell.progress(done)


def _computed_in(torch: Any, device: Any, dtype: str) -> Any:
    """A CPU computes 16-bit numbers slowly and no better: there float32 does, and only what is written is rounded."""
    return torch.float32 if device.type == "cpu" else getattr(torch, dtype)


def _load(options: Any, dtype: Any) -> Any:
    transformers: Any = import_module("transformers")
    failures: List[str] = []
    # without its head: no logits are needed; a composed model is known under another name
    for name in ("AutoModel", "AutoModelForCausalLM", "AutoModelForImageTextToText"):
        try:
            return getattr(transformers, name).from_pretrained(
                options.target, dtype=dtype, trust_remote_code=options.trust_remote_code
            )
        except (ValueError, KeyError, AttributeError) as error:
            failures.append("%s: %s" % (name, str(error).splitlines()[0]))
    from eagletui.jobs.on_host.extract import Refused

    raise Refused("transformers cannot load %s (%s)" % (options.target, "; ".join(failures)))


def find_stack(model: Any, count: int) -> Tuple[Any, Any]:
    """The text model's ``count`` layers and its final norm, however deep they lie. Raises `Refused`."""
    from eagletui.jobs.on_host.extract import Refused

    for _, module in model.named_modules():
        layers = getattr(module, "layers", None)
        norm = next((getattr(module, name) for name in ("norm", "final_layernorm", "norm_f") if hasattr(module, name)), None)
        if layers is not None and norm is not None and hasattr(layers, "__len__") and len(layers) == count:
            return layers, norm
    raise Refused("no stack of %d layers with a final norm was found in %s" % (count, type(model).__name__))


class _Taken:
    """What passes into the wanted layers, and into the final norm, of one forward at a time."""

    def __init__(self, model: Any, wanted: List[int], count: int) -> None:
        self._wanted = wanted
        self._seen: Dict[int, Any] = {}
        layers, norm = find_stack(model, count)
        for layer in set(wanted):
            module = norm if layer == count else layers[layer]
            module.register_forward_pre_hook(self._hook(layer), with_kwargs=True)

    def _hook(self, layer: int) -> Any:
        def take(_: Any, args: Any, kwargs: Any) -> None:
            self._seen[layer] = args[0] if args else kwargs["hidden_states"]

        return take

    def run(self, model: Any, tokens: Any) -> Any:
        """[tokens, layers, width] of one sample."""
        torch: Any = import_module("torch")
        self._seen.clear()
        model(input_ids=tokens, use_cache=False)
        return torch.stack([self._seen[layer][0] for layer in self._wanted], dim=1)


def _samples(data: str, count: int) -> Any:
    """(index, token ids) of the prepared samples, in order."""
    pyarrow: Any = import_module("pyarrow")
    ipc: Any = import_module("pyarrow.ipc")
    index = 0
    for path in files(data):
        with pyarrow.memory_map(path) as source, ipc.open_stream(source) as batches:
            for batch in batches:
                for ids in batch.column(batch.schema.get_field_index("input_ids")):
                    if index >= count:
                        return
                    yield index, ids.values.to_numpy().tolist()
                    index += 1
