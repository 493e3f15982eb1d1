"""The site has each page of the documentation once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_each_page_stands_in_the_site_once():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    placed = Counter(re.findall(r"[\w-]+\.md", nav))
    made = {"commands.md"}  # by scripts/commands.py, when the site is built
    assert placed == Counter({path.name for path in (ROOT / "docs").glob("*.md")} | made)


def test_the_site_asks_no_foreign_host():
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert not re.search(r"extra_(?:css|javascript):", settings)


LONG = 45
"""Shorter lines, such as a heading, may come twice."""
GENERATED = re.compile(r"<!-- (?:floors|rooms|programs|the table)\b.*?<!-- end of [\w ]+ -->", re.DOTALL)
"""The parts of a page that a script writes."""
WRITTEN_WHOLE = {"api.md", "event_kinds.md"}
"""The pages that a script writes."""


def test_the_pages_stay_short():
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in WRITTEN_WHOLE]
    written = "".join(GENERATED.sub("", page.read_text(encoding="utf-8")) for page in [ROOT / "README.md", *pages])
    prose = re.sub(r"```python\n.*?```", "", written, flags=re.DOTALL)
    assert len(prose) < 235_000, "a fact stands on one page: shorten another one"


@pytest.mark.parametrize("page", [ROOT / "README.md", *(ROOT / "docs").glob("*.md")], ids=lambda page: page.name)
def test_no_line_of_prose_stands_on_a_page_twice(page: Path):
    """A passage that was pasted in twice, or half of it."""
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lines = Counter(line for line in prose.splitlines() if len(line) > LONG and not line.startswith(("|", "    ")))
    assert [line for line, times in lines.items() if times > 1] == []
