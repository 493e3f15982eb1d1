"""The base of all hooks: a hook knows an agent's settings, and the words of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from monitor.transcripts.readers.base import TranscriptReader


Deed: TypeAlias = Literal["ask", "deny", "stop"]
"""The answer to a loop: a person is asked, the call is refused with the reason, or the agent
is stopped.
"""
DEEDS: Final[tuple[Deed, ...]] = ("ask", "deny", "stop")
TIMEOUT_S: Final = 30
"""How long the agent waits for an answer. A session of 100 MB is read in less."""


class Hook(Protocol):
    """The hook protocol of one agent."""

    agent: ClassVar[str]
    place: ClassVar[str]
    """The file of settings, for people."""
    note: ClassVar[str]
    """The limitation that a user has to know, in a sentence."""
    before: ClassVar[str]
    """The name of the event that the agent sends before a tool call."""

    def settings(self, command: str, deed: Deed) -> Mapping[str, Any]:
        """The part that the user adds to the settings, so that the agent asks `command`."""
        ...

    def reader(self) -> TranscriptReader:
        """The reader of the agent's sessions."""
        ...

    def is_tool(self, asked: str, recorded: str) -> bool:
        """Whether the tool that a question calls `asked` is called `recorded` in the session."""
        ...

    def answer(self, event: str, reason: str, deed: Deed) -> Mapping[str, Any]:
        """The answer to `event` in a loop. Empty: this event cannot be answered."""
        ...


# --------------------------------------------------------------------------------------------------
# Claude Code. Tried with 2.1.197: `ask` and `deny` before a call are heard.
#
# `continue: false` before a call is not a stop there: the call is carried out, and the agent
# stops only if it succeeds. After the calls of a response (`PostToolBatch`) it stops in every
# case. So a stop refuses the call, and ends the agent after the response.

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


# --------------------------------------------------------------------------------------------------
# Codex. Tried with 0.169: before a call only `deny` with a reason is heard.
#
# `ask`, `continue` and unknown fields there make the answer invalid, and the call goes on. After
# a call, `continue: false` replaces its result by the reason, and the turn goes on. So asking and
# stopping are refusing, with a reason that says what to do.

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


# --------------------------------------------------------------------------------------------------
# Gemini CLI. Its reference of hooks names what is used here: `BeforeTool` with `decision`, and
# `continue` with `stopReason`. Its times are milliseconds.


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


# --------------------------------------------------------------------------------------------------
# The hooks by the names of their agents. One file an agent.

HOOKS: Final[dict[str, Hook]] = {hook.agent: hook for hook in (ClaudeCodeHook(), CodexHook(), GeminiCliHook())}
