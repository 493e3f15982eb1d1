"""Histories of work that repeats itself in form and is no loop: what was asked, and the calls with
their results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Turn = tuple[str, dict[str, Any], str]
"""The name of a tool, its arguments, its result."""


def _each(name: str, field: str, values: Sequence[Any], result: str) -> list[Turn]:
    """The same tool, once for each value."""
    return [(name, {field: value}, result.format(value, number)) for number, value in enumerate(values)]


def _polled(name: str, arguments: dict[str, Any], results: Sequence[str]) -> list[Turn]:
    return [(name, arguments, result) for result in results]


def _pairs(turns: Sequence[tuple[Turn, Turn]]) -> list[Turn]:
    return [turn for pair in turns for turn in pair]


_FILES = [f"src/module_{number}.py" for number in range(20)]
_CITIES = ["Oslo", "Lima", "Cairo", "Kyoto", "Accra", "Quito", "Tunis", "Perth", "Sofia", "Hanoi", "Turin", "Dakar"]
_SHOT = ("screenshot", dict[str, Any]())

HISTORIES: Mapping[str, tuple[str, list[Turn]]] = {
    # --- computer use
    "a form is filled in": (
        "Fill in the form of 8 fields",
        _pairs(
            [
                (
                    ("click", {"x": 200, "y": 100 + 40 * at}, "clicked"),
                    ("type", {"text": f"value {at}"}, f"field {at} has the focus"),
                )
                for at in range(8)
            ]
        ),
    ),
    "a page is scrolled": (
        "Read the whole article",
        [
            ("scroll", {"dy": 600}, f"Paragraphs {3 * at} to {3 * at + 2}: the harvest of year {1900 + at * 7}")
            for at in range(14)
        ],
    ),
    "pictures between clicks": (
        "Go through the wizard",
        _pairs(
            [
                (("click", {"x": 900, "y": 650}, "clicked"), (*_SHOT, f"step {at + 1} of 9: {_CITIES[at]}"))
                for at in range(9)
            ]
        ),
    ),
    "the tab key": (
        "Move through the 12 fields",
        [("key", {"key": "Tab"}, f"focus: field {_CITIES[at]}") for at in range(12)],
    ),
    "next is clicked": (
        "Collect all results",
        [
            ("click", {"selector": ".next"}, f"page {at}: " + ", ".join(f"item {at * 5 + one}" for one in range(5)))
            for at in range(1, 13)
        ],
    ),
    "pages of a site": (
        "Check these pages",
        _each("goto", "url", [f"https://x.org/{one}" for one in _CITIES], "200 {0}"),
    ),
    # --- batches
    "files are read": ("Review each file", _each("read_file", "path", _FILES, "def f_{1}(): return {1} * 3")),
    "files are changed": (
        "Rename the class in all modules",
        [("edit", {"path": path, "old": "class A", "new": "class B"}, f"{path}: 1 place changed") for path in _FILES],
    ),
    "mails are sent": (
        "Write to each customer",
        _each("send_mail", "to", [f"{one}@x.org" for one in _CITIES], "sent: id {1}7"),
    ),
    "rows are inserted": (
        "Import the list",
        _each("insert", "row", [[one, len(one)] for one in _CITIES], "ok, row {1}"),
    ),
    "the same answer to all": (
        "Delete the old files",
        _each("delete", "path", [f"old/{one}.log" for one in _CITIES], "deleted"),
    ),
    "pictures are made smaller": (
        "Shrink the pictures",
        _each("shell", "cmd", [f"convert {n}.png -resize 50% s{n}.png" for n in range(15)], ""),
    ),
    "cities are looked up": ("The weather in each city", _each("weather", "city", _CITIES, "{1} degrees in {0}")),
    "read and then written": (
        "Add a licence to each file",
        _pairs(
            [
                (
                    ("read_file", {"path": one}, f"code of {one}"),
                    ("write_file", {"path": one, "text": f"# MIT\ncode of {one}"}, "written"),
                )
                for one in _FILES[:10]
            ]
        ),
    ),
    "tickets are labelled": (
        "Label tickets 40 to 55",
        [("label", {"ticket": n, "label": "bug" if n % 3 else "idea"}, "ok") for n in range(40, 56)],
    ),
    # --- polling
    "a job with a percentage": (
        "Wait until the job is done",
        _polled("status", {"job": 7}, [f"running, {at * 9}%" for at in range(11)] + ["done"]),
    ),
    "a build with a log": (
        "Wait for the build",
        _polled("tail", {"file": "build.log"}, [f"[{at}/14] compiling {path}" for at, path in enumerate(_FILES[:14])]),
    ),
    "a queue that gets shorter": (
        "Wait until the queue is empty",
        _polled("queue_length", {}, [str(12 - at) for at in range(13)]),
    ),
    "a server that starts": (
        "Start the server and wait until it is up, check every 5 seconds",
        [("start", {}, "started"), *_polled("wait", {"seconds": 5}, ["5 s later: not up"] * 3), ("health", {}, "up")],
    ),
    "waits of growing length": (
        "Try again later until the deployment is ready",
        _pairs([(("sleep", {"seconds": 2**at}, "slept"), ("ready", {}, f"replicas {at} of 6")) for at in range(7)]),
    ),
    # --- search and repair
    "a bisection": (
        "Find the bad commit",
        [
            ("test_commit", {"commit": n}, "good" if n < 337 else "bad")
            for n in (512, 256, 384, 320, 352, 336, 344, 340, 338, 337)
        ],
    ),
    "tests after each change": (
        "Make the tests pass",
        _pairs(
            [
                (
                    ("edit", {"path": "a.py", "line": 10 + at}, f"line {10 + at} changed"),
                    ("pytest", {}, f"{9 - at} failed, {at} passed"),
                )
                for at in range(9)
            ]
        ),
    ),
    "searches with other words": (
        "Find who first described the comet",
        [
            ("search", {"q": query}, found)
            for query, found in (
                ("comet first description", "An overview of comets, without names"),
                ("comet discovered by", "A list of discoverers since 1850: Tuttle, Swift, Borrelly"),
                ("comet discovery before 1850", "Encke computed an orbit in 1819; Pons saw it in 1818"),
                ("Pons 1818 comet report", "Letter of Pons to Zach, in French"),
                ("Zach correspondence Pons comet", "The letter names an observation by Mechain in 1786"),
                ("Mechain 1786 observation", "Two nights in January 1786, reported to Messier"),
                ("Messier Mechain letter 1786", "Messier confirms it on 19 January"),
                ("Encke comet earliest record", "Mechain, 17 January 1786"),
            )
        ],
    ),
    "pages by a cursor": (
        "List all users",
        [
            ("list_users", {"cursor": f"c{at}"}, f"users {at * 50} to {at * 50 + 49}; next cursor c{at + 1}")
            for at in range(15)
        ],
    ),
    "errors that differ": (
        "Connect to one of the hosts",
        [("connect", {"host": f"10.0.0.{at}"}, "refused" if at % 2 else "no route") for at in range(8)]
        + [("connect", {"host": "10.0.0.9"}, "connected")],
    ),
}
