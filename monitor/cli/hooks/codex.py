"""Codex. Its source and its page on hooks name what is used here.

Before a call only `deny` with a reason is heard. `ask`, `continue` and unknown fields there make
the answer invalid, and the call goes on; so asking is refusing with a reason that says to ask.
After a call, `continue: false` ends the turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from monitor.cli.hooks.base import TIMEOUT_S, Deed

AFTER: Final = "PostToolUse"


class Codex:
    """Refuses a call, or ends the turn after it."""

    agent: ClassVar[str] = "codex"
    place: ClassVar[str] = "~/.codex/hooks.json, or .codex/hooks.json of a project"
    note: ClassVar[str] = (
        "Codex cannot ask a person from a hook: ask refuses the call, and the reason tells the model to ask. Older"
        " versions need codex_hooks = true under [features] of config.toml, and show hooks shell commands only."
    )
    before: ClassVar[str] = "PreToolUse"

    def settings(self, command: str, deed: Deed) -> Mapping[str, Any]:
        entry = [{"hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_S}]}]
        return {"hooks": {AFTER if deed == "stop" else self.before: entry}}

    def answer(self, event: str, reason: str, deed: Deed) -> Mapping[str, Any]:
        if event == AFTER and deed == "stop":
            return {"continue": False, "stopReason": reason}
        if event != self.before:
            return {}
        told = f"{reason} Ask the user how to go on." if deed == "ask" else reason
        return {
            "hookSpecificOutput": {
                "hookEventName": event,
                "permissionDecision": "deny",
                "permissionDecisionReason": told,
            }
        }
