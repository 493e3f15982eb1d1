"""The synchronous entry points of the frameworks, under a guard in a plain `with` block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import monitor
from monitor.errors import TerminateReason
from tests.integrations.drivers import Driver
from tests.integrations.wires import CHANT


@pytest.fixture(autouse=True)
def event_loop_of_the_thread() -> Iterator[None]:
    """Some entry points use it, and leave it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    asyncio.set_event_loop(None)


def nothing(q: str) -> str:
    """Finds nothing."""
    return f"nothing about {q} was found in the archive"


def test_a_chant_is_cut_and_the_server_sees_the_client_leave(drive_sync: Driver):
    guard = monitor.Guard()
    with drive_sync.wire.server([drive_sync.wire.chants()]) as server:
        ending = drive_sync.load()(server.base_url, guard, nothing)
        server.wait_closed(0)
        assert server.requests[0].events_sent < 500
    assert ending.reason == guard.outcome.reason == "loop_detected"
    assert CHANT in ending.text
    assert guard.outcome.closed
    assert guard.outcome.usage.output_tokens > 0


def test_a_loop_of_calls_is_seen_with_its_results(drive_sync: Driver):
    guard = monitor.Guard()
    with drive_sync.wire.server(drive_sync.wire.looks(20)) as server:
        ending = drive_sync.load()(server.base_url, guard, nothing)
        assert len(server.requests) == 5
    assert ending.reason == guard.outcome.reason == "loop_detected"
    assert "gave the same result" in guard.outcome.detail


def test_a_run_that_ends_well_is_counted_once(drive_sync: Driver):
    guard = monitor.Guard()
    with drive_sync.wire.server(drive_sync.wire.looks(2)) as server:
        ending = drive_sync.load()(server.base_url, guard, nothing)
        assert guard.outcome.turns == len(server.requests) == 3
    assert ending.reason is None
    assert ending.text == "It is done."
    assert guard.outcome.reason is TerminateReason.STREAM_ENDED
    assert guard.outcome.usage.total_tokens == 3 * 10
