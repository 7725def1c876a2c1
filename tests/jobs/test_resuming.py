"""What a new start of a training goes on from: whole checkpoints only, an interruption too, and nothing is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

from eagletui.jobs import checkpoints
from eagletui.jobs.on_host.resuming import put_in_order, write_state
from tests.jobs.tensor_files import checkpoint


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_nothing_there_is_in_order(tmp_path: Path) -> None:
    assert put_in_order(str(tmp_path / "none")) == []


def test_a_half_written_checkpoint_is_set_aside(tmp_path: Path) -> None:
    """The trainer goes on from the highest number whether it is whole or not."""
    checkpoint(tmp_path / "0", 0, 0, 26)
    broken = checkpoint(tmp_path / "1", 1, 0, 52)
    (broken / "training_state.json").unlink()
    (tmp_path / "incomplete-1").mkdir()  # of an earlier try
    (said,) = put_in_order(str(tmp_path))
    assert names(tmp_path) == {"0", "incomplete-1", "incomplete-1-2"}
    assert "checkpoint 1 is not whole" in said
    assert (tmp_path / "incomplete-1-2" / "model.safetensors").exists()


def test_an_interruption_becomes_the_checkpoint_of_its_epoch(tmp_path: Path) -> None:
    """The trainer never looks at ``interrupted/``."""
    checkpoint(tmp_path / "0", 0, 0, 26)
    checkpoint(tmp_path / "interrupted", 1, 7, 33)
    (said,) = put_in_order(str(tmp_path))
    assert names(tmp_path) == {"0", "1"}
    assert said == "goes on from the interruption: epoch 2, step 33"
    assert json.loads((tmp_path / "1" / "training_state.json").read_text()) == {"epoch": 1, "local_step": 7, "global_step": 33}
    assert put_in_order(str(tmp_path)) == []


def test_an_interruption_is_newer_than_a_checkpoint_within_its_epoch(tmp_path: Path) -> None:
    checkpoint(tmp_path / "1", 1, 5, 31)
    checkpoint(tmp_path / "interrupted", 1, 9, 35)
    put_in_order(str(tmp_path))
    assert names(tmp_path) == {"1"}
    (found,) = checkpoints.epochs(str(tmp_path))
    assert (found.local_step, found.global_step) == (9, 35)


def test_an_interruption_while_it_validated_is_no_step_ahead(tmp_path: Path) -> None:
    checkpoint(tmp_path / "0", 0, 0, 26)
    checkpoint(tmp_path / "interrupted", 0, 26, 26)
    (said,) = put_in_order(str(tmp_path))
    assert names(tmp_path) == {"0", "older-interrupted"}
    assert "no step ahead" in said


def test_an_interruption_before_the_first_step_would_skip_the_epoch(tmp_path: Path) -> None:
    """A state without steps in its epoch means the epoch's end to the trainer."""
    checkpoint(tmp_path / "interrupted", 0, 0, 0)
    put_in_order(str(tmp_path))
    assert names(tmp_path) == {"older-interrupted"}


def test_an_interruption_that_is_not_whole_is_set_aside(tmp_path: Path) -> None:
    checkpoint(tmp_path / "0", 0, 0, 26)
    place = checkpoint(tmp_path / "interrupted", 1, 7, 33)
    (place / "optimizer_state_dict.pt").write_bytes(b"PK\x03\x04 half")
    put_in_order(str(tmp_path))
    assert names(tmp_path) == {"0", "incomplete-interrupted"}


def test_a_state_is_written_whole(tmp_path: Path) -> None:
    write_state(str(tmp_path), 1, 2, 3)
    assert names(tmp_path) == {"training_state.json"}
    assert json.loads((tmp_path / "training_state.json").read_text()) == {"epoch": 1, "local_step": 2, "global_step": 3}


def test_links_and_other_folders_are_no_checkpoints(tmp_path: Path) -> None:
    checkpoint(tmp_path / "0", 0, 0, 26)
    (tmp_path / "epoch0_end").symlink_to("0")
    (tmp_path / "7").symlink_to("0")
    (tmp_path / "9").write_text("a file")
    (tmp_path / "checkpoint_best").symlink_to("0")
    assert [found.name for found in checkpoints.epochs(str(tmp_path))] == ["0"]
    assert checkpoints.best(str(tmp_path)) == str(tmp_path / "0")
    (tmp_path / "checkpoint_best").unlink()
    (tmp_path / "checkpoint_best").symlink_to("5")  # what it led to was removed
    assert checkpoints.best(str(tmp_path)) is None
