"""What a judge asks and how it takes the answers."""

from __future__ import annotations

from typing import Any

import pytest

import monitor
from monitor.errors import AdapterError, ConfigError
from monitor.judges import as_judges
from monitor.judges.judge import Judge, JudgeInput, JudgeLines
from monitor.judges.question import DONE_INSTRUCTIONS, LOOP_INSTRUCTIONS, REPLY_SCHEMA
from monitor.messages import Text, UserMessage
from monitor.models import Model, ModelRequest
from monitor.testing import ScriptedModel
from monitor.verdicts import Judgement

RUN = JudgeInput("Find it.", "no calls", 30)


class Desk:
    """Answers questions without a model, and keeps them."""

    def __init__(self, *answers: float | str | Exception) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, ModelRequest]] = []

    async def __call__(self, model: Model, request: ModelRequest) -> str:
        self.asked.append((model.name, request))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else f'{{"analysis": "because", "confidence": {answer}}}'


FIRST, SECOND = ScriptedModel(name="small"), ScriptedModel(name="large")


@pytest.mark.anyio
async def test_it_asks_the_model_once_with_the_record_and_the_form_of_the_reply():
    desk = Desk(0.1)
    judgement = await monitor.LoopJudge(FIRST, settings={"temperature": 0}).review(RUN, desk)
    ((name, request),) = desk.asked
    assert name == "small"
    assert request.instructions == LOOP_INSTRUCTIONS
    assert request.settings == {"temperature": 0}
    assert request.reply_schema == REPLY_SCHEMA
    (message,) = request.messages
    assert isinstance(message, UserMessage)
    (text,) = message.content
    assert isinstance(text, Text)
    assert '"Find it."' in text.text
    assert judgement == Judgement("because", 0.1, found=False, judged_by="small")


@pytest.mark.feature("GL-05")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("confidence", "default", "article"),
    [(0.69, False, False), (0.7, True, False), (0.9, True, False), (0.91, True, True), (1, True, True)],
)
async def test_found_at_07_and_in_the_preset_of_the_article_above_09(confidence: float, default: bool, article: bool):
    assert (await monitor.LoopJudge(FIRST).review(RUN, Desk(confidence))).found is default
    assert (await monitor.LoopJudge.article(FIRST).review(RUN, Desk(confidence))).found is article


@pytest.mark.feature("GL-05")
def test_the_preset_of_the_article_asks_at_turn_30_and_again_after_3_turns():
    schedule = monitor.LoopJudge.article(FIRST).schedule()
    assert [schedule.due(turn, 5, doubted=True) for turn in (29, 30)] == [False, True]
    schedule.asked(30)
    schedule.in_flight = False
    assert [schedule.due(turn) for turn in (32, 33)] == [False, True]
    assert (schedule.lines, schedule.share) == (None, None)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answers", "judgement"),
    [
        ([0.7, 0.69], Judgement("because", 0.69, found=False, judged_by="large")),
        ([0.9, 0.97], Judgement("because", 0.97, found=True, judged_by="large")),
        ([0.69], Judgement("because", 0.69, found=False, judged_by="small")),
    ],
)
async def test_the_second_model_has_the_last_word_where_the_first_is_sure(answers: list[float], judgement: Judgement):
    desk = Desk(*answers)
    assert await monitor.LoopJudge(FIRST, confirm_with=SECOND).review(RUN, desk) == judgement
    assert [name for name, _ in desk.asked] == ["small", "large"][: len(answers)]
    assert len({id(request) for _, request in desk.asked}) == 1  # the very same question


@pytest.mark.anyio
async def test_without_a_second_model_the_first_confirms_itself():
    desk = Desk(0.9)
    assert (await monitor.LoopJudge(FIRST).review(RUN, desk)).found
    assert len(desk.asked) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("failure", [TimeoutError("slow"), "no idea"])
async def test_a_second_model_that_gives_no_answer_leaves_nothing_found(failure: Exception | str):
    with pytest.raises((TimeoutError, AdapterError)):
        await monitor.LoopJudge(FIRST, confirm_with=SECOND).review(RUN, Desk(0.95, failure))


@pytest.mark.feature("ST-05")
@pytest.mark.anyio
async def test_the_judge_of_completion_asks_another_question_from_turn_2_on():
    desk = Desk(0.8)
    judge = monitor.judges.DoneJudge(FIRST)
    assert (await judge.review(RUN, desk)).found
    assert desk.asked[0][1].instructions == DONE_INSTRUCTIONS
    assert (judge.name, judge.fact) == ("done_judge", "done")
    assert [judge.schedule().due(turn) for turn in (1, 2)] == [False, True]


def test_judges_are_judges():
    judges: list[Judge] = [
        monitor.LoopJudge(FIRST),
        monitor.judges.DoneJudge(FIRST),
        monitor.LoopJudge.article(FIRST, name="mine"),
    ]
    assert [judge.name for judge in judges] == ["loop_judge", "done_judge", "mine"]


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 0},
        {"threshold": 1.1},
        {"first_turn": 0},
        {"first_interval": 0},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"confirm_with": "google:gemini"},
        {"share": 0},
        {"share": 2},
        {"lines": 0.5},
        {"lines": JudgeLines(unsure=0.8)},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError):
        monitor.LoopJudge(FIRST, **options)


def test_a_model_is_no_name():
    with pytest.raises(ConfigError, match=r"write model=monitor.model\('google:gemini-2.5-flash'\)"):
        monitor.LoopJudge("google:gemini-2.5-flash")  # type: ignore[arg-type]


@pytest.mark.feature("US-01")
def test_a_model_or_its_name_is_a_judge():
    pytest.importorskip("google.genai")
    own = as_judges(FIRST, monitor.model)
    named = as_judges("google:gemini-2.5-flash-lite", monitor.model)
    several = as_judges([SECOND, DONE_JUDGE], monitor.model)
    assert [type(judge) for judge in (*own, *named)] == [monitor.LoopJudge, monitor.LoopJudge]
    assert [judge.name for judge in several] == ["loop_judge", "done_judge"]
    assert as_judges(None, monitor.model) == as_judges([], monitor.model) == ()


DONE_JUDGE = monitor.judges.DoneJudge(FIRST)


class Half:
    name, threshold, timeout_s, counts = "half", 0.9, 1.0, False
    fact = "loop"

    def schedule(self) -> None:
        """Not asked for here."""

    async def review(self, run: JudgeInput, ask: Any) -> None:
        """Not asked for here."""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (object(), "judge takes a judge"),
        (monitor.LoopJudge, "judge takes a judge"),
        ("gemini", "write the provider, a colon"),
        ("own model", "write the provider, a colon"),
        ([monitor.LoopJudge(FIRST), monitor.LoopJudge(FIRST)], "same name"),
        (type("NoName", (), {"review": Half.review})(), "has no name, fact"),
        (type("OddFact", (Half,), {"fact": "bored"})(), "'loop' or 'done', not 'bored'"),
    ],
)
def test_what_is_no_judge_is_refused_where_it_is_given(given: Any, said: str):
    with pytest.raises(ConfigError, match=said):
        monitor.Guard(judge=given)
