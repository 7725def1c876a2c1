"""What a model's shape asks of the configuration: parallel sizes, lengths, types, runners."""

from __future__ import annotations

from eagletui.engines.diagnosis.entry import CONFIG, LOAD, SGLANG, SOURCE, VLLM, Signature

ENTRIES = (
    Signature(
        id="heads-not-divisible",
        title="{heads} attention heads cannot be split over {tp} cards",
        keys=("must be divisible by", "is not divisible by"),
        pattern=r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size \((?P<tp>\d+)\)|"
        r"(?P<a>\d+) is not divisible by (?P<b>\d+)|must be divisible by (?:tensor parallel size|tp_size|ep_size|moe_tp_size)",
        cause="every card takes the same number of heads, experts or columns",
        remedy="choose a tensor parallel size that divides heads (and of the drafter: its own too); 1, 2, 4, 8 are usual",
        stage=CONFIG,
        source="vllm/config/model.py; sglang/srt/distributed",
        hit="ValueError: Total number of attention heads (9) must be divisible by tensor parallel size (2).",
        miss="INFO 11-29 10:00:00 [x.py:1] Padding vocabulary to be divisible by 64",
        provenance=SOURCE,
        confidence=0.96,
    ),
    Signature(
        id="max-len-beyond-model",
        title="the length asked for is beyond what the model was made for",
        keys=("is greater than the derived max_model_len", "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "SGLANG_ALLOW_OVERWRITE_LONGER"),
        pattern=r"max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len \((?P<have>[^)]*)\)|"
        r"VLLM_ALLOW_LONG_MAX_MODEL_LEN|SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN",
        cause="config.json gives {have}; {asked} was asked for",
        remedy="lower --max-model-len (SGLang: --context-length); only with rope scaling set the variable that the line names",
        stage=CONFIG,
        source="vllm/config/model.py; sglang/srt/configs/model_config.py",
        hit="  Value error, User-specified max_model_len (99999) is greater than the derived max_model_len"
        " (max_position_embeddings=8192"
        " or model_max_length=None in model's config.json). [type=value_error]\n"
        "pydantic_core._pydantic_core.ValidationError: VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
        miss="INFO 11-29 10:00:00 [x.py:1] Using max model len 8192",
        confidence=0.96,
    ),
    Signature(
        id="context-parallel",
        title="context parallelism does not fit this model or tensor parallel size",
        keys=("ecode context parallel", "decode-context-parallel-size", "dcp"),
        pattern=r"[Dd]ecode context parallel.*(?:requires|exceeds|not"
        r" support)|`--decode-context-parallel-size`.*(?:exceeds|must)|"
        r"divisible by `--decode-context-parallel-size`",
        cause="it needs more cards than the model has KV heads, and a size that divides",
        remedy="lower --decode-context-parallel-size, or leave it out",
        stage=CONFIG,
        source="vllm/config/model.py",
        hit="ValueError: `--decode-context-parallel-size` (8) exceeds the maximum supported value (4) for"
        " `--tensor-parallel-size` (8) and"
        " 2 model KV heads.",
        miss="INFO 11-29 10:00:00 [x.py:1] decode context parallel size is 8",
        confidence=0.93,
        engine=VLLM,
    ),
    Signature(
        id="dtype-unsupported",
        title="the data type does not work here",
        keys=("Bfloat16 is only supported", "does not support float16", "Unknown dtype", "is not supported for dtype"),
        pattern=r"Bfloat16 is only supported on GPUs|does not support float16|Unknown dtype: ?(?P<dtype>\S*)|not supported for"
        r" dtype",
        cause="the card or the model does not take this --dtype",
        remedy="--dtype auto, or half on cards before Ampere",
        stage=CONFIG,
        source="vllm/platforms/cuda.py; vllm/config/model.py",
        hit="ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0.",
        miss="INFO 11-29 10:00:00 [x.py:1] Casting torch.bfloat16 to torch.float16.",
        confidence=0.95,
    ),
    Signature(
        id="parser-unknown",
        title="a tool or reasoning parser that this version does not have",
        keys=("invalid tool call parser", "invalid reasoning parser", "Unsupported tool_call_parser", "easoning parser"),
        pattern=r"invalid (?P<kind>tool call|reasoning) parser: (?P<name>\S+)|"
        r"[Rr]easoning parser '?(?P<reasoning>[\w-]+)'? not found|Unsupported tool_call_parser: (?P<tool>\S+)",
        cause="parsers are named per model family and come with versions (kimi_k2)",
        remedy="take a name from the list in the line",
        stage=CONFIG,
        source="vllm/entrypoints/openai; sglang/srt/parser",
        hit="KeyError: 'invalid tool call parser: kimi_k3 (chose from { kimi_k2,hermes })'",
        miss="non-default args: {'tool_call_parser': 'kimi_k2'}",
        confidence=0.94,
    ),
    Signature(
        id="attention-backend-none",
        title="no attention backend fits this model, type and card",
        keys=("No valid attention backend", "attention backend"),
        pattern=r"No valid attention backend found for (?P<device>\w+) with|"
        r"(?:Selected|Attention|attention) backend \S+ is not valid for this configuration|Invalid attention backend",
        cause="the KV cache's type, the head size or the card rules out each of them; the line lists why",
        remedy="on SM120 with an MLA model: --attention-backend TRITON_MLA; else another --kv-cache-dtype or a newer engine",
        stage=LOAD,
        source="vllm-project/vllm#31936; local-inference-lab/rtx6kpro",
        hit="ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=576,"
        " dtype=torch.bfloat16,"
        " kv_cache_dtype=fp8). Reasons: {FLASHMLA: [compute capability not supported]}",
        miss="INFO 11-29 10:00:00 [x.py:1] Using TRITON_MLA attention backend out of potential backends",
        provenance="seen",
        confidence=0.96,
    ),
    Signature(
        id="pipeline-unsupported",
        title="this model cannot be split into pipeline stages here",
        keys=("Pipeline parallelism is not supported",),
        pattern=r"Pipeline parallelism is not supported for this model",
        cause="its class does not implement it",
        remedy="--pipeline-parallel-size 1, tensor parallelism instead",
        stage=CONFIG,
        source="vllm/config/model.py",
        hit="NotImplementedError: Pipeline parallelism is not supported for this model. Supported models implement the"
        " `SupportsPP` interface.",
        miss="INFO 11-29 10:00:00 [x.py:1] pipeline parallelism is off",
        confidence=0.96,
        engine=VLLM,
    ),
    Signature(
        id="batched-tokens-low",
        title="--max-num-batched-tokens is smaller than it must be",
        keys=("max_num_batched_tokens", "max-num-batched-tokens"),
        pattern=r"max_num_batched_tokens \((?P<have>\d+)\) (?:is smaller than|must be greater)|"
        r"max_num_batched_tokens .*(?:must be|has to be) (?:greater|larger)",
        cause="without chunked prefill a whole prompt must fit into one step; and there must be room for every sequence",
        remedy="raise --max-num-batched-tokens, or leave chunked prefill on",
        stage=CONFIG,
        source="vllm/config/scheduler.py",
        hit="ValueError: max_num_batched_tokens (256) is smaller than max_model_len (8192). This effectively limits the"
        " maximum sequence length.",
        miss="INFO 11-29 10:00:00 [x.py:1] Chunked prefill is enabled with max_num_batched_tokens=8192.",
        confidence=0.95,
        engine=VLLM,
    ),
    Signature(
        id="config-refused",
        title="vLLM refuses its configuration: {why}",
        keys=("validation error",),
        pattern=r"validation errors? for (?P<what>\w+)(?:[\s\S]*?(?:Value error, |Assertion failed, )(?P<why>[^\[\n]*))?",
        cause="an argument has a value that does not go with the others; the line after it says which",
        remedy="read the lines that follow it, change that argument in the profile",
        stage=CONFIG,
        source="vllm/config (pydantic)",
        hit="pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
        "  Value error, something of the configuration is wrong [type=value_error]",
        miss="ValueError: 1 error",
        confidence=0.8,
        engine=VLLM,
        weak=True,
    ),
    Signature(
        id="sglang-args-refused",
        title="SGLang refuses its arguments",
        keys=("AssertionError", "ValueError"),
        pattern=r"^(?:AssertionError|ValueError)(?:: (?P<why>[^\n]*))?",
        trace=(r"server_args\.py|arg_groups",),
        cause="an argument has a value that does not go with the others, or with this model",
        remedy="the line says which; `python -m sglang.launch_server --help` lists what there is",
        stage=CONFIG,
        source="sglang/srt/server_args.py",
        hit="Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/server_args.py", line 9, in <module>\n'
        "ValueError: --swa-full-tokens-ratio should be in range (0, 1.0].",
        miss="Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/layers/rope.py", line 9, in <module>\n'
        "ValueError: scaling type not known",
        confidence=0.7,
        engine=SGLANG,
        weak=True,
    ),
)
