"""Shows sessions, for people and as JSON: lists, conversations, trees, events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from monitor.chunks import ToolCall, ToolResult
from monitor.cli.render import output, table
from monitor.errors import MonitorError, SessionDamaged
from monitor.events import event_codec
from monitor.messages import AssistantMessage, Message, Reasoning, message_codec
from monitor.messages import Text as Words
from monitor.sessions import (
    Context,
    Node,
    NodeKind,
    SessionFile,
    SessionReader,
    StoredEvent,
    compacted_of,
    edit_of,
    said_of,
)
from monitor.sessions.closed_runs import MAIN, RunStage
from monitor.sessions.lock import live_owner, lock_path
from monitor.sessions.postgres.postgres_reader import AnyReader, SessionsReader
from monitor.sessions.reader import resolved
from monitor.sinks import line_of
from monitor.sinks.descriptions import call_in_words
from monitor.view.status import count

SHORT: Final = 12
"""The last digits of an id that are shown in a tree. The first ones are the time, and differ less.
"""
LINE_CHARS: Final = 160
DAY_CHARS: Final = 10
"""The first characters of a moment are the year, the month and the day."""
MEGABYTE: Final = 1_000_000


def size(given: int) -> str:
    """The number of bytes `given` in megabytes or kilobytes, for people."""
    return f"{given / MEGABYTE:,.1f} MB" if given >= MEGABYTE else f"{given / 1_000:,.0f} KB"


def age(changed_s: float, now_s: float) -> str:
    """The time since `changed_s`, in one unit."""
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if now_s - changed_s >= seconds:
            return f"{(now_s - changed_s) / seconds:.0f} {unit} ago"
    return "just now"


def at(ms: int) -> str:
    """The moment `ms` (milliseconds since 1970) in local time."""
    return datetime.fromtimestamp(ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


# ------------------------------------------------------------------ the list


def listed(file: SessionFile) -> dict[str, Any]:
    """A session of a folder, as JSON data."""
    data: dict[str, Any] = {"name": file.name, "path": str(file.path), "bytes": file.size, "changed_s": file.changed_s}
    owner = live_owner(lock_path(resolved(file.path)))
    data["owner"] = str(owner) if owner else None
    try:
        with SessionReader(file.path) as session, session.snapshot():
            data |= _facts(session)
    except MonitorError as error:
        data["problem"] = str(error)
    return data


def listed_in(database: str) -> list[dict[str, Any]]:
    """The sessions of a database, as JSON data."""
    found: list[dict[str, Any]] = []
    with SessionsReader(database) as there:
        for name in there.names():
            session = there.opened(name)
            owner = str(session.owner) if session.owner else None
            data = {"name": name, "path": session.path, "bytes": None, "changed_s": session.changed_s, "owner": owner}
            found.append(data | _facts(session))
    return found


def _facts(session: AnyReader) -> dict[str, Any]:
    return {
        "id": session.id,
        "format": session.format,
        "nodes": session.count(),
        "runs": {run.id: run.state.value for run in session.runs()},
        "title": _title(session),
        "problem": None,
    }


def _title(session: AnyReader) -> str:
    """The first message of the session, as one line."""
    for node in session.first_nodes(8):
        if node.kind is NodeKind.MESSAGE:
            return line_of_node(node)
    return ""


def _begins(row: Mapping[str, Any]) -> str | Text:
    if row["problem"]:
        return Text(row["problem"], style="red")
    begins: str = row.get("title") or ""
    return Text.assemble((f"in use by {row['owner']}  ", "yellow"), begins) if row["owner"] else begins


LISTED: Final = table.RowKind[Mapping[str, Any]](
    table.Fact(None, table.Column("session", "middle"), lambda row: row["name"]),
    table.Fact(None, "changed", lambda row: age(row["changed_s"], time.time())),
    table.Fact(None, table.Column("size", right=True), lambda row: "" if row["bytes"] is None else size(row["bytes"])),
    table.Fact(None, table.Column("nodes", right=True), lambda row: row.get("nodes", "")),
    table.Fact(None, table.Column("begins", "end"), _begins, lambda begins: begins),
)
"""The table of sessions. Their JSON is the data itself."""


# ------------------------------------------------------------------ one session


def described(session: AnyReader, context: Context, branch: str) -> dict[str, Any]:
    """A session and the context of a branch, as JSON data."""
    return {
        "id": session.id,
        "path": str(session.path),
        "format": session.format,
        "meta": session.meta,
        "nodes": session.count(),
        "branch": branch,
        "heads": session.heads(),
        "compaction": context.compaction.id if context.compaction else None,
        "runs": [
            {
                "id": run.id,
                "parent": run.parent_run,
                "agent": run.agent,
                "purpose": run.purpose,
                "state": run.state.value,
                "reason": run.data.get("reason"),
                "detail": run.data.get("detail"),
            }
            for run in session.runs(hidden=True)
        ],
        "open_calls": [
            {"run": one.run, "tool": one.tool, "arguments": one.arguments, "state": one.state.value}
            for one in session.calls()
            if one.open
        ],
        "open_questions": [one.request.why for one in session.approvals() if one.answer is None],
        "context": [{"node": entry.node, "message": message_codec.to_dict(entry.message)} for entry in context.entries],
    }


def show_session(console: Console, data: Mapping[str, Any], context: Context) -> None:
    """Show the facts about a session, and the conversation that the model gets."""
    rows = [
        ("id", data["id"]),
        ("file", data["path"]),
        ("nodes", f"{data['nodes']:,}, branches {', '.join(data['heads']) or 'none'}"),
        *(("" if number else "runs", _run_in_words(run)) for number, run in enumerate(data["runs"])),
        *(("open call", f"{one['tool']} {one['arguments']} ({one['state']})") for one in data["open_calls"]),
        *(("asked", why) for why in data["open_questions"]),
        ("forked from", data["meta"].get("forked_from")),
    ]
    shown = [(name, output.on_one_line(str(value))) for name, value in rows if value]
    output.card(console, "session", shown, style="cyan")
    output.heading(console, f"what the model is shown: {count(len(context.entries), 'message')}")
    cells = [
        (f"{number}", _who(entry.message), _words(entry.message)) for number, entry in enumerate(context.entries, 1)
    ]
    if cells:
        columns: list[table.Column | str] = [table.Column("", right=True), "who", table.Column("says", "fold")]
        table.show(console, columns, cells)


def _run_in_words(run: Mapping[str, Any]) -> str:
    """A run with the id that `--run` takes, and its end."""
    named = [run["id"], run["agent"], *([run["purpose"]] if run["purpose"] != MAIN else [])]
    ended = run["state"] == RunStage.ENDED and run["reason"]
    state = f"{run['reason']}, {run['detail']}" if ended else run["state"]
    return f"{' '.join(filter(None, named))}: {state}"


def _who(message: Message) -> str:
    if isinstance(message, AssistantMessage):
        return "model"
    return "monitor" if message.synthetic else "user"


def _words(message: Message) -> str:
    parts: list[str] = []
    for part in message.content:
        match part:
            case Words(text):
                parts.append(text)
            case Reasoning():
                parts.append("(thinks)")
            case ToolCall():
                parts.append(call_in_words(part))
            case _:
                parts.append(f"({part.mime_type})")
    if isinstance(message, AssistantMessage):
        parts += [f"-> {one.text}" for one in message.results]
    return _cut("  ".join(parts))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}…"


# ------------------------------------------------------------------ the tree


def line_of_node(node: Node) -> str:
    """The content of a node, on one line."""
    try:
        return _line(node)
    except SessionDamaged as error:
        return f"damaged: {error}"


def _line(node: Node) -> str:
    match node.kind:
        case NodeKind.MESSAGE:
            said = said_of(node)
            return _cut(f"-> {said.text}") if isinstance(said, ToolResult) else f"{_who(said)}: {_words(said)}"
        case NodeKind.COMPACTION:
            done = compacted_of(node)
            state = "stale compaction, not used" if done.stale else "compaction"
            return _cut(f"{state} ({done.tokens_before:,} to {done.tokens_after:,} tokens): {done.summary}")
        case NodeKind.CONTEXT_EDIT:
            edit = edit_of(node)
            return f"{'hides' if edit.replacement is None else 'shortens'} {edit.target[-SHORT:]}"
        case _:
            return _cut(f"{node.kind.value.replace('_', ' ')}: {node.data.get('text') or node.data.get('name')}")


def tree_lines(nodes: Sequence[Node], heads: Mapping[str, str | None]) -> Iterator[Text]:
    """A line for each node. Nodes that branch off are indented."""
    children: dict[str | None, list[Node]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    names: dict[str, list[str]] = {}
    for name, head in heads.items():
        if head:
            names.setdefault(head, []).append(name)
    waiting = [(node, 0) for node in reversed(children.get(None, []))]
    while waiting:
        node, depth = waiting.pop()
        line = Text.assemble("  " * depth, (node.id[-SHORT:], "cyan"), "  ")
        if node.id in names:
            line.append(f"<- {output.on_one_line(', '.join(names[node.id]))}  ", style="bold green")
        yield line.append(output.on_one_line(line_of_node(node)))
        # the first child goes on at the same depth; later ones branch off, and are drawn before it
        first, others = children.get(node.id, [])[:1], children.get(node.id, [])[1:]
        waiting += [(one, depth) for one in first]
        waiting += [(other, depth + 1) for other in reversed(others)]


def node_as_json(node: Node) -> dict[str, Any]:
    """A node as JSON data."""
    fields = ("seq", "id", "parent", "run", "turn", "at_ms", "tokens", "digest")
    return {"kind": node.kind.value, **{name: getattr(node, name) for name in fields}, "body": node.data}


# ------------------------------------------------------------------ events


def event_as_json(event: StoredEvent) -> dict[str, Any]:
    """An event as JSON data."""
    data = event_codec.to_dict(event.event)
    return {"seq": event.seq, "run": event.run, "at_ms": event.at_ms, "event": data}


def show_events(console: Console, events: Sequence[StoredEvent]) -> None:
    """A table, the oldest first. The day and the run stand above it, unless there are several."""
    runs, days = {one.run or "none" for one in events}, {at(one.at_ms)[:DAY_CHARS] for one in events}
    several = len(runs) > 1
    run_column: list[table.Column | str] = [table.Column("run", "middle")] if several else []
    if not several or len(days) == 1:
        about = [*([] if several else [f"run {min(runs)}"]), *([min(days)] if len(days) == 1 else [])]
        output.line(console, ", ".join(about), "bold")
    cut = DAY_CHARS + 1 if len(days) == 1 else 0
    cells = [
        (f"{one.seq}", at(one.at_ms)[cut:], *([one.run or ""] if several else []), line_of(one.event)) for one in events
    ]
    columns = [table.Column("", right=True), "stored at", *run_column, table.Column("event", "end")]
    table.show(console, columns, cells)
