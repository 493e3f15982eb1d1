"""The answer to a coding agent that asks before a tool call, where a loop is possible.

The agent waits for it. So nothing is imported here that takes long and is not needed: no typer, no
rich; and pydantic only where settings are given. Of a long session the end is read, and the
requests before it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from monitor._util.printable import on_one_line, printable_json
from monitor.cli.hooks.agents import ANSWERS, HOOKS, Hook, LoopAnswer
from monitor.cli.hooks.found_settings import has_settings
from monitor.cli.hooks.session_lines import BEGINNING_BYTES
from monitor.cli.hooks.watched_end import AskedCall, GoingLoop, Judged, SessionEnd
from monitor.core.detector_bank import PartCrash
from monitor.detectors.calls.allowance import REQUEST_CHARS
from monitor.detectors.defaults import OF_CALLS
from monitor.detectors.detector import Detector
from monitor.errors import MonitorError
from monitor.transcripts.base import ReadReport, Said
from monitor.transcripts.readers.base import LineReader, TranscriptReader
from monitor.transcripts.source import Source

if TYPE_CHECKING:
    from pathlib import Path

RESULT_CHARS: Final = 200
END_BYTES: Final = (400_000, 1_000_000, 4_000_000)
"""The part of a session, from its end, that is read: the first one that has enough calls."""
Ranges: TypeAlias = Sequence[Sequence[int]]


@dataclass(slots=True)
class HookCall:
    """The command line of a hook."""

    hook: Hook
    on_loop: LoopAnswer = "ask"
    config: Path | None = None
    detectors: str | None = None
    settings: Sequence[str] = ()

    @classmethod
    def of(cls, arguments: Sequence[str]) -> HookCall:
        """The command line that the settings of an agent have."""
        given = list(zip(arguments[1::2], arguments[2::2], strict=True))
        last = dict(given)
        on_loop: LoopAnswer | None = next((one for one in ANSWERS if one == last.get("--on-loop")), None)
        config = None
        if "--config" in last:
            from pathlib import Path  # noqa: PLC0415 - takes long, and is seldom needed

            config = Path(last["--config"])
        settings = [value for option, value in given if option == "--set"]
        return cls(HOOKS[arguments[0]], on_loop or "ask", config, last.get("--detectors"), settings)

    def answer(self, question: bytes, requests: Ranges | None = None) -> tuple[str, Judged | None]:
        """The answer to `question`, in one line, and what it rests on. Reasons for no answer go to
        stderr, and hold up nobody: then nothing is known, so it is `None`. `requests`: the parts of
        the session in which a person says something; `None`: not known.
        """
        found: Mapping[str, Any] = {}
        try:
            event = _event(question)
            judged = self._judge(event, requests)
            if judged.loop is not None:
                found = self.hook.answered(_text(event, "hook_event_name"), _reason(judged.loop), self.on_loop)
        except (MonitorError, OSError, ValueError) as error:
            return _unwatched(error)
        except PartCrash as crash:
            return _unwatched(f"{crash.name} raised {type(crash.error).__name__}: {crash.error}")
        return printable_json(json.dumps(found)), judged

    def _judge(self, event: Mapping[str, Any], requests: Ranges | None) -> Judged:
        """What the detectors say of the call that is asked about."""
        path = _text(event, "transcript_path")
        if not os.path.isfile(path):
            return Judged()
        session = SessionEnd(self._detectors(), self.hook.is_tool)
        _read_end(path, session, self.hook.reader(), requests or [[0, BEGINNING_BYTES]])
        tool = _text(event, "tool_name")
        pending = AskedCall(tool, event.get("tool_input"), _text(event, "tool_use_id")) if tool else None
        return session.judge(pending)

    def _detectors(self) -> Callable[[], Iterable[Detector]]:
        if not (self.config or self.detectors or self.settings or has_settings()):
            return OF_CALLS.make
        from monitor.cli.options.settings_options import settings_of  # noqa: PLC0415 - with pydantic and typer, only where needed

        return settings_of(self.config, self.detectors, self.settings).detectors


def _read_end(path: str, session: SessionEnd, usual: TranscriptReader, requests: Ranges) -> None:
    """Give the end of the session in `path` to `session`, with the requests before it. `usual`: the
    reader of the agent's own sessions.
    """
    size = os.path.getsize(path)
    whole = Source(path, lambda: open(path, "rb"), size=size)  # noqa: SIM115 - who reads it closes it
    beginning = whole if whole.is_packed else whole.part(0, min(size, BEGINNING_BYTES))
    reader = usual if usual.fits(beginning) else _reader_of(Source.of_path(path))
    if reader is None:
        return
    if size <= END_BYTES[0] or whole.is_packed or not isinstance(reader, LineReader):
        session.take(reader.read(whole, ReadReport()))
        return
    for length in END_BYTES:
        start = _line_start(path, size - length)
        before = [whole.part(begin, min(end, start)) for begin, end in requests if begin < start]
        said = [text for part in before for text in _requests(reader, part)]
        session.take(reader.read(whole.part(start, size), ReadReport()), said)
        if session.is_full or start == 0:
            return


def _line_start(path: str, at: int) -> int:
    """Where the first line begins that begins behind `at`."""
    if at <= 0:
        return 0
    with open(path, "rb") as file:
        file.seek(at)
        return at + len(file.readline())


def _reader_of(source: Source) -> TranscriptReader | None:
    from monitor.transcripts.readers.registry import reader_of  # noqa: PLC0415 - all readers, seldom needed

    return reader_of(source)


def _requests(reader: TranscriptReader, part: Source) -> Iterator[str]:
    """What the user asks for in a part of a session."""
    for entry in reader.read(part, ReadReport()):
        if isinstance(entry, Said) and entry.message.role == "user" and not entry.message.synthetic:
            yield entry.message.text[:REQUEST_CHARS]


def _unwatched(why: object) -> tuple[str, None]:
    """The answer where nothing is known of the session, and why on stderr."""
    sys.stderr.write(f"{on_one_line(f'agent-monitor: the session could not be watched: {why}')}\n")
    return "{}", None


def _event(data: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except RecursionError:
        raise ValueError("stdin is nested too deeply") from None
    if not isinstance(event, dict):
        raise ValueError("stdin is no JSON object")
    return event


def _text(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""


def _reason(loop: GoingLoop) -> str:
    said = f"agent-monitor: {loop.detection.message}."
    result = " ".join(loop.result.split())[:RESULT_CHARS]
    return on_one_line(f"{said} The result: {result}" if result else said)
