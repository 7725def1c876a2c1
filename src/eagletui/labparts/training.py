"""`lab up --train`: the whole drafter loop for real on the CPU - answers, token data, hidden states, EAGLE-3 training."""

from __future__ import annotations

import json
import random
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
def server(work: Work, *flags: str) -> Iterator[str]:
    """The lab's engine on a free port, ready; its base address. It is ended on the way out."""
    lab = work.lab
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [
        str(lab.vllm),
        "serve",
        str(lab.model),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--max-model-len",
        "1024",
        "--dtype",
        cpu_dtype(),
        *flags,
    ]
    address = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"{address}/v1/models", timeout=2.0) as answer:  # noqa: S310 - loopback, our own server
                return bool(answer.status == 200)
        except OSError:
            return False  # it does not listen yet

    child = Child(argv, lab.log, env=work.env, cwd=lab.root)
    try:
        wait_until("drafter", child, work.reporter, ready, limit=600.0, remedy=AGAIN)
        yield address
    finally:
        child.stop()


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
    states, checkpoints = place / "hidden_states", place / "checkpoints"
    with questions.open("w") as file:
        for number, text in enumerate(prompts()[:SAMPLES]):
            turns = [{"from": "human", "value": text}, {"from": "gpt", "value": "-"}]
            file.write(json.dumps({"id": f"p{number}", "conversations": turns}) + "\n")
    tool = str(lab.speculators)
    with server(work, "--enforce-eager") as address:  # a compilation takes longer than it saves here
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
    draft = {"hf_config": {"eagle_aux_hidden_state_layer_ids": [*LAYERS, LAST]}}
    speculation = {"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config": draft}
    transfer = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": str(place / "passing")},
    }
    with server(
        work, "--enforce-eager", "--no-enable-prefix-caching",
        "--speculative_config", json.dumps(speculation), "--kv_transfer_config", json.dumps(transfer),
    ) as address:  # fmt: skip
        work.run(
            "drafter", tool, "generate-offline-data", "--endpoint", f"{address}/v1", "--preprocessed-data", str(prepared),
            "--output", str(states), "--concurrency", "8",
        )  # fmt: skip
    work.script(
        "drafter", "train_cpu.py", "train", "--speculator-type", "eagle3", "--verifier-name-or-path", str(lab.model),
        "--data-path", str(prepared), "--hidden-states-path", str(states), "--save-path", str(checkpoints),
        "--draft-vocab-size", "8192", "--target-layer-ids", *map(str, LAYERS), "--epochs", str(EPOCHS), "--lr", "3e-4",
        "--optimizer", "adamw", "--total-seq-len", "1024", "--on-missing", "skip", "--draft-attn-impl", "sdpa",
        "--loss-implementation", "eager", "--ttt-steps", "3", "--num-workers", "1", "--logger", "tensorboard",
        "--log-dir", str(place / "tb"), "--run-name", "lab",
    )  # fmt: skip
    last = checkpoints / str(EPOCHS - 1)
    if not (last / "model.safetensors").is_file():  # it exits 0 also when it was stopped early
        raise LabError("drafter", f"training left no {last}", f"see {lab.log}, then {AGAIN}")
    packed = place / "packed"
    work.script("drafter", "drafter.py", "pack", str(last), str(packed))
    work.script("drafter", "drafter.py", "unpack", str(packed), str(lab.model), str(lab.drafter))
    shutil.rmtree(states)  # 1 MB a sample, and made again by the next training


def count_lines(path: Path) -> int:
    """Lines of a file; 0 when it does not exist."""
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0
