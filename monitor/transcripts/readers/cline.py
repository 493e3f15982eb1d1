"""Cline, Roo and Kilo: `api_conversation_history.json`, Anthropic's messages. Older versions call
tools by XML in the text, and answer `[execute_command for ...] Result:` as the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from monitor.transcripts.base import Began, ReadReport, RecordedCall, RecordedMessage, TranscriptEntry
from monitor.transcripts.readers.base import TranscriptReader, whole_run
from monitor.transcripts.readers.chat import are_messages, messages_of
from monitor.transcripts.readers.values import result_of, rows, words
from monitor.transcripts.source import Source

_TOOLS: Final = (
    "execute_command read_file write_to_file replace_in_file apply_diff search_files list_files"
    " list_code_definition_names browser_action use_mcp_tool access_mcp_resource ask_followup_question"
    " attempt_completion new_task switch_mode insert_content search_and_replace update_todo_list plan_mode_respond"
)
_NAMES: Final = frozenset(_TOOLS.split())
_OPENED: Final = re.compile(r"<([a-z_]{1,40})>")
_RESULT: Final = re.compile(r"^\[([a-z_]{1,40})(?: for [^\n]{0,2000})?\] Result:")
_ENVIRONMENT: Final = "<environment_details>"


class ClineReader(TranscriptReader):
    """Reads conversation histories of Cline, Roo and Kilo."""

    format = "cline"
    agent = "Cline, Roo, Kilo"
    places = tuple(
        f"{root}/{extension}/tasks/*/api_conversation_history.json"
        for root in (
            ".config/Code/User/globalStorage",
            "Library/Application Support/Code/User/globalStorage",
            "AppData/Roaming/Code/User/globalStorage",
            ".vscode-server/data/User/globalStorage",
        )
        for extension in ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline", "kilocode.kilo-code")
    )

    def fits(self, source: Source) -> bool:
        """Messages of which one of the user's has the details of the environment."""
        document = source.document
        return are_messages(document) and any(
            one["role"] == "user" and _ENVIRONMENT in words(one.get("content")) for one in document[:20]
        )

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        yield from whole_run(Began(run=source.stem), _with_calls(messages_of(rows(source.document), report)))


def _with_calls(messages: Iterator[RecordedMessage]) -> Iterator[RecordedMessage]:
    for message in messages:
        if message.role == "assistant" and not message.tool_calls and (found := _call(message.text)) is not None:
            said, call = found
            yield RecordedMessage(
                "assistant", said, (call,), reasoning=message.reasoning, at=message.at, usage=message.usage
            )
        elif message.role == "user" and (answered := _RESULT.match(message.text)) is not None:
            said = message.text[answered.end() :].split(_ENVIRONMENT, 1)[0].strip()
            yield RecordedMessage("tool", tool_results=(result_of(answered[1], said),), at=message.at)
        else:
            yield message


def _call(said: str) -> tuple[str, RecordedCall] | None:
    """The text before the first call that is written as XML, and that call."""
    for opened in _OPENED.finditer(said):
        name = opened[1]
        if name not in _NAMES:
            continue
        end = said.find(f"</{name}>", opened.end())
        if end < 0:
            continue
        arguments: dict[str, str] = {}
        inside, at = said[opened.end() : end], 0
        while (inner := _OPENED.search(inside, at)) is not None:
            closed = inside.find(f"</{inner[1]}>", inner.end())
            if closed < 0:
                break
            arguments[inner[1]] = inside[inner.end() : closed].strip()
            at = closed + len(inner[1]) + 3
        return said[: opened.start()].strip(), RecordedCall(name, arguments)
    return None
