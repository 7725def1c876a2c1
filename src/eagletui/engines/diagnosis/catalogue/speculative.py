"""What engines refuse about a speculative configuration, before they load anything or at the end of the load."""

from __future__ import annotations

from eagletui.engines.diagnosis.entry import CONFIG, GRAPHS, LOAD, SEEN, SGLANG, VLLM, Signature

ENTRIES = (
    Signature(
        id="eagle3-target-not-listed",
        title="this vLLM does not allow EAGLE-3 with this target ({type})",
        keys=("agle3 is only supported for", "extract_hidden_states is only supported for"),
        pattern=r"(?:[Ee]agle3|extract_hidden_states|dflash) is only supported for .{0,400}? models\. +Got"
        r" .*model_type='?(?P<type>[\w.-]*)",
        cause="up to 0.21 vLLM keeps a list of target types for EAGLE-3, and this one is not on this version's list",
        remedy="use vLLM 0.18 or newer for Kimi-K2 and DeepSeek targets, 0.22 or newer has no list; editing the list is not"
        " enough: the"
        " model class of an older version lacks the EAGLE-3 interface too, which shows only after the whole load",
        stage=CONFIG,
        source="vllm-project/vllm#31254, #35966; vllm/config/speculative.py",
        hit="pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        "  Value error, Eagle3 is only supported for ['llama', 'qwen', 'minicpm', 'gpt_oss'] models. Got"
        " self.target_model_config.hf_text_config.model_type='kimi_k2' [type=value_error]",
        miss="ValueError: Multimodal inputs are only supported for ['llava'] models. Got model_type='llama'",
        provenance=SEEN,
        confidence=0.97,
        engine=VLLM,
        versions="0.8-0.21",
        before=(0, 22),
    ),
    Signature(
        id="eagle3-image-token-index",
        title="this vLLM cannot use EAGLE-3 with this multimodal target: no image_token_index in its config",
        keys=("image_token_index",),
        pattern=r"AttributeError: '?(?P<config>\w*)'? ?(?:object )?has no attribute '?image_token_index",
        cause="the drafter copies the target's image token id from `image_token_index`; the config of this target (Kimi-K2.5:"
        " `media_placeholder_token_id`) names it otherwise, which vLLM knows from 0.18 on",
        remedy="use vLLM 0.18 or newer for Kimi-K2.5 (`eagletui patch list` tells whether this version can be patched)",
        stage=LOAD,
        source="vllm-project/vllm#39450; vllm/v1/spec_decode/eagle.py",
        hit="AttributeError: 'KimiK25Config' object has no attribute 'image_token_index'",
        miss="AttributeError: 'KimiK25Config' object has no attribute 'image_token_id'",
        provenance=SEEN,
        confidence=0.97,
        engine=VLLM,
        versions="0.11-0.17 for Kimi-K2.5",
    ),
    Signature(
        id="eagle3-no-interface-vllm",
        title="this vLLM's class of the target has no EAGLE-3 interface",
        keys=("does not support EAGLE3 interface", "does not support Eagle3 interface"),
        pattern=r"Model does not support (?:EAGLE3|Eagle3) interface",
        cause="the model class does not hand out its auxiliary hidden states (SupportsEagle3); vLLM checks that only after the"
        " load",
        remedy="a newer vLLM (DeepSeek and Kimi classes: 0.18); before the next load, look for SupportsEagle3 in"
        " vllm/model_executor/models/<model>.py - preflight does",
        stage=LOAD,
        source="vllm-project/vllm#25134, #25927, #33329, #45546",
        hit="RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested",
        miss="RuntimeError: Model does not support LoRA interface",
        provenance=SEEN,
        confidence=0.97,
        engine=VLLM,
        versions="0.8-0.32",
    ),
    Signature(
        id="eagle3-no-interface-sglang",
        title="this SGLang's class of the target has no EAGLE-3 interface",
        keys=("set_eagle3_layers_to_capture",),
        pattern=r"(?:does not implement|has no attribute) '?set_eagle3_layers_to_capture",
        cause="the model class cannot hand out its auxiliary hidden states; SGLang finds that out only after the load",
        remedy="a newer SGLang: Kimi-K2.5 has it from 0.5.12 on",
        stage=LOAD,
        source="sgl-project/sglang#19689",
        hit="AttributeError: 'KimiK25ForConditionalGeneration' object has no attribute 'set_eagle3_layers_to_capture'",
        miss="AttributeError: 'KimiK25ForConditionalGeneration' object has no attribute 'get_embed_and_head'",
        provenance=SEEN,
        confidence=0.97,
        engine=SGLANG,
    ),
    Signature(
        id="spec-method-unknown",
        title="unknown speculative method",
        keys=("nsupported speculative method", "speculative_config", "SpeculativeConfig"),
        pattern=r"[Uu]nsupported speculative method:? *(?P<method>'?[\w.-]*'?)|speculative_config\.method|"
        r"SpeculativeConfig[\s\S]*\bmethod\s+Input should be",
        cause="the `method` of the speculative configuration is none that this version knows, or it could not be guessed",
        remedy='set "method": "eagle3" in --speculative-config; `vllm serve --help=speculative` lists what this version knows',
        stage=CONFIG,
        source="vllm/config/speculative.py",
        hit="NotImplementedError: Unsupported speculative method: 'eagle4'",
        miss="NotImplementedError: Unsupported quantization method: 'eagle4'",
        engine=VLLM,
    ),
    Signature(
        id="spec-json-key",
        title="a key of --speculative-config that this vLLM does not know",
        keys=("validation error", "Unexpected keyword", "unexpected keyword", "extra_forbidden"),
        pattern=r"validation errors? for SpeculativeConfig[\s\S]*(?:Unexpected keyword|Extra inputs|unexpected_keyword)|"
        r"SpeculativeConfig\.?_?_?(?:init)?_?_?\(?\)? got an unexpected keyword argument '(?P<key>\w+)'",
        cause="keys of the JSON are checked strictly, and they change between versions",
        remedy="take the key out, or write it as this version does; the one for tensor parallelism is draft_tensor_parallel_size",
        stage=CONFIG,
        source="vllm/config/speculative.py (pydantic)",
        hit="pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        "draft_attention_backend\n"
        "  Unexpected keyword argument [type=unexpected_keyword_argument, input_value='TRITON_MLA', input_type=str]",
        miss="pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, No supported config format found [type=value_error]",
        engine=VLLM,
    ),
    Signature(
        id="spec-json-malformed",
        title="--speculative-config is not JSON that vLLM can read",
        keys=("speculative-config", "speculative_config"),
        pattern=r"argument (?:--speculative[-_]config|-sc)[/ -].*(?:cannot be converted|invalid|Expecting|JSON|loads)",
        cause="the text after --speculative-config is no JSON object; shells eat the quotes",
        remedy='put it in single quotes: --speculative-config \'{"method": "eagle3", "model": "...",'
        ' "num_speculative_tokens": 3}\'',
        stage=CONFIG,
        source="vllm/engine/arg_utils.py",
        hit="vllm serve: error: argument --speculative-config/-sc: Value {method: eagle3} cannot be converted to"
        " <function loads at 0x7f>.",
        miss="vllm serve: error: argument --compilation-config/-O: Value {level} cannot be converted to <function loads at"
        " 0x7f>.",
        confidence=0.95,
        engine=VLLM,
    ),
    Signature(
        id="spec-draft-tp",
        title="the drafter's tensor parallelism must be 1 or the target's",
        keys=("draft_tensor_parallel_size",),
        pattern=r"speculative_draft_tensor_parallel_size=(?P<got>\d+) cannot be other value than 1 or target|"
        r"'tensor_parallel_size' is not a valid argument in the speculative_config|"
        r"'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same",
        cause="vLLM splits a drafter over all cards of the target or not at all",
        remedy="set draft_tensor_parallel_size to 1 or to the target's tensor parallel size",
        stage=CONFIG,
        source="vllm/config/speculative.py",
        hit="ValueError: speculative_draft_tensor_parallel_size=4 cannot be other value than 1 or target model"
        " tensor_parallel_size",
        miss="ValueError: draft_tensor_parallel_size is ignored for ngram",
        confidence=0.97,
        engine=VLLM,
    ),
    Signature(
        id="spec-tokens-missing",
        title="num_speculative_tokens is missing or not valid",
        keys=("num_speculative_tokens",),
        pattern=r"num_speculative_tokens`? (?:must be provided|was not provided|was provided but without)|"
        r"Expected num_speculative_tokens to be greater|num_speculative_tokens:? ?\d+ must be divisible by n_predict|"
        r"num_speculative_tokens[\s\S]{0,80}Input should be",
        cause="a drafter of EAGLE-3 does not say how many tokens to draft, so the configuration must",
        remedy='give "num_speculative_tokens", 1 to about 5, beside the drafter\'s path',
        stage=CONFIG,
        source="vllm/config/speculative.py",
        hit="  Value error, A speculative model was provided, but `num_speculative_tokens` was not provided [type=value_error]",
        miss="ValueError: Error in num_speculative_tokens_per_batch_size schedule",
        confidence=0.95,
        engine=VLLM,
    ),
    Signature(
        id="speculators-config",
        title="the drafter's speculators config is not complete",
        keys=("peculators config", "SpeculatorsConfig", "transformer_layer_config", "speculative_tokens", "speculators-format"),
        pattern=r"Invalid speculators config structure|Must provide transformer_layer_config|"
        r"'transformer_layer_config' must be|No proposal methods found in speculators config|"
        r"Missing 'speculative_tokens' in proposal method|'SpeculatorsConfig' object has no attribute|"
        r"ensure you're loading a speculators-format model",
        cause="config.json of the drafter says it is in the speculators format but lacks part of it",
        remedy="export the drafter again with speculators, or convert it to the plain EAGLE-3 format",
        stage=CONFIG,
        source="vllm/transformers_utils/configs/speculators/base.py",
        hit="ValueError: Must provide transformer_layer_config",
        miss="ValueError: Must provide a tokenizer",
        engine=VLLM,
        versions="0.10-0.32",
    ),
    Signature(
        id="speculators-layer-type",
        title="this vLLM cannot read a speculators drafter whose layers are of type {type}",
        keys=("speculator",),
        pattern=r"Unsupported model_type (?P<type>\S+) for \w+ speculator",
        cause="in the speculators format vLLM takes only layers of the llama and qwen3 type",
        remedy="train or convert the drafter with llama layers, or use the plain EAGLE-3 format",
        stage=CONFIG,
        source="vllm/transformers_utils/configs/speculators/algos.py",
        hit="ValueError: Unsupported model_type deepseek_v3 for Eagle3 speculator",
        miss="ValueError: Unsupported model_type deepseek_v3 for GGUF",
        confidence=0.95,
        engine=VLLM,
    ),
    Signature(
        id="speculators-in-sglang",
        title="SGLang cannot read a drafter in the speculators format",
        keys=("Eagle3Speculator", "SpeculatorModel", "speculators"),
        pattern=r"(?:architectures? \[?'?(?:Eagle3Speculator|Eagle3DraftModel|SpeculatorModel)'?\]?.*(?:not supported|is not))|"
        r"KeyError: '(?:speculators|Eagle3Speculator|Eagle3DraftModel)'|model type .speculators?\b",
        cause="the drafter's config.json is that of speculators, which no SGLang reads",
        remedy='convert it: plain config.json with architectures ["LlamaForCausalLMEagle3"], weights named midlayer.*, layer ids'
        " under eagle_config",
        stage=LOAD,
        source="sglang/srt/models/registry.py",
        hit="ValueError: Model architectures ['Eagle3Speculator'] are not supported for now. Supported architectures:"
        " dict_keys([])",
        miss="ValueError: Model architectures ['PhiForCausalLM'] are not supported for now. Supported architectures:"
        " dict_keys([])",
        confidence=0.95,
        engine=SGLANG,
    ),
    Signature(
        id="drafter-architecture",
        title="this engine does not know the drafter's architecture {name}",
        keys=("Eagle3Deepseek", "kimi_k2", "Eagle3", "EAGLE"),
        pattern=r"KeyError: '(?P<name>Eagle3\w+|kimi_k2\w*)'|"
        r"[Mm]odel architectures? \[?'?(?P<arch>\w*(?:Eagle3|EAGLE|Eagle)\w*)'?\]? (?:are|is|failed).*(?:not"
        r" supported|inspected)",
        cause="the class for this kind of drafter came in a later version: MLA drafters (Eagle3DeepseekV2ForCausalLM) need"
        " vLLM 0.18 or"
        " SGLang 0.5.12",
        remedy="a newer engine, or a drafter with llama layers",
        stage=LOAD,
        source="sgl-project/sglang#25673; vllm/model_executor/models/registry.py",
        hit="KeyError: 'Eagle3DeepseekV2ForCausalLM'",
        miss="KeyError: 'midlayer.self_attn.qkv_proj.weight'",
        provenance=SEEN,
        confidence=0.93,
    ),
    Signature(
        id="sglang-draft-backend",
        title="this attention backend cannot run the drafter",
        keys=("EAGLE is not supported in", "trtllm_mla", "eagle_worker"),
        pattern=r"EAGLE is not supported in (?:decode |prefill |extend )?attention backend (?P<backend>\w+)|"
        r"(?:draft|eagle)\w*.*(?P<mla>trtllm_mla|flashmla|cutlass_mla).*(?:not support|fail|error)",
        cause="SGLang gives the drafter the target's attention backend, and that one has no form for drafting",
        remedy="--speculative-draft-attention-backend triton or flashinfer; or another --attention-backend for both",
        stage=LOAD,
        source="sgl-project/sglang#23490; recorded with 0.5.23",
        hit="ValueError: EAGLE is not supported in decode attention backend torch_native",
        miss="ValueError: LoRA is not supported in decode attention backend torch_native",
        provenance=SEEN,
        confidence=0.97,
        engine=SGLANG,
    ),
    Signature(
        id="sglang-spec-partial",
        title="SGLang wants all of its three speculative numbers, or none",
        keys=("speculative_eagle_topk", "speculative_num_steps", "speculative_num_draft_tokens"),
        pattern=r"AssertionError\b.*speculative_(?:eagle_topk|num_steps|num_draft_tokens)|"
        r"speculative_(?:num_steps|eagle_topk|num_draft_tokens)\S* (?:must|should|cannot|is required|has to)",
        cause="--speculative-num-steps, --speculative-eagle-topk and --speculative-num-draft-tokens are set by it only together",
        remedy="give all three, for a chain of k drafts: k, 1, k+1; or leave all three out",
        stage=CONFIG,
        source="sglang/srt/server_args.py",
        hit="ValueError: speculative_num_steps must be set when speculative_eagle_topk is set",
        miss="[2026-11-29 16:19:18] server_args: speculative_num_steps 3",
        confidence=0.9,
        engine=SGLANG,
    ),
    Signature(
        id="sglang-spec-partial-assert",
        title="SGLang wants all of its three speculative numbers, or none",
        keys=("AssertionError", "'NoneType' and 'int'"),
        pattern=r"^AssertionError\s*$|^TypeError: '[<>]=?' not supported between instances of 'NoneType' and 'int'",
        trace=(r"speculative_(?:num_steps|eagle_topk|num_draft_tokens)",),
        cause="--speculative-num-steps, --speculative-eagle-topk and --speculative-num-draft-tokens are set by it only together",
        remedy="give all three, for a chain of k drafts: k, 1, k+1; or leave all three out",
        stage=CONFIG,
        source="sglang/srt/server_args.py",
        hit="Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/server_args.py", line 9, in <module>\n'
        "    assert self.speculative_eagle_topk is None and self.speculative_num_draft_tokens is None\n"
        "AssertionError",
        miss="Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/server_args.py", line 9, in <module>\n'
        "    assert self.tp_size % self.nnodes == 0\n"
        "AssertionError",
        confidence=0.9,
        engine=SGLANG,
    ),
    Signature(
        id="sglang-spec-tokens",
        title="more draft tokens are asked of SGLang than its tree of drafts has",
        keys=("selected index k out of range",),
        pattern=r"^RuntimeError: selected index k out of range",
        trace=(r"organize_draft_results|select_top_k_tokens|speculative",),
        cause="of s steps with a top-k of t at most t + (s - 1) x t x t drafts can be verified; --speculative-num-draft-tokens"
        " counts one more, the token that is verified along with them",
        remedy="lower --speculative-num-draft-tokens, or raise steps; for a chain of k drafts: steps k, top-k 1, tokens k + 1",
        stage=GRAPHS,
        source="recorded with SGLang 0.5.23",
        hit="Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/managers/scheduler.py", line 4829, in <module>\n'
        "    self.draft_worker.draft(batch)\n"
        '  File "/srv/sglang/srt/speculative/eagle_utils.py", line 110, in organize_draft_results\n'
        "    top_scores = torch.topk(score_list, num_draft_token - 1, dim=-1)\n"
        "RuntimeError: selected index k out of range",
        miss="Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/layers/sampler.py", line 110, in forward\n'
        "    torch.topk(probs, k)\n"
        "RuntimeError: selected index k out of range",
        provenance=SEEN,
        confidence=0.93,
        engine=SGLANG,
    ),
    Signature(
        id="draft-vocabulary",
        title="target and drafter have vocabularies of different size",
        keys=("same vocabulary size",),
        pattern=r"should have the same vocabulary size\. Target model vocab_size=(?P<target>\d+)\. Draft model"
        r" vocab_size=(?P<draft>\d+)",
        cause="a drafter of another model family, or a plain draft model with another tokenizer",
        remedy="use a drafter trained for this target",
        stage=CONFIG,
        source="vllm/config/speculative.py",
        hit="ValueError: Target and draft model should have the same vocabulary size. Target model vocab_size=163840. Draft model"
        " vocab_size=32000. Using models with different tokenizers can cause out-of-bounds errors",
        miss="ValueError: Target and draft model should have the same dtype",
        confidence=0.97,
        engine=VLLM,
    ),
    Signature(
        id="hidden-states-layers",
        title="extraction of hidden states was not told which layers",
        keys=("eagle_aux_hidden_state_layer_ids must be set",),
        pattern=r"eagle_aux_hidden_state_layer_ids must be set in the draft model config",
        cause="method extract_hidden_states needs the layer ids in draft_model_config.hf_config",
        remedy="start it with the extraction job, or speculators' launch_vllm: both write them",
        stage=LOAD,
        source="vllm/v1/spec_decode/extract_hidden_states.py",
        hit="ValueError: eagle_aux_hidden_state_layer_ids must be set in the draft model config for extract_hidden_states method",
        miss="ValueError: mask_token_id must be set in the draft model config",
        confidence=0.97,
        engine=VLLM,
        versions="0.17-0.32",
    ),
    Signature(
        id="spec-graph-capture-size",
        title="a batch with drafts was larger than the largest captured graph",
        keys=("exceeds CG capture max", "exceeds cudagraph capture", "exceeds max_cudagraph_capture_size"),
        pattern=r"exceeds (?:CG capture max|cudagraph capture|max_cudagraph_capture_size)",
        cause="sequences x (k + 1) tokens of one step are more than the graphs were captured for",
        remedy="raise the capture size (--max-cudagraph-capture-size), or lower --max-num-seqs or num_speculative_tokens",
        stage=GRAPHS,
        source="local-inference-lab/rtx6kpro",
        hit="RuntimeError: num_tokens 520 exceeds CG capture max 512",
        miss="RuntimeError: num_tokens 520 exceeds max_num_batched_tokens 512",
        confidence=0.85,
    ),
    Signature(
        id="spec-batched-tokens",
        title="max_num_batched_tokens leaves no room for drafted tokens",
        keys=("based on the speculative decoding settings", "support the speculative decoding settings"),
        pattern=r"speculative decoding settings",
        cause="each sequence needs k + 1 tokens of a step's budget",
        remedy="raise --max-num-batched-tokens, or lower --max-num-seqs or num_speculative_tokens",
        stage=CONFIG,
        source="vllm/config/vllm.py",
        hit="ValueError: VllmConfig does not have enough slots to schedule a token and support the speculative decoding"
        " settings.",
        miss="ValueError: VllmConfig does not have enough slots to schedule a token",
        confidence=0.95,
        engine=VLLM,
    ),
    Signature(
        id="spec-runner-feature",
        title="the model runner does not support this: {what}",
        keys=("Model Runner V2 does not", "Model Runner V1 does not", "Model Runner V2 requires Triton"),
        pattern=r"^(?:\w+: |.*Value error, )Model Runner V(?P<n>\d) (?:does not (?:yet )?support:? *|requires )(?P<what>[^\[]*)",
        cause="vLLM has two model runners, and the one chosen lacks a feature that the configuration asks for",
        remedy="leave VLLM_USE_V2_MODEL_RUNNER unset so that vLLM chooses, or set it to 0 (V1) or 1 (V2)",
        stage=CONFIG,
        source="vllm/config/vllm.py",
        hit="ValueError: Model Runner V2 does not yet support: pipeline parallelism",
        miss="INFO 11-29 10:00:00 [vllm.py:1] Model Runner V2 does not yet support pipeline parallelism; using the V1 model"
        " runner instead.",
        engine=VLLM,
        versions="0.17-0.32",
    ),
)
