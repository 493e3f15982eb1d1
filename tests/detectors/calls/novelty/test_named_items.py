"""A list that is worked off item by item, names of several words, and what a look shows again."""

from __future__ import annotations

from itertools import product

import pytest

from tests.detectors.calls.novelty.steps import Step, stopped

PLACES = ("web", "db", "mail", "cache")
SITES = ("fra", "iad", "sin", "syd")
FORMS = ("{}-{}.old.test", "src/{}/{}.ts", "team/{}.{}", "{}.{}@corp.test")


def names(form: str) -> list[str]:
    """Each word stands in several names, so no word is new for long."""
    return [form.format(place, site) for place, site in product(PLACES, SITES)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("request_text", ["", "Take them from the file."])
@pytest.mark.parametrize(
    ("answer", "is_error"),
    [
        ("Not found: 3(NXDOMAIN)", True),
        ("The entry has been updated. All of the occurrences of the old name were replaced with the new one.", False),
    ],
)
def test_the_names_of_a_list_are_worked_off(form: str, request_text: str, answer: str, is_error: bool):
    listed: Step = ("run", {"command": "cat list.txt"}, "\n".join(names(form)))
    walk: list[Step] = [("check", {"name": name}, answer, is_error) for name in names(form)]
    assert not stopped([listed, *walk], request_text)


def test_a_long_list_is_worked_off_in_silence_by_commands_that_name_more_than_the_item():
    photos = [f"DSC0{1009 + 37 * at}.JPG" for at in range(40)]
    moves: list[Step] = [("run", {"command": f"mv {name} lisbon-{at:02}.jpg"}, "") for at, name in enumerate(photos)]
    assert not stopped([("run", {"command": "ls"}, "\n".join(photos)), *moves], "Give the photos better names.")
    assert stopped([("run", {"command": f"cat {name}"}, "") for name in photos], "Find the photo.")


@pytest.mark.parametrize("form", FORMS)
def test_names_that_nothing_named_are_guesses(form: str):
    walk: list[Step] = [
        ("check", {"name": name}, "The server knows of no such entry in any zone.", True) for name in names(form)
    ]
    assert stopped(walk, "Find the entry.")


def board(at: int) -> str:
    """A map on which `@` walks."""
    cells = ["#" if place % 7 == 3 else "." for place in range(60)]
    cells[at] = "@"
    return "\n".join("".join(cells[row : row + 12]) for row in range(0, 60, 12)) + "\nhp 20/20"


def test_a_figure_that_moves_on_a_map_is_news_and_one_that_stands_still_is_not():
    def steps(moves: list[int]) -> list[Step]:
        return [("step", {"direction": "EW"[turn % 2]}, board(at)) for turn, at in enumerate(moves)]

    assert not stopped(steps([*range(40)]), "Walk to the door.")
    assert stopped(steps([5] * 12), "Walk to the door.")


FILE = [f"    {word} = {word}_of(state)  # the {word} of a batch" for word in "abcdefghijklmnopqrstuvwxyz"]


def test_parts_of_a_file_that_was_read_whole_are_no_news():
    def view(first: int, last: int) -> Step:
        text = "\n".join(f"{at:6}\t{line}" for at, line in enumerate(FILE[first:last], first + 1))
        return ("view", {"path": "batch.py", "range": [first, last]}, text)

    again = [view(first, first + size) for size in (9, 7, 11) for first in (12, 3, 8, 1, 14)]
    assert stopped([view(0, 26), *again], "Where is the sum?")
    assert not stopped([view(at, at + 9) for at in range(18)], "Where is the sum?")


@pytest.mark.parametrize("clock", ["1773200{:03}.{:03}", "1773200{:03}123"])
def test_seconds_since_1970_are_a_clock(clock: str):
    steps: list[Step] = [
        ("state", {"job": 4}, f'{{"state": "pending", "at": {clock.format(at * at % 997, at)}}}') for at in range(20)
    ]
    assert stopped(steps)


def test_a_watch_that_brings_news_goes_on_as_long_as_before():
    def looks(stages: int) -> list[Step]:
        return [
            ("ci", {"run": 8}, f'{{"stage": "{"abcdefgh"[at // 7] * 5}", "elapsed_s": {15 * at}}}')
            for at in range(7 * stages)
        ]

    assert not stopped(looks(7), "Tell me when the pipeline is green.")
    assert stopped(looks(1) * 8, "Tell me when the pipeline is green.")


def test_a_wait_between_looks_whose_number_moves_is_no_loop():
    def steps(moves: bool) -> list[Step]:
        found: list[Step] = []
        for at in range(20):
            shown = 21.4 + 1.7 * at if moves else 21.4
            found += [
                ("read_sensor", {"name": "bath"}, f"bath temperature = {shown:.1f} C, the heater is on"),
                ("sleep", {"seconds": 60}, "slept 60 s"),
            ]
        return found

    assert not stopped(steps(moves=True), "")
    assert stopped(steps(moves=False), "")
