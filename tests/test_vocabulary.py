from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import monitor
from monitor import errors
from monitor.chunks import TurnFinished, Usage, UsageReport
from monitor.errors import (
    SUCCESSES,
    AdapterError,
    BudgetUnreachable,
    ConfigError,
    FinishReason,
    MissingExtra,
    MonitorError,
    RecordedError,
    SessionBusy,
    SessionDamaged,
    SessionLost,
    SessionNotFound,
    SessionOwner,
    SessionTooNew,
    SessionUnavailable,
    SourceFailed,
    StoreError,
    TerminateReason,
    ToolError,
    ToolRetry,
)
from monitor.models import ErrorKind, ModelError
from monitor.outcome import Outcome, RunFailed, StoppedByGuard, Turn, is_success
from monitor.verdicts import Detection, Evidence, Met, Stop

TERMINATE_REASONS = [
    "goal",
    "terminated",
    "stream_ended",
    "max_turns",
    "timeout",
    "idle_timeout",
    "model_call_limit",
    "tool_call_limit",
    "token_limit",
    "cost_limit",
    "budget_unreachable",
    "budget_busy",
    "loop_detected",
    "consecutive_errors",
    "missing_outputs",
    "condition_met",
    "paused",
    "worker_stopping",
    "prompt_too_long",
    "window_too_small",
    "compaction_ineffective",
    "rate_limited",
    "blocked",
    "invalid_stream",
    "truncated",
    "aborted",
    "cancelled",
    "closed_by_caller",
    "error",
]
"""As the design lists them. They stand in users' code and in recorded files: adding one is a
feature, changing one is a break.
"""


@pytest.mark.parametrize("value", TERMINATE_REASONS)
def test_every_reason_of_the_design_exists_with_its_value(value: str):
    assert TerminateReason[value.upper()].value == value
    assert TerminateReason[value.upper()] == value


def test_there_are_no_other_reasons():
    assert [reason.value for reason in TerminateReason] == TERMINATE_REASONS


def test_a_turn_ends_in_one_of_seven_ways():
    ways = ["done", "length", "malformed", "blocked", "repetition", "interrupted", "unknown"]
    assert [reason.value for reason in FinishReason] == ways


@pytest.mark.parametrize("reason", TerminateReason)
def test_only_the_goal_and_a_good_end_are_a_success_by_themselves(reason: TerminateReason):
    alone = is_success(Stop(reason, "it ended", "test"))
    assert alone is (reason in SUCCESSES) is (reason.value in {"goal", "stream_ended"})
    said = is_success(Stop(reason, "it ended", "terminate", value="success"))
    assert said is (alone or reason is TerminateReason.TERMINATED)


ENDINGS = [
    (ErrorKind.OVERFLOW, TerminateReason.PROMPT_TOO_LONG),
    (ErrorKind.RATE_LIMITED, TerminateReason.RATE_LIMITED),
    (ErrorKind.AUTH, TerminateReason.ERROR),
    (ErrorKind.REQUEST, TerminateReason.ERROR),
    (ErrorKind.SERVER, TerminateReason.ERROR),
    (ErrorKind.NETWORK, TerminateReason.ERROR),
    (ErrorKind.MALFORMED, TerminateReason.INVALID_STREAM),
    (ErrorKind.BLOCKED, TerminateReason.BLOCKED),
    (ErrorKind.UNKNOWN, TerminateReason.ERROR),
]


@pytest.mark.parametrize(("kind", "reason"), ENDINGS)
def test_a_failed_call_says_how_a_run_ends_by_it(kind: ErrorKind, reason: TerminateReason):
    assert ModelError(kind, "failed").reason is reason


def test_every_kind_of_failure_is_in_that_table():
    assert {kind for kind, _ in ENDINGS} == set(ErrorKind)


# --- outcomes


def failed(error: BaseException | None = None) -> Outcome:
    return Outcome(
        ok=False,
        reason=TerminateReason.TIMEOUT,
        detail="the run took 9 s",
        source="timeout",
        limit=5,
        value=9.0,
        error=error,
    )


def test_a_good_outcome_answers_with_itself():
    good = Outcome(ok=True, reason=TerminateReason.GOAL, detail="done", source="caller")
    assert good.raise_for_reason() is good


def test_a_bad_outcome_raises_on_request_and_says_why():
    outcome = failed()
    with pytest.raises(RunFailed, match=r"^timeout: the run took 9 s$") as raised:
        outcome.raise_for_reason()
    assert raised.value.outcome is outcome
    assert raised.value.__cause__ is None


def test_what_is_raised_comes_from_the_exception_behind_the_reason():
    error = ConnectionResetError("gone")
    with pytest.raises(RunFailed) as raised:
        failed(error).raise_for_reason()
    assert raised.value.__cause__ is error


def test_ok_decides_and_not_the_reason():
    """`terminated` is a success or not by what the model said."""
    assert Outcome(ok=True, reason=TerminateReason.TERMINATED, detail="", source="model").raise_for_reason().ok
    with pytest.raises(RunFailed):
        Outcome(ok=False, reason=TerminateReason.TERMINATED, detail="", source="model").raise_for_reason()


def test_an_outcome_comes_back_from_its_dict():
    outcome = failed(KeyError("x"))
    back = Outcome.from_dict(outcome.to_dict())
    assert back.error == RecordedError("builtins.KeyError", "'x'")
    assert Outcome.from_dict(back.to_dict()) == back
    assert back.to_dict() == outcome.to_dict()


def test_two_outcomes_share_no_dict_or_list():
    first, second = failed(), failed()
    first.emitted["a"] = 1
    first.missing.append("b")
    assert (second.emitted, second.missing) == ({}, [])


def test_a_detection_says_itself_as_plain_data():
    detection = Detection(
        "content", "chant", "text", "loop", 10, 10, 0, 30, Evidence("abc", "0" * 16, 3, (0, 3)), "it repeats"
    )
    data = detection.to_dict()
    assert data["type"] == "detection"
    assert data["evidence"] == {
        "excerpt": "abc",
        "xxhash": "0" * 16,
        "length": 3,
        "offsets": [0, 3],
        "nats": None,
        "tools": [],
    }


# --- errors

ERRORS: list[MonitorError] = [
    MonitorError("m"),
    ConfigError("m"),
    MissingExtra("google-genai", "google"),
    AdapterError("m"),
    SourceFailed("m"),
    RunFailed(failed(RecordedError("builtins.OSError", "gone"))),
    StoppedByGuard(Stop(TerminateReason.TIMEOUT, "the run took 9 s", "timeout"), Turn(number=1, text="half")),
    StoreError("m"),
    SessionNotFound("m"),
    SessionBusy("s", SessionOwner(pid=1, started_at_s=2.0, host="h", program="p"), "w"),
    SessionLost("m"),
    SessionDamaged("m"),
    SessionTooNew("s", 2, 1),
    SessionUnavailable("m"),
    BudgetUnreachable("m"),
    ToolError("m"),
    ToolRetry("m"),
    RecordedError("builtins.OSError", "gone"),
]


def test_the_list_above_has_every_error_of_the_library():
    found = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, Exception)}
    assert {type(error) for error in ERRORS} == found | {
        RunFailed,
        StoppedByGuard,
    }  # beside `Outcome` and `Turn`, which they carry


def test_the_tree_that_is_drawn_is_the_tree():
    ends = "Error|Retry|Extra|Failed|ByGuard|Busy|NotFound|Lost|Damaged|TooNew|Unavailable|Unreachable"
    drawn = re.findall(rf"^ +(\w+(?:{ends}))\b", errors.__doc__ or "", re.MULTILINE)
    assert drawn == [type(error).__name__ for error in ERRORS]
    lines = [line for line in (errors.__doc__ or "").splitlines() if line.strip().split(" ")[0] in drawn]
    depth = {line.split()[0]: (len(line) - len(line.lstrip()) - 4) // 2 for line in lines}
    assert depth == {type(error).__name__: type(error).__mro__.index(MonitorError) for error in ERRORS}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_error_can_be_pickled_and_says_the_same_then(error: MonitorError):
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_a_missing_package_names_the_extra_that_brings_it():
    assert "pip install 'agent-monitor[google]'" in str(MissingExtra("google-genai", "google"))


def test_records_of_exceptions_are_equal_by_what_they_say():
    one = RecordedError("a.B", "m")
    assert one == RecordedError("a.B", "m")
    assert hash(one) == hash(RecordedError("a.B", "m"))
    assert one not in (RecordedError("a.B", "n"), RecordedError("a.C", "m"), "a.B: m")


# --- usage

COUNTS = st.integers(0, 10**6)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
REPORTS = st.builds(UsageReport, *[st.none() | COUNTS] * 5)


@given(USAGES, USAGES, USAGES)
def test_usage_adds_up_in_any_order(a: Usage, b: Usage, c: Usage):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a


@given(USAGES, REPORTS)
def test_a_report_never_lowers_a_running_total(usage: Usage, report: UsageReport):
    later = usage.merged(report)
    assert later.input_tokens == max(usage.input_tokens, report.input_tokens or 0)
    assert later.output_tokens == max(usage.output_tokens, report.output_tokens or 0)
    assert later.total_tokens >= max(
        usage.total_tokens, report.total_tokens or 0, later.input_tokens + later.output_tokens
    )


@given(USAGES, REPORTS)
def test_the_same_report_again_changes_nothing(usage: Usage, report: UsageReport):
    assert usage.merged(report).merged(report) == usage.merged(report)


def test_what_a_report_does_not_say_stays():
    assert Usage(5, 6, 2, 1, 11).merged(UsageReport(output_tokens=9)) == Usage(5, 9, 2, 1, 14)


def test_a_total_may_be_more_than_its_parts():
    """Tokens of tool prompts, for instance, are in the total alone."""
    assert Usage().merged(UsageReport(input_tokens=5, output_tokens=6, total_tokens=20)).total_tokens == 20


def test_a_node_of_a_tree_is_a_value():
    assert hash(Met("a", met=True, parts=(Met("b", met=False),))) == hash(
        Met("a", met=True, parts=(Met("b", met=False),))
    )


def test_a_finish_reason_may_be_given_by_its_word():
    finished = TurnFinished("length")
    assert finished == TurnFinished(FinishReason.LENGTH)
    assert finished.finish_reason is FinishReason.LENGTH


def test_a_word_that_is_no_finish_reason_is_no_chunk():
    with pytest.raises(ConfigError, match=r"finish_reason is one of .*, not 'whatever'"):
        TurnFinished("whatever")


def test_an_outcome_and_a_turn_are_shown_in_one_short_line():
    assert repr(failed()) == "<Outcome failed, timeout: the run took 9 s (0 turns, 0 s)>"
    turn = monitor.outcome.Turn(number=3, text="word " * 1000, finish_reason=monitor.FinishReason.DONE)
    assert repr(turn).startswith("<Turn 3: done, 'word word")
    assert len(repr(turn)) < 100


def test_an_outcome_has_no_truth_value_and_is_copied_and_compared_all_the_same():
    with pytest.raises(monitor.ConfigError, match=r"write if outcome\.ok"):
        bool(failed())
    assert copy.deepcopy(failed()) == pickle.loads(pickle.dumps(failed())) == failed()
