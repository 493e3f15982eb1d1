"""Python functions as tools.

- **The description for the model** is the whole docstring. The schema of each parameter is made by
  pydantic from its annotation. So `Annotated[int, Field(ge=1, description="...")]`, `Literal`,
  `Optional` and nested models have their usual meaning. A parameter without annotation takes
  anything.
- **The arguments of the model** are checked as pydantic checks in its lax mode: an `int` may be
  written "3", but a `str` may not be written 3. A key that is no parameter is an error. A parameter
  that is left out has the function's own default.
- **The place**: an `async` function runs in the event loop; any other in a worker thread, with the
  caller's context variables. A thread cannot be stopped. After a timeout or a cancellation nobody
  waits for it any longer, and its answer is dropped. At most 40 threads run at once, as anyio's
  default limiter allows.
- **The answer** may be anything: text goes as it is, `monitor.Media` (or a list with it) as media,
  the rest as JSON; bytes are refused. `None` is `null`. For a function declared `-> None` it is
  "done", because there `None` does not mean that nothing was found.
"""

from __future__ import annotations

import functools
import inspect
import json
import threading
import typing
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Annotated, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, cast, get_args, overload

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError

from monitor._util.argument_checks import is_finite
from monitor.errors import ConfigError, ToolError, describe, message_of
from monitor.models import ToolSpec
from monitor.reasons import ToolErrorKind
from monitor.schemas import portable
from monitor.tools.base import (
    NAME,
    CallReporter,
    Guidance,
    Keep,
    LoopKey,
    NeedsApproval,
    Tool,
    ToolContext,
    ToolKind,
    ToolTraits,
    check_name,
    excerpt,
)

P = ParamSpec("P")
R = TypeVar("R")

ERRORS_SHOWN = 8
"""The most mistakes of one call that are named to the model."""


class Traits(TypedDict, total=False):
    """The options of a function as a tool: the fields of `ToolTraits`."""

    alone: bool
    kind: ToolKind
    idempotent: bool
    needs_approval: NeedsApproval
    loop_key: LoopKey | None
    timeout_s: float | None
    hard_timeout_s: float | None
    guidance: Guidance | None
    keep: Keep


class FunctionTool(Generic[P, R]):
    """A function that a model can call. A program can still call it as an ordinary function.

    The options from `alone` on are those of `monitor.tools.ToolTraits`. A parameter annotated
    `ToolContext` gets the context. The model is not shown that parameter, nor parameters that a
    `functools.partial` has bound.

    Raises `ConfigError` if the parameters cannot be described to a model, or if the function has no
    name that every provider accepts.
    """

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        **traits: Unpack[Traits],
    ) -> None:
        self.fn: Callable[P, R] = fn.fn if isinstance(fn, FunctionTool) else fn
        self.__wrapped__ = self.fn
        function = _function_of(self.fn)
        self.__doc__ = _doc_of(self.fn, function)
        said = checked_traits(traits)
        self.alone, self.kind, self.idempotent = said.alone, said.kind, said.idempotent
        self.needs_approval, self.loop_key, self.guidance = said.needs_approval, said.loop_key, said.guidance
        self.timeout_s, self.hard_timeout_s, self.keep = said.timeout_s, said.hard_timeout_s, said.keep
        name = check_name(_name_of(self.fn) if name is None else name)
        self._arguments = _FunctionArguments(name, self.fn, function)
        self._is_async = _is_async(self.fn)
        self._checked: tuple[Mapping[str, Any], BaseModel] | None = None
        """The arguments that were checked last, so that the call need not check them again."""
        self.spec = ToolSpec(name, (self.__doc__ or "") if description is None else description, self._arguments.schema)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<FunctionTool {self.spec.name}>"

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """The answer of the function. Raises `ToolError` for arguments that do not fit.

        Without a scheduler, `timeout_s` holds here, and a timeout raises `ToolError`.
        """
        checked, self._checked = self._checked, None
        model = checked[1] if checked is not None and checked[0] is arguments else self._arguments.check(arguments)
        wanted = self._arguments.read(model, context)
        if self.timeout_s is None or context.reporter is not None:
            return await self._run(wanted, context)
        with anyio.move_on_after(self.timeout_s):
            return await self._run(wanted, context)
        raise ToolError(f"{self.spec.name} did not answer within {self.timeout_s:g} s", kind=ToolErrorKind.TIMEOUT)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise `ToolError` for arguments that do not fit."""
        self._checked = arguments, self._arguments.check(arguments)

    async def _run(self, arguments: dict[str, Any], context: ToolContext) -> object:
        def start() -> list[Any]:
            return [self.fn(**arguments)]  # type: ignore[call-arg]  # in a list, because trio takes no coroutine from a thread

        (answer,) = start() if self._is_async else await _in_thread(start, context.reporter)
        # a plain function may return an awaitable too, e.g. a lambda or a decorator of an async one
        if inspect.isawaitable(answer):
            answer = await answer
        return "done" if answer is None and self._arguments.answers_nothing else answer


async def _in_thread(work: Callable[[], list[Any]], reporter: CallReporter | None) -> list[Any]:
    """Run `work` in a worker thread. After a cancellation the thread goes on, and `reporter` is
    informed.
    """
    left = ended = False
    lock = threading.Lock()

    def do() -> list[Any]:
        nonlocal ended
        try:
            return work()
        finally:
            with lock:
                ended = True
                late = left
            if late and reporter is not None:
                reporter.thread_ended()

    try:
        return await anyio.to_thread.run_sync(do, abandon_on_cancel=True)
    except BaseException:
        with lock:
            left = not ended
        if left and reporter is not None:
            reporter.thread_left()
        raise


class _FunctionArguments:
    """The parameters of a function: their schema, and reading what a model sent for them."""

    __slots__ = ("_context", "_fields", "_model", "answers_nothing", "schema")

    def __init__(self, name: str, fn: Callable[..., Any], function: Callable[..., Any]) -> None:
        try:
            signature = inspect.signature(fn)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name}: its signature cannot be read ({error}); wrap it in a function of your own"
            ) from None
        self.answers_nothing = signature.return_annotation in (None, "None")
        self._context: list[str] = []
        self._fields: dict[str, str] = {}
        """The parameter of each field. The fields have names of our own: `schema`, `copy` and `_x`
        are fine for a parameter.
        """
        bound = fn.keywords if isinstance(fn, functools.partial) else {}
        fields: dict[str, Any] = {}
        for parameter in signature.parameters.values():
            if parameter.name in bound:
                continue
            annotation = _annotation(name, parameter, getattr(function, "__globals__", {}))
            if annotation is ToolContext:
                self._context.append(parameter.name)
                continue
            field = f"p{len(fields)}"
            self._fields[field] = parameter.name
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[field] = Annotated[annotation, Field(alias=parameter.name)], default
        try:
            self._model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
            written = self._model.model_json_schema(schema_generator=_QuietJsonSchema)
        except Exception as error:  # a type of the user's may raise anything in pydantic
            why = message_of(error).partition("\n\n")[0]
            raise ConfigError(f"{name}: its parameters cannot be described to a model: {why}") from error
        written.pop("description", None)
        self.schema = portable(written)

    def check(self, given: Mapping[str, Any]) -> BaseModel:
        """The arguments `given`, as a model of pydantic. Raises `ToolError`, which names each wrong
        field.
        """
        try:
            return self._model.model_validate(dict(given))
        except ValidationError as error:
            raise ToolError(self._complaint(error), kind=ToolErrorKind.INVALID_ARGUMENTS) from None

    def read(self, model: BaseModel, context: ToolContext) -> dict[str, Any]:
        """The arguments for the function. `model`: the result of `check`."""
        read = {name: getattr(model, field) for field, name in self._fields.items() if field in model.model_fields_set}
        return read | dict.fromkeys(self._context, context)

    def _complaint(self, error: ValidationError) -> str:
        found = error.errors(include_url=False, include_context=False)
        lines = []
        for item in found[:ERRORS_SHOWN]:
            where = ".".join(map(str, item["loc"])) or "arguments"
            match item["type"]:
                case "missing":
                    what = "is required"
                case "extra_forbidden":
                    what = "is not known"
                case _:
                    what = f"{item['msg']}, not {excerpt(item['input'])}"
            lines.append(f"{where}: {what}")
        if len(found) > ERRORS_SHOWN:
            lines.append(f"and {len(found) - ERRORS_SHOWN} more")
        takes = ", ".join(self._fields.values()) or "none"
        return f"invalid arguments: {'; '.join(lines)}. Arguments of {self._model.__name__}: {takes}."


class _QuietJsonSchema(GenerateJsonSchema):
    """Leaves out a default that JSON cannot hold (an object, infinity), without a warning."""

    ignored_warning_kinds = {*GenerateJsonSchema.ignored_warning_kinds, "non-serializable-default"}  # noqa: RUF012 - as pydantic has it

    def encode_default(self, dft: Any) -> Any:
        encoded = super().encode_default(dft)
        try:
            json.dumps(encoded, allow_nan=False)
        except ValueError as error:
            raise PydanticSerializationError(str(error)) from None
        return encoded


@overload
def tool(fn: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **traits: Unpack[Traits]
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **traits: Unpack[Traits],
) -> Any:
    """Decorator: this function is a tool. `@tool`, or `@tool(timeout_s=30, alone=True)`; the
    options are those of `FunctionTool`.
    """

    def wrap(fn: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(fn, name=name, description=description, **traits)

    return wrap if fn is None else wrap(fn)


def as_tools(given: Iterable[Callable[..., Any] | Tool]) -> dict[str, Tool]:
    """Tools by name. Functions become `FunctionTool`. Raises `ConfigError` for an item that is no
    tool, and for a name that occurs twice, is reserved or is not portable.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"tools={excerpt(given)}: give a list of functions and tools")
    tools: dict[str, Tool] = {}
    for item in given:
        made = _as_tool(item)
        name = check_name(made.spec.name)
        if name in tools:
            raise ConfigError(f"two tools are called {name!r}; give one of them another name=")
        tools[name] = made
    return tools


def _as_tool(item: Any) -> Tool:
    if isinstance(getattr(item, "spec", None), ToolSpec) and callable(getattr(item, "call", None)):
        return cast("Tool", item)
    return FunctionTool(item)


def _function_of(fn: Any) -> Callable[..., Any]:
    """The function behind a partial, a bound method, a callable object or a decorator. It has the
    docstring and the globals.
    """
    if isinstance(fn, type) or not callable(fn):
        raise ConfigError(
            f"{excerpt(fn)} is no tool: give a function, or an object with `spec` and `call`, as in tools=[search]"
        )
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    function: Callable[..., Any] = inspect.unwrap(getattr(fn, "__func__", fn))
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function.__qualname__} is a generator: a tool gives one answer; return a list")
    return function


def _name_of(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    name: str | None = getattr(fn, "__name__", None)
    if name is None or name == "<lambda>":
        raise ConfigError(f"{excerpt(fn)} has no name; give name=")
    return name


def _doc_of(fn: Any, function: Callable[..., Any]) -> str | None:
    """The docstring. `inspect.getdoc` would find "Call self as a function." for an object that has
    none.
    """
    said = function.__doc__ or (
        None if inspect.isroutine(fn) or isinstance(fn, functools.partial) else type(fn).__doc__
    )
    return said and inspect.cleandoc(said)


def _is_async(fn: Any) -> bool:
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def _annotation(tool: str, parameter: inspect.Parameter, globals_: Mapping[str, Any]) -> Any:
    """The type of a parameter. Raises `ConfigError` if a model cannot send it by name."""
    what = f"{tool}: the parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise ConfigError(f"{what} is {parameter.kind.description}, but a model sends named arguments of known names")
    if parameter.annotation is parameter.empty and parameter.name in ("self", "cls"):
        raise ConfigError(f"{what} belongs to an object; give the bound method, e.g. tools=[obj.{tool}]")
    if not NAME.fullmatch(parameter.name):
        raise ConfigError(f"{what}: not every provider takes this name; use letters, digits and _, at most 64")
    if isinstance(parameter.default, FieldInfo):
        raise ConfigError(f"{what} has a Field() as its default; write Annotated[type, Field(...)] = default")
    if parameter.annotation is parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=dict(globals_), include_extras=True)[parameter.name]
    except Exception as error:  # noqa: BLE001 - an annotation is code, and may raise anything
        raise ConfigError(
            f"{what}: its annotation {parameter.annotation!r} cannot be read ({describe(error)}); "
            "the types of a tool are imported or defined at the top of its module"
        ) from None


def checked_traits(given: Traits) -> ToolTraits:
    """`given` as traits. Raises `ConfigError` for a value that is not possible."""
    traits = ToolTraits(**given)
    for name in ("timeout_s", "hard_timeout_s"):
        seconds = getattr(traits, name)
        if seconds is not None and not (is_finite(seconds) and seconds > 0):
            raise ConfigError(f"{name}={seconds!r}: give seconds above 0, or None for no timeout")
    if traits.hard_timeout_s is not None and traits.hard_timeout_s < (traits.timeout_s or 0):
        raise ConfigError(f"hard_timeout_s={traits.hard_timeout_s!r} is shorter than timeout_s={traits.timeout_s!r}")
    for name, known in (("kind", get_args(ToolKind)), ("keep", get_args(Keep))):
        if getattr(traits, name) not in known:
            raise ConfigError(f"{name} is one of {', '.join(map(repr, known))}, not {getattr(traits, name)!r}")
    return traits
