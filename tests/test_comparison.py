"""The tables of the field: each cell has a source, and what is said of installed packages holds."""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
FIELD, SOURCES = PAGE.split("## Stops, measured")[0].split("## Sources")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", FIELD, re.MULTILINE)]
PEERS = [row for row in ROWS if row[0] and not row[0].startswith(("---", "**"))]
OURS = [row for row in ROWS if row[0].startswith("**")]


@pytest.mark.parametrize("row", PEERS, ids=lambda row: f"{row[0]}-{len(row)}")
def test_each_cell_of_a_peer_has_a_source_that_the_page_explains(row: list[str]):
    named = set(re.findall(r"\b(S|R|D\d)\b", SOURCES))
    for cell in row[1:]:
        assert cell == "?" or cell.split()[-1] in named, cell
        assert cell == "?" or len(cell.split()) > 1, f"{cell!r} has a source and says nothing"


def test_each_cell_of_this_library_leads_to_the_page_that_shows_it():
    for row in OURS:
        for cell in row[1:]:
            link = re.fullmatch(r"\[[^]]+\]\(([\w.-]+)(?:#([\w-]+))?\)", cell)
            assert link, cell
            page = (ROOT / "docs" / link[1]).read_text(encoding="utf-8")
            headings = {
                re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
                for heading in re.findall(r"^#+ (.*)$", page, re.MULTILINE)
            }
            assert link[2] is None or link[2] in headings, cell


def test_both_tables_have_the_same_columns_in_every_row():
    widths = {tuple(row): len(row) for row in ROWS}
    assert set(widths.values()) == {6, 9}


def names(of: Any) -> set[str]:
    """The attributes, fields or parameters of a class."""
    return {field.name for field in dataclasses.fields(of)} if dataclasses.is_dataclass(of) else set(dir(of))


FACTS: list[tuple[str, str, str, Callable[[Any], bool]]] = [
    (
        "pydantic-ai",
        "requests, calls, tokens, cost",
        "pydantic_ai.usage",
        lambda module: (
            {"request_limit", "tool_calls_limit", "total_tokens_limit", "cost_limit"} <= names(module.UsageLimits)
        ),
    ),
    (
        "openai-agents",
        "turns",
        "agents.exceptions",
        lambda module: hasattr(module, "MaxTurnsExceeded") and not re.search(r"(?i)loop|repeat", " ".join(dir(module))),
    ),
    (
        "openai-agents",
        "Docker, local",
        "agents.sandbox",
        lambda module: hasattr(module, "SandboxAgent"),
    ),
    (
        "LangGraph, LangChain",
        "recursion, model and tool calls",
        "langchain.agents.middleware",
        lambda module: (
            {"ModelCallLimitMiddleware", "ToolCallLimitMiddleware", "HumanInTheLoopMiddleware"} <= names(module)
        ),
    ),
    (
        "LangGraph, LangChain",
        "exception types",
        "langgraph.errors",
        lambda module: hasattr(module, "GraphRecursionError"),
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("peer", "said", "module", "holds"), FACTS, ids=[f"{fact[0]}-{fact[2]}" for fact in FACTS])
def test_what_is_said_of_an_installed_peer_holds(peer: str, said: str, module: str, holds: Callable[[Any], bool]):
    pytest.importorskip(module.split(".", maxsplit=1)[0], reason=f"{peer} is not installed here")
    assert any(row[0] == peer and any(cell.startswith(said) for cell in row) for row in PEERS)
    assert holds(importlib.import_module(module))
