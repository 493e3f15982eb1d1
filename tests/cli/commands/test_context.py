"""`context`: a recorded conversation, as a model would be shown it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from monitor import AssistantMessage, UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.cli.app import app
from monitor.context import Form
from monitor.messages import Media, Message, Text, message_codec
from tests.context.talk import ran, said, tokens, user
from tests.context.wire import FORMS, builder

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")

TALK: tuple[Message, ...] = (
    UserMessage((Text("Which files are there?"),)),
    AssistantMessage(
        (Text("Let me see."), ToolCall("c1", "list_files", {"path": "."})), (ToolResult("c1", "list_files", "a.py"),)
    ),
    AssistantMessage((Text("One: a.py."),)),
)
DIRTY = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Which files are there?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call|1", "type": "function", "function": {"name": "list_files", "arguments": "{}"}},
                {"id": "call|2", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a'}},
            ],
        },
        {"role": "user", "content": "Hello?"},
        {"role": "tool", "tool_call_id": "call|1", "content": "a.py"},
        {"role": "tool", "tool_call_id": "call|9", "content": "lost"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {"name": "list_files", "description": "List.", "parameters": {"type": "object"}},
        }
    ],
}


def context(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, ["sessions", "context", *arguments], input=stdin)


def told(file: object, *options: str) -> dict[str, Any]:
    """What it says of a conversation, as JSON."""
    done = context("-", "--json", *options, stdin=file if isinstance(file, str) else json.dumps(file))
    assert done.exit_code in (0, 1), done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    assert data["ok"] is (done.exit_code == 0)
    return data


def lines(talk: tuple[Message, ...]) -> str:
    return "\n".join(map(message_codec.dumps, talk))


# ------------------------------------------------------------------ what is read


@pytest.mark.parametrize("form", FORMS)
def test_every_provider_s_form_is_seen_and_says_the_same(form: Form):
    data = told(builder(form)(TALK))
    assert (data["form"], data["messages"], data["user_turns"], data["ok"]) == (form, 3, 1, True)
    assert data["repairs"] == data["problems"] == data["problems_when_repaired"] == []
    assert data["tokens"]["by_source"]["calls"] > 0
    assert data["tokens"]["low"] < data["tokens"]["total"] < data["tokens"]["high"]


def test_our_own_messages_are_lines():
    data = told(lines(TALK))
    assert (data["form"], data["messages"], data["ok"]) == ("neutral", 3, True)


def test_lines_of_a_provider_s_messages_are_a_conversation_too():
    talk = "\n\n".join(map(json.dumps, builder("openai-chat")(TALK)))
    assert told(talk)["messages"] == 3
    assert told(json.dumps({"role": "user", "content": "one line"}))["messages"] == 1


@pytest.mark.parametrize(
    ("request_body", "form"),
    [
        (
            {
                "messages": [{"role": "user", "content": "hi"}],
                "system": "Be brief.",
                "tools": [{"name": "look", "input_schema": {}}],
            },
            "anthropic",
        ),
        (
            {"input": "hi", "instructions": "Be brief.", "tools": [{"type": "function", "name": "look"}]},
            "openai-responses",
        ),
        (
            {
                "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": {}}]}],
            },
            "gemini",
        ),
        (
            {
                "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
                "tools": [{"type": "function", "function": {"name": "look"}}],
            },
            "openai-chat",
        ),
    ],
)
def test_a_whole_request_has_instructions_and_tools(request_body: dict[str, Any], form: Form):
    data = told(request_body)
    assert (data["form"], data["messages"], data["tools"], data["ok"]) == (form, 1, 1, True)
    assert data["tokens"]["by_source"]["system"] == 3
    assert data["tokens"]["by_source"]["tools"] >= 5


def test_a_file_may_be_gzipped_and_its_form_may_be_said(tmp_path: Path):
    file = tmp_path / "talk.json.gz"
    file.write_bytes(gzip.compress(json.dumps([{"role": "user", "content": "hi"}]).encode()))
    assert "form    openai-chat" in context(str(file)).stdout
    assert "form    anthropic" in context(str(file), "--form", "anthropic").stdout


# ------------------------------------------------------------------ what is said


def test_the_page_shows_what_is_printed():
    done = context("-", stdin=json.dumps(DIRTY))
    assert done.exit_code == 1
    for begin in ("-- the context", "== repairs"):
        shown = done.stdout.partition(begin)[2].partition("\n\n")[0]
        assert "".join(f"    {line.rstrip()}\n" for line in f"{begin}{shown}".splitlines()) in PAGE


def test_a_model_says_the_form_and_the_window():
    data = told(DIRTY, "--model", "anthropic:claude-sonnet-4-5")
    assert data["window"]["source"] == "model"
    assert {one["kind"] for one in data["repairs"]} >= {"id_rewritten"}  # a bar is none of Anthropic's characters
    assert "id_rewritten" not in {one["kind"] for one in told(DIRTY)["repairs"]}
    assert data["problems_when_repaired"] == []


def test_whether_it_fits():
    long = [{"role": "user", "content": tokens(20_000)}]
    fits = {window: told(long, "--window", str(window))["fits"] for window in (19_000, 21_000, 40_000)}
    assert fits == {19_000: "perhaps", 21_000: "perhaps", 40_000: "yes"}
    assert told(long)["fits"] == "unknown"
    done = context("-", "--window", "16000", stdin=json.dumps([{"role": "user", "content": tokens(50_000)}]))
    assert done.exit_code == 1
    assert "no: 34,004 tokens too many" in done.stdout


def test_a_window_that_is_too_small_for_an_agent_is_said():
    done = context("-", "--window", "8000", stdin='{"role": "user", "content": "hi"}')
    assert done.exit_code == 1
    assert "an agent needs at least 16,000" in done.stdout


def test_what_each_reduction_saves_and_where_the_cached_prefix_breaks():
    image = Media("image/png", data="iVBORw0KGgo=", name="chart.png")
    turn: tuple[Message, ...] = (user("next"), ran(tokens(30_000)), said("ok"))
    talk = (user("look", image), ran(tokens(50_000)), said("ok"), *turn * 4)
    reductions = told(lines(talk), "--window", "40000")["reductions"]
    assert reductions["old media"]["breaks_at"] == 0
    assert reductions["old results"]["breaks_at"] == 1
    assert reductions["results that are too long"]["changed"] == 5
    assert reductions["old arguments"] is None
    both = reductions["all together"]
    assert both["breaks_at"] == 0
    assert both["saved_tokens"] > max(
        one["saved_tokens"] for one in (reductions["old media"], reductions["old results"])
    )
    assert "message 1" in context("-", stdin=lines(talk)).stdout


def test_media_that_cannot_be_sent_are_a_problem_of_that_form():
    data = told(lines((UserMessage((Media("video/x-odd", data="AAAA"),)),)))
    assert {one["rule"] for one in data["problems_when_repaired"]} == {"media"}


def test_what_a_model_wrote_reaches_no_terminal_as_a_control_sequence():
    name = "look\x1b[31m"
    call = {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": name, "arguments": "{}"}}],
    }
    done = context("-", stdin=json.dumps([{"role": "user", "content": "hi"}, call]))
    assert "\x1b" not in done.stdout
    assert "name_rewritten" in done.stdout


def test_of_many_repairs_it_shows_a_few():
    orphans = [{"role": "tool", "tool_call_id": str(n), "content": "x"} for n in range(30)]
    done = context("-", stdin=json.dumps([{"role": "user", "content": "hi"}, *orphans]))
    assert "(and 10 more; --json has them)" in done.stdout


# ------------------------------------------------------------------ what is no conversation


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "it is empty"),
        ("{", "it is not JSON: "),
        ('{"role": "user", "content": "a"}\n{"role"', "line 2 is not JSON: "),
        ("3", "a list of messages or a request with one, not int"),
        ("[]", "there are no messages in it"),
        ("[3]", "message 0 is int, not an object"),
        ('[{"messages": []}, {"messages": []}]', "record 0 is a whole conversation; give one"),
        ('[{"role": "assistant", "text": "", "tool_results": []}]', "a recording for agent-monitor scan"),
        ('{"id": 1, "messages": [{"role": "user", "text": "a"}]}\n' * 2, "a recording for agent-monitor scan"),
        (
            '[{"who": "me"}]',
            "no known form has messages like these, with the field who; --form says which they are: gemini",
        ),
        (
            '[{"role": "user", "content": "a"}, {"role": "x", "type": "message", "content": "b"}]',
            "1 of its 2 records is not understood",
        ),
        ('[{"type": "user_message", "content": 3}]', "message 0: user_message.content"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, complaint: str):
    done = context("-", stdin=text)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("agent-monitor: stdin: ")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_message_that_is_none_of_its_form_is_named():
    done = context("-", "--form", "gemini", stdin='[{"role": "system", "parts": []}]')
    assert done.exit_code == 2
    assert "message 0: its role is 'system'; it was read as gemini, --form sets another one" in done.stderr


def test_wrong_options_and_files_are_errors(tmp_path: Path):
    assert "--form x: it is one of gemini, " in context("-", "--form", "x", stdin="[]").stderr
    missing = context(str(tmp_path / "none.json"))
    assert missing.exit_code == 2
    assert "none.json: cannot be read: No such file" in missing.stderr
    (tmp_path / "latin").write_bytes(b"\xe9\xe8")
    assert "it is not text in UTF-8" in context(str(tmp_path / "latin")).stderr
    (tmp_path / "half.gz").write_bytes(gzip.compress(b'"x"' * 99)[:20])
    assert "half.gz: " in context(str(tmp_path / "half.gz")).stderr
