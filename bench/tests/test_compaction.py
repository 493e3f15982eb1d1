"""The benchmark of the compaction still runs, has numbers for all that it promises, and would find
what it looks for. Nothing is timed.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
import pytest

import monitor
from bench import compaction
from bench._compaction_cost import ROWS
from bench._compaction_faults import FaultRun
from bench._compaction_runs import Pace, Script, measure
from bench._compaction_script import Checker, Meter, stand_in
from bench._compaction_unread import SHAPES, WAYS, unread
from monitor.chunks import ToolCall, ToolResult
from monitor.context.compaction.pinned import PinnedFacts
from monitor.context.cut import KeepTokens
from monitor.context.history import History
from monitor.messages import AssistantMessage, Message, Text, UserMessage
from monitor.models import ModelRequest
from monitor.runs.context.compactor import Compactor
from monitor.testing import ScriptedModel

FEW = ("default", "gemini_cli", "extractive")
"""One in the background, one in XML, one without a model; tests/compaction drives all of them."""
TINY = compaction.Sizes(
    presets=FEW,
    turns=60,
    joined=4,
    runs=12,
    fact_turns=40,
    fact_runs=4,
    facts=2,
    every=5,
    full=5_000,
    sizes=(),
    rounds=1,
    turn_turns=5,
    workers=1,
    shapes=((4, 9_000, 32_000),),
)
TIMED = ("loop blocked", "turn")


def test_compaction() -> None:
    results = compaction.run_all(TINY)
    compaction.show(results)
    data = json.loads(json.dumps(results.to_dict()))
    for name in ("long", "joined", "failing"):
        assert [row["preset"] for row in data[name]] == list(FEW)
        assert all(row["requests"] >= 60 and sum(row["compactions"].values()) for row in data[name])
    assert data["facts"][-1]["preset"] == "pinned only"
    assert all(row["kept"]["user preferences"] == {"kept": 2, "planted": 2} for row in data["facts"])
    assert data["struck"]["runs"] == 12
    assert [(row["preset"], row["way"], row["missing"]) for row in data["unread"]] == [
        (one, way, 0) for one in FEW for way in WAYS
    ]
    for name in ("long", "joined", "failing", "facts"):
        assert all(row["validated"] == row["requests"] - row["over_the_window"] for row in data[name])
    assert {row["row"] for row in data["full_window"]} == set(ROWS)
    assert set(data["goals"][0]) == {"goal", "value", "limit", "passed"}
    missed = {
        goal["goal"] for goal in data["goals"] if not goal["passed"] and not any(word in goal["goal"] for word in TIMED)
    }
    assert missed == set()


def test_a_request_is_counted_whole() -> None:
    said = UserMessage((Text("one two three"),))
    tools = (monitor.models.ToolSpec("look", "Look.", {"type": "object"}),)
    meter = Meter()
    counts = [
        meter.tokens(ModelRequest((said,) * many, instructions, tools))
        for many in (1, 2)
        for instructions in (None, "Be brief.")
    ]
    assert counts[0] < counts[1] < counts[2] < counts[3]


def test_the_stand_in_keeps_first_sentences_only() -> None:
    model = ScriptedModel(stand_in)
    messages = [UserMessage((Text(f"Wish {number}. " + f"And reason {number}. " * 20),)) for number in range(60)]
    result = anyio.run(
        partial(monitor.Compaction(keep=KeepTokens(1_000)).compact, messages, model=model, window=20_000)
    )
    assert len(model.requests) == 1
    assert result.record is not None
    assert "Wish 7." in result.record.summary
    assert "reason 7." not in result.record.summary


def test_a_library_that_forgets_outputs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.runs.run_parts.frontier", lambda _: PinnedFacts())
    monkeypatch.setattr("monitor.context.compaction.pinned._handed_over", lambda _: ())
    row = measure("opencode", Script(200), every=200)
    assert row.outputs["gone"]


def test_a_library_that_summarises_unread_results_away_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.runs.context.compactor.unread_from", lambda *_, **__: None)
    assert [unread("default", SHAPES[0], way).missing for way in WAYS] == [4, 4, 4]


def grown(number: int) -> AssistantMessage:
    """A turn with a call and its result."""
    one = ToolCall(f"c{number}", "look", {"at": number})
    return AssistantMessage((Text(f"Step {number}."), one), (ToolResult(one.id, "look", f"{number} is there"),))


BAD: dict[str, Message] = {
    "an id for the second time": grown(3),
    "a call that nobody answers": AssistantMessage((ToolCall("new", "look", {}),)),
    "a message that says nothing": AssistantMessage(()),
    "a name that no provider takes": AssistantMessage(
        (ToolCall("n", "look up!", {}),), (ToolResult("n", "look up!", "x"),)
    ),
    "an id that is too long": AssistantMessage((ToolCall("n" * 99, "look", {}),), (ToolResult("n" * 99, "look", "x"),)),
    "an empty text": UserMessage((Text(""),)),
}


REFUSED = ("a name that no provider takes", "an id that is too long")


@pytest.mark.parametrize("bad", BAD)
def test_what_a_provider_refuses_is_found_wherever_it_comes_though_only_what_is_new_is_looked_at(bad: str) -> None:
    for at in range(5, 12):
        checker, whole = Checker(10**9), Checker(1)
        messages: list[Message] = [UserMessage((Text("Begin."),)), *map(grown, range(4))]
        found = []
        for number in range(5, 14):
            messages.append(BAD[bad] if number == at else grown(number))
            found.append(bool(checker.problems(tuple(messages))))
            assert found[-1] == bool(whole.problems(tuple(messages)))
        assert found == [number >= at and bad in REFUSED for number in range(5, 14)]
        assert (checker.checked, whole.whole) == (9, 9)
        assert checker.whole <= 3 or bad in REFUSED


def test_what_was_changed_far_back_is_found() -> None:
    checker = Checker(10**9)
    messages: tuple[Message, ...] = (UserMessage((Text("Begin."),)), *map(grown, range(20)))
    assert checker.problems(messages) == []
    assert checker.problems((*messages[:3], BAD[REFUSED[0]], *messages[4:]))


def test_a_machine_that_becomes_slower_is_no_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.001 * (1 + now)  # everything takes longer and longer
        return now

    monkeypatch.setattr("bench._compaction_runs.time.thread_time", clock)
    pace = Pace()
    for _ in range(500):
        pace.turn_begins(0.0)
    assert 0.95 < pace.growth < 1.05


def test_a_library_that_commits_by_halves_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = History.commit

    def by_halves(self: History, edit: monitor.context.HistoryEdit) -> Any:
        done = commit(self, edit)
        self._messages.pop()
        self._shown = None
        return done

    monkeypatch.setattr(History, "commit", by_halves)
    found = [FaultRun(1, number, "abort").play() for number in range(6)]
    assert any("neither before nor after" in one for run in found for one in run.violations)


def test_a_library_that_commits_after_the_end_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def close(self: Compactor) -> None: ...

    monkeypatch.setattr(Compactor, "close", close)
    monkeypatch.setattr(Compactor, "cancel", lambda _: None)
    found = [FaultRun(1, number, "abort").play() for number in range(20)]
    assert any("after the end" in one or "tasks are left" in one for run in found for one in run.violations)
