"""Writes the plan of the house into docs/design.md: the floors, and each room of the root.

python scripts/design.py            write the page
python scripts/design.py --check    exit with 1 if the page is not up to date

The floors are those of the import contracts in pyproject.toml, which import-linter holds. The job
of a room is the first sentence of its docstring. The rest of the page is written by hand.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "design.md"
PACKAGE: Final = ROOT / "monitor"

FLOORS: Final = (
    ("cli", "command"),
    ("integrations", "fronts"),
    ("runs", "runs"),
    ("guard", "guard"),
    ("tools", "services"),
    ("core", "core"),
    ("detectors", "parts"),
    ("wires", "wires"),
    ("chunks", "words"),
)
"""A room of each floor, and the name of the floor. The layers below it belong to the same floor."""


def contracts() -> dict[str, dict[str, Any]]:
    """The import contracts by their ids."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {contract["id"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}


def names_in(layer: str) -> list[str]:
    """The names of a layer as import-linter writes it: `a | b : c`."""
    return re.split(r"[\s|:]+", layer)


def floors() -> dict[str, list[list[str]]]:
    """The layers of each floor, upper floors first."""
    found: dict[str, list[list[str]]] = {}
    name = FLOORS[0][1]
    for layer in map(names_in, contracts()["layers"]["layers"]):
        if layer == ["moved"] or "harness" in layer:  # the old addresses, which are no part of the plan
            continue
        name = next((floor for room, floor in FLOORS if room in layer), name)
        found.setdefault(name, []).append(layer)
    return found


def said(folder: Path) -> str:
    """The first sentence of a room's docstring."""
    doc = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(doc.split("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`(])", paragraph, maxsplit=1)[0]


def drawing() -> list[str]:
    """The floors, one line for each layer."""
    lines = ["```"]
    for number, (floor, layers) in enumerate(floors().items()):
        for first, layer in enumerate(layers):
            label = f"{len(FLOORS) - number}  {floor}" if not first else ""
            lines.append(f"{label:14}{'  '.join(layer)}".rstrip())
    return [*lines, "```"]


def rooms() -> list[str]:
    """Every folder of the root and its job, a row each, in the order of the floors."""
    folders = [room for layers in floors().values() for layer in layers for room in layer if (PACKAGE / room).is_dir()]
    rows = [f"| `{room}/` | {said(PACKAGE / room)} |" for room in folders]
    return ["| room | what it is for |", "| --- | --- |", *rows]


def page() -> str:
    """The whole page, with its generated parts written anew."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in (("floors", drawing()), ("rooms", rooms())):
        begin, end = f"<!-- {name}: written by scripts/design.py -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = before + "\n".join([begin, *lines, end]) + rest.partition(end)[2]
    return text


def main() -> int:
    """Write the page, or say by the exit code whether it is up to date."""
    new = page()
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != new)
    PAGE.write_text(new, encoding="utf-8")
    print(f"design.md: {new.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
