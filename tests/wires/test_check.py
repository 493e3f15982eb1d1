"""Every rule that costs a request is seen, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from monitor import AssistantMessage, ConfigError, UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.context import Form, validate
from monitor.messages import Reasoning, Text
from tests.context.wire import FORMS, builder


def rules(form: Form, *messages: Any) -> list[str]:
    return [problem.rule for problem in validate(form, list(messages))]


HISTORY = (
    UserMessage((Text("go"),)),
    AssistantMessage(
        (Reasoning("hm", "c2ln"), Text("I look."), ToolCall("1", "look", {}), ToolCall("2", "look", {})),
        (ToolResult("1", "look", "seen"),),
    ),
    AssistantMessage((Text("Hm."), ToolCall("3", "look", {})), (ToolResult("3", "look", "no", is_error=True),)),
    AssistantMessage((Text("Done."),)),
    UserMessage((Text("thanks"),)),
)


@pytest.mark.parametrize("form", FORMS)
def test_what_an_adapter_sends_is_valid(form: Form) -> None:
    assert validate(form, builder(form)(HISTORY)) == []


@pytest.mark.parametrize("form", FORMS)
def test_nothing_at_all_is_refused(form: Form) -> None:
    assert rules(form) == ["empty"]
    assert rules(form, "text") == ["shape"]


def test_an_unknown_form_is_an_error():
    with pytest.raises(ConfigError, match="unknown form 'bard'"):
        validate("bard", [])  # type: ignore[arg-type]


# --- Gemini

G_USER = {"role": "user", "parts": [{"text": "go"}]}
G_CALL = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}
G_RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "seen"}}}]}


def g(*parts: Any, role: str = "model") -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ([G_USER, G_CALL, G_RESULT], []),
        ([G_USER, G_CALL], ["pairing", "order"]),
        ([G_USER, G_CALL, G_USER], ["pairing"]),
        ([G_USER, G_RESULT], ["order", "pairing"]),
        ([G_CALL, G_RESULT], ["order"]),
        ([G_USER, G_USER], ["order"]),
        ([{"role": "assistant", "parts": [{"text": "x"}]}], ["role"]),
        ([g(role="user")], ["empty"]),
        ([g({"text": ""}, role="user")], ["empty"]),
        ([g({}, role="user")], ["shape"]),
        ([g({"text": "a", "inline_data": {}}, role="user")], ["shape"]),
        ([G_USER, g({"text": "", "thoughtSignature": "c2ln"}), G_USER], []),
        ([G_USER, g({"text": "a", "thoughtSignature": "not base64"}), G_USER], ["signature"]),
        ([g({"text": "a", "thoughtSignature": "c2ln"}, role="user")], ["signature"]),
        (
            [G_USER, g({"function_call": {"name": "a b"}}), g({"function_response": {"name": "a b"}}, role="user")],
            ["name", "name"],
        ),
        ([G_USER, g({"function_call": {"name": "look", "args": "{}"}}), G_RESULT], ["arguments"]),
        ([G_USER, g({"text": "a"}, {"function_response": {"name": "look"}}), G_USER], ["role", "pairing"]),
        ([g({"function_call": {"name": "look"}}, role="user"), g({"text": "a"}), G_USER], ["role", "pairing"]),
        (
            [
                G_USER,
                g({"function_call": {"name": "look", "id": "1"}}),
                g({"function_response": {"name": "look", "id": "2"}}, role="user"),
            ],
            ["pairing"],
        ),
    ],
)
def test_gemini(contents: list[Any], expected: list[str]) -> None:
    assert rules("gemini", *contents) == expected


# --- OpenAI

C_USER = {"role": "user", "content": "go"}


def c_calls(*ids: str, name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    calls = [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def c_result(id: str = "1", content: Any = "seen") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([{"role": "system", "content": "Be brief."}, C_USER, c_calls("1", "2"), c_result("2"), c_result("1")], []),
        ([C_USER, c_calls("1"), c_result("1", "")], []),
        ([C_USER, c_calls("1")], ["pairing"]),
        ([C_USER, c_calls("1"), C_USER, c_result()], ["pairing", "pairing"]),
        ([C_USER, c_calls("1"), c_result(), c_result()], ["pairing"]),
        ([C_USER, c_calls("1", "1"), c_result(), c_result()], ["id"]),
        ([C_USER, c_calls("x" * 41), c_result("x" * 41)], ["id"]),
        ([C_USER, c_calls("1", name="a.b"), c_result()], ["name"]),
        ([C_USER, c_calls("1", arguments='{"p'), c_result()], ["arguments"]),
        ([C_USER, {"role": "assistant", "content": None, "tool_calls": []}], ["empty", "shape"]),
        (
            [C_USER, {"role": "assistant", "content": "a", "tool_calls": [{"id": "1", "type": "x"}]}, c_result()],
            ["shape"],
        ),
        ([C_USER, {"role": "assistant", "content": ""}], ["empty"]),
        ([{"role": "model", "content": "a"}], ["role"]),
        ([{"role": "user", "content": 3}], ["shape"]),
        ([{"role": "user", "content": [{"type": "output_text"}]}], ["shape"]),
    ],
)
def test_chat_completions(messages: list[Any], expected: list[str]) -> None:
    assert rules("openai-chat", *messages) == expected


R_CALL = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
R_RESULT = {"type": "function_call_output", "call_id": "1", "output": "seen"}
R_THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
R_SAID = {"type": "message", "role": "assistant", "content": "Hi"}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([C_USER, R_THOUGHT, R_CALL, R_RESULT], []),
        ([C_USER, R_CALL, C_USER, R_RESULT], []),  # nearness is not asked for
        ([C_USER, R_CALL], ["pairing"]),
        ([C_USER, R_RESULT, R_CALL], ["pairing", "pairing"]),
        ([R_CALL, R_CALL, R_RESULT], ["id"]),
        ([R_CALL, {**R_RESULT, "type": "custom_tool_call_output"}], ["pairing", "pairing"]),
        (
            [{**R_CALL, "call_id": "", "name": "", "arguments": ""}, {**R_RESULT, "call_id": ""}],
            ["id", "name", "arguments"],
        ),
        ([R_CALL, {**R_RESULT, "output": None}], ["shape"]),
        ([C_USER, R_THOUGHT], ["order"]),
        ([C_USER, R_THOUGHT, C_USER], ["order"]),
        ([C_USER, R_THOUGHT, R_SAID], []),
        ([C_USER, {"type": "reasoning"}, R_SAID], ["shape", "signature"]),
        ([{**R_SAID, "id": "m"}, {**R_SAID, "id": "m"}], ["id"]),
        ([{"role": "user", "content": []}], ["empty"]),
        ([{"role": "tool", "content": "a"}], ["role"]),
        ([{"role": "user", "content": {"a": 1}}], ["shape"]),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], ["shape"]),
    ],
)
def test_responses(items: list[Any], expected: list[str]) -> None:
    assert rules("openai-responses", *items) == expected


# --- Anthropic


def a(*blocks: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def use(id: str = "1", name: str = "look", given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if given is None else given}


def answer(id: str = "1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, **more}


TEXT = {"type": "text", "text": "Hi"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([C_USER, a(THOUGHT, use("1"), use("2")), a(answer("2"), answer("1"), TEXT, role="user")], []),
        ([C_USER, a(use())], ["pairing"]),
        ([C_USER, a(use()), C_USER], ["pairing"]),
        ([C_USER, a(TEXT), a(answer(), role="user")], ["pairing"]),
        ([C_USER, a(use()), a(answer(), answer(), role="user")], ["pairing"]),
        ([C_USER, a(use()), a(TEXT, answer(), role="user")], ["order"]),
        ([C_USER, a(use()), a(answer(is_error=True), role="user")], ["empty"]),
        ([C_USER, a(use(), use()), a(answer(), answer(), role="user")], ["id"]),
        ([C_USER, a(use("a|b")), a(answer("a|b"), role="user")], ["id"]),
        ([C_USER, a(use(name="a.b")), a(answer(), role="user")], ["name"]),
        ([C_USER, a(use(given="{}")), a(answer(), role="user")], ["arguments"]),
        ([C_USER, a(TEXT, THOUGHT), C_USER], ["order"]),
        ([C_USER, a({**THOUGHT, "signature": ""}, TEXT), C_USER], ["signature"]),
        ([C_USER, a({**THOUGHT, "signature": 'openai:{"reasoning":{}}'}, TEXT), C_USER], ["signature"]),
        ([C_USER, a({"type": "redacted_thinking", "data": ""}, TEXT), C_USER], ["signature"]),
        ([a(TEXT), C_USER], ["order"]),
        ([C_USER, C_USER], ["order"]),
        ([{"role": "system", "content": "a"}], ["role"]),
        ([a(role="user")], ["empty"]),
        ([{"role": "user", "content": " "}], ["empty"]),
        ([a({}, role="user")], ["shape"]),
        ([a(use(), role="user"), a(answer()), C_USER], ["role", "role"]),
        ([C_USER, {"role": "assistant", "content": "The answer is "}], ["empty"]),
    ],
)
def test_anthropic(messages: list[Any], expected: list[str]) -> None:
    assert rules("anthropic", *messages) == expected


def test_a_problem_says_where_and_what():
    (problem,) = validate("anthropic", [C_USER, a(use()), C_USER])
    assert (problem.index, problem.message) == (2, "the calls before it are 1; it answers none")
