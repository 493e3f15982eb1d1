from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.prices import list_price
from monitor.prices.price_table import read_name

KNOWN = {
    "claude-sonnet-4-5": (3.0, 15.0),
    "claude-sonnet-4.5": (3.0, 15.0),
    "claude-sonnet-4-5-20250929": (3.0, 15.0),
    "claude-sonnet-4-5@20250929": (3.0, 15.0),
    "vertex_ai/claude-sonnet-4-5@20250929": (3.0, 15.0),
    "anthropic/claude-sonnet-4-20250514": (3.0, 15.0),
    "litellm_proxy/claude-sonnet-4-20250514": (3.0, 15.0),
    "openrouter/anthropic/claude-sonnet-4.5": (3.0, 15.0),
    "anthropic:claude-sonnet-4-5": (3.0, 15.0),
    "claude-opus-4-5[1m]": (5.0, 25.0),
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0": (3.3, 16.5),
    "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0": (3.3, 16.5),
    "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0": (3.3, 16.5),
    "global.anthropic.claude-sonnet-4-5-20250929-v1:0": (3.0, 15.0),
    "anthropic.claude-3-haiku-20240307-v1:0": (0.25, 1.25),
    "google:gemini-2.5-flash": (0.3, 2.5),
    "models/gemini-2.5-flash": (0.3, 2.5),
    "gemini/gemini-2.5-flash": (0.3, 2.5),
    "gpt-4o-mini-2024-07-18": (0.15, 0.6),
    "openai/gpt-4o-mini": (0.15, 0.6),
    "gpt-5-mini-2025-08-07": (0.25, 2.0),
    "magistral-medium-2507": (2.0, 5.0),
    "kimi-k3": None,
}
"""Names as transcripts and gateways write them, with the price of input and output. `None`: only
that there is one counts.
"""

UNKNOWN = (
    *("llama3.1", "ollama/llama3.1", "coder-model", "<synthetic>", "hardcoded/hardcoded", "", "/", ":", "claude"),
    *("gpt-5.9-codex-not-yet", "claude-opus-9", "claude-sonnet-4-9-20290101", "gemini-9-pro", "my-gpt-4o-clone"),
    *("gpt-4o-mini-my-deployment", "claude-opus-4-6-fast", "deepseek/deepseek-chat-v3.1:free", "openai/gpt-5:batch"),
)


@pytest.mark.parametrize("name", KNOWN)
def test_a_name_is_known_however_a_gateway_or_a_cloud_writes_it(name: str):
    price = list_price(name)
    assert price is not None
    if KNOWN[name] is not None:
        assert (price.input, price.output) == KNOWN[name]


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_model_that_the_table_does_not_have_is_never_taken_for_the_nearest_one(name: str):
    assert list_price(name) is None


def test_the_seller_decides_the_price_of_a_bare_name():
    assert list_price("llama-3.3-70b-versatile") is None
    assert list_price("llama-3.3-70b-versatile", seller="groq") is not None
    assert list_price("gpt-4o", seller="a seller of tomorrow") is None


@given(st.text(max_size=60))
def test_any_text_is_read(name: str):
    assert read_name(name).spellings
    list_price(name)


@given(st.sampled_from(["claude-opus-4-5", "gpt-4o", "gemini-2.5-pro"]), st.from_regex(r"\A[-:@/][a-z]{2,8}zz\Z"))
def test_an_unknown_tail_makes_a_price_unknown(name: str, tail: str):
    assert list_price(name) is not None
    assert list_price(name + tail) is None
