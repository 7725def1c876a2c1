"""What a server did: its scrapes, the windows between them, and what they say of a drafter."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple


class ServerSample(NamedTuple):
    """One scrape of an engine's ``/metrics`` in the definition common to both engines; counters are exact.

    ``accepted`` counts accepted draft tokens without the bonus token, ``drafted`` the proposed ones, ``verify_steps`` the
    verify rounds that had a draft, ``per_position[i]`` the rounds whose draft token i was accepted. ``ttft`` and ``itl``
    are histograms: ``((upper bound, cumulative count), ...)`` with the last bound ``inf`` written as None, then sum and count.
    ``acceptance_from`` says where the acceptance counters come from: ``counters`` (vLLM's own), ``derived`` (SGLang 0.5.14+,
    from its counts of finished requests), ``gauge`` (older SGLang: only ``gauge_length``, a last sample). ``decoded_tokens``
    and ``prefilled_tokens`` move while requests run, where the engine has such counters. ``k`` is the draft tokens per step.
    """

    boot: float
    wall: float
    running: Optional[float] = None
    waiting: Optional[float] = None
    kv: Optional[float] = None
    prompt_tokens: Optional[float] = None
    generated_tokens: Optional[float] = None
    verify_steps: Optional[float] = None
    drafted: Optional[float] = None
    accepted: Optional[float] = None
    per_position: Optional[Tuple[float, ...]] = None
    prefix_queries: Optional[float] = None
    prefix_hits: Optional[float] = None
    preemptions: Optional[float] = None
    finished: Optional[float] = None
    ttft: Optional[Tuple[Tuple[Optional[float], float], ...]] = None
    ttft_sum: Optional[float] = None
    itl: Optional[Tuple[Tuple[Optional[float], float], ...]] = None
    itl_sum: Optional[float] = None
    start_time: Optional[float] = None
    gauge_length: Optional[float] = None
    gauge_rate: Optional[float] = None
    engine: Optional[str] = None
    k: Optional[int] = None
    acceptance_from: Optional[str] = None
    decoded_tokens: Optional[float] = None
    prefilled_tokens: Optional[float] = None


class Acceptance(NamedTuple):
    """Acceptance over one window, from the difference of counters; pooled, never a mean of means.

    ``rate`` = accepted / drafted, ``length`` = 1 + accepted / verify steps (it counts the bonus token), ``per_position[i]``
    = rounds with draft token i accepted / verify steps, all None when nothing was drafted in the window.
    ``seconds`` is the true distance of the two scrapes. ``restarted`` when a counter fell inside the window. ``basis`` is
    ``counters``, ``derived`` or ``gauge`` (see `ServerSample`): a gauge is one interval's mean, not the window's.
    """

    seconds: float
    verify_steps: float = 0.0
    drafted: float = 0.0
    accepted: float = 0.0
    rate: Optional[float] = None
    length: Optional[float] = None
    per_position: Tuple[float, ...] = ()
    drafted_per_s: Optional[float] = None
    accepted_per_s: Optional[float] = None
    emitted_per_s: Optional[float] = None
    restarted: bool = False
    basis: str = "counters"


class Eta(NamedTuple):
    """An estimate of the seconds left, with its range and the words for what it rests on. Always shown with ``~``."""

    seconds: float
    low: float
    high: float
    basis: str


class Liveness(NamedTuple):
    """Whether a server works or hangs, and how that is known. ``verdict`` is one of works, slow, suspect, stuck.

    ``id`` names the pattern (docs/liveness.md), ``text`` says it in one line, ``evidence`` holds what was measured, ``remedy``
    what to do. ``seconds`` is how long what it rests on has lasted.
    """

    verdict: str
    id: str
    text: str
    evidence: Tuple[str, ...] = ()
    remedy: Optional[str] = None
    seconds: Optional[float] = None


class Percentiles(NamedTuple):
    """Seconds at 50, 90 and 99 % of a histogram's observations in a window; ``beyond`` names those above its last bound."""

    observations: float
    p50: Optional[float] = None
    p90: Optional[float] = None
    p99: Optional[float] = None
    mean: Optional[float] = None
    beyond: Tuple[str, ...] = ()


class ServerWindow(NamedTuple):
    """What a server did between two scrapes, ``seconds`` apart; ``label`` is the window asked for (10 s, 1 m, 10 m, all).

    Tokens and requests per second; ``partial`` when the scrapes at hand do not reach back as far as the label says.
    """

    label: str
    seconds: float
    partial: bool = False
    prompt_per_s: Optional[float] = None
    generated_per_s: Optional[float] = None
    finished_per_s: Optional[float] = None
    prefix_hit_rate: Optional[float] = None
    acceptance: Optional[Acceptance] = None
    ttft: Optional[Percentiles] = None
    itl: Optional[Percentiles] = None
    restarted: bool = False


class ServerView(NamedTuple):
    """A serving job as the screens show it: its newest scrape and the windows that end with it; ``boot`` is its time."""

    job: str
    boot: float
    sample: ServerSample
    windows: Tuple[ServerWindow, ...] = ()
    problem: Optional[str] = None

    def window(self, label: str) -> Optional[ServerWindow]:
        return next((w for w in self.windows if w.label == label), None)
