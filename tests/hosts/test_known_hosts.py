"""The reader of known_hosts files and the policy on what they say, compared with ssh-keygen where it can be."""

from __future__ import annotations

import base64
import hashlib
import hmac
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagletui.hosts.known_hosts import HostKey, append, host_name, judge, load, look_up, matches, parse, randomart, removal


def make(kind: str = "ssh-ed25519", seed: bytes = b"a") -> HostKey:
    body = hashlib.sha256(seed).digest()
    return HostKey(kind, len(kind).to_bytes(4, "big") + kind.encode() + len(body).to_bytes(4, "big") + body)


A, B, R = make(), make(seed=b"b"), make("ssh-rsa")


def verdict(text: str, key: HostKey, host: str = "gpu", port: int = 22, address: str | None = "10.0.0.5") -> str:
    return judge(look_up(parse(text, "file"), host, address, port), key).kind


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        ("gpu", "gpu", True),
        ("GPU", "gpu", True),
        ("gpu", "gpu2", False),
        ("a,gpu,b", "gpu", True),
        ("*.example.org", "gpu.example.org", True),
        ("*.example.org", "example.org", False),
        ("gpu?", "gpu1", True),
        ("*,!gpu", "gpu", False),
        ("!gpu", "other", False),
        ("[gpu]:2222", "[gpu]:2222", True),
        ("[gpu]:2222", "g:2222", False),
        ("[*]:2222", "[gpu]:2222", True),
        ("[gpu]:2222", "gpu", False),
    ],
)
def test_names(patterns: str, name: str, expected: bool) -> None:
    assert matches(patterns, name) is expected


def test_hashed_names() -> None:
    salt = b"0" * 20
    digest = hmac.new(salt, b"[gpu]:2222", hashlib.sha1).digest()
    line = f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
    assert matches(line, "[gpu]:2222")
    assert not matches(line, "gpu")
    assert verdict(f"{line} {A.text}", A, port=2222) == "trusted"


@pytest.mark.parametrize(
    ("text", "key", "port", "expected"),
    [
        ("", A, 22, "unknown"),
        (f"gpu {A.text}", A, 22, "trusted"),
        (f"gpu {A.text} a comment of words", A, 22, "trusted"),
        (f"gpu {A.text}", B, 22, "changed"),
        (f"gpu {A.text}\ngpu {B.text}", B, 22, "trusted"),
        (f"gpu {R.text}", A, 22, "other-type"),
        (f"gpu {R.text}\ngpu {B.text}", A, 22, "changed"),
        (f"gpu {A.text}", A, 2222, "trusted"),  # as OpenSSH: the plain name holds on every port
        (f"gpu {A.text}", B, 2222, "unknown"),  # but another key there is another server
        (f"[gpu]:2222 {A.text}", B, 2222, "changed"),
        (f"[gpu]:2222 {A.text}", B, 22, "unknown"),
        (f"other {A.text}", A, 22, "unknown"),
        (f"10.0.0.5 {A.text}", A, 22, "unknown"),  # an address alone vouches for no name
        (f"@revoked gpu {A.text}", A, 22, "revoked"),
        (f"@revoked gpu {A.text}\ngpu {A.text}", A, 22, "revoked"),
        (f"gpu {A.text}\n@revoked * {A.text}", A, 2222, "revoked"),
        (f"[gpu]:2222 {A.text}\n@revoked gpu {A.text}", A, 2222, "revoked"),
        (f"gpu {A.text}\n@revoked 10.0.0.5 {A.text}", A, 22, "revoked"),
        (f"@revoked gpu {A.text}", B, 22, "unknown"),
        (f"@cert-authority gpu {A.text}", A, 22, "unknown"),  # an authority's key is no host's key
    ],
)
def test_policy(text: str, key: HostKey, port: int, expected: str) -> None:
    assert verdict(text, key, port=port) == expected


def test_bad_lines_are_skipped_and_named() -> None:
    text = "\n".join(
        (
            "# a comment",
            "gpu",
            f"@wrong gpu {A.text}",
            "gpu ssh-ed25519 not-base64!",
            f"gpu ssh-rsa {A.text.split()[1]}",
            f"|2|x|y {A.text}",
            "|1|!|! ssh-ed25519 AAAA",
            "",
            f"gpu {A.text}",
        )
    )
    known = parse(text, "file")
    assert [entry.line for entry in known.entries] == [9]
    assert [bad.line for bad in known.bad] == [2, 3, 4, 5, 6, 7]
    assert all(bad.why for bad in known.bad)


@given(st.text())
def test_no_text_stops_the_reader(text: str) -> None:
    known = parse(text + f"\ngpu {A.text}\n", "file")
    assert known.entries[-1].key == A
    look_up(known, "gpu", "10.0.0.5", 22)


def test_files_that_are_missing_or_unreadable(tmp_path: Path) -> None:
    (tmp_path / "one").write_text(f"gpu {A.text}\n")
    (tmp_path / "two").mkdir()
    known = load([str(tmp_path / name) for name in ("none", "one", "two", "one")])
    assert [entry.where for entry in known.entries] == [f"{tmp_path}/one:1"]
    assert [bad.path for bad in known.bad] == [str(tmp_path / "two")]


@pytest.mark.parametrize("hashed", [False, True])
def test_appending(tmp_path: Path, hashed: bool) -> None:
    path = tmp_path / "ssh" / "known_hosts"
    assert append(str(path), "gpu", 2222, A, hashed=hashed) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_text(path.read_text().rstrip("\n"))  # as an editor may leave it
    assert append(str(path), "other", 22, B, hashed=hashed) == 2
    known = load([str(path)])
    assert not known.bad
    assert judge(look_up(known, "gpu", None, 2222), A).kind == "trusted"
    assert judge(look_up(known, "other", None, 22), B).kind == "trusted"
    assert ("gpu" in path.read_text()) is not hashed


def test_appending_keeps_every_byte_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    before = b"# \xff odd bytes\r\ngpu broken\n"
    path.write_bytes(before)
    append(str(path), "new", 22, A)
    assert path.read_bytes() == before + f"new {A.text}\n".encode()


def test_the_removal_command_removes(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    append(str(path), "gpu", 2222, A)
    append(str(path), "gpu", 22, B)
    subprocess.run(removal(str(path), "gpu", 2222), shell=True, check=True, capture_output=True)
    assert path.read_text() == f"gpu {B.text}\n"


@pytest.mark.parametrize("kind", [("ed25519", "256"), ("ecdsa", "256"), ("ecdsa", "521"), ("rsa", "2048")])
def test_fingerprint_and_picture_as_ssh_keygen(tmp_path: Path, kind: tuple[str, str]) -> None:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind[0], "-b", kind[1], "-N", "", "-f", str(path)], check=True)
    listed = subprocess.run(["ssh-keygen", "-lv", "-f", str(path)], capture_output=True, text=True, check=True).stdout
    name, encoded = Path(f"{path}.pub").read_text().split()[:2]
    key = HostKey(name, base64.b64decode(encoded))
    assert key.fingerprint == listed.split()[1]
    assert randomart(key) == listed.partition("\n")[2].rstrip("\n")


def test_names_with_ports() -> None:
    assert host_name("GPU", 22) == "gpu"
    assert host_name("::1", 2222) == "[::1]:2222"
