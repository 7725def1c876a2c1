"""Downloads: size and disk first, resumed at the byte after any end, every file checked, a token that goes to the hub alone."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagletui.jobs import kinds, manifest
from eagletui.jobs.on_host import copying, download
from tests.agent.jobs_harness import until
from tests.jobs.fake_hub import COMMIT, FakeHub

SOURCE = Path(download.__file__).parents[3]
STUB = '''
"""As much of huggingface_hub as is used: what it asks the hub for, and how it gives it back."""
import json, os, urllib.request
from types import SimpleNamespace as N
END = os.environ["HF_ENDPOINT"]
class utils:
    @staticmethod
    def build_hf_headers():
        token = os.environ.get("HF_TOKEN")
        return {"user-agent": "stub", **({"authorization": "Bearer " + token} if token else {})}
class RepositoryNotFoundError(Exception):
    pass
class HfApi:
    def repo_info(self, repo, *, repo_type, revision, files_metadata, timeout):
        ask = urllib.request.Request(f"{END}/api/{repo_type}s/{repo}/revision/{revision}", headers=utils.build_hf_headers())
        try:
            doc = json.load(urllib.request.urlopen(ask))
        except urllib.error.HTTPError as error:
            raise RepositoryNotFoundError(str(error))
        files = [N(rfilename=f["rfilename"], size=f["size"], blob_id=f["blobId"], lfs=f.get("lfs")) for f in doc["siblings"]]
        return N(sha=doc["sha"], siblings=files)
def hf_hub_url(repo, name, *, repo_type, revision):
    return f"{END}/{repo}/resolve/{revision}/{name}"
'''


def tensors(size: int, seed: int = 1) -> bytes:
    head = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(head)) + head + bytes((number * seed) % 251 for number in range(size))


FILES = {"config.json": b"{}\n", "model-1.safetensors": tensors(300_000), "sub/model-2.safetensors": tensors(50_000, 7)}


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    made = FakeHub(dict(FILES))
    yield made
    made.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "lib" / "huggingface_hub").mkdir(parents=True)
    (tmp_path / "lib" / "huggingface_hub" / "__init__.py").write_text(STUB)
    return tmp_path


def command(place: Path, hub: FakeHub | None, *words: str, **env: str) -> subprocess.Popen[bytes]:
    if hub is not None:
        words = ("--repo", "o/m", *words)
        env["HF_ENDPOINT"] = hub.endpoint
    base = {name: value for name, value in os.environ.items() if not name.startswith("HF_") and name != "http_proxy"}
    return subprocess.Popen(
        [sys.executable, "-m", "eagletui.jobs.on_host.download", "--output", str(place / "out"), "--spare", "0", *words],
        env={**base, **env, "PYTHONPATH": f"{SOURCE}:{place / 'lib'}"},
        stdout=subprocess.PIPE,
    )


def run(place: Path, hub: FakeHub | None, *words: str, **env: str) -> dict[str, Any]:
    """Run it to its end; what it told as its result, with its status."""
    process = command(place, hub, *words, **env)
    out, _ = process.communicate(timeout=100)
    said = [json.loads(line) for line in out.splitlines()]
    return {**next(doc for doc in said if doc["eagletui"] == "result"), "rc": process.returncode, "said": said}


def whole(place: Path, files: dict[str, bytes]) -> None:
    found = {str(path.relative_to(place / "out")): path.read_bytes() for path in (place / "out").rglob("*") if path.is_file()}
    assert {name: data for name, data in found.items() if not name.startswith("eagletui.")} == files


def test_a_repository_is_whole_afterwards_and_a_token_never_leaves_the_hub(hub: FakeHub, place: Path) -> None:
    hub.token = "hf-canary"
    done = run(place, hub, HF_TOKEN="hf-canary")
    assert (done["rc"], done["files"], done["commit"], done["bytes"]) == (0, 3, COMMIT, sum(map(len, FILES.values())))
    assert done["why"] == "3 files, 342.0 KiB, 3 checked by hash"
    whole(place, FILES)
    far = [ask for ask in hub.asked if ask[0].startswith("far/")]
    assert far
    assert not any(with_token for _, _, with_token in far)
    assert all(with_token for path, _, with_token in hub.asked if not path.startswith("far/"))
    assert not [path for path in place.rglob("*") if path.is_file() and b"hf-canary" in path.read_bytes()]
    before = len(hub.asked)
    again = run(place, hub, HF_TOKEN="hf-canary")
    assert (again["rc"], again["fetched"]) == (0, 0)
    assert len(hub.asked) == before


def test_it_is_resumed_at_the_byte_after_kill_9(hub: FakeHub, place: Path) -> None:
    hub.cut, _ = 100_000, hub.hold.clear()
    process = command(place, hub, "--workers", "1")
    part = place / "out" / "model-1.safetensors.part"
    until(lambda: part.exists() and part.stat().st_size > 0, 60, "the first bytes come")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    have = part.stat().st_size
    hub.cut = None
    hub.hold.set()
    done = run(place, hub, "--workers", "1")
    assert done["rc"] == 0
    whole(place, FILES)
    spans = [span for path, span, _ in hub.asked if path == "far/model-1.safetensors"]
    assert spans[1] == f"bytes={have}-"
    first = next(doc for doc in done["said"] if doc.get("stage") == "fetching")
    assert first["done"] >= have  # what was there is done, and no work of this run


def test_a_connection_that_breaks_is_taken_up_where_it_broke(hub: FakeHub, place: Path) -> None:
    hub.cut = 100_000
    done = run(place, hub)
    assert done["rc"] == 0
    whole(place, FILES)
    troubles = [doc["text"] for doc in done["said"] if doc["eagletui"] == "trouble"]
    assert "attempt 2 of" in troubles[0]
    assert troubles[-1] is None


def test_nothing_is_written_when_the_disk_has_no_room(hub: FakeHub, place: Path) -> None:
    done = run(place, hub, "--spare", "1000000000")
    assert done["rc"] == 1
    assert "free, and 342.0 KiB are still to come" in done["why"]
    assert "nothing was written" in done["why"]
    assert not (place / "out").exists()
    assert not [ask for ask in hub.asked if ask[0].startswith("far/")]


def test_a_hash_that_is_wrong_is_no_file(hub: FakeHub, place: Path) -> None:
    hub.told["sub/model-2.safetensors"] = "0" * 64
    done = run(place, hub)
    assert (done["rc"], "its SHA-256 is not what the hub tells" in done["why"]) == (1, True)
    assert not (place / "out" / "sub" / "model-2.safetensors").exists()
    assert len([ask for ask in hub.asked if ask[0] == "far/sub/model-2.safetensors"]) == download.ATTEMPTS


@pytest.mark.parametrize(
    ("words", "env", "why"),
    [
        ((), {"HF_TOKEN": "wrong"}, "is HF_TOKEN one that may read it?"),
        ((), {}, 'secrets = ["HF_TOKEN"] hands your token over'),
        (("--revision", "v9"), {"HF_TOKEN": "right"}, "the hub has no o/m, or it is private"),
    ],
)
def test_what_the_hub_does_not_give_is_told(
    hub: FakeHub, place: Path, words: tuple[str, ...], env: dict[str, str], why: str
) -> None:
    hub.token = "right"
    done = run(place, hub, *words, **env)
    assert (done["rc"], why in done["why"]) == (1, True), done["why"]
    assert not (place / "out").exists()


def test_names_that_lead_out_of_the_output_are_refused(hub: FakeHub, place: Path) -> None:
    hub.files["../evil"] = b"x"
    done = run(place, hub)
    assert (done["rc"], "is no name for one" in done["why"]) == (1, True)


def test_only_what_is_wanted(hub: FakeHub, place: Path) -> None:
    done = run(place, hub, "--file", "*.safetensors", "--skip", "sub/*")
    assert (done["rc"], done["files"]) == (0, 1)
    whole(place, {"model-1.safetensors": FILES["model-1.safetensors"]})
    other = run(place, hub)
    assert (other["rc"], "made of other inputs (files was" in other["why"]) == (1, True)
    assert run(place, hub, "--file", "*.gguf")["rc"] == 1


# --------------------------------------------------------------------------------------------------------------- copies


@pytest.fixture
def source(place: Path) -> Path:
    for name, data in FILES.items():
        path = place / "from" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (place / "from" / "tool.sh").write_text("#!/bin/sh\n")
    (place / "from" / "tool.sh").chmod(0o755)
    blob = place / "blob"
    blob.write_bytes(b"linked")
    (place / "from" / "linked.txt").symlink_to(blob)
    return place / "from"


def test_a_directory_is_copied_with_what_its_links_lead_to(place: Path, source: Path) -> None:
    done = run(place, None, "--source", str(source))
    assert (done["rc"], done["files"]) == (0, 5)
    whole(place, {**FILES, "tool.sh": b"#!/bin/sh\n", "linked.txt": b"linked"})
    assert not (place / "out" / "linked.txt").is_symlink()
    assert os.access(place / "out" / "tool.sh", os.X_OK)
    assert (place / "out" / "config.json").stat().st_mtime_ns == (source / "config.json").stat().st_mtime_ns
    (source / "config.json").write_text("{ }\n")
    changed = run(place, None, "--source", str(source))
    assert (changed["rc"], "made of other inputs (content was" in changed["why"]) == (1, True)


def test_a_half_copy_goes_on_only_when_it_is_the_sources(place: Path, source: Path) -> None:
    out = place / "out"
    assert run(place, None, "--source", str(source))["rc"] == 0
    for name, half in (("model-1.safetensors", FILES["model-1.safetensors"][:1000]), ("config.json", b"x")):
        (out / name).unlink()
        (out / (name + manifest.PART)).write_bytes(half)
    done = run(place, None, "--source", str(source))
    assert done["rc"] == 0
    whole(place, {**FILES, "tool.sh": b"#!/bin/sh\n", "linked.txt": b"linked"})
    assert done["fetched"] == len(FILES["model-1.safetensors"]) - 1000 + len(FILES["config.json"]) - 1


def test_a_source_that_is_not_whole_or_leads_into_itself(place: Path, source: Path) -> None:
    (source / "sub" / "up").symlink_to(source)
    (source / "gone").symlink_to(place / "nothing")
    done = run(place, None, "--source", str(source))
    assert (done["rc"], "is a link to nothing" in done["why"]) == (1, True)
    (source / "gone").unlink()
    assert run(place, None, "--source", str(source))["files"] == 5
    assert "is not there" in run(place, None, "--source", str(place / "nothing"))["why"]
    with pytest.raises(ValueError, match="lies within"):
        copying.Copied(str(source), str(source / "sub" / "out")).listing()


def test_a_source_that_changes_meanwhile_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    copied = copying.Copied(str(path), str(tmp_path / "out"))
    entry = copied.listing().files["a"]
    path.write_bytes(b"123456")
    with pytest.raises(ValueError, match="was changed while it was copied"):
        list(copied.open(entry, 0))


# ------------------------------------------------------------------------------------------------------- what is checked


def test_what_is_wrong_with_a_finished_download(tmp_path: Path) -> None:
    index = json.dumps({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}).encode()
    files = {"m-1.safetensors": tensors(100), "m.safetensors.index.json": index, "x.json": b"{}"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    wanted = manifest.Manifest("s", None, {name: manifest.Entry(name, len(data)) for name, data in files.items()})
    manifest.write(str(tmp_path), wanted)
    assert manifest.read(str(tmp_path)) == wanted
    (found,) = manifest.problems(str(tmp_path), wanted)
    assert "names 1 shards that its source does not have (m-2.safetensors)" in found
    (tmp_path / "m-2.safetensors").write_bytes(tensors(5))
    assert manifest.problems(str(tmp_path), wanted) == []
    broken = bytearray(files["m-1.safetensors"])
    broken[0] = 255
    (tmp_path / "m-1.safetensors").write_bytes(broken)
    (tmp_path / "x.json").write_bytes(b"{")
    first, second = sorted(manifest.problems(str(tmp_path), wanted))
    assert "m-1.safetensors" in first
    assert second == "x.json has 1 bytes instead of 2"
    watcher = kinds.kind("download").watcher({"output": str(tmp_path)}, "/")
    assert watcher is not None
    watcher.feed(b'{"eagletui": "result", "why": "3 files"}\n', 0.0)
    assert watcher.outcome(0, False).ok is False


def test_the_keys_of_a_download_together() -> None:
    kind = kinds.kind("download")
    assert [item.key for item in kind.check({"output": "/o"})] == ["repo"]
    assert [item.key for item in kind.check({"repo": "o/m", "source": "/s"})] == ["source"]
    assert [item.what for item in kind.check({"repo": "o/m"})] == ["'python' is missing: the hub is asked by huggingface_hub"]
    assert [item.key for item in kind.check({"repo": "https://x/o/m", "python": "/p"})] == ["repo"]
    spec = kind.spec({"repo": "o/m", "python": "/p", "output": "/o", "secrets": ["HF_TOKEN"], "skip": ["*.bin"]}, "j")
    assert (spec["on_host"], spec["secrets"], spec["argv"][:3]) == (
        True,
        ["HF_TOKEN"],
        ["/p", "-m", "eagletui.jobs.on_host.download"],
    )
    assert kind.title(spec) == "o/m to /o"
