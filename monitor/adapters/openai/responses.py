"""Events of OpenAI's responses as chunks.

The events are distinguished by their `type`, because the SDK puts an unknown event into any of its
classes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from monitor._util.part_options import CUSTOM, mark, origin
from monitor.adapters.adapter import ReportedFailure
from monitor.adapters.parts import PendingCall, Tokens, get, index_at, list_at, name_of, text_at
from monitor.adapters.sdk_errors import OPENAI
from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished
from monitor.errors import AdapterError, FinishReason
from monitor.wires.fields import finish_reason_of

_CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that are calls of the caller's tools, and the field with the model's text."""

_BUILT_IN: Final = {
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
    "computer_call": ("computer", "action"),
    "tool_search_call": ("tool_search", "arguments"),
}
"""OpenAI's own tools that the caller may have to carry out: the name that their calls get, and the
field of their arguments.
"""

_WHOLE: Final = ("code", "arguments", "command")
"""Fields with all that the model has written for a tool of the service."""

_KEPT: Final = ("caller", "namespace")
"""Fields of a call that the service needs back, in addition to its name and arguments."""

_NOT_OVER: Final = frozenset({"queued", "in_progress", None})
"""Statuses of a response that goes on. In the event of its end they say nothing."""

_NOT_SENT_BACK: Final = frozenset({"image_generation_call", "message", "reasoning", *_CALLS, *_BUILT_IN})
"""Items whose content comes in other chunks, or that are too large for a history."""


_NOTHING_GIVEN: Final = frozenset({"message", "reasoning", "mcp_list_tools", "compaction", *_CALLS})
"""Items that are not part of an answer, or whose content comes in other chunks."""


_HOSTED: Final = {
    "code_interpreter_call": ("code_interpreter", "code"),
    "mcp_call": ("mcp", "arguments"),
    "mcp_approval_request": ("mcp", "arguments"),
    "program": ("program", "code"),
    "web_search_call": ("web_search", "action"),
    "file_search_call": ("file_search", "queries"),
    **_BUILT_IN,
}
"""Items of tools that the service may carry out itself: the tool, and the field that the model has
written.
"""


class ResponsesReader:
    """Reads one stream.

    What the model writes for a tool that the service carries out comes as `ToolCallDelta` pieces
    without a `ToolCall`: nobody else has to answer it.

    A call is what its finished item says, whatever pieces came before. An item that begins or
    finishes a second time is the same one, and counts once.

    Data that the service needs back comes as the signature of a `ReasoningDelta`. A reasoning item
    comes after its text, the phase of a message before it, an item of a server-side tool alone.
    """

    def __init__(self, stream: int) -> None:
        self.heard = False
        """Whether text came in deltas. Otherwise the whole text is taken from the finished item."""
        self.gave: list[str] = []
        self._stream = stream
        self._calls: dict[int | str, PendingCall] = {}
        self._unsure: list[PendingCall] = []
        """Finished calls without arguments. Only the end of the response shows whether they have
        none.
        """
        self._begun: set[object] = set()
        self._over_with: set[object] = set()
        """The places of items that began and of those that are finished, see `_place`."""
        self._made = 0
        self._hosted: dict[object, tuple[str, bool]] = {}
        """The items of server-side tools by their id: the id of the call, and whether its text
        has come.
        """
        self._parts_heard: set[object] = set()
        """Items and parts whose text, refusal or thinking came in deltas."""
        self._tokens = Tokens()
        self._origin = origin("openai", None)
        self._resumed = True
        """The stream does not begin with its response, so it has only the rest of it."""
        self._whole = False
        """Whether text came in one piece, behind no deltas."""
        self._refused = False
        self._thought = False
        self._finished = False

    def read(self, event: object) -> Iterator[Chunk]:
        """The chunks of one event, in order. Other events of the API are ignored."""
        handler = self._HANDLERS.get(get(event, "type"))
        return handler(self, event) if handler is not None else iter(())

    def finish(self) -> Iterator[Chunk]:
        """Calls that the end of the stream cut off."""
        return self._end_calls(cut_off=True)

    def _created(self, event: object) -> Iterator[Chunk]:
        self._origin, self._resumed = origin("openai", get(get(event, "response"), "model")), False
        return iter(())

    def _marked(self, fields: Mapping[str, Any]) -> ReasoningDelta:
        return ReasoningDelta("", mark(fields), self._origin)

    # --- text and thinking

    def _text(self, event: object) -> Iterator[Chunk]:
        words = text_at(event, "delta")
        if words is not None:
            self.heard = True
            yield TextDelta(words)

    def _whole_text(self, event: object) -> Iterator[Chunk]:
        words = text_at(event, "text")
        if words is not None and not self.heard:
            self._whole = True
            yield TextDelta(words)

    def _refusal(self, event: object) -> Iterator[Chunk]:
        words = self._first_time(event, "refusal")
        self._refused = True
        if words is not None:
            yield TextDelta(words)

    def _transcript(self, event: object) -> Iterator[Chunk]:
        """The words of an answer that is spoken."""
        words = text_at(event, "delta")
        if words is not None:
            yield TextDelta(words)

    def _first_time(self, event: object, whole: str) -> str | None:
        """The text of a delta. If none came: that of the event behind the deltas, in the field
        `whole`.
        """
        kind = str(get(event, "type")).rpartition(".")[0]
        part = (kind, *(get(event, name) for name in ("output_index", "content_index", "summary_index")))
        words = text_at(event, "delta")
        if words is not None:
            self._parts_heard.add(part)
            return words
        return None if part in self._parts_heard else text_at(event, whole)

    def _reasoning(self, event: object) -> Iterator[Chunk]:
        words = self._first_time(event, "text")
        if words is not None:
            self._thought = True
            yield ReasoningDelta(words, origin=self._origin)

    # --- items

    def _added(self, event: object) -> Iterator[Chunk]:
        item = get(event, "item")
        kind, place = get(item, "type"), _place(event, item)
        if place is not None and place in self._begun:
            return
        self._begun.add(place)
        if kind in _CALLS:
            call = self._begin(event, item)
            yield call.write(text_at(item, _CALLS[kind]) or "")
        elif kind == "reasoning":
            self._thought = False
        elif kind in _HOSTED and (known := text_at(item, "id")) is not None:
            self._hosted[known] = text_at(item, "call_id") or known, False
        elif kind == "message" and (phase := text_at(item, "phase")) is not None:
            yield self._marked({"phase": phase})

    def _begin(self, event: object, item: object) -> PendingCall:
        name = text_at(item, "name")
        if name is None:
            raise AdapterError("a tool call has no name")
        given = text_at(item, "call_id") or text_at(item, "id")
        call = PendingCall(given or f"call_{self._stream}_{self._made}", name, item, given=given)
        call.custom = get(item, "type") == "custom_tool_call"
        call.place = _place(event, item)
        self._made += 1
        for key in (index_at(event, "output_index"), text_at(item, "id")):
            if key is not None:
                self._calls[key] = call
        return call

    def _pending(self, event: object, item_id: str | None) -> PendingCall | None:
        """The call by its place in the output, which is the same in every event. Some services give
        an item another id in each event.
        """
        index = index_at(event, "output_index")
        known = self._calls.get(index) if index is not None else None
        return known or (self._calls.get(item_id) if item_id is not None else None)

    def _arguments(self, event: object) -> Iterator[Chunk]:
        call, piece = self._pending(event, text_at(event, "item_id")), text_at(event, "delta")
        if call is not None and piece is not None:  # an unknown call comes whole when it is done
            yield call.write(piece)

    def _hosted_text(self, event: object) -> Iterator[Chunk]:
        """A piece of what the model writes for a tool of the service; or all of it, in the event
        behind the pieces, if none came.
        """
        tool = str(get(event, "type")).removeprefix("response.").partition("_call")[0]
        whole = next((words for name in _WHOLE if (words := text_at(event, name)) is not None), None)
        item = text_at(event, "item_id") or f"{tool}_{index_at(event, 'output_index')}"
        yield from self._wrote(item, tool, text_at(event, "delta"), whole)

    def _wrote(self, item: str, tool: str, piece: str | None, whole: str | None) -> Iterator[Chunk]:
        call, heard = self._hosted.get(item, (item, False))
        words = piece if piece is not None else None if heard else whole
        if words:
            self._hosted[item] = call, True
            yield ToolCallDelta(call, None if heard else tool, words)

    def _hosted_item(self, item: object, kind: str) -> Iterator[Chunk]:
        """The text of an item of which no piece has come."""
        tool, field = _HOSTED[kind]
        written = _plain_value(get(item, field))
        words = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False) if written else None
        yield from self._wrote(text_at(item, "id") or f"{tool}_{len(self._hosted)}", tool, None, words)

    def _done(self, event: object) -> Iterator[Chunk]:
        item = get(event, "item")
        kind, place = get(item, "type"), _place(event, item)
        if place is not None and place in self._over_with:
            return
        self._over_with.add(place)
        if kind in _CALLS:
            yield from self._call_done(event, item, _CALLS[kind])
        elif kind == "reasoning":
            yield from self._reasoning_done(item)
        elif kind in _BUILT_IN:
            yield from self._built_in(item, kind)
        elif kind in _HOSTED:
            yield from self._hosted_item(item, kind)
        if isinstance(kind, str) and kind not in _NOTHING_GIVEN and kind not in self.gave:
            self.gave.append(kind)
        if isinstance(kind, str) and kind not in _NOT_SENT_BACK:
            yield self._marked({"item": _plain(item)})

    def _call_done(self, event: object, item: object, field: str) -> Iterator[Chunk]:
        call, written = self._pending(event, text_at(item, "id")), text_at(item, field) or ""
        if call is None:
            call = self._begin(event, item)
        if not call.text:
            yield call.write(written)
        elif written:
            call.settle(written)
        for key in [key for key, known in self._calls.items() if known is call]:
            del self._calls[key]
        call.raw = item
        kept = {name: _plain_value(value) for name in _KEPT if (value := get(item, name)) is not None}
        if call.custom or kept:
            yield self._marked({"call": kept | (CUSTOM if call.custom else {})})
        status = get(item, "status")
        if status != "completed" and not call.custom and not call.text.strip():
            self._unsure.append(call)
        else:
            yield call.ended(cut_off=status == "incomplete")

    def _built_in(self, item: object, kind: str) -> Iterator[Chunk]:
        """The chunks of an item of OpenAI's own tools. Items that the service carries out by itself
        are not the caller's calls.
        """
        name, field = _BUILT_IN[kind]
        plain = _plain(item)
        hosted = get(plain.get("environment"), "type") not in {None, "local"} or plain.get("execution") == "server"
        yield self._marked({"item": plain})
        call_id = text_at(item, "call_id")
        if hosted or call_id is None:
            yield from self._hosted_item(item, kind)
        else:
            arguments = plain.get(field)
            yield ToolCall(call_id, name, arguments if isinstance(arguments, dict) else {"input": arguments}, item)

    def _reasoning_done(self, item: object) -> Iterator[Chunk]:
        if not self._thought:
            parts = [*(get(item, "summary") or ()), *(get(item, "content") or ())]
            words = "".join(text_at(part, "text") or "" for part in parts)
            if words:
                yield ReasoningDelta(words, origin=self._origin)
        self._thought = False
        fields = {"id": text_at(item, "id"), "encrypted_content": text_at(item, "encrypted_content")}
        if any(fields.values()):
            yield self._marked({"reasoning": {name: value for name, value in fields.items() if value is not None}})

    # --- the end

    def _ended(self, event: object) -> Iterator[Chunk]:
        """The end as the response's status says it. A response in the background may also have been
        cancelled.
        """
        response = get(event, "response")
        status = get(response, "status")
        word = str(get(event, "type")).rpartition(".")[2] if status in _NOT_OVER else str(status)
        if word == "failed":
            yield from self._failed(event)
        if self._resumed:
            yield from self._missed(list_at(response, "output"))
        yield from self._end_calls(cut_off=word != "completed")
        yield from self._usage(event)
        if not self._finished:
            self._finished = True
            yield self._finish(word, text_at(get(response, "incomplete_details"), "reason"))

    def _missed(self, items: Sequence[object]) -> Iterator[Chunk]:
        """The items that had come before the stream was resumed, which stand in the response at its
        end. Text stands there a second time, and is read if no piece of it has come.
        """
        for index, item in enumerate(items):
            if get(item, "type") != "message":
                yield from self._done({"output_index": index, "item": item})
            elif not (self.heard or self._whole):
                yield from (TextDelta(words) for part in list_at(item, "content") if (words := text_at(part, "text")))

    def _finish(self, word: str, reason: str | None) -> TurnFinished:
        if word == "completed" and self._refused:
            return TurnFinished(FinishReason.BLOCKED, "completed: refusal")
        known = finish_reason_of(reason) if reason is not None else FinishReason.UNKNOWN
        finish_reason = known if word == "incomplete" and known is not FinishReason.UNKNOWN else finish_reason_of(word)
        return TurnFinished(finish_reason, f"{word}: {reason}" if reason is not None else word)

    def _usage(self, event: object) -> Iterator[Chunk]:
        usage = get(get(event, "response"), "usage")
        yield from self._tokens.report(
            input_tokens=get(usage, "input_tokens"),
            output_tokens=get(usage, "output_tokens"),
            reasoning_tokens=get(get(usage, "output_tokens_details"), "reasoning_tokens"),
            cached_tokens=get(get(usage, "input_tokens_details"), "cached_tokens"),
            total_tokens=get(usage, "total_tokens"),
        )

    def _end_calls(self, *, cut_off: bool) -> Iterator[Chunk]:
        calls = {id(call): call for call in [*self._unsure, *self._calls.values()]}
        self._calls.clear()
        self._unsure.clear()
        for call in calls.values():
            self._over_with.add(call.place)
            yield call.ended(cut_off=cut_off)

    def _failed(self, event: object) -> Iterator[Chunk]:
        yield from self._usage(event)
        error = get(get(event, "response"), "error")
        raise ReportedFailure(
            OPENAI.reported(get(error, "code"), get(error, "message"), otherwise="the response failed")
        )

    def _error(self, event: object) -> Iterator[Chunk]:
        error = get(event, "error") or event
        type_ = get(error, "type") if error is not event else None
        raise ReportedFailure(OPENAI.reported(get(error, "code"), get(error, "message"), type_=type_), last=False)

    _HANDLERS: ClassVar[dict[str, Callable[[ResponsesReader, Any], Iterator[Chunk]]]] = {
        "response.created": _created,
        "response.output_item.added": _added,
        "response.output_item.done": _done,
        "response.output_text.delta": _text,
        "response.output_text.done": _whole_text,
        "response.refusal.delta": _refusal,
        "response.reasoning_summary_text.delta": _reasoning,
        "response.reasoning_text.delta": _reasoning,
        "response.refusal.done": _refusal,
        "response.reasoning_summary_text.done": _reasoning,
        "response.reasoning_text.done": _reasoning,
        "response.audio.transcript.delta": _transcript,
        "response.code_interpreter_call_code.delta": _hosted_text,
        "response.code_interpreter_call_code.done": _hosted_text,
        "response.mcp_call_arguments.delta": _hosted_text,
        "response.mcp_call_arguments.done": _hosted_text,
        "response.shell_call_command.added": _hosted_text,
        "response.shell_call_command.delta": _hosted_text,
        "response.shell_call_command.done": _hosted_text,
        "response.function_call_arguments.delta": _arguments,
        "response.custom_tool_call_input.delta": _arguments,
        "response.completed": _ended,
        "response.incomplete": _ended,
        "response.cancelled": _ended,
        "response.failed": _failed,
        "error": _error,
    }
    """Shared by all streams: what a reader keeps, the garbage collector has to look at."""


def _place(event: object, item: object) -> object:
    """The values that name an item: its place in the output, which some services do not count, and
    its id, which others change from event to event; a call keeps its `call_id`. `None`: it has no
    id.
    """
    named = text_at(item, "call_id") or text_at(item, "id")
    return None if named is None else (index_at(event, "output_index"), named)


def _plain(item: object) -> dict[str, Any]:
    """An item in its wire format."""
    plain = _plain_value(item)
    if not isinstance(plain, dict):
        raise AdapterError(f"an output item is {name_of(item)}")
    return plain


def _plain_value(value: object) -> Any:
    dump = get(value, "to_dict")
    return dump(mode="json") if callable(dump) else value
