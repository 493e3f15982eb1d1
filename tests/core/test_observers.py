"""What one watcher of a run is shown, the others are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monitor import events
from monitor.chunks import Chunk, ToolCall, ToolResult
from monitor.core.detector_bank import abridged_arguments
from monitor.core.observers import Observers
from monitor.detectors import ContentRepetition
from monitor.messages import SteerMessage
from monitor.policy import Ladder, Policy, StopAtFirstLoop
from monitor.verdicts import Continue, Detection, Nudge, Stop
from tests.core.finding import LOOP

RAISED = events.DetectionRaised(1.0, 1, LOOP)


class _Notes(ContentRepetition):
    """A detector that notes what it is shown."""

    def __init__(self) -> None:
        super().__init__(name="notes")
        self.shown: list[Any] = []

    def observe(self, chunk: Chunk) -> Sequence[Detection]:
        self.shown.append(chunk)
        return ()

    def request(self, text: str) -> None:
        self.shown.append(text)

    def forget_streaks(self) -> None:
        self.shown.append("forget")


def watchers(policy: Policy | None = None, **options: Any) -> tuple[Observers, _Notes]:
    notes = _Notes()
    parts: dict[str, Any] = {"judges": (), "task": None, "loop_key": None, **options}
    return Observers([notes], None, policy=policy or StopAtFirstLoop(), **parts), notes


def test_a_call_is_shown_with_what_its_tool_says_identifies_it_and_abridged():
    made, notes = watchers(loop_key=lambda name, arguments: (name, len(arguments["text"])))
    call = ToolCall("a", "write", {"text": "x" * 500_000})
    made.call(call, abridged_arguments(call.arguments))
    (shown,) = notes.shown
    assert shown.loop_key == ("write", 500_000)
    assert len(shown.arguments["text"]) < 500_000


def test_only_news_of_a_person_clears_what_the_detectors_and_the_policy_have_counted():
    made, notes = watchers(Ladder())
    made.verdicts.verdict_on(LOOP)
    made.hear(SteerMessage(id="1", text="go on"), 1, is_progress=False)
    assert notes.shown == []
    made.hear(SteerMessage(id="2", text="read the other file"), 1, is_progress=True)
    assert notes.shown == ["read the other file", "forget"]
    assert isinstance(made.verdicts.verdict_on(LOOP), Nudge)


def test_what_is_found_again_was_answered_then_but_for_the_last_verdict():
    answered, _ = watchers()
    assert answered.see_again([RAISED, events.Nudged(2.0, 1, "go on")], _nothing) == (0, None)
    open_, _ = watchers()
    said, stop = open_.see_again([RAISED], _nothing)
    assert (said, isinstance(stop, Stop)) == (0, True)


def test_a_ladder_climbs_on_where_it_stood_in_the_process_before():
    made, _ = watchers(Ladder())
    made.see_again([RAISED, events.Nudged(2.0, 1, "go on")], _nothing)
    assert isinstance(made.next_verdict(1), Continue)
    assert not isinstance(made.verdicts.verdict_on(LOOP), Nudge)


def test_a_huge_result_is_abridged_for_all():
    made, notes = watchers()
    made.result(ToolResult("a", "read", "x" * 500_000))
    assert len(notes.shown[0].text) < 500_000


def _nothing(message: SteerMessage, turn: int) -> None:
    """Nobody listens."""
