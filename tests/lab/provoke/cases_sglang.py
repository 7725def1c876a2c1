"""The failures of SGLang: what is done, what diagnose has to say first, and what preflight finds beforehand."""

from __future__ import annotations

from functools import partial

from tests.lab.provoke.acts import another, chatty, killed, once_it, silent
from tests.lab.provoke.case import Case
from tests.lab.sglang_server import DRAFTING

_case = partial(Case, engine="sglang")
_RUNS = "nobody can know that it will be killed"
SPLIT = DRAFTING
STEPS, TOPK, TOKENS = "--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"

CASES = (
    # --------------------------------------------------------------------------------------------------------- the drafter
    _case(
        name="drafter-path",
        what="the drafter's path does not exist",
        profile=lambda w: w.sgl(drafter="/data/none"),
        diagnosed=("path-missing",),
        preflight=("drafter-absent",),
    ),
    _case(
        name="drafter-width",
        what="the drafter of another target: its configuration says 640, the target has 576",
        profile=lambda w: w.sgl(drafter="sglang-drafter-of-another-target"),
        diagnosed=("drafter-shape", "drafter-width"),
        preflight=("drafter-width",),
    ),
    _case(
        name="drafter-fc",
        what="a drafter whose first matrix takes two hidden states, and three are given",
        profile=lambda w: w.sgl(drafter="sglang-drafter-narrow"),
        diagnosed=("drafter-shape", "drafter-width"),
        preflight=("fc-shape",),
    ),
    _case(
        name="drafter-vocabulary",
        what="draft_vocab_size is half of the rows in the drafter's lm_head",
        profile=lambda w: w.sgl(drafter="sglang-drafter-small-vocabulary"),
        diagnosed=("draft-vocabulary", "drafter-shape"),
        preflight=("lm-head", "d2t-size"),
    ),
    _case(
        name="drafter-without-d2t",
        what="a drafter without the table from its tokens to the target's",
        profile=lambda w: w.sgl(drafter="sglang-drafter-without-d2t"),
        diagnosed=(),
        preflight=("no-d2t",),
    ),
    _case(
        name="drafter-architecture",
        what="an architecture of the drafter that this SGLang has no class for",
        profile=lambda w: w.sgl(drafter="sglang-drafter-architecture"),
        diagnosed=("drafter-architecture", "architecture-unsupported"),
        preflight=("drafter-architecture",),
    ),
    _case(
        name="drafter-of-speculators",
        what="a drafter in the format of speculators, which SGLang does not read",
        profile=lambda w: w.sgl(drafter=str(w.lab.drafter)),
        diagnosed=("speculators-in-sglang",),
        preflight=("speculators-on-sglang",),
    ),
    _case(
        name="drafter-cut",
        what="the drafter's file ends at 60 %",
        profile=lambda w: w.sgl(drafter="sglang-drafter-cut"),
        diagnosed=("shard-corrupt",),
        preflight=("drafter-damaged",),
    ),
    # ------------------------------------------------------------------------------------------------------------ the words
    _case(
        name="spec-some",
        what="only one of the three numbers of speculation",
        profile=lambda w: w.sgl(
            STEPS,
            "3",
            "--speculative-algorithm",
            "EAGLE3",
            "--speculative-draft-model-path",
            str(w.sglang.drafter) if w.sglang else "",
            *SPLIT,
            drafter=None,
        ),
        diagnosed=("sglang-spec-partial", "sglang-spec-partial-assert"),
        preflight=("sglang-spec-some",),
    ),
    _case(
        name="spec-tokens",
        what="9 draft tokens of one step with a top-k of 2",
        profile=lambda w: w.sgl(STEPS, "1", TOPK, "2", TOKENS, "9"),
        diagnosed=("sglang-spec-tokens",),
        preflight=("sglang-spec-tokens",),
    ),
    _case(
        name="option-unknown",
        what="an option that this version does not have",
        profile=lambda w: w.sgl("--speculative-cfg", "x"),
        diagnosed=("unknown-argument",),
        preflight=("unknown-option",),
    ),
    _case(
        name="tp-heads",
        what="9 attention heads over 2 ranks",
        profile=lambda w: w.sgl(drafter=None, tp=2),
        diagnosed=("heads-not-divisible",),
        preflight=("tp-heads",),
    ),
    _case(
        name="length",
        what="a context length beyond the model's",
        profile=lambda w: w.sgl(drafter=None, max_model_len=999999),
        diagnosed=("max-len-beyond-model",),
        preflight=("max-model-len",),
    ),
    # ----------------------------------------------------------------------------------------------------------- the target
    _case(
        name="architecture-unknown",
        what="an architecture that this SGLang lacks, of a known model_type",
        profile=lambda w: w.sgl(drafter=None, model="model-architecture-unknown"),
        diagnosed=("architecture-unsupported",),
        preflight=("target-unknown",),
    ),
    _case(
        name="type-unknown",
        what="a model_type and an architecture that no version has",
        profile=lambda w: w.sgl(drafter=None, model="model-type-unknown"),
        diagnosed=("model-type-unknown",),
        preflight=("target-unknown",),
    ),
    _case(
        name="no-weights",
        what="a model's folder without weights",
        profile=lambda w: w.sgl(drafter=None, model="model-without-weights"),
        diagnosed=("weights-not-found",),
        preflight=("target-no-weights",),
    ),
    _case(
        name="shard-missing",
        what="one of 16 shards is not there",
        profile=lambda w: w.sgl(drafter=None, model="shards-missing"),
        diagnosed=("shards-missing",),
        preflight=("target-files-missing",),
    ),
    _case(
        name="shard-cut",
        what="one of 16 shards ends in its middle",
        profile=lambda w: w.sgl(drafter=None, model="shards-cut"),
        diagnosed=("shard-corrupt",),
        preflight=("target-damaged",),
    ),
    # ------------------------------------------------------------------------------------------------------------- the host
    _case(
        name="port-of-another",
        what="another SGLang serves on the port",
        profile=lambda w: w.sgl(drafter=None),
        diagnosed=("port-taken",),
        preflight=("port-taken",),
        around=another,
    ),
    _case(
        name="port-silent",
        what="somebody listens on the port and never answers",
        profile=lambda w: w.sgl(drafter=None),
        diagnosed=("port-taken",),
        preflight=("port-taken",),
        around=silent,
    ),
    _case(
        name="port-chatty",
        what="somebody answers on the port, with 501 to whatever is asked",
        profile=lambda w: w.sgl(drafter=None),
        diagnosed=("port-taken",),
        preflight=("port-taken",),
        around=chatty,
    ),
    _case(
        name="scheduler-killed",
        what="SIGKILL to the scheduler while it loads",
        profile=lambda w: w.sgl(),
        diagnosed=("process-killed", "killed-9", "sglang-child"),
        unknowable=_RUNS,
        act=once_it(("workers", "weights", "process", "kv"), killed("scheduler")),
    ),
    _case(
        name="scheduler-killed-ready",
        what="SIGKILL to the scheduler after it was ready",
        profile=lambda w: w.sgl(drafter=None),
        diagnosed=("process-killed", "killed-9", "sglang-child"),
        unknowable=_RUNS,
        act=once_it(("ready",), killed("scheduler")),
    ),
)
