import pytest

from monitor.chunks import TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.errors import FinishReason
from monitor.transcripts import RecordedCall, RecordedMessage, RecordedResult, RecordedRun

DONE = TurnFinished(FinishReason.DONE)


def run_of(*messages: RecordedMessage) -> RecordedRun:
    return RecordedRun("r", messages)


def assistant(text: str = "", *calls: str) -> RecordedMessage:
    return RecordedMessage("assistant", text, tuple(RecordedCall(name, {"n": name}) for name in calls))


def tool(*results: str) -> RecordedMessage:
    return RecordedMessage("tool", "", (), tuple(RecordedResult(name, f"{name} says") for name in results))


def result_ids(run: RecordedRun) -> list[tuple[str, str]]:
    return [(chunk.id, chunk.name) for _, chunk in run.chunks() if isinstance(chunk, ToolResult)]


def test_a_run_becomes_chunks_with_the_index_of_their_message():
    run = run_of(RecordedMessage("user", "hi"), assistant("I look.", "ls"), tool("ls"), assistant("Done."))
    assert list(run.chunks()) == [
        (1, TextDelta("I look.")),
        (1, ToolCall("call_0", "ls", {"n": "ls"})),
        (1, DONE),
        (2, ToolResult("call_0", "ls", "ls says")),
        (3, TextDelta("Done.")),
        (3, DONE),
    ]


def test_an_assistant_message_without_text_has_no_delta():
    assert list(run_of(assistant()).chunks()) == [(0, DONE)]


def test_results_in_the_assistant_message_itself_follow_its_turn():
    message = RecordedMessage("assistant", "", (RecordedCall("ls", {}),), (RecordedResult("ls", "a"),))
    assert [type(chunk) for _, chunk in run_of(message).chunks()] == [ToolCall, TurnFinished, ToolResult]


def test_ids_are_counted_through_the_run_and_results_matched_in_call_order():
    run = run_of(assistant("", "a", "a", "b"), tool("a", "b", "a"), assistant("", "a"), tool("a"))
    assert result_ids(run) == [("call_0", "a"), ("call_2", "b"), ("call_1", "a"), ("call_3", "a")]


def test_a_result_of_another_name_answers_the_oldest_open_call():
    assert result_ids(run_of(assistant("", "a", "b"), tool("x"))) == [("call_0", "x")]


def test_a_result_without_a_name_gets_the_name_of_its_call():
    assert result_ids(run_of(assistant("", "a"), tool(""))) == [("call_0", "a")]


def test_a_call_without_a_result_takes_nothing_from_later_calls():
    run = run_of(assistant("", "a"), assistant("", "a"), tool("a"))
    assert result_ids(run) == [("call_1", "a")]


def test_results_without_calls_get_ids_of_their_own():
    assert result_ids(run_of(tool("a", "b"))) == [("result_0", "a"), ("result_1", "b")]


@pytest.mark.parametrize(
    ("length", "sha1"),
    [(None, None), (3, None), (3, "a9993e364706"), (None, "A9993E36")],
)
def test_a_whole_result_keeps_its_text(length: int | None, sha1: str | None):
    assert RecordedResult("t", "abc", length=length, sha1=sha1).distinct_text == "abc"


@pytest.mark.parametrize(
    ("length", "sha1"), [(4, None), (4, "ffffffffffff"), (3, "ffffffffffff"), (None, "ffffffffffff")]
)
def test_a_shortened_result_says_so(length: int | None, sha1: str | None):
    text = RecordedResult("t", "abc", length=length, sha1=sha1).distinct_text
    assert text.startswith("abc\n[not the whole result: ")
    assert sha1 is None or sha1 in text


def test_results_that_differ_only_in_what_was_cut_off_stay_different():
    one, other, same = (
        RecordedResult("t", "head", length=900, sha1=sha1) for sha1 in ("aaaaaaaaaaaa", "bbbbbbbbbbbb", "aaaaaaaaaaaa")
    )
    assert one.distinct_text != other.distinct_text
    assert one.distinct_text == same.distinct_text


def test_a_lone_surrogate_in_a_result_is_no_accident():
    assert RecordedResult("t", "\ud800", sha1="ffffffffffff").whole is False
