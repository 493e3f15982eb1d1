"""A JSON schema that every provider takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

DEFS = "#/$defs/"
_BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset({"items", "additionalProperties", "unevaluatedProperties", "not", "contains", "propertyNames", "if", "then", "else"})
_NOISE = frozenset({"title", "discriminator", "$defs"})


def portable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` as pydantic writes it, in the part of JSON schema that OpenAI, Anthropic and Gemini share.

    - definitions are put where they are used; only those that hold themselves stay under `$defs`
    - `const` becomes `enum`, `oneOf` becomes `anyOf` (Gemini knows neither)
    - titles, which repeat the names, and `discriminator`, which points into `$defs`, are left out
    """
    defs = schema.get("$defs", {})
    recursive = _recursive(defs)

    def of(node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node  # true, false
        ref = node.get("$ref")
        name = ref.removeprefix(DEFS) if isinstance(ref, str) else ""
        if name in defs and name not in recursive:
            return of({**defs[name], **{key: value for key, value in node.items() if key != "$ref"}})
        return dict(pair for key, value in node.items() if key not in _NOISE for pair in [_entry(key, value)])

    def _entry(key: str, value: Any) -> tuple[str, Any]:
        if key in _BY_NAME:
            return key, {name: of(inner) for name, inner in value.items()}
        if key in _LISTS:
            return ("anyOf" if key == "oneOf" else key), [of(inner) for inner in value]
        if key == "const":
            return "enum", [value]
        return key, (of(value) if key in _SCHEMAS else value)

    plain: dict[str, Any] = of(schema)
    return {**plain, "$defs": {name: of(defs[name]) for name in sorted(recursive)}} if recursive else plain


def _recursive(defs: Mapping[str, Any]) -> set[str]:
    """The definitions that can be reached from themselves."""
    uses = {name: set(_refs(body)) & defs.keys() for name, body in defs.items()}

    def reaches(name: str) -> set[str]:
        seen: set[str] = set()
        left = set(uses[name])
        while left:
            seen |= left
            left = set().union(*(uses[used] for used in left)) - seen
        return seen

    return {name for name in defs if name in reaches(name)}


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if isinstance(ref := node.get("$ref"), str):
            yield ref.removeprefix(DEFS)
        for value in node.values():
            yield from _refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from _refs(value)
