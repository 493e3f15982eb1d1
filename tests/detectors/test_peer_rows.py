"""What other systems test about loops of calls, restated as behaviour. Where we differ on purpose, the row says why.

L and Q: Gemini CLI and Qwen Code. OH: OpenHands. OC: OpenClaw. Text rows stand with the text detectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from monitor.chunks import ReasoningDelta, StreamRetried, TextDelta, ToolCall
from monitor.detectors import ToolCallCycle, ToolCallRepetition, ToolPolicy, default_detectors
from tests.detectors.agent import Agent, letters

READ = ("read", {"path": "a"})
POLL = {"process": ToolPolicy(polling=True)}


def agent(tools: dict[str, ToolPolicy] | None = None) -> Agent:
    return Agent(*default_detectors(tools=tools))


def loops(calls: Sequence[tuple[Any, ...]], tools: dict[str, ToolPolicy] | None = None) -> bool:
    run = agent(tools)
    run.turns(*calls)
    return bool(run.kinds)


def numbered(tool: str, count: int, result: str = "same", *, arguments: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """`count` calls; `{n}` in the result is their number; without `arguments` these differ."""
    return [(tool, {"n": n} if arguments is None else arguments, result.format(n=n)) for n in range(count)]


@pytest.mark.feature("GL-01", "ST-07", "ST-08")
@pytest.mark.parametrize(
    ("calls", "stops"),
    [
        pytest.param([READ] * 4, False, id="L1 four identical calls"),
        pytest.param([READ] * 5, True, id="L2 the fifth"),
        pytest.param(letters("AAB" * 3), True, id="L4 three rounds of A-A-B: none there (five rounds), a loop here: runs end before five"),
        pytest.param(letters("AAB" * 2), False, id="L4 two rounds are not"),
        pytest.param(letters("ABC" * 7), True, id="L10 twenty calls of A-B-C"),
        pytest.param(letters("ABCDE" * 6), True, id="L11 thirty calls of a cycle of five"),
        pytest.param([("read", {"a": 1, "b": 2}), ("read", {"b": 2, "a": 1})] * 3, True, id="Q1 the order of keys; Gemini CLI misses it"),
        pytest.param(letters("AXAXAX"), True, id="Q13 A-B-A-B-A-B at the sixth"),
        pytest.param([("read", {"path": f"{n // 2 if n % 2 else 'a'}"}) for n in range(6)], False, id="Q13 changed arguments"),
        pytest.param(numbered("bash", 20, "{n} of 20 done", arguments={"cmd": "status"}), False, id="Q14 polling, changing: never"),
        pytest.param(numbered("bash", 5, arguments={"cmd": "status"}), True, id="Q14 polling, unchanged: at 5"),
        pytest.param([("bash", {"cmd": "status"}, None)] * 5, True, id="Q14 no results seen: at 5"),
        pytest.param(numbered("read_file", 40, "file {n}"), False, id="Qwen 'same tool 8 times', 'reading 8 of 15': an agent that reads"),
        pytest.param(letters("ABCDEFAGHIJAKLMA", [*"abcdefaghijaklma"]), False, id="Q12 duplicates far apart: a coding agent does that"),
        pytest.param([("ls", {})] * 3, False, id="OH three identical pairs"),
        pytest.param([("ls", {})] * 5, True, id="OH four there, five here: three to four recover by themselves"),
        pytest.param(letters("ABCD"), False, id="OH four different actions"),
        pytest.param(letters("ABABAB"), True, id="OH six alternating"),
        pytest.param(numbered("edit", 9, "SyntaxError: line {n}"), False, id="OH syntax errors at changing lines"),
        pytest.param(numbered("edit", 9, "SyntaxError: line 7"), True, id="OH syntax errors at the same line"),
        pytest.param(numbered("read", 15, "file {n}"), False, id="OC 15 unique calls"),
        pytest.param(numbered("read", 15, "file {n}") * 2, False, id="OC two passes over 15 files"),
        pytest.param(letters("AB" * 9, [f"revision {n}" for n in range(18)]), False, id="OC two paths, results with a revision counter"),
        pytest.param(numbered("date", 30, "12:{n:02}", arguments={}), False, id="OC date with changing output: a warning there"),
        pytest.param(
            numbered("missing", 20, "Tool missing not found"), True, id="OC unknown tool, changing arguments, at 20 there, 5 here"
        ),
        pytest.param(numbered("send_message", 20, "id {n}"), False, id="OC send with a different text each time"),
        pytest.param(numbered("send_message", 5, "id {n}", arguments={"text": "hi"}), True, id="OC the same text, fresh ids"),
        pytest.param(numbered("get_state", 9, "revision {n}", arguments={}), False, id="OC a read whose ids change is progress"),
        pytest.param(numbered("write", 9, "rejected by the user", arguments={"a": 1}), True, id="OC repeated vetoes of the user"),
        pytest.param(letters("ABCABXABY"), False, id="OC alternation broken"),
        pytest.param(
            numbered("sql", 3, "no such table"), False, id="goose: the same error three times under changing arguments: too early"
        ),
        pytest.param(numbered("sql", 5, "no such table"), True, id="goose: five times"),
        pytest.param(numbered("get_page", 12, "page {n}"), False, id="agentbrake: pages"),
    ],
)
def test_what_others_test(calls: list[tuple[Any, ...]], stops: bool):
    assert loops(calls) is stops


@pytest.mark.parametrize("between", [TextDelta("Let me see."), ReasoningDelta("I should look again.")])
def test_l5_l24_a_thought_or_a_text_between_hides_nothing(between: TextDelta | ReasoningDelta):
    """OpenHands compares the thought and loses a third of the loops; opencode looks at one message and loses nearly all."""
    run = agent()
    for _ in range(5):
        run.observe(between)
        run.turn(READ)
    assert "identical_calls" in run.kinds


def test_l7_l8_switched_off_nothing_is_seen():
    run = Agent()
    run.turns(READ, rounds=20)
    assert run.found == []


def test_l40_after_reset_it_starts_anew():
    run = agent()
    run.turns(READ, rounds=5)
    for detector in run.detectors:
        detector.reset()
    run.found.clear()
    run.turns(READ, rounds=2)
    assert run.found == []


@pytest.mark.parametrize(("rounds", "stops"), [(4, False), (5, True)])
def test_q2_a_retried_stream_is_not_counted_twice(rounds: int, stops: bool):
    run = agent()
    for turn in range(rounds):
        run.observe(ToolCall(f"lost{turn}", *READ))
        run.observe(StreamRetried("connection lost"))
        run.turn(READ)
    assert bool(run.kinds) is stops


def test_oc_runs_are_apart_because_each_has_its_own_detectors():
    one, other = agent(), agent()
    one.turns(READ, rounds=4)
    other.turns(READ)
    assert one.kinds == other.kinds == set()


@pytest.mark.parametrize(("result", "stops"), [("running", True), ("{n} %", False)])
def test_oc_a_poll_tool_with_and_without_progress(result: str, stops: bool):
    assert loops(numbered("process", 25, result, arguments={}), POLL) is stops


def test_oc_the_same_output_under_another_pid_and_duration():
    volatile = {"exec": ToolPolicy(volatile=("pid", "duration_ms"))}
    calls = numbered("exec", 5, '{{"out": "no", "pid": {n}, "duration_ms": {n}}}', arguments={"cmd": "make"})
    assert loops(calls, volatile)
    assert not loops(calls)


def test_oc_writes_in_turn_with_singleton_probes_between():
    """OpenClaw's "argument churn": a, b, a, a, b, ... thirty times. A cycle as soon as three rounds are clean but for one probe."""
    assert loops([*letters("ABAAB" * 2 + "X" + "ABAAB" * 2)])


def test_oc_circular_and_large_arguments():
    circle: dict[str, Any] = {}
    circle["self"] = circle
    assert loops([("read", circle)] * 5)
    assert loops([("write", {"text": "x" * 40_000})] * 5)


def test_the_thought_beside_a_repeated_failing_call_is_not_compared_tau_bench():
    """The one loop in 200 runs of tau-bench: book_reservation fails, think, the same again."""
    run = agent()
    for _ in range(5):
        run.turns(("book_reservation", {"flight": 1}, "Error: seat taken", True), ("think", {"thought": "I will try again"}, ""))
    assert run.kinds == {"identical_calls"}


def test_a_foreign_call_every_five_defeats_a_consecutive_counter_but_not_the_cycle():
    """Gemini CLI: 200 calls, no detection, where the foreign call is new each time. Ours sees it where the foreign call is the same."""
    repetition, cycle = Agent(ToolCallRepetition(suspect_at=None)), Agent(ToolCallCycle())
    for run in (repetition, cycle):
        run.turns(*letters("AAAAB" * 3))
    assert (repetition.found, cycle.kinds) == ([], {"cycle"})
