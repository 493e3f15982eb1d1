"""Fields of JSON objects whose types nobody has checked."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from monitor._util.checked_words import checked
from monitor._util.part_options import mark, origin
from monitor.chunks import ToolCall, ToolResult
from monitor.errors import REPETITION_WORDS, AdapterError, FinishReason
from monitor.messages import Media, Reasoning, Text


def text(holder: Mapping[str, Any], *names: str) -> str:
    """The first field of these names that is a text; `""` if there is none."""
    return next((value for name in names if isinstance(value := holder.get(name), str)), "")


def object_at(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object in a field; an empty one for anything else."""
    value = holder.get(name)
    return value if isinstance(value, Mapping) else {}


def objects_at(holder: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects of the list in a field. Anything else in the list is left out."""
    value = holder.get(name)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def objects(value: object) -> list[Mapping[str, Any]] | None:
    """A list of objects; `None` for anything else."""
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and all(isinstance(one, Mapping) for one in value)
    ):
        return list(value)
    return None


def is_object(written: object) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(written, str) and isinstance(json.loads(written), dict)
    except (ValueError, RecursionError):
        return False


def snake(fields: object) -> dict[str, Any]:
    """The fields of an object of Gemini, with the SDK's names; the service takes both. Fields that
    are `None` are left out, and anything but an object has no fields.
    """
    if not isinstance(fields, Mapping):
        return {}
    return {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name)).lower(): value
        for name, value in fields.items()
        if value is not None
    }


# --------------------------------------------------------------------------------------------------
# A history before its repair: in a provider's order, in pieces, with results anywhere. `repair`
# makes messages of it.


@dataclass(slots=True, frozen=True)
class Unread:
    """A part that has no neutral form. `what` describes the part, for the report."""

    what: str


RawPart: TypeAlias = Text | Reasoning | Media | ToolCall | ToolResult | Unread
"""One piece of a message that is not repaired yet."""


@dataclass(slots=True, frozen=True)
@checked
class RawMessage:
    """One record of a history, which may be invalid in any way.

    A call without an id has the id `""`, one without arguments the arguments `None`; a result
    without the id of its call has `""`.
    """

    role: Literal["user", "assistant", "tool", "system"]
    parts: tuple[RawPart, ...] = ()
    interrupted: bool = False
    """The turn was aborted or failed, so its open calls were never to be carried out."""
    finish_reason: FinishReason | None = None
    partial: bool = False
    """The record is one chunk or item of several: the assistant's next record belongs to the same
    turn.
    """


# --------------------------------------------------------------------------------------------------
# Pieces that the readers of all forms make and test alike.


def objects_or_unread(holder: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any] | Unread]:
    """The objects of a list. Anything else in the list becomes `Unread`."""
    value = holder.get(name)
    if value is None:
        return
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        yield Unread(f"{name} that is {type(value).__name__}")
        return
    for one in value:
        yield one if isinstance(one, Mapping) else Unread(f"{name} with {type(one).__name__}")


def role_of(message: Mapping[str, Any], known: Mapping[Any, Literal["user", "assistant", "tool", "system"]]) -> Any:
    """The neutral role. Raises `AdapterError` for an unknown role."""
    role = message.get("role")
    if not isinstance(role, str | None) or role not in known:
        raise AdapterError(f"its role is {role!r}")
    return known[role]


def written(arguments: object) -> Any:
    """Arguments as the object that their JSON text holds; as the text if it holds none; `None`
    without a text.
    """
    if not isinstance(arguments, str):
        return arguments
    if not arguments.strip():
        return None
    try:
        read = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return read if isinstance(read, dict) else arguments


def base64_of(data: object) -> str | None:
    """Bytes as base64; a text is base64 already."""
    if isinstance(data, bytes | bytearray):
        return b64encode(data).decode("ascii")
    return data if isinstance(data, str) else None


def is_base64(data: object) -> bool:
    """Whether a signature holds anything, as bytes or as base64."""
    try:
        return isinstance(data, str | bytes) and bool(
            data if isinstance(data, bytes) else b64decode(data, validate=True)
        )
    except ValueError:
        return False


def media_at(address: str, mime_type: str = "image/*", name: str | None = None) -> Media:
    """Media at an address, which may contain the data itself (`data:`)."""
    head, comma, data = address.partition(";base64,")
    if comma and head.startswith("data:"):
        return Media(head.removeprefix("data:") or mime_type, data, name=name)
    return Media(mime_type, uri=address, name=name)


def in_order(parts: Iterable[RawPart]) -> tuple[RawPart, ...]:
    """The parts in their order, without empty texts."""
    return tuple(part for part in parts if not isinstance(part, Text) or part.text)


def words(parts: Iterable[RawPart]) -> tuple[str, list[RawPart]]:
    """The text of a result, and its other parts."""
    given = list(parts)
    return "".join(part.text for part in given if isinstance(part, Text)), [
        part for part in given if not isinstance(part, Text)
    ]


def answer(call_id: str, name: str, said: str, shown: Iterable[RawPart], *, is_error: bool) -> Iterator[RawPart]:
    """A result with its media, followed by its unread parts."""
    parts = list(shown)
    yield ToolResult(call_id, name, said, is_error, tuple(part for part in parts if isinstance(part, Media)))
    yield from (part for part in parts if not isinstance(part, Media))


def call(call_id: str, name: str, arguments: object) -> ToolCall:
    """A call whose arguments are JSON text."""
    return ToolCall(call_id, name, written(arguments))


def is_one_of(value: object, known: Container[str | None]) -> bool:
    """Whether `value` is one of these texts."""
    return isinstance(value, str) and value in known


def are_objects(value: object, each: Callable[[Mapping[str, Any]], bool]) -> bool:
    """Whether `value` is a list of objects for which `each` holds."""
    return isinstance(value, list) and all(isinstance(one, Mapping) and each(one) for one in value)


# --------------------------------------------------------------------------------------------------
# Failed results in the two forms that have no field for an error. There the first word marks an
# error, so no other result may begin with that word.

ERROR: Final = "Error: "
"""Stands before the text of an error."""
OUTPUT: Final = "Output: "
"""Stands before any other text that would read like an error."""

_LIKE_ONE: Final = re.compile(r"(?:Output: )*Error: ")


def failed_text(text: str) -> str:
    """The text of an error, as the model reads it."""
    return text if text.startswith(ERROR) else f"{ERROR}{text}"


def plain_text(text: str) -> str:
    """The text of a result that is not an error, as the model reads it."""
    return f"{OUTPUT}{text}" if _LIKE_ONE.match(text) else text


def read_failed(text: str) -> tuple[str, bool]:
    """The inverse of both: the text, and whether it is an error. The text of an error keeps its
    first word.
    """
    if text.startswith(ERROR):
        return text, True
    return (text.removeprefix(OUTPUT) if _LIKE_ONE.match(text) else text), False


# --------------------------------------------------------------------------------------------------
# A request around its history, in the form of any provider: messages, instructions and tools.

MESSAGES: Final = ("messages", "contents", "input", "history")
"""The fields of a request that may hold its messages."""


def messages_of(data: object) -> Any:
    """The messages of a request: a list, or the text of the only one. `None`: `data` is not a
    request.
    """
    if not isinstance(data, Mapping) or "role" in data or "type" in data:
        return None
    return next((data[name] for name in MESSAGES if isinstance(data.get(name), list | str)), None)


def instructions_of(system: object) -> str:
    """The text of instructions, which may come in parts."""
    match system:
        case str():
            return system
        case Mapping():
            return instructions_of(system.get("text", system.get("parts")))
        case list():
            return "\n\n".join(filter(None, map(instructions_of, system)))
    return ""


def declarations_of(tools: object) -> Iterator[Mapping[str, Any]]:
    """The declarations of a request's tools, without what a form puts around them."""
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            fields = snake(tool)
            if isinstance(fields.get("function_declarations"), list):
                yield from objects_at(fields, "function_declarations")
            else:
                yield next(
                    (fields[name] for name in ("function", "custom") if isinstance(fields.get(name), Mapping)), tool
                )


# --------------------------------------------------------------------------------------------------
# A problem of a history, for which a service would refuse it.

Rule: TypeAlias = Literal["shape", "empty", "role", "order", "pairing", "id", "name", "arguments", "signature"]


@dataclass(slots=True, frozen=True)
@checked
class WireProblem:
    """One reason for which the service would refuse the request."""

    index: int
    """The index of the message, content or item."""
    rule: Rule
    """The kind of the rule that the message breaks."""
    message: str
    """The problem in words, for people."""


# --------------------------------------------------------------------------------------------------
# The forms in which providers take a history, and the rules of each for ids and names.

Form: TypeAlias = Literal["gemini", "openai-chat", "openai-responses", "anthropic"]
"""Gemini's contents, OpenAI's chat messages, its response items, Anthropic's messages."""


@dataclass(slots=True, frozen=True)
class FormRules:
    """The rules for ids and names that a service enforces by refusing the whole request."""

    call_id: re.Pattern[str]
    tool_name: re.Pattern[str]
    unique_ids: bool
    """No two calls of the history share an id."""


_ANY_ID: Final = r"[^\x00\ud800-\udfff]{1,%d}"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

RULES: Final[Mapping[Form, FormRules]] = {
    # Ids are optional. The reference of FunctionDeclaration allows 64 characters of a name.
    "gemini": FormRules(re.compile(_ANY_ID % 4096), re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}"), unique_ids=False),
    # "string too long. Expected a string with maximum length 40"
    "openai-chat": FormRules(re.compile(_ANY_ID % 40), _NAME, unique_ids=False),
    "openai-responses": FormRules(re.compile(_ANY_ID % 64), _NAME, unique_ids=True),
    # Its error messages state both patterns, and that ids of tool_use blocks must be unique.
    "anthropic": FormRules(re.compile(r"[A-Za-z0-9_-]{1,64}"), re.compile(r"[A-Za-z0-9_-]{1,128}"), unique_ids=True),
}

PORTABLE: Final = FormRules(
    re.compile(r"[A-Za-z0-9_-]{1,40}"), re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}"), unique_ids=True
)
"""The rules that satisfy all services."""


def rules_of(form: Form | None) -> FormRules:
    """The rules of `form`. `None`: rules that satisfy all forms. Raises `KeyError` for an unknown
    form.
    """
    return PORTABLE if form is None else RULES[form]


# --------------------------------------------------------------------------------------------------
# The words with which services and frameworks say why an answer ended, and the class of each.

_WORDS: Final = {
    FinishReason.DONE: (
        *("stop", "tool_calls", "function_call", "completed"),  # OpenAI
        *("end_turn", "stop_sequence", "tool_use"),  # Anthropic, Bedrock
        *("eos", "eos_token", "complete", "tool_call", "function_calls"),  # Together, TGI, Cohere; frameworks
    ),
    FinishReason.LENGTH: (
        *("length", "max_output_tokens", "max_messages"),  # OpenAI
        *("max_tokens", "model_context_window_exceeded"),  # Anthropic, Gemini, Bedrock; z.ai
        "model_length",  # Mistral
    ),
    FinishReason.MALFORMED: (
        *("malformed_function_call", "malformed_response", "missing_thought_signature"),  # Gemini
        *("too_many_tool_calls", "unexpected_tool_call"),
        *("malformed_model_output", "malformed_tool_use"),  # Bedrock
        "error",  # Pydantic AI's word for Gemini's
    ),
    FinishReason.BLOCKED: (
        *("content_filter", "refusal"),  # OpenAI, Anthropic
        *("safety", "recitation", "language", "other", "blocklist", "prohibited_content", "spii"),  # Gemini
        *("image_safety", "image_prohibited_content", "image_other", "no_image", "image_recitation"),
        *("escalation", "pup_limited_disabled", "model_armor"),
        *("content_filtered", "guardrail_intervened"),  # Bedrock
        *("sensitive", "error_toxic"),  # z.ai, Cohere
    ),
    FinishReason.REPETITION: (*REPETITION_WORDS, "repetition_truncation"),  # vLLM and compatible servers
    FinishReason.INTERRUPTED: (
        *("incomplete", "cancelled", "steered"),  # OpenAI
        *("pause_turn", "compaction"),  # Anthropic
        "continuation",  # Gemini
        *("interrupt", "checkpoint"),  # Strands
    ),
}
"""The words in lower case. A test compares them with the types of the SDKs."""

PAUSED: Final = frozenset({"pause_turn", "compaction"})
"""Anthropic's words for an answer that its service goes on with once it gets the answer back."""

_CLASSES: Final = {word: finish_reason for finish_reason, words in _WORDS.items() for word in words}


def finish_reason_of(word: str) -> FinishReason:
    """The class of a word. Gemini's compatible endpoint puts a word of its own before Gemini's:
    `function_call_filter: MALFORMED_FUNCTION_CALL`.
    """
    word = word.lower().replace("-", "_")  # gateways write `tool-calls`
    return _CLASSES.get(word) or _CLASSES.get(word.rpartition(":")[2].strip(), FinishReason.UNKNOWN)


# --------------------------------------------------------------------------------------------------
# Fields of a message that OpenAI's services need back, kept as a part of the message.

ORIGIN: Final = origin("openai", None)


def marked(fields: Mapping[str, Any]) -> Reasoning:
    """The part that holds `fields`, by their names in the wire format."""
    return Reasoning("", mark(fields), ORIGIN)


# --------------------------------------------------------------------------------------------------
# Rules that both of OpenAI's forms have.


def part_problems(index: int, content: object, role: str, allowed: Container[str]) -> Iterator[WireProblem]:
    """The problems of a content that is not a text. `allowed`: the types of parts of this role."""
    parts = objects(content)
    if parts is None:
        said = f"the content is {type(content).__name__}, neither a text nor a list of parts"
        yield WireProblem(index, "shape", said)
    for part in parts or ():
        if text(part, "type") not in allowed:
            yield WireProblem(index, "shape", f"a part of type {part.get('type')!r} of the {role}")


def function_problems(
    index: int, form: Form, function: Mapping[str, Any], *, has_arguments: bool
) -> Iterator[WireProblem]:
    """The problems of the name of a called function, and of its arguments."""
    name = text(function, "name")
    if not RULES[form].tool_name.fullmatch(name):
        yield WireProblem(index, "name", f"{name!r} is not a valid name of a function")
    if has_arguments and not is_object(function.get("arguments")):
        yield WireProblem(index, "arguments", f"the arguments of {name} are not a JSON object")
