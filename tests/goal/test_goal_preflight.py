from __future__ import annotations

import pytest

from monitor.errors import ConfigError
from monitor.goal.goal import RESERVED, preflight
from monitor.goal.outputs import Outputs
from monitor.goal.plan import Plan

OUTPUTS = Outputs({"summary": str})


@pytest.mark.parametrize("tool_choice", ["auto", "required"])
def test_outputs_that_can_be_emitted_pass(tool_choice: str):
    preflight(OUTPUTS, Plan(["look"]), ["search"], tool_choice)


def test_without_outputs_the_model_may_go_without_tools():
    preflight(None, tool_choice="none")


def test_outputs_that_no_call_can_hand_over_are_refused():
    with pytest.raises(ConfigError, match=r'tool_choice="none" keeps the model from calling emit_value'):
        preflight(OUTPUTS, tool_choice="none")


def test_a_plan_that_no_call_can_update_is_refused():
    with pytest.raises(ConfigError, match=r"update_plan"):
        preflight(None, Plan(["look"]), tool_choice="none")


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_tool_with_a_name_of_the_monitors_own_is_refused(name: str):
    with pytest.raises(ConfigError, match=name):
        preflight(None, None, ["search", name])
