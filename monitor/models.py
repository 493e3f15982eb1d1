"""The protocol of models, as supervisor, judges and compaction use them, and how a call fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias

from monitor._util.checked_words import checked
from monitor._util.explained_options import explained
from monitor.errors import ConfigError, TerminateReason
from monitor.messages import Message

__all__ = [
    "ErrorKind",
    "Model",
    "ModelError",
    "ModelRequest",
    "Retries",
    "Sdk",
    "ToolChoice",
    "ToolSpec",
    "declare",
]
__dir__ = __all__.copy

ToolChoice: TypeAlias = Literal["auto", "required", "none"]
"""Whether the model may, must or must not call a tool."""


class ErrorKind(StrEnum):
    """The kind of a failure; all providers have the same kinds."""

    OVERFLOW = "overflow"
    """The prompt does not fit the model's window."""
    RATE_LIMITED = "rate_limited"
    AUTH = "auth"
    """The key is missing, wrong, or not allowed to do this."""
    REQUEST = "request"
    """The provider refuses the request as such; sending it again will not help."""
    SERVER = "server"
    NETWORK = "network"
    """The connection could not be made, or broke, or timed out."""
    MALFORMED = "malformed"
    """The data that arrived is not a valid stream."""
    BLOCKED = "blocked"
    UNKNOWN = "unknown"


_REASONS = {
    ErrorKind.OVERFLOW: TerminateReason.PROMPT_TOO_LONG,
    ErrorKind.RATE_LIMITED: TerminateReason.RATE_LIMITED,
    ErrorKind.MALFORMED: TerminateReason.INVALID_STREAM,
    ErrorKind.BLOCKED: TerminateReason.BLOCKED,
}


@dataclass(slots=True, frozen=True)
@checked
class ModelError:
    """A failed model call, classed. The SDK's own exception stays beside it (`Outcome.error`)."""

    kind: ErrorKind
    message: str
    retry_after_s: float | None = None
    """How long the provider asks to wait. `None`: it does not say."""
    status: int | None = None
    """HTTP status, if there was one."""
    code: str | None = None
    """The provider's own code, e.g. `RESOURCE_EXHAUSTED`."""

    @property
    def reason(self) -> TerminateReason:
        """The reason of a run that ends by this error."""
        return _REASONS.get(self.kind, TerminateReason.ERROR)


@dataclass(slots=True, frozen=True)
class ToolSpec:
    """A tool as it is described to the model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments object."""


@dataclass(slots=True, frozen=True)
@checked
class ModelRequest:
    """One model call."""

    messages: tuple[Message, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Passed to the provider as they are: temperature, output limit, thinking."""
    reply_schema: Mapping[str, Any] | None = None
    """JSON schema of the answer, if the answer is to be JSON. Some providers cannot enforce it;
    their models are only asked.
    """


class Model(Protocol):
    """Anything that answers a request with a stream.

    Two attributes are optional. `adapter` makes the stream's adapter, as
    `monitor.watch(adapter=...)` takes it; a model needs it if its stream cannot be recognised by
    its objects. `form` names the form of history that the model sends: `gemini`, `openai-chat`,
    `openai-responses` or `anthropic`. The history then keeps to the rules of that form, without it
    to the rules that all forms share.
    """

    @property
    def name(self) -> str:
        """Provider and model, e.g. `google:gemini-2.5-flash`."""
        ...

    def stream(self, request: ModelRequest, /) -> AsyncIterator[Any] | Awaitable[AsyncIterator[Any]]:
        """The stream that answers `request`: of chunks, or of the SDK's own objects. Nothing is
        sent before the stream is opened.

        A failed call is raised as the SDK raises it, from opening or iterating the stream. The
        adapter classifies the failure. Raises `ConfigError` for an invalid request.
        """
        ...


PASSING = frozenset({ErrorKind.RATE_LIMITED, ErrorKind.SERVER, ErrorKind.NETWORK, ErrorKind.MALFORMED})
"""Failures after which another attempt may succeed. A refusal, a wrong key or a prompt that does
not fit will fail again.
"""


@explained(example="monitor.Retries(3)")
@dataclass(slots=True, frozen=True)
class Retries:
    """How a failed model call is repeated: at most `attempts` times for one turn. Then the run ends
    with the reason of the last failure.

    An answer that cannot be used (without an end, unreadable, empty) is requested again at once.
    After a provider's failure the wait is `first_delay_s`, doubled each time, at most
    `max_delay_s`. If the provider asks for a wait, that one counts; if it is longer than
    `max_delay_s`, the run ends. A block by a safety filter is never retried.
    """

    attempts: int = 3
    """The number of repetitions of one turn. 0: nothing is tried again."""
    first_delay_s: float = 1.0
    """Seconds before the first repetition after a provider's failure."""
    max_delay_s: float = 60.0
    """The longest wait, in seconds."""

    def __post_init__(self) -> None:
        if self.attempts < 0 or self.first_delay_s < 0 or self.max_delay_s < 0:
            raise ConfigError(f"{self}: attempts and delays cannot be negative; Retries(0) tries nothing again")

    def delay_s(self, failures: int, error: ModelError | None) -> float | None:
        """Seconds to wait after failure number `failures` (from 1) of a turn. `None`: give up.
        `error`: the error of the call, if the call failed.
        """
        if failures > self.attempts:
            return None
        if error is None:
            return 0.0
        if error.kind not in PASSING:
            return None
        if error.retry_after_s is not None:
            return error.retry_after_s if error.retry_after_s <= self.max_delay_s else None
        if error.kind is ErrorKind.MALFORMED:
            return 0.0
        return min(self.max_delay_s, self.first_delay_s * 2.0 ** (failures - 1))


# --------------------------------------------------------------------------------------------------
# How a tool is described to a model: a JSON schema that every provider accepts, the schema in
# words, and each SDK's form.


Sdk: TypeAlias = Literal["google", "openai", "openai-responses", "anthropic"]
"""The SDKs that a tool can be declared for."""


def declare(specs: Iterable[ToolSpec], sdk: Sdk) -> list[dict[str, Any]]:
    """`specs` as plain data for the `tools` of a request: `google` (google-genai), `openai` (chat
    completions), `openai-responses`, `anthropic`.
    """
    tools = [(spec.name, spec.description, dict(spec.parameters)) for spec in specs]
    match sdk:
        case "google":
            functions = [
                {"name": name, "description": text, "parameters_json_schema": schema} for name, text, schema in tools
            ]
            return [{"function_declarations": functions}] if functions else []
        case "openai":
            return [
                {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}
                for name, text, schema in tools
            ]
        case "openai-responses":  # strict by default there, which would change what is optional
            return [
                {"type": "function", "name": name, "description": text, "parameters": schema, "strict": False}
                for name, text, schema in tools
            ]
        case "anthropic":
            return [{"name": name, "description": text, "input_schema": schema} for name, text, schema in tools]
        case _:
            raise ConfigError(f"no SDK is called {sdk!r}: 'google', 'openai', 'openai-responses' or 'anthropic'")


# --- a schema that every provider takes

_MAPS = ("properties", "patternProperties", "dependentSchemas")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONES = ("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else")
_DROPPED = ("$defs", "definitions", "$schema", "$id", "title", "discriminator")
"""Keywords that some provider does not understand, and titles that pydantic makes of field names.
"""


MOST_PARTS = 20_000
"""A schema with more parts, when its definitions are inlined, is refused: it may be made to grow
without end.
"""


def portable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` (JSON schema as pydantic writes it) without keywords that some provider refuses:
    `$ref`, `oneOf`, `const`, `discriminator`.

    Definitions are inlined. A definition that contains itself ends at its second occurrence, which
    gives only the type. The model's values are still validated in full. Raises `ConfigError` if the
    schema is too large or too deep.
    """
    definitions = {
        f"#/{place}/{name}": definition
        for place in ("$defs", "definitions")
        for name, definition in schema.get(place, {}).items()
    }
    try:
        inlined: dict[str, Any] = _Inliner(definitions).inlined(schema, ())
    except RecursionError:
        raise ConfigError("the schema is nested too deeply") from None
    return inlined


class _Inliner:
    """Puts the definitions of one schema in the places that refer to them."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._parts = 0

    def inlined(self, schema: Any, open_: tuple[str, ...]) -> Any:
        """`schema` without references. `open_`: the references around it."""
        if not isinstance(schema, Mapping):
            return schema  # `true` and `false` are schemas
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise ConfigError(f"the schema has more than {MOST_PARTS:,} parts")
        given = _standard({key: value for key, value in schema.items() if key not in _DROPPED})
        reference = given.pop("$ref", None)
        if reference in open_:
            again = self._definitions[reference]
            known = {"type": again["type"]} if "type" in again else {}
            said = f"{again.get('title', 'The same')} again, with the same properties."
            return {**known, "description": said, **given}
        if reference is not None:
            inner = self.inlined(self._definitions.get(reference, {}), (*open_, reference))
            given = self.inlined(given, open_)
            return {**inner, **given}
        if "const" in given:
            given["enum"] = [given.pop("const")]
        if "oneOf" in given and "anyOf" not in given:
            given = {("anyOf" if key == "oneOf" else key): value for key, value in given.items()}
        for key, value in given.items():
            if key in _MAPS and isinstance(value, Mapping):
                given[key] = {name: self.inlined(part, open_) for name, part in value.items()}
            elif key in _LISTS and isinstance(value, list):
                given[key] = [self.inlined(part, open_) for part in value]
            elif key in _ONES:
                given[key] = self.inlined(value, open_)
        return given


def standard_types(schema: Any) -> Any:
    """`schema` with the types of JSON schema, where it has those of Gemini and OpenAPI: `"STRING"`
    becomes `"string"`, and `nullable` the type `"null"`. Data in it is left as it is.
    """
    if not isinstance(schema, Mapping):
        return schema
    given = _standard(dict(schema))
    for key, value in given.items():
        if key in _MAPS or key in ("$defs", "definitions"):
            if isinstance(value, Mapping):
                given[key] = {name: standard_types(part) for name, part in value.items()}
        elif key in _LISTS and isinstance(value, list):
            given[key] = [standard_types(part) for part in value]
        elif key in _ONES:
            given[key] = [standard_types(one) for one in value] if isinstance(value, list) else standard_types(value)
    return given


_TYPES = frozenset({"ARRAY", "BOOLEAN", "INTEGER", "NULL", "NUMBER", "OBJECT", "STRING"})
"""The types as Gemini writes them."""


def _standard(given: dict[str, Any]) -> dict[str, Any]:
    """One level of a schema with the types of JSON schema."""
    kind = given.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        kind = given["type"] = kind.lower()
    if given.get("nullable") is True and isinstance(kind, str):
        del given["nullable"]
        given["type"] = [kind, "null"]
        if isinstance(choices := given.get("enum"), list) and None not in choices:
            given["enum"] = [*choices, None]
    return given


# --- in words

MAX_WORDS_DEPTH = 3
"""Deeper objects are only called `object`: the declaration holds the whole schema."""
MAX_CHOICES = 20
"""At most this many values of an enumeration are listed."""

MAX_PATTERN = 40
"""A longer pattern is left out: it does not help a reader."""

_BOUNDS = {
    "format": "{}",
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {}",
    "exclusiveMaximum": "< {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matching {}",
}


def in_words(schema: Any, depth: int = MAX_WORDS_DEPTH) -> str:
    """A portable schema in words, e.g. `number (>= 0)`, `array of string`, `"low" or "high"`,
    `object {title: string, note?: string}`.
    """
    if not isinstance(schema, Mapping):
        return "any JSON value"
    if "enum" in schema:
        choices = [json.dumps(choice, ensure_ascii=False) for choice in schema["enum"][:MAX_CHOICES]]
        return " or ".join([*choices, *(["…"] if len(schema["enum"]) > MAX_CHOICES else [])])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(in_words(part, depth) for part in schema["anyOf"]))
    kind = schema.get("type", "any JSON value")
    if kind == "array":
        words = _array(schema, depth)
    elif kind == "object":
        words = _object(schema, depth)
    else:
        words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    bounds = [
        text.format(schema[key])
        for key, text in _BOUNDS.items()
        if len(str(schema.get(key, ""))) in range(1, MAX_PATTERN)
    ]
    return f"{words} ({', '.join(bounds)})" if bounds else words


def takes_text(schema: Mapping[str, Any]) -> bool:
    """Whether a string is a value that a portable schema allows."""
    if "enum" in schema:
        return any(isinstance(choice, str) for choice in schema["enum"])
    if "anyOf" in schema:
        return any(takes_text(part) for part in schema["anyOf"])
    kind = schema.get("type", "string")
    return "string" in kind if isinstance(kind, list) else kind == "string"


def _array(schema: Mapping[str, Any], depth: int) -> str:
    if "prefixItems" in schema:
        return f"array [{', '.join(in_words(part, depth - 1) for part in schema['prefixItems'])}]"
    return f"array of {in_words(schema['items'], depth)}" if schema.get("items") else "array"


def _object(schema: Mapping[str, Any], depth: int) -> str:
    properties = schema.get("properties")
    if properties and depth > 0:
        required = schema.get("required", ())
        parts = (
            f"{name}{'' if name in required else '?'}: {in_words(part, depth - 1)}" for name, part in properties.items()
        )
        return f"object {{{', '.join(parts)}}}"
    values = schema.get("additionalProperties")
    return f"object with values of {in_words(values, depth)}" if isinstance(values, Mapping) and values else "object"
