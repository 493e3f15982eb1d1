"""The inputs of a core: each is written as JSON data and read back, and is a call of the core."""

import inspect
import json

import pytest

from monitor.chunks import AskCost, TextDelta, ToolCall, Usage
from monitor.core.replay import inputs
from monitor.core.replay.inputs import (
    CoreInput,
    InputNote,
    LoggedInput,
    RecordedJudge,
    facts_of,
    input_from,
    joined,
    split,
)
from monitor.core.run import RunCore
from monitor.errors import RecordedError, TerminateReason
from monitor.messages import ApprovalRequest
from monitor.models import ErrorKind, ModelError
from monitor.verdicts import Judgement, Stop
from tests.core.finding import LOOP

STOP = Stop(TerminateReason.MAX_TURNS, "too many turns", "max_turns", limit=3, value=4)
JUDGE = RecordedJudge("judge", "loop", 0.9, counts=True)
JUDGEMENT = Judgement("it repeats", 0.95, found=True, judged_by="scripted:model")
CALL = ToolCall("c1", "search", {"q": "\ud83d"})
REQUEST = ApprovalRequest(
    id="a", run="r", call_id="c1", tool="search", arguments={}, schema_hash="h", bound_to="b", why="it asks",
)  # fmt: skip
EXAMPLES = [
    inputs.BeginInput({"window": None}),
    inputs.TakeUpInput("r", ((Usage(input_tokens=1), 0.5),), decides=True),
    inputs.ToolResultInput("c1", "\ud83d", is_error=False, vetoed=True, progress=3),
    inputs.EndTurnInput(
        finished=False, must_finish=True, gave=("image",), error=RecordedError("builtins.OSError", "gone"),
        model_error=ModelError(ErrorKind.UNKNOWN, "gone"),
    ),
    inputs.SourceClosedInput(1.5, closed=True, chunks_dropped=2, note=None),
    inputs.AnswerCallInput(CALL),
    inputs.WillRetryInput(2),
    inputs.MustStopInput(0.25),
    inputs.JudgeAnswerInput(JUDGE, 3, JUDGEMENT, AskCost()),
    inputs.JudgeFailedInput(JUDGE, 3, "late", AskCost()),
    inputs.FoundInput(LOOP),
    inputs.NestedEndedInput(0, Usage(output_tokens=1), 0.5),
    inputs.SpentInput([[1, 0.5]]),
    inputs.LeaveInput(STOP, None),
    inputs.TerminateInput(STOP, None, (REQUEST,)),
    inputs.PauseInput(),
    inputs.AboveNote(STOP),
    inputs.AnswerNote("done", is_error=False),
    inputs.AnswerNote("done", is_error=False, emitted={"a": 1}, output=None, last=None),
    inputs.AskedNote((("judge", 3),)),
    inputs.KeyNote(["a", None]),
]  # fmt: skip
BESIDE = {"recall", "spent"}
"""The kinds that no method takes."""
FOLLOWING = {"child", "compaction_cost", "judge", "nested", "parts", "pending", "turn", "waiting_since"}
"""The fields that follow from the arguments of a call, or from the core."""


@pytest.mark.parametrize("taken", EXAMPLES, ids=lambda taken: taken.what)
def test_an_input_is_read_back_as_it_was_written(taken: CoreInput):
    stored = json.loads(json.dumps(facts_of(taken), allow_nan=False))
    again = input_from(taken.what, stored)
    assert type(again) is type(taken)
    assert facts_of(again) == stored
    assert [type(getattr(again, name)) for name in taken.names] == [type(getattr(taken, name)) for name in taken.names]


def test_a_field_that_has_no_value_is_not_written():
    assert facts_of(inputs.AnswerNote("no", is_error=True)) == {"text": "no", "is_error": True}


def test_objects_are_written_with_their_type_and_errors_by_name_and_message():
    facts = facts_of(inputs.LeaveInput(STOP, ValueError("bad")))
    assert facts["ending"]["type"] == "stop"
    assert facts["error"] == {"type": "builtins.ValueError", "message": "bad"}


@pytest.mark.parametrize("kind", [one for one in CoreInput.kinds.values() if not issubclass(one, InputNote)])
def test_an_input_is_a_call_of_the_core(kind: type[CoreInput]):
    if kind.what in BESIDE:
        assert not hasattr(RunCore, kind.what)
        return
    arguments = inspect.signature(getattr(RunCore, kind.what)).parameters
    assert {*kind.names} - FOLLOWING <= arguments.keys()


def test_chunks_and_inputs_keep_their_order():
    entries: list[LoggedInput] = [
        (1.0, inputs.BeginTurnInput()), (1.5, TextDelta("a")), (2.0, TextDelta("b")), (0.0, inputs.AbortNote("why")),
        (3.0, TextDelta("c")),
    ]  # fmt: skip
    assert [*joined(*split(entries))] == entries


@pytest.mark.parametrize(("what", "facts"), [
    ("dance", {}), ("finish", {}), ("finish", {"detail": "x", "more": 1}), ("begin_turn", {"now": 1}),
])  # fmt: skip
def test_anything_else_is_refused(what: str, facts: dict[str, object]):
    with pytest.raises(ValueError, match=rf"{what}|no input"):
        input_from(what, facts)
