"""Requests in nobody's dialect, as the OpenAI SDK says them on both of its APIs, and what comes
back: on the wire, with the real SDK.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.part_options import mark
from monitor.adapters.openai.model import OpenAIModel, OpenAIResponsesModel, to_chat, to_input, to_messages, to_response
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError
from monitor.messages import AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import (
    call,
    chunk,
    events_of,
    finish,
    response_call,
    response_events_of,
    response_finish,
    response_message,
    response_reasoning,
    response_text,
    text,
    thought,
)
from tests.adapters.histories import LOOK, NOW, ask, histories, user
from tests.adapters.openai.sdk import TRANSPORTS, aiohttp_warnings, sdk
from tests.adapters.openai.test_recordings import RESPONSES
from tests.adapters.provider import called, told

pytestmark = aiohttp_warnings

PNG = base64.b64encode(b"\x89PNG").decode()
ENCRYPTED = mark({"reasoning": {"id": "rs_1", "encrypted_content": "secret"}})


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
def test_an_id_that_is_too_long_or_empty_is_replaced_in_the_call_and_in_its_answer(convert: Any):
    for id_ in ("x" * 41, ""):
        said = convert([AssistantMessage((ToolCall(id_, "now", {}),), (ToolResult(id_, "now", "noon"),))])
        made = [one["id"] for one in said[0].get("tool_calls", ())] or [said[0]["call_id"]]
        assert [key for key, _ in answers(said)] == made
        assert 0 < len(made[0]) <= 40


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


@given(histories(MARKS))
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


@given(histories(MARKS))
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


# --- the models


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
            again = await called(model, ask(user("hello"), turn, user("go on"), tools=(LOOK,)))
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
            again = await called(model, ask(user("hello"), turn, tools=(LOOK,)))
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
            await called(OpenAIResponsesModel(name, client=given), ask())
        assert ("include" in server.requests[0].body) is reasons


def test_the_synchronous_client_is_refused():
    with openai.OpenAI(api_key="x") as given, pytest.raises(ConfigError, match="not OpenAI"):
        OpenAIModel("m", client=given)


# --- the client of the environment
