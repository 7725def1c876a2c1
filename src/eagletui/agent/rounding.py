"""How finely telemetry is sent: jitter that nobody sees is not worth a byte of the wire."""

from __future__ import annotations

MIB = 1024 * 1024


def watts(milliwatts: int) -> float:
    """Watts in steps of 0.1 below 100 W, whole watts above."""
    value = milliwatts / 1000.0
    return round(value, 1) if value < 100 else float(round(value))


def significant(value: float, digits: int = 2) -> float:
    """``value`` with so many significant digits."""
    return float("%.*e" % (digits - 1, value))


def mebibytes(size: int, step: int = MIB) -> int:
    """Bytes, rounded down to whole steps."""
    return size // step * step
