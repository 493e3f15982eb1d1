"""RunCore: facts in, decisions and events out, the same ones every time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor
from monitor._util.codec import text_of
from monitor.chunks import Chunk
from monitor.events import event_codec
from monitor.testing import rechunk

Reason = monitor.TerminateReason
DONE = monitor.chunks.TurnFinished(monitor.FinishReason.DONE)

WORDS = st.sampled_from(
    ["Let me try again. ", "I see. ", "the file ", "漢字を", "\n", "```\n", "| a | b |\n", "x", "\ud83d", "\0"]
)
TEXTS = st.lists(WORDS, max_size=60).map("".join)
CALLS = st.builds(
    lambda n, q: monitor.chunks.ToolCall(f"c{n}", "search", {"q": q}), st.integers(0, 3), st.integers(0, 1)
)
CHUNKS: st.SearchStrategy[Chunk] = st.one_of(
    TEXTS.map(monitor.chunks.TextDelta),
    TEXTS.map(monitor.chunks.ReasoningDelta),
    st.builds(monitor.chunks.ToolCallDelta, st.just("c1"), st.just("search"), TEXTS),
    CALLS,
    st.builds(monitor.chunks.UsageReport, output_tokens=st.integers(0, 50)),
    st.just(DONE),
    st.just(monitor.chunks.StreamRetried("again")),
)
RECORDED = st.lists(st.tuples(st.floats(0, 3, allow_nan=False), CHUNKS), max_size=25)


def core(sink: monitor.sinks.MemorySink, **options: object) -> monitor.core.RunCore:
    defaults: dict[str, object] = {
        "stop_when": monitor.Timeout(20) | monitor.TokenLimit(200) | monitor.MaxToolCalls(6),
        "detectors": monitor.default_detectors(),
        "policy": monitor.StopAtFirstLoop(),
        "emit": sink.emit,
        "keep_text_chars": 1_000,
    }
    return monitor.core.RunCore(**{**defaults, **options})  # type: ignore[arg-type]


def replayed(recorded: Sequence[tuple[float, Chunk]], **options: object) -> list[monitor.events.Event]:
    """The events of one turn made of the recorded chunks, each that long after the one before."""
    sink = monitor.sinks.MemorySink()
    run = core(sink, **options)
    now = 1_000.0
    run.begin(now)
    run.begin_turn(now)
    for pause_s, chunk in recorded:
        now += pause_s
        if now >= run.deadline and run.must_stop(now):
            break
        run.feed(chunk, now)
        if run.stop is not None:
            break
    run.end_turn(now, finished=run.stop is None)
    run.terminate(now)
    return sink.events


@given(RECORDED)
def test_the_same_recorded_chunks_and_times_give_the_same_events_byte_for_byte(
    recorded: list[tuple[float, Chunk]],
) -> None:
    first, second = replayed(recorded), replayed(recorded)
    assert [event_codec.dumps(e) for e in first] == [event_codec.dumps(e) for e in second]
    assert [event_codec.loads(event_codec.dumps(e)) for e in first] == first


@given(RECORDED)
def test_every_run_ends_with_exactly_one_run_terminated(recorded: list[tuple[float, Chunk]]) -> None:
    events = replayed(recorded)
    assert [type(e) for e in events].count(monitor.events.RunTerminated) == 1
    assert isinstance(events[-1], monitor.events.RunTerminated)
    assert isinstance(events[0], monitor.events.RunStarted)


@given(TEXTS, st.integers(1, 20), st.integers(1, 20))
def test_how_the_provider_cuts_the_text_makes_no_difference(text: str, one: int, other: int) -> None:
    def findings(size: int) -> list[object]:
        chunks = rechunk([monitor.chunks.TextDelta(text), DONE], size)
        events = replayed([(0.0, chunk) for chunk in chunks], policy=monitor.policy.ObserveOnly(), stop_when=None)
        return [e.detection for e in events if isinstance(e, monitor.events.DetectionRaised)]

    assert findings(one) == findings(other)


@given(st.integers(1, 400), st.integers(1, 40), st.sampled_from(["a ", "é", "漢", "🙂"]))
def test_no_cut_overruns_a_token_limit_unseen(limit: int, size: int, piece: str) -> None:
    sink = monitor.sinks.MemorySink()
    run = core(sink, stop_when=monitor.TokenLimit(limit), detectors=())
    run.begin(0.0)
    run.begin_turn(0.0)
    fed = ""
    while run.stop is None:
        fed += (piece * size)[:size]
        run.feed_text((piece * size)[:size], 0.0)
        assert len(fed) < 8 * limit + 100
    used = run.state(0.0, waiting=False).usage.total_tokens
    one_piece = size * 11 // 8 + 2
    assert limit < used <= limit + one_piece


def test_a_loop_wins_over_a_limit_in_the_same_chunk() -> None:
    sink = monitor.sinks.MemorySink()
    run = core(sink, stop_when=monitor.TokenLimit(50))
    run.begin(0.0)
    run.begin_turn(0.0)
    run.feed_text("I will now check the configuration file again to be sure. " * 40, 0.0)
    assert run.stop is not None
    assert run.stop.reason is Reason.LOOP_DETECTED


def test_an_abort_wins_over_a_loop_and_a_limit() -> None:
    sink = monitor.sinks.MemorySink()
    run = core(sink, stop_when=monitor.TokenLimit(50))
    run.begin(0.0)
    run.begin_turn(0.0)
    run.abort("mine")
    run.feed_text("I will now check the configuration file again to be sure. " * 40, 0.0)
    assert run.must_stop(0.0)
    assert run.stop is not None
    assert run.stop.reason is Reason.ABORTED


def test_a_second_terminate_answers_the_first_outcome() -> None:
    sink = monitor.sinks.MemorySink()
    run = core(sink)
    run.begin(0.0)
    assert run.terminate(1.0) is run.terminate(2.0)
    assert len(sink.events) == 2


def test_results_without_ids_are_matched_in_call_order() -> None:
    class Results:
        name = "results"
        seen: list[monitor.chunks.ToolResult] = []  # noqa: RUF012 - one test

        def observe(self, chunk: Chunk) -> Sequence[monitor.verdicts.Detection]:
            if isinstance(chunk, monitor.chunks.ToolResult):
                self.seen.append(chunk)
            return ()

        def reset(self) -> None: ...

        def snapshot(self) -> dict[str, object]:
            return {}

        def restore(self, state: object) -> None: ...

    run = core(monitor.sinks.MemorySink(), detectors=[Results()])
    run.begin(0.0)
    run.begin_turn(0.0)
    for name in ("first", "second", "third"):
        run.feed(monitor.chunks.ToolCall("", name, {}), 0.0)
    run.end_turn(0.0, finished=True)
    run.tool_result(None, "1", 0.0)
    run.tool_result(None, "2", 0.0, is_error=True)
    run.tool_result("unheard of", "?", 0.0)
    assert [(r.name, r.text, r.is_error) for r in Results.seen] == [
        ("first", "1", False),
        ("second", "2", True),
        ("", "?", False),
    ]
    assert [c.name for c in run.open_calls] == ["third"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("as it is", "as it is"),
        ({"b": 1, "a": "é"}, '{"a": "é", "b": 1}'),
        (None, "null"),
        (float("nan"), '"nan"'),
        ({1}, "[1]"),
    ],
)
def test_a_result_that_is_no_text_is_read_as_json(result: object, text: str) -> None:
    assert text_of(result) == text


def test_a_result_that_no_json_can_hold_is_still_a_text() -> None:
    circle: list[object] = []
    circle.append(circle)
    assert text_of(circle).startswith("[[[")


def test_a_provider_that_reports_usage_only_sometimes_keeps_what_it_said() -> None:
    run = core(monitor.sinks.MemorySink(), stop_when=None)
    run.begin(0.0)
    run.begin_turn(0.0)
    run.feed(monitor.chunks.UsageReport(input_tokens=10, cached_tokens=4), 0.0)
    run.feed(monitor.chunks.UsageReport(output_tokens=5, reasoning_tokens=2), 0.0)
    run.feed(monitor.chunks.UsageReport(output_tokens=3), 0.0)  # a running total never falls
    turn = run.end_turn(0.0, finished=True)
    assert turn.usage == monitor.chunks.Usage(10, 5, 2, 4, 15)


def test_what_is_held_of_a_stream_does_not_grow_with_it() -> None:
    run = core(monitor.sinks.MemorySink(), stop_when=monitor.Timeout(10) | monitor.TokenLimit(10**9))
    run.begin(0.0)
    run.begin_turn(0.0)
    held = []
    tracemalloc.start()
    try:
        for leg in range(3):
            for number in range(leg * 6_000, (leg + 1) * 6_000):
                run.feed_text(f"{number:x}, ", 0.0)
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert run.stop is None
    assert abs(held[2] - held[1]) < 4_096
    assert held[2] < 32_768


@pytest.mark.parametrize(
    "failed", [monitor.chunks.TurnFinished(monitor.FinishReason.MALFORMED, "MALFORMED_FUNCTION_CALL"), None]
)
@pytest.mark.parametrize("name", monitor.default_detectors(), ids=lambda detector: detector.name)
def test_an_attempt_that_the_provider_could_not_read_leaves_nothing_in_any_detector(
    failed: monitor.chunks.TurnFinished | None, name: monitor.detectors.Detector
):
    """The next stream is the same turn again, whether the attempt said how it failed or just broke
    off.
    """

    def snapshot(attempts: int) -> object:
        (detector,) = (one for one in monitor.default_detectors() if one.name == name.name)
        run = core(monitor.sinks.MemorySink(), stop_when=None, detectors=[detector])
        run.begin(0.0)
        for turn in range(2):
            for attempt in range(attempts + 1):
                run.begin_turn(0.0)
                run.feed(monitor.chunks.ReasoningDelta("I look again. " * 5), 0.0)
                run.feed(monitor.chunks.TextDelta("Once more. " * 3), 0.0)
                run.feed(monitor.chunks.ToolCall(f"c{turn}.{attempts - attempt}", "look", {}), 0.0)
                last = attempt == attempts
                if end := DONE if last else failed:
                    run.feed(end, 0.0)
                run.end_turn(0.0, finished=True, must_finish=True)
            run.tool_result(f"c{turn}.0", "unknown tool", 0.0)
        assert run.stop is None
        return detector.snapshot()

    assert snapshot(3) == snapshot(0)
