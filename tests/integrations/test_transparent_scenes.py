"""Each scene of each framework gives its user the same with the guard as without it: outputs,
events and their order, usage, finish data, callbacks, names, exceptions with their causes and
contexts, and as many requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from pathlib import Path
from typing import Any

import pytest

import monitor
from tests.integrations.drivers import DRIVERS, OF_SCENES, OPEN
from tests.integrations.transparent.scenes import scripts, seen

SCENES = (
    "plain",
    "model alone",
    "streaming",
    "structured",
    "tools",
    "hand-off",
    "kept agent, four runs at once",
    "early break",
    "failing tool",
    "failing service",
)
ALL = DRIVERS | OF_SCENES
FRAMEWORKS = [name for name in ALL if (Path(__file__).parent / "transparent" / f"{name.replace('-', '_')}.py").exists()]


def _marked(name: str) -> Any:
    warnings = (*ALL[name].warnings, *OPEN, "::DeprecationWarning", "::UserWarning")
    return pytest.param(name, marks=[pytest.mark.filterwarnings(f"ignore{one}") for one in warnings])


@pytest.fixture(params=map(_marked, FRAMEWORKS))
def framework(request: pytest.FixtureRequest) -> str:
    """Each framework that is installed."""
    for package in ALL[request.param].packages:
        pytest.importorskip(package, reason=f"the framework is not installed: {package}")
    return str(request.param)


def scene_of(framework: str, name: str) -> Any:
    scenes = importlib.import_module(f"tests.integrations.transparent.{framework.replace('-', '_')}").SCENES
    if name not in scenes:
        pytest.skip(f"{framework} has no scene {name!r}")
    return scenes[name]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", SCENES)
async def test_a_scene_gives_the_same_with_the_guard_as_without(framework: str, name: str):
    scene, wire = scene_of(framework, name), ALL[framework].wire
    with wire.server(scripts(wire, name)) as server:
        bare = await scene(server.base_url, None)
        requests = len(server.requests)
        async with monitor.Guard() as guard:
            guarded = await scene(server.base_url, guard)
        assert len(server.requests) == 2 * requests
        asked, again = server.requests[:requests], server.requests[requests:]
        assert sorted(map(_asked, again)) == sorted(map(_asked, asked))  # those of runs at once come in any order
    assert guarded == bare


def _asked(request: Any) -> str:
    """What is asked for. Under the guard every request streams, with the usage at its end."""
    body = seen({name: one for name, one in request.body.items() if name not in {"stream", "stream_options"}})
    return f"{request.method.replace('stream', '').lower()} {body}"


@pytest.mark.asyncio
async def test_a_model_behind_two_guards_is_watched_by_both(framework: str):
    scene, wire = scene_of(framework, "tools"), ALL[framework].wire
    with wire.server(scripts(wire, "tools")) as server:
        bare = await scene(server.base_url, None)
        requests = len(server.requests)
        async with monitor.Guard() as inner, monitor.Guard() as outer:
            guarded = await scene(server.base_url, [inner, outer])
        assert len(server.requests) == 2 * requests
    assert guarded == bare
    assert inner.outcome.turns == outer.outcome.turns == requests


@pytest.mark.asyncio
async def test_the_loop_of_a_model_behind_two_guards_ends_in_one_request_and_in_both(framework: str):
    scene, wire = scene_of(framework, "plain"), ALL[framework].wire
    with wire.server([wire.chants()]) as server:
        async with monitor.Guard() as inner, monitor.Guard() as outer:
            with contextlib.suppress(Exception):  # each framework has its own, or a last message
                await scene(server.base_url, [inner, outer])
        await server.wait_closed_async(0)
        assert len(server.requests) == 1
    for guard in (inner, outer):
        assert (guard.outcome.reason.value, guard.outcome.closed) == ("loop_detected", True)


@pytest.mark.asyncio
async def test_the_same_guard_twice_around_a_model_counts_each_response_once(framework: str):
    if framework in {"strands", "agent-framework"}:
        pytest.skip("its agents take a list of plugins or middleware, which shows a guard that is in it twice")
    scene, wire = scene_of(framework, "tools"), ALL[framework].wire
    with wire.server(scripts(wire, "tools")) as server:
        async with monitor.Guard() as guard:
            await scene(server.base_url, [guard, guard])
        assert guard.outcome.turns == len(server.requests)


@pytest.mark.asyncio
@pytest.mark.parametrize("guarded", [False, True])
async def test_a_cancellation_ends_the_run_at_once_and_closes_the_connection(framework: str, guarded: bool):
    scene, wire = scene_of(framework, "cancellation"), ALL[framework].wire
    with wire.server(scripts(wire, "cancellation")) as server:
        guard = monitor.Guard() if guarded else None
        run = asyncio.create_task(_within(scene, server.base_url, guard))
        await asyncio.to_thread(server.wait_request)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await server.wait_closed_async(0)
        assert len(server.requests) == 1


async def _within(scene: Any, url: str, guard: Any) -> Any:
    if guard is None:
        return await scene(url, None)
    async with guard:
        return await scene(url, guard)
