"""Values that move by themselves: a clock, an id or a measured duration is no news, wherever it
stands and whatever its field is called.
"""

from __future__ import annotations

import random
import string
import uuid
from collections.abc import Callable

import pytest

from tests.detectors.calls.novelty.steps import Step, found, stopped

HEX = "0123456789abcdef"


def number(rng: random.Random) -> str:
    return str(rng.randint(2, 59_999))


FORMS: dict[str, Callable[[random.Random], str]] = {
    "iso": lambda rng: f"2026-05-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:07Z",
    "american": lambda rng: f"{rng.randint(1, 12)}/{rng.randint(1, 28)}/2026, {rng.randint(1, 12)}:05:41 PM",
    "http": lambda rng: f"Thu, {rng.randint(1, 28):02} May 2026 {rng.randint(0, 23):02}:05:09 GMT",
    "syslog": lambda rng: f"May {rng.randint(1, 28):2} {rng.randint(0, 23):02}:05:09",
    "clock": lambda rng: f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}",
    "seconds since 1970": lambda rng: f"17{rng.randint(10**7, 10**8 - 1)}.{rng.randint(100, 999)}",
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128), version=4)),
    "hash": lambda rng: "".join(rng.choice(HEX) for _ in range(38)) + "a1",
    "address": lambda rng: f"0x{rng.getrandbits(44) + 2**40:x}",
    "request": lambda rng: "req_" + "".join(rng.choice(string.ascii_letters) for _ in range(14)) + "7",
    "session id": lambda rng: f"sessionId={number(rng)}",
    "pid": lambda rng: f"pid {number(rng)}",
    "duration": lambda rng: f"finished in {rng.randint(0, 99)}.{rng.randint(0, 99)} s",
    "milliseconds": lambda rng: f"took {number(rng)} ms",
    "in another language": lambda rng: f"Dauer: {number(rng)} ms, Vorgang {rng.getrandbits(44) + 2**40:x}a",
}
SAID = (
    "the file was read, and it is not what was looked for",
    "status: red, phase: two, the gate stays closed",
    '{"state": "idle", "queue": "empty", "owner": "nobody"}',
)


def looks(times: int, said: Callable[[int], str]) -> list[Step]:
    return [("look", {"at": "it"}, said(at)) for at in range(times)]


@pytest.mark.parametrize("request_text", ["", "Find out what it is."])
@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("form", FORMS)
def test_what_moves_by_itself_is_no_news_wherever_it_stands(form: str, said: str, request_text: str):
    rng = random.Random(form)
    assert stopped(looks(15, lambda _: f"{said}\n{FORMS[form](rng)}"), request_text)
    assert stopped(looks(15, lambda _: f"{FORMS[form](rng)} {said}"), request_text)
    assert not stopped(looks(5, lambda _: f"{said}\n{FORMS[form](rng)}"), request_text)


@pytest.mark.parametrize("form", FORMS)
def test_what_gets_on_beside_it_is_news(form: str):
    rng = random.Random(form)
    assert not stopped(looks(18, lambda at: f"{SAID[0]} {FORMS[form](rng)} {5 * at + 4}% done"))
    assert not stopped(looks(18, lambda at: f"{SAID[0]} {FORMS[form](rng)} {18 - at} failed"))
    assert not stopped(looks(18, lambda at: f"{FORMS[form](rng)} now at the {string.ascii_lowercase[at] * 4} gate"))


@pytest.mark.parametrize("form", FORMS)
def test_an_answer_that_is_nothing_else_was_asked_for(form: str):
    rng = random.Random(form)
    values = [FORMS[form](rng).split()[-1] for _ in range(14)]
    assert not found(looks(14, lambda at: values[at]), request="")


def test_a_plain_number_that_goes_on_is_told_from_a_page_by_the_request_only():
    def page(at: int) -> str:
        return f"{SAID[0]}, number {at}"

    assert not found(looks(30, page), request="")
    assert stopped(looks(12, page), "Find out what it is.")
    assert not stopped(looks(12, page), "Look 12 times.")
