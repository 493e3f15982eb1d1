"""The hooks by the names of their agents. One file an agent."""

from __future__ import annotations

from typing import Final

from monitor.cli.hooks.base import Hook
from monitor.cli.hooks.claude_code import ClaudeCodeHook
from monitor.cli.hooks.codex import CodexHook
from monitor.cli.hooks.gemini_cli import GeminiCliHook

HOOKS: Final[dict[str, Hook]] = {hook.agent: hook for hook in (ClaudeCodeHook(), CodexHook(), GeminiCliHook())}
