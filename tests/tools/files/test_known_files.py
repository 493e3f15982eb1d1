from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import monitor
from monitor.chunks import ToolCall
from monitor.errors import ToolError, ToolErrorKind
from monitor.testing import ScriptedModel, call
from monitor.tools.base import CallingRun, ToolContext
from monitor.tools.files import edits as known_files
from monitor.tools.files.file_tools import FileTools
from monitor.tools.results.call_results import ToolAnswer
from monitor.tools.workspace import Workspace

pytestmark = [pytest.mark.anyio, pytest.mark.feature("GT-01")]


class Agent:
    """One run, and the tools that it uses."""

    def __init__(self, tools: FileTools) -> None:
        self.run = CallingRun()
        self._tools = {tool.spec.name: tool for tool in tools.tools()}

    async def use(self, name: str, /, **arguments: Any) -> ToolAnswer:
        context = ToolContext(ToolCall("1", name, arguments), self.run)
        answer = await self._tools[name].call(arguments, context)
        assert isinstance(answer, ToolAnswer)
        return answer

    async def refused(self, name: str, /, **arguments: Any) -> str:
        with pytest.raises(ToolError) as caught:
            await self.use(name, **arguments)
        assert caught.value.kind is ToolErrorKind.STALE
        return str(caught.value)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    return tmp_path


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(FileTools(Workspace(tmp_path)))


async def test_a_file_that_was_not_read_is_not_changed(place: Path, agent: Agent):
    assert "you have not read it" in await agent.refused("edit", path="a.txt", old="two", new="2")
    assert "you have not read it" in await agent.refused("write_file", path="a.txt", content="mine\n")
    assert (place / "a.txt").read_text() == "one\ntwo\nthree\n"
    await agent.use("read_file", path="./a.txt")
    assert (await agent.use("edit", path="a.txt", old="two", new="2")).status == "edited a.txt in 1 place"
    assert (await agent.use("write_file", path="a.txt", content="mine\n")).status == "replaced a.txt: 1 lines"


async def test_a_file_that_the_run_has_made_needs_no_reading(agent: Agent, tmp_path: Path):
    await agent.use("write_file", path="new/b.txt", content="b\n")
    await agent.use("edit", path="new/b.txt", old="b", new="c")
    assert (tmp_path / "new/b.txt").read_text() == "c\n"


async def test_a_stale_edit_is_answered_with_what_has_changed_and_can_then_be_made_anew(place: Path, agent: Agent):
    await agent.use("read_file", path="a.txt")
    (place / "a.txt").write_text("one\ntwo\nthree\nfour\n")
    said = await agent.refused("edit", path="a.txt", old="two", new="2")
    assert "has changed since you read it" in said
    assert "+four" in said
    assert (place / "a.txt").read_text() == "one\ntwo\nthree\nfour\n"
    await agent.use("edit", path="a.txt", old="two", new="2")
    assert (place / "a.txt").read_text() == "one\n2\nthree\nfour\n"


async def test_a_change_that_is_too_long_to_be_shown_has_to_be_read(place: Path, agent: Agent):
    await agent.use("read_file", path="a.txt")
    (place / "a.txt").write_text("".join(f"{number}\n" for number in range(2_000)))
    for _ in range(2):
        assert "Read it again" in await agent.refused("edit", path="a.txt", old="1999", new="last")


async def test_a_file_that_was_written_again_with_the_same_content_is_not_stale(place: Path, agent: Agent):
    await agent.use("read_file", path="a.txt")
    (place / "a.txt").write_text((place / "a.txt").read_text())
    await agent.use("edit", path="a.txt", old="two", new="2")


async def test_two_runs_that_share_the_tools_have_each_read_their_own(place: Path):
    tools = FileTools(Workspace(place))
    one, other = Agent(tools), Agent(tools)
    await one.use("read_file", path="a.txt")
    assert "you have not read it" in await other.refused("edit", path="a.txt", old="two", new="2")
    await one.use("edit", path="a.txt", old="two", new="2")


async def test_without_read_first_a_file_is_changed_as_it_is(place: Path):
    agent = Agent(FileTools(Workspace(place), read_first=False))
    await agent.use("edit", path="a.txt", old="two", new="2")
    assert (place / "a.txt").read_text() == "one\n2\nthree\n"


async def test_of_many_texts_only_hashes_are_kept(tmp_path: Path, agent: Agent, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(known_files, "KEPT_CHARS", 1_000)
    for name in "abc":
        (tmp_path / name).write_text(f"{'x' * 600}\n")
        await agent.use("read_file", path=name)
    (tmp_path / "a").write_text("y\n")
    assert "Read it again" in await agent.refused("edit", path="a", old="y", new="z")
    (tmp_path / "c").write_text("y\n")
    assert "+y" in await agent.refused("edit", path="c", old="y", new="z")
    await agent.use("edit", path="b", old="x" * 600, new="z")


async def test_no_edit_of_forty_runs_on_one_file_is_lost_and_none_is_said_that_was_not_made(place: Path):
    (place / "a.txt").write_text("".join(f"<{number}>\n" for number in range(40)))
    sink = monitor.sinks.MemorySink()

    def tried(number: int) -> Any:
        edit = call("edit", path="a.txt", old=f"<{number}>\n", new=f"[{number}]\n")
        return monitor.Supervisor(
            ScriptedModel(call("read_file", path="a.txt"), edit, edit, "done", name=f"child:{number}"),
            tools=[FileTools(Workspace(place))],
            sinks=[sink],
            detectors=None,
        ).as_tool(name=f"agent_{number}", description="Edits its line.")

    parent = ScriptedModel([call(f"agent_{number}", task="edit your line") for number in range(40)], "all done")
    with pytest.warns(monitor.tools.ToolWarning):  # forty tools are many
        outcome = await monitor.Supervisor(
            parent, tools=[tried(number) for number in range(40)], calls=monitor.runs.ToolCalls(parallel=40)
        ).run("go")
    assert outcome.ok
    said = [event.result for event in sink.events if isinstance(event, monitor.events.ToolFinished)]
    edited = [one for one in said if one.name == "edit" and not one.is_error]
    stale = [one for one in said if one.error_kind is ToolErrorKind.STALE]
    lines = (place / "a.txt").read_text().splitlines()
    assert len(lines) == 40
    assert sum(line.startswith("[") for line in lines) == len(edited)
    assert len(edited) + len(stale) <= 80
    assert edited


async def test_forty_agents_that_need_not_read_first_all_make_their_edit(place: Path):
    (place / "a.txt").write_text("".join(f"<{number}>\n" for number in range(40)))
    agents = [Agent(FileTools(Workspace(place), read_first=False)) for _ in range(40)]
    async with anyio.create_task_group() as group:
        for number, agent in enumerate(agents):
            edit = partial(agent.use, "edit", path="a.txt", old=f"<{number}>", new=f"[{number}]")
            group.start_soon(edit)
    assert (place / "a.txt").read_text() == "".join(f"[{number}]\n" for number in range(40))


async def test_writers_of_one_file_that_try_until_they_are_heard_are_all_heard(place: Path):
    (place / "a.txt").write_text("".join(f"<{number}>\n" for number in range(20)))

    async def one(number: int) -> None:
        agent = Agent(FileTools(Workspace(place)))
        await agent.use("read_file", path="a.txt")
        for _ in range(100):
            try:
                await agent.use("edit", path="a.txt", old=f"<{number}>", new=f"[{number}]")
            except ToolError as error:
                if error.kind is not ToolErrorKind.STALE:
                    raise
            else:
                return
        raise AssertionError("it was never heard")

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(partial(one, number))
    assert (place / "a.txt").read_text() == "".join(f"[{number}]\n" for number in range(20))
