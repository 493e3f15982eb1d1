"""A neutral history in any provider's words, for loops of one's own. That it is always valid is
tested in tests/wires/test_forms.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import monitor
from monitor.adapters import to_form
from monitor.adapters.anthropic import model as anthropic_model
from monitor.adapters.google import model as google_model
from monitor.adapters.openai import model as _openai_messages
from monitor.context import Form, read_history, repair
from monitor.messages import Media
from tests.context.talk import IMAGE, ran, said, user
from tests.context.wire import FORMS

HISTORY = (user("What is this?", IMAGE), ran("seen", "more"), said("A chart."), user("Thanks."))


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        ("gemini", google_model.to_contents),
        ("openai-chat", _openai_messages.to_messages),
        ("openai-responses", _openai_messages.to_input),
        ("anthropic", anthropic_model.to_messages),
    ],
)
def test_it_is_what_the_model_of_that_form_sends(
    form: Form, sent: Callable[[Iterable[monitor.messages.Message]], Any]
) -> None:
    assert to_form(form, HISTORY) == sent(HISTORY) != []


@pytest.mark.parametrize("form", FORMS)
def test_what_is_read_from_it_is_the_history_again(form: Form) -> None:
    messages, report = repair(read_history(form, to_form(form, HISTORY)), form=form)
    assert to_form(form, messages) == to_form(form, HISTORY)
    assert not report


def test_an_unknown_form_is_an_error_that_names_the_known_ones():
    with pytest.raises(
        monitor.ConfigError, match="unknown form 'bard'; known: gemini, openai-chat, openai-responses, anthropic"
    ):
        to_form("bard", HISTORY)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_media_that_are_nowhere_are_an_error(form: Form) -> None:
    with pytest.raises(monitor.ConfigError, match="neither data nor uri"):
        to_form(form, [user("look", Media("image/png", name="lost.png"))])


def test_it_needs_no_sdk():
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('google.genai', 'openai', 'anthropic'))); import monitor\nfor"
        f" form in {FORMS!r}: print(len(monitor.adapters.to_form(form, [monitor.UserMessage((monitor.messages.Text("
        "'hi'),))])))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250, check=True)
    assert done.stdout.split() == ["1"] * 4
