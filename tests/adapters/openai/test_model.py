"""Requests in nobody's dialect, as the OpenAI SDK says them on both of its APIs, and what comes
back: on the wire, with the real SDK.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

import monitor
from monitor._util.signatures import mark
from monitor.adapters.openai.model import OpenAIModel, OpenAIResponsesModel, to_chat, to_response
from monitor.adapters.openai.request_messages import to_input, to_messages
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import ReasoningDelta, TextDelta, ToolCall, ToolResult
from monitor.core.reply import MessageBuilder
from monitor.errors import ConfigError, MissingExtra
from monitor.messages import CUT_OFF, NOT_CARRIED_OUT, AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import ErrorKind, Model, ModelRequest, ToolSpec
from monitor.testing.openai_steps import (
    Repeat,
    Script,
    Stall,
    call,
    chunk,
    error_reply,
    events_of,
    finish,
    overflow,
    rate_limited,
    response_call,
    response_events_of,
    response_finish,
    response_message,
    response_reasoning,
    response_text,
    text,
    thought,
)
from monitor.testing.servers.openai_server import LocalOpenAI
from tests.adapters.openai.sdk import TRANSPORTS, aiohttp_warnings, sdk
from tests.adapters.openai.test_recordings import RESPONSES

pytestmark = aiohttp_warnings

Reason = monitor.TerminateReason
LOOK = ToolSpec("look", "Look it up.", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})
NOW = ToolSpec("now", "The time.", {"type": "object", "properties": {}})
PNG = base64.b64encode(b"\x89PNG").decode()
ENCRYPTED = mark({"reasoning": {"id": "rs_1", "encrypted_content": "secret"}})


def user(*words: str) -> UserMessage:
    return UserMessage(tuple(Text(one) for one in words))


def ask(*messages: Message, **options: Any) -> ModelRequest:
    return ModelRequest(messages or (user("hello"),), **options)


HISTORY: list[Message] = [
    user("find it"),
    AssistantMessage(
        (
            Reasoning("hm"),
            Reasoning("", ENCRYPTED),
            Text("I look."),
            ToolCall("a", "look", {"q": "é"}),
            ToolCall("b", "now", {}),
        ),
        (ToolResult("b", "now", "noon"), ToolResult("a", "look", "no such thing", is_error=True)),
    ),
    AssistantMessage((Text("It is noon."),)),
]


# --- the history, as chat completions want it


def test_a_run_is_told_in_messages_with_the_results_after_their_calls():
    assert to_messages(HISTORY) == [
        {"role": "user", "content": "find it"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"q": "é"}'}},
                {"id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Error: no such thing"},
        {"role": "tool", "tool_call_id": "b", "content": "noon"},
        {"role": "assistant", "content": "It is noon."},
    ]


def test_thinking_goes_back_to_those_who_want_it_only():
    assert "reasoning_content" not in to_messages(HISTORY)[1]
    assert to_messages(HISTORY, send_reasoning=True)[1]["reasoning_content"] == "hm"


def test_what_is_empty_is_left_away():
    assert to_messages([user(""), user(), AssistantMessage((Text(""), Reasoning("hm"))), AssistantMessage(())]) == []
    assert to_messages([user("a", "", "b")]) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]
    assert (
        to_messages([AssistantMessage((ToolCall("a", "now", {}),), (ToolResult("a", "now", ""),))])[0]["content"]
        is None
    )


def test_the_signature_of_geminis_compatible_endpoint_goes_back_with_its_call():
    extra = {"google": {"thought_signature": "c2ln"}}
    signed = (Reasoning("", mark({"extra_content": extra})), ToolCall("a", "now", {}), ToolCall("b", "now", {}))
    calls = to_messages([AssistantMessage(signed)])[0]["tool_calls"]
    assert [one.get("extra_content") for one in calls] == [extra, None]


def answers(said: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    chat = [(one["tool_call_id"], one["content"]) for one in said if one.get("role") == "tool"]
    return chat + [(one["call_id"], one["output"]) for one in said if one.get("type") == "function_call_output"]


@pytest.mark.parametrize("convert", [to_messages, to_input])
def test_a_call_without_a_result_is_answered_by_an_error_because_no_history_may_leave_it_open(convert: Any):
    open_call, done, cut_off = (
        ToolCall("a", "look", {"q": 1}),
        ToolCall("b", "look", {"q": 2}),
        ToolCall("c", "look", '{"q": "hal'),
    )
    said = convert([AssistantMessage((open_call, done, cut_off), (ToolResult("b", "look", "found"),))])
    assert answers(said) == [("a", f"Error: {NOT_CARRIED_OUT}"), ("b", "found"), ("c", f"Error: {CUT_OFF}")]
    assert '"arguments": "{}"' in json.dumps(said)


@pytest.mark.parametrize("convert", [to_messages, to_input])
def test_calls_of_one_id_are_answered_one_by_one_and_a_result_of_no_call_is_left_away(convert: Any):
    twice = (ToolCall("a", "look", {"q": 1}), ToolCall("a", "look", {"q": 2}))
    results = (ToolResult("a", "look", "first"), ToolResult("z", "look", "whose?"), ToolResult("a", "look", "second"))
    assert answers(convert([AssistantMessage(twice, results)])) == [("a", "first"), ("a", "second")]


@pytest.mark.parametrize("convert", [to_messages, to_input])
def test_an_id_that_is_too_long_or_empty_is_replaced_in_the_call_and_in_its_answer(convert: Any):
    for id_ in ("x" * 41, ""):
        said = convert([AssistantMessage((ToolCall(id_, "now", {}),), (ToolResult(id_, "now", "noon"),))])
        made = [one["id"] for one in said[0].get("tool_calls", ())] or [said[0]["call_id"]]
        assert [key for key, _ in answers(said)] == made
        assert 0 < len(made[0]) <= 40


@pytest.mark.parametrize("convert", [to_messages, to_input])
def test_half_a_surrogate_pair_is_replaced_wherever_it_stands(convert: Any):
    odd = "a\ud800b"
    history: list[Message] = [
        user(odd),
        AssistantMessage((Text(odd), ToolCall("a", "look", {odd: [odd]})), (ToolResult("a", "look", odd),)),
    ]
    said = json.dumps(convert(history), ensure_ascii=False)
    said.encode()
    assert said.count("a\ufffdb") == 5


def test_media_go_by_their_bytes_or_by_their_address():
    image, far = Media("image/png", PNG), Media("image/png", uri="https://example.com/a.png")
    document, sound = Media("application/pdf", PNG, name="a.pdf"), Media("audio/wav", PNG)
    url = f"data:image/png;base64,{PNG}"
    assert to_messages([UserMessage((image, far, document, sound))])[0]["content"] == [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}},
        {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
    ]
    report = Media("application/pdf", uri="https://example.com/a.pdf")
    assert to_input([UserMessage((image, document, report))])[0]["content"] == [
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
    ]


@pytest.mark.parametrize("convert", [to_messages, to_input])
@pytest.mark.parametrize(
    ("media", "said"),
    [(Media("image/png", "%%%", name="a.png"), "a.png is not base64"), (Media("image/png"), "image/png has neither")],
)
def test_media_that_cannot_be_sent_are_refused_by_name(convert: Any, media: Media, said: str):
    with pytest.raises(ConfigError, match=said):
        convert([UserMessage((media,))])


def test_a_chat_completion_takes_documents_by_their_data_only():
    with pytest.raises(ConfigError, match="by its data only"):
        to_messages([UserMessage((Media("application/pdf", uri="https://example.com/a.pdf"),))])


# --- the history, as responses want it


def test_a_run_is_told_in_items_with_its_reasoning_encrypted():
    assert to_input(HISTORY) == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "find it"}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "encrypted_content": "secret",
            "summary": [{"type": "summary_text", "text": "hm"}],
        },
        {"type": "message", "role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"q": "é"}'},
        {"type": "function_call", "call_id": "b", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "Error: no such thing"},
        {"type": "function_call_output", "call_id": "b", "output": "noon"},
        {"type": "message", "role": "assistant", "content": "It is noon."},
    ]


def items(*content: Text | Reasoning | ToolCall, stored: bool = False) -> list[str]:
    return [one["type"] for one in to_input([AssistantMessage(content)], stored=stored)]


def test_thinking_that_the_service_could_not_read_back_is_left_away():
    by_id = Reasoning("", mark({"reasoning": {"id": "rs_1"}}))
    assert items(Reasoning("hm"), Text("a")) == ["message"]
    assert items(Reasoning("hm", "c2ln"), Reasoning("", "openai:nonsense"), Text("a")) == ["message"]
    assert items(by_id, Text("a")) == ["message"]
    assert items(by_id, Text("a"), stored=True) == ["reasoning", "message"]


def test_thinking_that_nothing_follows_is_left_away_because_the_service_refuses_it():
    assert items(Reasoning("", ENCRYPTED)) == []
    assert items(Text("a"), Reasoning("", ENCRYPTED)) == ["message"]
    assert items(Reasoning("", ENCRYPTED), Reasoning("", ENCRYPTED), Text("a")) == ["reasoning", "reasoning", "message"]


def test_a_phase_goes_back_with_its_text():
    said = to_input(
        [AssistantMessage((Reasoning("", mark({"phase": "commentary"})), Text("a"), ToolCall("c", "now", {})))]
    )
    assert said[0] == {"type": "message", "role": "assistant", "content": "a", "phase": "commentary"}


def test_a_custom_call_goes_back_as_one_with_what_stood_beside_it():
    beside = mark({"call": {"type": "custom_tool_call", "caller": {"type": "direct"}}})
    made = ToolCall("c", "sql", {"input": "SELECT"})
    said = to_input([AssistantMessage((Reasoning("", beside), made), (ToolResult("c", "sql", "1"),))])
    assert said == [
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "SELECT", "caller": {"type": "direct"}},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "1", "caller": {"type": "direct"}},
    ]


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("local_shell_call", {"type": "local_shell_call_output", "id": "c", "output": "done"}),
        (
            "shell_call",
            {
                "type": "shell_call_output",
                "output": [{"stdout": "done", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            },
        ),
        ("apply_patch_call", {"type": "apply_patch_call_output", "status": "completed", "output": "done"}),
    ],
)
def test_calls_of_openais_own_tools_go_back_as_they_came(kind: str, output: dict[str, Any]):
    item = {"type": kind, "id": "i", "call_id": "c", "action": {"x": 1}}
    content = (Reasoning("", mark({"item": item})), ToolCall("c", "shell", {"x": 1}))
    assert to_input([AssistantMessage(content, (ToolResult("c", "shell", "done"),))]) == [
        item,
        {"call_id": "c"} | output,
    ]


def test_a_call_whose_answer_is_no_text_is_left_away_and_a_hosted_one_is_kept():
    hosted = {"type": "web_search_call", "id": "w", "status": "completed"}
    computer = {"type": "computer_call", "id": "i", "call_id": "c"}
    content = (
        Reasoning("", mark({"item": hosted})),
        Reasoning("", mark({"item": computer})),
        ToolCall("c", "computer", {}),
        Text("a"),
    )
    assert items(*content) == ["web_search_call", "message"]


MARKS = st.sampled_from(
    [
        None,
        "c2ln",
        ENCRYPTED,
        *(
            mark(fields)
            for fields in (
                {"phase": "x"},
                {"phase": 5},
                {"item": {"type": "web_search_call"}},
                {"item": 5},
                {"reasoning": 5},
            )
        ),
        *(mark({"item": {"type": kind, "call_id": "a"}}) for kind in ("shell_call", "computer_call")),
        *(
            mark(fields)
            for fields in ({"call": {"type": "custom_tool_call"}}, {"call": 5}, {"extra_content": {"a": 1}})
        ),
    ]
)
PIECES = st.one_of(
    st.builds(Text, st.text(max_size=3)),
    st.builds(Reasoning, st.text(max_size=3), MARKS),
    st.builds(
        ToolCall,
        st.sampled_from("abc"),
        st.sampled_from(["look", "now"]),
        st.dictionaries(st.text(), st.integers()) | st.text(),
    ),
)
RESULTS = st.builds(ToolResult, st.sampled_from("abcd"), st.just("look"), st.text(max_size=3), st.booleans())
HISTORIES = st.lists(
    st.one_of(
        st.builds(user, st.text(max_size=3)),
        st.builds(AssistantMessage, st.lists(PIECES, max_size=4).map(tuple), st.lists(RESULTS, max_size=4).map(tuple)),
    ),
    max_size=6,
)


@given(HISTORIES)
def test_any_history_becomes_one_that_chat_completions_take(history: list[Message]):
    """Each call is answered in its order before anything else is said, and nothing is empty."""
    owed: list[str] = []
    for one in to_messages(history):
        if one["role"] == "tool":
            assert one["tool_call_id"] == owed.pop(0)
            continue
        assert owed == []
        assert one.get("content") or one.get("tool_calls")
        owed = [made["id"] for made in one.get("tool_calls", ())]
        assert all(isinstance(json.loads(made["function"]["arguments"]), dict) for made in one.get("tool_calls", ()))
    assert owed == []


@given(HISTORIES)
def test_any_history_becomes_one_that_responses_take(history: list[Message]):
    """Each call has one answer after it, and no reasoning stands where nothing follows it."""
    said = to_input(history)
    json.dumps(said)
    for at, one in enumerate(said):
        kind = one["type"]
        if kind == "reasoning":
            assert said[at + 1]["type"] not in {"function_call_output", "custom_tool_call_output"}
            assert said[at + 1].get("role") != "user"
    made = sorted(one["call_id"] for one in said if one["type"] in {"function_call", "custom_tool_call"})
    answered = sorted(
        one["call_id"] for one in said if one["type"] in {"function_call_output", "custom_tool_call_output"}
    )
    assert made == answered


# --- the request


def test_a_chat_request_says_instructions_tools_and_how_they_are_chosen():
    assert to_chat(
        ask(instructions="Be brief.", tools=(LOOK, NOW), tool_choice="required", settings={"temperature": 0})
    ) == {
        "temperature": 0,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Look it up.", "parameters": LOOK.parameters},
            },
            {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": NOW.parameters}},
        ],
        "tool_choice": "required",
    }
    assert to_chat(ask()) == {
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hello"}],
    }


def test_a_response_request_stores_nothing_and_asks_for_its_reasoning():
    said = to_response(ask(instructions="Be brief.", tools=(LOOK,), tool_choice="none"))
    assert said == {
        "store": False,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
        "include": ["reasoning.encrypted_content"],
        "instructions": "Be brief.",
        "tools": [
            {
                "type": "function",
                "name": "look",
                "description": "Look it up.",
                "parameters": LOOK.parameters,
                "strict": False,
            }
        ],
        "tool_choice": "none",
    }
    assert "include" not in to_response(ask(), encrypted=False)
    assert "include" not in to_response(ask(settings={"include": None}))
    assert to_response(ask(settings={"include": ["x"]}))["include"] == ["x"]
    stored = to_response(ask(settings={"store": True}))
    assert stored["store"] is True
    assert "include" not in stored


def test_the_settings_may_spare_a_server_the_options_of_the_stream_or_add_to_them():
    assert "stream_options" not in to_chat(ask(settings={"stream_options": None}))
    assert to_chat(ask(settings={"stream_options": {"x": 1}}))["stream_options"] == {"include_usage": True, "x": 1}


@pytest.mark.parametrize("convert", [to_chat, to_response])
def test_tools_of_the_settings_stand_behind_the_functions(convert: Any):
    own = {"type": "web_search"}
    assert convert(ask(tools=(NOW,), settings={"tools": [own]}))["tools"][1] == own
    assert convert(ask(settings={"tools": [own]}))["tools"] == [own]
    assert "tools" not in convert(ask(settings={"tools": []}))


@pytest.mark.parametrize("convert", [to_chat, to_response])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tool_choice": "required"}, "no tools"),
        ({"settings": {"model": "x"}}, "'model' is not allowed as a setting"),
        ({"settings": {"messages": []}}, "history"),
        ({"settings": {"previous_response_id": "x"}}, "all of it"),
        ({"settings": {"tool_choice": "auto"}}, "tool_choice"),
        ({"settings": {"stream": False}}, "is a stream"),
        ({"settings": {"tools": 5}}, "'tools' takes a list"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(convert: Any, options: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        convert(ask(**options))


@pytest.mark.parametrize("convert", [to_chat, to_response])
@pytest.mark.parametrize("messages", [[user("")], [AssistantMessage((Text(""),))]])
def test_a_request_that_says_nothing_is_refused(convert: Any, messages: list[Message]):
    with pytest.raises(ConfigError, match="no messages, or only empty ones"):
        convert(ask(*messages, instructions="x"))


# --- the models


def client(server: LocalOpenAI | None = None) -> AsyncOpenAI:
    return AsyncOpenAI(api_key="x", base_url=None if server is None else server.base_url, max_retries=0)


MODELS: list[type[OpenAIModel | OpenAIResponsesModel]] = [OpenAIModel, OpenAIResponsesModel]
each_model = pytest.mark.parametrize("model_type", MODELS)


def whole(model_type: type, *words: Any, **options: Any) -> Script:
    return (events_of if model_type is OpenAIModel else response_events_of)(*words, **options)


@each_model
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temprature": 0}, r"'temprature' \(did you mean 'temperature'\?\)"),
        ({"zzz": 1, "temperature": 1}, "no such settings: 'zzz'; what"),
    ],
)
def test_a_setting_that_the_sdk_does_not_have_is_named_before_anything_is_sent(
    model_type: Any, settings: dict[str, Any], said: str
):
    with pytest.raises(ConfigError, match=said):
        model_type("m", client=client()).stream(ask(settings=settings))


async def watched(model: Model, request: ModelRequest, **options: Any) -> monitor.harness.Watch[Any]:
    watch = monitor.watch(lambda: model.stream(request), **options)
    async with watch as stream:
        async for _ in stream:
            pass
    return watch


async def told(model: Any, request: ModelRequest, *results: ToolResult) -> AssistantMessage:
    """A turn as it stands in the history."""
    adapter, reply = OpenAIAdapter(), MessageBuilder({"text": 0, "reasoning": 0})
    chunks = [chunk async for item in await model.stream(request) for chunk in adapter.decode(item)]
    for one in [*chunks, *adapter.finish()]:
        match one:
            case TextDelta(text=words):
                reply.add_text(words)
            case ReasoningDelta():
                reply.add_reasoning(one)
            case ToolCall():
                reply.add_call(one)
    return AssistantMessage(reply.parts(), results)


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_calls_and_signatures_come_back_to_a_chat_service_as_it_gave_them(transport: str):
    extra = {"google": {"thought_signature": "c2ln"}}
    fragment = {
        "index": 0,
        "id": "a",
        "type": "function",
        "function": {"name": "look", "arguments": '{"q": 1}'},
        "extra_content": extra,
    }
    said = [
        thought("I have to look."),
        text("One "),
        text("moment."),
        chunk({"tool_calls": [fragment]}),
        call("now", id="b", at=1),
    ]
    with LocalOpenAI([[*said, finish("tool_calls")], events_of("Done.")]) as server:
        async with sdk(server, transport) as given:
            model = OpenAIModel("m", client=given, send_reasoning=True)
            turn = await told(
                model, ask(tools=(LOOK,)), ToolResult("a", "look", "found"), ToolResult("b", "now", "noon")
            )
            again = await watched(model, ask(user("hello"), turn, user("go on"), tools=(LOOK,)))
        assert again.turn.text == "Done."
        assert server.requests[0].body["stream_options"] == {"include_usage": True}
        assert server.requests[0].body["stream"] is True
        assert server.requests[1].body["model"] == "m"
        assert server.requests[1].body["messages"] == [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": "One moment.",
                "reasoning_content": "I have to look.",
                "tool_calls": [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"q": 1}'},
                        "extra_content": extra,
                    },
                    {"id": "b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "found"},
            {"role": "tool", "tool_call_id": "b", "content": "noon"},
            {"role": "user", "content": "go on"},
        ]


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_reasoning_and_phases_come_back_to_a_responses_service_as_it_gave_them(transport: str):
    said = [
        *response_reasoning("I have to look.", encrypted="secret"),
        *response_message(at=1, phase="commentary"),
        response_text("One ", at=1),
        response_text("moment.", at=1),
        *response_call("look", {"q": 1}, id="a", at=2),
        response_finish(),
    ]
    with LocalOpenAI([said, response_events_of("Done.")]) as server:
        async with sdk(server, transport) as given:
            model = OpenAIResponsesModel("gpt-5", client=given)
            turn = await told(model, ask(tools=(LOOK,)), ToolResult("a", "look", "found"))
            again = await watched(model, ask(user("hello"), turn, tools=(LOOK,)))
        assert again.turn.text == "Done."
        body = server.requests[1].body
    assert (body["store"], body["include"], body["model"]) == (False, ["reasoning.encrypted_content"], "gpt-5")
    assert body["input"][1:] == [
        {
            "type": "reasoning",
            "id": "rs_0",
            "encrypted_content": "secret",
            "summary": [{"type": "summary_text", "text": "I have to look."}],
        },
        {"type": "message", "role": "assistant", "content": "One moment.", "phase": "commentary"},
        {"type": "function_call", "call_id": "a", "name": "look", "arguments": '{"q": 1}'},
        {"type": "function_call_output", "call_id": "a", "output": "found"},
    ]


SENT_BACK = {
    "reasoning",
    "function_call",
    "message",
    "custom_tool_call",
    "shell_call",
    "local_shell_call",
    "apply_patch_call",
    "program",
}


@pytest.mark.asyncio
async def test_the_items_of_every_recorded_response_come_back():
    """Each output item that the service wants back is in the next request, in its order, its
    encrypted content whole.
    """
    with LocalOpenAI([script for _, script in RESPONSES]) as server:
        async with sdk(server) as given:
            turns = [await told(OpenAIResponsesModel("gpt-5", client=given), ask()) for _ in RESPONSES]
    for (name, script), turn in zip(RESPONSES, turns, strict=True):
        done = [
            event["item"]
            for event in script
            if event["type"] == "response.output_item.done" and event["item"]["type"] in SENT_BACK
        ]
        back = [item for item in to_input([turn], stored=True) if item["type"] in SENT_BACK]
        assert [item["type"] for item in back] == [item["type"] for item in done], name
        for field in ("encrypted_content", "phase", "arguments", "caller"):
            plain = [
                json.loads(item[field]) if field == "arguments" else item[field] for item in back if item.get(field)
            ]
            assert plain == [
                json.loads(item[field]) if field == "arguments" else item[field] for item in done if item.get(field)
            ], name


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("o3-mini", True),
        ("gpt-5", True),
        ("gpt-5.4-mini", True),
        ("openai/gpt-5", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4o", False),
        ("gpt-4.1", False),
        ("mistral-large", False),
    ],
)
@pytest.mark.asyncio
async def test_only_models_that_encrypt_their_reasoning_are_asked_for_it(name: str, reasons: bool):
    with LocalOpenAI([response_events_of("fine")]) as server:
        async with sdk(server) as given:
            await watched(OpenAIResponsesModel(name, client=given), ask())
        assert ("include" in server.requests[0].body) is reasons


FAILING: list[tuple[Script, Reason, ErrorKind]] = [
    ([rate_limited(7)], Reason.RATE_LIMITED, ErrorKind.RATE_LIMITED),
    ([overflow()], Reason.PROMPT_TOO_LONG, ErrorKind.OVERFLOW),
    ([error_reply(401)], Reason.ERROR, ErrorKind.AUTH),
    ([error_reply(503)], Reason.ERROR, ErrorKind.SERVER),
]


@each_model
@pytest.mark.asyncio
@pytest.mark.parametrize(("script", "reason", "kind"), FAILING)
async def test_a_call_that_fails_while_it_is_opened_is_classed(
    model_type: Any, script: Script, reason: Reason, kind: ErrorKind
):
    with LocalOpenAI([script]) as server:
        async with sdk(server) as given:
            watch = await watched(model_type("m", client=given), ask())
        assert len(server.requests) == 1, "who supervises decides about another attempt"
    assert watch.outcome.reason is reason
    assert watch.turn.model_error is not None
    assert watch.turn.model_error.kind is kind
    assert watch.turn.model_error.retry_after_s == (7 if kind is ErrorKind.RATE_LIMITED else None)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "script", [[Stall()], [text("a"), Stall()], [Repeat(text("again and again. "), delay_s=0.001)]]
)
async def test_a_stream_of_a_model_is_watched_and_closed_like_any_other(script: list[Any]):
    with LocalOpenAI([script]) as server:
        async with sdk(server) as given:
            watch = await watched(OpenAIModel("m", client=given), ask(), stop_when=monitor.IdleTimeout(0.3))
            await server.wait_closed_async(0, timeout_s=0.5)
    assert watch.outcome.reason in {Reason.IDLE_TIMEOUT, Reason.LOOP_DETECTED}
    assert watch.outcome.closed


@each_model
@pytest.mark.asyncio
async def test_nothing_is_sent_before_the_stream_is_opened_and_each_opening_is_a_call(model_type: Any):
    with LocalOpenAI([whole(model_type, "one"), whole(model_type, "two")]) as server:
        async with sdk(server) as given:
            model = model_type("m", client=given)
            model.stream(ask())  # no coroutine that somebody must await
            stream = model.stream(ask())
            assert server.requests == []
            texts = []
            for _ in range(2):
                watch = monitor.watch(stream)
                async with watch as opened:
                    async for _item in opened:
                        pass
                texts.append(watch.turn.text)
    assert texts == ["one", "two"]


@pytest.mark.parametrize("given", [object(), "key", openai])
def test_what_is_no_client_is_refused(given: Any):
    with pytest.raises(ConfigError, match=r"client takes an openai\.AsyncOpenAI"):
        OpenAIModel("m", client=given)


def test_the_synchronous_client_is_refused():
    with openai.OpenAI(api_key="x") as given, pytest.raises(ConfigError, match="not OpenAI"):
        OpenAIModel("m", client=given)


def test_a_model_has_a_name():
    with pytest.raises(ConfigError, match="has no name"):
        OpenAIModel("")
    assert OpenAIModel("gpt-5").name == "openai:gpt-5"
    assert OpenAIResponsesModel("gpt-5").name == "openai-responses:gpt-5"


def test_models_are_found_by_name():
    assert isinstance(monitor.model("openai:org/some:model", client=client()), OpenAIModel)
    assert isinstance(monitor.model("openai-responses:gpt-5"), OpenAIResponsesModel)


def test_a_missing_sdk_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agent-monitor\[openai\]'"):
        monitor.model("openai:gpt-5")


# --- the client of the environment


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.asyncio
async def test_without_a_key_the_call_says_which_variable_to_set(environment: pytest.MonkeyPatch):
    model = OpenAIModel("m")
    with pytest.raises(ConfigError, match="set OPENAI_API_KEY, or give client="):
        await watched(model, ask())


def test_one_client_is_made_in_each_event_loop_from_the_environment(environment: pytest.MonkeyPatch):
    async def calls(model: OpenAIModel) -> list[str]:
        texts = [(await watched(model, ask())).turn.text for _ in range(2)]
        await model.aclose()
        await model.aclose()
        return texts

    with LocalOpenAI([events_of("fine")]) as server:
        environment.setenv("OPENAI_API_KEY", "the-key")
        environment.setenv("OPENAI_BASE_URL", server.base_url)
        model = OpenAIModel("m")
        assert asyncio.run(calls(model)) == ["fine", "fine"]
        assert asyncio.run(calls(model)) == ["fine", "fine"]
        assert [request.connection for request in server.requests] == [0, 0, 1, 1]
        assert {request.headers["authorization"] for request in server.requests} == {"Bearer the-key"}


@pytest.mark.asyncio
async def test_a_client_that_the_model_made_is_closed_by_it_and_the_callers_own_is_not(environment: pytest.MonkeyPatch):
    with LocalOpenAI([events_of("fine")]) as server:
        environment.setenv("OPENAI_API_KEY", "x")
        environment.setenv("OPENAI_BASE_URL", server.base_url)
        made = OpenAIModel("m")
        await watched(made, ask())
        await made.aclose()
        await server.wait_closed_async(0, timeout_s=0.5)
        async with sdk(server) as own:
            given = OpenAIModel("m", client=own)
            await watched(given, ask())
            await given.aclose()
            await watched(given, ask())
            assert server.requests[1].connection == server.requests[2].connection


@pytest.mark.asyncio
async def test_a_refused_connection_is_told_at_once_and_not_tried_again_behind_the_runs_back(
    environment: pytest.MonkeyPatch,
):
    environment.setenv("OPENAI_API_KEY", "x")
    environment.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    model = OpenAIModel("m")
    watch = await watched(model, ask())
    await model.aclose()
    assert watch.turn.model_error is not None
    assert watch.turn.model_error.kind is ErrorKind.NETWORK
    assert watch.outcome.elapsed_s < 0.45  # the SDK's first retry alone waits half a second
