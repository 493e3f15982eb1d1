"""The tools of a run by name; and toolsets, which are groups of tools. A toolset is opened and
closed as a whole, and its tools may change while it is open.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeGuard, cast, runtime_checkable

from monitor._util.argument_checks import with_context
from monitor._util.explained_options import explained
from monitor.errors import ConfigError
from monitor.goal.goal import RESERVED
from monitor.messages import Message
from monitor.models import ToolSpec
from monitor.tools.base import Tool, ToolContext, ToolTraits, check_name, excerpt, traits_of
from monitor.tools.functions import FunctionTool, UnusableSchema, argument_check, as_tool


@runtime_checkable
class Toolset(Protocol):
    """A group of tools. It is opened when a run begins, and closed when that run ends."""

    @property
    def changed(self) -> int:
        """Counts the changes of `tools()`: if the number has changed, so have the tools."""
        ...

    def tools(self) -> Sequence[Tool]:
        """The tools of the group as they are now."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


@explained(example="monitor.tools.ToolGroup([search], prefix='docs_')")
class ToolGroup:
    """Tools as one toolset: functions, tools and other toolsets, with a prefix and a filter.

    `prefix` stands before each name. `filter`: the names that are kept, without the prefix, or a
    function that is asked for each tool.
    """

    changed = 0

    def __init__(
        self,
        tools: Iterable[Callable[..., Any] | Tool | Toolset],
        *,
        prefix: str = "",
        filter: Collection[str] | Callable[[Tool], bool] | None = None,  # noqa: A002 - the word for it
    ) -> None:
        if isinstance(filter, str):
            raise ConfigError(f"filter={filter!r}: give a list of names, or a function")
        kept: Mapping[str, Tool] = Registry(tools)
        if callable(filter):
            kept = {name: tool for name, tool in kept.items() if filter(tool)}
        elif filter is not None:
            if unknown := set(filter) - set(kept):
                raise ConfigError(f"filter names tools that are not there: {', '.join(sorted(unknown))}")
            kept = {name: tool for name, tool in kept.items() if name in filter}
        self._tools = tuple(RenamedTool(tool, prefix + name) if prefix else tool for name, tool in kept.items())

    def tools(self) -> Sequence[Tool]:
        """The tools of the group, which never change."""
        return self._tools

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Does nothing: there is nothing to close."""


class RenamedTool:
    """A tool under another name. Everything else is that of the tool."""

    def __init__(self, tool: Tool, name: str) -> None:
        self._tool = tool
        self.spec: ToolSpec = replace(tool.spec, name=check_name(name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """The answer of the tool that is renamed."""
        return await self._tool.call(arguments, context)


MANY: Final = 20
"""With more tools than this, models choose worse; see docs/tools.md."""
TOO_MANY: Final = 50
"""With more tools than this, models mix them up."""


class ToolWarning(UserWarning):
    """Warns that the tools of a run are probably not those that somebody wanted."""


@dataclass(slots=True, frozen=True)
class ToolEntry:
    """A tool, and its attributes, which are read once."""

    tool: Tool | None
    spec: ToolSpec
    traits: ToolTraits
    check: Callable[[Mapping[str, Any]], object] | None
    """Raises `ToolError` if the arguments do not fit the tool's schema, or its own `check`."""


NO_TOOL: Final = ToolEntry(None, ToolSpec("", "", {}), ToolTraits(), None)
"""The entry of a name that no tool has."""


class Registry(Mapping[str, Tool]):
    """Tools by name: functions, tools and toolsets, in their order.

    A tool that comes later, in `items`, from a toolset or by `add`, replaces an earlier one of its
    name, with a `ToolWarning`. A tool of a toolset whose schema is no JSON schema is left out, with
    a `ToolWarning`; one in `items` raises `ConfigError`.
    """

    def __init__(self, items: Iterable[Callable[..., Any] | Tool | Toolset] | Mapping[str, Tool] = ()) -> None:
        what: Any = items
        if isinstance(what, str | bytes) or not isinstance(what, Iterable):
            raise ConfigError(f"tools={excerpt(what)}: give a list of functions and tools")
        self.toolsets: tuple[Toolset, ...] = ()
        """The toolsets among the items, in their order."""
        self._items: list[Tool | Toolset] = []
        self._entries: dict[str, ToolEntry] = {}
        self._seen: tuple[int, ...] | None = None
        self._said: set[str] = set()
        for item in what.values() if isinstance(what, Mapping) else what:
            self._append(item)

    def add(self, item: Callable[..., Any] | Tool | Toolset) -> None:
        """Add a tool or a toolset. A tool replaces one of the same name, with a `ToolWarning`."""
        self._append(item)
        self._refresh()

    def _append(self, item: Callable[..., Any] | Tool | Toolset) -> None:
        self._seen = None
        if is_toolset(item):
            self._items.append(item)
            self.toolsets = (*self.toolsets, item)
            return
        tool = as_tool(cast("Tool", item))
        try:
            self._entries[tool.spec.name] = _entry(tool)
        except UnusableSchema as error:
            raise UnusableSchema(f'{error}; write parameters={{"type": "object", "properties": {{...}}}}') from None
        self._items.append(tool)

    def copy(self) -> Registry:
        """A copy of the tools in a registry of its own."""
        made = Registry()
        made.toolsets, made._items, made._said = self.toolsets, list(self._items), self._said
        made._entries = dict(self._entries)
        return made

    def entry(self, name: str) -> ToolEntry:
        """The tool that has the name `name` now. `NO_TOOL`: there is none."""
        return self.entries().get(name, NO_TOOL)

    def entries(self) -> Mapping[str, ToolEntry]:
        """All tools as they are now, by name."""
        if self._seen is None or self.toolsets:
            self._refresh()
        return self._entries

    def loop_key(self, name: str, arguments: Any) -> Any:
        """The key that identifies a call for the detectors, made by `loop_key` of its tool. `None`:
        the tool has no such function, or the function fails.
        """
        key = self.entry(name).traits.loop_key
        if key is None or not isinstance(arguments, Mapping):
            return None
        with contextlib.suppress(Exception):
            return key(arguments)
        return None

    def __getitem__(self, name: str) -> Tool:
        tool = self.entry(name).tool
        if tool is None:
            raise KeyError(name)
        return tool

    def __contains__(self, name: object) -> bool:
        return name in self.entries()

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries())

    def __len__(self) -> int:
        return len(self.entries())

    def _refresh(self) -> None:
        seen = tuple(toolset.changed for toolset in self.toolsets)
        if seen == self._seen:
            return
        entries: dict[str, ToolEntry] = {}
        givers: dict[str, str] = {}

        def take_in(tool: Tool, giver: str) -> None:
            name = tool.spec.name
            known = self._entries.get(name)
            entries[name] = known if known is not None and known.tool is tool else _entry(tool)
            if name in givers:
                self._warn(
                    f"the tool {name!r} of {giver} replaces another one of the same name, that of {givers[name]}"
                )
            givers[name] = giver

        for item in self._items:
            if is_toolset(item):
                for problem in getattr(item, "problems", ()):
                    self._warn(problem)
                for one in item.tools():
                    try:
                        take_in(as_tool(one), type(item).__name__)
                    except UnusableSchema as error:
                        self._warn(f"a tool of {type(item).__name__} is left out: {error}")
            else:
                tool = cast("Tool", item)
                take_in(tool, _giver(tool))
        self._entries = entries
        self._seen = seen

    def check_deps(self, deps: object) -> None:
        """Raise `ConfigError` if a tool needs other `deps` than these."""
        for name, tool in self.items():
            for wanted in getattr(tool, "deps_types", ()):
                with contextlib.suppress(TypeError):  # a protocol that cannot be asked
                    if not isinstance(deps, wanted):
                        raise ConfigError(
                            f"the tool {name!r} needs deps of the type {wanted.__qualname__}, not"
                            f" {type(deps).__qualname__}: write deps={wanted.__qualname__}(...)"
                        )

    def warn_of_number(self, offered: int) -> None:
        """Warn with a `ToolWarning` the first time that more than 20 or 50 tools are offered."""
        if offered > TOO_MANY:
            self._warn(f"more than {TOO_MANY} tools are offered: models mix them up; offer= can offer a part of them")
        elif offered > MANY:
            self._warn(f"more than {MANY} tools are offered: models choose worse; offer= can offer a part of them")

    def _warn(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            warnings.warn(text, ToolWarning, stacklevel=3)


def is_toolset(item: object) -> TypeGuard[Toolset]:
    """Whether `item` is a group of tools."""
    return not isinstance(item, type) and callable(getattr(item, "tools", None)) and hasattr(item, "__aenter__")


def _entry(tool: Tool) -> ToolEntry:
    """Raises `ConfigError` if the schema of the tool is no JSON schema, and for guidance that
    cannot be called.
    """
    if callable(guidance := getattr(tool, "guidance", None)):
        with_context("guidance", guidance, "lambda arguments, context: ...")
    spec, given = tool.spec, getattr(tool, "check", None)
    check = given if callable(given) else None
    if check is None or not getattr(tool, "checks_schema", False):
        check = argument_check(spec.name, spec.parameters, check)
    return ToolEntry(tool, spec, traits_of(tool), check)


def _giver(tool: Tool) -> str:
    """Where `tool` was written, for people: its function, or its class."""
    written: Any = getattr(tool, "fn", None)
    if written is None or not hasattr(written, "__qualname__"):
        written = type(tool)
    return f"{written.__module__}.{written.__qualname__}"


# --------------------------------------------------------------------------------------------------
# Tools by which a model changes its run.
#
# The first three of `RUN_TOOLS` belong to the run, which offers them if it has declared outputs or
# a plan. The others are ordinary tools for `tools=`. With `ToolContext.run` more such tools can
# be written.

RUN_TOOLS: Final[Mapping[str, str]] = {
    "terminate": "ends the run, with success or failure",
    "emit_value": "hands over a declared output",
    "update_plan": "changes the plan, or the state of a step",
    "pause": "stands still until a person says how it goes on",
    "checkpoint": "stores the conversation so far",
}
"""The effect of each such tool on the run."""

assert set(RUN_TOOLS) >= RESERVED  # noqa: S101 - the table names every tool of the run itself


def pause_tool() -> FunctionTool[..., Any]:
    """A tool by which the model asks a person before it goes on.

    The question goes to the run's approver: approved, the model goes on; refused, it reads the
    reason. With `PendingApprovals` the run ends as `paused`. Without an approver the call is
    refused.
    """

    async def pause(question: str) -> str:  # noqa: ARG001 - the person reads it
        """Stop and ask a person. Use it when you cannot decide by yourself."""
        return "A person has read this and says: go on."

    return FunctionTool(pause, needs_approval=True, alone=True)


def checkpoint_tool(save: Callable[[tuple[Message, ...], str], Any]) -> FunctionTool[..., Any]:
    """A tool by which the model stores the conversation before a risky step.

    `save` is called with the messages so far and the model's note; it may be async.
    """

    async def checkpoint(note: str, context: ToolContext) -> str:
        """Store the conversation so far, with a note on what comes next."""
        saved = save(context.run.history, note)
        if inspect.isawaitable(saved):
            await saved
        return "The conversation is stored."

    return FunctionTool(checkpoint, alone=True)
