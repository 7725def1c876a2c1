"""What benchmark tools write, and every reason not to believe it."""

from __future__ import annotations

from typing import Any

import pytest

from eagletui.jobs.bench.cells import merged, pool_counts, pooled
from eagletui.jobs.bench.passes import (
    Run,
    details_counts,
    from_own,
    from_sglang,
    from_vllm,
    text_hash,
    with_counters,
    with_drafts,
    with_queue,
)
from eagletui.records import ServerSample
from eagletui.records.bench import BenchCell, SpecCounts
from tests.bench.making import made_arm, made_pass, recorded


def tool(**more: Any) -> dict[str, Any]:
    """A result of a tool: 8 requests of 50 tokens in 4 s, two under way."""
    count = 8
    return {
        "duration": 4.0, "completed": count, "failed": 0, "total_input_tokens": 400, "total_output_tokens": 50 * count,
        "input_lens": [50] * count, "output_lens": [50] * count, "ttfts": [0.1] * count,
        "itls": [[0.9 / 49] * 49] * count, "errors": [""] * count, "generated_texts": [f"text {i}" for i in range(count)], **more,
    }  # fmt: skip


RUN = Run(8, 2, 50)


def test_vllms_result_is_read_with_its_units() -> None:
    found = from_vllm(recorded("cpu_eagle"), Run(24, 1, 120, True, 3))
    assert found.problems == ()
    assert found.tokens_per_s == pytest.approx(47.3, abs=0.05)
    assert found.itl is not None
    assert found.itl.mean == pytest.approx(26.57, abs=0.01), "the mean: the median (24.7) skips what a step costs"
    assert found.spec is not None
    # acceptance comes in percent, the positions as fractions: counts say what is what
    assert found.spec.accepted / found.spec.drafted == pytest.approx(0.0992, abs=1e-4)
    assert [round(count) for count in found.spec.per_position] == [441, 73, 5]
    assert sum(found.spec.per_position) == pytest.approx(found.spec.accepted)


def test_exit_status_0_with_every_request_failed_is_no_pass() -> None:
    doc = tool(completed=0, failed=8, total_output_tokens=0, errors=["Traceback\nConnectionError: refused"] * 8,
               ttfts=[0.0] * 8, itls=[[]] * 8, output_lens=[0] * 8)  # fmt: skip
    found = from_vllm(doc, RUN)
    assert found.problems[0] == "0 of 8 requests completed, first error: ConnectionError: refused"
    assert found.tokens_per_s is None


def test_one_failed_request_is_enough() -> None:
    assert from_vllm(tool(completed=7, failed=1), RUN).problems
    doc = tool(completed=7)
    del doc["failed"]  # SGLang's tool does not count them
    assert from_sglang(doc, RUN).problems
    assert from_sglang(doc, RUN).failed == 1


def test_repeated_prompts_are_seen() -> None:
    assert "prompts were repeated" in from_vllm(tool(completed=9), RUN).problems[0]


def test_a_concurrency_that_was_not_reached_is_marked() -> None:
    assert from_vllm(tool(), RUN).problems == ()
    found = from_vllm(tool(), Run(8, 4, 50))
    assert "concurrency 4 was not reached: 2.0 requests under way" in found.problems[0]


def test_the_peak_of_the_tool_is_not_taken_for_the_concurrency() -> None:
    """vLLM's tool counts whole seconds: it tells 3 at concurrency 1."""
    doc = recorded("cpu_base")
    assert doc["max_concurrent_requests"] == 3
    assert from_vllm(doc, Run(24, 1, 120)).in_flight == pytest.approx(1.0, abs=0.01)


def test_the_tools_peak_counts_chunks_and_is_not_taken_for_a_speed() -> None:
    doc = recorded("cpu_eagle")
    speed = from_vllm(doc, Run(24, 1, 120, True, 3)).tokens_per_s
    assert speed is not None
    assert doc["max_output_tokens_per_s"] < speed, "a chunk holds more than one token: its peak lies below the mean"


def test_gauges_of_the_last_interval_are_no_counts() -> None:
    before, after = counters()
    gauges = {"acceptance_from": "gauge", "gauge_length": 3.5, "gauge_rate": 0.8, "verify_steps": None, "drafted": None}
    found = with_counters(from_own(tool(), RUN), RUN, before._replace(**gauges), after._replace(**gauges))
    assert found.spec is None


def test_sglangs_accept_length_of_all_times_is_not_read() -> None:
    found = from_sglang(tool(accept_length=3.9), RUN)
    assert found.spec is None


def test_sglang_without_token_counts_is_seen() -> None:
    """Its tool then takes the length that was asked for, and the speed with it."""
    found = from_sglang(tool(total_output_tokens_retokenized=180), RUN)
    assert "sent no token counts" in found.problems[0]
    assert from_sglang(tool(total_output_tokens_retokenized=398), RUN).problems == ()


def test_latencies_of_sglang_come_from_first_token_and_gaps() -> None:
    found = from_sglang(tool(), RUN)
    assert found.requests is not None
    assert found.requests.latency[0] == pytest.approx(1.0)
    assert found.tpot is not None
    assert found.tpot.mean == pytest.approx(1000 * 0.9 / 49)


def test_an_empty_text_is_no_text() -> None:
    """A budget that went into reasoning leaves nothing: two of these are not two equal answers."""
    assert text_hash("") is None
    found = from_vllm(tool(generated_texts=["", *(f"t{i}" for i in range(7))]), RUN)
    assert found.requests is not None
    assert found.requests.texts[0] is None
    assert found.requests.texts[1] is not None


# ------------------------------------------------------------------------------------------------------------- counters


def sample(boot: float, **more: Any) -> ServerSample:
    return ServerSample(boot, boot, engine="vllm", acceptance_from="counters", **more)


def counters(finished: float = 8, tokens: float = 400, **more: Any) -> tuple[ServerSample, ServerSample]:
    before = sample(0, finished=100, generated_tokens=5000, verify_steps=10, drafted=30, accepted=3, running=0, prompt_tokens=0)
    after = before._replace(
        boot=5.0, finished=100 + finished, generated_tokens=5000 + tokens, verify_steps=210, drafted=630, accepted=83, **more
    )
    return before, after


def test_the_difference_of_counters_is_exact() -> None:
    found = with_counters(from_own(tool(), RUN), RUN, *counters(per_position=(60.0, 20.0, 0.0)))
    assert found.problems == ()
    assert found.foreign == 0
    assert found.spec == SpecCounts(200, 600, 80, (60.0, 20.0, 0.0), "counters")


def test_sglangs_time_of_a_token_is_not_taken_for_that_of_a_step() -> None:
    """It shares a step's time out among the tokens of the step: with a drafter that would make the step cost C / tau."""
    seen: dict[str, Any] = {"itl": ((0.05, 0.0), (None, 0.0)), "itl_sum": 0.0}
    later: dict[str, Any] = {"itl": ((0.05, 400.0), (None, 400.0)), "itl_sum": 4.0}
    before, after = counters()
    found = with_counters(from_own(tool(), RUN), RUN, before._replace(**seen), after._replace(**later))
    assert found.engine_itl == pytest.approx(10.0)
    sglang = with_counters(
        from_own(tool(), RUN), RUN, before._replace(engine="sglang", **seen), after._replace(engine="sglang", **later)
    )
    assert sglang.engine_itl is None


def test_other_clients_are_seen_by_their_requests() -> None:
    found = with_counters(from_own(tool(), RUN), RUN, *counters(finished=11, tokens=550))
    assert found.foreign == 3
    assert found.problems[0].startswith("others used the server meanwhile: 3 more requests")


def test_probes_of_the_servers_health_are_no_clients() -> None:
    found = with_counters(from_own(tool(), RUN), RUN, *counters(finished=10, tokens=402))
    assert found.problems == ()
    assert found.notes == ("2 requests of a token each ended meanwhile: health checks, it seems",)


def test_other_clients_are_seen_by_their_tokens() -> None:
    """One long request that has not ended yet."""
    assert "400 tokens more" in with_counters(from_own(tool(), RUN), RUN, *counters(tokens=800)).problems[0]


def test_requests_of_others_that_ran_before_are_seen() -> None:
    before, after = counters()
    assert "ran when the pass began" in with_counters(from_own(tool(), RUN), RUN, before._replace(running=1), after).problems[0]


def test_a_restart_amid_the_pass_is_no_pass() -> None:
    before, after = counters()
    found = with_counters(from_own(tool(), RUN), RUN, before, after._replace(generated_tokens=10, finished=2))
    assert found.problems == ("the server restarted amid the pass",)


def test_without_metrics_it_is_told_that_nobody_knows() -> None:
    found = with_counters(from_own(tool(), RUN), RUN, None, None)
    assert found.problems == ()
    assert "not known" in found.notes[0]


def test_hits_of_the_prefix_cache_are_told() -> None:
    before, after = counters()
    before, after = before._replace(prefix_queries=0, prefix_hits=0), after._replace(prefix_queries=400, prefix_hits=300)
    found = with_counters(from_own(tool(), RUN), RUN, before, after)
    assert found.prefix_hits == 0.75
    assert "75 %" in found.notes[0]


def test_a_drafter_that_drafts_nothing_is_no_drafters_arm() -> None:
    run = RUN._replace(drafter=True, k=3)
    assert "nothing was drafted" in with_drafts(from_own(tool(), run), run).problems[0]
    drafting = from_own(tool(), RUN)._replace(spec=SpecCounts(10, 30, 3))
    assert "the arm without a drafter drafted" in with_drafts(drafting, RUN).problems[0]
    assert with_drafts(drafting, run).problems == ()


def test_requests_that_wait_in_the_server_are_not_under_way() -> None:
    """A server that runs four at most: at concurrency 16 twelve wait, and the client sees sixteen."""
    run = Run(64, 16, 50)
    found = with_queue(from_own(tool(), run)._replace(problems=()), run, [(4, 12), (4, 12), (4, 11), (3, 0)])
    assert found.problems == ("concurrency 16 was not reached: the server ran 4 at once and kept the others waiting",)
    assert with_queue(from_own(tool(), RUN), RUN, [(2, 0), (2, 1), (2, 0)]).problems == ()
    assert with_queue(from_own(tool(), RUN), RUN, []).problems == ()


def test_sglangs_details_are_summed_over_requests() -> None:
    def one(steps: int, correct: int, histogram: list[int]) -> dict[str, Any]:
        return {
            "spec_verify_ct": steps,
            "spec_num_correct_drafts": correct,
            "spec_num_proposed_drafts": 3 * steps,
            "spec_correct_drafts_histogram": histogram,
        }

    details = [one(10, 5, [6, 3, 1]), one(20, 4, [16, 4])]
    found = details_counts(details, 3)
    assert found == SpecCounts(30, 90, 9, (8, 1, 0), "requests")
    assert details_counts([], 3) is None


# ----------------------------------------------------------------------------------------------------------------- cells


def test_tau_is_weighted_by_tokens() -> None:
    """One short pass with a high length, a long one with a low: the mean of both would be 1.75."""
    found = pool_counts([SpecCounts(10, 30, 10, (6, 3, 1)), SpecCounts(990, 2970, 495, (300, 150, 45))])
    assert found is not None
    assert 1 + found.accepted / found.steps == pytest.approx(1.505)


def test_exact_counts_are_not_mixed_with_derived_ones() -> None:
    found = pool_counts([SpecCounts(10, 30, 5, (5, 0, 0), "requests"), SpecCounts(100, 300, 20, (), "derived")])
    assert found == SpecCounts(10, 30, 5, (5, 0, 0), "requests")


def test_a_bad_pass_is_in_no_mean_and_is_told() -> None:
    good, bad = made_pass(1), made_pass(2, step=0.050)._replace(problems=("others used the server meanwhile",))
    cell = pooled(BenchCell(1, prompts=24, passes=(good, bad)))
    assert cell.tokens_per_s == good.tokens_per_s
    assert cell.good == 1
    assert "1 of 2 passes left out: others used the server" in cell.notes[0]


def test_a_cell_without_a_good_pass_has_no_number() -> None:
    cell = pooled(BenchCell(1, passes=(made_pass(1)._replace(problems=("7 of 8 requests completed",)),)))
    assert cell.tokens_per_s is None
    assert cell.length is None
    assert cell.problems == ("7 of 8 requests completed",)


def test_a_drift_between_first_and_last_pass_is_told() -> None:
    cell = pooled(BenchCell(1, passes=(made_pass(1), made_pass(2), made_pass(3, step=0.012))))
    assert cell.drift == pytest.approx(-1 / 6, abs=0.03)
    assert any("drifts" in note for note in cell.notes)


def test_blocks_of_one_arm_become_one_result() -> None:
    first = made_arm("none", "none", [pooled(BenchCell(1, prompts_hash="h", passes=(made_pass(1, block="1"),)))])
    second = made_arm("none", "none", [pooled(BenchCell(1, prompts_hash="h", passes=(made_pass(1, block="2", step=0.011),)))])
    found = merged([first, second]).cells[0]
    assert [(one.number, one.block) for one in found.passes] == [(1, "1"), (2, "2")]
    assert found.drift is not None
    other = made_arm("none", "none", [pooled(BenchCell(1, prompts_hash="x", passes=(made_pass(1),)))])
    assert merged([first, other]).cells[0].problems == ("the blocks of this arm had different prompts",)
