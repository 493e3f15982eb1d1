"""A form that is looked for only where it can stand finds all that its pattern finds."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.detectors.calls import answers, tool_policy
from monitor.detectors.calls.allowance import FilteredPattern, outline

FORMS = {
    f"{module.__name__.rpartition('.')[2]}{name}": form
    for module in (answers, tool_policy)
    for name, form in vars(module).items()
    if isinstance(form, FilteredPattern)
}
PIECES = (
    *("2026-01-31T10:15:30.123Z", "[2026/01/31 9:05 ", "31.1.2026, 10:15", "31 Jan 2026:10:15:30 "),
    *("20260131T101530Z", "1767225600.123", "3m ago", "12s ago", "\tok  pkg\t0.012s", "pod   3d4h", "  17h\n"),
    *("Sat Nov 22 ", "Nov 22, 10:00:00", "took 1.5 ms", "in 3 minutes", "0.5  s", "12 ns", "4 min", "PID: 17"),
    *("ppid=4", 'pgid" 9', "pids 12", "attempt #3", "Retry no. 2", "tries 4", "polled number 3", "In [12]"),
    *("out[3]", "request id: 9f-3", "sessionId=17", "Trace_ID 4", "0a1b2c3d-0a1b-4c3d-8e9f-0123456789ab"),
    *("9f86d081884c7d65", "deadbeefdeadbeef1", "req_a1b2c3d4", "task-x-12345678", "toolu_01ABCDEFgh"),
    *("0x7ffe12ab", "/tmp/abc123xyz", "\\tmp_abcdef12", "/pytest-12", "sleep 30", "time.sleep( 5"),
    *("exited with code 1", "Exit: the status", "failed", "Failures", "ValueError", "errors", "MyException"),
    *("panicked", "Traceback", "not found", "can't", "doesn't exist", "is not a valid", "permission denied"),
    *("timed out", "refused", "2026-01-31", "10:15:30", "3 sec", "pid 7", "- ", "_", " ", "\n", "x", "7", "."),
    *(":", "\xe9", "\u2026", "\U0001f600", "\ud800"),
)
TEXTS = st.lists(
    st.one_of(st.sampled_from(PIECES), st.text("0123456789abcdefmnsT:.-_ \n\t", max_size=4)), max_size=8
).map("".join)


@given(TEXTS)
@example("".join(PIECES))
@example(" ".join(PIECES))
@example("\n".join(PIECES).upper())
def test_where_a_pattern_matches_its_signs_stand(text: str):
    for name, form in FORMS.items():
        if form.pattern.search(text) is not None:
            assert form.may_be_in(outline(text)), name
        assert form.replaced(text) == form.pattern.sub("", text), name


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_among_the_texts_of_that_law(name: str):
    matched = [piece for piece in PIECES if FORMS[name].pattern.search(piece)]
    assert matched
    assert any(not FORMS[name].may_be_in(outline(piece)) for piece in PIECES)


@given(st.text())
def test_an_outline_has_as_many_characters_as_the_text(text: str):
    assert len(outline(text)) == len(text)


def test_of_a_text_that_was_seen_before_comes_the_same_outline():
    texts = ["Took 12 S", "took 13 s", "Took 12 S"]
    assert [outline(text) for text in texts] == ["took 00 s"] * 3
