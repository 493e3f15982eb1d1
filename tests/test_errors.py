"""The tree of errors on top of `monitor.errors` has every error that a program can catch."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator

import monitor
from monitor import errors
from monitor.errors import MonitorError, StoppedByGuard
from monitor.outcome import Turn
from monitor.verdicts import Stop

OURS_ALONE = {"ReportedFailure"}
"""Never leaves the library."""


def below(error: type[MonitorError]) -> Iterator[type[MonitorError]]:
    for each in error.__subclasses__():
        yield each
        yield from below(each)


def drawn() -> dict[str, str]:
    """The name of each error in the tree, and the error above it."""
    tree: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"( +)([A-Z]\w+)(?:  |$)", line)
        if found is None:
            continue
        depth, name = len(found[1]), found[2]
        path = [one for one in path if one[0] < depth]
        tree[name] = path[-1][1] if path else ""
        path.append((depth, name))
    return tree


def test_every_error_stands_in_the_tree_below_the_one_that_it_is():
    for module in pkgutil.walk_packages(monitor.__path__, "monitor."):
        if not module.name.startswith(("monitor.integrations.", "monitor.cli", "monitor.view", "monitor.testing")):
            importlib.import_module(module.name)
    known = {
        error.__name__: error.__bases__[0].__name__
        for error in below(MonitorError)
        if error.__module__.startswith("monitor.") and not error.__module__.startswith("monitor.integrations")
    }
    assert drawn() == {name: above for name, above in known.items() if name not in OURS_ALONE} | {"MonitorError": ""}


def test_a_stop_inside_a_framework_keeps_its_reason_when_it_is_sent_to_another_process():
    error = StoppedByGuard(Stop(monitor.TerminateReason.TIMEOUT, "too long", "timeout"), Turn(number=1, text="half"))
    again = pickle.loads(pickle.dumps(error))
    assert (again.stop, again.turn) == (error.stop, error.turn)
    assert str(again) == "timeout: too long"
