"""What a scan found, in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monitor.transcripts.analysis.survey import Card, SurveyedRun, cost_in_words, kind_in_words, loop_in_words, survey
from monitor.transcripts.source import Source
from monitor.verdicts import Detection, Evidence


def run_of(tmp_path: Path, calls: int, *, model: str = "", tokens: int = 0, secret: str = "x") -> SurveyedRun:
    messages: list[dict[str, object]] = [{"role": "user", "content": f"Look at {secret}."}]
    for at in range(calls):
        call = {
            "id": f"c{at}",
            "type": "function",
            "function": {"name": "view", "arguments": f'{{"path": "{secret}"}}'},
        }
        said: dict[str, object] = {"role": "assistant", "content": None, "tool_calls": [call], "model": model}
        if tokens:
            said["usage"] = {"prompt_tokens": tokens, "completion_tokens": 10}
        messages += [said, {"role": "tool", "tool_call_id": f"c{at}", "content": f"{secret} is closed"}]
    path = tmp_path / f"{calls}{model}.jsonl"
    path.write_text("".join(json.dumps(message) + "\n" for message in messages))
    (run,) = survey(Source.of_path(path))
    return run


def card_of(*runs: SurveyedRun) -> str:
    card = Card()
    for run in runs:
        card.add(run)
    return card.said()


@pytest.mark.feature("US-12")
def test_one_of_many_runs(tmp_path: Path):
    fine = run_of(tmp_path, 1)
    looping = run_of(tmp_path, 12, model="gpt-4o-2024-08-06", tokens=100_000)
    assert card_of(*[fine] * 83, looping) == (
        "1 of 84 runs looped: view 12 times with the same arguments, step 1 to 12, about $3.00;"
        " a stop at the fifth would have avoided $1.75"
    )


def test_of_several_the_costliest_is_told(tmp_path: Path):
    said = card_of(run_of(tmp_path, 30), run_of(tmp_path, 12, model="gpt-4o-2024-08-06", tokens=100_000))
    assert said.startswith("2 of 2 runs looped. The costliest: view 12 times")
    assert "step 1 to 12, about $3.00" in said


def test_an_unknown_cost_is_called_unknown(tmp_path: Path):
    assert "step 1 to 12, at an unknown cost" in card_of(run_of(tmp_path, 12))


def test_no_loop_and_no_run(tmp_path: Path):
    assert card_of() == "0 runs, and none looped"
    assert card_of(run_of(tmp_path, 1)) == "1 run, and none looped"


def test_no_word_of_a_transcript_is_told(tmp_path: Path):
    assert "hunter2" not in card_of(run_of(tmp_path, 12, secret="hunter2"))


@pytest.mark.parametrize(
    ("usd", "partial", "listed", "said"),
    [
        (None, False, False, "at an unknown cost"),
        (0.0, False, False, "for $0.00"),
        (0.004, False, True, "for less than $0.01"),
        (0.9, False, True, "about $0.90"),
        (1234.5, True, True, "at least $1,234.50"),
    ],
)
def test_a_cost_says_how_sure_it_is(usd: float | None, partial: bool, listed: bool, said: str):
    assert cost_in_words(usd, partial=partial, listed=listed) == said


def found(kind: str, channel: str) -> Detection:
    return Detection(
        detector="d",
        kind=kind,
        channel=channel,  # type: ignore[arg-type]
        level="loop",
        count=7,
        threshold=5,
        start_offset=0,
        offset=9,
        evidence=Evidence("secret(words)", "0", 1, (0,)),
        message="secret words",
    )


@pytest.mark.parametrize("channel", ["tools", "text", "reasoning", "messages", "arguments"])
@pytest.mark.parametrize("kind", ["identical_calls", "cycle", "exact_tail", "of_my_own"])
def test_every_kind_has_words(kind: str, channel: str):
    for said in (kind_in_words(found(kind, channel)), loop_in_words(found(kind, channel))):
        assert said
        assert "_" not in said
        assert "words" not in said
