"""Codex rollouts: the new shape (`session_meta`, then `type` and `payload`), the old one (bare
items after a line with the session), and what `codex exec --json` prints.

A model response has no id. It ends when a result or a token count has come and another item of the
model follows. Contents and calls are in `response_item`. The events about the same contents and
calls (`agent_message`, `exec_command_end`) are left out, or each call would count twice.
`compacted` holds the whole history again, which is not read either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from monitor._util.hashing import identity
from monitor.chunks import NO_USAGE, Usage
from monitor.transcripts.base import (
    Began,
    CompactionSeen,
    EndState,
    ReadReport,
    RecordedCall,
    RecordedMessage,
    RecordedResult,
    TranscriptEntry,
)
from monitor.transcripts.readers.base import NO_FACTS, NOTHING, LineReader, RecentIds
from monitor.transcripts.readers.values import (
    call_of,
    parsed,
    result_of,
    rows,
    seconds,
    table,
    text,
    tokens_of,
    whole,
    words,
)
from monitor.transcripts.source import Source

_CALLS: Final = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "tool_search_call": "arguments",
    "web_search_call": "action",
    "image_generation_call": "prompt",
}
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_SHOWN: Final = ("command", "server", "tool", "arguments", "changes", "query")
"""The fields of a finished item that describe its call."""
_QUIET: Final = frozenset({"world_state", "inter_agent_communication_metadata", "error", "token_usage_record"})
_OWN_CALLS: Final = frozenset({"web_search_call", "image_generation_call"})
"""The provider carries these out itself, and gives no result."""
_EXIT_CODE: Final = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,10})$", re.MULTILINE)
_REMINDERS: Final = ("<environment_context>", "<user_instructions>", "# AGENTS.md", "<INSTRUCTIONS>", "<permissions")
_HEAD_CHARS: Final = 2_000


class CodexReader(LineReader):
    """Reads rollouts and the events of `codex exec --json`."""

    format = "codex"
    agent = "Codex"
    places = (
        ".codex/sessions/**/*.jsonl",
        ".codex/sessions/**/*.jsonl.zst",
        ".codex/archived_sessions/*.jsonl*",
        ".codex/sessions/rollout-*.json",
    )
    head: ClassVar[Mapping[str, str]] = {
        "run": "thread_id id",
        "parent": "parent_thread_id forked_from_id",
        "project": "cwd",
        "model": "model",
    }

    def __init__(self, source: Source = NOTHING) -> None:
        super().__init__(source)
        self._ids = RecentIds()
        self._total: Usage | None = None
        """The tokens of the session, as the latest event counts them."""
        self._forked = False

    def fits(self, source: Source) -> bool:
        """`session_meta`; a bare session line; `thread.started`; or a document of a session and its
        items.
        """
        if _items(source) is not None:
            return True
        first = source.first_record
        if first.get("type") == "session_meta" and isinstance(first.get("payload"), dict):
            return True
        if first.get("type") == "thread.started" and "thread_id" in first:
            return True
        return "type" not in first and {"id", "timestamp", "instructions"} <= first.keys()

    def reading_of(self, source: Source) -> LineReader | None:
        return None if _items(source) is not None else super().reading_of(source)

    def read_document(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from CodexReader(source).take_all(map(table, _items(source) or []), report)

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind, payload = text(record.get("type")), table(record.get("payload"))
        # a fork has the lines of its parents too, before its own work
        session = payload.get("id") if kind == "session_meta" and not self._forked else None
        if self.is_foreign(session, report):
            return
        if kind == "session_meta":
            yield from self.begin(payload)
        elif kind == "thread.started" or (not kind and "instructions" in record):
            yield from self.begin(record)
        elif kind == "turn_context":
            self.run.model = text(payload.get("model")) or self.run.model
        elif kind == "response_item":
            yield from self._item(payload, seconds(record.get("timestamp")), report)
        elif kind == "event_msg":
            self._event(payload)
        elif kind == "compacted":
            yield from self.flush()
            yield CompactionSeen(run=self.run.id, at=seconds(record.get("timestamp")))
        elif kind == "item.completed":
            yield from self._printed(table(record.get("item")))
        elif kind.startswith(("turn.", "item.")):
            self._turn(kind, record)
        elif kind in {*_CALLS, *_RESULTS, "message", "reasoning"}:  # the old shape
            yield from self._item(record, None, report)
        elif kind not in _QUIET and "record_type" not in record:
            report.does_not_know(kind)

    def begin(self, record: Mapping[str, Any] = NO_FACTS) -> Iterator[Began]:
        """The line of the session. A fork has those of its parents, too: the first is its own."""
        for began in super().begin(record):
            self._forked, self.run.model = began.parent is not None, began.model
            yield began

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from self.begin()
        yield from super().end(report)

    def _item(self, item: Mapping[str, Any], at: float | None, report: ReadReport) -> Iterator[TranscriptEntry]:
        kind = text(item.get("type"))
        role = item.get("role")
        if not self._ids.is_new(_identity(item)):
            report.repeated += 1
            return
        if kind == "message" and role != "assistant":
            yield from self.flush()
            said = words(item.get("content"))
            if role == "user":
                yield self.run.asked(said, at, synthetic=said.startswith(_REMINDERS))
            else:
                yield self.run.said(RecordedMessage("system", said, synthetic=True, at=at))
        elif kind in {"message", "reasoning", "agent_message"} or kind in _CALLS:
            if self.run.held.usage is not None:
                yield from self.flush()
            yield from self.piece(at)
            held = self.run.held
            if kind in _CALLS:
                call = _call(item, kind)
                held.calls.append(call)
                if kind in _OWN_CALLS and call.id:
                    held.answers.append(result_of("", text(item.get("status")), call_id=call.id))
            elif kind == "reasoning":
                held.reasoning.append(words(item.get("summary")))
            else:
                held.text.append(words(item.get("content")))
        elif kind in _RESULTS:
            self.run.held.answers.append(_result(item))
        elif kind != "ghost_snapshot":
            report.does_not_know(kind)

    def _event(self, event: Mapping[str, Any]) -> None:
        """Read ends and tokens. Everything else stands in the items as well."""
        match event.get("type"):
            case "token_count" if tokens := table(event.get("info")):
                self._count(*(_usage(table(tokens.get(f"{which}_token_usage"))) for which in ("total", "last")))
            case "task_started":
                self.run.ended = None
            case "task_complete":
                self.run.ended = ("finished", "task_complete")
            case "turn_aborted":
                self.run.ended = ("aborted", text(event.get("reason")) or "turn_aborted")
            case "error":
                info: object = event.get("codex_error_info")
                name = info if isinstance(info, str) else next(iter(table(info)), "")
                state: EndState = "limit" if "usage_limit" in name else "failed"
                self.run.ended = (state, name or text(event.get("message"))[:200])
            case _:
                pass

    def _count(self, total: Usage, last: Usage) -> None:
        """The tokens of the latest request. `total`: of the session. A request without an event of
        its own is in the next one. A fork begins with the tokens of its parent.
        """
        before, held = self._total, self.run.held
        if before is None:
            held.usage = last if self._forked else max(total, last, key=lambda one: one.total_tokens)
        elif total.total_tokens > before.total_tokens:
            new = _difference(total, before)
            held.usage = new if held.usage is None else held.usage + new
        self._total = max(total, before or NO_USAGE, key=lambda one: one.total_tokens)

    def _printed(self, item: Mapping[str, Any]) -> Iterator[TranscriptEntry]:
        """A finished item of `codex exec --json`."""
        match item.get("type"):
            case "agent_message" | "assistant_message" | "reasoning" as kind:
                yield from self.piece()
                pieces = self.run.held.reasoning if kind == "reasoning" else self.run.held.text
                pieces.append(text(item.get("text")))
            case "command_execution" | "mcp_tool_call" | "file_change" | "web_search":
                call = call_of(item["type"], {key: item[key] for key in _SHOWN if key in item}, item.get("id"))
                self.run.held.calls.append(call)
                output = words(item.get("aggregated_output")) or words(item.get("result"))
                failed = item.get("status") == "failed" or whole(item.get("exit_code")) > 0
                self.run.held.answers.append(result_of("", output, is_error=failed, call_id=call.id))
            case _:
                pass

    def _turn(self, kind: str, record: Mapping[str, Any]) -> None:
        """The events of a turn of `codex exec --json`."""
        if kind == "turn.completed":
            self.run.held.usage = _usage(table(record.get("usage")))
            self.run.ended = ("finished", kind)
        elif kind == "turn.failed":
            self.run.ended = ("failed", text(table(record.get("error")).get("message"))[:200])
        elif kind == "turn.started":
            self.run.ended = None


def _items(source: Source) -> list[Any] | None:
    """The items of a session as one document, as the first versions have written it, with the line
    of the session before them.
    """
    document = source.document
    if not isinstance(document, dict) or not {"session", "items"} <= document.keys():
        return None
    session = table(document["session"])
    return [{"instructions": None, **session}, *rows(document["items"])] if "id" in session else None


def _identity(item: Mapping[str, Any]) -> str | None:
    """The identity of an item, which may stand twice. Local servers use an id (`fc_0`) again in
    each response, so the call, or the words, are part of it. `None`: the item has no id.
    """
    id = text(item.get("id"))
    said = text(item.get("call_id")) or words(item.get("content")) or words(item.get("summary"))
    return f"{id}/{identity(said)}" if id else None


def _call(item: Mapping[str, Any], kind: str) -> RecordedCall:
    given = item.get(_CALLS[kind])
    if kind == "function_call" and isinstance(given, str):
        read = parsed(given)
        given = {"arguments": given} if read == given else read
    return call_of(item.get("name") or kind.removesuffix("_call"), given, item.get("call_id") or item.get("id"))


def _result(item: Mapping[str, Any]) -> RecordedResult:
    output = item.get("output", item.get("tools"))
    said = output if isinstance(output, str) else words(output) or json.dumps(output)
    refusal = "Command blocked by PreToolUse hook: "
    return result_of("", said, is_error=_failed(said), call_id=item.get("call_id"), refusal=refusal)


def _failed(output: str) -> bool:
    """The exit code stands in the text, or in JSON in older versions. There is no field for it."""
    if output.startswith("{"):
        code = table(table(parsed(output)).get("metadata")).get("exit_code")
        return isinstance(code, int) and code != 0
    found = _EXIT_CODE.search(output, 0, _HEAD_CHARS)
    return found is not None and int(found[1]) != 0


def _usage(usage: Mapping[str, Any]) -> Usage:
    thinking, cached = "reasoning_output_tokens", "cached_input_tokens"
    return tokens_of(usage, "input_tokens", "output_tokens", thinking=thinking, cached=cached) or NO_USAGE


def _difference(total: Usage, before: Usage) -> Usage:
    return Usage(*(max(0, getattr(total, name) - getattr(before, name)) for name in Usage.__match_args__))
