"""The page under axe-core, the checker of web pages, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import CHROMIUM, Tab, browser
from tests.report.test_report_page import page_of, run_of

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium")

AXE = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
VIEWS = {
    "overview": "document.getElementById('to-overview').click()",
    "run with a loop": "location.hash = '#run=' + JSON.parse(document.getElementById('data').textContent).runs[0].key",
    "run without a loop": (
        "location.hash = '#run=' + JSON.parse(document.getElementById('data').textContent).runs.at(-1).key"
    ),
    "nothing found": (
        "document.getElementById('search').value = 'no such word';"
        " document.getElementById('filters').dispatchEvent(new Event('input'))"
    ),
    "help": "document.getElementById('search').value = ''; document.getElementById('to-help').click()",
}


def violations(tab: Tab) -> list[tuple[str, Any]]:
    """Everything that axe finds, each with the elements that it is about."""
    found = json.loads(
        tab.run(
            f"axe.run(document, {{runOnly: {json.dumps(STANDARDS)}, resultTypes: ['violations', 'passes']}})"
            ".then(found => JSON.stringify({passes: found.passes.length, violations:"
            " found.violations.map(one => [one.id, one.nodes.map(node => node.html.slice(0, 160)).slice(0, 4)])}))"
        )
    )
    assert found["passes"] >= 15  # so many rules had something to look at
    return found["violations"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    quiet = [run_of(f"quiet {at}", number=at, loop=False) for at in range(40)]
    file.write_text(page_of(run_of("stuck"), run_of("</script><b>"), *quiet), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


def views(tab: Tab, page: Path, *, width: int, dark: bool = False) -> Iterator[str]:
    """The names of the views, each when it is shown."""
    tab.show_as(width=width, dark=dark)
    tab.open(page)
    for view, show in VIEWS.items():
        tab.run(f"{show}; null")
        tab.run("new Promise(done => setTimeout(done, 50))")
        yield view


@pytest.mark.parametrize(("dark", "width"), [(False, 1280), (True, 1280), (False, 400)])
def test_axe_finds_nothing_in_any_view(page: Path, tab: Tab, dark: bool, width: int):
    for view in views(tab, page, dark=dark, width=width):
        tab.run(f"window.axe || (() => {{ {AXE} }})(); null")
        assert violations(tab) == [], view


@pytest.mark.parametrize("width", [320, 400, 768])
def test_nothing_is_wider_than_the_window(page: Path, tab: Tab, width: int):
    for view in views(tab, page, width=width):
        assert tab.run("document.documentElement.scrollWidth") <= width, view
        if view == "run with a loop":  # it is shown, also where it stands below the list
            assert 0 <= tab.run("Math.round(document.getElementById('part').getBoundingClientRect().top)") < 300
