"""Requests in nobody's dialect, as anthropic says them, and what comes back: on the wire, with the
real SDK.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import anthropic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.part_options import REDACTED
from monitor.adapters.anthropic.model import MAX_TOKENS, AnthropicModel, to_messages, to_parameters
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import ConfigError
from monitor.messages import NOT_CARRIED_OUT, AssistantMessage, Media, Message, Reasoning, Text, UserMessage
from monitor.models import ToolSpec
from monitor.testing import LocalAnthropic
from monitor.testing.anthropic_steps import (
    call,
    finish,
    redacted,
    say,
    start,
    think,
)
from tests.adapters.anthropic.sdk import TRANSPORTS, sdk
from tests.adapters.histories import LOOK, ask, histories, user
from tests.adapters.provider import called, told

NOW = ToolSpec("now", "The time.", {})
PICTURE = base64.b64encode(b"not really a picture").decode()


def blocks_of(*content: Text | Reasoning | ToolCall, **options: Any) -> list[dict[str, Any]]:
    """What the model is said to have said."""
    said = to_messages([AssistantMessage(content)], **options)
    return [block for one in said if one["role"] == "assistant" for block in one["content"]]


def answers(*content: ToolCall, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
    said = to_messages([AssistantMessage(content, tuple(results))])[1]
    assert said["role"] == "user"
    return [{key: value for key, value in block.items() if key != "type"} for block in said["content"]]


# --- the history


def test_a_run_is_told_in_turns_with_the_results_after_their_calls():
    history: list[Message] = [
        user("find it"),
        AssistantMessage(
            (Reasoning("hm", "c2ln"), Text("I look."), ToolCall("a", "look", {"q": 1}), ToolCall("b", "now", {})),
            (ToolResult("b", "now", "noon"), ToolResult("a", "look", "no such thing", is_error=True)),
        ),
        user("go on"),
        AssistantMessage((Text("It is noon."),)),
    ]
    assert to_messages(history) == [
        {"role": "user", "content": [{"type": "text", "text": "find it"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"q": 1}},
                {"type": "tool_use", "id": "b", "name": "now", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "no such thing", "is_error": True},
                {"type": "tool_result", "tool_use_id": "b", "content": "noon"},
                {"type": "text", "text": "go on"},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "It is noon."}]},
    ]


def test_neighbours_of_one_role_are_one_message_and_what_is_blank_is_left_away():
    history: list[Message] = [
        user("a", "", " \n"),
        user(),
        user("b"),
        AssistantMessage((Text(""), Text("\t"), Reasoning(""))),
        AssistantMessage((Text("c"),)),
        AssistantMessage((Text("d "),)),
    ]
    assert to_messages(history) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d "}]},
    ]
    assert to_messages([user(""), AssistantMessage(())]) == []


def test_thinking_goes_back_as_it_came_and_what_the_service_refuses_of_it_is_left_away():
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    said = {"type": "text", "text": "a"}
    assert blocks_of(Reasoning("hm", "c2ln"), Text("a")) == [thinking, said]
    assert blocks_of(Reasoning("", "c2ln"), Text("a")) == [
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        said,
    ]
    assert blocks_of(Reasoning("", REDACTED + "ZGF0YQ=="), Text("a")) == [
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        said,
    ]
    assert blocks_of(Text("a"), Reasoning("hm", "c2ln"), Text("a")) == [said, thinking, said], "in its place"
    assert blocks_of(Reasoning("hm"), Text("a")) == [said], "not signed"
    assert blocks_of(Text("a"), Reasoning("hm", "c2ln"), Reasoning("", REDACTED + "x"), Text(" ")) == [said], (
        "nothing after it"
    )
    assert blocks_of(Reasoning("hm", "c2ln")) == []
    assert blocks_of(Reasoning("hm", "c2ln"), Text("a"), thinking=False) == [said]


def test_an_empty_result_has_no_content_but_an_empty_error_must_have_some():
    both = ToolCall("a", "now", {}), ToolCall("b", "now", {})
    done, failed = answers(*both, results=[ToolResult("a", "now", " "), ToolResult("b", "now", "", is_error=True)])
    assert done == {"tool_use_id": "a"}
    assert failed["is_error"]
    assert failed["content"].strip()


def test_an_id_that_the_service_would_refuse_is_replaced_and_the_same_each_time():
    made = ToolCall("functions.look:0", "look", {})
    turn = AssistantMessage((made, made), (ToolResult(made.id, "look", "one"), ToolResult(made.id, "look", "two")))
    said = to_messages([turn, turn])
    ids = [block["id"] for block in said[0]["content"] + said[2]["content"]]
    assert len(set(ids)) == 4
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in ids)
    assert [block["tool_use_id"] for block in said[1]["content"] + said[3]["content"]] == ids
    assert [block["content"] for block in said[1]["content"]] == ["one", "two"], (
        "in call order where the ids are the same"
    )
    assert to_messages([turn]) == said[:2], "what was sent is sent again byte for byte, or no cache can help"


def test_files_are_shown_by_what_they_are():
    shown = [
        Media("image/png", PICTURE),
        Media("image/webp", uri="https://example.org/a.webp"),
        Media("image/gif", uri="file_011"),
        Media("application/pdf", PICTURE, name="a.pdf"),
        Media("application/pdf", uri="https://example.org/a.pdf"),
        Media("text/csv", base64.b64encode(b"a,b").decode()),
    ]
    (said,) = to_messages([UserMessage((Text("see"), *shown))])
    assert said["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.webp"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_011"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PICTURE},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}},
    ]


@pytest.mark.parametrize(
    ("media", "what"),
    [
        (Media("audio/wav", PICTURE), "audio/wav is audio/wav"),
        (Media("text/plain", uri="https://example.org"), "text with its data"),
    ],
)
def test_what_cannot_be_shown_is_refused(media: Media, what: str):
    with pytest.raises(ConfigError, match=what):
        to_messages([UserMessage((media,))])


@given(histories(st.none() | st.text(max_size=3)))
def test_every_history_becomes_one_that_the_service_takes(history: list[Message]):
    said = to_messages(history)
    assert all(one["role"] != following["role"] for one, following in pairwise(said))
    assert all(one["content"] for one in said)
    used: list[str] = []
    for one, following in pairwise([*said, {"role": "nobody", "content": []}]):
        kinds = [block["type"] for block in one["content"]]
        if one["role"] == "assistant":
            made = [block["id"] for block in one["content"] if block["type"] == "tool_use"]
            results = [block["tool_use_id"] for block in following["content"] if block["type"] == "tool_result"]
            assert made == results
            assert kinds[-1] not in {"thinking", "redacted_thinking"}
            used += made
        else:
            assert kinds == sorted(kinds, key="tool_result".__ne__), "results come first"
        for block in one["content"]:
            assert block["type"] != "text" or block["text"].strip()
            assert not block.get("is_error") or block["content"].strip()
            assert isinstance(block.get("input", {}), dict)
    assert len(set(used)) == len(used)
    repr(said).encode()  # no half of a surrogate pair is left


# --- the parameters


def test_a_request_is_said_in_the_words_of_the_sdk():
    parameters = to_parameters(ask(instructions="Be brief.", tools=(LOOK, NOW), settings={"service_tier": "auto"}))
    assert parameters == {
        "max_tokens": MAX_TOKENS,
        "service_tier": "auto",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
        "system": "Be brief.",
        "tools": [
            {"name": "look", "description": "Look it up.", "input_schema": LOOK.parameters},
            {"name": "now", "description": "The time.", "input_schema": {"type": "object"}},
        ],
        "tool_choice": {"type": "auto"},
    }
    assert to_parameters(ask()).keys() == {"max_tokens", "messages"}


def test_the_length_of_an_answer_has_a_default_that_leaves_room_for_the_thinking():
    assert to_parameters(ask())["max_tokens"] == 32_000
    assert (
        to_parameters(ask(settings={"thinking": {"type": "enabled", "budget_tokens": 10_000}}))["max_tokens"] == 42_000
    )
    assert to_parameters(ask(settings={"thinking": {"type": "adaptive"}}))["max_tokens"] == 32_000
    assert to_parameters(ask(settings={"max_tokens": 5}))["max_tokens"] == 5


@pytest.mark.parametrize(("choice", "kind"), [("auto", "auto"), ("required", "any"), ("none", "none")])
def test_tool_choice_is_said_with_what_the_settings_may_add(choice: Any, kind: str):
    alone = to_parameters(ask(tools=(LOOK,), tool_choice=choice))
    assert alone["tool_choice"] == {"type": kind}
    both = to_parameters(
        ask(tools=(LOOK,), tool_choice=choice, settings={"tool_choice": {"disable_parallel_tool_use": True}})
    )
    assert both["tool_choice"] == (
        {"type": "none"} if kind == "none" else {"type": kind, "disable_parallel_tool_use": True}
    )


def test_server_side_tools_of_the_settings_stand_beside_the_functions():
    search = {"type": "web_search_20250305", "name": "web_search"}
    assert [one["name"] for one in to_parameters(ask(tools=(LOOK,), settings={"tools": [search]}))["tools"]] == [
        "look",
        "web_search",
    ]
    alone = to_parameters(ask(settings={"tools": [search]}))
    assert (alone["tools"], alone["tool_choice"]) == ([search], {"type": "auto"})


def test_a_history_with_calls_and_no_tools_declares_those_and_forbids_them():
    made = AssistantMessage((ToolCall("a", "look", {}), ToolCall("b", "now", {}), ToolCall("c", "look", {})))
    parameters = to_parameters(ask(user("hello"), made))
    assert [one["name"] for one in parameters["tools"]] == ["look", "now"]
    assert parameters["tool_choice"] == {"type": "none"}


def test_thinking_that_is_switched_off_is_not_shown():
    made = AssistantMessage((Reasoning("hm", "c2ln"), Text("a")))
    for thinking, kinds in (("disabled", ["text"]), ("adaptive", ["thinking", "text"])):
        parameters = to_parameters(ask(user("hello"), made, user("go on"), settings={"thinking": {"type": thinking}}))
        assert [block["type"] for block in parameters["messages"][1]["content"]] == kinds


# --- the model


@asynccontextmanager
async def model_on(server: LocalAnthropic, transport: str = "httpx2") -> AsyncIterator[AnthropicModel]:
    async with sdk(server, transport) as client:
        yield AnthropicModel("claude-test", client=client)


@pytest.mark.asyncio
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_thinking_ids_and_results_come_back_to_the_service_as_it_gave_them(transport: str):
    first = [
        *[
            start(),
            *think("I have ", "to ", "look.", signed="c2lnbmVk"),
            *redacted("ZGF0YQ==", index=1),
            *think(signed="b21pdHRlZA==", index=2),
        ],
        *[
            *say("One ", "moment.", index=3),
            *call("look", {"q": "é"}, id="toolu_a", index=4),
            *call("now", id="toolu_b", index=5),
        ],
        *finish("tool_use"),
    ]
    second = [start(), *think("Found.", signed="c2Vjb25k"), *say("Noon.", index=1), *finish()]
    with LocalAnthropic([first, second, [start(), *say("fine"), *finish()]]) as server:
        async with model_on(server, transport) as model:
            options: dict[str, Any] = {
                "instructions": "Be brief.",
                "tools": (LOOK, NOW),
                "settings": {"extra_body": {"temperature": 0.5}},
            }
            question = user("what time is it?")
            one = await told(model, ask(question, **options), ToolResult("toolu_a", "look", "found"))
            two = await told(model, ask(question, one, **options))
            await told(model, ask(question, one, two, user("thanks"), **options))
        asked, again, last = (request.body for request in server.requests)
    assert (asked["model"], asked["stream"], asked["max_tokens"], asked["temperature"]) == (
        "claude-test",
        True,
        32_000,
        0.5,
    )
    assert asked["system"] == "Be brief."
    assert asked["messages"] == [{"role": "user", "content": [{"type": "text", "text": "what time is it?"}]}]
    assert [tool["name"] for tool in asked["tools"]] == ["look", "now"]
    assert [one["role"] for one in again["messages"]] == ["user", "assistant", "user"]
    assert again["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "I have to look.", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "ZGF0YQ=="},
        {"type": "thinking", "thinking": "", "signature": "b21pdHRlZA=="},
        {"type": "text", "text": "One moment."},
        {"type": "tool_use", "id": "toolu_a", "name": "look", "input": {"q": "é"}},
        {"type": "tool_use", "id": "toolu_b", "name": "now", "input": {}},
    ]
    assert again["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_a", "content": "found"},
        {"type": "tool_result", "tool_use_id": "toolu_b", "content": NOT_CARRIED_OUT, "is_error": True},
    ]
    assert again["messages"] == last["messages"][:3], "what was sent is sent again byte for byte, or no cache can help"
    assert last["messages"][3]["content"][0] == {"type": "thinking", "thinking": "Found.", "signature": "c2Vjb25k"}


@pytest.mark.asyncio
async def test_settings_arrive_and_betas_lead_to_the_beta_endpoint():
    settings = {"stop_sequences": ["END"], "cache_control": {"type": "ephemeral"}, "extra_headers": {"x-mine": "1"}}
    with LocalAnthropic([[start(), *say("fine"), *finish()]]) as server:
        async with model_on(server) as model:
            await called(model, ask(settings=settings))
            beta = await called(model, ask(settings=settings | {"betas": ["one-2025-01-01", "two"], "mcp_servers": []}))
        plain, under_beta = server.requests
    assert (plain.body["stop_sequences"], plain.body["cache_control"]) == (["END"], {"type": "ephemeral"})
    assert plain.headers["x-mine"] == under_beta.headers["x-mine"] == "1"
    assert "anthropic-beta" not in plain.headers
    assert under_beta.headers["anthropic-beta"] == "one-2025-01-01,two"
    assert under_beta.body["mcp_servers"] == []
    assert beta.turn.text == "fine"


def test_the_synchronous_client_is_refused():
    refused = pytest.raises(ConfigError, match="client takes an AsyncAnthropic")
    with anthropic.Anthropic(api_key="x") as client, refused:
        AnthropicModel("m", client=client)


def test_a_client_of_ones_own_make_is_taken():
    model = AnthropicModel("m", client=SimpleNamespace(messages=SimpleNamespace(create=print)))
    assert model.name == "anthropic:m"


# --- the client of the environment
