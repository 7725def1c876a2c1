"""Which host keys are trusted: OpenSSH's known_hosts files, read line by line, and our policy on what they say.

A line that cannot be read is skipped and reported, as OpenSSH does; it never makes a host unreachable. Order of the
policy: a revoked key is refused; a key listed for the name is trusted; another key of a listed type is a changed key and is
refused; a host of which only other types are listed is refused with words of its own; anything else is unknown.
Names are matched as ``host`` on port 22 and ``[host]:port`` elsewhere; on another port a plain line for the host also
trusts (as OpenSSH), but never makes a key "changed". Lines for the address only revoke.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import fnmatch
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

DEFAULT_PORT = 22


class HostKey(NamedTuple):
    """A public key: its type ("ssh-ed25519") and the raw SSH blob."""

    type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.blob).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def text(self) -> str:
        return f"{self.type} {base64.b64encode(self.blob).decode()}"


class Entry(NamedTuple):
    """One usable line of a known_hosts file. ``marker``: "", "cert-authority" or "revoked"."""

    marker: str
    patterns: str
    key: HostKey
    path: str
    line: int

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}"


class BadLine(NamedTuple):
    """A line that was skipped, and why."""

    path: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}"


class KnownHosts(NamedTuple):
    """All lines of all files. ``bad`` are the skipped lines, and files that exist but cannot be read (line 0)."""

    entries: tuple[Entry, ...]
    bad: tuple[BadLine, ...] = ()


class Known(NamedTuple):
    """What the files say of one host: the trusted keys, authorities and revoked keys, and ``named``: lines for exactly it."""

    trusted: tuple[Entry, ...]
    authorities: tuple[Entry, ...]
    revoked: tuple[Entry, ...]
    named: tuple[Entry, ...]


class Verdict(NamedTuple):
    """``kind``: trusted, revoked, changed, other-type or unknown; ``entries`` are the lines that decided it."""

    kind: str
    entries: tuple[Entry, ...] = ()


def _line(text: str, path: str, number: int) -> Entry:
    fields = text.split()
    marker = ""
    if fields[0].startswith("@"):
        marker = fields.pop(0)[1:]
        if marker not in ("cert-authority", "revoked"):
            raise ValueError(f"unknown marker @{marker}")
    if len(fields) < 3:
        raise ValueError("expected names, key type and key")
    patterns, key_type, encoded = fields[:3]
    if patterns.startswith("|"):
        _hashed(patterns)
    try:
        blob = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ValueError("the key is not base64") from None
    length = int.from_bytes(blob[:4], "big")
    if len(blob) < 4 or blob[4 : 4 + length] != key_type.encode():
        raise ValueError(f"the key is not of the type {key_type} that stands before it")
    return Entry(marker, patterns, HostKey(key_type, blob), path, number)


def _hashed(pattern: str) -> tuple[bytes, bytes]:
    parts = pattern.split("|")
    if len(parts) != 4 or parts[1] != "1":
        raise ValueError("unknown kind of hashed name")
    try:
        return base64.b64decode(parts[2], validate=True), base64.b64decode(parts[3], validate=True)
    except binascii.Error:
        raise ValueError("the hashed name is not base64") from None


def parse(text: str, path: str) -> KnownHosts:
    """Read the text of one file; lines that make no sense go to ``bad``."""
    entries: list[Entry] = []
    bad: list[BadLine] = []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            entries.append(_line(stripped, path, number))
        except ValueError as error:
            bad.append(BadLine(path, number, str(error)))
    return KnownHosts(tuple(entries), tuple(bad))


def load(paths: Iterable[str]) -> KnownHosts:
    """Read all files; one that does not exist knows no host, one that cannot be read is reported in ``bad``."""
    entries: tuple[Entry, ...] = ()
    bad: tuple[BadLine, ...] = ()
    for path in dict.fromkeys(paths):
        try:
            text = Path(path).read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            continue  # nothing is known there yet
        except OSError as error:
            bad += (BadLine(path, 0, f"cannot be read: {error.strerror}"),)
            continue
        found = parse(text, path)
        entries, bad = entries + found.entries, bad + found.bad
    return KnownHosts(entries, bad)


def host_name(host: str, port: int) -> str:
    """The name as it stands in known_hosts: ``host``, or ``[host]:port`` when the port is not 22."""
    return host.lower() if port == DEFAULT_PORT else f"[{host.lower()}]:{port}"


def _wildcard(pattern: str, name: str) -> bool:
    # only * and ? are special in known_hosts; brackets belong to [host]:port
    return fnmatch.fnmatchcase(name, re.sub(r"\[", "[[]", pattern.lower()))


def matches(patterns: str, name: str) -> bool:
    """Whether a line's names (comma separated, * ? and ! for "not", or one hashed name) match ``name``."""
    if patterns.startswith("|"):
        salt, digest = _hashed(patterns)
        return hmac.compare_digest(hmac.new(salt, name.encode(), hashlib.sha1).digest(), digest)
    positive = False
    for pattern in patterns.split(","):
        if pattern.startswith("!"):
            if _wildcard(pattern[1:], name):
                return False
        elif pattern and _wildcard(pattern, name):
            positive = True
    return positive


def look_up(known: KnownHosts, host: str, address: str | None, port: int) -> Known:
    """What is known of ``host`` (the alias when HostKeyAlias is set), reached at ``address``."""
    exact = host_name(host, port)
    names = dict.fromkeys((exact, host.lower()))
    addresses = dict.fromkeys((host_name(address, port), address.lower())) if address else {}
    named = tuple(e for e in known.entries if matches(e.patterns, exact))
    loose = tuple(e for e in known.entries if e not in named and any(matches(e.patterns, n) for n in names))
    near = tuple(e for e in known.entries if e.marker == "revoked" and any(matches(e.patterns, a) for a in addresses))
    every = named + loose
    return Known(
        trusted=tuple(e for e in every if not e.marker),
        authorities=tuple(e for e in every if e.marker == "cert-authority"),
        revoked=tuple(dict.fromkeys(tuple(e for e in every if e.marker == "revoked") + near)),
        named=tuple(e for e in named if not e.marker),
    )


def judge(known: Known, key: HostKey) -> Verdict:
    """What to do with the key that the host showed."""
    revoked = tuple(e for e in known.revoked if e.key.blob == key.blob)
    if revoked:
        return Verdict("revoked", revoked)
    same = tuple(e for e in known.trusted if e.key.blob == key.blob)
    if same:
        return Verdict("trusted", same)
    changed = tuple(e for e in known.named if e.key.type == key.type)
    if changed:
        return Verdict("changed", changed)
    return Verdict("other-type", known.named) if known.named else Verdict("unknown")


def append(path: str, host: str, port: int, key: HostKey, *, hashed: bool = False) -> int:
    """Add one line for the host; returns its number. Creates the file (0600) and its directory (0700) when missing.

    The file is locked against other writers, only ever appended to, and a last line without newline is completed first.
    Raises OSError when it cannot be written.
    """
    name = host_name(host, port)
    if hashed:
        salt = os.urandom(20)
        digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
        name = f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
    directory = Path(path).parent
    if not directory.exists():
        directory.mkdir(mode=0o700, parents=True)
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(fd, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        missing = b"\n" if before and not before.endswith(b"\n") else b""
        file.write(missing + f"{name} {key.text}\n".encode())
        file.flush()
        os.fsync(file.fileno())
    return before.count(b"\n") + len(missing) + 1


def removal(path: str, host: str, port: int) -> str:
    """The command that takes the host's lines out of a file."""
    return f"ssh-keygen -f '{path}' -R '{host_name(host, port)}'"


def default_files(home: Path | None = None) -> tuple[list[str], list[str]]:
    """The user's and the machine's files, as OpenSSH's defaults."""
    ssh = (home or Path.home()) / ".ssh"
    return [str(ssh / "known_hosts"), str(ssh / "known_hosts2")], ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]


def randomart(key: HostKey) -> str:
    """The picture that ``ssh-keygen -lv`` draws of a key's SHA256 fingerprint (the drunken bishop), 11 lines."""
    width, height, values = 17, 9, " .o+=*BOX@%&#/^SE"
    field = [[0] * width for _ in range(height)]
    x, y = width // 2, height // 2
    for byte in hashlib.sha256(key.blob).digest():
        for _ in range(4):
            x = min(max(x + (1 if byte & 1 else -1), 0), width - 1)
            y = min(max(y + (1 if byte & 2 else -1), 0), height - 1)
            field[y][x] = min(field[y][x] + 1, len(values) - 3)
            byte >>= 2
    field[height // 2][width // 2] = len(values) - 2
    field[y][x] = len(values) - 1
    title = f"[{_art_name(key)}]"
    rows = [_frame(title, width)]
    rows += ["|" + "".join(values[n] for n in row) + "|" for row in field]
    return "\n".join([*rows, _frame("[SHA256]", width)])


def _frame(title: str, width: int) -> str:
    left = (width - len(title)) // 2
    return "+" + "-" * left + title + "-" * (width - len(title) - left) + "+"


def _art_name(key: HostKey) -> str:
    names: Sequence[tuple[str, str]] = (
        ("ssh-ed25519", "ED25519 256"),
        ("ecdsa-sha2-nistp256", "ECDSA 256"),
        ("ecdsa-sha2-nistp384", "ECDSA 384"),
        ("ecdsa-sha2-nistp521", "ECDSA 521"),
    )
    known = dict(names).get(key.type)
    if known:
        return known
    return f"RSA {_rsa_bits(key.blob)}" if key.type == "ssh-rsa" else key.type[:13]


def _rsa_bits(blob: bytes) -> int:
    at, field = 0, b""
    for _ in range(3):  # type, exponent, modulus
        length = int.from_bytes(blob[at : at + 4], "big")
        field = blob[at + 4 : at + 4 + length]
        at += 4 + length
    return int.from_bytes(field, "big").bit_length()
