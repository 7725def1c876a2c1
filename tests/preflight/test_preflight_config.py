"""Beside the weights: words of the speculative configuration, the tokenizer, a quantization, files that options name."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from eagletui.agent.facts.clock import Clock
from eagletui.agent.facts.gather import gather
from eagletui.engines.preflight.findings import BLOCK, WARN, Finding, Report
from eagletui.engines.preflight.judge import judge
from eagletui.engines.preflight.launch import files_named, wanted
from eagletui.engines.preflight.vllm_spec import spec_config
from tests.preflight import world
from tests.preflight.test_preflight_kimi import NEW

SOURCE = '''
MTPTypes = Literal["mtp", "deepseek_mtp"]
EagleTypes = Literal[
    "eagle", "eagle3", MTPTypes
]
SpeculativeMethod = Literal[
    "ngram",
    EagleTypes,  # and those
]


class SpeculativeConfig:
    """Configuration for speculative decoding."""

    enforce_eager: bool | None = None
    num_speculative_tokens: int = Field(default=None, gt=0)
    model: str | None = None
    method: SpeculativeMethod | None = None
    draft_tensor_parallel_size: int | None = None
    target_model_config: SkipValidation[ModelConfig] = None  # type: ignore

    def compute_hash(self) -> str:
        factors: list[Any] = []
        return ""
'''
DRAFTS = {"method": "eagle3", "num_speculative_tokens": 3}


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    root = world.vllm(tmp_path / "venv", "0.18.1", families=NEW, kimi=True)
    (root / "lib/python3.11/site-packages/vllm/config/speculative.py").write_text(SOURCE)
    return root


@pytest.fixture
def kimi(tmp_path: Path) -> Path:
    return world.target(tmp_path / "kimi")


def judged(venv: Path, model: Path, *args: str, **more: Any) -> Report:
    words = ["--trust-remote-code", *args]
    return world.found(world.launch({"engine": "vllm", "venv": str(venv), "model": str(model), "tp": 8, "args": words, **more}))


def spec(venv: Path, model: Path, drafter: Path, **changes: Any) -> Report:
    doc = {key: value for key, value in {**DRAFTS, "model": str(drafter), **changes}.items() if value is not None}
    return judged(venv, model, "--speculative-config", json.dumps(doc))


def finding(report: Report, name: str) -> Finding:
    return next(f for f in report.findings if f.id == name)


def test_keys_and_methods_are_read_from_the_source() -> None:
    told = spec_config({"config/speculative.py": SOURCE}.get)
    assert told["spec_methods"] == ["deepseek_mtp", "eagle", "eagle3", "mtp", "ngram"]
    assert told["spec_keys"] == [
        "draft_tensor_parallel_size", "enforce_eager", "method", "model", "num_speculative_tokens", "target_model_config",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "",
        "class SpeculativeConfig:\n    method: str\n",
        'SpeculativeMethod = Literal["eagle", FromElsewhere]\nclass SpeculativeConfig(Base):\n    pass\n',
    ],
)
def test_a_source_that_is_written_otherwise_tells_nothing(text: str) -> None:
    assert spec_config({"config/speculative.py": text}.get) == {}


def test_a_method_and_a_key_that_this_version_lacks(venv: Path, kimi: Path, tmp_path: Path) -> None:
    drafter = world.drafter(tmp_path / "drafter")
    assert spec(venv, kimi, drafter).verdict == "clear"
    report = spec(venv, kimi, drafter, method="eagle9")
    assert "spec-method" in world.ids(report, BLOCK)
    assert finding(report, "spec-method").remedy.startswith("did you mean eagle")
    report = spec(venv, kimi, drafter, num_spec_tokens=4, tensor_parallel_size=8)
    assert {"spec-key", "spec-tp-key"} <= world.ids(report, BLOCK)
    assert [f.remedy for f in report.findings if f.id == "spec-key"] == ["did you mean num_speculative_tokens?"]


def test_the_number_of_draft_tokens_has_to_stand_somewhere(venv: Path, kimi: Path, tmp_path: Path) -> None:
    plain = world.drafter(tmp_path / "drafter")
    assert "spec-no-tokens" in world.ids(spec(venv, kimi, plain, num_speculative_tokens=None), BLOCK)
    whole = world.drafter(tmp_path / "speculators", world.speculators())
    assert "spec-no-tokens" not in world.ids(spec(venv, kimi, whole, num_speculative_tokens=None))


@pytest.mark.parametrize("name", ["tiktoken.model", "tekken.json", "vocab.json", "spiece.model", "tokenization_kimi.py"])
def test_a_target_needs_a_tokenizer_of_any_kind(name: str, venv: Path, kimi: Path, tmp_path: Path) -> None:
    (kimi / "tokenizer.json").unlink()
    (kimi / "tokenizer_config.json").write_text("{}")
    report = judged(venv, kimi)
    assert "no-tokenizer" in world.ids(report, BLOCK)
    assert str(kimi) in finding(report, "no-tokenizer").evidence
    assert "no-tokenizer" not in world.ids(judged(venv, kimi, "--tokenizer", "/shared/other"))
    assert "no-tokenizer" not in world.ids(judged(venv, kimi, "--skip-tokenizer-init"))
    (kimi / name).write_text("x")
    assert "no-tokenizer" not in world.ids(judged(venv, kimi))


def test_a_quantization_of_which_the_checkpoint_says_nothing(venv: Path, tmp_path: Path) -> None:
    plain = world.target(tmp_path / "plain")
    assert "quantization" in world.ids(judged(venv, plain, "--quantization", "awq"), BLOCK)
    assert "quantization" in world.ids(judged(venv, plain, "-q=gptq"), BLOCK)
    assert "quantization" not in world.ids(judged(venv, plain, "--quantization", "fp8")), "made while it is loaded"
    (plain / "quantize_config.json").write_text("{}")
    assert "quantization" not in world.ids(judged(venv, plain, "--quantization", "gptq"))
    said = world.target(tmp_path / "said", {**world.KIMI, "quantization_config": {"quant_method": "awq"}})
    assert "quantization" not in world.ids(judged(venv, said, "--quantization", "awq"))


def test_a_configuration_without_a_type(venv: Path, kimi: Path, tmp_path: Path) -> None:
    untyped = {key: value for key, value in world.DRAFTER.items() if key != "model_type"}
    drafter = world.drafter(tmp_path / "untyped", untyped)
    assert "drafter-no-type" in world.ids(spec(venv, kimi, drafter), WARN)
    in_other_format = world.drafter(tmp_path / "speculators", world.speculators())
    assert "drafter-no-type" not in world.ids(spec(venv, kimi, in_other_format))


def test_files_that_options_name(tmp_path: Path) -> None:
    (tmp_path / "there.jinja").write_text("{{ messages }}")
    words = ["--chat-template", "there.jinja", "--ssl-certfile", "/none.pem", "--tool-parser-plugin", "./none.py"]
    asked = world.launch({"engine": "vllm", "model": "/m", "args": words})._replace(cwd=str(tmp_path))
    report = judge(asked, gather(wanted(asked), Clock(30)))
    missing = sorted(f.evidence for f in report.findings if f.id == "file-missing" and f.severity == BLOCK)
    assert missing == ["/none.pem", f"{tmp_path}/./none.py"]


@pytest.mark.parametrize("value", ["chatml", "{% for m in messages %}{{ m }}{% endfor %}.jinja", "thunlp/freq.pt"])
def test_what_may_be_a_name_or_the_text_itself_is_no_file(value: str) -> None:
    assert files_named(("vllm", "serve", "m", "--chat-template", value, "--speculative-token-map", value)) == {}


def test_a_command_of_ones_own_whose_program_is_missing(tmp_path: Path) -> None:
    asked = world.launch({"engine": "vllm", "model": "/m", "command": ["vllm-none", "serve"]})
    report = judge(asked, gather(wanted(asked), Clock(30)))
    assert "engine-missing" in world.ids(report, BLOCK)
    script = tmp_path / "serve.sh"
    script.write_text(
        textwrap.dedent("""\
        #!/bin/sh
        exec vllm serve "$@"
        """)
    )
    script.chmod(0o755)
    asked = world.launch({"engine": "vllm", "model": "/m", "command": [str(script)]})
    report = judge(asked, gather(wanted(asked), Clock(30)))
    assert not world.ids(report) & {"engine-missing", "target-absent"}, "what a script starts is not looked into"
