"""`hello`: what this machine is, a `records.HostInfo` on the wire. Cheap: a few small files, no child, no library loaded; the
records module itself is left out, its classes take 10 ms to make and the client waits for this answer."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, Optional

from eagletui import __version__
from eagletui.agent.calls import Call, CallError, Handler
from eagletui.agent.loop import boot_now

_LIBRARY_DIRS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
)


def hello(call: Call) -> None:
    if not sys.platform.startswith("linux"):
        raise CallError("hello", "this host runs %s" % sys.platform, "eagletui watches Linux hosts only")
    version = call.params.get("version")
    if version is not None and version != __version__:
        raise CallError("hello", "the client is %s, the agent %s" % (version, __version__), "connect again")
    root, problem = _state()
    info: Dict[str, Any] = {
        "hostname": os.uname().nodename,
        "boot_id": _text("/proc/sys/kernel/random/boot_id") or "",
        "user": _user(),
        "uid": os.geteuid(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "agent_pid": os.getpid(),
        "boot": boot_now(),
        "wall": time.time(),
        "kernel": os.uname().release,
        "os_name": _os_name(),
        "cpus": os.cpu_count() or 1,
        "page_size": os.sysconf("SC_PAGE_SIZE"),
        "clock_ticks": os.sysconf("SC_CLK_TCK"),
        "systemd": os.path.isdir("/run/systemd/system"),
        "container": _container(),
        "pid1_start": _pid1_start(),
        "nvml": has_nvml(),
        "state_dir": root,
        "state_problem": problem,
    }
    call.reply({name: value for name, value in info.items() if value is not None})


def has_nvml() -> bool:
    """Is libnvidia-ml.so.1 on this host? Looked up by name: loading it here would cost memory."""
    dirs = [d for d in os.environ.get("LD_LIBRARY_PATH", "").split(":") if d]
    if any(os.path.exists(os.path.join(d, "libnvidia-ml.so.1")) for d in dirs + list(_LIBRARY_DIRS)):
        return True
    try:
        with open("/etc/ld.so.cache", "rb") as cache:
            return b"libnvidia-ml.so.1" in cache.read()
    except OSError:
        return False  # no cache: the directories above were all there is to ask


def _state() -> Any:
    from eagletui.agent import state_dir

    root = state_dir.locate(os.environ)
    return root, state_dir.problem(root)


def _text(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536).strip()
    except OSError:
        return None


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())  # a container's user without an entry


def _os_name() -> str:
    fields: Dict[str, str] = {}
    for line in (_text("/etc/os-release") or "").splitlines():
        name, _, value = line.partition("=")
        fields[name] = value.strip("\"'")
    return fields.get("PRETTY_NAME", "")


def _container() -> Optional[str]:
    """docker, podman, kubernetes, or what the manager put into PID 1's environment (lxc, systemd-nspawn); None outside."""
    if "KUBERNETES_SERVICE_HOST" in os.environ or os.path.isdir("/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    told = _text("/run/systemd/container")
    if told:
        return told
    for item in (_text("/proc/1/environ") or "").split("\0"):  # readable to root only
        if item.startswith("container="):
            return item[len("container=") :] or None
    return None


def _pid1_start() -> Optional[int]:
    """When PID 1 started, in ticks after boot: with the boot id it names this life of a container."""
    stat = _text("/proc/1/stat")
    try:
        return int(stat.rpartition(")")[2].split()[19]) if stat else None
    except (IndexError, ValueError):
        return None


METHODS: Dict[str, Handler] = {"hello": hello}
