"""The program around `speculators train`, with stand-ins for torch and speculators that behave as their sources do."""

from __future__ import annotations

import json
import shutil
import sys
import types
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eagletui.jobs import checkpoints
from eagletui.jobs.on_host import cpu_torch
from eagletui.jobs.on_host import train as program
from tests.jobs.tensor_files import checkpoint


class Config(NamedTuple):
    num_epochs: int
    save_path: str
    max_steps: int | None = None
    save_best: bool = False


class Interrupted(Exception):
    pass


class Sampler:
    """Each epoch packs its samples anew, so the number of batches differs."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.epoch = sizes, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Loader:
    def __init__(self, sizes: list[int]) -> None:
        self.batch_sampler = Sampler(sizes)

    def __len__(self) -> int:
        return self.batch_sampler.sizes[self.batch_sampler.epoch % len(self.batch_sampler.sizes)]


class Weight(NamedTuple):
    dtype: str

    def is_floating_point(self) -> bool:
        return self.dtype != "int64"


class Model:
    def __init__(self, *dtypes: str) -> None:
        self.weights = [Weight(dtype) for dtype in dtypes]

    def parameters(self) -> list[Weight]:
        return self.weights

    def float(self) -> None:
        self.weights = [Weight("float32") if weight.is_floating_point() else weight for weight in self.weights]


class Trainer:
    """What speculators 0.9 does around a step: see its trainer.py."""

    stop_at: int | None = None
    losses: tuple[float, ...] = (3.0, 2.0, 1.0, 0.5, 0.4)

    def __init__(self, model: Any, config: Config, train_loader: Loader, val_loader: Any = None) -> None:
        self.config, self.train_loader, self.rank = config, train_loader, 0
        path = Path(config.save_path)
        path.mkdir(parents=True, exist_ok=True)
        (path / "run.yaml").write_text("train: {}\n")
        (path / "train_command.txt").write_text("speculators train\n")
        self.checkpointer = types.SimpleNamespace(path=path)
        self.current_epoch = self.global_step = self._resume_local_step = 0
        self.best = float("inf")
        numbers = [int(entry.name) for entry in path.iterdir() if entry.name.isdigit()]
        if numbers:
            state = json.loads((path / str(max(numbers)) / "training_state.json").read_text())
            middle = state["local_step"] > 0
            self.current_epoch = state["epoch"] if middle else state["epoch"] + 1
            self._resume_local_step = state["local_step"] if middle else 0
            self.global_step = state["global_step"]

    def train_epoch(self, epoch: int) -> None:
        self.train_loader.batch_sampler.set_epoch(epoch)
        skip = self._resume_local_step if epoch == self.current_epoch else 0
        self._resume_local_step = 0
        for _ in range(len(self.train_loader) - skip):
            if self.global_step == self.stop_at:
                raise Interrupted
            self.global_step += 1
            if self.config.max_steps is not None and self.global_step >= self.config.max_steps:
                break

    def maybe_save_checkpoint(self, epoch: int | str, local_step: int = 0) -> None:
        if epoch != "interrupted" and self.config.save_best:
            return
        self._save(epoch)
        if isinstance(epoch, int):
            state = {"epoch": epoch, "local_step": local_step, "global_step": self.global_step}
            (self.checkpointer.path / str(epoch) / "training_state.json").write_text(json.dumps(state))

    def _save(self, epoch: int | str) -> None:
        folder = self.checkpointer.path / str(epoch)
        kept = folder / "training_state.json"
        state = kept.read_text() if kept.exists() else None
        checkpoint(folder, 0)
        kept.unlink()
        if state is not None:
            kept.write_text(state)

    def maybe_update_best(self, epoch: int, metrics: Any) -> None:
        if self.losses[epoch] >= self.best:
            return
        self.best = self.losses[epoch]
        if self.config.save_best:
            self._save(epoch)
            for entry in self.checkpointer.path.iterdir():
                if entry.name not in (str(epoch), "train_command.txt"):
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    def run_training(self) -> None:
        try:
            for epoch in range(self.current_epoch, self.config.num_epochs):
                self.train_epoch(epoch)
                self.maybe_save_checkpoint(epoch)
                self.maybe_update_best(epoch, {})
        except Interrupted:
            self.maybe_save_checkpoint("interrupted")


@pytest.fixture
def cli(monkeypatch: Any) -> Any:
    made = types.ModuleType("speculators.train.cli")
    made.Trainer = Trainer  # type: ignore[attr-defined]
    for name in ("speculators", "speculators.train"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "speculators.train.cli", made)
    torch = types.ModuleType("torch")
    torch.float32 = "float32"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    return made


def told(capfd: Any, kind: str) -> list[dict[str, Any]]:
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith('{"eagletui"')]
    return [doc for doc in map(json.loads, lines) if doc["eagletui"] == kind]


def train(cli: Any, tmp_path: Path, sizes: list[int], stop_at: int | None = None, **config: Any) -> Any:
    cli.Trainer = Trainer
    program._watch_trainer(str(tmp_path))
    made = cli.Trainer(Model(), Config(save_path=str(tmp_path / "checkpoints"), **config), Loader(sizes))
    made.stop_at = stop_at
    made.run_training()
    return made


def test_max_steps_is_exact_in_several_epochs(cli: Any, tmp_path: Path, capfd: Any) -> None:
    """The trainer looks at --max-steps only after a step, so each epoch more would add one."""
    plain = Trainer(None, Config(5, str(tmp_path / "plain"), max_steps=7), Loader([5]))
    plain.run_training()
    assert plain.global_step == 10
    made = train(cli, tmp_path, [5], num_epochs=5, max_steps=7)
    assert made.global_step == 7
    assert told(capfd, "result")[-1] == {"eagletui": "result", "finished": True, "steps": 7, "epochs": 2}


def test_the_total_is_the_trainers_own_count(cli: Any, tmp_path: Path, capfd: Any) -> None:
    train(cli, tmp_path, [5, 4], num_epochs=3)
    assert [(doc["done"], doc["total"]) for doc in told(capfd, "progress")] == [(0, 15), (5, 13), (9, 14)]


def test_an_interruption_has_a_state_and_is_gone_on_with_to_the_step(cli: Any, tmp_path: Path, capfd: Any) -> None:
    made = train(cli, tmp_path, [5], stop_at=8, num_epochs=3)
    assert made.global_step == 8
    assert told(capfd, "result") == []  # it returns without an error and is not finished
    found = checkpoints.interrupted(str(tmp_path / "checkpoints"))
    assert found is not None
    assert (found.problem, found.epoch, found.local_step, found.global_step) == (None, 1, 3, 8)
    program.put_in_order(str(tmp_path / "checkpoints"))
    again = train(cli, tmp_path, [5], num_epochs=3)
    assert again.current_epoch == 1
    assert again.global_step == 15  # nothing twice, nothing left out
    assert told(capfd, "result")[-1]["finished"] is True
    # a second interruption, after a resume in the middle of an epoch
    other = tmp_path / "other"
    train(cli, other, [5], stop_at=7, num_epochs=2)
    program.put_in_order(str(other / "checkpoints"))
    train(cli, other, [5], stop_at=9, num_epochs=2)
    found = checkpoints.interrupted(str(other / "checkpoints"))
    assert found is not None
    assert (found.local_step, found.global_step) == (4, 9)


def test_a_checkpoint_that_is_written_over_is_not_whole_meanwhile(cli: Any, tmp_path: Path) -> None:
    train(cli, tmp_path, [5], num_epochs=1)
    seen: list[bool] = []
    cli.Trainer = type("Watching", (Trainer,), {"_save": lambda self, epoch: seen.append(_state(tmp_path, epoch).exists())})
    program._watch_trainer(str(tmp_path))
    made = cli.Trainer(Model(), Config(1, str(tmp_path / "checkpoints")), Loader([5]))
    made.maybe_save_checkpoint(0, local_step=2)
    assert seen == [False]


def test_a_drafter_to_go_on_from_is_trained_in_32_bits(cli: Any, tmp_path: Path, capfd: Any) -> None:
    """It is read in the 16 of its file, where the small steps of a fine-tuning round to nothing."""
    program._watch_trainer(str(tmp_path))
    for model, changed in ((Model("bfloat16", "int64"), True), (Model("float32", "int64"), False)):
        cli.Trainer(model, Config(1, str(tmp_path / "checkpoints")), Loader([1]))
        assert [weight.dtype for weight in model.weights] == ["float32", "int64"]
        assert bool(told(capfd, "note")) is changed


def _state(tmp_path: Path, epoch: int) -> Path:
    return tmp_path / "checkpoints" / str(epoch) / "training_state.json"


def test_save_best_keeps_the_configuration_and_gets_a_state(cli: Any, tmp_path: Path) -> None:
    made = train(cli, tmp_path, [5], num_epochs=3, save_best=True)
    assert made.global_step == 15
    left = {entry.name for entry in (tmp_path / "checkpoints").iterdir()}
    assert left == {"2", "train_command.txt"}  # run.yaml is gone from there ...
    assert (tmp_path / "run.yaml").exists()  # ... and lies out of its reach
    (found,) = checkpoints.epochs(str(tmp_path / "checkpoints"))
    assert (found.problem, found.epoch, found.global_step) == (None, 2, 15)


def test_tensorboard_is_missed_before_anything_starts(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr(program, "find_spec", lambda name: None if name == "tensorboard" else name)
    assert program.main(["--output", str(tmp_path / "out"), "--", "--lr", "1"]) == 2
    (result,) = told(capfd, "result")
    assert "tensorboard is not installed" in result["why"]
    assert f"{sys.executable} -m pip install tensorboard" in result["why"]
    assert not (tmp_path / "out").exists()
    assert program._missing(["--dry-run"]) is None  # nothing is logged then


def test_other_inputs_are_refused(tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr(program, "find_spec", lambda name: name)
    monkeypatch.setattr(program, "put_in_order", lambda path: (_ for _ in ()).throw(SystemExit(7)))
    data = tmp_path / "prepared"
    data.mkdir()
    (data / "data-0.arrow").write_bytes(b"rows")

    def start(**values: Any) -> int:
        inputs = json.dumps({"values": values, "paths": {"data": str(data)}})
        return program.main(["--output", str(tmp_path / "out"), "--inputs", inputs, "--"])

    for _ in range(2):
        with pytest.raises(SystemExit):
            start(lr=1.0)
    (data / "d2t-8192.npy").write_bytes(b"the trainer's own")
    with pytest.raises(SystemExit):
        start(lr=1.0)
    assert start(lr=2.0) == 2
    assert "lr was 1.0 and is 2.0" in told(capfd, "result")[-1]["why"]
    (data / "data-0.arrow").write_bytes(b"others")
    assert start(lr=1.0) == 2
    assert "data files" in told(capfd, "result")[-1]["why"]


@pytest.mark.parametrize("knows", [True, False])
def test_torchrun_waits_as_long_as_the_trainer_saves(monkeypatch: Any, capfd: Any, knows: bool) -> None:
    """Its own 30 s would kill a worker that saves; and a signal must go to the launcher once, so this process becomes it."""
    run = types.ModuleType("torch.distributed.run")
    run.get_args_parser = lambda: types.SimpleNamespace(format_help=lambda: "--shutdown-timeout" if knows else "")  # type: ignore[attr-defined]
    for name in ("torch", "torch.distributed"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "torch.distributed.run", run)
    called: list[list[str]] = []
    monkeypatch.setattr(program.os, "execv", lambda path, argv: called.append(argv))
    program._become_torchrun(types.SimpleNamespace(nproc=4, output="/o"), ["--lr", "1"])
    (argv,) = called
    assert argv[1:6] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    assert argv[-5:] == ["--output", "/o", "--", "--lr", "1"]
    assert ("--shutdown-timeout" in argv) is knows
    if knows:
        assert int(argv[argv.index("--shutdown-timeout") + 1]) >= 130
    else:
        assert "what takes longer to save is lost" in told(capfd, "note")[0]["text"]


def test_code_of_a_configuration_is_allowed_everywhere_or_nowhere(monkeypatch: Any) -> None:
    """Of the places where speculators reads a target's configuration two do not pass the permission on."""
    seen: list[Any] = []

    class Auto:
        @classmethod
        def from_pretrained(cls, name: str, **kwargs: Any) -> None:
            seen.append((name, kwargs))

    made = types.ModuleType("transformers")
    made.AutoConfig = Auto  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", made)
    Auto.from_pretrained("a")
    program._trust_everywhere()
    Auto.from_pretrained("b", trust_remote_code=False)
    assert seen == [("a", {}), ("b", {"trust_remote_code": True})]


def test_what_a_cpu_needs_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    slow.write_text("flags : fpu avx2\n")
    fast.write_text("flags : fpu avx512_bf16\n")
    words = cpu_torch.cpu_words(["--lr", "1"], str(slow))
    assert words == [
        *("--lr", "1", "--draft-attn-impl", "sdpa", "--loss-implementation", "eager"),
        *("--num-workers", "1", "--hidden-states-dtype", "float32"),
    ]
    assert "--hidden-states-dtype" not in cpu_torch.cpu_words([], str(fast))
    assert cpu_torch.cpu_words(["--draft-attn-impl=eager"], str(fast)).count("sdpa") == 0
