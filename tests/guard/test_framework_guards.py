"""Which agent of a run makes a request, and where a task begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import monitor
from monitor.chunks import Chunk, TextDelta, ToolCall, TurnFinished
from monitor.errors import ConfigError
from monitor.guard.framework_guards import (
    AgentGuards,
    Answered,
    GuardedAgent,
    HistoryEnd,
    HistoryPart,
    ModelSaid,
    UserSaid,
    agents_of,
)

pytestmark = pytest.mark.anyio

CHANT = "Let me check the file again. "


def history(*oldest_first: HistoryPart) -> HistoryEnd:
    return HistoryEnd(reversed(oldest_first))


async def answer(agent: GuardedAgent, text: str, *calls: str) -> None:
    """The model of the agent answers."""

    async def stream() -> AsyncIterator[Chunk]:
        yield TextDelta(text)
        for id in calls:
            yield ToolCall(id, "look", {})
        yield TurnFinished(monitor.FinishReason.DONE)

    agent.begun = True
    async with agent.guard.watch(stream()) as watched:
        async for _ in watched:
            pass


@pytest.fixture
async def guard() -> AsyncIterator[monitor.Guard[Any]]:
    async with monitor.Guard() as made:
        yield made


@pytest.fixture
async def two(guard: monitor.Guard[Any]) -> tuple[AgentGuards, GuardedAgent, GuardedAgent]:
    """Two agents of a run, which have asked for calls."""
    agents = agents_of(guard)
    one = agents.find(history(UserSaid("one")), "run 1")
    await answer(one, "", "a")
    other = agents.find(history(UserSaid("two")), "run 2")
    await answer(other, "", "b")
    assert one is not other
    return agents, one, other


async def test_a_result_names_its_call_whatever_the_key_is(two: tuple[AgentGuards, GuardedAgent, GuardedAgent]):
    agents, one, other = two
    after = history(UserSaid("one"), ModelSaid(calls=["a"]), Answered("a", "nothing", name="look"))
    assert agents.find(after, "run 2") is one
    assert agents.find(history(Answered("b", "nothing", name="look")), "run 9") is other


async def test_of_equal_calls_the_key_says_whose_they_are(two: tuple[AgentGuards, GuardedAgent, GuardedAgent]):
    agents, one, other = two
    unnamed = history(Answered(None, "nothing", name="look"))
    assert agents.find(unnamed, "run 2") is other
    assert agents.find(unnamed, "run 1") is one


async def test_without_results_the_last_answer_says_whose_history_it_is(guard: monitor.Guard[Any]):
    agents = agents_of(guard)
    one = agents.find(history(UserSaid("one")))
    await answer(one, "It is blue.", "a")
    other = agents.find(history(UserSaid("two")))
    await answer(other, "It is green.")
    assert agents.find(history(ModelSaid(" It is green.\n"), UserSaid("Why?"))) is other
    assert agents.find(history(ModelSaid(calls=["a"]), UserSaid("Leave it."))) is one


async def test_a_key_that_is_known_is_enough(two: tuple[AgentGuards, GuardedAgent, GuardedAgent]):
    agents, one, _ = two
    assert agents.find(history(UserSaid("again")), "run 1") is one


async def ask(guard: monitor.Guard[Any], *questions: str, said: str) -> None:
    agents = agents_of(guard)
    parts: list[HistoryPart] = []
    for question in questions:
        if guard.stop is not None:
            break
        parts.append(UserSaid(question))
        await answer(agents.find(history(*parts)), said)
        parts.append(ModelSaid(said))


async def test_equal_answers_to_different_questions_are_no_loop_and_to_the_same_question_they_are(
    guard: monitor.Guard[Any],
):
    await ask(guard, *[f"Is it {number}?" for number in range(20)], said="Yes, that is what the page says about it.")
    going_on = guard.stop
    await ask(guard, *["Go on."] * 20, said="I go on with the next page of the book.")
    assert going_on is None
    assert guard.stop is not None
    assert guard.stop.reason is monitor.TerminateReason.LOOP_DETECTED


async def test_words_behind_results_or_beside_open_calls_begin_no_task(
    two: tuple[AgentGuards, GuardedAgent, GuardedAgent],
):
    agents, one, _ = two
    known = [*one.tasks]
    agents.find(history(ModelSaid(calls=["a"]), Answered("a", "nothing"), UserSaid("Remember the rules.")))
    agents.find(history(ModelSaid(calls=["a"]), UserSaid("Hurry.")))
    assert [*one.tasks] == known


async def test_a_key_of_one_task_says_that_the_user_asks_for_nothing_new(guard: monitor.Guard[Any]):
    agents = agents_of(guard)
    one = agents.find(history(UserSaid("go")), "run 1", is_one_task=True)
    await answer(one, "Done.")
    known = [*one.tasks]
    assert agents.find(history(ModelSaid("Done."), UserSaid("Check it.")), "run 1", is_one_task=True) is one
    assert [*one.tasks] == known


async def test_a_new_task_begins_with_new_offsets_and_goes_on_with_the_turns():
    offsets: list[int | None] = []
    for before in (True, False):
        async with monitor.Guard() as guard:
            if before:
                await answer(GuardedAgent(guard), "It is a long story. ")
                guard.new_task("Tell another one.")
            await answer(GuardedAgent(guard), "Once. " + CHANT * 40)
        assert guard.outcome.reason is monitor.TerminateReason.LOOP_DETECTED
        assert guard.outcome.turns == 1 + before
        offsets.append(guard.turn.loop_offset if guard.turn is not None else None)
    assert offsets[0] == offsets[1] is not None


async def test_what_waits_for_the_model_is_dropped_with_the_task():
    policy = monitor.Ladder()
    async with monitor.Guard(policy=policy) as guard:
        first = GuardedAgent(guard)
        for number in range(4):
            await answer(first, "", f"call_{number}")
            guard.tool_result(None, "nothing was found")
        guard.new_task("Something else.")
        assert isinstance(guard.check(), monitor.Continue)


def test_a_task_needs_a_run():
    with pytest.raises(ConfigError, match="the run has not begun"):
        monitor.Guard().new_task("go")


def test_the_history_is_read_up_to_the_last_answer_of_the_model():
    def parts() -> Iterator[HistoryPart]:
        yield UserSaid("b")
        yield Answered("2", "two")
        yield Answered("1", "one")
        yield UserSaid("a")
        yield ModelSaid("said")
        raise AssertionError

    end = HistoryEnd(parts())
    assert ([one.call_id for one in end.results], end.asked, end.said) == (["1", "2"], "a\nb", ModelSaid("said"))
