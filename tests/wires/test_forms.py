"""Whatever was in a history: once it is repaired, every provider's form of it is valid, by our
rules and by the SDKs' types.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from monitor import UserMessage
from monitor.context import Form, read_history, repair, validate
from monitor.messages import Text
from tests.context.dirty import histories, worded
from tests.context.wire import FORMS, builder, sdk_takes

NEXT = UserMessage((Text("Go on."),))
"""A request ends with the user, or with results."""


@pytest.mark.parametrize("form", FORMS)
@given(history=histories)
def test_a_dirty_history_is_valid_once_it_is_repaired(form: Form, history: Any) -> None:
    build = builder(form)
    messages, _ = repair((*history, NEXT), form=form)
    sent = build(messages)
    assert validate(form, sent) == []
    sdk_takes(form, sent)


@pytest.mark.parametrize("form", FORMS)
@given(history=histories)
def test_a_history_repaired_for_nobody_in_particular_is_valid_for_everybody(form: Form, history: Any) -> None:
    build = builder(form)
    messages, _ = repair((*history, NEXT))
    assert validate(form, build(messages)) == []


@pytest.mark.parametrize("form", FORMS)
@given(history=worded)
def test_what_was_sent_is_read_back_as_what_is_sent_again(form: Form, history: Any) -> None:
    build = builder(form)
    sent = build(repair((*history, NEXT), form=form)[0])
    messages, report = repair(read_history(form, sent), form=form)
    assert build(messages) == sent
    assert not report
