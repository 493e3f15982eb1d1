"""Failed attempts at a turn: which are made again, how often, and that they leave no trace. Rows R
restate Gemini CLI's stream cases.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import monitor
from monitor.models import ErrorKind, ModelError
from monitor.testing import FakeClock, LocalGemini, ScriptedModel, call
from monitor.testing.gemini_steps import blocked, error_reply, finish, rate_limited, text, thought
from monitor.testing.gemini_steps import call as google_call
from tests.adapters.google.sdk import sdk
from tests.runs.driving import SENTENCE, Drive, Reason, drive, look

MALFORMED = monitor.chunks.TurnFinished(monitor.FinishReason.MALFORMED, "MALFORMED_FUNCTION_CALL")
BLOCKED = monitor.chunks.TurnFinished(monitor.FinishReason.BLOCKED, "SAFETY")
AT_ONCE = monitor.Retries(first_delay_s=0)

INVALID = [
    pytest.param([], "it said nothing", id="R3-empty"),
    pytest.param(["  \n"], "it said nothing", id="blank"),
    pytest.param(["\u200b\u2060\ufeff"], "it said nothing", id="R16-zero-width"),
    pytest.param([monitor.chunks.ReasoningDelta("hm")], "it thought, and said nothing", id="R15-thoughts-only"),
    pytest.param(["half", MALFORMED], "MALFORMED_FUNCTION_CALL", id="R13-malformed"),
]


class Classified:
    """A model whose errors say by themselves what kind they are."""

    needs_finish = False
    drains = False

    def __init__(self, stream: int = 0) -> None:
        pass

    def decode(self, item: Any) -> Any:
        return (monitor.chunks.TextDelta(item),) if isinstance(item, str) else (item,)

    def finish(self) -> Any:
        return ()

    def classify(self, error: BaseException) -> ModelError:
        assert isinstance(error, Failed)
        return ModelError(error.kind, str(error), error.retry_after_s)


class Failed(Exception):
    def __init__(self, kind: ErrorKind, retry_after_s: float | None = None) -> None:
        super().__init__(f"{kind} happened")
        self.kind, self.retry_after_s = kind, retry_after_s


def failing(*answers: Any) -> ScriptedModel:
    model: Any = ScriptedModel(*answers)
    model.adapter = Classified
    checked: ScriptedModel = model
    return checked


@pytest.mark.anyio
class TestAnswersThatAreNone:
    @pytest.mark.parametrize(("answer", "said"), INVALID)
    async def test_they_are_asked_for_again_at_once_and_leave_no_trace(self, answer: list[Any], said: str):
        run = await drive(call("look", q="x"), answer, "It is noon.", tools=[look])
        assert run.outcome.reason is Reason.GOAL
        assert (run.outcome.turns, len(run.requests)) == (2, 3)
        assert run.requests[2] == run.requests[1]
        assert len(run.run.history) == 3
        assert [(event.turn, event.attempt, event.after_s) for event in run.of(monitor.events.RetryScheduled)] == [
            (2, 2, 0)
        ]
        assert said in run.of(monitor.events.RetryScheduled)[0].why
        assert [(event.turn, event.model_call) for event in run.of(monitor.events.TurnStarted)] == [
            (1, 1),
            (2, 2),
            (2, 3),
        ]
        assert len(run.of(monitor.events.AttemptRetried)) == 1

    @pytest.mark.parametrize(("answer", "said"), INVALID)
    @pytest.mark.parametrize("attempts", [0, 3])
    async def test_they_are_asked_for_so_often_and_then_the_run_ends(self, answer: list[Any], said: str, attempts: int):
        """R19: four calls, three retries."""
        run = await drive(lambda request: answer, requests=monitor.runs.Requests(retries=monitor.Retries(attempts)))
        assert (run.outcome.reason, run.outcome.ok) == (Reason.INVALID_STREAM, False)
        assert said in run.outcome.detail
        assert len(run.requests) == attempts + 1
        assert len(run.of(monitor.events.RetryScheduled)) == attempts
        assert len(run.run.history) == 1

    @pytest.mark.parametrize("row", ["R1", "R2", "R7", "R9"])
    async def test_a_turn_with_a_call_is_a_turn_whatever_else_is_in_it(self, row: str):
        model = ScriptedModel(
            [monitor.chunks.ReasoningDelta("hm"), call("look", q="x"), ""], "It is noon.", finishes=False
        )
        run = await Drive(model=model, tools=[look]).go()
        assert run.outcome.reason is Reason.GOAL
        assert run.of(monitor.events.RetryScheduled) == []

    @pytest.mark.parametrize("text", [[], ["half an answer"]])
    async def test_a_block_by_a_filter_is_never_tried_again(self, text: list[str]):
        """Gemini CLI tries again, and is refused again."""
        run = await drive([*text, BLOCKED])
        assert (run.outcome.reason, len(run.requests)) == (Reason.BLOCKED, 1)
        assert "SAFETY" in run.outcome.detail
        assert run.of(monitor.events.LastTurnStarted) == []

    async def test_each_turn_has_its_own_attempts(self):
        run = await drive(
            "",
            "",
            call("look", q="x"),
            "",
            "",
            "It is noon.",
            tools=[look],
            requests=monitor.runs.Requests(retries=monitor.Retries(2, first_delay_s=0)),
        )
        assert run.outcome.reason is Reason.GOAL
        assert [event.attempt for event in run.of(monitor.events.RetryScheduled)] == [2, 3, 2, 3]

    @pytest.mark.parametrize("row", ["R14"])
    async def test_an_answer_that_the_output_limit_cut_off_is_no_whole_answer(self, row: str):
        run = await drive(["It is no", monitor.chunks.TurnFinished(monitor.FinishReason.LENGTH, "MAX_TOKENS")])
        assert (run.outcome.reason, run.outcome.text, len(run.requests)) == (Reason.TRUNCATED, "It is no", 1)


@pytest.mark.anyio
class TestFailedCalls:
    @pytest.mark.parametrize("kind", [ErrorKind.NETWORK, ErrorKind.SERVER, ErrorKind.RATE_LIMITED])
    async def test_what_passes_is_tried_again_with_growing_delays(self, kind: ErrorKind):
        error = Failed(kind)
        d = Drive(
            model=failing(error, error, error, "Hello"),
            requests=monitor.runs.Requests(retries=monitor.Retries(first_delay_s=1)),
        )
        async with anyio.create_task_group() as group:
            group.start_soon(d.go)
            for expected in (1, 3, 7):
                await anyio.wait_all_tasks_blocked()
                d.clock.advance(expected - d.clock.now() - 0.01)
                await anyio.wait_all_tasks_blocked()
                before = len(d.requests)
                d.clock.advance(0.01)
                await anyio.wait_all_tasks_blocked()
                assert len(d.requests) == before + 1
        assert d.outcome.reason is Reason.GOAL
        assert [event.after_s for event in d.of(monitor.events.RetryScheduled)] == [1, 2, 4]
        assert [event.error.kind for event in d.of(monitor.events.StreamFailed)] == [kind] * 3

    async def test_the_wait_that_the_provider_asks_for_is_kept(self):
        d = Drive(model=failing(Failed(ErrorKind.RATE_LIMITED, 7), "Hello"))
        async with anyio.create_task_group() as group:
            group.start_soon(d.go)
            await anyio.wait_all_tasks_blocked()
            d.clock.advance(6.9)
            await anyio.wait_all_tasks_blocked()
            assert len(d.requests) == 1
            d.clock.advance(0.2)
        assert d.outcome.reason is Reason.GOAL
        assert [event.after_s for event in d.of(monitor.events.RetryScheduled)] == [7]

    async def test_a_wait_that_is_too_long_ends_the_run_instead_and_is_said(self):
        run = await Drive(model=failing(Failed(ErrorKind.RATE_LIMITED, 3_600))).go()
        assert (run.outcome.reason, len(run.requests)) == (Reason.RATE_LIMITED, 1)
        assert "it asks to wait 3600 s" in run.outcome.detail

    @pytest.mark.parametrize(
        ("kind", "reason"),
        [
            (ErrorKind.REQUEST, Reason.ERROR),
            (ErrorKind.AUTH, Reason.ERROR),
            (ErrorKind.UNKNOWN, Reason.ERROR),
            (ErrorKind.OVERFLOW, Reason.PROMPT_TOO_LONG),
            (ErrorKind.BLOCKED, Reason.BLOCKED),
        ],
    )
    @pytest.mark.parametrize("row", ["R22"])
    async def test_what_stays_what_it_is_is_not_tried_again(
        self, row: str, kind: ErrorKind, reason: monitor.TerminateReason
    ):
        run = await Drive(model=failing(Failed(kind))).go()
        assert (run.outcome.reason, len(run.requests)) == (reason, 1)
        assert isinstance(run.outcome.error, Failed)

    async def test_a_timeout_during_a_delay_ends_it(self):
        clock = FakeClock()
        d = Drive(
            model=failing(Failed(ErrorKind.SERVER)),
            requests=monitor.runs.Requests(retries=monitor.Retries(first_delay_s=50)),
            stop_when=monitor.Timeout(10),
            last_turn=None,
            clock=clock,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(d.go)
            await anyio.wait_all_tasks_blocked()
            clock.advance(10)
        assert (d.outcome.reason, d.outcome.elapsed_s) == (Reason.TIMEOUT, 10)


@pytest.mark.anyio
class TestRollingBack:
    @pytest.mark.parametrize("row", ["R8", "R12", "R24"])
    async def test_turns_calls_and_history_know_nothing_of_a_failed_attempt(self, row: str):
        run = await drive(
            ["half", call("look", q="gone"), ConnectionError("gone")],
            ["whole", call("look", q="x")],
            "Done.",
            tools=[look],
            requests=monitor.runs.Requests(retries=AT_ONCE),
            stop_when=monitor.MaxToolCalls(1) | monitor.MaxTurns(2),
        )
        assert (run.outcome.reason, run.outcome.turns) == (Reason.GOAL, 2)
        assert "half" not in str(run.run.history)
        assert "gone" not in str(run.run.history)
        assert [event.call.arguments for event in run.of(monitor.events.ToolStarted)] == [{"q": "x"}]

    async def test_a_model_call_is_a_model_call(self):
        run = await drive(
            ConnectionError("gone"),
            ConnectionError("gone"),
            requests=monitor.runs.Requests(retries=AT_ONCE),
            stop_when=monitor.MaxModelCalls(2),
            last_turn=None,
        )
        assert (run.outcome.reason, len(run.requests)) == (Reason.MODEL_CALL_LIMIT, 2)

    async def test_detectors_do_not_count_the_same_text_twice(self):
        """Gemini CLI's does (its retry event is ignored), and so halts on an answer that was
        replayed.
        """
        answer = [f"{SENTENCE}{SENTENCE}", "Then something else entirely. "]
        run = await drive(
            *[[*answer, ConnectionError("gone")]] * 5,
            answer,
            requests=monitor.runs.Requests(retries=monitor.Retries(6, first_delay_s=0)),
        )
        assert run.outcome.reason is Reason.GOAL
        assert run.of(monitor.events.DetectionRaised) == []

        looking = [call("look", q="x")]
        run = await drive(
            *[[*looking, ConnectionError("gone")]] * 6,
            looking,
            "Done.",
            tools=[look],
            requests=monitor.runs.Requests(retries=monitor.Retries(9, first_delay_s=0)),
        )
        assert run.outcome.reason is Reason.GOAL
        assert run.of(monitor.events.DetectionRaised) == []

    async def test_what_was_to_be_said_about_a_failed_attempt_is_not_said(self):
        """The model has never seen what it would be told about."""
        same = [call("look", q="x") for _ in range(4)]
        for failure in (ConnectionError("gone"), monitor.chunks.StreamRetried("the SDK tries again")):
            second = [call("look", q="y") for _ in range(3)]
            answers = (
                [[*same, failure], second] if isinstance(failure, ConnectionError) else [[*same, failure, *second]]
            )
            run = await drive(*answers, "Done.", tools=[look], requests=monitor.runs.Requests(retries=AT_ONCE))
            assert len(run.of(monitor.events.DetectionRaised)) == 2
            (nudge,) = run.of(monitor.events.Nudged)
            assert "y" in nudge.text
            assert run.outcome.reason is Reason.GOAL

    async def test_a_retry_inside_of_the_stream_rolls_back_as_well(self):
        run = await drive(
            [
                "half",
                call("look", q="gone"),
                monitor.chunks.StreamRetried("the SDK tries again"),
                "whole",
                call("look", q="x"),
            ],
            "Done.",
            tools=[look],
            stop_when=monitor.MaxToolCalls(1),
        )
        assert run.outcome.reason is Reason.GOAL
        assert "half" not in str(run.run.history)
        assert [event.call.arguments for event in run.of(monitor.events.ToolStarted)] == [{"q": "x"}]
        assert len(run.of(monitor.events.AttemptRetried)) == 1


@pytest.mark.asyncio
class TestGemini:
    """With the real SDK, against a local server."""

    async def run(self, server: LocalGemini, **options: Any) -> tuple[monitor.Outcome, list[monitor.events.Event]]:
        sink = monitor.sinks.MemorySink()
        async with sdk(server) as client:
            supervisor = monitor.Supervisor(
                monitor.model("google:gemini-test", client=client),
                sinks=[sink],
                **{"requests": monitor.runs.Requests(retries=AT_ONCE), **options},
            )
            return await supervisor.run("when is noon?"), sink.events

    @pytest.mark.parametrize(
        "bad",
        [
            pytest.param([text("It is no")], id="R3-no-finish-reason"),
            pytest.param([thought("hm"), finish()], id="R15-thoughts-only"),
            pytest.param([text("\u200b"), finish()], id="R16-zero-width"),
            pytest.param([finish("MALFORMED_FUNCTION_CALL")], id="R13-malformed"),
            pytest.param([error_reply(503)], id="503"),
        ],
    )
    async def test_an_attempt_that_failed_is_made_again_with_the_same_request(self, bad: list[Any]):
        with LocalGemini([bad, bad, [text("It is at twelve."), finish()]]) as server:
            outcome, events = await self.run(server)
        assert (outcome.reason, outcome.text, outcome.turns) == (Reason.GOAL, "It is at twelve.", 1)
        assert len(server.requests) == 3
        assert server.requests[2].body == server.requests[0].body
        assert sum(isinstance(event, monitor.events.RetryScheduled) for event in events) == 2

    async def test_a_stream_that_never_finishes_ends_as_truncated(self):
        with LocalGemini([[text("It is no")]]) as server:
            outcome, _ = await self.run(server)
        assert (outcome.reason, len(server.requests)) == (Reason.TRUNCATED, 4)
        assert "without a finish reason" in outcome.detail

    @pytest.mark.parametrize(
        ("bad", "reason"),
        [
            ([error_reply(400)], Reason.ERROR),
            ([blocked()], Reason.BLOCKED),
            ([text("x"), finish("SAFETY")], Reason.BLOCKED),
        ],
    )
    async def test_what_is_refused_is_not_tried_again(self, bad: list[Any], reason: monitor.TerminateReason):
        with LocalGemini([bad]) as server:
            outcome, _ = await self.run(server)
        assert (outcome.reason, len(server.requests)) == (reason, 1)

    async def test_the_wait_of_a_429_is_kept(self):
        scripts: list[list[Any]] = [[rate_limited(0.05)], [text("It is at twelve."), finish()]]
        with LocalGemini(scripts) as server:
            outcome, events = await self.run(
                server, requests=monitor.runs.Requests(retries=monitor.Retries(first_delay_s=30))
            )
        assert outcome.reason is Reason.GOAL
        assert [event.after_s for event in events if isinstance(event, monitor.events.RetryScheduled)] == [
            pytest.approx(0.05)
        ]

    async def test_a_turn_with_a_call_goes_round(self):
        with LocalGemini(
            [[google_call("look", {"q": "noon"}), finish()], [text("It is at twelve."), finish()]]
        ) as server:
            outcome, _ = await self.run(server, tools=[look])
        assert outcome.reason is Reason.GOAL
        answer = server.requests[1].body["contents"][-1]["parts"][0]["functionResponse"]
        assert "found noon" in str(answer)
