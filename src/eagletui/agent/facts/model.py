"""A checkpoint: where it lies, its configuration, its index, and the headers of its safetensors files (never their data)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagletui.agent.facts import headers
from eagletui.agent.facts.clock import Clock
from eagletui.agent.facts.headers import Header, Names

INDEX = "model.safetensors.index.json"
MAX_CONFIG = 4 << 20
MAX_INDEX = 128 << 20
MAX_HEADER = 32 << 20
MAX_TOKENIZER = 48 << 20
MOST_SHARDS = 2048
MOST_TENSORS = 512
MOST_NAMES = 300
LFS = b"version https://git-lfs.github.com/spec/"
_TOKENIZERS = ("tokenizer.json", "tiktoken.model", "tokenizer.model", "vocab.json")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def model(name: str, cwd: str, env: Mapping[str, str], clock: Clock, role: str) -> Dict[str, Any]:
    """What is known of the checkpoint ``name``, a folder on this host or a name on the hub.

    ``kind``: folder, hub, file, absent. ``path``: where its files lie. ``hub``: {offline, cache, cached, token, incomplete}.
    ``config``, ``index`` {total_size, tensors, files}, ``shards`` [{name, size, header, end, tensors, problem}], ``missing``
    (files that the index names), ``weights`` (safetensors, bin, gguf, none), ``bytes``, ``tokenizers`` {file: [size, sha256]}.
    ``tensors`` (a drafter's alone) {name: [dtype, shape]}. ``names``: the folder's other files.
    """
    out: Dict[str, Any] = {"given": name}
    path = os.path.join(cwd, os.path.expanduser(name))
    if os.path.isdir(path):
        out.update(kind="folder", path=path)
    elif os.path.exists(path):
        out.update(kind="file", path=path)
        return out
    elif _HUB_ID.fullmatch(name) and not name.startswith((".", "/")):
        out["kind"] = "hub"
        out["hub"] = _hub(name, env)
        if out["hub"].get("snapshot") is None:
            return out
        path = out["path"] = out["hub"]["snapshot"]
    else:
        out.update(kind="absent", path=path)
        return out
    _look(out, path, clock, role)
    return out


def _hub(name: str, env: Mapping[str, str]) -> Dict[str, Any]:
    home = env.get("HF_HOME") or os.path.join(env.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface")
    cache = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or os.path.join(home, "hub")
    folder = os.path.join(os.path.expanduser(cache), "models--" + name.replace("/", "--"))
    out: Dict[str, Any] = {
        "offline": any(
            (env.get(key) or "").upper() in ("1", "TRUE", "YES", "ON") for key in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        ),
        "cache": folder,
        "token": bool(env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN") or os.path.exists(os.path.join(home, "token"))),
    }
    revision = (_small(os.path.join(folder, "refs", "main"), 256) or b"").decode("ascii", "replace").strip()
    snapshot = os.path.join(folder, "snapshots", revision)
    if revision and os.path.isdir(snapshot):
        out["snapshot"] = snapshot
    try:
        out["incomplete"] = sum(1 for entry in os.listdir(os.path.join(folder, "blobs")) if entry.endswith(".incomplete"))
    except OSError:
        out["incomplete"] = 0  # nothing of it is there
    return out


def _look(out: Dict[str, Any], path: str, clock: Clock, role: str) -> None:
    names = sorted(os.listdir(path))
    config = _json(os.path.join(path, "config.json"), MAX_CONFIG)
    if isinstance(config, dict):
        out["config"] = config
    else:
        out["config_problem"] = config
    safetensors = [name for name in names if name.endswith(".safetensors")]
    if role == "target":  # engines leave these out: copies of the whole under other names
        safetensors = [name for name in safetensors if not name.startswith(("consolidated", "original"))] or safetensors
    others = [name for name in names if re.search(r"\.(bin|pt|pth|gguf)$", name)]
    kinds = "safetensors" if safetensors else (others[0].rpartition(".")[2] if others else "none")
    out["weights"] = kinds
    listed = _index(out, os.path.join(path, INDEX)) if kinds != "gguf" else {}
    if listed:
        out["missing"] = [name for name in sorted(listed) if name not in names][:MOST_SHARDS]
        # beside an index, engines read what it names
        safetensors = [name for name in safetensors if name in listed]
    shards: List[Dict[str, Any]] = []
    tensors: Dict[str, Any] = {}
    compared = False
    for name in safetensors[:MOST_SHARDS]:
        if clock.over("headers of %s's files from %s on" % (role, name)):
            break
        shard, header = _shard(os.path.join(path, name), name)
        if header is not None and name in listed and header.names != listed[name] and not compared:
            # it may hold more than the index names; only what is missing is wrong. Once is enough: this is the slow way
            absent = _absent(path, name)
            compared = absent > 0
            shard["absent"] = absent
        if header is not None and role == "drafter" and len(tensors) < MOST_TENSORS:
            tensors.update(list(header.tensors.items())[:MOST_TENSORS])
        shards.append(shard)
    out["shards"] = shards
    out["bytes"] = sum(shard["size"] for shard in shards) or sum(_size(os.path.join(path, name)) for name in others)
    if role == "drafter":
        out["tensors"] = tensors
    out["tokenizers"] = _tokenizers(path, names, clock)
    out["code"] = [name for name in names if name.endswith(".py")][:50]
    out["names"] = [name for name in names if not name.endswith((".safetensors", ".bin", ".pt", ".pth"))][:MOST_NAMES]


def _index(out: Dict[str, Any], path: str) -> "Dict[str, Names]":
    """{file: the tensors that the index places there}; the index's summary goes into ``out``."""
    if not os.path.exists(path):
        return {}
    quick = headers.quick_index(_small(path, MAX_INDEX) or b"") if _size(path) > headers.LARGE else None
    if quick is not None:
        total, listed = quick
    else:
        doc = _json(path, MAX_INDEX)
        if not isinstance(doc, dict) or not isinstance(doc.get("weight_map"), dict):
            out["index_problem"] = doc if isinstance(doc, str) else "it has no weight_map"
            return {}
        listed = headers.by_file((str(tensor), str(name)) for tensor, name in doc["weight_map"].items())
        metadata = doc.get("metadata")
        total = metadata.get("total_size") if isinstance(metadata, dict) else None
    out["index"] = {"total_size": total, "tensors": sum(names.size for names in listed.values()), "files": len(listed)}
    return listed


def _absent(folder: str, name: str) -> int:
    """How many tensors the index places into a file that does not have them."""
    index = _json(os.path.join(folder, INDEX), MAX_INDEX)
    try:
        with open(os.path.join(folder, name), "rb") as file:
            there = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]).decode("utf-8"))
        return sum(1 for tensor, where in index["weight_map"].items() if where == name and tensor not in there)
    except (OSError, ValueError, TypeError, KeyError, struct.error, RecursionError):
        return 0  # it changed under our hands, or only the quick reading of it was sound: nothing is claimed


def _shard(path: str, name: str) -> "Tuple[Dict[str, Any], Optional[Header]]":
    """A safetensors file by its header: its ``size``, the ``end`` that the header says, or what is the matter with it."""
    shard: Dict[str, Any] = {"name": name, "size": 0}
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        shard["problem"] = (error.strerror or str(error)).lower()
        return shard, None
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            shard["problem"] = "not a regular file"
            return shard, None
        shard["size"] = info.st_size
        first = os.pread(fd, 64, 0)
        if first.startswith(LFS[:40]):
            shard.update(problem="a pointer of Git LFS, not the file itself", lfs=True)
            return shard, None
        if len(first) < 8:
            shard["problem"] = "empty" if not first else "shorter than a header"
            return shard, None
        length = struct.unpack("<Q", first[:8])[0]
        if length > MAX_HEADER or 8 + length > info.st_size:
            shard["problem"] = "its header should have %d bytes, the file has %d" % (length, info.st_size)
            return shard, None
        return _read_header(fd, length, shard)
    except OSError as error:
        shard["problem"] = (error.strerror or str(error)).lower()
        return shard, None
    finally:
        os.close(fd)


def _read_header(fd: int, length: int, shard: Dict[str, Any]) -> "Tuple[Dict[str, Any], Optional[Header]]":
    header = headers.read_header(os.pread(fd, length, 8))
    if header is None:
        shard["problem"] = "its header is damaged"
        return shard, None
    shard.update(header=length, end=8 + length + header.end, tensors=header.names.size, data=header.end)
    if shard["end"] != shard["size"]:
        how = "shorter" if shard["size"] < shard["end"] else "longer"
        shard["problem"] = "%d bytes %s than its header says (%d of %d)" % (
            abs(shard["size"] - shard["end"]),
            how,
            shard["size"],
            shard["end"],
        )
    return shard, header


def _tokenizers(path: str, names: List[str], clock: Clock) -> Dict[str, List[Any]]:
    out: Dict[str, List[Any]] = {}
    for name in _TOKENIZERS:
        if name in names and not clock.over():
            data = _small(os.path.join(path, name), MAX_TOKENIZER)
            if data is not None:
                out[name] = [len(data), hashlib.sha256(data).hexdigest()]
    return out


def _json(path: str, limit: int) -> Any:
    """What the file says, or in words why it cannot be read."""
    try:
        size = os.stat(path).st_size
    except OSError as error:
        return "it is not there" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()
    if size > limit:
        return "it has %d bytes, more than is looked at (%d)" % (size, limit)
    data = _small(path, limit)
    if data is None:
        return "it cannot be read"
    if data.startswith(LFS[:40]):
        return "it is a pointer of Git LFS, not the file itself"
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return "it is not JSON: %s" % error


def _small(path: str, limit: int) -> Optional[bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # whoever asks says what its absence means
    try:
        with os.fdopen(fd, "rb") as file:
            return file.read(limit) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except OSError:
        return None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
