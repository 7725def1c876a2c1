"""`lab up --train`: the whole drafter loop for real on the CPU - answers, token data, hidden states, EAGLE-3 training."""

from __future__ import annotations

import json
import random
import shutil
import socket
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import eagletui
from eagletui.engines.command import serve_command
from eagletui.jobs import checkpoints, kinds
from eagletui.jobs.extract_server import extraction_profile
from eagletui.jobs.keys import read_keys
from eagletui.labparts.paths import cpu_dtype
from eagletui.labparts.report import LabError
from eagletui.labparts.running import Child, wait_until
from eagletui.labparts.steps import AGAIN, Work
from eagletui.paths import assets_path

SAMPLES, EPOCHS = 160, 3
LAYERS = (2, 15, 27)  # of 30: the engine's own default for this depth; the last layer is extracted too, for the loss
LAST = 30
TOPICS = (
    "a GPU", "a cat", "the ocean", "bread", "Python programming", "gravity", "photosynthesis", "chess", "a volcano",
    "a guitar", "a rainbow", "a bicycle", "democracy", "coffee", "a penguin", "the moon", "algebra", "clouds",
    "football", "honey", "a train", "winter", "a library", "a robot", "sleep", "a desert", "an elephant", "a market",
    "the internet", "a bridge",
)  # fmt: skip
QUESTIONS = (
    "Explain {} in three sentences.",
    "Write a short story about {}.",
    "List five facts about {}.",
    "Why does {} matter?",
    "Write a poem about {}.",
    "Describe {} to a child.",
    "What do people ask about {}?",
    "Compare {} with something similar.",
)


def prompts() -> list[str]:
    """The 240 questions of the training set, always in the same order."""
    rows = [question.format(topic) for topic in TOPICS for question in QUESTIONS]
    random.Random(0).shuffle(rows)  # noqa: S311 - an order, not a secret
    return rows


@contextmanager
def server(work: Work, hidden_states: Path | None = None) -> Iterator[str]:
    """The lab's engine on a free port, ready; its base address. It is ended on the way out.

    With ``hidden_states`` it extracts them instead of answering, and leaves them in that folder.
    """
    lab = work.lab
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    profile: dict[str, Any] = {
        "engine": "vllm",
        "venv": str(lab.venv),
        "model": str(lab.model),
        "port": port,
        "max_model_len": 1024,
        "args": ["--dtype", cpu_dtype(), "--enforce-eager"],  # a compilation takes longer than it saves here
    }
    if hidden_states is not None:
        profile = extraction_profile(profile, LAYERS, LAST, str(hidden_states))
    address = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"{address}/v1/models", timeout=2.0) as answer:  # noqa: S310 - loopback, our own server
                return bool(answer.status == 200)
        except OSError:
            return False  # it does not listen yet

    child = Child(list(serve_command(profile).argv), lab.log, env=work.env, cwd=lab.root)
    try:
        wait_until("drafter", child, work.reporter, ready, limit=600.0, remedy=AGAIN)
        yield address
    finally:
        child.stop()


def job(work: Work, kind: str, values: Mapping[str, Any]) -> None:
    """One of the jobs that a host runs, run here: its command, with this package where the lab's python finds it."""
    code = work.lab.root / "code"
    code.mkdir(exist_ok=True)
    link = code / "eagletui"
    link.unlink(missing_ok=True)
    link.symlink_to(Path(eagletui.__file__).parent)
    made = kinds.kind(kind)
    given, wrong = read_keys(made.keys, {"kind": kind, "python": str(work.lab.python), "target": str(work.lab.model), **values})
    if wrong:
        raise LabError("drafter", wrong[0].what, wrong[0].remedy)
    spec = made.spec(given, f"lab-{kind}")
    env = {**work.env, **spec["env"], "PYTHONPATH": str(code)}
    replace(work, env=env).run("drafter", *spec["argv"])


def train_drafter(work: Work) -> None:
    """Answers from the target itself, their hidden states, and `EPOCHS` epochs of EAGLE-3 training.

    Takes 5 minutes on two fast cores and an hour on slow ones. Leaves the drafter of the last epoch in the lab, and the
    checkpoints and TensorBoard events under ``training/``.
    """
    lab = work.lab
    shutil.copytree(assets_path("lab", "slow"), lab.slow, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    place = lab.root / "training"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    questions, answers, prepared = place / "prompts.jsonl", place / "answers.jsonl", place / "prepared"
    states, drafter = place / "hidden_states", place / "drafter"
    with questions.open("w") as file:
        for number, text in enumerate(prompts()[:SAMPLES]):
            turns = [{"from": "human", "value": text}, {"from": "gpt", "value": "-"}]
            file.write(json.dumps({"id": f"p{number}", "conversations": turns}) + "\n")
    tool = str(lab.speculators)
    with server(work) as address:
        work.run(
            "drafter", tool, "regenerate-responses", "--endpoint", f"{address}/v1/chat/completions", "--dataset", str(questions),
            "--limit", str(SAMPLES), "--concurrency", "16", "--max-tokens", "160", "--resume", "--outfile", str(answers),
        )  # fmt: skip
    if count_lines(answers) < SAMPLES * 0.9:  # the tool's exit status is 0 even when every request failed
        raise LabError("drafter", f"{count_lines(answers)} of {SAMPLES} answers came back", f"see {lab.log}, then {AGAIN}")
    work.run(
        "drafter", tool, "prepare-data", "--model", str(lab.model), "--data", str(answers), "--output", str(prepared),
        "--seq-length", "512", "--no-skip-token-freq", "--overwrite",
    )  # fmt: skip
    common = {"data": str(prepared), "layers": list(LAYERS)}
    # a lab that an earlier version built may lack what an extraction needs
    work.script("drafter", "patch_engine.py")
    with server(work, place / "passing") as address:
        job(work, "extract", {**common, "output": str(states), "endpoint": f"{address}/v1", "concurrency": 8})
    training = {"epochs": EPOCHS, "lr": 3e-4, "optimizer": "adamw", "seq_length": 1024, "draft_vocab_size": 8192}
    job(work, "train", {**common, **training, "hidden_states": str(states), "output": str(drafter)})
    whole = [found for found in checkpoints.epochs(str(drafter / "checkpoints")) if found.problem is None]
    if not whole or whole[-1].epoch != EPOCHS - 1:  # it exits 0 also when it was stopped early
        raise LabError("drafter", f"training left no checkpoint of epoch {EPOCHS} in {drafter}", f"see {lab.log}, then {AGAIN}")
    last = whole[-1].path
    packed = place / "packed"
    work.script("drafter", "drafter.py", "pack", last, str(packed))
    work.script("drafter", "drafter.py", "unpack", str(packed), str(lab.model), str(lab.drafter))
    shutil.rmtree(states)  # 1 MB a sample, and made again by the next training


def count_lines(path: Path) -> int:
    """Lines of a file; 0 when it does not exist."""
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0
