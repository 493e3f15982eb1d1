from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

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


MakePackage = Callable[[str, str], ModuleType]


@pytest.fixture
def make_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePackage:
    """Makes a package of a name, which imports what a text says for type checkers: "json dumps"."""

    def make(name: str, imports: str) -> ModuleType:
        path = tmp_path / f"{name}.py"
        lines = [f"    from {module} import {one} as {one}" for module, one in map(str.split, imports.split(","))]
        path.write_text("\n".join(("from typing import TYPE_CHECKING", "if TYPE_CHECKING:", *lines)))
        spec = spec_from_file_location(name, path)
        assert spec is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    return make


def test_a_name_of_a_package_is_taken_from_its_module_once(make_package: MakePackage):
    package = make_package("made_up", "json dumps, json loads, string Template, re X")
    before = dict(vars(package))
    public, get, names = lazy_names("made_up")
    assert public == ["X", "Template", "dumps", "loads"]
    assert set(public) <= set(names())
    assert not hasattr(package, "dumps")
    assert get("dumps") is json.dumps
    assert vars(package) == {**before, "dumps": json.dumps}
    with pytest.raises(AttributeError, match="module 'made_up' has no attribute 'load'"):
        get("load")


def test_a_submodule_is_a_name_of_its_package_and_not_in_all(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch
):
    make_package("json", "json tool, string Template")
    monkeypatch.setattr(sys.modules["json"], "__path__", json.__path__, raising=False)
    monkeypatch.delitem(sys.modules, "json.tool", raising=False)
    public, get, names = lazy_names("json")
    assert public == ["Template"]
    assert "tool" in names()
    assert get("tool") is sys.modules["json.tool"]


def test_a_package_in_an_archive_is_read_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed/__init__.py", "if TYPE_CHECKING:\n    from json import dumps as dumps\n")
    monkeypatch.syspath_prepend(tmp_path / "packed.zip")
    spec = find_spec("packed")
    assert spec is not None
    monkeypatch.setitem(sys.modules, "packed", module_from_spec(spec))
    assert lazy_names("packed")[0] == ["dumps"]


def test_a_name_close_to_a_known_one_is_suggested(make_package: MakePackage):
    make_package("made_up", "string Template")
    _public, get, _names = lazy_names("made_up")
    with pytest.raises(AttributeError, match="no attribute 'Templates'; did you mean 'Template'"):
        get("Templates")


def test_dir_lists_public_names_only(make_package: MakePackage):
    package = make_package("made_up", "json dumps, json loads")
    package._hidden = package.imported = 1  # type: ignore[attr-defined]
    _public, _get, names = lazy_names("made_up")
    assert names() == ["dumps", "loads"]


class TestAMissingExtra:
    """`monitor.view.LiveView` where rich is not installed."""

    @pytest.fixture
    def stand_in(self, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch) -> Any:
        make_package("made_up", "needs_an_extra Needed")
        monkeypatch.setattr("importlib.import_module", _fail)
        return lazy_names("made_up")[1]("Needed")

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

    def test_another_error_of_an_import_is_not_hidden(self, make_package: MakePackage, monkeypatch: pytest.MonkeyPatch):
        make_package("made_up", "needs Needed")

        def broken(name: str) -> ModuleType:
            raise ValueError(name)

        monkeypatch.setattr("importlib.import_module", broken)
        with pytest.raises(ValueError, match="needs"):
            lazy_names("made_up")[1]("Needed")


def _fail(name: str) -> ModuleType:
    raise MissingExtra("rich", "cli")
