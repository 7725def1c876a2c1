"""Does the drafter fit engine and target? Its format, architecture and the shapes in its file's header."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional

from eagletui.engines.preflight import known
from eagletui.engines.preflight.case import Case, where
from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Finding
from eagletui.engines.preflight.launch import architectures, number
from eagletui.engines.preflight.layers import count_engine_reads, ids_read
from eagletui.engines.preflight.versions import before

PART = "drafter"
PADDING = 0.01
"""Vocabularies of one tokenizer differ by so little: rows that only round the matrix up."""


def shape(case: Case, *names: str) -> Optional[List[int]]:
    """The shape of the first of these tensors that the drafter's header has, whatever stands before the name."""
    tensors: Dict[str, Any] = case.drafter.get("tensors") or {}
    for name in names:
        for key, value in tensors.items():
            if key == name or key.endswith("." + name):
                return list(value[1] or [])
    return None


def readable(case: Case) -> bool:
    """Whether there is a header to judge."""
    return bool(case.eagle3 and case.drafter.get("tensors") and case.drafter.get("config"))


def all_headers(case: Case) -> bool:
    """Whether every file of the drafter was looked into: only then is a tensor that was not seen not there."""
    shards = case.drafter.get("shards") or []
    files = (case.drafter.get("index") or {}).get("files", 1)
    return len(shards) >= files and not any(shard.get("problem") for shard in shards)


def drafter_format(case: Case) -> Iterator[Finding]:
    """Is the drafter in a format that this engine reads?"""
    if not case.eagle3 or not case.speculators:
        return
    config = case.drafter.get("config") or {}
    at = "%s has speculators_config" % where(case.drafter, "config.json")
    if case.launch.engine == "sglang":
        yield Finding(
            "speculators-on-sglang",
            BLOCK,
            "SGLang does not read drafters in the format of speculators",
            at,
            "its configuration has no architecture that SGLang knows: the load of the drafter fails after that of the target",
            "convert it to the plain layout (LlamaForCausalLMEagle3, layer ids below eagle_config), or serve it with vLLM",
            PART,
        )
        return
    if ("speculators" in case.source and not case.source["speculators"]) or (
        "speculators" not in case.source and before(case.version, known.SPECULATORS_SINCE)
    ):
        yield Finding(
            "speculators-too-old",
            BLOCK,
            "%s does not read drafters in the format of speculators" % case.name,
            at,
            "refused when the configuration is made",
            "install vLLM %s or newer" % known.SPECULATORS_SINCE,
            PART,
        )
    yield from _speculators_whole(case, config)


def _speculators_whole(case: Case, config: "dict[str, Any]") -> Iterator[Finding]:
    inner = config.get("transformer_layer_config")
    wanted = config.get("speculators_config") or {}
    methods = wanted.get("proposal_methods") if isinstance(wanted, dict) else None
    missing = []
    if not isinstance(inner, dict):
        missing.append("transformer_layer_config")
    if not (isinstance(methods, list) and methods and isinstance(methods[0], dict) and methods[0].get("speculative_tokens")):
        missing.append("speculators_config.proposal_methods[0].speculative_tokens")
    verifier = wanted.get("verifier") if isinstance(wanted, dict) else None
    if not (isinstance(verifier, dict) and verifier.get("name_or_path")):
        missing.append("speculators_config.verifier.name_or_path")
    if missing:
        yield Finding(
            "speculators-incomplete",
            BLOCK,
            "the drafter's configuration is incomplete",
            "%s lacks %s" % (where(case.drafter, "config.json"), ", ".join(missing)),
            "refused when the configuration is made: Invalid speculators config structure",
            "export the drafter again",
            PART,
        )
    kinds = case.source.get("speculators_eagle3")
    kind = inner.get("model_type", "llama") if isinstance(inner, dict) else None
    if kinds and kind is not None and kind not in kinds:
        yield Finding(
            "speculators-model-type",
            BLOCK,
            "%s reads no EAGLE-3 drafter of type %s in this format" % (case.name, kind),
            "%s: transformer_layer_config.model_type; known: %s" % (where(case.drafter, "config.json"), ", ".join(kinds)),
            "refused when the configuration is made",
            "use a drafter of type %s" % " or ".join(kinds),
            PART,
        )


def architecture(case: Case) -> Iterator[Finding]:
    """Does the engine have a class for the drafter?"""
    if not case.eagle3 or (case.speculators and case.launch.engine == "vllm"):
        return
    names = architectures(case.drafter.get("config") or {})
    if not names or case.speculators:
        return
    name = names[0]
    if case.launch.engine == "vllm" and not (name.startswith("Eagle3") or name.endswith("Eagle3")):
        name = "Eagle3" + name  # vLLM puts that before it
    there = case.source.get("all_drafters")
    if there:
        lacks = name not in there and names[0] not in (case.source.get("drafters") or {})
        at = "not among %s in %s" % (", ".join(there), case.engine.get("package"))
    else:
        first = known.first_version(case.launch.engine, names[0])
        lacks = first is not None and before(case.version, first) is True
        at = "known from the history of its releases: since %s" % first
    if lacks:
        first = known.first_version(case.launch.engine, names[0])
        yield Finding(
            "drafter-architecture",
            BLOCK,
            "%s has no class for the drafter's architecture %s" % (case.name, names[0]),
            "%s; %s" % (where(case.drafter, "config.json"), at),
            "the launch fails when it comes to the drafter",
            "install %s %s or newer" % (case.name.split()[0], first) if first else "convert the drafter, or use another engine",
            PART,
        )
    elif "Deepseek" not in names[0] and shape(case, "kv_a_proj_with_mqa.weight"):
        yield Finding(
            "drafter-is-mla",
            BLOCK,
            "the drafter's weights are of the MLA type, its architecture is not",
            "%s, but self_attn.kv_a_proj_with_mqa in its file" % names[0],
            "its weights do not fit that class",
            "set architectures to Eagle3DeepseekV2ForCausalLM",
            PART,
        )


def widths(case: Case) -> Iterator[Finding]:
    """The first matrix takes n hidden states of the target side by side and gives the drafter's width."""
    if not readable(case):
        return
    fc, draft, target = shape(case, "fc.weight"), case.draft, case.text
    own = number(draft, "hidden_size")
    wide = number(target, "hidden_size")
    if fc is None:
        severity = BLOCK if not shape(case, "midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight") else WARN
        yield Finding(
            "drafter-no-fc",
            severity,
            "the drafter has no matrix fc.weight",
            "header of %s" % where(case.drafter),
            "it is no EAGLE-3 drafter: nothing joins the target's hidden states",
            "check which checkpoint this is",
            PART,
        )
        return
    told = number(draft, "target_hidden_size") or own
    if told is not None and wide is not None and told != wide:
        yield Finding(
            "drafter-width",
            BLOCK,
            "the drafter was made for another target",
            "%s: %s %d; %s: hidden_size %d"
            % (
                where(case.drafter, "config.json"),
                "target_hidden_size" if draft.get("target_hidden_size") else "hidden_size",
                told,
                where(case.target, "config.json"),
                wide,
            ),
            "the shapes do not fit: the launch dies when the drafter gets its first hidden states, after the whole load",
            "use a drafter that was trained for this target",
            PART,
        )
        return
    count = count_engine_reads(case)
    wide = wide or told
    if wide is None or own is None or len(fc) != 2:
        return
    if fc[0] != own or fc[1] != wide * count:
        fits = "%.2g" % (fc[1] / float(wide)) if fc[1] % wide else "%d" % (fc[1] // wide)
        yield Finding(
            "fc-shape",
            BLOCK,
            "the drafter's first matrix does not fit",
            "fc.weight in %s is %d x %d; the engine makes %d x %d (%d hidden states of %d)"
            % (where(case.drafter), fc[0], fc[1], own, wide * count, count, wide),
            "the launch dies when the drafter is loaded, after the whole target: it takes %s hidden states" % fits,
            "set num_aux_hidden_states in its config.json to what it was trained with, or use the right drafter",
            PART,
        )


def vocabulary(case: Case) -> Iterator[Finding]:
    """Vocabularies, and the tables between them."""
    if not readable(case):
        return
    draft, whole = case.draft, number(case.text, "vocab_size")
    own = number(draft, "vocab_size")
    small = number(draft, "draft_vocab_size") or own
    at = where(case.drafter)
    if whole is not None and own is not None and whole != own:
        yield Finding(
            "vocab",
            WARN if abs(whole - own) < PADDING * whole else BLOCK,
            "drafter and target have different vocabularies",
            "%s: vocab_size %d; %s: %d" % (where(case.drafter, "config.json"), own, where(case.target, "config.json"), whole),
            "its tokens mean something else to the target, or its tables do not fit",
            "use a drafter of this target's family",
            PART,
        )
    whole = whole or own
    head, d2t, t2d = shape(case, "lm_head.weight"), shape(case, "d2t"), shape(case, "t2d")
    if head and small is not None and head[0] != small:
        yield Finding(
            "lm-head",
            BLOCK,
            "the drafter's lm_head does not have the size its configuration says",
            "%s: %d rows; draft_vocab_size %d" % (at, head[0], small),
            "the launch dies when the drafter is loaded",
            "correct draft_vocab_size, or use the right file",
            PART,
        )
    if d2t is None and small is not None and whole is not None and small < whole and all_headers(case):
        yield Finding(
            "no-d2t",
            BLOCK,
            "the drafter's table from its tokens to the target's is missing",
            "%s has no d2t; draft_vocab_size %d of %d" % (at, small, whole),
            "nothing fails, but its tokens are taken for others: almost none is accepted",
            "export the drafter again with d2t",
            PART,
        )
    if d2t and small is not None and d2t[0] != small:
        yield Finding(
            "d2t-size",
            BLOCK,
            "the table d2t has the wrong size",
            "%s: %d entries; draft_vocab_size %d" % (at, d2t[0], small),
            "the launch dies when the drafter is loaded, or drafts wrong tokens",
            "export the drafter again",
            PART,
        )
    if t2d and whole is not None and t2d[0] != whole:
        yield Finding(
            "t2d-size",
            BLOCK,
            "the table t2d is of another vocabulary",
            "%s: %d entries; the target has %d tokens" % (at, t2d[0], whole),
            "it was trained with another tokenizer",
            "use a drafter of this target's family",
            PART,
        )
    yield from _tokenizers(case)


def _tokenizers(case: Case) -> Iterator[Finding]:
    ours, theirs = case.drafter.get("tokenizers") or {}, case.target.get("tokenizers") or {}
    for name in sorted(set(ours) & set(theirs)):
        if ours[name] != theirs[name]:
            yield Finding(
                "tokenizer-differs",
                INFO,
                "the drafter's %s is not the target's" % name,
                "%s and %s differ" % (where(case.drafter, name), where(case.target, name)),
                "the engine uses the target's; the drafter may have been trained with another",
                "compare the versions of both",
                PART,
            )


def layer_ids(case: Case) -> Iterator[Finding]:
    """Which layers' states does the engine hand to the drafter, and are they those it was trained with?"""
    if not readable(case):
        return
    read, layers = ids_read(case), number(case.text, "num_hidden_layers")
    at = where(case.drafter, "config.json")
    if read.ids is not None and layers is not None and (max(read.ids) > layers or min(read.ids) < 0):
        yield Finding(
            "layer-ids-range",
            BLOCK,
            "a layer id is beyond the target's layers",
            "%s: %s; the target has %d layers" % (at, list(read.ids), layers),
            "too few hidden states come: the launch dies at the first step, or the server does",
            "correct the ids",
            PART,
        )
    if read.lost:
        usual = [2, layers // 2, layers - 3] if layers else None
        same = usual is not None and sorted(read.lost) == sorted(usual)
        yield Finding(
            "layer-ids-not-read",
            INFO if same else BLOCK if read.sure else WARN,
            "%s does not read the drafter's layer ids where they stand" % case.name,
            "%s: %s %s; %s" % (at, read.lost_at, list(read.lost), read.reads),
            "it takes its default%s%s"
            % (
                " %s" % usual if usual else "",
                ", which is the same"
                if same
                else ": the drafter is fed other layers than it was trained with, and little is accepted",
            ),
            "" if same else "write the list in both places: at the top and below eagle_config",
            PART,
        )
    elif read.ids is None:
        default = "(2, %d, %d)" % (layers // 2, layers - 3) if layers else "(2, n/2, n-3)"
        yield Finding(
            "layer-ids-absent",
            WARN,
            "the drafter names no layer ids",
            at,
            "the engine takes its default %s without a word; if it was trained with others, little is accepted" % default,
            "write eagle_aux_hidden_state_layer_ids into its config.json as it was trained",
            PART,
        )
    yield from _off_by_one(case, read.ids, layers, at)


def _off_by_one(case: Case, ids: Optional[List[int]], layers: Optional[int], at: str) -> Iterator[Finding]:
    if ids is None or layers is None or len(ids) != 3:
        return
    output_style = [1, layers // 2 - 1, layers - 4]
    if case.launch.engine == "vllm" and list(ids) == output_style:
        yield Finding(
            "layer-ids-off-by-one",
            WARN,
            "the layer ids look as if they counted outputs",
            "%s: %s; vLLM counts the states that enter a layer: %s" % (at, ids, [i + 1 for i in ids]),
            "each id is one too low then: about 10 %% of first tokens are accepted instead of 45 %%".replace("%%", "%"),
            "if it was trained with SpecForge's convention, write %s" % [i + 1 for i in ids],
            PART,
        )


def positions(case: Case) -> Iterator[Finding]:
    """Up to which position the drafter can tell where it is."""
    if not readable(case):
        return
    own, asked = (
        number(case.draft, "max_position_embeddings"),
        case.launch.max_model_len or number(case.text, "max_position_embeddings"),
    )
    if own is None or asked is None or own >= asked:
        return
    raised = case.source.get("raises_positions")
    if raised is None and case.launch.engine == "vllm":
        raised = before(case.version, known.RAISES_POSITIONS) is False
    if raised:
        return
    yield Finding(
        "drafter-positions",
        WARN,
        "the drafter's positions end before the served length",
        "%s: max_position_embeddings %d; served length %d" % (where(case.drafter, "config.json"), own, asked),
        "beyond it acceptance falls, or the engine caps the drafter's length",
        "raise it in the drafter's config.json if its rope allows, or serve a shorter length",
        PART,
    )


def norms(case: Case) -> Iterator[Finding]:
    """Norms that are in the file but not in the configuration, or that this engine leaves out."""
    if not readable(case):
        return
    engine, draft = case.launch.engine, case.draft
    inner = draft.get("eagle_config")
    nested: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
    at = where(case.drafter, "config.json")
    if shape(case, "input_norm.weight") and not (draft.get("norm_before_fc") or nested.get("norm_before_fc")):
        yield Finding(
            "input-norm-unused",
            WARN,
            "the drafter has a norm before its first matrix that its configuration does not name",
            "input_norm.weight in its file; no norm_before_fc in %s" % at,
            "it is left out, and less is accepted",
            "set norm_before_fc to true",
            PART,
        )
    for key in ("norm_before_fc", "fc_norm", "norm_output"):
        if (draft.get(key) or nested.get(key)) and case.source.get(key) is False:
            yield Finding(
                "drafter-%s" % key.replace("_", "-"),
                WARN,
                "%s leaves out what the drafter was trained with: %s" % (case.name, key),
                "%s: %s true; not in the engine's EAGLE-3 model" % (at, key),
                "it drafts with other numbers than in training, and little is accepted",
                "install a newer engine",
                PART,
            )
    if engine == "sglang" and draft.get("norm_before_residual") and not case.source.get("norm_before_residual", False):
        yield Finding(
            "drafter-norm-before-residual",
            WARN,
            "SGLang ignores norm_before_residual",
            at,
            "it drafts with other numbers than in training",
            "serve it with vLLM",
            PART,
        )
    config = case.drafter.get("config") or {}
    if (
        engine == "vllm"
        and case.speculators
        and "norm_before_residual" not in config
        and case.source.get("speculators_residual", True)
    ):
        yield Finding(
            "residual-default",
            WARN,
            "norm_before_residual is not said, and vLLM takes true",
            at,
            "the training library's own default is false: if it was trained so, little is accepted",
            "write it into the drafter's config.json as it was trained",
            PART,
        )


def verifier(case: Case) -> Iterator[Finding]:
    """The target that the drafter names as its own."""
    config = case.drafter.get("config") or {}
    told = config.get("speculators_config")
    told = told.get("verifier") if isinstance(told, dict) else None
    named = told.get("architectures") if isinstance(told, dict) else None
    ours = architectures(case.target.get("config") or {})
    if case.eagle3 and isinstance(named, list) and named and ours and named[0] not in ours:
        yield Finding(
            "verifier-differs",
            WARN,
            "the drafter was trained for another kind of target",
            "%s: verifier %s; the target is %s" % (where(case.drafter, "config.json"), named[0], ours[0]),
            "little of what it drafts may be accepted",
            "use a drafter of this target's family",
            PART,
        )


def heads(case: Case) -> Iterator[Finding]:
    """The drafter is split over cards as well."""
    if not case.eagle3:
        return
    count = number(case.draft, "num_attention_heads")
    tp = case.launch.spec.get("draft_tensor_parallel_size") or case.launch.tp
    if count and isinstance(tp, int) and count % tp:
        yield Finding(
            "drafter-heads",
            BLOCK,
            "the drafter's %d heads cannot be split over %d cards" % (count, tp),
            where(case.drafter, "config.json"),
            "the launch dies when the drafter is made",
            "set draft_tensor_parallel_size to 1"
            if case.launch.engine == "vllm"
            else "use a tensor parallel size that divides %d" % count,
            PART,
        )


CHECKS = (drafter_format, architecture, widths, vocabulary, layer_ids, positions, norms, verifier, heads)
