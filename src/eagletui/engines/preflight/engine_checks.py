"""Is the engine there, which version, and does it know what the command line and the environment ask of it?"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Iterator, List, Optional

from eagletui.engines.command import options_of
from eagletui.engines.preflight.case import Case, where
from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Finding
from eagletui.engines.preflight.options import ENOUGH
from eagletui.engines.preflight.versions import before

PART = "engine"


def present(case: Case) -> Iterator[Finding]:
    """The program, its python, and the engine in it."""
    problem = case.engine.get("problem")
    if not problem:
        return
    if case.engine.get("where"):
        yield Finding(
            "engine-not-seen",
            INFO,
            "the engine could not be looked at",
            problem,
            "what its version supports, and which options it knows, is not checked",
            "",
            PART,
        )
        return
    program = case.engine.get("absent") or case.engine.get("program") or case.launch.argv[0]
    if case.engine.get("missing"):
        remedy = "install it there (%s -m pip install %s), or name the right venv in the profile" % (
            case.engine.get("python"),
            case.launch.engine,
        )
    elif case.engine.get("absent"):
        remedy = "set `venv` or `python` in the profile to the engine's environment (not found: %s)" % program
    else:
        remedy = "check the profile's `venv`, `python` or `command`"
    yield Finding("engine-missing", BLOCK, "the engine is not installed there", problem, "the launch ends at once", remedy, PART)


def options(case: Case) -> Iterator[Finding]:
    """Options that this version of the engine does not declare: its parser refuses them."""
    told = case.engine.get("options") or {}
    if told.get("declared", 0) < ENOUGH:
        return
    for flag, near in told.get("flags") or ():
        yield Finding(
            "unknown-option",
            BLOCK,
            "%s does not know the option %s" % (case.name, flag),
            "not among the %d options declared in %s" % (told["declared"], case.engine.get("package")),
            "its parser refuses the command line",
            "did you mean %s?" % near if near else "remove it, or see the engine's --help",
            PART,
        )


def variables(case: Case) -> Iterator[Finding]:
    """VLLM_ variables that this version ignores."""
    for name, near in case.engine.get("variables") or ():
        yield Finding(
            "unknown-variable",
            WARN,
            "%s does not know %s" % (case.name, name),
            "not in %s" % where({"path": case.engine.get("package")}, "envs.py"),
            "it is ignored with a warning: what it should do does not happen",
            "did you mean %s?" % near if near else "it belongs to another version or build: remove it",
            PART,
        )


def packages(case: Case) -> Iterator[Finding]:
    """Packages that this launch needs beside the engine."""
    there = case.engine.get("packages")
    if there is None or case.engine.get("package") is None:
        return
    if (case.launch.load_format or "") == "fastsafetensors" and "fastsafetensors" not in there:
        yield Finding(
            "no-fastsafetensors",
            BLOCK,
            "the loader fastsafetensors is not installed",
            "--load-format fastsafetensors, no such package",
            "the load ends with ModuleNotFoundError",
            "%s -m pip install fastsafetensors" % case.engine.get("python"),
            PART,
        )
    tokenizers = case.target.get("tokenizers") or {}
    if "tiktoken.model" in tokenizers and "tokenizer.json" not in tokenizers and "tiktoken" not in there:
        yield Finding(
            "no-tiktoken",
            BLOCK,
            "the target's tokenizer needs tiktoken",
            where(case.target, "tiktoken.model"),
            "the launch ends with: No module named 'tiktoken'",
            "%s -m pip install tiktoken" % case.engine.get("python"),
            PART,
        )
    yield from _nccl(case, there)


def _nccl(case: Case, there: "dict[str, str]") -> Iterator[Finding]:
    for name in ("nvidia-nccl-cu12", "nvidia-nccl-cu13"):
        version = there.get(name)
        many = case.launch.tp > 1
        if version == "2.26.2" and many and any("RTX PRO 6000" in (card.name or "") for card in case.cards()):
            yield Finding(
                "nccl-2.26.2",
                WARN,
                "this NCCL reads beyond its memory on these cards",
                "%s %s" % (name, version),
                "collectives of 512 KiB and more end in illegal memory accesses",
                "install a newer %s (2.31 works)" % name,
                PART,
            )


def speculative(case: Case) -> Iterator[Finding]:
    """vLLM's speculative configuration as such."""
    if case.launch.spec_problem:
        yield Finding(
            "spec-json",
            BLOCK,
            "--speculative-config cannot be read",
            case.launch.spec_problem,
            "the parser refuses it",
            "write it as one JSON object in single quotes",
            PART,
        )
    if "tensor_parallel_size" in case.launch.spec:
        yield Finding(
            "spec-tp-key",
            BLOCK,
            "tensor_parallel_size is no key of --speculative-config",
            "it stands there",
            "unknown keys are refused when the command line is read",
            "its name is draft_tensor_parallel_size",
            PART,
        )
    yield from _spec_words(case)
    draft_tp = case.launch.spec.get("draft_tensor_parallel_size")
    if isinstance(draft_tp, int) and draft_tp not in (1, case.launch.tp):
        yield Finding(
            "draft-tp",
            BLOCK,
            "the drafter's tensor parallel size has to be 1 or the target's",
            "draft_tensor_parallel_size %d, tensor parallel %d" % (draft_tp, case.launch.tp),
            "refused when the configuration is made",
            "set it to %d, or leave it away" % case.launch.tp,
            PART,
        )
    method = case.launch.spec.get("rejection_sample_method")
    if method == "probabilistic" and before(case.version, "0.22") is False:
        yield Finding(
            "rejection-method",
            BLOCK,
            "rejection_sample_method probabilistic has another name now",
            "--speculative-config, %s" % case.name,
            "refused when the configuration is made",
            "use standard",
            PART,
        )


def _spec_words(case: Case) -> Iterator[Finding]:
    """Keys and method of the speculative configuration, against what this version's source declares."""
    keys, methods = case.source.get("spec_keys") or [], case.source.get("spec_methods") or []
    at = "SpeculativeConfig in %s" % case.engine.get("package")
    for key in sorted(case.launch.spec):
        if keys and key not in keys and key != "tensor_parallel_size":
            near = get_close_matches(key, keys, 1)
            yield Finding(
                "spec-key",
                BLOCK,
                "%s knows no key %s of --speculative-config" % (case.name, key),
                "not among the %d of %s" % (len(keys), at),
                "unknown keys are refused when the configuration is made",
                "did you mean %s?" % near[0] if near else "take it out",
                PART,
            )
    method = case.launch.spec.get("method")
    if methods and isinstance(method, str) and method not in methods:
        near = get_close_matches(method, methods, 1)
        yield Finding(
            "spec-method",
            BLOCK,
            "%s knows no speculative method %s" % (case.name, method),
            "not among the %d of %s" % (len(methods), at),
            "refused when the configuration is made",
            "did you mean %s?" % near[0] if near else "eagle3 is the one for EAGLE-3 drafters",
            PART,
        )
    if case.launch.spec.get("model") and case.launch.spec.get("num_speculative_tokens") is None:
        config = case.drafter.get("config") or {}
        if case.eagle3 and config and not case.speculators and not config.keys() & {"num_lookahead_tokens", "n_predict"}:
            yield Finding(
                "spec-no-tokens",
                BLOCK,
                "num_speculative_tokens is missing in --speculative-config",
                "neither there nor in %s" % where(case.drafter, "config.json"),
                "refused when the configuration is made",
                "add it: k draft tokens a verify step, usually 3",
                PART,
            )


def sglang_triple(case: Case) -> Iterator[Finding]:
    """Of steps, top-k and draft tokens SGLang takes all or none."""
    if case.launch.engine != "sglang" or not case.launch.drafter:
        return
    names = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    given = [name for name in names if name in case.launch.flags]
    # with a top-k of 1 the last of them follows from the first
    chain = given == list(names[:2]) and options_of(case.launch.argv).number(names[1:2]) == 1
    if given and len(given) < len(names) and not chain:
        yield Finding(
            "sglang-spec-some",
            BLOCK,
            "SGLang wants all three numbers of speculation, or none",
            "given: %s" % ", ".join(given),
            "it ends with an AssertionError",
            "add %s" % ", ".join(n for n in names if n not in given),
            PART,
        )
    yield from _tree(case, [options_of(case.launch.argv).number((name,)) for name in names])
    if case.launch.method == "eagle" and "eagle3" in str(case.launch.drafter).lower():
        yield Finding(
            "sglang-eagle-not-3",
            BLOCK,
            "an EAGLE-3 drafter with the algorithm EAGLE",
            "--speculative-algorithm EAGLE, %s" % case.launch.drafter,
            "shapes do not fit, or nothing is ever accepted",
            "use --speculative-algorithm EAGLE3",
            PART,
        )


def _tree(case: Case, numbers: List[Optional[int]]) -> Iterator[Finding]:
    """More draft tokens than the tree of drafts has: found out only by the first request."""
    steps, topk, tokens = numbers
    if not steps or not topk or not tokens or topk == 1:  # with a top-k of 1 it corrects the number of tokens by itself
        return
    most = topk + (steps - 1) * topk * topk + 1
    if tokens > most:
        yield Finding(
            "sglang-spec-tokens",
            BLOCK,
            "more draft tokens than the tree of drafts has",
            "--speculative-num-draft-tokens %d; %d steps with a top-k of %d make %d at most" % (tokens, steps, topk, most),
            "the server dies at its first request: selected index k out of range",
            "at most %d, or more steps" % most,
            PART,
        )


CHECKS = (present, options, variables, packages, speculative, sglang_triple)
