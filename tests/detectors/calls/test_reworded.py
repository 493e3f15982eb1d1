from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.detectors import NoProgress, ToolPolicy
from monitor.detectors.calls.answers import found_nothing
from monitor.detectors.calls.reworded import Nearness, nearness
from monitor.errors import ConfigError
from tests.detectors.agent import Agent

WORDINGS = [
    "broken river gauge repair",
    "repair broken river gauge",
    "how to repair a broken river gauge",
    "broken river gauge repair guide",
    "river gauge broken, repair manual",
    "repairing broken river gauges",
]
NOTHING = [
    "",
    "[]",
    "{}",
    "null",
    "No results found.",
    "No matching documents.",
    '{"results": [], "total": 0}',
    "Found no matches",
    "\u6ca1\u6709\u7ed3\u679c",
]


def searches(tool: str, queries: list[str], answer: Any = "No results found.", key: str = "query") -> Agent:
    run = Agent(NoProgress())
    for query in queries:
        run.turn((tool, {key: query}, answer(query) if callable(answer) else answer))
    return run


@pytest.mark.parametrize("answer", NOTHING)
@pytest.mark.parametrize("tool", ["search", "web_search", "ask_docs"])
def test_one_search_in_other_words_is_a_suspicion_at_three_and_a_loop_at_five(tool: str, answer: str):
    run = searches(tool, WORDINGS, answer)
    assert run.levels == [("suspect", 3), ("loop", 5), ("loop", 6)]
    assert len({found.evidence.xxhash for found in run.found}) == 1
    assert run.found[1].message == f"{tool} was asked the same in 5 wordings in a row, and found nothing each time"
    assert run.found[1].evidence.offsets == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    "answer",
    [
        lambda query: f'No results found for "{query}".',
        lambda query: json.dumps({"query": query, "hits": [], "took_ms": len(query), "request_id": query[::-1]}),
        lambda query: f"You asked: {query}\n1. A guide to ferries",
    ],
)
def test_an_answer_that_repeats_the_question_is_the_same_answer(answer: Any):
    assert searches("search", WORDINGS, answer).kinds == {"same_result"}


def test_a_long_answer_is_one_loop_with_one_identity():
    run = searches("search", WORDINGS, "The same page. " * 40)
    assert run.levels == [("suspect", 3), ("loop", 5), ("loop", 6)]
    assert len({found.evidence.xxhash for found in run.found}) == 1


def test_a_hit_ends_it_and_so_does_other_work():
    run = Agent(NoProgress())
    for number, query in enumerate(WORDINGS * 3):
        run.turn(("search", {"query": query}, "a hit" if number % 3 == 2 else "[]"))
    assert run.found == []
    for query in WORDINGS:
        run.turn(("search", {"query": query}, "[]"))
        run.turn(("bash", {"command": query}, "done"))
    assert run.found == []


def test_other_hits_are_progress():
    assert searches("search", WORDINGS, lambda query: f"{len(query)} ferries").found == []


@pytest.mark.parametrize(
    "queries",
    [
        [f"floods in {place} this week" for place in ("Paris", "Lima", "Oslo", "Quito", "Cairo", "Turin")],
        [f"open order {number} of this customer" for number in range(6)],
        ["src/river.py", "src/gauge.py", "src/mill.py", "src/ferry.py", "src/boat.py", "src/lock.py"],
        ["getUser", "get_user", "fetchUser", "loadUser", "readUser", "findUser"],
        ["red wine", "old bridges", "new boats", "tall trees", "wide rivers", "cold winters"],
    ],
)
def test_who_asks_about_one_thing_after_the_other_gets_on(queries: list[str]):
    assert searches("search", queries).found == []


def test_one_word_in_the_place_of_another_is_a_suspicion_and_no_more():
    run = searches(
        "search",
        [f"how to {verb} the river gauge" for verb in ("mend", "fix", "repair", "heal", "patch", "cure", "restore")],
    )
    assert run.levels == [("suspect", 3)]


def test_siblings_that_ask_in_other_words_are_one_question():
    run = Agent(NoProgress())
    run.turn(*(("search", {"query": query}, "[]") for query in WORDINGS))
    assert run.found == []


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("edit_file", lambda n: {"path": "a", "new": f"the same text in other words {'again ' * n}"}),
        ("send_mail", lambda n: {"query": f"the same text in other words {'again ' * n}"}),
        ("sql", lambda n: {"query": f"INSERT INTO the_table VALUES {'again ' * n}"}),
        ("search", lambda n: {"query": "river gauge", "page": n}),
        ("bash", lambda n: {"command": f"grep -rn river {'gauge ' * n}"}),
    ],
)
def test_what_is_no_question_is_not_counted(tool: str, arguments: Any):
    run = Agent(NoProgress(short_results_at=None))
    for number in range(9):
        run.turn((tool, arguments(number), ""))
    assert run.found == []


def test_more_wanted_of_the_same_is_the_same_question():
    run = Agent(NoProgress())
    for number in range(5):
        run.turn(("search", {"query": "river gauge", "limit": 5 * number}, "[]"))
    assert run.kinds == {"same_result"}


def test_it_has_its_own_numbers_and_can_be_switched_off():
    run = Agent(NoProgress(reworded_suspect_at=None, reworded_at=4))
    for query in WORDINGS:
        run.turn(("search", {"query": query}, "[]"))
    assert run.levels == [("loop", 4), ("loop", 5), ("loop", 6)]
    off = Agent(NoProgress(reworded_suspect_at=None, reworded_at=None))
    for query in WORDINGS:
        off.turn(("search", {"query": query}, "[]"))
    assert off.found == []
    with pytest.raises(ConfigError, match="reworded_at="):
        NoProgress(reworded_at=1)


@pytest.mark.parametrize("policy", [ToolPolicy(exempt=True), ToolPolicy(paginating=True), ToolPolicy(polling=True)])
def test_a_tool_that_is_said_to_ask_again_on_purpose_is_not_counted(policy: ToolPolicy):
    run = Agent(NoProgress(tools={"search": policy}))
    for query in WORDINGS:
        run.turn(("search", {"query": query}, "[]"))
    assert run.found == []


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"q": "river gauge"}, {"q": "gauge river"}, "near"),
        ({"q": "river gauge"}, {"q": "river gauge"}, "equal"),
        ({"q": "river gauge"}, {"q": "the river gauge"}, "near"),
        ({"q": "river gauge repair"}, {"q": "river gauge cost"}, "one place"),
        ({"q": "river gauge"}, {"q": "mill wheel"}, "other"),
        ({"q": "river gauge", "id": "a b"}, {"q": "gauge river", "id": "a c"}, "other"),
        ({"q": "river gauge", "fresh": True}, {"q": "gauge river", "fresh": False}, "other"),
        (
            {"q": "\u4fee\u590d\u6570\u636e\u5e93\u8fde\u63a5"},
            {"q": "\u6570\u636e\u5e93\u8fde\u63a5\u4fee\u590d"},
            "near",
        ),
    ],
)
def test_how_two_questions_differ(one: dict[str, Any], other: dict[str, Any], expected: Nearness):
    assert nearness(one, other) == nearness(other, one) == expected


VALUES = st.one_of(st.text("ab 1A", max_size=9), st.integers(0, 3), st.none(), st.lists(st.integers(0, 2), max_size=2))
QUESTIONS = st.dictionaries(st.sampled_from(["q", "limit", "path", "note"]), VALUES, max_size=4)


@given(QUESTIONS, QUESTIONS)
def test_the_order_of_two_questions_makes_no_difference(one: dict[str, Any], other: dict[str, Any]):
    assert nearness(one, other) == nearness(other, one)
    assert nearness(one, one) == "equal"


@pytest.mark.parametrize(
    "text",
    ["a hit", '{"results": [1]}', '{"error": "no key"}', "No problem, done", "Notes: none", '{"total": 3}', "x" * 2000],
)
def test_what_is_an_answer(text: str):
    assert not found_nothing(text)
