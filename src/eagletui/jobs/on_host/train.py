"""``speculators train``, with what it leaves out: a resume from whole checkpoints only, also from an interruption, and a state
in every checkpoint; exactly ``--max-steps`` steps; targets whose configuration is code; and a CPU where there is no accelerator.

``PYTHON -m eagletui.jobs.on_host.train --output DIR [--nproc N] [--inputs JSON] -- WORDS`` with the words of `speculators train`.
In DIR: ``checkpoints/`` (its --save-path), ``tb/run/`` (its events), ``run.yaml``. With several processes this one becomes
torchrun, so that a signal to it is a signal to the launcher.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Dict, Optional, Sequence

from eagletui.jobs.on_host import telling
from eagletui.jobs.on_host.cpu_torch import answer_for_cpu, cpu_words, has_accelerator
from eagletui.jobs.on_host.resuming import put_in_order, write_state
from eagletui.jobs.outputs import NotOurs, claim

SAVE_SECONDS = 150
"""How long torchrun waits for its workers after a signal: the trainer gives itself 120 to save, torchrun's own default is 30."""


def main(argv: Sequence[str]) -> int:
    """The exit status: 0 as the trainer's own, 2 when nothing was begun."""
    options, words = _options(argv)
    checkpoints = os.path.join(options.output, "checkpoints")
    if not options.worker:
        problem = _missing(words)
        if problem is None and options.inputs:
            problem = _claim(options)
        if problem is not None:
            telling.say("result", why=problem)
            return 2
        for line in put_in_order(checkpoints):
            telling.say("note", text=line)
        if options.nproc > 1:
            _become_torchrun(options, words)
    if not has_accelerator():
        answer_for_cpu()
        words = cpu_words(words)
    if "--trust-remote-code" in words:
        _trust_everywhere()
    if "--mask-token-id" not in words and _value(words, "--speculator-type") in (None, "eagle3"):
        # eagle3 has no use for that token, but to find it the processor of a composed target (images too) would be loaded
        words += ["--mask-token-id", "0"]
    dry = "--dry-run" in words
    words += ["--save-path", checkpoints]
    if not dry:
        words += ["--logger", "tensorboard", "--log-dir", os.path.join(options.output, "tb"), "--run-name", "run"]
    _watch_trainer(options.output)
    sys.argv = ["speculators", *words]
    config: Any = import_module("speculators.train.config").TrainConfig
    import_module("speculators.train.cli").main(config.resolve(words))
    return 0


def _options(argv: Sequence[str]) -> Any:
    at = list(argv).index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(prog="train")
    parser.add_argument("--output", required=True)
    parser.add_argument("--nproc", type=int, default=1)
    parser.add_argument("--inputs", default="")
    parser.add_argument("--worker", action="store_true")
    return parser.parse_args(list(argv[:at])), list(argv[at + 1 :])


def _value(words: Sequence[str], flag: str) -> Optional[str]:
    for at, word in enumerate(words):
        if word.startswith(flag + "="):
            return word[len(flag) + 1 :]
        if word == flag and at + 1 < len(words):
            return words[at + 1]
    return None


def _missing(words: Sequence[str]) -> Optional[str]:
    """Why the trainer could not even start, and what to do."""
    for package, why in (("speculators", "the trainer"), ("tensorboard", "its curves")):
        if package == "tensorboard" and "--dry-run" in words:
            continue
        if find_spec(package) is None:
            return "%s is not installed beside %s, and %s needs it: %s -m pip install %s" % (
                package,
                sys.executable,
                why,
                sys.executable,
                package,
            )
    return None


def _claim(options: Any) -> Optional[str]:
    from eagletui.jobs.on_host.inputs import facts  # reads the data set's files: only the first process does

    try:
        claim(options.output, "train", facts(options.inputs), "eagletui train")
    except NotOurs as error:
        return str(error)
    except (OSError, ValueError) as error:
        return "the output cannot be begun: %s" % error
    return None


def _become_torchrun(options: Any, words: Sequence[str]) -> None:
    run: Any = import_module("torch.distributed.run")
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.nproc)]
    if "--shutdown-timeout" in run.get_args_parser().format_help():
        argv += ["--shutdown-timeout", str(SAVE_SECONDS)]
    else:
        telling.say("note", text="this torchrun kills its workers 30 s after a stop: what takes longer to save is lost")
    argv += ["-m", "eagletui.jobs.on_host.train", "--worker", "--output", options.output, "--", *words]
    sys.stdout.flush()
    os.execv(sys.executable, argv)  # noqa: S606 - our own interpreter with a list of words


def _trust_everywhere() -> None:
    """speculators 0.9 reads a target's configuration in four places and passes the permission on in two."""
    auto: Any = import_module("transformers").AutoConfig
    read = auto.from_pretrained

    def trusting(*args: Any, **kwargs: Any) -> Any:
        kwargs["trust_remote_code"] = True
        return read(*args, **kwargs)

    auto.from_pretrained = trusting


def _watch_trainer(output: str) -> None:
    """Have the command use a trainer that tells where it is and leaves a state in every checkpoint."""
    cli: Any = import_module("speculators.train.cli")
    base: Any = cli.Trainer
    tell = telling.Teller("steps")

    class Trainer(base):  # type: ignore[misc]
        def __init__(self, model: Any, config: Any, train_loader: Any, val_loader: Any = None) -> None:
            if config.max_steps is not None:
                # each epoch beyond the last needed one would add a step, for it looks only after a step
                config = config._replace(num_epochs=min(config.num_epochs, _epochs_for(train_loader, config.max_steps)))
            if _to_float32(model) and os.environ.get("RANK", "0") == "0":
                telling.say("note", text="the drafter was read in 16 bits and is trained in 32, as one from nothing is")
            super().__init__(model, config, train_loader, val_loader)
            self._begun = {"epoch": self.current_epoch, "step": self.global_step, "local": 0}
            self._complete = self.current_epoch >= config.num_epochs  # all was done before
            if self.rank == 0:
                _keep_config(output)

        def train_epoch(self, epoch: int, **kwargs: Any) -> None:
            ahead = getattr(self, "_resume_local_step", 0) if epoch == self.current_epoch else 0
            self._begun = {"epoch": epoch, "step": self.global_step, "local": ahead}
            if hasattr(self.train_loader.batch_sampler, "set_epoch"):
                self.train_loader.batch_sampler.set_epoch(epoch)  # its number of batches is the epoch's only from then on
            if self.rank == 0:
                steps = len(self.train_loader)
                left = steps - ahead + steps * (self.config.num_epochs - epoch - 1)
                total = self.global_step + left
                if self.config.max_steps is not None:
                    total = min(total, self.config.max_steps)
                tell.stage("training epoch %d of %d" % (epoch + 1, self.config.num_epochs), total=total, done=self.global_step)
            super().train_epoch(epoch, **kwargs)

        def maybe_save_checkpoint(self, epoch: Any, local_step: int = 0) -> None:
            folder = str(self.checkpointer.path / str(epoch))
            if self.rank == 0 and os.path.isdir(folder):
                # written over file after file: without its state it counts as half written until the new one is there
                _remove(os.path.join(folder, "training_state.json"))
            super().maybe_save_checkpoint(epoch, local_step)
            if epoch == "interrupted" and self.rank == 0:
                here = self._begun
                write_state(folder, here["epoch"], here["local"] + self.global_step - here["step"], self.global_step)

        def maybe_update_best(self, epoch: int, val_metrics: Optional[Dict[str, float]]) -> None:
            super().maybe_update_best(epoch, val_metrics)
            self._complete = epoch == self.config.num_epochs - 1
            folder = str(self.checkpointer.path / str(epoch))
            if self.config.save_best and self.rank == 0 and os.path.isdir(folder):
                write_state(folder, epoch, 0, self.global_step)  # with --save-best the trainer itself writes none

        def run_training(self) -> None:
            super().run_training()
            if self.rank == 0 and self._complete:  # it returns just so after an interruption
                telling.say("result", finished=True, steps=self.global_step, epochs=self.config.num_epochs)

    cli.Trainer = Trainer


def _to_float32(model: Any) -> bool:
    """speculators keeps its weights in 32 bits, but reads a drafter to go on from in those of its file: in bfloat16 the small
    steps of a fine-tuning round to nothing. Whether there was something to change."""
    torch: Any = import_module("torch")
    short = [weight for weight in model.parameters() if weight.is_floating_point() and weight.dtype != torch.float32]
    if short:
        model.float()
    return bool(short)


def _epochs_for(loader: Any, steps: int) -> int:
    """The epochs that this many steps take; each epoch packs its samples anew, so their numbers of batches differ a little."""
    sampler, total, epoch = loader.batch_sampler, 0, 0
    while total < steps:
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        batches = len(loader)
        if batches == 0:
            break
        total, epoch = total + batches, epoch + 1
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(0)
    return max(1, epoch)


def _keep_config(output: str) -> None:
    """A copy of run.yaml out of the reach of --save-best, which removes all but the best epoch from where it lies."""
    for name in ("run.yaml", "train_command.txt"):
        source = os.path.join(output, "checkpoints", name)
        if os.path.isfile(source):
            shutil.copyfile(source, os.path.join(output, name))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return  # the first checkpoint of this epoch


if __name__ == "__main__":  # the data loader's workers import this file again
    sys.exit(main(sys.argv[1:]))
