"""Items of OpenAI's Responses API: a list, one a line, a request with its `input` and `output`, or
a saved state of openai-agents. A history that is sent again repeats its items: each counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from monitor.transcripts.base import Began, EndState, ReadReport, RecordedMessage, RecordedResult, Role, TranscriptEntry
from monitor.transcripts.readers.base import HeldResponse, OpenRun, RecentIds, TranscriptReader
from monitor.transcripts.readers.chat import ROLES, usage_of
from monitor.transcripts.readers.values import call_of, parsed, result_of, rows, table, text, words
from monitor.transcripts.source import Source
from monitor.wires.responses import CALL_OF, is_item, is_own_item

_ARGUMENTS: Final = ("arguments", "input", "action", "operation", "queries", "code")


class ResponseItemsReader(TranscriptReader):
    """Reads items of the Responses API."""

    format = "responses"
    agent = "OpenAI Responses items"

    def fits(self, source: Source) -> bool:
        """Items, and at least one that only this API has."""
        document = source.document
        if isinstance(document, dict):
            if "$schemaVersion" in document and "generated_items" in document:
                return True
            return _are_items(rows(document.get("input")) + rows(document.get("output")))
        return _are_items(document if isinstance(document, list) else source.first_records)

    def read(self, source: Source, report: ReadReport) -> Iterator[TranscriptEntry]:
        document = source.document
        if isinstance(document, dict) and "$schemaVersion" in document:
            yield from _saved_state(source.stem, document, report)
            return
        run = ItemRun(source.stem, report)
        yield Began(run=run.id, model=text(table(document).get("model")))
        if isinstance(document, dict):
            yield from run.items([*rows(document.get("input")), *rows(document.get("output"))])
            run.held.usage = usage_of(table(document.get("usage")))
        else:
            yield from run.items(document if isinstance(document, list) else source.records(report))
        yield from run.finish()


def _are_items(items: Iterable[Any]) -> bool:
    found = [table(item) for item in [*items][:20]]
    return any(map(is_own_item, found)) and all(is_item(one, strict=False) for one in found)


def _saved_state(stem: str, document: Mapping[str, Any], report: ReadReport) -> Iterator[TranscriptEntry]:
    """`generated_items` has the items; the responses of the model have them again."""
    run = ItemRun(stem, report)
    agent = text(table(document.get("current_agent")).get("name"))
    yield Began(run=stem, project=agent)
    given = document.get("original_input")
    yield from run.items([{"role": "user", "content": given}] if isinstance(given, str) else rows(given))
    yield from run.items(
        table(item).get("raw_item", item)
        for item in rows(document.get("generated_items"))
        if table(item).get("type") != "tool_approval_item"
    )
    waits = text(table(document.get("current_step")).get("type"))
    yield from run.finish(("unfinished", "waits for an approval") if waits == "next_step_interruption" else None)


class ItemRun(OpenRun):
    """A run whose items are joined to responses of the model, and their results."""

    def __init__(self, id: str, report: ReadReport) -> None:
        super().__init__(id)
        self._report = report
        self._seen = RecentIds()
        self.held = HeldResponse()
        self._results: list[RecordedResult] = []

    def items(self, items: Iterable[Any]) -> Iterator[TranscriptEntry]:
        for item in map(table, items):
            kind = text(item.get("type")) or "message"
            id = text(item.get("call_id")) or text(item.get("id"))
            if not self._seen.is_new(f"{kind}/{id}" if id else None):
                self._report.repeated += 1
            elif kind == "message":
                yield from self._message(item)
            elif kind == "reasoning":
                yield from self._begin()
                self.held.reasoning.append(words(item.get("summary")) or words(item.get("content")))
            elif kind in CALL_OF:
                failed = item.get("status") == "failed"
                said = words(item.get("output"))
                self._results.append(result_of("", said, is_error=failed, call_id=text(item.get("call_id")) or None))
            elif kind.endswith("_call"):
                yield from self._begin()
                arguments: object = next((item[name] for name in _ARGUMENTS if name in item), {})
                name = item.get("name") or kind.removesuffix("_call")
                self.held.calls.append(call_of(name, parsed(arguments), id))
            else:
                self._report.does_not_know(kind)

    def _begin(self) -> Iterator[TranscriptEntry]:
        if self._results:
            yield from self._flush()

    def _message(self, item: Mapping[str, Any]) -> Iterator[TranscriptEntry]:
        role: Role = ROLES.get(text(item.get("role")), "assistant")
        if role == "assistant":
            yield from self._begin()
            self.held.text.append(words(item.get("content")))
        else:
            yield from self._flush()
            yield self.said(RecordedMessage(role, words(item.get("content"))))

    def _flush(self) -> Iterator[TranscriptEntry]:
        held, self.held = self.held, HeldResponse()
        if self._results:
            held.results.append(RecordedMessage("tool", tool_results=tuple(self._results)))
        self._results = []
        yield from map(self.said, held.messages())

    def finish(self, ended: tuple[EndState, str] | None = None) -> Iterator[TranscriptEntry]:
        """The last response, and the end of the run."""
        yield from self._flush()
        self.ended = ended
        yield self.end()
