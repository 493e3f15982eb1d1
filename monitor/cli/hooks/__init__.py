"""The hooks of coding agents: a program of the user that an agent asks before each tool call. One
file an agent.
"""

from __future__ import annotations

from typing import Final

from monitor.cli.hooks.base import Hook
from monitor.cli.hooks.claude_code import ClaudeCode
from monitor.cli.hooks.codex import Codex
from monitor.cli.hooks.gemini_cli import GeminiCli

HOOKS: Final[dict[str, Hook]] = {hook.agent: hook for hook in (ClaudeCode(), Codex(), GeminiCli())}
"""By the name of the agent."""
