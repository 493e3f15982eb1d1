"""Supervisors by name and version: a run is never carried out by another version by chance."""

from __future__ import annotations

import pickle

import pytest

import monitor
from monitor.errors import ConfigError
from monitor.fleet import Supervisors, UnknownSupervisor
from monitor.testing import ScriptedModel


def supervisor() -> monitor.Supervisor:
    return monitor.Supervisor(ScriptedModel())


def test_a_version_is_carried_out_by_itself_or_by_one_that_says_so():
    known = Supervisors()
    old, new = known.add("writer", supervisor()), known.add("writer", supervisor(), version="3", also=["2"])
    assert [known.find("writer", version) for version in "123"] == [old, new, new]
    assert list(known) == [("writer", "1"), ("writer", "2"), ("writer", "3")]
    assert known.newest("writer") == "3"


@pytest.mark.parametrize(("name", "version"), [("writer", "2"), ("reader", "1")])
def test_any_other_version_waits(name: str, version: str):
    known = Supervisors()
    known.add("writer", supervisor())
    with pytest.raises(UnknownSupervisor, match="waits for a worker") as raised:
        known.find(name, version)
    copied = pickle.loads(pickle.dumps(raised.value))
    assert (copied.name, copied.version) == (name, version)


def test_two_supervisors_for_one_version_are_refused():
    known = Supervisors()
    known.add("writer", supervisor(), version="2", also=["1"])
    with pytest.raises(ConfigError, match="two supervisors"):
        known.add("writer", supervisor(), version="1")


@pytest.mark.parametrize("name", ["", "a/b", "a b", "é", "n" * 129])
def test_a_name_is_short_and_plain(name: str):
    with pytest.raises(ConfigError, match="a name is"):
        Supervisors().add(name, supervisor())


def test_what_is_no_supervisor_is_refused():
    with pytest.raises(ConfigError, match=r"monitor\.Supervisor"):
        Supervisors().add("writer", [])  # type: ignore[arg-type]
