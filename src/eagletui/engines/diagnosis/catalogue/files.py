"""Checkpoints, tokenizers and the hub: what is missing, cut, private or of an unknown kind."""

from __future__ import annotations

from eagletui.engines.diagnosis.entry import CONFIG, LOAD, SEEN, SOURCE, Signature

ENTRIES = (
    Signature(
        id="path-missing",
        title="there is no model or drafter at {path}",
        keys=("Repo id must be in the form", "Repo id must use alphanumeric"),
        pattern=r"Repo id must (?:be in the form|use alphanumeric)[^:]*: '(?P<path>[^']*)'",
        cause="the path does not exist on this host, so it was taken for the name of a repository",
        remedy="check the path of model and drafter in the profile, on the host (ls {path}); in a container, whether it is"
        " mounted",
        stage=CONFIG,
        source="huggingface_hub; recorded with vLLM 0.32 and SGLang 0.5.23",
        hit="huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name':"
        " '/srv/none'. Use"
        " `repo_type` argument if needed.",
        miss="huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error.",
        provenance=SEEN,
        confidence=0.97,
        over=("config-missing",),
    ),
    Signature(
        id="config-missing",
        title="the model's directory has no config.json that it can read",
        keys=("config.json", "valid model ID", "No supported config format", "identifier listed on"),
        pattern=r"(?:does not appear to have a file named|[Cc]an'?t (?:load|find)|Error no file named|Invalid repository ID or"
        r" local directory"
        r"|is not a local folder and is not a valid model identifier).*|No supported config format found|"
        r"config\.json.*(?:not found|No such file)|"
        r"No such file or directory: '(?P<file>[^']*config\.json)'",
        cause="the directory is empty, another one (a parent, a snapshot's blobs), or its config.json is not a model's",
        remedy="ls the directory on the host: config.json, *.safetensors and the tokenizer must lie in it",
        stage=CONFIG,
        source="transformers; vllm/transformers_utils/config.py",
        hit="OSError: /models/k25 does not appear to have a file named config.json. Checkout"
        " 'https://huggingface.co//models/k25/tree/main'"
        " for available files.",
        miss="WARNING 11-29 10:00:00 [x.py:1] /models/k25 does not appear to have a file named generation_config.json",
        provenance=SEEN,
        confidence=0.92,
    ),
    Signature(
        id="config-no-type",
        title="config.json names no model type: {path}",
        keys=("Unrecognized model",),
        pattern=r"Unrecognized model in (?P<path>\S+?)\.? Should have a `?model_type",
        cause="its key `model_type` is missing: the file is none of a model, or of a drafter in a layout that this engine does"
        " not read",
        remedy="take the config.json that belongs to the weights; an EAGLE-3 drafter of the Llama kind has model_type llama",
        stage=CONFIG,
        source="transformers; recorded with vLLM 0.32",
        hit="pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n"
        "  Value error, Unrecognized model in /models/drafter. Should have a `model_type` key in its config.json."
        " [type=value_error]",
        miss="ValueError: Unrecognized model class in /models/drafter",
        provenance=SEEN,
        confidence=0.94,
    ),
    Signature(
        id="config-broken",
        title="a JSON file of the model cannot be read",
        keys=("JSONDecodeError", "not a valid JSON file", "Expecting value"),
        pattern=r"JSONDecodeError: (?P<why>.*)|config file at '(?P<path>[^']*)' is not a valid JSON file",
        cause="it is empty, cut, or a pointer of Git LFS instead of the file",
        remedy="look at config.json, the index and the tokenizer files on the host; download again what is broken",
        stage=CONFIG,
        source="Python, transformers",
        hit="OSError: It looks like the config file at '/models/k25/config.json' is not a valid JSON file.",
        miss="INFO 11-29 10:00:00 [x.py:1] config.json is a valid JSON file",
        confidence=0.85,
    ),
    Signature(
        id="weights-not-found",
        title="there are no weights in the model's directory",
        keys=("Cannot find any", "No model weights found"),
        pattern=r"Cannot find any (?:safetensors )?model weights with [`'\"]?(?P<path>[^`'\"\s]*)|No model weights found in:"
        r" `(?P<dir>[^`]*)`",
        cause="the directory has no *.safetensors (or none of the kind that --load-format asks for)",
        remedy="complete the download; check --load-format",
        stage=LOAD,
        source="vllm/model_executor/model_loader/default_loader.py; sglang/srt/model_loader/loader.py",
        hit="RuntimeError: Cannot find any model weights with `/models/k25`",
        miss="INFO 11-29 10:00:00 [x.py:1] Found model weights with `/models/k25`",
        confidence=0.96,
    ),
    Signature(
        id="shards-missing",
        title="shards of the checkpoint are missing: {files}",
        keys=("referenced in index but missing", "No such file or directory", "safetensors"),
        pattern=r"(?:Weight files referenced in index but missing|references \d+ shard file\(s\) missing from [^:]*):"
        r" (?P<files>.{0,200})|"
        r"(?:FileNotFoundError|OSError|SafetensorError).*(?:No such file or directory)[^\n]*?(?P<file>[^'\s/]+\.safetensors)",
        cause="the index names files that are not in the directory: the download was not complete",
        remedy="download the missing files again; preflight checks all of them in a second",
        stage=LOAD,
        source="vllm/model_executor/model_loader/weight_utils.py; recorded with SGLang 0.5.23",
        hit="FileNotFoundError: Weight files referenced in index but missing: {'model-00003-of-00016.safetensors'}",
        miss="INFO 11-29 10:00:00 [x.py:1] No model.safetensors.index.json found in remote.",
        confidence=0.95,
    ),
    Signature(
        id="shard-corrupt",
        title="a shard is cut or not a safetensors file",
        keys=("deserializing header", "SafetensorError", "header too large", "HeaderTooLarge", "MetadataIncompleteBuffer"),
        pattern=r"Error while deserializing header:? ?(?P<why>.*)|SafetensorError: (?!Error while des)(?P<other>.*)|"
        r"safetensors.{0,200}(?:incomplete|invalid header|header too)|HeaderTooLarge|MetadataIncompleteBuffer",
        cause="the file ends before its last tensor, is empty, or is a Git LFS pointer: {why}",
        remedy="preflight names the file; download that one again (compare sizes with the index), then start",
        stage=LOAD,
        source="Qwen3-VL#264; vllm-project/vllm#15445; recorded with vLLM 0.32",
        hit="safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not"
        " fully covered",
        miss="INFO 11-29 10:00:00 [x.py:1] safetensors header read",
        provenance=SEEN,
        confidence=0.97,
    ),
    Signature(
        id="pickle-corrupt",
        title="a .bin or .pt file of the model cannot be read",
        keys=("UnpicklingError", "PytorchStreamReader", "invalid load key"),
        pattern=r"UnpicklingError|PytorchStreamReader failed|invalid load key",
        cause="the file is cut, a Git LFS pointer, or holds more than tensors",
        remedy="download it again, or convert it to safetensors",
        stage=LOAD,
        source="torch",
        hit="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        miss="INFO 11-29 10:00:00 [x.py:1] PytorchStreamReader used",
        confidence=0.92,
    ),
    Signature(
        id="input-output-error",
        title="the disk gave an error while it was read",
        keys=("Input/output error", "Stale file handle", "Transport endpoint is not connected"),
        pattern=r"\[Errno (?:5|116|107)\]|Input/output error|Stale file handle|Transport endpoint is not connected",
        cause="a disk or a network file system fails",
        remedy="dmesg -T | grep -iE 'i/o error|nvme|ext4|nfs'; read the file elsewhere; mount again",
        stage=LOAD,
        source="Linux",
        hit="OSError: [Errno 5] Input/output error",
        miss="INFO 11-29 10:00:00 [x.py:1] input and output errors are counted",
        confidence=0.93,
    ),
    Signature(
        id="hub-denied",
        title="the hub does not give this repository out",
        keys=(
            "401 Client Error",
            "403 Client Error",
            "gated repo",
            "Repository Not Found",
            "RepositoryNotFoundError",
            "GatedRepoError",
        ),
        pattern=r"40[13] Client Error|[Cc]annot access gated repo|Repository Not Found for url:?"
        r" ?(?P<url>\S*)|RepositoryNotFoundError|GatedRepoError",
        cause="the repository is private or gated, its name is wrong, or no token was given",
        remedy="check the name; set HF_TOKEN for this launch, accept the licence on the hub; or give a local path",
        stage=CONFIG,
        source="huggingface_hub",
        hit="huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url"
        " https://huggingface.co/x/y",
        miss='INFO:     127.0.0.1:5000 - "GET /v1/models HTTP/1.1" 401 Unauthorized',
        confidence=0.95,
    ),
    Signature(
        id="hub-offline",
        title="the hub cannot be reached, and the cache does not have all files",
        keys=(
            "outgoing traffic has been disabled",
            "couldn't connect to 'https://huggingface.co'",
            "couldn't connect to the Hub",
            "OfflineModeIsEnabled",
            "LocalEntryNotFoundError",
            "Cannot find the requested files in the",
            "Max retries exceeded with url",
        ),
        pattern=r"outgoing traffic has been disabled|[Cc]ouldn't connect to (?:'https://huggingface|the"
        r" Hub)|OfflineModeIsEnabled|"
        r"LocalEntryNotFoundError|Cannot find the requested files in the|huggingface\.co.*Max retries exceeded",
        cause="HF_HUB_OFFLINE is set or there is no network, and a file is not in the local cache",
        remedy="give a local path, or complete the cache while online: hf download NAME",
        stage=CONFIG,
        source="huggingface_hub",
        hit="huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the"
        " specified revision on"
        " the local disk and outgoing traffic has been disabled.",
        miss="WARNING 11-29 10:00:00 [x.py:1] usage statistics were not sent: no connection",
        confidence=0.92,
    ),
    Signature(
        id="remote-code",
        title="the model's own code must be allowed",
        keys=("custom code which must be executed", "trust_remote_code", "trust-remote-code"),
        pattern=r"contains custom code which must be executed|[Pp]lease (?:pass the argument|set(?: the option)?)"
        r" `?trust_remote_code=True|"
        r"requires you to execute the (?:configuration|modeling|tokenizer)",
        cause="configuration, tokenizer or model come as Python files of the repository",
        remedy="add --trust-remote-code to the profile's args, if you trust the repository",
        stage=CONFIG,
        source="transformers; vllm recipes#116",
        hit="ValueError: The repository /models/k25 contains custom code which must be executed to correctly load the model."
        " Please pass the"
        " argument `trust_remote_code=True` to allow custom code to be run.",
        miss="non-default args: {'model': '/models/k25', 'trust_remote_code': True}",
        provenance=SEEN,
        confidence=0.97,
    ),
    Signature(
        id="tokenizer-package",
        title="the tokenizer needs the package {name}",
        keys=(
            "No module named 'tiktoken'",
            "No module named 'blobfile'",
            "No module named 'sentencepiece'",
            "blobfile is not installed",
            "SentencePiece library",
            "requires the following packages",
            "No module named 'protobuf'",
        ),
        pattern=r"No module named '(?P<name>tiktoken|blobfile|sentencepiece|protobuf)'|(?P<lib>blobfile|tiktoken) is not"
        r" installed|"
        r"requires the SentencePiece library|This modeling file requires the following packages[^:]*: (?P<packages>[\w, -]*)",
        cause="Kimi's tokenizer is read with tiktoken; that blobfile is wanted means that the vocabulary file is not in the"
        " directory",
        remedy="pip install tiktoken (sentencepiece ...) into the engine's environment; see that tiktoken.model lies beside"
        " config.json",
        stage=CONFIG,
        source="vllm-project/vllm#21750",
        hit="ModuleNotFoundError: No module named 'tiktoken'",
        miss="ModuleNotFoundError: No module named 'tickets'",
        provenance=SEEN,
        confidence=0.96,
    ),
    Signature(
        id="tokenizer-backend",
        title="the tokenizer cannot be built by this transformers",
        keys=("instantiate the backend tokenizer", "TikTokenTokenizer", "Tokenizer class"),
        pattern=r"[Cc]ouldn't instantiate the backend tokenizer|Tokenizer class (?P<name>\w+) does not"
        r" exist|TikTokenTokenizer.*(?:has no|not )",
        cause="transformers 5 takes its fast path for a tokenizer that comes with code of its own (Kimi-K2.5, K2.6)",
        remedy="pin the transformers version that this engine was released with; keep --trust-remote-code",
        stage=CONFIG,
        source="tinker-cookbook#785; TensorRT-LLM#14416",
        hit="ValueError: Couldn't instantiate the backend tokenizer from one of: (1) a `tokenizers` library serialization file",
        miss="WARNING 11-29 10:00:00 [x.py:1] Using a slow tokenizer. This might cause a significant slowdown.",
        provenance=SEEN,
        confidence=0.92,
    ),
    Signature(
        id="model-type-unknown",
        title="this engine's transformers does not know the model type {type}",
        keys=("does not recognize this architecture", "does not recognize", "KeyError: 'kimi"),
        pattern=r"model type [`'\"](?P<type>[\w.-]+)[`'\"] but Transformers does not recognize|KeyError: '(?P<key>kimi_\w+)'",
        cause="the model is newer than the engine or its transformers",
        remedy="a newer engine: Kimi-K2.5 needs vLLM 0.16 (with EAGLE-3: 0.18) or SGLang 0.5.9 (0.5.12); --trust-remote-code"
        " if it has code",
        stage=CONFIG,
        source="transformers; vllm, sglang model lists",
        hit="ValueError: The checkpoint you are trying to load has model type `kimi_k25` but Transformers does not recognize this"
        " architecture.",
        miss="WARNING 11-29 10:00:00 [x.py:1] You are using a model of type kimi_k25 to instantiate a model of type deepseek_v3",
        provenance=SOURCE,
        confidence=0.95,
    ),
    Signature(
        id="architecture-unsupported",
        title="this engine has no class for the model's architecture",
        keys=(
            "are not supported for now",
            "has no vLLM implementation",
            "has no SGlang implementation",
            "not a registered model",
            "failed to be inspected",
        ),
        pattern=r"Model architectures \[?'?(?P<name>\w*)'?\]? (?:are not supported|failed to be inspected)|"
        r"has no (?:vLLM|SGlang) implementation|is not a registered model in the Transformers library",
        cause="the model is newer than the engine, or config.json names a class that only its own repository has",
        remedy="a newer engine; `failed to be inspected` has the real error above it (a missing package most often)",
        stage=CONFIG,
        source="vllm/model_executor/models/registry.py; sglang/srt/models/registry.py",
        hit="ValueError: Model architectures ['KimiK3ForCausalLM'] are not supported for now. Supported architectures:"
        " dict_keys([])",
        miss="INFO 11-29 10:00:00 [x.py:1] Resolved architecture: KimiK25ForConditionalGeneration",
        confidence=0.88,
    ),
    Signature(
        id="quantization-config",
        title="the quantisation asked for is not the checkpoint's, or not known here",
        keys=("uantization method", "quant_config", "quantization config", "Cannot find the config file for"),
        pattern=r"Quantization method specified in the model config \((?P<have>[^)]*)\) does not match|Unknown quantization"
        r" method: ?(?P<name>[^.\n]*)|"
        r"Cannot find the config file for (?P<file>\w+)|is not supported for quantization method (?P<method>\w+)",
        cause="--quantization contradicts config.json, or this version does not know the scheme",
        remedy="leave --quantization out: the checkpoint says what it is; else another --dtype or a newer engine",
        stage=CONFIG,
        source="vllm/config/model.py; sglang/srt/model_loader/loader.py",
        hit="ValueError: Quantization method specified in the model config (compressed-tensors) does not match the"
        " quantization method"
        " specified in the `quantization` argument (awq).",
        miss="INFO 11-29 10:00:00 [x.py:1] Quantization method is compressed-tensors",
        confidence=0.93,
    ),
    Signature(
        id="quantization-card",
        title="this card is not fit for the quantisation {method}",
        keys=("is not supported for the current GPU",),
        pattern=r"quantization method (?P<method>\S+) is not supported for the current GPU\. Minimum capability: (?P<min>\d+)",
        cause="the kernels for it need a compute capability of {min} or more",
        remedy="another checkpoint or quantisation",
        stage=CONFIG,
        source="vllm/config/vllm.py; sglang/srt/model_loader/loader.py",
        hit="ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 80. Current"
        " capability: 75.",
        miss="INFO 11-29 10:00:00 [x.py:1] fp8 is supported for the current GPU",
        confidence=0.96,
    ),
    Signature(
        id="chat-template",
        title="the chat template cannot be read",
        keys=("chat template", "TemplateSyntaxError"),
        pattern=r"[Tt]he supplied chat template .* (?:looks like a file path|appears path-like)|TemplateSyntaxError",
        cause="the file does not exist on the host, or is no template",
        remedy="check the path after --chat-template; in a container, whether it is mounted",
        stage=CONFIG,
        source="vllm/entrypoints/chat_utils.py",
        hit="ValueError: The supplied chat template ('kimi.jinja') looks like a file path, but it failed to be opened.",
        miss="WARNING 11-29 10:00:00 [x.py:1] Using default chat template",
        confidence=0.92,
    ),
    Signature(
        id="loader-config",
        title="the loader was given options that it does not know",
        keys=("extra config", "Unknown load_format", "Load format `"),
        pattern=r"Unexpected extra config keys for (?P<what>.*)|[Mm]odel loader extra config is not supported for load format"
        r" (?P<format>\S+)|"
        r"Unknown load_format: ?(?P<unknown>\S*)|Load format `(?P<other>[^`]*)` is not supported|enable_multithread_load does"
        r" not support",
        cause="--model-loader-extra-config or --load-format does not fit this version",
        remedy="take the option out, or use one that the engine's --help lists",
        stage=LOAD,
        source="vllm/model_executor/model_loader; sglang/srt/model_loader",
        hit="ValueError: Unexpected extra config keys for load format auto: {'threads'}",
        miss="non-default args: {'model_loader_extra_config': {'num_threads': 16}}",
        confidence=0.94,
    ),
    Signature(
        id="hub-ssl",
        title="the hub's certificate was not accepted",
        keys=("CERTIFICATE_VERIFY_FAILED", "SSLError"),
        pattern=r"CERTIFICATE_VERIFY_FAILED|SSLError",
        cause="a proxy or an old certificate store stands between this host and the hub",
        remedy="set SSL_CERT_FILE or REQUESTS_CA_BUNDLE to the right store; or give a local path",
        stage=CONFIG,
        source="requests, httpx",
        hit="requests.exceptions.SSLError: HTTPSConnectionPool(host='huggingface.co', port=443): certificate verify failed",
        miss="INFO 11-29 10:00:00 [x.py:1] ssl_certfile: None",
        confidence=0.88,
    ),
)
