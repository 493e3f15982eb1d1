"""Qwen Code: what it tests beyond Gemini CLI (Q), restated. Its cap on the calls of a turn is
`MaxToolCalls`, no detector.
"""

from __future__ import annotations

from typing import Any

import pytest

from monitor.chunks import ReasoningDelta
from monitor.detectors import ToolPolicy
from tests.detectors.agent import DONE, letters
from tests.detectors.peers.scripts import LOST, Call, agent, chants, loops, numbered, play, row

STUCK = ("stuck_tool", {"p": "same"})
LOOKS = [
    "status --short",
    "diff --stat",
    "ls-files --modified",
    "status --porcelain=v1",
    "diff --name-only",
    "status -sb",
    "diff --stat HEAD",
]


def shell(*commands: str, result: str | None = None) -> list[Call]:
    return [("run_shell_command", {"command": f"git {command}"}, result) for command in commands]


def board(*states: str | None) -> list[Call]:
    """The same look at a task board that others change."""
    return [("task_list", {"owner": "peer-a", "status": "open"}, state) for state in states]


def beside(polls: list[Call], work: Any = None) -> list[Call]:
    """Between two looks some work; by default always another."""
    return [
        step
        for n, poll in enumerate(polls)
        for step in (poll, ("tool_b", {"step": n if work is None else work}, f"step {n} is done"))
    ]


def overview(arguments: Any) -> object:
    """What all looks at a repository as a whole have in common."""
    command = arguments.get("command", "")
    return "overview" if command.removeprefix("git ") in LOOKS else command


SHELL = {"run_shell_command": ToolPolicy(loop_key=overview, loop_at=8)}
RESULTS = "a changed result is progress, of whatever tool"
NAME = "an agent that reads forty files calls one tool forty times; in 644 good runs this rule stops 75"
BUILD = (
    "a build after each edit is that as well: one good run of 391 calls holds 33 equal ones, and was stopped by nobody"
)


@pytest.mark.feature("GL-01", "ST-07", "ST-08")
@pytest.mark.parametrize(
    ("script", "ours", "options"),
    [
        row(
            "Q1 the order of keys, nested too",
            [("t", {"a": 1, "n": {"x": 1, "y": 2}}), ("t", {"n": {"y": 2, "x": 1}, "a": 1})] * 3,
            True,
        ),
        row(
            "Q2 four, a retried stream, four more",
            [*[STUCK] * 4, LOST, *[STUCK] * 4],
            True,
            theirs=False,
            why="a retry voids one turn, not four",
        ),
        row("Q2 two, then an attempt that is lost, two more", [*[STUCK] * 2, LOST, *[STUCK] * 2], False),
        row("Q6 eight looks at a repository, told to be one thing", shell(*LOOKS, LOOKS[0]), True, tools=SHELL),
        row("Q6 seven", shell(*LOOKS), False, tools=SHELL),
        row(
            "Q6 eight, nothing told",
            shell(*LOOKS, LOOKS[0]),
            False,
            theirs=True,
            why="what a shell command does is not guessed; what it gives is seen",
        ),
        row(
            "Q6 five that say the same at length",
            shell(*LOOKS[:5], result=" M src/parser.py\n" * 20),
            False,
            theirs=True,
            why="many files or hosts of a list may answer the same at length",
        ),
        row(
            "Q7 one other tool between",
            [*shell(*LOOKS), ("read_file", {"path": "README"}), *shell(*LOOKS)],
            False,
            tools=SHELL,
        ),
        row(
            "Q8 compound commands that commit",
            shell(*(f"add {n} && git status && git commit -m {n}" for n in range(9))),
            False,
            tools=SHELL,
        ),
        row("Q8 a diff of one file each", shell(*(f"diff -- src/{n}.py" for n in range(9))), False, tools=SHELL),
        row("Q12 five equal calls, three others between", letters("SaSbScSaS"), False),
        row("Q12 six, and nothing that is new", letters("SaSbSc" * 3), True),
        row("Q12 duplicates far apart, work between", letters("ABCDEFAGHIJAKLMA", [*"abcdefaghijaklma"]), False),
        row("Q12 six frozen looks, other work between", beside(board(*["frozen"] * 6)), False, theirs=True, why=BUILD),
        row("Q12 a failed attempt does not count", [LOST, *[STUCK] * 2, LOST, *[STUCK] * 2], False),
        row("Q13 A-B-A-B-A-B, the sixth", letters("ABABAB"), True),
        row("Q13 names in turn, other arguments", [(tool, {"n": n}) for n in range(5) for tool in "ab"], False),
        row("Q13 A-B-A-B-C-A-B", letters("ABABCAB"), True, theirs=False, why="one foreign call hides no cycle"),
        row("Q14 a board that changes, twenty looks", board(*(f"v{n}" for n in range(20))), False),
        row("Q14 a board that does not, five", board(*["#1 open"] * 5), True),
        row("Q14 no results, five", board(*[None] * 5), True),
        row("Q14 four", board(*["#1 open"] * 4), False),
        row("Q14 a change in the middle", board("v1", "v1", "v2", "v1", "v1", "v1"), False),
        row("Q14 a change, then five the same", board("v1", "v1", "v2", "v1", "v1", "v1", "v1", "v1"), True),
        row("Q14 two states in turn", board(*("ab" * 12)), False),
        row("Q14 two states in turn, work between", beside(board(*("ab" * 12))), False),
        row("Q14 in turn with work, changing", beside(board(*(f"v{n}" for n in range(9))), "same"), False),
        row("Q14 in turn with work, frozen", [*board("frozen"), ("tool_b", {})] * 4, True),
        row("Q14 in turn with work, no results", [*board(None), ("tool_b", {}, None)] * 4, True),
        row("Q14 in one batch with work, changing", [[*board(f"v{n}"), ("tool_b", {})] for n in range(9)], False),
        row("Q14 in one batch, the other order", [[("tool_b", {}), *board(f"v{n}")] for n in range(9)], False),
        row("Q14 in one batch with work, frozen", [[*board("frozen"), ("tool_b", {})] for _ in range(4)], True),
        row(
            "Q14 twelve looks at three owners, frozen",
            [("task_list", {"owner": n % 3}, "frozen") for n in range(12)],
            True,
        ),
        row(
            "Q14 twelve looks at three owners, changing",
            [("task_list", {"owner": n % 3}, f"v{n}") for n in range(12)],
            False,
        ),
        row(
            "Q14 taken up again, one change, the rest not seen",
            [*board(*["v"] * 4), ("x", {}), *board("w", None, None, None, None)],
            True,
        ),
        row(
            "Q14 a file that changes",
            numbered("read_file", 9, "content {n}", {"path": "a"}),
            False,
            theirs=True,
            why=RESULTS,
        ),
        row(
            "Q14 a note with a constant digest in it",
            board(*(f"row {n}\nsha256: {'deadbeef' * 8}\nmore {n}" for n in range(20))),
            False,
        ),
        row("Q14 frozen, with a digest in it", board(*[f"row\nsha256: {'deadbeef' * 8}\ntail"] * 5), True),
        row(
            "Q14 too long, saved under the id of its call",
            board(*(f"a preview (all of it: results/call_{n}.txt)" for n in range(5))),
            True,
        ),
        row(
            "Q14 too long and changing",
            board(*(f"preview {n} (all of it: results/call_{n}.txt)" for n in range(20))),
            False,
        ),
        row(
            "reading: twenty files in turn",
            [(("read_file", "list_directory")[n % 2], {"path": n}, f"text {n}") for n in range(20)],
            False,
        ),
        row(
            "reading: eight of fifteen",
            [("write_file", {}), *numbered("read_file", 15, "text {n}")],
            False,
            theirs=True,
            why=NAME,
        ),
        row(
            "stagnation: one tool eight times, other arguments",
            numbered("search_code", 8, "found {n}"),
            False,
            theirs=True,
            why=NAME,
        ),
    ],
)
def test_calls(script: list[Any], ours: bool, options: dict[str, Any]):
    assert loops(script, **options) is ours


TEXT = "This sentence is one of its kind. "
LAYOUT = "a bullet makes no list of a line that is said twenty times"
RULE = "the longest rule in 440 texts has 338 characters; this one has a thousand"


@pytest.mark.feature("GL-02", "GL-03")
@pytest.mark.parametrize(
    ("text", "ours", "options"),
    [
        *(
            row(f"Q3 twenty equal lines with {mark}", f"{mark} {TEXT}{TEXT}\n" * 20, True, theirs=False, why=LAYOUT)
            for mark in "-*+"
        ),
        *(row(f"Q3 five equal lines with {mark}", f"{mark} {TEXT}\n" * 5, False) for mark in "-*+"),
        *(
            row(f"Q3 ten equal lines with {mark}", f"{mark} {TEXT}\n" * 10, True, theirs=False, why=LAYOUT)
            for mark in "-*+"
        ),
        *(
            row(
                f"Q3 twenty lines with {mark}, each its own",
                "".join(f"{mark} item {n} {n * 7919}\n" for n in range(20)),
                False,
            )
            for mark in "-*+"
        ),
        row("Q3 without a bullet", f"{TEXT}{TEXT}\n" * 10, True),
        *(row(f"Q4 a chant of {token}", token * 100, True) for token in ("ABCDE", "01234", "SELEC")),
        *(row(f"Q5 a rule of {mark}", mark * 80 + "\n" + mark * 80, False) for mark in "-=*_+\u2500\u2501"),
        *(
            row(f"Q5 a rule of {mark}, a thousand long", mark * 1_000, True, theirs=False, why=RULE)
            for mark in "-=*_+\u2500\u2501"
        ),
    ],
)
def test_texts(text: str, ours: bool, options: dict[str, Any]):
    assert chants(text) is ours


def thoughts(*said: str) -> bool:
    run = agent()
    for thought in said:
        run.observe(ReasoningDelta(thought))
    run.observe(DONE)
    return bool(run.found)


def test_q_thoughts_are_watched_as_text_is():
    """There three equal summaries of thoughts in a row are a loop; here it takes as much text as in
    an answer.
    """
    plan = "Plan: inspect the migration script before anything else is done. "
    assert thoughts(*[plan] * 9)
    assert not thoughts(*[plan] * 3)
    assert not thoughts("Plan: look.", "Analysis: risks.", "Plan: look.", "Next: draft.", "Plan: look.")


def test_q_equal_thoughts_with_calls_between_are_none():
    run = agent()
    for number in range(9):
        play(
            run,
            [ReasoningDelta("Plan: inspect the schema."), ("read_file", {"path": f"{number}.sql"}, f"table {number}")],
        )
    assert run.found == []
