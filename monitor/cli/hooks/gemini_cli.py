"""Gemini CLI. Its reference of hooks names what is used here: `BeforeTool` with `decision`, and
`continue` with `stopReason`. Its times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from monitor.cli.hooks.base import TIMEOUT_S, Deed

if TYPE_CHECKING:
    from monitor.transcripts.readers.base import TranscriptReader


class GeminiCliHook:
    """Refuses a call, or stops the agent."""

    agent: ClassVar[str] = "gemini-cli"
    place: ClassVar[str] = "~/.gemini/settings.json, or .gemini/settings.json of a project"
    note: ClassVar[str] = (
        "Gemini CLI has no answer that asks a person: ask refuses the call, and the reason tells the model to ask."
    )
    before: ClassVar[str] = "BeforeTool"

    def settings(self, command: str, deed: Deed) -> Mapping[str, Any]:
        entry = {"name": "agent-monitor", "type": "command", "command": command, "timeout": TIMEOUT_S * 1000}
        return {"hooks": {self.before: [{"hooks": [entry]}]}}

    def reader(self) -> TranscriptReader:
        from monitor.transcripts.readers.gemini_cli import GeminiCliReader  # noqa: PLC0415 - one agent is answered

        return GeminiCliReader()

    def is_tool(self, asked: str, recorded: str) -> bool:
        return asked == recorded

    def answer(self, event: str, reason: str, deed: Deed) -> Mapping[str, Any]:
        if event != self.before:
            return {}
        if deed == "stop":
            return {"continue": False, "stopReason": reason}
        told = f"{reason} Ask the user how to go on." if deed == "ask" else reason
        return {"decision": "deny", "reason": told, "systemMessage": reason}
