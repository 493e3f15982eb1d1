"""The fields of one recorded run in the project's own format. Everything else is refused there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from monitor.errors import AdapterError
from monitor.transcripts.base import LoopLabel, RecordedCall, RecordedMessage, RecordedResult, RecordedRun, Role


def run_of_record(record: Mapping[str, Any]) -> RecordedRun:
    """One record as a run. Raises `AdapterError` with what is wrong with it."""
    try:
        return _RunFields.model_validate(record).value()
    except ValidationError as error:
        first, *others = error.errors(include_url=False, include_input=False)
        more = f" (and {len(others)} more)" if others else ""
        said = _SAYS.get(first["type"], first["msg"])
        raise AdapterError(f"{'.'.join(map(str, first['loc']))}: {said}{more}") from None


_SAYS = {
    "model_type": "expected a JSON object",
    "extra_forbidden": "there is no such field here (a message has role, text, tool_calls and tool_results)",
}


class _RecordFields(BaseModel):
    """The allowed fields of a file. Types must be right, nothing is converted; `None` means
    absent.
    """

    model_config = ConfigDict(strict=True)


class _KnownFields(_RecordFields):
    """Refuses unknown fields, which may hold the model's text."""

    model_config = ConfigDict(strict=True, extra="forbid")


class _CallFields(_KnownFields):
    name: str
    args: Any = None

    def value(self) -> RecordedCall:
        return RecordedCall(self.name, {} if self.args is None else self.args)


class _ResultFields(_KnownFields):
    name: str | None = None
    text: str | None = None
    is_error: bool | None = None
    length: int | None = Field(default=None, alias="len", ge=0)
    sha1: str | None = Field(default=None, pattern=r"^[0-9a-fA-F]{4,40}$")

    def value(self) -> RecordedResult:
        return RecordedResult(self.name or "", self.text or "", bool(self.is_error), self.length, self.sha1)


class _MessageFields(_KnownFields):
    role: Role
    text: str | None = None
    tool_calls: list[_CallFields] | None = None
    tool_results: list[_ResultFields] | None = None

    def value(self) -> RecordedMessage:
        calls = tuple(call.value() for call in self.tool_calls or ())
        results = tuple(result.value() for result in self.tool_results or ())
        return RecordedMessage(self.role, self.text or "", calls, results)


class _LoopFields(_RecordFields):
    kind: str
    turn: int | None = None
    turn_3: int | None = None
    turn_5: int | None = None
    period: int | None = None
    repeats: float | None = None
    same_results: bool | None = None
    char: int | None = None
    chars: int | None = None

    def value(self) -> LoopLabel:
        return LoopLabel(**self.model_dump())


class _RunFields(_RecordFields):
    id: str
    messages: list[_MessageFields]
    source: str | None = None
    label: str | None = None
    loop: _LoopFields | None = None
    model: str | None = None

    def value(self) -> RecordedRun:
        messages = tuple(message.value() for message in self.messages)
        return RecordedRun(
            self.id, messages, self.source or "", self.label, self.loop.value() if self.loop else None, self.model or ""
        )
