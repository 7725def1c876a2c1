"""CRC-32C (Castagnoli), which guards the records of event files; the standard library has only the other one."""

from __future__ import annotations

from typing import List

_POLYNOMIAL = 0x82F63B78


def _table() -> List[int]:
    out = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ _POLYNOMIAL if crc & 1 else crc >> 1
        out.append(crc)
    return out


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """The checksum of ``data``, 0 to 2**32 - 1."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    """The checksum as records carry it: turned by 15 bits, a constant added, so that a checksum of checksums stays good."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
