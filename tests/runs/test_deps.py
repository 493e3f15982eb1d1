"""What a program gives to the tools of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import monitor
from monitor.errors import ConfigError
from monitor.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio


@dataclass
class Clients:
    name: str


@monitor.tool
async def who(context: monitor.ToolContext[Clients]) -> str:
    """Say who it is."""
    return context.deps.name


def asks(**options: Any) -> tuple[ScriptedModel, monitor.Supervisor]:
    model = ScriptedModel(call("who"), "done", name="asks:model")
    return model, monitor.Supervisor(model, tools=[who], **options)


def answer(model: ScriptedModel) -> str:
    return model.requests[-1].messages[-1].results[0].text  # type: ignore[union-attr]


async def test_a_tool_gets_the_deps_of_its_supervisor_and_the_model_is_not_shown_them():
    model, supervisor = asks(deps=Clients("the supervisor's"))
    assert (await supervisor.run("go")).ok
    assert answer(model) == "the supervisor's"
    assert who.spec.parameters["properties"] == {}


async def test_the_deps_of_a_run_stand_in_the_place_of_the_supervisors():
    model, supervisor = asks(deps=Clients("the supervisor's"))
    await supervisor.run("go", deps=Clients("the run's"))
    assert answer(model) == "the run's"


async def test_a_subagent_without_deps_of_its_own_gets_those_of_its_caller():
    for own, said in ((None, "the caller's"), (Clients("its own"), "its own")):
        model, inner = asks(deps=own)
        outer = monitor.Supervisor(
            ScriptedModel(call("inner", task="go"), "done"),
            tools=[inner.as_tool(name="inner", description="Asks.")],
        )
        assert (await outer.run("go", deps=Clients("the caller's"))).ok
        assert answer(model) == said


async def test_deps_of_another_type_are_refused_before_the_run_begins():
    _, supervisor = asks()
    with pytest.raises(ConfigError, match=r"the tool 'who' needs deps of the type Clients, not NoneType"):
        await supervisor.run("go")


async def test_a_context_without_a_type_takes_whatever_there_is():
    @monitor.tool
    def plain(context: monitor.ToolContext) -> str:
        """Say it."""
        return str(context.deps)

    model = ScriptedModel(call("plain"), "done")
    await monitor.Supervisor(model, tools=[plain], deps=5).run("go")
    assert answer(model) == "5"
