"""Hermes: what its guard of tool loops tests, restated. There hard stops are on for unattended runs
only, here always.
"""

from __future__ import annotations

from typing import Any

import pytest

from monitor.detectors import ToolPolicy
from tests.detectors.peers.scripts import loops, numbered, row

PYTEST = ("terminal", {"command": "pytest -q"}, '{"output": "1 failed", "exit_code": 1}', True)
RECORD = (
    '{"status": "success", "output": "", "exit_code": 0, "duration_seconds": 1.{n}, "kernel": {"reused": true,'
    ' "execution_count": 10{n}}}'
)
COUNTS = "a number that counts on may be progress; when it went on for longer, it is none"
TURN = "two calls that get the same two answers eight times are turning in circles, though one of them is a click"


def patch(number: int) -> tuple[Any, ...]:
    return ("patch", {"path": "x.py", "new_string": f"b{number}"}, '{"success": true}')


@pytest.mark.feature("ST-07", "ST-08")
@pytest.mark.parametrize(
    ("script", "ours", "options"),
    [
        row("the same call fails, four times", [PYTEST] * 4, False),
        row("the same call fails, five times", [PYTEST] * 5, True),
        row("the same success, five times", numbered("terminal", 5, "local\n", {"command": "config get"}), True),
        row("four", numbered("terminal", 4, "local\n", {"command": "config get"}), False),
        row(
            "an unchanged poll, six times",
            numbered("process_manage", 6, "running", {"action": "poll", "session_id": "p1"}),
            False,
        ),
        row(
            "an unchanged poll, twenty times",
            numbered("process_manage", 20, "running", {"action": "poll", "session_id": "p1"}),
            True,
        ),
        row("a changed result", numbered("terminal", 6, "t{n}", {"command": "date"}), False),
        row("fix and test, twelve times", [step for n in range(12) for step in (PYTEST, patch(n))], False),
        row(
            "fix, then four checks, twelve times",
            [s for n in range(12) for s in (patch(n), PYTEST, *[(c, {}) for c in ("ruff", "mypy", "sh")])],
            False,
        ),
        row("four, an edit, four", [*[PYTEST] * 4, patch(1), *[PYTEST] * 4], False),
        row("four, an edit, five", [*[PYTEST] * 4, patch(1), *[PYTEST] * 5], True),
        row(
            "a sweep of commands that print nothing and fail",
            [
                ("terminal", {"command": f"grep -q needle{n} hay.txt"}, '{"output": "", "exit_code": 1}', True)
                for n in range(12)
            ],
            False,
        ),
        row(
            "one message to eight people, no route",
            numbered("send_message", 8, '{"error": "no route"}', error=True),
            True,
        ),
        row(
            "a page that times out, and a click on retry",
            [
                ("browser_navigate", {"url": "app"}, '{"error": "timeout"}', True),
                ("browser_click", {"at": "#retry"}, '{"ok": true}'),
            ]
            * 8,
            True,
            theirs=False,
            why=TURN,
        ),
        row(
            "records that differ by time and counter",
            numbered("execute_code", 5, RECORD, {"code": "pass"}),
            False,
            theirs=True,
            why=COUNTS,
        ),
        row(
            "records whose output differs",
            numbered("execute_code", 9, RECORD.replace('""', '"line {n}"'), {"code": "pass"}),
            False,
        ),
        row(
            "a job whose duration is the answer",
            numbered("ci_job_status", 9, '{"status": "done", "duration_seconds": 1{n}}', {"job": 1}),
            False,
        ),
        row(
            "other arguments, one long page",
            numbered("execute_code", 5, "Please log in to go on. " * 20),
            False,
            theirs=True,
            why="many files or hosts of a list may answer the same at length",
        ),
        row("other arguments, a short receipt", numbered("execute_code", 9, "done"), False),
        row(
            "one check in three phrasings, a counter in its answer",
            [
                ("terminal", {"command": ["check", "sh check", "bash check"][n % 3]}, f"CHANGED:{n}/{n}")
                for n in range(30)
            ],
            False,
            theirs=True,
            why="a changed answer is progress, until somebody says that it is not",
        ),
        row(
            "the same, said so",
            [
                ("terminal", {"command": ["check", "sh check", "bash check"][n % 3]}, f"CHANGED:{n}/{n}")
                for n in range(30)
            ],
            True,
            tools={
                "terminal": ToolPolicy(
                    loop_key=lambda arguments: arguments["command"].split()[-1], volatile=("CHANGED",)
                )
            },
        ),
    ],
)
def test_rows(script: list[Any], ours: bool, options: dict[str, Any]):
    assert loops(script, **options) is ours
