from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from monitor._util.lazy import LazyModule, lazy_names
from monitor.errors import MissingExtra


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


def test_a_name_close_to_a_known_one_is_suggested():
    _public, get, _names = lazy_names("json", {"string": "Template"})
    with pytest.raises(AttributeError, match="no attribute 'Templates'; did you mean 'Template'"):
        get("Templates")


def test_dir_lists_public_names_only(monkeypatch: pytest.MonkeyPatch):
    package = ModuleType("made_up")
    package._hidden = package.imported = 1  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up", package)
    _public, _get, names = lazy_names("made_up", {"json": "dumps loads"})
    assert names() == ["dumps", "loads"]


class TestAMissingExtra:
    """`monitor.view.LiveView` where rich is not installed."""

    @pytest.fixture
    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr("importlib.import_module", _fail)
        return lazy_names("made_up", {"needs_an_extra": "Needed"})[1]("Needed")

    def test_it_has_a_name_and_says_why_it_cannot_be_used(self, stand_in: Any):
        assert stand_in.__name__ == "Needed"
        assert "pip install 'agent-monitor[cli]'" in stand_in.__doc__
        assert not hasattr(stand_in, "__wrapped__")

    @pytest.mark.parametrize(
        "use", [lambda it: it(), lambda it: it.preset, lambda it: type("Own", (it,), {})], ids=["call", "name", "base"]
    )
    def test_using_it_raises_what_to_install(self, stand_in: Any, use: Callable[[Any], object]):
        with pytest.raises(MissingExtra, match=re.escape("pip install 'agent-monitor[cli]'")):
            use(stand_in)

    def test_another_error_of_an_import_is_not_hidden(self, monkeypatch: pytest.MonkeyPatch):
        def broken(name: str) -> ModuleType:
            raise ValueError(name)

        monkeypatch.setattr("importlib.import_module", broken)
        with pytest.raises(ValueError, match="needs"):
            lazy_names("made_up", {"needs": "Needed"})[1]("Needed")


def _fail(name: str) -> ModuleType:
    raise MissingExtra("rich", "cli")
