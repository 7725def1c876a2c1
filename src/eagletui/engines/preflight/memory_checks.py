"""Does it fit? Free memory of each card against what the engine takes, and the checkpoint against that; the host's memory."""

from __future__ import annotations

import json
from typing import Iterator, Optional

from eagletui.engines.preflight.case import GIB, VISIBLE, Case, size
from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Finding
from eagletui.engines.preflight.versions import before

PART = "memory"
BESIDES = 6 * GIB
"""What a card needs beside its share of the weights, at least: graphs, activations, NCCL's buffers, a first bit of cache."""


def share(case: Case) -> float:
    """The part of a card's memory that the engine takes for itself."""
    if case.launch.util is not None:
        return case.launch.util
    # SGLang works its own out from the cards; vLLM's default grew late
    return 0.92 if case.launch.engine == "vllm" and before(case.version, "0.22") is False else 0.9


def share_range(case: Case) -> Iterator[Finding]:
    """A share outside of what there can be."""
    util = case.launch.util
    if util is not None and not 0 < util <= 1:
        flag = "--gpu-memory-utilization" if case.launch.engine == "vllm" else "--mem-fraction-static"
        yield Finding(
            "util-range",
            BLOCK,
            "the memory share is no share",
            "%s %g" % (flag, util),
            "refused when the configuration is made",
            "give a number between 0 and 1",
            PART,
        )


def cards_there(case: Case) -> Iterator[Finding]:
    """As many cards as the launch wants, all of them answering."""
    if case.on_cpu:
        return
    wanted = case.launch.tp * case.launch.pp * case.launch.dp
    if case.board is None:
        return
    if not case.board.cards:
        if case.engine.get("where") is None and not other_device(case):
            why = case.board.problem or "no card is shown"
            yield Finding(
                "no-cards",
                # a driver that does not answer says nothing about the cards
                WARN if case.board.present or case.machine.get("cards") else BLOCK,
                "the host shows no card",
                why,
                "an engine for cards ends at once",
                "see `eagletui doctor`; an engine for CPUs is another build",
                PART,
            )
        return
    cards = case.cards()
    lost = [card for card in cards if card.lost is not None]
    for card in lost:
        yield Finding(
            "card-lost",
            BLOCK,
            "card %d does not answer" % card.number,
            str(card.lost),
            "the launch hangs or ends when it comes to that card",
            "reboot, or leave it out (gpus in the profile); see dmesg for Xid",
            PART,
        )
    have = len(case.launch.cards) if case.launch.cards else len(case.board.cards)
    chosen = VISIBLE in case.launch.env or any(word.startswith(VISIBLE + "=") for word in case.launch.argv)
    if wanted > have and not chosen and not case.launch.spread:
        yield Finding(
            "too-few-cards",
            BLOCK,
            "%d cards are wanted, %d are there" % (wanted, have),
            "tensor %d x pipeline %d x data %d" % (case.launch.tp, case.launch.pp, case.launch.dp),
            "the launch ends when the workers start",
            "lower the tensor parallel size, or give it more cards",
            PART,
        )


def other_device(case: Case) -> bool:
    """Whether the engine is a build for cards of another maker, which are not among those that are shown."""
    return any(word in (case.version or "").lower() for word in ("rocm", "xpu", "hpu", "tpu", "npu", "neuron"))


def free_now(case: Case) -> Iterator[Finding]:
    """vLLM wants its whole share to be free when it starts; SGLang wants the cards to be alike."""
    if case.on_cpu:
        return
    util = share(case)
    for card in case.cards():
        if card.lost is not None or card.mem_total is None or card.mem_used is None:
            continue
        free = card.mem_total - card.mem_used - (card.mem_reserved or 0)
        if case.launch.engine == "vllm" and free < util * card.mem_total - 0.25 * GIB:
            yield Finding(
                "card-not-free",
                BLOCK,
                "card %d has less free than the engine takes" % card.number,
                "%s free of %s; %s x %g = %s; in use by %s"
                % (
                    size(free),
                    size(card.mem_total),
                    size(card.mem_total),
                    util,
                    size(util * card.mem_total),
                    holders(case, card),
                ),
                "the workers end: free memory is less than desired GPU memory utilization",
                "end what holds it, or lower --gpu-memory-utilization",
                PART,
            )
    if case.launch.engine == "sglang":
        frees = {
            card.number: card.mem_total - card.mem_used for card in case.cards() if card.mem_total and card.mem_used is not None
        }
        told = any(name.endswith("TP_MEMORY_INBALANCE_CHECK") for name in case.launch.env)
        if len(frees) > 1 and not told and min(frees.values()) < max(frees.values()) * 0.9:
            low = min(frees, key=lambda number: frees[number])
            yield Finding(
                "cards-unbalanced",
                BLOCK,
                "the cards do not have the same memory free",
                "card %d: %s, others up to %s" % (low, size(frees[low]), size(max(frees.values()))),
                "SGLang ends: the memory capacity is unbalanced",
                "end what holds card %d" % low,
                PART,
            )


def holders(case: Case, card: object) -> str:
    """Who holds memory on a card, in words."""
    processes = getattr(card, "processes", None) or ()
    named = [
        "%s (pid %d, %s)" % (process.job or process.user or "?", process.pid, size(process.mem))
        for process in processes
        if process.mem
    ]
    return ", ".join(named[:3]) or "nobody that is shown: a process of another namespace, or the driver"


def weights_fit(case: Case) -> Iterator[Finding]:
    """The checkpoint's bytes for each card against that card's share."""
    if case.on_cpu:
        return
    total = checkpoint(case)
    split = ways(case)
    cards = [card for card in case.cards() if card.mem_total]
    if total is None or not cards:
        return
    own = (case.drafter.get("bytes") or 0) / float(case.launch.tp) if case.launch.drafter else 0.0
    floor = total / float(split) + own
    least = min(cards, key=lambda card: card.mem_total or 0)
    room = share(case) * float(least.mem_total or 0)
    says = "%s of weights over %d cards = %s a card%s; card %d gives %s (%g of %s)" % (
        size(total),
        split,
        size(total / float(split)),
        ", drafter %s" % size(own) if own else "",
        least.number,
        size(room),
        share(case),
        size(least.mem_total),
    )
    if floor > room:
        yield Finding(
            "weights-too-big",
            BLOCK,
            "the weights do not fit on the cards",
            says,
            "out of memory while loading",
            "more cards, or a smaller (quantised) checkpoint",
            PART,
        )
    elif floor + BESIDES > room:
        yield Finding(
            "weights-tight",
            WARN,
            "the weights leave little of the cards",
            says,
            "cache, graphs and NCCL's buffers need %s and more: it may run out after the load" % size(BESIDES),
            "a higher share, a shorter length, or a smaller checkpoint",
            PART,
        )


def ways(case: Case) -> int:
    """Over how many cards the weights are split, at the most: vLLM spreads experts over its replicas as well."""
    launch = case.launch
    experts = any(case.text.get(key) for key in ("n_routed_experts", "num_experts", "num_local_experts"))
    return launch.tp * launch.pp * (launch.dp if launch.engine == "vllm" and experts else 1)


def made_smaller(case: Case) -> bool:
    """Whether cards hold less than the files: parts that stay in the host's memory, quantised or cut while loading."""
    flags, config = case.launch.flags, case.target.get("config") or {}
    if any(flag.startswith(_SMALLER) for flag in flags):
        return True
    stored = case.text.get("quantization_config") or config.get("quantization_config") or config.get("compression_config")
    if not stored and any(flag in flags for flag in ("--quantization", "-q", "--torchao-config")):
        return True
    return "float32" in (str(case.text.get(key) or config.get(key)) for key in ("torch_dtype", "dtype"))


_SMALLER = ("--cpu-offload", "--offload", "--kt-", "--hf-overrides", "--json-model-override-args")


def checkpoint(case: Case) -> Optional[int]:
    """The bytes of the target's weights, from its files; None when not all were seen, or when less than them is kept."""
    if made_smaller(case):
        return None
    index = case.target.get("index") or {}
    shards = case.target.get("shards")
    if shards is not None and index.get("files", 0) > len(shards):
        told = index.get("total_size")
        return told if isinstance(told, int) else None
    return case.target.get("bytes") or None


def host_memory(case: Case) -> Iterator[Finding]:
    """The host's memory: loaders with threads, and engines without cards."""
    memory = case.place.get("memory") or {}
    available = memory.get("available")
    if memory.get("limit"):
        available = min(available or memory["limit"], memory["limit"])
    if available is None:
        return
    total, shards = checkpoint(case), case.target.get("shards") or []
    if case.on_cpu:
        space = _cpu_cache(case)
        if total is not None and total + space > available:
            yield Finding(
                "host-memory",
                BLOCK,
                "the model does not fit into the host's memory",
                "%s of weights and %s of cache; %s available" % (size(total), size(space), size(available)),
                "the kernel ends it while it loads",
                "a smaller VLLM_CPU_KVCACHE_SPACE, or end what uses the memory",
                PART,
            )
        return
    threads = loader_threads(case)
    biggest = max((shard.get("size") or 0 for shard in shards), default=0)
    if threads and biggest and (threads + 1) * biggest > available:
        yield Finding(
            "loader-memory",
            WARN,
            "the loader's threads may need more memory than the host has",
            "%d threads x %s a file; %s available" % (threads, size(biggest), size(available)),
            "the kernel ends it in the middle of the load (exit code -9)",
            "fewer threads: num_threads in --model-loader-extra-config",
            PART,
        )


def loader_threads(case: Case) -> Optional[int]:
    """How many threads the loader is told to use; None when it is not told."""
    words = list(case.launch.argv)
    for at, word in enumerate(words):
        if word.startswith("--model-loader-extra-config"):
            raw = word.partition("=")[2] or (words[at + 1] if at + 1 < len(words) else "")
            try:
                doc = json.loads(raw)
            except ValueError:
                return None  # the engine's parser says so
            value = doc.get("num_threads") if isinstance(doc, dict) else None
            return value if isinstance(value, int) else None
    return None


def _cpu_cache(case: Case) -> float:
    try:
        return float(case.launch.env.get("VLLM_CPU_KVCACHE_SPACE") or 0) * GIB
    except ValueError:
        return 0.0  # the engine refuses it in words


def kv_cache(case: Case) -> Iterator[Finding]:
    """What is left for the cache, as a note: an estimate from sizes alone."""
    total, cards = checkpoint(case), [card for card in case.cards() if card.mem_total]
    if case.on_cpu or total is None or not cards or not case.text.get("kv_lora_rank"):
        return
    per_token = (int(case.text["kv_lora_rank"]) + int(case.text.get("qk_rope_head_dim") or 64)) * int(
        case.text.get("num_hidden_layers") or 0
    )
    per_token *= 1 if "fp8" in (case.launch.kv_dtype or "") else 2
    left = share(case) * min(float(card.mem_total or 0) for card in cards) - total / float(ways(case)) - BESIDES
    if per_token > 0 and left > 0:
        tokens = left * case.launch.dcp / per_token
        asked = case.launch.max_model_len
        if asked is not None and tokens < asked:
            yield Finding(
                "kv-short",
                WARN,
                "the cache may not hold one request of the full length",
                "~%d tokens fit (%s a token on each card), asked for %d" % (tokens, size(per_token), asked),
                "the launch ends: larger than the available KV cache memory",
                "--max-model-len %d, or --kv-cache-dtype fp8" % (int(tokens) // 1024 * 1024),
                PART,
            )
        else:
            yield Finding(
                "kv-estimate",
                INFO,
                "~%d tokens of cache" % (int(tokens) // 1000 * 1000),
                "%s a token on each card, from sizes alone" % size(per_token),
                "",
                "",
                PART,
            )


CHECKS = (share_range, cards_there, free_now, weights_fit, host_memory, kv_cache)
