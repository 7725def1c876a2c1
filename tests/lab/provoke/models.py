"""Broken models and drafters, built from the lab's whole ones in a cache folder. What is not changed is linked, not copied."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from eagletui.labparts.paths import Lab

WEIGHTS = "model.safetensors"
Tensor = tuple[dict[str, Any], bytes]


def cache_root() -> Path:
    """``EAGLETUI_PROVOKE``, else a folder beside the other caches of the tests."""
    return Path(os.environ.get("EAGLETUI_PROVOKE") or Path.home() / ".cache/eagletui/tests/provoke")


class Models:
    """Builds what a case asks for, once; ``drafter`` is the one for SGLang, where there is an SGLang."""

    def __init__(self, root: Path, lab: Lab, sglang_drafter: Path | None) -> None:
        self.root, self.lab, self.sglang_drafter = root, lab, sglang_drafter

    def make(self, name: str) -> str:
        """The folder of a broken model, built when it is not there or the lab's own is newer."""
        folder = self.root / name
        source = self._source(name)
        mark = folder / ".built"
        if not mark.exists() or mark.stat().st_mtime < max((f.stat().st_mtime for f in source.iterdir()), default=0):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            BUILDERS[name](source, folder)
            mark.touch()
        return str(folder)

    def _source(self, name: str) -> Path:
        if name.startswith("sglang-drafter"):
            assert self.sglang_drafter is not None, "SGLang's drafter is needed"
            return self.sglang_drafter
        if name.startswith("drafter"):
            return self.lab.drafter
        return self.lab.sharded if name.startswith("shards") else self.lab.model


def linked(source: Path, folder: Path, *without: str) -> None:
    """Every file of ``source`` but ``without`` as a link in ``folder``."""
    for path in source.iterdir():
        if path.is_file() and path.name not in without:
            (folder / path.name).symlink_to(path.resolve())


def _without(*names: str) -> Callable[[Path, Path], None]:
    return lambda source, folder: linked(source, folder, *names)


def _config(**changes: Any) -> Callable[[Path, Path], None]:
    """Another config.json: a key whose value is None goes."""

    def build(source: Path, folder: Path) -> None:
        linked(source, folder, "config.json")
        config = {**json.loads((source / "config.json").read_text()), **changes}
        kept = {key: value for key, value in config.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return build


def _cut_config(source: Path, folder: Path) -> None:
    linked(source, folder, "config.json")
    (folder / "config.json").write_bytes((source / "config.json").read_bytes()[:100])


def _plain(**changes: Any) -> Callable[[Path, Path], None]:
    """The configuration of a drafter in the plain layout instead of that of speculators."""

    def build(source: Path, folder: Path) -> None:
        linked(source, folder, "config.json")
        config = json.loads((source / "config.json").read_text())
        ids = {"eagle_aux_hidden_state_layer_ids": config["eagle_aux_hidden_state_layer_ids"]}
        plain = {**config["transformer_layer_config"], **ids, "draft_vocab_size": config["draft_vocab_size"], **changes}
        (folder / "config.json").write_text(json.dumps({**plain, "eagle_config": ids}))

    return build


def _shard(number: int) -> str:
    return f"model-{number:05d}-of-00016.safetensors"


def _cut(name: str, share: float) -> Callable[[Path, Path], None]:
    """One file that ends too early."""

    def build(source: Path, folder: Path) -> None:
        linked(source, folder, name)
        data = (source / name).read_bytes()
        (folder / name).write_bytes(data[: int(len(data) * share)])

    return build


def _pointer(name: str) -> Callable[[Path, Path], None]:
    def build(source: Path, folder: Path) -> None:
        linked(source, folder, name)
        text = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 14162384\n"
        (folder / name).write_text(text)

    return build


def read_tensors(path: Path) -> dict[str, Tensor]:
    """{name: (its entry in the header, its bytes)} of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {name: (entry, body[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `read_tensors`."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (entry, data) in tensors.items():
        header[name] = {"dtype": entry["dtype"], "shape": entry["shape"], "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for _, data in tensors.values():
            file.write(data)


def _tensors(change: Callable[[dict[str, Tensor]], None]) -> Callable[[Path, Path], None]:
    """Another weights file: ``change`` is given its tensors."""

    def build(source: Path, folder: Path) -> None:
        linked(source, folder, WEIGHTS)
        tensors = read_tensors(source / WEIGHTS)
        change(tensors)
        write_tensors(folder / WEIGHTS, tensors)

    return build


def _named(tensors: Mapping[str, Tensor], end: str) -> str:
    return next(name for name in tensors if name == end or name.endswith("." + end))


def _no_d2t(tensors: dict[str, Tensor]) -> None:
    del tensors[_named(tensors, "d2t")]


def _narrow(tensors: dict[str, Tensor]) -> None:
    """The first matrix takes two hidden states of the target instead of three."""
    name = _named(tensors, "fc.weight")
    entry, data = tensors[name]
    rows, columns = entry["shape"]
    kept = columns * 2 // 3
    size = len(data) // (rows * columns)
    out = b"".join(data[row * columns * size : (row * columns + kept) * size] for row in range(rows))
    tensors[name] = ({**entry, "shape": [rows, kept]}, out)


def _foreign(source: Path, folder: Path) -> None:
    """A drafter's configuration that says another width than its weights have: one that was made for another target."""
    linked(source, folder, "config.json")
    config = json.loads((source / "config.json").read_text())
    where = config.get("transformer_layer_config", config)
    where["hidden_size"], where["head_dim"], where["num_attention_heads"] = 640, 64, 10
    where["num_key_value_heads"] = 5
    (folder / "config.json").write_text(json.dumps(config))


def _small_table(source: Path, folder: Path) -> None:
    _config(draft_vocab_size=4096)(source, folder)


_X = {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": "modeling_x.XModel"}

BUILDERS: dict[str, Callable[[Path, Path], None]] = {
    "model-without-config": _without("config.json", "model.safetensors"),
    "model-empty": lambda source, folder: None,
    "model-config-cut": _cut_config,
    "model-type-unknown": _config(architectures=["KimiK99ForCausalLM"], model_type="kimi_k99"),
    "model-architecture-unknown": _config(architectures=["KimiK99ForCausalLM"]),
    "model-own-code": _config(architectures=["X"], model_type="x_model", auto_map=_X),
    "model-without-tokenizer": _without("tokenizer.json", "tokenizer_config.json"),
    "model-without-weights": _without("model.safetensors"),
    "model-heads": _config(num_attention_heads=7),
    "shards-missing": _without(_shard(7)),
    "shards-cut": _cut(_shard(9), 0.5),
    "shards-pointer": _pointer(_shard(5)),
    "shards-index-cut": _cut("model.safetensors.index.json", 0.4),
    "drafter-plain": _plain(architectures=["LlamaForCausalLMEagle3"]),
    "drafter-other-type": _plain(architectures=["Eagle3PhiForCausalLM"]),
    "drafter-no-type": _plain(architectures=["LlamaForCausalLMEagle3"], model_type=""),
    "drafter-incomplete": _config(transformer_layer_config=None),
    "drafter-without-d2t": _tensors(_no_d2t),
    "drafter-narrow": _tensors(_narrow),
    "drafter-of-another-target": _foreign,
    "drafter-small-vocabulary": _small_table,
    "drafter-cut": _cut(WEIGHTS, 0.6),
    "sglang-drafter-without-d2t": _tensors(_no_d2t),
    "sglang-drafter-narrow": _tensors(_narrow),
    "sglang-drafter-of-another-target": _foreign,
    "sglang-drafter-architecture": _config(architectures=["Eagle3PhiForCausalLM"]),
    "sglang-drafter-cut": _cut(WEIGHTS, 0.6),
    "sglang-drafter-small-vocabulary": _small_table,
}
