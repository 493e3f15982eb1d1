"""The tool runner of Anthropic's SDK, behind a guard: each of its streams, and the results of the
tools that it carries out.

    runner = client.beta.messages.tool_runner(..., stream=True)
    async with monitor.Guard(stop_when=monitor.MaxTurns(30)) as guard:
        async for events in guarded_runner(runner, guard):
            async for event in events: ...
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from monitor.errors import ConfigError
from monitor.guard.framework_guards import Answered, GuardSource, ModelSaid
from monitor.integrations._guarded_requests import GuardedEvents, GuardedRequests
from monitor.outcome import StoppedByGuard

__all__ = ["Stopped", "guarded_runner"]


class Stopped(StoppedByGuard):
    """The guard has ended the run of the tool runner."""


async def guarded_runner(runner: Any, guard: GuardSource) -> AsyncGenerator[GuardedEvents[Any]]:
    """The streams of a tool runner of `AsyncAnthropic` that was made with `stream=True`, one for
    each turn. Read each to its end: then the runner carries out its calls, and the guard has seen
    their results before the next request is made.

    A nudge of the guard stands behind the results of its turn. Raises `Stopped` when the guard ends
    the run, and the SDK's own exception when a call failed; the runner is closed then. Raises
    `ConfigError` for a synchronous runner.
    """
    if not hasattr(runner, "__aiter__"):
        raise ConfigError("the guard watches the tool runner of AsyncAnthropic, which is read with `async for`")
    requests = GuardedRequests(guard, Stopped)
    own = requests.next_request([])
    try:
        async for stream in runner:
            yield own.watched(lambda stream=stream: stream, None)  # type: ignore[misc] # of this turn
            response = await runner.generate_tool_call_response()
            blocks = response["content"] if response is not None else []
            results = [
                Answered(block["tool_use_id"], block.get("content"), is_error=bool(block.get("is_error")))
                for block in blocks
            ]
            if results:  # else the runner is done
                own = requests.next_request([*reversed(results), ModelSaid(calls=[one.call_id for one in results])])
            if results and own.change.text is not None:
                blocks.append({"type": "text", "text": own.change.text})
    finally:
        await runner.close()
