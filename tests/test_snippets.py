"""The Python of the pages reaches the type checkers: all of it, as whole programs, and nothing is
silenced there.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from scripts.snippets import PAGES, Snippet, main, snippets

ROOT = Path(__file__).parent.parent
SNIPPETS = [one for page in PAGES for one in snippets(page)]
AT_LEAST = {
    "README.md": 2,
    "own_loop.md": 1,
    "anthropic.md": 3,
    "compaction.md": 3,
    "context.md": 7,
    "google-genai.md": 3,
    "adk.md": 1,
    "agent-framework.md": 1,
    "crewai.md": 1,
    "autogen.md": 1,
    "langchain.md": 1,
    "openai-agents.md": 1,
    "pydantic-ai.md": 1,
    "strands.md": 1,
    "temporal.md": 1,
    "judge.md": 3,
    "loops.md": 1,
    "openai.md": 3,
    "own_parts.md": 1,
    "settings.md": 1,
    "sessions.md": 4,
    "supervisor.md": 7,
    "telemetry.md": 2,
}
SILENCED = re.compile(r"#\s*(type:\s*ignore|pyright:|mypy:|noqa)")
each_snippet = pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda one: one.name)


def test_every_python_block_of_a_page_is_a_snippet():
    found = Counter(one.page.name for one in SNIPPETS)
    fences = {page.name: sum(line.strip() == "```python" for line in page.read_text().splitlines()) for page in PAGES}
    assert found == Counter({name: count for name, count in fences.items() if count})
    assert {name: found[name] for name in AT_LEAST if found[name] < AT_LEAST[name]} == {}


@each_snippet
def test_a_snippet_is_a_whole_program_that_uses_the_library(snippet: Snippet):
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(snippet.code))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert "monitor" in imported


@each_snippet
def test_a_snippet_begins_on_its_line_of_the_page(snippet: Snippet):
    lines = snippet.page.read_text().splitlines()
    assert lines[snippet.line - 2] == "```python"
    assert lines[snippet.line - 1] == snippet.code.splitlines()[0]


def test_no_snippet_and_no_example_silences_a_checker():
    texts = {one.name: one.code for one in SNIPPETS}
    texts |= {path.name: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    assert [name for name, text in texts.items() if SILENCED.search(text)] == []


def test_the_files_of_the_snippets_are_those_of_today(tmp_path: Path):
    (tmp_path / "a_page_that_went_1.py").write_text("")
    assert main([str(tmp_path)]) == 0
    assert {path.stem: path.read_text() for path in tmp_path.iterdir()} == {one.name: one.code for one in SNIPPETS}


def test_both_checkers_read_the_package_the_examples_and_the_snippets():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    make = (ROOT / "Makefile").read_text()
    parts = [
        make.partition(f"\n{name}:")[2].partition("\n\n")[0] for name in ("check-types", "check-mypy", "check-pyright")
    ]
    folder = re.search(r"^SNIPPETS := (\S+)$", make, re.MULTILINE)
    assert folder is not None
    assert {"monitor", "examples", folder[1]} <= set(tools["pyright"]["include"])
    assert {"monitor", "examples", "tests"} <= set(tools["mypy"]["files"])
    assert tools["mypy"]["strict"]
    types, mypy, pyright = ([line.strip() for line in part.splitlines()[1:]] for part in parts)
    write = "@$(BIN)/python scripts/snippets.py $(SNIPPETS)"
    assert types == [write, "@$(MAKE) --keep-going check-mypy check-pyright"]
    assert mypy[:2] == ["@$(BIN)/mypy", "@$(BIN)/mypy $(SNIPPETS)"]
    assert pyright == ["@$(BIN)/basedpyright"]
    written, checked = make.partition("\ncheck:")[2].partition("\n\n")[0].splitlines()[1:]
    assert written.strip() == write
    assert {"check-mypy", "check-pyright"} <= set(checked.split())
