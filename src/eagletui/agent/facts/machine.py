"""The host card: what /proc and /sys say of the machine that multi-card serving over PCIe depends on. Read only."""

from __future__ import annotations

import glob
import os
import re
import struct
from typing import Any, Dict, List, Optional

from eagletui.agent import procfs
from eagletui.agent.facts.clock import Clock

PCI = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
_ACS = 0x000D  # the extended capability
_REDIRECT = 0x0004  # bit 2 of its control register: peer requests go up to the root instead of straight across


def machine(clock: Clock) -> Dict[str, Any]:
    """``cmdline``, ``iommu`` (units), ``cards`` [{bus, path, ...}], ``acs`` {bridges, readable, redirect}, ``driver`` {params,
    modprobe}, ``hmm``, ``aspm``, ``governors`` {name: cpus}, ``cpus`` {online, present}, ``swappiness``, ``numa_balancing``,
    ``nccl`` {file: text}. What cannot be read is absent."""
    out: Dict[str, Any] = {"cmdline": (procfs.read_text("%s/cmdline" % procfs.PROC, 65536) or "").strip()}
    out["iommu"] = _names("/sys/class/iommu")
    cards = _cards()
    out["cards"] = [{"bus": os.path.basename(path), "path": path} for path in cards]
    if cards and not clock.over("ACS of the bridges"):
        out["acs"] = _acs(cards)
    out["driver"] = _driver()
    hmm = _line("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
    if hmm is not None:
        out["hmm_disabled"] = hmm in ("1", "Y")
    aspm = re.search(r"\[(\w+)\]", _line("/sys/module/pcie_aspm/parameters/policy") or "")
    if aspm:
        out["aspm"] = aspm.group(1)
    out["governors"] = _governors(clock)
    cpus = {name: _line("/sys/devices/system/cpu/%s" % name) for name in ("online", "present")}
    out["cpus"] = {name: count_cpus(text) for name, text in cpus.items() if text}
    for name, path in (("swappiness", "vm/swappiness"), ("numa_balancing", "kernel/numa_balancing")):
        value = _line("%s/sys/%s" % (procfs.PROC, path))
        if value is not None and value.isdigit():
            out[name] = int(value)
    nccl = {}
    for path in ("/etc/nccl.conf", os.path.expanduser("~/.nccl.conf")):
        text = procfs.read_text(path, 16384)
        if text:
            nccl[path] = text
    out["nccl"] = nccl
    return out


def count_cpus(text: str) -> int:
    """How many processors a list such as ``0-191,256-447`` names."""
    count = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            count += int(last) - int(first) + 1 if last.isdigit() else 1
    return count


def _cards() -> List[str]:
    """The real sysfs paths of NVIDIA's display and 3D controllers, in bus order."""
    out = []
    for name in _names(PCI):
        device = "%s/%s" % (PCI, name)
        if _line(device + "/vendor") == NVIDIA and (_line(device + "/class") or "").startswith("0x03"):
            out.append(os.path.realpath(device))
    return out


def _acs(cards: List[str]) -> Dict[str, Any]:
    """Of the bridges above the cards: how many, how many let us read their control register (root only), which redirect."""
    bridges = set()
    for path in cards:
        parent = os.path.dirname(path)
        while re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", os.path.basename(parent)):
            bridges.add(parent)
            parent = os.path.dirname(parent)
    readable, redirect = 0, []
    for path in sorted(bridges):
        config = procfs.read_bytes(path + "/config", 4096)
        if config is None or len(config) < 4096:
            continue  # only root is given more than the first 64 bytes
        readable += 1
        control = acs_control(config)
        if control is not None and control & _REDIRECT:
            redirect.append(os.path.basename(path))
    return {"bridges": len(bridges), "readable": readable, "redirect": redirect}


def acs_control(config: bytes) -> Optional[int]:
    """The control register of the ACS capability in a device's 4096 bytes of configuration space; None when it has none."""
    at, seen = 0x100, 0
    while 0x100 <= at <= len(config) - 8 and seen < 64:
        (header,) = struct.unpack_from("<I", config, at)
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == _ACS:
            return int(struct.unpack_from("<H", config, at + 6)[0])
        at, seen = header >> 20, seen + 1
    return None


def _driver() -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    params = procfs.read_text("%s/driver/nvidia/params" % procfs.PROC, 65536)
    if params:
        match = re.search(r"^RegistryDwords:\s*\"?([^\"\n]*)", params, re.MULTILINE)
        out["registry"] = match.group(1).strip() if match else ""
    options = []
    for path in sorted(glob.glob("/etc/modprobe.d/*.conf")):
        for line in (procfs.read_text(path, 65536) or "").splitlines():
            if re.match(r"\s*options\s+nvidia", line):
                options.append("%s: %s" % (path, line.strip()[:400]))
    out["modprobe"] = options[:40]
    return out


def _governors(clock: Clock) -> Dict[str, int]:
    out: Dict[str, int] = {}
    for path in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"):
        if clock.over():
            break
        name = _line(path)
        if name:
            out[name] = out.get(name, 0) + 1
    return out


def _names(folder: str) -> List[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []  # no such subsystem on this host


def _line(path: str) -> Optional[str]:
    text = procfs.read_text(path, 4096)
    return text.strip() if text is not None else None
