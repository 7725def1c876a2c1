"""A training as its supervisor sees it: recorded output and event files, checkpoints as they were left, every way to end."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs import kinds
from eagletui.jobs.base import BadJob
from eagletui.jobs.keys import read_keys
from eagletui.jobs.train_alarms import Alarms
from eagletui.jobs.train_watch import TrainWatcher
from eagletui.jobs.watcher import Outcome
from eagletui.records.training import TRAIN, VAL, TrainingPoint
from tests.jobs import event_files as ef
from tests.jobs.tensor_files import checkpoint

LAB = Path(__file__).parent / "data" / "train_lab"
VALUES = {"python": "/env/bin/python", "target": "/models/t", "data": "/d/prepared", "output": "/d/drafter"}


def spec(values: Mapping[str, Any]) -> dict[str, Any]:
    kind = kinds.kind("train")
    read, wrong = read_keys(kind.keys, {"kind": "train", **VALUES, **values})
    assert wrong == []
    return kind.spec(read, "t-1")


def words(made: Mapping[str, Any]) -> list[str]:
    argv = list(made["argv"])
    return argv[argv.index("--") + 1 :]


# ------------------------------------------------------------------------------------------------------------- the command


def test_the_command_and_what_the_kill_must_wait_for() -> None:
    made = spec({"layers": [2, 30, 58], "from_pretrained": "/d/start", "nproc": 4, "epochs": 3, "lr": 3e-4, "save_best": True})
    assert made["argv"][:3] == ["/env/bin/python", "-m", "eagletui.jobs.on_host.train"]
    assert made["on_host"] is True
    text = " ".join(words(made))
    assert "--verifier-name-or-path /models/t" in text
    assert "--target-layer-ids 2 30 58" in text
    assert "--from-pretrained /d/start" in text
    assert "--save-best" in text
    assert "--save-path" not in text  # --save-best empties where it points to: the program puts it below the output
    # the trainer gives itself 120 s to save, and a second signal in that time kills it
    assert made["graces"][0] >= 130
    assert (made["env"]["COLUMNS"], made["env"]["NO_COLOR"]) == ("400", "1")  # at 80 columns a record wraps to 17 lines


def test_what_the_same_output_may_be_gone_on_with() -> None:
    def inputs(**values: Any) -> Any:
        argv = spec(values)["argv"]
        return json.loads(argv[argv.index("--inputs") + 1])

    assert inputs() == inputs(nproc=8, num_workers=4, log_freq=10, python="/other/python")
    assert inputs() != inputs(lr=1e-5)
    assert inputs() != inputs(epochs=6)
    assert inputs() != inputs(args=["--norm-before-fc"])


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"checkpoint_freq": 2, "epochs": 5}, "the last one would not be saved"),
        ({"checkpoint_freq": 0.5, "save_best": True}, "nothing is saved within an epoch"),
        ({"fsdp": True}, "set nproc"),
        ({"on_missing": "generate"}, "needs the server"),
        ({"args": ["--save-path=/x"]}, "set by the job itself"),
        ({"args": ["--save_path", "/x"]}, "set by the job itself"),
        ({"args": ["--lr", "1"]}, "a key of its own"),
    ],
)
def test_what_would_go_wrong_after_hours_is_refused_at_once(values: dict[str, Any], says: str) -> None:
    with pytest.raises(BadJob, match=says):
        spec(values)


# -------------------------------------------------------------------------------------------------------- a real training


def watcher(tmp_path: Path, **values: Any) -> TrainWatcher:
    output = tmp_path / "drafter"
    output.mkdir(exist_ok=True)
    found = kinds.kind("train").watcher(spec({"output": str(output), "epochs": 3, **values}), str(tmp_path))
    assert isinstance(found, TrainWatcher)
    return found


def put_events(tmp_path: Path, data: bytes, name: str = "events.out.tfevents.1") -> None:
    folder = tmp_path / "drafter" / "tb" / "run"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def put_checkpoint(tmp_path: Path, name: str, *args: Any, **kwargs: Any) -> Path:
    return checkpoint(tmp_path / "drafter" / "checkpoints" / name, *args, **kwargs)


def recorded(tmp_path: Path, **values: Any) -> TrainWatcher:
    shutil.copytree(LAB / "tb", tmp_path / "drafter" / "tb" / "run")
    watch = watcher(tmp_path, **values)
    data = (LAB / "train.log").read_bytes()
    for number, at in enumerate(range(0, len(data), 3000)):
        watch.feed(data[at : at + 3000], 10.0 + number)
        watch.look(10.0 + number)
    return watch


@pytest.mark.parametrize(("nproc", "unit"), [(1, "tok/s"), (8, "tok/s a card")])
def test_of_several_processes_the_tokens_of_one_are_logged(tmp_path: Path, nproc: int, unit: str) -> None:
    found = recorded(tmp_path, nproc=nproc).work(100.0)
    assert found is not None
    assert {counter.name: counter.unit for counter in found.counters}["tokens"] == unit


def test_the_labs_training_crashed_after_success_and_is_a_success(tmp_path: Path) -> None:
    """On a CPU the trainer fails while it cleans up: exit status 1 with everything written."""
    watch = recorded(tmp_path)
    val = json.loads((LAB / "val_metrics.json").read_text())
    for epoch, step in ((0, 26), (1, 53), (2, 79)):
        put_checkpoint(tmp_path, str(epoch), epoch, 0, step, val=val if epoch == 2 else {"loss_epoch": 12.0})
    (tmp_path / "drafter" / "checkpoints" / "checkpoint_best").symlink_to("2")
    ended = watch.outcome(1, False)
    assert ended.ok is True
    assert "finished: 3 of 3 epochs, 79 steps, predicted length 1.277" in ended.why
    assert "empty_cache" in ended.why
    assert ended.result["finished"] is True
    assert ended.result["best"].endswith("checkpoints/2")
    assert [round(share, 3) for share in ended.result["val"]["full_acc"]] == [0.219, 0.048, 0.01]
    assert round(ended.result["val"]["loss"], 3) == 10.795
    assert round(ended.result["predicted_length"], 3) == 1.277
    points = watch.samples()
    assert len(points) == 82
    assert set(points[0]) == {"wall", "step", "epoch", "split", "values"}
    assert [point["epoch"] for point in points if point["split"] == VAL] == [0, 1, 2]
    notes = watch.notes()
    assert "epoch 3 of 3 is done" in notes
    assert "the best so far: epoch 3" in notes
    assert any(
        "validation after epoch 3: loss 10.795, accuracy 0.219/0.048/0.010, predicted length 1.277" in note for note in notes
    )
    counters = {counter.name: counter for counter in watch.work(100.0).counters}  # type: ignore[union-attr]
    assert round(counters["accuracy 1"].value, 1) > 10
    assert round(counters["predicted length"].value, 6) == round(ended.result["predicted_length"], 6)


def test_steps_and_what_the_total_rests_on(tmp_path: Path) -> None:
    watch = watcher(tmp_path)
    watch.feed(b"INFO Training epoch 1/3 started\n", 0.0)
    data = b"".join(ef.train_step(float(step), step, 0, (3.0,)) for step in range(26))
    put_events(tmp_path, data)
    watch.look(1.0)
    work = watch.work(1.0)
    assert work is not None
    assert (work.stage, work.done, work.total, work.unit) == ("training epoch 1 of 3", 26.0, None, "steps")
    # the trainer itself has told its number of batches
    watch.feed(b'{"eagletui": "progress", "stage": "x", "total": 79, "done": 0, "unit": "steps"}\n', 2.0)
    assert watch.work(2.0).total == 79.0  # type: ignore[union-attr]

    other = watcher(tmp_path)
    other.feed(b"Training epoch 1/3 started\nTraining epoch 1/3 completed\nTraining epoch 2/3 started\n", 0.0)
    put_events(tmp_path, data + ef.train_step(30.0, 26, 1, (3.0,)))
    other.look(1.0)
    work = other.work(1.0)
    assert work is not None
    assert (work.total, work.basis) == (78.0, "as many steps an epoch as in the first")


# --------------------------------------------------------------------------------------------------------- how it may end


def end(tmp_path: Path, rc: int | None, killed: bool, output: str = "", **values: Any) -> Outcome:
    watch = watcher(tmp_path, **values)
    watch.feed(output.encode(), 1.0)
    return watch.outcome(rc, killed)


RECEIVED = "WARNING  Received SIGTERM — interrupting training to save checkpoint. Send again to force immediate exit.\n"
SAVED = "INFO     Interrupt checkpoint saved to '/d/drafter/checkpoints/interrupted'\n"


def test_a_graceful_stop_exits_with_0_and_is_not_finished(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, "0", 0, 0, 26)
    put_checkpoint(tmp_path, "interrupted", 1, 7, 33)
    ended = end(tmp_path, 0, True, RECEIVED + SAVED)
    assert ended.ok is None
    assert ended.result["finished"] is False
    assert "stopped on request after 1 of 3 epochs" in ended.why
    assert "saved, and goes on from there" in ended.why
    assert ended.result["interrupted"].endswith("checkpoints/interrupted")


def test_a_stop_by_somebody_else_is_a_failure_although_it_exits_with_0(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, "interrupted", 0, 7, 7)
    ended = end(tmp_path, 0, False, RECEIVED + SAVED)
    assert ended.ok is False
    assert ended.why.startswith("stopped by SIGTERM after 0 of 3 epochs")


def test_a_stop_whose_save_failed_says_so(tmp_path: Path) -> None:
    ended = end(tmp_path, 1, False, RECEIVED + "ERROR Interrupt checkpoint save timed out after 120s — forcing exit\n")
    assert ended.ok is False
    assert "the save failed" in ended.why
    assert "nothing was saved" in ended.why


def test_exit_0_without_the_last_epoch_is_a_failure(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, "0", 0, 0, 26)
    ended = end(tmp_path, 0, False)
    assert ended.ok is False
    assert "before it had finished" in ended.why


def test_a_checkpoint_without_its_state_does_not_count(tmp_path: Path) -> None:
    """It is written in place, file after file, its state last."""
    for epoch in range(3):
        put_checkpoint(tmp_path, str(epoch), epoch, 0, 26 * (epoch + 1))
    (tmp_path / "drafter/checkpoints/2/training_state.json").write_text('{"epoch": 2, "local')
    ended = end(tmp_path, -9, False)
    assert ended.ok is False
    assert ended.result["checkpoint"].endswith("/1")
    assert ended.result["incomplete"] == [str(tmp_path / "drafter/checkpoints/2")]


@pytest.mark.parametrize("what", ["model.safetensors", "optimizer_state_dict.pt"])
def test_a_checkpoint_with_a_file_cut_short_does_not_count(tmp_path: Path, what: str) -> None:
    place = put_checkpoint(tmp_path, "2", 2, 0, 79)
    data = (place / what).read_bytes()
    (place / what).write_bytes(data[:-5])
    ended = end(tmp_path, 0, False)
    assert ended.ok is False
    assert "incomplete" in ended.result


def test_finished_although_it_was_killed_afterwards(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, "2", 2, 0, 79)
    assert end(tmp_path, -15, True).ok is True


def test_max_steps_is_the_end_in_whatever_epoch(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, "0", 0, 0, 10)
    assert end(tmp_path, 0, False, max_steps=10).ok is True
    assert end(tmp_path, 0, False, max_steps=11, epochs=2).ok is False


def test_with_save_best_only_the_best_is_left(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, "1", 1, 0, 52, val={"loss_epoch": 9.0})
    (tmp_path / "drafter/checkpoints/checkpoint_best").symlink_to("1")
    assert end(tmp_path, 0, False, "Training epoch 2/3 completed\n", save_best=True).ok is False
    ended = end(tmp_path, 0, False, "Training epoch 3/3 completed\n", save_best=True)
    assert ended.ok is True
    assert ended.result["best"].endswith("/1")


def test_a_drafter_whose_loss_is_no_number_is_no_success(tmp_path: Path) -> None:
    put_checkpoint(tmp_path, "2", 2, 0, 3)
    put_events(tmp_path, b"".join(ef.train_step(float(step), step, 0, (float("nan"),)) for step in range(3)))
    ended = end(tmp_path, 0, False)
    assert ended.ok is False
    assert "no number since step 2" in ended.why


def test_a_failure_tells_its_own_words(tmp_path: Path) -> None:
    said = '{"eagletui": "result", "why": "tensorboard is not installed beside /env/bin/python"}\n'
    assert "tensorboard is not installed" in end(tmp_path, 2, False, said).why
    trace = "│ x │\nValueError: Verifier hidden size 7168 does not match draft hidden size 576.\n"
    assert "ValueError: Verifier hidden size 7168" in end(tmp_path, 1, False, trace).why


def test_a_dry_run_is_there_or_not(tmp_path: Path) -> None:
    assert end(tmp_path, 0, False, dry_run=True).ok is False
    checkpoint(tmp_path / "drafter" / "checkpoints", 0)
    ended = end(tmp_path, 0, False, dry_run=True)
    assert ended.ok is True
    assert ended.result["checkpoint"] == str(tmp_path / "drafter" / "checkpoints")


# -------------------------------------------------------------------------------------------------------------- the alarms


def points(
    count: int, start: int = 0, epoch: int = 0, loss: float = 3.0, every: float = 0.5, **more: float
) -> list[TrainingPoint]:
    values = {"loss": loss, "fetch_ms": 10.0, "step_ms": 100.0, "lr": 1e-4, "full_acc_0": 0.2, **more}
    return [TrainingPoint(every * step, step, epoch, TRAIN, values) for step in range(start, start + count)]


def validations(*losses: float) -> list[TrainingPoint]:
    return [TrainingPoint(0.0, 10 * epoch, epoch, VAL, {"loss": loss}) for epoch, loss in enumerate(losses)]


def alarms(*batches: list[TrainingPoint], boot: float = 1.0, phase: str = "training", broken: Any = None) -> dict[str, str]:
    found = Alarms()
    for batch in batches:
        found.take(batch, 1.0)
    return found.look(boot, 0.0, phase, broken or {})


def test_a_healthy_training_is_quiet() -> None:
    falling = [point._replace(values=dict(point.values, loss=5.0 - 0.004 * point.step)) for point in points(600)]
    assert alarms(falling, validations(4.0, 3.5, 3.2)) == {}


def test_starvation() -> None:
    assert "waits for data" in alarms(points(30, fetch_ms=40.0))["data"]
    assert alarms(points(30, fetch_ms=25.0)) == {}
    # the first step of a start waits for the loader's processes: no starvation
    assert alarms([*points(1, fetch_ms=60_000.0, step_ms=61_000.0), *points(20, start=1)]) == {}
    # after a resume the steps begin again
    assert alarms(points(40, start=50), [*points(1, start=45, fetch_ms=60_000.0, step_ms=61_000.0), *points(20, start=46)]) == {}


def test_plateaus() -> None:
    assert "has not fallen for 2 epochs (best 3.000 after epoch 1)" in alarms(validations(3.0, 3.1, 3.05))["plateau"]
    assert alarms(validations(3.0, 3.1)) == {}
    assert "has not fallen for 400 steps" in alarms(points(500))["plateau"]
    # at the end of its schedule a training moves little
    assert alarms(points(10), points(490, start=10, lr=1e-6)) == {}


def test_nothing_right_means_that_something_does_not_fit() -> None:
    assert "do not fit" in alarms(points(300, full_acc_0=0.0))["accuracy"]


def test_no_numbers_and_samples_that_cannot_be_used() -> None:
    assert "training loss is no number since step 7" in alarms(broken={TRAIN: 7})["loss"]
    assert alarms(points(3, error_records=2.0))["samples"].startswith("6 could not be used")


def test_a_stall_is_ten_median_steps_and_never_a_short_silence() -> None:
    slow = points(20, every=20.0)
    assert "stall" not in alarms(slow, boot=1.0 + 199.0)
    assert "a step takes 20.0 s" in alarms(slow, boot=1.0 + 201.0)["stall"]
    fast = points(20, every=0.01)
    assert "stall" not in alarms(fast, boot=1.0 + 29.0)
    assert "stall" in alarms(fast, boot=1.0 + 31.0)
    # to validate and to save takes its time
    assert "stall" not in alarms(fast, boot=1.0 + 600.0, phase="pause")
    assert "stall" in alarms(fast, boot=1.0 + 1000.0, phase="pause")
    assert "stall" not in alarms(boot=1700.0)
    assert "since the start" in alarms(boot=1900.0)["stall"]


def test_troubles_of_the_event_files_are_told(tmp_path: Path) -> None:
    watch = watcher(tmp_path)
    put_events(tmp_path, ef.train_step(1.0, 0, 0, (3.0,)) + bytes(40))
    watch.look(1.0)
    assert any(trouble.startswith("events: ") for trouble in watch.troubles())


def test_a_supervisor_that_takes_over_tells_no_step_twice(tmp_path: Path) -> None:
    data = [ef.train_step(float(10 + step), step, 0, (3.0,)) for step in range(5)]
    put_events(tmp_path, b"".join(data[:3]))
    first = watcher(tmp_path)
    first.look(1.0)
    with (tmp_path / "samples.jsonl").open("w") as file:
        file.writelines(json.dumps(point) + "\n" for point in first.samples())
    put_events(tmp_path, b"".join(data))
    second = watcher(tmp_path)
    second.look(2.0)
    assert [point["step"] for point in second.samples()] == [3, 4]
    assert second.work(2.0).done == 5.0  # type: ignore[union-attr]


def test_what_a_pipeline_may_name() -> None:
    kind = kinds.kind("train")
    assert kind.made({"output": "/o"})["best"] == "/o/checkpoints/checkpoint_best"
    assert kind.made({"output": "/o", "dry_run": True})["best"] == "/o/checkpoints"


def test_a_start_that_takes_long_is_no_stall_although_earlier_steps_were_short(tmp_path: Path) -> None:
    """After a resume its readers start and its kernels are compiled; the curve is already there."""
    now = time.time()
    put_events(tmp_path, b"".join(ef.train_step(now - 500 + step / 10, step, 0, (3.0,)) for step in range(20)))
    watch = watcher(tmp_path)
    watch.look(0.0)
    watch.feed(b"Training epoch 1/3 started\n", 1.0)
    watch.look(100.0)
    assert watch.troubles() == ()
    watch.look(1000.0)
    assert any(trouble.startswith("stall: ") for trouble in watch.troubles())
    put_events(tmp_path, ef.train_step(now + 100, 20, 0, (3.0,)), "events.out.tfevents.2")
    watch.look(1001.0)
    assert watch.troubles() == ()
    watch.look(1040.0)
    assert any(trouble.startswith("stall: ") for trouble in watch.troubles())


def test_the_pace_is_that_of_todays_steps(tmp_path: Path) -> None:
    now = time.time()
    put_events(tmp_path, b"".join(ef.train_step(now - 500 + step, step, 0, (3.0,)) for step in range(20)))
    watch = watcher(tmp_path)
    watch.feed(b'{"eagletui": "progress", "stage": "x", "total": 40, "done": 20, "unit": "steps"}\n', 0.0)
    watch.look(0.0)
    assert (watch.work(0.0).done, watch.work(0.0).rate) == (20.0, None)  # type: ignore[union-attr]
    for step, boot in ((20, 300.0), (21, 302.0), (25, 310.0)):
        put_events(tmp_path, ef.train_step(now + boot, step, 0, (3.0,)), f"events.out.tfevents.2{step}")
        watch.look(boot)
    work = watch.work(310.0)
    assert work is not None
    assert (work.rate, work.remaining) == (0.5, 28.0)
