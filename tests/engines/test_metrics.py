"""The expected counters are searched as plain text in the recorded pages, not with the parser under test."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from eagletui.engines.metrics import acceptance, percentile, percentiles, rates, server_sample
from eagletui.engines.prometheus import MetricsError, Point, number, parse
from eagletui.records import ServerSample


def plain(text: str, name: str, *also: str) -> float:
    """The sum of the values on the lines that begin with the name and hold the other texts."""
    lines = [x for x in text.splitlines() if re.match(re.escape(name) + r"[ {]", x) and all(a in x for a in also)]
    assert lines, name
    return sum(float(x.rsplit(" ", 1)[1]) for x in lines)


def sample(text: str, boot: float = 0.0) -> ServerSample:
    got = server_sample(text, boot, 0.0)
    assert got is not None
    return got


@pytest.mark.parametrize("name", ["vllm-0.32/eagle_009", "vllm-0.32/eagle_018", "vllm-0.32/eagle_027", "vllm-0.26/eagle"])
def test_vllm_counters_are_those_of_the_page(data: Path, name: str) -> None:
    text = (data / (name + ".metrics.txt")).read_text()
    s = sample(text)
    assert (s.engine, s.k, s.acceptance_from) == ("vllm", 3, "counters")
    assert s.verify_steps == plain(text, "vllm:spec_decode_num_drafts_total")
    assert s.drafted == plain(text, "vllm:spec_decode_num_draft_tokens_total")
    assert s.accepted == plain(text, "vllm:spec_decode_num_accepted_tokens_total")
    positions = [plain(text, "vllm:spec_decode_num_accepted_tokens_per_pos_total", f'position="{i}"') for i in range(3)]
    assert list(s.per_position or ()) == positions
    assert s.accepted == sum(positions)
    assert s.prompt_tokens == plain(text, "vllm:prompt_tokens_total")
    assert s.generated_tokens == plain(text, "vllm:generation_tokens_total")
    assert s.finished == plain(text, "vllm:request_success_total")
    assert (s.running, s.waiting) == (plain(text, "vllm:num_requests_running"), plain(text, "vllm:num_requests_waiting"))
    assert s.kv == plain(text, "vllm:kv_cache_usage_perc")
    assert s.itl is not None
    assert s.itl[-1] == (None, plain(text, "vllm:inter_token_latency_seconds_count"))
    assert s.itl_sum == plain(text, "vllm:inter_token_latency_seconds_sum")
    assert s.start_time == plain(text, "process_start_time_seconds")


def test_acceptance_is_the_difference_of_the_counters(data: Path) -> None:
    old, new = ((data / f"vllm-0.32/eagle_{n}.metrics.txt").read_text() for n in ("009", "027"))

    def grown(name: str, *also: str) -> float:
        return plain(new, name, *also) - plain(old, name, *also)

    a = acceptance(sample(old, 100.0), sample(new, 112.5))
    steps, drafted = grown("vllm:spec_decode_num_drafts_total"), grown("vllm:spec_decode_num_draft_tokens_total")
    accepted = grown("vllm:spec_decode_num_accepted_tokens_total")
    assert (a.verify_steps, a.drafted, a.accepted, a.seconds) == (steps, drafted, accepted, 12.5)
    assert a.rate == accepted / drafted
    assert a.length == 1 + accepted / steps
    assert a.per_position[1] == grown("vllm:spec_decode_num_accepted_tokens_per_pos_total", 'position="1"') / steps
    assert a.emitted_per_s == grown("vllm:generation_tokens_total") / 12.5
    r = rates(sample(old, 100.0), sample(new, 112.5))
    assert r.generated == grown("vllm:generation_tokens_total") / 12.5
    assert r.finished == grown("vllm:request_success_total") / 12.5
    p = percentiles(sample(old).itl, sample(new).itl, sample(old).itl_sum, sample(new).itl_sum)
    assert p is not None
    assert p.observations == grown("vllm:inter_token_latency_seconds_count")
    assert p.mean == grown("vllm:inter_token_latency_seconds_sum") / p.observations


def test_without_a_drafter_there_is_no_acceptance(data: Path) -> None:
    old, new = (sample((data / f"vllm-0.32/base_{n}.metrics.txt").read_text(), t) for n, t in (("000", 0.0), ("027", 9.0)))
    assert (new.drafted, new.acceptance_from, new.per_position) == (None, None, None)
    a = acceptance(old, new)
    assert (a.rate, a.length, a.drafted) == (None, None, 0.0)


def test_no_drafts_in_the_window_is_none_not_zero(data: Path) -> None:
    text = (data / "vllm-0.32/eagle_027.metrics.txt").read_text()
    a = acceptance(sample(text, 0.0), sample(text, 10.0))
    assert (a.rate, a.length, a.per_position, a.drafted) == (None, None, (), 0)


def test_a_restart_is_told_and_never_negative(data: Path) -> None:
    old, new = ((data / f"vllm-0.32/eagle_{n}.metrics.txt").read_text() for n in ("027", "009"))
    a, r = acceptance(sample(old, 0.0), sample(new, 10.0)), rates(sample(old, 0.0), sample(new, 10.0))
    assert (a.restarted, a.rate, a.accepted) == (True, None, 0.0)
    assert (r.restarted, r.generated) == (True, None)
    fresh = sample(old)._replace(start_time=(sample(old).start_time or 0) + 500, boot=10.0)
    assert acceptance(sample(old, 0.0), fresh).restarted


def test_engines_of_a_data_parallel_server_are_summed() -> None:
    s = sample(
        'vllm:generation_tokens_total{engine="0"} 10.0\nvllm:generation_tokens_total{engine="1"} 32.0\n'
        'vllm:num_requests_running{engine="0"} 1.0\nvllm:num_requests_running{engine="1"} 2.0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.5\n'
    )
    assert (s.generated_tokens, s.running, s.kv) == (42, 3, 0.5)


def test_old_names() -> None:
    s = sample('vllm:gpu_cache_usage_perc 0.5\nvllm:time_per_output_token_seconds_bucket{le="+Inf"} 3\n')
    assert (s.kv, s.itl) == (0.5, ((None, 3),))


def test_sglang_acceptance_is_derived_from_its_counters(data: Path) -> None:
    old, new = ((data / f"sglang-0.5.23/{n}.metrics.txt").read_text() for n in ("eagle3_before", "eagle3"))
    s = sample(new)
    assert (s.engine, s.k, s.acceptance_from, s.verify_steps) == ("sglang", 3, "derived", 693)
    assert s.generated_tokens == plain(new, "sglang:generation_tokens_total") == 807
    assert s.finished == plain(new, "sglang:num_requests_total") == 11
    assert s.accepted == 807 - 11 - 693
    a = acceptance(sample(old, 0.0), sample(new, 17.0))
    # the server's own lifetime mean was 1.14925
    assert a.length == pytest.approx(1.14925, abs=0.001)
    assert a.basis == "derived"
    assert (s.gauge_length, s.gauge_rate) == (1.125, pytest.approx(0.125 / 3))


def test_sglang_ranks_are_one_and_data_parallel_groups_add_up() -> None:
    page = "".join(
        f'sglang:num_running_reqs{{tp_rank="{tp}",dp_rank="{dp}"}} {n}\n' for dp, n in ((0, 2), (1, 5)) for tp in range(4)
    )
    assert sample(page).running == 7
    page = 'sglang:num_running_reqs{priority="",tp_rank="0"} 3\nsglang:num_running_reqs{priority="1",tp_rank="0"} 3\n'
    assert sample(page).running == 3


def test_an_idle_gauge_of_old_sglang_is_not_taken_for_live() -> None:
    def page(tokens: int) -> str:
        return f"sglang:spec_accept_length 2.45\nsglang:generation_tokens_total {tokens}\nsglang:num_running_reqs 0\n"

    def at(tokens: int, boot: float) -> ServerSample:
        got = server_sample(page(tokens), boot, 0.0, k=3)
        assert got is not None
        return got

    live, idle = acceptance(at(5, 0.0), at(9, 10.0)), acceptance(at(9, 0.0), at(9, 10.0))
    assert (live.length, live.rate, live.basis, live.drafted) == (2.45, pytest.approx(0.48333, abs=1e-4), "gauge", 0.0)
    assert (idle.length, idle.rate) == (None, None)


def test_a_quantile_is_linear_inside_its_bucket_and_honest_beyond_the_last() -> None:
    old = ((0.1, 5.0), (0.2, 5.0), (None, 5.0))
    new = ((0.1, 5.0), (0.2, 13.0), (None, 15.0))
    assert percentile(old, new, 0.4) == (pytest.approx(0.15), False, 10)
    assert percentile(old, new, 0.99) == (0.2, True, 10)
    assert percentile(new, new, 0.5).value is None
    assert percentile(None, None, 0.5).value is None
    p = percentiles(old, new)
    assert p is not None
    assert p.beyond == ("p90", "p99")
    assert percentiles(new, old) is None  # it fell: a restart


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("", "empty"),
        ("<!DOCTYPE html>\n<html>404</html>\n", "HTML"),
        ('{"detail":"Not Found"}', "JSON"),
        ("vllm:num_requests_running 1.0\nvllm:num_requ", "cut off"),
        ("%%%\n", "not in the Prometheus format"),
        ('vllm:num_requests_running{engine="0" 1.0\n', "inside its labels"),
        ("vllm:num_requests_running{engine=0} 1.0\n", "labels that cannot be read"),
        ("vllm:num_requests_running\n", "not in the Prometheus format"),
        ("# x\nvllm:num_requests_running \n", "without a value"),
        ("vllm:num_requests_running x\n", "no number"),
    ],
)
def test_pages_that_are_none_are_refused_in_words(page: str, words: str) -> None:
    with pytest.raises(MetricsError, match=words):
        server_sample(page, 0.0, 0.0)


def test_every_cut_of_a_page_is_refused_or_a_page(data: Path) -> None:
    text = (data / "vllm-0.32/eagle_027.metrics.txt").read_text()
    for cut in range(1, len(text), 997):
        if text[cut - 1] != "\n":
            with pytest.raises(MetricsError):
                server_sample(text[:cut], 0.0, 0.0)


def test_the_format() -> None:
    page = 'a{x="q\\"b\\\\c\\nd}",y="2"} 3 1700000000\nb NaN\nc +Inf\nd 1.79596776876e+09\ne 9007199254740993\n'
    got = parse(page)
    assert got["a"] == [Point({"x": 'q"b\\c\nd}', "y": "2"}, 3)]
    assert math.isnan(got["b"][0].value)
    assert got["c"][0].value == math.inf
    assert got["d"][0].value == 1795967768.76
    assert got["e"][0].value == 9007199254740993
    assert isinstance(number("2316.0"), int)
    assert list(parse(page, {"c"})) == ["c"]


def test_a_page_of_something_else_is_no_sample() -> None:
    assert server_sample("process_start_time_seconds 1.0\n", 0.0, 0.0) is None
