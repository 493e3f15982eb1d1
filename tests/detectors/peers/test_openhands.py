"""OpenHands: the stuck detector of its SDK and of the version before it, restated.

A run of ours is one task: a message of the user that begins another begins another run, so its rows
about old history are about a reset.
"""

from __future__ import annotations

from typing import Any

import pytest

from monitor.chunks import ReasoningDelta
from monitor.detectors import SimilarMessages, ToolCallCycle, ToolCallRepetition, ToolPolicy
from tests.detectors.agent import Agent, letters
from tests.detectors.peers.scripts import agent, loops, numbered, play, row

LS = ("execute_bash", {"command": "ls"}, "a.txt\nb.txt")
BAD = ("execute_bash", {"command": "nonsense"})
FIVE = "three and four in a row recover by themselves more often than not; five do not"
SAID = "I am well, thank you for asking, and wait for what comes next in this task."
TASK = "each message by itself is a fine one; three in a row stop runs that only talk"


def errors(*texts: str) -> list[Any]:
    """The same call, which fails in these ways."""
    return [(*BAD, text, True) for text in texts]


@pytest.mark.feature("ST-07", "ST-08", "ST-09")
@pytest.mark.parametrize(
    ("script", "ours", "options"),
    [
        row("too little happened", [LS], False),
        row("three identical pairs", [LS] * 3, False),
        row("four", [LS] * 4, False, theirs=True, why=FIVE),
        row("five", [LS] * 5, True),
        row("five, words of the agent between", ["Hello.", LS, LS, "Let me see.", LS, LS, LS], True),
        row(
            "five, a different thought beside each",
            [step for n in range(5) for step in (ReasoningDelta(f"Idea {n}."), LS)],
            True,
        ),
        row("twenty other calls before", [*numbered("read", 20, "text {n}"), *[LS] * 5], True),
        row("two identical calls that fail", errors("not found", "not found"), False),
        row("three", errors(*["not found"] * 3), False),
        row("four that fail alike", errors(*["not found"] * 4), False, theirs=True, why=FIVE),
        row("five that fail alike", errors(*["not found"] * 5), True),
        row(
            "five that fail, in other words each",
            errors("not found", "still not found", "another error", "not found", "no"),
            True,
        ),
        row(
            "five that fail, then one that works, and again",
            [*errors("a", "b", "c", "d"), LS, *errors("a", "b", "c", "d")],
            False,
        ),
        row(
            "the same syntax error at the same line", numbered("edit", 5, "SyntaxError: invalid syntax (line 7)"), True
        ),
        row("at another line each time", numbered("edit", 9, "SyntaxError: invalid syntax (line {n})"), False),
        row(
            "at another line each time, the same edit",
            numbered("edit", 9, "print('\nSyntaxError: line {n}", {"code": "print('"}),
            False,
        ),
        row("two incidents", numbered("edit", 2, "SyntaxError: invalid syntax (line 7)"), False),
        row("three incidents", numbered("edit", 3, "SyntaxError: invalid syntax (line 7)"), False),
        row(
            "the error is not the last that was printed",
            numbered("run", 4, "SyntaxError: line 1\nthen {n}", {"code": "x"}),
            False,
        ),
        row("ls and read in turn, three times", [LS, ("read", {"path": "a.txt"}, "text")] * 3, True),
        row("ls and read in turn, twice", [LS, ("read", {"path": "a.txt"}, "text")] * 2, False),
        row(
            "ls, read, pwd, read another",
            [LS, ("read", {"path": "a"}, "1"), ("pwd", {}), ("read", {"path": "b"}, "2")] * 2,
            False,
        ),
        row("four different actions", letters("ABCD"), False),
        row("six in turn", letters("ABABAB"), True),
        row("three equal messages", [SAID] * 3, True),
        row("two", [SAID] * 2, False),
        row(
            "three equal messages, work between",
            [SAID, LS, SAID, ("read", {"n": 1}, "1"), SAID, ("read", {"n": 2}, "2")],
            False,
        ),
        row(
            "three messages, each its own",
            ["I begin.", "I have a plan now.", "Which file do you mean?"],
            False,
            theirs=True,
            why=TASK,
        ),
    ],
)
def test_rows(script: list[Any], ours: bool, options: dict[str, Any]):
    assert loops(script, **options) is ours


def test_three_failures_are_answered_first_by_a_suspicion_as_with_its_nudge():
    run = agent()
    play(run, errors("not found", "still not found", "another error"))
    assert [(found.level, found.count) for found in run.found] == [("suspect", 3)]
    play(run, [("read", {"path": "a"}, "text"), "That was it."])
    assert len(run.found) == 1


def test_a_message_of_the_user_that_begins_another_task_begins_another_run():
    run = agent()
    play(run, [LS] * 5)
    assert run.kinds
    for detector in run.detectors:
        detector.reset()
    run.found.clear()
    play(run, [LS, LS])
    assert run.found == []


def test_its_thresholds_are_options():
    run = Agent(ToolCallRepetition(suspect_at=3, loop_at=4), SimilarMessages(loop_at=3), ToolCallCycle(rounds=3))
    play(run, [LS] * 4)
    assert run.kinds == {"identical_calls"}


def test_output_that_differs_by_process_id_and_time_alone_can_be_told():
    script = numbered("execute_bash", 5, "done\n[pid 100{n}, took: 0.{n}]", {"command": "make"})
    assert loops(script, tools={"execute_bash": ToolPolicy(volatile=("pid", "took"))})
    assert not loops(script)
