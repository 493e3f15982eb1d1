"""A run of a transcript can be sent to any provider again."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.adapters.provider_forms import to_form
from monitor.context import Form, repair, validate
from monitor.messages import AssistantMessage, UserMessage
from monitor.transcripts import RecordedCall, RecordedMessage, RecordedResult, Source, runs
from monitor.transcripts.recorded_history import history_of

SAMPLES = Path(__file__).parents[2] / "fixtures" / "readers"
FORMS: tuple[Form, ...] = ("openai-chat", "openai-responses", "anthropic", "gemini")
KNOWN = sorted(path for path in SAMPLES.rglob("*") if path.is_file() and path.parent.name != "unknown")


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: path.name)
def test_the_history_of_each_sample_is_valid_for_every_provider(path: Path):
    for run in list(runs(Source.of_path(path)))[:5]:
        history = history_of(run.messages)
        for form in FORMS:
            mended, _ = repair(history, form=form)
            if mended:
                assert [p for p in validate(form, to_form(form, mended)) if p.rule == "pairing"] == []


def test_results_stand_beside_their_calls_in_the_order_of_the_calls():
    history = history_of(
        [
            RecordedMessage("system", "be brief"),
            RecordedMessage("user", "go", synthetic=True),
            RecordedMessage(
                "assistant", "I look.", (RecordedCall("a", {}, "1"), RecordedCall("b", {}, "2")), reasoning="hm"
            ),
            RecordedMessage("tool", tool_results=(RecordedResult("", "two", True, call_id="2"),)),
            RecordedMessage("tool", tool_results=(RecordedResult("", "one", call_id="1"),)),
            RecordedMessage("tool", tool_results=(RecordedResult("", "nobody's", call_id="9"),)),
        ]
    )
    user, answer = history
    assert isinstance(user, UserMessage)
    assert user.synthetic
    assert isinstance(answer, AssistantMessage)
    assert [(result.name, result.text, result.is_error) for result in answer.results] == [
        ("a", "one", False),
        ("b", "two", True),
    ]
