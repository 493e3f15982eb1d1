"""What recorded model calls cost: the recording's own word first, and no price for another tier."""

from __future__ import annotations

import json
from typing import Any

import pytest

from monitor.transcripts.analysis.survey import SurveyedRun, survey_file
from monitor.transcripts.source import Source

SONNET = "claude-sonnet-4-5-20250929"


def run(*calls: tuple[str, dict[str, Any]], **more: object) -> SurveyedRun:
    """A session of Claude Code with one response for each of `calls`: a model, and its usage."""
    lines: list[dict[str, Any]] = []
    for number, (model, usage) in enumerate(calls):
        about = {"sessionId": "s", "parentUuid": None, "cwd": "/w", "version": "2.1.9", "uuid": f"u{number}"}
        answer = {"id": f"m{number}", "role": "assistant", "model": model, "usage": {"output_tokens": 0, **usage}}
        text = [{"type": "text", "text": f"Step {number}."}]
        lines.append({**about, "type": "assistant", "message": {**answer, "content": text}, **more})
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    (found,) = survey_file(Source.of_bytes("a.jsonl", content)).runs
    return found


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        ({"input_tokens": 200_000}, 0.6),
        ({"input_tokens": 200_001}, 1.200006),
        ({"cache_read_input_tokens": 100_000}, 0.03),
        ({"cache_creation_input_tokens": 100_000}, 0.375),
        (
            {"cache_creation_input_tokens": 100_000, "cache_creation": {"ephemeral_1h_input_tokens": 60_000}},
            0.51,
        ),
        ({"input_tokens": 100_000, "service_tier": "standard", "speed": "standard"}, 0.3),
    ],
)
def test_each_kind_of_token_has_its_price(usage: dict[str, Any], usd: float):
    assert run((SONNET, usage)).cost_usd == pytest.approx(usd)


@pytest.mark.parametrize("tier", [{"service_tier": "batch"}, {"service_tier": "priority"}, {"speed": "fast"}])
def test_a_call_in_another_tier_has_no_price_of_the_usual_one(tier: dict[str, str]):
    found = run((SONNET, {"input_tokens": 100_000, **tier}))
    assert (found.cost_usd, found.cost_partial) == (None, True)


def test_of_two_models_the_known_one_gives_the_least_cost():
    found = run((SONNET, {"input_tokens": 100_000}), ("claude-opus-9", {"input_tokens": 100}))
    assert found.cost_usd == pytest.approx(0.3)
    assert (found.cost_partial, found.cost_listed) == (True, True)


def test_the_cost_that_the_record_states_wins():
    found = run((SONNET, {"input_tokens": 100_000}), ("claude-opus-9", {"input_tokens": 100}), costUSD=0.5)
    assert (found.cost_usd, found.cost_partial, found.cost_listed) == (1.0, False, False)


@pytest.mark.parametrize("cost", [-3, float("nan"), True, "0.5"])
def test_an_impossible_cost_is_none(cost: object):
    assert run((SONNET, {"input_tokens": 100_000}), costUSD=cost).cost_usd == pytest.approx(0.3)
