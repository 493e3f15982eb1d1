"""The outputs of one run, which the model emits one at a time, and the tool with which the model
ends the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from monitor._util.arguments import GoalAnswer, arguments_in, closest, is_blank, shown
from monitor.goal.declared import (
    ByModel,
    ByTypes,
    ByUnion,
    Declaration,
    Declared,
    RefusedError,
    as_json,
    declared_by,
    json_in,
    listed,
    type_in_words,
)
from monitor.messages import EMIT
from monitor.models import Sdk, ToolSpec, declare, takes_text

TERMINATE = "terminate"
"""The tool by which the model ends the run."""


@dataclass(slots=True, frozen=True)
class Emitted:
    """One accepted output."""

    name: str
    value: Any
    """The value as in `Outputs.emitted`."""
    json: Any
    """The value as plain JSON data, for events and records."""
    overwritten: bool
    """The output had a value before this one."""


class Outputs:
    """Declared outputs, and the values that were emitted.

    `declared` is a dict of types (all are required; whatever pydantic takes: `str`, `list[Item]`,
    `Literal[...]`, `Annotated[float, Field(ge=0, description="...")]`) or a class with fields: a
    pydantic model, a dataclass (fields with a default are optional), or a TypedDict. A union of
    models and dataclasses, `Review | Refusal`, asks for one object of any of them. Anything that
    cannot be an output raises `ConfigError` here and not later.

    One object collects for one run; `fresh()` gives an empty one of the same declaration.

    Values are validated as JSON. Models send `"[1, 2]"` for `[1, 2]`: a text that is not of the
    type itself is read as the JSON value that it holds. A refused value changes nothing.

    A required text may not be blank: otherwise a model that has nothing to say could emit `""` and
    complete the run. A text that may be blank is declared as `Annotated[str, Field(min_length=0)]`,
    as `str | None`, or as a field with a default.
    """

    def __init__(self, declared: Declaration | Declared) -> None:
        self._declared = declared if isinstance(declared, ByTypes | ByModel) else declared_by(declared)
        self._json: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._output: Any = None
        self._last: Emitted | None = None

    def fresh(self) -> Outputs:
        """A copy of the declaration with nothing emitted."""
        return Outputs(self._declared)

    @property
    def spec(self) -> ToolSpec:
        """The tool `emit_value`, as it is declared to the model."""
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
        """The required outputs that are not emitted, in the order of the declaration. For a union:
        one text with all of its names, until one is emitted.
        """
        return self._declared.missing(self._values)

    @property
    def complete(self) -> bool:
        """Whether every required output is emitted."""
        return not self.missing

    @property
    def emitted(self) -> dict[str, Any]:
        """The accepted values, in the order of the declaration.

        Values declared by types have these types. Values declared by a model class are JSON data
        until all are there, and then the attributes of `output`.
        """
        return {name: self._values[name] for name in self._declared.schemas if name in self._values}

    @property
    def output(self) -> Any:
        """The instance of the declared class, or of one class of a declared union, or the dict of
        all values; `None` while something is missing.
        """
        return self._output

    @property
    def last(self) -> Emitted | None:
        """The output that the latest `call` accepted; `None`: the call was refused."""
        return self._last

    def describe(self, name: str) -> str:
        """The type of an output in words, e.g. `number (>= 0)`."""
        return type_in_words(self._declared.schemas[name])

    def call(self, arguments: object) -> GoalAnswer:
        """Carry out one call of `emit_value`. Never raises: the answer to a refused call names the
        fault and the allowed values.
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

    def _emit(self, name: str, value: Any) -> GoalAnswer:
        overwritten = name in self._values
        try:
            plain, read = self._read(name, value)
            json_values = {**self._declared.kept(self._json), name: plain}
            values = {**self._declared.kept(self._values), name: read}
            output = None
            if not self._declared.missing(values):
                output, values = self._declared.whole(json_values, values)
        except RefusedError as refused:
            kept = " The value from before stays." if overwritten else ""
            return _refused(f"`{name}` is not accepted: {refused}. {self._usage(name, *refused.names)}{kept}")
        self._json, self._values, self._output = json_values, values, output
        self._last = Emitted(name, values[name], plain, overwritten)
        done = f"`{name}` is recorded{', in place of the value from before' if overwritten else ''}."
        return GoalAnswer(f"{done} {self._what_is_missing()}")

    def _read(self, name: str, value: Any) -> tuple[Any, Any]:
        """The value as JSON data and as its type. Text is read as it is and as JSON, in the order
        that the type suggests.
        """
        forms = [value]
        if isinstance(value, str) and (inner := json_in(value)) is not value:
            forms = [value, inner] if takes_text(self._declared.schemas[name]) else [inner, value]
        refusals = []
        for form in forms:
            try:
                plain = as_json(form)
                read = self._declared.read(name, plain, self._json)
                if name in self._declared.texts and _says_nothing(read):
                    raise RefusedError(f"it is blank (got {shown(read)}); say it in words")
                return plain, read
            except RefusedError as refused:
                refusals.append(refused)
        raise refusals[0]

    def _what_is_missing(self) -> str:
        missing = self.missing
        return f"Still missing: {listed(missing)}." if missing else "All required outputs are there."

    def _unknown(self, given: Mapping[str, Any]) -> str:
        if "name" not in given:
            return f"`name` is missing. {self._usage()}"
        meant = closest(given["name"], self._declared.schemas)
        what = f"No output is called {shown(given['name'])}."
        if meant is None:
            return f"{what} {self._usage()}"
        return f"{what} Did you mean `{meant}`? Declared outputs: {listed(self.names)}. {self._usage(meant)}"

    def _usage(self, *names: str) -> str:
        """How to call `emit_value` correctly, for the outputs called `names`, or for any."""
        if not names:
            declared = ", ".join(f"`{name}` ({self.describe(name)})" for name in self.names)
            return f"Declared outputs: {declared}. Call {EMIT} with one of these as `name`, and its `value`."
        calls = (
            f"{EMIT}(name={json.dumps(name, ensure_ascii=False)}, value=<{self.describe(name)}>)"
            for name in dict.fromkeys(names)
        )
        return f"Call {' or '.join(calls)}."

    def nudge_text(self) -> str:
        """A user message for a model that stopped too early: which outputs are missing, and how to
        emit them. Empty if none is missing.
        """
        missing = self.missing
        if not missing:
            return ""
        one_of = isinstance(self._declared, ByUnion)
        lines = "\n".join(f"- `{name}`: {self.describe(name)}" for name in (self.names if one_of else missing))
        what = "one of these outputs is" if one_of else "these outputs are"
        times = "for one" if one_of else "once for each"
        return (
            f"You stopped, but {what} missing:\n{lines}\nCall the tool {EMIT} {times} of them, with `name` and `value`."
        )

    def snapshot(self) -> dict[str, Any]:
        """The emitted values, as JSON data."""
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


def _says_nothing(value: object) -> bool:
    """Whether a value is a blank text, or the JSON of one in quotation marks."""
    inner = json_in(value) if isinstance(value, str) else value
    return isinstance(value, str) and (is_blank(value) or (isinstance(inner, str) and is_blank(inner)))


def _refused(text: str) -> GoalAnswer:
    return GoalAnswer(f"Error: {text}", is_error=True)


# --- terminate


class Terminate:
    """The tool `terminate`: the model ends the run itself, with success or failure. One object for
    one run.

    With `outputs`, success is refused while required outputs are missing. With `open_step`, success
    is refused while it names an open step of the plan. Failure is always allowed. The first
    accepted call counts. Where one response holds emits and a terminate, carry out the emits first.
    """

    def __init__(self, outputs: Outputs | None = None, open_step: Callable[[], str | None] | None = None) -> None:
        self._outputs = outputs
        self._open_step = open_step
        self.status: Literal["success", "failure"] | None = None
        """`None`: not terminated."""
        self.reason: str = ""

    @property
    def spec(self) -> ToolSpec:
        """The tool `terminate`, as it is declared to the model."""
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

    def call(self, arguments: object) -> GoalAnswer:
        """Carry out one call. Never raises."""
        if self.status is not None:
            return GoalAnswer(f"The run already ends with {self.status}.")
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
            return _refused(f"this is no success yet, outputs are missing: {listed(self._outputs.missing)}. {first}")
        if status == "success" and self._open_step is not None and (step := self._open_step()) is not None:
            return _refused(
                f"this is no success yet, the plan is not done: {step}. Do that first, or call {TERMINATE} with"
                " failure."
            )
        self.status, self.reason = status, reason
        return GoalAnswer(f"The run ends with {status}.")


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
