"""Claude Code. Its reference of hooks names what is used here: `PreToolUse` with
`permissionDecision`, and `continue` with `stopReason`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from monitor.cli.hooks.base import TIMEOUT_S, Deed


class ClaudeCode:
    """Asks in its own permission dialog."""

    agent: ClassVar[str] = "claude-code"
    place: ClassVar[str] = "~/.claude/settings.json, or .claude/settings.json of a project"
    note: ClassVar[str] = (
        "Claude Code writes its session a little later than it calls, so a loop may be answered one call late."
    )
    before: ClassVar[str] = "PreToolUse"

    def settings(self, command: str, deed: Deed) -> Mapping[str, Any]:
        return {"hooks": {self.before: [{"hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_S}]}]}}

    def answer(self, event: str, reason: str, deed: Deed) -> Mapping[str, Any]:
        if event != self.before:
            return {}
        if deed == "stop":
            return {"continue": False, "stopReason": reason}
        return {
            "hookSpecificOutput": {
                "hookEventName": event,
                "permissionDecision": deed,
                "permissionDecisionReason": reason,
            }
        }
