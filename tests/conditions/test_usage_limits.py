from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, get_args

import pytest

import monitor
from monitor.chunks import Usage
from monitor.conditions import (
    Condition,
    CostLimit,
    MaxConsecutiveErrors,
    MaxModelCalls,
    MaxToolCalls,
    MaxTurns,
    TokenLimit,
)
from monitor.errors import ConfigError, TerminateReason
from monitor.outcome import Phase, RunState
from monitor.verdicts import VETO, Stop

PHASES: tuple[Phase, ...] = get_args(Phase)


def told(stop: Stop | None) -> tuple[Any, ...] | None:
    """What a stop says, without the sentence."""
    return None if stop is None else (stop.reason, stop.limit, stop.value, stop.source)


# --- turns and model calls: "at most n", asked before the next one starts


@pytest.mark.parametrize("condition", [MaxTurns(3), MaxModelCalls(3)])
@pytest.mark.parametrize(("done", "stops"), [(0, False), (2, False), (3, True), (4, True)])
def test_the_next_one_is_refused_when_all_are_done(condition: MaxTurns | MaxModelCalls, done: int, *, stops: bool):
    stop = condition.evaluate(RunState(phase="before_call", turns=done, model_calls=done))
    assert (stop is not None) is stops


def test_a_stop_by_turns_says_so():
    state = RunState(phase="before_call", turns=4, model_calls=7)
    assert told(MaxTurns(3).evaluate(state)) == (TerminateReason.MAX_TURNS, 3, 4, "max_turns")
    assert told(MaxModelCalls(3).evaluate(state)) == (TerminateReason.MODEL_CALL_LIMIT, 3, 7, "max_model_calls")


@pytest.mark.parametrize("condition", [MaxTurns(3), MaxModelCalls(3)])
@pytest.mark.parametrize("phase", ["streaming", "after_call"])
def test_the_last_one_that_is_allowed_may_be_finished(condition: Condition, phase: Phase):
    """The third of three is running, or its tools are: nothing has been exceeded."""
    assert condition.evaluate(RunState(phase=phase, turns=3, model_calls=3)) is None


def test_a_retry_is_a_model_call_but_no_turn():
    state = RunState(phase="before_call", turns=1, model_calls=3)
    assert MaxTurns(2).evaluate(state) is None
    assert MaxModelCalls(3).evaluate(state) is not None


# --- tool calls: the one that exceeds it is seen in the stream


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("asked", "stops"), [(0, False), (2, False), (3, False), (4, True), (5, True)])
def test_a_tool_call_too_many_stops_in_every_phase(phase: Phase, asked: int, *, stops: bool):
    stop = MaxToolCalls(3).evaluate(RunState(phase=phase, tool_calls=asked))
    assert told(stop) == ((TerminateReason.TOOL_CALL_LIMIT, 3, asked, "max_tool_calls") if stops else None)


# --- tokens

KINDS = ["total_tokens", "input_tokens", "output_tokens"]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("used", "stops"), [(99, False), (100, False), (101, True)])
def test_the_token_above_the_limit_stops_in_every_phase(phase: Phase, kind: str, used: int, *, stops: bool):
    stop = TokenLimit(**{kind: 100}).evaluate(RunState(phase=phase, usage=Usage(**{kind: used})))
    assert told(stop) == ((TerminateReason.TOKEN_LIMIT, 100, used, "token_limit") if stops else None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_on_one_kind_of_tokens_lets_the_others_be(kind: str):
    others = {other: 10**9 for other in KINDS if other != kind}
    assert TokenLimit(**{kind: 100}).evaluate(RunState(usage=Usage(**others))) is None


def test_the_sentence_names_the_kind_and_what_is_an_estimate():
    limit, usage = TokenLimit(output_tokens=10), Usage(output_tokens=11)
    exact, guessed = limit.evaluate(RunState(usage=usage)), limit.evaluate(RunState(usage=usage, usage_estimated=True))
    assert exact is not None
    assert exact.detail == "11 tokens (output) are used, the limit is 10"
    assert guessed is not None
    assert guessed.detail.startswith("about 11 tokens")


@pytest.mark.parametrize(
    ("limit", "used", "headroom"),
    [
        (TokenLimit(100), Usage(), 100),
        (TokenLimit(100), Usage(total_tokens=99), 1),
        (TokenLimit(100), Usage(total_tokens=100), 0),
        (TokenLimit(100), Usage(total_tokens=150), 0),
        (TokenLimit(output_tokens=100), Usage(output_tokens=40, total_tokens=90), 60),
        (TokenLimit(100, output_tokens=50), Usage(output_tokens=10, total_tokens=80), 20),
        (TokenLimit(100, output_tokens=15), Usage(output_tokens=10, total_tokens=80), 5),
        (TokenLimit(input_tokens=100), Usage(input_tokens=99), None),
        (TokenLimit(100, input_tokens=5), Usage(total_tokens=10), 90),
    ],
)
def test_headroom_is_what_the_model_may_still_write(limit: TokenLimit, used: Usage, headroom: int | None):
    """Input does not grow while a stream runs; a limit on it alone waits for the provider's
    report.
    """
    assert limit.token_headroom(RunState(usage=used)) == headroom


@pytest.mark.parametrize("condition", [MaxTurns(1), MaxModelCalls(1), MaxToolCalls(1), MaxConsecutiveErrors(1)])
def test_limits_on_counts_depend_on_neither_time_nor_tokens(condition: Condition):
    assert condition.deadline(RunState()) is None
    assert condition.token_headroom(RunState()) is None
    assert TokenLimit(1).deadline(RunState()) is None


# --- dollars


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(("spent", "stops"), [(0, False), (1.999, False), (2, False), (2.001, True), (9, True)])
def test_what_is_spent_above_the_limit_stops_in_every_phase(phase: Phase, spent: float, *, stops: bool):
    stop = CostLimit(2).evaluate(RunState(phase=phase, cost_usd=spent))
    assert told(stop) == ((TerminateReason.COST_LIMIT, 2, spent, "cost_limit") if stops else None)


def test_the_rounding_of_a_sum_is_no_cost():
    """0.1 + 0.2 is a little more than 0.3."""
    assert CostLimit(0.3).evaluate(RunState(cost_usd=0.1 + 0.2)) is None
    assert CostLimit(0.3).evaluate(RunState(cost_usd=0.3 + 1e-8)) is not None


def test_the_sentence_says_what_is_spent_and_whether_it_is_an_estimate():
    exact, guessed = (
        CostLimit(0.5).evaluate(RunState(cost_usd=0.75, usage_estimated=guess)) for guess in (False, True)
    )
    assert exact is not None
    assert exact.detail == "0.75 USD are spent, the limit is 0.5 USD"
    assert guessed is not None
    assert guessed.detail.startswith("about 0.75 USD")


@pytest.mark.parametrize(("spent", "left"), [(0, 2), (0.5, 1.5), (2, 0), (3, 0)])
def test_what_may_still_be_spent_is_counted_in_dollars_and_not_in_tokens(spent: float, left: float):
    """A condition knows no price."""
    assert CostLimit(2).cost_headroom(RunState(cost_usd=spent)) == left
    assert CostLimit(2).token_headroom(RunState(cost_usd=spent)) is None


@pytest.mark.parametrize(
    "usd", [0, -1, True, float("nan"), float("inf"), "2", None, [2], 10**400], ids=lambda value: repr(value)[:9]
)
def test_what_are_no_dollars_is_refused_by_name(usd: Any):
    with pytest.raises(ConfigError, match=r"CostLimit\.usd (must be a finite number above 0|takes a number)"):
        CostLimit(usd)


# --- arguments

NOT_COUNTS = [0, -1, True, False, 1.5, 3.0, "3", float("inf"), [3]]


@pytest.mark.parametrize("value", [*NOT_COUNTS, None], ids=repr)
@pytest.mark.parametrize("condition", [MaxTurns, MaxModelCalls, MaxToolCalls, MaxConsecutiveErrors])
def test_a_limit_that_is_no_count_is_refused_by_name(condition: Any, value: object):
    with pytest.raises(ConfigError, match=condition.__name__) as refused:
        condition(value)
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("value", NOT_COUNTS, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_limit_that_is_no_count_is_refused_by_name(kind: str, value: Any):
    with pytest.raises(ConfigError, match=f"TokenLimit.{kind}") as refused:
        TokenLimit(**{kind: value})
    assert repr(value) in str(refused.value)


def test_a_token_limit_without_a_limit_is_refused():
    with pytest.raises(ConfigError, match="total_tokens, input_tokens or output_tokens"):
        TokenLimit()


# --- a whole run

WORDS = "a few words of an answer"


async def answer(*chunks: monitor.chunks.Chunk) -> AsyncIterator[monitor.chunks.Chunk]:
    yield monitor.chunks.TextDelta(WORDS)
    for chunk in chunks:
        yield chunk
    yield monitor.chunks.TurnFinished(monitor.FinishReason.DONE)


class Provider:
    """Opens streams and counts them."""

    def __init__(self, *chunks: monitor.chunks.Chunk) -> None:
        self.opened = 0
        self._chunks = chunks

    def __call__(self) -> AsyncIterator[monitor.chunks.Chunk]:
        self.opened += 1
        return answer(*self._chunks)


async def driven(stop_when: Condition, provider: Provider, *, ask: bool = True) -> monitor.Outcome:
    """A caller's loop, which would go on for ten turns. `ask`: between turns it asks the guard, as
    it should.
    """
    async with monitor.Guard(stop_when=stop_when, detectors=None) as guard:
        for _ in range(10):
            async with guard.watch(provider) as watched:
                async for _ in watched:
                    pass
            if watched.turn.stopped or (ask and isinstance(guard.check(), Stop)):
                break
    return guard.outcome


@pytest.mark.feature("ST-01")
@pytest.mark.anyio
@pytest.mark.parametrize("ask", [True, False])
async def test_a_run_of_at_most_three_turns_does_not_open_a_fourth_stream(*, ask: bool):
    provider = Provider()
    outcome = await driven(MaxTurns(3), provider, ask=ask)
    assert (outcome.reason, outcome.limit, outcome.value, outcome.source) == (
        TerminateReason.MAX_TURNS,
        3,
        3,
        "max_turns",
    )
    assert (provider.opened, outcome.turns, outcome.text) == (3, 3, WORDS)
    assert not outcome.ok


@pytest.mark.feature("ST-03")
@pytest.mark.anyio
async def test_a_run_of_at_most_three_model_calls_does_not_make_a_fourth():
    provider = Provider()
    outcome = await driven(MaxModelCalls(3), provider)
    assert (outcome.reason, outcome.limit, outcome.value) == (TerminateReason.MODEL_CALL_LIMIT, 3, 3)
    assert provider.opened == 3


@pytest.mark.feature("ST-03")
@pytest.mark.anyio
async def test_a_run_of_at_most_three_tool_calls_ends_in_the_middle_of_the_stream_with_the_fourth():
    provider = Provider(
        monitor.chunks.ToolCall("a", "look", {"at": 1}),
        monitor.chunks.ToolCall("b", "look", {"at": 2}),
        monitor.chunks.TextDelta("never read"),
    )
    outcome = await driven(MaxToolCalls(3), provider)
    assert (outcome.reason, outcome.limit, outcome.value) == (TerminateReason.TOOL_CALL_LIMIT, 3, 4)
    assert (provider.opened, outcome.text) == (2, WORDS)


# --- errors in a row


class Flaky:
    """Streams that follow a script, a letter a stream: `F` fails, `.` answers, a digit asks for so
    many tools.
    """

    def __init__(self, script: str) -> None:
        self.script = script
        self.opened = 0

    async def __call__(self) -> AsyncIterator[monitor.chunks.Chunk]:
        letter = self.script[self.opened]
        self.opened += 1
        if letter == "F":
            raise ConnectionError("the line is down")
        calls = int(letter) if letter.isdigit() else 0
        return answer(
            *(
                monitor.chunks.ToolCall(f"c{self.opened}.{n}", "fetch", {"turn": self.opened, "n": n})
                for n in range(calls)
            )
        )


async def erring(script: str, results: str, *, limit: int = 3) -> tuple[monitor.Outcome, int]:
    """A caller who tries again. `results`: of all tools in turn, `x` an error, `o` a success, `v` a
    refusal of the guard's own.
    """
    provider, answers = Flaky(script), iter(results)
    async with monitor.Guard(stop_when=MaxConsecutiveErrors(limit), detectors=None) as guard:
        while provider.opened < len(script):
            async with guard.watch(provider) as watched:
                async for _ in watched:
                    pass
            if watched.turn.model_error is None:
                for call in watched.turn.tool_calls:
                    letter = next(answers)
                    guard.tool_result(call, f"{VETO} {letter}", is_error=letter != "o", vetoed=letter == "v")
            if isinstance(stop := guard.check(), Stop) and stop.reason is TerminateReason.CONSECUTIVE_ERRORS:
                break
        guard.finish()
    return guard.outcome, provider.opened


@pytest.mark.feature("ST-10")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("script", "results", "opened"),
    [
        pytest.param("FFFF.", "", 4, id="four model calls fail"),
        pytest.param("1111.", "xxxx", 4, id="four tools fail"),
        pytest.param("1F1F.", "xx", 4, id="both kinds count"),
        pytest.param("11F1F11", "oxxx", 5, id="after a success it starts anew"),
        pytest.param("3111.", "xxxxxx", 4, id="siblings that fail together are one error"),
    ],
)
async def test_the_fourth_error_in_a_row_ends_the_run(script: str, results: str, opened: int):
    outcome, seen = await erring(script, results)
    assert (outcome.reason, outcome.limit, outcome.value) == (TerminateReason.CONSECUTIVE_ERRORS, 3, 4)
    assert (outcome.source, outcome.detail) == ("max_consecutive_errors", "4 errors came in a row, the limit is 3")
    assert seen == opened


@pytest.mark.feature("ST-10")
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("script", "results"),
    [
        pytest.param("FFF.FFF.", "", id="three failed calls, and one that answers"),
        pytest.param("111.111.", "xxxxxx", id="three failed tools, and an answer"),
        pytest.param("11111111.", "xxxoxxxo", id="three failed tools, and one that works"),
        pytest.param("7.", "xxxxxxx", id="seven siblings"),
        pytest.param("222222.", "xooxxooxxoox", id="one sibling works, whichever"),
        pytest.param("1111111.", "xxxvxxx", id="a turn that was refused is no error"),
    ],
)
async def test_three_errors_in_a_row_do_not(script: str, results: str):
    outcome, seen = await erring(script, results)
    assert outcome.reason is TerminateReason.GOAL
    assert seen == len(script)
