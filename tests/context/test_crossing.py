"""A history that one provider wrote and another one is sent: nothing crosses that only the first
can read, and nothing else is lost.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import AssistantMessage, UserMessage
from monitor._util.part_options import REDACTED, goes_to, mark, origin
from monitor.adapters.anthropic.model import to_messages as to_anthropic
from monitor.adapters.google.model import to_contents
from monitor.adapters.openai.model import to_input
from monitor.adapters.openai.model import to_messages as to_chat
from monitor.chunks import ToolCall, ToolResult
from monitor.context import Form, read_history, repair, validate
from monitor.messages import Reasoning, Text
from tests.context.wire import FORMS, builder, sdk_takes
from tests.examples import FEWER_EACH

PROVIDER = {"gemini": "google", "anthropic": "anthropic", "openai-chat": "openai", "openai-responses": "openai"}
pairs = pytest.mark.parametrize(("written_by", "sent_to"), [(one, other) for one in FORMS for other in FORMS])


def secret(number: int) -> str:
    """A signature that is found again wherever it goes."""
    return b64encode(f"<secret {number}>".encode()).decode()


def shown(sent: Any) -> str:
    """Everything that is sent, with bytes as their base64."""
    return json.dumps(sent, default=lambda data: b64encode(data).decode())


# --- one turn of each provider, in its own words

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map(lambda text: f"w{text}")
turns = st.lists(st.tuples(st.sampled_from(["think", "hide", "say", "call", "fail"]), words), min_size=1, max_size=5)


def gemini(turn: list[tuple[str, str]], at: int) -> list[Any]:
    parts: list[Any] = []
    answers: list[Any] = []
    for number, (kind, text) in enumerate(turn):
        signed = {"thoughtSignature": secret(number)}
        match kind:
            case "think":
                parts.append({"text": text, "thought": True} | signed)
            case "hide":
                parts.append({"text": text} | signed)
            case "say":
                parts.append({"text": text})
            case _:
                parts.append({"functionCall": {"id": f"c{at}_{number}", "name": "look", "args": {"q": text}}} | signed)
                key = "error" if kind == "fail" else "output"
                answers.append({"functionResponse": {"id": f"c{at}_{number}", "name": "look", "response": {key: text}}})
    return [{"role": "model", "parts": parts}, *([{"role": "user", "parts": answers}] if answers else [])]


def anthropic(turn: list[tuple[str, str]], at: int) -> list[Any]:
    blocks: list[Any] = []
    answers: list[Any] = []
    for number, (kind, text) in enumerate(turn):
        match kind:
            case "think":
                blocks.append({"type": "thinking", "thinking": text, "signature": secret(number)})
            case "hide":
                blocks.append({"type": "redacted_thinking", "data": secret(number)})
            case "say":
                blocks.append({"type": "text", "text": text})
            case _:
                call_id = f"c{at}_{number}"
                blocks.append({"type": "tool_use", "id": call_id, "name": "look", "input": {"q": text}})
                answers.append(
                    {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": kind == "fail"}
                )
    return [{"role": "assistant", "content": blocks}, *([{"role": "user", "content": answers}] if answers else [])]


def openai_chat(turn: list[tuple[str, str]], at: int) -> list[Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(text for kind, text in turn if kind == "say") or None,
    }
    calls: list[Any] = []
    answers: list[Any] = []
    for number, (kind, text) in enumerate(turn):
        if kind in ("call", "fail"):
            extra = {"extra_content": {"google": {"thought_signature": secret(number)}}}
            function = {"name": "look", "arguments": json.dumps({"q": text})}
            calls.append({"id": f"c{at}_{number}", "type": "function", "function": function} | extra)
            answers.append(
                {
                    "role": "tool",
                    "tool_call_id": f"c{at}_{number}",
                    "content": f"Error: {text}" if kind == "fail" else text,
                }
            )
    return [message | ({"tool_calls": calls} if calls else {}), *answers]


def openai_responses(turn: list[tuple[str, str]], at: int) -> list[Any]:
    items: list[Any] = []
    answers: list[Any] = []
    for number, (kind, text) in enumerate(turn):
        match kind:
            case "think":
                summary = [{"type": "summary_text", "text": text}]
                items.append(
                    {
                        "type": "reasoning",
                        "id": f"rs_{at}_{number}",
                        "encrypted_content": secret(number),
                        "summary": summary,
                    }
                )
            case "hide":
                action = {"type": "search", "query": text}
                items.append(
                    {
                        "type": "web_search_call",
                        "id": f"ws_{at}_{secret(number)}",
                        "status": "completed",
                        "action": action,
                    }
                )
            case "say":
                items.append({"type": "message", "role": "assistant", "content": text})
            case _:
                call_id = f"c{at}_{number}"
                items.append(
                    {"type": "function_call", "call_id": call_id, "name": "look", "arguments": json.dumps({"q": text})}
                )
                output = f"Error: {text}" if kind == "fail" else text
                answers.append({"type": "function_call_output", "call_id": call_id, "output": output})
    return items + answers


ASK = {
    "gemini": {"role": "user", "parts": [{"text": "Go on."}]},
    "anthropic": {"role": "user", "content": "Go on."},
    "openai-chat": {"role": "user", "content": "Go on."},
    "openai-responses": {"type": "message", "role": "user", "content": "Go on."},
}
WRITERS = {"gemini": gemini, "anthropic": anthropic, "openai-chat": openai_chat, "openai-responses": openai_responses}


def history_of(form: Form, talk: list[list[tuple[str, str]]]) -> list[Any]:
    return [one for at, turn in enumerate(talk) for one in (ASK[form], *WRITERS[form](turn, at))] + [ASK[form]]


@pairs
@FEWER_EACH
@given(talk=st.lists(turns, min_size=1, max_size=3))
def test_nothing_that_only_its_writer_can_read_crosses(
    written_by: Form, sent_to: Form, talk: list[list[tuple[str, str]]]
) -> None:
    messages, _ = repair(read_history(written_by, history_of(written_by, talk)), form=sent_to)
    sent = builder(sent_to)(messages)
    assert validate(sent_to, sent) == []
    sdk_takes(sent_to, sent)
    if PROVIDER[written_by] != PROVIDER[sent_to]:
        assert "secret" not in shown_secrets(sent)
    for turn in talk:
        for kind, text in turn:
            if kind in ("say", "call", "fail"):
                assert any(text in one for one in texts(sent))


def shown_secrets(sent: Any) -> str:
    """All that is sent; what is base64 of a secret is read."""
    return "secret" if any(secret(number)[:12] in shown(sent) for number in range(5)) else ""


def texts(value: Any) -> list[str]:
    """Every text of plain data, and those of JSON in it."""
    match value:
        case dict():
            return [text for one in value.values() for text in texts(one)]
        case list():
            return [text for one in value for text in texts(one)]
        case str():
            return [value, *json_texts(value)]
    return []


def json_texts(text: str) -> list[str]:
    try:
        read_ = json.loads(text)
    except ValueError:
        return []
    return [] if isinstance(read_, str) else texts(read_)


@pairs
@FEWER_EACH
@given(talk=st.lists(turns, min_size=1, max_size=3))
def test_a_failed_result_stays_one_and_no_other_becomes_one(
    written_by: Form, sent_to: Form, talk: list[list[tuple[str, str]]]
) -> None:
    messages, _ = repair(read_history(written_by, history_of(written_by, talk)), form=sent_to)
    again, _ = repair(read_history(sent_to, builder(sent_to)(messages)), form=sent_to)
    wanted = [kind == "fail" for turn in talk for kind, _ in turn if kind in ("call", "fail")]
    for some in (messages, again):
        assert [
            result.is_error for one in some if isinstance(one, AssistantMessage) for result in one.results
        ] == wanted


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "text", ["Error: boom", "error: boom", "Output: Error: x", "Output: x", "", "plain", "Errors: 3"]
)
@pytest.mark.parametrize("is_error", [False, True])
def test_no_text_makes_a_result_an_error_or_keeps_it_from_being_one(form: Form, text: str, is_error: bool) -> None:
    turn = AssistantMessage((ToolCall("a", "look", {}),), (ToolResult("a", "look", text, is_error),))
    sent = builder(form)((UserMessage((Text("Go."),)), turn, UserMessage((Text("Go on."),))))
    messages, _ = repair(read_history(form, sent), form=form)
    (result,) = [result for one in messages if isinstance(one, AssistantMessage) for result in one.results]
    assert result.is_error is is_error
    if not is_error:
        assert result.text == text


@pytest.mark.parametrize("failed", [False, True])
def test_a_shell_that_failed_says_so_by_its_exit_code(failed: bool) -> None:
    item = {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "c",
        "action": {"commands": ["false"]},
        "status": "completed",
    }
    turn = AssistantMessage(
        (Reasoning("", mark({"item": item})), ToolCall("c", "shell", {})), (ToolResult("c", "shell", "out", failed),)
    )
    (answer,) = [one for one in to_input((turn,)) if one["type"] == "shell_call_output"]
    assert answer["output"][0]["outcome"] == {"type": "exit", "exit_code": int(failed)}


def test_a_local_shell_call_is_answered_with_its_id() -> None:
    item = {
        "type": "local_shell_call",
        "id": "lsh_1",
        "call_id": "c",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
        "status": "completed",
    }
    turn = AssistantMessage(
        (Reasoning("", mark({"item": item})), ToolCall("c", "local_shell", {})), (ToolResult("c", "local_shell", "a"),)
    )
    sent = [{"type": "message", "role": "user", "content": "Look."}, *to_input((turn,))]
    assert sent[-1] == {"type": "local_shell_call_output", "id": "c", "call_id": "c", "output": "a"}
    assert validate("openai-responses", sent) == []
    sdk_takes("openai-responses", sent)


# --- who signed it

CLAUDE = "anthropic:claude-sonnet-4-5-20250929"


@pytest.mark.parametrize(
    ("signed_by", "provider", "model", "sent"),
    [
        (CLAUDE, "anthropic", "claude-sonnet-4-5", True),
        (CLAUDE, "anthropic", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", True),
        (CLAUDE, "anthropic", "claude-sonnet-4-5@20250929", True),
        (CLAUDE, "anthropic", "claude-opus-4-1", False),
        (CLAUDE, "anthropic", "claude-sonnet-4-0", False),
        (CLAUDE, "anthropic", "anthropic/claude-sonnet-4.5", True),
        ("anthropic:claude-opus-4-20250514", "anthropic", "claude-opus-4-0", True),
        ("anthropic:claude-3-7-sonnet-20250219", "anthropic", "claude-3-7-sonnet-latest", True),
        (CLAUDE, "anthropic", "our-deployment", True),
        (CLAUDE, "anthropic", None, True),
        ("anthropic", "anthropic", "claude-opus-4-1", True),
        ("anthropic:MiniMax-M2", "anthropic", "claude-opus-4-1", False),
        (CLAUDE, "google", "gemini-3-pro", False),
        (CLAUDE, "openai", "gpt-5", False),
        ("google:gemini-2.5-pro", "google", "gemini-3-flash", True),
        ("google:gemini-2.5-pro", "anthropic", "claude-opus-4-1", False),
        ("openai:gpt-5", "openai", "o4-mini", True),
        ("openai:gpt-5", "openai", "x-ai/grok-4", False),
        ("openai:gemini-3-pro", "openai", "google/gemini-3-flash", True),
        ("openai:gemini-3-pro", "openai", "gpt-5", False),
        (None, "openai", "gpt-5", True),
    ],
)
def test_a_signature_goes_to_whoever_gave_it(
    signed_by: str | None, provider: str, model: str | None, sent: bool
) -> None:
    assert goes_to(signed_by, provider, model) is sent


def test_another_model_is_not_sent_what_it_would_refuse() -> None:
    said = AssistantMessage(
        (
            Reasoning("", REDACTED + secret(1), CLAUDE),
            Reasoning("hm", secret(2), CLAUDE),
            Reasoning("", mark({"extra_content": {"google": secret(3)}}), origin("openai", "gemini-3-pro")),
            Reasoning("", mark({"reasoning": {"id": "rs", "encrypted_content": secret(4)}}), origin("openai", "gpt-5")),
            Reasoning("", secret(0), origin("google", "gemini-3-pro")),
            Text("done"),
            ToolCall("a", "look", {}),
        ),
        (ToolResult("a", "look", "x"),),
    )
    found = {
        "sonnet": to_anthropic((said,), model="claude-sonnet-4-5"),
        "opus": to_anthropic((said,), model="claude-opus-4-1"),
        "gemini": to_contents((said,), model="gemini-3-pro"),
        "compatible": to_chat((said,), model="gemini-3-pro"),
        "gpt chat": to_chat((said,), model="gpt-5"),
        "gpt": to_input((said,), model="gpt-5"),
        "grok": to_input((said,), model="grok-4"),
    }
    secrets = {
        name: [number for number in range(5) if secret(number)[:14] in shown(sent)] for name, sent in found.items()
    }
    assert secrets == {
        "sonnet": [1, 2],
        "opus": [],
        "gemini": [0],
        "compatible": [3],
        "gpt chat": [],
        "gpt": [4],
        "grok": [],
    }


# --- what no service takes

LONE = st.sampled_from(["a\ud800", "\udfff", "ok", "é"])


@pytest.mark.parametrize("form", FORMS)
@given(call_id=LONE, thought=LONE, text=LONE, repaired=st.booleans())
def test_half_a_surrogate_pair_is_sent_to_nobody(
    form: Form, call_id: str, thought: str, text: str, repaired: bool
) -> None:
    name = text
    said = AssistantMessage(
        (
            Reasoning(thought, secret(0)),
            Reasoning("", REDACTED + thought),
            Reasoning("", mark({"reasoning": {"id": "r", "encrypted_content": thought}})),
            Text(text),
            ToolCall(call_id, name, {thought: text}),
        ),
        (ToolResult(call_id, name, text, is_error=True),),
    )
    history: Any = (UserMessage((Text(text),)), said, UserMessage((Text("Go on."),)))
    if repaired:
        history, report = repair(history, form=form)
        kept = call_id == "ok" or (call_id == "é" and form != "anthropic")
        assert ("id_rewritten" in report.counts) is not kept
    json.dumps(builder(form)(history), default=str, ensure_ascii=False).encode()


@pytest.mark.parametrize("form", FORMS)
def test_an_id_that_is_changed_is_in_the_report(form: Form) -> None:
    said = AssistantMessage((ToolCall("a", "look", {}),), (ToolResult("", "look", "x"),))
    (_, repaired), report = repair((UserMessage((Text("Go."),)), said), form=form)
    assert isinstance(repaired, AssistantMessage)
    assert repaired.results[0].id == "a"
    assert [one.kind.value for one in report.repairs] == ["id_rewritten"]
