"""Guarded runs of the real google-genai SDK: of recorded runs on a local server, or of a model that
answers for real.

The only file of the command that imports the SDK.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, Protocol

from google import genai
from google.genai import types

import monitor
from monitor.outcome import RunFailed
from monitor.testing import LocalGemini, ReceivedRequest
from monitor.testing.gemini_steps import Event, Pause, Step, events_of_message
from monitor.transcripts import RecordedResult
from monitor.transcripts.analysis.scan import ModelOutput
from monitor.transcripts.corpus import parse_run

# --------------------------------------------------------------------------------------------------
# The recorded runs of the demo. They ship with the command; `fixtures/regenerate.py` makes the
# file.


@dataclass(slots=True, frozen=True)
class DemoTurn:
    """A model response and the answers of the tools."""

    message: dict[str, Any]
    """The assistant message as it stands in the file."""
    results: tuple[RecordedResult, ...]


@dataclass(slots=True, frozen=True)
class DemoRun:
    """One recorded run."""

    title: str
    model: str
    source: str
    license: str
    prompt: str
    turns: tuple[DemoTurn, ...]
    recorded: ModelOutput


def demo_runs() -> list[DemoRun]:
    """The runs, in the order in which they are shown."""
    text = files("monitor.cli").joinpath("data", "demo_runs.jsonl").read_text("utf-8")
    return [_run(line) for line in text.splitlines()]


def _run(line: str) -> DemoRun:
    data, run = json.loads(line), parse_run(line)
    at = [index for index, message in enumerate(run.messages) if message.role == "assistant"]
    turns = tuple(
        DemoTurn(
            data["messages"][start],
            tuple(result for message in run.messages[start:end] for result in message.tool_results),
        )
        for start, end in zip(at, [*at[1:], len(run.messages)], strict=True)
    )
    own = [run.messages[index] for index in at]
    recorded = ModelOutput(
        sum(len(message.text) for message in own), sum(len(message.tool_calls) for message in own), len(own)
    )
    return DemoRun(data["title"], data["model"], data["source"], data["license"], run.messages[0].text, turns, recorded)


DELTA_CHARS = 6
"""About a token and a half, which is what fast models send at a time."""
CLOSING_PAUSE_S = 0.05
"""The pause before the event that closes a turn. So a stop at the last call comes in the middle of
the stream, as with a real service.
"""
CLOSE_SEEN_S = 2.0
"""How long the server is given to see the connection close. It takes about a millisecond."""
LIVE_LIMITS = monitor.Timeout(300) | monitor.IdleTimeout(60)


class DemoScreen(Protocol):
    """A display for a run of the demo."""

    def text(self, words: str) -> None:
        """Show a piece of the answer."""
        ...

    def call(self, name: str, arguments: Any) -> None:
        """Show a tool call of the model."""
        ...

    def result(self, result: RecordedResult) -> None:
        """Show the result of a tool call."""
        ...


@dataclass(slots=True, frozen=True)
class DemoResult:
    """How the guarded run of a recording ended, from both ends of the wire."""

    outcome: monitor.Outcome
    recorded: ModelOutput
    sent: ModelOutput
    """The amount that the server had sent when the connection was gone."""
    seen_closed_after_s: float | None
    """Seconds from the decision to stop until the server saw the connection close. `None`: the
    server did not see it."""


async def play(run: DemoRun, screen: DemoScreen, *, pace_s: float, think_s: float) -> DemoResult:
    """Play `run` on the local server, and read it with the real SDK under a guard, as an agent's
    loop would.
    """
    scripts = [_script(turn, pace_s=pace_s, think_s=think_s) for turn in run.turns]
    decided = _DecisionTime()
    with LocalGemini(scripts) as server, _no_proxy():
        client = genai.Client(
            api_key="demo", vertexai=False, http_options=types.HttpOptions(base_url=server.base_url)
        ).aio
        try:
            guard = monitor.Guard(sinks=[decided])
            async with guard:
                await _agent_loop(run, guard, client, screen)
            seen_closed_at = await _seen_closed(server) if decided.at is not None else None
        finally:
            await client.aclose()
        requests = list(server.requests)
    if guard.outcome is None:
        raise AssertionError("a guard that was left has an outcome")
    if guard.outcome.error is not None:
        raise RunFailed(guard.outcome)
    after_s = None if seen_closed_at is None or decided.at is None else seen_closed_at - decided.at
    return DemoResult(guard.outcome, run.recorded, _sent(requests, scripts), after_s)


async def _agent_loop(run: DemoRun, guard: monitor.Guard, client: Any, screen: DemoScreen) -> None:
    """The loop of any agent: ask the model, carry out its calls, ask again. Here the tools give
    their recorded answers.
    """
    history = [types.Content(role="user", parts=[types.Part(text=run.prompt)])]
    for turn in run.turns:
        ask = partial(client.models.generate_content_stream, model="recorded", contents=list(history))
        said: list[types.Part] = []
        async with guard.watch(ask) as watched:
            async for response in watched:
                said += _shown(response, screen)
        if watched.turn.stopped is not None:
            return  # the call that exceeded the limit is not carried out
        answers: list[types.Part] = []
        for call, result in zip(watched.turn.tool_calls, turn.results, strict=False):
            screen.result(result)
            guard.tool_result(call, result.distinct_text, is_error=result.is_error)
            answers.append(types.Part.from_function_response(name=call.name, response={"output": result.text}))
        if isinstance(guard.check(), monitor.Stop):
            return
        history += [types.Content(role="model", parts=said), types.Content(role="user", parts=answers)]


async def ask_model(model: str, prompt: str, screen: DemoScreen) -> monitor.Outcome:
    """One answer of a real model, watched. Key and address come from the environment, as the SDK
    reads them.
    """
    client = genai.Client().aio
    try:
        ask = partial(client.models.generate_content_stream, model=model, contents=prompt)
        async with monitor.watch(ask, stop_when=LIVE_LIMITS) as watched:
            async for response in watched:
                _shown(response, screen)
    finally:
        await client.aclose()
    if watched.outcome is None:
        raise AssertionError("a watched stream that was left has an outcome")
    return watched.outcome


class _DecisionTime:
    """A sink that notes the time of the decision, by the same clock as the server."""

    def __init__(self) -> None:
        self.at: float | None = None

    def emit(self, event: monitor.events.Event) -> None:
        if isinstance(event, monitor.events.StopDecided):
            self.at = time.perf_counter()


async def _seen_closed(server: LocalGemini) -> float | None:
    try:
        return (await server.wait_closed_async(timeout_s=CLOSE_SEEN_S)).at
    except TimeoutError:
        return None


def _script(turn: DemoTurn, *, pace_s: float, think_s: float) -> list[Step | Event]:
    steps: list[Step | Event] = [Pause(think_s)]
    *events, last = events_of_message(turn.message, cut=DELTA_CHARS)
    for event in events:
        steps += [event, Pause(pace_s)]
    return [*steps, Pause(CLOSING_PAUSE_S), last]


def _sent(requests: Sequence[ReceivedRequest], scripts: Sequence[Sequence[Step | Event]]) -> ModelOutput:
    sent = ModelOutput(turns=len(requests))
    for request, script in zip(requests, scripts, strict=False):
        events = [step for step in script if isinstance(step, dict)]
        for event in events[: request.events_sent]:
            for part in event["candidates"][0]["content"]["parts"]:
                sent += ModelOutput(chars=len(part.get("text", "")), tool_calls="functionCall" in part)
    return sent


def _shown(response: types.GenerateContentResponse, screen: DemoScreen) -> list[types.Part]:
    """Show a response. Returns its parts."""
    content = response.candidates[0].content if response.candidates else None
    parts = (content.parts if content else None) or []
    for part in parts:
        if part.text and not part.thought:
            screen.text(part.text)
        if part.function_call is not None:
            screen.call(part.function_call.name or "", part.function_call.args or {})
    return [part for part in parts if part.text or part.function_call]


@contextmanager
def _no_proxy() -> Iterator[None]:
    """Reach the local server directly, whatever proxy the environment names."""
    names = ("no_proxy", "NO_PROXY")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "127.0.0.1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
