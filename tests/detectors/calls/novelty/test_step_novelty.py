"""Questions in other words, and one error to many calls: new calls with a known answer."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from monitor.detectors import ToolPolicy
from tests.detectors.calls.novelty.steps import WORDS, Step, stopped

WORDINGS = [
    "broken river gauge repair",
    "repair broken river gauge",
    "how to repair a broken river gauge",
    "broken river gauge repair guide",
    "river gauge broken, repair manual",
    "repairing broken river gauges",
]
PAGE = "1. A guide to ferries 2. The old mill on the Severn 3. Rivers of the north, a short guide"


def searches(queries: list[str], answer: str | Callable[[str], str] = "No results found.") -> list[Step]:
    return [("search", {"query": one}, answer(one) if callable(answer) else answer) for one in queries]


@pytest.mark.parametrize(
    "answer",
    [
        *(
            "",
            "[]",
            "null",
            "No results found.",
            "No matching documents.",
            '{"results": [], "total": 0}',
            "Found no matches",
        ),
        *("I couldn't find any results.", "\u6ca1\u6709\u7ed3\u679c", PAGE),
        lambda query: f'No results found for "{query}".',
        lambda query: json.dumps(
            {"query": query, "hits": [], "took_ms": len(query), "request_id": f"{7919 ** len(query):x}"}
        ),
    ],
)
@pytest.mark.parametrize("request_text", ["", "Find out how it is mended."])
def test_one_search_in_other_words_is_a_loop_whatever_says_that_nothing_was_found(
    answer: str | Callable[[str], str], request_text: str
):
    assert stopped(searches([*WORDINGS, "how to repair broken river gauge"], answer), request_text)
    assert not stopped(searches(WORDINGS[:4], answer), request_text)


def test_more_wanted_of_the_same_question_is_the_same_question():
    steps: list[Step] = [
        ("search", {"query": one, "limit": 5 * at}, "[]") for at, one in enumerate(WORDINGS + WORDINGS[1:3])
    ]
    assert stopped(steps)


def test_words_in_another_order_are_the_same_question_also_without_spaces():
    queries = ["如何修复数据库连接错误", "数据库连接错误如何修复", "修复数据库连接错误如何", "数据库错误连接如何修复"]
    steps = searches([*queries, "如何连接数据库错误修复", "错误连接数据库如何修复"], "没有结果")
    assert stopped(steps)


def test_other_hits_are_news():
    assert not stopped(searches(WORDINGS, lambda query: f"{WORDS[len(query) % 18]}, {WORDS[len(query) % 7]}"))


@pytest.mark.parametrize(
    "queries",
    [
        [f"floods in {place} this week" for place in ("Paris", "Lima", "Oslo", "Quito", "Cairo", "Turin")],
        [f"open order {number} of this customer" for number in range(6)],
        ["src/river.py", "src/gauge.py", "src/mill.py", "src/ferry.py", "src/boat.py", "src/lock.py"],
        ["red wine", "old bridges", "new boats", "tall trees", "wide rivers", "cold winters"],
    ],
)
def test_who_asks_about_one_thing_after_the_other_is_not_stopped(queries: list[str]):
    assert not stopped(searches(queries))


@pytest.mark.parametrize("policy", [ToolPolicy(exempt=True), ToolPolicy(polling=True)])
def test_a_tool_that_is_said_to_ask_again_on_purpose_is_left_alone(policy: ToolPolicy):
    assert not stopped(searches(WORDINGS), tools={"search": policy})


@pytest.mark.parametrize("request_text", ["", "How many orders are there?"])
def test_the_same_error_to_different_calls_is_a_loop(request_text: str):
    missing = "ERROR 1146: Table 'shop.orders' doesn't exist"

    def selects(calls: int) -> list[Step]:
        return [("sql", {"query": f"SELECT {n} FROM orders"}, missing, True) for n in range(calls)]

    assert stopped(selects(10), request_text)
    assert not stopped(selects(4), request_text)


def test_an_error_that_changes_is_being_worked_on():
    lines: list[Step] = [
        ("make", {"n": n}, f"error: line {90 - 7 * n}: missing bracket near {n}x", True) for n in range(9)
    ]
    assert not stopped(lines)
