"""Codex. Tried with 0.169: before a call only `deny` with a reason is heard.

`ask`, `continue` and unknown fields there make the answer invalid, and the call goes on. After a
call, `continue: false` replaces its result by the reason, and the turn goes on. So asking and
stopping are refusing, with a reason that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from monitor.cli.hooks.base import TIMEOUT_S, Deed

if TYPE_CHECKING:
    from monitor.transcripts.readers.base import TranscriptReader

_TOLD: Final[Mapping[Deed, str]] = {
    "ask": " Ask the user how to go on.",
    "deny": "",
    "stop": " Stop now: call no tool, and tell the user what you were doing.",
}
_SHELL: Final = "Bash"
_SHELLS: Final = frozenset({"exec_command", "shell", "shell_command", "local_shell", "unified_exec", "container.exec"})
"""The names by which versions of Codex record a command."""


class CodexHook:
    """The hook of Codex, which can refuse a call."""

    agent: ClassVar[str] = "codex"
    place: ClassVar[str] = "~/.codex/hooks.json, or .codex/hooks.json of a project"
    note: ClassVar[str] = (
        "Codex runs a new hook when you have trusted it: see /hooks in it. It has no answer that asks a person or ends"
        " a turn: ask and stop refuse the call, and the reason tells the model what to do. Older versions need"
        " codex_hooks = true under [features] of config.toml."
    )
    before: ClassVar[str] = "PreToolUse"

    def settings(self, command: str, deed: Deed) -> Mapping[str, Any]:
        return {"hooks": {self.before: [{"hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_S}]}]}}

    def reader(self) -> TranscriptReader:
        from monitor.transcripts.readers.codex import CodexReader  # noqa: PLC0415 - one agent is answered

        return CodexReader()

    def is_tool(self, asked: str, recorded: str) -> bool:
        """A question calls each tool that runs commands `Bash`, and its argument `command`."""
        return asked == recorded or (asked == _SHELL and recorded in _SHELLS)

    def answer(self, event: str, reason: str, deed: Deed) -> Mapping[str, Any]:
        if event != self.before:
            return {}
        return {
            "hookSpecificOutput": {
                "hookEventName": event,
                "permissionDecision": "deny",
                "permissionDecisionReason": f"{reason}{_TOLD[deed]}",
            }
        }
