"""An agent that says the same again and again: told to change its strategy, then stopped. Decided
by the core, with the default ladder.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from monitor.chunks import TextDelta, ToolCall, TurnFinished
from monitor.core.run import RunCore
from monitor.detectors import SimilarMessages, default_detectors
from monitor.errors import FinishReason, TerminateReason
from monitor.events import DetectionRaised, Event, StopDecided
from monitor.policy import Ladder
from monitor.verdicts import Continue, LastTurn, Nudge, Stop, Verdict

PLAN = "I have looked at the parser and will now fix the handling of empty lines, then run the tests again."
OTHER = "The tests pass, but for one that needs a network; I leave it out and write down why."
SHORT = "I go on with the next one."
WORD = "Continuing."


class Run:
    """A run in which the model says one message a turn, and what it is told in between."""

    def __init__(self, detectors: Sequence[SimilarMessages] | None = None) -> None:
        self.events: list[Event] = []
        self.core = RunCore(
            detectors=default_detectors() if detectors is None else detectors, policy=Ladder(), emit=self.events.append
        )
        self.core.begin(0.0)

    def say(self, *messages: str) -> list[Verdict]:
        """The verdict after each message, as long as the run lasts."""
        verdicts: list[Verdict] = []
        for message in messages:
            if self.core.stop is not None or not self.core.begin_turn(0.0):
                break
            self.core.feed_text(message, 0.0)
            self.core.feed(TurnFinished(FinishReason.DONE), 0.0)
            self.core.end_turn(0.0, finished=True)
            verdicts.append(self.core.check(0.0))
        return verdicts

    @property
    def found(self) -> list[str]:
        return [event.detection.kind for event in self.events if isinstance(event, DetectionRaised)]


def kinds(verdicts: Sequence[Verdict]) -> list[type[Verdict]]:
    return [type(verdict) for verdict in verdicts]


@pytest.mark.feature("OM-04")
@pytest.mark.parametrize(
    ("message", "told"),
    [
        pytest.param(PLAN, [Continue, Continue, Nudge, LastTurn, Stop], id="a sentence: three are enough"),
        pytest.param(
            SHORT,
            [Continue, Continue, Nudge, Continue, LastTurn, Stop],
            id="a few words: a suspicion at three, a loop at five",
        ),
        pytest.param(
            WORD, [Continue, Continue, Nudge, *[Continue] * 6, Nudge, LastTurn, Stop], id="one word: a loop at ten"
        ),
    ],
)
def test_equal_messages_are_answered_with_another_strategy_then_with_a_last_turn_then_the_run_ends(
    message: str, told: list[type[Verdict]]
):
    run = Run()
    verdicts = run.say(*[message] * 12)
    assert kinds(verdicts) == told
    nudge = next(verdict for verdict in verdicts if isinstance(verdict, Nudge))
    assert "equal messages" in nudge.text
    assert "Do the next step, or say what keeps you from it." in nudge.text
    stop = verdicts[-1]
    assert isinstance(stop, Stop)
    assert (stop.reason, stop.source) == (TerminateReason.LOOP_DETECTED, "similar_messages")
    outcome = run.core.terminate(0.0)
    assert (outcome.ok, outcome.reason, outcome.turns) == (False, TerminateReason.LOOP_DETECTED, len(told))
    assert sum(isinstance(event, StopDecided) for event in run.events) == 1


@pytest.mark.feature("OM-04")
def test_a_model_that_heeds_the_nudge_goes_on():
    run = Run()
    verdicts = run.say(PLAN, PLAN, PLAN, OTHER, SHORT, "All done.")
    assert kinds(verdicts) == [Continue, Continue, Nudge, Continue, Continue, Continue]
    assert run.core.stop is None


@pytest.mark.feature("OM-04")
@pytest.mark.parametrize("last", [2, 4])
def test_how_many_have_to_be_equal_is_an_option(last: int):
    run = Run([SimilarMessages(suspect_at=None, loop_at=last, equal_loop_at=last)])
    assert kinds(run.say(*[SHORT] * 9)) == [*[Continue] * (last - 1), Nudge, LastTurn, Stop]


@pytest.mark.feature("OM-04")
def test_the_same_words_beside_different_work_are_no_loop():
    run = Run()
    for turn in range(9):
        run.core.begin_turn(0.0)
        run.core.feed(TextDelta(SHORT), 0.0)
        run.core.feed(ToolCall(f"c{turn}", "edit", {"line": turn}), 0.0)
        run.core.feed(TurnFinished(FinishReason.DONE), 0.0)
        run.core.end_turn(0.0, finished=True)
        run.core.tool_result(f"c{turn}", f"line {turn} is written", 0.0)
        assert isinstance(run.core.check(0.0), Continue)
    assert run.found == []


@pytest.mark.feature("ST-09")
def test_outputs_that_differ_by_a_word_are_told_so_and_stopped_like_equal_ones_only_later():
    run = Run()
    words = ("first", "other", "third", "empty", "blank", "plain", "final", "wrong", "newer")
    verdicts = run.say(
        *(f"{PLAN} After that I will turn to the {word} case of the list, as was asked." for word in words)
    )
    assert kinds(verdicts) == [Continue, Continue, Nudge, Continue, LastTurn, Stop]
    assert run.found == ["similar_messages"] * 3
    assert isinstance(verdicts[-1], Stop)
    assert verdicts[-1].detail.startswith("6 nearly equal messages")
