"""The wire format of OpenAI's responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import NO_USAGE, Usage
from monitor.models import ModelError
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats import wire as wires
from monitor.proxy.formats.base import Beginning, JudgedRequest, whole_at
from monitor.proxy.formats.chat import failed
from monitor.proxy.formats.wire import CODE, AnswerState
from monitor.wires.fields import instructions_of, object_at, objects_at

_ENDS: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"}
)
_METADATA_CHARS: Final = 500
"""A value of the metadata has at most 512 characters."""
_ECHOES: Final = frozenset({"response.created", "response.queued", "response.in_progress"})


class ResponsesAnswer(wires.WireAnswer):
    """One streamed response. It is the choice 0 of the answer.

    It holds the text that the client was sent: the events that close an item repeat it.
    """

    form = "openai-responses"
    adapter = OpenAIAdapter

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked)
        self._response: dict[str, Any] | None = None
        self._sequence = -1
        self._items: dict[int, OutputItem] = {}
        """The items that the client knows, by their place in the output."""

    def _failure(self, value: Mapping[str, Any]) -> ModelError | None:
        return None if value.get("type") else failed(value)

    def _events_of(self, value: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        if value.get("error") and value.get("status") != "failed":
            return ({"error": value["error"]},)
        return _events_of(value)

    def _note(self, state: AnswerState, value: Mapping[str, Any]) -> None:
        """A call is whole when its item is done."""
        kind, at, item = str(value.get("type")), whole_at(value, "output_index"), object_at(value, "item")
        calls = item.get("type") not in SERVED
        if kind in _ENDS or value.get("error"):
            state.end()
        elif item and calls:
            state.called.add(0)
        if kind == "response.output_item.added" and calls:
            state.write(0, at)
        elif kind == "response.output_item.done":
            state.whole(0, at)

    def _told(self, value: Mapping[str, Any]) -> None:
        number, index, kind = value.get("sequence_number"), value.get("output_index"), str(value.get("type"))
        if type(number) is int:
            self._sequence = max(self._sequence, number)
        if kind in _ECHOES:
            self._response = dict(object_at(value, "response")) or self._response
        elif type(index) is int:
            self._told_of_item(index, kind, value)

    def _told_of_item(self, index: int, kind: str, event: Mapping[str, Any]) -> None:
        item = object_at(event, "item")
        known = self._items.get(index)
        if kind == "response.output_item.added":
            self._items[index] = OutputItem(index, item)
        elif kind == "response.output_item.done":
            self._items.setdefault(index, OutputItem(index, item)).finish(item)
        elif known is not None:
            known.take(event)

    def _end(self, reason: str, usage: Usage, sentence: str) -> bytes:
        response = self._response or self._empty()
        events: list[dict[str, Any]] = []
        if self._response is None:
            events.append({"type": "response.created", "response": response})
        status = "incomplete" if self.asked.structured else "completed"
        at = max((index for index, item in self._items.items() if item.has_open_text), default=None)
        items = [self._items[index].closed(status, sentence if index == at else "") for index in sorted(self._items)]
        if sentence and at is None:
            items.append(spoken(max(self._items, default=-1) + 1, sentence))
        events += [event for closing, _ in items for event in closing]
        last = response | {
            "status": status,
            "incomplete_details": {"reason": "max_output_tokens"} if self.asked.structured else None,
            "output": [item for _, item in items],
            "usage": None if usage == NO_USAGE else _usage(usage),
            "metadata": {**object_at(response, "metadata"), CODE: reason[:_METADATA_CHARS]},
        }
        events.append({"type": f"response.{status}", "response": last})
        return sse.comment(reason) + self._written(events)

    def _empty(self) -> dict[str, Any]:
        return {
            "id": "resp_agent_monitor",
            "object": "response",
            "created_at": 0,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self.asked.model,
            "output": [],
            "parallel_tool_calls": True,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None,
        }

    def _error(self, reason: str, status: int) -> bytes:
        """The event of the reference, with the field `error`: without it the SDK does not raise."""
        error = wires.error_of(self.form, status, reason)["error"]
        fields = {"type": "error", "code": CODE, "message": reason, "param": None, "error": error}
        return sse.comment(reason) + self._written([fields])

    def _written(self, events: Iterable[dict[str, Any]]) -> bytes:
        """The events with the numbers that follow the client's last one."""
        numbered = enumerate(events, self._sequence + 1)
        return b"".join(sse.event({**event, "sequence_number": number}, event["type"]) for number, event in numbered)


class ResponsesWire(wires.Wire):
    """The format of `POST .../v1/responses`."""

    form = "openai-responses"
    answers = ResponsesAnswer

    def _asked(self, path: str, request: Mapping[str, Any], known: Beginning | None) -> JudgedRequest:
        if wires.truth_at(request, "background"):
            raise wires.CannotJudge("the response is made in the background, so closing its stream does not stop it")
        given = request.get("input")
        records = [{"role": "user", "content": given}] if isinstance(given, str) else wires.records_at(request, "input")
        conversation = self._conversation(records, known)
        kind = object_at(object_at(request, "text"), "format").get("type")
        elsewhere = request.get("previous_response_id") or request.get("conversation") or request.get("prompt")
        return replace(
            conversation,
            model=wires.model_at(request, path),
            streams=wires.truth_at(request, "stream"),
            instructions=instructions_of(request.get("instructions")) or conversation.instructions,
            tools=wires.tools_at(request, "tools"),
            max_output_tokens=wires.count_at(request, "max_output_tokens"),
            whole_history=not elsewhere,
            structured=wires.is_structured(kind, request.get("tool_choice")),
        )


def _events_of(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The response as the events of a stream, as far as the adapter reads them."""
    yield {"type": "response.created", "response": response}
    for index, item in enumerate(objects_at(response, "output")):
        if item.get("type") == "message":
            yield {"type": "response.output_item.added", "output_index": index, "item": item}
            for part in objects_at(item, "content"):
                refused_ = part.get("type") == "refusal"
                words = part.get("refusal" if refused_ else "text")
                yield {"type": f"response.{'refusal' if refused_ else 'output_text'}.delta", "delta": words}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    status = response.get("status")
    ending = status if status in ("incomplete", "failed") else "completed"
    yield {"type": f"response.{ending}", "response": response}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


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
            words = wires.after_text(sentence, begun=bool("".join(part.pieces)))
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
