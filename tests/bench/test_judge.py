"""Two arms to one verdict: the recorded runs give what was measured by hand, and doubts are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs import outputs
from eagletui.jobs.bench import judge as judging
from eagletui.jobs.bench.compare import compare, step_cost
from eagletui.jobs.bench.judge import Arm, known_costs, verdict
from eagletui.jobs.bench.launch_diff import differences, flags
from eagletui.jobs.on_host.bench_server import origin
from eagletui.records import from_doc, to_doc
from eagletui.records.bench import BenchResult, BenchServer, BenchVerdict, LoadVerdict
from tests.bench.making import made_arm, made_cell, made_pass, recorded_arm

NONE = made_arm("none", "none", [made_cell(c) for c in (1, 4)])


def drafter(
    arm: str = "trained",
    role: str = "trained",
    length: float = 1.3,
    cost: float = 2.0,
    loads: tuple[int, ...] = (1, 4),
    **more: object,
) -> BenchResult:
    cells = [made_cell(c, step=0.010 * cost, length=length, k=3, **more) for c in loads]  # type: ignore[arg-type]
    return made_arm(arm, role, cells, 3)


def only(found: BenchVerdict) -> LoadVerdict:
    return found.comparisons[0].loads[0]


# ---------------------------------------------------------------------------------------------- the runs that were recorded


def test_the_recorded_cpu_run() -> None:
    found = verdict(
        [
            Arm(recorded_arm("none", "none", {1: "cpu_base"})),
            Arm(recorded_arm("trained", "trained", {1: "cpu_eagle"}), (0.219, 0.048, 0.010)),
        ]
    )
    load = only(found)
    assert load.cost == pytest.approx(1.92, abs=0.005)
    assert load.length == pytest.approx(1.298, abs=0.001)
    assert load.gain == pytest.approx(0.673, abs=0.001)
    assert load.predicted == pytest.approx(0.675, abs=0.001)
    assert load.needed == pytest.approx(0.31, abs=0.005)
    assert found.comparisons[0].validation_length == pytest.approx(1.277, abs=0.001)
    assert found.headline == (
        "With this drafter (trained) the server is 33 % slower at concurrency 1; it needs 31 % acceptance and has 10 %."
    )
    assert found.suspects == (), "what it serves is what its training validated: it is only weak"


def test_the_recorded_gpu_run_and_its_prediction() -> None:
    found = verdict(
        [
            Arm(recorded_arm("none", "none", {1: "gpu_plain_c1", 8: "gpu_plain_c8"})),
            Arm(recorded_arm("length-2.5", "synthetic", {1: "gpu_synth_c1", 8: "gpu_synth_c8"}, 2.5)),
            Arm(recorded_arm("trained", "trained", {1: "gpu_eagle_c1", 8: "gpu_eagle_c8"}), (0.42, 0.135, 0.041)),
        ]
    )
    one, eight = found.comparisons[0].loads
    assert (one.gain, one.cost, one.predicted) == pytest.approx((0.456, 3.52, 0.459), abs=0.005)
    assert (eight.gain, eight.cost, eight.predicted) == pytest.approx((0.566, 2.77, 0.571), abs=0.005)
    assert [round(point.gain or 0, 3) for curve in found.break_even for point in curve.points] == [0.755, 0.669]
    assert [round(curve.cost or 0, 2) for curve in found.break_even] == [3.24, 3.73]
    assert one.foreseen == pytest.approx(0.493, abs=0.001), "length 1.596 from validation over C from the synthetic run"
    assert any("they agree (+8 %)" in note for note in found.notes)
    assert found.break_even[0].sentence.startswith(
        "At concurrency 1 a step with a drafter costs 3.24 steps without: a drafter pays"
    )
    assert found.break_even[0].needed == pytest.approx(0.746, abs=0.001)


def test_medians_would_mislead() -> None:
    """The steps that carry a prefill are no step at the median: 1.85 where 1.92 was measured."""
    base, other = recorded_arm("a", "none", {1: "cpu_base"}).cells[0], recorded_arm("b", "other", {1: "cpu_eagle"}).cells[0]
    assert base.passes[0].itl is not None
    assert other.passes[0].itl is not None
    by_median = (other.passes[0].itl.p50 or 0) / (base.passes[0].itl.p50 or 1)
    cost, _ = step_cost(base, other)
    assert cost == pytest.approx(1.92, abs=0.005)
    assert by_median == pytest.approx(1.85, abs=0.005)


# ------------------------------------------------------------------------------------------------------- loads and doubts


def test_a_gain_has_an_interval_and_a_word() -> None:
    slow, fast = only(verdict([Arm(NONE), Arm(drafter())])), only(verdict([Arm(NONE), Arm(drafter(length=2.6, cost=1.5))]))
    assert slow.pays == "no"
    assert fast.pays == "yes"
    assert slow.low is not None
    assert slow.high is not None
    assert slow.low < 0.65 < slow.high
    assert slow.high - slow.low < 0.1
    assert fast.sentence == (
        "With this drafter (trained) the server is 73 % faster at concurrency 1; it needs 17 % acceptance and has 53 %."
    )


def test_too_close_to_call_is_said() -> None:
    load = only(verdict([Arm(NONE), Arm(drafter(length=1.5, cost=1.5, noise=0.4))]))
    assert load.pays == "unclear"
    assert "too close to call" in load.sentence


def test_a_cost_below_one_is_an_invalid_baseline() -> None:
    found = verdict([Arm(NONE), Arm(drafter(length=1.5, cost=0.8))])
    assert only(found).pays is None
    assert "the baseline is slow or was disturbed" in only(found).problems[0]
    assert found.headline.startswith("No verdict: a step with the drafter is cheaper")


def test_a_failed_cell_is_marked_and_the_others_count() -> None:
    broken = made_cell(1)._replace(tokens_per_s=None, problems=("7 of 8 requests completed",))
    other = drafter()
    found = compare(NONE, other._replace(cells=(broken, other.cells[1])))
    assert found.loads[0].gain is None
    assert "trained: 7 of 8 requests completed" in found.loads[0].problems
    assert found.loads[1].gain is not None
    assert found.loads[0].sentence.startswith("At concurrency 1: no verdict")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"settings": NONE.settings._replace(max_tokens=128)}, "different answer lengths"),
        ({"settings": NONE.settings._replace(temperature=0.7)}, "different temperatures"),
        ({"settings": NONE.settings._replace(ignore_eos=True)}, "different ends of answers"),
    ],
)
def test_arms_that_were_asked_differently_are_not_compared(change: dict[str, object], why: str) -> None:
    found = compare(NONE, drafter()._replace(**change))  # type: ignore[arg-type]
    assert why in found.loads[0].problems[0]
    assert found.loads[0].gain is None


def test_arms_with_other_prompts_or_templates_are_not_compared() -> None:
    other = drafter()
    cell = other.cells[0]._replace(prompts_hash="other")
    assert compare(NONE, other._replace(cells=(cell,))).loads[0].problems == ("the arms had different prompts",)
    base = NONE._replace(server=NONE.server._replace(template_hash="a"))
    templated = other._replace(server=other.server._replace(template_hash="b"))
    assert "different chat templates" in compare(base, templated).loads[0].problems[0]


def test_answers_of_other_lengths_are_marked_then_void() -> None:
    def shorter(by: float) -> LoadVerdict:
        one = made_pass(1, step=0.02, length=1.3, k=3)
        cell = made_cell(1, step=0.02, length=1.3, k=3)
        cut = one._replace(output_tokens=round((one.output_tokens or 0) * (1 - by)))
        return compare(NONE, drafter()._replace(cells=(cell._replace(passes=(cut,)),))).loads[0]

    assert not any("shorter" in text for text in (*shorter(0.01).notes, *shorter(0.01).problems))
    assert "answers of trained are 3.0 % shorter" in shorter(0.03).notes
    assert "answers of trained are 8.0 % shorter" in shorter(0.08).problems


def test_equal_outputs_are_counted_by_prompt() -> None:
    texts = [f"{i:016x}" if i % 4 else "other" for i in range(24)]
    assert only(verdict([Arm(NONE), Arm(drafter(texts=texts))])).same_outputs == pytest.approx(0.75)


def test_chunks_that_were_merged_on_their_way_are_not_taken_for_steps() -> None:
    base = made_cell(1)._replace(engine_itl=10.0, itl=20.0)
    other = made_cell(1, step=0.02, length=1.3, k=3)._replace(engine_itl=20.0, itl=21.0)
    cost, notes = step_cost(base, other)
    assert cost == 2.0
    assert "merged" in notes[0]


def test_the_crossover_lies_between_the_loads() -> None:
    cells = [made_cell(c, step=0.010 * cost, length=1.5, k=3) for c, cost in ((1, 1.2), (4, 1.4), (16, 1.8))]
    base = made_arm("none", "none", [made_cell(c) for c in (1, 4, 16)])
    (found,) = compare(base, made_arm("trained", "trained", cells, 3)).crossovers
    assert found.concurrency is not None
    assert 4 < found.concurrency < 16
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.concurrency < found.high
    assert found.words.startswith("pays up to about concurrency")


def test_a_drafter_that_pays_at_some_loads_gets_advice() -> None:
    cells = [made_cell(c, step=0.010 * cost, length=1.5, k=3) for c, cost in ((1, 1.2), (4, 2.0))]
    found = verdict([Arm(NONE), Arm(made_arm("trained", "trained", cells, 3))])
    assert any("num_speculative_tokens_per_batch_size" in note for note in found.notes)
    assert found.headline.endswith("it does not pay at concurrency 4.")


def test_a_shorter_draft_is_suggested_where_late_positions_cost_more_than_they_give() -> None:
    found = verdict([Arm(NONE), Arm(drafter(length=1.3, positions=(0.28, 0.02, 0.0)))])
    assert any("1 draft token a step instead of 3 would give about 0.96" in note for note in found.notes)


# --------------------------------------------------------------------------------------------------------------- suspects


def test_two_drafters_that_do_equally_badly_put_the_engine_under_suspicion() -> None:
    found = verdict([Arm(NONE), Arm(drafter("pretrained", "pretrained", 1.31)), Arm(drafter("trained", "trained", 1.33))])
    assert len(found.suspects) == 1
    assert "two drafters of different origin would not" in found.suspects[0]
    assert "auxiliary layers" in found.suspects[0]
    assert "norm" in found.suspects[0]
    assert "template" in found.suspects[0]
    assert "attention backend" in found.suspects[0]
    assert "before the training" in found.headline


def test_two_drafters_against_each_other_break_even_at_nothing() -> None:
    """C is between their steps then: it says nothing of what one needs against none."""
    old, new = drafter(length=1.5, cost=2.0), drafter("new", length=1.8, cost=2.0)
    load = compare(old, new).loads[0]
    assert load.gain == pytest.approx(1.2, abs=0.02)
    assert load.cost == pytest.approx(1.0, abs=0.02)
    assert load.predicted == pytest.approx(1.2, abs=0.02)
    assert (load.needed, load.needed_length) == (None, None)
    assert not any("length over cost" in note for note in load.notes)


def test_the_cost_between_two_engines_is_no_drafters_step_cost() -> None:
    other = made_arm("sglang", "none", [made_cell(step=0.020)], engine="sglang")
    found = verdict([Arm(NONE), Arm(other)])
    assert found.comparisons[0].loads[0].cost == pytest.approx(2.0, abs=0.02)
    assert known_costs(found) == {}


def test_one_drafter_launched_in_two_ways_is_not_two_of_different_origin() -> None:
    cells = [made_cell(step=0.020, length=1.32, k=3)]
    arms = [made_arm(name, "other", cells, 3, drafter="/drafter") for name in ("eager", "graphs")]
    assert verdict([Arm(NONE), *map(Arm, arms)]).suspects == ()


def test_a_drafter_and_its_converted_form_are_one_drafter() -> None:
    arms = [drafter("raw", "pretrained", 1.32), drafter(length=1.31)]
    one = [arm._replace(server=arm.server._replace(drafter=f"/{arm.arm}", origin="/raw")) for arm in arms]
    assert verdict([Arm(NONE), *map(Arm, one)]).suspects == ()
    two = [arm._replace(server=arm.server._replace(drafter=f"/{arm.arm}", origin=f"/{arm.arm}")) for arm in arms]
    assert len(verdict([Arm(NONE), *map(Arm, two)]).suspects) == 1


def test_what_a_drafter_was_converted_from_is_read_from_what_the_conversions_left(tmp_path: Path) -> None:
    def made(name: str, kind: str, source: Path) -> Path:
        place = tmp_path / name
        outputs.claim(str(place), kind, {"source": str(source)})
        return place

    raw = tmp_path / "raw"
    raw.mkdir()
    two = made("two", "convert", made("one", "convert", raw))
    assert origin(str(two)) == origin(str(raw)) == str(raw)
    assert origin("org/of-the-hub") == "org/of-the-hub"
    assert origin(None) is None
    assert origin(str(made("trained", "train", raw))) == str(tmp_path / "trained"), "trained from it: another drafter"
    ring = made("ring", "convert", tmp_path / "back")
    assert origin(str(made("back", "convert", ring))) == str(ring)
    (two / outputs.NAME).write_text("[")
    assert origin(str(two)) == str(two)


def test_two_drafters_of_different_worth_do_not() -> None:
    weak = drafter("pretrained", "pretrained", 1.32)
    assert verdict([Arm(NONE), Arm(weak), Arm(drafter(length=1.55))]).suspects == ()
    assert verdict([Arm(NONE), Arm(drafter("pretrained", "pretrained", 2.4)), Arm(drafter(length=2.4))]).suspects == ()


def test_serving_far_below_validation_is_no_fault_of_the_training() -> None:
    served = drafter(length=1.25, positions=(0.2, 0.04, 0.01))
    assert verdict([Arm(NONE), Arm(served, (0.25, 0.06, 0.01))]).suspects == ()
    (found,) = verdict([Arm(NONE), Arm(served, (0.7, 0.45, 0.3))]).suspects
    assert "position 1 is accepted in 20 % of the steps, and training's validation had 70 %" in found
    assert "not the training" in found


def test_a_first_position_below_a_tenth_is_wiring() -> None:
    (found,) = verdict([Arm(NONE), Arm(drafter(length=1.05, positions=(0.04, 0.01, 0.0)))]).suspects
    assert "under 10 %" in found


# ------------------------------------------------------------------------------------------------------------- break-even


def test_break_even_before_any_training() -> None:
    arms = [
        made_arm(f"length-{length}", "synthetic", [made_cell(1, step=0.02, length=length, k=3)], 3, synthetic_length=length)
        for length in (1.5, 2.5)
    ]
    found = verdict([Arm(NONE), *map(Arm, arms)])
    (curve,) = found.break_even
    assert curve.cost == pytest.approx(2.0, rel=0.02)
    assert curve.needed == pytest.approx(1 / 3, rel=0.04)
    assert [point.set_length for point in curve.points] == [1.5, 2.5]
    assert found.comparisons == (), "what was acted out is no drafter"
    assert found.headline == curve.sentence
    assert known_costs(found) == {("vllm", "/m", 3, 1, "as given"): curve.cost}


def test_step_costs_of_different_k_are_not_averaged() -> None:
    arms = [
        made_arm(f"k{k}", "synthetic", [made_cell(1, step=step, length=2.0, k=k)], k, synthetic_length=2.0)
        for k, step in ((3, 0.02), (7, 0.04))
    ]
    found = verdict([Arm(NONE), *map(Arm, arms)])
    assert [(one.k, round(one.cost or 0, 1)) for one in found.break_even] == [(3, 2.0), (7, 4.0)]


def test_where_no_drafter_can_pay_it_is_said() -> None:
    arm = made_arm("length-2", "synthetic", [made_cell(1, step=0.05, length=2.0, k=3)], 3, synthetic_length=2.0)
    (curve,) = verdict([Arm(NONE), Arm(arm)]).break_even
    assert curve.possible is False
    assert "no drafter with k = 3 can pay here" in curve.sentence


def test_an_earlier_verdict_gives_what_is_to_be_expected() -> None:
    earlier = from_doc(BenchVerdict, to_doc(verdict([Arm(NONE), Arm(drafter(cost=2.0))])))
    found = verdict([Arm(NONE), Arm(drafter(length=1.9), (0.6, 0.3, 0.1))], known_costs=known_costs(earlier))
    assert only(found).foreseen == pytest.approx(2.0 / 2.0, rel=0.02)
    assert not any("nothing was foreseen" in note for note in found.notes)


@pytest.mark.parametrize("served", [{"engine": "sglang"}, {"model": "/other"}, {"k": 5}])
@pytest.mark.parametrize("role", ["trained", "synthetic"])
def test_a_cost_of_another_engine_model_or_k_foresees_nothing(served: dict[str, Any], role: str) -> None:
    known = drafter("earlier", role, cost=2.0)
    base = NONE._replace(server=NONE.server._replace(**{**served, "k": None}))
    earlier = verdict([Arm(base), Arm(known._replace(server=known.server._replace(**served)))])
    assert known_costs(earlier)
    found = verdict([Arm(NONE), Arm(drafter(length=1.9), (0.6, 0.3, 0.1))], known_costs=known_costs(earlier))
    assert only(found).foreseen is None
    (told,) = (note for note in found.notes if "nothing was foreseen" in note)
    assert "the step cost of vllm with /m and k = 3" in told


def test_an_earlier_verdict_that_does_not_tell_its_model_foresees_nothing() -> None:
    doc = to_doc(verdict([Arm(NONE), Arm(drafter(cost=2.0))]))
    for one in doc["comparisons"]:
        del one["model"]
    assert known_costs(from_doc(BenchVerdict, doc)) == {}


def test_without_a_baseline_there_is_no_verdict() -> None:
    assert verdict([Arm(drafter())]).headline == "No verdict: no arm ran without a drafter: there is nothing to compare with."


def test_each_engine_has_its_own_baseline() -> None:
    other_none = made_arm("sg-none", "none", [made_cell(1, step=0.03)], engine="sglang")
    other = made_arm("sg-trained", "trained", [made_cell(1, step=0.06, length=1.3, k=3)], 3, engine="sglang")
    found = verdict([Arm(NONE), Arm(drafter(loads=(1,))), Arm(other_none), Arm(other)])
    assert [(one.base, one.other) for one in found.comparisons] == [
        ("none", "trained"),
        ("none", "sg-none"),
        ("sg-none", "sg-trained"),
    ]
    assert "two engines are compared: vllm and sglang" in found.comparisons[1].notes


def test_a_verdict_survives_its_file() -> None:
    found = verdict([Arm(NONE), Arm(drafter(), (0.2, 0.05, 0.01))])
    assert from_doc(BenchVerdict, to_doc(found)) == found


# ------------------------------------------------------------------------------------------------------------ launch diff


def test_the_launch_diff_names_flags_and_variables_and_hides_secrets() -> None:
    base = BenchServer("vllm", "/m", 8000, argv=("vllm", "serve", "/m", "--port", "8000", "--enforce-eager"),
                       environment={"VLLM_USE_V1": "1", "PATH": "/bin", "HF_TOKEN": "hf_1", "SSH_CLIENT": "a"})  # fmt: skip
    other = base._replace(
        drafter="/d", k=3, argv=("vllm", "serve", "/m", "--port", "8001", "--speculative-config", '{"method":"eagle3"}'),
        environment={"VLLM_USE_V1": "1", "PATH": "/bin", "HF_TOKEN": "hf_2", "SSH_CLIENT": "b", "NCCL_P2P_LEVEL": "SYS"},
    )  # fmt: skip
    found = {name: (one, two) for name, one, two in differences(base, other)}
    assert found == {
        "drafter": (None, "/d"),
        "k": (None, "3"),
        "--enforce-eager": ("", None),
        "--speculative-config": (None, '{"method":"eagle3"}'),
        "env NCCL_P2P_LEVEL": (None, "SYS"),
    }
    assert "hf_1" not in str(differences(base, other))


def test_flags_are_read_as_the_engines_do() -> None:
    assert flags(["vllm", "serve", "/m", "--max_model_len=1k", "-tp", "2"])["--max-model-len"] == "1k"


def test_verdict_words() -> None:
    assert judging.words.faster(2.5) == "2.5 times as fast"
    assert judging.words.faster(1.001) == "as fast"
    assert judging.words.percent(0.004) == "0.4 %"
    assert judging.words.at_load(4, "4k") == "at concurrency 4, context 4k"
