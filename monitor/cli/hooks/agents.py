"""What a coding agent is asked by, and what it hears: its settings, and the words of an answer.

Each agent is a `Hook` with its own words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from monitor.transcripts.readers.base import TranscriptReader


LoopAnswer: TypeAlias = Literal["ask", "deny", "stop"]
"""The answer to a loop: a person is asked, the call is refused with the reason, or the agent
is stopped.
"""
ANSWERS: Final[tuple[LoopAnswer, ...]] = ("ask", "deny", "stop")
TIMEOUT_S: Final = 30
"""How long the agent waits for an answer. A session of 100 MB is read in less."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Hook:
    """The hook protocol of one agent."""

    agent: str
    file: str
    """The user's settings of the agent, below the home folder."""
    note: str
    """The limitation that a user has to know, in a sentence."""
    reader: Callable[[], TranscriptReader]
    """Makes the reader of the agent's sessions."""
    before_a_call: Callable[[str, LoopAnswer], Mapping[str, Any]]
    """The answer before a call, in the words of the agent, for a reason."""
    before: str = "PreToolUse"
    """The name of the event that the agent sends before a tool call."""
    to_stop: tuple[str, ...] = ()
    """Further events that a stop needs: they end the agent."""
    entry: Mapping[str, str] = field(default_factory=lambda: {"type": "command"})
    timeout: int = TIMEOUT_S
    shells: tuple[str, frozenset[str]] = ("", frozenset())
    """The name by which a question calls tools that run commands, and their names in a session."""

    @property
    def place(self) -> str:
        """The files of settings, for people."""
        return f"~/{self.file}, or {self.file} of a project"

    def settings(self, command: str, answer: LoopAnswer) -> Mapping[str, Any]:
        """The part that the user adds to the settings, so that the agent asks `command`."""
        entry = [{"hooks": [{**self.entry, "command": command, "timeout": self.timeout}]}]
        return {"hooks": dict.fromkeys((self.before, *(self.to_stop if answer == "stop" else ())), entry)}

    def is_tool(self, asked: str, recorded: str) -> bool:
        """Whether the tool that a question calls `asked` is called `recorded` in the session."""
        shell, names = self.shells
        return asked == recorded or (asked == shell and recorded in names)

    def answered(self, event: str, reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
        """The answer to `event` in a loop. Empty: this event cannot be answered."""
        if event == self.before:
            return self.before_a_call(reason, answer)
        return _ended(reason) if event in self.to_stop and answer == "stop" else {}


def _ended(reason: str) -> Mapping[str, Any]:
    """The answer that ends the agent."""
    return {"continue": False, "stopReason": reason}


def _decided(decision: str, reason: str) -> Mapping[str, Any]:
    """The answer of Claude Code, which Codex has taken over."""
    told = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": told}


# --------------------------------------------------------------------------------------------------
# Claude Code. Tried with 2.1.197: `ask` and `deny` before a call are heard.
#
# `continue: false` before a call is not a stop there: the call is carried out, and the agent
# stops only if it succeeds. After the calls of a response (`PostToolBatch`) it stops in every
# case. So a stop refuses the call, and ends the agent after the response.


def _claude_code_reader() -> TranscriptReader:
    from monitor.transcripts.readers.claude_code import ClaudeCodeReader  # noqa: PLC0415 - one agent is answered

    return ClaudeCodeReader()


def _claude_code_answer(reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
    return {**_ended(reason), **_decided("deny", reason)} if answer == "stop" else _decided(answer, reason)


CLAUDE_CODE: Final = Hook(
    agent="claude-code",
    file=".claude/settings.json",
    note="Claude Code may write its session a little later than it calls; then a loop is answered one call late.",
    reader=_claude_code_reader,
    before_a_call=_claude_code_answer,
    to_stop=("PostToolBatch",),
)


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
_SHELLS: Final = frozenset({"exec_command", "shell", "shell_command", "local_shell", "unified_exec", "container.exec"})
"""The names by which versions of Codex record a command."""


def _codex_reader() -> TranscriptReader:
    from monitor.transcripts.readers.codex import CodexReader  # noqa: PLC0415 - one agent is answered

    return CodexReader()


def _codex_answer(reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
    return _decided("deny", f"{reason}{_TOLD[answer]}")


CODEX: Final = Hook(
    agent="codex",
    file=".codex/hooks.json",
    note="Codex runs a new hook when you have trusted it: see /hooks in it. It has no answer that asks a person or ends"
    " a turn: ask and stop refuse the call, and the reason tells the model what to do. Older versions need"
    " codex_hooks = true under [features] of config.toml.",
    reader=_codex_reader,
    before_a_call=_codex_answer,
    shells=("Bash", _SHELLS),
)


# --------------------------------------------------------------------------------------------------
# Gemini CLI. Its reference of hooks names what is used here: `BeforeTool` with `decision`, and
# `continue` with `stopReason`. Its times are milliseconds.


def _gemini_cli_reader() -> TranscriptReader:
    from monitor.transcripts.readers.gemini_cli import GeminiCliReader  # noqa: PLC0415 - one agent is answered

    return GeminiCliReader()


def _gemini_cli_answer(reason: str, answer: LoopAnswer) -> Mapping[str, Any]:
    if answer == "stop":
        return _ended(reason)
    told = f"{reason} Ask the user how to go on." if answer == "ask" else reason
    return {"decision": "deny", "reason": told, "systemMessage": reason}


GEMINI_CLI: Final = Hook(
    agent="gemini-cli",
    file=".gemini/settings.json",
    note="Gemini CLI has no answer that asks a person: ask refuses the call, and the reason tells the model to ask.",
    reader=_gemini_cli_reader,
    before_a_call=_gemini_cli_answer,
    before="BeforeTool",
    entry={"name": "agent-monitor", "type": "command"},
    timeout=TIMEOUT_S * 1000,
)


# --------------------------------------------------------------------------------------------------
# The hooks by the names of their agents.

HOOKS: Final[dict[str, Hook]] = {hook.agent: hook for hook in (CLAUDE_CODE, CODEX, GEMINI_CLI)}
