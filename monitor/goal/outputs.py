"""The outputs that a run is held to: declared by types, emitted by the model one at a time,
validated, complete or not.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from monitor._util.arguments import Answer, arguments_in, closest, is_blank, shown
from monitor.errors import ConfigError, describe
from monitor.models import ToolSpec
from monitor.schemas import Sdk, declare, in_words, portable, takes_text

EMIT = "emit_value"
"""The tool by which the model hands over one declared output."""
TERMINATE = "terminate"
"""The tool by which the model ends the run."""

Declaration: TypeAlias = Mapping[str, Any] | type[BaseModel]
"""A type for each name, or a pydantic model class."""

MAX_TYPE_CHARS = 200
"""As much is said of a type in a message; the declaration of the tool holds all of it."""
MAX_PROBLEMS = 5
"""Of a refused value, as many faults are told to the model at once."""


@dataclass(slots=True, frozen=True)
class Emitted:
    """One accepted output."""

    name: str
    value: Any
    """As it stands in `Outputs.emitted`."""
    json: Any
    """The same as plain JSON data, for events and records."""
    overwritten: bool
    """There was a value before this one."""


class Outputs:
    """Declared outputs, and what of them has been emitted.

    `declared` is a dict of types (all are required; whatever pydantic takes: `str`, `list[Item]`,
    `Literal[...]`, `Annotated[float, Field(ge=0, description="...")]`) or a pydantic model class
    (fields with a default are optional). What cannot be an output is a `ConfigError` here and not
    later.

    One object collects for one run; `fresh()` gives an empty one of the same declaration.

    Values are validated as JSON. The text of a JSON value is taken for the value where the text
    itself is not of the type, because models send `"[1, 2]"` for `[1, 2]`. A refused value changes
    nothing.

    A required text must say something: a blank one is refused, because a model that has nothing to
    say emits `""` and would be done. One that may be blank says so: `Annotated[str,
    Field(min_length=0)]`, `str | None`, or a field with a default.
    """

    def __init__(self, declared: Declaration | _Declared) -> None:
        self._declared = declared if isinstance(declared, _Types | _Model) else _declared_by(declared)
        self._json: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._output: Any = None
        self._last: Emitted | None = None

    def fresh(self) -> Outputs:
        """The same declaration with nothing emitted."""
        return Outputs(self._declared)

    @property
    def spec(self) -> ToolSpec:
        """The tool `emit_value`, as the model is told about it."""
        return self._declared.spec

    def declare(self, sdk: Sdk) -> list[dict[str, Any]]:
        """`emit_value` as plain data for the `tools` of a request of that SDK."""
        return declare([self.spec], sdk)

    @property
    def names(self) -> list[str]:
        """All declared names, in order."""
        return list(self._declared.schemas)

    @property
    def missing(self) -> list[str]:
        """What is required and not emitted, in the order of the declaration."""
        return [name for name in self._declared.required if name not in self._values]

    @property
    def complete(self) -> bool:
        """Nothing required is missing."""
        return not self.missing

    @property
    def emitted(self) -> dict[str, Any]:
        """The accepted values, in the order of the declaration.

        Declared by types, they are of these types. Declared by a model, they are JSON data as the
        model sent them until all are there, and then the attributes of `output`.
        """
        return {name: self._values[name] for name in self._declared.schemas if name in self._values}

    @property
    def output(self) -> Any:
        """The instance of the declared model, or the dict of all values; `None` while something is
        missing.
        """
        return self._output

    @property
    def last(self) -> Emitted | None:
        """What the latest `call` accepted; `None`: it was refused."""
        return self._last

    def describe(self, name: str) -> str:
        """The type of an output in words, e.g. `number (>= 0)`."""
        return _type_in_words(self._declared.schemas[name])

    def call(self, arguments: object) -> Answer:
        """Carry out one call of `emit_value`. Never raises: what is wrong is told to the model,
        with what is allowed.
        """
        self._last = None
        try:
            given = arguments_in(arguments)
        except ValueError as error:
            return _refused(f"{error} {self._usage()}")
        name = given.get("name")
        if not isinstance(name, str) or name not in self._declared.schemas:
            return _refused(self._unknown(given))
        if "value" not in given:
            return _refused(f"`value` is missing. {self._usage(name)}")
        return self._emit(name, given["value"])

    def _emit(self, name: str, value: Any) -> Answer:
        overwritten = name in self._values
        try:
            plain, read = self._read(name, value)
            json_values = {**self._json, name: plain}
            values = {**self._values, name: read}
            output = None
            if all(required in values for required in self._declared.required):
                output, values = self._declared.whole(json_values, values)
        except _RefusedError as refused:
            kept = " The value from before stays." if overwritten else ""
            return _refused(f"`{name}` is not accepted: {refused}. {self._usage(name, *refused.names)}{kept}")
        self._json, self._values, self._output = json_values, values, output
        self._last = Emitted(name, values[name], plain, overwritten)
        done = f"`{name}` is recorded{', in place of the value from before' if overwritten else ''}."
        return Answer(f"{done} {self._what_is_missing()}")

    def _read(self, name: str, value: Any) -> tuple[Any, Any]:
        """The value as JSON data and as its type. Text is read as it is and as JSON, in the order
        that the type suggests.
        """
        forms = [value]
        if isinstance(value, str) and (inner := _json_in(value)) is not value:
            forms = [value, inner] if takes_text(self._declared.schemas[name]) else [inner, value]
        refusals = []
        for form in forms:
            try:
                plain = _as_json(form)
                read = self._declared.read(name, plain, self._json)
                if name in self._declared.texts and _says_nothing(read):
                    raise _RefusedError(f"it is blank (got {shown(read)}); say it in words")
                return plain, read
            except _RefusedError as refused:
                refusals.append(refused)
        raise refusals[0]

    def _what_is_missing(self) -> str:
        missing = self.missing
        return f"Still missing: {_listed(missing)}." if missing else "All required outputs are there."

    def _unknown(self, given: Mapping[str, Any]) -> str:
        if "name" not in given:
            return f"`name` is missing. {self._usage()}"
        meant = closest(given["name"], self._declared.schemas)
        what = f"No output is called {shown(given['name'])}."
        if meant is None:
            return f"{what} {self._usage()}"
        return f"{what} Did you mean `{meant}`? Declared outputs: {_listed(self.names)}. {self._usage(meant)}"

    def _usage(self, *names: str) -> str:
        """How to call it right: for the outputs that it is about, or for any."""
        if not names:
            declared = ", ".join(f"`{name}` ({self.describe(name)})" for name in self.names)
            return f"Declared outputs: {declared}. Call {EMIT} with one of these as `name`, and its `value`."
        calls = (
            f"{EMIT}(name={json.dumps(name, ensure_ascii=False)}, value=<{self.describe(name)}>)"
            for name in dict.fromkeys(names)
        )
        return f"Call {' or '.join(calls)}."

    def nudge_text(self) -> str:
        """A user message for a model that stopped too early: what is missing, and how to hand it
        over. Empty if nothing is missing.
        """
        missing = self.missing
        if not missing:
            return ""
        lines = "\n".join(f"- `{name}`: {self.describe(name)}" for name in missing)
        return (
            f"You stopped, but these outputs are missing:\n{lines}\nCall the tool {EMIT} once for each of them, with"
            " `name` and `value`."
        )

    def snapshot(self) -> dict[str, Any]:
        """What was emitted, as JSON data."""
        return {
            "version": 1,
            "emitted": {name: self._json[name] for name in self._declared.schemas if name in self._json},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `snapshot` was taken. A value that this declaration does not allow is a
        `ValueError`, and nothing changes.
        """
        if state.get("version") != 1:
            raise ValueError(f"outputs: cannot restore version {state.get('version')!r}, only 1")
        emitted = state.get("emitted")
        if not isinstance(emitted, Mapping):
            raise ValueError(f"outputs: what was emitted must be an object, not {shown(emitted)}")
        other = self.fresh()
        for name, value in emitted.items():
            answer = other.call({"name": name, "value": value})
            if answer.is_error:
                raise ValueError(f"outputs: {answer.text}")
        vars(self).update(vars(other), _last=None)


# --- declarations


class _RefusedError(Exception):
    """A value is not accepted; the message is for the model. `names`: other outputs that may be at
    fault.
    """

    def __init__(self, message: str, names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.names = names


class _Types:
    """Outputs declared by a dict of types."""

    def __init__(self, declared: Mapping[str, Any]) -> None:
        if not isinstance(declared, Mapping):
            raise ConfigError(f"outputs must be a dict of types or a pydantic model class, not {declared!r}")
        if not declared:
            raise ConfigError("outputs is empty: declare one at least, or leave outputs out")
        self._adapters = {_checked_name(name): _adapter(name, annotation) for name, annotation in declared.items()}
        self.schemas = {name: _schema(name, adapter) for name, adapter in self._adapters.items()}
        self.required = tuple(self.schemas)
        self.texts = _texts(self.schemas, self.required)
        self.spec = _emit_spec(self.schemas, self.required)

    def read(self, name: str, value: Any, others: Mapping[str, Any]) -> Any:
        try:
            return self._adapters[name].validate_json(_json_text(value), by_alias=True, by_name=True)
        except ValidationError as error:
            raise _RefusedError(_problems(error.errors(include_url=False))) from None
        except Exception as error:  # noqa: BLE001 - a validator of the user's may raise what it likes
            raise _RefusedError(describe(error)) from None

    def whole(self, json_values: Mapping[str, Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return {name: values[name] for name in self.schemas}, values


class _Model:
    """Outputs declared by a pydantic model class. It validates as a whole: field validators see
    what was emitted before.
    """

    def __init__(self, model: type) -> None:
        if not issubclass(model, BaseModel):
            raise ConfigError(
                f"outputs must be a dict of types or a pydantic model class, not the class {model.__name__}"
            )
        if issubclass(model, RootModel):
            raise ConfigError(
                f"{model.__name__} is a RootModel and has no named fields; use a dict: outputs={{'name':"
                f" {model.__name__}}}"
            )
        self._model = model
        try:
            schema = portable(model.model_json_schema(by_alias=False))
        except Exception as error:
            raise ConfigError(f"{model.__name__} cannot be described to a model: {_first_line(error)}") from error
        properties = schema.get("properties", {})
        self.schemas: dict[str, Any] = {name: properties.get(name, {}) for name in model.model_fields}
        self.required = tuple(name for name, field in model.model_fields.items() if field.is_required())
        if not self.required:
            raise ConfigError(
                f"{model.__name__} has no field without a default, so there is nothing that a run could be held to"
            )
        self.texts = _texts(self.schemas, self.required)
        self.spec = _emit_spec(self.schemas, self.required, str(schema.get("description", "")))

    def read(self, name: str, value: Any, others: Mapping[str, Any]) -> Any:
        given = {**others, name: value}
        try:
            self._validate(given)
        except ValidationError as error:
            # What is still missing, and what the model says as a whole, waits until all are there.
            wrong = [
                each
                for each in error.errors(include_url=False)
                if each["type"] == "json_invalid" or each["loc"][:1] in _heads(given)
            ]
            if wrong:
                only_this = all(each["loc"][:1] in _heads([name]) for each in wrong)
                raise _RefusedError(_problems(wrong, strip=1 if only_this else 0), _names_in(wrong, given)) from None
        except Exception:  # noqa: BLE001, S110 - a validator may need what is not emitted yet; it has its say when all are there
            pass
        return value

    def whole(self, json_values: Mapping[str, Any], values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        try:
            output = self._validate(json_values)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            raise _RefusedError(
                f"the outputs do not fit together: {_problems(errors, whole=True)}", _names_in(errors, self.schemas)
            ) from None
        except Exception as error:  # noqa: BLE001 - a validator of the user's may raise what it likes
            raise _RefusedError(f"the outputs do not fit together: {describe(error)}") from None
        return output, {name: getattr(output, name) for name in json_values}

    def _validate(self, values: Mapping[str, Any]) -> BaseModel:
        return self._model.model_validate_json(_json_text(values), by_alias=True, by_name=True)


_Declared: TypeAlias = _Types | _Model


def _declared_by(declared: Declaration) -> _Declared:
    return _Model(declared) if inspect.isclass(declared) else _Types(declared)


def _heads(names: Iterable[str]) -> set[tuple[int | str, ...]]:
    return {(name,) for name in names}


def _names_in(errors: Sequence[ErrorDetails], names: Collection[str]) -> list[str]:
    return [str(each["loc"][0]) for each in errors if each["loc"] and each["loc"][0] in names]


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or name != name.strip():
        raise ConfigError(f"the name of an output must be a string without spaces around it, not {name!r}")
    return name


def _adapter(name: str, annotation: Any) -> TypeAdapter[Any]:
    if isinstance(annotation, str):
        raise ConfigError(
            f"outputs[{name!r}] is the text {annotation!r}; give a type, and a description with it like this: "
            f"{{{name!r}: Annotated[str, Field(description='...')]}}"
        )
    if inspect.isroutine(annotation):
        raise ConfigError(f"outputs[{name!r}] is the function {annotation!r}; give a type")
    try:
        return TypeAdapter(annotation)
    except Exception as error:
        raise ConfigError(
            f"outputs[{name!r}]: {annotation!r} is no type that can be validated: {_first_line(error)}"
        ) from error


def _schema(name: str, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    try:
        return portable(adapter.json_schema())
    except Exception as error:
        raise ConfigError(f"outputs[{name!r}] cannot be described to a model: {_first_line(error)}") from error


def _texts(schemas: Mapping[str, Mapping[str, Any]], required: Iterable[str]) -> frozenset[str]:
    """The required outputs that are any text: no choice, no format or pattern, and not said to be
    blank at times.
    """
    others = ("enum", "const", "format", "pattern")
    return frozenset(
        name
        for name in required
        if schemas[name].get("type") == "string"
        and schemas[name].get("minLength") != 0
        and not any(key in schemas[name] for key in others)
    )


def _says_nothing(value: object) -> bool:
    """A blank text, also as the JSON of one, in quotation marks."""
    inner = _json_in(value) if isinstance(value, str) else value
    return isinstance(value, str) and (is_blank(value) or (isinstance(inner, str) and is_blank(inner)))


def _first_line(error: BaseException) -> str:
    return describe(error).partition("\n")[0]


def _emit_spec(schemas: Mapping[str, Mapping[str, Any]], required: Collection[str], purpose: str = "") -> ToolSpec:
    lines = [
        "Hand over one output of this task. Call it once for each; emitting a name again replaces its value.",
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
    return f"- `{name}` ({_type_in_words(schema)}{'; optional' if optional else ''}){about}"


def _value_schema(schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One schema for all values: that of the only type, or one branch a type that says which names
    it is for.
    """
    types: dict[str, tuple[dict[str, Any], list[str]]] = {}
    for name, schema in schemas.items():
        bare = {key: value for key, value in schema.items() if key not in {"description", "default"}}
        types.setdefault(json.dumps(bare, sort_keys=True, default=repr), (bare, []))[1].append(name)
    if len(types) == 1:
        ((bare, _),) = types.values()
        return {**bare, "description": "Its value."}
    branches = [{**bare, "description": f"For {_listed(names)}."} for bare, names in types.values()]
    return {"anyOf": branches, "description": "Its value, of the type that the output has."}


# --- words


def _refused(text: str) -> Answer:
    return Answer(f"Error: {text}", is_error=True)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _type_in_words(schema: Mapping[str, Any]) -> str:
    words = in_words(schema)
    return words if len(words) <= MAX_TYPE_CHARS else f"{words[: MAX_TYPE_CHARS - 1]}…"


# --- reading a value


def _json_in(text: str) -> Any:
    """The JSON value that `text` holds; `text` itself if it holds none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _json_text(value: Any) -> str:
    """`value` as JSON text. Half a surrogate pair, which no JSON parser takes, becomes U+FFFD."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _RefusedError(f"it is no JSON value ({_first_line(error)})") from None
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _as_json(value: Any) -> Any:
    """A copy of `value` that is JSON and nothing else."""
    return json.loads(_json_text(value))


def _problems(errors: Sequence[ErrorDetails], *, strip: int = 0, whole: bool = False) -> str:
    """What pydantic found, in one line for the model: where, what, and what was there instead."""
    told = []
    for error in errors[:MAX_PROBLEMS]:
        where = ".".join(map(str, error["loc"][strip:]))
        what = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")
        told.append(f"{where}: {what}" if where else what)
        if error["type"] != "missing" and (error["loc"] or not whole):
            told[-1] += f" (got {shown(error['input'])})"
    more = [f"and {len(errors) - MAX_PROBLEMS} more"] if len(errors) > MAX_PROBLEMS else []
    return "; ".join([*told, *more])


# --- terminate


class Terminate:
    """The tool `terminate`: the model ends the run itself, with success or failure. One object for
    one run.

    With `outputs`, success is refused while required ones are missing, and with `open_step` while
    that names a step of the plan that is left to do; failure is always allowed. The first accepted
    call counts. Where one response holds emits and a terminate, carry out the emits first.
    """

    def __init__(self, outputs: Outputs | None = None, open_step: Callable[[], str | None] | None = None) -> None:
        self._outputs = outputs
        self._open_step = open_step
        self.status: Literal["success", "failure"] | None = None
        """`None`: not terminated."""
        self.reason = ""

    @property
    def spec(self) -> ToolSpec:
        """The tool, as the model is told about it."""
        held = f" Success needs every required output to be emitted by {EMIT} before." if self._outputs else ""
        return ToolSpec(
            TERMINATE,
            "End this run: with success when the task is done, with failure when it cannot be done." + held,
            {
                "type": "object",
                "properties": {
                    "status": {"type": "string", "enum": ["success", "failure"]},
                    "reason": {
                        "type": "string",
                        "description": "In one or two sentences: what was reached, or what stands in the way.",
                    },
                },
                "required": ["status", "reason"],
            },
        )

    def call(self, arguments: object) -> Answer:
        """Carry out one call. Never raises."""
        if self.status is not None:
            return Answer(f"The run already ends with {self.status}.")
        usage = f'Call {TERMINATE}(status="success" or "failure", reason="...").'
        try:
            given = arguments_in(arguments)
        except ValueError as error:
            return _refused(f"{error} {usage}")
        status, reason = _status_in(given), _reason_in(given)
        if status is None:
            return _refused(f'`status` must be "success" or "failure", not {shown(given.get("status"))}. {usage}')
        if status == "failure" and not reason:
            return _refused(f"a failure needs a `reason`: what stands in the way? {usage}")
        if status == "success" and self._outputs is not None and self._outputs.missing:
            first = f"Call {EMIT} for each first, or {TERMINATE} with failure and the reason."
            return _refused(f"this is no success yet, outputs are missing: {_listed(self._outputs.missing)}. {first}")
        if status == "success" and self._open_step is not None and (step := self._open_step()) is not None:
            return _refused(
                f"this is no success yet, the plan is not done: {step}. Do that first, or call {TERMINATE} with"
                " failure."
            )
        self.status, self.reason = status, reason
        return Answer(f"The run ends with {status}.")


def _status_in(given: Mapping[str, Any]) -> Literal["success", "failure"] | None:
    status = given.get("status")
    match status.strip().lower() if isinstance(status, str) else None:
        case "success":
            return "success"
        case "failure":
            return "failure"
        case _:
            return None


def _reason_in(given: Mapping[str, Any]) -> str:
    reason = given.get("reason")
    if reason is None:
        return ""
    return reason.strip() if isinstance(reason, str) else shown(reason)
