"""README, docs and examples say what is so: their code is run here."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import monitor
from tests.adapters.google_sdk import sdk_warnings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(<!-- needs a key -->\n)?```python\n(.*?)```", re.DOTALL)

BLOCKS = [
    pytest.param(page, match.group(2), id=f"{page.name}:{page.read_text()[: match.start()].count(chr(10)) + 1}")
    for page in PAGES
    for match in BLOCK.finditer(page.read_text())
    if not match.group(1)
]


@sdk_warnings
@pytest.mark.parametrize(("page", "code"), BLOCKS)
def test_the_code_of_a_page_runs(page: Path, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "import" not in code:
        pytest.skip("a sketch of an interface, not a program")
    exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out


@sdk_warnings
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_runs(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_the_readme_ends_its_first_program_with_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    code = next(match.group(2) for match in BLOCK.finditer((ROOT / "README.md").read_text()))
    exec(code, {"__name__": "__main__"})
    assert "-> loop_detected - " in capsys.readouterr().out


def test_the_table_of_reasons_names_only_reasons_and_all_that_can_come_about() -> None:
    table = (ROOT / "README.md").read_text().split("<!-- reasons -->")[1].split("\n\n")[0]
    named = {word for line in table.splitlines() for word in re.findall(r"`([a-z_]+)`", line.split("|")[1] if "|" in line else "")}
    library = "".join(path.read_text() for path in (ROOT / "monitor").rglob("*.py") if path.name != "reasons.py")
    used = {reason.value for reason in monitor.TerminateReason if f"TerminateReason.{reason.name}" in library}
    assert named == used


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} -> {target}"
