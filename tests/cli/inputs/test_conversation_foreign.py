"""What is not understood is refused, in one sentence, by every command that reads a file; and never
called fine.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from monitor import AssistantMessage, UserMessage
from monitor.chunks import ToolCall, ToolResult
from monitor.cli.app import app
from monitor.messages import Message, Text, message_codec
from monitor.wires.read import FORMS, Kept, forms_of
from tests.context.wire import FORMS as PROVIDERS
from tests.context.wire import builder

FOLDERS = sorted((Path(__file__).parents[3] / "fixtures" / "streams").iterdir())
STREAMS = [path for folder in FOLDERS if folder.is_dir() for path in sorted(folder.iterdir())[:2]]

Record = dict[str, Any]


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


SAYS = "I look at it again. " * 200
CLAUDE = {"parentUuid": None, "sessionId": "s", "uuid": "u", "version": "2.1.0", "cwd": "/x"}
SESSIONS: dict[str, bytes] = {
    "Claude Code": lines(
        {"type": "summary", "summary": "x", "leafUuid": "u"},
        {**CLAUDE, "type": "user", "message": {"role": "user", "content": "hi"}},
        {
            **CLAUDE,
            "type": "assistant",
            "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": SAYS}]},
        },
    ),
    "Claude Code, as a stream": lines(
        {"type": "system", "subtype": "init", "session_id": "s", "tools": []},
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": [{"type": "text", "text": SAYS}]},
            "session_id": "s",
        },
        {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1},
    ),
    "Codex": lines(
        {"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "x", "cwd": "/x"}},
        {
            "timestamp": "2026-01-01T00:00:00Z",
            "type": "response_item",
            "payload": {"type": "message", "role": "assistant", "content": []},
        },
    ),
    "Codex, old": lines(
        {"id": "x", "timestamp": "2025-05-01T00:00:00Z", "instructions": None, "git": {}},
        {"record_type": "state"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SAYS}]},
    ),
    "Codex, as a stream": lines(
        {"type": "thread.started", "thread_id": "x"},
        {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": SAYS}},
    ),
    "Gemini CLI": json.dumps(
        {
            "sessionId": "s",
            "projectHash": "h",
            "messages": [{"id": "1", "type": "user", "content": "x"}, {"type": "gemini", "content": SAYS}],
        }
    ).encode(),
    "Qwen Code": lines(
        {"uuid": "u", "type": "assistant", "message": {"role": "model", "parts": [{"text": SAYS}]}, "sessionId": "s"}
    ),
    "opencode": json.dumps(
        {
            "info": {"id": "s"},
            "messages": [
                {
                    "info": {"role": "assistant", "id": "m"},
                    "parts": [{"type": "text", "text": SAYS}, {"type": "step-finish"}],
                }
            ],
        }
    ).encode(),
    "Copilot CLI": lines(
        {"type": "session.start", "data": {"producer": "copilot-agent"}, "id": "1"},
        {"type": "assistant.message", "data": {"content": SAYS, "toolRequests": []}, "id": "2"},
    ),
    "pi": lines(
        {"type": "session", "version": 3, "id": "s"},
        {"type": "message", "id": "m", "message": {"role": "assistant", "content": []}},
    ),
    "Kimi CLI": lines(
        {"type": "metadata", "protocol_version": "1"},
        {"type": "context.append_loop_event", "event": {"type": "content.part"}},
    ),
    "Cursor CLI": lines({"role": "user", "message": {"content": [{"type": "text", "text": SAYS}]}}),
    "SWE-agent": json.dumps(
        {
            "trajectory": [],
            "history": [{"role": "assistant", "content": SAYS, "agent": "main", "thought": "x", "action": "ls"}],
            "info": {},
        }
    ).encode(),
    "OpenHands": json.dumps(
        [{"id": 0, "source": "agent", "action": "run", "args": {"command": "ls"}, "message": SAYS}]
    ).encode(),
    "ATIF": json.dumps(
        {
            "schema_version": "ATIF-v1.4",
            "agent": {"name": "x"},
            "steps": [{"step_id": 1, "source": "agent", "message": SAYS}],
        }
    ).encode(),
    "tau-bench": json.dumps([{"task_id": 1, "reward": 1.0, "traj": [{"role": "assistant", "content": SAYS}]}]).encode(),
    "Inspect": json.dumps(
        {
            "version": 2,
            "status": "success",
            "eval": {},
            "samples": [{"messages": [{"role": "assistant", "content": SAYS}]}],
        }
    ).encode(),
    "OpenTelemetry": json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "chat"}]}]}]}).encode(),
    "LangSmith": json.dumps(
        {"post": [{"id": "r", "run_type": "llm", "inputs": {"messages": []}}], "patch": []}
    ).encode(),
    "LangChain": json.dumps(
        [{"type": "human", "data": {"content": "hi"}}, {"type": "ai", "data": {"content": SAYS, "tool_calls": []}}]
    ).encode(),
    "UIMessages": json.dumps(
        [{"id": "1", "role": "assistant", "parts": [{"type": "text", "text": SAYS}, {"type": "tool-look"}]}]
    ).encode(),
    "VS Code": json.dumps(
        {
            "version": 3,
            "responderUsername": "x",
            "requests": [{"message": {"text": "hi"}, "response": [{"value": SAYS}]}],
        }
    ).encode(),
    "aider": b"# aider chat started at 2026-01-01 10:00:00\n\n#### hi\n" + SAYS.encode() + b"\n> Tokens: 3k sent\n",
}
"""Made by hand: what tells each of them, and a text that repeats itself, so that an all-clear would
be wrong.
"""

SEED = random.Random(7)
OTHERS: dict[str, bytes] = {
    "empty": b"",
    "one blank line": b"\n",
    "blanks": b"  \n\t\n\r\n",
    "a byte order mark": b"\xef\xbb\xbf",
    "a byte order mark and a line end": b"\xef\xbb\xbf\n",
    "binary": SEED.randbytes(60_000),
    "NUL": bytes(5_000),
    "UTF-16": json.dumps([{"role": "user", "content": "hi"}]).encode("utf-16"),
    "UTF-32": json.dumps([{"role": "user", "content": "hi"}]).encode("utf-32"),
    "Latin-1": '{"role": "user", "content": "caf\xe9"}'.encode("latin-1"),
    "gzip of nothing": gzip.compress(b""),
    "gzip of binary": gzip.compress(SEED.randbytes(20_000)),
    "gzip of gzip": gzip.compress(gzip.compress(lines({"role": "user", "content": "hi"}))),
    "gzip, cut": gzip.compress(SEED.randbytes(20_000))[:-900],
    "ZIP": b"PK\x03\x04" + SEED.randbytes(500),
    "SQLite": b"SQLite format 3\x00" + bytes(500),
    "a text": b"hello world\n" * 300,
    "any JSON": lines(*({f"k{SEED.randrange(9)}": SEED.random()} for _ in range(400))),
    "JSON with a type": lines(*({"type": SEED.choice(["a", "user", "item", "message"]), "x": 1} for _ in range(400))),
    "an empty list": b"[]",
    "an empty object": b"{}",
    "a JSON text": b'"hello"',
    "a number": b"17",
    "null": b"null",
    "lists": b"[[[1], [2]]]",
    "messages without words": json.dumps({"messages": [{"role": "user"}, {"role": "assistant"}]}).encode(),
    "a run without messages": lines({"id": "a", "messages": []}),
    "a run of a user alone": lines({"id": "a", "messages": [{"role": "user", "text": SAYS}]}),
    "a run with content": lines({"id": "a", "messages": [{"role": "assistant", "content": SAYS}]}),
    "a run with content and text": lines({"id": "a", "messages": [{"role": "assistant", "text": "", "content": SAYS}]}),
    "a run with parts": lines({"id": "a", "messages": [{"role": "assistant", "parts": [{"text": SAYS}]}]}),
    "a run with calls of OpenAI's": lines(
        {
            "id": "a",
            "messages": [
                {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f"}}]}
            ],
        }
    ),
}
FILES = {**SESSIONS, **OTHERS, **{f"{path.parent.name}/{path.name}": path.read_bytes() for path in STREAMS}}
COMMANDS: Mapping[str, Sequence[str]] = {
    "scan": ("scan", "FILE"),
    "context": ("sessions", "context", "FILE"),
    "compact": ("sessions", "compact", "FILE"),
    "judge-eval": ("calibrate", "judge-eval", "--judge", "replay:REPLIES", "FILE"),
    "run": ("run", "x", "--model", "replay:FILE"),
    "run --plan": ("run", "x", "--demo", "--plan", "FILE"),
}
READS_ANY_TEXT = frozenset({"run --plan"})
"""A plan is any text, a step a line."""
UNDERSTOOD = {
    "a run without messages": {"judge-eval"},
    "Latin-1": {"judge-eval"},
    "a run of a user alone": {"judge-eval"},
    "a run with content": {"context", "compact", "scan", "judge-eval", "run"},
    "a run with content and text": {"scan", "judge-eval", "run"},
    "a run with calls of OpenAI's": {"context", "compact", "scan", "judge-eval", "run"},
    **{name: {"scan", "context", "compact", "judge-eval", "run"} for name in SESSIONS},
}
"""Which commands do know what it is: a run that has no label, messages of OpenAI's chat, what an
agent has written.
"""


def run(folder: Path, command: str, data: bytes) -> Any:
    (folder / "file").write_bytes(data)
    (folder / "replies").write_text('{"type": "turn_finished", "finish_reason": "done"}\n')
    places = {"FILE": str(folder / "file"), "REPLIES": str(folder / "replies")}
    arguments = [one.replace("FILE", places["FILE"]).replace("REPLIES", places["REPLIES"]) for one in COMMANDS[command]]
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_understood_is_refused_in_one_sentence(name: str, tmp_path: Path):
    for command in COMMANDS.keys() - READS_ANY_TEXT - UNDERSTOOD.get(name, set()):
        done = run(tmp_path, command, FILES[name])
        assert isinstance(done.exception, SystemExit), (command, done.exception)
        assert done.exit_code == 2, (command, done.output)
        said = done.stderr.splitlines()
        assert len(said) == 1, (command, said)
        assert "file" in said[0]
        if command in {"context", "compact", "run"}:
            assert done.stdout == "", command
        if command == "scan":
            assert "could not be read" in done.stdout


@pytest.mark.parametrize("name", SESSIONS)
@pytest.mark.parametrize("command", ["context", "compact"])
def test_a_session_of_an_agent_is_its_history_or_refused_in_one_sentence(name: str, command: str, tmp_path: Path):
    done = run(tmp_path, command, SESSIONS[name])
    assert isinstance(done.exception, SystemExit | None), (command, done.exception)
    if done.exit_code == 2 or not done.stdout:  # 1: there is nothing to compact
        assert (done.stdout, len(done.stderr.splitlines())) == ("", 1)
    else:
        assert "tokens" in done.stdout


SAYS_NOTHING = {"Codex", "pi", "Kimi CLI", "Cursor CLI", "OpenTelemetry", "LangSmith"}
"""Sessions above in which no model says anything."""


@pytest.mark.parametrize("name", sorted(SESSIONS.keys() - {"OpenHands"}))
def test_a_scan_finds_the_loop_in_what_an_agent_has_written(name: str, tmp_path: Path):
    done = run(tmp_path, "scan", SESSIONS[name])
    assert done.exit_code == (2 if name in SAYS_NOTHING else 1), done.output
    if name not in SAYS_NOTHING:
        assert "content_repetition" in done.stdout


@pytest.mark.parametrize("name", ["binary", "UTF-16", "gzip of binary", "NUL", "empty", "Latin-1"])
def test_a_plan_that_is_no_text_is_refused(name: str, tmp_path: Path):
    done = run(tmp_path, "run --plan", FILES[name])
    assert (done.exit_code, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("UTF-16", "text in UTF-16"),
        ("UTF-32", "text in UTF-32"),
        ("ZIP", "a ZIP archive"),
        ("SQLite", "an SQLite database"),
        ("NUL", "binary data"),
        ("gzip of gzip", "gzipped twice"),
    ],
)
@pytest.mark.parametrize("command", ["scan", "context"])
def test_what_the_file_is_instead_is_said_where_its_bytes_say_it(name: str, kind: str, command: str, tmp_path: Path):
    assert f"it is {kind}" in run(tmp_path, command, FILES[name]).stderr


@pytest.mark.parametrize("command", ["scan", "report", "calibrate"])
def test_a_run_with_a_wrong_field_is_told_what_is_wrong_and_not_what_else_it_is(command: str, tmp_path: Path):
    (tmp_path / "run.jsonl").write_bytes(lines({"id": "1", "messages": [{"role": "user", "text": "hi", "colour": 1}]}))
    options = ["-o", str(tmp_path / "page.html")] if command == "report" else []
    done = CliRunner().invoke(app, [command, str(tmp_path / "run.jsonl"), *options])
    assert done.exit_code == 2
    assert "run.jsonl:1: messages.0.colour: there is no such field here" in done.stderr
    assert "is not a recorded run" not in done.output
    assert "agent-monitor scan reads" not in done.output


def test_a_thousand_lines_that_cannot_be_read_are_three_lines_and_a_number(tmp_path: Path):
    fine = {"id": "a", "messages": [{"role": "assistant", "text": "done"}]}
    done = run(tmp_path, "scan", lines(fine, *({"x": n} for n in range(1000)), fine))
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 4
    assert done.stderr.splitlines()[-1].endswith("and 997 more lines could not be read")
    assert "2 runs in" in done.stdout
    assert "1,000 lines or files could not be read" in done.stdout


# ------------------------------------------------------------------ mixtures

TALK: tuple[Message, ...] = (
    UserMessage((Text("Which files are there?"),)),
    AssistantMessage(
        (Text("Let me see."), ToolCall("c1", "list_files", {"path": "."})), (ToolResult("c1", "list_files", "a.py"),)
    ),
    AssistantMessage((Text("One: a.py."),)),
)
STRANGE: list[Record] = [
    {"type": "user", "message": {"role": "user", "content": "hi"}},
    {"role": "user", "content": "hi", "agent": "main"},
    {"type": "response.output_text.delta", "delta": "hi"},
    {"type": "item", "id": "1"},
    {"role": "robot", "content": "hi"},
    {"role": "user", "message": "hi"},
    {"role": "assistant", "content": [{"type": "tool-look"}]},
    {},
]


def records(form: Kept) -> list[Record]:
    if form == "neutral":
        return [message_codec.to_dict(message) for message in TALK]
    return [dict(record) for record in builder(form)(TALK)]


@pytest.mark.parametrize("strange", STRANGE, ids=lambda record: ",".join(record) or "nothing")
@pytest.mark.parametrize("form", FORMS)
def test_one_strange_record_among_those_of_a_form_is_counted_and_the_file_refused(
    form: Kept, strange: Record, tmp_path: Path
):
    mixed = records(form)
    mixed.insert(1, strange)
    done = run(tmp_path, "context", lines(*mixed))
    assert done.exit_code == 2
    assert f"1 of its {len(mixed)} records is not understood, the first is message 1" in done.stderr


@pytest.mark.parametrize("form", [form for form in FORMS if form not in {"openai-chat", "neutral"}])
def test_records_of_two_forms_are_refused_with_the_numbers(form: Kept, tmp_path: Path):
    done = run(tmp_path, "context", lines(*records("neutral"), *records(form)))
    assert done.exit_code == 2
    assert "records are not of one form (" in done.stderr
    assert "3 may be neutral" in done.stderr


@pytest.mark.parametrize("form", PROVIDERS)
def test_with_the_form_said_what_is_none_of_it_is_counted_and_it_is_not_called_fine(form: Kept, tmp_path: Path):
    mixed = [*records(form), {"role": "user", "content": "hi", "parts": [{"text": "hi"}], "agent": "x"}]
    (tmp_path / "file").write_bytes(lines(*mixed))
    done = CliRunner().invoke(app, ["sessions", "context", str(tmp_path / "file"), "--form", form, "--json"])
    data = json.loads(done.stdout)
    assert (done.exit_code, data["ok"], data["not_understood"]) == (1, False, 1)
    done = CliRunner().invoke(app, ["sessions", "context", str(tmp_path / "file"), "--form", form])
    assert f"1 of its {len(mixed)} records is none of {form}" in done.stdout


@pytest.mark.parametrize("form", PROVIDERS)
def test_a_form_that_none_of_the_records_has_is_refused_although_it_is_said(form: Kept, tmp_path: Path):
    (tmp_path / "file").write_bytes(lines({"type": "item", "id": "1", "role": "user", "agent": "x"}))
    done = CliRunner().invoke(app, ["sessions", "context", str(tmp_path / "file"), "--form", form])
    assert done.exit_code == 2
    assert f"none of its 1 records is {form}" in done.stderr


NAMES = [
    "role",
    "type",
    "content",
    "parts",
    "text",
    "id",
    "name",
    "call_id",
    "message",
    "tool_calls",
    "arguments",
    "output",
    "summary",
]
WORDS = ["user", "assistant", "model", "message", "item", "function_call", "reasoning", "text", "gemini", "system", "x"]
PLAIN = st.one_of(st.sampled_from(WORDS), st.integers(), st.none(), st.booleans())
JSON = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
)
RECORDS = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6)


@given(RECORDS, st.sampled_from(FORMS))
def test_an_unknown_field_beside_those_of_a_message_makes_it_nobody_s(record: Record, form: Kept):
    for one in (record, *records(form)):
        if "type" not in one:
            assert forms_of({**one, "agent": "x"}) == frozenset()


@given(RECORDS)
def test_a_record_of_a_form_bears_its_signs(record: Record):
    """Whatever the record: what is taken for a form has a role and words of it, or the type of an
    item or of a message of ours.
    """
    for form in forms_of(record):
        match form:
            case "openai-chat":
                assert record["role"] in WORDS
                assert "content" in record or "tool_calls" in record
            case "anthropic":
                assert isinstance(record["content"], str | list)
            case "gemini":
                assert set(record) <= {"role", "parts"}
            case "openai-responses":
                assert "content" in record or record["type"] in {"function_call", "reasoning"}
            case _:
                raise AssertionError(form)
