"""A root directory of a host without python3: a shell, small programs, copies of /proc's files, a nvidia-smi of the test's."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from eagletui.hosts import smi

PROGRAMS = ("sh", "cat", "head", "tail", "uname", "id", "date", "grep", "stat", "df", "sleep")
IN_ROOT = """#!/bin/sh
exec chroot {root} /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
_ROW = {
    "index": "{n}", "uuid": "GPU-{n}", "name": "NVIDIA H200", "pci.bus_id": "00000000:0{n}:00.0", "driver_version": "570.148.08",
    "utilization.gpu": "9{n}", "utilization.memory": "40", "memory.used": "1024", "memory.total": "143771",
    "power.draw": "612.50", "power.limit": "700.00", "temperature.gpu": "6{n}", "fan.speed": "[N/A]",
    "clocks.sm": "1980", "clocks.mem": "3201", "clocks.max.sm": "1980", "clocks.max.mem": "3201", "pstate": "P0",
    "pcie.link.gen.current": "5", "pcie.link.gen.max": "5", "pcie.link.width.current": "16", "pcie.link.width.max": "16",
}  # fmt: skip
CARD = ", ".join(_ROW[name] for name, _, _ in smi.FIELDS)
APPS = "GPU-0, 4242, 1000, /opt/venv/bin/python3, with a comma"


def table(cards: int = 2) -> str:
    """What nvidia-smi prints for that many healthy cards."""
    return "\n".join(CARD.format(n=n) for n in range(cards))


def smi_script(body: str) -> str:
    """A nvidia-smi: ``body`` is what it does when asked for the cards; every start of it is noted in /started."""
    return f'#!/bin/sh\ncase "$1" in *compute-apps*) echo "{APPS}"; exit 0;; esac\necho x >>/started\n{body}\n'


def cards_printed(cards: int = 2) -> str:
    return smi_script(f"cat <<'E'\n{table(cards)}\nE")


def plain_root(path: Path, nvidia_smi: str | None = None, python: str | None = None) -> Path:
    """Make it; ``python`` is a script there that says it is python3."""
    for folder in ("bin", "dev/shm", "usr/bin", "etc", "proc/sys/kernel/random", "proc/net"):
        (path / folder).mkdir(parents=True)
    os.mknod(path / "dev" / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    for name in PROGRAMS:
        copy_with_libraries(name, path)
    for name in ("uptime", "stat", "meminfo", "loadavg", "net/dev", "cpuinfo", "sys/kernel/random/boot_id"):
        (path / "proc" / name).write_bytes(Path("/proc", name).read_bytes())
    (path / "etc" / "os-release").write_text('PRETTY_NAME="Small Linux 1"\n')
    for name, text in (("nvidia-smi", nvidia_smi), ("python3", python)):
        if text is not None:
            script = path / "usr" / "bin" / name
            script.write_text(text)
            script.chmod(0o755)
    return path


def copy_with_libraries(name: str, root: Path) -> None:
    program = shutil.which(name, path="/usr/bin:/bin")
    assert program is not None, name
    shutil.copy(Path(program).resolve(), root / "bin" / name)
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"(/\S+)", listed):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(Path(library).resolve(), target)
