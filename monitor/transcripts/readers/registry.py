"""One reader for each format. Each in the order of `READERS` looks at a transcript's content."""

from __future__ import annotations

from typing import Final

from monitor.transcripts.readers.aider import AiderReader
from monitor.transcripts.readers.antigravity import AntigravityReader
from monitor.transcripts.readers.base import TranscriptReader
from monitor.transcripts.readers.benchmarks import (
    AtifReader,
    InspectAiReader,
    MiniSweAgentReader,
    SweAgentReader,
    TauBenchReader,
)
from monitor.transcripts.readers.claude_code import ClaudeCodeReader, IFlowReader
from monitor.transcripts.readers.codex import CodexReader
from monitor.transcripts.readers.copilot_cli import CopilotCliReader
from monitor.transcripts.readers.databases import CursorReader, GooseReader, OpenCodeReader
from monitor.transcripts.readers.exported_chats import ChatGptReader, VsCodeChatReader
from monitor.transcripts.readers.factory_droid import FactoryDroidReader
from monitor.transcripts.readers.gemini_cli import GeminiCliReader, QwenCodeReader
from monitor.transcripts.readers.kimi import KimiReader
from monitor.transcripts.readers.messages import ClineReader, MessagesReader, ResponseItemsReader
from monitor.transcripts.readers.openhands import OpenHandsReader
from monitor.transcripts.readers.own import EventLogsReader, RecordedRunsReader
from monitor.transcripts.readers.pi import PiReader
from monitor.transcripts.readers.spans import LangSmithReader, TelemetryReader
from monitor.transcripts.source import Source

READERS: Final[tuple[TranscriptReader, ...]] = (
    IFlowReader(),
    QwenCodeReader(),
    ClaudeCodeReader(),
    CodexReader(),
    CopilotCliReader(),
    KimiReader(),
    FactoryDroidReader(),
    PiReader(),
    AntigravityReader(),
    GeminiCliReader(),
    OpenCodeReader(),
    GooseReader(),
    CursorReader(),
    InspectAiReader(),
    VsCodeChatReader(),
    ChatGptReader(),
    AiderReader(),
    AtifReader(),
    SweAgentReader(),
    TauBenchReader(),
    OpenHandsReader(),
    TelemetryReader(),
    LangSmithReader(),
    EventLogsReader(),
    RecordedRunsReader(),
    MiniSweAgentReader(),
    ClineReader(),
    ResponseItemsReader(),
    MessagesReader(),
)
"""The readers, one line each. Formats with a sign of their own come before those without one."""


AGENTS: Final = {reader.format: reader.agent for reader in READERS}
"""What people call the format: the name of its agent or framework."""


def signs_of(kind: str) -> str:
    """The signs by which a file of the format `kind` is recognised, in words for people."""
    return next((reader.signs for reader in READERS if reader.format == kind), "")


def reader_of(source: Source) -> TranscriptReader | None:
    """The reader of the format of `source`; `None`: the format is unknown."""
    return next((reader for reader in READERS if reader.fits(source)), None)
