"""The outputs that a run must emit: their schemas, the tool `emit_value`, the validation of values.

They are declared by a dict of types, by a class with fields, or by a union of classes. A class is
a pydantic model, a dataclass or a TypedDict.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from monitor._util.arguments import shown
from monitor._util.lazy import LazyModule
from monitor.errors import ConfigError, describe
from monitor.messages import EMIT
from monitor.models import ToolSpec, in_words, portable

if TYPE_CHECKING:
    import pydantic
    from pydantic_core import ErrorDetails
    from typing_extensions import TypeForm
else:
    pydantic = LazyModule("pydantic")

Declaration: TypeAlias = "Mapping[str, Any] | type[Any] | UnionType | TypeForm[Any]"
"""A type for each name, a class with fields, or a union of such classes."""
_TAKES = "outputs must be a dict of types, a pydantic model class, a dataclass, a TypedDict or a union of classes"

MAX_TYPE_CHARS = 200
"""A message describes a type in at most this many characters; the tool's schema has all of it."""
MAX_PROBLEMS = 5
"""The answer to a refused value names at most this many faults."""


class RefusedError(Exception):
    """A value is not accepted. The message is written for the model. `names`: other outputs that
    may be at fault.
    """

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = names


class ByTypes:
    """Outputs declared by a dict of types. Each value is validated alone."""

    def __init__(self, declared: Declaration, *, required: Collection[str] | None = None, purpose: str = "") -> None:
        """`required`: the names of those that must be emitted; by default all. `purpose`: what the
        model reads about them.
        """
        if not isinstance(declared, Mapping):
            raise ConfigError(f"{_TAKES}, not {declared!r}")
        if not declared:
            raise ConfigError("outputs is empty: declare one at least, or leave outputs out")
        self._adapters = {_checked_name(name): _adapter(name, annotation) for name, annotation in declared.items()}
        self.schemas: dict[str, Any] = {name: _schema(name, adapter) for name, adapter in self._adapters.items()}
        self.required: tuple[str, ...] = tuple(name for name in self.schemas if required is None or name in required)
        self.texts: frozenset[str] = _texts(self.schemas, self.required)
        self.spec: ToolSpec = emit_spec(self.schemas, self.required, purpose)

    def missing(self, values: Collection[str]) -> list[str]:
        return [name for name in self.required if name not in values]

    def kept(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values

    def read(self, name: str, value: Any, others: Mapping[str, Any]) -> Any:
        try:
            return self._adapters[name].validate_json(_json_text(value), by_alias=True, by_name=True)
        except pydantic.ValidationError as error:
            raise RefusedError(_problems(error.errors(include_url=False))) from None
        except Exception as error:  # noqa: BLE001 - a validator of the user's may raise what it likes
            raise RefusedError(describe(error)) from None

    def whole(self, json_values: Mapping[str, Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return {name: values[name] for name in self.schemas if name in values}, values


class ByModel:
    """Outputs declared by a pydantic model class or a dataclass. The class validates all values
    together, so that a field validator sees the values emitted before.
    """

    def __init__(self, model: type) -> None:
        name = model.__name__
        fields = _fields(model)
        try:
            self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(model)
            schema = portable(self._adapter.json_schema(by_alias=False))
        except Exception as error:
            raise ConfigError(f"{name} cannot be described to a model: {_first_line(error)}") from error
        properties = schema.get("properties", {})
        self.schemas: dict[str, Any] = {name: properties.get(name, {}) for name in fields}
        self.required: tuple[str, ...] = tuple(name for name, required in fields.items() if required)
        _must_require(name, self.required)
        self.texts: frozenset[str] = _texts(self.schemas, self.required)
        self.spec: ToolSpec = emit_spec(self.schemas, self.required, str(schema.get("description", "")))

    def missing(self, values: Collection[str]) -> list[str]:
        return [name for name in self.required if name not in values]

    def kept(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return values

    def read(self, name: str, value: Any, others: Mapping[str, Any]) -> Any:
        given = {**others, name: value}
        try:
            self._validate(given)
        except pydantic.ValidationError as error:
            # A missing field and a check of the whole model are reported only when all are there.
            wrong = [
                each
                for each in error.errors(include_url=False)
                if each["type"] == "json_invalid" or each["loc"][:1] in _heads(given)
            ]
            if wrong:
                only_this = all(each["loc"][:1] in _heads([name]) for each in wrong)
                raise RefusedError(_problems(wrong, strip=1 if only_this else 0), _names_in(wrong, given)) from None
        except Exception:  # noqa: BLE001, S110 - a validator may need a value that is not emitted yet; it runs again when all are there
            pass
        return value

    def whole(self, json_values: Mapping[str, Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        try:
            output = self._validate(json_values)
        except pydantic.ValidationError as error:
            errors = error.errors(include_url=False)
            raise RefusedError(
                f"the outputs do not fit together: {_problems(errors, whole=True)}", _names_in(errors, self.schemas)
            ) from None
        except Exception as error:  # noqa: BLE001 - a validator of the user's may raise what it likes
            raise RefusedError(f"the outputs do not fit together: {describe(error)}") from None
        return output, {name: getattr(output, name) for name in json_values}

    def _validate(self, values: Mapping[str, Any]) -> Any:
        return self._adapter.validate_json(_json_text(values), by_alias=True, by_name=True)


class ByUnion(ByTypes):
    """One output of several classes: the run must emit an object of one of them. The class's name
    is the name of the output, and its value is the whole object.
    """

    def __init__(self, kinds: Sequence[Any]) -> None:
        named = {_class_with_fields(kind).__name__: kind for kind in kinds}
        if len(named) < len(kinds):
            raise ConfigError(f"two classes of the union have one name: {', '.join(kind.__name__ for kind in kinds)}")
        super().__init__(named)
        self.spec = emit_spec(self.schemas, self.required, one_of=True)

    def missing(self, values: Collection[str]) -> list[str]:
        return [] if values else [" or ".join(self.schemas)]

    def kept(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {}

    def whole(self, json_values: Mapping[str, Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return next(iter(values.values())), values


Declared: TypeAlias = ByTypes | ByModel


def declared_by(declared: Declaration) -> Declared:
    """`declared`, checked. Raises `ConfigError` for anything that cannot be an output."""
    if get_origin(declared) in {Union, UnionType}:
        return ByUnion(get_args(declared))
    if isinstance(declared, type):
        return _by_typed_dict(declared) if is_typeddict(declared) else ByModel(declared)
    return ByTypes(declared)


def _class_with_fields(kind: Any) -> type:
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, pydantic.BaseModel)):
        return kind
    raise ConfigError(f"each class of a union in outputs must be a pydantic model or a dataclass, not {kind!r}")


def _fields(model: type) -> dict[str, bool]:
    """The fields of a class, and whether each must be given."""
    if dataclasses.is_dataclass(model):
        missing = dataclasses.MISSING
        return {
            field.name: field.default is missing and field.default_factory is missing
            for field in dataclasses.fields(model)
            if field.init
        }
    if not issubclass(model, pydantic.BaseModel):
        raise ConfigError(f"{_TAKES}, not the class {model.__name__}")
    if issubclass(model, pydantic.RootModel):
        raise ConfigError(
            f"{model.__name__} is a RootModel and has no named fields; use a dict: outputs={{'name': {model.__name__}}}"
        )
    return {name: field.is_required() for name, field in model.model_fields.items()}


def _by_typed_dict(declared: type) -> ByTypes:
    """The keys of a `TypedDict` as outputs. pydantic takes the `TypedDict` of `typing` from Python
    3.12 on, so it gets the types alone.
    """
    try:
        hints = get_type_hints(declared, include_extras=True)
    except Exception as error:
        raise ConfigError(f"{declared.__name__} cannot be described to a model: {_first_line(error)}") from error
    # Python finds no marks in annotations that are texts (`from __future__ import annotations`).
    keys: frozenset[str] = declared.__required_keys__  # type: ignore[attr-defined] # every TypedDict has it
    required = [name for name, hint in hints.items() if _is_required(hint, otherwise=name in keys)]
    _must_require(declared.__name__, required)
    types = {name: _without_marks(hint) for name, hint in hints.items()}
    return ByTypes(types, required=required, purpose=inspect.cleandoc(declared.__doc__ or ""))


def _is_required(hint: Any, *, otherwise: bool) -> bool:
    return {Required: True, NotRequired: False}.get(get_origin(hint), otherwise)


def _without_marks(hint: Any) -> Any:
    """A type without `Required` and `NotRequired` around it."""
    while get_origin(hint) in {Required, NotRequired}:
        hint = get_args(hint)[0]
    return hint


def _must_require(name: str, required: Collection[str]) -> None:
    if not required:
        raise ConfigError(f"{name} has no field without a default, so there is nothing that the run must emit")


def _heads(names: Iterable[str]) -> set[tuple[int | str, ...]]:
    return {(name,) for name in names}


def _names_in(errors: Sequence[ErrorDetails], names: Collection[str]) -> list[str]:
    return [str(each["loc"][0]) for each in errors if each["loc"] and each["loc"][0] in names]


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        unquoted = getattr(name, "__name__", None)
        line = f": write outputs={{{unquoted!r}: ...}}" if unquoted else ""
        said = unquoted or repr(name)
        raise ConfigError(f"the name of an output must be a string without spaces around it, not {said}{line}")
    return name


def _adapter(name: str, annotation: Any) -> pydantic.TypeAdapter[Any]:
    if isinstance(annotation, str):
        raise ConfigError(
            f"outputs[{name!r}] is the text {annotation!r}; give a type, and a description with it like this: "
            f"{{{name!r}: Annotated[str, Field(description='...')]}}"
        )
    if inspect.isroutine(annotation):
        raise ConfigError(f"outputs[{name!r}] is the function {annotation!r}; give a type")
    try:
        return pydantic.TypeAdapter(annotation)
    except Exception as error:
        raise ConfigError(
            f"outputs[{name!r}]: {annotation!r} is not a type that can be validated: {_first_line(error)}"
        ) from error


def _schema(name: str, adapter: pydantic.TypeAdapter[Any]) -> dict[str, Any]:
    try:
        return portable(adapter.json_schema())
    except Exception as error:
        raise ConfigError(f"outputs[{name!r}] cannot be described to a model: {_first_line(error)}") from error


def _texts(schemas: Mapping[str, Mapping[str, Any]], required: Iterable[str]) -> frozenset[str]:
    """The required outputs that are free text and may not be blank: no choice, format or pattern,
    and no `minLength` of 0.
    """
    others = ("enum", "const", "format", "pattern")
    return frozenset(
        name
        for name in required
        if schemas[name].get("type") == "string"
        and schemas[name].get("minLength") != 0
        and not any(key in schemas[name] for key in others)
    )


def _first_line(error: BaseException) -> str:
    return describe(error).partition("\n")[0]


def emit_spec(
    schemas: Mapping[str, Mapping[str, Any]], required: Collection[str], purpose: str = "", *, one_of: bool = False
) -> ToolSpec:
    """`emit_value`, declared for these outputs. `purpose`: what they are for. `one_of`: the run has
    one output, of any of these kinds.
    """
    once = "Choose the one that fits, and call it once" if one_of else "Call it once for each"
    again = "emitting again replaces the value" if one_of else "emitting a name again replaces its value"
    lines = [
        f"Hand over one output of this task. {once}; {again}.",
        *([purpose] if purpose else []),
        "Outputs:",
        *(_line(name, schema, optional=name not in required) for name, schema in schemas.items()),
    ]
    parameters = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": list(schemas), "description": "Which output."},
            "value": _value_schema(schemas),
        },
        "required": ["name", "value"],
    }
    return ToolSpec(EMIT, "\n".join(lines), parameters)


def _line(name: str, schema: Mapping[str, Any], *, optional: bool) -> str:
    about = f": {schema['description']}" if schema.get("description") else ""
    return f"- `{name}` ({type_in_words(schema)}{'; optional' if optional else ''}){about}"


def _value_schema(schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One schema for the argument `value`: the schema of the only type, or one branch for each
    type, with the names of its outputs.
    """
    types: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for name, schema in schemas.items():
        bare = {key: value for key, value in schema.items() if key not in {"description", "default"}}
        types.setdefault(json.dumps(bare, sort_keys=True, default=repr), (bare, []))[1].append(name)
    if len(types) == 1:
        ((bare, _),) = types.values()
        return {**bare, "description": "Its value."}
    branches = [{**bare, "description": f"For {listed(names)}."} for bare, names in types.values()]
    return {"anyOf": branches, "description": "Its value, of the type that the output has."}


# --- words


def listed(names: Iterable[str]) -> str:
    """The names in backticks, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def type_in_words(schema: Mapping[str, Any]) -> str:
    """The type of `schema` for a message, e.g. `number (>= 0)`."""
    words = in_words(schema)
    return words if len(words) <= MAX_TYPE_CHARS else f"{words[: MAX_TYPE_CHARS - 1]}…"


# --- reading a value


def json_in(text: str) -> Any:
    """The JSON value that `text` holds; `text` itself if it holds none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json_text(value: Any) -> str:
    """`value` as JSON text. JSON parsers refuse half a surrogate pair, so it becomes U+FFFD."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RefusedError(f"it is not a JSON value ({_first_line(error)})") from None
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_json(value: Any) -> Any:
    """A copy of `value` that is JSON and nothing else."""
    return json.loads(_json_text(value))


def _problems(errors: Sequence[ErrorDetails], *, strip: int = 0, whole: bool = False) -> str:
    """The faults that pydantic found, in one line for the model: place, fault, value."""
    told = []
    for error in errors[:MAX_PROBLEMS]:
        where = ".".join(map(str, error["loc"][strip:]))
        what = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")
        told.append(f"{where}: {what}" if where else what)
        if error["type"] != "missing" and (error["loc"] or not whole):
            told[-1] += f" (got {shown(error['input'])})"
    more = [f"and {len(errors) - MAX_PROBLEMS} more"] if len(errors) > MAX_PROBLEMS else []
    return "; ".join([*told, *more])
