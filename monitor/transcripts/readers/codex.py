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
from typing import Any, Final

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
from monitor.transcripts.readers.base import HeldResponse, LineReader, LineReading, OpenRun, RecentIds
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


class CodexLines(LineReading):
    """A rollout, or the events of `codex exec --json`."""

    def __init__(self, source: Source) -> None:
        self._run = OpenRun(source.stem)
        self._known = False
        self._model = ""
        self._ids = RecentIds()
        self._total: Usage | None = None
        """The tokens of the session, as the latest event counts them."""
        self._forked = self._foreign = False
        self._held = HeldResponse()
        self._results: list[RecordedResult] = []

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
        kind = text(record.get("type"))
        if kind == "session_meta":
            self._foreign = self._foreign or self._is_other(table(record.get("payload")))
        if self._foreign:
            report.is_of_another_session()
        elif kind == "session_meta":
            yield from self._meta(table(record.get("payload")))
        elif kind == "thread.started" or (not kind and "instructions" in record):
            yield from self._meta({**record, "id": record.get("thread_id", record.get("id"))})
        elif kind == "turn_context":
            self._model = text(table(record.get("payload")).get("model")) or self._model
        elif kind == "response_item":
            yield from self._item(table(record.get("payload")), seconds(record.get("timestamp")), report)
        elif kind == "event_msg":
            self._event(table(record.get("payload")))
        elif kind == "compacted":
            yield from self._flush()
            yield CompactionSeen(run=self._run.id, at=seconds(record.get("timestamp")))
        elif kind == "item.completed":
            yield from self._printed(table(record.get("item")))
        elif kind.startswith(("turn.", "item.")):
            self._turn(kind, record)
        elif kind in {*_CALLS, *_RESULTS, "message", "reasoning"}:  # the old shape
            yield from self._item(record, None, report)
        elif kind not in _QUIET and "record_type" not in record:
            report.does_not_know(kind)

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from self._flush()
        if self._known:
            yield self._run.end()

    def _is_other(self, session: Mapping[str, Any]) -> bool:
        """Whether a line of a session begins another one. A fork has the lines of its parents too,
        before its own work.
        """
        return self._known and not self._forked and text(session.get("id")) not in {"", self._run.id}

    def _meta(self, session: Mapping[str, Any]) -> Iterator[TranscriptEntry]:
        """The line of the session. A fork has those of its parents, too: the first is its own."""
        if self._known:
            return
        self._known = True
        self._run.id = text(session.get("id")) or self._run.id
        self._model = text(session.get("model"))
        self._forked = bool(session.get("parent_thread_id") or session.get("forked_from_id"))
        yield Began(
            run=self._run.id,
            parent=text(session.get("parent_thread_id")) or text(session.get("forked_from_id")) or None,
            project=text(session.get("cwd")),
            model=self._model,
        )

    def _item(self, item: Mapping[str, Any], at: float | None, report: ReadReport) -> Iterator[TranscriptEntry]:
        kind = text(item.get("type"))
        role = item.get("role")
        if not self._ids.is_new(_identity(item)):
            report.repeated += 1
            return
        if kind == "message" and role != "assistant":
            yield from self._flush()
            said = words(item.get("content"))
            synthetic = role != "user" or said.startswith(_REMINDERS)
            if not synthetic:
                self._run.ended = None
            yield self._run.said(
                RecordedMessage("user" if role == "user" else "system", said, synthetic=synthetic, at=at)
            )
        elif kind in {"message", "reasoning", "agent_message"} or kind in _CALLS:
            if self._results or self._held.usage is not None:
                yield from self._flush()
            self._held.at = self._held.at or at
            if kind in _CALLS:
                call = _call(item, kind)
                self._held.calls.append(call)
                if kind in _OWN_CALLS and call.id:
                    self._results.append(result_of("", text(item.get("status")), call_id=call.id))
            elif kind == "reasoning":
                self._held.reasoning.append(words(item.get("summary")))
            else:
                self._held.text.append(words(item.get("content")))
        elif kind in _RESULTS:
            self._results.append(_result(item))
        elif kind != "ghost_snapshot":
            report.does_not_know(kind)

    def _event(self, event: Mapping[str, Any]) -> None:
        """Read ends and tokens. Everything else stands in the items as well."""
        kind = event.get("type")
        if kind == "token_count":
            if tokens := table(event.get("info")):
                total, last = (_usage(table(tokens.get(f"{which}_token_usage"))) for which in ("total", "last"))
                self._count(total, last)
        elif kind == "task_started":
            self._run.ended = None
        elif kind == "task_complete":
            self._run.ended = ("finished", "task_complete")
        elif kind == "turn_aborted":
            self._run.ended = ("aborted", text(event.get("reason")) or "turn_aborted")
        elif kind == "error":
            info: object = event.get("codex_error_info")
            name = info if isinstance(info, str) else next(iter(table(info)), "")
            state: EndState = "limit" if "usage_limit" in name else "failed"
            self._run.ended = (state, name or text(event.get("message"))[:200])

    def _count(self, total: Usage, last: Usage) -> None:
        """The tokens of the latest request. `total`: of the session. A request without an event of
        its own is in the next one. A fork begins with the tokens of its parent.
        """
        before = self._total
        if before is None:
            self._held.usage = last if self._forked else max(total, last, key=lambda one: one.total_tokens)
        elif total.total_tokens > before.total_tokens:
            new = _difference(total, before)
            self._held.usage = new if self._held.usage is None else self._held.usage + new
        self._total = max(total, before or NO_USAGE, key=lambda one: one.total_tokens)

    def _printed(self, item: Mapping[str, Any]) -> Iterator[TranscriptEntry]:
        """A finished item of `codex exec --json`."""
        match item.get("type"):
            case "agent_message" | "assistant_message" | "reasoning" as kind:
                if self._results:
                    yield from self._flush()
                pieces = self._held.reasoning if kind == "reasoning" else self._held.text
                pieces.append(text(item.get("text")))
            case "command_execution" | "mcp_tool_call" | "file_change" | "web_search":
                name, id = text(item.get("type")), text(item.get("id"))
                shown = {key: item[key] for key in _SHOWN if key in item}
                self._held.calls.append(RecordedCall(name, shown, id))
                output = words(item.get("aggregated_output")) or words(item.get("result"))
                failed = item.get("status") == "failed" or whole(item.get("exit_code")) > 0
                self._results.append(result_of("", output, is_error=failed, call_id=id))
            case _:
                pass

    def _turn(self, kind: str, record: Mapping[str, Any]) -> None:
        """The events of a turn of `codex exec --json`."""
        if kind == "turn.completed":
            self._held.usage = _usage(table(record.get("usage")))
            self._run.ended = ("finished", kind)
        elif kind == "turn.failed":
            self._run.ended = ("failed", text(table(record.get("error")).get("message"))[:200])
        elif kind == "turn.started":
            self._run.ended = None

    def _flush(self) -> Iterator[TranscriptEntry]:
        """The response that is held, and its results."""
        held, self._held = self._held, HeldResponse()
        results, self._results = self._results, []
        if not self._known:
            yield from self._meta({})
        held.model = self._model
        if results:
            held.results.append(RecordedMessage("tool", tool_results=tuple(results)))
        yield from map(self._run.said, held.messages())


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
    reading = CodexLines

    def reading_of(self, source: Source) -> LineReading | None:
        return None if _items(source) is not None else CodexLines(source)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        items, reading = _items(source), CodexLines(source)
        if items is None:
            yield from reading.read_all(source, report)
            return
        for item in map(table, items):
            yield from reading.take(item, report)
        yield from reading.end(report)

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
    id = text(item.get("call_id")) or None
    return result_of("", said, is_error=_failed(said), call_id=id, refusal="Command blocked by PreToolUse hook: ")


def _failed(output: str) -> bool:
    """The exit code stands in the text, or in JSON in older versions. There is no field for it."""
    if output.startswith("{"):
        code = table(table(parsed(output)).get("metadata")).get("exit_code")
        return isinstance(code, int) and code != 0
    found = _EXIT_CODE.search(output, 0, _HEAD_CHARS)
    return found is not None and int(found[1]) != 0


def _usage(usage: Mapping[str, Any]) -> Usage:
    counted = tokens_of(
        usage,
        given=("input_tokens",),
        answered=("output_tokens",),
        thinking="reasoning_output_tokens",
        cached="cached_input_tokens",
    )
    return counted or NO_USAGE


def _difference(total: Usage, before: Usage) -> Usage:
    return Usage(
        max(0, total.input_tokens - before.input_tokens),
        max(0, total.output_tokens - before.output_tokens),
        max(0, total.reasoning_tokens - before.reasoning_tokens),
        max(0, total.cached_tokens - before.cached_tokens),
        total.total_tokens - before.total_tokens,
    )
