"""What a coding agent is asked by, and what it hears: its settings, and the words of an answer.

A base class has what is equal for all of them. Each agent's own class says what it does otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from monitor.transcripts.readers.base import TranscriptReader


LoopAnswer: TypeAlias = Literal["ask", "deny", "stop"]
"""The answer to a loop: a person is asked, the call is refused with the reason, or the agent
is stopped.
"""
ANSWERS: Final[tuple[LoopAnswer, ...]] = ("ask", "deny", "stop")
TIMEOUT_S: Final = 30
"""How long the agent waits for an answer. A session of 100 MB is read in less."""


class Hook:
    """The hook protocol of one agent."""

    agent: ClassVar[str]
    place: ClassVar[str]
    """The file of settings, for people."""
    note: ClassVar[str]
    """The limitation that a user has to know, in a sentence."""
    before: ClassVar[str] = "PreToolUse"
    """The name of the event that the agent sends before a tool call."""
    to_stop: ClassVar[tuple[str, ...]] = ()
    """Further events that a stop needs."""
    entry: ClassVar[Mapping[str, str]] = {"type": "command"}
    timeout: ClassVar[int] = TIMEOUT_S

    def settings(self, command: str, answer: LoopAnswer) -> Mapping[str, Any]:
        """The part that the user adds to the settings, so that the agent asks `command`."""
        entry = [{"hooks": [{**self.entry, "command": command, "timeout": self.timeout}]}]
        return {"hooks": dict.fromkeys((self.before, *(self.to_stop if answer == "stop" else ())), entry)}

    def reader(self) -> TranscriptReader:
        """The reader of the agent's sessions."""
        raise NotImplementedError

    def is_tool(self, asked: str, recorded: str) -> bool:
        """Whether the tool that a question calls `asked` is called `recorded` in the session."""
        return asked == recorded

    def answered(self, event: str, reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
        """The answer to `event` in a loop. Empty: this event cannot be answered."""
        return self.before_a_call(reason, answer) if event == self.before else {}

    def before_a_call(self, reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
        """The answer before a call, in the words of the agent."""
        raise NotImplementedError


def _decided(event: str, decision: str, reason: str) -> Mapping[str, Any]:
    """The answer of Claude Code, which Codex has taken over."""
    told = {"hookEventName": event, "permissionDecision": decision, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": told}


# --------------------------------------------------------------------------------------------------
# Claude Code. Tried with 2.1.197: `ask` and `deny` before a call are heard.
#
# `continue: false` before a call is not a stop there: the call is carried out, and the agent
# stops only if it succeeds. After the calls of a response (`PostToolBatch`) it stops in every
# case. So a stop refuses the call, and ends the agent after the response.

AFTER: Final = "PostToolBatch"


class ClaudeCodeHook(Hook):
    """Asks in its own permission dialog."""

    agent: ClassVar[str] = "claude-code"
    place: ClassVar[str] = "~/.claude/settings.json, or .claude/settings.json of a project"
    note: ClassVar[str] = (
        "Claude Code may write its session a little later than it calls; then a loop is answered one call late."
    )
    to_stop: ClassVar[tuple[str, ...]] = (AFTER,)

    def reader(self) -> TranscriptReader:
        from monitor.transcripts.readers.claude_code import ClaudeCodeReader  # noqa: PLC0415 - one agent is answered

        return ClaudeCodeReader()

    def answered(self, event: str, reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
        if event == AFTER:
            return {"continue": False, "stopReason": reason} if answer == "stop" else {}
        return super().answered(event, reason, answer)

    def before_a_call(self, reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
        if answer == "stop":
            return {"continue": False, "stopReason": reason, **_decided(self.before, "deny", reason)}
        return _decided(self.before, answer, reason)


# --------------------------------------------------------------------------------------------------
# Codex. Tried with 0.169: before a call only `deny` with a reason is heard.
#
# `ask`, `continue` and unknown fields there make the answer invalid, and the call goes on. After
# a call, `continue: false` replaces its result by the reason, and the turn goes on. So asking and
# stopping are refusing, with a reason that says what to do.

_TOLD: Final[Mapping[LoopAnswer, str]] = {
    "ask": " Ask the user how to go on.",
    "deny": "",
    "stop": " Stop now: call no tool, and tell the user what you were doing.",
}
_SHELL: Final = "Bash"
_SHELLS: Final = frozenset({"exec_command", "shell", "shell_command", "local_shell", "unified_exec", "container.exec"})
"""The names by which versions of Codex record a command."""


class CodexHook(Hook):
    """The hook of Codex, which can refuse a call."""

    agent: ClassVar[str] = "codex"
    place: ClassVar[str] = "~/.codex/hooks.json, or .codex/hooks.json of a project"
    note: ClassVar[str] = (
        "Codex runs a new hook when you have trusted it: see /hooks in it. It has no answer that asks a person or ends"
        " a turn: ask and stop refuse the call, and the reason tells the model what to do. Older versions need"
        " codex_hooks = true under [features] of config.toml."
    )

    def reader(self) -> TranscriptReader:
        from monitor.transcripts.readers.codex import CodexReader  # noqa: PLC0415 - one agent is answered

        return CodexReader()

    def is_tool(self, asked: str, recorded: str) -> bool:
        """A question calls each tool that runs commands `Bash`, and its argument `command`."""
        return asked == recorded or (asked == _SHELL and recorded in _SHELLS)

    def before_a_call(self, reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
        return _decided(self.before, "deny", f"{reason}{_TOLD[answer]}")


# --------------------------------------------------------------------------------------------------
# Gemini CLI. Its reference of hooks names what is used here: `BeforeTool` with `decision`, and
# `continue` with `stopReason`. Its times are milliseconds.


class GeminiCliHook(Hook):
    """Refuses a call, or stops the agent."""

    agent: ClassVar[str] = "gemini-cli"
    place: ClassVar[str] = "~/.gemini/settings.json, or .gemini/settings.json of a project"
    note: ClassVar[str] = (
        "Gemini CLI has no answer that asks a person: ask refuses the call, and the reason tells the model to ask."
    )
    before: ClassVar[str] = "BeforeTool"
    entry: ClassVar[Mapping[str, str]] = {"name": "agent-monitor", "type": "command"}
    timeout: ClassVar[int] = TIMEOUT_S * 1000

    def reader(self) -> TranscriptReader:
        from monitor.transcripts.readers.gemini_cli import GeminiCliReader  # noqa: PLC0415 - one agent is answered

        return GeminiCliReader()

    def before_a_call(self, reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
        if answer == "stop":
            return {"continue": False, "stopReason": reason}
        told = f"{reason} Ask the user how to go on." if answer == "ask" else reason
        return {"decision": "deny", "reason": told, "systemMessage": reason}


# --------------------------------------------------------------------------------------------------
# The hooks by the names of their agents.

HOOKS: Final[dict[str, Hook]] = {hook.agent: hook for hook in (ClaudeCodeHook(), CodexHook(), GeminiCliHook())}
