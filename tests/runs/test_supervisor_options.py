"""A supervisor is a description: what is refused before the first call, what the model is sent, and
that runs do not disturb each other.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

import monitor
from monitor.messages import AssistantMessage, Media, Text, UserMessage
from monitor.testing import Do, FakeClock, Pause, ScriptedModel, call
from tests.runs.driving import SENTENCE, Drive, Reason, drive, look

pytestmark = pytest.mark.anyio


def refused(match: str, **options: Any) -> None:
    model = ScriptedModel("never")
    with pytest.raises(monitor.ConfigError, match=match):
        monitor.Supervisor(model, **options)
    assert model.requests == []


# --- before the first call


@pytest.mark.feature("GC-10")
@pytest.mark.parametrize("row", ["E9"])
async def test_a_missing_template_variable_is_an_error_before_the_first_call_that_names_all(row: str):
    """Upstream's run rejects; ours is refused when it is described."""
    refused(
        "topic, tone", instructions="Write about ${topic}, ${tone}, in ${language}.", variables={"language": "French"}
    )


@pytest.mark.parametrize("wrong", [{"stop_after": 3}, {"price": monitor.Price(1, 1)}])
def test_an_argument_that_there_is_not_is_said_of_the_supervisor(wrong: dict[str, Any]):
    with pytest.raises(monitor.ConfigError, match=r"^Supervisor has no option '\w+': write (stop_when|prices)="):
        monitor.Supervisor(ScriptedModel("x"), **wrong)
    none: Any = ()
    with pytest.raises(monitor.ConfigError, match=r"^Supervisor: missing a required argument: 'model'; write monitor"):
        monitor.Supervisor(*none)


@pytest.mark.parametrize("of", [monitor.Guard, monitor.watch, monitor.Supervisor])
def test_what_tokens_cost_is_called_prices_everywhere(of: Any):
    names = inspect.signature(of).parameters
    assert "prices" in names
    assert "price" not in names


@pytest.mark.feature("GC-10")
async def test_variables_are_filled_in_and_other_dollars_stay():
    run = await drive(
        "Done.",
        instructions=monitor.runs.Instructions(
            'Write ${n} lines for $5, as {"json": 1}, $${n}.', variables={"n": 3, "unused": 1}
        ),
    )
    assert (run.requests[0].instructions or "").startswith('Write 3 lines for $5, as {"json": 1}, ${n}.')


@pytest.mark.feature("GC-11")
async def test_outputs_that_cannot_be_emitted_are_refused_before_the_first_call():
    refused("keeps the model from calling emit_value", outputs={"a": int}, tool_choice="none")
    refused("keeps the model from calling update_plan", plan=monitor.Plan(["x"]), tool_choice="none")


@pytest.mark.feature("GC-11")
@pytest.mark.parametrize("name", ["emit_value", "terminate", "update_plan"])
async def test_a_tool_of_the_callers_cannot_take_the_place_of_the_monitors_own(name: str):
    class Impostor:
        spec = monitor.models.ToolSpec(name, "I am it.", {"type": "object"})

        async def call(self, arguments: Any, context: monitor.ToolContext) -> object:
            return "recorded"

    refused(name, tools=[Impostor()], outputs={"a": int})
    with pytest.raises(monitor.ConfigError, match=name):
        monitor.tools.FunctionTool(look, name=name)


@pytest.mark.parametrize("row", ["E12"])
async def test_a_tool_with_required_parameters_is_taken_as_it_is(row: str):
    """Upstream warns, because it cannot tell whether such a tool asks a person; here a tool that
    asks pauses the run (E11).
    """
    run = await drive(call("look", q="x"), "Done.", tools=[look])
    assert run.outcome.reason is Reason.GOAL


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"stop_when": 30}, "stop_when"),
        ({"budget": 30}, "budget"),
        ({"policy": monitor.Ladder}, "policy"),
        ({"policy": object()}, "decide"),
        ({"detectors": [monitor.detectors.NoProgress]}, "detectors"),
        ({"detectors": 3}, "detectors"),
        ({"sinks": [object()]}, "emit"),
        ({"max_nudges": -1}, "max_nudges"),
        ({"tool_choice": "always"}, "tool_choice"),
        ({"retries": 3}, "retries"),
        ({"plan": ["a step"]}, "plan"),
        ({"history": ["hello"]}, "history"),
        ({"outputs": ["a"]}, "outputs"),
        ({"outputs": {}}, "outputs"),
        ({"keep_text_chars": -1}, "keep_text_chars"),
        ({"close_grace_s": 0}, "close_grace_s"),
        ({"clock": 3}, "clock"),
        ({"max_nudges": True}, "max_nudges"),
        ({"model_settings": 3}, "settings"),
        ({"history": None}, "history"),
        ({"instructions": 3}, "instructions"),
    ],
)
async def test_what_makes_no_sense_is_refused_at_once_by_name(options: dict[str, Any], match: str):
    refused(match, **options)


@pytest.mark.parametrize("model", [object(), ScriptedModel, "google:gemini-2.5-flash"])
async def test_what_is_no_model_is_refused(model: Any):
    with pytest.raises(monitor.ConfigError, match="model"):
        monitor.Supervisor(model)


@pytest.mark.parametrize("task", [None, 3, ["do it"]])
async def test_a_task_is_a_text_or_a_message(task: Any):
    supervisor = monitor.Supervisor(ScriptedModel("x"))
    with pytest.raises(monitor.ConfigError, match="task"):
        await supervisor.run(task)


# --- what the model is sent


@pytest.mark.feature("OM-09")
@pytest.mark.parametrize("choice", ["auto", "required", "none"])
async def test_the_tool_choice_is_passed_to_the_model(choice: Any):
    run = await drive("Done.", requests=monitor.runs.Requests(tool_choice=choice), tools=[look])
    assert run.requests[0].tool_choice == choice


async def test_history_settings_and_a_task_with_an_image_are_sent_as_they_are():
    before = (UserMessage((Text("hello"),)), AssistantMessage((Text("hi"),)))
    task = UserMessage((Text("what is it?"), Media("image/png", data="aGk=")))
    run = await drive(
        "A cat.", history=before, task=task, requests=monitor.runs.Requests(settings={"temperature": 0.5})
    )
    request = run.requests[0]
    assert request.messages == (*before, task)
    assert request.settings == {"temperature": 0.5}
    assert run.run.history[:3] == (*before, task)


async def test_a_request_is_not_changed_by_what_comes_after_it():
    run = await drive(call("look", q="x"), "Done.", tools=[look])
    assert len(run.requests[0].messages) == 1


async def test_thinking_and_its_signatures_survive_the_round_trip():
    answer = [
        monitor.chunks.ReasoningDelta("I thi"),
        monitor.chunks.ReasoningDelta("nk.", "c2ln"),
        "So: ",
        monitor.chunks.ReasoningDelta("", "b3RoZXI="),
        call("look", q="x"),
    ]
    run = await drive(answer, "Done.", tools=[look])
    reply = run.requests[1].messages[1]
    assert isinstance(reply, AssistantMessage)
    assert reply.content[:3] == (
        monitor.messages.Reasoning("I think.", "c2ln"),
        Text("So: "),
        monitor.messages.Reasoning("", "b3RoZXI="),
    )


# --- several runs of one supervisor


async def test_two_runs_one_after_the_other_do_not_know_of_each_other():
    detectors, policy = [monitor.ToolCallRepetition()], monitor.Ladder()
    model = ScriptedModel(*[*[call("look", q="x")] * 2, "Done."] * 4)
    sink = monitor.sinks.MemorySink()
    supervisor = monitor.Supervisor(model, tools=[look], detectors=detectors, policy=policy, outputs=None, sinks=[sink])
    for _ in range(4):
        assert (await supervisor.run("go")).reason is Reason.GOAL
    assert not [event for event in sink.events if isinstance(event, monitor.events.DetectionRaised)]
    assert policy.snapshot() == monitor.Ladder().snapshot()


async def test_two_runs_at_the_same_time_do_not_know_of_each_other():
    gates = [Pause(), Pause()]
    model = ScriptedModel(
        ["a", gates[0], call("emit_value", name="a", value=1)],
        ["b", gates[1], call("emit_value", name="a", value=2)],
    )
    supervisor = monitor.Supervisor(model, outputs={"a": int}, detectors=[monitor.ContentRepetition()])
    outcomes: dict[str, monitor.Outcome] = {}

    async def run(name: str) -> None:
        outcomes[name] = await supervisor.run(name)

    async with anyio.create_task_group() as group:
        group.start_soon(run, "first")
        await gates[0].reached()
        group.start_soon(run, "second")
        await gates[1].reached()
        gates[1].release()
        await anyio.wait_all_tasks_blocked()
        gates[0].release()
    assert [outcomes[name].output for name in ("first", "second")] == [{"a": 1}, {"a": 2}]


async def test_a_loop_of_one_run_is_none_of_the_other():
    model = ScriptedModel([SENTENCE] * 3, [SENTENCE] * 3, [SENTENCE] * 3)
    supervisor = monitor.Supervisor(model, detectors=[monitor.ContentRepetition()], policy=monitor.StopAtFirstLoop())
    assert [(await supervisor.run("go")).reason for _ in range(3)] == [Reason.GOAL] * 3


# --- a model of the caller's own


class Model:
    """A model whose stream is whatever it is given."""

    name = "own:model"

    def __init__(self, stream: Any) -> None:
        self.make = stream
        self.requests: list[monitor.models.ModelRequest] = []

    def stream(self, request: monitor.models.ModelRequest) -> Any:
        self.requests.append(request)
        return self.make()


async def test_a_model_that_raises_before_it_gives_a_stream_ends_the_run():
    def broken() -> Any:
        raise RuntimeError("no key")

    run = await Drive(model=Model(broken)).go()
    assert (run.outcome.reason, len(run.requests)) == (Reason.ERROR, 1)
    assert "no key" in run.outcome.detail


async def test_a_model_may_be_an_async_function_or_an_async_generator_of_text_or_chunks():
    async def generator() -> AsyncIterator[str]:
        for piece in ("It is ", "noon."):
            yield piece

    async def coroutine() -> AsyncIterator[str]:
        return generator()

    for made in (generator, coroutine):
        run = await Drive(model=Model(made)).go()
        assert (run.outcome.reason, run.outcome.text) == (Reason.GOAL, "It is noon.")


@pytest.mark.parametrize(
    "garbage",
    [[3], ["text", 3], [monitor.chunks.TextDelta("a"), "b"], [monitor.chunks.TextDelta(3)]],  # type: ignore[arg-type]
)
async def test_a_model_that_yields_garbage_ends_the_run_and_never_hangs(garbage: list[Any]):
    """What nobody can read at all is a mistake in the caller's code; a stream that goes wrong on
    its way is an ending.
    """

    async def generator() -> AsyncIterator[Any]:
        for piece in garbage:
            yield piece

    d = Drive(model=Model(generator))
    if garbage == [3]:
        with pytest.raises(monitor.ConfigError, match=r"no adapter knows objects of type builtins\.int"):
            await d.go()
        assert d.outcome.reason is Reason.ERROR
    else:
        await d.go()
        assert d.outcome.reason is Reason.INVALID_STREAM


@pytest.mark.parametrize("given", [None, 3, [monitor.chunks.TextDelta("a")]])
async def test_a_model_whose_stream_is_none_is_a_wrong_call(given: Any):
    d = Drive(model=Model(lambda: given))
    with pytest.raises(monitor.ConfigError, match="cannot watch"):
        await d.go()
    assert d.outcome.reason is Reason.ERROR


async def test_a_model_that_never_ends_is_ended_by_a_limit_and_closed():
    closed = []
    clock = FakeClock()

    async def forever() -> AsyncIterator[str]:
        try:
            number = 0
            while True:
                number += 1
                clock.advance(0.1)
                yield f"{number} "
        finally:
            closed.append(True)

    run = await Drive(
        model=Model(forever), stop_when=monitor.Timeout(10), last_turn=None, detectors=None, clock=clock
    ).go()
    assert (run.outcome.reason, closed) == (Reason.TIMEOUT, [True])


async def test_a_sink_that_crashes_is_taken_off_and_a_detector_that_crashes_ends_the_run():
    class Crashing:
        name = "crashing"

        def emit(self, event: monitor.events.Event) -> None:
            raise RuntimeError("full disk")

        def observe(self, chunk: Any) -> Any:
            raise RuntimeError("bad window")

        def reset(self) -> None: ...
        def snapshot(self) -> dict[str, Any]:
            return {}

        def restore(self, state: Any) -> None: ...

    run = await drive("Hello", sinks=[Crashing()])
    assert run.outcome.reason is Reason.GOAL
    run = await drive("Hello", detectors=[Crashing()])
    assert (run.outcome.reason, run.outcome.source) == (Reason.ERROR, "crashing")


async def test_events_come_while_the_model_streams():
    clock = FakeClock()
    d = Drive(["a", Do(lambda: clock.advance(1)), "b"], clock=clock)
    async with d.run as run:
        seen = [(event, clock.now()) async for event in run if isinstance(event, monitor.events.ChunkReceived)]
    pieces = [
        (event.chunk.text, event.at_s, now) for event, now in seen if isinstance(event.chunk, monitor.chunks.TextDelta)
    ]
    assert pieces == [("a", 0, 0), ("b", 1, 1)]
