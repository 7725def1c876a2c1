"""TensorBoard event files, read on while they are written, without TensorBoard.

A file is a row of records: length (8 bytes), its checksum (4), the record, its checksum (4), little endian. A record is a
protocol buffer ``Event``: when, which step, and scalars in a ``Summary``, each either a ``simple_value`` or a tensor with one
element. Everything else (graphs, texts, hyper-parameters, histograms) is passed over.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from eagletui.jobs.crc32c import masked

PREFIX = "events.out.tfevents."
_PIECE = 1 << 18
"""Bytes that one look reads at most: to check and read a megabyte takes about half a second."""
_LONGEST = 1 << 30


class Scalar(NamedTuple):
    """One value: ``wall`` is the Unix time when it was logged."""

    wall: float
    step: int
    tag: str
    value: float


class Records:
    """The scalars of one file, from its bytes in pieces of any size. What is incomplete waits for its rest.

    ``damaged`` counts records whose contents do not fit their checksum: they are passed over. A length that does not fit its
    own leaves no way on: ``problem`` says so, and ``offset`` stays at that record.
    """

    def __init__(self) -> None:
        self.offset = 0
        """Where the first record lies that was not read yet."""
        self.damaged = 0
        self.problem: Optional[str] = None
        self._rest = b""

    @property
    def pending(self) -> bool:
        """Whether a record has begun that is not complete."""
        return bool(self._rest)

    def feed(self, data: bytes) -> List[Scalar]:
        """The scalars that ``data`` completes, in the order they were logged."""
        data = self._rest + data
        out: List[Scalar] = []
        at = 0
        while len(data) - at >= 12 and self.problem is None:
            (length,) = struct.unpack_from("<Q", data, at)
            if length > _LONGEST or struct.unpack_from("<I", data, at + 8)[0] != masked(data[at : at + 8]):
                self.problem = "no record at byte %d" % (self.offset + at)
                break
            end = at + 12 + length + 4
            if end > len(data):
                break
            body = data[at + 12 : end - 4]
            if struct.unpack_from("<I", data, end - 4)[0] == masked(body):
                out += _scalars(body)
            else:
                self.damaged += 1
            at = end
        self.offset += at
        self._rest = data[at:]
        return out

    def rewind(self) -> None:
        """Forget the incomplete rest: what comes next starts at ``offset``."""
        self._rest, self.problem = b"", None


def _scalars(event: bytes) -> List[Scalar]:
    """Of one ``Event``; nothing when it is none that we know."""
    wall, step, summaries = 0.0, 0, []
    try:
        for field, value in _fields(event):
            if field == 1 and isinstance(value, bytes):
                (wall,) = struct.unpack("<d", value)
            elif field == 2 and isinstance(value, int):
                step = value - (1 << 64) if value >> 63 else value
            elif field == 5 and isinstance(value, bytes):
                summaries.append(value)
        out = []
        for summary in summaries:
            for field, value in _fields(summary):
                if field == 1 and isinstance(value, bytes):
                    found = _value(value)
                    if found is not None:
                        out.append(Scalar(wall, step, found[0], found[1]))
        return out
    except (IndexError, struct.error):
        return []  # the checksum fits, so this is another version's record: no scalar that could be shown


def _value(data: bytes) -> Optional[Tuple[str, float]]:
    tag, number = None, None
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")
        elif field == 2 and isinstance(value, bytes) and len(value) == 4:
            (number,) = struct.unpack("<f", value)
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return None if tag is None or number is None else (tag, number)


# a tensor's dtype -> how its content is packed
_PACKED = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 17: "<H", 19: "<e", 22: "<I", 23: "<Q"}
_BFLOAT16 = 14
# the fields of a tensor that hold single values -> how one is packed; the others are varints
_ELEMENTS = {5: "<f", 6: "<d"}
_VARINTS = (7, 10, 11, 13, 16, 17)


def _tensor(data: bytes) -> Optional[float]:
    """The one element of a tensor; None when it has none, or several."""
    kind, content, dims = 0, b"", []
    elements: List[float] = []
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field == 2 and isinstance(value, bytes):
            dims = [size for name, dim in _fields(value) if name == 2 for key, size in _fields(dim) if key == 1]
        elif field == 4 and isinstance(value, bytes):
            content = value
        elif field in _ELEMENTS and isinstance(value, bytes):
            step = struct.calcsize(_ELEMENTS[field])
            elements += [struct.unpack_from(_ELEMENTS[field], value, at)[0] for at in range(0, len(value), step)]
        elif field in _VARINTS:
            found = [value] if isinstance(value, int) else list(_varints(value))
            elements += [_from_half(kind, number) if field == 13 else float(_signed(number)) for number in found]
    if any(size != 1 for size in dims):
        return None
    if content:
        if kind == _BFLOAT16 and len(content) == 2:
            return float(struct.unpack("<f", b"\0\0" + content)[0])
        if kind in _PACKED and len(content) == struct.calcsize(_PACKED[kind]):
            return float(struct.unpack(_PACKED[kind], content)[0])
        return None
    return float(elements[0]) if len(elements) == 1 else None


def _from_half(kind: int, number: int) -> float:
    """A 16-bit float that lies in an integer."""
    raw = struct.pack("<H", number & 0xFFFF)
    return float(struct.unpack("<f", b"\0\0" + raw)[0] if kind == _BFLOAT16 else struct.unpack("<e", raw)[0])


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        yield number


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & ((1 << 64) - 1), at
        shift += 7
        if shift > 63:
            raise IndexError("a number that does not end")


def _fields(data: bytes) -> Iterator[Tuple[int, Any]]:
    """(number, value) of the fields: an int for a varint, else bytes. Raises IndexError when this is no message."""
    at, size = 0, len(data)
    while at < size:
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise IndexError("an unknown kind of field")
        if at + length > size:
            raise IndexError("a field that is cut short")
        yield key >> 3, data[at : at + length]
        at += length


class EventDir:
    """All event files of one run: a file more with each start of the trainer, and one that holds only hyper-parameters."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.problem: Optional[str] = None
        """Why a file cannot be read on, in words; None while all can."""
        self._files: Dict[str, Records] = {}

    @property
    def damaged(self) -> int:
        """Records that were passed over because their contents do not fit their checksum."""
        return sum(records.damaged for records in self._files.values())

    def look(self, limit: int = _PIECE) -> List[Scalar]:
        """What was logged since the last look, file after file; at most about ``limit`` bytes of it are read."""
        try:
            names = sorted(name for name in os.listdir(self.path) if name.startswith(PREFIX))
        except FileNotFoundError:
            return []  # the trainer has not logged yet
        except OSError as error:
            self.problem = "%s cannot be listed (%s)" % (self.path, error.strerror)
            return []
        out: List[Scalar] = []
        self.problem = None
        for name in names:
            found, size = self._read(name, limit)
            out += found
            limit -= size
            if limit <= 0:
                break
        return out

    def _read(self, name: str, limit: int) -> Tuple[List[Scalar], int]:
        records = self._files.setdefault(name, Records())
        path = os.path.join(self.path, name)
        out: List[Scalar] = []
        size = 0
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_size <= records.offset:
                    return [], 0
                begun = records.offset
                file.seek(begun)
                records.rewind()
                while size < limit and records.problem is None:
                    data = file.read(min(limit - size, 1 << 18))
                    if not data:
                        break
                    size += len(data)
                    out += records.feed(data)
                # a record longer than one look may read is taken whole, or it would never be passed
                while records.offset == begun and records.problem is None and size >= limit:
                    data = file.read(1 << 18)
                    if not data:
                        break
                    out += records.feed(data)
        except OSError as error:
            self.problem = "%s cannot be read (%s)" % (path, error.strerror)
        if records.problem is not None:
            # on a shared disk the last piece may still be on its way: the next look tries again from there
            self.problem = "%s: %s" % (path, records.problem)
        return out, size
