"""The wire format of OpenAI's responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.chunks import NO_USAGE, Usage
from monitor.proxy.formats import framing as sse
from monitor.proxy.formats.base import (
    Frame,
    FrameContent,
    HalfCalls,
    JudgedRequest,
    Refusal,
    WireAnswer,
    decoded,
    joined,
    parsed_object,
)
from monitor.proxy.formats.chat import failed
from monitor.proxy.formats.requests import (
    CODE,
    SERVED,
    CannotJudge,
    OutputItem,
    RequestFields,
    Wire,
    count_at,
    history,
    is_structured,
    model_at,
    openai_error,
    records_at,
    refused,
    spoken,
    tools_at,
    truth_at,
    whole_at,
)
from monitor.wires.fields import instructions_of, object_at, objects_at

_ENDS: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"}
)
_METADATA_CHARS: Final = 500
"""A value of the metadata has at most 512 characters."""
_ECHOES: Final = frozenset({"response.created", "response.queued", "response.in_progress"})


class ResponsesWire(Wire):
    """The format of `POST .../v1/responses`."""

    form = "openai-responses"

    def _asked(self, path: str, fields: RequestFields) -> JudgedRequest:
        request = fields.value
        if truth_at(request, "background"):
            raise CannotJudge("the response is made in the background, so closing its stream does not stop it")
        given = request.get("input")
        records = [{"role": "user", "content": given}] if isinstance(given, str) else records_at(request, "input")
        messages, instructions = history(self.form, records, fields)
        elsewhere = request.get("previous_response_id") or request.get("conversation") or request.get("prompt")
        return JudgedRequest(
            form=self.form,
            model=model_at(request, path),
            streams=truth_at(request, "stream"),
            messages=messages,
            instructions=instructions_of(request.get("instructions")) or instructions,
            system_messages=instructions,
            tools=tools_at(request),
            max_output_tokens=count_at(request, "max_output_tokens"),
            whole_history=not elsewhere,
            structured=is_structured(
                object_at(object_at(request, "text"), "format").get("type"), request.get("tool_choice")
            ),
        )

    def stream(self, asked: JudgedRequest) -> ResponsesAnswer:
        return ResponsesAnswer(asked)

    def whole(self, asked: JudgedRequest, body: bytes) -> FrameContent:
        response = parsed_object(body)
        if isinstance(response, FrameContent):
            return response
        if response.get("error") and response.get("status") != "failed":
            return failed(response)
        adapter = OpenAIAdapter()
        heard = [decoded(adapter, event) for event in _events_of(response)]
        return joined([*heard, FrameContent(tuple(adapter.finish()))])

    def refusal(self, reason: str, *, status: int = 429, code: str = CODE) -> Refusal:
        return refused(status, openai_error(status, reason, code))


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


class ResponsesAnswer(WireAnswer):
    """One streamed response.

    It holds the text that the client was sent: the events that close an item repeat it.
    """

    def __init__(self, asked: JudgedRequest) -> None:
        super().__init__(asked, sse.SseReader(), OpenAIAdapter(), ResponsesCalls())
        self._response: dict[str, Any] | None = None
        self._sequence = -1
        self._items: dict[int, OutputItem] = {}
        """The items that the client knows, by their place in the output."""
        self._called = False
        self._ended = False

    def _heard(self, frame: Frame) -> FrameContent:
        value = frame.value
        if isinstance(value, dict) and value.get("error") and not value.get("type"):
            return failed(value)
        return super()._heard(frame)

    def _item(self, frame: Frame) -> object:
        return frame.value

    def _told(self, frame: Frame) -> None:
        event = frame.value
        if not isinstance(event, dict):
            return
        number, index, kind = event.get("sequence_number"), event.get("output_index"), str(event.get("type"))
        if type(number) is int:
            self._sequence = max(self._sequence, number)
        if kind in _ENDS or event.get("error"):
            self._ended = True
        elif kind in _ECHOES:
            self._response = dict(object_at(event, "response")) or self._response
        elif type(index) is int:
            self._told_of_item(index, kind, event)

    def _told_of_item(self, index: int, kind: str, event: Mapping[str, Any]) -> None:
        item = object_at(event, "item")
        known = self._items.get(index)
        if kind == "response.output_item.added":
            self._items[index] = OutputItem(index, item)
        elif kind == "response.output_item.done":
            self._items.setdefault(index, OutputItem(index, item)).finish(item)
        elif known is not None:
            known.take(event)
        self._called = self._called or bool(item and item.get("type") not in SERVED)

    @property
    def over(self) -> bool:
        return self._ended

    @property
    def _calls_open(self) -> bool:
        return self._called

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
        error = openai_error(status, reason, CODE)["error"]
        fields = {"type": "error", "code": CODE, "message": reason, "param": None, "error": error}
        return sse.comment(reason) + self._written([fields])

    def _written(self, events: Iterable[dict[str, Any]]) -> bytes:
        """The events with the numbers that follow the client's last one."""
        numbered = enumerate(events, self._sequence + 1)
        return b"".join(sse.event({**event, "sequence_number": number}, event["type"]) for number, event in numbered)

    def comment(self, text: str) -> bytes:
        return sse.comment(text)


class ResponsesCalls(HalfCalls):
    """A call is whole when its item is done."""

    def __init__(self) -> None:
        super().__init__()
        self._half: set[int] = set()

    def follow(self, value: Mapping[str, Any]) -> None:
        self.began = False
        kind, at = value.get("type"), whole_at(value, "output_index")
        if kind == "response.output_item.added" and object_at(value, "item").get("type") not in SERVED:
            self.began = not self._half
            self._half.add(at)
        elif kind == "response.output_item.done":
            self._half.discard(at)
        elif kind in _ENDS:
            self._half.clear()
        self.open = bool(self._half)


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
