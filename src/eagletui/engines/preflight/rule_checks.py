"""Launch settings that are known to be dangerous or bound to a version. What experience contradicts is no rule here."""

from __future__ import annotations

import re
from typing import Iterator

from eagletui.engines.preflight.case import Case
from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Finding
from eagletui.engines.preflight.target_checks import is_kimi
from eagletui.engines.preflight.versions import before

PART = "rules"


def capture(case: Case) -> Iterator[Finding]:
    """A verify step runs k + 1 tokens for each sequence; a batch above the largest captured graph can crash."""
    launch = case.launch
    if launch.engine != "vllm" or not launch.drafter or launch.eager or case.on_cpu or not launch.max_num_seqs:
        return
    need = launch.max_num_seqs * ((launch.k or 3) + 1)
    if launch.capture is not None and launch.capture < need:
        yield Finding(
            "capture-small",
            WARN,
            "the largest captured graph is smaller than a full batch",
            "--max-cudagraph-capture-size %d < --max-num-seqs %d x (k %d + 1) = %d"
            % (launch.capture, launch.max_num_seqs, launch.k or 3, need),
            "builds have crashed at high concurrency: exceeds CG capture max",
            "--max-cudagraph-capture-size %d, or fewer sequences" % need,
            PART,
        )
    elif launch.capture is None and need > 512 and case.launch.tp > 1:
        yield Finding(
            "capture-unset",
            INFO,
            "a full batch is larger than the usual largest graph",
            "--max-num-seqs %d x (k %d + 1) = %d; no --max-cudagraph-capture-size" % (launch.max_num_seqs, launch.k or 3, need),
            "batches above it run without a graph, and some builds crash",
            "--max-cudagraph-capture-size %d" % need,
            PART,
        )


def graph_file(case: Case) -> Iterator[Finding]:
    """An NCCL topology file made for all ranks breaks smaller groups, and wants memory."""
    name = case.launch.env.get("NCCL_GRAPH_FILE")
    if not name:
        return
    if case.launch.dcp > 1 and case.launch.dcp != case.launch.tp:
        yield Finding(
            "graph-file-groups",
            BLOCK,
            "an NCCL graph file with groups of another size",
            "NCCL_GRAPH_FILE=%s, decode context parallel %d of %d" % (name, case.launch.dcp, case.launch.tp),
            "the start fails at the communicator of the smaller group: unhandled system error",
            "unset it, or use a patched NCCL",
            PART,
        )
    if (case.launch.util or 0) >= 0.95:
        yield Finding(
            "graph-file-memory",
            WARN,
            "an NCCL graph file needs memory that this share leaves not",
            "NCCL_GRAPH_FILE, --gpu-memory-utilization %g" % (case.launch.util or 0),
            "Failed to CUDA calloc: about 10 MB are missing",
            "lower the share to 0.93",
            PART,
        )


def share_with_drafter(case: Case) -> Iterator[Finding]:
    """A high share with a drafter and split decode context runs out after the start."""
    launch = case.launch
    if (
        launch.engine == "vllm"
        and launch.drafter
        and launch.dcp >= 4
        and (launch.util or 0) > 0.9
        and is_kimi(case)
        and not case.on_cpu
    ):
        yield Finding(
            "util-drafter-dcp",
            WARN,
            "this memory share ran out with a drafter and decode context parallel %d" % launch.dcp,
            "--gpu-memory-utilization %g" % (launch.util or 0),
            "out of memory minutes after ready, at the first large batch",
            "0.90",
            PART,
        )


def estimate(case: Case) -> Iterator[Finding]:
    """The estimate of graph memory took a third of the cache in two versions."""
    told = case.launch.env.get("VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS")
    late = before(case.version, "0.20") is False and before(case.version, "0.22") is True
    default_on = before(case.version, "0.21") is False
    if (
        case.launch.engine == "vllm"
        and late
        and not case.launch.eager
        and not case.on_cpu
        and (told == "1" or (told is None and default_on))
    ):
        yield Finding(
            "graph-estimate",
            INFO,
            "the estimate of graph memory is on",
            "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS %s, %s" % (told or "by default", case.name),
            "it is 2.5 to 4.2 times what graphs take: the cache is up to a third smaller",
            "0, and with a drafter a share of 0.90",
            PART,
        )


def obsolete(case: Case) -> Iterator[Finding]:
    """Variables that do harm when they linger."""
    env = case.launch.env
    if env.get("VLLM_SPECULATIVE_DISABLE_ABOVE_SEQ_LEN"):
        yield Finding(
            "spec-disabled-above",
            WARN,
            "the drafter is switched off above a length",
            "VLLM_SPECULATIVE_DISABLE_ABOVE_SEQ_LEN=%s" % env["VLLM_SPECULATIVE_DISABLE_ABOVE_SEQ_LEN"],
            "left over from builds of April, it hides the drafter",
            "unset it",
            PART,
        )
    for name in ("VLLM_TEST_FORCE_FP8_MARLIN", "VLLM_MARLIN_INPUT_DTYPE"):
        if env.get(name) and env[name] != "0":
            yield Finding(
                "fp8-marlin",
                WARN,
                "%s brought no gain and risks quality" % name,
                "%s=%s" % (name, env[name]),
                "its advice was withdrawn",
                "unset it",
                PART,
            )
    if env.get("SPEC_ACCEPT_THRESHOLD_ACC"):
        yield Finding(
            "accept-threshold",
            WARN,
            "answers are not those of the target",
            "SPEC_ACCEPT_THRESHOLD_ACC=%s" % env["SPEC_ACCEPT_THRESHOLD_ACC"],
            "draft tokens are accepted that the target would not have drawn",
            "unset it for honest results",
            PART,
        )
    if env.get("RTX6K_FUSED_ALLREDUCE_ADD") == "1":
        yield Finding(
            "fused-allreduce",
            WARN,
            "RTX6K_FUSED_ALLREDUCE_ADD=1 without its end barrier corrupts hidden states",
            "the environment",
            "wrong answers from a healthy server",
            "0, or a build with the barrier",
            PART,
        )


def many_draft_tokens(case: Case) -> Iterator[Finding]:
    """More than three draft tokens ended in illegal accesses on builds of that spring."""
    if (
        (case.launch.k or 0) > 3
        and is_kimi(case)
        and case.launch.engine == "vllm"
        and before(case.version, "0.21") is True
        and not case.on_cpu
    ):
        yield Finding(
            "k-above-3",
            WARN,
            "more than 3 draft tokens on this version",
            "k = %d, %s" % (case.launch.k or 0, case.name),
            "illegal memory accesses under load were seen",
            "k = 3, or a newer version",
            PART,
        )


def sglang_spec_v2(case: Case) -> Iterator[Finding]:
    """SGLang 0.5.5 to 0.5.9 loads the target twice unless told otherwise."""
    if case.launch.engine != "sglang" or not case.launch.drafter:
        return
    between = before(case.version, "0.5.5") is False and before(case.version, "0.5.10") is True
    if between and case.launch.env.get("SGLANG_ENABLE_SPEC_V2") not in ("1", "true", "True"):
        yield Finding(
            "sglang-spec-v2",
            WARN,
            "SGLANG_ENABLE_SPEC_V2 is not set",
            case.name,
            "the whole model was loaded a second time: out of memory",
            "SGLANG_ENABLE_SPEC_V2=1",
            PART,
        )


def sglang_fp8_cache(case: Case) -> Iterator[Finding]:
    """FP8 cache with the INT4 checkpoint was very slow in early versions."""
    if (
        case.launch.engine == "sglang"
        and "fp8" in (case.launch.kv_dtype or "")
        and is_kimi(case)
        and before(case.version, "0.5.10") is True
    ):
        yield Finding(
            "sglang-fp8-kv",
            WARN,
            "an FP8 cache with this checkpoint was very slow",
            "--kv-cache-dtype %s, %s" % (case.launch.kv_dtype, case.name),
            "16 tok/s on SM120",
            "leave it BF16",
            PART,
        )


def segments(case: Case) -> Iterator[Finding]:
    """Expandable segments cannot be shared between processes, as the PCIe allreduce of forks wants."""
    conf = case.launch.env.get("PYTORCH_CUDA_ALLOC_CONF") or case.launch.env.get("PYTORCH_ALLOC_CONF") or ""
    oneshot = any(
        re.search("PCIE.*(ALLREDUCE|ONESHOT)", name) and value not in ("", "0") for name, value in case.launch.env.items()
    )
    if "expandable_segments:True" in conf and oneshot:
        yield Finding(
            "expandable-segments",
            WARN,
            "expandable segments with a PCIe allreduce",
            "%s" % conf,
            "invalid argument when the ranks exchange their memory handles",
            "drop expandable_segments:True",
            PART,
        )


def custom_allreduce(case: Case) -> Iterator[Finding]:
    """One flag switches off two things."""
    if "--disable-custom-all-reduce" in case.launch.flags and case.launch.env.get("VLLM_ENABLE_PCIE_ALLREDUCE") == "1":
        yield Finding(
            "allreduce-both",
            WARN,
            "the PCIe allreduce is asked for and switched off",
            "VLLM_ENABLE_PCIE_ALLREDUCE=1, --disable-custom-all-reduce",
            "the flag turns both off",
            "keep one of them",
            PART,
        )


def served_twice(case: Case) -> Iterator[Finding]:
    """SGLang's own limit with a drafter."""
    if case.launch.engine == "sglang" and case.launch.drafter and case.launch.max_num_seqs is None:
        yield Finding(
            "sglang-48",
            INFO,
            "SGLang will run at most 48 requests at once",
            "no --max-running-requests, with a drafter",
            "it resets it to 48",
            "set it as you want it",
            PART,
        )


CHECKS = (
    capture, graph_file, share_with_drafter, estimate, obsolete, many_draft_tokens, sglang_spec_v2, sglang_fp8_cache, segments,
    custom_allreduce, served_twice,
)  # fmt: skip
