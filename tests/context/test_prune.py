"""Old results and old large arguments go, the newest stay. Rows M* are those of Gemini CLI's own
tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from monitor import AssistantMessage, ConfigError, UserMessage
from monitor.chunks import ToolCall
from monitor.context import History, PruneArguments, PruneResults, propose_edit, read_history, repair
from monitor.messages import Message
from tests.context.talk import ran, results, said, tokens, user


def cleared(messages: tuple[Message, ...]) -> list[bool]:
    """By result, whether it went."""
    return [text.startswith("[Old tool result cleared: ") for text in results(messages)]


def turns(*sizes: int, name: str = "look") -> tuple[Message, ...]:
    """A user turn for each size, with a result of so many tokens."""
    return tuple(message for size in sizes for message in (user("go"), ran(tokens(size), name=name)))


@pytest.mark.feature("OC-02")
def test_behind_the_newest_two_turns_40000_tokens_of_results_stay_and_older_ones_go():
    messages = turns(15_000, 15_000, 30_000, 10_000, 50_000, 50_000)
    assert cleared(PruneResults().reduce(messages)) == [True, True, False, False, False, False]


@pytest.mark.feature("OC-02")
def test_the_result_that_exceeds_the_protected_tokens_goes():
    assert cleared(PruneResults().reduce(turns(21_000, 41_000, 1, 1))) == [True, True, False, False]


@pytest.mark.feature("OC-02")
def test_nothing_goes_unless_more_than_20000_tokens_would():
    exactly, more = turns(20_000, 40_000, 1, 1), turns(20_001, 40_000, 1, 1)
    assert PruneResults().reduce(exactly) is exactly
    assert cleared(PruneResults().reduce(more)) == [True, False, False, False]


@pytest.mark.feature("OC-02")
def test_results_of_a_turn_are_taken_from_its_end():
    messages = (user("go"), ran(*[tokens(15_000)] * 5), *turns(1, 1))
    assert cleared(PruneResults().reduce(messages)) == [True, True, True, False, False, False, False]


@pytest.mark.feature("OC-02")
def test_protected_tools_neither_go_nor_count():
    messages = turns(20_000) + turns(90_000, name="skill") + turns(20_000, 1, 1)
    assert PruneResults().reduce(messages) is messages


@pytest.mark.feature("OC-02")
def test_pruning_stops_at_a_summary_and_at_what_was_pruned_before():
    old = turns(50_000, 50_000)
    messages = (*old, *turns(50_000, 30_000, 1, 1))
    assert cleared(PruneResults().reduce(messages, head=4)) == [False, False, True, False, False, False]
    pruned = PruneResults().reduce(turns(50_000, 50_000, 1, 1)) + turns(30_000, 30_000)
    assert cleared(pruned[:4]) == [True, True]
    grown = (*turns(90_000), *pruned)
    assert PruneResults().reduce(grown) is grown


@pytest.mark.feature("OC-02")
def test_what_the_model_sees_is_a_marker_and_the_original_stays_readable():
    """K12, K15: no file has to be written for it, so none can fail to be."""
    history = History(turns(50_000, 50_000, 1, 1))
    reduction = propose_edit(history, PruneResults())
    assert reduction is not None
    history.commit(reduction.edit)
    assert results(history.messages)[0] == "[Old tool result cleared: 200000 characters]"
    assert results(history.behind(1, 2)) == [tokens(50_000)]
    assert results(history.originals) == results(turns(50_000, 50_000, 1, 1))


def test_errors_stay_because_they_keep_the_model_from_trying_again():
    messages = (user("go"), ran(tokens(90_000), is_error=True), *turns(90_000, 1, 1))
    assert cleared(PruneResults().reduce(messages)) == [False, True, False, False]


def test_an_edit_made_after_a_turn_is_committed_while_the_next_one_is_being_written():
    history = History(turns(50_000, 50_000, 1, 1))
    reduction = propose_edit(history, PruneResults())
    history.append(user("and now?"))
    assert reduction is not None
    history.commit(reduction.edit)
    assert cleared(history.messages) == [True, True, False, False]
    assert isinstance(history.messages[-1], UserMessage)


# --- Gemini CLI's masking


def test_m1_every_number_can_be_set():
    small = PruneResults(protect_turns=0, protect_tokens=10, more_than_tokens=5)
    assert cleared(small.reduce(turns(50, 50, 6))) == [True, True, False]


def test_m2_little_is_left_as_it_is():
    messages = turns(100, 100)
    assert PruneResults.gemini_cli().reduce(messages) is messages


def test_m3_of_60000_20000_and_10000_tokens_only_the_oldest_goes():
    masked = results(PruneResults.gemini_cli().reduce((*turns(60_000, 20_000, 10_000), user("next"))))
    assert [len(text) < 1_000 for text in masked] == [True, False, False]


def test_m4_of_twelve_times_10000_tokens_six_go():
    masked = results(PruneResults.gemini_cli().reduce(turns(*[10_000] * 12)))
    assert [len(text) < 1_000 for text in masked] == [True] * 6 + [False] * 6


def test_m5_a_preview_keeps_how_it_began_and_how_it_ended():
    output = "Output: " + tokens(60_000) + "\nError: boom\nExit Code: 1"
    (text, _, _) = results(PruneResults.gemini_cli().reduce((user("go"), ran(output), *turns(50_000, 1))))
    assert text.startswith("Output: word")
    assert text.endswith("\nError: boom\nExit Code: 1")
    assert f"\n[Old tool result cleared: {len(output)} characters]\n" in text


def test_m6_what_has_gone_does_not_go_again():
    once = PruneResults.gemini_cli().reduce(turns(*[10_000] * 12))
    assert PruneResults.gemini_cli().reduce(once) is once


def test_m7_a_response_without_an_output_is_masked_as_its_json():
    def turn(size: int) -> list[dict[str, Any]]:
        call = {"name": "look", "args": {}}
        response = {"name": "look", "response": {"stdout": tokens(size), "exitCode": 0}}
        return [
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [{"functionCall": call}]},
            {"role": "user", "parts": [{"functionResponse": response}]},
        ]

    messages, _ = repair(read_history("gemini", [*turn(60_000), *turn(40_000), *turn(1)]))
    old, kept, newest = results(PruneResults.gemini_cli().reduce(messages))
    assert old.startswith('{"exitCode": 0, "stdout": "word')
    assert "[Old tool result cleared: " in old
    assert (len(kept), len(newest)) == (4 * 40_000 + 29, 4 + 29)


def test_m8_what_stands_beside_a_result_stays():
    talk = ran(tokens(90_000))
    message = AssistantMessage((*said("I look.").content, *talk.content), talk.results)
    pruned = PruneResults().reduce((user("go"), message, *turns(1, 1)))[1]
    assert pruned.content is message.content
    assert cleared((pruned,)) == [True]


def test_m9_a_result_shorter_than_the_marker_stays():
    messages = turns(*[5] * 9, 1, 1)
    assert PruneResults(protect_tokens=0, more_than_tokens=0).reduce(messages) is messages


def test_m10_an_exempt_tool_never_goes():
    messages = turns(*[90_000] * 5, name="memory")
    assert PruneResults(protected_tools=frozenset({"memory"})).reduce(messages) is messages


# --- arguments


def written(text: str, name: str = "write_file", **more: Any) -> AssistantMessage:
    return ran("ok", name=name, arguments={"path": "a.py", "content": text, **more})


def arguments(messages: tuple[Message, ...]) -> list[Any]:
    return [part.arguments for message in messages for part in message.content if isinstance(part, ToolCall)]


def test_s25a_large_arguments_of_old_writes_go_and_everything_else_stays():
    old = (
        user("go"),
        written("x" * 5_000),
        written("x" * 2_000),
        written("x" * 5_000, name="search"),
        written("short"),
    )
    messages: tuple[Message, ...] = (*old, *[said("hm")] * 19, written("y" * 5_000))
    pruned = PruneArguments().reduce(messages)
    assert arguments(pruned)[0] == {"path": "a.py", "content": "x" * 20 + "... [5000 characters cleared]"}
    assert [new is message for new, message in zip(pruned, messages, strict=True)] == [True, False] + [True] * 23
    assert PruneArguments().reduce(pruned) is pruned


def test_arguments_of_a_call_without_a_result_stay():
    waiting = ToolCall("1", "write_file", {"content": "x" * 5_000})
    answered = written("y" * 5_000)
    both = AssistantMessage((waiting, *answered.content), answered.results)
    messages: tuple[Message, ...] = (user("go"), AssistantMessage((waiting,)), both, *[said("hm")] * 20)
    pruned = PruneArguments().reduce(messages)
    assert pruned[:2] == messages[:2]
    assert pruned[2].content[0] is waiting
    assert pruned[2].content[1] != both.content[1]


def test_a_call_with_other_arguments_is_not_the_call_that_the_sdk_made():
    made = ToolCall("0", "write_file", {"content": "x" * 5_000}, raw=object())
    (pruned,) = PruneArguments(protect_messages=0).reduce((AssistantMessage((made,), written("x").results),))[0].content
    assert isinstance(pruned, ToolCall)
    assert pruned.raw is None


def test_arguments_of_every_tool_go_where_that_is_asked_for():
    everything = PruneArguments(tools=None, protect_messages=0)
    messages = (user("go"), written("x" * 5_000, name="search", n=3, deep={"x": "y" * 5_000}))
    (pruned,) = arguments(everything.reduce(messages))
    assert pruned == {
        "path": "a.py",
        "content": "x" * 20 + "... [5000 characters cleared]",
        "n": 3,
        "deep": {"x": "y" * 5_000},
    }


@pytest.mark.parametrize("given", ['{"content": "xxx', None, ["x" * 5_000]])
def test_arguments_that_are_no_object_stay(given: Any):
    messages = (user("go"), ran("ok", name="write_file", arguments=given))
    assert PruneArguments(protect_messages=0).reduce(messages) is messages


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: PruneResults(protect_turns=-1),
        lambda: PruneResults(protect_tokens=1.5),  # type: ignore[arg-type]
        lambda: PruneResults(keep_chars=True),
        lambda: PruneArguments(max_chars=50),
        lambda: PruneArguments(protect_messages=-1),
    ],
)
def test_numbers_that_make_no_sense_are_errors(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        wrong()
