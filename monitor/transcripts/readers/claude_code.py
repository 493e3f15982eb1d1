"""Claude Code's session files, and what `claude -p --output-format stream-json` prints.

One model message stands on several lines, one content block each, with the same `message.id` and
the usage on each of them: the last one is right. Results may stand between these lines. So a
message is held until the next one begins, and its results come after it.

A subagent is a run of its own: inline (`isSidechain`), or in a file of its own that has an
`agentId`. A resumed session begins with copies of the records of another session, which are left
out. `compact_boundary` begins the history anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar, Final

from monitor.transcripts.base import Began, CompactionSeen, ReadReport, RecordedMessage, RecordedResult, TranscriptEntry
from monitor.transcripts.readers.base import NOTHING, HeldResponse, LineReader, OpenRun, RecentIds
from monitor.transcripts.readers.chat import usage_of
from monitor.transcripts.readers.values import call_of, dollars, in_tier, result_of, rows, seconds, table, text, words
from monitor.transcripts.source import Source

_QUIET: Final = frozenset(
    {
        *("progress", "queue-operation", "file-history-snapshot", "attachment", "permission-mode", "mode"),
        *("worktree-state", "summary", "last-prompt", "agent-name", "custom-title", "ai-title", "pr-link"),
        *("frame-link", "started", "result", "relocated", "bridge-session", "atis-latch", "stream_event"),
        *("rate_limit_event", "saved_hook_context", "tag"),
    }
)
"""Types of records that say nothing about the model's actions."""
_REMINDERS: Final = ("<system-reminder>", "<local-command", "<command-name>", "<command-message>", "Caveat:", "<user-")
_INTERRUPTED: Final = "[Request interrupted by user"
_SYNTHETIC: Final = "<synthetic>"


class ClaudeCodeReader(LineReader):
    """Reads session files and stream-json: a session and its subagents."""

    format = "claude-code"
    agent = "Claude Code"
    places: ClassVar[tuple[str, ...]] = (".claude/projects/**/*.jsonl", ".config/claude/projects/**/*.jsonl")

    def __init__(self, source: Source = NOTHING) -> None:
        super().__init__(source)
        self._session = _own_session(source)
        self._runs: dict[str, AgentRun] = {}
        self._seen = RecentIds()

    def fits(self, source: Source) -> bool:
        """A record with a message of content blocks and the id of its session, on a line or among
        the `loglines` of an export.
        """
        if any("content" in table(table(one).get("message")) for one in _log_lines(source)[:20]):
            return True
        for record in source.first_records:
            message = table(record.get("message"))
            if "sessionId" in record and "parentUuid" in record and "content" in message:
                return True
            if record.get("type") == "system" and record.get("subtype") == "init" and "session_id" in record:
                return True
        first = source.first_record
        return first.get("type") == "summary" and "leafUuid" in first

    def began_like(self, source: Source) -> bool:
        return _own_session(source) == self._session

    def reading_of(self, source: Source) -> LineReader | None:
        return None if _log_lines(source) else super().reading_of(source)

    def read_document(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from type(self)(source).take_all(map(table, _log_lines(source)), report)

    def take(self, record: Mapping[str, Any], report: ReadReport) -> Iterable[TranscriptEntry]:
        kind = text(record.get("type"))
        if kind == "result" and "session_id" in record:
            if (printed := self._runs.get(text(record["session_id"]))) is not None:
                printed.result(record)
            return ()
        if kind not in {"user", "assistant", "system"}:
            if kind not in _QUIET:
                report.does_not_know(kind)
            return ()
        if record.get("uuid") and not self._seen.is_new(f"{kind}/{text(record['uuid'])}"):
            report.repeated += 1
            return ()
        if self._session and text(record.get("sessionId")) not in {"", self._session}:
            if self._runs:  # a resumed session copies the records of its parent to its beginning
                report.is_of_another_session()
            else:
                report.copied += 1
            return ()
        session = self._session or text(record.get("session_id", record.get("sessionId"))) or self.run.id
        run = _run_of(record, session, self._runs)
        if run.last_role == "":
            run.last_role = "nobody"
            model = text(table(record.get("message")).get("model")) or text(record.get("model"))
            return chain((Began(run.id, run.parent, text(record.get("cwd")), model=model),), run.take(record))
        return run.take(record)

    def end(self, report: ReadReport) -> Iterator[TranscriptEntry]:
        for run in self._runs.values():
            yield from run.flush()
            yield run.end()


class IFlowReader(ClaudeCodeReader):
    """Reads sessions of iFlow CLI, which are written like Claude Code's, and repeat calls."""

    format = "iflow"
    agent = "iFlow CLI"
    places = (".iflow/projects/**/*.jsonl",)

    def fits(self, source: Source) -> bool:
        """The ids of its messages are made of the time."""
        return any(
            text(table(record.get("message")).get("id")).startswith("response-") for record in source.first_records
        ) and super().fits(source)


def _log_lines(source: Source) -> list[Any]:
    """The records of an export of Claude Code on the web; empty: it is none."""
    if source.head.find(b'"loglines"', 0, LOG_LINES_BYTES) < 0:
        return []
    return rows(table(source.document).get("loglines"))


LOG_LINES_BYTES: Final = 65_536


def _own_session(source: Source) -> str:
    """The session of the file, which is named after it. A file that was renamed belongs to the
    session with the most records in its head.
    """
    sessions: Counter[str] = Counter()
    for record in Source.of_bytes(source.name, source.head).records(ReadReport()):
        if text(record.get("type")) in {"user", "assistant", "system"}:
            session = text(record.get("sessionId"))
            if session == source.stem != "":
                return session
            sessions[session] += 1
    del sessions[""]
    return sessions.most_common(1)[0][0] if sessions else ""


def _run_of(record: Mapping[str, Any], session: str, runs: dict[str, AgentRun]) -> AgentRun:
    agent = text(record.get("agentId")) or text(record.get("parent_tool_use_id"))
    if record.get("isSidechain") and not agent:
        agent = _root(record, runs)
    id = f"{session}/{agent}" if agent else session
    if id not in runs:
        runs[id] = AgentRun(id, parent=session if agent else None)
    run = runs[id]
    run.uuids.is_new(record.get("uuid"))
    return run


def _root(record: Mapping[str, Any], runs: dict[str, AgentRun]) -> str:
    """Inline sidechains have no id: one begins with a record without parent, and the others follow
    their parents.
    """
    parent = record.get("parentUuid")
    if parent:
        for id, run in runs.items():
            if run.parent is not None and not run.uuids.would_be_new(parent):
                return id.rsplit("/", 1)[1]
    return f"sidechain-{sum(run.parent is not None for run in runs.values()) + 1}"


class AgentRun(OpenRun):
    """The run of one agent of the file."""

    def __init__(self, id: str, *, parent: str | None) -> None:
        super().__init__(id)
        self.parent = parent
        self.uuids = RecentIds()
        self._done = RecentIds()
        self._calls = RecentIds()

    def result(self, record: Mapping[str, Any]) -> None:
        """Take the last line of stream-json, which says how the run ended."""
        subtype = text(record.get("subtype"))
        if subtype == "success" and not record.get("is_error"):
            self.ended = ("finished", subtype)
        elif "max_turns" in subtype or "budget" in subtype:
            self.ended = ("limit", subtype)
        else:
            self.ended = ("failed", subtype or text(record.get("result")))

    def take(self, record: Mapping[str, Any]) -> Iterable[TranscriptEntry]:
        kind, at = text(record["type"]), seconds(record.get("timestamp"))
        if kind == "assistant":
            return self._assistant(record, at)
        if kind == "user":
            return self._user(record, at)
        if record.get("subtype") == "compact_boundary":
            return (*self.flush(), CompactionSeen(run=self.id, at=at))
        return ()

    def _fresh(self, content: object) -> list[Any]:
        """The blocks of a message without the calls that stood on an earlier line."""
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        return [block for block in rows(content) if "id" not in table(block) or self._calls.is_new(block["id"])]

    def _assistant(self, record: Mapping[str, Any], at: float | None) -> Iterator[TranscriptEntry]:
        message = table(record.get("message"))
        id = text(message.get("id")) or text(record.get("uuid"))
        self.ended = None
        if message.get("model") == _SYNTHETIC or record.get("isApiErrorMessage"):
            yield from self.flush()
            said = words(message.get("content"))
            yield self.said(RecordedMessage("system", said, synthetic=True, at=at))
            if record.get("isApiErrorMessage"):
                self.ended = ("failed", said[:200])
            return
        if self.held.id != id:
            yield from self.flush()
            if not self._done.is_new(id):
                return  # copies of a message that is complete
            self.held = HeldResponse(at, id=id)
        told, held = table(message.get("usage")), self.held
        held.model = in_tier(text(message.get("model")), told)
        held.usage = usage_of(told) or held.usage
        held.cost_usd = dollars(record.get("costUSD"))
        _add(held, self._fresh(message.get("content")))

    def _user(self, record: Mapping[str, Any], at: float | None) -> Iterator[TranscriptEntry]:
        content = table(record.get("message")).get("content")
        blocks = rows(content)
        results = [block for block in blocks if table(block).get("type") == "tool_result"]
        others = [] if len(results) == len(blocks) else [b for b in blocks if table(b).get("type") != "tool_result"]
        rest = words(content if isinstance(content, str) else others)
        if results:
            self.ended = None
            answered = RecordedMessage("tool", tool_results=tuple(map(_result, results)), at=at)
            if self.held:
                self.held.results.append(answered)
            else:
                yield self.said(answered)
        if not rest:
            return
        if rest.startswith(_INTERRUPTED):
            yield from self.flush()
            self.ended = ("aborted", rest[:100])
            return
        synthetic = bool(record.get("isMeta") or record.get("isCompactSummary")) or rest.startswith(_REMINDERS)
        if not results:
            yield from self.flush()
            yield self.asked(rest, at, synthetic=synthetic)
        elif not synthetic:
            self.ended = None


def _add(held: HeldResponse, blocks: Iterable[Any]) -> None:
    """Add the blocks of a line to the message that is held."""
    for block in map(table, blocks):
        match block.get("type"):
            case "text":
                held.text.append(text(block.get("text")))
            case "thinking":
                held.reasoning.append(text(block.get("thinking")))
            case _ if "input" in block:
                held.calls.append(call_of(block.get("name"), block.get("input"), block.get("id")))
            case _:
                pass


def _result(block: Mapping[str, Any]) -> RecordedResult:
    failed = block.get("is_error") is True
    said, id = _result_text(block.get("content")), block.get("tool_use_id")
    return result_of("", said, is_error=failed, call_id=id, refusal="" if failed else None)


def _result_text(content: object) -> str:
    """A result's text. iFlow has Gemini's response in its place."""
    parts = table(content).get("responseParts")
    response = table(table(table(parts).get("functionResponse")).get("response"))
    return words(response.get("output", response.get("error"))) if response else words(content)
