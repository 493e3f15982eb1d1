"""A recorded run as the input of a judge: at the place where its label says that the loop was
plain, else at the end of the run.
"""

from __future__ import annotations

from monitor.chunks import TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.judges.base import MIN_TURNS, JudgeInput
from monitor.judges.digest import Digest
from monitor.outcome import Turn
from monitor.transcripts.base import RecordedRun
from monitor.transcripts.scan import KEPT_FOR_JUDGES

STUCK = "loop"
"""The label of runs that are."""
NOT_STUCK = ("clean", "hard_negative")
"""The labels of runs that are not. What else there is, such as `borderline`, counts neither way."""
WITHIN_ONE_MESSAGE = "text_"
"""Kinds of loops that are written in one message begin so. Detectors of characters see them while
they are written, long before any judge is asked; of a message it sees the opening and the end.
"""


def is_stuck(run: RecordedRun) -> bool | None:
    """What people said; `None`: nothing that a judge could be measured by."""
    if run.label == STUCK:
        return None if run.loop is not None and run.loop.kind.startswith(WITHIN_ONE_MESSAGE) else True
    return False if run.label in NOT_STUCK else None


def question_on(run: RecordedRun) -> JudgeInput | None:
    """What a judge would be told of `run`; `None`: it is too short to be asked about."""
    label = run.loop
    end = next((turn for turn in (label.turn_5, label.turn_3) if turn is not None), None) if label is not None else None
    digest = Digest()
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
                digest.add_turn(Turn(number=turns, text=text, text_chars=chars, tool_calls=tuple(calls)))
                text, chars, calls = "", 0, []
            case ToolResult():
                digest.add_result(chunk)
    return JudgeInput(run.task, digest.render(), turns + 1) if turns >= MIN_TURNS else None
