"""Server-sent events in pieces of any size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.proxy.formats import framing as sse
from monitor.proxy.formats.base import Frame
from monitor.proxy.formats.framing import END, ArrayReader, FrameReader

LINE_ENDS = ["\n", "\r\n", "\r"]
LINES = st.sampled_from(
    ["data: {}", "data:x", "data", "data: a: b", "event: ping", "event:", ": hello", ":", "id: 7", "x", "", "\u2028"]
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    bom = draw(st.sampled_from(["", "\ufeff"]))
    lines = draw(st.lists(st.tuples(LINES, st.sampled_from(LINE_ENDS)), max_size=20))
    return (bom + "".join(line + end for line, end in lines) + draw(LINES)).encode()


@st.composite
def in_pieces(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> tuple[bytes, list[bytes]]:
    data = draw(whole)
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return data, [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def read(reader: FrameReader, pieces: list[bytes]) -> list[Frame]:
    return [*(frame for piece in pieces for frame in reader.feed(piece)), *reader.end()]


def said(frames: list[Frame]) -> list[tuple[str, str | None, Any]]:
    return [(frame.event, frame.data, frame.fault) for frame in frames if frame.data is not None or frame.fault]


@given(in_pieces(streams()))
def test_the_events_are_the_same_however_the_bytes_are_cut(cut: tuple[bytes, list[bytes]]):
    data, pieces = cut
    once, apart = read(sse.SseReader(), [data]), read(sse.SseReader(), pieces)
    assert said(once) == said(apart)
    for frames in (once, apart):
        assert b"".join(frame.raw for frame in frames).removesuffix(b"\n\n") == data.removesuffix(b"\n\n")


@given(in_pieces(streams()))
def test_no_whole_event_is_held_back(cut: tuple[bytes, list[bytes]]):
    """After each piece, the frames so far are those of the bytes so far."""
    reader, so_far, frames = sse.SseReader(), b"", list[Frame]()
    for piece in cut[1]:
        frames += reader.feed(piece)
        so_far += piece
        assert said(frames) == said(sse.SseReader().feed(so_far))


@pytest.mark.parametrize(
    ("data", "event", "text"),
    [
        (b"data: one\n\n", "", "one"),
        (b"data:one\n\n", "", "one"),
        (b"data:  one\n\n", "", " one"),
        (b"data: one\ndata: two\n\n", "", "one\ntwo"),
        (b"event: e\ndata: one\r\n\r\n", "e", "one"),
        (b"\xef\xbb\xbfdata: one\r\r", "", "one"),
        (b": remark\ndata: one\n: remark\nid: 4\nretry: 3\n\n", "", "one"),
        (b"data\n\n", "", ""),
        (b"data: \xff\n\n", "", "\ufffd"),
        ("data: a\u2028b\x85c\n\n".encode(), "", "a\u2028b\x85c"),
    ],
)
def test_an_event_is_read_as_the_standard_says(data: bytes, event: str, text: str):
    frames = [frame for frame in sse.SseReader().feed(data) if frame.data is not None]
    assert [(frame.event, frame.data) for frame in frames] == [(event, text)]


def test_a_remark_between_events_is_passed_on_with_its_line():
    reader = sse.SseReader()
    assert [frame.raw for frame in reader.feed(b": ping\n: po")] == [b": ping\n"]
    assert [frame.raw for frame in reader.feed(b"ng\n\n")] == [b": pong\n", b"\n"]


def test_an_event_without_data_says_nothing():
    (frame,) = sse.SseReader().feed(b"event: ping\n\n")
    assert frame.data is None


def test_the_name_of_an_event_ends_with_it():
    frames = sse.SseReader().feed(b"event: a\ndata: 1\n\ndata: 2\n\n")
    assert [frame.event for frame in frames] == ["a", ""]


@pytest.mark.parametrize(("reader", "begin"), [(sse.SseReader, b"data: "), (ArrayReader, b'[{"a": "')])
def test_a_frame_has_a_bound_and_what_follows_is_passed_on_unread(reader: Any, begin: bytes):
    made = reader(1_000)
    assert made.feed(begin + b"x" * 900) == []
    (frame,) = made.feed(b"x" * 200)
    assert frame.fault.kind == "oversized"
    assert frame.raw == begin + b"x" * 1_100
    (later,) = made.feed(b"\n\ndata: 1\n\n")
    assert (later.raw, later.fault.kind) == (b"\n\ndata: 1\n\n", "oversized")
    assert made.feed(b"") == made.end() == []


def test_a_frame_that_comes_whole_may_be_larger_than_the_bound():
    (frame,) = sse.SseReader(10).feed(b"data: " + b"x" * 100 + b"\n\n")
    assert frame.fault is None


def test_the_end_of_an_event_may_be_missing_and_is_added():
    reader = sse.SseReader()
    assert reader.feed(b"data: [DONE]") == []
    (frame,) = reader.end()
    assert (frame.raw, frame.data) == (b"data: [DONE]\n\n", "[DONE]")


@pytest.mark.parametrize("text", ["a\nb", "a\r\n\r\ndata: {}", "\u2028\x85\x00", "\ud800", "é", '"', ""])
def test_a_comment_is_one_line_of_ascii(text: str):
    line = sse.comment(text)
    assert line.endswith(b"\n\n")
    assert len(line.splitlines()) == 2
    assert json.loads(line.removeprefix(b": agent-monitor ")) == text
    assert [frame.data for frame in sse.SseReader().feed(line)] == [None, None]


@pytest.mark.parametrize(
    ("beginning", "is_stream"),
    [(b"data: {", True), (b"event: x", True), (b": ping", True), (b"retry: 5", True), (b"{}", False), (b"", False)],
)
def test_the_beginning_says_whether_events_come(beginning: bytes, is_stream: bool):
    assert sse.is_event_stream(beginning) is is_stream


# --- arrays

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('ab"\\{}[],: \né')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)
ARRAYS = st.builds(
    lambda values, indent: json.dumps(values, indent=indent, ensure_ascii=False).encode() + b"\r\n",
    st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), max_size=5),
    st.sampled_from([None, 1]),
)


@given(in_pieces(ARRAYS))
def test_the_elements_of_an_array_are_the_same_however_the_bytes_are_cut(cut: tuple[bytes, list[bytes]]):
    data, pieces = cut
    frames = read(ArrayReader(), pieces)
    assert [json.loads(frame.data) for frame in frames if frame.data is not None] == json.loads(data)
    assert b"".join(frame.raw for frame in frames) == data
    assert [frame.event for frame in frames].count(END) == 1


def test_an_object_in_the_place_of_an_array_is_one_frame():
    (frame,) = ArrayReader().feed(b' {"error": {"code": 500}}')
    assert (frame.event, json.loads(frame.data or "")) == ("", {"error": {"code": 500}})


def test_half_an_element_is_dropped_at_the_end():
    reader = ArrayReader()
    assert len(reader.feed(b'[{"a": 1}, {"b": ')) == 1
    assert reader.end() == []
