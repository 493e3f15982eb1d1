"""One wire format: how its requests, its answers and its refusals are read and written.

A format says where a request and an answer have their fields, and how an end and an error are
written. Here is all that follows from it. Nothing here waits. The relay has the bytes, and does
with each answer:

    answer = wire.answer(asked, beginning)
    for frame in answer.feed(data):              # whole frames; half a frame is held back
        heard = answer.read(frame)               # its chunks, to be judged
        if they must stop the stream:
            send(answer.ending(reason))          # the frame itself is not sent
            break
        send(frame.raw)
        answer.sent(frame)                       # now the client knows it
    # the upstream has ended: the frames of `answer.end()` likewise, then `answer.finish()`
    if not answer.over:
        send(answer.broken(reason))
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from monitor.adapters.adapter import FullAdapter, ReportedFailure
from monitor.chunks import NO_USAGE, Chunk, Usage, UsageReport
from monitor.context.repairs import repair, repair_behind
from monitor.errors import AdapterError, MonitorError
from monitor.messages import RepairKind
from monitor.models import ModelError
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats.base import (
    HISTORY,
    MARK,
    NOTHING,
    Beginning,
    Fault,
    Frame,
    FrameContent,
    JudgedRequest,
    Refusal,
    RepeatedField,
    Span,
    Unjudged,
    parsed,
    read_object,
    to_bytes,
    whole_at,
    without,
)
from monitor.wires.fields import Form, declarations_of, objects_at, text
from monitor.wires.read import read_history

# --------------------------------------------------------------------------------------------------
# Errors: the words that services use for the statuses of HTTP.

CODE: Final = "agent_monitor"
"""The code of an error that no other code fits."""
STOPPED: Final = 400
"""The status that an error inside a stream stands for, if the proxy has stopped the answer: clients
do not try again.
"""
BROKE_OFF: Final = 502
"""The status of such an error if the upstream broke off: clients may try again."""
RETRY_NEVER: Final[Mapping[str, str]] = {"content-type": "application/json", "x-should-retry": "false"}
"""Headers of a refusal. The SDKs of OpenAI and Anthropic obey the second one."""
RETRY_LATER: Final[Mapping[str, str]] = {"content-type": "application/json", "retry-after": "1"}
"""Headers of a refusal that may be over soon."""
_SERVER: Final = 500
_TIMED_OUT: Final = 408

_OPENAI_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES: Final = _OPENAI_TYPES | {504: "timeout_error", 529: "overloaded_error"}
_RPC_STATUSES: Final = {
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
    return refused(status, _openai(status, reason, CODE)) if wire is None else wire.refusal(reason, status=status)


def error_of(form: Form, status: int, reason: str, code: str = CODE) -> dict[str, Any]:
    """The error object of a format. `code`: one word for programs."""
    return _ERRORS[form](status, reason, code)


def _openai(status: int, reason: str, code: str) -> dict[str, Any]:
    kind = type_of(status, _OPENAI_TYPES, "server_error")
    return {"error": {"message": reason, "type": kind, "param": None, "code": code}}


def _anthropic(status: int, reason: str, _: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": type_of(status, _ANTHROPIC_TYPES, "api_error"), "message": reason}}


def _rpc(status: int, reason: str, code: str) -> dict[str, Any]:
    details = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code.upper(), "domain": "agent-monitor"}
    word = type_of(status, _RPC_STATUSES, "INTERNAL", "FAILED_PRECONDITION")
    return {"error": {"code": status, "message": reason, "status": word, "details": [details]}}


_ERRORS: Final[Mapping[Form, Callable[[int, str, str], dict[str, Any]]]] = {
    "openai-chat": _openai,
    "openai-responses": _openai,
    "anthropic": _anthropic,
    "gemini": _rpc,
}


# --------------------------------------------------------------------------------------------------
# One answer in a stream.


class AnswerState:
    """How far an answer has come for one side: as the upstream has sent it, or the client got it.

    It follows the calls: a call that is half written may not reach the client. Cut off there, some
    clients carry it out, and all send back a history that no service takes.
    """

    def __init__(self) -> None:
        self.begun: set[int] = set()
        """The choices of the answer that have begun. Most formats have only choice 0."""
        self.texted: set[int] = set()
        """The choices with text; in Anthropic's format the blocks with text."""
        self.called: set[int] = set()
        """The choices in which a call of the client's tools was begun."""
        self.finished: set[int] = set()
        self.blocks: dict[int, str] = {}
        """The blocks of a choice that are open: their types, by their places."""
        self.places = 0
        """How many blocks have begun."""
        self.blocked = False
        """The service has refused the request inside its answer."""
        self.over = False
        """The answer has had its last event, or an error."""
        self.call_began = False
        """In the newest frame a call began, and all calls before it are whole."""
        self._half: dict[tuple[int, int], list[str | None]] = {}
        """The calls that are half written, and the pieces of their arguments."""

    def write(self, choice: int, place: int = 0, piece: str | None = None) -> None:
        """Note a piece of a call. `None`: the call says itself when it is whole."""
        if (choice, place) not in self._half:
            self.call_began = self.call_began or all(map(_is_json, self._half.values()))
        self._half.setdefault((choice, place), []).append(piece)

    def whole(self, choice: int, place: int = 0) -> None:
        """Note that a call is whole."""
        self._half.pop((choice, place), None)

    def finish(self, choice: int) -> None:
        """Note that a choice is finished, with its calls."""
        self.finished.add(choice)
        self._half = {place: pieces for place, pieces in self._half.items() if place[0] != choice}

    def end(self) -> None:
        """Note the last event of the answer."""
        self.over = True
        self._half.clear()

    @property
    def call_is_half(self) -> bool:
        """Whether a call is half written after the newest frame."""
        return bool(self._half)

    @property
    def has_open_calls(self) -> bool:
        """Whether a client may still carry a call out for which the model has not ended."""
        return not self.blocked and (self.call_is_half or not self.called <= self.finished)

    @property
    def is_complete(self) -> bool:
        """Whether all choices that have begun are finished."""
        return self.blocked or bool(self.finished and self.finished >= self.begun)


def _is_json(pieces: Sequence[str | None]) -> bool:
    try:
        parsed("".join(piece for piece in pieces if piece is not None) or "{}")
    except ValueError:
        return False
    return None not in pieces


class WireAnswer(ABC):
    """One streamed answer on its way from the upstream to the client.

    `read` follows what the upstream says, `sent` what the client knows. The two may differ: a frame
    in which a stop falls is read and not sent. The ending is for what the client knows.
    """

    form: ClassVar[Form]
    adapter: ClassVar[Callable[[int], FullAdapter]]
    """Reads the objects of the format. The number is that of the choice."""
    media_type: ClassVar[str] = "text/event-stream"
    """The media type of a stream that begins here."""

    def __init__(self, asked: JudgedRequest, framing: sse.FrameReader | None = None) -> None:
        self.asked = asked
        self.usage: Usage = NO_USAGE
        """The tokens that the upstream has reported so far."""
        self.upstream = AnswerState()
        """The answer as the upstream has sent it."""
        self.client = AnswerState()
        """The answer as the client got it."""
        self._framing = framing or sse.SseReader()
        self._adapter = type(self).adapter(0)
        self._blind = False
        """Whether the client was sent bytes that were not read."""

    # --- what the upstream says

    def feed(self, data: bytes) -> list[Frame]:
        """The whole frames up to the end of `data`."""
        return [_with_value(frame) for frame in self._framing.feed(data)]

    def end(self) -> list[Frame]:
        """The last frames: no more bytes come. An event that was cut off is dropped, because no
        client can read it.
        """
        return [frame for frame in map(_with_value, self._framing.end()) if frame.fault is None]

    def read(self, frame: Frame) -> FrameContent:
        """Read the frame. Each frame is read once, in order. Never raises."""
        if frame.fault is not None:
            return FrameContent(unread=frame.fault.detail)
        if frame.value is None:
            return NOTHING
        value, failure = frame.value, None
        if isinstance(value, dict):
            self.upstream.call_began = False
            self._note(self.upstream, value)
            failure = self._failure(value) if value.get("error") else None
        if failure is not None:
            return FrameContent(failure=failure)
        heard = decoded(self._adapter, self._viewed(value) if isinstance(value, dict) else value)
        for chunk in heard.chunks:
            if isinstance(chunk, UsageReport):
                self.usage = self.usage.merged(chunk)
        return heard

    def finish(self) -> tuple[Chunk, ...]:
        """The chunks that are missing when the upstream has ended: calls that were cut off."""
        return tuple(self._adapter.finish())

    def others(self, frame: Frame) -> Mapping[int, Sequence[Chunk]]:
        """The chunks of further choices in the frame, by their index. Call it once a frame."""
        return {}

    def whole(self, value: Mapping[str, Any]) -> FrameContent:
        """The content of an answer that came in one piece."""
        frames = [Frame(b"", value=event) for event in self._events_of(value)]
        parts = [*map(self.read, frames), FrameContent(self.finish())]
        return FrameContent(
            tuple(chunk for part in parts for chunk in part.chunks),
            next((part.failure for part in parts if part.failure is not None), None),
            next((part.unread for part in parts if part.unread is not None), None),
            self.others(frames[-1]),
        )

    @abstractmethod
    def _note(self, state: AnswerState, value: Mapping[str, Any]) -> None:
        """Note how far an event has brought the answer."""

    def _viewed(self, value: Mapping[str, Any]) -> object:
        """An event as the adapter reads it."""
        return value

    def _failure(self, value: Mapping[str, Any]) -> ModelError | None:
        """The error in an event, where the adapter does not know it."""
        return None

    def _events_of(self, value: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        """An answer in one piece as the events of a stream, as far as the adapter reads them."""
        return (value,)

    # --- what the client knows

    def sent(self, frame: Frame) -> None:
        """Note that the client was sent the frame."""
        if frame.fault is not None and frame.fault.kind == "oversized":
            self._blind = True
        elif isinstance(frame.value, dict):
            self._note(self.client, frame.value)
            self._told(frame.value)

    def _told(self, value: Mapping[str, Any]) -> None:  # noqa: B027 - some formats repeat nothing
        """Keep what the end of the answer repeats of this event."""

    @property
    def over(self) -> bool:
        """Whether the client has seen the end of the answer. If the upstream ends before, it was
        cut off.
        """
        return self.client.over

    def ending(self, reason: str, *, sentence: str = "", error: bool = False, usage: Usage | None = None) -> bytes:
        """The bytes that end the client's stream in its own form. Empty if it has ended, or cannot
        be ended (see `Fault`).

        The end looks as if the model had stopped, and `sentence` is its last text. Where the client
        has asked for JSON of a schema, it looks as if the model had no room left. A comment beside
        it gives our `reason`. With `error=True` it is the error of the format instead, with the
        reason as its message. So does an answer in which a call was begun, unless the model has
        ended it: a client would carry the call out.

        `usage`: the tokens of the answer, where the caller knows them better than `self.usage`.
        """
        if self._blind or self._closed:
            return b""
        if error or self.client.has_open_calls:
            return self._error(reason, STOPPED)
        try:
            said = "" if self.asked.structured else sentence
            return self._end(reason, self.usage if usage is None else usage, said)
        except RecursionError:  # the service's own fields were just not too deep to be read, and are written again
            return self._error(reason, STOPPED)

    def broken(self, reason: str) -> bytes:
        """The bytes that say that the upstream broke off. They never look like an end."""
        return b"" if self._blind or self._closed else self._error(reason, BROKE_OFF)

    def in_one_piece(self, merged: Mapping[str, Any]) -> Mapping[str, Any]:
        """The answer that the client gets who asked for no stream. `merged`: of the events."""
        return merged

    def comment(self, text: str) -> bytes:
        """A remark that clients skip, for instance to keep a connection open. Empty if the format
        has none.
        """
        return sse.comment(text)

    @property
    def _closed(self) -> bool:
        """Whether nothing may follow what the client was sent."""
        return self.over

    @abstractmethod
    def _end(self, reason: str, usage: Usage, sentence: str) -> bytes: ...

    def _error(self, reason: str, status: int) -> bytes:
        return sse.comment(reason) + sse.event(error_of(self.form, status, reason))


class ChoiceAnswer(WireAnswer):
    """An answer with a list of choices in each event. The first choice is the one of the run."""

    choices: ClassVar[str]
    """The field of an event that has the choices."""
    finish_reason: ClassVar[str]
    """The field of a choice that says why it is finished."""
    counts: ClassVar[str]
    """The field of an event that has the usage, which counts for all choices together."""

    def __init__(self, asked: JudgedRequest, framing: sse.FrameReader | None = None) -> None:
        super().__init__(asked, framing)
        self._others: dict[int, FullAdapter] = {}
        """The readers of further choices."""

    def _note(self, state: AnswerState, value: Mapping[str, Any]) -> None:
        state.over = state.over or bool(value.get("error"))
        for choice in objects_at(value, self.choices):
            index = whole_at(choice, "index")
            state.begun.add(index)
            self._note_choice(state, index, choice)
            if choice.get(self.finish_reason):
                state.finish(index)

    @abstractmethod
    def _note_choice(self, state: AnswerState, index: int, choice: Mapping[str, Any]) -> None:
        """Note the text and the calls in a piece of a choice."""

    def _viewed(self, value: Mapping[str, Any]) -> object:
        """The event with its first choice alone."""
        choices = value.get(self.choices)
        if not isinstance(choices, list) or not any(
            isinstance(one, dict) and whole_at(one, "index") for one in choices
        ):
            return value
        first = [one for one in choices if not (isinstance(one, dict) and whole_at(one, "index"))]
        return {**value, self.choices: first}

    def others(self, frame: Frame) -> Mapping[int, Sequence[Chunk]]:
        """Each of them is read as if it were the first."""
        heard: dict[int, list[Chunk]] = {}
        for choice in objects_at(frame.value, self.choices) if isinstance(frame.value, dict) else ():
            if index := whole_at(choice, "index"):
                adapter = self._others.setdefault(index, type(self).adapter(index))
                alone = {**frame.value, self.choices: [{**choice, "index": 0}], self.counts: None}
                heard.setdefault(index, []).extend(decoded(adapter, self._viewed(alone)).chunks)
        return heard

    @property
    def _open_choices(self) -> list[int]:
        """The choices that the end must finish."""
        return sorted((self.client.begun or {0}) - self.client.finished)


def decoded(adapter: FullAdapter, item: object) -> FrameContent:
    """The content of `item`, as its adapter reads it."""
    try:
        return FrameContent(tuple(adapter.decode(item)))
    except ReportedFailure as failure:
        return FrameContent(failure.chunks, failure=failure.model_error)
    except AdapterError as error:
        return FrameContent(unread=str(error))


DONE: Final = "[DONE]"
"""How the data of the last event of OpenAI's chat completions begins, which is not JSON."""


def _with_value(frame: Frame) -> Frame:
    if frame.data and frame.fault is None and not frame.data.startswith(DONE):
        try:
            frame.value = parsed(frame.data)
        except ValueError as error:
            frame.fault = Fault("unparsable", f"an event is not JSON: {error}")
    return frame


def after_text(sentence: str, *, begun: bool) -> str:
    """The sentence as it stands behind a text that has begun, or alone."""
    return f"\n\n{sentence}" if begun else sentence


# --------------------------------------------------------------------------------------------------
# The format itself.


class CannotJudge(Exception):
    """The request cannot be judged; the message says why."""


class Wire(ABC):
    """Reads the requests and answers of one wire format."""

    form: ClassVar[Form]
    """The form of its histories, which is also its name."""
    answers: ClassVar[type[WireAnswer]]
    """Reads one streamed answer."""

    def asked(self, path: str, body: bytes, known: Beginning | None = None) -> JudgedRequest | Unjudged:
        """Read a request. `path`: with its query. `known`: the beginning of its history, whose
        records the body has in this place. Whatever a client sends, nothing is raised.
        """
        if known is not None and (found := self._asked_after(path, body, known)) is not None:
            return found
        try:
            request, records = read_object(body, HISTORY[self.form])
            if not isinstance(request, dict):
                raise CannotJudge(f"the request is {_kind(request)}, not a JSON object")
            asked = self._asked(path, request, None)
            return replace(asked, records=records if asked.is_closed else None)
        except (CannotJudge, RepeatedField) as error:
            return Unjudged(str(error))
        except ValueError:  # JSON, UTF-8
            return Unjudged("the request is not JSON")
        except MonitorError as error:
            return Unjudged(f"the conversation of the request cannot be read: {error}")
        except Exception as error:  # noqa: BLE001 - data of any kind, which the service is to judge
            return Unjudged(f"the request cannot be read: {error!r}")

    def _asked_after(self, path: str, body: bytes, known: Beginning) -> JudgedRequest | None:
        """The request without its known beginning. `None`: the whole body must be read."""
        field, short = HISTORY[self.form], without(body, known.records)
        try:
            if short is None:
                return None
            request, shown = read_object(short, field)
            records = request[field]
            if shown is None or records[0] != MARK:
                return None
            request[field] = records[1:]
            asked = self._asked(path, request, known)
        except Exception:  # noqa: BLE001 - reading it as a whole says what is wrong
            return None
        read = Span(known.records.start, shown.end + len(body) - len(short))
        return replace(asked, records=read if asked.is_closed else None, goes_on=True)

    @abstractmethod
    def _asked(self, path: str, request: Mapping[str, Any], known: Beginning | None) -> JudgedRequest:
        """The request in a body that is a JSON object. May raise `CannotJudge`."""

    def _conversation(self, records: Iterable[object], known: Beginning | None) -> JudgedRequest:
        """A request with the conversation of these records alone. Behind a `known` beginning: with
        the messages that follow it. Raises `CannotJudge` if those change what stands before them.
        """
        raw = tuple(read_history(self.form, records))
        is_closed = not raw or raw[-1].role != "assistant"
        if known is None:
            messages, report = repair(raw, form=self.form)
            is_closed &= all(one.kind is not RepairKind.RESULT_ORPHANED for one in report.repairs)
            said = report.instructions
        else:
            messages, report = repair_behind(raw, known.ids, form=self.form)
            if any(one.kind in _OF_EARLIER for one in report.repairs):
                raise CannotJudge("the new messages change earlier ones")
            said = known.instructions
        return JudgedRequest(
            form=self.form, messages=messages, is_closed=is_closed, instructions=said, system_messages=said
        )

    def answer(self, asked: JudgedRequest, beginning: bytes) -> WireAnswer | None:
        """A reader for the answer, whose status is 200, by its first bytes. `None`: it is not a
        stream; use `whole`.
        """
        return self.stream(asked) if sse.is_event_stream(beginning) else None

    def stream(self, asked: JudgedRequest) -> WireAnswer:
        """A streamed answer in the form that was asked for."""
        return self.answers(asked)

    def whole(self, asked: JudgedRequest, body: bytes) -> FrameContent:
        """Read an answer that came in one piece. Never raises."""
        try:
            value = parsed(body)
        except ValueError:
            return FrameContent(unread="the answer is not JSON")
        if not isinstance(value, dict):
            return FrameContent(unread="the answer is not a JSON object")
        return self.stream(asked).whole(value)

    def refusal(self, reason: str, *, status: int = 429, code: str = CODE) -> Refusal:
        """The answer of the service's own form that makes its SDK raise, with `reason` as the
        message. `code`: one word for programs. A header asks the SDK not to try again.
        """
        return refused(status, error_of(self.form, status, reason, code))


_OF_EARLIER: Final = frozenset(
    {
        RepairKind.RESULT_MOVED,
        RepairKind.RESULT_REPLACED,
        RepairKind.RESULT_REPEATED,
        RepairKind.RESULT_ORPHANED,
    }
)
"""Repairs by which a new record may belong to an earlier turn."""


# --------------------------------------------------------------------------------------------------
# The fields of a request.


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


_MOST_CHOICES: Final = 128
"""OpenAI's bound."""


def check_choices(request: Mapping[str, Any], name: str) -> None:
    """Raises `CannotJudge` for what is no number of answers."""
    asked = request.get(name)
    if asked is not None and (type(asked) is not int or not 1 <= asked <= _MOST_CHOICES):
        raise CannotJudge(f"`{name}` of the request is {_kind(asked)}, not from 1 to {_MOST_CHOICES}")


def is_structured(kind: object, choice: object) -> bool:
    """Whether the answer must be JSON of a schema (`kind`), or a call (`choice` of tools)."""
    forced = choice if isinstance(choice, str) else choice.get("type") if isinstance(choice, dict) else None
    return kind in ("json_object", "json_schema") or forced in _FORCED


_FORCED: Final = frozenset({"required", "any", "tool", "function", "custom"})
"""The words by which a request demands a call."""


def tools_at(request: Mapping[str, Any], *fields: str) -> frozenset[str]:
    """The names of the tools that a request declares in these fields."""
    declared: Iterator[Mapping[str, Any]] = (tool for field in fields for tool in declarations_of(request.get(field)))
    return frozenset(filter(None, (text(tool, "name") for tool in declared)))


_KINDS: Final[Mapping[type, str]] = {
    type(None): "missing",
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a number")
