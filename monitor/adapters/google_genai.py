"""google-genai: `GenerateContentResponse` objects of `generate_content_stream` and `send_message_stream` as chunks.

Two things that the SDK does by itself inside one stream matter to whoever watches it:

- **Automatic function calling** runs the caller's tools and sends further requests (on by default where `tools` holds a
  Python function). Turns, results and limits cannot be watched then, so the first chunk of the second request is refused
  with an `AdapterError` that names the line to set. It is known by the call history that the SDK attaches, and by another
  response id after a turn that ended with calls. (The tools of the first turn have run by then: nothing shows it earlier.)
- **Automatic continuation** resumes a cut or checkpointed answer with a further request (on by default). It is one answer,
  whose text goes on and whose usage the SDK adds up, so it is let through and counted in `GoogleAdapter.requests`.
"""

from __future__ import annotations

import gc
import inspect
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import Any, Final, TypeAlias

from monitor.chunks import Chunk, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, TurnFinished, UsageReport
from monitor.errors import AdapterError
from monitor.models import ErrorKind, ModelError
from monitor.reasons import FinishReason

_FINISH_CLASSES: Final = {
    "STOP": FinishReason.DONE,
    "MAX_TOKENS": FinishReason.LENGTH,
    "CONTINUATION": FinishReason.LENGTH,  # the answer goes on, but only in another request
    "MALFORMED_FUNCTION_CALL": FinishReason.MALFORMED,
    "MALFORMED_RESPONSE": FinishReason.MALFORMED,
    "MISSING_THOUGHT_SIGNATURE": FinishReason.MALFORMED,
    "TOO_MANY_TOOL_CALLS": FinishReason.MALFORMED,
    "UNEXPECTED_TOOL_CALL": FinishReason.MALFORMED,
}
"""Every other word, a new one too, is a filter's: blocked."""

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

_AFC_REFUSED: Final = (
    "google-genai ran tools by itself and sent another request inside this stream (automatic function calling), so turns, tool results "
    "and limits cannot be watched. Set config=types.GenerateContentConfig("
    "automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True), ...) and run the tools in your own loop"
)


class GoogleAdapter:
    """Reads one stream of google-genai. Only the first candidate is read; server-side tools, media and citations are passed over.

    `turn` is part of the ids of calls that come without one: `call_<turn>_<n>`.

    A signature comes as a `ReasoningDelta` just before the text or call that it belongs to, with the thought where it belongs to one.
    A call whose arguments are streamed comes as `ToolCallDelta` pieces that join to its JSON text, and then as one `ToolCall`.
    One that is cut off in the middle (the stream ends, or the turn ends for a reason other than STOP) becomes a `ToolCall` whose
    `arguments` is the text so far, a `str`: half a call must not look like a whole one.
    """

    def __init__(self, turn: int = 0) -> None:
        self.needs_finish = True
        self.drains = True
        self.requests = 1
        """Requests that the stream is known to be made of: 1, and one more for each continuation that changed the response id."""
        self._turn = turn
        self._calls = 0
        self._pending: _StreamedCall | None = None
        self._counts: list[int | None] = [None] * len(_COUNTS)
        self._finished: str | None = None
        self._checkpointed = False
        self._response_id: object = None
        self._plain_id: object = _NOBODY
        """The response whose plain text needs no second look: none before its first chunk and after its finish."""

    def decode(self, item: object) -> Sequence[Chunk]:
        """The chunks of one `GenerateContentResponse`, in order.

        Raises `AdapterError` for an object that is no such response or is broken, and where the SDK ran tools by itself.
        """
        try:
            fields = item.__dict__
            candidate = fields["candidates"][0].__dict__
            (part,) = candidate["content"].__dict__["parts"]
            values = part.__dict__
            words = values["text"]
            if (
                fields["response_id"] == self._plain_id
                and type(words) is str
                and words
                and candidate["finish_reason"] is None
                and not values["thought"]
                and values["thought_signature"] is None
                and values["function_call"] is None
                and candidate["continuation_token"] is None
                and not candidate["index"]
            ):
                if (metadata := fields["usage_metadata"]) is None:
                    return (TextDelta(words),)
                report = self._usage(metadata.__dict__)
                return (TextDelta(words),) if report is None else (TextDelta(words), report)
        except Exception:  # noqa: BLE001, S110 - not the plain case; what it is, is said below
            pass
        try:
            return tuple(self._decode(item))
        except AdapterError:
            raise
        except Exception as error:
            raise AdapterError(f"{_name(item)} is no readable GenerateContentResponse: {error!r}") from error

    def finish(self) -> Sequence[Chunk]:
        """A streamed call that the end of the stream cut off; see the class. No `TurnFinished`: one that is missing stays missing."""
        return tuple(self._end_call(cut_off=True))

    def responses(self, source: object) -> Sequence[Any]:
        """The transport's response, found behind the suspended generators.

        The SDK gives no handle on it, and neither `break` nor `aclose()` of its stream reaches it. Only CPython tells what a
        suspended generator holds; elsewhere, and if the SDK's insides change, nothing is found and the stream is drained.
        """
        return _responses_behind(source)

    def classify(self, error: BaseException) -> ModelError:
        """Which kind of failure an exception of the SDK, or of a transport under it, is."""
        return _classify(error)

    def _decode(self, item: object) -> Iterator[Chunk]:
        if not hasattr(item, "candidates"):
            raise AdapterError(f"expected a GenerateContentResponse of google-genai, not {_name(item)}")
        candidate = _first_candidate(_listed(item, "candidates"))
        parts = [] if candidate is None else [part for part in _listed(getattr(candidate, "content", None), "parts") if part is not None]
        self._look_for_hidden_requests(item, candidate, parts)
        for part in parts:
            yield from self._part(part)
        metadata = getattr(item, "usage_metadata", None)
        report = self._usage({field: getattr(metadata, field, None) for field in _COUNTS})
        if report is not None:
            yield report
        yield from self._finish_reason(item, candidate)

    def _look_for_hidden_requests(self, item: object, candidate: object, parts: Sequence[object]) -> None:
        response_id = getattr(item, "response_id", None)
        another = response_id is not None and self._response_id is not None and response_id != self._response_id
        speaks_again = another and self._finished is not None and self._calls > 0 and any(map(_says_something, parts))
        if speaks_again or getattr(item, "automatic_function_calling_history", None):
            raise AdapterError(_AFC_REFUSED)
        if another and self._checkpointed:
            self.requests += 1
            self._checkpointed = False
        if getattr(candidate, "continuation_token", None):
            self._checkpointed = True
        self._response_id = response_id
        self._plain_id = response_id if self._finished is None else _NOBODY

    def _part(self, part: object) -> Iterator[Chunk]:
        words = getattr(part, "text", None)
        if words is not None and not isinstance(words, str):
            raise AdapterError(f"the text of a part is {_name(words)}, not str")
        signature = _signature(getattr(part, "thought_signature", None))
        if getattr(part, "thought", None) is True:
            if words or signature is not None:
                yield ReasoningDelta(words or "", signature)
        else:
            if signature is not None:
                yield ReasoningDelta("", signature)
            if words:
                yield TextDelta(words)
        function = getattr(part, "function_call", None)
        if function is not None:
            yield from self._function_call(function)

    def _function_call(self, function: object) -> Iterator[Chunk]:
        name, id_ = _optional_str(function, "name"), _optional_str(function, "id")
        arguments, pieces = getattr(function, "args", None), _listed(function, "partial_args")
        more = getattr(function, "will_continue", None) is True
        if arguments is not None and not isinstance(arguments, Mapping):
            raise AdapterError(f"the args of a function call are {_name(arguments)}, not a dict")
        if name and not (self._pending and id_ and id_ == self._pending.id):
            yield from self._end_call(cut_off=False)
            call_id = id_ or f"call_{self._turn}_{self._calls}"
            self._calls += 1
            if not more and not pieces:
                yield ToolCall(call_id, name, dict(arguments or {}), function)
                return
            self._pending = _StreamedCall(call_id, name, function)
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

    def _usage(self, metadata: Mapping[str, object]) -> UsageReport | None:
        """The running totals if they grew. Later chunks may lack a field that earlier ones had, so fields are merged."""
        grew = False
        counts = self._counts
        for index, count in enumerate([metadata[field] for field in _COUNTS]):
            if count is not None and type(count) is int and count >= 0 and ((known := counts[index]) is None or count > known):
                counts[index] = count
                grew = True
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

    def _finish_reason(self, item: object, candidate: object) -> Iterator[Chunk]:
        """Once, or once more where a later chunk says another word."""
        if candidate is None:
            feedback = getattr(item, "prompt_feedback", None)
            word, said = _word(getattr(feedback, "block_reason", None)), getattr(feedback, "block_reason_message", None)
            finish_reason = FinishReason.BLOCKED
        else:
            word, said = _word(getattr(candidate, "finish_reason", None)), getattr(candidate, "finish_message", None)
            finish_reason = _FINISH_CLASSES.get(word or "", FinishReason.BLOCKED)
        if word in {None, _NOT_FINISHED, self._finished}:
            return
        yield from self._end_call(cut_off=finish_reason is not FinishReason.DONE)
        self._finished, self._plain_id = word, _NOBODY
        yield TurnFinished(finish_reason, f"{word}: {said}" if said and isinstance(said, str) else word)


_NOBODY: Final = object()


# --- reading the SDK's objects


def _name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _listed(holder: object, attribute: str) -> Sequence[Any]:
    """A list attribute; `None` is an empty one."""
    value = getattr(holder, attribute, None)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise AdapterError(f"`{attribute}` is {_name(value)}, not a list")
    return value


def _first_candidate(candidates: Sequence[Any]) -> object:
    """Candidate 0: a chunk of a request for several may bring only another one."""
    return next((one for one in candidates if one is not None and not getattr(one, "index", None)), None)


def _says_something(part: object) -> bool:
    return bool(getattr(part, "text", None) or getattr(part, "function_call", None))


def _optional_str(holder: object, attribute: str) -> str | None:
    value = getattr(holder, attribute, None)
    if value is not None and not isinstance(value, str):
        raise AdapterError(f"`{attribute}` of a function call is {_name(value)}, not str")
    return value


def _signature(value: object) -> str | None:
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii") or None
    if value is None or isinstance(value, str):
        return value or None
    raise AdapterError(f"a thought signature is {_name(value)}, not bytes")


def _word(reason: object) -> str | None:
    """An enum member, or a plain string, as the provider wrote it."""
    value = getattr(reason, "value", reason)
    if value is None or isinstance(value, str):
        return value or None
    raise AdapterError(f"a finish reason is {_name(value)}, not a word")


# --- arguments that are streamed as values at JSON paths

_Path: TypeAlias = tuple[str | int, ...]
_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""", re.DOTALL)
_MAX_DEPTH: Final = 100
_MAX_GAP: Final = 1000
_EXACT_FLOAT: Final = 2**53


class _StreamedCall:
    """A function call whose arguments come piece by piece. Work and memory per piece do not grow with the call."""

    def __init__(self, id_: str, name: str, raw: object) -> None:
        self.id = id_
        self.name = name
        self.raw = raw
        self.in_string = False
        self._leaves: dict[_Path, Any] = {}
        """Value by path, in order of arrival; a string as the list of its pieces."""
        self._json_path: object = None
        self._path: _Path = ()
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """The JSON text of the arguments so far."""
        return "".join(self._texts)

    def take(self, piece: object) -> str:
        """Add one `PartialArg`; the JSON text that it adds."""
        json_path = getattr(piece, "json_path", None)
        goes_on = self.in_string and json_path == self._json_path
        path = self._path if goes_on else _parsed_path(json_path)
        self._json_path = json_path
        words = getattr(piece, "string_value", None)
        if words is None:
            found, value = _scalar(piece)
            return self._put(path, value) if found else ""
        if not isinstance(words, str):
            raise AdapterError(f"a streamed argument is {_name(words)}, not str")
        return self._put_string(path, words, goes_on=goes_on, more=getattr(piece, "will_continue", None) is True)

    def take_whole(self, arguments: Mapping[Any, Any]) -> Iterator[str]:
        """Add arguments that came complete beside the streamed ones."""
        for key, value in arguments.items():
            yield self._put((str(key),), value)

    def assembled(self) -> dict[str, Any]:
        """The arguments object."""
        root: dict[str, Any] = {}
        for path, leaf in self._leaves.items():
            holder: Any = root
            for key, inner in pairwise(path):
                holder = _entered(holder, key, list if isinstance(inner, int) else dict)
            _set(holder, path[-1], "".join(leaf) if isinstance(leaf, _Pieces) else leaf)
        return root

    def closing(self) -> str:
        """What completes the JSON text."""
        return self._wrote(self._end_string() + _brackets(self._path) if self._path else "{}")

    def _put(self, path: _Path, value: Any) -> str:
        lead = self._move(path)
        self._leaves[path] = value
        return self._wrote(lead + json.dumps(value, ensure_ascii=False))

    def _put_string(self, path: _Path, words: str, *, goes_on: bool, more: bool) -> str:
        lead = "" if goes_on else self._move(path) + '"'
        if goes_on:
            self._leaves[path].append(words)
        else:
            self._leaves[path] = _Pieces([words])
        self.in_string = more
        return self._wrote(lead + json.dumps(words, ensure_ascii=False)[1:-1] + ("" if more else '"'))

    def _move(self, path: _Path) -> str:
        """Leave the last path for this one: close what does not hold it, open what does, write its key."""
        last = self._path
        shared = next((at for at, (one, other) in enumerate(zip(last, path, strict=False)) if one != other), min(len(last), len(path)) - 1)
        lead = self._end_string() + (_brackets(last[shared:])[:-1] + "," if last else "{")
        self._path = path
        for depth in range(max(shared, 0), len(path)):
            key = path[depth]
            if depth > max(shared, 0):
                lead += "[" if isinstance(key, int) else "{"
            if isinstance(key, str):
                lead += json.dumps(key, ensure_ascii=False) + ":"
        return lead

    def _end_string(self) -> str:
        ended, self.in_string = '"' if self.in_string else "", False
        return ended

    def _wrote(self, text: str) -> str:
        self._texts.append(text)
        return text


class _Pieces(list[str]):
    """A string in pieces; its own type, because a list is a possible value too."""


def _brackets(path: _Path) -> str:
    """Closes every container on the way to a leaf, the inner ones first."""
    return "".join("]" if isinstance(key, int) else "}" for key in reversed(path))


def _scalar(piece: object) -> tuple[bool, Any]:
    """Whether a `PartialArg` without a string has a value, and which. A whole number is an int, as in a complete call."""
    number, truth = getattr(piece, "number_value", None), getattr(piece, "bool_value", None)
    if isinstance(truth, bool):
        return True, truth
    if isinstance(number, int | float):
        return True, int(number) if number == number // 1 and abs(number) < _EXACT_FLOAT else number
    return getattr(piece, "null_value", None) is not None, None


def _parsed_path(json_path: object) -> _Path:
    """`$.items[0].name` -> ("items", 0, "name"). The root is an object, so it starts with a name."""
    if not isinstance(json_path, str) or not json_path.startswith("$"):
        raise AdapterError(f"the path of a streamed argument is {json_path!r}, no JSON path")
    keys: list[str | int] = []
    at = 1
    while at < len(json_path):
        step = _STEP.match(json_path, at)
        if step is None or len(keys) == _MAX_DEPTH:
            raise AdapterError(f"the path of a streamed argument cannot be read: {json_path[:200]!r}")
        name, index, single, double = step.groups()
        quoted = single if single is not None else double
        keys.append(int(index) if index is not None else name if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL))
        at = step.end()
    if not keys or isinstance(keys[0], int):
        raise AdapterError(f"the path of a streamed argument names no key: {json_path!r}")
    return tuple(keys)


def _entered(holder: Any, key: str | int, kind: type[list[Any] | dict[str, Any]]) -> Any:
    """The container at `key`, made where there is none."""
    known = holder.get(key) if isinstance(holder, dict) else holder[key] if len(holder) > _index(key) else None
    if known is None:
        known = kind()
        _set(holder, key, known)
    if not isinstance(known, kind):
        raise AdapterError(f"streamed arguments contradict one another at {key!r}")
    return known


def _set(holder: Any, key: str | int, value: Any) -> None:
    if isinstance(holder, dict):
        holder[key] = value
        return
    gap = _index(key) - len(holder)
    if gap > _MAX_GAP:
        raise AdapterError(f"streamed arguments leave out {gap} elements of a list")
    holder.extend([None] * (gap + 1))
    holder[key] = value


def _index(key: str | int) -> int:
    if isinstance(key, str):
        raise AdapterError(f"streamed arguments contradict one another at {key!r}")
    return key


# --- failures

_OVERFLOW: Final = re.compile(r"token count.{0,40}\bexceed|exceeds the maximum number of tokens", re.IGNORECASE | re.DOTALL)
_DELAY: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s?")
_NETWORK_PACKAGES: Final = frozenset({"aiohttp", "anyio", "h11", "httpcore", "httpcore2", "httpx", "httpx2", "requests", "urllib3"})
_UNREADABLE: Final = frozenset({"JSONDecodeError", "UnknownApiResponseError"})
_MAX_CAUSES: Final = 20
_MAX_MESSAGE_CHARS: Final = 2000


def _classify(error: BaseException) -> ModelError:
    chain = _causes(error)
    if isinstance(error, AdapterError):
        return ModelError(ErrorKind.MALFORMED, str(error))
    for cause in chain:
        code = _attribute(cause, "code")
        if type(code) is int and _has(cause, "details"):
            return _api_error(cause, code)
    for cause in chain:
        kind = _kind_by_type(cause)
        if kind is not None:
            return ModelError(kind, _message(error))
    return ModelError(ErrorKind.UNKNOWN, _message(error))


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and what it came from, nearest first; members of a group as well."""
    chain: list[BaseException] = []
    waiting = [error]
    while waiting and len(chain) < _MAX_CAUSES:
        one = waiting.pop(0)
        if any(one is known for known in chain):
            continue
        chain.append(one)
        members = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        behind = one.__cause__ if one.__suppress_context__ else one.__cause__ or one.__context__
        waiting += [*members, *([] if behind is None else [behind])]
    return chain


def _kind_by_type(error: BaseException) -> ErrorKind | None:
    types = [(kind.__name__, kind.__module__.split(".")) for kind in type(error).__mro__]
    if any(name in _UNREADABLE for name, _ in types):
        return ErrorKind.MALFORMED
    if any(name == "ValidationError" and packages[0] in {"pydantic", "pydantic_core"} for name, packages in types):
        return ErrorKind.REQUEST if str(_attribute(error, "title")).endswith("Config") else ErrorKind.MALFORMED
    if any(packages[:2] == ["google", "auth"] for _, packages in types):
        return ErrorKind.AUTH
    if isinstance(error, OSError) or any(packages[0] in _NETWORK_PACKAGES for _, packages in types):
        return ErrorKind.NETWORK
    return None


def _api_error(error: BaseException, code: int) -> ModelError:
    status = _attribute(error, "status")
    said = _attribute(error, "message")
    message = said[:_MAX_MESSAGE_CHARS] if isinstance(said, str) and said else _message(error)
    return ModelError(
        kind=_kind_by_code(code, message, str(_attribute(error, "details"))),
        message=message,
        retry_after_s=_retry_after_s(error),
        status=code,
        code=status if isinstance(status, str) and status.isupper() else None,
    )


def _kind_by_code(code: int, message: str, details: str) -> ErrorKind:
    match code:
        case 429:
            return ErrorKind.RATE_LIMITED
        case 400 if _OVERFLOW.search(message):
            return ErrorKind.OVERFLOW
        case 400 if "API_KEY_INVALID" in details or "API key not valid" in message:
            return ErrorKind.AUTH
        case 401 | 403:
            return ErrorKind.AUTH
        case _ if 400 <= code < 500:  # noqa: PLR2004 - the HTTP classes
            return ErrorKind.REQUEST
        case _ if code >= 500:  # noqa: PLR2004
            return ErrorKind.SERVER
    return ErrorKind.UNKNOWN


def _retry_after_s(error: BaseException) -> float | None:
    """From a RetryInfo detail, else from the header `Retry-After`."""
    for detail in _error_details(_attribute(error, "details")):
        if isinstance(detail, Mapping) and str(detail.get("@type")).endswith("RetryInfo"):
            delay = _DELAY.fullmatch(str(detail.get("retryDelay")))
            if delay:
                return float(delay[1])
    return _header_delay_s(_attribute(_attribute(error, "response"), "headers"))


def _error_details(body: object) -> Sequence[Any]:
    """The `details` list, which stands in the error object, which may stand in `error`, which may stand in a list."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        details = inner.get("details") if isinstance(inner, Mapping) else None
        if isinstance(details, list):
            return details
    return ()


def _header_delay_s(headers: object) -> float | None:
    if not isinstance(headers, Mapping):
        return None
    value = next((str(value) for name, value in headers.items() if str(name).lower() == "retry-after"), None)
    if value is None:
        return None
    delay = _DELAY.fullmatch(value.strip())
    if delay:
        return float(delay[1])
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def _has(holder: object, name: str) -> bool:
    """`hasattr` of an object that may be anything."""
    try:
        return hasattr(holder, name)
    except Exception:  # noqa: BLE001 - classifying a failure must not fail
        return True


def _attribute(holder: object, name: str) -> Any:
    """An attribute of an object that may be anything; `None` where reading it fails."""
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - classifying a failure must not fail
        return None


def _message(error: BaseException) -> str:
    try:
        return (str(error) or type(error).__name__)[:_MAX_MESSAGE_CHARS]
    except Exception:  # noqa: BLE001 - the same
        return type(error).__name__


_MAX_STEPS = 2_000
"""Objects looked at while looking for the response; about 50 are needed."""


def _responses_behind(source: object) -> list[Any]:
    seen, waiting, found = {id(source)}, [source], list[Any]()
    while waiting and len(seen) < _MAX_STEPS:
        for held in gc.get_referents(waiting.pop()):
            if id(held) in seen:
                continue
            seen.add(id(held))
            if inspect.isasyncgen(held) or inspect.isframe(held):
                waiting.append(held)
            elif type(held).__module__ == "google.genai._api_client" and _closable(_attribute(held, "response_stream")):
                found.append(held.response_stream)
    return found


def _closable(response: object) -> bool:
    return callable(_attribute(response, "aclose")) or callable(_attribute(response, "close"))
