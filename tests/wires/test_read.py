"""Histories in the words of four providers, as raw messages. That they are sent again as they stood
is tested in test_forms.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import ConfigError
from monitor._util.part_options import CUSTOM, mark
from monitor.adapters import to_form
from monitor.chunks import ToolCall, ToolResult
from monitor.context import Form, RawMessage, read_history, repair, validate
from monitor.errors import AdapterError
from monitor.messages import Media, Reasoning, Text
from monitor.wires.fields import Unread
from tests.context.wire import FORMS

PIXEL = "iVBORw0KGgo="


def one(form: Form, message: Any) -> RawMessage:
    (only,) = read_history(form, [message])
    return only


def parts(form: Form, message: Any) -> tuple[Any, ...]:
    return one(form, message).parts


# --- Gemini


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"text": "Hi"}, (Text("Hi"),)),
        ({"text": "hm", "thought": True}, (Reasoning("hm"),)),
        ({"text": "Hi", "thoughtSignature": "c2ln"}, (Reasoning("", "c2ln"), Text("Hi"))),
        ({"text": "", "thought_signature": b"sig"}, (Reasoning("", "c2ln"),)),
        ({"functionCall": {"name": "now"}}, (ToolCall("", "now", {}),)),
        (
            {"function_call": {"id": "1", "name": "look", "args": {"p": 1}}, "thought_signature": b"sig"},
            (Reasoning("", "c2ln"), ToolCall("1", "look", {"p": 1})),
        ),
        (
            {"functionResponse": {"id": "1", "name": "look", "response": {"output": "seen"}}},
            (ToolResult("1", "look", "seen"),),
        ),
        (
            {"functionResponse": {"name": "look", "response": {"error": "no"}}},
            (ToolResult("", "look", "no", is_error=True),),
        ),
        (
            {"functionResponse": {"name": "look", "response": {"b": 1, "a": 2}}},
            (ToolResult("", "look", '{"a": 2, "b": 1}'),),
        ),
        ({"inlineData": {"mimeType": "image/png", "data": PIXEL}}, (Media("image/png", PIXEL),)),
        ({"file_data": {"mime_type": "image/png", "file_uri": "gs://a"}}, (Media("image/png", uri="gs://a"),)),
        ({"executableCode": {"code": "1"}}, (Unread("executable_code"),)),
        ({}, (Unread("an empty part"),)),
        (3, (Unread("parts with int"),)),
    ],
)
def test_a_part_of_gemini(part: Any, expected: tuple[Any, ...]) -> None:
    assert parts("gemini", {"role": "model", "parts": [part]}) == expected


def test_objects_of_the_google_sdk_are_read_as_they_are():
    types = pytest.importorskip("google.genai.types")
    content = types.Content(
        role="model",
        parts=[
            types.Part(
                thought_signature=b"sig",
                function_call=types.FunctionCall(id="1", name="look", args={"camelCase": {"aB": 1}}),
            )
        ],
    )
    assert one("gemini", content) == RawMessage(
        "assistant", (Reasoning("", "c2ln"), ToolCall("1", "look", {"camelCase": {"aB": 1}})), partial=True
    )


# --- OpenAI


def test_a_chat_with_a_call():
    history = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"p": 1}'}}],
        },
        {
            "role": "tool",
            "tool_call_id": "1",
            "content": [{"type": "text", "text": "se"}, {"type": "text", "text": "en"}],
        },
    ]
    assert list(read_history("openai-chat", history)) == [
        RawMessage("system", (Text("Be brief."),)),
        RawMessage("user", (Text("What?"), Media("image/png", PIXEL))),
        RawMessage("assistant", (Reasoning("hm"), ToolCall("1", "look", {"p": 1}))),
        RawMessage("tool", (ToolResult("1", "", "seen"),)),
    ]


@pytest.mark.parametrize(
    ("written", "arguments"), [('{"p', '{"p'), ("", None), ("[1]", "[1]"), ({"p": 1}, {"p": 1}), (None, None)]
)
def test_arguments_that_are_no_object_stay_as_they_were_written(written: Any, arguments: Any) -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": written}}]}
    assert parts("openai-chat", message) == (ToolCall("1", "look", arguments),)


def test_calls_of_the_old_kind_and_of_custom_tools():
    legacy = {"role": "assistant", "function_call": {"name": "look", "arguments": "{}"}}
    assert parts("openai-chat", legacy) == (ToolCall("", "look", {}),)
    assert parts("openai-chat", {"role": "function", "name": "look", "content": "seen"}) == (
        ToolResult("", "look", "seen"),
    )
    custom = {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "patch", "input": "*"}}],
    }
    assert parts("openai-chat", custom) == (
        Reasoning("", mark({"call": CUSTOM})),
        ToolCall("1", "patch", {"input": "*"}),
    )
    ask = {"role": "user", "content": "Patch."}
    answer = {"role": "tool", "tool_call_id": "1", "content": "done"}
    messages, _ = repair(read_history("openai-chat", [ask, custom, answer]), form="openai-chat")
    sent = to_form("openai-chat", messages)
    assert sent[1]["tool_calls"] == custom["tool_calls"]
    assert validate("openai-chat", sent) == []


def test_items_of_a_response_become_one_turn():
    items = [
        {"role": "user", "content": "go"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "encrypted_content": "xyz",
            "summary": [{"type": "summary_text", "text": "hm"}],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "seen"},
        {"type": "web_search_call", "id": "ws_1"},
        {"type": "message", "role": "assistant", "content": "Done."},
    ]
    messages, report = repair(read_history("openai-responses", items))
    assert not report
    assert [len(message.content) for message in messages] == [1, 4, 2]
    reasoning = messages[1].content[1]
    assert reasoning == Reasoning("", 'openai:{"reasoning":{"encrypted_content":"xyz","id":"rs_1"}}')
    assert messages[2].content[0] == Reasoning("", 'openai:{"item":{"id":"ws_1","type":"web_search_call"}}')


# --- Anthropic


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "thinking", "thinking": "hm", "signature": "c2ln"}, (Reasoning("hm", "c2ln"),)),
        ({"type": "redacted_thinking", "data": "xyz"}, (Reasoning("", "redacted_thinking:xyz"),)),
        ({"type": "tool_use", "id": "1", "name": "look", "input": {}}, (ToolCall("1", "look", {}),)),
        ({"type": "tool_use", "id": "1", "name": "look"}, (ToolCall("1", "look", None),)),
        ({"type": "tool_result", "tool_use_id": "1"}, (ToolResult("1", "", ""),)),
        (
            {"type": "tool_result", "tool_use_id": "1", "is_error": True, "content": [{"type": "text", "text": "no"}]},
            (ToolResult("1", "", "no", is_error=True),),
        ),
        (
            {
                "type": "tool_result",
                "tool_use_id": "1",
                "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}],
            },
            (ToolResult("1", "", "", media=(Media("image/png", PIXEL),)),),
        ),
        (
            {"type": "document", "title": "t", "source": {"type": "text", "data": "Hi"}},
            (Media("text/plain", "SGk=", name="t"),),
        ),
        ({"type": "image", "source": {"type": "url", "url": "https://a"}}, (Media("image/png", uri="https://a"),)),
        ({"type": "server_tool_use", "id": "1"}, (Unread("a block of type 'server_tool_use'"),)),
    ],
)
def test_a_block_of_anthropic(block: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert parts("anthropic", {"role": "user", "content": [block]}) == expected


def test_the_work_of_anthropics_service_survives_reading_and_writing() -> None:
    cited = {"type": "char_location", "cited_text": "one", "start_char_index": 0, "end_char_index": 3}
    said = [
        {"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "srvtoolu_0", "name": "web_search", "input": {"query": "z", "a": 1}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_0", "content": []},
        {"type": "text", "text": "It is one.", "citations": [cited]},
        {"type": "text", "text": "So"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "a", "tool_id": "srvtoolu_0"}},
    ]
    result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    history = [{"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
    messages, _ = repair(read_history("anthropic", history), form="anthropic")
    assert to_form("anthropic", messages)[-2:] == history


# --- what is no history


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("bad", "said"),
    [(3, "message 1 is int, not an object"), ({"role": "narrator"}, "message 1: its role is 'narrator'")],
)
def test_what_is_no_message_is_an_error_that_says_which(form: Form, bad: Any, said: str) -> None:
    good = {"role": "user", "content": "go", "parts": []}
    with pytest.raises(AdapterError, match=said):
        list(read_history(form, [good, bad]))


def test_an_unknown_form_is_an_error_at_once():
    with pytest.raises(ConfigError, match="unknown form 'bard'"):
        read_history("bard", [])  # type: ignore[arg-type]


KEYS = [
    "type",
    "role",
    "parts",
    "content",
    "text",
    "id",
    "name",
    "input",
    "args",
    "functionCall",
    "function_response",
    "source",
    "summary",
]
KEYS += [
    "tool_calls",
    "function",
    "arguments",
    "output",
    "call_id",
    "inlineData",
    "data",
    "mimeType",
    "thoughtSignature",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["", "text", "tool_use", "function_call", "\ud800", "{}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["type", "parts", "content", "tool_calls", "output"]), JSON), max_size=4
)


@pytest.mark.parametrize("form", FORMS)
@given(messages=MESSAGES, data=st.data())
def test_nothing_that_is_in_a_message_breaks_a_reader_the_repair_or_the_validator(
    form: Form, messages: list[dict[str, Any]], data: st.DataObject
) -> None:
    roles = st.sampled_from(["user", "model" if form == "gemini" else "assistant"])
    history = [{**message, "role": data.draw(roles)} for message in messages]
    repaired, report = repair(read_history(form, history), form=form)
    assert repair(repaired, form=form)[0] == repaired
    assert isinstance(report.repairs, tuple)
    assert all(0 <= problem.index <= len(history) for problem in validate(form, history))
