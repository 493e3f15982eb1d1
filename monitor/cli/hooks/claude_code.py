"""Claude Code. Tried with 2.1.197: `ask` and `deny` before a call are heard.

`continue: false` before a call is not a stop there: the call is carried out, and the agent stops
only if it succeeds. After the calls of a response (`PostToolBatch`) it stops in every case. So a
stop refuses the call, and ends the agent after the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from monitor.cli.hooks.base import TIMEOUT_S, Deed

if TYPE_CHECKING:
    from monitor.transcripts.readers.base import TranscriptReader

AFTER: Final = "PostToolBatch"


class ClaudeCodeHook:
    """Asks in its own permission dialog."""

    agent: ClassVar[str] = "claude-code"
    place: ClassVar[str] = "~/.claude/settings.json, or .claude/settings.json of a project"
    note: ClassVar[str] = (
        "Claude Code may write its session a little later than it calls; then a loop is answered one call late."
    )
    before: ClassVar[str] = "PreToolUse"

    def settings(self, command: str, deed: Deed) -> Mapping[str, Any]:
        entry = [{"hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_S}]}]
        return {"hooks": dict.fromkeys((self.before, AFTER) if deed == "stop" else (self.before,), entry)}

    def reader(self) -> TranscriptReader:
        from monitor.transcripts.readers.claude_code import ClaudeCodeReader  # noqa: PLC0415 - one agent is answered

        return ClaudeCodeReader()

    def is_tool(self, asked: str, recorded: str) -> bool:
        return asked == recorded

    def answer(self, event: str, reason: str, deed: Deed) -> Mapping[str, Any]:
        stops = {"continue": False, "stopReason": reason} if deed == "stop" else {}
        if event == AFTER:
            return stops
        if event != self.before:
            return {}
        decision = "deny" if deed == "stop" else deed
        return {
            **stops,
            "hookSpecificOutput": {
                "hookEventName": event,
                "permissionDecision": decision,
                "permissionDecisionReason": reason,
            },
        }
