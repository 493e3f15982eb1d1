"""A recorded run as the input of a judge: up to the repetition at which the labelled loop is
evident, else the whole run.
"""

from __future__ import annotations

from monitor.chunks import TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.detectors.calls.novelty.state_novelty import StateNovelty
from monitor.judges.digest import Digest
from monitor.judges.doubts import Doubts
from monitor.judges.judge import MIN_TURNS, JudgeInput
from monitor.outcome import Turn
from monitor.transcripts.analysis.scan import KEPT_FOR_JUDGES
from monitor.transcripts.base import RecordedRun

STUCK = "loop"
"""The label that a corpus gives to stuck runs."""
NOT_STUCK = ("clean", "hard_negative")
"""The labels of other runs. Any further label, such as `borderline`, is not counted."""
WITHIN_ONE_MESSAGE = "text_"
"""Prefix of the kinds of loops within one message. Detectors of characters see them while they are
written, long before a judge is asked. A judge sees only the opening and the end of a message.
"""


def is_stuck(run: RecordedRun) -> bool | None:
    """Whether the label says that the run is stuck. `None`: the label does not decide."""
    if run.label == STUCK:
        return None if run.loop is not None and run.loop.kind.startswith(WITHIN_ONE_MESSAGE) else True
    return False if run.label in NOT_STUCK else None


def question_on(run: RecordedRun) -> JudgeInput | None:
    """The judge's input for `run`. `None`: the run is too short."""
    label = run.loop
    end = next((turn for turn in (label.turn_5, label.turn_3) if turn is not None), None) if label is not None else None
    digest, doubts = Digest(), Doubts(StateNovelty(), run.task)
    turns, text, calls = 0, "", list[ToolCall]()
    chars = 0
    for index, chunk in run.chunks():
        if end is not None and index > end and not isinstance(chunk, ToolResult):
            break
        match chunk:
            case TextDelta():
                text, chars = chunk.text[:KEPT_FOR_JUDGES], len(chunk.text)
            case ToolCall():
                calls.append(chunk)
            case TurnFinished():
                turns += 1
                turn = Turn(number=turns, text=text, text_chars=chars, tool_calls=tuple(calls))
                digest.add_turn(turn)
                doubts.add_turn(turn)
                text, chars, calls = "", 0, []
            case ToolResult():
                digest.add_result(chunk)
                doubts.add_result(chunk)
    return JudgeInput(run.task, digest.render(), turns + 1, doubts.render()) if turns >= MIN_TURNS else None
