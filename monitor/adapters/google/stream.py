"""google-genai: `GenerateContentResponse` objects of `generate_content_stream` and
`send_message_stream` as chunks.

Two things that the SDK does by itself inside one stream matter here:

- **Automatic function calling** runs the caller's tools and sends further requests (on by default
  if `tools` holds a Python function). So a stream may hold several turns. Another turn is
  recognised by the results that the SDK has sent: they stand in the call history that it attaches,
  or, in a chat, in its generators (`called_inside.py`). Where neither can be read, it is recognised
  by another response id after a turn that ended with calls. The tools of a turn have run before its
  calls come. So a verdict on a call prevents only the next request.
- **Automatic continuation** resumes a cut or checkpointed answer with a further request (on by
  default). It is one answer: its text goes on, and the SDK adds up the usage. So it is accepted,
  and counted in `GoogleAdapter.requests`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

from monitor._util.codec import text_of
from monitor._util.part_options import mark, origin
from monitor.adapters.adapter import closable, held_behind
from monitor.adapters.google.streamed_call import StreamedCall
from monitor.adapters.parts import SdkAdapter, list_at, name_of
from monitor.adapters.sdk_errors import GOOGLE, attribute
from monitor.chunks import (
    Chunk,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    TurnFinished,
    UsageReport,
)
from monitor.errors import AdapterError, FinishReason
from monitor.models import ModelError
from monitor.wires.fields import finish_reason_of

# --------------------------------------------------------------------------------------------------
# Automatic function calling of google-genai: the results of the calls that the SDK has carried
# out by itself.


def results_in(contents: Sequence[Any]) -> list[ToolResult]:
    """The results at the end of a call history, in their order."""
    found: list[ToolResult] = []
    for content in reversed(contents):
        answers = [getattr(part, "function_response", None) for part in list_at(content, "parts")]
        if not any(answers):
            break
        found = [*(_result(one) for one in answers if one is not None), *found]
    return found


def answer_behind(source: object, called: AbstractSet[str]) -> object:
    """The message with the results of the functions `called`, which the SDK has sent in its newest
    request. The SDK shows it to nobody in a chat, nor with `ignore_call_history`. So it is taken
    from the SDK's generators behind `source`. `None`: it is not found.
    """

    def answers(held: object) -> object:
        if type(held).__module__ != "google.genai.types":
            return None
        parts = attribute(held, "parts")
        names = {attribute(attribute(part, "function_response"), "name") for part in parts or ()}
        return held if names and names <= called else None

    return next(iter(held_behind(source, answers)), None)


def _result(answer: object) -> ToolResult:
    given = getattr(answer, "response", None)
    is_error = isinstance(given, Mapping) and "error" in given
    if isinstance(given, Mapping) and len(given) == 1:
        given = next(iter(given.values()))
    return ToolResult(
        getattr(answer, "id", None) or "", getattr(answer, "name", None) or "", text_of(given), is_error=is_error
    )


_NOT_FINISHED: Final = "FINISH_REASON_UNSPECIFIED"
"""The default value of the wire format: the field was not set."""

_COUNTS: Final = (
    "prompt_token_count",
    "tool_use_prompt_token_count",
    "candidates_token_count",
    "thoughts_token_count",
    "cached_content_token_count",
    "total_token_count",
)


class GoogleAdapter(SdkAdapter):
    """Reads one stream of google-genai. Only the first candidate is read; media and citations are
    passed over. What the model writes for a tool of the service, such as code that is run there,
    comes as a `ToolCallDelta` without a `ToolCall`.

    `stream` is part of the ids of calls that come without an id: `call_<stream>_<n>`.

    A signature comes as a `ReasoningDelta` just before its text or call. The signature of a thought
    comes with the thought. A call whose arguments are streamed comes as `ToolCallDelta` pieces that
    join to its JSON text, and then as one `ToolCall`. A call is cut off if the stream ends, if the
    turn ends for another reason than STOP, or if an announced piece is missing. Then the
    `arguments` of its `ToolCall` are the text so far, a `str`, so that half a call does not look
    like a whole one.
    """

    readable = "GenerateContentResponse"

    def __init__(self, stream: int = 0) -> None:
        self.requests = 1
        """The known number of requests in the stream: 1, and one more for each continuation that
        changed the response id.
        """
        self.turns = 1
        """The turns that have begun: another one after calls that the SDK has carried out."""
        self.results: Sequence[ToolResult] = ()
        """The results of the turn before, as the call history shows them."""
        self._called: set[str] = set()
        """The functions that the running turn has called."""
        self._history = 0
        """The length of the call history so far."""
        self._answer: object = None
        """The SDK's newest message with results, if it shows no history."""
        self.gave: Sequence[str] = ()
        """Parts that came besides text, thinking and calls: media by their type, all else by the
        name of its field.
        """
        self._stream = stream
        self._calls = self._hosted_calls = 0
        self._whole: dict[str, tuple[str, dict[str, Any]]] = {}
        """The calls that came in one piece, by the id that the service gave them."""
        self._pending: StreamedCall | None = None
        self._counts: list[int | None] = [None] * len(_COUNTS)
        self._finished: str | None = None
        self._checkpointed = False
        self._response_id: object = None
        self._origin = origin("google", None)
        self._said = False
        """Whether any content came since the last report of usage."""
        self._signed_nothing = False
        """Whether the last part was an empty text with a signature, which does not belong to the
        next part.
        """
        self._plain_id: object = _NOBODY
        """The id of the response whose chunks of plain text need no further check. It is set from
        the response's first chunk to its finish.
        """

    def plain_text(self, item: object) -> str | None:
        """The text of an object that is one piece of visible text and nothing else, which most
        objects are.

        The SDK's objects are pydantic models. Reading their fields from `__dict__` takes half the
        time.
        """
        try:
            fields = cast("Any", item).__dict__
            candidate = fields["candidates"][0].__dict__
            if (
                fields["usage_metadata"] is None
                and candidate["finish_reason"] is None
                and candidate["continuation_token"] is None
                and not candidate["index"]
            ):
                return self.plain_content(candidate["content"], fields["response_id"])
        except Exception:  # noqa: BLE001, S110 - not the plain case; `decode` says what it is
            pass
        return None

    def plain_content(self, content: Any, response_id: object) -> str | None:
        """The text of a content of the SDK that is one piece of visible text and nothing else.

        Any exception means that it is not. `response_id`: of the response that has the content.
        """
        (part,) = content.__dict__["parts"]
        values = part.__dict__
        words: Any = values["text"]
        if (
            type(words) is str
            and words
            and response_id == self._plain_id
            and not values["thought"]
            and values["thought_signature"] is None
            and values["function_call"] is None
            and not self._signed_nothing
        ):
            self._said = True
            return words
        return None

    def finish(self) -> Sequence[Chunk]:
        """A streamed call that the end of the stream cut off; see the class. A missing
        `TurnFinished` is not added.
        """
        return tuple(self._end_call(cut_off=True))

    def responses(self, source: object) -> Sequence[Any]:
        """The transport's response, found behind the suspended generators.

        The SDK gives no handle on it, and neither `break` nor `aclose()` of its stream reaches it.
        Only CPython shows the objects that a suspended generator holds. Elsewhere, and if the SDK's
        internals change, nothing is found and the stream is drained.
        """
        return held_behind(source, _response_of)

    def classify(self, error: BaseException) -> ModelError:
        """Classify an exception of the SDK, or of a transport under it."""
        return GOOGLE.classify(error)

    def _decode(self, item: object) -> Iterator[Chunk]:
        for chunk in self._chunks_of(item):
            self._said = not isinstance(chunk, UsageReport)
            yield chunk

    def _chunks_of(self, item: object) -> Iterator[Chunk]:
        if not hasattr(item, "candidates"):
            raise AdapterError(f"expected a GenerateContentResponse of google-genai, not {name_of(item)}")
        candidate = _first_candidate(list_at(item, "candidates"))
        parts = (
            []
            if candidate is None
            else [part for part in list_at(getattr(candidate, "content", None), "parts") if part is not None]
        )
        self._look_for_hidden_requests(item, candidate, parts)
        if getattr(item, "model_version", None) is not None:
            self._origin = origin("google", getattr(item, "model_version", None))
        for part in parts:
            yield from self._part(part)
        finished = self._finish_reason(item, candidate)
        if finished is not None:
            yield from self._end_call(cut_off=finished.finish_reason is not FinishReason.DONE or self._says_nothing)
        metadata = getattr(item, "usage_metadata", None)
        report = self._usage({field: getattr(metadata, field, None) for field in _COUNTS}, last=finished is not None)
        if report is not None:
            yield report
        if finished is not None:
            yield finished

    def _look_for_hidden_requests(self, item: object, candidate: object, parts: Sequence[object]) -> None:
        response_id = getattr(item, "response_id", None)
        another = response_id is not None and self._response_id is not None and response_id != self._response_id
        history = list_at(item, "automatic_function_calling_history")
        if self._called and (results := self._results_before(history, parts, another=another)) is not None:
            self._begin_turn(results)
        self._history = max(self._history, len(history))
        if another and self._checkpointed:
            self.requests += 1
            self._checkpointed = False
        if getattr(candidate, "continuation_token", None):
            self._checkpointed = True
        self._response_id = response_id
        self._plain_id = response_id if self._finished is None else _NOBODY

    def _results_before(
        self, history: Sequence[Any], parts: Sequence[object], *, another: bool
    ) -> Sequence[ToolResult] | None:
        """The results of the running turn, if these parts begin the next one; else `None`."""
        if len(history) > self._history:
            return results_in(history)
        if self._finished is None or not any(map(_says_something, parts)):
            return None
        answer = answer_behind(self.source, self._called)
        if answer is None or answer is self._answer:
            return () if another else None
        self._answer = answer
        return results_in([answer])

    def _begin_turn(self, results: Sequence[ToolResult]) -> None:
        """The SDK has carried out the calls, and the model answers again."""
        self.turns += 1
        self.results = results
        self._called, self._whole, self._pending = set(), {}, None
        self._counts = [None] * len(_COUNTS)
        self._finished = self._response_id = None
        self._signed_nothing = self._checkpointed = self._said = False

    def _part(self, part: object) -> Iterator[Chunk]:
        words = getattr(part, "text", None)
        if words is not None and not isinstance(words, str):
            raise AdapterError(f"the text of a part is {name_of(words)}, not str")
        signature = _signature(getattr(part, "thought_signature", None))
        function = getattr(part, "function_call", None)
        thought = getattr(part, "thought", None) is True
        if words is None and function is None and not thought:
            if (kept := _kept(part, signature)) is not None:
                yield ReasoningDelta("", mark({"part": kept}), self._origin)
            yield from self._hosted(part)
            self.gave = (*self.gave, *(kind for kind in _kinds(part) if kind not in self.gave))
            return
        if self._signed_nothing and signature is None:
            yield ReasoningDelta("", "")
        self._signed_nothing = signature is not None and function is None and not words and not thought
        if thought:
            if words or signature is not None:
                yield ReasoningDelta(words or "", signature, self._origin)
        else:
            if signature is not None:
                yield ReasoningDelta("", signature, self._origin)
            if words:
                yield TextDelta(words)
        if function is not None:
            yield from self._function_call(function)

    def _hosted(self, part: object) -> Iterator[Chunk]:
        """What the model has written for a tool of the service: code that is run, arguments. Also
        the words of an answer that is spoken.
        """
        code, call = getattr(part, "executable_code", None), getattr(part, "tool_call", None)
        words = getattr(code, "code", None) if code is not None else _arguments_of(call)
        if isinstance(words, str) and words:
            self._hosted_calls += 1
            kind = "executable_code" if code is not None else "tool_call"
            yield ToolCallDelta(f"{kind}_{self._stream}_{self._hosted_calls}", kind, words)
        spoken = getattr(getattr(part, "audio_transcription", None), "text", None)
        if isinstance(spoken, str) and spoken:
            yield TextDelta(spoken)

    def _function_call(self, function: object) -> Iterator[Chunk]:
        name, id_ = _optional_str(function, "name"), _optional_str(function, "id")
        arguments, pieces = getattr(function, "args", None), list_at(function, "partial_args")
        more = getattr(function, "will_continue", None) is True
        if arguments is not None and not isinstance(arguments, Mapping):
            raise AdapterError(f"the args of a function call are {name_of(arguments)}, not a dict")
        if name and not (self._pending and id_ and id_ == self._pending.id):
            yield from self._end_call(cut_off=self._says_nothing)
            if id_ and not more and not pieces:
                called = (name, dict(arguments or {}))
                if self._whole.setdefault(id_, called) is not called and self._whole[id_] == called:
                    return  # the service gives each call an id: this one came twice
            call_id = id_ or f"call_{self._stream}_{self._calls}"
            self._calls += 1
            if not self._called:  # what the caller has sent is no answer of the SDK's
                self._answer = answer_behind(self.source, {name}) or self._answer
            self._called.add(name)
            if not more and not pieces:
                yield ToolCall(call_id, name, dict(arguments or {}), function)
                return
            self._pending = StreamedCall(call_id, name, function)
        if self._pending is None:
            if arguments or pieces:
                raise AdapterError("a function call has arguments and no name")
            return
        text = "".join([*map(self._pending.take, pieces), *self._pending.take_whole(arguments or {})])
        if name or text:
            yield ToolCallDelta(self._pending.id, name, text)
        if not more:
            yield from self._end_call(cut_off=False)

    def _end_call(self, *, cut_off: bool) -> Iterator[Chunk]:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        if cut_off or pending.in_string:
            yield ToolCall(pending.id, pending.name, pending.text, pending.raw)
            return
        arguments = pending.assembled()
        yield ToolCallDelta(pending.id, None, pending.closing())
        yield ToolCall(pending.id, pending.name, arguments, pending.raw)

    @property
    def _says_nothing(self) -> bool:
        """Whether the pending call announced arguments and none came. Some recorded calls lack the
        end of their arguments, but never all of them.
        """
        return self._pending is not None and not self._pending.text

    def _usage(self, metadata: Mapping[str, object], *, last: bool) -> UsageReport | None:
        """The running totals if they grew. Later chunks may lack a field that earlier ones had, so
        fields are merged.

        `last`: the totals are of the whole answer. They are then reported unchanged as well, if
        anything came since the last report.
        """
        grew = False
        counts = self._counts
        for index, count in enumerate([metadata[field] for field in _COUNTS]):
            if count is not None and type(count) is int and count >= 0:
                known = counts[index]
                counts[index] = count if known is None else max(count, known)
                grew = grew or counts[index] != known or (last and self._said)
        if not grew:
            return None
        prompt, tool_use, candidates, thoughts, cached, total = counts
        return UsageReport(
            input_tokens=prompt if tool_use is None else tool_use + (prompt or 0),
            output_tokens=candidates if thoughts is None else thoughts + (candidates or 0),
            reasoning_tokens=thoughts,
            cached_tokens=cached,
            total_tokens=total,
        )

    def _finish_reason(self, item: object, candidate: object) -> TurnFinished | None:
        """The end of the turn: once, and once more if a later chunk has another finish reason."""
        if candidate is None:
            feedback = getattr(item, "prompt_feedback", None)
            word, said = _word(getattr(feedback, "block_reason", None)), getattr(feedback, "block_reason_message", None)
            finish_reason = FinishReason.BLOCKED
        else:
            word, said = _word(getattr(candidate, "finish_reason", None)), getattr(candidate, "finish_message", None)
            finish_reason = finish_reason_of(word or "")
        if word in {None, _NOT_FINISHED, self._finished}:
            return None
        self._finished, self._plain_id = word, _NOBODY
        return TurnFinished(finish_reason, f"{word}: {said}" if said and isinstance(said, str) else word)


_NOBODY: Final = object()


# --- reading the SDK's objects


def _first_candidate(candidates: Sequence[Any]) -> object:
    """Candidate 0: a chunk of a request for several may bring only another one."""
    return next((one for one in candidates if one is not None and not getattr(one, "index", None)), None)


_SERVED: Final = ("executable_code", "code_execution_result", "tool_call", "tool_response")
"""The service's own work, which it needs back in the history."""


def _kept(part: object, signature: str | None) -> dict[str, Any] | None:
    """A part as the service needs it back: its own work, and what it has signed. `None`: the part
    is left out of the history, as unsigned media are.
    """
    if signature is None and all(getattr(part, name, None) is None for name in _SERVED):
        return None
    dump = getattr(part, "model_dump", None)
    return cast("dict[str, Any]", dump(mode="json", exclude_none=True)) if callable(dump) else None


def _arguments_of(call: object) -> str | None:
    given = getattr(call, "args", None)
    return json.dumps(dict(given), ensure_ascii=False, default=str) if isinstance(given, Mapping) and given else None


def _says_something(part: object) -> bool:
    return bool(getattr(part, "text", None) or getattr(part, "function_call", None) or any(_kinds(part)))


_OTHER_FIELDS: Final = (
    "inline_data",
    "file_data",
    "executable_code",
    "code_execution_result",
    "tool_call",
    "tool_response",
)


def _kinds(part: object) -> Iterator[str]:
    for name in _OTHER_FIELDS:
        held = getattr(part, name, None)
        if held is not None:
            mime_type = getattr(held, "mime_type", None)
            yield mime_type if isinstance(mime_type, str) and mime_type else name


def _optional_str(holder: object, attribute: str) -> str | None:
    value = getattr(holder, attribute, None)
    if value is not None and not isinstance(value, str):
        raise AdapterError(f"`{attribute}` of a function call is {name_of(value)}, not str")
    return value


def _signature(value: object) -> str | None:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii") or None
    if value is None or isinstance(value, str):
        return value or None
    raise AdapterError(f"a thought signature is {name_of(value)}, not bytes")


def _word(reason: object) -> str | None:
    """An enum member, or a plain string, as the provider wrote it."""
    value = getattr(reason, "value", reason)
    if value is None or isinstance(value, str):
        return value or None
    raise AdapterError(f"a finish reason is {name_of(value)}, not a word")


def _response_of(held: object) -> Any:
    response = attribute(held, "response_stream") if type(held).__module__ == "google.genai._api_client" else None
    return response if closable(response) else None
