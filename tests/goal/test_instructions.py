from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import ConfigError
from monitor.goal.outputs import Outputs
from monitor.goal.plan import Plan, render, run_instructions

# --- templates


def test_declared_variables_are_filled_in():
    assert (
        render("Look at ${repo}, at most ${n} files.", {"repo": "anyio", "n": 3}) == "Look at anyio, at most 3 files."
    )


def test_all_missing_variables_are_named_at_once():
    with pytest.raises(ConfigError, match=r"not given: b, c\."):
        render("${b} ${a} ${c} ${b}", {"a": 1})


def test_a_template_without_variables_given_is_a_template_all_the_same():
    with pytest.raises(ConfigError, match="repo"):
        render("Look at ${repo}.")


def test_a_variable_that_is_not_used_does_no_harm():
    assert render("plain", {"repo": "anyio"}) == "plain"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("$${x}", "${x}"),
        ("$$${x}", "$1"),
        ("$$$${x}", "$${x}"),
        ("a price of $5, $$, $HOME, $x", "a price of $5, $$, $HOME, $x"),
        ('{"x": {x}}', '{"x": {x}}'),
        ("${x:-1} ${} ${1} ${a b}", "${x:-1} ${} ${1} ${a b}"),
    ],
)
def test_dollars_and_braces_that_are_no_variable_are_text(template: str, text: str):
    assert render(template, {"x": 1}) == text


def test_values_are_not_searched_for_variables():
    assert render("${a}", {"a": "${b}"}) == "${b}"


@given(st.text())
def test_a_value_arrives_as_it_is(value: str):
    assert render("<${v}>", {"v": value}) == f"<{value}>"


@given(st.text(alphabet="${}xy").filter(lambda text: "{" not in text or "$" not in text))
def test_a_text_without_a_variable_is_not_changed(text: str):
    assert render(text, {}) == text


@pytest.mark.parametrize(("template", "variables"), [(None, {}), (3, {}), ("x", ["x"])])
def test_what_is_no_template_is_refused(template: object, variables: object):
    with pytest.raises(ConfigError):
        render(template, variables)  # type: ignore[arg-type]


# --- the paragraph

OUTPUTS = Outputs({"summary": str, "risk": float})
PLAN = Plan(["look", "write"])


def test_the_users_instructions_come_first_and_unchanged():
    assert run_instructions("You review code.\n").startswith("You review code.\n\nYou work alone")


@pytest.mark.parametrize("outputs", [None, OUTPUTS])
@pytest.mark.parametrize("plan", [None, PLAN])
def test_the_model_is_told_when_to_terminate(outputs: Outputs | None, plan: Plan | None):
    text = run_instructions("x", outputs, plan)
    assert 'call `terminate` with status "failure"' in text
    # a plan ends by itself
    assert ('call `terminate` with status "success"' in text) == (outputs is not None or plan is None)


def test_declared_outputs_and_the_tool_for_them_are_named():
    assert "`emit_value`" in run_instructions(None, OUTPUTS)
    assert "summary, risk" in run_instructions(None, OUTPUTS)
    assert "emit_value" not in run_instructions("x")


def test_a_plan_brings_its_tool():
    assert "update_plan" in run_instructions("x", None, PLAN)
    assert "update_plan" not in run_instructions("x", OUTPUTS)


def test_without_tools_none_is_mentioned():
    text = run_instructions("x", OUTPUTS, PLAN, has_tools=False)
    assert "`" not in text


def test_the_text_is_the_same_however_far_the_run_is():
    outputs, plan = OUTPUTS.fresh(), PLAN.fresh()
    before = run_instructions("x", outputs, plan)
    outputs.call({"name": "risk", "value": 1})
    plan.call({"step": 1, "status": "completed"})
    assert run_instructions("x", outputs, plan) == before == run_instructions("x", OUTPUTS, PLAN)
