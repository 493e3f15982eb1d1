"""Smaller rules of other systems, restated: goose, opencode, vLLM, ADK, deepagents, agentbrake,
pi-go, open proposals and complaints.
"""

from __future__ import annotations

from typing import Any

import pytest

from monitor.chunks import TurnFinished
from monitor.core.run import RunCore
from monitor.detectors import ToolCallRepetition, ToolPolicy
from monitor.errors import FinishReason, TerminateReason
from monitor.policy import StopAtFirstLoop
from tests.detectors.agent import letters
from tests.detectors.peers.scripts import agent, chants, in_pieces, loops, numbered, play, row

SAME = ("fetch_user", {"id": 123})
EARLY = "three recover by themselves more often than not: a suspicion, which a ladder answers with a nudge"
DECLARED = ToolPolicy(paginating=True)


@pytest.mark.feature("ST-07", "ST-08")
@pytest.mark.parametrize(
    ("script", "ours", "options"),
    [
        row(
            "goose: at most two in a row, the third",
            [SAME] * 3,
            True,
            detectors=[ToolCallRepetition(suspect_at=None, loop_at=3)],
        ),
        row(
            "goose: another argument between",
            [SAME, SAME, ("fetch_user", {"id": 456}), ("fetch_user", {"id": 456})],
            False,
            detectors=[ToolCallRepetition(suspect_at=None, loop_at=3)],
        ),
        row(
            "goose: the same error three times, other arguments",
            numbered("sql", 3, "Error: no such table"),
            False,
            theirs=True,
            why=EARLY,
        ),
        row("goose: the same error five times", numbered("sql", 5, "Error: no such table"), True),
        row("opencode: three in a row", [SAME] * 3, False, theirs=True, why=EARLY),
        row(
            "opencode: five, each in its own message",
            [SAME] * 5,
            True,
            theirs=False,
            why="a loop goes from message to message",
        ),
        row(
            "ADK: three in a run, not in a row",
            letters("AxAyA"),
            False,
            theirs=True,
            why="coding agents do look twice; what repeats without news is seen",
        ),
        row("deepagents: three in a row", [SAME] * 3, False, theirs=True, why=EARLY),
        row("pydantic-ai-harness: five equal calls", [SAME] * 5, True),
        row(
            "pydantic-ai-harness: the same result three times",
            numbered("get", 3, "same", {}),
            False,
            theirs=True,
            why=EARLY,
        ),
        row("pydantic-ai-harness: three rounds of A-B", letters("ABABAB"), True),
        row("pydantic-deepagents: three files attached, each `True`", numbered("attach_file", 3, "True"), False),
        row("pydantic-deepagents: twelve", numbered("attach_file", 12, "True"), False),
        row("agentbrake: pages", numbered("get_page", 12, "page {n}"), False),
        row("agentbrake: empty pages", numbered("get_page", 12, "[]"), False, tools={"get_page": DECLARED}),
        row(
            "agentbrake: the same page again and again",
            numbered("get_page", 5, "[]", {"page": 7}),
            True,
            tools={"get_page": DECLARED},
        ),
        row("hermes: 52 identical commands", numbered("terminal", 52, "ok", {"command": "make"}), True),
        row("weave: a batch of writes that all say the same", numbered("edit", 30, "The file was updated."), False),
        row(
            "tau-bench: the one loop in 200 runs, a thought between",
            [
                ("book_reservation", {"flight": 1}, "Error: seat taken", True),
                ("think", {"thought": "I will try again"}, ""),
            ]
            * 5,
            True,
        ),
        row("seven siblings that fail together", [numbered("read", 7, "No such file", error=True)], False),
        row(
            "five times seven siblings that fail together",
            [numbered("read", 7, f"No such file in {n}", error=True) for n in [1] * 5],
            True,
        ),
    ],
)
def test_rows(script: list[Any], ours: bool, options: dict[str, Any]):
    assert loops(script, **options) is ours


def test_the_ladders_of_three_are_suspicions_here():
    run = agent()
    play(run, [SAME] * 3)
    assert [(found.level, found.count) for found in run.found] == [("suspect", 3)]


@pytest.mark.feature("GL-02")
@pytest.mark.parametrize(
    ("text", "ours", "options"),
    [
        row("vLLM: a pattern of three tokens, long enough to cost something", "one two three " * 20, True),
        row(
            "vLLM: four copies of eight tokens are too little text",
            "a b c d e f g h " * 4,
            False,
            theirs=True,
            why="72 characters cost nothing yet",
        ),
        row(
            "vLLM: a paragraph",
            "This paragraph is longer than any eight tokens, and so they never look at it as a whole, for years. " * 6,
            True,
        ),
        row("llama.cpp: one character", "n" * 400, True),
        row("hermes and pi: The the the", "The " + "the " * 200, True),
        row("oh-my-pi: punctuation", "?!? " * 200, True),
    ],
)
def test_texts(text: str, ours: bool, options: dict[str, Any]):
    assert chants(text) is ours


def test_pi_go_thinking_is_judged_by_what_it_says_not_by_its_length():
    """There fifty pieces and 16 KB of thinking without a call are a loop."""
    assert in_pieces("I have to think about this once more, from the beginning. " * 40, 9, thinking=True)
    assert not in_pieces(
        "".join(f"Step {n * n} of {n * 7919 % 1000} is {n * 31 % 977}; " for n in range(900)), 9, thinking=True
    )


@pytest.mark.feature("GL-02")
@pytest.mark.parametrize(
    ("finish", "said"),
    [
        (FinishReason.REPETITION, "repetition"),
        (FinishReason.DONE, "repetition_detected"),
        (FinishReason.BLOCKED, "repetition"),
    ],
)
def test_vllm_a_server_that_stops_its_model_for_repetition_has_found_a_loop(finish: FinishReason, said: str):
    core = RunCore(detectors=[], policy=StopAtFirstLoop(), emit=lambda event: None)
    core.begin(0.0)
    core.begin_turn(0.0)
    core.feed_text("one two three " * 3, 0.0)
    core.feed(TurnFinished(finish, said), 0.0)
    core.end_turn(0.0, finished=True)
    outcome = core.terminate(0.0)
    assert (outcome.reason, outcome.source) == (TerminateReason.LOOP_DETECTED, "provider")
    assert outcome.detail == f"the provider stopped its model for repetition ({said})"
