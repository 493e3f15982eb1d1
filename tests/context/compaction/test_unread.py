"""Law 16: results that the model has not been sent yet are never summarised away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import product, zip_longest
from typing import Any, get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import monitor
from monitor import AssistantMessage, Compaction, UserMessage
from monitor.adapters import to_form
from monitor.chunks import ToolCall, ToolResult
from monitor.context import CompactionError, Extractive, Form, read_history, repair, validate
from monitor.context.compaction.pinned import text_of_user
from monitor.context.compaction.preset import PRESETS
from monitor.context.reduce import PruneResults
from monitor.context.reduce import propose_edit as reduce_history
from monitor.context.tokens import message_tokens
from monitor.errors import CompactionReason
from monitor.messages import Message
from monitor.testing import ScriptedModel, call
from tests.context.compaction.making import done, proposed, situation
from tests.context.talk import IMAGE, ran, said, tokens, user
from tests.examples import every_second
from tests.runs.context.test_compactor import Bench

R = CompactionReason
SIZES = [(4, 9_000, 32_000), (4, 25_000, 100_000), (50, 5_000, 200_000), (1, 60_000, 32_000)]
"""So many results of so many tokens each, in a window of so many."""


def preset_of(name: str, **options: Any) -> Compaction:
    made: Compaction = getattr(Compaction, name)(**{"summarizer": Extractive(), **options})
    return made


# --- what is looked at


def unread(messages: Sequence[Message]) -> tuple[ToolResult, ...]:
    """The results that no answer follows, told by hand and not by the library."""
    behind = [message for message in messages if isinstance(message, AssistantMessage)][-1:]
    return behind[0].results if behind else ()


def missing(before: Sequence[Message], after: Sequence[Message]) -> list[str]:
    """The unread results of `before` of which `after` shows no share, and does not say either that
    they were left out.
    """
    shown = {result.id: result for result in unread(after)}
    begins = text_of_user(after[0]) if isinstance(after[0], UserMessage) else ""
    lost = []
    for result in unread(before):
        now = shown.get(result.id)
        said_so = f"left out, because there was no room for them: {result.name}" in begins
        if now is None:
            lost += [] if said_so else [f"{result.id} is gone"]
        elif now.is_error is not result.is_error or now.name != result.name:
            lost.append(f"{result.id} is another one")
        elif not (
            now.text == result.text or now.text[:60] == result.text[:60] or "of this result were left out" in now.text
        ):
            lost.append(f"{result.id} says {now.text[:80]!r}")
    return lost


# --- the law

turn = st.lists(st.tuples(st.sampled_from([0, 5, 50, 500, 4_000, 20_000]), st.booleans()), min_size=1, max_size=12)
older = st.lists(st.tuples(st.sampled_from(["user", "said", "ran", "media"]), st.integers(0, 2_500)), max_size=10)
behind = st.lists(st.sampled_from(["nudge", "media", "long"]), max_size=2)


def made(
    older: Sequence[tuple[str, int]], turn: Sequence[tuple[int, bool]], behind: Sequence[str], arguments: int
) -> tuple[Message, ...]:
    """A history that ends with results nobody has read."""
    messages: list[Message] = [user("Begin.")]
    for number, (kind, size) in enumerate(older):
        text = f"o{number} {tokens(size)}"
        match kind:
            case "user":
                messages.append(user(text))
            case "media":
                messages.append(user(text, IMAGE))
            case "said":
                messages.append(said(text))
            case _:
                messages.append(
                    AssistantMessage((ToolCall(f"o{number}", "look", {}),), (ToolResult(f"o{number}", "look", text),))
                )
    asked = tuple(ToolCall(f"n{number}", "look", {"at": tokens(arguments)}) for number in range(len(turn)))
    results = (
        ToolResult(f"n{number}", "look", f"r{number} {tokens(size)}", error)
        for number, (size, error) in enumerate(turn)
    )
    messages.append(AssistantMessage(asked, tuple(results)))
    said_behind = {"nudge": user("Go on."), "media": user("Look.", IMAGE), "long": user(tokens(1_500))}
    return repair((*messages, *(said_behind[one] for one in behind)))[0]


plans = st.tuples(older, turn, behind, st.sampled_from([0, 20, 2_000]))
"""What `made` makes a history of."""


@given(
    plans,
    st.sampled_from(PRESETS),
    st.sampled_from([2_000, 8_000, 16_000, 32_000, 100_000, None]),
    st.fixed_dictionaries(
        {
            "reason": st.sampled_from(list(R)),
            "harder": st.integers(0, 2),
            "scale": st.sampled_from([0.7, 1.0, 1.9]),
            "instructions": st.sampled_from(["", "rule " * 1_500, "rule " * 12_000]),
        }
    ),
)
@example(([], [(9_000, False)] * 4, [], 0), "default", 32_000, {"reason": R.CEILING})
@example(
    ([("ran", 900)] * 4, [(25_000, False)] * 4, ["nudge"], 0),
    "gemini_cli",
    100_000,
    {"reason": R.OVERFLOW, "harder": 1},
)
@example(([("said", 900)] * 4, [(5_000, True)] * 50, [], 0), "pi", 200_000, {"reason": R.MANUAL})
def test_in_the_next_request_every_unread_result_stands_with_a_share_of_its_text_or_with_a_word_that_it_was_left_out(
    plan: Any, name: str, window: int | None, options: dict[str, Any]
):
    messages, preset = made(*plan), preset_of(name)
    now = situation(messages, window=window, headroom=preset.headroom, low_water=preset.low_water, **options)
    try:
        result = done(proposed(preset, now)).result
    except CompactionError:
        return  # the history is as it was
    assert missing(messages, result.messages) == []
    for form in get_args(Form):
        assert bool(validate(form, to_form(form, result.messages))) <= bool(validate(form, to_form(form, messages)))
    twice = situation(result.messages, window=window, headroom=preset.headroom, low_water=preset.low_water, **options)
    try:
        again = done(proposed(preset, twice)).result
    except CompactionError:
        return
    assert missing(messages, again.messages) == []


@given(plans, st.sampled_from(PRESETS), st.sampled_from([16_000, 32_000]))
def test_results_that_are_smaller_than_their_fair_share_stay_whole(plan: Any, name: str, window: int):
    messages, preset = made(*plan), preset_of(name)
    now = situation(messages, window=window, headroom=preset.headroom, low_water=preset.low_water)
    try:
        result = done(proposed(preset, now)).result
    except CompactionError:
        return
    after = {one.id: one.text for one in unread(result.messages)}
    clipped = [len(after[one.id]) for one in unread(messages) if one.id in after and after[one.id] != one.text]
    for one in unread(messages):
        if one.id in after and clipped and "left out" not in after[one.id]:
            assert len(one.text) <= 1.1 * max(clipped) + 200  # who is whole is not larger than who is clipped


# --- in whole runs


def look(part: int) -> str:
    """Look at a part."""
    raise NotImplementedError


class Reader:
    """An agent that makes so many calls at once, and then says that it is done. Its summaries are
    no good.
    """

    def __init__(self, calls: int, size: int, *, refuses: int = 0, before: int = 0) -> None:
        self.calls, self.size, self.refuses, self.before = calls, size, refuses, before
        self.requests: list[monitor.models.ModelRequest] = []
        self.model = ScriptedModel(self.answer)
        self.read = False

    def answer(self, request: monitor.models.ModelRequest) -> Any:
        if request.tool_choice == "none":
            return "no summary"
        self.requests.append(request)
        if self.before:
            self.before -= 1
            return [call("look", part=100 + self.before)]
        if not self.read:
            self.read = True
            return [call("look", part=part) for part in range(self.calls)]
        if self.refuses:
            self.refuses -= 1
            return RuntimeError("prompt is too long")
        return "Done."

    def look(self, part: int) -> str:
        """Look at a part."""
        return f"part {part} begins here {tokens(self.size if part < 100 else 1_000)}"

    def parts(self) -> list[int]:
        """Whose beginning the last request shows."""
        texts = [result.text for result in unread(self.requests[-1].messages)]
        return [
            part for part in range(self.calls) if any(text.startswith(f"part {part} begins here") for text in texts)
        ]


@pytest.mark.parametrize(
    ("name", "before", "results"),
    [
        (name, *case)
        for at, name in enumerate(PRESETS)
        for case in every_second(product([0, 8], SIZES), odd=at % 2 == 1)
    ],
)
def test_parallel_results_that_fill_the_window_are_all_in_the_next_request(
    name: str, before: int, results: tuple[int, int, int]
):
    calls, size, window = results
    reader = Reader(calls, size, before=before)
    supervisor = monitor.Supervisor(
        reader.model,
        results=monitor.runs.Results(bound=None),
        tools=[reader.look],
        window=window,
        compaction=preset_of(name, summarizer=None),
        last_turn=None,
    )

    async def main() -> None:
        async with supervisor.stream("Read all parts.") as run:
            async for _ in run:
                pass
        assert run.outcome.ok, run.outcome.detail
        (whole,) = [
            one
            for one in run.originals
            if isinstance(one, AssistantMessage) and len(one.results) == calls and "part 0 " in str(one)
        ]
        assert all(len(result.text) >= 4 * size for result in whole.results)  # and all of each stays readable

    asyncio.run(main())
    assert reader.parts() == list(range(calls))
    assert sum(map(message_tokens, reader.requests[-1].messages)) < window


@pytest.mark.parametrize("name", PRESETS)
def test_after_a_refusal_they_are_all_there_too(name: str):
    reader = Reader(6, 2_000, refuses=1, before=3)
    supervisor = monitor.Supervisor(
        reader.model,
        results=monitor.runs.Results(bound=None),
        tools=[reader.look],
        window=32_000,
        compaction=preset_of(name),
        last_turn=None,
    )
    outcome = asyncio.run(supervisor.run("Read all parts."))
    assert outcome.ok, outcome.detail
    assert reader.parts() == list(range(6))


@pytest.mark.parametrize("name", PRESETS)
def test_of_an_unknown_window_four_results_of_half_of_it_cost_one_refusal(name: str):
    reader, window, refused = Reader(4, 16_000), 32_000, list[int]()

    def answer(request: monitor.models.ModelRequest) -> Any:
        size = sum(map(message_tokens, request.messages))
        if size > window:
            refused.append(size)
            return RuntimeError("prompt is too long")
        return reader.answer(request)

    supervisor = monitor.Supervisor(
        ScriptedModel(answer),
        results=monitor.runs.Results(bound=None),
        tools=[reader.look],
        compaction=preset_of(name),
        last_turn=None,
    )
    outcome = asyncio.run(supervisor.run("Read all parts."))
    assert outcome.ok, outcome.detail
    assert len(refused) == 1
    assert reader.parts() == list(range(4))


@pytest.mark.parametrize("name", PRESETS)
def test_by_hand_they_are_all_there_too(name: str):
    reader = Reader(5, 6_000, before=4)
    supervisor = monitor.Supervisor(
        reader.model,
        results=monitor.runs.Results(bound=None),
        tools=[reader.look],
        window=64_000,
        compaction=preset_of(name),
        last_turn=None,
    )

    async def main() -> None:
        async with supervisor.stream("Read all parts.") as run:
            async for event in run:
                if isinstance(event, monitor.events.ToolFinished) and event.result.text.startswith("part 4 "):
                    await run.compact()
        assert run.outcome.ok, run.outcome.detail

    asyncio.run(main())
    assert reader.parts() == list(range(5))
    assert isinstance(reader.requests[-1].messages[0], UserMessage)
    assert "part 103 begins" not in str(unread(reader.requests[-1].messages))


@pytest.mark.parametrize("form", get_args(Form))
@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(("calls", "size", "window"), SIZES)
def test_a_loop_of_one_s_own_has_them_all_after_shorten(form: Form, name: str, calls: int, size: int, window: int):
    results = [f"part {part} begins here {tokens(size)}" for part in range(calls)]
    messages: tuple[Message, ...] = (
        user("Read all parts."),
        *(ran(tokens(300)) for _ in range(5)),
        ran(*results, name="read"),
    )
    shorter, result = asyncio.run(preset_of(name).shorten(form, to_form(form, messages), window=window))
    assert sum(map(message_tokens, result.messages)) < window
    back = repair(read_history(form, shorter), form=form)[0]
    assert [one.text[:12] for one in unread(back)] == [one[:12] for one in results]


@pytest.mark.parametrize("window", [16_000, 32_000])
def test_where_not_even_a_sentence_for_each_has_room_the_summary_says_so(window: int):
    """400 results, and instructions that leave no room."""
    messages = (user("Read."), ran(*[tokens(100)] * 400))
    now = situation(messages, window=window, instructions=tokens(window - 3_000), tokens=window + 1_000)
    result = done(proposed(preset_of("pi"), now)).result
    assert missing(messages, result.messages) == []
    assert "no room for them: look, look" in text_of_user(result.messages[0])  # type: ignore[arg-type]
    assert "and 390 more" in text_of_user(result.messages[0])  # type: ignore[arg-type]


def test_a_note_stands_for_each_result_where_there_is_room_for_no_more():
    messages = (user("Read."), ran(*[tokens(2_000)] * 50))
    now = situation(messages, window=16_000, instructions=tokens(10_000), tokens=130_000)
    result = done(proposed(preset_of("pi"), now)).result
    assert missing(messages, result.messages) == []
    assert all("of this result were left out" in one.text for one in unread(result.messages))


# --- at the mark


@pytest.mark.parametrize("name", PRESETS)
def test_at_the_mark_they_are_not_clipped_as_long_as_the_window_has_room(name: str):
    """They are sent whole, and what is too much is summarised when the model has read them."""
    preset = preset_of(name)
    high = preset.headroom.usable(monitor.Window(64_000)) or 0
    reader = Reader(1, high - 6_000, before=6)
    supervisor = monitor.Supervisor(
        reader.model,
        results=monitor.runs.Results(bound=None),
        tools=[reader.look],
        window=64_000,
        compaction=preset,
        last_turn=None,
    )
    with monitor.testing.capture_events() as events:
        outcome = asyncio.run(supervisor.run("Read all parts."))
    assert outcome.ok
    assert len(unread(reader.requests[-1].messages)[0].text) >= min(4 * (high - 6_000), 4 * 64_000 * 0.3 - 200)
    assert not [event for event in events if isinstance(event, monitor.events.CompactionFailed)]


class Forgetful:
    """A step, or a reducer after a turn, that wants nothing but the newest messages to go."""

    name = "forgetful"

    def reduce(self, messages: tuple[Message, ...], *, head: int = 0) -> tuple[Message, ...]:
        return tuple(map(self.without, messages))

    @staticmethod
    def without(message: Message) -> Message:
        if not isinstance(message, AssistantMessage):
            return message
        return replace(message, results=tuple(replace(result, text="gone") for result in message.results))


class Deletes(Forgetful):
    """One that takes out whole messages."""

    def reduce(self, messages: tuple[Message, ...], *, head: int = 0) -> tuple[Message, ...]:
        return messages[: max(head, len(messages) - 2)]


STEPS = [Forgetful(), Deletes(), PruneResults(protect_turns=0, protect_tokens=0, more_than_tokens=0)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("reason", list(R))
def test_no_step_takes_them_away(step: Any, reason: CompactionReason):
    messages: tuple[Message, ...] = (
        user("Read."),
        *(ran(tokens(2_000)) for _ in range(5)),
        ran(tokens(1_500), tokens(900)),
        user("Go on."),
    )
    result = done(
        proposed(preset_of("default", steps=(step,)), situation(messages, window=16_000, reason=reason))
    ).result
    assert missing(messages, result.messages) == []
    assert [one.text for one in unread(result.messages)] == [tokens(1_500), tokens(900)]


@pytest.mark.anyio
@pytest.mark.parametrize("step", STEPS)
async def test_nothing_that_runs_after_a_turn_takes_them_away(step: Any):
    bench = Bench(messages=(user("Read."), ran(tokens(6_000)), ran(tokens(6_000), tokens(900))), after_turn=(step,))
    bench.compactor.turn_ended()
    pruning = bench.compactor._pruning.task
    assert pruning is not None
    await pruning.wait()
    assert [one.text for one in unread(bench.history.messages)] == [tokens(6_000), tokens(900)]
    assert bench.kinds == ([] if isinstance(step, Deletes) else ["HistoryReduced"])
    await bench.compactor.close()


def test_prune_leaves_them_alone_in_a_loop_of_one_s_own_too():
    prune = PruneResults(protect_turns=0, protect_tokens=0, more_than_tokens=0)
    history = monitor.context.History(
        (user("Read."), ran(tokens(2_000)), ran(tokens(1_000), tokens(3_000)), user("Go on."))
    )
    reduction = reduce_history(history, prune)
    assert reduction is not None
    history.commit(reduction.edit)
    assert [len(one.text) for one in unread(history.messages)] == [4_000, 12_000]
    history.append(said("I have read it."))
    reduction = reduce_history(history, prune)
    assert reduction is not None


def test_what_was_clipped_before_is_clipped_from_the_original_the_next_time():
    """So the note says how long the result is, and not how long it was after the first time."""
    reader = Reader(4, 9_000, refuses=2)
    supervisor = monitor.Supervisor(
        reader.model,
        results=monitor.runs.Results(bound=None),
        tools=[reader.look],
        window=32_000,
        compaction=preset_of("pi", attempts=3),
        last_turn=None,
    )
    outcome = asyncio.run(supervisor.run("Read all parts."))
    assert outcome.ok, outcome.detail
    texts = [[one.text for one in unread(request.messages)] for request in reader.requests[1:]]
    whole = len(reader.look(0))
    assert [f"of {whole} characters left out" in text for sent in texts for text in sent] == [True] * 12
    for first, second in zip_longest(texts[:-1], texts[1:]):
        assert all(len(after) < len(before) for before, after in zip(first, second, strict=True))
