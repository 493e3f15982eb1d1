"""Every word with which an SDK's types may end an answer has a class. A word that nobody knows is
unknown, and never a good end.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("anthropic", reason="the SDK is not installed: anthropic")
pytest.importorskip("google.genai", reason="the SDK is not installed: google-genai")
pytest.importorskip("openai", reason="the SDK is not installed: openai")

from anthropic.types import StopReason
from anthropic.types.beta import BetaStopReason
from google.genai.types import FinishReason as GeminiReason
from openai.types.chat.chat_completion_chunk import Choice
from openai.types.responses import ResponseStatus
from openai.types.responses.response import IncompleteDetails

from monitor.errors import FinishReason
from monitor.wires.fields import finish_reason_of

NO_END = {"queued", "in_progress", "FINISH_REASON_UNSPECIFIED"}
"""Words that say that an answer goes on."""
FAILED = {"failed"}
"""Words of a failed model call, whose error has a class of its own."""
WHOLE = {"stop", "tool_calls", "function_call", "completed", "end_turn", "stop_sequence", "tool_use", "STOP"}
"""The only words of a good end in the types of the SDKs."""


def literals(annotation: Any) -> Iterator[str]:
    for one in typing.get_args(annotation):
        if isinstance(one, str):
            yield one
        else:
            yield from literals(one)


def words_of_the_sdks() -> list[str]:
    openai = (Choice.model_fields["finish_reason"], IncompleteDetails.model_fields["reason"])
    found = {word for field in openai for word in literals(field.annotation)}
    found |= {*typing.get_args(ResponseStatus), *typing.get_args(StopReason), *typing.get_args(BetaStopReason)}
    return sorted((found | {one.value for one in GeminiReason}) - NO_END - FAILED)


@pytest.mark.parametrize("word", words_of_the_sdks())
def test_every_word_of_the_installed_sdks_has_a_class(word: str):
    found = finish_reason_of(word)
    assert found is not FinishReason.UNKNOWN, "an SDK has a new word: add it to monitor/wires/fields.py"
    assert (found is FinishReason.DONE) == (word in WHOLE)


@pytest.mark.parametrize("word", ["a_word_of_tomorrow", "failed", "in_progress", "", ":"])
def test_another_word_is_unknown(word: str):
    assert finish_reason_of(word) is FinishReason.UNKNOWN


def test_geminis_word_counts_in_the_words_of_its_compatible_endpoint():
    assert finish_reason_of("function_call_filter: MALFORMED_FUNCTION_CALL") is FinishReason.MALFORMED
    assert finish_reason_of("content_filter: PROHIBITED_CONTENT") is FinishReason.BLOCKED


def test_a_word_counts_with_hyphens_too():
    assert finish_reason_of("tool-calls") is FinishReason.DONE
