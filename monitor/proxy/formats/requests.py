"""Reads requests of all formats: each is a JSON object with a history, a model, tools."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, TypeAlias
from urllib.parse import unquote

from monitor.chunks import Chunk
from monitor.context.repairs import repair, repair_behind
from monitor.errors import MonitorError
from monitor.messages import Message, RepairKind
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats.base import (
    HISTORY,
    MARK,
    RETRY_LATER,
    RETRY_NEVER,
    Beginning,
    FrameContent,
    JudgedRequest,
    Refusal,
    RepeatedField,
    Span,
    Unjudged,
    WireAnswer,
    read_object,
    to_bytes,
    without,
)
from monitor.wires.fields import Form, declarations_of, objects_at, text
from monitor.wires.read import read_history


class CannotJudge(Exception):
    """The request cannot be judged; the message says why."""


@dataclass(slots=True)
class RequestFields:
    """The fields of a request. Its history may be known up to some record."""

    value: Mapping[str, Any]
    known: Beginning | None = None
    """The beginning that was left out of the history in `value`."""
    is_closed: bool = True
    """No later record can belong to a message of this history."""


def judged(
    form: Form,
    path: str,
    body: bytes,
    known: Beginning | None,
    read_request: Callable[[str, RequestFields], JudgedRequest],
) -> JudgedRequest | Unjudged:
    """Read the body by `read_request`. Whatever a client sends, nothing is raised."""
    if known is not None and (found := _behind(form, path, body, known, read_request)) is not None:
        return found
    try:
        request, records = read_object(body, HISTORY[form])
        if not isinstance(request, dict):
            raise CannotJudge(f"the request is {_kind(request)}, not a JSON object")
        fields = RequestFields(request)
        asked = read_request(path, fields)
        return replace(asked, records=records if fields.is_closed else None)
    except (CannotJudge, RepeatedField) as error:
        return Unjudged(str(error))
    except ValueError:  # JSON, UTF-8
        return Unjudged("the request is not JSON")
    except MonitorError as error:
        return Unjudged(f"the conversation of the request cannot be read: {error}")
    except Exception as error:  # noqa: BLE001 - data of any kind, which the service is to judge
        return Unjudged(f"the request cannot be read: {error!r}")


def _behind(
    form: Form,
    path: str,
    body: bytes,
    known: Beginning,
    read_request: Callable[[str, RequestFields], JudgedRequest],
) -> JudgedRequest | None:
    """The request without its known beginning. `None`: the whole body must be read."""
    field, short = HISTORY[form], without(body, known.records)
    try:
        if short is None:
            return None
        request, shown = read_object(short, field)
        records = request[field]
        if shown is None or records[0] != MARK:
            return None
        request[field] = records[1:]
        fields = RequestFields(request, known)
        asked = read_request(path, fields)
    except Exception:  # noqa: BLE001 - reading it as a whole says what is wrong
        return None
    read = Span(known.records.start, shown.end + len(body) - len(short))
    return replace(asked, records=read if fields.is_closed else None, goes_on=True)


def history(form: Form, records: Iterable[object], fields: RequestFields) -> tuple[tuple[Message, ...], str | None]:
    """The conversation in `fields`, repaired for `form`, and its system messages. Behind a known
    beginning: the messages that follow it. Raises `CannotJudge` if those change what stands
    before them.
    """
    known, raw = fields.known, tuple(read_history(form, records))
    fields.is_closed = not raw or raw[-1].role != "assistant"
    if known is None:
        messages, report = repair(raw, form=form)
        fields.is_closed &= all(one.kind is not RepairKind.RESULT_ORPHANED for one in report.repairs)
        return messages, report.instructions
    messages, report = repair_behind(raw, known.ids, form=form)
    if any(one.kind in _OF_EARLIER for one in report.repairs):
        raise CannotJudge("the new messages change earlier ones")
    return messages, known.instructions


_OF_EARLIER: Final = frozenset(
    {
        RepairKind.RESULT_MOVED,
        RepairKind.RESULT_REPLACED,
        RepairKind.RESULT_REPEATED,
        RepairKind.RESULT_ORPHANED,
    }
)
"""Repairs by which a new record may belong to an earlier turn."""


def records_at(request: Mapping[str, Any], name: str) -> list[Any]:
    """A list of messages. Raises `CannotJudge` if there is none."""
    records = request.get(name)
    if not isinstance(records, list):
        raise CannotJudge(f"`{name}` of the request is {_kind(records)}, not a list")
    return records


_MODEL_IN_PATH: Final = re.compile(r"/(?:deployments|engines|models?)/([^/:?]+)")
"""Where Azure, Vertex AI and Bedrock have the model."""


def model_at(request: Mapping[str, Any], path: str) -> str:
    """The model's name: of the request, or of its path. Raises `CannotJudge` if there is none."""
    model = request.get("model")
    if isinstance(model, str) and model:
        return model
    found = _MODEL_IN_PATH.search(unquote(path.partition("?")[0]))
    if model is not None or found is None:
        raise CannotJudge(f"`model` of the request is {_kind(model)}, not a name")
    return found[1]


def truth_at(request: Mapping[str, Any], name: str) -> bool:
    """A switch that is off by default. Raises `CannotJudge` for anything else."""
    value = request.get(name)
    if value is not None and not isinstance(value, bool):
        raise CannotJudge(f"`{name}` of the request is {_kind(value)}, not true or false")
    return value is True


def count_at(request: Mapping[str, Any], *names: str) -> int | None:
    """The first of these fields that is a whole number above 0."""
    return next((value for name in names if type(value := request.get(name)) is int and value > 0), None)


def check_choices(request: Mapping[str, Any], name: str) -> None:
    """Raises `CannotJudge` for what is no number of answers."""
    asked = request.get(name)
    if asked is not None and (type(asked) is not int or not 1 <= asked <= _MOST_CHOICES):
        raise CannotJudge(f"`{name}` of the request is {_kind(asked)}, not from 1 to {_MOST_CHOICES}")


def first_choice(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The answer with its first choice alone."""
    choices = answer.get(name)
    if not isinstance(choices, list) or not any(isinstance(one, dict) and whole_at(one, "index") for one in choices):
        return answer
    return {**answer, name: [one for one in choices if not (isinstance(one, dict) and whole_at(one, "index"))]}


def further_choices(
    answer: Mapping[str, Any], name: str, read: Callable[[int, Mapping[str, Any]], Sequence[Chunk]]
) -> Mapping[int, Sequence[Chunk]]:
    """The chunks of all choices but the first, by their index. `read` reads a piece of one of them
    as if it were the first.
    """
    heard: dict[int, list[Chunk]] = {}
    for choice in objects_at(answer, name):
        if index := whole_at(choice, "index"):
            heard.setdefault(index, []).extend(read(index, {**answer, name: [{**choice, "index": 0}]}))
    return heard


_MOST_CHOICES: Final = 128
"""OpenAI's bound."""


def whole_at(record: Mapping[str, Any], name: str) -> int:
    """A place in a list. 0 if there is none."""
    value = record.get(name)
    return value if type(value) is int else 0


def is_structured(kind: object, choice: object) -> bool:
    """Whether the answer must be JSON of a schema (`kind`), or a call (`choice` of tools)."""
    forced = choice if isinstance(choice, str) else choice.get("type") if isinstance(choice, dict) else None
    return kind in ("json_object", "json_schema") or forced in _FORCED


_FORCED: Final = frozenset({"required", "any", "tool", "function", "custom"})
"""The words by which a request demands a call."""


def behind(sentence: str, *, begun: bool) -> str:
    """The sentence as it stands behind a text that has begun, or alone."""
    return f"\n\n{sentence}" if begun else sentence


def tools_at(request: Mapping[str, Any], field: str = "tools") -> frozenset[str]:
    """The names of the tools that a request declares."""
    return frozenset(filter(None, (text(tool, "name") for tool in declarations_of(request.get(field)))))


_KINDS: Final[Mapping[type, str]] = {
    type(None): "missing",
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number")


# --------------------------------------------------------------------------------------------------
# One wire format: how its requests, its answers and its refusals are read and written.


class Wire(ABC):
    """Reads the requests and answers of one wire format."""

    form: ClassVar[Form]
    """The form of its histories, which is also its name."""

    def asked(self, path: str, body: bytes, known: Beginning | None = None) -> JudgedRequest | Unjudged:
        """Read a request. `path`: with its query. `known`: the beginning of its history, whose
        records the body has in this place. Never raises.
        """
        return judged(self.form, path, body, known, self._asked)

    @abstractmethod
    def _asked(self, path: str, fields: RequestFields) -> JudgedRequest:
        """The request in a body that is a JSON object. May raise `CannotJudge`."""

    def answer(self, asked: JudgedRequest, beginning: bytes) -> WireAnswer | None:
        """A reader for the answer, whose status is 200, by its first bytes. `None`: it is not a
        stream; use `whole`.
        """
        return self.stream(asked) if sse.is_event_stream(beginning) else None

    @abstractmethod
    def stream(self, asked: JudgedRequest) -> WireAnswer:
        """A streamed answer in the form that was asked for."""

    @abstractmethod
    def whole(self, asked: JudgedRequest, body: bytes) -> FrameContent:
        """Read an answer that came in one piece. Never raises."""

    @abstractmethod
    def refusal(self, reason: str, *, status: int = 429, code: str = "agent_monitor") -> Refusal:
        """The answer of the service's own form that makes its SDK raise, with `reason` as the
        message. `code`: one word for programs. A header asks the SDK not to try again.
        """


# --------------------------------------------------------------------------------------------------
# Refusals: the words that services use for the statuses of HTTP.

CODE: Final = "agent_monitor"
"""The code of an error that no other code fits."""

_SERVER: Final = 500
_TIMED_OUT: Final = 408

OPENAI_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
ANTHROPIC_TYPES: Final = OPENAI_TYPES | {504: "timeout_error", 529: "overloaded_error"}
RPC_STATUSES: Final = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def type_of(status: int, types: Mapping[int, str], of_server: str, of_client: str = "invalid_request_error") -> str:
    """The service's word for an error with this status."""
    return types.get(status) or (of_server if status >= _SERVER else of_client)


def refused(status: int, body: Mapping[str, Any]) -> Refusal:
    """A refusal with `body` as its JSON. A client may try again if the next request may pass."""
    passes = status >= _SERVER or status == _TIMED_OUT
    return Refusal(status, RETRY_LATER if passes else RETRY_NEVER, to_bytes(body))


def refusal_of(wire: Wire | None, reason: str, status: int) -> Refusal:
    """A refusal in the form of `wire`. `None`: the form is not known, and OpenAI's is used."""
    return refused(status, openai_error(status, reason, CODE)) if wire is None else wire.refusal(reason, status=status)


def openai_error(status: int, reason: str, code: str) -> dict[str, Any]:
    """The error object of both of OpenAI's formats."""
    kind = type_of(status, OPENAI_TYPES, "server_error")
    return {"error": {"message": reason, "type": kind, "param": None, "code": code}}


# --------------------------------------------------------------------------------------------------
# The output items of a streamed response, as far as the client knows them, and the events that
# close them.

SERVED: Final = frozenset(
    {
        "code_interpreter_call",
        "compaction",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "message",
        "reasoning",
        "web_search_call",
    }
)
"""Items that ask nothing of the client. Every other one counts as a call, an unknown one too."""

_TEXTS: Final = {"output_text": "text", "reasoning_text": "text", "summary_text": "text", "refusal": "refusal"}
"""The parts that hold text, and the field that holds it."""

_Place: TypeAlias = tuple[Literal["content", "summary"], int]


@dataclass(slots=True)
class _ItemPart:
    value: dict[str, Any]
    pieces: list[str] = field(default_factory=list[str])
    text_done: bool = False
    done: bool = False

    @property
    def holds(self) -> str | None:
        """The name of its text. `None`: it has no text."""
        kind = self.value.get("type")
        return _TEXTS.get(kind) if isinstance(kind, str) else None

    def whole(self) -> dict[str, Any]:
        """The part with the text that the client was sent."""
        if self.done or self.holds is None:
            return self.value
        return self.value | {self.holds: "".join(self.pieces)}


class OutputItem:
    """One output item, as far as the client knows it."""

    def __init__(self, index: int, value: Mapping[str, Any]) -> None:
        self._index = index
        self._value: Mapping[str, Any] = value
        self._done = False
        self._parts: dict[_Place, _ItemPart] = {}

    def finish(self, value: Mapping[str, Any]) -> None:
        """The service has closed the item. `value`: the whole item."""
        self._value, self._done = value, True

    def take(self, event: Mapping[str, Any]) -> None:
        """Note an event that belongs to this item."""
        place = _place(event)
        kind = str(event.get("type"))
        if place is None or self._done:
            return
        if kind.endswith(("part.added", "part.done")):
            part = event.get("part")
            known = self._parts.setdefault(place, _ItemPart({}))
            known.value = dict(part) if isinstance(part, dict) else known.value
            known.done = kind.endswith("done")
        elif kind.endswith(".delta") and isinstance(event.get("delta"), str) and place in self._parts:
            self._parts[place].pieces.append(event["delta"])
        elif kind.endswith(".done") and place in self._parts:
            known = self._parts[place]
            known.text_done = True
            words = event.get(known.holds) if known.holds is not None else None
            if isinstance(words, str):
                known.pieces = [words]

    @property
    def has_open_text(self) -> bool:
        """Whether visible text may follow in it."""
        return self._open_text() is not None

    def _open_text(self) -> _Place | None:
        if self._done:
            return None
        texts = (
            place
            for place, part in self._parts.items()
            if part.value.get("type") == "output_text" and not part.text_done and not part.done
        )
        return max(texts, default=None)

    def closed(self, status: str, sentence: str = "") -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The events that close the item, and the whole item with `status`. `sentence`: the last of
        its text. Nothing changes here.
        """
        if self._done:
            return [], dict(self._value)
        place = self._open_text() if sentence else None
        if place is not None:
            other, part = OutputItem(self._index, self._value), self._parts[place]
            words = behind(sentence, begun=bool("".join(part.pieces)))
            other._parts = {**self._parts, place: replace(part, pieces=[*part.pieces, words])}
            closing, item = other.closed(status)
            return [self._delta(place, words), *closing], item
        parts = {place: part.whole() for place, part in sorted(self._parts.items())}
        item = dict(self._value)
        for name in ("content", "summary"):
            held = [part for (where, _), part in parts.items() if where == name]
            if held or name in item:
                item[name] = held
        item["status"] = status
        events = [event for place in parts for event in self._closing(place, self._parts[place], parts[place])]
        return [*events, {"type": "response.output_item.done", "output_index": self._index, "item": item}], item

    def _delta(self, place: _Place, words: str) -> dict[str, Any]:
        where = {"item_id": self._value.get("id"), "output_index": self._index, "content_index": place[1]}
        return {"type": "response.output_text.delta", **where, "delta": words, "logprobs": []}

    def _closing(self, place: _Place, part: _ItemPart, whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events that close a part of the item."""
        if part.done:
            return
        where, number = place
        place_fields = {"item_id": self._value.get("id"), "output_index": self._index, f"{where}_index": number}
        summary, kind = where == "summary", whole.get("type")
        if part.holds is not None and not part.text_done:
            name = "reasoning_summary_text" if summary else kind
            logprobs: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
            text = {part.holds: whole[part.holds]}
            yield {"type": f"response.{name}.done", **place_fields, **text, **logprobs}
        name = "reasoning_summary_part" if summary else "content_part"
        yield {"type": f"response.{name}.done", **place_fields, "part": whole}


def spoken(index: int, sentence: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events of a new message with nothing but `sentence`, and the message."""
    id = f"msg_agent_monitor_{index}"
    message = {"id": id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    item, part = OutputItem(index, message), {"type": "output_text", "text": "", "annotations": []}
    added = {"item_id": id, "output_index": index, "content_index": 0, "part": part}
    begun: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": index, "item": message},
        {"type": "response.content_part.added", **added},
    ]
    item.take(begun[1])
    closing, whole = item.closed("completed", sentence)
    return [*begun, *closing], whole


def _place(event: Mapping[str, Any]) -> _Place | None:
    """Where in its item an event belongs."""
    for where in ("content", "summary"):
        number = event.get(f"{where}_index")
        if type(number) is int:
            return where, number
    return None
