"""What a benchmark tool wrote, read into one `BenchPass` with every reason not to believe it. Pure functions.

Both tools end with status 0 although every request failed, so counts are compared. Units are set right here: vLLM's tool tells
acceptance in percent but its share per position as a fraction, and both tell times in milliseconds or seconds by the key.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from eagletui.jobs.bench.stats import mean, quantile
from eagletui.records import ServerSample
from eagletui.records.bench import BenchPass, BenchRequests, SpecCounts, Timing

FOREIGN_TOKENS = 0.01
"""The share of tokens generated beyond ours that is taken for rounding (a request that was under way at the edges)."""
REACHED = 0.75
"""The share of the concurrency that the mean of requests under way must reach: the last ones to run leave it early."""
CACHE_NOTE = 0.3
PROBE_TOKENS, PROBES = 1.5, 0.1
"""Requests of so few tokens each, and so few of them, are probes of the server's health: they change no result."""


class Run(NamedTuple):
    """What was asked of a pass: requests, concurrency, answer length; whether the arm has a drafter, with ``k`` drafts a step."""

    asked: int
    concurrency: int
    max_tokens: int
    drafter: bool = False
    k: Optional[int] = None


def text_hash(text: str) -> Optional[str]:
    """16 hex digits of an output's text; None for an empty one (its tokens went elsewhere, to a reasoning field, say)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16] if text else None


def from_vllm(doc: Mapping[str, Any], run: Run) -> BenchPass:
    """The result file of ``vllm bench serve --save-result --save-detailed``."""
    seconds = _positive(doc.get("duration"))
    lens = _numbers(doc.get("output_lens"))
    latencies = _latencies(doc)
    spec: Optional[SpecCounts] = None
    steps = doc.get("spec_decode_num_drafts")
    if steps:
        drafted, accepted = float(doc["spec_decode_draft_tokens"]), float(doc["spec_decode_accepted_tokens"])
        # fractions, unlike spec_decode_acceptance_rate, which is percent: the counts are taken, and no rate
        shares = _numbers(doc.get("spec_decode_per_position_acceptance_rates"))
        spec = SpecCounts(float(steps), drafted, accepted, tuple(share * steps for share in shares))
    return _pass("vllm bench serve", doc, run, seconds, lens, latencies, spec)


def from_sglang(doc: Mapping[str, Any], run: Run) -> BenchPass:
    """One line of the output file of ``sglang.benchmark.serving --output-details``.

    Its ``accept_length`` is the server's since it started, over warm-ups and earlier runs: it is not read.
    """
    seconds = _positive(doc.get("duration"))
    lens = _numbers(doc.get("output_lens"))
    found = _pass("sglang.benchmark.serving", doc, run, seconds, lens, _latencies(doc), None)
    retold = doc.get("total_output_tokens_retokenized")
    total = found.output_tokens
    if total and retold and total == found.completed * run.max_tokens and retold < 0.9 * total:
        what = "the server sent no token counts: its tool took the %d that were asked for (%d by its tokenizer)"
        found = found._replace(problems=(*found.problems, what % (total, retold)))
    return found


def from_own(doc: Mapping[str, Any], run: Run) -> BenchPass:
    """The result of `on_host.load_client`, which has the keys of vLLM's tool."""
    return _pass(
        "eagletui's client", doc, run, _positive(doc.get("duration")), _numbers(doc.get("output_lens")), _latencies(doc), None
    )


def _pass(
    tool: str,
    doc: Mapping[str, Any],
    run: Run,
    seconds: Optional[float],
    lens: Sequence[float],
    latencies: Sequence[Optional[float]],
    spec: Optional[SpecCounts],
) -> BenchPass:
    completed, failed = int(doc.get("completed") or 0), doc.get("failed")
    missing = run.asked - completed if failed is None else int(failed)
    output, prompt = doc.get("total_output_tokens"), doc.get("total_input_tokens")
    itls = [list(map(float, one)) for one in doc.get("itls") or () if isinstance(one, (list, tuple))]
    ttfts = _numbers(doc.get("ttfts"))
    answered = [i for i, latency in enumerate(latencies) if latency is not None]
    in_flight = _positive(doc.get("in_flight"))
    if in_flight is None and seconds and answered:
        in_flight = sum(latencies[i] or 0.0 for i in answered) / seconds
    texts = [text_hash(text) if isinstance(text, str) else None for text in doc.get("generated_texts") or ()]
    problems = _counted(doc, run, completed, missing, output)
    # one at a time is reached by whoever asks one after the other
    if run.concurrency > 1 and in_flight is not None and not problems and in_flight < REACHED * run.concurrency:
        what = "concurrency %d was not reached: %.1f requests under way in the mean (%d prompts are too few for it)"
        problems.append(what % (run.concurrency, in_flight, run.asked))
    requests = None
    if latencies:
        requests = BenchRequests(
            tuple(latencies),
            tuple(ttfts[i] if i in answered and i < len(ttfts) else None for i in range(len(latencies))),
            tuple(int(lens[i]) for i in range(len(latencies))) if len(lens) == len(latencies) else (),
            tuple(texts[i] if i in answered and i < len(texts) else None for i in range(len(latencies))),
        )
    return BenchPass(
        0,
        tool=tool,
        seconds=seconds,
        asked=run.asked,
        completed=completed,
        failed=missing,
        prompt_tokens=int(prompt) if prompt else None,
        output_tokens=int(output) if output else None,
        tokens_per_s=output / seconds if output and seconds else None,
        in_flight=in_flight,
        ttft=_timing(doc, "ttft", [ttfts[i] for i in answered if i < len(ttfts)]),
        tpot=_timing(doc, "tpot", _tpots(latencies, ttfts, lens)),
        itl=_timing(doc, "itl", [gap for one in itls for gap in one]),
        e2el=_timing(doc, "e2el", [latencies[i] or 0.0 for i in answered]),
        spec=spec,
        problems=tuple(problems),
        requests=requests,
    )


def _counted(doc: Mapping[str, Any], run: Run, completed: int, failed: int, output: Any) -> List[str]:
    problems: List[str] = []
    if failed or completed < run.asked:
        first = next((str(error).strip().splitlines()[-1] for error in doc.get("errors") or () if str(error or "").strip()), "")
        told = "%d of %d requests completed" % (completed, run.asked)
        problems.append(told + (", first error: %s" % first[:160] if first else ""))
    elif completed > run.asked:
        problems.append("%d requests were sent where %d were asked for: prompts were repeated" % (completed, run.asked))
    if completed and not output:
        problems.append("no output tokens were counted")
    return problems


def _latencies(doc: Mapping[str, Any]) -> List[Optional[float]]:
    """Each request's seconds, None where it failed; from first token and gaps where the tool gives no latency."""
    errors = list(doc.get("errors") or ())
    own = doc.get("latencies")
    out: List[Optional[float]] = []
    if own:
        out = [float(value) if value else None for value in own]
    else:
        for ttft, gaps in zip(doc.get("ttfts") or (), doc.get("itls") or ()):
            out.append(float(ttft) + sum(map(float, gaps)) if ttft else None)
    return [None if i < len(errors) and errors[i] else value for i, value in enumerate(out)]


def _tpots(latencies: Sequence[Optional[float]], ttfts: Sequence[float], lens: Sequence[float]) -> List[float]:
    return [
        (latency - ttft) / (count - 1)
        for latency, ttft, count in zip(latencies, ttfts, lens)
        if latency is not None and count > 1 and latency >= ttft
    ]


def _timing(doc: Mapping[str, Any], name: str, seconds: Sequence[float]) -> Optional[Timing]:
    """From the single values where the tool gave them, else from what it worked out itself."""
    if seconds:
        ordered = sorted(1000.0 * value for value in seconds)
        p50, p90, p95, p99 = (quantile(ordered, q) for q in (0.5, 0.9, 0.95, 0.99))
        return Timing(mean(ordered) or 0.0, p50, p90, p95, p99, len(ordered))
    told = doc.get("mean_%s_ms" % name)
    if not isinstance(told, (int, float)) or told <= 0:
        return None
    return Timing(float(told), *(doc.get("p%d_%s_ms" % (p, name)) or None for p in (50, 90, 95, 99)))


def _numbers(values: Any) -> List[float]:
    return [float(value or 0) for value in values] if isinstance(values, (list, tuple)) else []


def _positive(value: Any) -> Optional[float]:
    return float(value) if isinstance(value, (int, float)) and value > 0 else None


# ---------------------------------------------------------------------------------------- the engine's own counters around it


def with_counters(found: BenchPass, run: Run, before: Optional[ServerSample], after: Optional[ServerSample]) -> BenchPass:
    """The pass with what the server's counters say of the time between two scrapes, and whether it was alone on the server."""
    from eagletui.engines.metrics import acceptance, percentiles, rates, restarted

    if before is None or after is None:
        return found._replace(notes=(*found.notes, "the server's metrics cannot be read: whether others used it is not known"))
    problems, notes = list(found.problems), list(found.notes)
    if restarted(before, after):
        return found._replace(problems=(*problems, "the server restarted amid the pass"))
    finished = _grown(before.finished, after.finished)
    foreign = None if finished is None else max(0.0, finished - found.completed)
    tokens = _grown(before.generated_tokens, after.generated_tokens)
    beyond = tokens - found.output_tokens if tokens and found.output_tokens else None
    if foreign and beyond is not None and beyond <= PROBE_TOKENS * foreign and foreign <= max(2.0, PROBES * found.completed):
        notes.append("%d requests of a token each ended meanwhile: health checks, it seems" % foreign)
        foreign = 0.0
    if foreign:
        problems.append("others used the server meanwhile: %d more requests ended than the %d of this pass"
                        % (foreign, found.completed))  # fmt: skip
    elif beyond is not None and beyond > max(FOREIGN_TOKENS * (found.output_tokens or 0), 2.0 * found.completed):
        problems.append("others used the server meanwhile: it generated %d tokens more than this pass had" % beyond)
    if (before.running or 0) > 0:
        problems.append("%d requests of others ran when the pass began" % (before.running or 0))
    counted = acceptance(before, after)
    spec = found.spec
    if spec is None and counted.verify_steps and counted.basis in ("counters", "derived"):
        spec = SpecCounts(
            counted.verify_steps,
            counted.drafted,
            counted.accepted,
            tuple(share * counted.verify_steps for share in counted.per_position),
            counted.basis,
        )
    # SGLang's histogram has a value for each token of a step, the step's time shared out among them: no time of a step
    itl = percentiles(before.itl, after.itl, before.itl_sum, after.itl_sum) if after.engine == "vllm" else None
    hits = rates(before, after).prefix_hits
    if hits is not None and hits > CACHE_NOTE:
        notes.append(
            "%d %% of the prompt tokens came from the prefix cache: time to first token is flattered" % round(100 * hits)
        )
    return found._replace(
        spec=spec,
        foreign=foreign,
        prefix_hits=hits,
        engine_itl=1000.0 * itl.mean if itl is not None and itl.mean else None,
        problems=tuple(problems),
        notes=tuple(notes),
    )


def with_queue(found: BenchPass, run: Run, seen: Sequence[Tuple[float, float]]) -> BenchPass:
    """The pass judged by what the server ran and what it kept waiting, looked at from time to time as (running, waiting).

    A client's own count cannot tell: a request that waits in the server is under way for it.
    """
    queued = [running for running, waiting in seen if waiting >= 1]
    if 2 * len(queued) <= len(seen) or not queued or max(queued) >= REACHED * run.concurrency:
        return found
    what = "concurrency %d was not reached: the server ran %d at once and kept the others waiting"
    return found._replace(problems=(*found.problems, what % (run.concurrency, max(queued))))


def _grown(before: Optional[float], after: Optional[float]) -> Optional[float]:
    return None if after is None else after - (before or 0.0)


def with_drafts(found: BenchPass, run: Run) -> BenchPass:
    """The pass judged by whether there were drafts: a drafter's arm without any, or drafts where no drafter should be."""
    drafted = found.spec is not None and found.spec.drafted > 0
    if run.drafter and not drafted and not found.problems:
        return found._replace(problems=(*found.problems, "a drafter is set, and nothing was drafted (or nothing counts it)"))
    if not run.drafter and drafted:
        return found._replace(problems=(*found.problems, "the arm without a drafter drafted: the server has one"))
    return found


def details_counts(details: Sequence[Mapping[str, Any]], k: Optional[int]) -> Optional[SpecCounts]:
    """SGLang's per-request details (``sglext.spec_tokens_details``) summed; None when none came.

    ``spec_correct_drafts_histogram[n]`` counts the verify steps with n accepted drafts.
    """
    steps = drafted = accepted = 0.0
    histogram: Dict[int, float] = {}
    for one in details:
        steps += float(one.get("spec_verify_ct") or 0)
        drafted += float(one.get("spec_num_proposed_drafts") or 0)
        accepted += float(one.get("spec_num_correct_drafts") or 0)
        for count, times in enumerate(one.get("spec_correct_drafts_histogram") or ()):
            histogram[count] = histogram.get(count, 0.0) + float(times)
    if steps <= 0:
        return None
    if not drafted and k:
        drafted = steps * k
    longest = max(max(histogram, default=0), k or 0)
    positions: Tuple[float, ...] = ()
    if histogram:
        positions = tuple(sum(times for count, times in histogram.items() if count > at) for at in range(longest))
    return SpecCounts(steps, drafted, accepted, positions, "requests")
