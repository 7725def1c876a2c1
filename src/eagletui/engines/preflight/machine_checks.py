"""The host card: what multi-card serving over PCIe wants of the machine, each with where it was read."""

from __future__ import annotations

import os
import re
from typing import Iterator, List

from eagletui.engines.preflight.case import Case, size
from eagletui.engines.preflight.findings import INFO, WARN, Finding

PART = "machine"
BUSY = 50.0
"""Percent of use from which a link is at its full speed: idle cards fall back to generation 1."""
LOADED_STATES = (0, 1, 2)


def many(case: Case) -> bool:
    """Whether cards talk to each other in this launch."""
    return case.launch.tp * case.launch.pp * case.launch.dp > 1 and not case.on_cpu


def cards(case: Case) -> Iterator[Finding]:
    """All the cards that should be there: as the owner says, as the bus shows, as were seen before."""
    if case.board is None or case.on_cpu:
        return
    seen, bus = len(case.board.cards), len(case.machine.get("cards") or ())
    expected = max(case.expected or 0, case.board.expected or 0)
    if expected and seen < expected:
        yield Finding(
            "cards-missing",
            WARN,
            "%d of %d cards answer" % (seen, expected),
            case.board.problem or "NVML counts %d" % seen,
            "a card has fallen off the bus, or its driver gave it up",
            "dmesg for Xid 79; reboot; pcie_aspm=off pcie_port_pm=off on hosts that drop cards",
            PART,
        )
    elif seen and bus > seen:
        yield Finding(
            "cards-on-bus",
            WARN,
            "the bus shows %d NVIDIA cards, the driver %d" % (bus, seen),
            "/sys/bus/pci/devices, NVML",
            "one of them is not usable",
            "dmesg; another driver may hold it",
            PART,
        )


def iommu(case: Case) -> Iterator[Finding]:
    """An IOMMU that translates sends traffic between cards through the CPU, or stops it."""
    if not many(case):
        return
    line = str(case.machine.get("cmdline") or "")
    units = case.machine.get("iommu") or []
    passing = re.search(r"\biommu(?:\.passthrough)?=(?:pt|1)\b", line) is not None
    if units and not passing:
        yield Finding(
            "iommu-on",
            WARN,
            "the IOMMU is on",
            "/sys/class/iommu: %s; /proc/cmdline has no iommu=off or iommu=pt" % ", ".join(units[:4]),
            "collectives over PCIe can hang at the start: all cards at 100 %, little power, no progress",
            "iommu=off (AMD: amd_iommu=off) on the kernel's command line, or iommu=pt knowingly",
            PART,
        )
    elif units:
        yield Finding("iommu-pt", INFO, "the IOMMU passes through", "/proc/cmdline", "", "", PART)


def acs(case: Case) -> Iterator[Finding]:
    """Bridges that send traffic between cards up to the root. Only the control register counts, not the capability."""
    told = case.machine.get("acs") or {}
    if not many(case) or not told.get("bridges"):
        return
    if not told.get("readable"):
        yield Finding("acs-unread", INFO, "ACS could not be read", "the bridges' registers are for root alone", "", "", PART)
    elif told.get("redirect"):
        yield Finding(
            "acs-on",
            WARN,
            "ACS redirects traffic between cards on %d bridges" % len(told["redirect"]),
            "ACSCtl of %s (of %d above the cards)" % (", ".join(told["redirect"][:4]), told["bridges"]),
            "half the bandwidth between cards on one switch, or hangs",
            "clear it on root and switch ports at every boot: setpci -s BRIDGE ECAP_ACS+6.w=0000",
            PART,
        )


def p2p(case: Case) -> Iterator[Finding]:
    """The driver's override for peer-to-peer, which hosts without a common switch need; and whether the file is in force."""
    driver = case.machine.get("driver") or {}
    if not many(case) or "registry" not in driver:
        return
    registry = str(driver["registry"])
    configured = [line for line in driver.get("modprobe") or () if "RegistryDwords" in line]
    if configured and "ForceP2P" in configured[-1] and "ForceP2P" not in registry:
        yield Finding(
            "p2p-not-loaded",
            WARN,
            "the driver's override for peer-to-peer is written down but not in force",
            "%s; /proc/driver/nvidia/params: RegistryDwords %r" % (configured[-1], registry),
            "cards do not talk directly",
            "reload the nvidia modules, or reboot",
            PART,
        )
    elif (
        "VLLM_ENABLE_PCIE_ALLREDUCE" in case.launch.env
        and case.launch.env["VLLM_ENABLE_PCIE_ALLREDUCE"] not in ("", "0")
        and "ForceP2P" not in registry
        and not one_switch(case)
    ):
        yield Finding(
            "pcie-allreduce-without-p2p",
            WARN,
            "VLLM_ENABLE_PCIE_ALLREDUCE without the driver's override",
            "/proc/driver/nvidia/params: RegistryDwords %r; the cards have no common switch" % registry,
            "decoding fell to a quarter (104 to 26 tok/s) on such hosts",
            "set ForceP2P in the driver's RegistryDwords, or unset the variable",
            PART,
        )
    if registry and "ForceP2P" in registry:
        yield Finding(
            "p2p-forced", INFO, "the driver forces peer-to-peer", "/proc/driver/nvidia/params: %s" % registry[:120], "", "", PART
        )


def one_switch(case: Case) -> bool:
    """Whether all cards of the launch hang below one port of the root."""
    roots = {"/".join(str(card["path"]).split("/")[:5]) for card in case.machine.get("cards") or ()}
    return len(roots) == 1


def bar1(case: Case) -> Iterator[Finding]:
    """Resizable BAR: the window has to hold the whole memory for cards to reach each other."""
    if not many(case):
        return
    small = [card for card in case.cards() if card.bar1_total and card.mem_total and card.bar1_total < card.mem_total]
    if small:
        numbers = ", ".join(str(card.number) for card in small)
        yield Finding(
            "bar1-small",
            WARN,
            "the memory window (BAR1) of card %s is smaller than its memory" % numbers,
            "%s of %s, by NVML" % (size(small[0].bar1_total), size(small[0].mem_total)),
            "cards cannot reach each other's memory directly",
            "switch on Resizable BAR and Above 4G Decoding in the BIOS",
            PART,
        )


def link(case: Case) -> Iterator[Finding]:
    """Generation and width of the link, judged only while the card is busy."""
    for card in case.cards():
        if (card.util or 0) < BUSY or card.pstate not in LOADED_STATES:
            continue
        if card.pcie_gen and card.pcie_gen_max and card.pcie_gen < card.pcie_gen_max:
            yield _link(card.number, "generation %d of %d" % (card.pcie_gen, card.pcie_gen_max))
        if card.pcie_width and card.pcie_width_max and card.pcie_width < card.pcie_width_max:
            yield _link(card.number, "x%d of x%d" % (card.pcie_width, card.pcie_width_max))
    for card in case.cards():
        # the width does not fall back at rest
        if (card.util or 0) < BUSY and card.pcie_width and card.pcie_width_max and card.pcie_width * 4 <= card.pcie_width_max:
            yield _link(
                card.number, "x%d of x%d (at rest, where only the generation falls back)" % (card.pcie_width, card.pcie_width_max)
            )


def _link(number: int, what: str) -> Finding:
    return Finding(
        "pcie-link",
        WARN,
        "card %d's link runs below what it can" % number,
        what + ", by NVML",
        "one slow link slows all: a x4 peer cut prefill to a ninth",
        "check slot, riser and BIOS",
        PART,
    )


def hmm(case: Case) -> Iterator[Finding]:
    """Heterogeneous memory management of the driver's uvm module."""
    if many(case) and case.machine.get("hmm_disabled") is False:
        yield Finding(
            "hmm-on",
            INFO,
            "the driver's HMM is on",
            "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm",
            "it has been a cause of hangs with several cards",
            "options nvidia_uvm uvm_disable_hmm=1 in /etc/modprobe.d",
            PART,
        )


def power_saving(case: Case) -> Iterator[Finding]:
    """Power saving of the links, on hosts that have lost a card."""
    line = str(case.machine.get("cmdline") or "")
    dropped = case.board is not None and len(case.board.cards) < max(case.expected or 0, case.board.expected or 0)
    if many(case) and dropped and "pcie_aspm=off" not in line:
        yield Finding(
            "aspm",
            WARN,
            "links may save power on a host that dropped a card",
            "/proc/cmdline; policy %s" % case.machine.get("aspm", "not told"),
            "surprise link down",
            "pcie_aspm=off pcie_port_pm=off on the kernel's command line",
            PART,
        )


def processors(case: Case) -> Iterator[Finding]:
    """Governor, processors that did not start, swapping, NUMA balancing."""
    if case.on_cpu and case.launch.tp == 1:
        return
    governors = case.machine.get("governors") or {}
    slow = {name: count for name, count in governors.items() if name not in ("performance", "schedutil")}
    if slow and not case.on_cpu:
        told = ", ".join("%s on %d" % pair for pair in sorted(slow.items()))
        yield Finding(
            "governor",
            WARN,
            "processors save power",
            "scaling_governor: %s" % told,
            "launches and small batches wait for a slow core (1.5 instead of 3.3 GHz)",
            "cpupower frequency-set -g performance",
            PART,
        )
    cpus = case.machine.get("cpus") or {}
    if cpus.get("online") and cpus.get("present") and cpus["online"] < cpus["present"]:
        yield Finding(
            "cpus-offline",
            INFO,
            "%d of %d processors are online" % (cpus["online"], cpus["present"]),
            "/sys/devices/system/cpu/online, present",
            "one may have failed to start",
            "dmesg | grep -i smpboot",
            PART,
        )
    if many(case):
        yield from _kernel(case)


def _kernel(case: Case) -> Iterator[Finding]:
    wishes: List["tuple[str, str, str, str]"] = [
        (
            "numa_balancing",
            "/proc/sys/kernel/numa_balancing",
            "pages move between nodes under the engine's threads",
            "sysctl kernel.numa_balancing=0",
        ),
        ("swappiness", "/proc/sys/vm/swappiness", "pinned and cached pages compete during a load", "sysctl vm.swappiness=0"),
    ]
    for name, path, why, remedy in wishes:
        value = case.machine.get(name)
        if value:
            yield Finding(name.replace("_", "-"), INFO, "%s is %d" % (name, value), path, why, remedy, PART)


def nccl_files(case: Case) -> Iterator[Finding]:
    """Settings of NCCL that come from files nobody looks at."""
    for path, text in sorted((case.machine.get("nccl") or {}).items()):
        lines = [line.strip() for line in str(text).splitlines() if line.strip() and not line.strip().startswith("#")]
        if lines and many(case):
            yield Finding(
                "nccl-conf",
                INFO,
                "NCCL also reads %s" % os.path.basename(path),
                "%s: %s" % (path, "; ".join(lines[:4])),
                "it counts where the environment says nothing",
                "",
                PART,
            )


CHECKS = (cards, iommu, acs, p2p, bar1, link, hmm, power_saving, processors, nccl_files)
