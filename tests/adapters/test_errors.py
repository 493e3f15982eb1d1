"""What the services and servers say when a prompt does not fit, and what sounds like it and is something else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from monitor.adapters._errors import delay_s, header_delay_s, says_overflow

OVERFLOWS = {
    "Anthropic": "prompt is too long: 200251 tokens > 199999 maximum",
    "Anthropic, with the answer": "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length",
    "Anthropic, bytes of text": "messages: too many total text bytes: 10000001 > 9000000",
    "OpenAI": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
    "OpenAI, Responses": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Bedrock": "ValidationException: Input is too long for requested model.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Groq": "Please reduce the length of the messages or completion.",
    "Together": "The input (9001 tokens) is longer than the model's context length (8192 tokens).",
    "Mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "Copilot": "prompt token count of 70000 exceeds the limit of 64000",
    "Kimi": "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "MiniMax": "invalid params, context window exceeds limit",
    "z.ai": "Prompt exceeds max length",
    "DashScope": "Range of input length should be [1, 98304]",
    "LiteLLM": "litellm.ContextWindowExceededError: BadRequestError",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the context length.",
    "Ollama": "prompt too long; exceeded max context length by 512 tokens",
}

OTHERS = [
    "Rate limit reached: maximum context length is not the matter here",
    "Too many requests, prompt is too long for your tier",
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000.",
    "You exceeded your current quota, please check your plan and billing details.",
    "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for this model",
    "The number of function declarations exceeds the limit of 128.",
    "",
]


@pytest.mark.parametrize("message", OVERFLOWS.values(), ids=OVERFLOWS)
def test_every_service_says_in_its_own_words_that_the_prompt_does_not_fit(message: str):
    assert says_overflow(message)
    assert says_overflow(message.upper())


@pytest.mark.parametrize("message", OTHERS)
def test_rates_quotas_and_other_limits_are_no_overflow(message: str):
    assert not says_overflow(message)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "20", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "20", "retry-after-ms": "soon"}, 20.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "later"}, None),
        ({}, None),
        (None, None),
        ([("retry-after", "7")], None),
    ],
)
def test_the_delay_that_the_headers_ask_for(headers: Any, seconds: float | None):
    assert header_delay_s(headers) == seconds


def test_a_delay_may_be_a_date():
    delay = delay_s(format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True))
    assert delay is not None
    assert 80 < delay <= 90
