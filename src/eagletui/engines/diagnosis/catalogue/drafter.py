"""A drafter whose weights do not fit: shapes, widths, names. It shows after the target's whole load."""

from __future__ import annotations

from eagletui.engines.diagnosis.entry import LOAD, SEEN, SERVING, Signature

_DRAFT_CODE = r"llama_eagle|deepseek_eagle|eagle_worker|spec_decode|[Ee]agle3|speculat"

ENTRIES = (
    Signature(
        id="drafter-shape",
        title="the drafter's weights do not fit this target",
        keys=("must match the size of tensor b", "size mismatch", "shape", "AssertionError"),
        pattern=r"The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)|size mismatch for|"
        r"param_data\.shape == loaded_weight\.shape|[Aa]ttempted to load weight .* into parameter|"
        r"shape .{0,60}(?:mismatch|does not match|is invalid for input)|^AssertionError\b",
        trace=(_DRAFT_CODE, r"load_weights?|weight_loader"),
        cause="hidden size, vocabulary or number of auxiliary layers of the drafter are not the target's: it was trained for"
        " another model",
        remedy="compare hidden_size and vocab_size in both config.json, and the width of fc.weight: it must be hidden size x"
        " number of"
        " auxiliary layers; take the drafter that belongs to this target",
        stage=LOAD,
        source="recorded with vLLM 0.32; sgl-project/sglang#32226",
        hit="Traceback (most recent call last):\n"
        '  File "/srv/vllm/model_executor/models/llama_eagle3.py", line 467, in <module>\n'
        "    loader.load_weights(\n"
        '  File "/srv/vllm/model_executor/layers/vocab_parallel_embedding.py", line 519, in weight_loader\n'
        "    param[: loaded_weight.shape[0]].data.copy_(loaded_weight)\n"
        "RuntimeError: The size of tensor a (640) must match the size of tensor b (576) at non-singleton dimension 1",
        miss="Traceback (most recent call last):\n"
        '  File "/srv/vllm/model_executor/models/llama.py", line 467, in load_weights\n'
        "    loader.load_weights(\n"
        "RuntimeError: The size of tensor a (640) must match the size of tensor b (576) at non-singleton dimension 1",
        provenance=SEEN,
        confidence=0.93,
    ),
    Signature(
        id="drafter-width",
        title="the drafter's input is {got} wide, but it gets another width",
        keys=("shapes cannot be multiplied",),
        pattern=r"mat1 and mat2 shapes cannot be multiplied \(\d+x(?P<got>\d+) and (?P<want>\d+)x\d+\)",
        trace=(_DRAFT_CODE,),
        cause="the number of auxiliary layers, or the kind of drafting (EAGLE against EAGLE3), is not the one the drafter was"
        " trained for",
        remedy="set the auxiliary layer ids in the drafter's config.json where this engine reads them; on SGLang use"
        " --speculative-algorithm EAGLE3 for an EAGLE-3 drafter",
        stage=SERVING,
        source="sgl-project/sglang#32334; InferenceX#2335",
        hit="Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/models/llama_eagle3.py", line 88, in <module>\n'
        "    hidden_states = self.fc(hidden_states)\n"
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x3072 and 6144x2048)",
        miss="Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/models/llama.py", line 88, in <module>\n'
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x3072 and 6144x2048)",
        provenance=SEEN,
        confidence=0.93,
    ),
    Signature(
        id="drafter-weight-name",
        title="the drafter's weights have names this engine does not know",
        keys=("KeyError: '", "no module or parameter named", "no attribute 'weight"),
        pattern=r"KeyError: '(?P<name>(?:model\.)?(?:midlayer|layers\.0|fc|d2t|t2d|embed_tokens|lm_head|norm|fc_norm)[\w.]*)'|"
        r"There is no module or parameter named '?(?P<module>[\w.]+)'? in \w*(?:Eagle|EAGLE)\w*",
        cause="the file was written for another engine or another kind of drafter (plain, speculators, SpecForge)",
        remedy="convert the drafter to this engine's form; the safetensors header shows the names it has",
        stage=LOAD,
        source="vllm/model_executor/models/llama_eagle3.py",
        hit="KeyError: 'midlayer.self_attn.kv_a_proj_with_mqa.weight'",
        miss="KeyError: 'midnight'",
        confidence=0.85,
    ),
    Signature(
        id="model-shape",
        title="the checkpoint's tensors have other shapes than this model has here",
        keys=("must match the size of tensor b", "size mismatch", "loaded_weight.shape", "AssertionError", "shape"),
        pattern=r"The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)|size mismatch for|"
        r"param_data\.shape == loaded_weight\.shape|[Aa]ttempted to load weight .* into parameter|^AssertionError\b",
        trace=(r"load_weights?|weight_loader",),
        cause="config.json does not belong to these weights, a fused layer was packed otherwise, or (SGLang) shared experts"
        " were fused",
        remedy="download config.json and weights of one revision; SGLang: --disable-shared-experts-fusion; else a newer engine",
        stage=LOAD,
        source="vllm/model_executor/parameter.py; sglang/srt/layers",
        hit="Traceback (most recent call last):\n"
        '  File "/srv/vllm/model_executor/models/llama.py", line 467, in <module>\n'
        '  File "/srv/vllm/model_executor/parameter.py", line 152, in weight_loader\n'
        "    assert param_data.shape == loaded_weight.shape\n"
        "AssertionError",
        miss="Traceback (most recent call last):\n"
        '  File "/srv/vllm/model_executor/models/llama.py", line 467, in forward\n'
        "AssertionError",
        confidence=0.75,
    ),
    Signature(
        id="weights-missing",
        title="the checkpoint lacks weights of this model",
        keys=("weights were not initialized from checkpoint", "not initialized from checkpoint"),
        pattern=r"weights were not initialized from checkpoint: (?P<names>.{0,200})",
        cause="files are missing, or the drafter has no embedding or head of its own and the engine expects one",
        remedy="complete the download; for a drafter, export it with embed_tokens and lm_head or use an engine that shares them",
        stage=LOAD,
        source="vllm/model_executor/model_loader/default_loader.py",
        hit="ValueError: Following weights were not initialized from checkpoint: {'model.layers.3.mlp.down_proj.weight'}",
        miss="WARNING 11-29 10:00:00 [x.py:1] Some weights of the model checkpoint were not used",
        confidence=0.9,
    ),
)
