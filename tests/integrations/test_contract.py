"""The contract of every integration: the guard sees all of the framework's loop, and stops it for
real. A new integration is a line in `drivers.py` and a program beside it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

import pytest

import monitor
from monitor.errors import TerminateReason
from tests.integrations.drivers import Driver
from tests.integrations.wires import CHANT


def nothing(q: str) -> str:
    """Finds nothing."""
    return f"nothing about {q} was found in the archive"


class FirstChunk:
    """A detector that finds nothing, and says when the first chunk has come."""

    name = "first_chunk"

    def __init__(self) -> None:
        self.came = asyncio.Event()

    async def came_in(self, run: asyncio.Task[Any]) -> None:
        """Wait for the chunk, or for a run that fails before it."""
        came = asyncio.ensure_future(self.came.wait())
        await asyncio.wait([run, came], return_when=asyncio.FIRST_COMPLETED)
        if not came.done():
            came.cancel()
            pytest.fail(f"the run was over before a chunk came: {run!r}")

    def observe(self, chunk: object, /) -> tuple[()]:
        self.came.set()
        return ()

    def reset(self) -> None: ...

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any], /) -> None: ...


@pytest.mark.asyncio
async def test_a_chant_is_cut_while_it_is_written_and_the_server_sees_the_client_leave(drive_any: Driver):
    guard = monitor.Guard()
    with drive_any.wire.server([drive_any.wire.chants()]) as server:
        ending = await drive_any(server.base_url, guard, nothing)
        await server.wait_closed_async(0)
        assert len(server.requests) == 1
        assert server.requests[0].events_sent < 500
    outcome = guard.outcome
    assert outcome.reason is TerminateReason.LOOP_DETECTED
    assert outcome.closed
    assert ending.reason == "loop_detected"
    assert CHANT in ending.text
    assert outcome.text.startswith(ending.text)
    assert outcome.usage.output_tokens > 0
    assert outcome.usage_estimated


@pytest.mark.asyncio
async def test_a_chant_inside_the_arguments_of_a_call_is_cut_and_the_call_is_not_carried_out(drive_any: Driver):
    """Where the framework hides the pieces of a call, the stream is silent, and a limit ends it."""
    silence = None if drive_any.pieces_of_calls else monitor.IdleTimeout(2)  # a framework may import its SDK first
    guard = monitor.Guard(stop_when=silence)
    done: list[str] = []

    def look(q: str) -> str:
        """Looks."""
        done.append(q)
        return nothing(q)

    with drive_any.wire.server([drive_any.wire.chants_in_a_call()]) as server:
        ending = await drive_any(server.base_url, guard, look)
        await server.wait_closed_async(0)
    assert ending.reason == ("loop_detected" if drive_any.pieces_of_calls else "idle_timeout")
    assert done == []


@pytest.mark.asyncio
async def test_a_loop_of_equal_calls_with_equal_results_is_seen_over_the_turns(drive_any: Driver):
    guard = monitor.Guard()
    done: list[str] = []

    def look(q: str) -> str:
        """Looks."""
        done.append(q)
        return nothing(q)

    with drive_any.wire.server(drive_any.wire.looks(20)) as server:
        ending = await drive_any(server.base_url, guard, look)
        assert len(server.requests) == 5
    assert ending.reason == "loop_detected"
    assert "gave the same result" in guard.outcome.detail
    assert guard.outcome.turns == 5
    assert len(done) == 4  # the fifth was not carried out


@pytest.mark.asyncio
async def test_equal_calls_with_changing_results_are_no_loop_because_the_results_are_seen(drive: Driver):
    guard = monitor.Guard()
    numbers = itertools.count(1)

    def look(q: str) -> str:
        """Looks."""
        return f"{next(numbers)} of 6 files of {q} are copied"

    with drive.wire.server(drive.wire.looks(6)) as server:
        ending = await drive(server.base_url, guard, look)
    assert ending.reason is None
    assert ending.text == "It is done."
    assert guard.outcome.ok
    assert guard.outcome.turns == 7


@pytest.mark.asyncio
async def test_turns_tokens_and_calls_are_counted_once(drive_any: Driver):
    guard = monitor.Guard()
    with drive_any.wire.server(drive_any.wire.looks(3)) as server:
        ending = await drive_any(server.base_url, guard, nothing)
        assert guard.outcome.turns == len(server.requests) == 4
    assert guard.outcome.usage.total_tokens == 4 * 10  # what the server reports for each
    assert not guard.outcome.usage_estimated
    if ending.total_tokens is not None:
        assert ending.total_tokens == 4 * 10


@pytest.mark.asyncio
async def test_the_coverage_says_that_all_is_guarded(drive: Driver):
    guard = monitor.Guard(stop_when=monitor.MaxTurns(30))
    with drive.wire.server(drive.wire.looks(3)) as server:
        await drive(server.base_url, guard, nothing)
    covered = {one.what: one for one in guard.coverage()}
    assert [one for one in covered.values() if not one.guarded] == []
    assert covered["results"].detail == "3 of 3 calls have their result"


@pytest.mark.asyncio
async def test_a_limit_of_the_guard_ends_the_loop_of_the_framework(drive: Driver):
    guard = monitor.Guard(stop_when=monitor.MaxTurns(2))
    with drive.wire.server(drive.wire.looks(20)) as server:
        ending = await drive(server.base_url, guard, nothing)
        assert len(server.requests) == 2
    assert ending.reason == guard.outcome.reason == "max_turns"
    assert guard.outcome.turns == 2


@pytest.mark.asyncio
async def test_an_abort_ends_a_silent_stream(drive_any: Driver):
    first = FirstChunk()
    guard = monitor.Guard(detectors=[first])
    with drive_any.wire.server([drive_any.wire.waits()]) as server:
        run = asyncio.create_task(drive_any(server.base_url, guard, nothing))
        await first.came_in(run)
        guard.abort("the user has seen enough")
        ending = await run
        await server.wait_closed_async(0)
    assert ending.reason == guard.outcome.reason == "aborted"
    assert guard.outcome.detail == "the user has seen enough"


@pytest.mark.asyncio
async def test_a_cancellation_from_outside_goes_on_and_closes_the_connection(drive_any: Driver):
    first = FirstChunk()
    guard = monitor.Guard(detectors=[first])
    with drive_any.wire.server([drive_any.wire.waits()]) as server:
        run = asyncio.create_task(drive_any(server.base_url, guard, nothing))
        await first.came_in(run)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await server.wait_closed_async(0)
    assert guard.outcome.reason is TerminateReason.CANCELLED


@pytest.mark.asyncio
async def test_a_failed_call_is_raised_as_the_framework_raises_it_and_is_the_reason(drive: Driver):
    guard = monitor.Guard()
    with (
        drive.wire.server([drive.wire.refuses()]) as server,
        pytest.raises(Exception, match="no such key") as raised,
    ):
        await drive(server.base_url, guard, nothing)
    assert not isinstance(raised.value, monitor.errors.MonitorError)
    assert guard.outcome.reason is TerminateReason.ERROR


@pytest.mark.asyncio
async def test_a_nudge_reaches_the_model_and_a_withdrawn_tool_is_offered_no_longer(drive: Driver):
    guard = monitor.Guard(policy=monitor.Ladder())
    offered: list[bool] = []
    told: list[str] = []

    def script(request: Any) -> list[Any]:
        said = drive.wire.user_said(request.body)
        if request.number and said is not None:
            told.append(said)
        offered.append(bool(request.body.get("tools")))
        return drive.wire.calls("look", {"q": "a"}, f"call_{request.number}")

    with drive.wire.server(script) as server:
        ending = await drive(server.base_url, guard, nothing)
        assert len(server.requests) < 20
    assert ending.reason == "loop_detected"
    assert told
    assert "look" in told[0]
    assert offered[0]
    assert not offered[-1]
