"""One declaration an option: what type checkers know, what the classes take, and what their
docstrings say are the same options.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import pytest

import monitor
from monitor.guard.options import GuardOptions
from monitor.runs.option_groups import GROUPS, MOVED, FlatOptions
from monitor.runs.supervisor_options import RunKeywords, SupervisorKeywords
from monitor.testing import ScriptedModel
from monitor.tools import Bound, InMemoryLedger

MOST_OPTIONS = 24
MODEL = ScriptedModel("Done.")


def parameters(kind: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(kind).parameters)


@pytest.mark.parametrize(("kind", "options"), [(monitor.Guard, GuardOptions), (monitor.Supervisor, RunKeywords)])
def test_a_type_checker_knows_every_option_and_its_type(kind: Any, options: Any):
    taken = {one.name: one.annotation for one in parameters(kind).values() if one.name not in {"model", "outputs"}}
    known = {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}
    assert known == taken


@pytest.mark.parametrize("kind", [monitor.Guard, monitor.Supervisor])
def test_the_docstring_of_a_class_says_a_sentence_of_every_option_and_of_no_other(kind: Any):
    said = set(re.findall(r"(?:- |[.,;:] |^ +)`(\w+)`(?=: )", inspect.cleandoc(kind.__doc__), re.MULTILINE)) - {"None"}
    assert said == set(parameters(kind))


@pytest.mark.parametrize("group", GROUPS.values())
def test_every_option_of_a_group_has_its_sentence_below_it(group: Any):
    source = inspect.getsource(group)
    names = [field.name for field in dataclasses.fields(group)]
    assert [name for name in names if not re.search(rf'^    {name}: .*\n    """', source, re.MULTILINE)] == []


@pytest.mark.parametrize("of", [monitor.Guard, monitor.watch, monitor.Supervisor])
def test_the_default_policy_is_seen_in_the_signature(of: Any):
    shown = "Ladder()" if of is monitor.Supervisor else "StopAtFirstLoop()"
    assert repr(parameters(of)["policy"].default) == shown


def test_a_policy_is_shown_as_it_is_written():
    for written in ("Ladder(max_nudges=1, hold=True)", "ObserveOnly()", "StopAtFirstLoop()"):
        assert repr(eval(f"monitor.policy.{written}")) == written


# --- the options of the groups by themselves


def test_a_supervisor_has_few_options_and_each_other_one_stands_in_a_group():
    taken = set(parameters(monitor.Supervisor))
    assert len(taken) <= MOST_OPTIONS
    assert set(MOVED) == set(FlatOptions.__annotations__)
    assert not taken & set(MOVED)
    assert set(SupervisorKeywords.__annotations__) == (taken | set(MOVED)) - {"model", "outputs"}


@pytest.mark.parametrize("flat", MOVED)
def test_an_option_by_itself_has_the_type_that_it_has_in_its_group(flat: str):
    option, name = MOVED[flat]
    (field,) = (one for one in dataclasses.fields(GROUPS[option]) if one.name == name)
    assert FlatOptions.__annotations__[flat].__forward_arg__ == field.type


@pytest.mark.parametrize(
    ("flat", "grouped", "line"),
    [
        ({"max_parallel_tools": 3}, {"calls": "parallel"}, "calls=monitor.runs.ToolCalls(parallel=3)"),
        (
            {"result_bound": Bound(5_000)},
            {"results": "bound"},
            "results=monitor.runs.Results(bound=Bound(max_chars=5000, max_lines=2000))",
        ),
        (
            {"model_settings": {"seed": 7}},
            {"requests": "settings"},
            "requests=monitor.runs.Requests(settings={'seed': 7})",
        ),
        (
            {"variables": {"a": 1}, "instructions": "Say ${a}."},
            {"instructions": "variables"},
            "instructions=monitor.runs.Instructions('Say ${a}.', variables={'a': 1})",
        ),
        ({"ledger": InMemoryLedger()}, {"calls": "ledger"}, "calls=monitor.runs.ToolCalls(ledger=...)"),
        (
            {"approval": "plan", "calls": monitor.runs.ToolCalls(parallel=2)},
            {"calls": "approval"},
            "calls=monitor.runs.ToolCalls(approval='plan')",
        ),
    ],
)
def test_an_option_by_itself_is_taken_and_the_warning_says_the_line_to_type(
    flat: dict[str, Any], grouped: dict[str, str], line: str
):
    with pytest.warns(DeprecationWarning, match="in release 0") as heard:
        supervisor: Any = monitor.Supervisor(MODEL, **flat)
    (option, name), *_ = grouped.items()
    assert getattr(getattr(supervisor, option), name) == flat[next(iter(flat))]
    (warning,) = heard
    assert str(warning.message).endswith(f"write {line}")
    assert warning.filename == __file__
    assert option != "calls" or supervisor.calls.parallel == {"max_parallel_tools": 3, "approval": 2}.get(
        next(iter(flat)), monitor.runs.ToolCalls().parallel
    )


def test_options_of_two_groups_by_themselves_are_one_warning_and_a_wrong_one_is_refused_without():
    with pytest.warns(DeprecationWarning, match=r"retries=, approval= .*: write requests=.*, calls="):
        monitor.Supervisor(MODEL, retries=None, approval="plan")
    wrong: Any = {"max_nudges": "3"}
    with pytest.raises(monitor.ConfigError, match=r"^max_nudges is .3."):
        monitor.Supervisor(MODEL, **wrong)


@pytest.mark.parametrize(("option", "kind"), [("calls", "ToolCalls"), ("results", "Results"), ("requests", "Requests")])
def test_what_is_no_group_is_refused_with_the_line_to_type(option: str, kind: str):
    wrong: Any = {option: 3}
    with pytest.raises(monitor.ConfigError, match=rf"^{option} takes a {kind}, not 3: write {option}=monitor\.runs\."):
        monitor.Supervisor(MODEL, **wrong)
