"""Requests in nobody's dialect, as google-genai says them, and what comes back: on the wire, with
the real SDK.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from google import genai
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import monitor
from monitor.adapters.google.model import GoogleModel, to_config, to_contents
from monitor.adapters.google.stream import GoogleAdapter
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolResult
from monitor.errors import ConfigError
from monitor.messages import CUT_OFF, NOT_CARRIED_OUT, AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import ErrorKind, Model, ModelRequest, ToolSpec
from monitor.testing.gemini_steps import (
    Repeat,
    Stall,
    call,
    chunk,
    error_reply,
    finish,
    overflow,
    rate_limited,
    text,
    thought,
)
from monitor.testing.servers.gemini_server import LocalGemini
from tests.adapters.google.sdk import TRANSPORTS, sdk, sdk_warnings

Reason = monitor.TerminateReason
LOOK = ToolSpec("look", "Look it up.", {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})
NOW = ToolSpec("now", "The time.", {"type": "object", "properties": {}})


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


SIGNATURE = base64_of(b"\xfb\xff\x00 signature")
OTHER = base64_of(b"\xfa\xfe another")


def user(*words: str) -> UserMessage:
    return UserMessage(tuple(Text(one) for one in words))


def ask(*messages: Message, **options: Any) -> ModelRequest:
    return ModelRequest(messages or (user("hello"),), **options)


def parts_of(*content: Text | Reasoning | ToolCall) -> list[dict[str, Any]]:
    """What the model is said to have said."""
    contents = to_contents([AssistantMessage(content)])
    return [part for one in contents if one["role"] == "model" for part in one["parts"]]


def answers(*content: ToolCall, results: Sequence[ToolResult]) -> list[tuple[str, Any]]:
    said = to_contents([AssistantMessage(content, tuple(results))])[1]
    assert said["role"] == "user"
    return [(part["function_response"]["id"], part["function_response"]["response"]) for part in said["parts"]]


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


def test_a_call_without_a_result_is_answered_by_an_error_because_no_history_may_leave_it_open():
    open_call, done = ToolCall("a", "look", {"q": 1}), ToolCall("b", "look", {"q": 2})
    assert answers(open_call, done, results=[ToolResult("b", "look", "found")]) == [
        ("a", {"error": NOT_CARRIED_OUT}),
        ("b", {"output": "found"}),
    ]


def test_a_call_that_was_cut_off_has_no_arguments_and_says_so():
    cut_off = ToolCall("a", "look", '{"q": "hal')
    assert parts_of(cut_off) == [{"function_call": {"id": "a", "name": "look", "args": {}}}]
    assert answers(cut_off, results=[]) == [("a", {"error": CUT_OFF})]
    assert answers(cut_off, results=[ToolResult("a", "look", "no JSON", is_error=True)]) == [
        ("a", {"error": "no JSON"})
    ]


def test_calls_of_one_id_are_answered_one_by_one_and_a_result_of_no_call_is_left_away():
    twice = [ToolCall("a", "look", {"q": 1}), ToolCall("a", "look", {"q": 2})]
    results = [ToolResult("a", "look", "first"), ToolResult("z", "look", "whose?"), ToolResult("a", "look", "second")]
    assert answers(*twice, results=results) == [("a", {"output": "first"}), ("a", {"output": "second"})]


def test_media_go_by_their_bytes_or_by_their_address():
    image, document = (
        Media("image/png", base64_of(b"\x89PNG"), name="a.png"),
        Media("application/pdf", uri="https://example.com/a.pdf"),
    )
    assert to_contents([UserMessage((image, document))])[0]["parts"] == [
        {"inline_data": {"mime_type": "image/png", "data": b"\x89PNG"}},
        {"file_data": {"mime_type": "application/pdf", "file_uri": "https://example.com/a.pdf"}},
    ]


@pytest.mark.parametrize(
    ("media", "said"),
    [(Media("image/png", "%%%", name="a.png"), "a.png is not base64"), (Media("image/png"), "image/png has neither")],
)
def test_media_that_cannot_be_sent_are_refused_by_name(media: Media, said: str):
    with pytest.raises(ConfigError, match=said):
        to_contents([UserMessage((media,))])


def test_half_a_surrogate_pair_is_replaced_wherever_it_stands():
    odd = "a\ud800b"
    history: list[Message] = [
        user(odd),
        AssistantMessage(
            (Text(odd), Reasoning(odd), ToolCall("a", "look", {odd: [odd, {"x": odd}]})),
            (ToolResult("a", "look", odd),),
        ),
    ]
    said = json.dumps(to_contents(history), ensure_ascii=False)
    said.encode()
    assert said.count("a\ufffdb") == 7


PIECES = st.one_of(
    st.builds(Text, st.text(max_size=3)),
    st.builds(Reasoning, st.text(max_size=3), st.none() | st.binary(max_size=3).map(base64_of) | st.text(max_size=3)),
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tool_choice": "required"}, "no tools"),
        ({"settings": {"system_instruction": "x"}}, "instructions"),
        ({"settings": {"automatic_function_calling": {"disable": False}}}, "it is off"),
        ({"tools": (LOOK,), "settings": {"tool_config": 5}}, "tool_config takes a dict"),
        ({"tools": (LOOK,), "settings": {"tool_config": {"function_calling_config": 5}}}, "tool_config takes a dict"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(options: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        to_config(ask(**options))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temprature": 0}, r"'temprature' \(did you mean 'temperature'\?\)"),
        ({"maxOutputTokens": 5}, r"'maxOutputTokens' \(did you mean 'max_output_tokens'\?\)"),
        ({"zzz": 1, "temperature": 1}, "no such settings: 'zzz'$"),
        ({"max_output_tokens": "many"}, "max_output_tokens: Input should be a valid integer"),
        ({"thinking_config": {"budget": 1}}, r"thinking_config\.budget: Extra inputs"),
        ({"tools": 5}, "tools"),
    ],
)
def test_a_setting_that_the_sdk_does_not_have_or_take_is_named_before_anything_is_sent(
    settings: dict[str, Any], said: str
):
    model = GoogleModel("m", client=genai.Client(api_key="x"))
    with pytest.raises(ConfigError, match=said):
        model.stream(ask(settings=settings))


# --- the model


@asynccontextmanager
async def model_on(server: LocalGemini, transport: str = "httpx2") -> AsyncIterator[GoogleModel]:
    async with sdk(server, transport) as client:
        yield GoogleModel("gemini-test", client=client)


async def watched(model: Model, request: ModelRequest, **options: Any) -> monitor.harness.Watch[Any]:
    watch = monitor.watch(lambda: model.stream(request), **options)
    async with watch as stream:
        async for _ in stream:
            pass
    return watch


async def chunks_of(model: GoogleModel, request: ModelRequest, turn: int) -> list[Chunk]:
    adapter = GoogleAdapter(turn)
    return [chunk async for item in await model.stream(request) for chunk in adapter.decode(item)]


def told(chunks: Sequence[Chunk], results: Sequence[ToolResult] = ()) -> AssistantMessage:
    """A turn as it stands in the history: pieces of one kind joined, a signature ends a thought,
    one without a thought stands alone.
    """
    content: list[Text | Reasoning | ToolCall] = []
    for one in chunks:
        last = content[-1] if content else None
        match one, last:
            case TextDelta(text=words), Text(text=before):
                content[-1] = Text(before + words)
            case TextDelta(text=words), _:
                content.append(Text(words))
            case ReasoningDelta(text=words, signature=signature), Reasoning(text=before, signature=None) if words:
                content[-1] = Reasoning(before + words, signature)
            case ReasoningDelta(text=words, signature=signature), _:
                content.append(Reasoning(words, signature))
            case ToolCall(), _:
                content.append(one)
    return AssistantMessage(tuple(content), tuple(results))


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
            first = told(
                await chunks_of(model, ask(question, **options), 0),
                [ToolResult("its-own", "look", "found"), ToolResult("call_0_0", "now", "wrong id", is_error=True)],
            )
            second = told(await chunks_of(model, ask(question, first, **options), 1))
            await chunks_of(model, ask(question, first, second, user("thanks"), **options), 2)
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
            await watched(model, ask(image, tools=(LOOK,), tool_choice="none", settings=settings))
        body = server.requests[0].body
    assert base64.urlsafe_b64decode(body["contents"][0]["parts"][1]["inlineData"]["data"]) == base64.b64decode(
        SIGNATURE
    )
    assert body["generationConfig"]["maxOutputTokens"] == 99
    assert body["generationConfig"]["thinkingConfig"] == {"include_thoughts": True}
    assert list(body["generationConfig"]["responseSchema"]["properties"]) == ["words"]
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "NONE"}
    assert "q" in json.dumps(body["tools"])


@sdk_warnings
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("script", "reason", "kind"),
    [
        ([rate_limited(7)], Reason.RATE_LIMITED, ErrorKind.RATE_LIMITED),
        ([overflow()], Reason.PROMPT_TOO_LONG, ErrorKind.OVERFLOW),
        ([error_reply(503)], Reason.ERROR, ErrorKind.SERVER),
        ([error_reply(401)], Reason.ERROR, ErrorKind.AUTH),
        ([error_reply(400)], Reason.ERROR, ErrorKind.REQUEST),
    ],
    ids=str,
)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_call_that_fails_while_it_is_opened_is_classed(
    transport: str, script: list[Any], reason: Reason, kind: ErrorKind
):
    with LocalGemini([script]) as server:
        async with model_on(server, transport) as model:
            watch = await watched(model, ask())
        assert len(server.requests) == 1, "who supervises decides about another attempt"
    assert watch.outcome.reason is reason
    assert watch.turn.model_error is not None
    assert watch.turn.model_error.kind is kind
    assert watch.turn.model_error.retry_after_s == (7 if kind is ErrorKind.RATE_LIMITED else None)


@sdk_warnings
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "script", [[Stall()], [text("a"), Stall()], [Repeat(text("again and again. "), delay_s=0.001)]]
)
async def test_a_stream_of_a_model_is_watched_and_closed_like_any_other(script: list[Any]):
    with LocalGemini([script]) as server:
        async with model_on(server) as model:
            watch = await watched(model, ask(), stop_when=monitor.IdleTimeout(0.3))
            await server.wait_closed_async(0, timeout_s=0.5)
    assert watch.outcome.reason in {Reason.IDLE_TIMEOUT, Reason.LOOP_DETECTED}
    assert watch.outcome.closed


@sdk_warnings
@pytest.mark.asyncio
async def test_nothing_is_sent_before_the_stream_is_opened_and_each_opening_is_a_call():
    with LocalGemini([[text("one"), finish()], [text("two"), finish()]]) as server:
        async with model_on(server) as model:
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


@pytest.mark.asyncio
@pytest.mark.parametrize("messages", [[user("")], [AssistantMessage((Text(""),))]])
async def test_a_request_that_says_nothing_is_refused_also_under_a_watch(messages: list[Message]):
    model = GoogleModel("m", client=genai.Client(api_key="x").aio)
    with pytest.raises(ConfigError, match="no messages, or only empty ones"):
        await watched(model, ask(*messages))


@pytest.mark.parametrize("client", [object(), "key", types])
def test_what_is_no_client_is_refused(client: Any):
    with pytest.raises(ConfigError, match=r"client takes a genai\.Client"):
        GoogleModel("m", client=client)


def test_a_model_has_a_name():
    with pytest.raises(ConfigError, match="has no name"):
        GoogleModel("")
    assert GoogleModel("gemini-2.5-flash").name == "google:gemini-2.5-flash"


# --- the client of the environment


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GOOGLE_GENAI_USE_VERTEXAI",
        "GOOGLE_GENAI_USE_ENTERPRISE",
        "GOOGLE_CLOUD_PROJECT",
    ):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.asyncio
async def test_without_a_key_the_call_says_which_variables_to_set(environment: pytest.MonkeyPatch):
    model = GoogleModel("gemini-test")
    with pytest.raises(ConfigError, match=r"set GEMINI_API_KEY \(or GOOGLE_API_KEY\), or give client="):
        await watched(model, ask())


@sdk_warnings
@pytest.mark.parametrize("name", ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
def test_one_client_is_made_in_each_event_loop_from_the_environment(environment: pytest.MonkeyPatch, name: str):
    async def calls(model: GoogleModel) -> list[str]:
        texts = [(await watched(model, ask())).turn.text for _ in range(2)]
        await model.aclose()
        await model.aclose()
        return texts

    with LocalGemini([[text("fine"), finish()]]) as server:
        environment.setenv(name, "the-key")
        environment.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
        model = GoogleModel("gemini-test")
        assert asyncio.run(calls(model)) == ["fine", "fine"]
        assert asyncio.run(calls(model)) == ["fine", "fine"]
        assert [request.connection for request in server.requests] == [0, 0, 1, 1]
        assert {request.headers["x-goog-api-key"] for request in server.requests} == {"the-key"}


@sdk_warnings
@pytest.mark.asyncio
async def test_a_client_that_the_model_made_is_closed_by_it_and_the_callers_own_is_not(environment: pytest.MonkeyPatch):
    with LocalGemini([[text("fine"), finish()]]) as server:
        environment.setenv("GEMINI_API_KEY", "x")
        environment.setenv("GOOGLE_GEMINI_BASE_URL", server.base_url)
        made = GoogleModel("gemini-test")
        await watched(made, ask())
        await made.aclose()
        await server.wait_closed_async(0, timeout_s=0.5)
        async with sdk(server) as client:
            given = GoogleModel("gemini-test", client=client)
            await watched(given, ask())
            await given.aclose()
            await watched(given, ask())
            assert server.requests[1].connection == server.requests[2].connection


@sdk_warnings
@pytest.mark.asyncio
async def test_a_refused_connection_is_told_at_once_and_not_tried_again_behind_the_runs_back(
    environment: pytest.MonkeyPatch,
):
    """The SDK alone sleeps one to ten seconds and tries again."""
    environment.setenv("GEMINI_API_KEY", "x")
    environment.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1")
    model = GoogleModel("gemini-test")
    watch = await watched(model, ask())
    await model.aclose()
    assert watch.turn.model_error is not None
    assert watch.turn.model_error.kind is ErrorKind.NETWORK
    assert watch.outcome.elapsed_s < 0.9


def test_making_a_model_makes_no_client(environment: pytest.MonkeyPatch):
    """There is no key here, and nobody asks for one before the call."""
    made: list[str] = []
    environment.setattr(f"{GoogleModel.__module__}._client_from_environment", lambda: made.append("a client"))
    GoogleModel("gemini-test").stream(ask())
    assert made == []
