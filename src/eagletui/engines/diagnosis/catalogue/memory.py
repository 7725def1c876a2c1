"""Not enough memory: on the cards at each stage, and on the host."""

from __future__ import annotations

from eagletui.engines.diagnosis.entry import (
    AFTER,
    GRAPH_PHASES,
    GRAPHS,
    HOST,
    KV,
    LOAD,
    LOAD_PHASES,
    SEEN,
    SERVING,
    SERVING_PHASES,
    SGLANG,
    SOURCE,
    VLLM,
    WORKERS,
    Signature,
)

_OOM_KEYS = ("CUDA out of memory", "OutOfMemoryError", "CUDA error: out of memory")
_OOM = (
    r"(?:torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory)"
    r"(?:.*Tried to allocate (?P<size>[\d.]+ \wiB))?"
)

ENTRIES = (
    Signature(
        id="gpu-memory-taken",
        title="another process holds memory of the card",
        keys=("less than desired GPU memory utilization", "desired GPU memory"),
        pattern=r"Free memory on device (?P<device>\S*) ?\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than"
        r" desired|"
        r"Free memory on device.* is less than desired GPU memory utilization",
        cause="{free} of {total} GiB are free, less than --gpu-memory-utilization asks for: leftovers of a killed server, or"
        " somebody else's job",
        remedy="look at the processes on the cards (screen 2), end what is left over with `eagletui kill`; or lower"
        " --gpu-memory-utilization",
        stage=WORKERS,
        source="vllm/v1/worker/utils.py; vllm-project/vllm#55510",
        hit="ValueError: Free memory on device cuda:0 (20.1/94.97 GiB) on startup is less than desired GPU memory utilization"
        " (0.93,"
        " 88.32 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        miss="INFO 11-29 10:00:00 [w.py:1] Free memory on device (92.1/94.97 GiB) on startup. Desired GPU memory utilization"
        " is (0.93,"
        " 88.32 GiB). Actual usage is 60.3 GiB for weight",
        provenance=SEEN,
        confidence=0.97,
        engine=VLLM,
    ),
    Signature(
        id="gpu-memory-profiling",
        title="memory on the card changed while vLLM was measuring it",
        keys=("Error in memory profiling",),
        pattern=r"Error in memory profiling",
        cause="another process freed or took memory of the card during the profiling run",
        remedy="let the other process end first, then start again; one launch at a time on a card",
        stage=AFTER,
        source="vllm/v1/worker/gpu_worker.py",
        hit="AssertionError: Error in memory profiling. Initial free memory 80.1 GiB, current free memory 85.0 GiB. This"
        " happens when"
        " other processes sharing the same container release GPU memory while vLLM is profiling during initialization.",
        miss="ERROR 11-29 10:00:00 [x.py:1] Error in profiling hook",
        confidence=0.95,
        engine=VLLM,
    ),
    Signature(
        id="cpu-memory-short",
        title="the machine has less free memory than this server wants",
        keys=("less than desired CPU memory utilization", "less than requested memory for kv"),
        pattern=r"Available memory on node (?P<node>\S+) \((?P<have>[\d.]+)/(?P<total>[\d.]+) GiB\)[\s\S]* is less than"
        r" (?:desired CPU|requested memory)",
        cause="{have} of {total} GiB are free on memory node {node}",
        remedy="end other programs, lower --gpu-memory-utilization (it counts for the CPU build too), or lower"
        " VLLM_CPU_KVCACHE_SPACE",
        stage=WORKERS,
        source="vllm/v1/worker/cpu_worker.py",
        hit="ValueError: Available memory on node 0 (3.1/31.3 GiB) on startup is less than desired CPU memory utilization"
        " (0.9, 28.2 GiB).",
        miss="INFO 11-29 10:00:00 [cpu_worker.py:1] Available memory on node 0 (30.1/31.3 GiB) on startup.",
        confidence=0.97,
        engine=VLLM,
    ),
    Signature(
        id="oom-weights",
        title="the weights do not fit on the cards",
        keys=_OOM_KEYS,
        pattern=_OOM,
        cause="memory ran out while the weights were loaded: the share of each card is larger than it, leftovers hold memory,"
        " or the loader"
        " needs room of its own (fastsafetensors fills card 0 first)",
        remedy="check weights / TP against the card (preflight does); end leftovers; another --load-format; fewer or smaller"
        " models on the card",
        stage=LOAD,
        source="vllm, sglang, torch; local-inference-lab/rtx6kpro",
        hit="(EngineCore pid=5) INFO 11-29 10:00:00 [m.py:1] Starting to load model x...\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.97 GiB",
        miss="(EngineCore pid=5) INFO 11-29 10:00:00 [m.py:1] Starting to load model x...\n"
        "WARNING 11-29 10:00:01 [m.py:1] the memory of CUDA is almost full",
        provenance=SEEN,
        confidence=0.95,
        phases=LOAD_PHASES,
    ),
    Signature(
        id="load-not-enough-memory",
        title="the weights do not fit on the cards",
        keys=("not enough GPU memory",),
        pattern=r"Failed to load model - not enough GPU memory",
        cause="vLLM ran out of memory while it loaded the weights",
        remedy="check weights / TP against the card; end leftovers; lower --gpu-memory-utilization does not help here",
        stage=LOAD,
        source="vllm/v1/worker/gpu_model_runner.py (0.13 and newer)",
        hit="(Worker_TP0 pid=9) ERROR 11-29 10:00:00 [m.py:1] Failed to load model - not enough GPU memory. Try lowering"
        " --gpu-memory-utilization to free memory for weights\n"
        "(EngineCore pid=5) ERROR 11-29 10:00:01 [c.py:1] EngineCore failed to start.",
        miss="(Worker_TP0 pid=9) ERROR 11-29 10:00:00 [m.py:1] Failed to load model - not a directory",
        confidence=0.93,
        engine=VLLM,
        versions="0.13-0.32",
    ),
    Signature(
        id="kv-none",
        title="no memory is left for the KV cache",
        keys=("No available memory for the cache blocks", "Cannot auto-fit max_model_len"),
        pattern=r"No available memory for the cache blocks|Cannot auto-fit max_model_len: not enough GPU memory",
        cause="weights, activations of the profiling run and graphs take all that --gpu-memory-utilization allows",
        remedy="raise --gpu-memory-utilization, lower --max-num-batched-tokens or --max-num-seqs, use an fp8 KV cache, or"
        " leave the drafter out",
        stage=KV,
        source="vllm/v1/core/kv_cache_utils.py",
        hit="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing"
        " the engine.",
        miss="WARNING 11-29 10:00:00 [k.py:1] No available memory for prefetching",
        confidence=0.97,
        engine=VLLM,
    ),
    Signature(
        id="kv-too-small",
        title="the KV cache is too small for one request of the maximum length ({len})",
        keys=("larger than the available KV cache memory",),
        pattern=r"max seq len \((?P<len>\d+)\), \(?(?P<need>[\d.]+) GiB KV cache is needed, which is larger than the available"
        r" KV cache"
        r" memory \((?P<have>[\d.]+) GiB\)[\s\S]*?(?:maximum model length is (?P<max>\d+)|$)|larger than the available KV"
        r" cache memory",
        cause="{need} GiB would be needed, {have} GiB are there",
        remedy="lower --max-model-len (vLLM's estimate of what fits: {max}), raise --gpu-memory-utilization, or use an fp8 KV"
        " cache",
        stage=KV,
        source="vllm/v1/core/kv_cache_utils.py",
        hit="ValueError: To serve at least one request with the model's max seq len (262144), (17.16 GiB KV cache is needed,"
        " which is"
        " larger than the available KV cache memory (9.70 GiB). Based on the available memory, the estimated maximum model"
        " length is"
        " 148224. Try increasing `gpu_memory_utilization`",
        miss="INFO 11-29 10:00:00 [k.py:1] Available KV cache memory: 9.70 GiB",
        confidence=0.97,
        engine=VLLM,
    ),
    Signature(
        id="oom-graphs",
        title="memory ran out while graphs were captured or the engine warmed up",
        keys=_OOM_KEYS,
        pattern=_OOM,
        cause="graphs, the sampler's warm-up and NCCL's buffers come after the KV cache was sized, and there was no room left",
        remedy="lower --gpu-memory-utilization (0.90 with a drafter) or --mem-fraction-static, --max-num-seqs, or the number"
        " of capture sizes",
        stage=GRAPHS,
        source="vllm, sglang, torch",
        hit="(EngineCore pid=5) INFO 11-29 10:00:00 [k.py:1] Available KV cache memory: 9.70 GiB\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.97 GiB",
        miss="(EngineCore pid=5) INFO 11-29 10:00:00 [k.py:1] Available KV cache memory: 9.70 GiB\n"
        "INFO 11-29 10:00:01 [k.py:1] CUDA graph pool memory: 2.4 GiB (actual), 6.0 GiB (estimated)",
        provenance=SOURCE,
        confidence=0.93,
        phases=GRAPH_PHASES,
    ),
    Signature(
        id="oom-sampler-warmup",
        title="memory ran out in the sampler's warm-up",
        keys=("warming up sampler",),
        pattern=r"out of memory occurred when warming up sampler with (?P<n>\d+)",
        cause="the sampler was warmed up with {n} requests at once",
        remedy="lower --max-num-seqs or --gpu-memory-utilization",
        stage=GRAPHS,
        source="vllm/v1/worker/gpu_model_runner.py",
        hit="RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering"
        " `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
        miss="INFO 11-29 10:00:00 [k.py:1] warming up sampler with 1024 dummy requests",
        confidence=0.97,
        engine=VLLM,
    ),
    Signature(
        id="oom-serving",
        title="memory ran out while it served",
        keys=_OOM_KEYS,
        pattern=_OOM,
        cause="a batch larger than any before needed more than was left beside the KV cache; drafter and context parallelism"
        " make it likelier",
        remedy="lower --gpu-memory-utilization or --mem-fraction-static by 0.03 to 0.05, --max-num-batched-tokens or the"
        " chunked prefill size",
        stage=SERVING,
        source="local-inference-lab/rtx6kpro; torch",
        hit="INFO:     Application startup complete.\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94.97 GiB",
        miss="INFO:     Application startup complete.\nINFO 11-29 10:00:01 [l.py:1] KV cache pool is full. Retract requests.",
        provenance=SEEN,
        confidence=0.95,
        phases=SERVING_PHASES,
    ),
    Signature(
        id="oom-early",
        title="a card had no memory left before anything was loaded",
        keys=_OOM_KEYS,
        pattern=_OOM,
        cause="the first allocation on the card failed: somebody else's process, or one left over, holds it",
        remedy="look at the processes on the cards (screen 2) and end what is left over with `eagletui kill`",
        stage=WORKERS,
        source="torch",
        hit="(EngineCore pid=5) INFO 11-29 10:00:00 [m.py:1] Initializing a V1 LLM engine (v0.20.0) with config: model='/m'\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 3 has a total capacity of 94.97 GiB",
        miss="(EngineCore pid=5) INFO 11-29 10:00:00 [m.py:1] Initializing a V1 LLM engine (v0.20.0) with config: model='/m'\n"
        "(EngineCore pid=5) INFO 11-29 10:00:00 [m.py:1] out of memory handling: on",
        confidence=0.9,
        phases=("spawn", "config", "workers", "api"),
    ),
    Signature(
        id="sglang-static-fraction",
        title="SGLang's static share of memory is below what the weights take",
        keys=("mem-fraction-static", "mem_fraction_static"),
        pattern=r"Not enough memory\. Please try to increase --mem-fraction-static|Raise --mem-fraction-static above|"
        r"Not enough GPU memory.*mem-fraction-static",
        cause="--mem-fraction-static covers weights and KV cache together; after the weights nothing of it was left",
        remedy="raise --mem-fraction-static (0.90 is usual for a model that fills the cards), more cards, or a smaller model",
        stage=KV,
        source="sglang/srt/model_executor/model_runner.py",
        hit="RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        miss="[2026-11-29 16:19:18] Automatically reduce --mem-fraction-static to 0.850 because attention data parallelism is"
        " enabled.",
        confidence=0.96,
        engine=SGLANG,
    ),
    Signature(
        id="sglang-unbalanced",
        title="the cards have different amounts of free memory",
        keys=("memory capacity is unbalanced",),
        pattern=r"The memory capacity is unbalanced",
        cause="other processes hold memory on some of the cards, leftovers of a killed server most often",
        remedy="look at the processes on the cards (screen 2), end what is left over with `eagletui kill`",
        stage=WORKERS,
        source="sglang/srt/model_executor/model_runner.py",
        hit="ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
        miss="[2026-11-29 16:19:18 TP0] The memory capacity is balanced",
        confidence=0.96,
        engine=SGLANG,
    ),
    Signature(
        id="sglang-capture-failed",
        title="SGLang could not capture its graphs",
        keys=("Capture ",),
        pattern=r"Capture (?:\w+ )*(?:cuda|CUDA|CPU|npu) graph failed: ?(?P<why>[^\n]*)",
        cause="most often memory, else a kernel that does not work on this card: {why}",
        remedy="lower --mem-fraction-static and --cuda-graph-max-bs; --disable-cuda-graph shows whether the graphs are at fault",
        stage=GRAPHS,
        source="sgl-project/sglang#7011",
        hit="Exception: Capture cuda graph failed: CUDA error: invalid argument",
        miss="[2026-11-29 16:19:18 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=4.00 GB",
        provenance=SEEN,
        confidence=0.8,
        engine=SGLANG,
    ),
    Signature(
        id="sglang-pool-empty",
        title="SGLang's token pool ran out",
        keys=("out of memory. Try to lower your batch size", "alloc_req_slots runs out of memory", "out of memory happened"),
        pattern=r"(?P<what>Prefill|Decode|alloc_req_slots).{0,10}(?:runs )?out of memory",
        cause="more tokens or requests were scheduled than the KV pool holds",
        remedy="lower --max-running-requests or --chunked-prefill-size, raise --mem-fraction-static",
        stage=SERVING,
        source="sglang/srt/managers/schedule_batch.py",
        hit="RuntimeError: Decode out of memory. Try to lower your batch size.",
        miss="[2026-11-29 16:19:18] KV cache pool is full. Retract requests. #retracted_reqs: 1",
        confidence=0.93,
        engine=SGLANG,
    ),
    Signature(
        id="nccl-no-vram",
        title="no memory was left on the card for NCCL's buffers",
        keys=("CUDA calloc", "Cuda failure"),
        pattern=r"Failed to CUDA (?:calloc|malloc)(?: async)? (?P<bytes>\d+) bytes|Cuda failure (?:2 )?'out of memory'",
        cause="NCCL takes 0.5 to 2 GiB per card beside what the engine counts, more with many channels or a graph file",
        remedy="lower --gpu-memory-utilization by 0.02 (0.95 to 0.93); fewer NCCL channels",
        stage=GRAPHS,
        source="local-inference-lab/rtx6kpro",
        hit="gpu1:423:1200 [3] include/alloc.h:181 NCCL WARN Failed to CUDA calloc async 608 bytes\n"
        "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        miss="gpu1:423:1200 [3] NCCL INFO Allocated 608 bytes",
        provenance=SEEN,
        confidence=0.97,
    ),
    Signature(
        id="host-memory",
        title="the host ran out of memory",
        keys=("Cannot allocate memory", "MemoryError", "std::bad_alloc", "DefaultCPUAllocator", "cudaErrorMemoryAllocation"),
        pattern=r"\[Errno 12\] Cannot allocate memory|^MemoryError\b|std::bad_alloc|DefaultCPUAllocator: (?:can't|not enough)|"
        r"[Cc]annot allocate memory",
        cause="a process asked the host for memory and got none: many loader threads, pinned buffers, or a limit (ulimit -v,"
        " memlock)",
        remedy="fewer loader threads, no prefetch; raise limits (ulimit -l unlimited); more memory or swap",
        stage=LOAD,
        source="sgl-project/sglang#21898",
        hit="OSError: [Errno 12] Cannot allocate memory",
        miss="WARNING 11-29 10:00:00 [x.py:1] could not lock memory",
        confidence=0.9,
    ),
    Signature(
        id="kernel-oom",
        title="the kernel killed {name} because memory ran out",
        keys=("Killed process", "oom-kill"),
        pattern=r"[Oo]ut of memory: Killed process (?P<pid>\d+) \((?P<name>[^)]*)\)|oom-kill:",
        cause="the host's memory, or the limit of its control group, was used up",
        remedy="fewer loader threads, no prefetch, more memory or swap; raise the container's or unit's memory limit",
        stage=HOST,
        source="Linux kernel; sgl-project/sglang#21898",
        hit="[12345.678] Out of memory: Killed process 4242 (VLLM::Worker_TP) total-vm:190000000kB, anon-rss:120000000kB",
        miss="[12345.678] Memory cgroup stats for /docker",
        provenance=SEEN,
        confidence=0.97,
    ),
    Signature(
        id="drafter-memory",
        title="memory ran out while the drafter was loaded",
        keys=_OOM_KEYS,
        pattern=_OOM,
        trace=(r"eagle_worker|next_n|speculative", r"load_model"),
        cause="the target left no room for it; without --speculative-draft-model-path the target itself is loaded a second time",
        remedy="give the drafter's path (0.5.5 to 0.5.9 also want SGLANG_ENABLE_SPEC_V2=1); lower --mem-fraction-static",
        stage=LOAD,
        source="local-inference-lab/rtx6kpro common issues",
        hit="[2026-11-29 16:19:18 TP0] Load weight begin. avail mem=10.00 GB\n"
        "Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/speculative/eagle_worker.py", line 9, in <module>\n'
        "    self.load_model()\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        miss="[2026-11-29 16:19:18 TP0] Load weight begin. avail mem=10.00 GB\n"
        "Traceback (most recent call last):\n"
        '  File "/srv/sglang/srt/managers/tp_worker.py", line 9, in <module>\n'
        "    self.load_model()\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        provenance=SEEN,
        confidence=0.96,
        engine=SGLANG,
    ),
)
