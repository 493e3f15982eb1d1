"""The tools of a run by name, and groups of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import pytest

import monitor
from monitor.errors import ConfigError
from monitor.tools import Registry, Tool, ToolGroup, Toolset, ToolTraits, ToolWarning, tool
from monitor.tools.base import traits_of
from monitor.tools.registry import NO_TOOL


def named(*names: str, says: str = "") -> list[Any]:
    return [tool(name=name, description=says)(lambda: says) for name in names]


class Changing:
    """A toolset whose tools change."""

    def __init__(self, *names: str) -> None:
        self.changed = 0
        self.names = names

    def tools(self) -> Sequence[Tool]:
        return named(*self.names)

    def set(self, *names: str) -> None:
        self.names = names
        self.changed += 1

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        pass


@pytest.mark.feature("OM-06")
def test_tools_are_found_by_name_and_what_is_not_there_is_no_exception():
    tools = Registry(named("a", "b"))
    assert list(tools) == ["a", "b"]
    assert tools.entry("b").spec.name == "b"
    assert tools.entry("c") is NO_TOOL
    assert "c" not in tools
    with pytest.raises(KeyError):
        tools["c"]


@pytest.mark.feature("OM-06")
def test_a_later_tool_of_the_same_name_replaces_the_one_before_with_a_warning():
    tools = Registry(named("a", says="first"))
    with pytest.warns(ToolWarning, match="the tool 'a' of .* replaces another one of the same name, that of "):
        tools.add(*named("a", says="second"))
    assert tools.entry("a").spec.description == "second"
    with pytest.warns(ToolWarning, match="the tool 'a' of Changing replaces"):
        assert list(Registry([*named("a"), Changing("a", "b")])) == ["a", "b"]


@tool
def look() -> str:
    """The first."""
    return "first"


@tool(name="look")
def other_look() -> str:
    """The second."""
    return "second"


WAYS_IN: dict[str, Callable[[], Registry]] = {
    "supervisor": lambda: monitor.Supervisor(monitor.testing.ScriptedModel(), tools=[look, other_look]).tools,
    "registry": lambda: Registry([look, other_look]),
    "group": lambda: Registry([ToolGroup([look, other_look])]),
    "a group and then a tool": lambda: Registry([ToolGroup([look]), other_look]),
    "a tool and then a group": lambda: Registry([look, ToolGroup([other_look])]),
}


@pytest.mark.feature("OM-06")
@pytest.mark.parametrize("way", WAYS_IN)
def test_whatever_way_two_tools_of_one_name_come_in_the_later_one_stays_and_the_warning_names_both(way: str):
    both = r"'look' of (\S*other_look|ToolGroup) replaces another one .* that of (\S*look|ToolGroup)$"
    with pytest.warns(ToolWarning, match=both):
        assert WAYS_IN[way]().entry("look").spec.description == "The second."


def test_a_toolset_may_change_its_tools():
    changing = Changing("a")
    tools = Registry([*named("x"), changing])
    assert list(tools) == ["x", "a"]
    before = tools.entry("x")
    changing.set("b", "c")
    assert list(tools) == ["x", "b", "c"]
    assert tools.entry("x") is before


def test_a_group_has_a_prefix_and_a_filter_and_keeps_what_its_tools_say_of_themselves():
    @tool(kind="read", timeout_s=3)
    def look(q: str) -> str:
        """Look it up."""
        return q

    group = ToolGroup([look, *named("other")], prefix="web_", filter=["look"])
    assert isinstance(group, Toolset)
    (made,) = group.tools()
    assert (made.spec.name, made.spec.description) == ("web_look", "Look it up.")
    assert traits_of(made) == ToolTraits(kind="read", timeout_s=3)
    assert list(Registry([ToolGroup(named("a", "b"), filter=lambda one: one.spec.name > "a")])) == ["b"]
    assert list(Registry([ToolGroup([ToolGroup(named("a"), prefix="x_")], prefix="y_")])) == ["y_x_a"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prefix": "my tools/"}, "cannot be the name of a tool"),
        ({"filter": ["none"]}, "tools that are not there: none"),
        ({"filter": "a"}, "give a list of names"),
    ],
)
def test_a_group_that_makes_no_sense_is_refused(options: dict[str, Any], says: str):
    with pytest.raises(ConfigError, match=says):
        ToolGroup(named("a"), **options)


@pytest.mark.parametrize("name", ["a b", "", "1a", "ä", "a" * 65, "a.b"])
def test_every_name_is_legal_for_every_provider(name: str):
    class Foreign:
        spec = named("x")[0].spec.__class__(name, "", {})

        async def call(self, *_: object) -> object:
            return None

    with pytest.raises(ConfigError, match="cannot be the name of a tool"):
        list(Registry([Foreign()]))


@pytest.mark.feature("SH-03")
@pytest.mark.parametrize(("offered", "says"), [(21, "more than 20 tools"), (51, "more than 50 tools")])
def test_too_many_tools_are_warned_of_once_and_more_strongly_if_they_are_many(offered: int, says: str):
    tools = Registry()
    with pytest.warns(ToolWarning, match=says):
        tools.warn_of_number(offered)
    tools.warn_of_number(offered + 1)
    tools.warn_of_number(20)


def test_what_identifies_a_call_is_said_by_its_tool_and_a_function_that_fails_says_nothing():
    tools = Registry([tool(name="a", loop_key=lambda given: given["q"])(lambda q, page: 1), *named("b")])
    assert tools.loop_key("a", {"q": "x", "page": 3}) == "x"
    assert tools.loop_key("a", {}) is None
    assert tools.loop_key("a", "text") is None
    assert tools.loop_key("b", {}) is None
    assert tools.loop_key("c", {}) is None
