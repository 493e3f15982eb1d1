"""The table of events."""

from __future__ import annotations

from monitor._util.codec import tag_of
from monitor.events import EVENT_TYPES
from monitor.sinks.descriptions import DESCRIPTIONS


def test_each_type_of_event_has_one_description_and_no_other_type_has_one():
    assert set(DESCRIPTIONS) == set(EVENT_TYPES)


def test_only_an_event_with_facts_has_a_name_in_a_trace_or_is_a_guardrail():
    silent = [one for one in DESCRIPTIONS.values() if one.facts is None]
    assert silent
    assert not [one for one in silent if one.name or one.guardrail]


def test_a_name_in_a_trace_is_given_only_where_it_differs_from_that_of_the_type():
    assert not [cls for cls, one in DESCRIPTIONS.items() if one.name == tag_of(cls)]


def test_what_a_log_warns_of_is_never_a_detail_on_a_terminal_except_a_stop_that_the_card_shows():
    hidden = {cls.__name__ for cls, one in DESCRIPTIONS.items() if one.warns and one.severity == "detail"}
    assert hidden == {"StopDecided"}
