"""The options that type checkers know are those that a guard and a supervisor take."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import monitor
from monitor.guard.options import GuardOptions
from monitor.runs.supervisor_options import SupervisorKeywords


@pytest.mark.parametrize(("kind", "options"), [(monitor.Guard, GuardOptions), (monitor.Supervisor, SupervisorKeywords)])
def test_a_type_checker_knows_every_option_and_its_type(kind: Any, options: Any):
    taken = {
        one.name: one.annotation
        for one in inspect.signature(kind).parameters.values()
        if one.name not in {"model", "outputs"}
    }
    known = {name: hint.__forward_arg__ for name, hint in options.__annotations__.items()}
    assert known == taken
