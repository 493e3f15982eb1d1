"""What the services and servers say when a request does not fit, and what sounds like it and is
something else.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.chunks import Usage
from monitor.context.overflow import (
    OVERFLOW_ROWS,
    Overflow,
    OverflowKind,
    OverflowRow,
    read_answer,
    read_failure,
    says_overflow,
)
from monitor.errors import ConfigError, FinishReason

OVERFLOW, BYTES = OverflowKind.OVERFLOW, OverflowKind.BYTES

SENTENCES: dict[str, tuple[str, int | None, int | None]] = {
    "Anthropic": ("prompt is too long: 200251 tokens > 199999 maximum", 200_251, 199_999),
    "Anthropic, with the answer": (
        "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length",
        222_000,
        200_000,
    ),
    "OpenAI": (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
        9001,
        8192,
    ),
    "OpenAI, Responses": (
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        None,
        None,
    ),
    "OpenAI, configured": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300123 tokens.",
        300_123,
        272_000,
    ),
    "Gemini": (
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1_200_000,
        1_048_576,
    ),
    "Gemini, no brackets": (
        "The input token count 1,200,000 exceeds the maximum number of tokens allowed 1,048,576.",
        1_200_000,
        1_048_576,
    ),
    "Vertex": ("INVALID_ARGUMENT: request exceeds the maximum number of tokens", None, None),
    "Bedrock": ("ValidationException: Input is too long for requested model.", None, None),
    "Bedrock, tokens": ("The input token count exceeds the maximum number of input tokens allowed", None, None),
    "xAI": ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 537_812, 131_072),
    "Groq": ("Please reduce the length of the messages or completion.", None, None),
    "OpenRouter": (
        "This endpoint's maximum context length is 128000 tokens. However, you requested about 151123 tokens.",
        151_123,
        128_000,
    ),
    "Poolside": ("Input exceeds the maximum allowed input length of 131,072 tokens", None, 131_072),
    "Together": ("The input (9001 tokens) is longer than the model's context length (8192 tokens).", 9001, 8192),
    "Mistral": ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 40_000, 32_768),
    "Copilot": ("prompt token count of 70000 exceeds the limit of 64000", 70_000, 64_000),
    "Kimi": ("Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)", 140_000, 131_072),
    "MiniMax": ("invalid params, context window exceeds limit", None, None),
    "z.ai": ("Prompt exceeds max length", None, None),
    "z.ai, older": ("Prompt too long", None, None),
    "DashScope": ("Range of input length should be [1, 98304]", None, 98_304),
    "DeepSeek": (
        (
            "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens (132000 in the"
            " messages)"
        ),
        140_000,
        131_072,
    ),
    "LiteLLM": ("litellm.ContextWindowExceededError: BadRequestError", None, None),
    "LiteLLM, words": ("context window exceeded", None, None),
    "LiteLLM, number": ("The prompt exceeds model's maximum context length (4096)", None, 4096),
    "llama.cpp": ("the request exceeds the available context size, try increasing it", None, None),
    "llama.cpp, numbers": (
        "request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it",
        9001,
        8192,
    ),
    "llama.cpp, while answering": ("Context size has been exceeded.", None, None),
    "LM Studio": (
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        None,
        None,
    ),
    "Ollama": ("prompt too long; exceeded max context length by 512 tokens", None, None),
    "DS4": ("Prompt has 9001 tokens, but the configured context size is 8192 tokens", 9001, 8192),
    "anybody": ("token limit exceeded", None, None),
    "anybody, Chinese": ("请求失败：上下文长度超出限制", None, None),
}


@pytest.mark.parametrize(("message", "used", "limit"), SENTENCES.values(), ids=SENTENCES)
def test_every_service_says_in_its_own_words_that_the_prompt_does_not_fit(
    message: str, used: int | None, limit: int | None
):
    for said in (message, message.upper(), f'Error code: 400 - {{"error": {{"message": "{message}"}}}}'):
        assert says_overflow(said)
        found = read_failure(said, status=400)
        assert found is not None
        assert (found.kind, found.used_tokens, found.limit_tokens) == (OVERFLOW, used, limit)
        assert found.window_tokens == limit


WITHOUT_NUMBERS = [
    ("maximum context length is 8192", 8192),
    ("it is too large for model with 32768 maximum context length", 32_768),
    ("context_length_exceeded", None),
    ("it is over the model's maximum context length", None),
    ("Input tokens exceed the configured limit", None),
    ("This model's maximum prompt length is shorter than the request", None),
    ("Input is over the maximum allowed input length", None),
    ("The input is longer than the model's context length", None),
    ("Your request exceeded model token limit", None),
    ("Range of input length should be within the limit", None),
    ("the configured context size is too small for it", None),
    ("The prompt has too many tokens", None),
    ("too many tokens in your prompt", None),
    ("超过了模型的最大上下文", None),
]
"""Other wordings, as proxies and older versions have them."""


@pytest.mark.parametrize(("message", "limit"), WITHOUT_NUMBERS)
def test_the_phrase_alone_says_it_too(message: str, limit: int | None):
    found = read_failure(message, status=400)
    assert found is not None
    assert (found.kind, found.used_tokens, found.limit_tokens) == (OVERFLOW, None, limit)


def test_every_row_of_the_table_decides_something_that_is_tested_here():
    said: list[dict[str, Any]] = [{"message": message, "status": 400} for message, _, _ in SENTENCES.values()]
    said += [{"message": message, "status": 400} for message, _ in WITHOUT_NUMBERS]
    said += [failure for failure, _ in (*TELLTALE.values(), *NOT_THE_PROMPT.values())] + [{"message": HOPELESS}]
    idle = set(OVERFLOW_ROWS)
    for failure in said:
        given = {"status": None, "code": None, **failure}
        idle -= {next((row for row in OVERFLOW_ROWS if row.read(**given) is not None), None)}
    assert idle == set()


TELLTALE: dict[str, tuple[dict[str, Any], OverflowKind]] = {
    "Kimi answers 401 with it": ({"message": "your plan supports only 256K context", "status": 401}, OVERFLOW),
    "a code of OpenAI's": ({"message": "no", "code": "context_length_exceeded", "status": 400}, OVERFLOW),
    "a code of z.ai's": ({"message": "", "code": "1261"}, OVERFLOW),
    "too many tokens, where it is about the request": ({"message": "Too many tokens", "status": 400}, OVERFLOW),
    "too many bytes": (
        {"message": "Request exceeds the maximum size", "status": 413, "code": "request_too_large"},
        BYTES,
    ),
    "too many bytes of text": ({"message": "messages: too many total text bytes: 10000001 > 9000000"}, BYTES),
    "a proxy's": ({"message": "<html>413 Request Entity Too Large</html>"}, BYTES),
    "Copilot's 413": ({"message": "failed to parse request", "status": 413}, BYTES),
    "a bare 413": ({"message": "", "status": 413}, BYTES),
    "Anthropic's, in words": ({"message": '{"type": "request_too_large"}', "status": 400}, BYTES),
    "anybody's": ({"message": "Payload too large"}, BYTES),
    "a stop reason for a code": (
        {"message": "", "code": "model_context_window_exceeded"},
        OverflowKind.OUTPUT_TRUNCATED,
    ),
    "z.ai's stop reason as an error": ({"message": "model_context_window_exceeded"}, OverflowKind.OUTPUT_TRUNCATED),
}


@pytest.mark.parametrize(("failure", "kind"), TELLTALE.values(), ids=TELLTALE)
def test_codes_and_statuses_tell_it_as_well(failure: dict[str, Any], kind: OverflowKind):
    found = read_failure(**failure)
    assert found is not None
    assert found.kind is kind


HOPELESS = (
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30,000, Requested 40,000. The input must be reduced."
)

NOT_THE_PROMPT: dict[str, tuple[dict[str, Any], OverflowKind | None]] = {
    "rate": ({"message": "Rate limit reached: maximum context length is not the matter here"}, OverflowKind.RATE_LIMIT),
    "requests": ({"message": "Too many requests, prompt is too long for your tier"}, OverflowKind.RATE_LIMIT),
    "Bedrock": (
        {"message": "ThrottlingException: Too many tokens, please wait before trying again.", "status": 400},
        OverflowKind.RATE_LIMIT,
    ),
    "any 429": ({"message": "prompt is too long: 5 tokens > 4 maximum", "status": 429}, OverflowKind.RATE_LIMIT),
    "Groq, what waiting helps": (
        {
            "message": "on tokens per minute (TPM): Limit 6000, Requested 5900, please reduce your message size",
            "status": 413,
        },
        OverflowKind.RATE_LIMIT,
    ),
    "OpenAI, some used": (
        {"message": "on tokens per min (TPM): Limit 30000, Used 25000, Requested 10000.", "status": 429},
        OverflowKind.RATE_LIMIT,
    ),
    "quota": (
        {"message": "You exceeded your current quota, please check your plan and billing details."},
        OverflowKind.OTHER,
    ),
    "tokens per minute, in short": ({"message": "TPM reached, prompt too long"}, OverflowKind.RATE_LIMIT),
    "money": ({"message": "Billing: your plan has no credit; prompt too long"}, OverflowKind.OTHER),
    "a refusal": ({"message": "The model's refusal: the prompt is too long to be harmless"}, OverflowKind.OTHER),
    "a setting of the server": (
        {"message": "context window too small for this template, exceeds context limit"},
        OverflowKind.OTHER,
    ),
    "a template": ({"message": "prompt template error: prompt too long"}, OverflowKind.OTHER),
    "reasoning": ({"message": "reasoning is required; prompt too long otherwise"}, OverflowKind.OTHER),
    "output limit": (
        {"message": "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens", "status": 400},
        None,
    ),
    "tools": ({"message": "The number of function declarations exceeds the limit of 128.", "status": 400}, None),
    "a bare 400": ({"message": "", "status": 400}, None),
    "too many tokens, of whatever": ({"message": "too many tokens"}, None),
    "nothing": ({"message": ""}, None),
}


@pytest.mark.parametrize(("failure", "kind"), NOT_THE_PROMPT.values(), ids=NOT_THE_PROMPT)
def test_rates_quotas_and_other_limits_are_no_overflow(failure: dict[str, Any], kind: OverflowKind | None):
    found = read_failure(**failure)
    assert (found and found.kind) is kind
    assert not says_overflow(failure["message"], status=failure.get("status"))


def test_more_than_a_minute_ever_allows_is_hopeless_and_says_nothing_of_the_window():
    for status in (413, 429, None):
        found = read_failure(HOPELESS, status=status)
        assert found == Overflow(OverflowKind.HOPELESS, "groq, openai", 40_000, 30_000)
        assert found.window_tokens is None
    assert not says_overflow(HOPELESS)


@pytest.mark.parametrize(
    ("number", "tokens"), [("256K", 256_000), ("1M", 1_000_000), ("131,072", 131_072), ("8192", 8192)]
)
def test_numbers_are_read_as_people_write_them(number: str, tokens: int):
    found = read_failure(f"it supports only {number} context")
    assert found is not None
    assert found.limit_tokens == tokens


def test_a_row_of_ones_own_goes_first():
    mine = OverflowRow("my server", OVERFLOW, r"der Prompt hat <used> von <limit> Wörtern", status=(422,))
    said = "Der Prompt hat 900 von 800 Wörtern, rate limit"
    assert read_failure(said, status=422, rows=(mine, *OVERFLOW_ROWS)) == Overflow(OVERFLOW, "my server", 900, 800)
    other = read_failure(said, status=400, rows=(mine, *OVERFLOW_ROWS))
    assert other is not None
    assert other.kind is OverflowKind.RATE_LIMIT


def test_a_row_that_could_not_be_read_is_refused():
    with pytest.raises(ConfigError, match="names a phrase, a status or a code"):
        OverflowRow("mine", OVERFLOW)
    with pytest.raises(ConfigError, match="not a regular expression"):
        OverflowRow("mine", OVERFLOW, "(")


ANSWERS: dict[str, tuple[Usage, FinishReason, str | None, OverflowKind | None]] = {
    "fits": (Usage(900, 50, total_tokens=950), FinishReason.DONE, "stop", None),
    "cut off by its own limit": (Usage(500, 50, total_tokens=550), FinishReason.LENGTH, "length", None),
    "more than the window, and no error": (
        Usage(1200, 50, total_tokens=1250),
        FinishReason.DONE,
        "stop",
        OverflowKind.SILENT,
    ),
    "no room for a word (Xiaomi MiMo)": (
        Usage(995, 0, total_tokens=995),
        FinishReason.LENGTH,
        "length",
        OverflowKind.SILENT,
    ),
    "an empty answer of a small prompt": (Usage(500, 0, total_tokens=500), FinishReason.LENGTH, "length", None),
    "the window cut it off": (
        Usage(900, 95, total_tokens=995),
        FinishReason.LENGTH,
        "length",
        OverflowKind.OUTPUT_TRUNCATED,
    ),
    "full to the brim, and done": (Usage(900, 100, total_tokens=1000), FinishReason.DONE, "stop", None),
    "Anthropic says so": (Usage(), FinishReason.LENGTH, "model_context_window_exceeded", OverflowKind.OUTPUT_TRUNCATED),
}


@pytest.mark.parametrize(("usage", "finish", "raw", "kind"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_without_an_error_may_tell_it(
    usage: Usage, finish: FinishReason, raw: str | None, kind: OverflowKind | None
):
    found = read_answer(usage, 1000, finish_reason=finish, raw_finish_reason=raw)
    assert (found and found.kind) is kind


def test_of_an_unknown_window_only_the_providers_word_counts():
    assert read_answer(Usage(10**9, 0, total_tokens=10**9), None, finish_reason=FinishReason.LENGTH) is None
    assert read_answer(
        Usage(), None, finish_reason=FinishReason.LENGTH, raw_finish_reason="model_context_window_exceeded: full"
    )


@given(st.text(max_size=300), st.none() | st.integers(), st.none() | st.text(max_size=20))
def test_reading_a_failure_never_fails(message: str, status: int | None, code: str | None):
    found = read_failure(message, status=status, code=code)
    assert found is None or found.kind in OverflowKind


def test_a_message_that_echoes_the_prompt_is_read_at_its_beginning():
    assert not says_overflow("bad request: " + "x" * 100_000 + " prompt is too long")
    assert says_overflow("prompt is too long: " + "9" * 100_000)
