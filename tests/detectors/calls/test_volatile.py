from __future__ import annotations

import json
import random
import string
import time
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import ToolResult
from monitor.detectors import ToolPolicy
from monitor.detectors.calls.volatile import READ_CHARS, UNPACKED_CHARS

HEX = "0123456789abcdef"


def outcome(text: str, *, is_error: bool = False) -> str:
    return ToolPolicy().outcome_of(ToolResult("", "t", text, is_error))


def answer(text: str) -> str:
    return ToolPolicy().answer_of(ToolResult("", "t", text))


def number(rng: random.Random) -> str:
    return str(rng.randint(2, 59_999))


FORMS: dict[str, Callable[[random.Random], str]] = {
    "iso": lambda rng: (
        f"20{rng.randint(10, 40)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        f"T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:07Z"
    ),
    "iso with a blank and a zone": lambda rng: (
        f"2026-05-{rng.randint(1, 28):02}"
        f" {rng.randint(0, 23):02}:11:{rng.randint(0, 59):02}.{rng.randint(0, 999999):06} +02:00"
    ),
    "american": lambda rng: (
        f"{rng.randint(1, 12)}/{rng.randint(1, 28)}/2026, {rng.randint(1, 12)}:05:{rng.randint(0, 59):02} PM"
    ),
    "http": lambda rng: f"Thu, {rng.randint(1, 28):02} May 2026 {rng.randint(0, 23):02}:05:09 GMT",
    "syslog": lambda rng: f"May {rng.randint(1, 28):2} {rng.randint(0, 23):02}:05:09",
    "apache": lambda rng: f"{rng.randint(10, 28)}/May/2026:{rng.randint(0, 23):02}:05:09 +0000",
    "compact": lambda rng: f"20260{rng.randint(1, 9)}11T{rng.randint(0, 23):02}0509Z",
    "clock": lambda rng: f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}",
    "seconds since 1970": lambda rng: f"17{rng.randint(10**7, 10**8 - 1)}.{rng.randint(100, 999)}",
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    "hash": lambda rng: "".join(rng.choice(HEX) for _ in range(38)) + "a1",
    "address": lambda rng: f"0x{rng.getrandbits(44) + 2**40:x}",
    "request": lambda rng: "req_" + "".join(rng.choice(string.ascii_letters) for _ in range(14)) + "7",
    "request id": lambda rng: f"request id: {rng.randint(1, 10**9)}",
    "session id": lambda rng: f"sessionId={number(rng)}",
    "pid": lambda rng: f"pid {number(rng)}",
    "pgid": lambda rng: f"Process Group PGID: {number(rng)}",
    "attempt": lambda rng: f"(attempt {number(rng)})",
    "duration": lambda rng: f"finished in {rng.randint(0, 99)}.{rng.randint(0, 99)} s",
    "milliseconds": lambda rng: f"took {number(rng)} ms",
    "elapsed": lambda rng: f"elapsed: {number(rng)}s",
    "cell": lambda rng: f"Out[{number(rng)}]:",
    "ago": lambda rng: f"{rng.randint(1, 59)}m ago",
    "temporary": lambda rng: "/srv/tmp" + "".join(rng.choice(string.ascii_lowercase) for _ in range(8)) + "/x",
    "a named request": lambda rng: "request id: " + "".join(rng.choice(string.ascii_lowercase) for _ in range(8)),
}
SAID = [
    "the file was read",
    "Nothing to commit.",
    "status: red\nphase: two",
    '{"state": "idle"}\n',
    "3 files, 12 lines",
]


@pytest.mark.parametrize("form", FORMS)
@given(seed=st.integers(0, 10_000), before=st.sampled_from(SAID), after=st.sampled_from(SAID))
def test_what_changes_by_itself_is_no_news_wherever_it_stands(form: str, seed: int, before: str, after: str):
    rng = random.Random(seed)
    one, other = FORMS[form](rng), FORMS[form](rng)
    assert outcome(f"{before}\n{one} {after}") == outcome(f"{before}\n{other} {after}")
    assert outcome(f"{before} {one}", is_error=True) == outcome(f"{before} {other}", is_error=True)


@pytest.mark.parametrize("form", FORMS)
def test_what_was_said_beside_it_is_news(form: str):
    stamp = FORMS[form](random.Random(1))
    for one, other in (("3 failed", "2 failed"), ("red", "green"), ("45%", "46%"), ("a.py:10", "a.py:11")):
        assert outcome(f"{stamp} {one}") != outcome(f"{stamp} {other}")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("45% done", "46% done"),
        ("7/200 compiled", "8/200 compiled"),
        ("starts in 30 seconds", "starts in 20 seconds"),
        ('{"state": "waiting", "remaining_s": 30}', '{"state": "waiting", "remaining_s": 20}'),
        ('{"price": 101.5}', '{"price": 102.5}'),
        ("parse: 1.03 s", "parse: 1.04 s"),
        ("1500000000 of 2000000000 bytes", "1600000000 of 2000000000 bytes"),
        ("main.c:10", "main.c:11"),
        ("2026-05-01", "2026-05-02"),
        ("You rolled 4", "You rolled 5"),
        ('{"counter": 4}', '{"counter": 5}'),
        ("version 1.2.3", "version 1.2.4"),
        ("sha a1b2c3d", "sha a1b2c3e"),
    ],
)
def test_other_numbers_are_news(one: str, other: str):
    assert outcome(one) != outcome(other)


def test_an_answer_that_is_nothing_else_was_asked_for():
    rng = random.Random(2)
    for form in ("uuid", "hash", "iso", "http"):
        one, other = FORMS[form](rng), FORMS[form](rng)
        assert outcome(one) != outcome(other)
        assert outcome(json.dumps({"value": one})) != outcome(json.dumps({"value": other}))
        assert outcome(json.dumps({"ok": True, "value": one})) == outcome(json.dumps({"ok": True, "value": other}))


def test_a_list_of_ids_was_asked_for():
    rng = random.Random(3)
    pages = [json.dumps({"kind": "orders", "items": [FORMS["uuid"](rng) for _ in range(4)]}) for _ in range(2)]
    assert outcome(pages[0]) != outcome(pages[1])


def test_a_time_that_was_planned_was_asked_for():
    for name in ("start", "end_time", "departure", "due_date"):
        one, other = (json.dumps({"room": "A", name: f"2026-05-01T1{hour}:00:00Z"}) for hour in range(2))
        assert outcome(one) != outcome(other)


def test_of_different_calls_an_id_a_time_and_a_field_are_answers_but_for_the_record_of_an_execution():
    rng = random.Random(4)
    for form in ("uuid", "hash", "iso"):
        assert answer(f"it is {FORMS[form](rng)}") != answer(f"it is {FORMS[form](rng)}")
    assert answer('{"state": "up", "checked_at": "a"}') != answer('{"state": "up", "checked_at": "b"}')
    assert answer('{"exit_code": 1, "took_ms": 3, "pid": 4}') == answer('{"took_ms": 9, "pid": 5, "exit_code": 1}')


EXECUTION = {"output": "", "exit_code": 1}


@pytest.mark.parametrize(
    "name",
    [
        "cwd",
        "pwd",
        "workdir",
        "working_directory",
        "currentDir",
        "hostname",
        "user",
        "shell",
        "env",
        "venv",
        "py_interpreter_path",
    ],
)
def test_where_a_command_ran_is_no_news_in_its_record_and_is_in_another(name: str):
    assert outcome(json.dumps({**EXECUTION, name: "/a"})) == outcome(json.dumps({**EXECUTION, name: "/b"}))
    assert outcome(json.dumps({**EXECUTION, "metadata": {name: "/a"}})) == outcome(
        json.dumps({**EXECUTION, "metadata": {name: "/b"}})
    )
    assert outcome(json.dumps({**EXECUTION, name: "/a", "output": "x"})) != outcome(
        json.dumps({**EXECUTION, name: "/a"})
    )
    assert outcome(json.dumps({"found": 1, name: "/a"})) != outcome(json.dumps({"found": 1, name: "/b"}))


def test_a_record_within_a_record_is_unpacked():
    def parts(folder: str) -> str:
        return json.dumps(
            [{"type": "text", "text": json.dumps({**EXECUTION, "cwd": folder, "duration": {"secs": len(folder)}})}]
        )

    assert outcome(parts("/a")) == outcome(parts("/abc"))


@pytest.mark.parametrize(
    "line",
    ["[Current working directory: {}]", "Directory: {}", "(cwd: {})", "[Python interpreter: {}]", "Hostname: {}"],
)
def test_a_line_that_says_where_a_command_ran_is_no_news(line: str):
    assert outcome(f"a\n{line.format('/x')}\nExit code: 0") == outcome(f"a\n{line.format('/y')}\nExit code: 0")
    assert outcome(f"a\n{line.format('/x')}") != outcome(f"a\n{line.format('/y')}")


def test_the_ends_of_a_huge_result_are_looked_at_and_its_middle_is_compared_as_it_is():
    filler = "the river and the mill\n" * (2 * READ_CHARS // 23)
    assert outcome(f"at 10:00:01\n{filler}at 10:00:02\nend") == outcome(f"at 11:11:11\n{filler}at 12:12:12\nend")
    assert outcome(f"{filler}one{filler}") != outcome(f"{filler}two{filler}")


@pytest.mark.parametrize(
    "text", ["x" * 8_000_000, '{"a": ' * 2_000_000, "[" + '{"took": 1},' * 700_000, "12:00:00 error\n" * 500_000]
)
def test_a_huge_result_takes_no_longer_than_a_large_one(text: str):
    assert len(text) > UNPACKED_CHARS
    started = time.process_time()
    for is_error in (False, True):
        outcome(text, is_error=is_error)
        answer(text)
    assert time.process_time() - started < 1.0
