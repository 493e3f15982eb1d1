"""A step of a run counts once, however often it was recorded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from monitor.transcripts.analysis.copied_runs import Copies
from monitor.transcripts.analysis.recorded_steps import StepLog
from monitor.transcripts.analysis.survey import SurveyedRun, survey_file
from monitor.transcripts.base import Began, RecordedMessage
from monitor.transcripts.source import Source

SAMPLES = Path(__file__).parents[3] / "fixtures" / "readers"


def data(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def named(path: Path) -> str:
    return path.name.removesuffix(".gz")


class Sums(NamedTuple):
    runs: int
    turns: int
    calls: int
    errors: int
    tokens: int
    micro_usd: int
    loops: int


def read(name: str, content: bytes) -> tuple[SurveyedRun, ...]:
    return survey_file(Source.of_bytes(name, content)).runs


def counted(*files: tuple[str, bytes]) -> list[SurveyedRun]:
    copies = Copies()
    found = (run for name, content in files for run in read(name, content))
    return [kept for run in found if (kept := copies.without(run)) is not None]


def sums(runs: Iterable[SurveyedRun]) -> Sums:
    of = list(runs)
    return Sums(
        sum(not run.goes_on for run in of),
        sum(run.total.turns for run in of),
        sum(run.total.tool_calls for run in of),
        sum(run.errors for run in of),
        sum(run.usage.total_tokens for run in of if run.usage is not None),
        round(sum(run.cost_usd or 0 for run in of) * 1e6),
        sum(run.loops for run in of),
    )


ALL = [path for path in sorted(SAMPLES.rglob("*")) if path.is_file() and "unknown" not in path.parts]


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_a_file_under_two_names_counts_once(path: Path):
    copies, content = Copies(), data(path)
    once = [copies.without(run) for run in read(named(path), content)]
    assert [run for run in once if run is not None]
    assert [copies.without(run) for run in read(f"copy of {named(path)}", content)] == [None] * len(once)


TIMED = [
    "aider/afi-core.aider.chat.history.md.gz",
    "antigravity/transcript.jsonl",
    "claude-code/554b9fa6-f719-40e8-ba70-beee69bd60b5.jsonl.gz",
    "codex/rollout-agentv-1f4427577930-2.jsonl.gz",
    "copilot-cli/events-agentv-269e1b9e5502-0.jsonl.gz",
    "factory-droid/factory-droid-session.jsonl",
    "gemini-cli/session-hooked-0.61.jsonl",
    "goose/goose-session.jsonl",
    "kimi-cli/wire-assistant_tools.jsonl.gz",
    "openhands/sdk-goal-events.jsonl",
    "pi/large-session.jsonl.gz",
    "pi/pi-print-mode.jsonl.gz",
]


@pytest.mark.parametrize("name", TIMED)
def test_a_session_that_was_pasted_twice_into_one_file_counts_once(name: str):
    content = data(SAMPLES / name)
    twice = content.rstrip(b"\n") + b"\n" + content
    assert sums(counted((named(SAMPLES / name), twice))) == sums(counted((named(SAMPLES / name), content)))


LOOPING = "claude-code/554b9fa6-f719-40e8-ba70-beee69bd60b5.jsonl.gz"
CUT = [
    LOOPING,
    "aider/scikit-learn__scikit-learn-15512.md.gz",
    "claude-code/bd937e2a-89e9-4d7b-8125-293a35863fa4.jsonl",
    "claude-code/entire-6061721bc409-0.jsonl.gz",
    "codex/rollout-agentv-1f4427577930-2.jsonl.gz",
    "codex/rollout-skills-6cfb81c05ca9-0.jsonl.gz",
    "copilot-cli/events-agentv-6a6787e4f86b-0.jsonl.gz",
    "gemini-cli/session-hooked-0.61.jsonl",
    "kimi-cli/wire-assistant_tools.jsonl.gz",
    "opencode/opencode-run-json.jsonl",
    "pi/pi-print-mode.jsonl.gz",
]
"""A response is written in pieces in most of them, and a cut may fall between two."""


@pytest.mark.parametrize("name", CUT)
def test_a_session_and_its_beginning_in_another_file_count_once_wherever_it_was_cut(name: str):
    content = data(SAMPLES / name)
    lines = content.splitlines(keepends=True)
    whole = read("b.jsonl", content)
    every = max(1, len(lines) // 11)
    for cut in range(every, len(lines), every):
        begin = read("a.jsonl", b"".join(lines[:cut]))
        if not any(run.total.turns for run in begin):
            continue  # nothing says yet which session it is
        for order in ((begin, whole), (whole, begin)):
            copies = Copies()
            found = sums(kept for runs in order for run in runs if (kept := copies.without(run)) is not None)
            assert found._replace(micro_usd=0) == sums(whole)._replace(micro_usd=0), cut
            assert found.micro_usd == pytest.approx(sums(whole).micro_usd, abs=2)


def session(id: str, texts: Iterable[str], *, at: bool = True) -> bytes:
    """A session of Claude Code with an answer for each text, of 10 and 5 tokens each."""
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts):
        time = f"2026-03-01T10:{number:02}:00.000Z" if at else None
        about = {"sessionId": id, "parentUuid": None, "cwd": "/w", "version": "2.1.9", "timestamp": time}
        usage = {"input_tokens": 10, "output_tokens": 5}
        said = {"id": f"msg_{text}", "role": "assistant", "model": "claude-sonnet-4-5", "usage": usage}
        asked = {"type": "user", "uuid": f"u{text}", "message": {"role": "user", "content": f"Do {text}."}}
        answer = {
            "type": "assistant",
            "uuid": f"a{text}",
            "message": {**said, "content": [{"type": "text", "text": text}]},
        }
        lines += [{**about, **asked}, {**about, **answer}]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def test_of_a_fork_only_the_part_after_the_fork_is_counted_again():
    first = session("11111111-0000", ["one", "two", "three"])
    fork = session("22222222-0000", ["one", "two", "other", "end"])
    whole, rest = counted(("a.jsonl", first), ("b.jsonl", fork))
    assert (whole.total.turns, whole.usage and whole.usage.total_tokens, whole.copied_turns) == (3, 45, 0)
    assert (rest.total.turns, rest.usage and rest.usage.total_tokens, rest.copied_turns) == (2, 30, 2)
    assert rest.cost_usd == pytest.approx((whole.cost_usd or 0) * 2 / 3)
    assert not rest.goes_on


def test_a_resumed_session_without_its_own_beginning_is_one_run_with_it():
    begin, whole = session("11111111-0000", ["one"]), session("11111111-0000", ["one", "two"])
    _, rest = counted(("a.jsonl", begin), ("b.jsonl", whole))
    assert (rest.goes_on, rest.total.turns, rest.copied_turns) == (True, 1, 1)


def test_a_fork_of_which_nothing_was_new_is_a_run_once_it_goes_on():
    whole, fork = (session(f"{id * 8}-0000", ["one", "two"]) for id in "12")
    longer = session("22222222-0000", ["one", "two", "three"])
    runs = counted(("a.jsonl", whole), ("b.jsonl", fork), ("c.jsonl", longer))
    assert [(run.id, run.goes_on, run.total.turns) for run in runs] == [
        ("11111111-0000", False, 2),
        ("22222222-0000", False, 1),
    ]


def test_a_copy_that_names_more_of_the_same_steps_is_no_other_run():
    whole, other = (session(f"{id * 8}-0000", ["one", "two"]) for id in "12")
    bare = whole.replace(b'"usage"', b'"nothing"')
    assert sums(counted(("a.jsonl", bare), ("b.jsonl", other)))[:5] == (1, 2, 0, 0, 30)


def test_equal_answers_at_other_times_are_two_runs():
    first = session("11111111-0000", ["one", "two"])
    later = session("22222222-0000", ["one", "two"]).replace(b"2026-03-01", b"2026-03-02")
    assert sums(counted(("a.jsonl", first), ("b.jsonl", later)))[:2] == (2, 4)


def test_a_fork_in_the_middle_of_a_response_counts_that_response_once():
    """Claude Code writes it on several lines, and a fork may copy the first of them alone."""
    lines = session("11111111-0000", ["one", "two"]).splitlines(keepends=True)
    call = json.loads(lines[3])
    call["uuid"], call["message"]["content"] = "c", [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]
    first = b"".join([*lines, f"{json.dumps(call)}\n".encode()])
    fork = session("22222222-0000", ["one", "two", "other"])
    for order in ((first, fork), (fork, first)):
        runs = counted(("a.jsonl", order[0]), ("b.jsonl", order[1]))
        assert sums(runs)[:5] == (2, 3, 1, 0, 45)


RANDOM = "call_Ab3dEf9hIjK1", "call_Zx8wVu7tSrQ2", "call_Mn4pQr5sTu6v"


def messages(*called: str, answer: str = "") -> bytes:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for id in called:
        function = {"name": "look", "arguments": "{}"}
        rows.append({"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": function}]})
        rows.append({"role": "tool", "tool_call_id": id, "content": "closed"})
    return json.dumps([*rows, {"role": "assistant", "content": answer}] if answer else rows).encode()


def test_numbered_calls_that_are_equal_at_first_do_not_make_two_runs_one():
    runs = counted(("a.json", messages("call_1", "call_2")), ("b.json", messages("call_1", "call_2", "call_3")))
    assert sums(runs)[:3] == (2, 5, 5)


def test_calls_with_random_ids_say_that_one_file_goes_on_with_the_other():
    runs = counted(("a.json", messages(*RANDOM[:2])), ("b.json", messages(*RANDOM)))
    assert sums(runs)[:3] == (1, 3, 3)


@pytest.mark.parametrize("other", [messages(RANDOM[0], RANDOM[1]), messages(RANDOM[0], answer="It is shut.")])
def test_two_different_responses_after_equal_messages_both_count(other: bytes):
    runs = counted(("a.json", messages(RANDOM[0], answer="It is closed.")), ("b.json", other))
    assert sums(runs).turns == 3


SAID = "The lock of the door needs oil, and the key turns twice. " * 8


@pytest.mark.parametrize(
    ("one", "other", "runs"),
    [
        pytest.param(messages("call_1"), messages("call_1") + b"\n", 1, id="equal results"),
        pytest.param(messages(answer=SAID), messages(answer=SAID) + b"\n", 1, id="a long equal answer"),
        pytest.param(messages(answer="Yes."), messages(answer="Yes.") + b"\n", 2, id="a short equal answer"),
        pytest.param(messages(answer=SAID), messages(answer=SAID + "!"), 2, id="another answer"),
        pytest.param(messages("call_1"), messages("call_1", answer="Yes."), 2, id="a longer run"),
    ],
)
def test_without_times_and_random_ids_equal_runs_of_some_length_count_once(one: bytes, other: bytes, runs: int):
    assert sums(counted(("a.json", one), ("b.json", other))).runs == runs


def trajectory(*steps: int, total: int | None = None) -> bytes:
    said = [
        {"source": "agent", "message": f"{at}", "timestamp": f"2026-03-01T10:00:{at:02}Z", "metrics": None}
        for at in steps
    ]
    sums = None if total is None else {"total_prompt_tokens": total, "total_completion_tokens": 1}
    head = {"schema_version": "ATIF-v1.2", "session_id": "8d9e0f1a2b3c", "agent": {"name": "a"}}
    return json.dumps({**head, "steps": said, "final_metrics": sums}).encode()


@pytest.mark.parametrize("before", [None, 40])
def test_the_sums_of_a_run_count_beyond_those_of_its_beginning(before: int | None):
    files = ("a.json", trajectory(1, 2, total=before)), ("b.json", trajectory(1, 2, 3, total=99))
    for order in (files, files[::-1]):
        assert sums(counted(*order))[:5] == (1, 3, 0, 0, 100)


def test_the_name_of_a_file_may_be_no_text():
    assert sums(counted(("5de701fc9a\udcff.json", messages("call_1")), ("b.json", messages("call_1")))).runs == 1


def test_a_loop_of_equal_steps_at_one_time_is_no_copy():
    """A recording may have one time for a whole session."""
    log = StepLog(Began(run="a"), Source.of_bytes("a", b""))
    again = RecordedMessage("assistant", "again", at=1_700_000_000.0)
    assert [log.take(again) for _ in range(6)] == [True] * 6
    assert len({mark for mark, *_ in log.end().rows()}) == 7


def test_steps_behind_a_copy_are_new_if_they_differ():
    log = StepLog(Began(run="a"), Source.of_bytes("a", b""))
    first, second, other = (
        RecordedMessage("assistant", text, at=at) for text, at in (("a", 1.0), ("b", 2.0), ("c", 1.5))
    )
    assert [log.take(one) for one in (first, second, first, second, other, second)] == [
        True,
        True,
        False,
        False,
        True,
        True,
    ]


def test_a_loop_in_the_part_that_two_forks_share_is_told_once():
    content = data(SAMPLES / LOOPING)
    other = content.replace(b"554b9fa6-", b"00000000-")
    assert sums(counted(("a.jsonl", content), ("b.jsonl", other))).loops == 1
