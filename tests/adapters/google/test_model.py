"""Requests in nobody's dialect, as google-genai says them, and what comes back: on the wire, with
the real SDK.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from monitor.adapters.google.model import GoogleModel, to_config, to_contents
from monitor.chunks import ToolCall, ToolResult
from monitor.messages import NOT_CARRIED_OUT, AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.testing import LocalGemini
from monitor.testing.gemini_steps import (
    call,
    chunk,
    finish,
    text,
    thought,
)
from tests.adapters.google.sdk import TRANSPORTS, sdk, sdk_warnings
from tests.adapters.histories import LOOK, NOW, ask, histories, user
from tests.adapters.provider import called, told


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


SIGNATURE = base64_of(b"\xfb\xff\x00 signature")
OTHER = base64_of(b"\xfa\xfe another")


def parts_of(*content: Text | Reasoning | ToolCall) -> list[dict[str, Any]]:
    """What the model is said to have said."""
    contents = to_contents([AssistantMessage(content)])
    return [part for one in contents if one["role"] == "model" for part in one["parts"]]


# --- the history


def test_a_run_is_told_in_turns_with_the_results_after_their_calls():
    history: list[Message] = [
        user("find it"),
        AssistantMessage(
            (Reasoning("hm", SIGNATURE), Text("I look."), ToolCall("a", "look", {"q": 1}), ToolCall("b", "now", {})),
            (ToolResult("b", "now", "noon"), ToolResult("a", "look", "no such thing", is_error=True)),
        ),
        AssistantMessage((Text("It is noon."),)),
    ]
    assert to_contents(history) == [
        {"role": "user", "parts": [{"text": "find it"}]},
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True, "thought_signature": b"\xfb\xff\x00 signature"},
                {"text": "I look."},
                {"function_call": {"id": "a", "name": "look", "args": {"q": 1}}},
                {"function_call": {"id": "b", "name": "now", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"function_response": {"id": "a", "name": "look", "response": {"error": "no such thing"}}},
                {"function_response": {"id": "b", "name": "now", "response": {"output": "noon"}}},
            ],
        },
        {"role": "model", "parts": [{"text": "It is noon."}]},
    ]


def test_neighbours_of_one_role_are_one_content_and_what_is_empty_is_left_away():
    history: list[Message] = [
        user("a", ""),
        user(),
        user("b"),
        AssistantMessage((Text(""), Reasoning(""))),
        AssistantMessage((Text("c"),)),
        AssistantMessage((Text("d"), ToolCall("x", "now", {})), (ToolResult("x", "now", ""),)),
        user("go on"),
    ]
    assert to_contents(history) == [
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
        {
            "role": "model",
            "parts": [{"text": "c"}, {"text": "d"}, {"function_call": {"id": "x", "name": "now", "args": {}}}],
        },
        {
            "role": "user",
            "parts": [{"function_response": {"id": "x", "name": "now", "response": {"output": ""}}}, {"text": "go on"}],
        },
    ]
    assert to_contents([user(""), AssistantMessage(())]) == []


def test_a_signature_without_a_thought_signs_what_follows():
    signed, other = base64.b64decode(SIGNATURE), base64.b64decode(OTHER)
    made = ToolCall("a", "now", {})
    function = {"id": "a", "name": "now", "args": {}}
    assert parts_of(Reasoning("", SIGNATURE), Text("a"), Text("b")) == [
        {"text": "a", "thought_signature": signed},
        {"text": "b"},
    ]
    assert parts_of(Reasoning("hm"), Reasoning("", SIGNATURE), made) == [
        {"text": "hm", "thought": True},
        {"function_call": function, "thought_signature": signed},
    ]
    assert parts_of(Text("a"), Reasoning("", SIGNATURE)) == [{"text": "a"}, {"text": "", "thought_signature": signed}]
    assert parts_of(Reasoning("", SIGNATURE), Reasoning("hm", OTHER)) == [
        {"text": "", "thought_signature": signed},
        {"text": "hm", "thought": True, "thought_signature": other},
    ]


@pytest.mark.parametrize("foreign", ["not base64!", "", "é", "abc"])
def test_a_signature_that_is_no_base64_is_anothers_and_is_left_away(foreign: str):
    assert parts_of(Reasoning("hm", foreign), Reasoning("", foreign), Text("a")) == [
        {"text": "hm", "thought": True},
        {"text": "a"},
    ]


def test_media_go_by_their_bytes_or_by_their_address():
    image, document = (
        Media("image/png", base64_of(b"\x89PNG"), name="a.png"),
        Media("application/pdf", uri="https://example.com/a.pdf"),
    )
    assert to_contents([UserMessage((image, document))])[0]["parts"] == [
        {"inline_data": {"mime_type": "image/png", "data": b"\x89PNG"}},
        {"file_data": {"mime_type": "application/pdf", "file_uri": "https://example.com/a.pdf"}},
    ]


@given(histories(st.none() | st.binary(max_size=3).map(base64_of) | st.text(max_size=3)))
def test_any_history_becomes_one_that_the_service_takes(history: list[Message]):
    """Roles alternate, nothing is empty, the SDK reads every content, and each call is answered in
    the next one, in its order.
    """
    contents = to_contents(history)
    assert all(one["role"] != other["role"] for one, other in pairwise(contents))
    for one, following in pairwise([*contents, {"parts": []}]):
        assert types.Content.model_validate(one).parts
        made = [part["function_call"]["id"] for part in one["parts"] if "function_call" in part]
        answered = [part["function_response"]["id"] for part in following["parts"] if "function_response" in part]
        assert one["role"] == "user" or made == answered


# --- the config


def test_the_request_says_instructions_tools_and_how_they_are_chosen():
    config = to_config(
        ask(instructions="Be brief.", tools=(LOOK, NOW), tool_choice="required", settings={"temperature": 0})
    )
    assert config == {
        "temperature": 0,
        "automatic_function_calling": {"disable": True},
        "system_instruction": "Be brief.",
        "tools": [
            {
                "function_declarations": [
                    {"name": "look", "description": "Look it up.", "parameters_json_schema": LOOK.parameters},
                    {"name": "now", "description": "The time."},
                ]
            }
        ],
        "tool_config": {"function_calling_config": {"mode": "ANY"}},
    }
    assert to_config(ask()) == {"automatic_function_calling": {"disable": True}}


SCHEMA = {"type": "object", "properties": {"confidence": {"type": "number"}}, "required": ["confidence"]}


def test_an_answer_that_is_to_be_json_is_asked_for_as_json() -> None:
    config = to_config(ask(reply_schema=SCHEMA))
    assert config["response_mime_type"] == "application/json"
    assert config["response_json_schema"] == SCHEMA


@pytest.mark.parametrize("name", ["response_schema", "response_json_schema"])
def test_a_schema_in_the_settings_goes_before_that_of_the_request(name: str) -> None:
    config = to_config(ask(reply_schema=SCHEMA, settings={name: {"type": "string"}}))
    assert config == {name: {"type": "string"}, "automatic_function_calling": {"disable": True}}


@pytest.mark.parametrize(("choice", "mode"), [("auto", "AUTO"), ("required", "ANY"), ("none", "NONE")])
@pytest.mark.parametrize(
    "given", [None, {"function_calling_config": {"allowed_function_names": ["look"]}}, types.ToolConfig()]
)
def test_tool_choice_is_the_mode_whatever_else_the_settings_say(choice: Any, mode: str, given: Any):
    config = to_config(ask(tools=(LOOK,), tool_choice=choice, settings={} if given is None else {"tool_config": given}))
    assert config["tool_config"]["function_calling_config"]["mode"] == mode
    if isinstance(given, dict):
        assert config["tool_config"]["function_calling_config"]["allowed_function_names"] == ["look"]


def test_server_side_tools_of_the_settings_stand_beside_the_functions():
    config = to_config(ask(tools=(LOOK,), settings={"tools": [{"google_search": {}}]}))
    assert [list(one) for one in config["tools"]] == [["function_declarations"], ["google_search"]]


# --- the model


@asynccontextmanager
async def model_on(server: LocalGemini, transport: str = "httpx2") -> AsyncIterator[GoogleModel]:
    async with sdk(server, transport) as client:
        yield GoogleModel("gemini-test", client=client)


def decoded(part: dict[str, Any]) -> dict[str, Any]:
    """The SDK writes base64 in its URL form."""
    signature = part.get("thoughtSignature")
    return part if signature is None else part | {"thoughtSignature": base64_of(base64.urlsafe_b64decode(signature))}


@sdk_warnings
@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_signatures_and_ids_come_back_to_the_service_as_it_gave_them(transport: str):
    said = [
        thought("I have "),
        thought("to look.", signature=OTHER),
        text("One "),
        chunk([{"text": "moment.", "thoughtSignature": SIGNATURE}]),
        call("look", {"q": "\u00e9"}, id="its-own", signature=SIGNATURE),
        call("now"),
        finish(),
    ]
    closing = [text("Noon."), chunk([{"text": "", "thoughtSignature": OTHER}]), finish()]
    with LocalGemini([said, closing, [text("fine"), finish()]]) as server:
        async with model_on(server, transport) as model:
            options: dict[str, Any] = {
                "instructions": "Be brief.",
                "tools": (LOOK, NOW),
                "settings": {"temperature": 0.5},
            }
            question = user("what time is it?")
            wrong = ToolResult("call_0_0", "now", "wrong id", is_error=True)
            first = await told(model, ask(question, **options), ToolResult("its-own", "look", "found"), wrong)
            second = await told(model, ask(question, first, **options), turn=1)
            await told(model, ask(question, first, second, user("thanks"), **options), turn=2)
        asked, again, last = (request.body for request in server.requests)
    assert asked["contents"] == [{"role": "user", "parts": [{"text": "what time is it?"}]}]
    assert asked["systemInstruction"]["parts"] == [{"text": "Be brief."}]
    assert [one["name"] for one in asked["tools"][0]["functionDeclarations"]] == ["look", "now"]
    assert asked["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}
    assert asked["generationConfig"] == {"temperature": 0.5}
    assert [one["role"] for one in again["contents"]] == ["user", "model", "user"]
    assert [decoded(part) for part in again["contents"][1]["parts"]] == [
        {"text": "I have to look.", "thought": True, "thoughtSignature": OTHER},
        {"text": "One "},
        {"text": "moment.", "thoughtSignature": SIGNATURE},
        {"functionCall": {"id": "its-own", "name": "look", "args": {"q": "\u00e9"}}, "thoughtSignature": SIGNATURE},
        {"functionCall": {"id": "call_0_1", "name": "now", "args": {}}},
    ]
    assert again["contents"][2]["parts"] == [
        {"functionResponse": {"id": "its-own", "name": "look", "response": {"output": "found"}}},
        {"functionResponse": {"id": "call_0_1", "name": "now", "response": {"error": NOT_CARRIED_OUT}}},
    ]
    assert again["contents"] == last["contents"][:3], "what was sent is sent again byte for byte, or no cache can help"
    assert [decoded(part) for part in last["contents"][3]["parts"]] == [
        {"text": "Noon."},
        {"text": "", "thoughtSignature": OTHER},
    ]


@sdk_warnings
@pytest.mark.asyncio
async def test_a_file_a_schema_and_settings_of_any_form_arrive():
    class Answer(BaseModel):
        words: str

    settings = {
        "max_output_tokens": 99,
        "thinking_config": types.ThinkingConfig(include_thoughts=True),
        "response_mime_type": "application/json",
        "response_schema": Answer,
        "stop_sequences": ["END"],
    }
    with LocalGemini([[text("{}"), finish()]]) as server:
        async with model_on(server) as model:
            image = UserMessage((Text("see"), Media("image/png", SIGNATURE)))
            await called(model, ask(image, tools=(LOOK,), tool_choice="none", settings=settings))
        body = server.requests[0].body
    assert base64.urlsafe_b64decode(body["contents"][0]["parts"][1]["inlineData"]["data"]) == base64.b64decode(
        SIGNATURE
    )
    assert body["generationConfig"]["maxOutputTokens"] == 99
    assert body["generationConfig"]["thinkingConfig"] == {"include_thoughts": True}
    assert list(body["generationConfig"]["responseSchema"]["properties"]) == ["words"]
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "NONE"}
    assert "q" in json.dumps(body["tools"])


# --- the client of the environment
