"""How a tool is described to a model: a JSON schema that every provider accepts, the schema in
words, and each SDK's form.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from monitor.errors import ConfigError
from monitor.models import ToolSpec

__all__ = ["Sdk", "declare"]
__dir__ = __all__.copy

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
