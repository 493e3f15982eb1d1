from __future__ import annotations

from contextlib import nullcontext

import pytest

from monitor.errors import ConfigError
from monitor.goal.goal import RESERVED, preflight
from monitor.goal.outputs import Outputs
from monitor.goal.plan import Plan

OUTPUTS = Outputs({"summary": str})


@pytest.mark.parametrize("tool_choice", ["auto", "required", "none"])
@pytest.mark.parametrize(
    ("outputs", "plan", "never_called"), [(OUTPUTS, None, "emit_value"), (None, Plan(["look"]), "update_plan")]
)
def test_what_no_call_can_hand_over_is_refused_and_only_that(
    outputs: Outputs | None, plan: Plan | None, never_called: str, tool_choice: str
):
    refused = f'tool_choice="none" keeps the model from calling {never_called}'
    preflight(None, None, ["search"], tool_choice)
    with pytest.raises(ConfigError, match=refused) if tool_choice == "none" else nullcontext() as error:
        preflight(outputs, plan, ["search"], tool_choice)
    assert (error is not None) is (tool_choice == "none")


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_tool_with_a_name_of_the_monitors_own_is_refused(name: str):
    with pytest.raises(ConfigError, match=name):
        preflight(None, None, ["search", name])
