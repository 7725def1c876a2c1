"""What is wrong with NVML, in one line each, with what to do about it."""

from __future__ import annotations

_FAILURES = {
    1: "NVML lost its connection to the driver; it is started again",
    4: "no permission to open the NVIDIA devices: this user may not read and write /dev/nvidia*",
    9: "the NVIDIA driver is not loaded: run `modprobe nvidia` as root",
    12: "no NVIDIA driver (libnvidia-ml.so.1 not found)",
    18: "the NVIDIA driver was changed while it was loaded (kernel module and library differ): "
    "reload the kernel module when no process uses the cards, or reboot",
}


def failure_text(code: int, text: str, call: str) -> str:
    """An NVML error that concerns everything, and what to do about it. Code 0: an error of Python in the child."""
    if code in _FAILURES:
        return _FAILURES[code]
    if code == 0 and "ctypes" in text:
        return "this python3 has no ctypes, which NVML needs: install the full python3 (Debian: libpython3-stdlib)"
    if code == 0:
        return "NVML could not be asked (%s): %s" % (call, text)
    return "%s failed: %s" % (call, text)


def hang_text(number: int, call: str, seconds: float) -> str:
    """What has not answered for how long. Starting NVML may be slow for a harmless reason, which is then named."""
    where = call or "NVML"
    if number >= 0:
        where += " on card %d" % number
    text = "%s has not answered for %.0f s" % (where, seconds)
    if call == "nvmlInit":
        text += " (without persistence mode the driver starts the cards first)"
    return text


def crash_text(why: str, number: int) -> str:
    """How the child ended; a new one is started."""
    where = " on card %d" % number if number >= 0 else ""
    return "NVML: %s%s; it is started again" % (why, where)
