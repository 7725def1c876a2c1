"""A benchmark: what was measured of one arm, and what two arms say of a drafter.

An *arm* is one running server (engine, model, drafter or none). A *cell* is one load on it: a concurrency and a set of
prompts (the context). A cell is measured in *passes* over the same prompts in the same order. Units, unless a field says
otherwise: times of tokens and requests in milliseconds, durations in seconds, speeds in output tokens a second, shares 0 to 1
(never percent).
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Tuple

from eagletui.records.codec import NESTED, SINGLE


class Timing(NamedTuple):
    """A distribution over requests (ttft, tpot, e2el) or over chunks (itl), in milliseconds; ``observations`` is how many."""

    mean: float
    p50: Optional[float] = None
    p90: Optional[float] = None
    p95: Optional[float] = None
    p99: Optional[float] = None
    observations: Optional[int] = None


class SpecCounts(NamedTuple):
    """What was drafted and accepted in a window, pooled counts. ``accepted`` leaves the bonus token out, so that the
    acceptance length is 1 + accepted / steps and the acceptance rate accepted / drafted; ``per_position[i]`` counts the steps
    whose draft token i was accepted (joint). ``basis``: counters (difference of the engine's exact counters), requests
    (summed over the details that the engine gave with each answer), derived (SGLang's counts of finished requests).
    """

    steps: float
    drafted: float
    accepted: float
    per_position: Tuple[float, ...] = ()
    basis: str = "counters"


class BenchRequests(NamedTuple):
    """One value per prompt, in the order of the prompt set: ``latency`` (seconds, None: failed), ``ttft`` (seconds), ``tokens``
    (output), ``texts`` a hash of each output's text (at temperature 0 they tell whether two arms answered the same).
    """

    latency: Tuple[Optional[float], ...] = ()
    ttft: Tuple[Optional[float], ...] = ()
    tokens: Tuple[Optional[int], ...] = ()
    texts: Tuple[Optional[str], ...] = ()


class BenchPass(NamedTuple):
    """One pass. ``number`` counts from 1 within the arm, over all its blocks (``block``: a server that was started anew is
    another).

    ``tokens_per_s`` is output tokens / ``seconds``. ``in_flight`` is the mean number of requests under way (sum of latencies
    / seconds). ``engine_itl`` is the mean step time by the engine's own counters, in milliseconds, None where it has none
    (SGLang's tell the time of a token).
    ``foreign`` counts requests that others finished on this server in the window, ``prefix_hits`` the share of prompt tokens
    that came from the prefix cache. ``problems`` say why the pass must not be used: it is shown, and in no mean. ``notes``
    say what to know of it. ``file`` holds the tool's own result, ``command`` is what ran (secrets hidden).
    """

    number: int
    block: str = ""
    tool: str = ""
    wall: Optional[float] = None
    seconds: Optional[float] = None
    asked: int = 0
    completed: int = 0
    failed: int = 0
    prompt_tokens: Optional[int] = None
    output_tokens: Optional[int] = None
    tokens_per_s: Optional[float] = None
    in_flight: Optional[float] = None
    ttft: Optional[Timing] = None
    tpot: Optional[Timing] = None
    itl: Optional[Timing] = None
    e2el: Optional[Timing] = None
    engine_itl: Optional[float] = None
    spec: Optional[SpecCounts] = None
    foreign: Optional[float] = None
    prefix_hits: Optional[float] = None
    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    command: Tuple[str, ...] = ()
    file: Optional[str] = None
    requests: Optional[BenchRequests] = None


class BenchCell(NamedTuple):
    """One load of one arm: its passes, and what the good ones pool to.

    ``context`` names the prompt set, ``context_tokens`` is its prompts' mean length in tokens with the chat template, as the
    engine counted it. ``prompts_hash`` is that of the file of the set. ``tokens_per_s`` is all output tokens / all seconds,
    ``itl`` the mean over all chunks in milliseconds, ``tpot`` over all requests. ``spec`` are pooled counts, ``length`` the
    acceptance length with the bonus token, ``acceptance`` accepted / drafted. ``drift`` is the last pass's speed over the
    first's, less one. ``problems`` are the reasons why there is no number; then all of the pooled values are None.
    """

    concurrency: int
    context: str = "as given"
    context_tokens: Optional[float] = None
    prompts: int = 0
    prompts_hash: Optional[str] = None
    passes: Tuple[BenchPass, ...] = ()
    good: int = 0
    tokens_per_s: Optional[float] = None
    ttft: Optional[float] = None
    tpot: Optional[float] = None
    itl: Optional[float] = None
    engine_itl: Optional[float] = None
    spec: Optional[SpecCounts] = None
    length: Optional[float] = None
    acceptance: Optional[float] = None
    drift: Optional[float] = None
    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()


class BenchServer(NamedTuple):
    """The server as it was found running: ``argv`` and ``environment`` of its process (secrets hidden; None where they cannot be
    read), ``version`` by its own word, ``template_hash`` that of its chat template as far as it can be had.
    ``prefix_cache``: off, flushed (before each pass), on. ``role`` of the arm: none, pretrained, trained, synthetic, other.
    ``origin``: the drafter that this one was converted from, by its files; the drafter itself when it was not.
    """

    engine: str
    model: str
    port: int
    served_model: Optional[str] = None
    drafter: Optional[str] = None
    k: Optional[int] = None
    role: Optional[str] = None
    version: Optional[str] = None
    argv: Tuple[str, ...] = ()
    environment: Optional[Mapping[str, str]] = None
    template_hash: Optional[str] = None
    prefix_cache: Optional[str] = None
    synthetic_length: Optional[float] = None
    max_model_len: Optional[int] = None
    origin: Optional[str] = None


class BenchSettings(NamedTuple):
    """What both arms must have in common to be compared."""

    max_tokens: int
    temperature: float
    seed: int
    ignore_eos: bool = False
    prompts_file: Optional[str] = None
    prompts_file_hash: Optional[str] = None
    warmups: Optional[int] = None


class BenchResult(NamedTuple):
    """One arm, measured: ``OUTPUT/result.json`` of a benchmark job (its job's result leaves each pass's ``requests`` out).

    ``machine``: kernel, cpu, load before and after; ``gpus``: one object a card as nvidia-smi tells it (name, driver, clocks,
    power, temperature, use), empty where there is none. ``versions``: package -> version in the environment of the tool.
    """

    arm: str
    server: BenchServer
    settings: BenchSettings
    cells: Tuple[BenchCell, ...] = ()
    wall: Optional[float] = None
    seconds: Optional[float] = None
    versions: Optional[Mapping[str, str]] = None
    machine: Optional[Mapping[str, Any]] = None
    gpus: Tuple[Mapping[str, Any], ...] = ()
    notes: Tuple[str, ...] = ()
    path: Optional[str] = None


class LoadVerdict(NamedTuple):
    """One load, a drafter's arm against the one without.

    ``gain`` is measured: output tokens a second with over without; ``low``/``high`` its 95 % interval (paired bootstrap over
    prompts and passes). ``cost`` is C, mean step time with over without; ``predicted`` tau / C of this very run, a check of the
    measurement (against another drafter tau over its tau). ``foreseen`` is the gain that validation accuracy over a C known
    before gave, before anything was served. ``needed`` is the break-even acceptance (against no drafter alone), ``acceptance``
    and ``length`` what it has. ``pays``: yes, no, or unclear when the interval holds 1. ``same_outputs`` is the share of prompts
    that both arms answered word for word alike.
    ``problems``: why there is no verdict; ``notes``: what to know (an invalid baseline with C < 1, drift ...).
    """

    concurrency: int
    context: str = "as given"
    gain: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    tpot_gain: Optional[float] = None
    ttft_ratio: Optional[float] = None
    cost: Optional[float] = None
    predicted: Optional[float] = None
    foreseen: Optional[float] = None
    length: Optional[float] = None
    acceptance: Optional[float] = None
    per_position: Tuple[float, ...] = ()
    needed: Optional[float] = None
    needed_length: Optional[float] = None
    base_tokens_per_s: Optional[float] = None
    tokens_per_s: Optional[float] = None
    same_outputs: Optional[float] = None
    pays: Optional[str] = None
    sentence: str = ""
    problems: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()


class Crossover(NamedTuple):
    """Where, in one context, the gain falls through 1: ``concurrency`` by interpolation between measured loads, ``low`` and
    ``high`` where the interval's bounds do (None: beyond what was measured). ``words`` say it, also when it never does.
    """

    context: str
    concurrency: Optional[float] = None
    low: Optional[float] = None
    high: Optional[float] = None
    words: str = ""


class LaunchDifference(NamedTuple):
    """What differs between how two servers were launched (a flag, ``env NAME``, the drafter): None where one has it not."""

    what: str
    base: Optional[str] = None
    other: Optional[str] = None


class Comparison(NamedTuple):
    """Two arms. ``launch`` are the differences of how their servers ran; ``engine``, ``model`` and ``origin`` are ``other``'s."""

    base: str
    other: str
    k: Optional[int] = None
    role: Optional[str] = None
    loads: Tuple[LoadVerdict, ...] = ()
    crossovers: Tuple[Crossover, ...] = ()
    launch: Tuple[LaunchDifference, ...] = ()
    validation: Tuple[float, ...] = ()
    validation_length: Optional[float] = None
    notes: Tuple[str, ...] = ()
    engine: Optional[str] = None
    model: Optional[str] = None
    origin: Optional[str] = None


class CurvePoint(NamedTuple):
    """One synthetic length at one load: what it was set to, what came out, the gain and C that were measured."""

    set_length: float
    length: Optional[float] = None
    cost: Optional[float] = None
    gain: Optional[float] = None


class BreakEven(NamedTuple):
    """Before any training: at one load of one engine and model, the cost C of a step with a drafter of this shape that drafts
    ``k`` tokens, and what a drafter would need.
    """

    concurrency: int
    context: str = "as given"
    k: Optional[int] = None
    cost: Optional[float] = None
    needed_length: Optional[float] = None
    needed: Optional[float] = None
    possible: Optional[bool] = None
    best_gain: Optional[float] = None
    points: Tuple[CurvePoint, ...] = ()
    sentence: str = ""
    engine: Optional[str] = None
    model: Optional[str] = None


class ArmFiles(NamedTuple):
    """Where one arm of a verdict was measured: the ``result.json`` of each of its blocks, as their `BenchResult.path`."""

    arm: str
    paths: Tuple[str, ...] = ()


class BenchVerdict(NamedTuple):
    """``OUTPUT/verdict.json`` of a plan: every drafter against no drafter, in sentences. ``suspects`` say when the engine or
    its wiring, and not the training, must be looked at first. ``headline`` is the one sentence to read. ``files``
    are what it rests on, an entry an arm.
    """

    headline: str = ""
    comparisons: Tuple[Comparison, ...] = ()
    break_even: Tuple[BreakEven, ...] = ()
    suspects: Tuple[str, ...] = ()
    notes: Tuple[str, ...] = ()
    arms: Tuple[str, ...] = ()
    name: str = ""
    wall: Optional[float] = None
    files: Tuple[ArmFiles, ...] = ()


SINGLE["BenchPass"] = {
    "ttft": Timing, "tpot": Timing, "itl": Timing, "e2el": Timing, "spec": SpecCounts, "requests": BenchRequests,
}  # fmt: skip
NESTED["BenchCell"] = {"passes": BenchPass}
SINGLE["BenchCell"] = {"spec": SpecCounts}
SINGLE["BenchResult"] = {"server": BenchServer, "settings": BenchSettings}
NESTED["BenchResult"] = {"cells": BenchCell}
NESTED["Comparison"] = {"loads": LoadVerdict, "crossovers": Crossover, "launch": LaunchDifference}
NESTED["BreakEven"] = {"points": CurvePoint}
NESTED["BenchVerdict"] = {"comparisons": Comparison, "break_even": BreakEven, "files": ArmFiles}
