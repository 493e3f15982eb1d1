"""Every failure of the OpenAI SDK, as it raises it, and every one that a service reports in its
stream, has its kind.
"""

from __future__ import annotations

import pickle
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from monitor.adapters.adapter import ReportedFailure
from monitor.adapters.openai.stream import OpenAIAdapter
from monitor.adapters.sdk_errors import OPENAI
from monitor.models import ErrorKind, ModelError
from monitor.testing import LocalOpenAI
from monitor.testing.openai_steps import (
    text,
)
from tests.adapters.openai.sdk import aiohttp_warnings, sdk

pytestmark = aiohttp_warnings


@pytest.mark.asyncio
async def test_what_the_helper_stream_raises_has_its_kind():
    from pydantic import BaseModel

    from monitor.testing.openai_steps import finish

    class Answer(BaseModel):
        x: int

    kinds = []
    with LocalOpenAI([[text('{"x'), finish("length")], [text('{"x'), finish("content_filter")]]) as server:
        async with sdk(server) as client:
            for _ in range(2):
                try:
                    async with client.chat.completions.stream(model="m", messages=[], response_format=Answer) as helper:
                        async for _event in helper:
                            pass
                except openai.OpenAIError as error:
                    kinds.append(OpenAIAdapter().classify(error).kind)
    assert kinds == [ErrorKind.REQUEST, ErrorKind.BLOCKED]


def test_a_client_that_cannot_be_made_for_want_of_a_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(openai.OpenAIError) as raised:
        AsyncOpenAI()
    assert OpenAIAdapter().classify(raised.value).kind is ErrorKind.AUTH
    assert OpenAIAdapter().classify(openai.OpenAIError("something")).kind is ErrorKind.REQUEST


def test_a_reported_failure_is_classed_as_reported_and_survives_a_pickle():
    error = ReportedFailure(OPENAI.reported("rate_limit_exceeded", "Please try again in 2s."))
    again = pickle.loads(pickle.dumps(error))
    assert again.model_error == OpenAIAdapter().classify(error)
    assert again.model_error == ModelError(
        ErrorKind.RATE_LIMITED, "Please try again in 2s.", 2.0, None, "rate_limit_exceeded"
    )
    assert str(again) == "Please try again in 2s."


@pytest.mark.parametrize("odd", [None, 5, [], {}, b"x", object()])
def test_an_error_of_any_shape_is_a_failure_of_the_service(odd: Any):
    found = OPENAI.reported(odd, odd, type_=odd)
    assert found.kind is ErrorKind.SERVER
    assert found.message
