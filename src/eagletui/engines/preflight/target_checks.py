"""Can this engine, in this version, serve this target with an EAGLE-3 drafter? What it says only after the whole load."""

from __future__ import annotations

from typing import Iterator, List, Optional

from eagletui.engines.preflight import known
from eagletui.engines.preflight.case import Case, where
from eagletui.engines.preflight.findings import BLOCK, INFO, WARN, Finding
from eagletui.engines.preflight.launch import architectures
from eagletui.engines.preflight.versions import before

PART = "target"
OR_PATCH = " Or patch this one: eagletui patch apply HOST ENV kimi-eagle3."


def families(case: Case) -> List[str]:
    """The model types that the engine may compare with its list: the language model's, and the whole's."""
    config = case.target.get("config") or {}
    types = [case.text.get("model_type"), config.get("model_type")]
    return [kind for kind in types if isinstance(kind, str)]


def is_kimi(case: Case) -> bool:
    """Whether the target is of the family of Kimi K2 (a DeepSeek V3 of another name)."""
    return any(kind in ("kimi_k2", "kimi_k25") for kind in families(case))


def _newer(case: Case, what: str = "kimi") -> str:
    first = known.first_version(case.launch.engine, what) if is_kimi(case) or what != "kimi" else None
    name = "vLLM" if case.launch.engine == "vllm" else "SGLang"
    return "install %s %s or newer" % (name, first) if first else "install a newer %s that lists this model" % name


def allowed(case: Case) -> Iterator[Finding]:
    """vLLM's list of families that EAGLE-3 is allowed for (up to 0.21)."""
    if case.launch.engine != "vllm" or not case.eagle3:
        return
    types = families(case)
    told = "whitelist" in case.source
    listed = case.source.get("whitelist") if told else known.whitelist_of(case.version)
    if listed is None or not types:
        return
    if any(family in types[0] for family in listed):
        return
    at = case.source.get("whitelist_at") or "the known history of vLLM's releases, its source was not read"
    others = [kind for kind in types[1:] if any(family in kind for family in listed)]
    if others:
        return
    patch = OR_PATCH if patchable(case) else ""
    yield Finding(
        "eagle3-target-not-allowed",
        BLOCK,
        "%s does not allow EAGLE-3 for %s targets" % (case.name, types[0]),
        "%s: allowed are %s; %s has model_type %s" % (at, ", ".join(listed), where(case.target, "config.json"), types[0]),
        "the launch is refused as soon as the configuration is made; with the list alone edited it dies after the whole load",
        _newer(case) + "." + patch,
        PART,
    )


def patchable(case: Case) -> bool:
    """Whether the patch for Kimi would make this launch work: its versions, and a drafter of the Llama type."""
    within = before(case.version, "0.16") is False and before(case.version, "0.18") is True
    names = architectures(case.drafter.get("config") or {})
    other = any("Deepseek" in name for name in names) or bool(case.draft.get("norm_before_fc"))
    return case.launch.engine == "vllm" and is_kimi(case) and within and not other


def _model(case: Case) -> Optional["dict[str, object]"]:
    models = case.source.get("models")
    names = architectures(case.target.get("config") or {})
    if models is None or not names:
        return None
    return next((models[name] for name in names if name in models), {})


def known_model(case: Case) -> Iterator[Finding]:
    """Is the target's architecture in the engine's registry at all?"""
    model = _model(case)
    names = architectures(case.target.get("config") or {})
    if model is None or model:
        return
    first = " (Kimi-K2.5: vLLM from 0.16, SGLang from 0.5.9)" if is_kimi(case) else ""
    yield Finding(
        "target-unknown",
        BLOCK if is_kimi(case) else WARN,  # others may be served by a general class, or by one that a plugin brings
        "%s has no model class for %s" % (case.name, names[0]),
        "%s: architectures %s; not in the engine's models in %s"
        % (where(case.target, "config.json"), names, case.engine.get("package")),
        "it is refused, or served by a slow general class without a drafter",
        "install a newer engine%s" % first,
        PART,
    )


def interface(case: Case) -> Iterator[Finding]:
    """The class has to hand out hidden states: `SupportsEagle3` in vLLM, `set_eagle3_layers_to_capture` in SGLang."""
    if not case.eagle3:
        return
    model = _model(case)
    name = "SupportsEagle3" if case.launch.engine == "vllm" else "set_eagle3_layers_to_capture"
    if model is None or "eagle3" not in model:
        if case.engine.get("package") and model:
            yield Finding(
                "eagle3-interface-unread",
                INFO,
                "whether the target's class hands out hidden states could not be read",
                "%s in %s" % (model.get("class"), model.get("file")),
                "without it the launch dies after the whole load",
                "",
                PART,
            )
        elif _old_for_kimi(case):
            yield _no_interface(case, "the known history of its releases: its source could not be read", name)
        return
    if model["eagle3"] is False:
        yield _no_interface(case, "class %s in %s/%s" % (model["class"], case.engine.get("package"), model["file"]), name)


def _old_for_kimi(case: Case) -> bool:
    first = known.first_version(case.launch.engine, "kimi")
    return is_kimi(case) and first is not None and before(case.version, first) is True


def _no_interface(case: Case, evidence: str, name: str) -> Finding:
    patch = OR_PATCH if patchable(case) else ""
    return Finding(
        "eagle3-interface-missing",
        BLOCK,
        "the target's class in %s lacks %s" % (case.name, name),
        evidence,
        "the launch loads the whole target, then dies: the class cannot hand out the hidden states a drafter needs",
        _newer(case) + "." + patch,
        PART,
    )


def image_token(case: Case) -> Iterator[Finding]:
    """Where vLLM's drafter takes the target's image token from: an attribute that this target may not have."""
    if case.launch.engine != "vllm" or not case.eagle3:
        return
    model = _model(case)
    config = case.target.get("config") or {}
    if not model or not model.get("multimodal") or not isinstance(model.get("image"), str):
        return
    attribute = str(model["image"])
    inner: object = config
    for key in attribute.split("."):
        inner = inner.get(key) if isinstance(inner, dict) else None
    if inner is not None:
        return
    has = [key for key in ("media_placeholder_token_id", "image_token_id", "image_token_index") if key in config]
    # a configuration class may give a default that the file does not hold; known for Kimi's own key alone
    if attribute == "media_placeholder_token_id" or (not has and not is_kimi(case)):
        return
    patch = OR_PATCH if patchable(case) else ""
    yield Finding(
        "image-token-missing",
        BLOCK if is_kimi(case) else WARN,  # the configuration class of another may have it under a second name
        "%s asks the target's configuration for %s, which it does not have" % (case.name, attribute),
        "%s has %s" % (where(case.target, "config.json"), ", ".join(has) or "media_placeholder_token_id by default"),
        "the launch loads the whole target, then dies with an AttributeError",
        _newer(case) + "." + patch,
        PART,
    )


def remote_code(case: Case) -> Iterator[Finding]:
    """A checkpoint with code of its own needs a yes."""
    config = case.target.get("config") or {}
    if not isinstance(config.get("auto_map"), dict) or not config["auto_map"] or case.launch.trust_remote_code:
        return
    model = _model(case)
    yield Finding(
        "trust-remote-code",
        BLOCK if model == {} else WARN,  # a class of the engine's own needs none of it; unknown when its source was not read
        "the checkpoint brings code of its own, which is not allowed",
        "%s has auto_map, no --trust-remote-code" % where(case.target, "config.json"),
        "the engine may stop with: contains custom code which must be executed",
        "add --trust-remote-code if you trust it",
        PART,
    )


def heads(case: Case) -> Iterator[Finding]:
    """Tensor parallel size has to divide the heads."""
    count = case.text.get("num_attention_heads")
    if "--enable-dp-attention" in case.launch.flags:  # then they are split over fewer cards
        return
    if isinstance(count, int) and count > 0 and count % case.launch.tp:
        good = [str(n) for n in range(1, count + 1) if count % n == 0 and n <= 64]
        yield Finding(
            "tp-heads",
            BLOCK,
            "%d attention heads cannot be split over %d cards" % (count, case.launch.tp),
            "%s: num_attention_heads %d; tensor parallel %d" % (where(case.target, "config.json"), count, case.launch.tp),
            "refused when the configuration is made",
            "use a tensor parallel size of %s" % ", ".join(good[:8]),
            PART,
        )


def length(case: Case) -> Iterator[Finding]:
    """The asked for length against what the target was made for."""
    most, asked = case.text.get("max_position_embeddings"), case.launch.max_model_len
    scaled = any(case.text.get(key) for key in ("rope_scaling",)) or "rope_type" in str(case.text.get("rope_parameters"))
    if not isinstance(most, int) or asked is None or asked <= most:
        return
    overridden = any(flag in case.launch.flags for flag in ("--hf-overrides", "--rope-scaling"))
    allowed_anyway = "VLLM_ALLOW_LONG_MAX_MODEL_LEN" in case.launch.env or case.launch.engine == "sglang" or overridden
    yield Finding(
        "max-model-len",
        WARN if scaled or allowed_anyway else BLOCK,
        "the length asked for is beyond the target's own",
        "asked for %d, %s has max_position_embeddings %d" % (asked, where(case.target, "config.json"), most),
        "refused when the configuration is made, unless its rope scaling allows it",
        "ask for at most %d" % most,
        PART,
    )


CHECKS = (known_model, allowed, interface, image_token, remote_code, heads, length)
