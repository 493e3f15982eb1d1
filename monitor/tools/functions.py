"""Python functions as tools.

- **The description for the model** is the docstring. What it says about single parameters, in the
  style of Google, numpy or Sphinx, stands with these parameters. The schema of each parameter is
  made by pydantic from its annotation. So `Annotated[int, Field(ge=1, description="...")]`,
  `Literal`, `Optional` and nested models have their usual meaning. A parameter without annotation
  takes anything.
- **The arguments of the model** are checked as pydantic checks in its lax mode: an `int` may be
  written "3", but a `str` may not be written 3. A key that is no parameter is an error. A parameter
  that is left out has the function's own default.
- **The place**: an `async` function runs in the event loop; any other in a worker thread, with the
  caller's context variables. A thread cannot be stopped. After a timeout or a cancellation nobody
  waits for it any longer, and its answer is dropped. At most 40 threads run at once, as anyio's
  default limiter allows.
- **The answer** may be anything: text goes as it is, a `Media` of `monitor.messages` (or a list
  with it) as media, the rest as JSON; bytes are refused. `None` is `null`. For a function declared
  `-> None` it is "done", because there `None` does not mean that nothing was found.
"""

from __future__ import annotations

import functools
import inspect
import json
import threading
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    NoReturn,
    ParamSpec,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

import anyio
import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_jsonable_python

from monitor._util.argument_checks import (
    check_kind,
    check_number,
    is_finite,
    signature_of,
    with_context,
)
from monitor._util.hashing import canonical_json
from monitor._util.text import cut_before
from monitor.errors import ConfigError, ToolError, ToolErrorKind, describe, message_of
from monitor.models import ToolSpec, portable, standard_types
from monitor.tools.base import (
    EXCERPT_CHARS,
    NAME,
    CallPlace,
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

if TYPE_CHECKING:
    import jsonschema_rs


# --------------------------------------------------------------------------------------------------
# Descriptions of parameters in a docstring, in the styles of Google, numpy and Sphinx.
#
# Only names that the function has are read as parameters. So a section that merely looks like a
# list of parameters stays a part of the description. A docstring is read once, line by line.

HEADINGS: Final = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
)
"""Headings of sections that describe parameters, in the styles of Google and numpy."""
_FIELDS: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
"""Fields of Sphinx that describe a parameter."""


@dataclass(slots=True)
class ReadDocstring:
    """A docstring, taken apart."""

    text: str
    """The docstring without what it says about single parameters."""
    parameters: dict[str, str] = field(default_factory=dict)
    """The description of each parameter that has one."""


@dataclass(slots=True)
class _ParameterEntry:
    """What is said about one parameter, or about several of the same kind (`x, y : int`)."""

    names: list[str]
    indent: int
    lines: list[str]


def docstring_of(fn: Callable[..., Any], text: str | None) -> ReadDocstring:
    """`text`, the docstring of `fn`, taken apart."""
    try:
        names: Collection[str] = signature_of(fn).parameters
    except (TypeError, ValueError):  # the reader of its arguments says so
        names = ()
    return read_docstring(text or "", names)


def is_described(annotation: object) -> bool:
    """Whether the annotation of a parameter has a description of its own."""
    return any(isinstance(one, FieldInfo) and one.description for one in getattr(annotation, "__metadata__", ()))


def read_docstring(text: str, names: Collection[str]) -> ReadDocstring:
    """Take `text` apart. `names`: the parameters of the function."""
    lines = text.split("\n")
    kept: list[str] = []
    found: dict[str, str] = {}
    at = 0
    while at < len(lines):
        end, entries = _section(lines, at, names)
        if not entries:
            kept.append(lines[at])
            at += 1
            continue
        for entry in entries:
            said = " ".join(" ".join(entry.lines).split())
            found.update({name: said for name in entry.names if said and name not in found})
        if end < len(lines) and _indent(lines[end]) > _indent(lines[at]):
            kept.append(lines[at])  # the heading of entries that are no parameters
        elif kept and not kept[-1].strip():
            kept.pop()
        at = end
    return ReadDocstring("\n".join(kept).strip("\n").rstrip(), found)


def _section(lines: list[str], at: int, names: Collection[str]) -> tuple[int, list[_ParameterEntry]]:
    """The entries of the section that begins at a line, and the line behind it. No entries: none
    begins there.
    """
    line = lines[at].strip()
    if line.startswith(":"):
        entry = _sphinx(lines[at], names)
        return _described(lines, at + 1, entry) if entry is not None else (at, [])
    title, colon, rest = line.partition(":")
    if title.lower() not in HEADINGS or rest:
        return at, []
    if colon:
        return _listed(lines, at + 1, names, least=_indent(lines[at]) + 1, google=True)
    ruled = at + 1 < len(lines) and len(lines[at + 1].strip()) > 2 and set(lines[at + 1].strip()) == {"-"}  # noqa: PLR2004 - a rule
    return _listed(lines, at + 2, names, least=_indent(lines[at]), google=False) if ruled else (at, [])


def _listed(
    lines: list[str], at: int, names: Collection[str], *, least: int, google: bool
) -> tuple[int, list[_ParameterEntry]]:
    """The entries of a section from the line `at` on, which are indented by `least` or more. The
    section ends at the first line that is none of it.
    """
    entries: list[_ParameterEntry] = []
    indent: int | None = None
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        depth = _indent(line)
        if indent is not None and depth > indent:
            entries[-1].lines.append(line)
            at += 1
            continue
        entry = _google(line, names) if google else _numpy(line, names)
        if entry is None or depth < least or (indent is not None and depth < indent):
            break
        indent = depth
        entries.append(entry)
        at += 1
    return at, entries


def _described(lines: list[str], at: int, entry: _ParameterEntry) -> tuple[int, list[_ParameterEntry]]:
    """One entry with the deeper lines below it."""
    while at < len(lines) and lines[at].strip() and _indent(lines[at]) > entry.indent:
        entry.lines.append(lines[at])
        at += 1
    return at, [entry]


def _google(line: str, names: Collection[str]) -> _ParameterEntry | None:
    """`name (type): description`; the type may be missing, or hold colons."""
    head, _, rest = line.strip().partition(":")
    if "(" in head and ")" not in head:
        inner, closed, rest = line.strip().partition("):")
        head = inner if closed else ""
    name = head.partition("(")[0].strip().lstrip("*")
    return _ParameterEntry([name], _indent(line), [rest]) if name in names else None


def _numpy(line: str, names: Collection[str]) -> _ParameterEntry | None:
    """`name : type`, or `one, other : type`, with the description in the lines below."""
    head = line.partition(" :")[0].partition(":")[0]
    said = [name.strip().lstrip("*") for name in head.split(",")]
    return _ParameterEntry(said, _indent(line), []) if said and all(name in names for name in said) else None


def _sphinx(line: str, names: Collection[str]) -> _ParameterEntry | None:
    """`:param type name: description`, and `:type name:`, which is left out."""
    words = line.strip()[1:].partition(":")[0].split()
    if len(words) < 2 or (name := words[-1].lstrip("*")) not in names:  # noqa: PLR2004 - `param` and a name
        return None
    kind = words[0]
    if kind == "type":
        return _ParameterEntry([], _indent(line), [])
    rest = line.strip()[1:].partition(":")[2]
    return _ParameterEntry([name], _indent(line), [rest]) if kind in _FIELDS else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


P = ParamSpec("P")
R = TypeVar("R")

FAULTS_SHOWN: Final = 8
"""The most mistakes of one call that are named to the model."""


def misfit(faults: Sequence[str], count: int, takes: str, *, whole: bool = True) -> ToolError:
    """The error for arguments that do not fit: the first of `count` faults, and what the tool
    takes. `whole`: there are no other faults.
    """
    more = [f"and {count - FAULTS_SHOWN} more"] if count > FAULTS_SHOWN else []
    more += [] if whole else ["there may be more"]
    text = f"invalid arguments: {'; '.join([*faults[:FAULTS_SHOWN], *more])}.{takes}"
    return ToolError(text, kind=ToolErrorKind.INVALID_ARGUMENTS)


class Traits(TypedDict, total=False):
    """The options of a function as a tool: the fields of `ToolTraits`."""

    alone: bool
    kind: ToolKind
    command_argument: str | None
    idempotent: bool
    model_retries: int
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

    checks_schema = True

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
        self.command_argument, self.model_retries = said.command_argument, said.model_retries
        self.needs_approval, self.loop_key, self.guidance = said.needs_approval, said.loop_key, said.guidance
        self.timeout_s, self.hard_timeout_s, self.keep = said.timeout_s, said.hard_timeout_s, said.keep
        name = check_name(_name_of(self.fn) if name is None else name)
        read = docstring_of(self.fn, self.__doc__)
        self._arguments = _FunctionArguments(name, self.fn, function, read.parameters)
        self.deps_types: Sequence[type] = self._arguments.deps_types
        """What `deps` of a run must be for this tool: the `Clients` of `ToolContext[Clients]`."""
        self._is_async = _is_async(self.fn)
        self._checked: tuple[Mapping[str, Any], BaseModel] | None = None
        """The arguments that were checked last, so that the call need not check them again."""
        if self.command_argument is not None and self.command_argument not in self._arguments.schema["properties"]:
            raise ConfigError(f"{name} has no argument {self.command_argument!r}: command_argument names one of them")
        self.spec = ToolSpec(name, read.text if description is None else description, self._arguments.schema)

        self.place: Callable[[Mapping[str, Any]], CallPlace] | None = None
        """Says in which place a call takes effect. `None`: in the working directory."""

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

    def normalised(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function gets them, as JSON: a default that was left out is there,
        and `"1"` is `1` for a number. So equal calls are known, however they were written.

        Raises `ToolError` for arguments that do not fit.
        """
        return self._arguments.normalised(self._arguments.check(arguments))

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
        # With a limiter of its own: on trio an abandoned thread keeps its place.
        return await anyio.to_thread.run_sync(do, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
    except BaseException:
        with lock:
            left = not ended
        if left and reporter is not None:
            reporter.thread_left()
        raise


class _FunctionArguments:
    """The parameters of a function: their schema, and reading what a model sent for them."""

    __slots__ = ("_context", "_fields", "_model", "_names", "_takes", "answers_nothing", "deps_types", "schema")

    def __init__(
        self, name: str, fn: Callable[..., Any], function: Callable[..., Any], said: Mapping[str, str]
    ) -> None:
        """`said`: what the docstring says about each parameter."""
        try:
            signature = signature_of(fn)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{name}: its signature cannot be read ({error}); wrap it in a function of your own"
            ) from None
        self.answers_nothing = signature.return_annotation in (None, "None")
        self._context: list[str] = []
        self.deps_types: list[type] = []
        self._fields: dict[str, str] = {}
        """The parameter of each field. The fields have names of our own: `schema`, `copy` and `_x`
        are fine for a parameter.
        """
        self._names: frozenset[str] = frozenset()
        bound = fn.keywords if isinstance(fn, functools.partial) else {}
        fields: dict[str, Any] = {}
        for parameter in signature.parameters.values():
            if parameter.name in bound:
                continue
            annotation = _annotation(name, parameter, getattr(function, "__globals__", {}))
            if annotation is ToolContext or typing.get_origin(annotation) is ToolContext:
                self._context.append(parameter.name)
                self.deps_types += [one for one in get_args(annotation) if isinstance(one, type)]
                continue
            field = f"p{len(fields)}"
            self._fields[field] = parameter.name
            default = ... if parameter.default is parameter.empty else parameter.default
            if parameter.name in said and not is_described(annotation):
                annotation = Annotated[annotation, Field(description=said[parameter.name])]
            fields[field] = Annotated[annotation, Field(alias=parameter.name)], default
        self._names = frozenset(self._fields.values())
        self._takes = f" Arguments of {name}: {', '.join(self._fields.values()) or 'none'}."
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
        unknown = [name for name in given if name not in self._names]
        if len(unknown) > FAULTS_SHOWN:
            # They may be very many, and each would become an error of pydantic's.
            named = [f"{name[:EXCERPT_CHARS]}: is not known" for name in unknown[:FAULTS_SHOWN]]
            raise misfit(named, len(unknown), self._takes)
        try:
            return self._model.model_validate(dict(given))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)
            raise misfit([_fault(item) for item in found[:FAULTS_SHOWN]], len(found), self._takes) from None

    def normalised(self, model: BaseModel) -> dict[str, Any]:
        """What `check` has read, as JSON. A default that is made anew each time is left out."""
        made = {
            name
            for name, one in self._model.model_fields.items()
            if one.default_factory is not None and name not in model.model_fields_set
        }
        values = {name: getattr(model, field) for field, name in self._fields.items() if field not in made}
        plain: dict[str, Any] = to_jsonable_python({name: _ordered(value) for name, value in values.items()})
        return plain

    def read(self, model: BaseModel, context: ToolContext) -> dict[str, Any]:
        """The arguments for the function. `model`: the result of `check`."""
        read = {name: getattr(model, field) for field, name in self._fields.items() if field in model.model_fields_set}
        return read | dict.fromkeys(self._context, context)


def _fault(item: Mapping[str, Any]) -> str:
    """One error of pydantic's, for the model."""
    where = ".".join(map(str, item["loc"])) or "arguments"
    said = {"missing": "is required", "extra_forbidden": "is not known"}.get(item["type"])
    return f"{where}: {said}" if said else f"{where}: {item['msg']}, not {excerpt(item['input'])}"


def _ordered(value: Any) -> Any:
    """`value` with sets as sorted lists: their own order differs from process to process."""
    if isinstance(value, BaseModel):
        return _ordered(value.model_dump())
    if isinstance(value, set | frozenset):
        return sorted((_ordered(one) for one in value), key=lambda one: canonical_json(to_jsonable_python(one)))
    if isinstance(value, Mapping):
        return {key: _ordered(one) for key, one in value.items()}
    return [_ordered(one) for one in value] if isinstance(value, list | tuple) else value


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


def as_tool(given: Callable[..., Any] | Tool) -> Tool:
    """`given` as a tool: a function becomes a `FunctionTool`. Raises `ConfigError` if it is no tool
    and no function, and for a name that is reserved or that some provider does not accept.
    """
    is_tool = isinstance(getattr(given, "spec", None), ToolSpec) and callable(getattr(given, "call", None))
    made: Tool = cast("Tool", given) if is_tool else FunctionTool(cast("Callable[..., Any]", given))
    check_name(made.spec.name)
    return made


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
    written = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        return typing.get_type_hints(holder, globalns=dict(globals_), include_extras=True)[parameter.name]
    except Exception as error:  # noqa: BLE001 - an annotation is code, and may raise anything
        raise ConfigError(
            f"{what}: its annotation {written!r} cannot be read ({describe(error)}); "
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
    for name, wanted, kind in (
        ("needs_approval", "True, False or a function of the arguments and the context", bool),
        ("guidance", "a text, or a function of the arguments", str),
        ("loop_key", "a function of the arguments", type(None)),
    ):
        value = getattr(traits, name)
        if not callable(value):
            check_kind(f"tool.{name}", value, kind, wanted)
    if callable(traits.guidance):
        with_context("guidance", traits.guidance, "lambda arguments, context: ...")
    check_number("model_retries", traits.model_retries, 0)
    if not isinstance(traits.command_argument, str | None):
        raise ConfigError(f"command_argument={traits.command_argument!r}: give the name of a parameter")
    return traits


# --------------------------------------------------------------------------------------------------
# Checks the arguments of a call against the JSON schema of its tool, before anything is done.
#
# The schema of a tool that somebody else wrote (an MCP server, a command, a class of the
# caller's) is compiled once, by `jsonschema-rs`. The model reads each fault in words: where it
# is, what was sent, and what is expected. Nothing is fetched: a reference to another document is
# an error of the schema. A pattern may not look back without end.

FAULT_CHARS: Final = 400
"""The most characters of one mistake: a choice of many values is long."""
BACKTRACKS: Final = 100_000
"""The most steps back of one pattern over one text: a few milliseconds."""
MOST_VALUES: Final = 300
MOST_CHARS: Final = 100_000
"""The size above which only the first mistake of arguments is looked for. The validator makes all
at once. Each holds a copy of what is wrong, which may be the whole: 100,000 wrong names took all
memory.
"""
_BRANCHES_SHOWN: Final = 4
_PLACE: Final = "\0"
"""Stands in the messages of the validator where the value is, which is put in by `excerpt`."""


class UnusableSchema(ConfigError):
    """The schema of a tool is no JSON schema, so the tool cannot be offered."""


class ArgumentSchema:
    """The schema of one tool's arguments, compiled. Raises `UnusableSchema` if it is none."""

    __slots__ = ("_takes", "_validator")

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        """`name`: the tool. A schema without a known draft is one of 2020-12, else of draft 4."""
        properties = schema.get("properties")
        known = ", ".join(map(str, properties)) if isinstance(properties, Mapping) else ""
        self._takes = f" Arguments of {name}: {known}." if known else ""
        self._validator = _compiled(name, standard_types(schema)) if schema else None

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise `ToolError`, which names each fault, if `arguments` do not fit the schema."""
        if self._validator is None:
            return
        try:
            given = dict(arguments)
            whole = _is_small(given)
            faults = list(self._validator.iter_errors(given)) if whole else _first_fault(self._validator, given)
        except Exception as error:  # noqa: BLE001 - too deep, or no JSON data: the reason is in the message
            raise misfit([f"they cannot be read as JSON data: {describe(error)}"], 1, self._takes) from None
        if faults:
            lines = [*dict.fromkeys(line for fault in faults for line in _lines(fault))]
            raise misfit(lines, len(lines), self._takes, whole=whole)


def _is_small(arguments: object) -> bool:
    """Whether arguments have so few values and characters that all mistakes are looked for."""
    values, chars = 0, 0
    left = [arguments]
    while left and values <= MOST_VALUES and chars <= MOST_CHARS:
        one = left.pop()
        values += 1
        if isinstance(one, str):
            chars += len(one)
        elif isinstance(one, Mapping):
            left += [*islice(one, MOST_VALUES), *islice(one.values(), MOST_VALUES)]
            values += len(one) // MOST_VALUES * MOST_VALUES
        elif isinstance(one, list | tuple):
            left += islice(one, MOST_VALUES)
            values += len(one) // MOST_VALUES * MOST_VALUES
    return not left and values <= MOST_VALUES and chars <= MOST_CHARS


def _first_fault(validator: jsonschema_rs.Validator, arguments: object) -> list[jsonschema_rs.ValidationError]:
    import jsonschema_rs as rs  # noqa: PLC0415 - it is loaded already

    try:
        validator.validate(arguments)
    except rs.ValidationError as fault:
        return [fault]
    return []


def argument_check(name: str, schema: Mapping[str, Any], own: Callable[[Mapping[str, Any]], object] | None) -> Any:
    """The check of a tool's arguments: its schema, then the check `own` of the tool itself."""
    check = ArgumentSchema(name, schema).check
    if own is None:
        return check

    def both(arguments: Mapping[str, Any]) -> None:
        check(arguments)
        own(arguments)

    return both


def _compiled(name: str, schema: dict[str, Any]) -> jsonschema_rs.Validator:
    import jsonschema_rs as rs  # noqa: PLC0415 - 20 ms, which a program without such tools need not wait

    options: dict[str, Any] = {
        "mask": _PLACE,
        "retriever": _not_fetched,
        "validate_formats": True,
        "pattern_options": rs.FancyRegexOptions(backtrack_limit=BACKTRACKS),
    }
    try:
        return rs.validator_for(schema, **options)
    except Exception as error:  # noqa: BLE001 - a schema of somebody else's may be anything
        bare = {key: value for key, value in schema.items() if key != "$schema"}
        for older in (rs.Draft202012Validator, rs.Draft4Validator):
            try:
                return older(bare, **options)
            except Exception:  # noqa: BLE001, S112 - the first reason is the one to tell
                continue
        why = _clipped(message_of(error).partition("\n\n")[0].replace(_PLACE, "a part of it"))
        raise UnusableSchema(f"the schema of the tool {name!r} is no JSON schema: {why}") from None


def _not_fetched(uri: str) -> NoReturn:
    raise ConfigError(f"{uri} is another document, and a schema is never fetched; write it into $defs")


def _lines(fault: jsonschema_rs.ValidationError, within: str = "") -> Iterator[str]:
    """One fault in words, each with its place."""
    what: Any = fault.kind
    place = [str(part) for part in fault.instance_path]
    match what.name:
        case "required":
            yield f"{'.'.join([*place, str(what.property)])}: is required"
        case "additionalProperties" | "unevaluatedProperties":
            for name in what.unexpected:
                yield f"{_clipped('.'.join([*place, str(name)]))}: is not known"
        case "falseSchema" if not place:  # `additionalProperties: false` where no property is declared
            yield "arguments: none are known"
        case "anyOf" | "oneOf" if getattr(what, "context", None):
            branches = [line for branch in what.context for line in list(_lines(branch[0], "form"))[:1] if branch]
            shown = " or ".join(dict.fromkeys(branches[:_BRANCHES_SHOWN]))
            yield _clipped(f"{'.'.join(place) or 'arguments'}: fits none of its forms: {shown}")
        case _:
            said = fault.message.replace(_PLACE, excerpt(fault.instance))
            yield _clipped(said if within and not place else f"{'.'.join(place) or 'arguments'}: {said}")


def _clipped(text: str) -> str:
    return text if len(text) <= FAULT_CHARS else f"{text[: cut_before(text, FAULT_CHARS)]}..."
