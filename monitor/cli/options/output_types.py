"""Types of outputs as the command line writes them: `str`, `list[int]`, `module:Model`, a JSON
schema.
"""

from __future__ import annotations

import difflib
import importlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias, Union

from pydantic import Field, JsonValue
from typing_extensions import TypedDict

from monitor.errors import ConfigError, describe

# --------------------------------------------------------------------------------------------------
# Loads the user's objects by name: `module:function`, `module:Model`.


def load(spec: str, option: str) -> Any:
    """The object that `module:name` names, also in modules of the current directory. Raises
    `ConfigError`, with `option`, if there is none.
    """
    name, colon, path = spec.partition(":")
    if not colon or not name or not path:
        raise ConfigError(f"{option} {spec}: write module:name, e.g. {option} my_tools:search")
    if name.endswith(".py") or "/" in name:
        meant = name.removeprefix("./").removesuffix(".py").replace("/", ".")
        raise ConfigError(f"{option} {spec}: write the module, not its file: {meant}:{path}")
    thing = _module(name, spec, option)
    for part in path.split("."):
        if not hasattr(thing, part):
            public = [one for one in vars(thing) if not one.startswith("_")] if hasattr(thing, "__dict__") else []
            close = difflib.get_close_matches(part, public, n=1)
            raise ConfigError(
                f"{option} {spec}: {name} has no {part!r}{f'; did you mean {close[0]!r}?' if close else ''}"
            )
        thing = getattr(thing, part)
    return thing


def _module(name: str, spec: str, option: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise ConfigError(f"{option} {spec}: there is no module {name!r}, neither here nor installed") from None
        raise ConfigError(f"{option} {spec}: {name} needs a module that is not installed: {missing}") from None
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(f"{option} {spec}: importing {name} raised {describe(error)}") from error


Schema: TypeAlias = Mapping[str, Any]

WORDS: Final[Mapping[str, Any]] = {"str": str, "int": int, "float": float, "bool": bool, "json": JsonValue}
_SHAPES = f"{', '.join(WORDS)}, list[...] of one of these, module:Model, or a JSON schema"


def outputs_of(specs: Iterable[str]) -> dict[str, Any]:
    """The declarations of `--output NAME:TYPE`. Raises `ConfigError` for an invalid or repeated
    one.
    """
    outputs: dict[str, Any] = {}
    for spec in specs:
        name, colon, written = (part.strip() for part in spec.partition(":"))
        if not name or not colon or not written:
            raise ConfigError(f"--output {spec}: write NAME:TYPE, e.g. --output summary:str; types are {_SHAPES}")
        if name in outputs:
            raise ConfigError(f"--output {spec}: {name} is declared already")
        outputs[name] = _type(written, f"--output {spec}")
    return outputs


def _type(written: str, option: str) -> Any:
    if written in WORDS:
        return WORDS[written]
    if written.startswith("list[") and written.endswith("]"):
        return list[_type(written[5:-1].strip(), option)]  # type: ignore[misc]  # a type that is made here
    if written.startswith("{"):
        try:
            schema = json.loads(written)
        except ValueError as error:
            raise ConfigError(f"{option}: this is not a JSON schema: {error}") from None
        return type_of_schema(schema, option)
    if ":" in written:
        model = load(written, "--output")
        if not isinstance(model, type) and getattr(model, "__origin__", None) is None:
            raise ConfigError(f"{option}: {written} is {model!r}, which is not a type")
        return model
    raise ConfigError(f"{option}: {written!r} is not a type; types are {_SHAPES}")


# ------------------------------------------------------------------ JSON schemas

_ANNOTATIONS = {"description", "title", "default", "examples", "$schema", "$comment"}
_BOUNDS: Final[Mapping[str, Mapping[str, str]]] = {
    "string": {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"},
    "integer": {
        "minimum": "ge",
        "maximum": "le",
        "exclusiveMinimum": "gt",
        "exclusiveMaximum": "lt",
        "multipleOf": "multiple_of",
    },
    "array": {"minItems": "min_length", "maxItems": "max_length"},
    "object": {},
    "boolean": {},
    "null": {},
}
_SCALARS: Final[Mapping[str, Any]] = {"string": str, "integer": int, "number": float, "boolean": bool, "null": None}
_OWN: Final[Mapping[str, set[str]]] = {"array": {"items"}, "object": {"properties", "required", "additionalProperties"}}


def type_of_schema(schema: object, option: str) -> Any:
    """The type that validates values of `schema`. Raises `ConfigError` for keywords that it cannot
    check, so that nothing is left unchecked silently.
    """
    if not isinstance(schema, dict):
        raise ConfigError(f"{option}: a JSON schema is an object, not {schema!r}")
    for key, make in (("enum", _one_of), ("const", _constant), ("anyOf", _any_of)):
        if key in schema:
            _only(schema, {"type", key}, option)
            return _described(make(schema[key], option), {}, schema)
    kinds = schema.get("type")
    if isinstance(kinds, list) and kinds:
        return _any_of([{**schema, "type": kind} for kind in kinds], option)
    if kinds is None:
        _only(schema, set(), option)
        return _described(JsonValue, {}, schema)
    if not isinstance(kinds, str) or kinds not in {*_SCALARS, *_OWN}:
        raise ConfigError(f"{option}: the JSON schema has a type {kinds!r}; there are {', '.join([*_SCALARS, *_OWN])}")
    bounds = _BOUNDS["integer" if kinds == "number" else kinds]
    _only(schema, {"type", *bounds, *_OWN.get(kinds, ())}, option)
    match kinds:
        case "array":
            kind: Any = list[type_of_schema(schema.get("items", {}), option)]  # type: ignore[misc]  # as above
        case "object":
            kind = _object(schema, option)
        case _:
            kind = _SCALARS[kinds]
    return _described(kind, {bounds[key]: schema[key] for key in bounds if key in schema}, schema)


def _object(schema: Schema, option: str) -> Any:
    properties, required, more = (
        schema.get("properties", {}),
        schema.get("required", []),
        schema.get("additionalProperties", True),
    )
    if not isinstance(properties, dict) or not isinstance(required, list) or not isinstance(more, bool):
        raise ConfigError(
            f"{option}: in a JSON schema, properties is an object, required an array, and additionalProperties here"
            " true or false"
        )
    if unknown := [name for name in required if name not in properties]:
        raise ConfigError(
            f"{option}: the JSON schema requires {', '.join(map(str, unknown))}, and does not say what that is"
        )
    if not properties:
        return dict[str, JsonValue]
    fields = {name: type_of_schema(said, option) for name, said in properties.items()}
    make: Any = TypedDict
    made = make("Object", {name: kind if name in required else NotRequired[kind] for name, kind in fields.items()})
    made.__pydantic_config__ = {"extra": "allow" if more else "forbid"}
    return made


def _one_of(values: object, option: str) -> Any:
    if not isinstance(values, list) or not values or not all(isinstance(value, str | int | None) for value in values):
        raise ConfigError(f"{option}: an enum of a JSON schema lists texts, whole numbers, true, false or null")
    return Literal[tuple(values)]


def _constant(value: object, option: str) -> Any:
    return _one_of([value], option)


def _any_of(schemas: object, option: str) -> Any:
    if not isinstance(schemas, list) or not schemas:
        raise ConfigError(f"{option}: anyOf of a JSON schema lists schemas")
    return Union[tuple(type_of_schema(one, option) for one in schemas)]  # noqa: UP007 - it is made here


def _only(schema: Schema, keys: set[str], option: str) -> None:
    if unknown := sorted(schema.keys() - keys - _ANNOTATIONS):
        raise ConfigError(
            f"{option}: {', '.join(unknown)} of a JSON schema cannot be checked here; write a pydantic model:"
            " module:Model"
        )


def _described(kind: Any, bounds: Mapping[str, Any], schema: Schema) -> Any:
    said = {"description": schema["description"]} if isinstance(schema.get("description"), str) else {}
    return Annotated[kind, Field(**bounds, **said)] if bounds or said else kind
