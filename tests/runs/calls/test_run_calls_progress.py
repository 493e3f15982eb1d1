"""The number that a tool reports reaches `NoProgress`, in a run and in a guard."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import monitor
from monitor.chunks import TextDelta, ToolCall, TurnFinished
from monitor.detectors import NoProgress
from monitor.events import Event, ToolFinished, ToolOutput
from monitor.guard.options import CLOSE_GRACE_S
from monitor.runs.pausing import TOOLS_GRACE
from monitor.testing import ScriptedModel, call, capture_events
from monitor.tools import ShellTools, ToolAnswer, Workspace
from monitor.tools.artifacts.artifact_store import InMemoryArtifacts
from tests.processes import is_gone, nothing_left  # noqa: F401 - a fixture

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]


async def test_a_run_whose_tests_do_not_get_better_is_stopped_as_a_loop():
    count = 0

    def tests() -> ToolAnswer:
        nonlocal count
        count += 1
        return ToolAnswer(f"run {count}", data={"progress": 3})

    outcome = await monitor.Supervisor(
        ScriptedModel(*[[call("tests")]] * 20),
        tools=[tests],
        detectors=[NoProgress(stalled_at=4)],
        policy=monitor.StopAtFirstLoop(),
    ).run("x")
    assert outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert (outcome.source, count) == ("no_progress", 5)
    assert "has not become less than 3" in outcome.detail


async def test_a_guard_is_told_the_number():
    async with monitor.Guard(detectors=[NoProgress(stalled_at=3)]) as guard:
        for number in range(10):
            chunks = [TextDelta("Again."), ToolCall(f"c{number}", "tests", {}), TurnFinished(monitor.FinishReason.DONE)]

            async def stream():
                for chunk in chunks:  # noqa: B023 - used up in this round
                    yield chunk

            async with guard.watch(stream()) as watched:
                async for _ in watched:
                    pass
            guard.tool_result(f"c{number}", f"run {number}", progress=2.0)
            if isinstance(guard.check(), monitor.Stop):
                break
    assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
    assert number == 3


async def test_the_shell_reads_the_number_and_the_run_ends_what_it_left(tmp_path: Path):
    commands = ["echo '== 2 failed, 1 passed in 0.10s =='", "sleep 100 & echo $!"]
    with capture_events() as events:
        outcome = await monitor.Supervisor(
            ScriptedModel(*([call("shell", command=command)] for command in commands), "Done."),
            tools=[ShellTools(Workspace(tmp_path))],
        ).run("x")
    assert outcome.ok
    first, second = (event.result for event in events if isinstance(event, ToolFinished))
    assert (first.progress, second.progress) == (2, None)
    assert is_gone(int(second.text.splitlines()[1]))


@pytest.mark.feature("GT-12")
async def test_the_only_error_in_line_50000_of_a_command_reaches_the_model(tmp_path: Path):
    seen: list[str] = []

    def reads(request: Any) -> str:
        seen.extend(result.text for result in request.messages[-1].results)
        return "Done."

    lines = "seq 1 49999; echo 'E   ValueError: the one and only'; seq 50001 100000"
    await monitor.Supervisor(
        ScriptedModel([call("shell", command=lines)], reads),
        tools=[ShellTools(Workspace(tmp_path))],
        results=monitor.runs.Results(artifacts=InMemoryArtifacts()),
    ).run("x")
    (text,) = seen
    assert text.startswith("[exit code 0, ")
    assert "line 50000: E   ValueError: the one and only\n" in text
    assert "\n100000\n" in text
    assert len(text) < 50_000


def test_a_run_waits_longer_for_its_tools_than_a_command_has_between_term_and_kill():
    grace_s = inspect.signature(ShellTools).parameters["grace_s"].default
    assert grace_s + 2 <= TOOLS_GRACE * CLOSE_GRACE_S


async def test_an_aborted_run_ends_its_command_and_shows_what_it_wrote(tmp_path: Path):
    class AbortAtOutput:
        def emit(self, event: Event) -> None:
            if isinstance(event, ToolOutput):
                heard.append(event.text)
                run.abort("enough")

    supervisor = monitor.Supervisor(
        ScriptedModel([call("shell", command="echo before; setsid sleep 100 & sleep 100")]),
        tools=[ShellTools(Workspace(tmp_path), grace_s=0.2)],
        sinks=[AbortAtOutput()],
        close_grace_s=60,
    )
    heard: list[str] = []
    run = supervisor.stream("x")
    async with run:
        finished = [event.result async for event in run if isinstance(event, ToolFinished)]
    assert run.outcome.reason is monitor.TerminateReason.ABORTED
    assert heard == ["before\n"]
    assert "before" in finished[0].text
