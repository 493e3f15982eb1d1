"""An answer that the proxy ends, read by the real SDKs: at every place of several streams."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished, Usage
from monitor.proxy.formats.anthropic import CUT_OFF, without_cut_thoughts
from monitor.proxy.formats.merging import merged
from monitor.proxy.formats.wire import WireAnswer
from monitor.testing import anthropic_steps, gemini_steps, openai_steps
from tests.proxy.formats.clients import Clients, Got, clients
from tests.proxy.formats.streams import ARRAY, FORMS, Stream, answer, asked, framed, passed, recorded, wire

REASON: Final = 'loop_detected: "the the\r\n\r\ndata: {\n" \u2028 \ud800 \u00e9'
"""A reason with a piece of the model's text, which wants to be an event of its own."""
SENTENCE: Final = "[agent-monitor stopped this answer: it repeated itself. Run r-1.]"
LEGAL: Final = {
    "openai-chat": "stop",
    "openai-responses": "completed",
    "anthropic": "end_turn",
    "gemini": "MAX_TOKENS",
}
RECORDED: Final = (
    *("mistral-incremental", "moonshotai", "azure-model-router", "xai-text", "xai-tool-call"),
    *("openai-custom-tool", "openai-mcp-tool-approval.1", "openai-reasoning-encrypted-content.1.jsonl[13]"),
    *("anthropic-json-tool", "anthropic-tool-no-args", "anthropic-mcp", "anthropic-refusal", "spliced"),
    *("anthropic-programmatic-tool-calling.1.jsonl[21]", "anthropic-advisor-stop"),
    *("google-reasoning", "google-stream-tool-call-arguments", "google-tool-call-gemini3", "google-tool-call.jsonl"),
)
CALL_WORDS: Final = (b"tool_use", b"_call", b"mcp_approval_request", b"functionCall")


CALLS: Final = [("look", {"at": "a"}), ("look", {"at": "b, and a long way behind it"})]


def made(form: str) -> Stream:
    """A thought, a text and two calls."""
    events: dict[str, Callable[..., list[Any]]] = {
        "openai-chat": openai_steps.events_of,
        "openai-responses": openai_steps.response_events_of,
        "anthropic": anthropic_steps.events_of,
        "gemini": gemini_steps.events_of,
    }
    said = events[form]("Let me look.", CALLS, reasoning="hm, so", cut=6)
    if form == "openai-responses":
        said[-1]["response"]["output"] = openai_steps.merged_response(said)["output"]
    return Stream(form, f"made for {form}", tuple(said))


@dataclass(frozen=True)
class Place:
    """A stream up to one of its frames."""

    stream: Stream
    sent: bytes
    chunks: tuple[Chunk, ...]
    reader: WireAnswer

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, TextDelta))

    @property
    def finished(self) -> bool:
        """Whether the model has ended the answer, as far as the client knows."""
        return b'"stop_reason": "' in self.sent or any(isinstance(chunk, TurnFinished) for chunk in self.chunks)

    @property
    def calls(self) -> bool:
        """Whether there is a call for the client. The service carries out the others itself."""
        if self.stream.form == "anthropic":
            return re.search(rb'"type": ?"tool_use"', self.sent) is not None
        return any(isinstance(chunk, ToolCall | ToolCallDelta) for chunk in self.chunks)

    def __str__(self) -> str:
        return f"{self.stream.name} after {len(self.sent)} bytes"


def streams(form: str) -> list[Stream]:
    chosen = [one for one in recorded() if one.form == form and one.name.startswith(RECORDED)]
    return [made(form), *chosen]


def test_every_chosen_recording_is_there():
    assert not [name for name in RECORDED if not any(one.name.startswith(name) for one in recorded())]


def places(stream: Stream) -> Iterator[Place]:
    """The stream before its first frame, and after each of them."""
    reader, sent, chunks = answer(stream.form), b"", tuple[Chunk, ...]()
    yield Place(stream, sent, chunks, reader)
    for data in stream.frames:
        for frame in reader.feed(data):
            chunks += reader.read(frame).chunks
            reader.sent(frame)
            sent += frame.raw
        yield Place(stream, sent, chunks, reader)


@pytest.fixture(scope="module")
def sdks() -> Iterator[Clients]:
    with clients() as made:
        yield made


def check_stopped(place: Place, got: Got) -> None:
    """What holds for every answer that was ended as if the model had stopped."""
    if place.calls and not place.finished:
        assert got.error is not None
    if got.error is not None:
        assert got.said == REASON
        assert any(word in place.sent for word in CALL_WORDS)
        return
    assert got.text == place.text
    assert place.finished or (got.finish == LEGAL[place.stream.form] and not got.calls)
    assert "loop_detected" not in got.text + got.thoughts


@pytest.mark.parametrize("form", FORMS)
def test_the_sdk_reads_to_the_end_wherever_an_answer_is_ended(form: str, sdks: Clients):
    ended = set()
    for stream in streams(form):
        for place in places(stream):
            ending = place.reader.ending(REASON)
            assert place.reader.ending(REASON) == ending
            got = sdks.read(form, place.sent + ending)
            try:
                check_stopped(place, got)
            except AssertionError as error:
                error.add_note(str(place))
                raise
            ended.add(got.finish)
    assert {LEGAL[form], None} <= ended


@pytest.mark.parametrize("form", FORMS)
def test_the_error_form_is_the_sdks_typed_error_wherever_it_comes(form: str, sdks: Clients):
    for stream in streams(form)[:2]:
        for place in places(stream):
            if place.reader.over:
                continue
            for ending in (place.reader.ending(REASON, error=True), place.reader.broken(REASON)):
                got = sdks.read(form, place.sent + ending)
                assert type(got.error).__name__ in {"APIError", "APIStatusError", "ClientError", "ServerError"}, place
                assert got.said == REASON


def told(data: bytes) -> list[Any]:
    """The events in the bytes, without their names."""
    lines = [line.removeprefix(b"data: ") for line in data.splitlines() if line.startswith(b"data: ")]
    return [json.loads(line) if line != b"[DONE]" else "[DONE]" for line in lines]


def answered(form: str) -> WireAnswer:
    """An answer of which the client has half the text."""
    return next(place.reader for place in places(made(form)) if place.text == "Let me")


def test_the_end_of_a_chat_as_it_stands_on_the_wire():
    chunk, done = told(answered("openai-chat").ending("why"))
    assert chunk["object"] == "chat.completion.chunk"
    assert chunk["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]
    assert done == "[DONE]"


def test_the_end_of_a_response_as_it_stands_on_the_wire():
    events = told(answered("openai-responses").ending("why"))
    assert [event["type"] for event in events] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert events[-1]["response"]["metadata"] == {"agent_monitor": "why"}


def test_the_end_of_a_message_as_it_stands_on_the_wire():
    stop, delta, end = told(answered("anthropic").ending("why"))
    assert stop == {"type": "content_block_stop", "index": 1}
    assert delta["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert end == {"type": "message_stop"}


def test_the_end_of_geminis_answer_as_it_stands_on_the_wire():
    (chunk,) = told(answered("gemini").ending("why"))
    (candidate,) = chunk["candidates"]
    assert (candidate["finishReason"], "content" in candidate) == ("MAX_TOKENS", False)


@pytest.mark.parametrize("form", FORMS)
def test_an_upstream_that_breaks_off_never_looks_like_an_end(form: str):
    for place in places(made(form)):
        if not place.reader.over:
            (error,) = told(place.reader.broken("why"))
            assert "error" in error
            assert not {"choices", "candidates", "response", "delta"} & set(error)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_follows_an_answer_that_has_ended(form: str):
    for stream in streams(form):
        *_, last = places(stream)
        assert last.reader.over
        assert last.reader.ending(REASON) == b""
        assert last.reader.ending(REASON, error=True) == b""
        assert last.reader.broken(REASON) == b""


@pytest.mark.parametrize("form", FORMS)
def test_half_a_frame_is_held_back_at_every_byte(form: str):
    stream = made(form)
    data, whole = b"".join(stream.frames), {place.sent.rstrip() for place in places(stream)}
    reader, sent = answer(form), b""
    for at in range(len(data)):
        sent += passed(reader, data[at : at + 1])
        assert sent.rstrip() in whole
    assert sent == data


@pytest.mark.parametrize("form", FORMS)
def test_a_frame_that_is_read_and_not_sent_changes_nothing_of_the_ending(form: str):
    stream = made(form)
    for place in places(stream):
        before = place.reader.ending(REASON, usage=Usage(1, 2, 0, 0, 3))
        other = answer(form)
        passed(other, place.sent)
        for frame in other.feed(b"".join(stream.frames)[len(place.sent) :]):
            other.read(frame)
        assert other.ending(REASON, usage=Usage(1, 2, 0, 0, 3)) == before


def test_an_array_of_gemini_is_json_wherever_it_is_ended():
    array = json.dumps(made("gemini").events, indent=2).encode()
    reader, sent = answer("gemini", ARRAY), b""
    for at in range(len(array)):
        more = passed(reader, array[at : at + 1])
        sent += more
        if not more and at:
            continue
        for ending in (reader.ending(REASON), reader.broken(REASON)):
            *_, last = json.loads(sent + ending)
            if (b"functionCall" in sent and b"STOP" not in sent) or b"error" in ending:
                assert last["error"]["message"] == REASON
            else:
                assert last["candidates"][0]["finishReason"] in ("STOP", "MAX_TOKENS")
    assert reader.over


@pytest.mark.parametrize("form", ["openai-chat", "openai-responses", "anthropic"])
def test_the_reason_is_a_comment_on_one_line(form: str):
    for place in places(made(form)):
        ending = place.reader.ending(REASON)
        for line in ending.splitlines():
            assert line == b"" or line.startswith((b": agent-monitor ", b"event: ", b"data: "))
        comments = [line for line in ending.splitlines() if line.startswith(b":")]
        assert [json.loads(line.removeprefix(b": agent-monitor ")) for line in comments] == [REASON] * bool(ending)


def test_the_reason_of_gemini_is_its_finish_message_because_its_sdk_refuses_comments(sdks: Clients):
    ending = answer("gemini").ending(REASON)
    assert b"\n:" not in b"\n" + ending
    (chunk,) = sdks.items("gemini", ending)
    assert (chunk.text, chunk.candidates[0].finish_reason.value) == (None, "MAX_TOKENS")
    candidate = json.loads(ending.removeprefix(b"data: "))["candidates"][0]
    assert candidate["finishMessage"] == REASON


@pytest.mark.parametrize("form", FORMS)
def test_a_remark_changes_nothing(form: str, sdks: Clients):
    stream = made(form)
    remark = answer(form).comment(REASON)
    assert remark
    with_remarks = remark + b"".join(frame + remark for frame in stream.frames)
    assert sdks.read(form, with_remarks) == sdks.read(form, b"".join(stream.frames))


@pytest.mark.parametrize("form", FORMS)
def test_the_usage_of_the_caller_stands_in_the_end(form: str):
    ending = answer(form).ending(REASON, usage=Usage(11, 222, 3, 4, 233)).decode()
    assert "222" in ending or "219" in ending  # Gemini counts the thinking beside
    if form != "anthropic":
        assert "11" in ending


def test_the_usage_of_a_chat_is_told_once_and_only_if_it_was_asked_for():
    text = openai_steps.text("So.")
    for fields, frames, told in [
        ({}, [text], True),
        ({"stream_options": None}, [text], False),
        ({}, [text, openai_steps.finish(), openai_steps.usage_only(3)], False),
    ]:
        reader = answer("openai-chat", **fields)
        passed(reader, b"".join(Stream("openai-chat", "", tuple(frames)).frames[:-1]))
        assert (b'"usage":{"prompt_tokens":1' in reader.ending(REASON, usage=Usage(1, 2, 0, 0, 3))) is told


def test_closing_an_item_of_a_response_repeats_its_text(sdks: Clients):
    events = [
        openai_steps.response_created(),
        *openai_steps.response_reasoning("hm", at=0),
        *openai_steps.response_message(at=1),
        openai_steps.response_text("Let ", at=1),
        openai_steps.response_text("me", at=1),
    ]
    reader = answer("openai-responses")
    sent = passed(reader, b"".join(Stream("openai-responses", "", tuple(events)).frames))
    items = sdks.items("openai-responses", sent + reader.ending(REASON))
    done = {item.type: item for item in items[len(events) :]}
    assert done["response.output_text.done"].text == "Let me"
    assert done["response.output_item.done"].item.status == "completed"
    final = done["response.completed"].response
    assert (final.status, final.output_text, len(final.output)) == ("completed", "Let me", 2)
    numbers = [item.sequence_number for item in items[len(events) :]]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_a_head_that_is_nested_too_deep_to_be_written_again_ends_by_the_error():
    for depth in (10, 900, 950, 990):
        reader, deep = answer("openai-responses"), b'{"a":' * depth + b"1" + b"}" * depth
        passed(reader, b'data: {"type": "response.created", "response": {"metadata": %b}}\n\n' % deep)
        assert reader.ending(REASON)


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
def test_a_call_of_the_services_own_tools_is_not_closed_half_written(kind: str):
    block = {"type": kind, "id": "s1", "name": "search", "input": {}}
    started = [anthropic_steps.start(3), anthropic_steps.block_start(block), anthropic_steps.arguments('{"q": "a')]
    reader = answer("anthropic")
    passed(reader, b"".join(Stream("anthropic", "", tuple(started)).frames))
    assert [event["type"] for event in told(reader.ending(REASON))] == ["error"]
    passed(reader, framed("anthropic", anthropic_steps.block_stop()))
    assert told(reader.ending(REASON))[-1] == {"type": "message_stop"}


def test_a_text_that_came_only_when_it_was_done_is_repeated_too():
    done, *_ = openai_steps.response_message_done("Let me")
    reader = answer("openai-responses")
    for event in (openai_steps.response_created(), *openai_steps.response_message(), done):
        passed(reader, framed("openai-responses", event))
    part, item, _ = told(reader.ending(REASON))
    assert part["part"]["text"] == item["item"]["content"][0]["text"] == "Let me"


def test_thinking_that_is_ended_has_our_signature_and_is_taken_out_of_later_requests(sdks: Clients):
    """The service refuses a thought without a signature."""
    events = [anthropic_steps.start(3), *anthropic_steps.think("hm, ", "so")[:-2]]
    reader = answer("anthropic")
    sent = passed(reader, b"".join(Stream("anthropic", "", tuple(events)).frames))
    got = sdks.read("anthropic", sent + reader.ending(REASON))
    assert (got.thoughts, got.text, got.finish) == ("hm, so", "", "end_turn")
    thought = {"type": "thinking", "thinking": "hm, so", "signature": CUT_OFF}
    said = {"role": "assistant", "content": [thought, {"type": "text", "text": SENTENCE}]}
    later = json.loads(without_cut_thoughts(json.dumps({"messages": [said]}).encode()))
    assert later == {"messages": [{"role": "assistant", "content": [{"type": "text", "text": SENTENCE}]}]}
    assert without_cut_thoughts(b'{"agent-monitor:cut-off"') == b'{"agent-monitor:cut-off"'


# --- the sentence


@pytest.mark.parametrize("form", FORMS)
def test_the_sentence_is_the_last_text_wherever_an_answer_is_ended(form: str, sdks: Clients):
    for stream in streams(form):
        for place in places(stream):
            ending = place.reader.ending(REASON, sentence=SENTENCE)
            assert place.reader.ending(REASON, sentence=SENTENCE) == ending
            got = sdks.read(form, place.sent + ending)
            if got.error is not None or place.finished or not ending:
                continue
            try:
                assert got.finish == LEGAL[form]
                assert got.text.removeprefix(place.text).strip() == SENTENCE
                assert got.text.count(SENTENCE) == 1
            except AssertionError as error:
                error.add_note(str(place))
                raise


STRUCTURED: Final[dict[str, dict[str, Any]]] = {
    "openai-chat": {"response_format": {"type": "json_schema", "json_schema": {}}},
    "openai-responses": {"text": {"format": {"type": "json_schema"}}},
    "anthropic": {"tool_choice": {"type": "any"}},
    "gemini": {"generationConfig": {"responseMimeType": "application/json"}},
}
NO_ROOM: Final = {
    "openai-chat": "length",
    "openai-responses": "incomplete",
    "anthropic": "max_tokens",
    "gemini": "MAX_TOKENS",
}


@pytest.mark.parametrize("form", FORMS)
def test_no_sentence_breaks_the_json_of_a_schema(form: str, sdks: Clients):
    reader = answer(form, **STRUCTURED[form])
    ending = reader.ending(REASON, sentence=SENTENCE)
    assert SENTENCE.encode() not in ending
    if form == "openai-chat":
        assert b'"finish_reason":"length"' in ending
        return
    assert sdks.read(form, ending).finish == NO_ROOM[form]


# --- half a call


@pytest.mark.parametrize("form", FORMS)
def test_a_call_is_open_until_its_arguments_are_whole(form: str):
    reader, states = answer(form), list[tuple[bool, bool]]()
    for data in made(form).frames:
        for frame in reader.feed(data):
            reader.read(frame)
            states.append((reader.upstream.call_began, reader.upstream.call_is_half))
    assert not states[-1][1]
    began = sum(began for began, _ in states)
    assert began == (0 if form == "gemini" else len(CALLS))  # Gemini's calls come whole


# --- in one piece


@pytest.mark.parametrize("form", FORMS)
def test_a_stream_makes_the_answer_that_the_service_would_have_given(form: str):
    for stream in streams(form):
        if any("error" in event for event in stream.events if isinstance(event, dict)):
            continue
        whole = json.dumps(merged(wire(form).form, list(stream.events))).encode()
        heard = wire(form).whole(asked(form), whole)
        streamed = [chunk for place in [*places(stream)][-1:] for chunk in place.chunks]
        for kind in (TextDelta, ReasoningDelta):
            assert _text(heard.chunks, kind) == _text(streamed, kind), stream.name
        if stream.name.startswith("spliced"):  # its second message repeats the call of the first
            continue
        calls = [one for one in streamed if isinstance(one, ToolCall) and isinstance(one.arguments, dict)]
        found = [one for one in heard.chunks if isinstance(one, ToolCall)][: len(calls)]
        assert [(one.name, one.arguments) for one in found] == [(one.name, one.arguments) for one in calls], stream.name


def _text(chunks: Iterable[Chunk], kind: type[TextDelta | ReasoningDelta]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, kind))
