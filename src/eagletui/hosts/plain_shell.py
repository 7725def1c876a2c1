"""The fixed shell texts for a host without a usable python3, and what they print. No data is ever part of a command.

Each text prints sections, every one behind a line with a nonce that no login script prints: ``NONCE name``. The last is ``end``:
an answer without it was cut.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from eagletui.agent import host as proc
from eagletui.hosts import smi
from eagletui.hosts.base import Chunk, HostError
from eagletui.records import HostInfo, HostSample

# Inside single quotes, so no single quote; no `!`, which csh takes for its history.
_FRAME = "exec /bin/sh -c 'n={nonce};s(){{ echo;echo \"$n $1\";}};{body};s end'"
_TIME = "s uptime;cat /proc/uptime;s date;date +%s"
HELLO = (
    f"{_TIME};s node;uname -n;s kernel;uname -r;s boot_id;cat /proc/sys/kernel/random/boot_id;s uid;id -u;"
    "s user;id -un 2>/dev/null;s os;cat /etc/os-release 2>/dev/null;s cpus;grep -c ^processor /proc/cpuinfo;"
    "s smi;command -v nvidia-smi"
)
SAMPLE = (
    f"{_TIME};s stat;head -n 1 /proc/stat;s meminfo;cat /proc/meminfo;s load;cat /proc/loadavg;s net;cat /proc/net/dev;"
    "s shm;df -P -k /dev/shm 2>/dev/null"
)
CARDS = f"s cards;{smi.CARDS} 2>&1;r=$?;s status;echo $r;s apps;{smi.PROCESSES} 2>/dev/null"
# path, offset (negative: from the end) and limit come over stdin, one a line
READ = (
    'IFS= read -r p;read -r o;read -r l;s what;if test -d "$p";then echo directory;elif test -f "$p";then echo file;'
    'elif test -e "$p";then echo other;fi;test -r "$p"&&echo readable;s stat;stat -L -c "%s %d %i %Y" -- "$p" 2>/dev/null;'
    'z=$(stat -L -c %s -- "$p" 2>/dev/null);if test "$o" -lt 0;then o=$((z+o));test "$o" -lt 0&&o=0;fi;s offset;echo "$o";s data;'
    'test -f "$p"&&tail -c +$((o+1)) -- "$p" 2>/dev/null|head -c "$l"'
)


def command(body: str) -> tuple[str, bytes]:
    """The line for the host's login shell and the nonce that marks its sections."""
    nonce = secrets.token_hex(16)
    return _FRAME.format(nonce=nonce, body=body), nonce.encode()


class Told:
    """What one text printed: sections of bytes by name."""

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self.parts = parts

    def text(self, name: str) -> str:
        """A section as text. Raises `KeyError` when the answer has none of that name."""
        return self.parts[name].decode("utf-8", "replace").strip()


def sections(raw: bytes, nonce: bytes) -> Told:
    """Split what was printed. Raises `HostError` when it is not whole."""
    pieces = raw.split(b"\n" + nonce + b" ")
    parts = {}
    for piece in pieces[1:]:
        name, _, content = piece.partition(b"\n")
        parts[name.decode("ascii", "replace").strip()] = content
    if "end" not in parts:
        said = " ".join(pieces[0].decode("utf-8", "replace").split())[-200:]
        why = "the host's shell did not finish" + (f": {said}" if said else "")
        raise HostError("command", why, "log in by hand and look", kind="protocol", retry=True)
    return Told(parts)


def host_info(told: Told, why: str) -> HostInfo:
    """What `HELLO` told. Raises `KeyError` or `ValueError` when that is no answer of a Linux host."""
    release = dict(line.partition("=")[::2] for line in told.text("os").splitlines())
    cpus = told.text("cpus")
    return HostInfo(
        hostname=told.text("node"),
        boot_id=told.text("boot_id"),
        user=told.text("user") or told.text("uid"),
        uid=int(told.text("uid")),
        python="",
        agent_pid=0,
        boot=float(told.text("uptime").split()[0]),
        wall=float(told.text("date")),
        kernel=told.text("kernel"),
        os_name=release.get("PRETTY_NAME", "").strip("\"'"),
        cpus=int(cpus) if cpus.isdigit() else 1,
        nvml=bool(told.text("smi")),
        state_problem=why,
    )


def host_sample(told: Told, boot: float) -> HostSample:
    """What `SAMPLE` told, but for the rates, which need two of them."""
    memory = proc.parse_meminfo(told.text("meminfo"))
    loads, tasks = proc.parse_loads(told.text("load"))
    swap = memory.get("SwapTotal")
    shm = told.text("shm").splitlines()[-1:]
    sizes = [int(word) * 1024 for word in (shm[0].split()[1:3] if shm else ()) if word.isdigit()]
    return HostSample(
        boot=boot,
        load1=loads[0],
        load5=loads[1],
        load15=loads[2],
        mem_total=memory.get("MemTotal"),
        mem_available=memory.get("MemAvailable"),
        mem_cached=memory.get("Cached"),
        mem_dirty=memory.get("Dirty"),
        swap_total=swap,
        swap_used=None if swap is None else swap - memory.get("SwapFree", swap),
        tasks=tasks,
        shm_total=sizes[0] if len(sizes) == 2 else None,
        shm_used=sizes[1] if len(sizes) == 2 else None,
    )


def read_input(path: str, offset: int, limit: int) -> bytes:
    """The stdin of `READ`."""
    return f"{path}\n{offset:d}\n{limit:d}\n".encode("utf-8", "surrogateescape")


def chunk(told: Told, path: str, identity: tuple[int, int] | None) -> Chunk:
    """What `READ` told. Raises `HostError` in the agent's words."""
    step = f"read {path}"
    what = told.text("what").split()
    if not what:
        raise HostError(step, "no such file", kind="absent")
    if what[0] != "file":
        raise HostError(step, "it is a directory" if what[0] == "directory" else "it is not a regular file", kind="agent")
    if "readable" not in what:
        raise HostError(step, "permission denied", kind="denied")
    try:
        size, dev, inode, mtime = (int(word) for word in told.text("stat").split())
        offset = int(told.text("offset"))
    except ValueError:
        raise HostError(step, "the host's `stat` answers what cannot be used", kind="agent") from None
    if identity is not None and identity != (dev, inode):
        why = "the path names another file than before (it was rotated or replaced)"
        raise HostError(step, why, "read it from its start", kind="replaced")
    data = told.parts["data"]
    # the section's own newline stands before the nonce of the next one; `sections` has taken it already
    return Chunk(data, offset, size, dev, inode, mtime=float(mtime))
