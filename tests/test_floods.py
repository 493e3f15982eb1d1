"""What is huge holds nobody up: the clock is looked at, and others have their turn, between the
pieces of one delta; of a huge call or result detectors are shown its edges and its identity. What
they find is the same, at the same offsets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import monitor
from monitor._util.codec import MOST_CHARS, MOST_PARTS, has_more, text_of, to_plain
from monitor._util.hashing import canonical_json
from monitor._util.text import eighths_of_tokens
from monitor.adapters.parts import ChunkAdapter
from monitor.chunks import (
    PIECE_CHARS,
    Chunk,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    TurnFinished,
    pieces_of,
)
from monitor.core.detector_bank import RESULT_CHARS, abridged_arguments, abridged_text
from monitor.core.run import RunCore
from monitor.errors import FinishReason
from monitor.events import DetectionRaised
from monitor.policy import ObserveOnly
from monitor.testing import FakeClock, ScriptedModel, ScriptedStream
from monitor.verdicts import Detection

Reason = monitor.TerminateReason
PIECES = 20
DONE = TurnFinished(FinishReason.DONE)


def words(chars: int) -> str:
    """Words without a loop in them."""
    text = " ".join(f"{number * 7919 % 1_000_003:x}" for number in range(chars // 5))
    return (text * (chars // len(text) + 1))[:chars]


TEXT = words(PIECES * PIECE_CHARS)
DELTAS: dict[str, Callable[[str], Chunk | str]] = {
    "a piece of text": str,
    "text": TextDelta,
    "reasoning": ReasoningDelta,
    "arguments": lambda text: ToolCallDelta("c", "write", text),
}
deltas = pytest.mark.parametrize("kind", DELTAS)


class Slow:
    """A detector that takes a second for each piece, and says how much it was shown."""

    name = "slow"

    def __init__(self, clock: FakeClock, then: Callable[[], object] = lambda: None) -> None:
        self.clock = clock
        self.then = then
        self.chars = 0

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        if isinstance(chunk, TextDelta | ReasoningDelta | ToolCallDelta):
            text = chunk.arguments_text if isinstance(chunk, ToolCallDelta) else chunk.text
            self.chars += len(text)
            if len(text) >= PIECE_CHARS:
                self.clock.advance(1)
                self.then()
        return ()

    def reset(self) -> None: ...
    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: object) -> None: ...


# --- the harness


@pytest.mark.anyio
@deltas
async def test_a_deadline_is_met_within_one_delta(kind: str) -> None:
    clock = FakeClock()
    slow = Slow(clock)
    watch = monitor.watch(
        ScriptedStream(DELTAS[kind](TEXT), "never"), detectors=[slow], stop_when=monitor.Timeout(3), clock=clock
    )
    async with watch as watched:
        seen = [piece async for piece in watched]
    assert watched.outcome.reason is Reason.TIMEOUT
    assert clock.now() < 5
    assert slow.chars < 5 * PIECE_CHARS
    assert len(seen) == 1  # it had come before the deadline


@pytest.mark.anyio
@deltas
async def test_an_abort_of_another_task_is_heard_within_one_delta(kind: str) -> None:
    clock = FakeClock()
    begun = anyio.Event()
    slow = Slow(clock, then=begun.set)
    watch = monitor.watch(ScriptedStream(DELTAS[kind](TEXT), "never"), detectors=[slow], clock=clock)

    async def abort() -> None:
        await begun.wait()
        watch.abort("enough")

    async with anyio.create_task_group() as group:
        group.start_soon(abort)
        async with watch as watched:
            assert len([piece async for piece in watched]) == 1
    assert watched.outcome.reason is Reason.ABORTED
    assert slow.chars < PIECES * PIECE_CHARS / 2


@pytest.mark.anyio
@deltas
async def test_a_cancellation_from_outside_strikes_within_one_delta(kind: str) -> None:
    clock = FakeClock()
    with anyio.CancelScope() as scope:
        slow = Slow(clock, then=scope.cancel)
        async with monitor.watch(ScriptedStream(DELTAS[kind](TEXT)), detectors=[slow], clock=clock) as watched:
            async for _ in watched:
                raise AssertionError
    assert scope.cancelled_caught
    assert watched.outcome.reason is Reason.CANCELLED
    assert watched.outcome.closed


@pytest.mark.anyio
async def test_what_follows_a_huge_delta_in_the_same_object_comes_after_it() -> None:
    class Several(ChunkAdapter):
        """An object of the SDK's is a list of chunks."""

        def decode(self, item: Any) -> Sequence[Chunk]:
            chunks: list[Chunk] = item
            return chunks

    sink = monitor.sinks.MemorySink()
    item = [TextDelta(TEXT), ToolCall("c", "look", {}), ReasoningDelta(TEXT), ToolCall("d", "look", {"a": 1}), DONE]
    async with monitor.watch(ScriptedStream(item), adapter=Several, sinks=[sink], keep_text_chars=None) as watched:
        assert [piece async for piece in watched] == [item]
    turn = watched.turn
    assert turn.text == TEXT
    assert [call.id for call in turn.tool_calls] == ["c", "d"]
    assert turn.finish_reason is FinishReason.DONE
    assert watched.outcome.ok


@pytest.mark.anyio
async def test_a_supervised_run_reads_a_huge_answer_whole() -> None:
    model = ScriptedModel([TextDelta("begin "), TextDelta(TEXT), TextDelta(" end"), DONE])
    heard: list[Chunk] = []
    async with monitor.Supervisor(model, detectors=[], requests=monitor.runs.Requests(keep_text_chars=None)).stream(
        "do it"
    ) as run:
        heard.extend([event.chunk async for event in run if isinstance(event, monitor.events.ChunkReceived)])
    assert run.outcome.text == f"begin {TEXT} end"
    assert heard == [TextDelta("begin "), TextDelta(TEXT), TextDelta(" end"), DONE]


# --- the core: any cut, the same findings


def _found(deltas: Sequence[Chunk | str], *, piecewise: bool) -> list[Detection]:
    sink = monitor.sinks.MemorySink()
    core = RunCore(policy=ObserveOnly(), emit=sink.emit, detectors=monitor.default_detectors())
    core.piecewise = piecewise
    core.begin(0.0)
    core.begin_turn(0.0)
    for delta in deltas:
        if isinstance(delta, str):
            core.feed_text(delta, 0.0)
        else:
            core.feed(delta, 0.0)
        while core.left:
            core.catch_up(0.0)
    core.end_turn(0.0, finished=True)
    return [event.detection for event in sink.events if isinstance(event, DetectionRaised)]


@given(st.integers(0, PIECE_CHARS), st.integers(1, 4), st.sampled_from(sorted(DELTAS)), st.booleans())
def test_a_loop_anywhere_in_a_huge_delta_is_found_at_the_same_offset(
    before: int, times: int, kind: str, piecewise: bool
) -> None:
    chant = "I will now check the configuration file again to be sure. " * 40
    text = TEXT[:before] + chant + TEXT[: times * PIECE_CHARS] + chant + "the end"
    whole = _found([DELTAS[kind](text)], piecewise=piecewise)
    cut = _found([DELTAS[kind](text[at : at + 5_000]) for at in range(0, len(text), 5_000)], piecewise=False)
    assert whole == cut
    assert kind == "arguments" or whole


@given(
    st.text(max_size=10),
    st.sampled_from([0, 1, PIECE_CHARS, PIECE_CHARS + 1, 3 * PIECE_CHARS]),
    st.none() | st.text(max_size=5),
)
def test_the_pieces_of_a_delta_are_the_delta(text: str, more: int, signature: str | None) -> None:
    text += "x" * more
    thoughts = list(pieces_of(ReasoningDelta(text, signature)))
    assert "".join(piece.text for piece in thoughts if isinstance(piece, ReasoningDelta)) == text
    assert [piece.signature for piece in thoughts if isinstance(piece, ReasoningDelta)][-1] == signature
    assert "".join(piece.text for piece in pieces_of(TextDelta(text)) if isinstance(piece, TextDelta)) == text
    arguments = [piece for piece in pieces_of(ToolCallDelta("c", "t", text)) if isinstance(piece, ToolCallDelta)]
    assert "".join(piece.arguments_text for piece in arguments) == text
    assert {(piece.id, piece.name) for piece in arguments} <= {("c", "t")}


# --- calls and results


def _huge_arguments() -> Iterator[Any]:
    yield {f"key{number}": number for number in range(MOST_PARTS + 1)}
    yield {"path": "a.py", "content": words(MOST_CHARS + 1)}
    yield [[number] for number in range(MOST_PARTS)]
    yield {"a": {"b": [{"c": "x" * (MOST_CHARS + 1)}]}}
    yield words(MOST_CHARS + 1)


HUGE = list(_huge_arguments())


@pytest.mark.parametrize("number", range(len(HUGE)))
def test_huge_arguments_are_shown_short_and_differ_where_the_whole_does(number: int) -> None:
    huge = HUGE[number]
    abridged = abridged_arguments(huge)
    assert abridged is not None
    shown, eighths = abridged
    assert len(canonical_json(shown)) < 2_000
    assert abridged_arguments(json.loads(json.dumps(huge))) == abridged
    other = (
        json.loads(json.dumps(huge)[:-3] + "0" + json.dumps(huge)[-3:]) if number in (0, 2) else _with_another_end(huge)
    )
    another = abridged_arguments(other)
    assert another is not None
    assert another[0] != shown
    assert eighths == pytest.approx(eighths_of_tokens(text_of(huge)), rel=0.01)


def _with_another_end(huge: Any) -> Any:
    return (
        json.loads(json.dumps(huge).replace("x" * 9, "y" * 9, 1))
        if "x" * 9 in json.dumps(huge)
        else json.loads(_swapped(huge))
    )


def _swapped(huge: Any) -> str:
    text = json.dumps(huge)
    middle = len(text) // 2
    return text[:middle] + ("0" if text[middle] != "0" else "1") + text[middle + 1 :]


def test_the_order_of_keys_does_not_matter_in_huge_arguments_either() -> None:
    forwards = {f"key{number}": number for number in range(MOST_PARTS + 1)}
    backwards = dict(reversed(forwards.items()))
    first, second = abridged_arguments(forwards), abridged_arguments(backwards)
    assert first is not None
    assert first == second


def test_ordinary_arguments_and_results_are_shown_as_they_are() -> None:
    for ordinary in ({"path": "a.py"}, {"n": list(range(MOST_PARTS - 1))}, "x" * MOST_CHARS, None, 7):
        assert abridged_arguments(ordinary) is None
    assert abridged_text("x" * RESULT_CHARS) == "x" * RESULT_CHARS


def test_a_huge_result_is_shown_short_and_differs_where_the_whole_does() -> None:
    text = words(RESULT_CHARS + 1)
    middle = len(text) // 2
    assert len(abridged_text(text)) < RESULT_CHARS / 2
    assert abridged_text(text) == abridged_text(text)
    assert abridged_text(text) != abridged_text(text[:middle] + "?" + text[middle + 1 :])
    assert abridged_text(text).startswith(text[:1_000])
    assert abridged_text(text).endswith(text[-1_000:])


@pytest.mark.parametrize("same", [True, False])
def test_a_huge_call_that_is_repeated_is_a_loop_and_one_that_changes_is_none(same: bool) -> None:
    sink = monitor.sinks.MemorySink()
    core = RunCore(policy=ObserveOnly(), emit=sink.emit, detectors=[monitor.ToolCallRepetition()])
    core.begin(0.0)
    for turn in range(6):
        core.begin_turn(0.0)
        content = words(MOST_CHARS) + ("." if same else str(turn))
        core.feed(ToolCall(f"c{turn}", "write_file", {"path": "a.py", "content": content}), 0.0)
        core.end_turn(0.0, finished=True)
        core.tool_result(f"c{turn}", words(RESULT_CHARS + 9) if same else f"{words(RESULT_CHARS)}{turn}", 0.0)
    found = [event.detection for event in sink.events if isinstance(event, DetectionRaised)]
    assert any(detection.level == "loop" for detection in found) is same
    assert core.turn is not None
    assert core.turn.tool_calls[0].arguments["content"].startswith(words(1_000))  # the turn has the call as it came


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=15)
@given(JSON)
def test_a_huge_result_of_a_tool_is_the_same_text_that_a_small_one_would_be(value: Any) -> None:
    huge = [value] * (MOST_PARTS + 1)
    assert text_of(huge) == json.dumps(to_plain(huge), ensure_ascii=False, sort_keys=True)


def test_counting_what_is_huge_ends_as_soon_as_that_is_known() -> None:
    class Counted(list[Any]):
        looked = 0

        def __iter__(self) -> Iterator[Any]:
            Counted.looked += 1
            return super().__iter__()

    assert has_more(Counted([1]) * (MOST_PARTS + 1), MOST_PARTS, MOST_CHARS)
    assert has_more([["x" * MOST_CHARS], "y"], MOST_PARTS, MOST_CHARS)
    assert not has_more([1, 2, 3], 3, 0)
    assert Counted.looked == 0


def test_200_000_keys_and_50_mb_take_a_fraction_of_a_second() -> None:
    """Generous: a busy machine is no bug. It took 8.5 and 7.2 s."""
    core = RunCore(policy=ObserveOnly(), emit=lambda _: None, detectors=monitor.default_detectors())
    core.begin(0.0)
    core.begin_turn(0.0)
    began = time.process_time()
    core.feed(ToolCall("c", "t", {f"key{number}": number for number in range(200_000)}), 0.0)
    core.end_turn(0.0, finished=True)
    core.tool_result("c", words(1_000_000) * 50, 0.0)
    assert time.process_time() - began < 5


@pytest.mark.anyio
@pytest.mark.parametrize("supervised", [False, True])
async def test_a_source_that_never_waits_leaves_the_other_tasks_their_turns(supervised: bool) -> None:
    turns, read, over = 0, 0, False

    async def other() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await anyio.lowlevel.checkpoint()

    flood = [f"word{number} " for number in range(6_400)]
    async with anyio.create_task_group() as group:
        group.start_soon(other)
        if supervised:
            outcome = await monitor.Supervisor(ScriptedModel([*flood, DONE])).run("task")
            read = len(outcome.text.split())
        else:
            async with monitor.watch(ScriptedStream(*flood)) as watched:
                async for _ in watched:
                    read += 1
        over = True
    assert read == 6_400
    assert 80 <= turns <= 200


@pytest.mark.anyio
async def test_a_cancellation_reaches_a_reader_whose_source_never_waits() -> None:
    read = 0
    with anyio.CancelScope() as scope:
        async with monitor.watch(ScriptedStream(*["word "] * 1_000), detectors=None) as watched:
            async for _ in watched:
                read += 1
                if read == 100:
                    scope.cancel()
    assert 100 <= read < 100 + 2 * 64
    assert watched.outcome.reason is Reason.CANCELLED


def test_a_long_thought_that_is_cut_into_pieces_keeps_its_signature_and_its_signer():
    *_, last = pieces_of(ReasoningDelta("x" * (PIECE_CHARS + 1), "c2lnbmVk", "anthropic:claude-test"))
    assert isinstance(last, ReasoningDelta)
    assert (last.signature, last.origin) == ("c2lnbmVk", "anthropic:claude-test")
