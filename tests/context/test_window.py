"""How much a model takes, and who says so."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.context.window import DATE, FAMILIES, MODELS, UNKNOWN, Window, WindowSource, limits_of, window_of
from monitor.errors import ConfigError

SIZES = st.integers(1, 2_000_000)


@pytest.mark.feature("GZ-05")
@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("gemini-2.5-pro", 1_048_576),
        ("google:gemini-2.5-flash", 1_048_576),
        ("models/gemini-3.5-flash", 1_048_576),
        ("gemma-4-31b-it", 256_000),
        ("anthropic:claude-sonnet-4-5-20250929", 200_000),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", 200_000),
        ("openrouter/anthropic/claude-opus-5:free", 1_000_000),
        ("claude-haiku-4-5@20251001", 200_000),
        ("openai:gpt-4o-2024-08-06", 128_000),
        ("GPT-4-0613", 8_192),
        ("mistral-large-latest", 262_144),
    ],
)
def test_a_known_model_has_its_window_whatever_stands_around_its_name(name: str, tokens: int):
    window = window_of(name)
    assert (window.context_tokens, window.source) == (tokens, WindowSource.MODEL)
    assert DATE in window.note
    assert window.max_output_tokens


@pytest.mark.feature("GZ-05")
def test_an_unknown_model_of_a_known_family_gets_a_default_that_is_said():
    window = window_of("google:gemini-9-ultra")
    assert (window.context_tokens, window.source) == (1_048_576, WindowSource.DEFAULT)
    assert "does not know 'google:gemini-9-ultra'" in window.note
    assert window_of("claude-2.1").source is WindowSource.DEFAULT


@pytest.mark.feature("GZ-05")
def test_of_any_other_model_the_window_is_unknown_or_the_callers_default():
    assert window_of("llama-at-home") == window_of(None) == UNKNOWN
    assert (UNKNOWN.tokens, UNKNOWN.problem, UNKNOWN.warning) == (None, None, None)
    window = window_of("llama-at-home", default_tokens=1_048_576)
    assert (window.tokens, window.source) == (1_048_576, WindowSource.DEFAULT)
    assert window_of("gpt-4o", default_tokens=5).tokens == 128_000


def test_what_is_configured_goes_before_the_table_in_both_directions():
    assert window_of("gpt-4o", config=64_000) == Window(64_000, 16_384, source=WindowSource.CONFIG)
    assert window_of("gpt-4o", config=300_000).tokens == 300_000
    assert window_of("gpt-5", config=300_000).tokens == 272_000  # the prompt has a limit of its own
    assert window_of("gpt-5", config=1_000_000).tokens == 1_000_000
    mine = Window(50_000, 1_000)
    assert window_of("gpt-4o", config=mine) is mine


def test_a_cap_of_the_agent_only_lowers():
    window = window_of("gpt-4o", agent_cap=50_000)
    assert (window.tokens, window.source) == (50_000, WindowSource.AGENT_CAP)
    assert "128,000" in window.note
    assert window_of("gpt-4o", agent_cap=200_000).source is WindowSource.MODEL
    assert window_of(None, agent_cap=50_000).tokens == 50_000
    assert window_of("gpt-5", agent_cap=100_000).tokens == 100_000


@pytest.mark.parametrize(
    ("tokens", "refused", "warned"),
    [(15_999, True, False), (16_000, False, True), (31_999, False, True), (32_000, False, False), (1, True, False)],
)
def test_a_window_below_16000_is_refused_and_one_below_32000_is_warned_of(tokens: int, refused: bool, warned: bool):
    window = window_of(None, config=tokens)
    assert (window.problem is not None, window.warning is not None) == (refused, warned)


def test_the_refusal_names_the_number_its_source_and_what_to_do():
    assert window_of("gpt-4").problem == (
        f"the window is 8,192 tokens (model: the table of {DATE}), and an agent needs at least 16,000; "
        "choose another model, or have its server serve it with a larger one"
    )
    capped = window_of("gpt-4o", agent_cap=8_000).problem
    assert capped is not None
    assert "agent_cap: the window itself is 128,000" in capped
    assert "raise the cap of this agent" in capped
    warned = window_of(None, config=20_000).warning
    assert warned is not None
    assert "20,000 tokens (config)" in warned


def test_what_the_provider_states_only_lowers():
    window = window_of("gpt-4o")
    assert window.learned(200_000) is window
    assert window.learned(128_000) is window
    lower = window.learned(65_536)
    assert (lower.tokens, lower.source, lower.max_output_tokens) == (65_536, WindowSource.LEARNED, 16_384)
    assert "128,000" in lower.note
    known = UNKNOWN.learned(4_096)
    assert known.tokens == 4_096
    assert known.problem is not None
    assert window_of("gpt-5").learned(200_000).input_tokens == 200_000


@given(SIZES, SIZES, st.lists(SIZES, max_size=5))
def test_whatever_is_learned_in_whatever_order_the_least_holds(config: int, cap: int, learned: list[int]):
    window = window_of(None, config=config, agent_cap=cap)
    for tokens in learned:
        window = window.learned(tokens)
    assert window.tokens == min(config, cap, *learned)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "128k"], ids=repr)
def test_what_is_no_number_of_tokens_is_refused(bad: Any):
    for call in (
        lambda: window_of("x", config=bad),
        lambda: window_of("x", agent_cap=bad),
        lambda: window_of("x", default_tokens=bad),
        lambda: UNKNOWN.learned(bad),
        lambda: Window(1000, bad),
    ):
        with pytest.raises(ConfigError, match="number of tokens above 0"):
            call()


def test_the_table_makes_sense():
    assert len(MODELS) > 80
    for name, limits in {**MODELS, **FAMILIES}.items():
        assert name == name.lower()
        assert 0 < limits.output <= limits.context
        assert limits.prompt is None or 0 < limits.prompt < limits.context
    assert all(limits_of(name) is limits for name, limits in MODELS.items())


@given(st.text(max_size=40))
def test_any_name_is_looked_up(name: str):
    assert window_of(name).source in WindowSource


def test_an_endless_name_of_a_model_is_no_work():
    began = time.thread_time()
    assert window_of("a/b:" * 100_000).tokens is None
    assert time.thread_time() - began < 1
