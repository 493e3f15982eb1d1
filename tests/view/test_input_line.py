"""The line in which a person writes to a run."""

from __future__ import annotations

from monitor.view.status import InputLine


def typed(*keys: str) -> tuple[list[tuple[str, str, bool]], InputLine]:
    """What was sent, and the line afterwards."""
    sent: list[tuple[str, str, bool]] = []
    line = InputLine()
    line.send = lambda text, kind, now: sent.append((text, kind, now))
    for some in keys:
        line.feed(some)
    return sent, line


def test_enter_sends_and_tab_says_when():
    sent, line = typed("hello", "\r", "\tstop\r", "\t\tthen the tests\n", " \r")
    assert sent == [("hello", "steer", False), ("stop", "steer", True), ("then the tests", "follow_up", False)]
    assert line.text == ""


def test_keys_without_a_character_do_nothing_and_others_edit():
    sent, line = typed("look att", "\x7f", "\x1b[A\x1b[3~", " the main", "\x17", "tests", "\x1bx", "\a")
    assert (sent, line.text) == ([], "look at the tests")
    line.feed("\x15")
    assert line.text == ""


def test_of_a_long_text_its_end_is_shown():
    _, line = typed("\tone two three four")
    assert line.shown(80).plain == "now > one two three four_"
    assert line.shown(16).plain == "now > hree four_"
