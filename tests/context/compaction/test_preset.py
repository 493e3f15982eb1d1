"""The presets, and what they refuse."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from monitor import Compaction, ConfigError, Window
from monitor.context import CompactionHook, Extractive
from monitor.context import window as headroom
from monitor.context.compaction.preset import PRESETS, Preset, PresetOptions
from monitor.context.compaction.templates import CHECKPOINT, EIGHT_SECTIONS, FIVE_SECTIONS, MARKDOWN
from monitor.context.cut import KeepMessages, KeepNewTurns, KeepShare, KeepTokens
from monitor.context.reduce import PruneResults


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_taken_by_its_name_and_changed_by_options(name: str):
    preset = getattr(Compaction, name)(timeout_s=7, rules="mind the gap")
    assert isinstance(preset, Compaction)
    assert (preset.name, preset.timeout_s, preset.rules) == (name, 7, "mind the gap")
    with pytest.raises(ConfigError, match="has no option 'no_such_option'"):
        getattr(Compaction, name)(no_such_option=1)


@pytest.mark.feature("CC-01", "GZ-01")
@pytest.mark.parametrize(
    ("name", "high", "low"),
    [
        ("gemini_cli", 140_000, 126_000),
        ("claude_code", 184_000, 110_400),
        ("opencode", 168_000, 100_800),
        ("openclaw", 180_000, 108_000),
        ("pi", 183_616, 110_169),
    ],
)
def test_where_each_begins_and_what_it_must_get_below(name: str, high: int, low: int):
    window = Window(200_000, max_output_tokens=32_000)
    preset = getattr(Compaction, name)()
    assert preset.headroom.usable(window) == high
    assert int(high * preset.low_water + 1e-6) == low
    assert preset.due(high - 1, window=window) is None
    assert preset.due(high, window=window) == "high_water"


def test_what_each_keeps_says_and_takes_out_first():
    found = {name: getattr(Compaction, name)() for name in PRESETS}
    assert {name: preset.keep for name, preset in found.items()} == {
        "default": KeepTokens(20_000),
        "gemini_cli": KeepShare(0.3),
        "claude_code": KeepMessages(5),
        "opencode": KeepNewTurns(2, 0.25, 2_000, 8_000),
        "openclaw": KeepTokens(20_000),
        "pi": KeepTokens(20_000),
    }
    assert {name: preset.template for name, preset in found.items()} == {
        "default": CHECKPOINT,
        "gemini_cli": FIVE_SECTIONS,
        "claude_code": EIGHT_SECTIONS,
        "opencode": MARKDOWN,
        "openclaw": CHECKPOINT,
        "pi": CHECKPOINT,
    }
    assert found["gemini_cli"].steps == (PruneResults.gemini_cli(),)
    assert [name for name, preset in found.items() if preset.background] == ["default"]
    assert [name for name, preset in found.items() if preset.on_live_prefix] == ["openclaw"]
    assert [name for name, preset in found.items() if preset.continues == "always"] == ["opencode"]
    assert found["pi"].attempts == 1


@pytest.mark.parametrize(
    "options",
    [
        {"headroom": 0.9},
        *({"low_water": share} for share in (0, 1, -0.5, 1.5, float("nan"), "0.6", None, True)),
        {"template": "markdown"},
        {"keep": 20_000},
        {"steps": "prune"},
        {"steps": [PruneResults]},
        {"steps": ["prune"]},
        {"after_turn": PruneResults()},
        {"hooks": CompactionHook(after=print)},
        {"hooks": [print]},
        {"store": {}},
        {"summary_tokens": 10},
        {"summary_tokens": 1e4},
        {"attempts": -1},
        {"timeout_s": 0},
        {"timeout_s": "60"},
        {"continues": "sometimes"},
        {"model": "openai:gpt-5"},
        {"summarizer": Extractive},
        {"summarizer": "extractive"},
    ],
)
def test_a_wrong_option_is_named_at_once(options: dict[str, Any]):
    (name,) = options
    with pytest.raises(ConfigError, match=name):
        Compaction(**options)
    with pytest.raises(ConfigError, match=name):
        Compaction.gemini_cli(**options)


def test_lists_become_tuples_so_that_a_preset_cannot_change():
    hooks = [CompactionHook(after=print)]
    preset = Compaction(hooks=hooks, steps=[], headroom=headroom.PI)
    hooks.clear()
    assert len(preset.hooks) == 1
    assert preset.steps == ()


def test_editors_know_every_option_of_a_preset():
    assert PresetOptions.__annotations__.keys() == {one.name for one in fields(Preset)}
