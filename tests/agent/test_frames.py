import contextlib
import itertools
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eagletui.agent import frames
from eagletui.agent.frames import MAX_FRAME, BadFrame, Decoder, Frame, encode

KINDS = st.sampled_from([frames.REQUEST, frames.RESPONSE, frames.ERROR, frames.PUSH, frames.CREDIT, frames.CANCEL, frames.BEAT])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
HEADS = st.dictionaries(st.text(), VALUES, max_size=5).filter(lambda head: set(head) != {"parts"})
FRAMES = st.builds(Frame, KINDS, st.integers(0, 2**32 - 1), HEADS, st.binary(max_size=300))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({c % (len(data) + 1) for c in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@given(st.lists(FRAMES, max_size=6), st.lists(st.integers(0, 10**6), max_size=20))
def test_any_chunking_gives_the_same_frames(sent: list[Frame], cuts: list[int]) -> None:
    decoder = Decoder()
    data = b"".join(map(encode, sent))
    assert [f for piece in pieces(data, cuts) for f in decoder.feed(piece)] == sent


@given(st.lists(FRAMES, min_size=1, max_size=3), st.data())
def test_a_truncated_stream_gives_only_whole_frames(sent: list[Frame], data: st.DataObject) -> None:
    whole = b"".join(map(encode, sent))
    cut = data.draw(st.integers(0, len(whole) - 1))
    got = list(Decoder().feed(whole[:cut]))
    assert got == sent[: len(got)]
    assert len(got) < len(sent)


@given(st.binary(max_size=400))
def test_garbage_is_refused_or_waits_but_never_raises_anything_else(data: bytes) -> None:
    with contextlib.suppress(BadFrame):  # and nothing else
        for frame in Decoder().feed(data):
            assert isinstance(frame.head, dict)


@given(FRAMES, st.data())
def test_a_broken_header_is_refused_at_once(frame: Frame, data: st.DataObject) -> None:
    raw = bytearray(encode(frame))
    what = data.draw(st.sampled_from(["length", "kind", "head"]))
    if what == "length":
        raw[0:4] = struct.pack(">I", data.draw(st.integers(MAX_FRAME + 1, 2**32 - 1) | st.integers(0, 8)))
    elif what == "kind":
        raw[4] = data.draw(st.integers(9, 255))
    else:
        raw[9:13] = struct.pack(">I", data.draw(st.integers(len(raw), 2**32 - 1)))
    with pytest.raises(BadFrame):
        list(Decoder().feed(bytes(raw)))


@settings(max_examples=20, deadline=None)
@given(st.integers(MAX_FRAME - 64, 3 * MAX_FRAME), st.integers(1, 10**6), st.binary(max_size=100))
def test_a_long_head_goes_in_parts(size: int, cut: int, body: bytes) -> None:
    frame = Frame(frames.RESPONSE, 7, {"result": "x" * size}, body)
    data = encode(frame)
    other = encode(Frame(frames.BEAT, 8, {}))
    decoder = Decoder()
    got = [f for piece in (other, *pieces(data, [cut, cut * 3]), other) for f in decoder.feed(piece)]
    assert [f.kind for f in got] == [frames.BEAT, frames.RESPONSE, frames.BEAT]
    assert got[1] == frame


def test_parts_must_match_what_is_announced() -> None:
    part = frames._pack(frames.PART, 3, b"{}", b'{"a":')
    with pytest.raises(BadFrame, match="2 parts announced, 1 came"):
        list(Decoder().feed(part + frames._pack(frames.RESPONSE, 3, b'{"parts":2}', b"")))
    with pytest.raises(BadFrame, match="without the frame"):
        list(Decoder().feed(part + encode(Frame(frames.RESPONSE, 3, {"result": 1}))))


def test_a_body_that_does_not_fit_is_the_senders_error() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        encode(Frame(frames.RESPONSE, 1, {}, bytes(MAX_FRAME)))
    with pytest.raises(ValueError, match="JSON compliant"):
        encode(Frame(frames.RESPONSE, 1, {"result": float("nan")}))


@pytest.mark.parametrize("head", [b"[]", b"1", b"{", b"\xff", b"[" * 9000])
def test_a_head_that_is_no_object_is_refused(head: bytes) -> None:
    with pytest.raises(BadFrame, match="head is not"):
        list(Decoder().feed(frames._pack(frames.RESPONSE, 1, head, b"")))
