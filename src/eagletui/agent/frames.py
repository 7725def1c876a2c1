"""Frames between client and agent: length-prefixed, JSON heads, raw bytes for data. The same code runs on both sides.

A frame is ``u32 length, u8 kind, u32 id, u32 head length, head (JSON object), body (raw bytes)``, big endian; ``length``
counts everything after itself and is at most `MAX_FRAME`. A JSON value that does not fit one head goes out as `PART`
frames with the same id, followed by the frame it belongs to, whose head then is ``{"parts": n}``: the parts' bodies joined
are the JSON text of the head, and `Decoder` puts it back.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, Iterator, List, NamedTuple

MAX_FRAME = 256 * 1024
MAX_HEAD = 32 * 1024 * 1024
_HEADER = struct.Struct(">IBII")
_PART_BYTES = 192 * 1024

REQUEST = 1  # head {"method", "params"}, body: raw data of the request
RESPONSE = 2  # head {"result"}, body: raw data of the answer
ERROR = 3  # head {"step", "why", "remedy"}
PUSH = 4  # id = subscription; head {"s", "n", "boot", "wall", "patch"}
CREDIT = 5  # id = subscription; head {"n"}
CANCEL = 6  # id = request that is no longer wanted
BEAT = 7  # client: still here (id counts); the agent answers with the same frame
PART = 8  # body: a piece of a long head
_KINDS = frozenset((REQUEST, RESPONSE, ERROR, PUSH, CREDIT, CANCEL, BEAT, PART))


class BadFrame(ValueError):
    """The byte stream is not our protocol any more; the connection must be given up."""


class Frame(NamedTuple):
    """One frame. ``head`` is a JSON object, ``body`` raw bytes."""

    kind: int
    id: int
    head: Dict[str, Any]
    body: bytes = b""


def encode(frame: Frame) -> bytes:
    """The frame's bytes, with `PART` frames before it when the head is long. Raises `ValueError` for a body too large."""
    head = json.dumps(frame.head, separators=(",", ":"), allow_nan=False).encode()
    out: List[bytes] = []
    if len(head) + len(frame.body) + 9 > MAX_FRAME:
        if len(frame.body) + 64 > MAX_FRAME:
            raise ValueError("a body of %d bytes does not fit a frame" % len(frame.body))
        pieces = [head[i : i + _PART_BYTES] for i in range(0, len(head), _PART_BYTES)]
        out.extend(_pack(PART, frame.id, b"{}", piece) for piece in pieces)
        head = json.dumps({"parts": len(pieces)}).encode()
    out.append(_pack(frame.kind, frame.id, head, frame.body))
    return b"".join(out)


def _pack(kind: int, id_: int, head: bytes, body: bytes) -> bytes:
    return _HEADER.pack(9 + len(head) + len(body), kind, id_, len(head)) + head + body


class Decoder:
    """Bytes in, in any pieces; whole frames out. Raises `BadFrame` at the first byte that cannot be right."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts: Dict[int, List[bytes]] = {}

    def feed(self, data: bytes) -> Iterator[Frame]:
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            length, kind, id_, head_length = _HEADER.unpack_from(self._buffer)
            if not 9 <= length <= MAX_FRAME or kind not in _KINDS or head_length > length - 9:
                raise BadFrame("frame header is wrong (length %d, kind %d, head %d)" % (length, kind, head_length))
            end = 4 + length
            if len(self._buffer) < end:
                return
            start = _HEADER.size
            head = bytes(self._buffer[start : start + head_length])
            body = bytes(self._buffer[start + head_length : end])
            del self._buffer[:end]
            if kind == PART:
                parts = self._parts.setdefault(id_, [])
                parts.append(body)
                if sum(map(len, parts)) > MAX_HEAD:
                    raise BadFrame("a head of more than %d bytes" % MAX_HEAD)
                continue
            yield Frame(kind, id_, self._head(id_, head), body)

    def _head(self, id_: int, raw: bytes) -> Dict[str, Any]:
        head = _parse(raw)
        if set(head) == {"parts"}:
            parts = self._parts.pop(id_, [])
            if len(parts) != head["parts"]:
                raise BadFrame("%s parts announced, %d came" % (head["parts"], len(parts)))
            return _parse(b"".join(parts))
        if id_ in self._parts:
            raise BadFrame("parts without the frame they belong to")
        return head


def _parse(raw: bytes) -> Dict[str, Any]:
    try:
        head = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadFrame("head is not JSON: %s" % error) from None
    if not isinstance(head, dict):
        raise BadFrame("head is not an object")
    return head
