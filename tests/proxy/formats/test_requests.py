"""What the requests of the real SDKs ask for, and requests that cannot be judged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolCall, ToolResult
from monitor.messages import AssistantMessage, Reasoning, Text, UserMessage
from monitor.proxy.formats.base import JudgedRequest, Unjudged
from tests.proxy.formats.clients import Clients, clients
from tests.proxy.formats.streams import ARRAY, BODIES, FORMS, PATHS, asked, wire

CONVERSATION = (
    UserMessage((Text("What is here?"),)),
    AssistantMessage(
        (Text("Let me look."), ToolCall("c1", "look", {"at": "a"})), (ToolResult("c1", "look", "nothing"),)
    ),
    UserMessage((Text("Again."),)),
)
ARGUMENTS = '{"at": "a"}'
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"at": {"type": "string"}}}


@pytest.fixture(scope="module")
def sdks() -> Iterator[Clients]:
    with clients() as made:
        yield made


def sent(sdks: Clients, form: str) -> JudgedRequest:
    """What the last request of the SDK asks for."""
    request = sdks.requests[-1]
    found = wire(form).asked(f"{request.url.path}?{request.url.query.decode()}", request.read())
    assert isinstance(found, JudgedRequest), found
    return found


def check(found: JudgedRequest, *, max_output_tokens: int | None = 77) -> None:
    assert [message.content for message in found.messages] == [message.content for message in CONVERSATION]
    (_, said, _) = found.messages
    assert isinstance(said, AssistantMessage)
    (result,) = said.results
    assert (result.id, result.text) == ("c1", "nothing")
    assert found.instructions == "Be brief."
    assert found.tools == {"look"}
    assert found.max_output_tokens == max_output_tokens
    assert found.streams
    assert found.whole_history


def test_a_request_of_chat_completions(sdks: Clients):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": ARGUMENTS}}
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is here?"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
        {"role": "user", "content": [{"type": "text", "text": "Again."}]},
    ]
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    sdks.body = b""
    sdks.openai.chat.completions.create(
        model="gpt-x", messages=messages, tools=tools, stream=True, max_completion_tokens=77
    )
    found = sent(sdks, "openai-chat")
    check(found)
    assert (found.model, found.wants_usage) == ("gpt-x", False)


def test_a_request_of_responses(sdks: Clients):
    items: Any = [
        {"role": "user", "content": "What is here?"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "c1", "output": "nothing"},
        {"role": "user", "content": [{"type": "input_text", "text": "Again."}]},
    ]
    tools: Any = [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}]
    options: Any = {"model": "gpt-x", "tools": tools, "stream": True, "max_output_tokens": 77}
    sdks.body = b""
    sdks.openai.responses.create(input=items, instructions="Be brief.", **options)
    check(sent(sdks, "openai-responses"))
    sdks.openai.responses.create(input="Again.", previous_response_id="resp_1", **options)
    found = sent(sdks, "openai-responses")
    assert (found.messages, found.whole_history) == ((CONVERSATION[-1],), False)


def test_a_request_of_anthropic(sdks: Clients):
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "a"}}
    messages: Any = [
        {"role": "user", "content": "What is here?"},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, use]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "nothing"}],
        },
        {"role": "user", "content": "Again."},
    ]
    tools: Any = [{"name": "look", "input_schema": SCHEMA}]
    system: Any = [{"type": "text", "text": "Be brief."}]
    sdks.body = b""
    sdks.anthropic.messages.create(
        model="claude-x", messages=messages, system=system, tools=tools, stream=True, max_tokens=77
    )
    check(sent(sdks, "anthropic"))


def test_a_request_of_gemini(sdks: Clients):
    call = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={"at": "a"}))
    result = types.FunctionResponse(id="c1", name="look", response={"output": "nothing"})
    contents: Any = [
        types.UserContent("What is here?"),
        types.ModelContent([types.Part(text="Let me look."), call]),
        types.UserContent([types.Part(function_response=result)]),
        types.UserContent("Again."),
    ]
    declared = types.FunctionDeclaration(name="look", parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(
        system_instruction="Be brief.",
        tools=[types.Tool(function_declarations=[declared])],
        max_output_tokens=77,
    )
    sdks.body = b""
    list(sdks.google.models.generate_content_stream(model="gemini-x", contents=contents, config=config))
    found = sent(sdks, "gemini")
    check(found)
    assert (found.model, found.array) == ("gemini-x", False)


def test_gemini_streams_an_array_unless_server_sent_events_are_asked_for():
    assert asked("gemini", ARRAY).array
    assert asked("gemini", f"{ARRAY}?key=x&alt=json").array
    whole = asked("gemini", "/v1beta/models/gemini-x:generateContent?alt=sse")
    assert (whole.streams, whole.array) == (False, False)


def test_gemini_takes_its_fields_in_snake_case_too():
    found = asked(
        "gemini", system_instruction={"parts": [{"text": "Be brief."}]}, generation_config={"max_output_tokens": 7}
    )
    assert (found.instructions, found.max_output_tokens) == ("Be brief.", 7)


def test_the_thinking_of_the_history_is_kept():
    said = [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "So."}]
    found = asked("anthropic", messages=[*BODIES["anthropic"]["messages"], {"role": "assistant", "content": said}])
    assert found.messages[-1].content == (Reasoning("hm", "s"), Text("So."))


# --- requests that cannot be judged


@pytest.mark.parametrize(
    ("form", "fields", "why"),
    [
        ("openai-chat", {"messages": None}, "`messages`"),
        ("openai-chat", {"messages": "hello"}, "`messages`"),
        ("openai-chat", {"messages": [7]}, "message 0"),
        ("openai-chat", {"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ("openai-chat", {"model": None}, "`model`"),
        ("openai-chat", {"model": {}}, "`model`"),
        ("openai-chat", {"stream": "yes"}, "`stream`"),
        ("openai-chat", {"n": 500}, "`n`"),
        ("openai-responses", {"input": None}, "`input`"),
        ("openai-responses", {"background": True}, "background"),
        ("anthropic", {"messages": {}}, "`messages`"),
        ("gemini", {"contents": 7}, "`contents`"),
        ("gemini", {"generationConfig": {"candidateCount": 300}}, "`candidate_count`"),
    ],
)
def test_a_request_that_cannot_be_judged_says_why(form: str, fields: dict[str, Any], why: str):
    found = wire(form).asked(PATHS[form], json.dumps(BODIES[form] | fields).encode())
    assert isinstance(found, Unjudged)
    assert why in found.why


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"7", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 10_000]
)
def test_a_body_that_is_no_json_object_is_not_judged(form: str, body: bytes):
    assert isinstance(wire(form).asked(PATHS[form], body), Unjudged)


WORDS = ("user", "tool", "text", "tool_use", "function_call", "message")
NAMES = (
    *("role", "content", "type", "text", "parts", "functionCall", "tool_calls", "function", "name", "id", "input"),
    *("output", "tool_use_id", "arguments", "args", "call_id", "functionResponse", "response", "index", "delta"),
    *("choices", "usage", "error", "item", "output_index", "candidates", "message", "content_block"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=6,
)
TYPES = (
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "error"),
    *("response.created", "response.output_item.added", "response.content_part.added", "response.output_text.delta"),
    *("response.output_item.done", "response.function_call_arguments.delta", "response.completed"),
)
EVENTS = st.builds(
    lambda fields, kind: fields | {"type": kind},
    st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4),
    st.sampled_from(TYPES),
)
PLACES = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages", "gemini": "contents"}


@given(
    form=st.sampled_from(FORMS),
    records=st.lists(JSON, max_size=4),
    fields=st.dictionaries(
        st.sampled_from(["tools", "model", "system", "stream", "instructions", "generationConfig", "n"]),
        JSON,
        max_size=3,
    ),
)
def test_no_request_raises(form: str, records: list[Any], fields: dict[str, Any]):
    body = json.dumps({**BODIES[form], PLACES[form]: records, **fields}).encode()
    assert isinstance(wire(form).asked(PATHS[form], body), JudgedRequest | Unjudged)


@given(form=st.sampled_from(FORMS), values=st.lists(JSON | EVENTS, max_size=4))
def test_no_answer_raises(form: str, values: list[Any]):
    """Whatever an upstream sends: it is read or told, and the answer still has an ending."""
    request = asked(form)
    for value in values:
        wire(form).whole(request, json.dumps(value).encode())
    reader = wire(form).stream(request)
    for value in values:
        for frame in reader.feed(b"data: " + json.dumps(value).encode() + b"\n\n"):
            reader.read(frame)
            reader.sent(frame)
            assert reader.over or reader.ending("why")
    reader.finish()
