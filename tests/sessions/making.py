"""What the tests of sessions write."""

from __future__ import annotations

from typing import Any

from monitor.chunks import ToolCall, ToolResult
from monitor.messages import ApprovalRequest, AssistantMessage, CallRecord, Text, UserMessage, call_key
from monitor.sessions import Compacted, Draft, message


def user(text: str) -> UserMessage:
    return UserMessage((Text(text),))


def assistant(text: str, *calls: str) -> AssistantMessage:
    return AssistantMessage((Text(text), *(ToolCall(id, "look", {"at": id}) for id in calls)))


def result(id: str, text: str = "seen") -> ToolResult:
    return ToolResult(id, "look", text)


def says(text: str, **options: Any) -> Draft:
    return message(user(text), **options)


def summary(first_kept: str | None, *, text: str = "a summary", base: str | None = None) -> Compacted:
    return Compacted(
        summary=text,
        shown=(UserMessage((Text(text),), synthetic=True),),
        first_kept_node_id=first_kept,
        tokens_before=100,
        tokens_after=10,
        base=base,
    )


def call(id: str, *, run: str = "r", **fields: Any) -> CallRecord:
    return CallRecord(
        run=run, call_id=id, tool="look", arguments={"at": id}, key=call_key(run, "look", {"at": id}, 0), **fields
    )


def request(id: str, *, run: str = "r") -> ApprovalRequest:
    return ApprovalRequest(
        id=id, run=run, call_id="c", tool="look", arguments={}, schema_hash="s", bound_to="b", why="a rule"
    )
