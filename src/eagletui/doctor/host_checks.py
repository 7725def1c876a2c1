"""Checks of the host, from its facts: pure functions, one per subject."""

from __future__ import annotations

import re
from collections.abc import Iterator

from eagletui import text
from eagletui.doctor.facts import SMI, HostFacts, own_cgroup
from eagletui.doctor.findings import Finding
from eagletui.watch.alerts import board_signs, host_signs

NETWORK_FILESYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "fuse.sshfs", "9p", "ceph")


def judge_host(facts: HostFacts, expected_cards: int | None = None) -> list[Finding]:
    """All findings on the host."""
    return [
        *_python(facts),
        *_clock(facts),
        *_kernel(facts),
        *_cards(facts, expected_cards),
        *_storage(facts),
        *_state(facts),
        *_survival(facts),
        *_limits(facts),
    ]


def _python(facts: HostFacts) -> Iterator[Finding]:
    info = facts.info
    where = f" in a container ({info.container})" if info.container else ""
    yield Finding(
        "host", "ok", "host", f"{info.hostname}{where}: {info.os_name or 'Linux'}, kernel {info.kernel}, {info.cpus} CPUs"
    )
    yield Finding("python", "ok", "python on the host", f"{info.python}, as {info.user}")


def _clock(facts: HostFacts) -> Iterator[Finding]:
    signs = [sign for sign in host_signs(None, facts.offset) if sign.firm]
    if signs:
        yield Finding("clock", "warn", "clocks differ", signs[0].text, signs[0].remedy or "")
    else:
        yield Finding("clock", "ok", "clocks agree", f"within {max(abs(facts.offset), facts.doubt):.2f} s")


def _kernel(facts: HostFacts) -> Iterator[Finding]:
    match = re.match(r"(\d+)\.(\d+)", facts.info.kernel)
    version = (int(match.group(1)), int(match.group(2))) if match else None
    if version is not None and version < (5, 3):
        yield Finding(
            "pidfd",
            "warn",
            "no safe signals (pidfd)",
            f"kernel {facts.info.kernel}, 5.3 has it",
            "jobs are still killed with their identity checked, just before the signal",
        )
    elif version is not None:
        yield Finding("pidfd", "ok", "safe signals (pidfd)", f"kernel {facts.info.kernel}")
    if facts.stats.get("/sys/fs/cgroup/cgroup.controllers") is None:
        yield Finding(
            "cgroup",
            "info",
            "no unified control groups (cgroup v2)",
            "/sys/fs/cgroup/cgroup.controllers is not there",
            "a job's processes are found by session and descent instead",
        )
        return
    own = own_cgroup(facts.texts.get("cgroup", ""))
    kill = facts.stats.get(f"/sys/fs/cgroup{own}/cgroup.kill") if own else None
    yield Finding("cgroup", "ok", "control groups", "cgroup v2" + (" with cgroup.kill" if kill else ""))


def _cards(facts: HostFacts, expected: int | None) -> Iterator[Finding]:
    board = facts.board
    smi = next((path for path in SMI if facts.stats.get(path)), None)
    driver = facts.texts.get("driver", "")
    if board is None:
        yield Finding(
            "nvml", "bad", "the cards do not answer", facts.board_problem, "run nvidia-smi on the host; dmesg | grep -i xid"
        )
        return
    if not board.present:
        if expected:
            yield Finding(
                "nvml",
                "bad",
                "no NVIDIA driver",
                f"{text.plural(expected, 'card')} expected; {board.problem or ''}".rstrip("; "),
                "install the driver",
            )
        elif driver or smi:
            what = "the kernel module is loaded" if driver else f"{smi} is there"
            yield Finding(
                "nvml",
                "bad",
                "the driver's library is missing",
                f"{board.problem or 'no libnvidia-ml'}, but {what}",
                "in a container: start it with the cards (--gpus all); else reinstall the driver",
            )
        else:
            yield Finding("nvml", "info", "no NVIDIA driver", board.problem or "no libnvidia-ml, no kernel module", "")
        return
    answering = sum(card.lost is None for card in board.cards)
    names = sorted({text.short_card(card.name) for card in board.cards if card.name})
    yield Finding(
        "nvml",
        "ok" if answering else "bad",
        "cards",
        f"{answering} of {max(len(board.cards), board.expected or 0, expected or 0)} answer: {', '.join(names) or '-'}; "
        f"driver {board.driver or '-'}, CUDA {board.cuda or '-'}",
    )
    for sign in board_signs(board, expected):
        yield Finding(sign.key, sign.severity, sign.text, "", sign.remedy or "")
    off = [str(card.number) for card in board.cards if card.persistence is False]
    if off:
        yield Finding(
            "persistence",
            "warn",
            "persistence mode is off",
            f"card {', '.join(off)}: the first use after a pause takes seconds",
            "nvidia-smi -pm 1 (as root), or enable nvidia-persistenced",
        )
    if smi:
        yield Finding("nvidia-smi", "ok", "nvidia-smi", smi)
    else:
        yield Finding("nvidia-smi", "info", "no nvidia-smi found", "eagletui asks NVML itself and does not need it")


def _storage(facts: HostFacts) -> Iterator[Finding]:
    sample = facts.sample
    if sample is None:
        yield Finding("disks", "warn", "disks, memory not read", "no sample came", "see whether /proc is mounted")
        return
    signs = {sign.key: sign for sign in host_signs(sample)}
    for disk in sample.disks:
        sign = signs.pop(f"disk:{disk.mount}", None)
        severity = sign.severity if sign is not None and sign.firm else "ok"
        yield Finding(
            f"disk:{disk.mount}",
            severity,
            f"disk {disk.mount}",
            f"{text.size(disk.free)} of {text.size(disk.total)} free ({disk.fstype})",
            "" if severity == "ok" else "free some space",
        )
    sign = signs.pop("host:shm", None)
    if sample.shm_total is not None:
        small = sample.shm_total < 1 << 30
        severity = sign.severity if sign is not None and sign.firm else "warn" if small else "ok"
        remedy = (
            (sign.remedy or "") if sign is not None else "start the container with --ipc=host or --shm-size=16g" if small else ""
        )
        used = sample.shm_used or 0
        yield Finding(
            "shm", severity, "/dev/shm", f"{text.size(sample.shm_total - used)} of {text.size(sample.shm_total)} free", remedy
        )
    memory = [sign for sign in signs.values() if sign.firm]
    for sign in memory:
        yield Finding(sign.key, sign.severity, sign.text, "", sign.remedy or "")
    if not memory and sample.mem_total is not None:
        yield Finding("memory", "ok", "memory", f"{text.size(sample.mem_available)} of {text.size(sample.mem_total)} available")


def _state(facts: HostFacts) -> Iterator[Finding]:
    info = facts.info
    if info.state_problem:
        yield Finding(
            "state", "warn", "jobs cannot be kept here", info.state_problem, "watching works; mend it before the first launch"
        )
        return
    if not info.state_dir:
        return
    kind = filesystem_of(info.state_dir, facts.texts.get("mounts", ""))
    if kind in NETWORK_FILESYSTEMS:
        yield Finding(
            "state",
            "warn",
            "the state directory is on a network",
            f"{info.state_dir} lies on {kind}: locks and bounded logs may fail there",
            "set EAGLETUI_STATE to a local directory on the host",
        )
    elif facts.stats.get(info.state_dir):
        yield Finding("state", "ok", "state directory", info.state_dir)
    else:
        yield Finding("state", "ok", "state directory", f"{info.state_dir}, made at the first launch")


def filesystem_of(path: str, mounts: str) -> str | None:
    """The type of the file system that holds ``path``, from the text of /proc/self/mounts."""
    best, kind = "", None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ")
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, fields[2]
    return kind


def _survival(facts: HostFacts) -> Iterator[Finding]:
    info = facts.info
    if not info.systemd:
        yield Finding("survival", "ok", "jobs outlive the connection", "no systemd here: each is its own session")
        return
    if info.uid == 0:
        yield Finding("survival", "ok", "jobs outlive the connection", "as systemd units")
        return
    kills = kill_user_processes(facts.texts.get("logind", ""))
    linger = facts.stats.get(f"/var/lib/systemd/linger/{info.user}") is not None
    if linger:
        yield Finding("survival", "ok", "jobs outlive the connection", f"{info.user} lingers")
    elif kills:
        yield Finding(
            "survival",
            "bad",
            "jobs would end with the connection",
            "logind has KillUserProcesses=yes and you do not linger",
            f"sudo loginctl enable-linger {info.user}",
        )
    else:
        yield Finding("survival", "ok", "jobs outlive the connection", "logind leaves processes alone (KillUserProcesses=no)")


def kill_user_processes(conf: str) -> bool:
    """Whether logind ends what a user leaves behind; the last setting counts, the default is no."""
    value = False
    for line in conf.splitlines():
        name, equals, setting = line.partition("=")
        if equals and name.strip() == "KillUserProcesses":
            value = setting.strip().lower() in ("yes", "true", "1", "on", "y", "t")
    return value


def _limits(facts: HostFacts) -> Iterator[Finding]:
    limits = parse_limits(facts.texts.get("limits", ""))
    files = limits.get("Max open files")
    if files is not None:
        soft, hard = files
        low = hard is not None and hard < 4096
        yield Finding(
            "nofile",
            "warn" if low else "ok",
            "open files",
            f"limit {_limit(soft)}, at most {_limit(hard)}",
            "raise nofile in /etc/security/limits.conf: servers with many connections run out" if low else "",
        )
    locked = limits.get("Max locked memory")
    if locked is not None:
        hard = locked[1]
        low = hard is not None and hard < 1 << 30
        yield Finding(
            "memlock",
            "info" if low else "ok",
            "locked memory",
            f"at most {text.size(hard) if hard is not None else 'no limit'}",
            "RDMA and pinned host memory may need more: memlock in /etc/security/limits.conf" if low else "",
        )


def _limit(value: int | None) -> str:
    return "no limit" if value is None else f"{value:,}"


def parse_limits(content: str) -> dict[str, tuple[int | None, int | None]]:
    """``{name: (soft, hard)}`` of /proc/self/limits; None is unlimited."""
    out = {}
    for line in content.splitlines():
        match = re.match(r"(Max .*?)\s{2,}(\d+|unlimited)\s+(\d+|unlimited)\b", line)
        if match:
            soft, hard = (None if value == "unlimited" else int(value) for value in match.groups()[1:])
            out[match.group(1)] = (soft, hard)
    return out
