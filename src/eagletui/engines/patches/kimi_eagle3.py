"""EAGLE-3 drafters of the Llama type with Kimi-K2.5 targets on vLLM 0.16 and 0.17, as vLLM 0.18 has it.

Three things are missing there, and each is told only when the one before it is mended: the family is not on the list of those
that EAGLE-3 is allowed for; the drafter asks the target's configuration for an image token under a name it does not have;
and the model classes cannot hand out hidden states. The lines put in are those of vLLM 0.18 (Apache-2.0), shortened to what a
drafter of the Llama type uses.
"""

from __future__ import annotations

from eagletui.engines.patches.core import Hunk, PatchSet

_DEEPSEEK = "model_executor/models/deepseek_v2.py"
_KIMI = "model_executor/models/kimi_k25.py"
_PROPOSER = "v1/spec_decode/eagle.py"
_LIST = "config/speculative.py"

_IMPORT = "from .interfaces import MixtureOfExperts, SupportsEagle, SupportsLoRA, SupportsPP\n"
_IMPORT_NEW = """from .interfaces import (
    MixtureOfExperts,
    SupportsEagle,
    SupportsEagle3,
    SupportsLoRA,
    SupportsPP,
)
"""

_INIT = """        self.make_empty_intermediate_tensors = make_empty_intermediate_tensors_factory(
            ["hidden_states", "residual"], config.hidden_size
        )

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.embed_tokens(input_ids)
"""
_INIT_NEW = _INIT.replace(
    "        )\n\n    def", "        )\n        self.aux_hidden_state_layers = tuple[int, ...]()\n\n    def"
)

_LOOP = """        for layer in islice(self.layers, self.start_layer, self.end_layer):
            hidden_states, residual = layer(
                positions, hidden_states, residual, llama_4_scaling
            )
"""
_LOOP_NEW = """        aux_hidden_states = []
        for idx, layer in enumerate(
            islice(self.layers, self.start_layer, self.end_layer),
            start=self.start_layer,
        ):
            if idx in self.aux_hidden_state_layers:
                aux_hidden_states.append(hidden_states + residual)
            hidden_states, residual = layer(
                positions, hidden_states, residual, llama_4_scaling
            )
"""

_RETURN = """        hidden_states, _ = self.norm(hidden_states, residual)
        return hidden_states


class DeepseekV2MixtureOfExperts(MixtureOfExperts):
"""
_RETURN_NEW = """        hidden_states, _ = self.norm(hidden_states, residual)
        if len(aux_hidden_states) > 0:
            return hidden_states, aux_hidden_states
        return hidden_states


class DeepseekV2MixtureOfExperts(MixtureOfExperts):
"""

_BASES = """class DeepseekV2ForCausalLM(
    nn.Module, SupportsPP, DeepseekV2MixtureOfExperts, SupportsLoRA, SupportsEagle
):
"""
_BASES_NEW = """class DeepseekV2ForCausalLM(
    nn.Module,
    SupportsPP,
    DeepseekV2MixtureOfExperts,
    SupportsLoRA,
    SupportsEagle,
    SupportsEagle3,
):
"""

_EMBED = """        self.extract_moe_parameters(example_moe)

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model.embed_input_ids(input_ids)
"""
_EMBED_NEW = """        self.extract_moe_parameters(example_moe)

    def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
        self.model.aux_hidden_state_layers = layers

    def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
        num_layers = len(self.model.layers)
        return (2, num_layers // 2, num_layers - 3)

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model.embed_input_ids(input_ids)
"""

_KIMI_IMPORT = """from vllm.model_executor.models.interfaces import (
    SupportsMultiModal,
"""
_KIMI_IMPORT_NEW = """from vllm.model_executor.models.interfaces import (
    SupportsEagle,
    SupportsEagle3,
    SupportsMultiModal,
"""
_KIMI_BASES = """class KimiK25ForConditionalGeneration(
    nn.Module, SupportsMultiModal, SupportsPP, SupportsQuant
):
"""
_KIMI_BASES_NEW = """class KimiK25ForConditionalGeneration(
    nn.Module,
    SupportsMultiModal,
    SupportsPP,
    SupportsQuant,
    SupportsEagle,
    SupportsEagle3,
):
"""
_KIMI_LOGITS = """        logits = self.language_model.compute_logits(hidden_states)
        return logits
"""
_KIMI_LOGITS_NEW = """        logits = self.language_model.compute_logits(hidden_states)
        return logits

    def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
        self.language_model.set_aux_hidden_state_layers(layers)

    def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
        return self.language_model.get_eagle3_aux_hidden_state_layers()
"""

_IMAGE = """                self.model.config.image_token_index = (
                    target_model.config.vision_config.image_token_id
                )
            else:
"""
_IMAGE_NEW = """                self.model.config.image_token_index = (
                    target_model.config.vision_config.image_token_id
                )
            elif self.get_model_name(target_model) == "KimiK25ForConditionalGeneration":
                self.model.config.image_token_index = (
                    target_model.config.media_placeholder_token_id
                )
            else:
"""

_FAMILIES = """            "deepseek_v2",
            "deepseek_v3",
            "kimi_k2",
            "kimi_k25",
        ]
"""


def _families(last: str, condition: str) -> "tuple[str, str]":
    before = '            "%s",\n        ]\n        if (\n            %s' % (last, condition)
    return before, before.replace("        ]\n", _FAMILIES, 1)


KIMI_EAGLE3 = PatchSet(
    "kimi-eagle3",
    "EAGLE-3 drafters for Kimi-K2.5",
    "vllm",
    ("0.16", "0.18"),
    "allows the family, takes the image token from media_placeholder_token_id, and lets the model classes hand out hidden states",
    "for drafters of the Llama type alone (LlamaForCausalLMEagle3): one of the MLA type (Eagle3DeepseekV2ForCausalLM), and one"
    " with a norm before its first matrix, need vLLM 0.18",
    (
        Hunk(_DEEPSEEK, "the interface's name", ((_IMPORT, _IMPORT_NEW),), ("    SupportsEagle3,\n",)),
        Hunk(_DEEPSEEK, "which layers to keep", ((_INIT, _INIT_NEW),), ("self.aux_hidden_state_layers = ",)),
        Hunk(_DEEPSEEK, "keep their states", ((_LOOP, _LOOP_NEW),), ("aux_hidden_states.append(",)),
        Hunk(_DEEPSEEK, "hand them out", ((_RETURN, _RETURN_NEW),), ("return hidden_states, aux_hidden_states",)),
        Hunk(_DEEPSEEK, "the class says so", ((_BASES, _BASES_NEW),), ("    SupportsEagle3,\n",)),
        Hunk(_DEEPSEEK, "the class is asked", ((_EMBED, _EMBED_NEW),), ("def set_aux_hidden_state_layers(",)),
        Hunk(_KIMI, "the interface's name", ((_KIMI_IMPORT, _KIMI_IMPORT_NEW),), ("    SupportsEagle3,\n",)),
        Hunk(_KIMI, "the class says so", ((_KIMI_BASES, _KIMI_BASES_NEW),), ("    SupportsEagle3,\n",)),
        Hunk(_KIMI, "the class is asked", ((_KIMI_LOGITS, _KIMI_LOGITS_NEW),), ("def set_aux_hidden_state_layers(",)),
        Hunk(_PROPOSER, "the image token", ((_IMAGE, _IMAGE_NEW),), ("media_placeholder_token_id",)),
        # last: until it is written, a launch is refused at once instead of after the load
        Hunk(
            _LIST,
            "the list of families",
            (
                _families("afmoe", 'self.method == "eagle3"'),
                _families("nemotron_h", 'self.method in ("eagle3", "extract_hidden_states")'),
            ),
            ('"kimi_k2",',),
        ),
    ),
)
