"""OpenClaw's detector of tool loops, restated (L: its conformance rows; without a letter: more of
its test cases).

There everything is off by default, ten times is a warning and twenty critical; here three times is
a suspicion and five a loop. Its rows are run with as many calls as it takes there.
"""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest

from monitor._util.hashing import canonical_json, identity
from monitor.detectors import ToolPolicy
from tests.detectors.agent import letters
from tests.detectors.peers.scripts import agent, loops, numbered, play, row

SAME = {"path": "same.txt"}
PING = {"action": "send", "target": "chat", "text": "ping"}
RECEIPT = '{"ok": true, "chat": "c1", "messageId": "om_{n}", "runId": "run_{n}", "receipt": {"id": "p_{n}"}}'
EXEC = {"exec": ToolPolicy(volatile=("pid", "session", "duration_ms"))}
CHANGES = "a changed result is progress, and no more than that"


def writes(*paths: object, result: str = "wrote {path}") -> list[Any]:
    return [
        ("write", {"path": path, "content": "same"}, result.replace("{path}", str(path)).replace("{n}", str(n)))
        for n, path in enumerate(paths)
    ]


@pytest.mark.feature("ST-07", "ST-08")
@pytest.mark.parametrize(
    ("script", "ours", "options"),
    [
        row(
            "L3 twenty equal calls, nothing configured",
            numbered("read", 20, "same", SAME),
            True,
            theirs=False,
            why="a guard that is off guards nobody",
        ),
        row("L4 15 unique calls", numbered("read", 15, "file {n}"), False),
        row("ten equal calls, no results known", numbered("read", 10, None, SAME), True),
        row("L6 twenty equal calls, equal results", numbered("read", 20, "same output", SAME), True),
        row(
            "L7 a poll ten times, unchanged: a warning",
            numbered("process", 10, "(no new output) still running", {"action": "poll"}),
            False,
        ),
        row(
            "L7 a poll twenty times, unchanged",
            numbered("process", 20, "(no new output) still running", {"action": "poll"}),
            True,
        ),
        row("a poll that gets on, 25 times", numbered("process", 25, "line {n}", {"action": "poll"}), False),
        row("L9 thirty, whatever the tool", numbered("anything", 30, "same", SAME), True),
        row("churn: a, b, a, a, b", writes(*"ABAAB" * 6), True),
        row("churn with two probes", writes(*(f"probe{n}" if n in {8, 19} else n % 2 for n in range(30))), True),
        row("thirty different files, one receipt", writes(*range(30), result="write complete"), False),
        row("two passes over 15 files", writes(*[*range(15)] * 2), False),
        row("two paths in turn, a revision counter", writes(*"AB" * 15, result="wrote {path} revision {n}"), False),
        row(
            "L10 a command that is done: equal output",
            numbered("exec", 20, "Loki\nPrometheus", {"command": "api"}),
            True,
        ),
        row(
            "L10 a command that runs: pid and session differ",
            numbered("exec", 20, "still running (session s-{n}, pid 10{n})", {"command": "tail -f log"}),
            True,
            tools=EXEC,
        ),
        row(
            "L10 as a record",
            numbered(
                "exec", 20, '{"tail": "nothing new", "pid": 10{n}, "duration_ms": {n}}', {"command": "tail -f log"}
            ),
            True,
            tools=EXEC,
        ),
        row(
            "date: thirty times, changing",
            numbered("exec", 30, "tick {n}", {"command": "date"}),
            False,
            theirs=True,
            why=CHANGES,
        ),
        row(
            "failing in new words, not marked as an error",
            numbered("exec", 30, "runtime failed: {n}", {}),
            False,
            theirs=True,
            why=CHANGES,
        ),
        row(
            "failing, but for the number of the attempt",
            numbered("exec", 30, "failed (attempt {n} after 0.{n} s)", {}, error=True),
            True,
        ),
        row("L12 an unknown tool, four times", numbered("exec", 4, "Tool exec not found", error=True), False),
        row(
            "L12 an unknown tool, twenty, always other arguments",
            numbered("exec", 20, "Tool exec not found", error=True),
            True,
        ),
        row(
            "L12 nine times, below its threshold",
            numbered("exec", 9, "Tool exec not found", error=True),
            True,
            theirs=False,
            why="who was told four times that there is no such tool did not mistype it",
        ),
        row("L13 A-B in turn, ten", letters("AB" * 5), True),
        row("L13 A-B in turn, twenty", letters("AB" * 10), True),
        row("L13 A-B in turn, no results", letters("AB" * 5, [None] * 10), True),
        row(
            "L13 A-B in turn, both get on",
            letters("AB" * 10, [f"{n}" for n in range(20)]),
            False,
            theirs=True,
            why=CHANGES,
        ),
        row("A-B-A, then C", letters("ABACB"), False),
        row("L18 the same message, fresh ids", numbered("message", 20, RECEIPT, PING), True),
        row("L18 reply", numbered("message", 20, RECEIPT, {**PING, "action": "reply"}), True),
        row(
            "L18 a tool of sessions that sends",
            numbered("sessions_send", 20, '{"ok": true, "runId": "run_{n}"}', {"text": "ping"}),
            True,
        ),
        row(
            "L18 a tool of another name that sends",
            numbered("telegram", 20, RECEIPT, {"to": "1", "text": "ping"}),
            True,
            tools={"telegram": ToolPolicy(side_effect=True)},
        ),
        row(
            "L18 uploads and polls, told to have an effect",
            numbered("message", 20, RECEIPT, {"action": "upload-file"}),
            True,
            tools={"message": ToolPolicy(side_effect=True)},
        ),
        row(
            "ids alone differ, told to be volatile",
            numbered("message", 20, RECEIPT, {"action": "broadcast"}),
            True,
            tools={"message": ToolPolicy(volatile=("messageId", "runId", "receipt"))},
        ),
        row(
            "the place differs, ids told to be volatile",
            numbered("message", 20, '{"messageId": "om_{n}", "room": "r{n}"}', {"action": "broadcast"}),
            False,
            tools={"message": ToolPolicy(volatile=("messageId",))},
        ),
        row(
            "a different message each time",
            [("message", {**PING, "text": f"line {n}"}, RECEIPT.replace("{n}", str(n))) for n in range(20)],
            False,
        ),
        row(
            "L19 reading messages: ids are progress",
            numbered("message", 20, '{"messageId": "m_{n}", "ts": {n}}', {"action": "read"}),
            False,
        ),
        row(
            "administration: a channel made, ids differ",
            numbered("message", 20, RECEIPT, {"action": "channel-create"}),
            False,
        ),
        row(
            "L22 refused again and again",
            numbered("message", 20, "blocked: approval denied", {"action": "read"}, error=True),
            True,
        ),
        row(
            "L24 text between the calls",
            [step for n in range(5) for step in (f"Now for the {n}th time.", ("read", SAME))],
            True,
        ),
        row("L24 across messages", [[("read", SAME)]] * 5, True),
        row("L24 key order", [("t", {"a": 1, "b": 2}), ("t", {"b": 2, "a": 1})] * 3, True),
        row("L24 small changes of the arguments", numbered("sql", 5, "Error: no such table"), True),
    ],
)
def test_rows(script: list[Any], ours: bool, options: dict[str, Any]):
    assert loops(script, **options) is ours


def test_l1_arguments_have_one_identity_of_one_size():
    """Key order, what is no object, circles, what is shared, and 20,000 characters."""
    shared = {"id": 1}
    one: dict[str, Any] = {"first": shared, "second": shared}
    other: dict[str, Any] = {"second": {"id": 1}, "first": {"id": 1}}
    one["self"], other["self"] = one, other
    ones = [{"a": 1, "b": [1]}, UserDict(a=1), "text", 123, None, one, {"data": "x" * 20_000}]
    others = [{"b": [1.0], "a": 1}, {"a": 1e0}, "text", 123.0, None, other, {"data": "x" * 20_000}]
    for left, right in zip(ones, others, strict=True):
        assert identity(canonical_json(left)) == identity(canonical_json(right))
        assert len(identity(canonical_json(left))) == 16
    assert loops([("read", other)] * 5)
    assert not loops([("read", {"path": "a"}), ("write", {"path": "a"})] * 2)


def test_l7_a_poll_is_suspected_at_ten_and_a_loop_at_twenty():
    run = agent()
    play(run, numbered("process", 20, "(no new output) still running", {"action": "poll"}))
    assert run.levels == [("suspect", 10), ("loop", 20)]


def test_l15_l16_runs_are_apart_because_each_has_its_own_detectors():
    one, other = agent(), agent()
    play(one, [("read", SAME)] * 4)
    play(other, [("read", SAME)])
    assert one.kinds == other.kinds == set()


def test_l21_our_own_veto_does_not_forgive():
    run = agent()
    play(run, numbered("message", 20, RECEIPT, PING))
    found = len(run.found)
    play(run, [("message", PING, "This call was not made.", True, True), ("message", PING, None)])
    assert len(run.found) == found + 2
    assert run.found[-1].count == 22
