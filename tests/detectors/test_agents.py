"""Whole runs, all default detectors together: good agents whose work looks repetitive are not
stopped, stuck ones are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest

from monitor.chunks import TextDelta
from monitor.detectors import default_detectors
from tests.detectors.agent import Agent

Turns: TypeAlias = Iterator[tuple[str, list[tuple[Any, ...]]]]
"""What a turn says, and its calls."""
LISTING = "total 48\n" + "".join(f"-rw-r--r-- 1 user user {size * 13} file{size}.py\n" for size in range(20))


def same_status_for_every_file() -> Turns:
    for number in range(12):
        yield "Done.", [("edit", {"path": f"f{number}.py", "new": number}, "File updated.")]


def short_answers_to_a_user() -> Turns:
    for _ in range(8):
        yield "OK", []


def the_file_again_after_each_edit() -> Turns:
    for number in range(10):
        yield "Let me check.", [("read_file", {"path": "a.py"}, f"v{number}\n{LISTING}")]
        yield "", [("edit", {"path": "a.py", "old": f"v{number}", "new": f"v{number + 1}"}, "ok")]


def the_tests_after_each_edit() -> Turns:
    for number in range(12):
        yield "", [("edit", {"path": f"m{number}.py", "new": number}, "ok")]
        yield "Running the tests.", [("bash", {"command": "pytest -q"}, "12 passed in 0.31s")]


def the_folder_again_after_writes() -> Turns:
    for number in range(8):
        yield "", [("write_file", {"path": f"f{number}.txt", "content": "x"}, "ok")]
        yield "", [("ls", {"path": "."}, "\n".join(f"f{one}.txt" for one in range(number + 1)))]


def a_job_that_takes_its_time() -> Turns:
    for number in range(16):
        yield "", [("get_job_status", {"id": 7}, '{"status": "running"}' if number < 15 else '{"status": "done"}')]


def a_shell_that_sleeps() -> Turns:
    for _ in range(12):
        yield "", [("bash", {"command": "sleep 30"}, "")]
        yield "", [("bash", {"command": "kubectl get pods"}, "web-1 ContainerCreating")]


def pages_by_cursor() -> Turns:
    for number in range(20):
        yield "", [("list_items", {"cursor": f"c{number}"}, json.dumps({"items": [number], "next": f"c{number + 1}"}))]


def the_next_page_of_the_same_call() -> Turns:
    for number in range(20):
        yield "", [("next_page", {}, f"page {number}\n{LISTING}")]


def the_same_question_about_every_file() -> Turns:
    for number in range(20):
        yield "", [("lint", {"path": f"f{number}.py"}, "No problems found.")]


def six_equal_sub_agents() -> Turns:
    yield "", [("task", {"prompt": "Review the change."}, f"{number} remarks") for number in range(6)]


def a_retry_that_succeeds() -> Turns:
    for _ in range(3):
        yield "", [("fetch", {"url": "http://a"}, "Error: 503 Service Unavailable", True)]
    yield "", [("fetch", {"url": "http://a"}, "hello")]


def a_measurement_made_often() -> Turns:
    for number in range(10):
        yield "", [("bash", {"command": "python bench.py"}, f"parse: {1 + number * 0.03:.2f} s")]


GOOD = {
    make.__name__: make
    for make in (
        *(
            same_status_for_every_file,
            short_answers_to_a_user,
            the_file_again_after_each_edit,
            the_tests_after_each_edit,
        ),
        *(
            the_folder_again_after_writes,
            a_job_that_takes_its_time,
            a_shell_that_sleeps,
            pages_by_cursor,
            the_next_page_of_the_same_call,
        ),
        *(the_same_question_about_every_file, six_equal_sub_agents, a_retry_that_succeeds, a_measurement_made_often),
    )
}


def edit_and_undo() -> Turns:
    for _ in range(8):
        yield "", [("edit", {"path": "a", "old": "x", "new": "y"}, "ok")]
        yield "", [("edit", {"path": "a", "old": "y", "new": "x"}, "ok")]


def edit_and_undo_with_the_tests_between() -> Turns:
    for number in range(10):
        for old, new in ("xy", "yx"):
            yield "", [("edit", {"path": "a", "old": old, "new": new}, "ok")]
            yield "", [("bash", {"command": "pytest"}, f"1 failed, 3 passed in 0.{number + 31}s")]


def the_same_failing_test() -> Turns:
    for number in range(10):
        yield (
            "",
            [
                (
                    "bash",
                    {"command": "pytest -q"},
                    f"FAILED tests/a.py::t - AssertionError\n1 failed in {number * 0.07 + 1:.2f}s",
                )
            ],
        )


def the_same_failing_test_with_stamps() -> Turns:
    for number in range(10):
        yield (
            "",
            [
                (
                    "bash",
                    {"command": "npm test"},
                    f"2024-05-02T10:00:{number:02}Z FAIL src/a.test.js\nTests: 1 failed\nTime: {number}.{number} s",
                )
            ],
        )


def a_search_in_other_words() -> Turns:
    for number in range(10):
        yield "", [("web_search", {"query": f"how to {'really ' * number}mend it"}, LISTING)]


def three_files_in_turn() -> Turns:
    for _ in range(5):
        for path in "abc":
            yield "", [("read_file", {"path": path}, path + LISTING)]


def a_job_that_never_gets_on() -> Turns:
    for _ in range(24):
        yield "", [("get_job_status", {"id": 7}, '{"status": "running"}')]


def edits_that_do_not_apply() -> Turns:
    for number in range(8):
        yield (
            "",
            [("edit", {"path": "a", "old": f"x{number}", "new": "y"}, "Error: old string not found in file", True)],
        )


def announcing_and_doing_nothing() -> Turns:
    for number in range(8):
        again = ("read", "open", "look at")[number % 3]
        yield f"I will now {again} the configuration file and then I will report to you what I have found in it.", []


def going_on_without_going_on() -> Turns:
    for _ in range(12):
        yield "Continuing with the next file now.", []


STUCK = {
    make.__name__: make
    for make in (
        *(
            edit_and_undo,
            edit_and_undo_with_the_tests_between,
            the_same_failing_test,
            the_same_failing_test_with_stamps,
        ),
        *(a_search_in_other_words, three_files_in_turn, a_job_that_never_gets_on, edits_that_do_not_apply),
        *(announcing_and_doing_nothing, going_on_without_going_on),
    )
}


def watched(turns: Turns) -> Agent:
    run = Agent(*default_detectors())
    for text, calls in turns:
        run.observe(TextDelta(text))
        run.turn(*calls)
    return run


@pytest.mark.parametrize("kind", GOOD)
def test_good_agents_are_not_stopped(kind: str):
    assert watched(GOOD[kind]()).kinds == set()


@pytest.mark.parametrize("kind", STUCK)
def test_stuck_agents_are(kind: str):
    assert watched(STUCK[kind]()).kinds != set()
