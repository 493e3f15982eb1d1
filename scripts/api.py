"""Writes docs/api.md: every public name, where it is imported from, and what it is.

python scripts/api.py            write the page
python scripts/api.py --check    exit with 1 if the page is not up to date
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import monitor

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"

HEAD = """# Every public name

This page is written by `python scripts/api.py` from the docstrings.
What stands here is public; everything else is private.
The names of the first table are attributes of `monitor`, the others of the module in their heading.
"""


def first_sentence(doc: str) -> str:
    """The first sentence of a docstring, as the cell of a table."""
    paragraph = " ".join(doc.strip().split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`(])", paragraph, maxsplit=1)[0]
    return sentence.replace("|", "\\|")


def constants(module: ModuleType) -> dict[str, str]:
    """The docstrings that stand below the assignments of a module."""
    body = ast.parse(inspect.getsource(module)).body
    found: dict[str, str] = {}
    for statement, below in pairwise(body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[target.id] = str(below.value.value)
    return found


def origin(module: ModuleType, name: str) -> ModuleType:
    """The module in which `name` of `module` is defined, as far as an import statement says so."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return origin(importlib.import_module(node.module), name)
    return module


def said(module: ModuleType, name: str) -> str:
    """What a name is, in one sentence."""
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
        return first_sentence(inspect.getdoc(value) or "")
    return first_sentence(constants(origin(module, name)).get(name, ""))


def table(module: ModuleType) -> list[str]:
    """The public names of a module, a row each."""
    names = [name for name in module.__all__ if not name.startswith("__")]
    return ["| name | what it is |", "| --- | --- |", *(f"| `{name}` | {said(module, name)} |" for name in names)]


def page() -> str:
    """The whole page."""
    parts = [HEAD, "## monitor", "", *table(monitor)]
    for room in monitor._ROOMS.split():  # noqa: SLF001 - the list of public modules
        module = importlib.import_module(f"monitor.{room}")
        parts += ["", f"## monitor.{room}", "", first_sentence(module.__doc__ or ""), "", *table(module)]
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write the page, or say by the exit code whether it is up to date."""
    text = page()
    if "--check" in sys.argv:
        return int(not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.name}: {text.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
