"""The options of `run` as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.cli.options.run_arguments import RunArguments, RunCommandOptions, arguments_codec
from monitor.errors import ConfigError


def test_stored_options_keep_the_tag_that_they_had_at_first():
    arguments = RunArguments(folder="/work", outputs=("summary:str",))
    assert arguments_codec.to_dict(arguments)["type"] == "asked"
    assert arguments_codec.loads(arguments_codec.dumps(arguments)) == arguments
    with pytest.raises(ValueError, match="unknown type 'run_arguments'"):
        arguments_codec.from_dict({"type": "run_arguments", "folder": "/work"})


def test_an_option_that_is_no_other_value_is_stored_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    arguments = RunCommandOptions(model="a:b", max_turns="7", budget_usd=1.5, price="1,2").arguments()
    assert arguments == RunArguments(folder=str(tmp_path), model="a:b", max_turns="7", budget_usd=1.5, price="1,2")


def test_the_demo_has_a_tool_and_outputs_where_none_is_named():
    demo = RunCommandOptions(demo=True).arguments()
    assert len(demo.tools) == 1
    assert len(demo.outputs) == 2
    assert RunCommandOptions(demo=True, outputs=["x:str"]).arguments().outputs == ("x:str",)


def test_detectors_that_are_named_and_switched_off_are_refused():
    with pytest.raises(ConfigError, match="--detectors and --no-detectors"):
        RunCommandOptions(detectors="ToolCallRepetition", no_detectors=True).arguments()
