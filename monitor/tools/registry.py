"""Toolsets: groups of tools that are opened and closed together, and may change meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from monitor.errors import ConfigError
from monitor.models import ToolSpec
from monitor.tools.base import Tool, ToolContext, ToolTraits, check_name, traits_of
from monitor.tools.functions import as_tools


@runtime_checkable
class Toolset(Protocol):
    """A group of tools. It is opened when a run begins, and closed when that run ends."""

    @property
    def changed(self) -> int:
        """Counts the changes of `tools()`: another number means that they are others now."""
        ...

    def tools(self) -> Sequence[Tool]:
        """The tools as they are now."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...


class ToolGroup:
    """Tools as one toolset: functions, tools and other toolsets, with a prefix and a filter.

    `prefix` stands before each name. `filter`: the names that are kept, or a function that is
    asked for each tool; names are meant without the prefix.
    """

    changed = 0

    def __init__(
        self,
        tools: Iterable[Callable[..., Any] | Tool],
        *,
        prefix: str = "",
        filter: Collection[str] | Callable[[Tool], bool] | None = None,  # noqa: A002 - the word for it
    ) -> None:
        if isinstance(filter, str):
            raise ConfigError(f"filter={filter!r}: give a list of names, or a function")
        kept = as_tools(tools)
        if callable(filter):
            kept = {name: tool for name, tool in kept.items() if filter(tool)}
        elif filter is not None:
            if unknown := set(filter) - set(kept):
                raise ConfigError(f"filter names tools that are not there: {', '.join(sorted(unknown))}")
            kept = {name: tool for name, tool in kept.items() if name in filter}
        self._tools = tuple(Renamed(tool, prefix + name) if prefix else tool for name, tool in kept.items())

    def tools(self) -> Sequence[Tool]:
        """The tools of the group."""
        return self._tools

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""


class Renamed:
    """A tool under another name."""

    def __init__(self, tool: Tool, name: str) -> None:
        self._tool = tool
        self.spec: ToolSpec = replace(tool.spec, name=check_name(name))
        self.traits: ToolTraits = traits_of(tool)
        check = getattr(tool, "check", None)
        self.check: Callable[[Mapping[str, Any]], object] = check if callable(check) else _fits

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> object:
        """What the tool answers."""
        return await self._tool.call(arguments, context)


def _fits(arguments: Mapping[str, Any]) -> None:
    """The tool checks its arguments itself."""
