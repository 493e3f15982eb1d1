from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor._util.hashing import identity
from monitor.chunks import Chunk, StreamRetried, TextDelta, ToolCall, ToolResult, TurnFinished
from monitor.detectors import ToolCallCycle, ToolCallRepetition, ToolPolicy
from monitor.detectors.calls.front import CALLS_KEPT
from monitor.errors import ConfigError, FinishReason
from monitor.verdicts import VETO, Detection
from tests.detectors.agent import Agent

DONE = TurnFinished(FinishReason.DONE)


class Run:
    """Speaks to a detector; every call gets an id of its own."""

    def __init__(self, **options: Any) -> None:
        self.detector = ToolCallRepetition(**options)
        self.calls = 0
        self.found: list[Detection] = []

    def observe(self, chunk: Chunk) -> None:
        self.found += self.detector.observe(chunk)

    def call(
        self, name: str = "read", arguments: Any = None, result: str | None = "the same", *, vetoed: bool = False
    ) -> None:
        """One turn with one call, and its result if it is seen."""
        id = f"call_{self.calls}"
        self.calls += 1
        self.observe(ToolCall(id, name, {"path": "a"} if arguments is None else arguments))
        self.observe(DONE)
        if result is not None:
            self.observe(ToolResult(id, name, result, vetoed=vetoed))

    @property
    def levels(self) -> list[tuple[str, int]]:
        return [(detection.level, detection.count) for detection in self.found]


@pytest.mark.feature("GL-01", "ST-07")
@pytest.mark.parametrize(
    ("calls", "levels"),
    [(2, []), (3, ["suspect"]), (4, ["suspect"]), (5, ["suspect", "loop"]), (7, ["suspect", "loop", "loop", "loop"])],
)
def test_suspect_at_three_loop_at_five_and_at_each_one_after(calls: int, levels: list[str]):
    run = Run()
    for _ in range(calls):
        run.call()
    assert [detection.level for detection in run.found] == levels


@pytest.mark.feature("GL-01")
def test_what_a_finding_says():
    run = Run(name="repeats")
    run.call("list")
    for _ in range(5):
        run.call("read", {"b": 2, "a": "x" * 300})
    suspect, loop = run.found
    text = 'read({"a":"' + "x" * 300 + '","b":2})'
    assert (loop.detector, loop.kind, loop.channel) == ("repeats", "identical_calls", "tools")
    assert (suspect.count, suspect.threshold, loop.count, loop.threshold) == (3, 3, 5, 5)
    assert (loop.start_offset, loop.offset, loop.evidence.offsets) == (1, 5, (1, 2, 3, 4, 5))
    assert (loop.evidence.excerpt, loop.evidence.xxhash, loop.evidence.length) == (
        text[:200],
        identity(text),
        len(text) - len("read()"),
    )
    assert loop.message == "read was called 5 times in a row with the same arguments and gave the same result each time"


@pytest.mark.feature("GL-01")
def test_the_order_of_keys_does_not_matter_but_every_value_does():
    run = Run()
    for turn in range(5):
        run.call(arguments={"a": 1, "b": {"c": 2, "d": 3}} if turn % 2 else {"b": {"d": 3, "c": 2}, "a": 1})
    assert run.levels == [("suspect", 3), ("loop", 5)]
    for other in ({"a": True}, {"a": 1}, {"a": "1"}, {"a": [1]}, {}, "not JSON", None) * 3:
        run.call("other", other)
    assert len(run.found) == 2


@pytest.mark.feature("GL-01")
def test_another_call_between_starts_anew():
    run = Run()
    for _ in range(10):
        run.call()
        run.call()
        run.call("list")
    assert run.found == []


def test_text_between_does_not_matter():
    run = Run()
    for _ in range(5):
        run.observe(TextDelta("Let me try that again."))
        run.call()
    assert run.levels == [("suspect", 3), ("loop", 5)]


# Results


def test_polling_is_not_a_loop():
    run = Run()
    for progress in range(50):
        run.call("status", result=f"{progress} %")
    assert run.found == []


def test_a_changed_result_starts_anew_at_the_call_that_got_it():
    run = Run()
    for result in ("pending", "pending", "done", "done", "done", "done", "done"):
        run.call("status", result=result)
    assert run.levels == [("suspect", 3), ("suspect", 3), ("loop", 5)], (
        "the third call is made before its result is known"
    )
    assert run.found[-1].start_offset == 2


def test_an_error_is_another_result_than_the_same_words():
    run = Run(suspect_at=None)
    for turn in range(8):
        run.observe(ToolCall(f"c{turn}", "read", {}))
        run.observe(ToolResult(f"c{turn}", "read", "no", is_error=turn % 2 == 0))
    assert run.found == []


def failing(errors: str) -> Run:
    run = Run(suspect_at=None)
    for turn, error in enumerate(errors):
        run.observe(ToolCall(f"c{turn}", "tar", {}))
        run.observe(ToolResult(f"c{turn}", "tar", error, is_error=error.islower()))
    return run


def test_a_call_that_failed_and_fails_again_is_not_getting_on_whatever_it_says_but_a_success_is():
    assert failing("aabab").levels == [("loop", 5)]
    assert failing("abcde").levels == [("loop", 5)]
    assert failing("abcde").found[0].message.endswith(" and failed each time")
    assert failing("aaaaa").found[0].message.endswith(" and gave the same result each time")
    assert failing("aAaAaAaA").levels == []
    assert failing("abcDabcDabcD").levels == []
    assert failing("ABABABAB").levels == [], "two states of something that is polled"


def test_a_tool_that_is_polled_may_report_its_progress_as_errors():
    run = Run(tools=tool(polling=True))
    for turn in range(9):
        run.observe(ToolCall(f"c{turn}", "work", {}))
        run.observe(ToolResult(f"c{turn}", "work", f"not ready, {turn} of 9", is_error=True))
    assert run.found == []


def test_an_answer_that_names_its_own_call_is_no_news():
    run = Run()
    for _ in range(5):
        id = f"call_{run.calls}"
        run.call(result=f"too long, saved as results/{id}.txt")
    assert run.levels == [("suspect", 3), ("loop", 5)]


def test_without_results_the_arguments_decide_and_the_message_says_so():
    run = Run()
    for _ in range(5):
        run.call(result=None)
    assert run.levels == [("suspect", 3), ("loop", 5)]
    assert all("no results were seen" in detection.message for detection in run.found)


def test_results_that_were_seen_in_part_are_said_in_part():
    run = Run(suspect_at=None)
    for turn in range(5):
        run.call(result="the same" if turn < 2 else None)
    assert run.found[0].message.endswith("the results seen (2 of 5) were the same")


def test_parallel_calls_of_one_turn_count_and_their_results_may_come_in_any_order():
    run = Run()
    for turn in range(3):
        run.observe(ToolCall(f"c{turn}", "read", {}))
    assert run.levels == [("suspect", 3)]
    run.observe(DONE)
    for turn in (2, 0, 1):
        run.observe(ToolResult(f"c{turn}", "read", "the same"))
    run.calls = 10
    run.call("read", {})
    run.call("read", {})
    assert run.levels[-1] == ("loop", 5)


def test_one_brief_for_six_sub_agents_is_a_suspicion_because_no_result_could_speak_yet():
    run = Run()
    for number in range(6):
        run.observe(ToolCall(f"c{number}", "task", {"prompt": "Review the change."}))
    run.observe(DONE)
    for number in range(6):
        run.observe(ToolResult(f"c{number}", "task", f"{number} remarks"))
    assert run.levels == [("suspect", 3)]


def test_the_same_batch_again_with_the_same_results_is_a_loop():
    run = Run()
    for turn in range(2):
        for number in range(4):
            run.observe(ToolCall(f"c{turn}{number}", "task", {"prompt": "Review the change."}))
        run.observe(DONE)
        for number in range(4):
            run.observe(ToolResult(f"c{turn}{number}", "task", "no remarks"))
    assert run.levels == [("suspect", 3), ("loop", 5), ("loop", 6), ("loop", 7), ("loop", 8)]


def test_a_flood_of_briefs_within_one_turn_is_a_loop():
    flood, reads = Run(), Run()
    for number in range(20):
        flood.observe(ToolCall(f"c{number}", "task", {}))
    for number in range(5):
        reads.observe(ToolCall(f"c{number}", "read_file", {}))
    assert flood.levels == [("suspect", 3), ("loop", 20)]
    assert reads.levels == [("suspect", 3), ("loop", 5)]


@pytest.mark.parametrize(
    ("tool", "arguments"), [("get_job_status", {"id": 7}), ("bash", {"command": "sleep 30 && gh run view"})]
)
def test_who_waits_may_ask_twenty_times(tool: str, arguments: dict[str, Any]):
    run = Run()
    for _ in range(19):
        run.call(tool, arguments, result="running")
    assert run.levels == [("suspect", 10)]
    run.call(tool, arguments, result="running")
    assert run.levels[-1] == ("loop", 20)


def test_results_of_other_calls_do_not_matter():
    run = Run()
    for turn in range(5):
        run.call()
        run.observe(ToolResult("unknown", "read", f"{turn}"))
        run.observe(ToolResult(f"call_{turn}", "read", "delivered twice, the second one changed"))
    assert run.levels == [("suspect", 3), ("loop", 5)]


# Delivery


def test_the_same_call_delivered_twice_counts_once():
    run = Run()
    for turn in range(4):
        for _ in range(3):
            run.observe(ToolCall(f"c{turn}", "read", {}))
        run.observe(DONE)
    assert run.levels == [("suspect", 3)]


def test_ids_that_begin_anew_each_turn_and_missing_ids_count():
    for id in ("call_0", ""):
        run = Run()
        for _ in range(5):
            run.observe(ToolCall(id, "read", {}))
            run.observe(DONE)
            run.observe(ToolResult(id, "read", "the same"))
        assert run.levels == [("suspect", 3), ("loop", 5)]


def test_a_retried_stream_takes_its_calls_back():
    run = Run()
    for _ in range(2):
        run.call()
    for attempt in range(5):
        run.observe(ToolCall(f"again{attempt}", "list", {}))
        run.observe(StreamRetried("connection lost"))
    run.call()
    assert run.levels == [("suspect", 3)]
    assert run.found[0].offset == 2
    run.observe(StreamRetried("nothing was called since"))
    run.call()
    run.call()
    assert run.levels[-1] == ("loop", 5)


# Options and state


def test_exempt_tools_are_never_reported_but_stand_between():
    run = Run(exempt=("status",))
    for _ in range(10):
        run.call("status")
    for _ in range(4):
        run.call()
        run.call()
        run.call("status")
    assert run.found == []


@pytest.mark.parametrize("options", [{"loop_at": 1}, {"suspect_at": 1}, {"suspect_at": 6}, {"exempt": "read"}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]):
    with pytest.raises(ConfigError, match=f"{next(iter(options))}="):
        ToolCallRepetition(**options)


def test_other_numbers_and_no_suspicion():
    run = Run(suspect_at=None, loop_at=2)
    run.call()
    run.call()
    assert run.levels == [("loop", 2)]


@pytest.mark.feature("GL-04")
def test_memory_is_bounded():
    run = Run()
    for turn in range(2 * CALLS_KEPT):
        run.observe(ToolCall(f"c{turn}", "write", {"text": "x" * 10_000}))
    assert len(json.dumps(run.detector.snapshot())) < 50_000
    assert len(run.found[-1].evidence.offsets) == 20
    assert run.found[-1].count == 2 * CALLS_KEPT


def test_arguments_that_differ_late_are_told_apart():
    run = Run()
    for turn in range(10):
        run.call("write", {"text": "x" * 100_000 + str(turn)})
    assert run.found == []


@pytest.mark.feature("GL-01")
def test_a_collision_of_hashes_makes_no_loop(monkeypatch: pytest.MonkeyPatch):
    """An equal hash is verified by length, beginning and end."""
    monkeypatch.setattr("monitor.detectors.calls.front.identity", lambda text: "0" * 16)
    run, cycle = Run(), Agent(ToolCallCycle())
    for number in range(9):
        run.call(arguments={"path": f"{number}"})
        run.call("write", {"text": "x" * 9_000 + f"{number}"})
        cycle.turn(("write", {"text": "x" * 900 + f"{number}"}))
        cycle.turn(("read", {"path": f"{number}"}))
    assert run.found == cycle.found == []


CHUNKS = st.one_of(
    st.builds(ToolCall, st.sampled_from("abc"), st.sampled_from(["read", "list"]), st.sampled_from([{}, {"a": 1}])),
    st.builds(ToolResult, st.sampled_from("abc"), st.just("read"), st.sampled_from("xy")),
    st.just(DONE),
    st.just(StreamRetried("lost")),
)


@given(st.lists(CHUNKS, max_size=60), st.integers(0, 60))
def test_restored_is_never_interrupted(chunks: list[Chunk], at: int):
    whole, interrupted = ToolCallRepetition(), ToolCallRepetition()
    for turn, chunk in enumerate(chunks):
        assert list(interrupted.observe(chunk)) == list(whole.observe(chunk))
        if turn == at:
            state = json.loads(json.dumps(interrupted.snapshot()))
            interrupted = ToolCallRepetition()
            interrupted.restore(state)
    with pytest.raises(ValueError, match="version None"):
        whole.restore({})


# What is special about a tool


def tool(**options: Any) -> dict[str, ToolPolicy]:
    return {"work": ToolPolicy(**options)}


@pytest.mark.feature("ST-07")
def test_equal_calls_that_repeat_their_effect_are_a_loop_though_each_answer_is_new():
    for run, name in ((Run(tools=tool(side_effect=True)), "work"), (Run(), "calendar.create_event")):
        for number in range(5):
            run.call(name, {"title": "Sync"}, result=f"created {number}")
        assert run.levels == [("suspect", 3), ("loop", 5)]
        assert run.found[-1].message.endswith("; each call does it again, whatever it answers")


def test_where_only_the_name_says_that_an_effect_repeats_other_words_are_progress():
    run = Run()
    for word in ("issue", "revoke", "refresh", "purge", "audit", "login", "rotate"):
        run.call("terminal_send", {"text": "y"}, result=f"+ def {word}(self): (1/16) stage this hunk?")
    assert run.found == []
    run = Run(tools={"terminal_send": ToolPolicy(side_effect=True)})
    for word in ("issue", "revoke", "refresh", "purge", "audit"):
        run.call("terminal_send", {"text": "y"}, result=f"sent {word}")
    assert run.levels == [("suspect", 3), ("loop", 5)]


def test_the_guess_is_taken_back_where_the_caller_knows_better():
    run = Run(tools={"create_report": ToolPolicy(polling=True)})
    for number in range(9):
        run.call("create_report", result=f"{number} %")
    assert run.found == []


@pytest.mark.feature("GL-07")
def test_a_tool_that_is_exempt_is_never_reported():
    run = Run(tools=tool(exempt=True))
    for _ in range(9):
        run.call("work")
    assert run.found == []


def test_a_tool_has_its_own_numbers():
    run = Run(tools=tool(suspect_at=2, loop_at=8))
    for _ in range(8):
        run.call("work")
    assert run.levels == [("suspect", 2), ("loop", 8)]
    eager = Run(tools=tool(loop_at=2))
    for _ in range(2):
        eager.call("work")
    assert eager.levels == [("loop", 2)]
    patient = Run(tools=tool(suspect_at=7))
    for _ in range(7):
        patient.call("work")
    assert patient.levels == [("loop", 7)]


def test_a_loop_key_looks_past_a_changing_reason():
    run = Run(tools=tool(loop_key=lambda arguments: arguments["path"]))
    for number in range(5):
        run.call("work", {"path": "a", "reason": f"attempt {number}"})
    assert run.levels == [("suspect", 3), ("loop", 5)]


def test_a_volatile_field_does_not_pass_for_progress():
    run = Run(tools=tool(volatile=("pid",)))
    for number in range(5):
        run.call("work", result=f'{{"pid": {number}, "state": "up"}}')
    assert run.levels == [("suspect", 3), ("loop", 5)]


@pytest.mark.parametrize("idle", ["think", "wait"])
def test_thinking_or_waiting_between_does_not_hide_a_repetition(idle: str):
    run = Run()
    for number in range(5):
        run.call("book", result="no such flight")
        run.call(idle, {"about": f"{number}"}, result="")
    assert run.levels == [("suspect", 3), ("loop", 5)]
    assert run.found[-1].evidence.offsets == (0, 2, 4, 6, 8)


def test_the_same_thought_again_and_again_is_a_loop_too_but_work_between_ends_it():
    run = Run()
    for _ in range(5):
        run.call("think", {"thought": "I must hurry"}, result="")
    assert run.levels == [("suspect", 3), ("loop", 5)]
    for number in range(5):
        run.call("think", {"thought": "next"}, result="")
        run.call("read", {"line": number})
    assert len(run.found) == 2


@pytest.mark.parametrize(
    "answer", ["rejected by the user", "X is not a valid tool", "invalid arguments: path is required"]
)
def test_rejected_unknown_and_invalid_calls_count(answer: str):
    run = Run()
    for turn in range(5):
        run.observe(ToolCall(f"c{turn}", "X", "{not json"))
        run.observe(DONE)
        run.observe(ToolResult(f"c{turn}", "X", answer, is_error=True))
    assert run.levels == [("suspect", 3), ("loop", 5)]


def test_our_own_veto_is_no_news():
    run = Run()
    for number in range(6):
        run.call(result="the same" if number < 4 else f"This call was not made ({number}).", vetoed=number >= 4)
    assert run.levels == [("suspect", 3), ("loop", 5), ("loop", 6)]


def test_a_result_that_begins_as_we_begin_is_news_as_any_other():
    run = Run()
    for number in range(6):
        run.call(result="the same" if number < 4 else f"{VETO} line {number}")
    assert run.levels == [("suspect", 3), ("loop", 5)], "the sixth call has an answer before it that is new"


@pytest.mark.parametrize("tool", ["sleep", "wait"])
@pytest.mark.parametrize("first", [0.5, 1, 30])
def test_a_run_that_backs_off_may_try_again(tool: str, first: float):
    detector = ToolCallRepetition()
    found: list[Detection] = []
    for at in range(8):
        for name, arguments in (("upload", {"file": "a"}), (tool, {"seconds": first * 2**at})):
            found += detector.observe(ToolCall(f"{name}{at}", name, arguments))
            found += detector.observe(ToolResult(f"{name}{at}", name, "503 slow down" if name == "upload" else ""))
    assert not [one for one in found if one.level == "loop"]


def test_equal_waits_between_equal_calls_are_a_loop():
    detector = ToolCallRepetition()
    found: list[Detection] = []
    for at in range(5):
        for name, arguments in (("upload", {"file": "a"}), ("sleep", {"seconds": 5})):
            found += detector.observe(ToolCall(f"{name}{at}", name, arguments))
            found += detector.observe(ToolResult(f"{name}{at}", name, "503 slow down" if name == "upload" else ""))
    assert [one.level for one in found][-1] == "loop"
