from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.adapters.replay_model import RecordedChunk, ReplayStream, read_chunks, read_turns, write_chunks
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished, UsageReport
from monitor.errors import AdapterError, ConfigError, FinishReason

RECORDS = [
    RecordedChunk(0.0, ReasoningDelta("think")),
    RecordedChunk(0.1, ReasoningDelta("ing", "c2ln")),
    RecordedChunk(0.2, TextDelta("hello ")),
    RecordedChunk(0.4, TextDelta("world")),
    RecordedChunk(0.5, UsageReport(output_tokens=3)),
    RecordedChunk(0.5, ToolCallDelta("c", "look", '{"q"')),
    RecordedChunk(0.6, ToolCallDelta("c", None, ":1}")),
    RecordedChunk(0.6, ToolCallDelta("d", "see", "{}")),
    RecordedChunk(0.7, ToolCall("c", "look", {"q": 1})),
    RecordedChunk(0.8, TurnFinished(FinishReason.DONE, "STOP")),
]


async def played(stream: ReplayStream) -> list[Chunk]:
    return [chunk async for chunk in stream]


def joined(chunks: Sequence[Chunk]) -> list[Any]:
    """What the chunks say, whatever their pieces."""

    def channel(chunk: Chunk) -> Any:
        return (
            type(chunk),
            chunk.id
            if isinstance(chunk, ToolCallDelta)
            else chunk
            if not isinstance(chunk, TextDelta | ReasoningDelta)
            else 0,
        )

    said: list[Any] = []
    for key, run in groupby(chunks, channel):
        pieces = list(run)
        text = "".join(getattr(piece, "text", getattr(piece, "arguments_text", "")) for piece in pieces)
        names = [piece.name for piece in pieces if isinstance(piece, ToolCallDelta) and piece.name]
        signatures = [piece.signature for piece in pieces if isinstance(piece, ReasoningDelta) and piece.signature]
        said.append(
            (key[0], text, names, signatures) if key[0] in {TextDelta, ReasoningDelta, ToolCallDelta} else pieces
        )
    return said


@pytest.mark.anyio
async def test_chunks_come_as_they_were_recorded():
    assert await played(ReplayStream(RECORDS)) == [record.chunk for record in RECORDS]
    assert await played(ReplayStream([TextDelta("bare")])) == [TextDelta("bare")]
    assert await played(ReplayStream([])) == []


@pytest.mark.anyio
async def test_a_file_is_read_as_it_was_written(tmp_path: Path):
    odd = RecordedChunk(1.25, TextDelta("nul \0, lone \ud800, line\u2028end"))
    path = tmp_path / "run.jsonl"
    write_chunks(path, [*RECORDS, odd])
    assert read_chunks(path) == [*RECORDS, odd]
    assert json.loads(path.read_text().splitlines()[2]) == {
        "at": 0.2,
        "chunk": {"type": "text_delta", "text": "hello "},
    }
    before = path.read_bytes()
    write_chunks(path, read_chunks(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "Expecting"),
        ("[]", "expected a JSON object, not list"),
        ("3", "expected a JSON object, not int"),
        ('{"type": "text_delta"}', "text_delta.text"),
        ('{"at": 0}', "'chunk' is missing"),
        ('{"chunk": {"type": "text_delta", "text": ""}}', "'at' is missing"),
        ('{"at": 0, "chunk": {"type": "nope"}}', "unknown type"),
        ('{"at": 0, "chunk": []}', "JSON object"),
        ('{"at": 0, "chunk": {"type": "text_delta", "text": 1}}', "text_delta.text"),
        ('{"at": -1, "chunk": {"type": "text_delta", "text": ""}}', "not seconds"),
        ('{"at": NaN, "chunk": {"type": "text_delta", "text": ""}}', "not seconds"),
        ('{"at": true, "chunk": {"type": "text_delta", "text": ""}}', "not seconds"),
        ('{"at": "0", "chunk": {"type": "text_delta", "text": ""}}', "not seconds"),
        ("[" * 100_000, ""),
        ("\udcff", "not text in UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str):
    path = tmp_path / "run.jsonl"
    write_chunks(path, RECORDS[:2])
    path.write_bytes(path.read_bytes() + b"\n" + line.encode(errors="surrogateescape") + b"\n")
    with pytest.raises(AdapterError, match=rf"run\.jsonl, line 4: .*{said}"):
        read_chunks(path)


def test_a_chunk_written_by_hand_without_a_time_came_with_the_one_before(tmp_path: Path):
    path = tmp_path / "run.jsonl"
    path.write_text(
        '{"type": "text_delta", "text": "a"}\n'
        '{"at": 2, "chunk": {"type": "text_delta", "text": "b"}}\n'
        '{"type": "turn_finished", "finish_reason": "done"}\n'
    )
    assert read_chunks(path) == [
        RecordedChunk(0.0, TextDelta("a")),
        RecordedChunk(2.0, TextDelta("b")),
        RecordedChunk(2.0, TurnFinished(FinishReason.DONE)),
    ]


@pytest.mark.parametrize(
    ("lines", "turns"),
    [
        ("", []),
        ("a", ["a"]),
        ("a! b! c", ["a!", "b!", "c"]),
        ("! !", ["!", "!"]),
        ("u a! u b!", ["ua!", "ub!"]),
        ("| a! u | b | c!", ["a!u", "b", "c!"]),
        ("a! u | b!", ["a!u", "b!"]),
        ("| |", ["", ""]),
    ],
)
def test_a_turn_ends_where_it_is_finished_unless_the_file_says_where_turns_begin(
    tmp_path: Path, lines: str, turns: list[str]
):
    """`a`: text, `u`: usage, `!`: the turn is finished, `|`: a turn begins."""
    said = {
        "!": '{"type": "turn_finished", "finish_reason": "done"}',
        "|": '{"type": "turn", "note": "any"}',
        "u": '{"type": "usage_report", "output_tokens": 1}',
    }
    path = tmp_path / "run.jsonl"
    path.write_text(
        "".join(said.get(one, f'{{"type": "text_delta", "text": "{one}"}}') + "\n" for one in lines.replace(" ", ""))
    )
    letters = {TurnFinished: "!", UsageReport: "u"}
    read = read_turns(path)
    assert [
        "".join(letters.get(type(one.chunk), getattr(one.chunk, "text", "")) for one in turn) for turn in read
    ] == turns
    assert [one for turn in read for one in turn] == read_chunks(path)


@given(st.data())
def test_every_cut_says_the_same(data: st.DataObject):
    text = st.text("ab\u00e9\U0001f600", max_size=8)
    chunk = st.one_of(
        st.builds(TextDelta, text),
        st.builds(ReasoningDelta, text),
        st.builds(ToolCallDelta, st.sampled_from("xy"), st.none(), text),
        st.just(UsageReport(output_tokens=1)),
    )
    chunks = data.draw(st.lists(chunk, max_size=12))
    cut = data.draw(st.one_of(st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    cut_anew = anyio.run(played, ReplayStream(chunks, cut=cut))
    assert joined(cut_anew) == joined(chunks)
    longest = cut if isinstance(cut, int) else max(cut)
    assert all(len(piece.text) <= longest for piece in cut_anew if isinstance(piece, TextDelta))


@pytest.mark.anyio
async def test_a_cut_joins_neighbours_and_keeps_name_and_signature():
    whole = await played(ReplayStream(RECORDS, cut=1000))
    assert whole[:4] == [
        ReasoningDelta("thinking", "c2ln"),
        TextDelta("hello world"),
        UsageReport(output_tokens=3),
        ToolCallDelta("c", "look", '{"q":1}'),
    ]
    single = await played(ReplayStream(RECORDS, cut=1))
    assert joined(single) == joined([record.chunk for record in RECORDS])
    assert ReasoningDelta("g", "c2ln") in single
    assert single.count(ToolCallDelta("c", "look", "{")) == 1
    signed_twice = [ReasoningDelta("", "one"), ReasoningDelta("", "two")]
    assert await played(ReplayStream(signed_twice, cut=3)) == signed_twice


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("cut", "pieces"),
    [(4, ["hell", "o wo", "rld"]), ([1, 9], ["h", "ello worl", "d"]), (lambda: 6, ["hello ", "world"])],
)
async def test_a_cut_is_a_size_sizes_or_a_function(cut: int | Sequence[int] | Callable[[], int], pieces: list[str]):
    chunks = await played(ReplayStream(RECORDS[2:4], cut=cut))
    assert [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)] == pieces


@pytest.mark.anyio
@pytest.mark.parametrize("cut", [0, -1, [], [3, 0], True, lambda: 0])
async def test_a_cut_below_one_is_refused(cut: Any):
    with pytest.raises(ConfigError):
        await played(ReplayStream(RECORDS, cut=cut))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def sleep(delay_s: float) -> None:
        found.append(round(delay_s, 6))

    monkeypatch.setattr(anyio, "sleep", sleep)
    return found


@pytest.mark.anyio
async def test_a_pace_is_a_factor_of_the_recorded_times(waits: list[float]):
    await played(ReplayStream(RECORDS))
    assert waits == []
    await played(ReplayStream(RECORDS[:4], pace=2))
    assert waits == [0, 0.2, 0.2, 0.4]
    waits.clear()
    await played(ReplayStream([RECORDS[3], RECORDS[0]], pace=1))
    assert waits == [0, 0], "time does not run backwards"


@pytest.mark.anyio
async def test_a_new_piece_comes_when_its_last_code_point_came(waits: list[float]):
    assert len(await played(ReplayStream(RECORDS[2:4], cut=6, pace=1))) == 2
    assert waits == [0, 0.2]
    waits.clear()
    await played(ReplayStream(RECORDS[2:4], cut=7, pace=1))
    assert waits == [0, 0], "both hold something of the second delta"


@pytest.mark.parametrize("pace", [-1, float("nan"), float("inf")])
def test_a_pace_that_makes_no_sense_is_refused(pace: float):
    with pytest.raises(ConfigError):
        ReplayStream(RECORDS, pace=pace)


@pytest.mark.anyio
async def test_a_closed_stream_has_ended():
    stream = ReplayStream(RECORDS)
    assert await anext(stream) == RECORDS[0].chunk
    await stream.aclose()
    assert stream.closed
    assert await played(stream) == []


@pytest.mark.anyio
async def test_closing_while_a_chunk_is_awaited_withholds_it():
    stream = ReplayStream(RECORDS[2:4], pace=0.02)
    await anext(stream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.aclose)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
