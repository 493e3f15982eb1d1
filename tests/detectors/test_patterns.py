"""Every pattern of the detectors of calls takes linear time, whatever a tool answers."""

from __future__ import annotations

import re
import time

import pytest

from monitor.detectors import answers, reworded, tool_policy, unknown_tool, volatile

PATTERNS = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in (answers, reworded, tool_policy, unknown_tool, volatile)
    for name, value in vars(module).items()
    if isinstance(value, re.Pattern)
}
PUMPS = [
    *(
        " ",
        "a",
        "A",
        "0",
        "-",
        "_",
        ".",
        ":",
        "/",
        '"',
        "{",
        "[",
        "(",
        "\n",
        "\t",
        "0-",
        "a0",
        "1:",
        "00:",
        "1d",
        "  1d",
        "\u6c92",
        "\u00e9",
    ),
    *(
        "01:23:45 ",
        "2026-05-02T",
        "req_",
        "/tmp",
        "0x",
        "id ",
        "pid ",
        "in 1",
        "no ",
        "not ",
        "error ",
        "exit ",
        '"a":',
        '"",',
        "tool ",
        "__",
    ),
    *("May  ", "Thu, ", "attempt ", "there are no ", "sleep ", "directory: ", "1.5", "tool x"),
]
CHARS = 3_000


def seconds(pattern: re.Pattern[str], text: str) -> float:
    best = 1e9
    for _ in range(2):
        started = time.process_time()
        pattern.sub("", text)
        pattern.fullmatch(text)
        best = min(best, time.process_time() - started)
    return best


def test_there_are_patterns():
    assert len(PATTERNS) >= 20


@pytest.mark.parametrize("name", PATTERNS)
def test_eight_times_the_text_takes_at_most_some_eight_times_as_long(name: str):
    for pump in PUMPS:
        text = (pump * CHARS)[: 8 * CHARS]
        long = seconds(PATTERNS[name], text)
        assert long < 0.1 or long < 24 * seconds(PATTERNS[name], text[:CHARS]) + 0.05, pump
