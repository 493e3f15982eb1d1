"""OpenAIAdapter: the SDK's objects, as it makes them of what services and compatible servers send,
and junk.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.part_options import mark, read_mark
from monitor.adapters.adapter import ReportedFailure, StreamAdapter
from monitor.adapters.openai.model import to_messages
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import (
    CHUNK_TYPES,
    Chunk,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    TurnFinished,
    UsageReport,
)
from monitor.core.turn import MessageBuilder
from monitor.errors import AdapterError, FinishReason
from monitor.messages import AssistantMessage
from monitor.models import ErrorKind
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import (
    call,
    call_piece,
    chunk,
    events_of,
    finish,
    refusal,
    response_call,
    response_created,
    response_error,
    response_events_of,
    response_failed,
    response_finish,
    response_message,
    response_reasoning,
    response_refusal,
    response_text,
    response_thought,
    response_usage,
    text,
    thought,
    usage,
    usage_only,
)
from tests.adapters.openai.sdk import chunk_of, event_of, of_type, read, sdk


def calls(chunks: list[Chunk]) -> list[tuple[str, str, Any]]:
    return [(one.id, one.name, one.arguments) for one in of_type(ToolCall, chunks)]


def written(chunks: list[Chunk]) -> dict[str, str]:
    """The text of each call's arguments, joined from its pieces."""
    texts: dict[str, str] = {}
    for one in of_type(ToolCallDelta, chunks):
        texts[one.id] = texts.get(one.id, "") + one.arguments_text
    return texts


def test_it_is_a_stream_adapter():
    adapter: StreamAdapter = OpenAIAdapter()
    assert adapter.needs_finish
    assert adapter.drains


# --- chat completions: text, thinking, refusals


def test_text_and_thinking_come_in_order():
    chunks = read(
        chunk({"role": "assistant", "content": ""}), thought("hm "), text("Hel"), text("lo"), finish(usage=None)
    )
    assert chunks == [ReasoningDelta("hm "), TextDelta("Hel"), TextDelta("lo"), TurnFinished(FinishReason.DONE, "stop")]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_stands_in_either_field_of_compatible_servers(field: str):
    assert read(thought("hm", field=field)) == [ReasoningDelta("hm")]


def test_thinking_that_a_server_says_in_both_fields_is_read_once():
    assert read(chunk({"reasoning": "hm", "reasoning_content": "hm", "content": "x"})) == [
        ReasoningDelta("hm"),
        TextDelta("x"),
    ]


def test_content_in_parts_is_read_as_mistral_writes_it():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "2+"}, {"type": "text", "text": "2"}]},
        {"type": "thinking", "thinking": "hm"},
        {"type": "reference", "reference_ids": [1]},
        {"type": "text", "text": "4"},
    ]
    assert read(chunk({"content": parts})) == [ReasoningDelta("2+2"), ReasoningDelta("hm"), TextDelta("4")]


def test_a_refusal_is_text_and_blocks_the_turn():
    chunks = read(refusal("I can"), refusal("not."), finish(usage=None))
    assert chunks == [TextDelta("I can"), TextDelta("not."), TurnFinished(FinishReason.BLOCKED, "stop: refusal")]


def test_only_the_first_choice_is_read():
    both = [{"index": at, "delta": {"content": f"{at}"}, "finish_reason": None} for at in (1, 0)]
    chunks = read(
        text("b", index=1), chunk(choices=both), finish(index=1, usage=None), finish(usage=None), text("c", index=2)
    )
    assert chunks == [TextDelta("0"), TurnFinished(FinishReason.DONE, "stop")]


@pytest.mark.parametrize("choices", [[], None, [None]])
def test_a_chunk_without_a_choice_says_nothing(choices: Any):
    assert read(chunk(choices=choices)) == []


@pytest.mark.parametrize(
    "delta", [None, {}, {"content": None}, {"content": ""}, {"tool_calls": None}, {"tool_calls": []}]
)
def test_an_empty_delta_says_nothing(delta: Any):
    event = chunk()
    event["choices"][0]["delta"] = delta
    assert read(event) == []


# --- finish reasons


@pytest.mark.parametrize(
    ("word", "finish_reason"),
    [
        ("stop", FinishReason.DONE),
        ("tool_calls", FinishReason.DONE),
        ("function_call", FinishReason.DONE),
        ("eos", FinishReason.DONE),
        ("a_new_word", FinishReason.UNKNOWN),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", FinishReason.MALFORMED),
        ("length", FinishReason.LENGTH),
        ("model_length", FinishReason.LENGTH),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("content_filter", FinishReason.BLOCKED),
        ("SAFETY", FinishReason.BLOCKED),
        ("sensitive", FinishReason.BLOCKED),
        ("repetition", FinishReason.REPETITION),
        ("repetition_detected", FinishReason.REPETITION),
    ],
)
def test_the_services_word_has_a_class_and_is_kept(word: str, finish_reason: FinishReason):
    assert read(text("x"), finish(word, usage=None))[1:] == [TurnFinished(finish_reason, word)]


@pytest.mark.parametrize("word", ["error", "abort", "network_error", "insufficient_system_resource"])
def test_a_word_that_says_that_the_service_failed_is_a_failure(word: str):
    with pytest.raises(ReportedFailure, match=word) as raised:
        read(text("x"), finish(word))
    assert raised.value.model_error.kind is ErrorKind.SERVER


def test_a_full_window_is_an_overflow_where_nothing_was_said_and_else_a_limit():
    word = "model_context_window_exceeded"
    with pytest.raises(ReportedFailure) as raised:
        read(finish(word))
    assert raised.value.model_error.kind is ErrorKind.OVERFLOW
    for said in (text("x"), call("look"), chunk({"content": [{"type": "text", "text": "x"}]})):
        assert of_type(TurnFinished, read(said, finish(word))) == [TurnFinished(FinishReason.LENGTH, word)]
    assert of_type(TurnFinished, read(text("x"), text("y"), finish(word))) == [TurnFinished(FinishReason.LENGTH, word)]


def test_a_turn_is_finished_once_whatever_a_server_repeats():
    chunks = read(text("x"), finish("stop", usage=None), finish("stop", usage=None), finish("length", usage=None))
    assert of_type(TurnFinished, chunks) == [TurnFinished(FinishReason.DONE, "stop")]
    assert of_type(TurnFinished, read(text("x"), finish("", usage=None))) == []


# --- tool calls


def test_interleaved_fragments_are_put_together_by_index():
    chunks = read(
        call_piece('{"q"', name="look", id="a"),
        call_piece("", name="now", id="b", at=1),
        call_piece(": 1}"),
        call_piece("{}", at=1),
        finish("tool_calls", usage=None),
    )
    assert chunks[:4] == [
        ToolCallDelta("a", "look", '{"q"'),
        ToolCallDelta("b", "now", ""),
        ToolCallDelta("a", None, ": 1}"),
        ToolCallDelta("b", None, "{}"),
    ]
    assert calls(chunks) == [("a", "look", {"q": 1}), ("b", "now", {})]
    assert isinstance(chunks[-1], TurnFinished)


def test_a_server_that_numbers_every_call_0_or_none_is_told_by_ids():
    for at in (0, None):
        chunks = read(
            call_piece('{"q": ', name="look", id="a", at=at),
            call_piece("1}", at=at),
            call_piece('{"q": ', name="look", id="b", at=at),
            call_piece("2}", id="b", at=at),
            finish(usage=None),
        )
        assert calls(chunks) == [("a", "look", {"q": 1}), ("b", "look", {"q": 2})]


def test_whole_calls_without_ids_are_told_apart_and_get_ids():
    chunks = read(
        call("look", {"q": 1}, id=None),
        call("look", {"q": 2}, id=None),
        call("now", id=None, at=None),
        finish(),
        turn=3,
    )
    assert calls(chunks) == [("call_3_0", "look", {"q": 1}), ("call_3_1", "look", {"q": 2}), ("call_3_2", "now", {})]


def test_a_server_that_repeats_name_and_id_with_every_piece_means_one_call():
    pieces = ['{"q": "', "a}b", '"}']
    same = [call_piece(piece, name="look", id="a") for piece in pieces]
    fresh = [call_piece(piece, name="look" if at == 0 else None, id=f"id{at}") for at, piece in enumerate(pieces)]
    bare = [call_piece(piece, name="look") for piece in ('{"q": ', '"a"', "}")]
    assert calls(read(*same, finish())) == [("a", "look", {"q": "a}b"})]
    assert calls(read(*fresh, finish())) == [("id0", "look", {"q": "a}b"})]
    assert calls(read(*bare, finish())) == [("call_0_0", "look", {"q": "a"})]


def test_an_empty_name_or_id_is_none():
    chunks = read(call_piece("", name="look", id="a"), call_piece('{"q": 1}', name="", id=""), finish())
    assert calls(chunks) == [("a", "look", {"q": 1})]


def test_arguments_may_come_as_an_object():
    event = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": {"q": "é"}}}]})
    chunks = read(event, finish())
    assert calls(chunks) == [("a", "look", {"q": "é"})]
    assert written(chunks) == {"a": '{"q": "é"}'}


def test_the_function_call_of_old_is_a_call():
    chunks = read(
        chunk({"function_call": {"name": "look", "arguments": '{"q"'}}),
        chunk({"function_call": {"arguments": ": 1}"}}),
        finish("function_call"),
    )
    assert calls(chunks) == [("call_0_0", "look", {"q": 1})]


def test_a_server_that_sends_each_piece_in_the_old_and_the_new_form_means_it_once():
    """The server of llama-cpp-python does."""
    pieces = ["{", '"q":', " 1}"]
    functions = [{"name": "look", "arguments": piece} for piece in pieces]
    both = [
        chunk({"function_call": one, "tool_calls": [{"index": 0, "id": "a", "type": "function", "function": one}]})
        for one in functions
    ]
    chunks = read(*both, finish("tool_calls"))
    assert calls(chunks) == [("a", "look", {"q": 1})]
    assert written(chunks) == {"a": '{"q": 1}'}


@pytest.mark.parametrize("text", ['{"q": "ha', '["a"]', "null", '"x"', "{]", "[" * 100_000])
def test_a_call_whose_text_is_no_object_has_that_text(text: str):
    assert calls(read(call_piece(text, name="look", id="a"), finish())) == [("a", "look", text)]


def test_no_arguments_at_all_are_an_empty_object_unless_the_turn_was_cut_off():
    nothing = call_piece("", name="now", id="a")
    assert calls(read(nothing, finish("tool_calls"))) == [("a", "now", {})]
    assert calls(read(nothing, finish("length"))) == [("a", "now", "")]
    assert calls(read(nothing)) == [("a", "now", "")]


def test_a_call_that_the_end_of_the_stream_cuts_off_is_half_a_call():
    chunks = read(call_piece('{"q": "ha', name="look", id="a"))
    assert chunks == [ToolCallDelta("a", "look", '{"q": "ha'), ToolCall("a", "look", '{"q": "ha')]


def test_a_whole_call_before_the_cut_is_whole():
    assert calls(read(call("look", {"q": 1}), call_piece('{"q"', name="look", id="b", at=1), finish("length"))) == [
        ("call_local", "look", {"q": 1}),
        ("b", "look", '{"q"'),
    ]


def test_arguments_of_a_call_without_a_name_are_refused():
    with pytest.raises(AdapterError, match="no name"):
        read(call_piece("{}"))
    assert read(call_piece("")) == []


def test_the_signature_of_geminis_compatible_endpoint_comes_before_its_call():
    extra = {"google": {"thought_signature": "c2ln"}}
    fragment = {"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}, "extra_content": extra}
    chunks = read(chunk({"tool_calls": [fragment]}), finish())
    assert isinstance(chunks[0], ReasoningDelta)
    assert read_mark(chunks[0].signature) == {"extra_content": extra}


# --- usage


def test_usage_may_come_alone_with_the_finish_or_all_the_time_and_never_shrinks():
    reports = of_type(
        UsageReport,
        read(
            text("a", usage=usage(5, output=1)),
            text("b", usage=usage(5, output=1)),
            text("c", usage=usage(5, output=2, cached=3)),
            finish(usage=usage(4, output=2, reasoning=1)),
            usage_only(5, output=4),
        ),
    )
    assert [(one.input_tokens, one.output_tokens, one.total_tokens) for one in reports] == [
        (5, 1, 6),
        (5, 2, 7),
        (5, 2, 7),
        (5, 4, 9),
    ]
    assert reports[-1] == UsageReport(5, 4, 1, 3, 9)


def test_thinking_that_a_server_counts_beside_the_output_is_part_of_it():
    beside = usage(10, output=1, reasoning=20) | {"total_tokens": 31}
    (report,) = of_type(UsageReport, read(finish(usage=beside)))
    assert (report.output_tokens, report.reasoning_tokens, report.total_tokens) == (21, 20, 31)


@pytest.mark.parametrize(
    "counts",
    [
        {},
        {"prompt_tokens": None},
        {"prompt_tokens": "5"},
        {"prompt_tokens": -1},
        {"prompt_tokens": True},
        {"prompt_tokens": 1.5},
    ],
)
def test_counts_that_are_none_are_left_away(counts: Any):
    assert read(text("x", usage=counts)) == [TextDelta("x")]


def test_usage_in_other_places_is_found():
    plain = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    in_choice = chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": plain}])
    (report,) = of_type(UsageReport, read(in_choice))
    assert report.total_tokens == 7
    (report,) = of_type(UsageReport, read(chunk(choices=[], x_groq={"id": "r", "usage": plain})))
    assert report.total_tokens == 7
    (report,) = of_type(UsageReport, read(chunk(choices=[], usage=plain | {"prompt_cache_hit_tokens": 4})))
    assert report.cached_tokens == 4


# --- responses


def test_a_response_is_read_by_the_types_of_its_events():
    chunks = read(
        response_created(),
        *response_reasoning("I look.", encrypted="secret"),
        *response_message(at=1),
        response_text("Hel", at=1),
        response_text("lo", at=1),
        *response_call("look", {"q": 1}, id="c", at=2, cut=4),
        response_finish(usage=response_usage(5, output=4, reasoning=2, cached=1)),
    )
    assert chunks[0] == ReasoningDelta("I look.")
    assert read_mark(of_type(ReasoningDelta, chunks)[1].signature) == {
        "reasoning": {"id": "rs_0", "encrypted_content": "secret"}
    }
    assert "".join(one.text for one in of_type(TextDelta, chunks)) == "Hello"
    assert [one.name for one in of_type(ToolCallDelta, chunks)] == ["look", None, None]
    assert written(chunks) == {"c": '{"q": 1}'}
    assert calls(chunks) == [("c", "look", {"q": 1})]
    assert chunks[-2:] == [UsageReport(5, 4, 2, 1, 9), TurnFinished(FinishReason.DONE, "completed")]


def test_the_call_knows_the_sdks_own_item():
    events = [event_of(event) for event in response_call("look", id="c")]
    adapter = OpenAIAdapter()
    (made,) = of_type(ToolCall, [one for event in events for one in adapter.decode(event)])
    assert made.raw is events[-1].item


def test_an_event_that_nobody_knows_is_passed_over_whatever_class_the_sdk_gives_it():
    events = [
        {"type": "response.brand_new_event", "delta": "x"},
        {"type": "keepalive"},
        {"type": "response.output_text.annotation.added"},
    ]
    assert read(*events) == []


def test_items_are_known_by_their_place_because_some_services_change_their_ids():
    events = response_call("look", {"q": 1}, id="c", at=4)
    for at, event in enumerate(events):
        if "item_id" in event:
            event["item_id"] = f"rotated_{at}"
        else:
            event["item"] = event["item"] | {"id": f"rotated_{at}"}
    assert calls(read(*events, response_finish())) == [("c", "look", {"q": 1})]


def test_a_service_without_places_is_read_by_ids_and_without_deltas_by_what_is_done():
    events = [
        {key: value for key, value in event.items() if key != "output_index"}
        for event in response_call("look", {"q": 1}, id="c")
    ]
    assert calls(read(*events)) == [("c", "look", {"q": 1})]
    for some in (events[:1] + events[-1:], events[-1:]):
        chunks = read(*some)
        assert calls(chunks) == [("c", "look", {"q": 1})]
        assert written(chunks) == {"c": '{"q": 1}'}


def test_text_that_came_in_no_deltas_is_taken_when_it_is_done():
    done = {"type": "response.output_text.done", "item_id": "m", "output_index": 0, "content_index": 0, "text": "whole"}
    assert read(done) == [TextDelta("whole")]
    assert read(response_text("whole"), done) == [TextDelta("whole")]
    item = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert read({"type": "response.output_item.done", "output_index": 0, "item": item})[0] == ReasoningDelta("hm")


def test_reasoning_text_and_summaries_are_thinking():
    raw = {"type": "response.reasoning_text.delta", "item_id": "r", "output_index": 0, "content_index": 0, "delta": "b"}
    assert read(response_thought("a"), raw) == [ReasoningDelta("a"), ReasoningDelta("b")]


def test_a_phase_is_said_before_its_text():
    phased = read(*response_message(phase="commentary"), response_text("I look."))
    assert read_mark(of_type(ReasoningDelta, phased)[0].signature) == {"phase": "commentary"}


def test_a_custom_tool_has_its_input_as_an_argument():
    item = {"id": "i", "type": "custom_tool_call", "call_id": "c", "name": "sql", "input": ""}
    chunks = read(
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "item_id": "i", "delta": "SELECT"},
        {"type": "response.output_item.done", "output_index": 0, "item": item | {"input": "SELECT"}},
    )
    assert calls(chunks) == [("c", "sql", {"input": "SELECT"})]
    assert read_mark(of_type(ReasoningDelta, chunks)[0].signature) == {"call": {"type": "custom_tool_call"}}


@pytest.mark.parametrize(
    ("item", "made"),
    [
        (
            {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}},
            [("c", "local_shell", {"command": ["ls"]})],
        ),
        (
            {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}},
            [("c", "shell", {"commands": ["ls"]})],
        ),
        ({"type": "shell_call", "call_id": "c", "action": {}, "environment": {"type": "container_reference"}}, []),
        (
            {"type": "apply_patch_call", "call_id": "c", "operation": {"path": "a"}},
            [("c", "apply_patch", {"path": "a"})],
        ),
        ({"type": "tool_search_call", "call_id": "c", "execution": "server", "arguments": {}}, []),
        (
            {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": "x"},
            [("c", "tool_search", {"input": "x"})],
        ),
        ({"type": "web_search_call", "id": "w", "status": "completed"}, []),
    ],
)
def test_openais_own_tools_are_calls_where_the_caller_carries_them_out(item: dict[str, Any], made: list[Any]):
    chunks = read(
        {"type": "response.output_item.done", "output_index": 0, "item": {"id": "i", "status": "completed"} | item}
    )
    assert calls(chunks) == made
    marked = read_mark(of_type(ReasoningDelta, chunks)[0].signature)
    assert marked is not None
    assert marked["item"]["type"] == item["type"]


@pytest.mark.parametrize("half", ["", '{"q": "ha'])
def test_a_response_that_is_incomplete_leaves_half_a_call(half: str):
    chunks = read(
        *response_call("look", half, id="c", whole=False), response_finish("incomplete", reason="max_output_tokens")
    )
    assert calls(chunks) == [("c", "look", half)]
    assert chunks[-1] == TurnFinished(FinishReason.LENGTH, "incomplete: max_output_tokens")
    assert calls(read(*response_call("look", half, id="c", whole=False))) == [("c", "look", half)]


@pytest.mark.parametrize("half", ["", '{"q": 1}'])
def test_a_whole_text_is_no_whole_call_where_the_service_does_not_say_so(half: str):
    begun = call_piece(half, name="look", id="a")
    assert calls(read(begun)) == calls(read(begun, finish("length"))) == [("a", "look", half)]
    assert calls(read(*response_call("look", half, id="c", whole=False))) == [("c", "look", half)]


@pytest.mark.parametrize(("end", "arguments"), [("completed", {}), ("incomplete", ""), (None, "")])
def test_an_item_that_is_done_and_says_nothing_is_whole_where_its_response_is(end: str | None, arguments: Any):
    item = {"id": "i", "type": "function_call", "call_id": "c", "name": "now", "arguments": ""}
    events = [{"type": f"response.output_item.{what}", "output_index": 0, "item": item} for what in ("added", "done")]
    assert calls(read(*events, *([] if end is None else [response_finish(end)]))) == [("c", "now", arguments)]


@pytest.mark.parametrize(
    ("reason", "finish_reason"),
    [
        ("max_output_tokens", FinishReason.LENGTH),
        ("content_filter", FinishReason.BLOCKED),
        ("steered", FinishReason.INTERRUPTED),
        ("a_new_word", FinishReason.INTERRUPTED),
        (None, FinishReason.INTERRUPTED),
    ],
)
def test_why_a_response_is_incomplete(reason: str | None, finish_reason: FinishReason):
    (finished,) = of_type(TurnFinished, read(response_finish("incomplete", reason=reason)))
    assert finished.finish_reason is finish_reason


@pytest.mark.parametrize(
    ("status", "finish_reason"),
    [
        ("completed", FinishReason.DONE),
        ("cancelled", FinishReason.INTERRUPTED),
        ("incomplete", FinishReason.INTERRUPTED),
        ("expired", FinishReason.UNKNOWN),
        ("in_progress", FinishReason.DONE),  # the event is the end, whatever the copy of its response says
        (None, FinishReason.DONE),
    ],
)
def test_the_status_of_a_response_says_how_it_ended(status: str | None, finish_reason: FinishReason):
    ended = response_finish() | {"response": {"status": status}}
    assert read(ended)[-1] == TurnFinished(
        finish_reason, status if status not in {None, "in_progress"} else "completed"
    )


def test_a_failed_status_is_a_failure_and_a_cancelled_response_is_not_whole():
    failed = response_finish() | {"response": {"status": "failed", "error": {"code": "server_error", "message": "no"}}}
    with pytest.raises(ReportedFailure, match="no"):
        read(failed)
    cancelled = {"type": "response.cancelled", "response": {"status": "cancelled"}}
    chunks = read(*response_call("rm", {"all": True}, id="c", whole=False), cancelled)
    assert calls(chunks) == [("c", "rm", '{"all": true}')]
    assert chunks[-1] == TurnFinished(FinishReason.INTERRUPTED, "cancelled")


def resumable() -> list[dict[str, Any]]:
    """A response with a text and two calls, whose last event has all of it."""
    events = response_events_of("one two three", [("look", {"q": 1}), ("rm", {"q": 2})], cut=4)
    events[-1]["response"]["output"] = [
        one["item"] | ({"content": [{"type": "output_text", "text": "one two three"}]} if not number else {})
        for number, one in enumerate(one for one in events if one["type"] == "response.output_item.done")
    ]
    return events


@pytest.mark.parametrize("after", range(1, len(resumable())))
def test_a_response_that_is_resumed_has_all_its_calls_and_the_rest_of_its_text(after: int):
    chunks = read(*resumable()[after:])
    assert {name: (id, arguments) for id, name, arguments in calls(chunks)} == {
        "look": ("call_local_0", {"q": 1}),
        "rm": ("call_local_1", {"q": 2}),
    }
    assert len(calls(chunks)) == 2
    words = "".join(one.text for one in chunks if isinstance(one, TextDelta))
    assert words
    assert "one two three".endswith(words)
    assert chunks[-1] == TurnFinished(FinishReason.DONE, "completed")


def test_a_refusal_in_a_response_blocks_it():
    chunks = read(response_refusal("I cannot."), response_finish())
    assert chunks[0] == TextDelta("I cannot.")
    assert chunks[-1] == TurnFinished(FinishReason.BLOCKED, "completed: refusal")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (response_failed(), ErrorKind.SERVER),
        (response_failed("rate_limit_exceeded", "Please try again in 1m2.5s."), ErrorKind.RATE_LIMITED),
        (response_failed("invalid_prompt"), ErrorKind.BLOCKED),
        (response_failed("context_length_exceeded"), ErrorKind.OVERFLOW),
        (response_error(), ErrorKind.SERVER),
        (response_error(None, "Your input exceeds the context window of this model."), ErrorKind.OVERFLOW),
        (response_error("invalid_image_format", "no image"), ErrorKind.REQUEST),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}, ErrorKind.REQUEST),
        ({"type": "response.failed"}, ErrorKind.SERVER),
        ({"type": "error"}, ErrorKind.SERVER),
    ],
)
def test_what_the_service_reports_in_its_stream_is_a_failure_of_the_call(event: Any, kind: ErrorKind):
    adapter = OpenAIAdapter()
    with pytest.raises(ReportedFailure) as raised:
        adapter.decode(event_of(event))
    model_error = adapter.classify(raised.value)
    assert model_error.kind is kind
    assert model_error.message
    assert model_error.retry_after_s == (62.5 if kind is ErrorKind.RATE_LIMITED else None)


# --- the SDK's helper streams


@pytest.mark.asyncio
async def test_the_helper_stream_of_chat_completions_is_read_like_the_plain_one():
    script = [thought("hm"), *events_of("Hello there", [("look", {"q": 1})], cut=3)]
    with LocalOpenAI([script]) as server:
        async with sdk(server) as client:
            adapter, chunks = OpenAIAdapter(), list[Chunk]()
            async with client.chat.completions.stream(model="m", messages=[]) as helper:
                async for event in helper:
                    chunks += adapter.decode(event)
    assert chunks == read(*script)


@pytest.mark.asyncio
async def test_the_helper_stream_of_responses_is_read_like_the_plain_one():
    script = response_events_of("Hello there", [("look", {"q": 1})], cut=3, reasoning="hm")
    with LocalOpenAI([script]) as server:
        async with sdk(server) as client:
            adapter, chunks = OpenAIAdapter(), list[Chunk]()
            async with client.responses.stream(model="m", input="x") as helper:
                async for event in helper:
                    chunks += adapter.decode(event)
    assert chunks == read(*script)


# --- plain text, told quickly


def test_plain_text_is_text_and_nothing_else():
    adapter = OpenAIAdapter()
    adapter.decode(chunk_of(text("first")))
    assert adapter.plain_text(chunk_of(text("x"))) == "x"
    assert adapter.plain_text(event_of(response_text("y"))) == "y"
    others = [
        text("", index=0),
        text("x", index=1),
        text("x", usage=usage(1)),
        text("x", finish_reason="stop"),
        chunk({"content": "x", "refusal": "y"}),
        chunk({"content": "x", "reasoning_content": "y"}),
        chunk({"content": "x", "tool_calls": []}),
        chunk({"content": [{"type": "text", "text": "x"}]}),
        chunk(choices=[]),
    ]
    assert [adapter.plain_text(chunk_of(other)) for other in others] == [None] * len(others)
    assert adapter.plain_text(event_of(response_thought("x"))) is None
    assert adapter.plain_text(event_of(response_text(""))) is None
    assert adapter.plain_text(SimpleNamespace()) is None


PIECES = st.one_of(
    st.text(max_size=3).map(text),
    st.text(max_size=3).map(thought),
    st.text(max_size=3).map(refusal),
    st.builds(
        call_piece,
        st.sampled_from(["", "{", "}", '{"a":1}']),
        name=st.sampled_from([None, "look"]),
        id=st.sampled_from([None, "a"]),
    ),
    st.sampled_from(["stop", "length", "tool_calls"]).map(finish),
)


@given(st.lists(PIECES, max_size=8))
def test_the_quick_way_and_the_long_way_give_the_same(events: list[Any]):
    def chunks(*, quick: bool) -> list[Chunk]:
        adapter, found = OpenAIAdapter(), list[Chunk]()
        for event in events:
            item = chunk_of(event)
            words = adapter.plain_text(item) if quick else None
            found += [TextDelta(words)] if words is not None else adapter.decode(item)
        return [*found, *adapter.finish()]

    try:
        expected = chunks(quick=False)
    except AdapterError:
        with pytest.raises(AdapterError):
            chunks(quick=True)
    else:
        assert chunks(quick=True) == expected
        assert len(of_type(TurnFinished, expected)) == any(event["choices"][0]["finish_reason"] for event in events)


# --- junk

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["text", "type", "id", "name", "arguments"]), inner)
    ),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["content", "refusal", "tool_calls", "function_call", "reasoning_content"]), JSON),
    JSON,
    JSON,
)
def test_whatever_a_server_puts_into_a_chunk_gives_chunks_or_an_adapter_error(delta: Any, reason: Any, counts: Any):
    adapter = OpenAIAdapter()
    for item in (chunk_of(chunk(delta, usage=counts)), chunk_of(chunk(delta, finish_reason=reason))):
        try:
            chunks = adapter.decode(item)
        except AdapterError:
            continue
        assert all(isinstance(one, CHUNK_TYPES) for one in chunks)
    adapter.finish()


TYPES = st.sampled_from(
    [
        *(
            "response.output_item.added",
            "response.output_item.done",
            "response.output_text.delta",
            "response.output_text.done",
        ),
        *("response.function_call_arguments.delta", "response.refusal.delta"),
        *("response.completed", "response.incomplete", "response.failed", "error"),
    ]
)
ITEMS = st.dictionaries(
    st.sampled_from(["id", "name", "call_id", "arguments", "summary", "action", "phase"]), JSON
).flatmap(
    lambda fields: st.sampled_from(
        ["function_call", "reasoning", "message", "shell_call", "custom_tool_call", "mcp_call"]
    ).map(lambda kind: fields | {"type": kind})
)


@given(st.lists(st.tuples(TYPES, ITEMS, JSON, JSON), max_size=4))
def test_whatever_a_server_puts_into_an_event_gives_chunks_or_an_adapter_error(events: list[Any]):
    adapter = OpenAIAdapter()
    for kind, item, delta, response in events:
        event = {"type": kind, "item": item, "delta": delta, "response": response, "output_index": 0, "item_id": "i"}
        try:
            chunks = adapter.decode(SimpleNamespace(**event))
        except AdapterError:
            continue
        assert all(isinstance(one, CHUNK_TYPES) for one in chunks)
    adapter.finish()


def test_an_object_of_another_sdk_is_named():
    with pytest.raises(AdapterError, match="not int"):
        OpenAIAdapter().decode(5)


# --- marks


def test_a_mark_is_read_back_and_another_signature_is_none():
    fields = {"reasoning": {"id": "é", "encrypted_content": None}}
    assert read_mark(mark(fields)) == fields
    assert mark(fields).isascii()
    for other in (
        None,
        "",
        "c2lnbmF0dXJl",
        "openai:",
        "openai:[1]",
        "openai:{",
        "openai:" + "[" * 100_000,
        json.dumps(fields),
    ):
        assert read_mark(other) is None


# --- custom tools of chat completions


def custom_piece(piece: str, *, name: str | None = None, id: str | None = None, at: int = 0) -> dict[str, Any]:
    custom = {"input": piece} | ({} if name is None else {"name": name})
    return chunk(
        {"tool_calls": [{"index": at, "type": "custom", "custom": custom} | ({} if id is None else {"id": id})]}
    )


def test_a_custom_tool_of_a_chat_has_its_input_as_an_argument():
    chunks = read(custom_piece("SEL", name="sql", id="a"), custom_piece("ECT"), finish("tool_calls"))
    assert calls(chunks) == [("a", "sql", {"input": "SELECT"})]
    assert written(chunks) == {"a": "SELECT"}
    assert read_mark(of_type(ReasoningDelta, chunks)[0].signature) == {"call": {"type": "custom_tool_call"}}


def test_a_custom_call_that_was_cut_off_is_no_whole_call():
    begun = [custom_piece("SEL", name="sql", id="a"), custom_piece("ECT")]
    assert calls(read(*begun)) == calls(read(*begun, finish("length"))) == [("a", "sql", "SELECT")]
    assert calls(read(*begun, custom_piece("", name="sql", id="b", at=1), finish("length"))) == [
        ("a", "sql", {"input": "SELECT"}),
        ("b", "sql", ""),
    ]


@pytest.mark.parametrize(
    "kinds", [["custom", "function"], ["function", "custom"], ["custom", "custom"], ["function", "function"]]
)
def test_what_stands_beside_a_call_goes_back_with_that_call(kinds: list[str]):
    pieces: list[Any] = []
    for at, kind in enumerate(kinds):
        if kind == "custom":
            pieces.append(custom_piece(f"input {at}", name=f"f{at}", id=f"c{at}", at=at))
        else:
            piece = call_piece("{}", name=f"f{at}", id=f"c{at}", at=at)
            piece["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": f"s{at}"}}
            pieces.append(piece)
    reply = MessageBuilder({"text": 0, "reasoning": 0})
    for one in read(*pieces, finish("tool_calls")):
        if isinstance(one, ReasoningDelta):
            reply.add_reasoning(one)
        elif isinstance(one, ToolCall):
            reply.add_call(one)
    (turn, *_) = to_messages([AssistantMessage(reply.parts())])
    assert [made["type"] for made in turn["tool_calls"]] == kinds
    for at, made in enumerate(turn["tool_calls"]):
        if kinds[at] == "custom":
            assert made["custom"] == {"name": f"f{at}", "input": f"input {at}"}
        else:
            assert made["extra_content"] == {"google": {"thought_signature": f"s{at}"}}
