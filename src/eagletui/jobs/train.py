"""A training of a drafter with `speculators train`: from scratch, or from a converted one."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from eagletui.jobs.base import BadJob, Kind, Spec, job_spec, status_words
from eagletui.jobs.keys import Key
from eagletui.jobs.watcher import Watcher

GRACES = [150, 20, 10]
"""The trainer gives itself 120 s to save after a SIGTERM; a second one in that time would end it at once."""

# keys of the job file -> the trainer's own options
_OPTIONS = {
    "target": "--verifier-name-or-path",
    "data": "--data-path",
    "hidden_states": "--hidden-states-path",
    "from_pretrained": "--from-pretrained",
    "speculator": "--speculator-type",
    "draft_config": "--draft-config",
    "draft_vocab_size": "--draft-vocab-size",
    "epochs": "--epochs",
    "max_steps": "--max-steps",
    "ttt_steps": "--ttt-steps",
    "lr": "--lr",
    "optimizer": "--optimizer",
    "seq_length": "--total-seq-len",
    "train_share": "--train-data-ratio",
    "checkpoint_freq": "--checkpoint-freq",
    "log_freq": "--log-freq",
    "seed": "--seed",
    "num_workers": "--num-workers",
    "attention": "--draft-attn-impl",
    "on_missing": "--on-missing",
    "endpoint": "--vllm-endpoint",
}
_SWITCHES = {
    "save_best": "--save-best",
    "trust_remote_code": "--trust-remote-code",
    "gradient_checkpointing": "--gradient-checkpointing",
    "fsdp": "--fsdp-shard",
    "dry_run": "--dry-run",
}
# what does not change the result: another value of these goes on with the same output
_ONLY_HOW = ("python", "nproc", "num_workers", "log_freq", "endpoint", "output")
# what the program sets itself
_OURS = ("--save-path", "--logger", "--log-dir", "--run-name", "--no-resume-from-checkpoint", "--config", "--dump-config")


class Train(Kind):
    """Its output has ``checkpoints/<epoch>/``, ``tb/run/`` and ``run.yaml``; a start with the same values goes on in it."""

    name = "train"
    keys: Tuple[Key, ...] = (
        Key("python", "path", "the python of the environment that has speculators and tensorboard", required=True),
        Key("target", "text", "the target model, a path or a name on the hub", required=True),
        Key("data", "path", "the prepared data", required=True),
        Key("hidden_states", "path", "the extracted hidden states; by default they lie in the data"),
        Key("output", "path", "where checkpoints and curves go", required=True),
        Key("from_pretrained", "path", "a converted drafter to go on from; without it the drafter starts from nothing"),
        Key("speculator", "text", "the algorithm", default="eagle3"),
        Key("layers", "ints", "the target's layers that the drafter reads: the same as at the extraction", low=0),
        Key("draft_config", "path", "a config.json with the shape of the drafter's layer; by default it follows the target's"),
        Key("draft_vocab_size", "int", "how many of the target's tokens the drafter can say; by default all", low=1),
        Key("epochs", "int", "how often the data are gone through", default=5, low=1),
        Key("max_steps", "int", "end after so many steps: for a first try", low=1),
        Key("ttt_steps", "int", "how many draft tokens the training looks ahead", default=3, low=1),
        Key("lr", "number", "the learning rate", low=0),
        Key("optimizer", "text", "adamw or muon", choices=("adamw", "muon")),
        Key("seq_length", "int", "tokens of a batch; samples are packed into it", low=1),
        Key(
            "train_share",
            "number",
            "the share of the data that is trained on; the rest validates",
            default=0.9,
            low=0.01,
            high=0.99,
        ),
        Key("checkpoint_freq", "number", "a checkpoint every so many epochs; below 1 several in an epoch", default=1, low=0.001),
        Key("save_best", "bool", "keep only the epoch with the best validation", default=False),
        Key("log_freq", "int", "log every so many steps", default=1, low=1),
        Key("seed", "int", "the order of the data", default=42, low=0),
        Key("nproc", "int", "processes, one a card", default=1, low=1),
        Key("num_workers", "int", "processes that read the data, for each card", low=0),
        Key("attention", "text", "how the drafter's attention is computed (simple_flex_attention, sdpa, eager)"),
        Key(
            "on_missing",
            "text",
            "what to do without hidden states",
            default="skip",
            choices=("skip", "warn", "raise", "generate"),
        ),
        Key("endpoint", "text", "the server that makes missing hidden states, http://.../v1"),
        Key("gradient_checkpointing", "bool", "less memory, slower", default=False),
        Key("fsdp", "bool", "split the drafter over the cards", default=False),
        Key("trust_remote_code", "bool", "run the code that comes with the target's configuration", default=False),
        Key("dry_run", "bool", "only write an untrained drafter of this shape", default=False),
        Key("args", "texts", "more options of `speculators train`"),
    )

    def spec(self, profile: Mapping[str, Any], job: str, cards: Sequence[str] = ()) -> Spec:
        values = dict(profile)
        _check(values)
        words: List[str] = []
        for key, flag in _OPTIONS.items():
            if values.get(key) is not None:
                words += [flag, str(values[key])]
        for key, flag in _SWITCHES.items():
            if values.get(key):
                words.append(flag)
        if values.get("layers"):
            words += ["--target-layer-ids", *(str(layer) for layer in values["layers"])]
        words += [str(word) for word in values.get("args") or ()]
        argv = [values["python"], "-m", "eagletui.jobs.on_host.train", "--output", values["output"]]
        argv += ["--nproc", str(values.get("nproc") or 1), "--inputs", json.dumps(_inputs(values), sort_keys=True), "--", *words]
        env = {"COLUMNS": "400", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", **(values.get("env") or {})}
        values.update(env=env, graces=values.get("graces") or GRACES)
        plan = {key: values.get(key) for key in ("output", "epochs", "max_steps", "save_best", "dry_run", "nproc")}
        return job_spec(self.name, values, job, argv, cards, on_host=True, model=values["target"], train=plan)

    def made(self, values: Mapping[str, Any]) -> Mapping[str, str]:
        folder = "%s/checkpoints" % values["output"]
        # an untrained drafter lies there itself
        return {"checkpoints": folder, "best": folder if values.get("dry_run") else folder + "/checkpoint_best"}

    def title(self, spec: Mapping[str, Any]) -> str:
        plan = spec.get("train") or {}
        if plan.get("dry_run"):
            return "an untrained drafter for %s" % spec.get("model")
        long = "%s steps" % plan["max_steps"] if plan.get("max_steps") else "%s epochs" % plan.get("epochs")
        return "train a drafter for %s, %s" % (spec.get("model"), long)

    def watcher(self, spec: Mapping[str, Any], directory: str) -> Watcher:
        from eagletui.jobs.train_watch import TrainWatcher

        return TrainWatcher(spec, directory)

    def verdict(self, spec: Mapping[str, Any], state: Mapping[str, Any], killed: bool) -> Tuple[Optional[bool], str]:
        return None, "nobody looked at its checkpoints: %s" % status_words(state.get("rc"))


def _check(values: Mapping[str, Any]) -> None:
    """Raises `BadJob` for what would go wrong only after hours."""
    freq, epochs = values.get("checkpoint_freq") or 1, int(values.get("epochs") or 1)
    if freq > 1 and (freq != int(freq) or epochs % int(freq)):
        raise BadJob("checkpoint_freq: %g does not divide the %d epochs, so the last one would not be saved" % (freq, epochs))
    if values.get("save_best") and freq < 1:
        raise BadJob("checkpoint_freq: with save_best nothing is saved within an epoch; leave it out")
    if values.get("fsdp") and int(values.get("nproc") or 1) < 2:
        raise BadJob("fsdp: it splits the drafter over several cards; set nproc")
    if values.get("on_missing") == "generate" and not values.get("endpoint"):
        raise BadJob('endpoint: on_missing = "generate" needs the server that makes the hidden states')
    for word in values.get("args") or ():
        flag = str(word).split("=", 1)[0].replace("_", "-")
        if flag in _OURS:
            raise BadJob("args: %s is set by the job itself" % flag)
        if flag in _OPTIONS.values() or flag in _SWITCHES.values() or flag == "--target-layer-ids":
            raise BadJob("args: %s has a key of its own" % flag)


def _inputs(values: Mapping[str, Any]) -> Dict[str, Any]:
    """What the result follows from: with other inputs the same output is refused."""
    names = [name for name in (*_OPTIONS, *_SWITCHES, "layers", "args") if name not in _ONLY_HOW]
    plain = {name: values[name] for name in names if values.get(name) not in (None, False) and name not in _PATHS}
    return {"values": plain, "paths": {name: values[name] for name in _PATHS if values.get(name)}}


_PATHS = ("target", "data", "hidden_states", "from_pretrained", "draft_config")
