"""One reader for each format. Each in the order of `READERS` looks at a transcript's content."""

from __future__ import annotations

from typing import Final

from monitor.transcripts.readers.aider import Aider
from monitor.transcripts.readers.base import TranscriptReader
from monitor.transcripts.readers.benchmarks import Atif, MiniSweAgent, SweAgent, TauBench
from monitor.transcripts.readers.claude_code import ClaudeCode, IFlow
from monitor.transcripts.readers.cline import Cline
from monitor.transcripts.readers.codex import Codex
from monitor.transcripts.readers.copilot_cli import CopilotCli
from monitor.transcripts.readers.gemini_cli import GeminiCli
from monitor.transcripts.readers.goose import Goose
from monitor.transcripts.readers.inspect_ai import InspectAi
from monitor.transcripts.readers.kimi import Kimi
from monitor.transcripts.readers.langsmith import LangSmith
from monitor.transcripts.readers.messages import Messages
from monitor.transcripts.readers.opencode import OpenCode
from monitor.transcripts.readers.openhands import OpenHands
from monitor.transcripts.readers.own import EventLogs, RecordedRuns
from monitor.transcripts.readers.pi import Pi
from monitor.transcripts.readers.qwen_code import QwenCode
from monitor.transcripts.readers.responses import Responses
from monitor.transcripts.readers.telemetry import Telemetry
from monitor.transcripts.readers.vscode_chat import VsCodeChat
from monitor.transcripts.source import Source

READERS: Final[tuple[TranscriptReader, ...]] = (
    IFlow(),
    QwenCode(),
    ClaudeCode(),
    Codex(),
    CopilotCli(),
    Kimi(),
    Pi(),
    GeminiCli(),
    OpenCode(),
    Goose(),
    InspectAi(),
    VsCodeChat(),
    Aider(),
    Atif(),
    SweAgent(),
    TauBench(),
    OpenHands(),
    Telemetry(),
    LangSmith(),
    EventLogs(),
    RecordedRuns(),
    MiniSweAgent(),
    Cline(),
    Responses(),
    Messages(),
)
"""The readers, one line each. Formats with a sign of their own come before those without one."""


def reader_of(source: Source) -> TranscriptReader | None:
    """The reader of the format of `source`; `None`: the format is unknown."""
    return next((reader for reader in READERS if reader.fits(source)), None)
