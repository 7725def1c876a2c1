"""An engine's ``/metrics`` page in the definition common to both engines, and what two pages say about the time between.

Common definition: with D verify steps, k draft tokens each, A of them accepted (without the bonus token), the acceptance
rate is A / (D k) and the acceptance length 1 + A / D. vLLM has exact counters for all of it. SGLang from 0.5.14 counts verify
steps; a finished request of n tokens had one from its prefill and one bonus token per verify step, so its accepted
drafts are n - 1 - steps, and the sums over all finished requests are counters too (a request that ends inside an accepted
run cuts a token or two). Older SGLang has only gauges of the last 40 decode steps, with the bonus token in the length.
"""

from __future__ import annotations

import math
from typing import Any, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Tuple, Union

from eagletui.engines.prometheus import Families, MetricsError, Number, Point, buckets, parse
from eagletui.records import Acceptance, Percentiles, ServerSample

Histogram = Tuple[Tuple[Optional[float], float], ...]

_V, _S = "vllm:", "sglang:"
_START = "process_start_time_seconds"
_ITL = "inter_token_latency_seconds"
_OLD_ITL = "time_per_output_token_seconds"  # vLLM before 0.10
_TTFT = "time_to_first_token_seconds"
_SPEC = "vllm:spec_decode_num_"

_VLLM: FrozenSet[str] = frozenset(
    [
        _START,
        *(
            _V + name
            for name in (
                "num_requests_running",
                "num_requests_waiting",
                "kv_cache_usage_perc",
                "gpu_cache_usage_perc",
                "prompt_tokens_total",
                "generation_tokens_total",
                "prefix_cache_queries_total",
                "prefix_cache_hits_total",
                "gpu_prefix_cache_queries_total",
                "gpu_prefix_cache_hits_total",
                "num_preemptions_total",
                "request_success_total",
                "spec_decode_num_drafts_total",
                "spec_decode_num_draft_tokens_total",
                "spec_decode_num_accepted_tokens_total",
                "spec_decode_num_accepted_tokens_per_pos_total",
            )
        ),
        *(_V + name + end for name in (_TTFT, _ITL, _OLD_ITL) for end in ("_bucket", "_sum")),
    ]
)
_SGLANG: FrozenSet[str] = frozenset(
    [
        _START,
        *(
            _S + name
            for name in (
                "num_running_reqs",
                "num_queue_reqs",
                "token_usage",
                "prompt_tokens_total",
                "generation_tokens_total",
                "num_requests_total",
                "cached_tokens_total",
                "realtime_tokens_total",
                "num_retracted_reqs_total",
                "spec_accept_length",
                "spec_accept_rate",
                "spec_num_steps",
                "spec_num_draft_tokens",
                "spec_verify_calls_total",
            )
        ),
        *(_S + name + end for name in (_TTFT, _ITL) for end in ("_bucket", "_sum")),
    ]
)
WANTED: FrozenSet[str] = _VLLM | _SGLANG

# SGLang: the ranks of one scheduler report the same thing
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def _total(points: Optional[List[Point]]) -> Optional[Number]:
    """The sum over all label sets (engines, finish reasons, ...), None when the family is absent or holds a NaN."""
    if not points:
        return None
    value = sum(point.value for point in points)
    return None if isinstance(value, float) and math.isnan(value) else value


def _largest(points: Optional[List[Point]]) -> Optional[Number]:
    values = [p.value for p in points or () if not (isinstance(p.value, float) and math.isnan(p.value))]
    return max(values) if values else None


def _once_per_rank(points: Optional[List[Point]]) -> List[Point]:
    """The points with the ranks of one scheduler taken as one (their maximum), the labels of the ranks dropped.

    With a ``priority`` label the line with an empty one is the total of the others.
    """
    groups: Dict[Tuple[Tuple[str, str], ...], Point] = {}
    for labels, value in points or ():
        rest = {name: text for name, text in labels.items() if name not in _RANKS}
        key = tuple(sorted(rest.items()))
        old = groups.get(key)
        if old is None or value > old.value or old.value != old.value:
            groups[key] = Point(rest, value)
    out = list(groups.values())
    if any(point.labels.get("priority") == "" for point in out):
        out = [point for point in out if point.labels.get("priority", "") == ""]
    return out


def server_sample(
    page: Union[str, bytes], boot: float, wall: float, k: Optional[int] = None, engine: Optional[str] = None
) -> Optional[ServerSample]:
    """One scrape; None when the page is a metrics page but of neither engine.

    ``k`` (draft tokens per step) helps SGLang before 0.5.14, which does not say it. Raises `MetricsError` for a page that is
    no metrics page or was cut off.
    """
    families = parse(page, WANTED)
    if engine is None:
        engine = _engine_of(families)
    if engine == "vllm":
        return _vllm(families, boot, wall)
    if engine == "sglang":
        return _sglang(families, boot, wall, k)
    return None


def _engine_of(families: Families) -> Optional[str]:
    for name in families:
        if name.startswith(_V):
            return "vllm"
        if name.startswith(_S):
            return "sglang"
    return None


def _histogram(families: Families, name: str) -> Dict[str, Any]:
    found = buckets(families.get(name + "_bucket", []))
    return {"buckets": found or None, "sum": _total(families.get(name + "_sum"))}


def _vllm(f: Families, boot: float, wall: float) -> ServerSample:
    def total(*names: str) -> Optional[float]:
        for name in names:
            if _V + name in f:
                return _total(f[_V + name])
        return None

    positions: Dict[int, Number] = {}
    for labels, value in f.get(_SPEC + "accepted_tokens_per_pos_total", ()):
        place = labels.get("position", "")
        if place.isdigit():
            positions[int(place)] = positions.get(int(place), 0) + value
    ttft = _histogram(f, _V + _TTFT)
    itl = _histogram(f, _V + (_ITL if _V + _ITL + "_bucket" in f else _OLD_ITL))
    steps, drafted = total("spec_decode_num_drafts_total"), total("spec_decode_num_draft_tokens_total")
    return ServerSample(
        boot,
        wall,
        running=total("num_requests_running"),
        waiting=total("num_requests_waiting"),
        kv=_largest(f.get(_V + "kv_cache_usage_perc") or f.get(_V + "gpu_cache_usage_perc")),
        prompt_tokens=total("prompt_tokens_total"),
        generated_tokens=total("generation_tokens_total"),
        verify_steps=steps,
        drafted=drafted,
        accepted=total("spec_decode_num_accepted_tokens_total"),
        per_position=tuple(positions.get(i, 0) for i in range(max(positions) + 1)) if positions else None,
        prefix_queries=total("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        prefix_hits=total("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        preemptions=total("num_preemptions_total"),
        finished=total("request_success_total"),
        ttft=ttft["buckets"],
        ttft_sum=ttft["sum"],
        itl=itl["buckets"],
        itl_sum=itl["sum"],
        start_time=_largest(f.get(_START)),
        engine="vllm",
        k=max(positions) + 1 if positions else None,
        acceptance_from="counters" if drafted is not None else None,
    )


def _sglang(f: Families, boot: float, wall: float, k: Optional[int]) -> ServerSample:
    def points(name: str) -> List[Point]:
        return _once_per_rank(f.get(_S + name))

    def total(name: str) -> Optional[float]:
        return _total(points(name))

    draft_tokens, steps_gauge = _largest(points("spec_num_draft_tokens")), _largest(points("spec_num_steps"))
    if draft_tokens:
        k = int(draft_tokens) - 1  # its number counts the token that is verified along with the drafts
    elif steps_gauge:
        k = int(steps_gauge)
    lengths = [p.value for p in points("spec_accept_length") if p.value == p.value]
    # 0 is the gauge's start: no decode line yet
    length = sum(lengths) / len(lengths) if lengths and max(lengths) > 0 else None
    generated, finished, verify = total("generation_tokens_total"), total("num_requests_total"), total("spec_verify_calls_total")
    speculative = verify is not None and k is not None
    drafted = verify * k if verify is not None and k is not None else None
    accepted: Optional[float] = None
    if speculative and generated is not None and finished is not None and verify is not None:
        accepted = max(0, generated - finished - verify)
    realtime = points("realtime_tokens_total")
    ttft, itl = _histogram(f, _S + _TTFT), _histogram(f, _S + _ITL)
    prompt = total("prompt_tokens_total")
    return ServerSample(
        boot,
        wall,
        running=total("num_running_reqs"),
        waiting=total("num_queue_reqs"),
        kv=_largest(points("token_usage")),
        prompt_tokens=prompt,
        generated_tokens=generated,
        verify_steps=verify if accepted is not None else None,
        drafted=drafted if accepted is not None else None,
        accepted=accepted,
        prefix_queries=prompt,
        prefix_hits=total("cached_tokens_total"),
        preemptions=total("num_retracted_reqs_total"),
        finished=finished,
        ttft=ttft["buckets"],
        ttft_sum=ttft["sum"],
        itl=itl["buckets"],
        itl_sum=itl["sum"],
        start_time=_largest(f.get(_START)),
        gauge_length=length,
        gauge_rate=(length - 1) / k if length is not None and k else None,
        engine="sglang",
        k=k,
        acceptance_from="derived" if accepted is not None else "gauge" if length is not None else None,
        decoded_tokens=_total([p for p in realtime if p.labels.get("mode") == "decode"]),
        prefilled_tokens=_total([p for p in realtime if p.labels.get("mode", "").startswith("prefill")]),
    )


# ---------------------------------------------------------------------------------------------------------- differences

_COUNTERS = ("prompt_tokens", "generated_tokens", "verify_steps", "drafted", "finished", "preemptions")


class Rates(NamedTuple):
    """What happened per second between two scrapes: tokens, requests; ``prefix_hits`` is the hit rate of the window, 0 to 1.

    None where the engine has no such counter, or when it restarted in between.
    """

    seconds: float
    prompt: Optional[float] = None
    generated: Optional[float] = None
    finished: Optional[float] = None
    preempted: Optional[float] = None
    prefix_hits: Optional[float] = None
    restarted: bool = False


def restarted(older: ServerSample, newer: ServerSample) -> bool:
    """Whether the server started anew between the scrapes: another start time, or a counter that fell."""
    if older.start_time is not None and newer.start_time is not None and abs(older.start_time - newer.start_time) > 1.0:
        return True
    for name in _COUNTERS:
        before, after = getattr(older, name), getattr(newer, name)
        if before is not None and after is not None and after < before:
            return True
    return False


def _growth(older: Optional[float], newer: Optional[float]) -> Optional[float]:
    """How far a counter went; one that appears later began at 0."""
    if newer is None:
        return None
    return newer - (older or 0)


def rates(older: ServerSample, newer: ServerSample) -> Rates:
    """Rates over the window between two scrapes; empty when it has no length or the server restarted in it."""
    seconds = newer.boot - older.boot
    if seconds <= 0 or restarted(older, newer):
        return Rates(max(0.0, seconds), restarted=seconds > 0)

    def rate(name: str, live: Optional[str] = None) -> Optional[float]:
        if live is not None and getattr(newer, live) is not None and getattr(older, live) is not None:
            name = live
        grown = _growth(getattr(older, name), getattr(newer, name))
        return None if grown is None or getattr(older, name) is None else max(0.0, grown / seconds)

    queries, hits = _growth(older.prefix_queries, newer.prefix_queries), _growth(older.prefix_hits, newer.prefix_hits)
    return Rates(
        seconds,
        rate("prompt_tokens", "prefilled_tokens"),
        rate("generated_tokens", "decoded_tokens"),
        rate("finished"),
        rate("preemptions"),
        hits / queries if queries and hits is not None else None,
    )


def acceptance(older: ServerSample, newer: ServerSample) -> Acceptance:
    """Acceptance over the window between two scrapes, from the difference of their counters.

    Where the engine has only gauges the result has ``basis`` gauge, no counts, and a length only if tokens were generated in
    the window: an idle gauge keeps its last value.
    """
    seconds = newer.boot - older.boot
    basis = newer.acceptance_from or "counters"
    if seconds <= 0 or restarted(older, newer):
        return Acceptance(max(0.0, seconds), restarted=seconds > 0, basis=basis)
    if basis == "gauge":
        grown = _growth(older.generated_tokens, newer.generated_tokens)
        live = bool(grown) or (newer.running or 0) > 0
        return Acceptance(
            seconds, length=newer.gauge_length if live else None, rate=newer.gauge_rate if live else None, basis=basis
        )
    steps = _growth(older.verify_steps, newer.verify_steps)
    drafted = _growth(older.drafted, newer.drafted)
    accepted = _growth(older.accepted, newer.accepted)
    if steps is None or drafted is None or accepted is None:
        return Acceptance(seconds, basis=basis)
    accepted = max(0, accepted)
    per_position: Tuple[float, ...] = ()
    if newer.per_position is not None and steps > 0:
        before = older.per_position or ()
        per_position = tuple((now - (before[i] if i < len(before) else 0)) / steps for i, now in enumerate(newer.per_position))
    generated = _growth(older.generated_tokens, newer.generated_tokens)
    return Acceptance(
        seconds,
        steps,
        drafted,
        accepted,
        accepted / drafted if drafted > 0 else None,
        1 + accepted / steps if steps > 0 else None,
        per_position,
        drafted / seconds,
        accepted / seconds,
        None if generated is None else generated / seconds,
        basis=basis,
    )


class Quantile(NamedTuple):
    """A quantile of a histogram. ``more_than`` when it lies above the last finite bound, which is then the ``value``."""

    value: Optional[float]
    more_than: bool = False
    observations: float = 0


def _difference(older: Optional[Histogram], newer: Optional[Histogram]) -> Optional[List[Tuple[Optional[float], float]]]:
    """The observations of the window as cumulative counts; None when there is no histogram, or it fell (a restart)."""
    if not newer:
        return None
    before = dict(older or ())
    out = [(bound, count - before.get(bound, 0)) for bound, count in newer]
    if any(count < 0 for _, count in out):
        return None
    return out


def percentile(older: Optional[Histogram], newer: Optional[Histogram], q: float) -> Quantile:
    """The ``q`` quantile (0 to 1) of the observations between two scrapes, linear inside a bucket; no value without any."""
    window = _difference(older, newer)
    if window is None or window[-1][1] <= 0:
        return Quantile(None)
    count = window[-1][1]
    rank = q * count
    low_bound, low_count = 0.0, 0.0
    for bound, cumulative in window:
        if cumulative >= rank and cumulative > low_count:
            if bound is None:
                return Quantile(low_bound, True, count)
            share = (rank - low_count) / (cumulative - low_count)
            return Quantile(low_bound + (bound - low_bound) * min(1.0, max(0.0, share)), False, count)
        if bound is not None:
            low_bound = bound
        low_count = max(low_count, cumulative)
    return Quantile(low_bound, True, count)


def percentiles(
    older: Optional[Histogram],
    newer: Optional[Histogram],
    older_sum: Optional[float] = None,
    newer_sum: Optional[float] = None,
) -> Optional[Percentiles]:
    """The 50, 90 and 99 % quantiles and the mean of the window; None when nothing was observed in it."""
    window = _difference(older, newer)
    if window is None or window[-1][1] <= 0:
        return None
    names: Iterable[Tuple[str, float]] = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    values = {name: percentile(older, newer, q) for name, q in names}
    count = window[-1][1]
    mean = None
    if newer_sum is not None:
        mean = (newer_sum - (older_sum or 0.0)) / count
    return Percentiles(
        count,
        values["p50"].value,
        values["p90"].value,
        values["p99"].value,
        mean if mean is None or mean >= 0 else None,
        tuple(name for name, value in values.items() if value.more_than),
    )


__all__ = [
    "WANTED",
    "MetricsError",
    "Quantile",
    "Rates",
    "acceptance",
    "percentile",
    "percentiles",
    "rates",
    "restarted",
    "server_sample",
]
