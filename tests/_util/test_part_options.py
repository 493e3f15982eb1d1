"""The options of a part, and the same part made from them again."""

from __future__ import annotations

import json
from typing import Any

import pytest

import monitor
from monitor._util.part_options import made_again, options_of
from monitor.detectors import ContentRepetition, TailRule, default_detectors
from monitor.settings import detector_types

POLL = monitor.ToolPolicy(polling=True, volatile=("at",))
PARTS: list[Any] = [
    *default_detectors(),
    *default_detectors(tools={"poll": POLL}),
    monitor.ToolCallRepetition(loop_at=7, suspect_at=None, exempt=["wait"], name="mine"),
    monitor.detectors.ToolCallCycle(max_period=3, unordered_at=None),
    monitor.detectors.NoProgress(stalled_suspect_at=None, stalled_at=20),
    monitor.detectors.UnknownTool(known=["look"]),
    monitor.detectors.SimilarMessages(near=False),
    ContentRepetition(chant=None, tail=TailRule(), channels=["text"]),
    monitor.Ladder(max_nudges=1, clean_turns=None, final_tools=("tell",), hold=True),
    monitor.policy.ObserveOnly(),
    monitor.StopAtFirstLoop(),
    monitor.Price(1.0, 2.0, cached=0.5),
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_a_part_is_made_again_from_its_options(part: Any):
    options = options_of(part)
    assert options is not None
    again = made_again(type(part), json.loads(json.dumps(options)))
    assert options_of(again) == options


def test_options_are_those_that_were_given():
    given: dict[str, Any] = {"stalled_suspect_at": None, "stalled_at": 20, "name": "mine"}
    options = options_of(monitor.detectors.NoProgress(**given)) or {}
    assert {name: options[name] for name in given} == given
    text = options_of(ContentRepetition(chant=None, channels=["text"])) or {}
    assert (text["chant"], text["channels"]) == (None, ["text"])
    calls = options_of(monitor.ToolCallRepetition(loop_at=7, exempt=["wait"])) or {}
    assert (calls["loop_at"], calls["tools"]["wait"]["exempt"]) == (7, True)


@pytest.mark.parametrize("name", detector_types())
def test_every_detector_of_the_library_has_options(name: str):
    assert options_of(detector_types()[name]()) is not None


def test_a_part_with_a_function_has_no_options():
    assert options_of(monitor.detectors.NoProgress(progress=lambda _: 1.0)) is None
    keyed = monitor.ToolPolicy(loop_key=lambda arguments: arguments)
    assert options_of(monitor.detectors.ToolCallCycle(tools={"look": keyed})) is None


def test_options_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="Ladder cannot be made"):
        made_again(monitor.Ladder, {"colour": 1})
    with pytest.raises(ValueError, match="Ladder cannot be made"):
        made_again(monitor.Ladder, {"max_nudges": "many"})
