"""Writes docs/api.md, the table of the public modules, and a page for each of them in docs/api.

A module's page names the module; the site fills it from the docstrings when it is built.

python scripts/api.py            write the pages
python scripts/api.py --check    exit with 1 if a page is not up to date
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

DOCS = Path(__file__).resolve().parent.parent / "docs"

HEAD = """# Every public name

A name is public if `monitor` or one of these modules lists it in its `__all__`; everything else is
private. `import monitor` gives all of them: `monitor.conditions.MaxTurns`. On the site, the page of a
module has its names with their parameters; in Python, `help(monitor.conditions)` shows the same.
This page is written by `python scripts/api.py`.

| module | what is in it |
| --- | --- |
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


def pages() -> dict[str, str]:
    """Each page below docs, and its text."""
    rows = ["| [`monitor`](api/monitor.md) | The names that most programs need. |"]
    found = {"api/monitor.md": "::: monitor\n"}
    for room in monitor._ROOMS.split():  # noqa: SLF001 - the list of public modules
        module = importlib.import_module(f"monitor.{room}")
        rows.append(f"| [`monitor.{room}`](api/{room}.md) | {first_sentence(module.__doc__ or '')} |")
        found[f"api/{room}.md"] = f"::: monitor.{room}\n"
    return {"api.md": HEAD + "\n".join(rows) + "\n"} | found


def main() -> int:
    """Write the pages, or say by the exit code whether they are up to date."""
    wanted = {DOCS / name: text for name, text in pages().items()}
    stored = {page: page.read_text(encoding="utf-8") for page in [DOCS / "api.md", *DOCS.glob("api/*.md")]}
    if "--check" in sys.argv:
        return int(wanted != stored)
    for page in stored.keys() - wanted.keys():
        page.unlink()
    for page, text in wanted.items():
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
    print(f"docs/api: {len(wanted)} pages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
