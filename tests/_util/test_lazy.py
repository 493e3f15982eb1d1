from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest

from monitor._util.lazy import LazyModule, lazy_names


def test_a_module_is_imported_when_something_of_it_is_asked_for():
    sys.modules.pop("colorsys", None)
    later = LazyModule("colorsys")
    assert "colorsys" not in sys.modules
    assert later.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
    assert "colorsys" in sys.modules


def test_what_was_asked_for_is_kept():
    later = LazyModule("json")
    assert "dumps" not in vars(later)
    assert later.dumps is json.dumps
    assert vars(later)["dumps"] is json.dumps


def test_what_the_module_has_not_is_an_attribute_error_that_names_the_module():
    with pytest.raises(AttributeError, match="module 'json' has no attribute 'undumps'"):
        _ = LazyModule("json").undumps


def test_a_name_of_a_package_is_taken_from_its_module_once(monkeypatch: pytest.MonkeyPatch):
    package = ModuleType("made_up")
    monkeypatch.setitem(sys.modules, "made_up", package)
    public, get, names = lazy_names("made_up", {"json": "dumps loads", "string": "Template", "re": "X"})
    assert public == ["X", "Template", "dumps", "loads"]
    assert set(public) <= set(names())
    assert not hasattr(package, "dumps")
    assert get("dumps") is json.dumps
    assert vars(package) == {**vars(ModuleType("made_up")), "dumps": json.dumps}
    with pytest.raises(AttributeError, match="module 'made_up' has no attribute 'load'"):
        get("load")


def test_a_submodule_is_a_name_of_its_package_and_not_in_all(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(json, "tool", raising=False)
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    public, get, names = lazy_names("json", {"json": "tool", "string": "Template"})
    assert public == ["Template"]
    assert "tool" in names()
    assert get("tool") is sys.modules["json.tool"]
